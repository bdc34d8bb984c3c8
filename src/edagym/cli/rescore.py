"""`edagym rescore RUN`: recompute every verdict of a run from its files."""

from __future__ import annotations

import argparse
from typing import Any

from edagym.cli.common import BAD_INPUT, FAIL, PASS, TOOL_ERROR, add_json_flag, emit

SHOWN = 30


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "rescore",
        help="recompute every verdict of a run from its saved files",
        description="Load each task by its id and hash, verify the saved layout or run the flow on the saved design, "
        "and compare with the records. Exit codes: 0 all agree, 1 a record, file or verdict does not, 2 bad input or "
        "an unknown task, 3 a tool failed.",
    )
    parser.add_argument("run_folder", metavar="RUN", help="folder that `edagym eval --out` or `rollout --out` wrote")
    parser.add_argument(
        "--tasks", action="append", default=[], metavar="DIR", help="folder of the run's tasks, if moved (repeatable)"
    )
    parser.add_argument(
        "--replay", action="store_true", help="also replay FET and DRC traces: they must end in the saved layout"
    )
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.baselines.rescore import rescore

    found = rescore(args.run_folder, tasks=args.tasks, replay=args.replay)
    lines = [f"{args.run_folder}: {found.agreed} of {found.verdicts} verdicts agree"]
    without = found.attempts - found.verdicts
    lines += [f"{without} attempts without verdict"] if without else []
    lines += [f"{found.absent} attempts have not been run"] if found.absent else []
    lines += [f"  {f.kind}: {f.attempt}: {f.message}" for f in found.findings[:SHOWN]]
    if len(found.findings) > SHOWN:
        lines.append(f"  ... and {len(found.findings) - SHOWN} more (--json lists all)")
    emit(args, {"run": args.run_folder, **found.to_dict()}, "\n".join(lines))
    if found.of("record", "file", "verdict", "replay"):
        return FAIL
    if found.of("tool"):
        return TOOL_ERROR
    return BAD_INPUT if found.of("task") else PASS
