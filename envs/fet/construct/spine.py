"""Curves along a flake: medial-axis paths and straight sweeps, along which devices are placed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import shapely
from scipy.ndimage import gaussian_filter1d
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import QhullError, Voronoi

from edagym.envs.fet.construct.shapes import Array, Flake, two_nearest

STEP_UM = 0.15
SMOOTHINGS_UM = (0.8, 2.5)
N_SWEEPS = 8
MAX_PATHS = 3


@dataclass(frozen=True)
class Curve:
    """Stations along a flake.

    Attributes:
        name: For messages, e.g. ``"medial 1, 0.8 um"``.
        points: Shape (M, 2), um.
        tangents: Shape (M, 2), unit vectors.
        step: Distance of neighbouring stations, um.
    """

    name: str
    points: Array
    tangents: Array
    step: float

    @property
    def length(self) -> float:
        """Length in um."""
        return self.step * (len(self.points) - 1)

    def reversed(self) -> Curve:
        """Return the curve run the other way."""
        return Curve(self.name + " reversed", self.points[::-1], -self.tangents[::-1], self.step)


def curves(flake: Flake) -> Iterator[Curve]:
    """Yield curves along a flake, the most promising first, lazily.

    Compact flakes are swept along their long side first; the others along their medial axis. Measured on real
    contours, neither alone finds the largest chain on all of them.
    """
    angles = [flake.principal_angle + k * math.pi / N_SWEEPS for k in range(N_SWEEPS)]
    if flake.solidity >= 0.9:
        yield sweep(flake, angles[0])
        yield from medial_paths(flake)
    else:
        yield from medial_paths(flake)
        yield sweep(flake, angles[0])
    # Alternate away from the long side, ending at the short one.
    for k in (1, 7, 2, 6, 3, 5, 4):
        yield sweep(flake, angles[k])


def sweep(flake: Flake, angle: float) -> Curve:
    """Return the centres of the cross-sections perpendicular to a direction, of the widest one at every place.

    Args:
        flake: The flake.
        angle: Direction of the sweep, radians.
    """
    t = np.array([math.cos(angle), math.sin(angle)])
    n = np.array([-t[1], t[0]])
    along = flake.hull @ t
    low, high = float(along.min()), float(along.max())
    m = max(8, math.ceil((high - low) / STEP_UM) + 1)
    s = np.linspace(low, high, m)
    s[0] += 1e-4
    s[-1] -= 1e-4
    base = float((flake.hull @ n).min()) - 1.0
    origins = s[:, None] * t + base * n
    hits = np.sort(np.where(np.isnan(h := flake.rays(origins, np.tile(n, (m, 1)))), np.inf, h), axis=1)
    if hits.shape[1] % 2:
        hits = np.pad(hits, ((0, 0), (0, 1)), constant_values=np.inf)
    lo, hi = hits[:, ::2], hits[:, 1::2]
    with np.errstate(invalid="ignore"):
        widths = np.where(np.isfinite(hi), hi - lo, -1.0)
    best = np.argmax(widths, axis=1)
    rows = np.arange(m)
    with np.errstate(invalid="ignore"):
        middle = (lo[rows, best] + hi[rows, best]) / 2
    ok = np.isfinite(middle)
    points = origins[ok] + middle[ok, None] * n
    name = f"sweep {math.degrees(angle) % 180:.0f} deg"
    return Curve(name, points, np.tile(t, (len(points), 1)), (high - low) / (m - 1))


def medial_paths(flake: Flake) -> Iterator[Curve]:
    """Yield the longest leaf-to-leaf paths of the medial axis, each at two smoothings, ends run out to the contour."""
    paths = _skeleton_paths(flake)
    for sigma in SMOOTHINGS_UM:
        for k, path in enumerate(paths):
            curve = _smooth(flake, path, sigma, f"medial {k + 1}, {sigma} um")
            if curve is not None:
                yield curve


def _skeleton_paths(flake: Flake) -> list[Array]:
    """Leaf-to-leaf paths of the pruned Voronoi skeleton, longest first."""
    ring = flake.filled.exterior
    n = int(np.clip(ring.length / 0.5, 60, 260))
    at = np.linspace(0.0, ring.length, n, endpoint=False)
    boundary = shapely.get_coordinates(shapely.line_interpolate_point(ring, at))
    try:
        voronoi = Voronoi(boundary)
    except QhullError:
        return []
    vertices = voronoi.vertices
    inside = shapely.contains_xy(flake.filled, vertices[:, 0], vertices[:, 1])
    pairs, sites = np.asarray(voronoi.ridge_vertices), np.asarray(voronoi.ridge_points)
    # A ridge between two neighbouring boundary samples is a spur towards the contour, not part of the axis.
    apart = np.abs(sites[:, 0] - sites[:, 1])
    apart = np.minimum(apart, n - apart) * (ring.length / n)
    keep = (pairs >= 0).all(axis=1) & (apart > 2.0)
    pairs = pairs[keep]
    pairs = pairs[inside[pairs].all(axis=1)]
    if len(pairs) == 0:
        return []
    lengths = np.hypot(*(vertices[pairs[:, 0]] - vertices[pairs[:, 1]]).T) + 1e-9
    size = len(vertices)
    graph = coo_matrix((lengths, (pairs[:, 0], pairs[:, 1])), shape=(size, size)).tocsr()
    _, labels = connected_components(graph, directed=False)
    used = np.unique(pairs)
    main = np.bincount(labels[used]).argmax()
    used = used[labels[used] == main]
    degree = np.bincount(pairs.ravel(), minlength=size)
    leaves = used[degree[used] == 1]
    if len(leaves) < 2:
        leaves = used[[0, -1]]
    distance, previous = dijkstra(graph, directed=False, indices=leaves, return_predecessors=True)
    between = distance[:, leaves]
    order = np.dstack(np.unravel_index(np.argsort(-between, axis=None, kind="stable"), between.shape))[0]
    result: list[Array] = []
    taken: list[set[int]] = []
    for i, j in order:
        if i >= j or len(result) == MAX_PATHS or between[i, j] < 1.0:
            continue
        node, nodes = int(leaves[j]), []
        while node >= 0 and node != int(leaves[i]):
            nodes.append(node)
            node = int(previous[i, node])
        nodes.append(int(leaves[i]))
        members = set(nodes)
        if any(len(members & other) > 0.85 * len(members) for other in taken):
            continue
        taken.append(members)
        result.append(vertices[nodes])
    return result


def _smooth(flake: Flake, path: Array, sigma: float, name: str) -> Curve | None:
    """Resample a path evenly, smooth it, and run both ends out to the contour."""
    distance = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    if distance[-1] < 1.0:
        return None
    m = max(8, math.ceil(distance[-1] / STEP_UM) + 1)
    s = np.linspace(0.0, distance[-1], m)
    points = np.column_stack([np.interp(s, distance, path[:, k]) for k in (0, 1)])
    points = gaussian_filter1d(points, sigma / (distance[-1] / (m - 1)), axis=0, mode="nearest")
    # Smoothing piles the end samples up; drop them before extending.
    k = min(int(1.5 * sigma / STEP_UM), m // 4)
    points = points[k : m - k]
    ends = []
    for tip, inner in ((points[0], points[min(6, len(points) - 1)]), (points[-1], points[-min(7, len(points))])):
        d = tip - inner
        norm = float(np.hypot(*d))
        if norm < 1e-6:
            return None
        d = d / norm
        reach, _, inside = two_nearest(flake.rays(tip[None], d[None]))
        ends.append(tip + d * (float(reach[0]) - 0.05) if inside[0] and reach[0] > 0.1 else None)
    points = np.vstack([p for p in (ends[0], points, ends[1]) if p is not None])
    distance = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    m = max(8, math.ceil(distance[-1] / STEP_UM) + 1)
    s = np.linspace(0.0, distance[-1], m)
    points = np.column_stack([np.interp(s, distance, points[:, k]) for k in (0, 1)])
    tangents = gaussian_filter1d(np.gradient(points, axis=0), 2.0, axis=0, mode="nearest")
    norm = np.hypot(*tangents.T)
    if norm.min() < 1e-9:
        return None
    return Curve(name, points, tangents / norm[:, None], float(distance[-1]) / (m - 1))
