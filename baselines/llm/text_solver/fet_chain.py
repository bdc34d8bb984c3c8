"""Devices on one flake: contact, gate, contact, ... strung along a line, each a rectangle across it (um)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from .fet_curves import STEP, Array, Curve, curves
from .fet_prompt import Flake, Problem

MARGIN = 0.02
"""Kept beyond every rule, for coordinates of two decimals and the 1 nm grid."""

# Kept between gates, which would be one electrode if they met.
GATE_GAP = 0.15
# Gates are only trusted to part a flake this much larger, and contacts to stay on pieces that join only beyond it.
_GROWN = 0.13
# A contact lands when a square of this side fits into its share of a piece.
_LANDING = 0.14
# Pieces narrower than this do not connect.
_NECK = 0.08
# Edge contacts: reach over the edge, farthest reach on an uneven edge, and least shared edge.
_ENTRY, _DEEPEST, _EDGE = 0.15, 0.4, 0.3
# Vias have this least side.
_VIA = 0.12
# Curves tried for a better fit once one fits.
_PATIENCE = 3


@dataclass(frozen=True)
class Sizes:
    """Dimensions of one way to draw a device.

    Attributes:
        gate: Gate length along the line.
        overhang: Reach of a gate past the flake's edge.
        contact: Contact length along the line, and its least width across.
        share: Contact width as a share of the flake's width, where that is more.
        separation: Contact to gate.
        spacing: Contact to contact.
    """

    gate: float
    overhang: float
    contact: float
    share: float
    separation: float
    spacing: float


def size_levels(problem: Problem) -> list[Sizes]:
    """Return dimensions from roomy to tight; all of them keep the rules."""
    least = 2 * (problem.enclosure + MARGIN) + _VIA if "via" in problem.layers else 0.35
    rows = ((0.2, 0.5, 0.6, 0.6, 0.15), (0.08, 0.4, 0.3, 0.5, 0.06), (MARGIN, 0.32, 0.06, 0.0, MARGIN))
    return [
        Sizes(problem.width + g, over, least + c, share, problem.separation + s, problem.spacing + s)
        for g, over, c, share, s in rows
    ]


@dataclass(frozen=True)
class Chain:
    """Rectangles on one flake, in order along it.

    Attributes:
        gates: One per transistor.
        contacts: One more; None for an inner piece that needs none.
        normals: Unit vector across the flake at each contact.
    """

    gates: list[Any]
    contacts: list[Any]
    normals: list[Array]


@dataclass
class Blocked:
    """What is in the way (shapely geometries, grown by the distance to keep).

    Attributes:
        gates: Forbidden to gates.
        contacts: Forbidden to contacts.
    """

    gates: list[Any] = field(default_factory=list)
    contacts: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class _Places:
    """Rectangles along a curve and which of them may be used."""

    ok: NDArray[np.bool_]
    shapes: NDArray[Any]


def chains(problem: Problem, flake: Flake, blocked: Blocked, skip: int = 0) -> Iterator[Chain]:
    """Yield ways to place the demand of a flake, better ones first as far as a short search finds them.

    Args:
        problem: The task.
        flake: The flake.
        blocked: What is in the way.
        skip: Number of the first curve to try; with another one, another layout comes out.
    """
    if problem.edge_contacted:
        yield from _edge_chains(problem, flake, blocked, skip)
        return
    levels = size_levels(problem)
    wanted = _sequence(flake)
    spare: list[tuple[int, Chain]] = []
    polygon = shapely.Polygon(flake.hull, flake.holes)
    lines = list(curves(polygon, flake.guide))
    lines = lines[skip % len(lines) :] + lines[: skip % len(lines)]
    yielded = since = 0
    for line in lines:
        work = _Line(problem, polygon, line, blocked)
        if not work.reach(wanted, levels[-1]):
            continue
        for rank, sizes in enumerate(levels):
            chain = work.place(wanted, sizes)
            if chain is not None:
                if rank == 0:
                    yielded += 1
                    yield chain
                else:
                    spare.append((rank, chain))
                break
        since += bool(spare)
        if since > _PATIENCE and not yielded:
            spare.sort(key=lambda item: item[0])
            yield spare.pop(0)[1]
            yielded += 1
    yield from (chain for _, chain in sorted(spare, key=lambda item: item[0]))


def _sequence(flake: Flake) -> str:
    """Return the order along a flake: C for contacts, G for gates; inner nets of a series stack have no contact."""
    if not flake.nets:
        return "C" + "GC" * flake.demand
    bare = ["" if net.startswith("x") else "C" for net in flake.nets]
    return bare[0] + "".join("G" + c for c in bare[1:])


class _Line:
    """Placement along one curve of one flake."""

    def __init__(self, problem: Problem, polygon: shapely.Polygon, curve: Curve, blocked: Blocked) -> None:
        self.problem, self.polygon, self.curve = problem, polygon, curve
        self.filled = shapely.Polygon(polygon.exterior)
        self.grown = polygon.buffer(_GROWN, join_style="mitre")
        self.blocked = blocked
        self._places: dict[Sizes, tuple[_Places, _Places]] = {}
        shapely.prepare(self.filled)
        shapely.prepare(polygon)

    def places(self, sizes: Sizes) -> tuple[_Places, _Places]:
        """Return the places of gates and of contacts."""
        if sizes not in self._places:
            self._places[sizes] = (self._gates(sizes), self._contacts(sizes))
        return self._places[sizes]

    def reach(self, wanted: str, sizes: Sizes) -> bool:
        """Whether the demand fits along the curve, judged quickly."""
        ungated = "gate electrode" not in self.problem.layers
        return self._greedy(wanted.replace("G", "") if ungated else wanted, sizes, 1) is not None

    def place(self, wanted: str, sizes: Sizes) -> Chain | None:
        """Return the first sound chain between the earliest and the latest one, from the middle outwards."""
        if "gate electrode" not in self.problem.layers:
            wanted = wanted.replace("G", "")
        early, late = self._greedy(wanted, sizes, 1), self._greedy(wanted, sizes, -1)
        if early is None or late is None:
            return None
        for share in (0.5, 0.3, 0.7, 0.1, 0.9, 0.0, 1.0):
            found = self._between(wanted, sizes, early, late, share)
            if found is not None:
                chain = self._chain(wanted, sizes, found)
                if self._sound(chain, sizes):
                    return chain
        return None

    # -- places --------------------------------------------------------------------------------------------------------

    def _rectangles(self, low: Array, high: Array, half: float) -> NDArray[Any]:
        """Rectangles across the curve: from `low` to `high` along the normals, `half` either way along the tangent."""
        p, t, n = self.curve.points, half * self.curve.tangents, self.curve.normals
        a, b = p + low[:, None] * n, p + high[:, None] * n
        return shapely.polygons(np.stack([a - t, a + t, b + t, b - t], axis=1))

    def _span(self, parts_of: NDArray[Any]) -> tuple[Array, Array, Array]:
        """Extent across the curve, and area, of the part of each geometry that is next to the station."""
        parts, owner = shapely.get_parts(parts_of, return_index=True)
        apart = shapely.distance(parts, shapely.points(self.curve.points[owner]))
        m = len(self.curve.points)
        best = np.full(m, -1)
        for i in np.argsort(-apart, kind="stable"):
            best[owner[i]] = i
        low, high, area = np.full(m, np.nan), np.full(m, np.nan), np.zeros(m)
        at = np.flatnonzero((best >= 0) & (np.where(best >= 0, apart[best] if len(apart) else 0, 9.0) < 1e-6))
        if len(at):
            xy, index = shapely.get_coordinates(parts[best[at]], return_index=True)
            across = ((xy - self.curve.points[at][index]) * self.curve.normals[at][index]).sum(axis=1)
            starts = np.flatnonzero(np.diff(index, prepend=-1))
            low[at], high[at] = np.minimum.reduceat(across, starts), np.maximum.reduceat(across, starts)
            area[at] = shapely.area(parts[best[at]])
        return low, high, area

    def _gates(self, sizes: Sizes) -> _Places:
        """Gates across the whole local cross-section, holes and all, that touch no other part of the flake."""
        m = len(self.curve.points)
        far = np.full(m, 300.0)
        low, high, area = self._span(shapely.intersection(self._rectangles(-far, far, sizes.gate / 2), self.filled))
        ok = np.isfinite(low)
        low, high = np.where(ok, low, 0.0), np.where(ok, high, 1.0)
        over = sizes.overhang
        # A little longer than drawn, so that nothing is near the ends either.
        longer = self._rectangles(low - over - 0.08, high + over + 0.08, sizes.gate / 2)
        ok &= np.abs(shapely.area(shapely.intersection(longer, self.filled)) - area) < 1e-4
        shapes = self._rectangles(low - over, high + over, sizes.gate / 2)
        for obstacle in self.blocked.gates:
            ok &= ~shapely.intersects(obstacle, shapes)
        return _Places(ok, shapes)

    def _contacts(self, sizes: Sizes) -> _Places:
        """Contacts in the middle of the widest arm of the local cross-section."""
        p, n = self.curve.points, self.curve.normals
        line = shapely.linestrings(np.stack([p - 300 * n, p + 300 * n], axis=1))
        low, high, _ = self._span(shapely.intersection(line, self.filled))
        ok = np.isfinite(low)
        low, high = np.where(ok, low, 0.0), np.where(ok, high, 1.0)
        if self.polygon.interiors:
            chords = shapely.linestrings(np.stack([p + low[:, None] * n, p + high[:, None] * n], axis=1))
            arms, owner = shapely.get_parts(shapely.intersection(chords, self.polygon), return_index=True)
            for i in np.argsort(shapely.length(arms), kind="stable"):  # the longest comes last and stays
                k = owner[i]
                ends = (shapely.get_coordinates(arms[i])[[0, -1]] - p[k]) @ n[k]
                low[k], high[k] = ends.min(), ends.max()
        half = np.clip(sizes.share * (high - low) / 2, sizes.contact / 2, 3.0)
        middle = (low + high) / 2
        shapes = self._rectangles(middle - half, middle + half, sizes.contact / 2)
        pieces = shapely.intersection(shapes, self.filled)
        ok &= (shapely.get_num_geometries(pieces) == 1) & (shapely.area(pieces) > 2 * _LANDING**2)
        for obstacle in self.blocked.contacts:
            ok &= ~shapely.intersects(obstacle, shapes)
        return _Places(ok, shapes)

    # -- order ---------------------------------------------------------------------------------------------------------

    def _clear(self, kind: str, at: NDArray[np.int_], sizes: Sizes, placed: Sequence[tuple[str, int]]) -> NDArray[Any]:
        """Which places of a kind keep their distances from the last ones placed."""
        gates, contacts = self.places(sizes)
        mine = (gates if kind == "G" else contacts).shapes[at]
        ok = np.ones(len(at), dtype=bool)
        for other, where in placed[-3:]:
            gap = {"GG": GATE_GAP, "CC": sizes.spacing}.get(kind + other, sizes.separation)
            ok &= shapely.distance(mine, (gates if other == "G" else contacts).shapes[where]) >= gap
        return ok

    def _greedy(self, wanted: str, sizes: Sizes, direction: int) -> list[int] | None:
        """Return stations of the sequence, each as early as it can be; from the far end with direction -1."""
        gates, contacts = self.places(sizes)
        placed: list[tuple[str, int]] = []
        for kind in wanted[::direction]:
            usable = np.flatnonzero((gates if kind == "G" else contacts).ok)[::direction]
            if placed:
                usable = usable[(usable - placed[-1][1]) * direction > 0]
            for start in range(0, len(usable), 12):  # in blocks: most steps are short
                block = usable[start : start + 12]
                clear = self._clear(kind, block, sizes, placed)
                if clear.any():
                    placed.append((kind, int(block[np.argmax(clear)])))
                    break
            else:
                return None
        return [at for _, at in placed][::direction]

    def _between(self, wanted: str, sizes: Sizes, early: list[int], late: list[int], share: float) -> list[int] | None:
        """Return stations near a blend of the earliest and the latest ones, or None if distances do not work out."""
        gates, contacts = self.places(sizes)
        placed: list[tuple[str, int]] = []
        for kind, first, last in zip(wanted, early, late):
            aim = first + share * (last - first)
            usable = np.flatnonzero((gates if kind == "G" else contacts).ok)
            floor = placed[-1][1] if placed else -1
            usable = usable[(usable > floor) & (usable >= min(first, last)) & (usable <= max(first, last))]
            usable = usable[np.argsort(np.abs(usable - aim), kind="stable")][:24]
            clear = self._clear(kind, usable, sizes, placed) if len(usable) else np.zeros(0, dtype=bool)
            if not clear.any():
                return None
            placed.append((kind, int(usable[np.argmax(clear)])))
        return [at for _, at in placed]

    # -- check ---------------------------------------------------------------------------------------------------------

    def _chain(self, wanted: str, sizes: Sizes, stations: list[int]) -> Chain:
        gates, contacts = self.places(sizes)
        chain = Chain([], [None], [np.zeros(2)])
        for kind, at in zip(wanted, stations):
            if kind == "G":
                chain.gates.append(gates.shapes[at])
                chain.contacts.append(None)
                chain.normals.append(np.zeros(2))
            elif "G" not in wanted and chain.contacts[-1] is not None:
                chain.contacts.append(contacts.shapes[at])
                chain.normals.append(self.curve.normals[at])
            else:
                chain.contacts[-1] = contacts.shapes[at]
                chain.normals[-1] = self.curve.normals[at]
        return chain

    def _sound(self, chain: Chain, sizes: Sizes) -> bool:
        return sound(self.polygon, self.grown, chain, sizes.separation, sizes.spacing)


def sound(polygon: Any, grown: Any, chain: Chain, separation: float, spacing: float, edge: bool = False) -> bool:
    """Whether a chain keeps its distances and its gates part the flake into pieces in order, each with its contact.

    Args:
        polygon: The flake.
        grown: The flake, larger all round by the overhang that is asked of gates.
        chain: The chain.
        separation: Contact to gate.
        spacing: Contact to contact.
        edge: Whether contacts land along the edge only.
    """
    drawn = [c for c in chain.contacts if c is not None]
    tree = shapely.STRtree(drawn)
    near = tree.query(drawn, predicate="dwithin", distance=spacing - 1e-6)
    if (near[0] != near[1]).any():
        return False
    if not chain.gates:
        return all(_lands(c.intersection(polygon)) for c in drawn)
    if tree.query(chain.gates, predicate="dwithin", distance=separation - 1e-6).size:
        return False
    gates = shapely.union_all(chain.gates)
    if len(shapely.get_parts(gates)) < len(chain.gates):
        return False
    pieces = shapely.get_parts(grown.difference(gates))
    bodies = shapely.get_parts(polygon.difference(gates).buffer(-_NECK / 2))
    seen: set[int] = set()
    for i, contact in enumerate(chain.contacts):
        beside = chain.gates[max(0, i - 1) : i + 1]
        if contact is None:
            # An inner piece: some body links the gates on its two sides.
            links = [b for b in bodies if all(b.distance(g) < _NECK for g in beside)]
            if len(links) != 1:
                return False
            where = np.flatnonzero(shapely.intersects(pieces, links[0]))
        else:
            where = np.flatnonzero(shapely.intersects(pieces, contact.buffer(0.03)))
            core = contact.buffer(_NECK) if edge else contact.intersection(polygon).buffer(-_LANDING / 2)
            landed = [b for b in bodies if not core.is_empty and b.intersects(core)]
            if sum(b.distance(contact) < _NECK / 2 + 0.02 for b in bodies) != 1:
                return False
            if not any(all(b.distance(g) < _NECK for g in beside) for b in landed):
                return False
        if len(where) != 1 or int(where[0]) in seen:
            return False
        seen.add(int(where[0]))
    return True


def _lands(overlap: Any) -> bool:
    return not overlap.buffer(-_LANDING / 2).is_empty


# -- edge contacts -----------------------------------------------------------------------------------------------------


def _edge_chains(problem: Problem, flake: Flake, blocked: Blocked, skip: int) -> Iterator[Chain]:
    """Yield one transistor with contacts that come in over the flake's edge, on the longest edges first."""
    polygon = shapely.Polygon(flake.hull, flake.holes)
    lines = list(curves(polygon, flake.guide))
    for sizes in size_levels(problem):
        contacts = _edge_contacts(polygon, sizes, blocked)
        for line in lines[skip % len(lines) :] + lines[: skip % len(lines)]:
            work = _Line(problem, polygon, line, blocked)
            places, _ = work.places(sizes)
            usable = np.flatnonzero(places.ok)
            usable = usable[np.argsort(np.abs(usable - len(places.ok) / 2), kind="stable")]
            for at in usable[:: max(1, int(0.6 / STEP))][:6].tolist():
                gate, p, t = places.shapes[at], line.points[at], line.tangents[at]
                sides: tuple[list[Any], list[Any]] = ([], [])
                for contact, normal in contacts:
                    if gate.distance(contact) >= sizes.separation:
                        c = shapely.get_coordinates(contact.centroid)[0]
                        sides[int((c - p) @ t > 0)].append((contact, normal))
                for a, normal_a in sides[0][:4]:
                    for b, normal_b in sides[1][:4]:
                        chain = Chain([gate], [a, b], [normal_a, normal_b])
                        if sound(polygon, work.grown, chain, sizes.separation, sizes.spacing, edge=True):
                            yield chain
                            break


def _edge_contacts(polygon: Any, sizes: Sizes, blocked: Blocked) -> list[tuple[Any, Array]]:
    """Return contacts on the straight edges of the hull, with their outward normals."""
    ring = shapely.get_coordinates(shapely.geometry.polygon.orient(polygon).exterior)
    inner = polygon.buffer(-_DEEPEST)
    found: list[tuple[float, Any, Array]] = []
    for a, b in pairwise(ring):
        length = float(np.hypot(*(b - a)))
        if length < 2 * _EDGE:
            continue
        t = (b - a) / length
        out = np.array([t[1], -t[0]])
        half = max(sizes.contact, min(0.6 * length, 1.6 * sizes.contact)) / 2
        for share in (0.5, 0.25, 0.75):
            p = a + share * (b - a)
            rows = [p - half * t - _ENTRY * out, p + half * t - _ENTRY * out]
            rows += [rows[1] + (sizes.contact + _ENTRY) * out, rows[0] + (sizes.contact + _ENTRY) * out]
            contact = shapely.Polygon(np.round(rows, 3))
            if contact.intersects(inner) or any(o.intersects(contact) for o in blocked.contacts):
                continue
            if shapely.get_num_geometries(contact.intersection(polygon)) == 1:
                found.append((length, contact, out))
    return [(contact, out) for _, contact, out in sorted(found, key=lambda item: -item[0])]
