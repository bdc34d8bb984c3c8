"""`edagym flow DESIGN_DIR`: run the embedded PPA flow on a design folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edagym.cli.common import FAIL, PASS, add_json_flag, emit, table
from edagym.errors import FlowError

SHOWN = (
    "synth__design__instance__area",
    "finish__design__instance__area",
    "finish__design__instance__utilization",
    "finish__timing__setup__ws",
    "finish__timing__setup__tns",
    "finish__timing__drv__setup_violation_count",
    "finish__timing__drv__hold_violation_count",
    "finish__power__internal__total",
    "finish__power__switching__total",
    "finish__power__leakage__total",
)


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "flow",
        help="run the embedded RTL-to-report flow on a design folder",
        description="Run synthesis, placement, clock tree, timing repair, timing and power on a folder with "
        "config/*.mk, config/*.sdc and src/*.v, and print the report. Exit code 1: the design cannot be implemented.",
    )
    parser.add_argument("design", metavar="DESIGN_DIR", help="folder of the design")
    parser.add_argument("--def", dest="layout", metavar="FILE", help="write the placement as DEF")
    parser.add_argument("--no-cache", action="store_true", help="synthesise even where a result is cached")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.envs.ppa.flow.embedded import EmbeddedFlow
    from edagym.envs.ppa.flow.layout_def import def_text
    from edagym.task_assets.ppa.design import DesignFiles

    design = DesignFiles.from_folder(args.design)
    flow = EmbeddedFlow(cache=not args.no_cache)
    try:
        result = flow.run(design)
    except FlowError as e:
        emit(args, {"design": args.design, "error": str(e), "stage": e.field}, f"{args.design}: {e}")
        return FAIL
    if args.layout and result.placement is not None:
        Path(args.layout).write_text(def_text(Path(args.design).name, result.placement), encoding="utf-8")
    report = result.report
    seconds = {name: round(value, 3) for name, value in flow.stages.seconds.items()}
    data = {
        "design": args.design,
        **report.to_dict(),
        "critical_path": list(result.critical_path),
        "cpu_seconds": seconds,
    }
    rows = [
        ("effective period", f"{report.effective_period:.2f} ps"),
        ("total power", f"{1e3 * report.total_power:.4f} mW"),
        ("die area", f"{report.die_area:.6g} um2"),
        *((name, f"{report.metrics[name]:.6g}") for name in SHOWN if name in report.metrics),
        ("cpu seconds", ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())),
    ]
    lines = [f"{args.design}: {report.engine}", "", table(rows, ("figure", "value")), "", *result.critical_path]
    lines += [f"warning: {text}" for text in report.warnings]
    emit(args, data, "\n".join(lines))
    return PASS
