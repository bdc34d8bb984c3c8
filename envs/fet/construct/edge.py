"""Edge-contacted devices: a gate across the flake, a contact reaching over its edge from outside on either side."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import shapely

from edagym.envs.fet.construct.place import MARGIN_UM, Chain, Limits, separates, size_levels
from edagym.envs.fet.construct.shapes import Flake, Rect, gap
from edagym.envs.fet.construct.spine import curves
from edagym.envs.fet.construct.stations import Obstacles, Sizes, gate_stations

# How far contacts reach over the edge, um.
ENTRY_UM = 0.12
# A contact on an uneven edge must nowhere reach farther in than this, um.
_DEEPEST_UM = 0.35
_MIN_EDGE_UM = 0.4
_PER_CURVE = 5


def place_edge_device(flake: Flake, limits: Limits, obstacles: Obstacles | None = None) -> Iterator[Chain]:
    """Yield single edge-contacted transistors on a flake. Every one passed `separates`.

    Args:
        flake: The flake.
        limits: Rule values.
        obstacles: What is in the way, or None.
    """
    obstacles = obstacles or Obstacles()
    for sizes in size_levels(limits):
        contacts = _edge_contacts(flake, sizes, limits, obstacles)
        for curve in curves(flake):
            gates = gate_stations(flake, curve, sizes, obstacles.gates)
            usable = np.flatnonzero(gates.ok)
            if len(usable) == 0:
                continue
            middle = (len(gates.rects) - 1) / 2
            usable = usable[np.argsort(np.abs(usable - middle), kind="stable")]
            for k in usable[:: max(1, len(usable) // _PER_CURVE)].tolist():
                yield from _devices(flake, gates.rects[k], contacts, sizes)


def _edge_contacts(flake: Flake, sizes: Sizes, limits: Limits, obstacles: Obstacles) -> list[Rect]:
    """Contacts on the hull's edges, those on long edges first."""
    edges = flake.b - flake.a
    lengths = np.hypot(*edges.T)
    size = sizes.contact_length if limits.enclosure is not None else max(0.8, sizes.contact_length)
    forbidden = [flake.polygon.buffer(-_DEEPEST_UM), *([] if obstacles.contacts is None else [obstacles.contacts])]
    rects: list[Rect] = []
    for k in np.argsort(-lengths, kind="stable").tolist():
        if lengths[k] < _MIN_EDGE_UM:
            break
        tx, ty = (edges[k] / lengths[k]).tolist()
        outer = max(0.8, size)
        along = size if lengths[k] < size else min(float(lengths[k]), 1.6 * size)
        # The contour runs counter-clockwise, so the left normal of an edge points into the flake.
        shift = (ENTRY_UM - outer) / 2
        for share in (0.5, 0.2, 0.8) if lengths[k] > 2 * size else (0.5,):
            x, y = (flake.a[k] + share * edges[k]).tolist()
            rect = Rect(x - shift * ty, y + shift * tx, tx, ty, along / 2, (outer + ENTRY_UM) / 2)
            polygon = shapely.Polygon(rect.corners)
            if not any(shapely.intersects(f, polygon) for f in forbidden):
                rects.append(rect)
    return rects


def _devices(flake: Flake, gate: Rect, contacts: list[Rect], sizes: Sizes) -> Iterator[Chain]:
    sides: tuple[list[Rect], list[Rect]] = ([], [])
    for rect in contacts:
        along = (rect.cx - gate.cx) * gate.tx + (rect.cy - gate.cy) * gate.ty
        # Prefer edges that face away from the gate: their normal points along the flake.
        facing = abs(rect.tx * gate.ty - rect.ty * gate.tx)
        if facing > 0.5 and gap(rect, gate) >= sizes.separation + MARGIN_UM:
            sides[int(along > 0)].append(rect)
    for left in sides[0][:3]:
        for right in sides[1][:3]:
            chain = Chain((gate,), (left, right), sizes)
            if gap(left, right) >= sizes.spacing and separates(flake, chain, ENTRY_UM * _MIN_EDGE_UM / 2):
                yield chain
