"""`edagym report RUN [RUN ...]`: one page with the tables, figures and attempts of evaluations."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edagym.cli.common import PASS, add_json_flag, emit, out_dir


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="write a page with the results of runs and every attempt step by step",
        description="Write one self-contained HTML file that works offline: tables with 95 %% intervals, figures, "
        "paired differences between runs, a list of attempts and a viewer of each. Broken lines of a run are reported "
        "and passed over. Exit codes: 0 written, 2 bad input.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder that `edagym eval` or `rollout` wrote")
    parser.add_argument("--out", metavar="FILE", default="report.html", help="the page (default: %(default)s)")
    parser.add_argument("--markdown", metavar="FILE", help="also write the tables as Markdown")
    parser.add_argument("--csv", metavar="FILE", help="also write the measures as CSV")
    parser.add_argument("--title", default="Evaluation report", help="title of the page (default: %(default)s)")
    parser.add_argument(
        "--max-traces", type=int, default=150, metavar="N", help="attempts with steps, at most (default: %(default)s)"
    )
    parser.add_argument(
        "--max-mb", type=float, default=24.0, metavar="MB", help="size of their steps, at most (default: %(default)g)"
    )
    parser.add_argument(
        "--tasks", action="append", default=[], metavar="DIR", help="folder of the runs' tasks, if moved (repeatable)"
    )
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.baselines.report import build_report

    report = build_report(
        args.runs,
        title=args.title,
        max_traces=args.max_traces,
        max_bytes=args.max_mb * 1e6,
        tasks=args.tasks,
        progress=True,
    )
    written = {}
    for path, text in ((args.out, report.html), (args.markdown, report.markdown), (args.csv, report.csv)):
        if path is not None:
            out_dir(str(Path(path).parent))
            Path(path).write_bytes(text.encode("utf-8"))
            written[path] = len(text.encode("utf-8"))
    attempts = sum(run["records"] for run in report.numbers["runs"])
    lines = [f"{path}: {size / 1e6:.2f} MB" for path, size in written.items()]
    lines.append(f"{attempts} attempts, {report.shown} with steps")
    lines += [*report.notes, *(f"not read: {f['run']}: {f['message']}" for f in report.numbers["faults"])]
    data = {"files": written, "shown": report.shown, "notes": report.notes, **report.numbers}
    emit(args, data, "\n".join(lines))
    return PASS
