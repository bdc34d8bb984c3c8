"""`edagym sweep ppa DESIGN_DIR`: run the embedded PPA flow over knobs and clock period, and find the Pareto front."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from edagym.cli.common import (
    FAIL,
    PASS,
    add_executor_flags,
    add_json_flag,
    add_seed_flag,
    emit,
    out_dir,
    ray_cluster,
    table,
)
from edagym.errors import TaskError


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("sweep", help="run a flow over many settings of a design")
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    ppa = what.add_parser(
        "ppa",
        help="the embedded PPA flow",
        description="Run the embedded flow on settings of a folder with config/*.mk, config/*.sdc and src/*.v, and "
        "print the Pareto front of effective period, power and area. Goes on where it was stopped. Exit code 1: no "
        "setting can be implemented.",
    )
    ppa.add_argument("design", metavar="DESIGN_DIR", help="folder of the design")
    ppa.add_argument("--points", type=int, default=0, metavar="N", help="Latin hypercube of N settings (default: grid)")
    add_seed_flag(ppa, 0, "seed of the hypercube")
    ppa.add_argument(
        "--axis",
        action="append",
        metavar="NAME=V1,V2",
        help="values of a knob, or of clock_period in ps (repeatable); default: the usual knobs, three periods",
    )
    ppa.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: %(default)s)")
    add_executor_flags(ppa)
    ppa.add_argument("--out", metavar="DIR", default="out/sweep", help="runs.jsonl and table (default: out/sweep)")
    add_json_flag(ppa)
    ppa.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import numpy as np

    from edagym.envs.ppa.sweep import default_axes, grid, latin_hypercube, run_sweep
    from edagym.envs.ppa.training import pareto_front
    from edagym.task_assets.ppa.design import DesignFiles
    from edagym.task_assets.ppa.task import METRICS

    if args.points < 0:
        raise TaskError("not a number of settings", field="--points", value=args.points, allowed=">= 0")
    design = DesignFiles.from_folder(args.design)
    axes = tuple(_axis(text) for text in args.axis) if args.axis else default_axes(design)
    rows = latin_hypercube(axes, args.points, np.random.default_rng(args.seed)) if args.points else grid(axes)
    pool = None
    if (cluster := ray_cluster(args)) is not None:
        from edagym.baselines.ray_executor import ray_map

        pool = partial(ray_map, cluster=cluster)
    folder = out_dir(args.out)
    name = Path(args.design).resolve().name
    sweep = run_sweep(name, design, axes, rows, record=folder / "runs.jsonl", workers=args.workers, pool=pool)
    sweep.save(folder / f"{name}.json")
    completed = [p for p in sweep.points if p.values is not None]
    front = pareto_front(sweep.points, METRICS)
    data = {
        "design": args.design,
        "engine": sweep.engine,
        "settings": len(sweep.points),
        "completed": len(completed),
        "table": str(folder / f"{name}.json"),
        "front": [{"edits": list(p.edits), **(p.values or {})} for p in front],
    }
    shown = [
        (f"{v['effective_period']:.2f}", f"{1e3 * v['total_power']:.4f}", f"{v['die_area']:.6g}", _text(p.edits))
        for p in front
        if (v := p.values) is not None
    ]
    text = f"{len(completed)} of {len(sweep.points)} settings completed; Pareto front:\n\n"
    emit(args, data, text + table(shown, ("period ps", "power mW", "area um2", "setting")))
    return PASS if completed else FAIL


def _axis(text: str) -> Any:
    from edagym.envs.ppa.sweep import PERIOD, Axis
    from edagym.task_assets.ppa.knobs import knob_table

    name, _, values = text.partition("=")
    given = tuple(v.strip() for v in values.split(",") if v.strip())
    if name != PERIOD and name not in knob_table():
        raise TaskError("unknown axis", field="--axis", value=name, allowed=f"{PERIOD} or a knob")
    try:
        if not given:
            raise ValueError("no values")
        for value in given:
            if name == PERIOD and not 0 < float(value) < 1e6:
                raise ValueError("a period in ps")
            if name != PERIOD:
                knob_table()[name].parse(value)
    except ValueError as e:
        raise TaskError("not values of this axis", field="--axis", value=text, allowed=str(e)) from None
    return Axis(name, given)


def _text(edits: Any) -> str:
    words = [f"{e['name']}={e['value']}" if e["op"] == "set_knob" else f"period={e['period']:g}" for e in edits]
    return " ".join(words) or "as given"
