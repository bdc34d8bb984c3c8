"""Lines along a flake on which devices are strung: sweeps, geodesic middle lines, the prompt's suggestion (um)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

Array = NDArray[np.float64]

STEP = 0.12
_SWEEPS = 12
# Rows of grid points across the larger extent of a flake, for the middle lines.
_ROWS = 48


@dataclass(frozen=True)
class Curve:
    """Stations along a flake.

    Attributes:
        points: Shape (M, 2).
        tangents: Unit vectors, shape (M, 2).
    """

    points: Array
    tangents: Array

    @property
    def normals(self) -> Array:
        """Unit vectors across, to the left, shape (M, 2)."""
        return np.column_stack([-self.tangents[:, 1], self.tangents[:, 0]])


def curves(flake: shapely.Polygon, guide: tuple[tuple[float, float], ...]) -> Iterator[Curve]:
    """Yield lines along a flake, the most promising first.

    Args:
        flake: The flake with its holes.
        guide: The suggested line of the prompt, or empty.
    """
    filled = shapely.Polygon(flake.exterior)
    axis = _long_axis(filled)
    compact = flake.area > 0.9 * flake.convex_hull.area
    if compact:
        yield from _sweep(filled, axis)
    paths = list(_middle_lines(filled))
    for sigma in (2.0, 0.8):
        for path in paths:
            yield from _along(path, sigma, filled)
    if len(guide) >= 2:
        yield from _along(np.array(guide), 1.0, filled)
    for k in (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6):
        if k or not compact:
            yield from _sweep(filled, axis + k * np.pi / _SWEEPS)


def _long_axis(polygon: shapely.Polygon) -> float:
    box = shapely.get_coordinates(polygon.minimum_rotated_rectangle)
    sides = np.diff(box, axis=0)
    side = sides[np.argmax(np.hypot(*sides.T))]
    return float(np.arctan2(side[1], side[0]))


def _sweep(polygon: shapely.Polygon, angle: float) -> Iterator[Curve]:
    """Yield the middles of the longest cross-sections perpendicular to a direction."""
    t = np.array([np.cos(angle), np.sin(angle)])
    n = np.array([-t[1], t[0]])
    hull = shapely.get_coordinates(polygon)
    low, high = float((hull @ t).min()), float((hull @ t).max())
    at = np.linspace(low + 0.01, high - 0.01, max(8, int((high - low) / STEP)))
    side = hull @ n
    ends = np.stack([np.outer(at, t) + (side.min() - 1) * n, np.outer(at, t) + (side.max() + 1) * n], axis=1)
    chords, owner = shapely.get_parts(shapely.intersection(shapely.linestrings(ends), polygon), return_index=True)
    lengths = shapely.length(chords)
    best = np.full(len(at), -1)
    for i in np.argsort(lengths, kind="stable"):
        best[owner[i]] = i
    best = best[best >= 0]
    if len(best) > 4:
        points = shapely.get_coordinates(shapely.line_interpolate_point(chords[best], 0.5, normalized=True))
        yield Curve(points, np.tile(t, (len(points), 1)))


def _middle_lines(polygon: shapely.Polygon) -> Iterator[Array]:
    """Yield paths between far ends of a polygon, drawn to its middle: shortest ones where clearance makes short."""
    x0, y0, x1, y1 = polygon.bounds
    step = max(x1 - x0, y1 - y0) / _ROWS
    xs, ys = np.arange(x0 + step / 2, x1, step), np.arange(y0 + step / 2, y1, step)
    grid = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1)
    inside = shapely.contains_xy(polygon, grid[..., 0], grid[..., 1])
    if inside.sum() < 8:
        return
    number = np.where(inside, np.cumsum(inside.ravel()).reshape(inside.shape) - 1, -1)
    nodes = grid[inside]
    clear = shapely.distance(polygon.exterior, shapely.points(nodes)) + step / 4
    rows, cols = [], []
    for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1), (2, 1), (1, 2), (2, -1), (1, -2)):
        a = number[: number.shape[0] - dx, max(0, -dy) : number.shape[1] - max(0, dy)]
        b = number[dx:, max(0, dy) : number.shape[1] + min(0, dy)]
        ok = (a >= 0) & (b >= 0)
        rows.append(a[ok])
        cols.append(b[ok])
    i, j = np.concatenate(rows), np.concatenate(cols)
    length = np.hypot(*(nodes[i] - nodes[j]).T)
    plain = coo_matrix((length, (i, j)), shape=(len(nodes),) * 2).tocsr()
    drawn = coo_matrix((length / np.minimum(clear[i], clear[j]) ** 2, (i, j)), shape=(len(nodes),) * 2).tocsr()
    # The two ends farthest apart, then the end farthest from both.
    middle = int(np.argmax(clear))
    first = _farthest(dijkstra(plain, directed=False, indices=middle))
    from_first = dijkstra(plain, directed=False, indices=first)
    second = _farthest(from_first)
    from_second = dijkstra(plain, directed=False, indices=second)
    third = _farthest(np.minimum(from_first, from_second))
    for start, end in ((first, second), (first, third), (second, third)):
        _, before = dijkstra(drawn, directed=False, indices=start, return_predecessors=True)
        path = [end]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        if path[-1] == start and len(path) > 4:
            yield nodes[path]


def _farthest(distance: Array) -> int:
    return int(np.argmax(np.where(np.isfinite(distance), distance, -1.0)))


def _along(path: Array, sigma: float, polygon: shapely.Polygon) -> Iterator[Curve]:
    """Yield a path, smoothed over `sigma` um and run out to the polygon's edge."""
    points = _resample(path)
    if len(points) < 8:
        return
    points = gaussian_filter1d(points, sigma / STEP, axis=0, mode="nearest")
    keep = min(int(sigma / STEP), len(points) // 4)
    points = points[keep : len(points) - keep]
    for _ in range(2):
        back = points[min(8, len(points) - 1)] - points[0]
        reach = shapely.LineString([points[0], points[0] - 50.0 * back / (np.hypot(*back) + 1e-9)])
        hit = shapely.distance(shapely.Point(points[0]), shapely.intersection(reach, polygon.exterior))
        if np.isfinite(hit) and hit > STEP and polygon.contains(shapely.Point(points[0])):
            points = np.vstack([points[0] - (hit - 0.02) * back / np.hypot(*back), points])
        points = points[::-1]
    points = _resample(points)
    if len(points) < 8:
        return
    tangents = gaussian_filter1d(np.gradient(points, axis=0), 3.0, axis=0, mode="nearest")
    norm = np.hypot(*tangents.T)
    if norm.min() > 1e-9:
        yield Curve(points, tangents / norm[:, None])


def _resample(path: Array) -> Array:
    at = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    s = np.linspace(0.0, at[-1], int(at[-1] / STEP) + 1)
    return np.column_stack([np.interp(s, at, path[:, k]) for k in (0, 1)])
