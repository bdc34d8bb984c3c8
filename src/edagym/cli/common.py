"""What the commands share: exit codes, output, small parsers and tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edagym.errors import TaskError

if TYPE_CHECKING:
    from edagym.task_assets.fet.task import FETTask

PASS, FAIL, BAD_INPUT, TOOL_ERROR = 0, 1, 2, 3


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_seed_flag(parser: argparse.ArgumentParser, default: int, text: str) -> None:
    """Add `--seed`, a whole number that is not negative."""
    parser.add_argument("--seed", type=_seed, metavar="N", default=default, help=f"{text} (default: %(default)s)")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 up")
    return int(text)


def add_executor_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--executor` and the flags of Ray."""
    parser.add_argument(
        "--executor",
        choices=("process", "ray"),
        default="process",
        help="where it runs: local processes, or a Ray cluster (extra `distributed`; default: %(default)s)",
    )
    parser.add_argument(
        "--ray-address", metavar="ADDRESS", help="running cluster, or auto (default: RAY_ADDRESS, else a local one)"
    )
    parser.add_argument("--ray-cpus", type=float, default=1.0, metavar="N", help="CPUs of each (default: %(default)s)")
    parser.add_argument(
        "--ray-resource",
        action="append",
        default=[],
        metavar="NAME=AMOUNT",
        help="custom resource of each, which limits how many run at a time, e.g. orfs=1 (repeatable)",
    )


def ray_cluster(args: argparse.Namespace) -> Any:
    """Return the cluster that the flags of `add_executor_flags` name (`Cluster`), or None without Ray."""
    if args.executor != "ray":
        given = {"--ray-address": args.ray_address, "--ray-resource": args.ray_resource}
        for flag, value in given.items():
            if value:
                raise TaskError("only for Ray", field=flag, value=value, allowed="--executor ray")
        return None
    from edagym.baselines.ray_executor import Cluster, parse_resources

    if args.ray_cpus <= 0:
        raise TaskError("not a number of CPUs", field="--ray-cpus", value=args.ray_cpus, allowed="> 0")
    return Cluster(args.ray_address, args.ray_cpus, parse_resources(args.ray_resource))


def emit(args: argparse.Namespace, data: Any, text: str) -> None:
    """Print `data` as JSON under `--json`, else `text`."""
    print(json.dumps(data, indent=1, ensure_ascii=False, default=_plain) if args.json else text.rstrip("\n"))


def _plain(value: Any) -> Any:
    """Return numpy scalars and arrays, paths and sets as JSON-ready values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"not JSON-ready: {type(value).__name__}")


def table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    """Return rows as aligned columns; numbers to the right."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in [list(header), *cells]) for i in range(len(header))]
    numeric = [all(isinstance(row[i], int | float) for row in rows) and bool(rows) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        parts = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric)]
        return "  ".join(parts).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *(line(r) for r in cells)])


def find_task(name: str) -> FETTask:
    """Return a task by its id (``L2/case_12``) or from a task file (``*.json``).

    Raises:
        TaskError: If there is no such task, or its file is malformed.
    """
    if name.endswith(".json"):
        from edagym.task_assets.fet.task import FETTask

        return FETTask.load(name)
    from edagym.task_assets.fet.suite import load_task

    return load_task(name)


def out_dir(path: str) -> Path:
    """Make a folder and return it.

    Raises:
        TaskError: If it cannot be made.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise TaskError(f"cannot make folder {folder}: {e.strerror}") from e
    return folder
