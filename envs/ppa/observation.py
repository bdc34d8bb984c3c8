"""Observations of the PPA environment: fixed-shape arrays of what an agent may know."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from edagym.spaces.knobs import MAX_KNOBS, MAX_PERIOD, KnobSpace
from edagym.spaces.reports import MAX_VALUE, ReportSpace
from edagym.task_assets.ppa.task import MAX_BUDGET


def observation_space() -> spaces.Dict:
    """Return the observation space; the same for every PPA id.

    Keys beside those of `KnobSpace` and `ReportSpace`:
        bounds: (4,) float32: smallest and largest clock period (ps), smallest and largest delay fraction (-1: none).
        design_changed: (1,) int8: whether files differ from those of the last run (of the task, before any).
        sources_changed: (1,) int8: whether Verilog sources differ from the task's.
        budget_left: (1,) int16: units of budget left.
        last_nis: (1,) float32: score after the last run; 0 before any.
        last_success: (2,) int8: paper and strict success of the last run; -1: none yet.
        last_function: (2,) int8: whether the functional check passed (simulation; all of it); -1: none yet.
        last_flow_error: (1,) int8: whether the last run failed.
        last_edit_error: (1,) int8: whether the last action was refused.
    """
    own: dict[str, spaces.Space[Any]] = {
        "bounds": spaces.Box(-1.0, 2 * MAX_PERIOD, (4,), np.float32),
        "design_changed": spaces.Box(0, 1, (1,), np.int8),
        "sources_changed": spaces.Box(0, 1, (1,), np.int8),
        "budget_left": spaces.Box(0, MAX_BUDGET, (1,), np.int16),
        "last_nis": spaces.Box(-MAX_VALUE, 1.0, (1,), np.float32),
        "last_success": spaces.Box(-1, 1, (2,), np.int8),
        "last_function": spaces.Box(-1, 1, (2,), np.int8),
        "last_flow_error": spaces.Box(0, 1, (1,), np.int8),
        "last_edit_error": spaces.Box(0, 1, (1,), np.int8),
    }
    return spaces.Dict({**KnobSpace().spaces, **ReportSpace(MAX_KNOBS).spaces, **own})
