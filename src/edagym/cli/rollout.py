"""`edagym rollout`: run a scripted policy over a suite."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from edagym.cli.common import PASS, TOOL_ERROR, add_json_flag, add_seed_flag, emit, out_dir, table
from edagym.errors import TaskError


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "rollout",
        help="run a policy over a suite",
        description="Run a policy over every task of a suite and count what passes under both criteria.",
    )
    parser.add_argument(
        "--policy", required=True, help="reference, random, search (DRC), ppa-random, ppa-coordinate, ppa-gp"
    )
    parser.add_argument(
        "--suite",
        "--env",
        dest="suite",
        default="FET-All",
        help="suite, environment id, or folder of DRC or PPA tasks (default: FET-All)",
    )
    parser.add_argument("--task", action="append", metavar="TASK", help="only this task (repeatable)")
    parser.add_argument(
        "--episodes", type=int, default=1, metavar="N", help="attempts per task; for endless suites: number of tasks"
    )
    add_seed_flag(parser, 0, "seed of the run")
    parser.add_argument("--out", metavar="DIR", help="write records, layouts (GDSII), traces and pictures here")
    parser.add_argument("--no-pictures", action="store_true", help="with --out: leave the pictures out")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.baselines.rollout import rollout, summarise

    if args.episodes < 1:
        raise TaskError("at least one attempt", field="--episodes", value=args.episodes, allowed=">= 1")
    records = rollout(
        args.suite,
        args.policy,
        tasks=args.task,
        episodes=args.episodes,
        seed=args.seed,
        out=out_dir(args.out) if args.out else None,
        pictures=not args.no_pictures,
    )
    levels = by_level(records)
    summary = summarise(records)
    data = {
        "suite": args.suite,
        "policy": args.policy,
        "seed": args.seed,
        "summary": summary,
        "levels": {level: summarise(rows) for level, rows in levels.items()},
        "records": records,
    }
    emit(args, data, result_table({args.policy: records}))
    return TOOL_ERROR if summary["tool_errors"] else PASS


def by_level(records: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return records grouped by the level that their task id begins with, sorted."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["task_id"].rpartition("/")[0], []).append(record)
    return dict(sorted(groups.items()))


def result_table(runs: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Return a table of passes under both criteria: one row per level, two columns per policy."""
    from edagym.baselines.rollout import summarise

    groups = {policy: by_level(records) for policy, records in runs.items()}
    levels = list(dict.fromkeys(level for group in groups.values() for level in group))
    rows = []
    for level in [*levels, "all"]:
        row: list[Any] = [level]
        for policy, records in runs.items():
            found = summarise(records if level == "all" else groups[policy].get(level, []))
            scored = found["attempts"] - found["tool_errors"] - found["unfinished"]
            row += [f"{found['paper_passed']}/{scored}", f"{found['strict_passed']}/{scored}"]
        rows.append(row)
    header = ["level", *(f"{policy} {criterion}" for policy in runs for criterion in ("paper", "strict"))]
    return table(rows, header)
