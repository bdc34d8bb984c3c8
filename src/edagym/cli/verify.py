"""`edagym verify TASK LAYOUT.gds`: check a layout file against a task."""

from __future__ import annotations

import argparse
from typing import Any

from edagym.cli.common import FAIL, PASS, add_json_flag, emit, find_task


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "verify",
        help="check a GDSII layout against a task",
        description="Check a GDSII layout against a task. Exit code 0 only when it passes.",
    )
    parser.add_argument("task", metavar="TASK", help="task id, e.g. L2/case_12, or a task file (*.json)")
    parser.add_argument("layout", metavar="LAYOUT.gds", help="layout file with one top cell, database unit 1 nm")
    parser.add_argument(
        "--criterion", choices=("paper", "strict"), default="strict", help="what counts as success (default: strict)"
    )
    parser.add_argument("--svg", metavar="OUT", help="also write a picture with the violations marked")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.verifiers.fet import verify
    from edagym.verifiers.fet.layout import FETLayout

    task = find_task(args.task)
    layout = FETLayout.read_gds(args.layout, task.layers)
    verdict = verify(layout, task)
    if args.svg:
        from pathlib import Path

        from edagym.envs.fet.viewer import render_svg

        Path(args.svg).write_text(render_svg(task.view(), layout, verdict=verdict), encoding="utf-8")
    success = verdict.success(args.criterion)
    failed = verdict.failed("strict")
    lines = [
        f"{task.id}: paper {_word(verdict.paper_success)}, strict {_word(verdict.strict_success)} "
        f"({len(verdict.checks) - len(failed)} of {len(verdict.checks)} checks hold)"
    ]
    for check in failed:
        scope = " (strict only)" if check.strict else ""
        where = ""
        if check.where is not None:
            where = " at ({:.3f}, {:.3f})-({:.3f}, {:.3f}) um".format(*check.where)
        lines.append(f"  failed {check.id}{scope}: {check.message}{where}")
    data = {"task": task.id, "criterion": args.criterion, "success": success, **verdict.to_dict()}
    emit(args, data, "\n".join(lines))
    return PASS if success else FAIL


def _word(ok: bool) -> str:
    return "pass" if ok else "fail"
