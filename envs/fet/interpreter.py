"""The interpreter: typed edits onto a `FETLayout`.

Coordinates arrive in micrometres and go through the one rounding function (`grid.ring_to_dbu`) to the 1 nm grid.
Either the whole edit is applied or an `EditError` is raised and the layout is as it was.

Refused are: unknown and read-only layers; points that are not finite or lie outside the window; rings with fewer than
3 distinct points, zero area or an outline that crosses or touches itself (draw a ring as a polygon and a cut); paths
of zero length or without positive width; and whatever exceeds the published maxima (256 shapes in all, 64 points in
one shape). Nothing is repaired silently.

KLayout is used by paths and cuts only: adding a polygon, the common case, is integer arithmetic in Python.
"""

from __future__ import annotations

import klayout.db as kdb
import numpy as np

from edagym.errors import EditError
from edagym.spaces.actions import MAX_WIDTH_UM
from edagym.spaces.edits import AddPath, AddPolygon, Clear, Cut, Edit, Points
from edagym.spaces.layout import MAX_SHAPE_POINTS, MAX_SHAPES
from edagym.spaces.rings import MAX_COORD_UM
from edagym.task_assets.fet.grid import DBU_PER_UM, IntPoint, IntRing, ring_to_dbu, to_dbu
from edagym.task_assets.fet.task import Region
from edagym.verifiers.fet.layout import FETLayout, polygon_ring

WINDOW_MARGIN_UM = 50.0
"""Room around the flakes' common bounding box in which agents may draw, um."""

Window = tuple[float, float, float, float]

_DEFAULT_WINDOW: Window = (-MAX_COORD_UM, -MAX_COORD_UM, MAX_COORD_UM, MAX_COORD_UM)
# Up to this many points the pairwise test in plain Python beats the set-up cost of numpy.
_PLAIN_POINTS = 7


def drawing_window(regions: tuple[Region, ...]) -> Window:
    """Return the box (x1, y1, x2, y2) in um in which agents may draw: the flakes' box plus `WINDOW_MARGIN_UM`."""
    xs = [x for r in regions for x, _ in r.hull]
    ys = [y for r in regions for _, y in r.hull]
    return (
        max(min(xs) - WINDOW_MARGIN_UM, -MAX_COORD_UM),
        max(min(ys) - WINDOW_MARGIN_UM, -MAX_COORD_UM),
        min(max(xs) + WINDOW_MARGIN_UM, MAX_COORD_UM),
        min(max(ys) + WINDOW_MARGIN_UM, MAX_COORD_UM),
    )


def apply_edit(layout: FETLayout, edit: Edit, *, guard_inputs: bool = True, window: Window | None = None) -> None:
    """Apply one edit in place.

    Args:
        layout: The layout; unchanged when the edit is refused.
        edit: The edit (um).
        guard_inputs: Refuse edits of read-only layers. False lets them through, as the paper's direct interpretation
            does; then the verifier's input-preservation check decides.
        window: Box (x1, y1, x2, y2) in um in which all points must lie; None: +-`MAX_COORD_UM`.

    Raises:
        EditError: If the edit is refused; names the field, the value and what is allowed.
    """
    spec = next((s for s in layout.layers if s.name == edit.layer), None)
    if spec is None:
        raise EditError("unknown layer", field="layer", value=edit.layer, allowed=[s.name for s in layout.layers])
    if guard_inputs and not spec.editable:
        allowed = [s.name for s in layout.layers if s.editable]
        raise EditError("read-only layer", field="layer", value=edit.layer, allowed=allowed)
    if isinstance(edit, Clear):
        layout.replace(edit.layer, ())
        return
    window = window or _DEFAULT_WINDOW
    points = _grid_points(edit.points, window)
    if isinstance(edit, AddPath):
        rings = _path_rings(points, edit.width, window)
        _check_count(layout, len(rings))
        layout.replace(edit.layer, (*layout.shapes(edit.layer), *rings))
        return
    ring = points[:-1] if len(points) > 1 and points[0] == points[-1] else points
    problem = ring_problem(ring)
    if problem:
        raise EditError(problem, field="points", value=edit.points[:6], allowed="a simple polygon, um")
    if isinstance(edit, AddPolygon):
        _check_points(ring, edit.layer)
        _check_count(layout, 1)
        layout.add(edit.layer, ring)
    else:
        _cut(layout, edit, ring)


# -- points --------------------------------------------------------------------------------------------------------


def _grid_points(points: Points, window: Window) -> IntRing:
    """Return the points on the grid with repeated neighbours dropped; raises `EditError`."""
    if len(points) > MAX_SHAPE_POINTS + 1:
        raise EditError("too many points", field="points", value=len(points), allowed=f"<= {MAX_SHAPE_POINTS}")
    try:
        ring = ring_to_dbu(points)
    except (ValueError, OverflowError) as e:
        raise EditError("a coordinate is not finite", field="points", allowed="finite um") from e
    x1, y1, x2, y2 = (v * DBU_PER_UM for v in window)
    previous: IntPoint | None = None
    kept: list[IntPoint] = []
    for i, point in enumerate(ring):
        if not (x1 <= point[0] <= x2 and y1 <= point[1] <= y2):
            raise EditError("point outside the window", field=f"points[{i}]", value=points[i], allowed=f"{window} um")
        if point != previous:
            kept.append(point)
            previous = point
    return tuple(kept)


def ring_problem(ring: IntRing) -> str:
    """Return what keeps a ring from bounding a simple polygon of positive area, or an empty string.

    Exact on integers. Edges that only touch (a point on another edge, a repeated point, a spike) count as faults.

    Args:
        ring: Points in database units, neighbours distinct.
    """
    n = len(ring)
    if len(set(ring)) < 3:
        return "a polygon needs at least 3 distinct points"
    doubled_area = 0
    px, py = ring[-1]
    for x, y in ring:
        doubled_area += px * y - x * py
        px, py = x, y
    if doubled_area == 0:
        return "zero area"
    ax, ay = ring[-1]
    bx, by = ring[0]
    for i in range(n):
        cx, cy = ring[i + 1 - n]
        ux, uy, vx, vy = bx - ax, by - ay, cx - bx, cy - by
        if ux * vy == uy * vx and ux * vx + uy * vy < 0:
            return "the outline folds back on itself"
        ax, ay, bx, by = bx, by, cx, cy
    crosses = _crosses_plain(ring) if n <= _PLAIN_POINTS else _crosses_numpy(ring)
    return "the outline crosses or touches itself" if crosses else ""


def _crosses_plain(ring: IntRing) -> bool:
    """Whether two edges that are not neighbours share a point."""
    n = len(ring)
    for i in range(n - 2):
        ax, ay = ring[i]
        bx, by = ring[i + 1]
        ux, uy = bx - ax, by - ay
        for j in range(i + 2, n - 1 if i == 0 else n):
            cx, cy = ring[j]
            dx, dy = ring[j + 1 - n]
            if ux * (cy - ay) - uy * (cx - ax) > 0:
                if ux * (dy - ay) - uy * (dx - ax) > 0:
                    continue
            elif ux * (cy - ay) - uy * (cx - ax) < 0 and ux * (dy - ay) - uy * (dx - ax) < 0:
                continue
            vx, vy = dx - cx, dy - cy
            side_a = vx * (ay - cy) - vy * (ax - cx)
            side_b = vx * (by - cy) - vy * (bx - cx)
            if (side_a > 0 and side_b > 0) or (side_a < 0 and side_b < 0):
                continue
            # Each segment meets the other's line; on a common line only overlapping boxes tell touching from apart.
            if max(ax, bx) < min(cx, dx) or max(cx, dx) < min(ax, bx):
                continue
            if max(ay, by) < min(cy, dy) or max(cy, dy) < min(ay, by):
                continue
            return True
    return False


def _crosses_numpy(ring: IntRing) -> bool:
    """`_crosses_plain` for long rings: all pairs of edges at once, int64 (exact up to +-2^30)."""
    a = np.array(ring, np.int64)
    b = np.roll(a, -1, axis=0)
    u = b - a
    # side[i, j]: on which side of the line of edge i point j lies.
    side_start = np.sign(
        u[:, None, 0] * (a[None, :, 1] - a[:, None, 1]) - u[:, None, 1] * (a[None, :, 0] - a[:, None, 0])
    )
    side_end = np.roll(side_start, -1, axis=1)
    straddles = side_start * side_end <= 0
    low, high = np.minimum(a, b), np.maximum(a, b)
    overlap = ((low[:, None] <= high[None, :]) & (low[None, :] <= high[:, None])).all(axis=2)
    meets = straddles & straddles.T & overlap
    n = len(ring)
    index = np.arange(n)
    apart = (index[:, None] - index[None, :]) % n
    return bool((meets & (apart > 1) & (apart < n - 1)).any())


# -- limits --------------------------------------------------------------------------------------------------------


def _check_count(layout: FETLayout, added: int) -> None:
    if layout.n_shapes + added > MAX_SHAPES:
        raise EditError("too many shapes", field="shapes", value=layout.n_shapes + added, allowed=f"<= {MAX_SHAPES}")


def _check_points(ring: IntRing, layer: str) -> None:
    if len(ring) > MAX_SHAPE_POINTS:
        raise EditError(
            "the resulting shape has too many points", field=layer, value=len(ring), allowed=f"<= {MAX_SHAPE_POINTS}"
        )


# -- paths and cuts ------------------------------------------------------------------------------------------------


def _kdb_points(ring: IntRing) -> list[kdb.Point]:
    return [kdb.Point(x, y) for x, y in ring]


def _path_rings(points: IntRing, width_um: float, window: Window) -> list[IntRing]:
    """Return the outline of a path with flat ends, as one ring where it is simple, else merged and keyholed."""
    if not 0 < width_um <= MAX_WIDTH_UM:
        raise EditError("width out of range", field="width", value=width_um, allowed=f"0 < um <= {MAX_WIDTH_UM}")
    width = to_dbu(width_um)
    if width == 0:
        raise EditError("width below the grid", field="width", value=width_um, allowed=">= 0.001 um")
    if len(points) < 2:
        raise EditError("path of zero length", field="points", value=len(points), allowed=">= 2 distinct points")
    rings = [polygon_ring(kdb.Path(_kdb_points(points), width).polygon())]
    if ring_problem(rings[0]):
        # Pieces of three points keep every mitred corner; each is merged by itself because a sharp corner may fold.
        merged = kdb.Region()
        for i in range(max(len(points) - 2, 1)):
            merged.insert(kdb.Path(_kdb_points(points[i : i + 3]), width).polygon())
        merged.merge()
        rings = [polygon_ring(p) for p in merged.each()]
        if not rings:
            raise EditError("path of zero area", field="width", value=width_um)
    x1, y1, x2, y2 = (v * DBU_PER_UM for v in window)
    for ring in rings:
        _check_points(ring, "path")
        if not all(x1 <= x <= x2 and y1 <= y <= y2 for x, y in ring):
            raise EditError("path reaches outside the window", field="width", value=width_um, allowed=f"{window} um")
    return rings


def _cut(layout: FETLayout, edit: Cut, ring: IntRing) -> None:
    """Subtract a ring from every shape of a layer; shapes that it misses stay as drawn."""
    cutter = kdb.Region(kdb.Polygon(_kdb_points(ring), True))
    result: list[IntRing] = []
    for shape in layout.shapes(edit.layer):
        region = kdb.Region(kdb.Polygon(_kdb_points(shape), True))
        if (region & cutter).is_empty():
            result.append(shape)
            continue
        pieces = [polygon_ring(p) for p in (region - cutter).each()]
        for piece in pieces:
            _check_points(piece, edit.layer)
        result.extend(pieces)
    _check_count(layout, len(result) - len(layout.shapes(edit.layer)))
    layout.replace(edit.layer, result)
