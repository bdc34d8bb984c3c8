"""Wires on the contact layer that join the pieces of an output: shortest ways around grown obstacles (um)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely

from .fet_chain import MARGIN, Chain
from .fet_curves import Array
from .fet_prompt import Problem

# Width of a wire and its distance from flakes: a narrow one passes between flakes that stand close.
WIDTHS = ((0.4, 0.3), (0.2, 0.15), (0.1, 0.08))
# How far outside the box of two contacts a wire may run.
_DETOURS = (8.0, 25.0)
# Wires turn by less than a right angle: sharper inner corners break the spacing rule.
_LEAST_COS = 0.05
# Two turns in a short distance are as sharp as one.
_LEAST_STEP = 0.2
# Kept from other pieces of the flake.
_FOREIGN = 0.03
# Chords of an 8-sided circle come this close to it: growing allows for that.
_ARC = float(np.cos(np.pi / 8))


@dataclass(frozen=True)
class Terminal:
    """A contact that a wire joins.

    Attributes:
        contact: Its shape.
        ways: Unit vectors along which a wire may leave it.
        foreign: The other pieces of its flake, as gates cut it; metal on them would be a short.
        grown: The flake, a little larger.
    """

    contact: Any
    ways: tuple[Array, ...]
    foreign: list[Any]
    grown: Any


def terminals(flake: Any, chain: Chain, nets: Sequence[str]) -> dict[str, list[Terminal]]:
    """Return the contacts of a flake that carry an output net, by net."""
    found: dict[str, list[Terminal]] = {}
    grown = flake.buffer(0.1, join_style="mitre")
    gates = shapely.union_all(chain.gates)
    pieces = [*shapely.get_parts(grown.difference(gates)), *shapely.get_parts(flake.difference(gates))]
    for i, (net, contact, normal) in enumerate(zip(nets, chain.contacts, chain.normals)):
        if net.startswith("OUT") and contact is not None:
            ways = [normal, -normal]
            along = np.array([normal[1], -normal[0]])
            if i == 0:
                ways.append(-along)
            if i == len(nets) - 1:
                ways.append(along)
            foreign = [piece for piece in pieces if not piece.intersects(contact)]
            found.setdefault(net, []).append(Terminal(contact, tuple(ways), foreign, grown))
    return found


class Router:
    """Wires of one layout.

    Args:
        problem: The task.
        flakes: Filled outlines of all flakes.
        done: The chains drawn.
    """

    def __init__(self, problem: Problem, flakes: Sequence[Any], done: Sequence[Chain]) -> None:
        self.problem, self.flakes = problem, list(flakes)
        self.gates = [g for chain in done for g in chain.gates]
        self.metal = [c for chain in done for c in chain.contacts if c is not None]
        self.wires: list[Any] = []

    def join(self, ends: Sequence[Terminal]) -> bool:
        """Draw wires that join all terminals of one net; returns whether that worked."""
        joined, rest = [ends[0]], list(ends[1:])
        used: set[tuple[int, int]] = set()
        while rest:
            for width, gap in WIDTHS:
                found = self._nearest(joined, rest, width, gap, used)
                if found is not None:
                    break
            else:
                return False
            wire, sides, reached = found
            used |= sides
            self.wires.append(wire)
            joined.append(reached)
            rest = [t for t in rest if t is not reached]
        return True

    def _nearest(
        self, joined: list[Terminal], rest: list[Terminal], width: float, gap: float, used: set[tuple[int, int]]
    ) -> tuple[Any, set[tuple[int, int]], Terminal] | None:
        both = shapely.union_all([t.contact for t in (*joined, *rest)])
        for detour in _DETOURS:
            window = shapely.box(*both.bounds).buffer(detour, join_style="mitre")
            obstacles = self._obstacles(width, gap, window)
            starts = [e for t in joined for e in self._exits(t, width, gap, obstacles, used)]
            goals = [e for t in rest for e in self._exits(t, width, gap, obstacles, used)]
            if not starts or not goals:
                continue
            path = _shortest(starts, goals, obstacles, window)
            if path is not None:
                start, goal, middle = path
                line = [start.origin, *middle, goal.origin]
                wire = shapely.LineString(line).buffer(width / 2, cap_style="flat", join_style="mitre", mitre_limit=2)
                if not self._notched(shapely.union_all([wire, start.terminal.contact, goal.terminal.contact])):
                    return wire, {start.key, goal.key}, goal.terminal
        return None

    def _notched(self, shape: Any) -> bool:
        """Whether a shape has a notch below the spacing rule, or an inner corner much sharper than a right angle."""
        r = self.problem.spacing / 2
        filled = shape.buffer(r).buffer(-r).difference(shape.buffer(1e-4))
        # A disc leaves (1 - pi / 4) r^2 of a right angle free.
        return any(part.area > 0.24 * r * r for part in shapely.get_parts(filled))

    def _obstacles(self, width: float, gap: float, window: Any) -> Any:
        half = width / 2
        separation, spacing = self.problem.separation + MARGIN + half, self.problem.spacing + MARGIN + half
        groups = ((self.flakes, gap + half), (self.gates, separation), (self.metal + self.wires, spacing))
        near = [s.buffer(d / _ARC, quad_segs=2) for shapes, d in groups for s in shapes if s.intersects(window)]
        return shapely.union_all(near)

    def _exits(
        self, terminal: Terminal, width: float, gap: float, obstacles: Any, used: set[tuple[int, int]]
    ) -> list[_Exit]:
        """Return where wires may leave a terminal: straight out, past the flake, clear of gates and other metal."""
        origin = shapely.get_coordinates(terminal.contact.centroid)[0]
        found = []
        for side, way in enumerate(terminal.ways):
            key = (id(terminal), side)
            if key in used:
                continue
            ray = shapely.LineString([origin, origin + 40 * way])
            crossings = shapely.get_coordinates(ray.intersection(obstacles.boundary))
            reaches = np.sort((crossings - origin) @ way) if len(crossings) else np.array([0.3])
            outs = [r + extra for r in reaches[:3] for extra in (0.01, 0.5)]
            for out in outs:
                end = origin + out * way
                if not shapely.intersects_xy(obstacles, *end) and self._free(terminal, origin, end, width, gap):
                    found.append(_Exit(terminal, key, origin, end, way))
        return found

    def _free(self, terminal: Terminal, origin: Array, end: Array, width: float, gap: float) -> bool:
        """Whether the straight piece from a contact to its exit keeps all distances and stays on one piece."""
        bar = shapely.LineString([origin, end]).buffer(width / 2, cap_style="flat")
        problem, contact = self.problem, terminal.contact
        if any(bar.distance(g) < problem.separation + MARGIN for g in self.gates):
            return False
        outside = bar.difference(contact)
        if any(outside.distance(m) < problem.spacing + MARGIN for m in (*self.metal, *self.wires) if m is not contact):
            return False
        others = [f for f in self.flakes if not f.within(terminal.grown)]
        if any(bar.distance(f) < gap for f in others):
            return False
        return all(bar.distance(piece) > _FOREIGN for piece in terminal.foreign)


@dataclass(frozen=True)
class _Exit:
    terminal: Terminal
    key: tuple[int, int]
    origin: Array
    end: Array
    way: Array


def _shortest(
    starts: list[_Exit], goals: list[_Exit], obstacles: Any, window: Any
) -> tuple[_Exit, _Exit, list[Array]] | None:
    """Return the shortest way from a start to a goal over corners of the obstacles, by Dijkstra's algorithm."""
    corners = shapely.get_coordinates(obstacles.buffer(0.005, join_style="mitre"))
    corners = np.unique(np.round(corners, 4), axis=0)
    corners = corners[shapely.intersects_xy(window, *corners.T) & ~shapely.intersects_xy(obstacles, *corners.T)]
    nodes = np.vstack([[e.end for e in starts], [e.end for e in goals], corners])
    shapely.prepare(obstacles)
    first_goal, first_corner = len(starts), len(starts) + len(goals)
    cost = np.full(len(nodes), np.inf)
    before = np.full(len(nodes), -1)
    queue: list[tuple[float, int]] = []
    for i, exit_ in enumerate(starts):
        cost[i] = float(np.hypot(*(exit_.end - exit_.origin)))
        heapq.heappush(queue, (cost[i], i))
    done = np.zeros(len(nodes), dtype=bool)
    while queue:
        total, i = heapq.heappop(queue)
        if done[i]:
            continue
        done[i] = True
        if first_goal <= i < first_corner:
            path = [i]
            while before[path[-1]] >= 0:
                path.append(int(before[path[-1]]))
            return starts[path[-1]], goals[i - first_goal], [nodes[k] for k in path[::-1]]
        steps = nodes - nodes[i]
        length = np.hypot(*steps.T)
        open_ = ~done & (length > _LEAST_STEP)
        open_[:first_goal] = False
        with np.errstate(invalid="ignore", divide="ignore"):
            unit = steps / length[:, None]
        if i < first_goal:
            open_ &= unit @ starts[i].way > _LEAST_COS
        else:
            came = nodes[i] - nodes[before[i]]
            open_ &= unit @ (came / np.hypot(*came)) > _LEAST_COS
        for k, goal in enumerate(goals):
            open_[first_goal + k] &= bool(unit[first_goal + k] @ -goal.way > _LEAST_COS)
        open_ &= total + length < cost
        at = np.flatnonzero(open_)
        ways = shapely.linestrings(np.stack([np.broadcast_to(nodes[i], (len(at), 2)), nodes[at]], axis=1))
        at = at[~shapely.intersects(obstacles, ways)]
        for k in at.tolist():
            cost[k], before[k] = total + length[k], i
            heapq.heappush(queue, (cost[k], k))
    return None
