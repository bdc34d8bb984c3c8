"""Chains of devices on one flake: contact, gate, contact, gate, ..., contact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import klayout.db as kdb
import numpy as np

from edagym.envs.fet.construct.shapes import Flake, Rect, gap, kdb_polygon
from edagym.envs.fet.construct.spine import Curve, curves
from edagym.envs.fet.construct.stations import Obstacles, Sizes, Stations, contact_stations, gate_stations

# Kept between neighbouring gates at their (overhanging) ends, um: merged gates would be one electrode.
GATE_GAP_UM = 0.2
# What limits are exceeded by, um, so that rounding to the 1 nm grid never violates one.
MARGIN_UM = 0.02
_STARTS = 4
_SPREADS = (0.75, 0.35, 0.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Rule values that construction must meet, um. `enclosure` is None without vias.

    Attributes:
        gate_width: Least gate width.
        spacing: Least contact spacing.
        separation: Least contact-gate separation.
        enclosure: Least margin of contacts around vias, or None.
    """

    gate_width: float
    spacing: float
    separation: float
    enclosure: float | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """Devices in a row on one flake; gate ``i`` lies between contacts ``i`` and ``i + 1``.

    Attributes:
        gates: n rectangles.
        contacts: n + 1 rectangles.
        sizes: Dimensions it was drawn with.
    """

    gates: tuple[Rect, ...]
    contacts: tuple[Rect, ...]
    sizes: Sizes

    def reversed(self) -> Chain:
        """Return the same shapes numbered from the other end."""
        return Chain(self.gates[::-1], self.contacts[::-1], self.sizes)


def size_levels(limits: Limits) -> tuple[Sizes, ...]:
    """Return dimensions from comfortable to tightest."""
    edge = 2 * (limits.enclosure + MARGIN_UM) if limits.enclosure is not None else 0.0
    gate, separation, spacing = limits.gate_width, limits.separation + MARGIN_UM, limits.spacing + MARGIN_UM
    rows = (
        # gate +, overhang, contact length, contact width, share, separation +, spacing +
        (0.20, 0.60, edge + 0.80, edge + 0.80, 0.60, 0.15, 0.10),
        (0.10, 0.50, edge + 0.50, edge + 0.50, 0.55, 0.08, 0.05),
        (MARGIN_UM, 0.40, edge + 0.24, edge + 0.24, 0.50, 0.0, 0.0),
        (MARGIN_UM, 0.32, edge + (0.20 if edge else 0.40), edge + (0.20 if edge else 0.40), 0.0, 0.0, 0.0),
    )
    if not edge:
        rows = (rows[0], rows[1], (*rows[2][:2], 0.5, 0.5, *rows[2][4:]), rows[3])
    return tuple(Sizes(gate + g, o, cl, cw, cs, separation + s, spacing + p) for g, o, cl, cw, cs, s, p in rows)


def place_stack(
    flake: Flake,
    n: int,
    limits: Limits,
    obstacles: Obstacles | None = None,
    first_level: int = 0,
    order: tuple[int, ...] | None = None,
) -> Iterator[Chain]:
    """Yield chains of `n` transistors on a flake, comfortable ones first. Every chain passed `separates`.

    Args:
        flake: The flake.
        n: Transistors in the chain.
        limits: Rule values.
        obstacles: What is in the way, or None.
        first_level: Index into `size_levels` of the first dimensions to try.
        order: Order in which to try the flake's curves (default: as `curves` yields them).
    """
    obstacles = obstacles or Obstacles()
    source = _Lazy(curves(flake))
    for sizes in size_levels(limits)[first_level:]:
        for curve in source if order is None else source.permuted(order):
            yield from _chains_on(flake, curve, n, sizes, obstacles)


def largest_chain(flake: Flake, limits: Limits, limit: int) -> Chain | None:
    """Return the longest chain of at most `limit` transistors, or None.

    Args:
        flake: The flake.
        limits: Rule values.
        limit: Most transistors to look for.
    """
    best: Chain | None = None
    tightest = size_levels(limits)[-2:]
    for curve in curves(flake):
        for sizes in tightest:
            found = len(best.gates) if best else 0
            row = _Row(flake, curve, sizes, Obstacles())
            if row.bound() <= found:
                continue
            for start in row.starts():
                n = row.count(start, limit)
                while n > found:
                    chain = row.chain(n, start, 0.0)
                    if chain is not None and separates(flake, chain):
                        best, found = chain, n
                        break
                    n -= 1
            if best is not None and len(best.gates) >= limit:
                return best
    return best


class _Lazy:
    """A generator's items, kept for the next pass."""

    def __init__(self, source: Iterator[Curve]) -> None:
        self._source = source
        self._items: list[Curve] = []

    def __iter__(self) -> Iterator[Curve]:
        yield from self._items
        for item in self._source:
            self._items.append(item)
            yield item

    def permuted(self, order: tuple[int, ...]) -> Iterator[Curve]:
        """Yield all items, in the order of `order` (taken modulo their number)."""
        items = list(self)
        seen = dict.fromkeys(i % len(items) for i in order)
        yield from (items[i] for i in [*seen, *(i for i in range(len(items)) if i not in seen)])


class _Row:
    """Stations of one curve with one set of sizes."""

    def __init__(self, flake: Flake, curve: Curve, sizes: Sizes, obstacles: Obstacles) -> None:
        self.curve, self.sizes = curve, sizes
        self.gates: Stations = gate_stations(flake, curve, sizes, obstacles.gates)
        self.contacts: Stations = contact_stations(flake, curve, sizes, obstacles.contacts)
        self.usable = np.flatnonzero(self.contacts.ok)

    def bound(self) -> int:
        """Upper bound of the transistors in a row (exact on straight curves)."""
        if len(self.usable) < 2 or not self.gates.ok.any():
            return 0
        s = self.sizes
        pitch = s.gate_width + s.contact_length + 2 * s.separation
        # Curved rows can be a little denser on their inside; one extra transistor covers that.
        return int((self.usable[-1] - self.usable[0]) * self.curve.step / pitch) + 1

    def starts(self) -> list[int]:
        """First stations to try."""
        stride = max(1, round(0.35 / self.curve.step))
        return self.usable[: stride * _STARTS : stride].tolist()

    def run(self, n: int, start: int, extra: float) -> tuple[list[Rect], int]:
        """Place greedily from `start`: every next element as early as distances allow plus `extra`.

        Returns:
            The rectangles (contact, gate, contact, ...), at most 2 n + 1, and the last station used.
        """
        s, step = self.sizes, self.curve.step
        apart = s.separation + extra
        hop = max(1, int(((s.gate_width + s.contact_length) / 2 + apart) / step * 0.8))
        placed: list[Rect] = [self.contacts.rects[start]]
        at = start
        ok_lists = (self.contacts.ok.tolist(), self.gates.ok.tolist())
        rect_lists = (self.contacts.rects, self.gates.rects)
        m = len(self.contacts.rects)
        while len(placed) < 2 * n + 1:
            kind = len(placed) % 2
            ok, rects = ok_lists[kind], rect_lists[kind]
            i = at + hop
            while i < m:
                if ok[i] and self._fits(rects[i], placed, kind, apart):
                    break
                i += 1
            else:
                break
            placed.append(rects[i])
            at = i
        return placed, at

    def _fits(self, rect: Rect, placed: list[Rect], kind: int, apart: float) -> bool:
        s = self.sizes
        if gap(rect, placed[-1]) < apart:
            return False
        for k in range(len(placed) - 2, -1, -1):
            other = k % 2
            need = s.separation if other != kind else (GATE_GAP_UM if kind else s.spacing)
            if gap(rect, placed[k]) < need:
                return False
        return True

    def count(self, start: int, limit: int) -> int:
        """Transistors that fit from `start`."""
        placed, _ = self.run(limit, start, 0.0)
        return (len(placed) - 1) // 2

    def chain(self, n: int, start: int, extra: float) -> Chain | None:
        """Return the chain of exactly `n` transistors from `start`, or None."""
        placed, _ = self.run(n, start, extra)
        if len(placed) < 2 * n + 1:
            return None
        return Chain(tuple(placed[1::2]), tuple(placed[::2]), self.sizes)


def _chains_on(flake: Flake, curve: Curve, n: int, sizes: Sizes, obstacles: Obstacles) -> Iterator[Chain]:
    row = _Row(flake, curve, sizes, obstacles)
    if row.bound() < n:
        return
    seen: set[Chain] = set()
    for start in row.starts():
        placed, end = row.run(n, start, 0.0)
        if len(placed) < 2 * n + 1:
            continue
        slack = max(0.0, float(row.usable[-1] - end) * curve.step)
        for share in _SPREADS:
            extra = min(share * slack / (2 * n + 2), 4.0)
            first = start + round(extra / curve.step)
            if not row.contacts.ok[first]:
                later = row.usable[row.usable >= first]
                if len(later) == 0:
                    continue
                first = int(later[0])
            chain = row.chain(n, first, extra)
            if chain is None or chain in seen:
                continue
            seen.add(chain)
            if separates(flake, chain):
                yield chain


def separates(flake: Flake, chain: Chain, cover_um2: float | None = None) -> bool:
    """Whether the gates of a chain cut the flake as intended, exactly, on the 1 nm grid.

    Every contact touches exactly one piece of (region minus all gates) and covers enough of it, the pieces along the
    chain are all different, and every gate borders the pieces before and after it.

    Args:
        flake: The flake.
        chain: The chain.
        cover_um2: Least area that a contact covers; default 40 % of its own, or 2 um2.
    """
    gates = [kdb.Region(kdb_polygon(g.corners)) for g in chain.gates]
    all_gates = kdb.Region()
    for g in gates:
        all_gates += g
    pieces = [kdb.Region(p) for p in (flake.kdb_region - all_gates).each()]
    sides: list[int] = []
    for contact in chain.contacts:
        shape = kdb.Region(kdb_polygon(contact.corners))
        touched = [k for k, piece in enumerate(pieces) if not piece.interacting(shape).is_empty()]
        if len(touched) != 1:
            return False
        covered = (shape & pieces[touched[0]]).sized(-5).area() * 1e-6
        if covered < (cover_um2 if cover_um2 is not None else min(0.4 * 4 * contact.hx * contact.hy, 2.0)):
            return False
        sides.append(touched[0])
    if len(set(sides)) != len(sides):
        return False
    for k, gate in enumerate(gates):
        grown = gate.sized(2)
        if any(pieces[sides[k + d]].interacting(grown).is_empty() for d in (0, 1)):
            return False
    return True


def without_gates(chain: Chain) -> Chain:
    """Return a chain with its contacts only (global back gate)."""
    return replace(chain, gates=())
