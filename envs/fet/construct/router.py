"""Wires on the contact layer: a visibility graph over the corners of grown obstacles, searched lazily with A*."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely

from edagym.envs.fet.construct.shapes import Array, Points, Rect

_MARGIN_UM = 0.02
# Chords of an 8-sided arc come this close to the circle: obstacles are grown by more, so that distances hold.
_ARC = math.cos(math.pi / 8)
# Sharper turns would leave a notch in the drawn wire that the spacing rule sees.
_MIN_TURN_COS = math.cos(math.radians(80))
_FLARE_UM = 0.25
_TAPER_UM = 0.004
_TURN_UM = 0.45
_WINDOW_UM = 10.0
_MAX_WIRE_UM = 0.4
# Most centre-line points in one drawn polygon (twice as many vertices).
_CHUNK = 7


@dataclass(frozen=True, slots=True)
class Terminal:
    """A contact that a wire may start or end at.

    Attributes:
        rect: The contact.
        sides: Sides still free: 0 and 1 are the ends along the flake (-, +), 2 and 3 those across it (-, +).
    """

    rect: Rect
    sides: tuple[int, ...] = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Wire:
    """A routed connection.

    Attributes:
        points: Centre line, um, from inside one contact to inside the other.
        width: um.
        flares: Small polygons that widen the wire where it meets its contacts.
        ends: (terminal index, side) of both ends.
    """

    points: Points
    width: float
    flares: tuple[Points, ...]
    ends: tuple[tuple[int, int], tuple[int, int]]

    @property
    def polygons(self) -> tuple[Points, ...]:
        """The polygons to draw, at most ``2 * _CHUNK`` vertices each."""
        parts = []
        k = 0
        while k < len(self.points) - 1:
            # Chunks share a segment, so that they overlap however the coordinates are rounded.
            parts.append(_ribbon(self.points[max(0, k - 1) : k + _CHUNK - 1], self.width))
            k += _CHUNK - 2
        return (*parts, *self.flares)


@dataclass(frozen=True, slots=True)
class _Exit:
    terminal: int
    side: int
    inside: tuple[float, float]
    edge: tuple[float, float]
    out: tuple[float, float]
    direction: tuple[float, float]
    length: float


def wire_width(rects: Sequence[Rect]) -> float:
    """Return a wire width that leaves a shoulder on every side of the contacts."""
    return min(_MAX_WIRE_UM, min(2 * min(r.hx, r.hy) for r in rects) - 0.16)


def grow(geometries: Sequence[Any], distance: float) -> list[Any]:
    """Return Shapely geometries grown by at least `distance` everywhere."""
    if not geometries:
        return []
    return list(shapely.buffer(np.asarray(geometries, dtype=object), distance / _ARC, quad_segs=2))


def route(
    terminals: Sequence[Terminal],
    sources: Sequence[int],
    targets: Sequence[int],
    walls: Sequence[Any],
    same_net: Sequence[Any],
    width: float,
    spacing: float,
) -> Wire | None:
    """Return a short wire from any source terminal to any target terminal, or None.

    Args:
        terminals: All terminals of the net.
        sources: Indices of the terminals that are already joined.
        targets: Indices of the terminals to reach (any one).
        walls: Shapely geometries that the wire's centre line must not touch (grown already).
        same_net: Shapely geometries of the net's own drawn wires (not grown): kept at `spacing` as well.
        width: Wire width, um.
        spacing: Contact spacing, um.
    """
    keep = spacing + width / 2 + _MARGIN_UM
    own = [shapely.Polygon(t.rect.corners) for t in terminals]
    hard = shapely.union_all([*walls, *grow(same_net, keep)])
    shapely.prepare(hard)
    starts = [e for k in sources for e in _exits(terminals[k], k, width, keep, hard)]
    goals = [e for k in targets for e in _exits(terminals[k], k, width, keep, hard)]
    if not starts or not goals:
        return None
    blocked = shapely.union_all([hard, *grow(own, keep - _MARGIN_UM / 2)])
    shapely.prepare(blocked)
    starts = [e for e in starts if not shapely.intersects_xy(blocked, *e.out)]
    goals = [e for e in goals if not shapely.intersects_xy(blocked, *e.out)]
    if not starts or not goals:
        return None
    # Rounder rings about the contacts let a wire turn back past the contact that it leaves.
    rings = shapely.get_coordinates(grow(own, keep + _TURN_UM))
    box = shapely.total_bounds(shapely.points([e.out for e in (*starts, *goals)]))
    for reach in (_WINDOW_UM, math.inf):
        found = _search(blocked, starts, goals, rings, width, box + np.array([-reach, -reach, reach, reach]))
        if found is not None:
            start, goal, middle = found
            points = (start.inside, start.out, *middle, goal.out, goal.inside)
            flares = (_flare(start, width), _flare(goal, width))
            return Wire(points, width, flares, ((start.terminal, start.side), (goal.terminal, goal.side)))
    return None


def _exits(terminal: Terminal, index: int, width: float, keep: float, hard: Any) -> Iterator[_Exit]:
    """Ways out of a contact: straight through the middle of a side, unless something is in the way."""
    r = terminal.rect
    reach = keep + 0.06
    for side in terminal.sides:
        sign = 1.0 if side % 2 else -1.0
        along = side < 2
        half, other = (r.hx, r.hy) if along else (r.hy, r.hx)
        if 2 * other < width + 0.15:
            continue

        def at(d: float, along: bool = along, sign: float = sign, half: float = half) -> tuple[float, float]:
            return r.at(sign * (half + d), 0.0) if along else r.at(0.0, sign * (half + d))

        edge, out = at(0.0), at(max(reach, _FLARE_UM + 0.2))
        stub = shapely.LineString([edge, out])
        if hard.intersects(stub):
            continue
        length = math.dist(edge, out)
        direction = ((out[0] - edge[0]) / length, (out[1] - edge[1]) / length)
        yield _Exit(index, side, at(-min(0.15, half)), edge, out, direction, length)


def _flare(e: _Exit, width: float) -> Points:
    (x, y), (dx, dy) = e.edge, e.direction
    slope = 0.06 / _FLARE_UM

    def at(d: float, v: float) -> tuple[float, float]:
        return x + d * dx - v * dy, y + d * dy + v * dx

    base = width / 2 + 0.06
    inner, top = base + 0.03 * slope, width / 2 - _TAPER_UM
    return at(-0.03, -inner), at(_FLARE_UM, -top), at(_FLARE_UM, top), at(-0.03, inner)


def _corners(blocked: Any) -> Array:
    """Convex corners of the obstacles, a nanometre off them."""
    out = shapely.buffer(blocked, 0.001, join_style="mitre")
    nodes = []
    for polygon in shapely.get_parts(out):
        for k, ring in enumerate((polygon.exterior, *polygon.interiors)):
            xy = np.asarray(ring.coords)[:-1]
            if not shapely.is_ccw(ring):
                xy = xy[::-1]
            before, after = xy - np.roll(xy, 1, axis=0), np.roll(xy, -1, axis=0) - xy
            turn = before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]
            nodes.append(xy[(turn > 1e-9) if k == 0 else (turn < -1e-9)])
    return np.vstack(nodes) if nodes else np.empty((0, 2))


def _search(
    blocked: Any, starts: list[_Exit], goals: list[_Exit], extra: Array, width: float, window: Array
) -> tuple[_Exit, _Exit, Points] | None:
    """A* over starts, goals, the obstacles' corners in the window and extra nodes; visibility is tested as needed.

    A bend eats into the inner side of both segments that meet there; segments too short for the bends at their two
    ends are refused, because the outline would cross itself.
    """
    corners = np.vstack([_corners(blocked), extra])
    inside = (corners[:, 0] > window[0]) & (corners[:, 1] > window[1])
    inside &= (corners[:, 0] < window[2]) & (corners[:, 1] < window[3])
    corners = corners[inside]
    corners = corners[~shapely.intersects_xy(blocked, corners[:, 0], corners[:, 1])]
    first, last = len(starts), len(starts) + len(goals)
    xy = np.vstack([[e.out for e in starts], [e.out for e in goals], corners.reshape(-1, 2)])
    goal_dirs = np.array([e.direction for e in goals])
    goal_spare = np.array([e.length - _FLARE_UM for e in goals])
    estimate = np.hypot(*(xy[:, None] - xy[None, first:last]).transpose(2, 0, 1)).min(axis=1)
    cost = np.full(len(xy), np.inf)
    came = np.full(len(xy), -1)
    spare = np.zeros(len(xy))  # inner length left of the segment that arrives at a node
    done = np.zeros(len(xy), dtype=bool)
    heap: list[tuple[float, int]] = []
    for k, e in enumerate(starts):
        cost[k], spare[k] = e.length, e.length - _FLARE_UM
        heapq.heappush(heap, (float(cost[k] + estimate[k]), k))
    while heap:
        _, k = heapq.heappop(heap)
        if done[k]:
            continue
        done[k] = True
        if first <= k < last:
            path = []
            node = int(came[k])
            while node >= first:
                path.append((float(xy[node, 0]), float(xy[node, 1])))
                node = int(came[node])
            return starts[node], goals[k - first], tuple(path[::-1])
        d = xy - xy[k]
        length = np.hypot(*d.T)
        heading = np.array(starts[k].direction) if k < first else (xy[k] - xy[came[k]]) / math.dist(xy[k], xy[came[k]])
        with np.errstate(divide="ignore", invalid="ignore"):
            unit = d / length[:, None]
        new = cost[k] + length
        eaten = _eaten(unit @ heading, width)
        left = length - eaten
        ok = ~done & (new < cost - 1e-9) & (eaten <= spare[k]) & (left > 0.02)
        ok[:first] = False
        last_eaten = _eaten(-(unit[first:last] * goal_dirs).sum(axis=1), width)
        ok[first:last] &= (last_eaten < left[first:last]) & (last_eaten < goal_spare)
        at = np.flatnonzero(ok)
        if len(at) == 0:
            continue
        lines = shapely.linestrings(np.stack([np.tile(xy[k], (len(at), 1)), xy[at]], axis=1))
        for j in at[~shapely.intersects(blocked, lines)].tolist():
            cost[j], came[j], spare[j] = new[j], k, left[j]
            heapq.heappush(heap, (float(new[j] + estimate[j]), j))
    return None


def _eaten(cosine: Array, width: float) -> Array:
    """Length that a bend takes from the inner side of its two segments; inf where the bend is too sharp."""
    ok = cosine > _MIN_TURN_COS  # NaN, of a node with itself, is not
    c = np.where(ok, cosine, 0.0)
    return np.where(ok, np.sqrt(np.maximum(0.0, 1 - c) / (1 + c)) * width / 2 + 0.005, np.inf)


def _ribbon(points: Sequence[tuple[float, float]], width: float) -> Points:
    """Outline of a centre line: flat ends, mitred bends.

    The ends are a little narrower, so that where two ribbons share a segment their outlines cross instead of
    coinciding: coinciding edges come apart by a nanometre when the layout is turned, and leave a notch.
    """
    xy = np.asarray(points)
    d = np.diff(xy, axis=0)
    d /= np.hypot(*d.T)[:, None]
    n = np.column_stack([-d[:, 1], d[:, 0]])
    offsets = np.empty_like(xy)
    offsets[0], offsets[-1] = n[0] * (1 - 2 * _TAPER_UM / width), n[-1] * (1 - 2 * _TAPER_UM / width)
    if len(xy) > 2:
        bisector = n[:-1] + n[1:]
        offsets[1:-1] = bisector * 2 / (bisector**2).sum(axis=1)[:, None]
    left, right = xy + offsets * width / 2, xy - offsets * width / 2
    return tuple((float(x), float(y)) for x, y in np.vstack([right, left[::-1]]))
