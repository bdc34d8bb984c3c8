"""`edagym demo`: the main job, reference and random policy over the whole suite."""

from __future__ import annotations

import argparse
import json
from typing import Any

from edagym.cli.common import FAIL, PASS, add_json_flag, add_seed_flag, emit, out_dir
from edagym.cli.rollout import by_level, result_table


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        help="main job: reference and random policy over all tasks",
        description="Run the reference and the random policy over a suite, write layouts and pictures, and print what "
        "passes. Exit code 1 unless the reference passes every task under both criteria.",
    )
    parser.add_argument("--out", metavar="DIR", default="demo-out", help="output folder (default: demo-out)")
    parser.add_argument("--suite", default="FET-All", help="suite (default: FET-All)")
    add_seed_flag(parser, 0, "seed of the random policy")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.baselines.rollout import rollout, summarise

    folder = out_dir(args.out)
    (folder / "records.jsonl").unlink(missing_ok=True)  # records are appended: an earlier run's would stay
    runs = {policy: rollout(args.suite, policy, seed=args.seed, out=folder) for policy in ("reference", "random")}
    data = {
        "suite": args.suite,
        "seed": args.seed,
        "out": str(folder),
        "policies": {
            policy: {
                **summarise(records),
                "levels": {level: summarise(rows) for level, rows in by_level(records).items()},
            }
            for policy, records in runs.items()
        },
    }
    (folder / "summary.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    text = f"{result_table(runs)}\n\nlayouts (GDSII), traces, pictures and records: {folder}"
    emit(args, data, text)
    reference = data["policies"]["reference"]  # type: ignore[index]
    passed = reference["paper_passed"] == reference["strict_passed"] == reference["attempts"]
    return PASS if passed else FAIL
