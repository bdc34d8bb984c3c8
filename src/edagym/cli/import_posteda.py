"""`edagym import-posteda DIR`: turn a copy of the public PostEDA-Bench into tasks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edagym.cli.common import FAIL, PASS, add_json_flag, emit, out_dir, table
from edagym.errors import TaskError


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "import-posteda",
        help="import the public PostEDA-Bench",
        description="Read the tasks of a copy of PostEDA-Bench (drc_bench/drc_{essential,reasoning}/L*/q*, "
        "ppa_bench/ppa_mono/{area,power,perf}/L*/q*, ppa_bench/ppa_multi/L*/q*) and write them as task folders, which "
        "DRCEnv(suite=OUT) and PPAEnv(suite=OUT/ppa-orfs) run. Every layout is checked once and its markers are stored "
        "with it. Exit code 1 when the engine counts other violations than the benchmark states.",
    )
    parser.add_argument("folder", metavar="DIR", help="the benchmark's root, its drc_bench or ppa_bench, or one task")
    parser.add_argument("--out", metavar="DIR", default="out/posteda", help="output folder (default: out/posteda)")
    parser.add_argument(
        "--no-check", action="store_true", help="don't check the layouts: fast, but the first reset of a task has to"
    )
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="also write the PPA tasks for the embedded flow, with re-based targets (OUT/ppa-embedded)",
    )
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    found: dict[str, Any] = {}
    missing = []
    for name, read in (("drc", _drc), ("ppa", _ppa)):
        if _has(Path(args.folder), name):
            found[name] = read(args)
        else:
            missing.append(name)
    if not found:
        allowed = "one with drc_bench or ppa_bench"
        raise TaskError("no tasks there", field="folder", value=args.folder, allowed=allowed)
    drc, ppa = found.get("drc", {"tasks": [], "counts_differ": []}), found.get("ppa", [])
    lines = []
    if drc["tasks"]:
        header = ["id", "top", "violations", "engine", "budget"]
        lines.append(
            table([["-" if row[name] is None else row[name] for name in header] for row in drc["tasks"]], header)
        )
    if ppa:
        header = ["id", "backend", "design", "to improve", "to keep"]
        lines.append(table([[row[name] for name in header] for row in ppa], header))
    if drc["counts_differ"]:
        lines.append(f"counts differ: {', '.join(drc['counts_differ'])}")
    lines.append(f"wrote {len(drc['tasks']) + len(ppa)} tasks to {args.out}")
    emit(args, {"out": args.out, **drc, "ppa_tasks": ppa}, "\n".join(lines))
    return FAIL if drc["counts_differ"] else PASS


def _has(root: Path, family: str) -> bool:
    """Return whether a folder holds tasks of a family, as a whole or as one task's folder."""
    shapes = {"drc": ("drc_*/L*/q*",), "ppa": ("ppa_mono/*/L*/q*", "ppa_multi/L*/q*")}[family]
    if any(True for base in (root, root / f"{family}_bench") for shape in shapes for _ in base.glob(shape)):
        return True
    mark = {"drc": "top_cell.gds", "ppa": "config"}[family]
    return (root / "info.json").is_file() and (root / mark).exists()


def _drc(args: argparse.Namespace) -> dict[str, Any]:
    from edagym.envs.drc.posteda import import_posteda

    tasks = import_posteda(args.folder, markers=not args.no_check, progress=True)
    folder = out_dir(args.out)
    rows, differing = [], []
    for task in tasks:
        task.save(folder / task.id.removeprefix("posteda/"))
        counted = task.metadata.get("engine_counts")
        if counted is not None and counted != dict(task.counts):
            differing.append(task.id)
        rows.append(
            {
                "id": task.id,
                "top": task.top,
                "violations": task.total,
                "engine": None if counted is None else sum(counted.values()),
                "budget": task.budget,
                "roi_um": task.roi,
            }
        )
    return {"tasks": rows, "counts_differ": differing}


def _ppa(args: argparse.Namespace) -> list[dict[str, Any]]:
    from edagym.envs.ppa.posteda import import_ppa

    rows = []
    for backend in ("orfs", "embedded") if args.embedded else ("orfs",):
        for task in import_ppa(args.folder, backend=backend, progress=True):
            task.save(out_dir(args.out) / f"ppa-{backend}" / task.id.removeprefix("posteda/"))
            rows.append(
                {
                    "id": task.id,
                    "backend": task.backend,
                    "design": task.config().design_name,
                    "to improve": " ".join(task.to_improve) or "-",
                    "to keep": " ".join(task.to_keep) or "-",
                }
            )
    return rows
