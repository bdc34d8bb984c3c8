"""`edagym bench`: how fast the environments are."""

from __future__ import annotations

import argparse
from typing import Any

from edagym.cli.common import PASS, add_json_flag, emit


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bench",
        help="measure steps per second, verify and reset times",
        description="Measure edit steps per second, verify and reset times, and asynchronous throughput.",
    )
    parser.add_argument("family", metavar="FAMILY", choices=("fet",), help="fet")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.baselines.bench import bench_fet, bench_table

    result = bench_fet()
    emit(args, result, bench_table(result))
    return PASS
