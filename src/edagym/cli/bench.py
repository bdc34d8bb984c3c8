"""`edagym bench`: how fast the environments are."""

from __future__ import annotations

import argparse
from typing import Any

from edagym.cli.common import PASS, add_json_flag, emit, table
from edagym.errors import TaskError, ToolError


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bench",
        help="measure steps per second, verify and reset times",
        description=(
            "fet: edit steps per second, verify and reset times, asynchronous throughput. "
            "drc: full checks, re-checks after edits, audits, beside the klayout binary where there is one. "
            "rl: steps per second through each wrapper stack, share of training time spent in environments. "
            "ppa: CPU seconds per stage of the embedded flow; with --facts instead its agreement with recorded runs. "
            "eval: attempts per second of the evaluation with an instant policy, beside the bare loop."
        ),
    )
    parser.add_argument(
        "family", metavar="FAMILY", choices=("fet", "drc", "ppa", "eval", "rl"), help="fet, drc, ppa, eval or rl"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="time per throughput measurement (default: 2)")
    parser.add_argument("--train-resets", type=int, default=50, help="resets of FET-Train-v0 to time (default: 50)")
    parser.add_argument("--layout", action="append", default=[], help="drc: layout file to measure too; repeatable")
    parser.add_argument("--edits", type=int, default=150, help="drc: random edits per layout (default: 150)")
    parser.add_argument("--attempts", type=int, default=25, help="eval: attempts per task (default: 25)")
    parser.add_argument("--no-full", action="store_true", help="drc: no full checks of the layout files (minutes)")
    parser.add_argument("--workers", type=int, default=2, help="drc, eval: processes (default: 2)")
    parser.add_argument("--deck", default=None, help="drc: rule deck to time the klayout binary with")
    parser.add_argument(
        "--facts", metavar="JSON", default=None, help="ppa: recorded runs of the real flow to compare with"
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="rl: stacks whose names hold this; repeatable")
    parser.add_argument("--train-steps", type=int, default=512, help="rl: steps of each training (default: 512)")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.baselines.bench import bench_fet
    from edagym.baselines.bench_drc import bench_drc

    numbers = (
        ("--seconds", args.seconds),
        ("--train-resets", args.train_resets),
        ("--edits", args.edits),
        ("--attempts", args.attempts),
        ("--workers", args.workers),
        ("--train-steps", args.train_steps),
    )
    for name, value in numbers:
        if not value > 0:
            raise TaskError("must be positive", field=name, value=value, allowed="> 0")
    if args.family == "ppa":
        return _ppa(args)
    if args.family == "rl":
        return _rl(args)
    if args.family == "eval":
        return _eval(args)
    if args.family == "drc":
        result = bench_drc(args.layout, args.edits, args.deck, full=not args.no_full, workers=args.workers)
    else:
        result = bench_fet(args.seconds, args.train_resets)
    emit(args, result, _text(result))
    return PASS


def _eval(args: argparse.Namespace) -> int:
    from edagym.baselines.bench_eval import bench_eval

    result = bench_eval(args.attempts, args.workers, progress=not args.json)
    emit(args, result, _text(result))
    return PASS


def _rl(args: argparse.Namespace) -> int:
    try:
        from edagym.baselines.bench_rl import bench_rl

        result = bench_rl(args.seconds, args.workers, args.train_steps, args.only, progress=not args.json)
    except ImportError as e:
        raise ToolError(f"training needs the extra `rl` ({e})", field="extra", value="rl") from e
    emit(args, result, _text(result))
    return PASS


def _ppa(args: argparse.Namespace) -> int:
    from edagym.baselines import ppa_accuracy
    from edagym.baselines.bench_ppa import bench_ppa
    from edagym.envs.ppa.flow.embedded import EmbeddedFlow

    if args.facts:
        result = ppa_accuracy.compare(EmbeddedFlow(), args.facts, progress=not args.json)
        emit(args, result, ppa_accuracy.text(result))
    else:
        result = bench_ppa(progress=not args.json)
        emit(args, result, _text(result))
    return PASS


def _text(result: dict[str, Any]) -> str:
    """Return one line per figure, then where the time goes."""
    rows: list[tuple[str, str]] = []
    for name, value in result.items():
        if name != "profile":
            rows.extend(_rows(name, value))
    lines = [table(rows, ("figure", "value"))]
    for name, profile in result.get("profile", {}).items():
        shares = [
            (f"{row['own_share']:.1%}", f"{row['with_callees_share']:.1%}", row["calls"], row["function"])
            for row in profile
        ]
        lines += ["", table(shares, ("own time", "with callees", "calls", f"function ({name})"))]
    return "\n".join(lines)


def _rows(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict) and any(isinstance(v, dict) for v in value.values()):
        return [row for key, inner in value.items() for row in _rows(f"{name} {key}", inner)]
    return [(name, _pairs(value) if isinstance(value, dict) else _number(value))]


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_number(value)}" for key, value in values.items())


def _number(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, float) and value >= 1000 else str(value)
