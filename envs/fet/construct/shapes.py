"""Oriented rectangles, flakes, and ray casting (um)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import klayout.db as kdb
import numpy as np
import shapely
from numpy.typing import NDArray

from edagym.task_assets.fet.grid import IntRing, ring_to_dbu
from edagym.task_assets.fet.task import Region
from edagym.verifiers.fet.layout import region_polygon

Array = NDArray[np.float64]
Points = tuple[tuple[float, float], ...]


class Rect(NamedTuple):
    """A rectangle of any orientation.

    Attributes:
        cx: Centre x, um.
        cy: Centre y, um.
        tx: x of the unit vector along the rectangle ("along the flake").
        ty: y of that unit vector.
        hx: Half length along it, um.
        hy: Half length across it (along the left normal ``(-ty, tx)``), um.
    """

    cx: float
    cy: float
    tx: float
    ty: float
    hx: float
    hy: float

    def at(self, u: float, v: float) -> tuple[float, float]:
        """Return the point `u` along and `v` across from the centre."""
        return self.cx + u * self.tx - v * self.ty, self.cy + u * self.ty + v * self.tx

    @property
    def corners(self) -> Points:
        """The four corners, counter-clockwise."""
        x, y = self.hx, self.hy
        return self.at(-x, -y), self.at(x, -y), self.at(x, y), self.at(-x, y)

    def grown(self, along: float, across: float | None = None) -> Rect:
        """Return the rectangle with its half lengths changed by `along` and `across` (default: the same)."""
        return self._replace(hx=self.hx + along, hy=self.hy + (along if across is None else across))

    def resized(self, hx: float, hy: float) -> Rect:
        """Return a rectangle of the same centre and direction with other half lengths."""
        return self._replace(hx=hx, hy=hy)


def gap(p: Rect, q: Rect) -> float:
    """Return a lower bound of the distance of two rectangles (separating axes); negative when they overlap."""
    dx, dy = q.cx - p.cx, q.cy - p.cy
    c = abs(p.tx * q.tx + p.ty * q.ty)
    s = abs(p.tx * q.ty - p.ty * q.tx)
    return max(
        abs(dx * p.tx + dy * p.ty) - p.hx - (q.hx * c + q.hy * s),
        abs(dy * p.tx - dx * p.ty) - p.hy - (q.hx * s + q.hy * c),
        abs(dx * q.tx + dy * q.ty) - q.hx - (p.hx * c + p.hy * s),
        abs(dy * q.tx - dx * q.ty) - q.hy - (p.hx * s + p.hy * c),
    )


def snap(points: Points) -> IntRing:
    """Return points on the 1 nm grid (database units)."""
    return ring_to_dbu(points)


def kdb_polygon(points: Points) -> kdb.Polygon:
    """Return a KLayout polygon on the 1 nm grid."""
    return kdb.Polygon([kdb.Point(x, y) for x, y in snap(points)])


class Flake:
    """A region with the derived geometry that construction needs.

    Args:
        region: The task's region (um).
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        hull = np.asarray(region.hull, dtype=float)
        x, y = hull.T
        if np.dot(x, np.roll(y, -1)) < np.dot(y, np.roll(x, -1)):
            hull = hull[::-1]
        self.hull: Array = hull
        self.a: Array = hull
        self.b: Array = np.roll(hull, -1, axis=0)

    @cached_property
    def filled(self) -> Any:
        """The outer contour as a prepared Shapely polygon, holes filled."""
        polygon = shapely.Polygon(self.hull)
        shapely.prepare(polygon)
        return polygon

    @cached_property
    def polygon(self) -> Any:
        """The region as a Shapely polygon with holes."""
        return shapely.Polygon(self.hull, [np.asarray(h) for h in self.region.holes])

    @cached_property
    def solidity(self) -> float:
        """Area of the outer contour over that of its convex hull."""
        return float(self.filled.area / self.filled.convex_hull.area)

    @cached_property
    def kdb_region(self) -> kdb.Region:
        """The region in database units."""
        return kdb.Region(region_polygon(self.region))

    @cached_property
    def box(self) -> tuple[float, float, float, float]:
        """Bounding box x1, y1, x2, y2."""
        (x1, y1), (x2, y2) = self.hull.min(axis=0), self.hull.max(axis=0)
        return float(x1), float(y1), float(x2), float(y2)

    @cached_property
    def principal_angle(self) -> float:
        """Direction of the long side of the smallest enclosing rectangle, radians."""
        rect = shapely.minimum_rotated_rectangle(self.filled)
        ring = np.asarray(rect.exterior.coords)
        sides = np.diff(ring[:3], axis=0)
        long = sides[int(np.argmax(np.hypot(*sides.T)))]
        return math.atan2(long[1], long[0]) % math.pi

    def rays(self, origins: Array, directions: Array) -> Array:
        """Return where lines meet the outer contour.

        Args:
            origins: Shape (K, 2), um.
            directions: Shape (K, 2), unit vectors.

        Returns:
            Shape (K, E): signed distance along the line to each contour edge, NaN where it misses the edge.
        """
        e = self.b - self.a
        dx, dy = directions[:, 0, None], directions[:, 1, None]
        denominator = dx * e[:, 1] - dy * e[:, 0]
        wx = self.a[:, 0] - origins[:, 0, None]
        wy = self.a[:, 1] - origins[:, 1, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (wx * e[:, 1] - wy * e[:, 0]) / denominator
            u = (wx * dy - wy * dx) / denominator
            return np.where((u >= 0) & (u < 1), t, np.nan)


def two_nearest(t: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the nearest and second nearest positive hits of every ray and whether its origin lies inside.

    Args:
        t: Result of `Flake.rays`, shape (K, E).

    Returns:
        Arrays of shape (K,): first distance, second distance (inf where there is none), inside.
    """
    ahead = np.where(t > 0, t, np.inf)  # NaN compares false, so misses become inf
    if ahead.shape[1] < 2:
        ahead = np.pad(ahead, ((0, 0), (0, 2 - ahead.shape[1])), constant_values=np.inf)
    nearest = np.partition(ahead, 1, axis=1)[:, :2]
    inside = np.isfinite(ahead).sum(axis=1) % 2 == 1
    return nearest[:, 0], nearest[:, 1], inside
