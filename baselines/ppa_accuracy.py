"""How closely the embedded PPA flow follows the real one: our figures beside recorded ones, identical runs once.

The recorded values are those that OpenROAD-flow-scripts printed for tasks of the public benchmark, kept in a JSON list
of rows with design, knobs, constraints and results. Only designs that the project has its own RTL of are run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from edagym.envs.ppa.flow.backend import FlowBackend
from edagym.errors import FlowError
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.designs import RtlDesign, design_names, load_design

METRICS = {"effective_period": "effective_period_ps", "total_power": "total_power_w", "die_area": "die_area_um2"}
"""Report name -> name in the recorded rows."""
MIN_DIFFERENCE = 0.03
"""Relative difference of the real values from which a pair of runs counts as ordered."""


def recorded_design(row: Mapping[str, Any]) -> DesignFiles:
    """Return a recorded run as a design: the project's RTL under the run's knobs and constraints."""
    source = load_design(row["design"])
    knobs = {**row["knobs"], "DESIGN_NAME": source.top}
    files = dict(source.files.files)
    files["config/config.mk"] = "".join(f"export {key} = {value}\n" for key, value in knobs.items())
    files["config/constraint.sdc"] = _constraints(row["sdc"], source)
    return DesignFiles(files)


def _constraints(sdc: Mapping[str, Any], source: RtlDesign) -> str:
    period, fraction = float(sdc["clock_period_ps"]), sdc["io_delay_fraction"]
    clock = source.interface.clock
    lines = [f"set period {period:g}"]
    if clock is None:
        lines += ["create_clock -name core_clock -period $period", "set inputs [all_inputs]"]
    else:
        lines += [
            f"create_clock -name core_clock -period $period [get_ports {clock}]",
            f"set inputs [lsearch -inline -all -not -exact [all_inputs] [get_ports {clock}]]",
        ]
    if fraction is None and clock is None:
        fraction = 0
    if fraction is not None:
        lines += [
            f"set_input_delay [expr $period * {fraction}] -clock core_clock $inputs",
            f"set_output_delay [expr $period * {fraction}] -clock core_clock [all_outputs]",
        ]
    if sdc["false_path_io"]:
        lines += ["set_false_path -from $inputs", "set_false_path -to [all_outputs]"]
    return "\n".join(lines) + "\n"


def distinct_runs(rows: Iterable[Mapping[str, Any]], designs: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the rows of some designs, those with equal knobs, constraints and results once."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["design"] in designs:
            key = json.dumps([row["design"], row["knobs"], row["sdc"], row["effective_period_ps"]], sort_keys=True)
            found.setdefault(key, row)
    return list(found.values())


def compare(
    backend: FlowBackend, facts: str | Path, designs: Sequence[str] | None = None, progress: bool = True
) -> dict[str, Any]:
    """Run the recorded configurations and set our figures beside the recorded ones.

    Args:
        backend: The flow.
        facts: JSON file of recorded rows.
        designs: Which designs; default: all that the project has.
        progress: Whether to show a progress bar.

    Returns:
        ``rows`` (one per distinct run: design, task, clock period, ours and real per metric, or ``error``) and per
        metric ``spearman``, ``median_error``, ``bias`` (relative), ``pairs`` (share of within-design pairs ordered as
        in reality where reality differs by more than `MIN_DIFFERENCE`) and ``pair_count``.
    """
    recorded = distinct_runs(json.loads(Path(facts).read_text("utf-8")), designs or design_names())
    rows: list[dict[str, Any]] = []
    for fact in tqdm(recorded, desc="recorded runs", disable=not progress):
        row: dict[str, Any] = {
            "task": fact["task"],
            "design": fact["design"],
            "period_ps": float(fact["sdc"]["clock_period_ps"]),
            "real": {name: fact[key] for name, key in METRICS.items()},
        }
        try:
            report = backend.run(recorded_design(fact)).report
            row["ours"] = {name: report.value(name) for name in METRICS}
        except FlowError as e:
            row["error"] = str(e)
        rows.append(row)
    return {"rows": rows, **{name: statistics(rows, name) for name in METRICS}}


def statistics(rows: Sequence[Mapping[str, Any]], metric: str) -> dict[str, float]:
    """Return agreement of one metric over rows as `compare` makes them."""
    done = [row for row in rows if "ours" in row]
    ours = np.array([row["ours"][metric] for row in done])
    real = np.array([row["real"][metric] for row in done])
    if len(done) < 2:
        return {}
    error = ours / real - 1
    same = count = 0
    for i in range(len(done)):
        for j in range(i):
            if done[i]["design"] != done[j]["design"]:
                continue
            if abs(real[i] - real[j]) > MIN_DIFFERENCE * min(real[i], real[j]):
                count += 1
                same += (real[i] - real[j]) * (ours[i] - ours[j]) > 0
    return {
        "spearman": float(np.corrcoef(_ranks(ours), _ranks(real))[0, 1]),
        "median_error": float(np.median(np.abs(error))),
        "bias": float(np.median(error)),
        "pairs": same / count if count else float("nan"),
        "pair_count": count,
    }


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks; equal values share their mean rank."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[index]


def text(result: Mapping[str, Any]) -> str:
    """Return a comparison as a table."""
    lines = [
        f"{'task':24s}{'design':18s}{'T':>6s}{'period ours/real, ps':>24s}{'power ours/real, mW':>24s}{'die, um2':>20s}"
    ]
    for row in result["rows"]:
        head = f"{row['task']:24s}{row['design']:18s}{row['period_ps']:6g}"
        if "error" in row:
            lines.append(f"{head}  {row['error']}")
            continue
        ours, real = row["ours"], row["real"]
        period = f"{ours['effective_period']:.1f} / {real['effective_period']:.1f}"
        power = f"{1e3 * ours['total_power']:.3f} / {1e3 * real['total_power']:.3f}"
        lines.append(f"{head}{period:>24s}{power:>24s}{ours['die_area']:10.1f} /{real['die_area']:8.1f}")
    for name in METRICS:
        figures = ", ".join(f"{key} {value:.3f}" for key, value in result[name].items())
        lines.append(f"{name}: {figures}")
    return "\n".join(lines)
