"""`edagym import-posteda DIR`: turn a copy of the public PostEDA-Bench into tasks."""

from __future__ import annotations

import argparse
from typing import Any

from edagym.cli.common import FAIL, PASS, add_json_flag, emit, out_dir, table


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "import-posteda",
        help="import the public PostEDA-Bench",
        description="Read the DRC tasks of a copy of PostEDA-Bench (drc_bench/drc_{essential,reasoning}/L*/q*) and "
        "write them as task folders, which DRCEnv(suite=OUT) runs. Every layout is checked once and its markers are "
        "stored with it. Exit code 1 when the engine counts other violations than the benchmark states.",
    )
    parser.add_argument("folder", metavar="DIR", help="the benchmark's root, its drc_bench folder or one task's folder")
    parser.add_argument("--out", metavar="DIR", default="out/posteda", help="output folder (default: out/posteda)")
    parser.add_argument(
        "--no-check", action="store_true", help="don't check the layouts: fast, but the first reset of a task has to"
    )
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
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
    header = ["id", "top", "violations", "engine", "budget"]
    text = table([["-" if row[name] is None else row[name] for name in header] for row in rows], header)
    notes = [f"counts differ: {', '.join(differing)}"] if differing else []
    emit(
        args,
        {"out": str(folder), "tasks": rows, "counts_differ": differing},
        "\n".join([text, *notes, f"wrote {len(tasks)} tasks to {folder}"]),
    )
    return FAIL if differing else PASS
