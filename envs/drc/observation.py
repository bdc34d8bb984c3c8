"""Observations of the DRC environment: fixed-shape arrays of what an agent may know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from edagym.envs.drc.queries import FoundShape
from edagym.envs.drc.reporting import Box, PlacedViolation
from edagym.errors import TaskError
from edagym.spaces.drc_actions import MAX_CELLS, MAX_LAYERS, MAX_SHAPES, MAX_VIOLATIONS
from edagym.spaces.drc_edits import MAX_COORD
from edagym.spaces.drc_queries import KINDS
from edagym.task_assets.drc.task import MAX_BUDGET, DRCView
from edagym.verifiers.drc import RuleTable

MAX_RULES = 512
VIOLATION_POINTS = 16
SHAPE_POINTS = 32
MAX_LOCAL_NM = 1e9
MAX_UM = 1e6
"""Largest coordinate (um) and area (um2) of a region of interest and a bound on edits."""
_MAX_COUNT = 2**31 - 1

_Arrays = dict[str, np.ndarray]


def observation_space() -> spaces.Dict:
    """Return the observation space; the same for every DRC id.

    Lists are padded; indices are -1 where a row is empty. "top frame" means the top cell's, where placed masters are
    shown at one example placement. Local coordinates are nanometres relative to the centre of the row's violation
    (violations) or of the selected one (shapes), in the top frame.

    Keys:
        dbu_nm: (1,) float32: database unit, nm.
        layer_gds: (96, 2) int32: layer and datatype numbers of the layer table.
        min_area_kept: (96,) float32: share of each layer's area around the violations that has to stay; -1: no layer.
        max_edited_area: (1,) float32, um2; -1: no bound.
        roi: (4,) float32, um: region of interest; all 0 with has_roi 0.
        has_roi: (1,) int8: whether there is a region of interest.
        counts: (512,) int32: violations per rule in the last report, rows of the rule table.
        n_violations: (1,) int32: their total.
        violation_rule: (64,) int16: row of the rule table.
        violation_kind: (64,) int8: 0 polygon, 1 edge, 2 edge pair.
        violation_cell: (64,) int16: row of the cell table: whose frame the points are in.
        violation_points: (64, 16, 2) int32, database units; beyond 16 points the corners of the bounding box.
        violation_n_points: (64,) int16: the true number of points.
        violation_box: (64, 4) int32: bounding box in the top frame, database units.
        violation_local: (64, 16, 2) float32, nm: the same points in local coordinates.
        selected: (1,) int16: the violation around which shapes are listed; -1: none is left.
        shape_layer: (128,) int16: row of the layer table.
        shape_cell: (128,) int16: row of the cell table: the owner, whose frame the points are in.
        shape_points: (128, 32, 2) int32, database units; beyond 32 points the corners of the bounding box.
        shape_n_points: (128,) int16: the true number of points.
        shape_distance: (128,) float32: distance of bounding boxes to the selected violation, nm.
        shape_local: (128, 32, 2) float32, nm: the same points in local coordinates.
        budget_left: (1,) int16: units of budget left.
        last_vrr: (1,) float32: violation reduction rate of the last check; -1: none yet.
        last_success: (2,) int8: paper and strict success of the last check; -1: none yet.
        last_edit_error: (1,) int8: whether the last action was refused.
    """

    def whole(shape: tuple[int, ...], low: int, high: int, dtype: Any) -> spaces.Box:
        return spaces.Box(low, high, shape, dtype)

    def real(shape: tuple[int, ...], low: float, high: float) -> spaces.Box:
        return spaces.Box(low, high, shape, np.float32)

    v, s = MAX_VIOLATIONS, MAX_SHAPES
    return spaces.Dict(
        {
            "dbu_nm": real((1,), 0.0, 1000.0),
            "layer_gds": whole((MAX_LAYERS, 2), -1, 65535, np.int32),
            "min_area_kept": real((MAX_LAYERS,), -1.0, 1.0),
            "max_edited_area": real((1,), -1.0, MAX_UM),
            "roi": real((4,), -MAX_UM, MAX_UM),
            "has_roi": whole((1,), 0, 1, np.int8),
            "counts": whole((MAX_RULES,), 0, _MAX_COUNT, np.int32),
            "n_violations": whole((1,), 0, _MAX_COUNT, np.int32),
            "violation_rule": whole((v,), -1, MAX_RULES - 1, np.int16),
            "violation_kind": whole((v,), -1, len(KINDS) - 1, np.int8),
            "violation_cell": whole((v,), -1, MAX_CELLS - 1, np.int16),
            "violation_points": whole((v, VIOLATION_POINTS, 2), -MAX_COORD, MAX_COORD, np.int32),
            "violation_n_points": whole((v,), 0, 32_767, np.int16),
            "violation_box": whole((v, 4), -MAX_COORD, MAX_COORD, np.int32),
            "violation_local": real((v, VIOLATION_POINTS, 2), -MAX_LOCAL_NM, MAX_LOCAL_NM),
            "selected": whole((1,), -1, v - 1, np.int16),
            "shape_layer": whole((s,), -1, MAX_LAYERS - 1, np.int16),
            "shape_cell": whole((s,), -1, MAX_CELLS - 1, np.int16),
            "shape_points": whole((s, SHAPE_POINTS, 2), -MAX_COORD, MAX_COORD, np.int32),
            "shape_n_points": whole((s,), 0, 32_767, np.int16),
            "shape_distance": real((s,), -1.0, MAX_LOCAL_NM),
            "shape_local": real((s, SHAPE_POINTS, 2), -MAX_LOCAL_NM, MAX_LOCAL_NM),
            "budget_left": whole((1,), 0, MAX_BUDGET, np.int16),
            "last_vrr": real((1,), -1.0, 1.0),
            "last_success": whole((2,), -1, 1, np.int8),
            "last_edit_error": whole((1,), 0, 1, np.int8),
        }
    )


def static_arrays(view: DRCView, table: RuleTable, dbu: float) -> _Arrays:
    """Return the arrays that stay the same through an episode.

    Raises:
        TaskError: If the rule table is larger than the observation.
    """
    for name, found, most in (("layers", len(table.layers), MAX_LAYERS), ("rules", len(table.rules), MAX_RULES)):
        if found > most:
            raise TaskError("the rule table is too large to observe", field=name, value=found, allowed=f"<= {most}")
    gds = np.full((MAX_LAYERS, 2), -1, np.int32)
    kept = np.full(MAX_LAYERS, -1, np.float32)
    for i, (name, entry) in enumerate(table.layers.items()):
        gds[i] = (entry.layer, entry.datatype)
        kept[i] = view.limits.kept(name)
    area = view.limits.max_edited_area
    return {
        "dbu_nm": np.array((dbu * 1000,), np.float32),
        "layer_gds": gds,
        "min_area_kept": kept,
        "max_edited_area": np.array((-1 if area is None else min(area, MAX_UM),), np.float32),
        "roi": np.clip(np.array(view.roi or (0, 0, 0, 0), np.float32), -MAX_UM, MAX_UM),
        "has_roi": np.array((view.roi is not None,), np.int8),
    }


def violation_arrays(
    violations: Sequence[PlacedViolation],
    counts: Mapping[str, int],
    table: RuleTable,
    cells: Mapping[str, int],
    dbu: float,
) -> _Arrays:
    """Return the arrays of a report: at most 64 violations in full, all of them in the counts."""
    out: _Arrays = {
        "counts": np.zeros(MAX_RULES, np.int32),
        "n_violations": np.array((sum(counts.values()),), np.int32),
        "violation_rule": np.full(MAX_VIOLATIONS, -1, np.int16),
        "violation_kind": np.full(MAX_VIOLATIONS, -1, np.int8),
        "violation_cell": np.full(MAX_VIOLATIONS, -1, np.int16),
        "violation_points": np.zeros((MAX_VIOLATIONS, VIOLATION_POINTS, 2), np.int32),
        "violation_n_points": np.zeros(MAX_VIOLATIONS, np.int16),
        "violation_box": np.zeros((MAX_VIOLATIONS, 4), np.int32),
        "violation_local": np.zeros((MAX_VIOLATIONS, VIOLATION_POINTS, 2), np.float32),
    }
    rules = {rule: i for i, rule in enumerate(table.rules)}
    for rule, n in counts.items():
        out["counts"][rules[rule]] = n
    for i, item in enumerate(violations[:MAX_VIOLATIONS]):
        out["violation_rule"][i] = rules[item.rule]
        out["violation_kind"][i] = KINDS.index(item.listed.kind)
        out["violation_cell"][i] = cells[item.listed.cell]
        out["violation_box"][i] = item.box
        _put(out, "violation", i, item.listed.points, item.placed, item.box, dbu, VIOLATION_POINTS)
    return out


def shape_arrays(
    shapes: Sequence[FoundShape],
    selected: Box | None,
    table: RuleTable,
    cells: Mapping[str, int],
    top: str,
    dbu: float,
) -> _Arrays:
    """Return the arrays of the shapes near the selected violation."""
    out: _Arrays = {
        "shape_layer": np.full(MAX_SHAPES, -1, np.int16),
        "shape_cell": np.full(MAX_SHAPES, -1, np.int16),
        "shape_points": np.zeros((MAX_SHAPES, SHAPE_POINTS, 2), np.int32),
        "shape_n_points": np.zeros(MAX_SHAPES, np.int16),
        "shape_distance": np.full(MAX_SHAPES, -1, np.float32),
        "shape_local": np.zeros((MAX_SHAPES, SHAPE_POINTS, 2), np.float32),
    }
    layers = {name: i for i, name in enumerate(table.layers)}
    for i, shape in enumerate(shapes[:MAX_SHAPES]):
        assert selected is not None
        out["shape_layer"][i] = layers[shape.layer]
        out["shape_cell"][i] = cells["" if shape.cell == top else shape.cell]
        out["shape_distance"][i] = shape.distance * dbu * 1000
        _put(out, "shape", i, shape.own, shape.points, selected, dbu, SHAPE_POINTS)
    return out


def _put(
    out: _Arrays,
    name: str,
    row: int,
    points: Sequence[tuple[int, int]],
    placed: Sequence[tuple[int, int]],
    around: Box,
    dbu: float,
    limit: int,
) -> None:
    """Enter points, cut to their bounding box if they are too many, and the same relative to a box's centre."""
    out[f"{name}_n_points"][row] = min(len(points), 32_767)
    if len(points) > limit:
        points, placed = _corners(points), _corners(placed)
    n = len(points)
    out[f"{name}_points"][row, :n] = points
    centre = ((around[0] + around[2]) / 2, (around[1] + around[3]) / 2)
    out[f"{name}_local"][row, :n] = (np.array(placed, float) - centre) * (dbu * 1000)


def _corners(points: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return ((min(xs), min(ys)), (min(xs), max(ys)), (max(xs), max(ys)), (max(xs), min(ys)))
