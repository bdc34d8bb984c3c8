"""Narrow places of a polygon that lie at a vertex: what edge-against-edge checks cannot see.

KLayout's width and notch checks compare edges that face each other at less than `ignore_angle`. A needle-shaped slit
that ends just short of the far side faces it with a vertex only, both of its edges near 90 degrees, and passes. Here a
vertex counts when it is the nearest point of its own corner to some point of another edge.
"""

from __future__ import annotations

import klayout.db as kdb
import numpy as np
import shapely

# Pairs of vertices and edges up to which testing all of them beats building a search tree.
_DENSE = 40_000


class Outline:
    """The boundary of a polygon as arrays of directed edges, the polygon on their right.

    Args:
        polygon: A merged polygon (dbu).
    """

    def __init__(self, polygon: kdb.Polygon) -> None:
        rings = [polygon.each_point_hull(), *(polygon.each_point_hole(h) for h in range(polygon.holes()))]
        starts, before, after, following = [], [], [], []
        first = 0
        for ring in rings:
            points = np.array([(p.x, p.y) for p in ring], dtype=float)
            starts.append(points)
            following.append(first + np.roll(np.arange(len(points)), -1))
            first += len(points)
            before.append(points - np.roll(points, 1, axis=0))
            after.append(np.roll(points, -1, axis=0) - points)
        self.start = np.concatenate(starts)
        self.before = np.concatenate(before)
        self.after = np.concatenate(after)
        self.following = np.concatenate(following)
        # Positive at vertices where the polygon is concave, negative where it is convex.
        self.turn = _cross(self.before, self.after)


class Sight:
    """Lines of sight between points of a polygon's boundary, with 2 dbu of tolerance for their rounded ends.

    Args:
        polygon: The polygon (dbu).
    """

    def __init__(self, polygon: shapely.Polygon) -> None:
        self._polygon = polygon
        self._grown: shapely.Geometry | None = None
        self._shrunk: shapely.Geometry | None = None

    def visible(self, line: shapely.LineString, *, inside: bool) -> bool:
        """Whether a line between two boundary points runs through the polygon, or else outside of it."""
        if line.length == 0:
            return True
        if inside:
            if self._grown is None:
                self._grown = self._polygon.buffer(2, join_style="mitre")
                shapely.prepare(self._grown)
            return bool(self._grown.covers(line))
        if self._shrunk is None:
            self._shrunk = self._polygon.buffer(-2, join_style="mitre")
            shapely.prepare(self._shrunk)
        return not self._shrunk.intersects(line)


def narrowest(outline: Outline, sight: Sight, limit: float, *, inside: bool) -> tuple[float, shapely.LineString] | None:
    """Find the narrowest place between a vertex and an edge of one polygon.

    Args:
        outline: The polygon's boundary.
        sight: Lines of sight of the same polygon.
        limit: Only distances below this count (dbu).
        inside: True measures through the polygon (width), False through the outside (notches).

    Returns:
        Distance and line (dbu), or None if there is no place below `limit`.
    """
    side = 1.0 if inside else -1.0
    tips = np.flatnonzero(outline.turn * side > 0)
    vertex, edge = _candidates(outline, tips, limit)
    if not len(vertex):
        return None
    v, a, along = outline.start[vertex], outline.start[edge], outline.after[edge]
    t = np.clip(_dot(v - a, along) / _dot(along, along), 0.0, 1.0)
    foot = a + t[:, None] * along
    reach = foot - v
    distance = np.hypot(reach[:, 0], reach[:, 1])
    # The other end of an edge that stops at a vertex must be a tip too, and both corners must look at each other.
    end = np.where(t >= 1.0, outline.following[edge], edge)
    between = (t > 0.0) & (t < 1.0)
    faces = between & (_cross(along, v - a) * side < 0)
    faces |= ~between & (outline.turn[end] * side > 0) & _ahead(outline, end, -reach)
    good = (distance < limit) & (distance > 0) & faces & _ahead(outline, vertex, reach)
    good &= (vertex != edge) & (vertex != outline.following[edge])
    found = np.flatnonzero(good)
    for k in found[np.argsort(distance[found], kind="stable")]:
        line = shapely.LineString([v[k], foot[k]])
        if sight.visible(line, inside=inside):
            return float(distance[k]), line
    return None


def _ahead(outline: Outline, vertex: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Whether `direction` leaves a corner so that the corner's vertex is its nearest point to what lies there."""
    return (_dot(direction, outline.before[vertex]) >= 0) & (_dot(direction, outline.after[vertex]) <= 0)


def _candidates(outline: Outline, tips: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    n = len(outline.start)
    if len(tips) * n <= _DENSE:
        return np.repeat(tips, n), np.tile(np.arange(n), len(tips))
    ends = outline.start + outline.after
    segments = shapely.linestrings(np.stack([outline.start, ends], axis=1))
    points = shapely.points(outline.start[tips])
    i, j = shapely.STRtree(segments).query(points, predicate="dwithin", distance=limit)
    return tips[i], j


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1]


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
