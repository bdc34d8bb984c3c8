"""`ReportSpace`: reports of flow runs, targets and the history of an attempt as fixed-shape arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from edagym.task_assets.ppa.task import METRICS

MAX_RUNS = 32
"""Runs that the history shows; of more, the latest."""
MAX_VALUE = 1e12
MAX_GAP = 1e3
STAGE_METRICS = (
    "synth__design__instance__area",
    "synth__design__instance__count",
    "floorplan__design__instance__area",
    "floorplan__design__instance__utilization",
    "cts__timing__setup__ws",
    "cts__timing__setup__tns",
    "finish__timing__setup__ws",
    "finish__timing__setup__tns",
    "finish__timing__hold__ws",
    "finish__timing__drv__setup_violation_count",
    "finish__design__core__area",
    "finish__design__instance__area",
    "finish__design__instance__count",
    "finish__design__instance__utilization",
    "finish__power__internal__total",
    "finish__power__switching__total",
    "finish__power__leakage__total",
    "finish__route__wirelength__estimated",
)
"""Stage metrics in the observation; 0 where a backend does not state one."""
FLOW_FAILED, COMPLETED, BROKEN, SUCCESS = 0, 1, 2, 3
"""Status of a run: no report; a report; a report of a design whose function broke; all targets met."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the history.

    Attributes:
        status: `FLOW_FAILED`, `COMPLETED`, `BROKEN` or `SUCCESS`.
        values: The three metrics; zeros for a failed run.
        nis: Improvement score at that time.
        period: Clock period, ps.
        io_fraction: Input and output delay over period; -1: none.
        knobs: First number of each knob, as `edagym.spaces.knobs.KnobSpace` has it, float32 (96,).
    """

    status: int
    values: tuple[float, float, float]
    nis: float
    period: float
    io_fraction: float
    knobs: np.ndarray


class ReportSpace(Dict):
    """Reports, targets and history. Metrics are ordered as `METRICS`: effective period (ps), power (W), area (um2).

    Keys:
        report: (3,) float32: the last completed run's values, at first the initial ones.
        initial: (3,) float32: the values at first.
        target: (3,) float32: largest allowed value; 0: the metric is free.
        has_target: (3,) int8: whether the metric has a target.
        gap: (3,) float32: (value - target) / target, at most 1000; 0: free. Positive: missed.
        stage_metrics: (18,) float32: `STAGE_METRICS` of the last completed run.
        history_status: (32,) int8: see `RunRow`; -1: no such run. Oldest first.
        history_report: (32, 3) float32: the metrics of each run; 0 for failed ones.
        history_nis: (32,) float32: improvement score after each run.
        history_constraints: (32, 2) float32: period (ps) and delay fraction.
        history_knobs: (32, n_knobs) float32: first number of each knob, as in `knob_values`.
        n_runs: (1,) int32: runs so far.

    Args:
        n_knobs: Rows of the knob table.
        seed: Seed of the space's own sampler.
    """

    def __init__(self, n_knobs: int, seed: int | None = None) -> None:
        def real(shape: tuple[int, ...], low: float, high: float) -> Box:
            return Box(low, high, shape, np.float32)

        self.n_knobs = n_knobs
        super().__init__(
            {
                "report": real((3,), 0.0, MAX_VALUE),
                "initial": real((3,), 0.0, MAX_VALUE),
                "target": real((3,), 0.0, MAX_VALUE),
                "has_target": Box(0, 1, (3,), np.int8),
                "gap": real((3,), -1.0, MAX_GAP),
                "stage_metrics": real((len(STAGE_METRICS),), -MAX_VALUE, MAX_VALUE),
                "history_status": Box(-1, 3, (MAX_RUNS,), np.int8),
                "history_report": real((MAX_RUNS, 3), 0.0, MAX_VALUE),
                "history_nis": real((MAX_RUNS,), -MAX_VALUE, 1.0),
                "history_constraints": real((MAX_RUNS, 2), -1.0, MAX_VALUE),
                "history_knobs": real((MAX_RUNS, n_knobs), -1.0, 1.0),
                "n_runs": Box(0, 2**31 - 1, (1,), np.int32),
            },
            seed=seed,
        )

    @staticmethod
    def encode_task(initial: Mapping[str, float], targets: Mapping[str, float]) -> dict[str, np.ndarray]:
        """Return the arrays that stay the same through an attempt."""
        return {
            "initial": _values(initial),
            "target": _values(targets),
            "has_target": np.array([m in targets for m in METRICS], np.int8),
        }

    @staticmethod
    def encode_report(
        values: Mapping[str, float], stage: Mapping[str, float], targets: Mapping[str, float]
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a completed run."""
        gaps = [(values[m] - targets[m]) / targets[m] if m in targets else 0.0 for m in METRICS]
        found = np.array([stage.get(name, 0.0) for name in STAGE_METRICS])
        return {
            "report": _values(values),
            "gap": np.clip(np.array(gaps), -1.0, MAX_GAP).astype(np.float32),
            "stage_metrics": np.clip(np.nan_to_num(found), -MAX_VALUE, MAX_VALUE).astype(np.float32),
        }

    def encode_history(self, rows: Sequence[RunRow]) -> dict[str, np.ndarray]:
        """Return the arrays of the runs so far, oldest first."""
        out: dict[str, np.ndarray] = {
            "history_status": np.full(MAX_RUNS, -1, np.int8),
            "history_report": np.zeros((MAX_RUNS, 3), np.float32),
            "history_nis": np.zeros(MAX_RUNS, np.float32),
            "history_constraints": np.zeros((MAX_RUNS, 2), np.float32),
            "history_knobs": np.zeros((MAX_RUNS, self.n_knobs), np.float32),
            "n_runs": np.array((len(rows),), np.int32),
        }
        for i, row in enumerate(rows[-MAX_RUNS:]):
            out["history_status"][i] = row.status
            out["history_report"][i] = np.clip(row.values, 0.0, MAX_VALUE)
            out["history_nis"][i] = min(max(row.nis, -MAX_VALUE), 1.0)
            out["history_constraints"][i] = (row.period, row.io_fraction)
            out["history_knobs"][i] = row.knobs
        return out

    @staticmethod
    def decode(arrays: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Return ``report``, ``initial`` and ``target`` as metric -> value, free metrics left out of ``target``."""
        out = {key: {m: float(arrays[key][i]) for i, m in enumerate(METRICS)} for key in ("report", "initial")}
        out["target"] = {m: float(arrays["target"][i]) for i, m in enumerate(METRICS) if arrays["has_target"][i]}
        return out


def _values(values: Mapping[str, float]) -> np.ndarray:
    return np.clip(np.array([values.get(m, 0.0) for m in METRICS]), 0.0, MAX_VALUE).astype(np.float32)
