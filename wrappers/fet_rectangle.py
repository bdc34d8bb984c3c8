"""Rectangles in a flake's own frame as actions of a plain Box.

The frame of a flake is its long axis (the centres of the cross-sections along the long side of the smallest enclosing
rectangle): one coordinate along it, one across, sizes relative to the local width. A rectangle knows nothing of
transistors or rules; the layer that it is drawn on makes it a contact or a gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from edagym.envs.core.edit_env import StepResult
from edagym.envs.fet.construct.shapes import Rect
from edagym.envs.fet.observation import CHECK_KINDS
from edagym.spaces.actions import Command
from edagym.spaces.contours import MAX_REGIONS
from edagym.spaces.edits import AddPolygon, Edit
from edagym.task_assets.fet.task import ARCHITECTURES, ROLES, TaskView
from edagym.wrappers.core import PlainWrapper
from edagym.wrappers.fet_macro import Rules
from edagym.wrappers.fet_spines import LONG_AXIS, NEAR_UM, Spine, edges_of, frame_of, free_way, rect_ring

FIELDS = ("command", "region", "layer", "along", "across", "length", "width", "angle")
"""Fields of an action, each -1..1. command: over 0.5 submit, below that draw. region: over the flakes, from the first
that lacks shapes on. layer: over the editable layers in drawing order. along: place on the axis, end to end. across:
offset in half local widths. length: 0.1 to 6 um along the axis, logarithmic. width: below 0 a share of the local
width (0.05 at -1), above 0 wider than the flake, by up to `BEYOND_UM` on either side. angle: up to 0.6 rad against the
axis."""

LENGTH_UM, LEAST_SHARE, BEYOND_UM, ANGLE = (0.1, 6.0), 0.05, 1.0, 0.6
_STATIONS, _PER_STATION, _PER_ROW, _PER_ROLE = 32, 6, 4, 8
_DRAWN_ROLES = ROLES[1:]
SIZE = (
    6 + 3 + len(ARCHITECTURES) + len(_DRAWN_ROLES) + len(CHECK_KINDS) + 2 + MAX_REGIONS * _PER_ROW
    + 11 + len(_DRAWN_ROLES) * _PER_ROLE + _STATIONS * _PER_STATION + 6
)  # fmt: skip
"""Length of the observation."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A rectangle that was drawn: layer, the action's numbers, and the shape."""

    layer: str
    numbers: tuple[float, ...]
    rect: Rect


@dataclass
class Sheet:
    """Notes of one episode: per flake the rectangles drawn."""

    view: TaskView
    rules: Rules
    wanted: tuple[int, ...]
    drawn: list[list[Drawn]] = field(default_factory=list)

    @classmethod
    def of(cls, view: TaskView) -> Sheet:
        """Begin with nothing drawn."""
        circuit = view.circuit
        wanted = circuit.exact_per_flake if circuit else tuple(n or 1 for n in view.demand)
        return cls(view, Rules.of(view), tuple(int(n) for n in wanted), [[] for _ in view.regions])

    def lacking(self, k: int) -> dict[str, int]:
        """Return how many shapes each layer of a flake lacks, if neighbours share contacts: gates n, contacts n + 1."""
        found = {spec.name: 0 for spec in self.layers}
        for d in self.drawn[k]:
            found[d.layer] += 1
        gates = ("gate electrode", "dielectric")
        return {s.name: self.wanted[k] + (s.role not in gates) - found[s.name] for s in self.layers}

    @property
    def layers(self) -> list[Any]:
        """Editable layers in drawing order."""
        return [self.view.layer(n) for n in self.view.design_order if not n.startswith("@")]

    @property
    def order(self) -> list[int]:
        """All flakes, those that lack shapes first."""
        return sorted(range(len(self.drawn)), key=lambda k: (max(self.lacking(k).values()) <= 0, k))

    def spine(self, k: int) -> Spine:
        """Return the axis of a flake."""
        spine = frame_of(self.view.regions[k]).spines[LONG_AXIS]
        assert spine is not None
        return spine

    def rect(self, k: int, numbers: Sequence[float]) -> Rect:
        """Return the rectangle of an action's numbers (`FIELDS` from along on)."""
        along, across, length, width, angle = (min(max(float(v), -1.0), 1.0) for v in numbers)
        spine = self.spine(k)
        x, y, heading = spine.at((along + 1) / 2 * spine.length)
        left, right = spine.span(x, y, heading, 0.0)
        local = left + right
        shift = (left - right) / 2 + across * local / 2
        direction = heading + ANGLE * angle
        return Rect(
            x - shift * math.sin(heading),
            y + shift * math.cos(heading),
            math.cos(direction),
            math.sin(direction),
            _from_log(length, LENGTH_UM) / 2,
            _half_width(width, local),
        )


def _from_log(value: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return low * (high / low) ** ((value + 1) / 2)


def _half_width(value: float, local: float) -> float:
    return local / 2 + value * BEYOND_UM if value > 0 else (1 + (1 - LEAST_SHARE) * value) * local / 2


def to_width(half: float, local: float) -> float:
    """Return the number in -1..1 that stands for a half width (um) where the flake is `local` wide."""
    if 2 * half > local:
        return min((half - local / 2) / BEYOND_UM, 1.0)
    return max((2 * half / local - 1) / (1 - LEAST_SHARE), -1.0)


def to_log(value: float, bounds: tuple[float, float]) -> float:
    """Return the number in -1..1 that stands for a size."""
    low, high = bounds
    return min(max(2 * math.log(max(value, 1e-9) / low) / math.log(high / low) - 1, -1.0), 1.0)


class RegionRectangle(PlainWrapper):
    """One rectangle per action, placed in a flake's frame (`FIELDS`); observations are vectors in the same frame.

    Args:
        env: A FET environment.
    """

    privileged = False

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self.action_space = Box(-1.0, 1.0, (len(FIELDS),), np.float32)
        self.observation_space = Box(-5.0, 5.0, (SIZE,), np.float32)
        self._sheet: Sheet | None = None

    @property
    def sheet(self) -> Sheet:
        """The episode's notes."""
        assert self._sheet is not None, "there are no notes before reset()"
        return self._sheet

    def begin(self) -> None:
        """Start with an empty sheet."""
        self._sheet = Sheet.of(self.base.view)

    def to_edits(self, action: Any) -> list[Edit | Command]:
        """Return one rectangle, or submit."""
        numbers = np.clip(np.asarray(action, float).reshape(-1), -1.0, 1.0).tolist()
        if numbers[0] > 0.5:
            return [Command.SUBMIT]
        sheet = self.sheet
        k = _pick(sheet.order, numbers[1])
        layer = _pick(sheet.layers, numbers[2]).name
        rect = sheet.rect(k, numbers[3:])
        sheet.drawn[k].append(Drawn(layer, tuple(numbers[3:]), rect))
        return [AddPolygon(layer, tuple((round(x, 3), round(y, 3)) for x, y in rect.corners))]

    def after(self, edits: Sequence[Any], results: Sequence[StepResult]) -> None:
        """Strike out a rectangle that was refused."""
        if results and results[-1][4]["edit_error"]:
            layer = getattr(edits[-1], "layer", None)
            for drawn in self.sheet.drawn:
                if drawn and drawn[-1].layer == layer and edits[-1].points == tuple(
                    (round(x, 3), round(y, 3)) for x, y in drawn[-1].rect.corners
                ):  # fmt: skip
                    drawn.pop()
                    return

    def encode(self, observation: dict[str, Any], info: dict[str, Any]) -> np.ndarray:
        """Return rules, last verify, table of flakes, and the frame of the first flake that lacks shapes."""
        sheet = self.sheet
        view, rules = sheet.view, sheet.rules
        k = sheet.order[0]
        left = float(observation["budget_left"][0])
        lacking = sheet.lacking(k)
        head = [rules.gate_width, rules.spacing * 2, rules.separation * 2, rules.enclosure or 0.0, rules.pitch / 3]
        head += [rules.least_contact, left / 100, left / max(self.base.budget, 1)]
        head += [float(max(lacking.values()) <= 0)]
        head += [float(view.architecture == a) for a in ARCHITECTURES]
        head += [float(bool(view.layers_of(role))) for role in _DRAWN_ROLES]
        verify = [*observation["last_checks"].tolist(), observation["last_share"][0], observation["last_edit_error"][0]]
        table = np.zeros((MAX_REGIONS, _PER_ROW))
        for j, drawn in enumerate(sheet.drawn[:MAX_REGIONS]):
            table[j] = 1.0, sheet.wanted[j] / 4, len(drawn) / 10, float(j == k)
        spine = sheet.spine(k)
        focus = [spine.length / 15, sheet.wanted[k] / 4, len(sheet.drawn[k]) / 10]
        slack = spine.length - sheet.wanted[k] * rules.pitch - rules.least_contact
        unit = 2 / max(spine.length, 1e-6)  # one um in units of the action's `along`
        each = slack / (sheet.wanted[k] + 1)
        focus += [slack / 8, each / 3, unit, unit * each, unit * rules.least_contact, unit * rules.gate_width]
        focus += [unit * rules.separation]
        contacts = [d for d in sheet.drawn[k] if view.layer(d.layer).role == "contact"]
        focus += [2 * unit * contacts[-1].rect.hx if contacts else 0.0]
        roles = []
        for role in _DRAWN_ROLES:
            mine = [d for d in sheet.drawn[k] if view.layer(d.layer).role == role]
            lacks = [lacking[s.name] for s in view.layers_of(role)]
            last = mine[-1].numbers if mine else (0.0,) * 5
            roles += [float(bool(mine)), len(mine) / 4, max(lacks, default=0) / 4, *last]
        turn = [float(lacks > 0) for lacks in list(lacking.values())[:6]]
        parts = [head, verify, table.ravel(), focus, roles, self._profile(spine, k), turn + [0.0] * (6 - len(turn))]
        return np.clip(np.concatenate([np.asarray(p, float) for p in parts]), -5.0, 5.0).astype(np.float32)

    def _profile(self, spine: Spine, k: int) -> np.ndarray:
        at = np.linspace(0, len(spine.s) - 1, _STATIONS).astype(np.intp)
        normals = np.column_stack([-np.sin(spine.heading[at]), np.cos(spine.heading[at])])
        points = spine.points[at]
        edges = self._edges(k)
        left = free_way(points + spine.left[at, None] * normals, normals, edges)
        right = free_way(points - spine.right[at, None] * normals, -normals, edges)
        width = spine.left[at] + spine.right[at]
        turn = np.gradient(spine.heading[at])
        return np.column_stack(
            [spine.inside[at], width / 5, left / NEAR_UM, right / NEAR_UM, turn, spine.hollow[at]]
        ).ravel()

    def _edges(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        sheet = self.sheet
        hulls = [frame_of(r).flake.hull for r in sheet.view.regions]
        shapes = [rect_ring(d.rect) for j, drawn in enumerate(sheet.drawn) if j != k for d in drawn]
        return edges_of(hulls + shapes)


def _pick(items: Sequence[Any], number: float) -> Any:
    return items[min(int((number + 1) / 2 * len(items)), len(items) - 1)]
