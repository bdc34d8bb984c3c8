"""Curves along flakes and what a ray sees from them: the local frames of the FET wrappers.

Everything here is made from the task's view (contours, rules) and from what an agent has drawn. Coordinates are
floating-point micrometres.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from edagym.envs.fet.construct.shapes import Array, Flake, Rect, two_nearest
from edagym.envs.fet.construct.spine import MAX_PATHS, N_SWEEPS, SMOOTHINGS_UM, Curve, medial_paths, sweep
from edagym.task_assets.fet.task import Region

N_BRANCHES = MAX_PATHS * len(SMOOTHINGS_UM) + N_SWEEPS
"""Curves per flake: medial-axis paths at two smoothings, then straight sweeps at even angles."""

LONG_AXIS = MAX_PATHS * len(SMOOTHINGS_UM)
"""The branch that every flake has: the sweep along its long side."""

N_SUMMARY = 18
"""Stations that a curve's summary looks at."""

NEAR_UM = 3.0
"""How far rays see."""


class Spine:
    """A curve along a flake with its width profile.

    Args:
        flake: The flake.
        curve: The curve.

    Attributes:
        s: Arc length of the stations, um, shape (M,).
        points: Shape (M, 2).
        heading: Direction of the tangent, radians, continuous.
        left: Distance to the contour on the left at each station, 0 outside the flake.
        right: The same on the right.
        inside: Whether the station lies inside the outer contour.
        hollow: Share of the cross-section that holes take.
    """

    def __init__(self, flake: Flake, curve: Curve) -> None:
        self.flake = flake
        self.points = curve.points
        m = len(curve.points)
        self.s = curve.step * np.arange(m)
        self.heading = np.unwrap(np.arctan2(curve.tangents[:, 1], curve.tangents[:, 0]))
        normals = np.column_stack([-curve.tangents[:, 1], curve.tangents[:, 0]])
        t = flake.rays(curve.points, normals)
        left, _, inside = two_nearest(t)
        right, _, _ = two_nearest(-t)
        self.inside = inside
        self.left = np.where(inside & np.isfinite(left), left, 0.0)
        self.right = np.where(inside & np.isfinite(right), right, 0.0)
        self.hollow = _hollow(flake, curve.points, normals, self.left, self.right)

    @property
    def length(self) -> float:
        """Length in um."""
        return float(self.s[-1])

    @cached_property
    def reversed(self) -> Spine:
        """The same curve run the other way."""
        other = object.__new__(Spine)
        other.flake = self.flake
        other.points = self.points[::-1]
        other.s = self.s
        other.heading = self.heading[::-1] + math.pi
        other.left, other.right = self.right[::-1], self.left[::-1]
        other.inside, other.hollow = self.inside[::-1], self.hollow[::-1]
        return other

    @cached_property
    def summary(self) -> tuple[float, ...]:
        """Length, widths, turns and holes in seven numbers of about 0 to 1."""
        at = self._spread
        width = (self.left + self.right)[at]
        turn = np.abs(np.diff(self.heading[at]))
        return (
            self.length / 15,
            float(np.median(width)) / 5,
            float(width.max()) / 8,
            float(np.percentile(width, 20)) / 5,
            float(turn.sum()) / 2,
            float(turn.max()),
            float(self.hollow[at].mean()),
        )

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Points on the contour left, then right of some stations, and the directions out of the flake there."""
        at = self._spread
        normals = np.column_stack([-np.sin(self.heading[at]), np.cos(self.heading[at])])
        left = self.points[at] + self.left[at, None] * normals
        right = self.points[at] - self.right[at, None] * normals
        return np.vstack([left, right]), np.vstack([normals, -normals])

    @property
    def _spread(self) -> NDArray[np.intp]:
        return np.linspace(0, len(self.s) - 1, N_SUMMARY).astype(np.intp)

    def at(self, s: float) -> tuple[float, float, float]:
        """Return x, y and heading at an arc length, clipped to the curve."""
        s = min(max(s, 0.0), self.length)
        return (
            float(np.interp(s, self.s, self.points[:, 0])),
            float(np.interp(s, self.s, self.points[:, 1])),
            float(np.interp(s, self.s, self.heading)),
        )

    def span(self, x: float, y: float, angle: float, half: float) -> tuple[float, float]:
        """Return how far the flake reaches to the left and right of a point, at most over a stretch of a direction.

        Args:
            x: The point, um.
            y: The point, um.
            angle: Direction, radians.
            half: Half length of the stretch, um.
        """
        t = np.array([math.cos(angle), math.sin(angle)])
        n = np.array([-t[1], t[0]])
        origins = np.array([x, y]) + np.linspace(-half, half, 5)[:, None] * t
        hits = self.flake.rays(origins, np.tile(n, (5, 1)))
        left, _, inside = two_nearest(hits)
        right, _, _ = two_nearest(-hits)
        ok = inside & np.isfinite(left) & np.isfinite(right)
        if not ok.any():
            return 0.5, 0.5
        return float(left[ok].max()), float(right[ok].max())


def _hollow(flake: Flake, points: Array, normals: Array, left: Array, right: Array) -> Array:
    taken = np.zeros(len(points))
    for hole in flake.region.holes:
        ring = np.asarray(hole, dtype=float)
        t = _crossings(points, normals, ring, np.roll(ring, -1, axis=0))
        low, high = np.where(np.isnan(t), np.inf, t).min(axis=1), np.where(np.isnan(t), -np.inf, t).max(axis=1)
        with np.errstate(invalid="ignore"):
            part = np.minimum(high, left) - np.maximum(low, -right)
        taken += np.where(np.isfinite(part), np.maximum(part, 0.0), 0.0)
    return taken / np.maximum(left + right, 0.1)


class RegionFrame:
    """A flake and its curves, made when first asked for.

    Args:
        region: The flake.
    """

    def __init__(self, region: Region) -> None:
        self.flake = Flake(region)

    @cached_property
    def spines(self) -> tuple[Spine | None, ...]:
        """`N_BRANCHES` curves; None where the flake has none of that kind."""
        flake = self.flake
        names = {f"medial {k + 1}, {sigma} um": j * MAX_PATHS + k
                 for j, sigma in enumerate(SMOOTHINGS_UM) for k in range(MAX_PATHS)}  # fmt: skip
        found: list[Spine | None] = [None] * N_BRANCHES
        for curve in medial_paths(flake):
            found[names[curve.name]] = Spine(flake, curve)
        for k in range(N_SWEEPS):
            curve = sweep(flake, flake.principal_angle + k * math.pi / N_SWEEPS)
            found[MAX_PATHS * len(SMOOTHINGS_UM) + k] = Spine(flake, curve)
        return tuple(found)


@lru_cache(maxsize=1024)
def frame_of(region: Region) -> RegionFrame:
    """Return a flake's frame; those of the latest flakes are kept."""
    return RegionFrame(region)


def edges_of(rings: list[Array]) -> tuple[Array, Array]:
    """Return start and end points of all edges of some closed rings, shape (E, 2) each."""
    if not rings:
        return np.empty((0, 2)), np.empty((0, 2))
    return np.vstack(rings), np.vstack([np.roll(r, -1, axis=0) for r in rings])


def rect_ring(rect: Rect) -> Array:
    """Return a rectangle's corners as an array."""
    return np.asarray(rect.corners)


def _crossings(origins: Array, directions: Array, a: Array, b: Array) -> Array:
    """Return where lines meet edges: shape (K, E), NaN where they miss."""
    e = b - a
    dx, dy = directions[:, 0, None], directions[:, 1, None]
    denominator = dx * e[:, 1] - dy * e[:, 0]
    wx, wy = a[:, 0] - origins[:, 0, None], a[:, 1] - origins[:, 1, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (wx * e[:, 1] - wy * e[:, 0]) / denominator
        u = (wx * dy - wy * dx) / denominator
        return np.where((u >= 0) & (u <= 1), t, np.nan)


def free_way(
    origins: Array, directions: Array, edges: tuple[Array, Array], limit: float = NEAR_UM
) -> NDArray[np.float64]:
    """Return how far rays go before they meet an edge, at most `limit`.

    Args:
        origins: Shape (K, 2), um.
        directions: Shape (K, 2), unit vectors.
        edges: Start and end points, shape (E, 2) each.
        limit: Longest distance, um.
    """
    if not len(edges[0]):
        return np.full(len(origins), limit)
    t = _crossings(origins, directions, *edges)
    with np.errstate(invalid="ignore"):
        return np.minimum(np.where(t > 0.02, t, limit).min(axis=1), limit)
