"""Small changes of rectilinear outlines: the raw material of injected violations.

All coordinates are integer database units of the layout that a change is made for.
"""

from __future__ import annotations

from collections.abc import Sequence

import klayout.db as kdb
import numpy as np

from edagym.spaces.drc_edits import Points

STEPS_NM = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 27, 30, 36, 48, 54)
"""Amounts by which edges and shapes are moved, nm."""


def vertices(shape: kdb.Shape | kdb.Polygon | kdb.Box) -> Points:
    """Return the vertices of a polygon without holes, in KLayout's order."""
    polygon = kdb.Polygon(shape) if isinstance(shape, kdb.Box) else shape
    if isinstance(polygon, kdb.Shape):
        polygon = polygon.polygon
    return tuple((point.x, point.y) for point in polygon.each_point_hull())


def to_polygon(points: Points) -> kdb.Polygon:
    """Return the polygon with the given vertices."""
    return kdb.Polygon([kdb.Point(x, y) for x, y in points])


def insert(shapes: kdb.Shapes, points: Points) -> None:
    """Add an outline to `shapes`, as a box where it is one."""
    polygon = to_polygon(points)
    shapes.insert(polygon.bbox() if polygon.is_box() else polygon)


def moved_edge(points: Points, index: int, delta: int) -> Points | None:
    """Move one edge of a Manhattan polygon along its normal.

    Args:
        points: The polygon.
        index: The edge from this vertex to the next.
        delta: Distance, database units, positive towards larger coordinates.

    Returns:
        The vertices, or None where the result isn't one simple polygon with as many edges.
    """
    follower = (index + 1) % len(points)
    axis = 0 if points[index][0] == points[follower][0] else 1
    changed = list(points)
    for at in (index, follower):
        x, y = changed[at]
        changed[at] = (x + delta, y) if axis == 0 else (x, y + delta)
    return vertices(to_polygon(tuple(changed))) if _proper(changed) else None


def _proper(points: Sequence[tuple[int, int]]) -> bool:
    """Say whether the vertices still make one simple polygon with no edge collapsed."""
    polygon = kdb.Polygon([kdb.Point(x, y) for x, y in points])
    if polygon.num_points_hull() != len(points):
        return False
    merged = kdb.Region(polygon).merged()
    return merged.count() == 1 and merged[0].num_points() == len(points)


def bumped(points: Points, rng: np.random.Generator, depth: int, length: int, outwards: bool) -> Points | None:
    """Add a rectangle to a random edge of a polygon, or take one off it.

    Args:
        points: The polygon.
        rng: Chooses the edge and the place on it.
        depth: Size across the edge.
        length: Size along the edge.
        outwards: Whether to add.

    Returns:
        The polygon's vertices, or None where the edge is too short or the result isn't one simple polygon.
    """
    polygon = to_polygon(points)
    edges = [edge for edge in polygon.each_edge() if edge.length() > length]
    if not edges:
        return None
    edge = edges[int(rng.integers(len(edges)))]
    start = int(rng.integers(0, int(edge.length()) - length + 1))
    piece = kdb.Edge(
        edge.p1 + (edge.d() * (start / edge.length())), edge.p1 + edge.d() * ((start + length) / edge.length())
    )
    normal = kdb.Vector(-edge.dy() // int(edge.length()), edge.dx() // int(edge.length()))
    far = piece.moved(normal * (depth if outwards else -depth))
    box = piece.bbox() + far.bbox()
    region = kdb.Region(polygon)
    region = (region + kdb.Region(box)).merged() if outwards else region - kdb.Region(box)
    if region.count() != 1 or region[0].holes():
        return None
    return vertices(region[0])
