"""DRC with plain actions: an edit at a violation.

An action says which of the shapes near the selected violation, which of its edges (nearest to the violation first), and
how far the edge moves; a check follows. `EdgeSteps` is MultiDiscrete, `EdgeMoves` is Box. Nothing is searched and no
rule is evaluated: the lists are ordered by distance only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from edagym.envs.drc.inject import family
from edagym.envs.drc.observation import SHAPE_POINTS
from edagym.errors import EditError
from edagym.spaces.actions import Command
from edagym.spaces.drc_edits import ChangeShape, DRCEdit, MoveEdge, ShapeRef
from edagym.task_assets.drc.process import VIAS
from edagym.verifiers.drc import load_table
from edagym.verifiers.drc.expression import Expr, Quantity
from edagym.wrappers.core import PlainWrapper

N_SHAPES = 4
"""Shapes to choose from, those on the violated rule's layers first, then by distance."""
N_EDGES = 6
"""Edges of each to choose from, the nearest ones to the violation."""
SHARES = (1.0, 0.5)
"""Distances as shares of the violation's extent along the edge's normal."""
STEPS_NM = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 18.0, 24.0, 36.0)
"""Distances in nm."""
REACH_NM = 40.0
"""Largest distance of `EdgeMoves`, nm."""
DISTANCES = tuple((sign, share, 0.0) for share in SHARES for sign in (1, -1)) + tuple(
    (sign, 0.0, nm) for nm in STEPS_NM for sign in (1, -1)
)
"""(sign, share of the extent, nm) of each distance of `EdgeSteps`; plus makes the shape larger."""
FAMILIES = ("width", "spacing", "area", "enclosure", "shape")
"""Kinds of rules that the observation tells apart; others count as the last."""
_PER_EDGE, _PER_SHAPE, _HEAD = 6, 8, 20
_SIZE = _HEAD + N_SHAPES * (_PER_SHAPE + N_EDGES * _PER_EDGE)
_CLIP = 5.0


class _AtViolation(PlainWrapper):
    """What both wrappers share: lists of shapes and edges, observation, edits."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-_CLIP, _CLIP, (_SIZE,), np.float32)
        self.begin()

    def begin(self) -> None:
        """Forget the lists of the last episode."""
        self._rows: list[int] = []
        self._edges: list[list[int]] = []
        self._last: dict[str, Any] = {}
        self._cells: tuple[str, ...] | None = None

    # -- lists -------------------------------------------------------------------------------------------------------

    def _look(self, observation: dict[str, Any]) -> None:
        """List shapes and edges around the selected violation."""
        self._last, self._rows, self._edges = observation, [], []
        selected = int(observation["selected"][0])
        if selected < 0:
            return
        rule = self._rule(observation, selected)
        names = list(self._table.layers)
        rows = [
            i
            for i in np.flatnonzero(observation["shape_layer"] >= 0)
            if observation["shape_n_points"][i] <= SHAPE_POINTS
        ]
        rows.sort(key=lambda i: (names[observation["shape_layer"][i]] not in rule.layers, int(i)))
        half = self._half(observation, selected)
        for i in rows[:N_SHAPES]:
            n = int(observation["shape_n_points"][i])
            gaps = [_gap(a, b, half) for a, b in _sides(observation["shape_local"][i, :n])]
            self._rows.append(int(i))
            self._edges.append(sorted(range(n), key=lambda k: (gaps[k], k))[:N_EDGES])

    @property
    def _table(self) -> Any:
        return load_table(self.base.view.rules)

    def _rule(self, observation: dict[str, Any], selected: int) -> Any:
        return list(self._table.rules.values())[int(observation["violation_rule"][selected])]

    def _half(self, observation: dict[str, Any], selected: int) -> np.ndarray:
        """Return half the width and height of the selected violation, nm."""
        box = observation["violation_box"][selected].astype(float)
        return np.array((box[2] - box[0], box[3] - box[1])) / 2 * float(observation["dbu_nm"][0])

    # -- observation -------------------------------------------------------------------------------------------------

    def encode(self, observation: dict[str, Any], info: dict[str, Any]) -> np.ndarray:
        """Return the vector, float32: rule and violation, then each listed shape with its edges; lengths in 20 nm."""
        self._look(observation)
        out = np.zeros(_SIZE, np.float32)
        selected = int(observation["selected"][0])
        out[0] = float(observation["budget_left"][0]) / 16
        out[1] = min(float(observation["n_violations"][0]), 20.0) / 5
        out[2] = float(observation["last_edit_error"][0])
        if selected < 0:
            return out
        rule = self._rule(observation, selected)
        half = self._half(observation, selected)
        kind = family(rule.id)
        out[3 + FAMILIES.index(kind if kind in FAMILIES else FAMILIES[-1])] = 1.0
        out[8 + int(observation["violation_kind"][selected])] = 1.0
        out[11:13] = half / 10
        out[13:15] = half > 0
        limits = sorted({q.nm for m in rule.measures for q in _quantities(m) if q.kind == "length" and q.nm > 0})
        for k, limit in enumerate(limits[:3]):
            out[15 + k] = limit / 20
        out[18] = float(rule.primary_layer in VIAS)
        out[19] = float(observation["counts"].max()) / 5
        names = list(self._table.layers)
        for slot, (i, edges) in enumerate(zip(self._rows, self._edges)):
            at = _HEAD + slot * (_PER_SHAPE + N_EDGES * _PER_EDGE)
            points = observation["shape_local"][i, : int(observation["shape_n_points"][i])].astype(float)
            name = names[observation["shape_layer"][i]]
            low, high = points.min(axis=0), points.max(axis=0)
            out[at : at + 4] = (1.0, name == rule.primary_layer, name in VIAS, name in rule.layers)
            out[at + 4 : at + 6] = (high - low) / 20
            out[at + 6] = float(observation["shape_distance"][i]) / 20
            out[at + 7] = len(points) / 8
            sides = list(_sides(points))
            for rank, k in enumerate(edges):
                place = at + _PER_SHAPE + rank * _PER_EDGE
                out[place : place + _PER_EDGE] = _edge_features(*sides[k], half, _inside(points))
        return np.clip(out, -_CLIP, _CLIP)

    # -- action ------------------------------------------------------------------------------------------------------

    def _edit(self, slot: int, rank: int, sign: int, share: float, nm: float) -> list[DRCEdit | Command]:
        """Return the edit that moves an edge, and a check; raises `EditError` where there is no such shape or edge."""
        if not self._rows:
            raise EditError("no shape is listed", field="shape", value=slot)
        slot = min(slot, len(self._rows) - 1)
        i, ranks = self._rows[slot], self._edges[slot]
        edge = ranks[min(rank, len(ranks) - 1)]
        seen = self._last
        n = int(seen["shape_n_points"][i])
        if share:
            a, b = list(_sides(seen["shape_local"][i, :n]))[edge]
            half = self._half(seen, int(seen["selected"][0]))
            nm = share * 2 * float(half[0] if abs(a[0] - b[0]) < abs(a[1] - b[1]) else half[1])
        distance = sign * max(round(nm / float(seen["dbu_nm"][0])), 1)
        points = tuple((int(x), int(y)) for x, y in seen["shape_points"][i, :n])
        layer = list(self._table.layers)[int(seen["shape_layer"][i])]
        change = ChangeShape(
            layer, ShapeRef(points=points), MoveEdge(edge, distance), self._cell(seen["shape_cell"][i])
        )
        return [change, Command.VERIFY]

    def _cell(self, row: int) -> str:
        """Return the name of a row of the cell table: the top cell, then the others by name."""
        if row == 0:
            return ""
        if self._cells is None:
            layout = self.base.layout
            top = layout.top.name
            self._cells = ("", *sorted(c.name for c in layout.layout.each_cell() if c.name != top))
        return self._cells[int(row)]


class EdgeSteps(_AtViolation):
    """(shape, edge, distance): MultiDiscrete([4, 6, 26]); see `N_SHAPES`, `N_EDGES`, `DISTANCES`.

    Numbers beyond the end of a list mean its last entry. A check follows the edit.

    Args:
        env: A DRC environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.action_space = gym.spaces.MultiDiscrete([N_SHAPES, N_EDGES, len(DISTANCES)])

    def to_edits(self, action: Any) -> list[DRCEdit | Command]:
        """Return the edit of an action, and a check."""
        slot, rank, way = (int(v) for v in np.asarray(action).ravel())
        return self._edit(slot, rank, *DISTANCES[way])

    def action_masks(self) -> np.ndarray:
        """Return which numbers point at something, bool (4 + 6 + 26,); edges by the longest list."""
        shapes = np.arange(N_SHAPES) < max(len(self._rows), 1)
        edges = np.arange(N_EDGES) < max((len(e) for e in self._edges), default=1)
        return np.concatenate([shapes, edges, np.ones(len(DISTANCES), bool)])


class EdgeMoves(_AtViolation):
    """(shape, edge, distance) as three numbers, -1 to 1: Box; distances up to `REACH_NM`. A check follows the edit.

    Args:
        env: A DRC environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def to_edits(self, action: Any) -> list[DRCEdit | Command]:
        """Return the edit of an action, and a check."""
        a, b, c = np.clip(np.asarray(action, float).ravel(), -1.0, 1.0)
        slot = min(int((a + 1) / 2 * max(len(self._rows), 1)), N_SHAPES - 1)
        rank = min(int((b + 1) / 2 * N_EDGES), N_EDGES - 1)
        return self._edit(slot, rank, 1 if c >= 0 else -1, 0.0, abs(float(c)) * REACH_NM)


def _sides(points: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ends of each edge of an outline."""
    for k in range(len(points)):
        yield points[k], points[(k + 1) % len(points)]


def _gap(a: np.ndarray, b: np.ndarray, half: np.ndarray) -> float:
    """Return the distance from an edge's box to the violation's box, which is centred at zero."""
    apart = np.maximum(np.maximum(np.minimum(a, b) - half, -half - np.maximum(a, b)), 0.0)
    return float(math.hypot(*apart)) + 0.01 * float(np.abs((a + b) / 2).min())


def _inside(points: np.ndarray) -> float:
    """Return the sign of an outline's area: which side of its edges is inside."""
    x, y = points[:, 0], points[:, 1]
    return 1.0 if float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) > 0 else -1.0


def _edge_features(a: np.ndarray, b: np.ndarray, half: np.ndarray, turn: float) -> tuple[float, ...]:
    """Return (there, upright, outward sign, offset from the violation's nearest side, length, touches it)."""
    upright = abs(float(a[0] - b[0])) < abs(float(a[1] - b[1]))
    axis = 0 if upright else 1
    along = float((b - a)[1 - axis])
    outward = math.copysign(1.0, along) * turn * (1.0 if upright else -1.0)
    at = float(a[axis])
    offset = (abs(at) - float(half[axis])) / 20
    touches = _gap(a, b, half) < 1.0
    towards = outward * math.copysign(1.0, at) if abs(at) > 1e-6 else 0.0
    return 1.0, float(upright), towards, offset, min(math.log1p(abs(along)) / 5, 2.0), float(touches)


def _quantities(e: Expr) -> Iterator[Quantity]:
    yield from (p for p in e.params if isinstance(p, Quantity))
    for inner in e.args:
        yield from _quantities(inner)
