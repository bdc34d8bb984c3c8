"""Where along a curve a gate or a contact may stand, and with which rectangle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from edagym.envs.fet.construct.shapes import Array, Flake, Rect, two_nearest
from edagym.envs.fet.construct.spine import Curve

# Distance kept between the ends of gates (and contacts) and other parts of the same flake, um.
CLEAR_UM = 0.08


@dataclass(frozen=True, slots=True)
class Sizes:
    """Dimensions of one way to draw a device, um.

    Attributes:
        gate_width: Gate size along the flake.
        overhang: How far a gate reaches past the flake on either side.
        contact_length: Contact size along the flake.
        contact_width: Least contact size across.
        contact_share: Contact size across as a share of the flake's local width, where that is more.
        separation: Contact to gate.
        spacing: Contact to contact.
    """

    gate_width: float
    overhang: float
    contact_length: float
    contact_width: float
    contact_share: float
    separation: float
    spacing: float


@dataclass(frozen=True)
class Stations:
    """Rectangles along a curve; ``ok[i]`` says whether ``rects[i]`` may be used.

    Attributes:
        ok: Shape (M,).
        rects: M rectangles (also where not ok).
    """

    ok: NDArray[np.bool_]
    rects: list[Rect]


@dataclass(frozen=True)
class Obstacles:
    """What is in the way, already grown by the distance to keep (prepared Shapely geometries, or None).

    Attributes:
        gates: Forbidden to gates.
        contacts: Forbidden to contacts.
    """

    gates: Any = None
    contacts: Any = None


def gate_stations(flake: Flake, curve: Curve, sizes: Sizes, blocked: Any = None) -> Stations:
    """Return gates that cross the whole local cross-section and overhang it on both sides.

    A gate whose two ends lie outside the (hole-filled) contour and which covers everything between them cuts a simply
    connected flake in exactly two; holes it meets are crossed too, so all arms around a hole are cut at once.

    Args:
        flake: The flake.
        curve: The curve.
        sizes: Dimensions.
        blocked: Obstacles of gates (prepared geometry) or None.
    """
    width = sizes.gate_width
    left1, left2, right1, right2, inside = _across(flake, curve, np.linspace(-width / 2, width / 2, 5))
    with np.errstate(invalid="ignore"):
        top, bottom = left1.max(axis=1) + sizes.overhang, right1.max(axis=1) + sizes.overhang
        ok = inside.all(axis=1)
        ok &= (left2.min(axis=1) > top + CLEAR_UM) & (right2.min(axis=1) > bottom + CLEAR_UM)
    top, bottom = np.where(ok, top, 1.0), np.where(ok, bottom, 1.0)
    # The rays may miss a spike between them: the end edges, slightly moved inwards, must be clear of the contour.
    t, n = curve.tangents, _normals(curve)
    for offset in (top, -bottom, top - 0.6 * sizes.overhang, -bottom + 0.6 * sizes.overhang):
        start = curve.points - (width / 2) * t + offset[:, None] * n
        hits = flake.rays(start, t)
        with np.errstate(invalid="ignore"):
            ok &= ~((hits > 0) & (hits < width)).any(axis=1)
    return _stations(curve, (top - bottom) / 2, np.full(len(ok), width / 2), (top + bottom) / 2, ok, blocked)


def contact_stations(flake: Flake, curve: Curve, sizes: Sizes, blocked: Any = None) -> Stations:
    """Return contacts centred on the local cross-section, at least half of their length on the flake.

    Args:
        flake: The flake.
        curve: The curve.
        sizes: Dimensions.
        blocked: Obstacles of contacts (prepared geometry) or None.
    """
    length = sizes.contact_length
    left1, left2, right1, right2, inside = _across(flake, curve, np.linspace(-length / 2, length / 2, 5))
    ok = inside[:, 2] & (inside.sum(axis=1) >= 3)
    top = np.where(inside, left1, np.inf).min(axis=1)
    bottom = np.where(inside, right1, np.inf).min(axis=1)
    top, bottom = np.where(ok, top, 1.0), np.where(ok, bottom, 1.0)
    centre = (top - bottom) / 2
    half = np.maximum(sizes.contact_width, np.minimum(sizes.contact_share * (top + bottom), 8.0)) / 2
    with np.errstate(invalid="ignore"):
        ok &= np.where(inside, left2, np.inf).min(axis=1) > centre + half + CLEAR_UM
        ok &= np.where(inside, right2, np.inf).min(axis=1) > half - centre + CLEAR_UM
    return _stations(curve, centre, np.full(len(ok), length / 2), half, ok, blocked)


def _normals(curve: Curve) -> Array:
    return np.column_stack([-curve.tangents[:, 1], curve.tangents[:, 0]])


def _across(flake: Flake, curve: Curve, offsets: Array) -> tuple[NDArray[Any], ...]:
    """First and second exit to the left and to the right, and inside flags: arrays of shape (stations, offsets)."""
    m, k = len(curve.points), len(offsets)
    origins = (curve.points[:, None, :] + offsets[None, :, None] * curve.tangents[:, None, :]).reshape(-1, 2)
    t = flake.rays(origins, np.repeat(_normals(curve), k, axis=0))
    left1, left2, inside = two_nearest(t)
    right1, right2, _ = two_nearest(-t)
    return tuple(v.reshape(m, k) for v in (left1, left2, right1, right2, inside))


def _stations(curve: Curve, centre: Array, hx: Array, hy: Array, ok: NDArray[np.bool_], blocked: Any) -> Stations:
    middle = curve.points + centre[:, None] * _normals(curve)
    rows = np.column_stack([middle, curve.tangents, hx, hy])
    if blocked is not None and ok.any():
        along, across = hx[:, None] * curve.tangents, hy[:, None] * _normals(curve)
        rings = np.stack([middle + i * along + j * across for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))], axis=1)
        at = np.flatnonzero(ok)
        ok = ok.copy()
        ok[at] = ~shapely.intersects(blocked, shapely.polygons(rings[at]))
    return Stations(ok, [Rect(*row) for row in rows.tolist()])
