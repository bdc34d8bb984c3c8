"""The FET observation: `TaskView`, layout, budget and last verdict as flat fixed-shape arrays.

The arrays of the layout are kept up to date edit by edit, and an observation is a copy of them: adding a polygon
costs one row, not a rebuild. Rows are ordered by layer table, then drawing order, so that the observation is a
function of the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from edagym.envs.core.edit_env import MAX_BUDGET
from edagym.spaces.contours import MAX_DEMAND, MAX_REGIONS, ContourSpace
from edagym.spaces.layout import MAX_SHAPE_POINTS, MAX_SHAPES, LayoutSpace
from edagym.spaces.rings import write_ring
from edagym.spaces.task import TaskSpace
from edagym.task_assets.fet.task import COMPLETENESS_KINDS, DRC_KINDS, STRUCTURAL_KINDS, Region, TaskView
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.verdict import Criterion, Verdict

STRICT_KINDS = (
    "strict_transistor_count",
    "strict_contacts",
    "strict_via",
    "strict_stray",
    "strict_window",
    "strict_netlist",
)
CHECK_KINDS = (*DRC_KINDS, *STRUCTURAL_KINDS, *COMPLETENESS_KINDS, "inputs_preserved", *STRICT_KINDS)
"""Order of ``last_checks``."""


def observation_space() -> Dict:
    """Return the observation space, the same for every FET id.

    The keys of `ContourSpace`, `LayoutSpace` and `TaskSpace`, and:
        budget_left: (1,) int16: units of budget left.
        last_checks: (18,) int8: for each of `CHECK_KINDS`, whether all checks of that kind passed in the last verify
            that was paid for; 1 yes, 0 no, -1 unknown or no such check.
        last_transistors: (20,) int16: transistors found per region in that verify (paper's count); -1 unknown.
        last_share: (1,) float32: share of passed checks in that verify; -1 unknown.
        last_edit_error: (1,) int8: 1 when the last action was refused.
        inputs_changed: (1,) int8: 1 when a fixed layer differs from the task's (only without guarded inputs).
    """
    return Dict(
        {
            **ContourSpace().spaces,
            **LayoutSpace().spaces,
            **TaskSpace().spaces,
            "budget_left": Box(0, MAX_BUDGET, (1,), np.int16),
            "last_checks": Box(-1, 1, (len(CHECK_KINDS),), np.int8),
            "last_transistors": Box(-1, MAX_DEMAND, (MAX_REGIONS,), np.int16),
            "last_share": Box(-1, 1, (1,), np.float32),
            "last_edit_error": Box(0, 1, (1,), np.int8),
            "inputs_changed": Box(0, 1, (1,), np.int8),
        }
    )


def static_arrays(view: TaskView) -> dict[str, Any]:
    """Return the part of the observation that a task fixes; raises `TaskError` if it does not fit."""
    names = [spec.name for spec in view.layers]
    return {**ContourSpace().from_regions(view.regions, names, view.demand), **TaskSpace().from_view(view)}


def check_flags(verdict: Verdict | None, criterion: Criterion) -> np.ndarray:
    """Return ``last_checks``, int8 (18,)."""
    flags = np.full(len(CHECK_KINDS), -1, np.int8)
    if verdict is not None:
        for check in verdict.checks:
            if check.strict and criterion == "paper":
                continue
            i = CHECK_KINDS.index(check.kind)
            flags[i] = check.passed if flags[i] < 0 else flags[i] and check.passed
    return flags


def found_transistors(verdict: Verdict | None, regions: Sequence[Region]) -> np.ndarray:
    """Return ``last_transistors``, int16 (20,)."""
    found = np.full(MAX_REGIONS, -1, np.int16)
    if verdict is not None:
        for i, region in enumerate(regions):
            found[i] = min(verdict.metrics.get(f"transistors:{region.name}", -1), MAX_DEMAND)
    return found


class LayoutArrays:
    """The arrays of `LayoutSpace` for the editable layers of a layout, updated edit by edit.

    Args:
        view: The task.
    """

    def __init__(self, view: TaskView) -> None:
        self._rows = {spec.name: i for i, spec in enumerate(view.layers) if spec.editable}
        self._counts = [0] * len(view.layers)
        self._total = 0
        self._points = np.zeros((MAX_SHAPES, MAX_SHAPE_POINTS, 2), np.float32)
        self._n_points = np.zeros(MAX_SHAPES, np.int16)
        self._layer = np.full(MAX_SHAPES, -1, np.int16)

    def appended(self, layout: FETLayout, layer: str) -> None:
        """Take over the last shape of a layer, which was just drawn."""
        row = self._rows.get(layer)
        if row is None:
            return
        at, end = sum(self._counts[: row + 1]), self._total
        if at < end:
            self._points[at + 1 : end + 1] = self._points[at:end]
            self._n_points[at + 1 : end + 1] = self._n_points[at:end]
            self._layer[at + 1 : end + 1] = self._layer[at:end]
            self._points[at] = 0.0
        ring = layout.shapes(layer)[-1]
        write_ring(self._points[at], ring)
        self._n_points[at] = len(ring)
        self._layer[at] = row
        self._counts[row] += 1
        self._total += 1

    def rebuilt(self, layout: FETLayout) -> None:
        """Take over the whole layout."""
        self._points[: self._total] = 0.0
        self._n_points[: self._total] = 0
        self._layer[: self._total] = -1
        at = 0
        for name, row in self._rows.items():
            rings = layout.shapes(name)
            for ring in rings:
                write_ring(self._points[at], ring)
                self._n_points[at] = len(ring)
                self._layer[at] = row
                at += 1
            self._counts[row] = len(rings)
        self._total = at

    def copies(self) -> dict[str, Any]:
        """Return fresh copies under the keys of `LayoutSpace`."""
        return {
            "shape_points": self._points.copy(),
            "shape_n_points": self._n_points.copy(),
            "shape_layer": self._layer.copy(),
        }
