"""Speed of the embedded PPA flow: CPU time per stage with synthesis cached, and against a fixed piece of work."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from edagym.baselines.ppa_accuracy import recorded_design
from edagym.envs.ppa.flow.embedded import EmbeddedFlow
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.designs import design_names

CASES: tuple[tuple[str, dict[str, str], float], ...] = (
    ("gcd", {"CORE_UTILIZATION": "20", "PLACE_DENSITY": "0.3", "ABC_AREA": "1"}, 250.0),
    ("gcd", {"CORE_UTILIZATION": "50", "PLACE_DENSITY": "0.6", "ABC_AREA": "0"}, 310.0),
    ("adder_pipe_64bit", {"CORE_UTILIZATION": "40", "PLACE_DENSITY": "0.5", "ABC_AREA": "0"}, 200.0),
    ("float_multi", {"CORE_UTILIZATION": "40", "PLACE_DENSITY": "0.5", "ABC_AREA": "1"}, 500.0),
)
"""(design, knobs, clock period in ps): tight ones, on which repair works hardest, and one that meets its period."""
LIMITS = {"gcd": 1.0, "adder_pipe_64bit": 2.0, "float_multi": 10.0}
"""CPU seconds that a run with cached synthesis may take on one core."""


def bench_ppa(repeats: int = 3, designs: Sequence[str] | None = None, progress: bool = True) -> dict[str, Any]:
    """Measure runs of the flow on the project's designs.

    Args:
        repeats: Runs per case after a first one that fills the synthesis cache.
        designs: Which designs; default: all of `CASES` that the project has.
        progress: Whether to show a progress bar.

    Returns:
        A JSON-ready dict: per case cells, effective period, median CPU seconds in all and per stage (``synth`` is the
        look-up), their ratio to the time of a fixed piece of work, and the limit; ``machine``.
    """
    have = set(design_names()) & set(designs or [case[0] for case in CASES])
    cases = [case for case in CASES if case[0] in have]
    results = {}
    for name, knobs, period in tqdm(cases, desc="bench ppa", disable=not progress):
        results[f"{name} at {period:g} ps"] = _measure(name, knobs, period, repeats)
    return {**results, "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0]}}


def bench_design(name: str, knobs: dict[str, str], period: float) -> DesignFiles:
    """Return one of the project's designs under knobs and a clock period (ps)."""
    sdc = {"clock_period_ps": period, "io_delay_fraction": 0.2, "false_path_io": False}
    return recorded_design({"design": name, "knobs": knobs, "sdc": sdc})


def _measure(name: str, knobs: dict[str, str], period: float, repeats: int) -> dict[str, Any]:
    design = bench_design(name, knobs, period)
    flow = EmbeddedFlow()
    report = flow.run(design).report
    stages: list[dict[str, float]] = []
    totals, ratios = [], []
    for _ in range(repeats):
        unit = _fixed_work()
        start = time.process_time()
        flow.run(design)
        totals.append(time.process_time() - start)
        ratios.append(totals[-1] / unit)
        stages.append(dict(flow.stages.seconds))
    return {
        "cells": int(report.metrics["finish__design__instance__count"]),
        "effective_period_ps": report.effective_period,
        "cpu_s": round(float(np.median(totals)), 3),
        "limit_s": LIMITS[name],
        "stages_s": {key: round(float(np.median([s[key] for s in stages])), 3) for key in stages[0]},
        "over_fixed_work": round(float(np.median(ratios)), 2),
    }


def _fixed_work() -> float:
    """Return the CPU time of a fixed mix of Python and numpy work, s: about the same share of each as in the flow."""
    start = time.process_time()
    total = 0.0
    for i in range(400_000):
        total += (i & 7) * 0.5
    values = np.arange(200_000, dtype=float)
    for _ in range(50):
        values = np.sqrt(values * 1.0001 + 1.0)
    return max(time.process_time() - start, 1e-6) + 0.0 * total
