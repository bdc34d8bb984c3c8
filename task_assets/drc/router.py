"""A pattern router: pins are taken up layer by layer to one common track, without breaking a spacing rule.

Every wire runs on one track and every candidate is tested against what is already there with the pairwise spacing
predicates of `compatible` and `cuts_apart`, so that what is committed is legal by construction. Lengths are integer
nanometres.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from edagym.task_assets.drc.process import METALS, VIAS, WIRES, Box, WireLayer

BIN = 600
"""Edge length of the occupancy map's bins, nm."""

REACH = 100
"""Largest gap, nm, at which two shapes of one layer can be in conflict (M4 to M7 ends: 96 nm)."""

COMMON_TRIES = 40
PIN_TRIES = 60


@dataclass(frozen=True, slots=True)
class Wire:
    """A straight wire of one net.

    Attributes:
        layer: Metal name.
        box: Its rectangle, nm.
    """

    layer: str
    box: Box


@dataclass(frozen=True, slots=True)
class Via:
    """A via of one net.

    Attributes:
        layer: Via layer name, such as V2.
        x: Centre, nm.
        y: Centre, nm.
    """

    layer: str
    x: int
    y: int

    @property
    def cut(self) -> Box:
        """The cut's rectangle, nm."""
        half_w, half_h = VIAS[self.layer].width // 2, VIAS[self.layer].height // 2
        return (self.x - half_w, self.y - half_h, self.x + half_w, self.y + half_h)

    def pad(self, lower: bool) -> Box:
        """The rectangle of metal below or above the cut, nm."""
        via = VIAS[self.layer]
        wire = WIRES[via.lower if lower else via.upper]
        end = via.lower_end if lower else via.upper_end
        left, bottom, right, top = self.cut
        return (left, bottom - end, right, top + end) if wire.vertical else (left - end, bottom, right + end, top)


def gaps(a: Box, b: Box) -> tuple[int, int]:
    """Return the gaps in x and in y between two rectangles; a negative one is the length of the common run."""
    return max(a[0] - b[2], b[0] - a[2]), max(a[1] - b[3], b[1] - a[3])


def compatible(wire: WireLayer, a: Box, b: Box) -> bool:
    """Say whether two unconnected wires of one layer may coexist (ASAP7 M1.S.*, ..., M7.S.*)."""
    gap_x, gap_y = gaps(a, b)
    along, across = (gap_y, gap_x) if wire.vertical else (gap_x, gap_y)
    if across < 0:
        return along >= wire.tip
    if along < 0:
        return across >= wire.side and not (across < 25 and -along < wire.run)
    if along < wire.tip and across <= wire.reach:
        return False
    return math.hypot(along, across) >= wire.corner


def cuts_apart(layer: str, a: Box, b: Box) -> bool:
    """Say whether two different cuts of one via layer are far enough from each other."""
    gap_x, gap_y = gaps(a, b)
    return math.hypot(max(gap_x, 0), max(gap_y, 0)) >= VIAS[layer].gap


def touching(a: Box, b: Box) -> bool:
    """Say whether two rectangles overlap or touch along an edge or corner."""
    gap_x, gap_y = gaps(a, b)
    return gap_x <= 0 and gap_y <= 0


@dataclass(slots=True)
class Occupancy:
    """Shapes by layer and place, each with the net that it belongs to."""

    bins: dict[tuple[str, int, int], list[tuple[str, Box]]] = field(default_factory=dict)

    def add(self, layer: str, box: Box, net: str) -> None:
        """Add a rectangle (nm)."""
        for key in self._keys(layer, box, 0):
            self.bins.setdefault(key, []).append((net, box))

    def near(self, layer: str, box: Box) -> Iterator[tuple[str, Box]]:
        """Yield what lies within `REACH` of `box`; a shape that spans bins comes more than once."""
        for key in self._keys(layer, box, REACH):
            yield from self.bins.get(key, ())

    def free(
        self, wires: Iterable[Wire], vias: Iterable[Via], net: str, rules: Mapping[str, WireLayer] = WIRES
    ) -> bool:
        """Say whether `wires` and `vias` of `net` are legal beside the shapes of every other net, under `rules`."""
        for wire in wires:
            rule = rules[wire.layer]
            for owner, box in self.near(wire.layer, wire.box):
                if owner != net and not compatible(rule, wire.box, box):
                    return False
        for via in vias:
            cut = via.cut
            for owner, box in self.near(via.layer, cut):
                if owner != net and not cuts_apart(via.layer, cut, box):
                    return False
        return True

    @staticmethod
    def _keys(layer: str, box: Box, margin: int) -> Iterator[tuple[str, int, int]]:
        for i in range((box[0] - margin) // BIN, (box[2] + margin) // BIN + 1):
            for j in range((box[1] - margin) // BIN, (box[3] + margin) // BIN + 1):
                yield layer, i, j


@dataclass(frozen=True, slots=True)
class Terminal:
    """A pin to be routed: the M1 bar at `x` and the M2 tracks (y) on which a V1 fits, nm."""

    x: int
    tracks: tuple[int, ...]


def span(layer: str, across: int, stops: Sequence[tuple[int, str]]) -> Wire:
    """Return the shortest legal wire on a track that covers the pads of its vias.

    Args:
        layer: Metal name.
        across: Track centre, nm.
        stops: Vias on it: position along the wire (nm) and via layer.

    Returns:
        The wire.
    """
    rule = WIRES[layer]
    low = min(at - _half(layer, via) for at, via in stops)
    high = max(at + _half(layer, via) for at, via in stops)
    short = rule.length - (high - low)
    if short > 0:
        low -= short // 2
        high += short - short // 2
    half = rule.width // 2
    if rule.vertical:
        return Wire(layer, (across - half, low, across + half, high))
    return Wire(layer, (low, across - half, high, across + half))


def _half(layer: str, via: str) -> int:
    """Half the length of a via's pad on `layer`, along the wire."""
    rule = VIAS[via]
    cut = rule.height if WIRES[layer].vertical else rule.width
    return cut // 2 + (rule.lower_end if rule.lower == layer else rule.upper_end)


def merge(wires: Iterable[Wire], rules: Mapping[str, WireLayer] = WIRES) -> list[Wire] | None:
    """Join wires of one net that overlap on a track; None where two of them touch or come too close otherwise."""
    merged: list[Wire] = []
    for wire in wires:
        current = wire
        changed = True
        while changed:
            changed = False
            for other in merged:
                if other.layer == current.layer and _same_track(current, other) and touching(current.box, other.box):
                    merged.remove(other)
                    a, b = current.box, other.box
                    current = Wire(wire.layer, (min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])))
                    changed = True
                    break
        merged.append(current)
    for index, a_wire in enumerate(merged):
        rule = rules[a_wire.layer]
        for other in merged[:index]:
            if other.layer == a_wire.layer and not compatible(rule, a_wire.box, other.box):
                return None
    return merged


def _same_track(a: Wire, b: Wire) -> bool:
    low, high = (0, 2) if WIRES[a.layer].vertical else (1, 3)
    return a.box[low] == b.box[low] and a.box[high] == b.box[high]


class Router:
    """Routes nets one after the other into a shared occupancy map.

    Args:
        width: Block width, nm; wires stay inside.
        height: Block height, nm.
        occupancy: What is there already; routed nets are added to it.
        rules: Spacing rules to route by. Where they are laxer than `WIRES`, only routes that break one of `WIRES` are
            accepted: a careless router.
    """

    def __init__(self, width: int, height: int, occupancy: Occupancy, rules: Mapping[str, WireLayer] = WIRES) -> None:
        self.width = width
        self.height = height
        self.occupancy = occupancy
        self.rules = rules

    def route(
        self, net: str, terminals: Sequence[Terminal], trunk: str, rng: np.random.Generator
    ) -> tuple[list[Wire], list[Via]] | None:
        """Join `terminals` on one track of layer `trunk`.

        Args:
            net: Name under which the shapes are entered.
            terminals: Two or more pins.
            trunk: Metal that carries the common wire, M2 to M7.
            rng: Breaks ties between equally long routes.

        Returns:
            The wires and vias (M1 pads are not among them; the pins have their bars), or None. A route that is
            returned has been entered into the occupancy map.
        """
        for common in self._commons(terminals, trunk, rng):
            found = self._join(net, terminals, trunk, common)
            if found is not None:
                wires, vias = found
                for wire in wires:
                    self.occupancy.add(wire.layer, wire.box, net)
                for via in vias:
                    self.occupancy.add(via.layer, via.cut, net)
                return wires, vias
        return None

    def _commons(self, terminals: Sequence[Terminal], trunk: str, rng: np.random.Generator) -> list[int]:
        """Tracks of the trunk layer, those near the terminals' middle first."""
        rule = WIRES[trunk]
        if trunk == "M2":
            shared = set(terminals[0].tracks).intersection(*(set(terminal.tracks) for terminal in terminals[1:]))
            tracks = sorted(shared)
            return [tracks[int(i)] for i in rng.permutation(len(tracks))]
        places = [terminal.x if rule.vertical else int(np.median(terminal.tracks)) for terminal in terminals]
        limit = self.width if rule.vertical else self.height
        tracks = list(range(rule.offset, limit - rule.width, rule.pitch))
        noise = rng.random(len(tracks)) * rule.pitch
        cost = {t: sum(abs(t - place) for place in places) + float(noise[i]) for i, t in enumerate(tracks)}
        return sorted(tracks, key=cost.__getitem__)[:COMMON_TRIES]

    def _join(
        self, net: str, terminals: Sequence[Terminal], trunk: str, common: int
    ) -> tuple[list[Wire], list[Via]] | None:
        """Bring every terminal to track `common`, first fit first, then lay the trunk."""
        wires: list[Wire] = []
        vias: set[Via] = set()
        stops: list[tuple[int, str]] = []
        for terminal in terminals:
            for path in self._paths(terminal, trunk, common):
                new_wires, new_vias, stop = path
                joined = merge([*wires, *new_wires], self.rules)
                if (
                    joined is not None
                    and self._self_apart(vias, new_vias)
                    and self.occupancy.free(new_wires, new_vias, net, self.rules)
                ):
                    wires = joined
                    vias |= set(new_vias)
                    stops.append(stop)
                    break
            else:
                return None
        line = span(trunk, common, stops)
        whole = merge([*wires, line], self.rules)
        if whole is None or not self.occupancy.free([line], (), net, self.rules):
            return None
        if self.rules is not WIRES and merge(whole) is not None and self.occupancy.free(whole, (), net):
            return None
        return whole, sorted(vias, key=lambda via: (via.layer, via.x, via.y))

    @staticmethod
    def _self_apart(vias: Iterable[Via], new: Iterable[Via]) -> bool:
        return all(a == b or a.layer != b.layer or cuts_apart(a.layer, a.cut, b.cut) for a in new for b in vias)

    def _paths(
        self, terminal: Terminal, trunk: str, common: int
    ) -> Iterator[tuple[list[Wire], list[Via], tuple[int, str]]]:
        """Yield ways from a terminal up to the trunk: wires below it, vias, and where the trunk is met."""
        last = METALS.index(trunk)
        lines: list[list[int]] = [sorted(terminal.tracks, key=lambda y: abs(y - common) if trunk != "M3" else 0)]
        if trunk == "M2":
            lines = [[common]]
        for metal in METALS[2:last]:
            rule = WIRES[metal]
            near = terminal.x if rule.vertical else int(np.median(terminal.tracks))
            limit = self.width if rule.vertical else self.height
            middle = (near - rule.offset) // rule.pitch
            tracks = [rule.offset + rule.pitch * (middle + step) for step in (0, 1, -1, 2, -2, 3)]
            lines.append([track for track in tracks if rule.width <= track <= limit - rule.width])
        for tries, choice in enumerate(product(*lines)):
            if tries >= PIN_TRIES:
                return
            # across[k] is the track on METALS[k + 1]; the terminal's x plays the part of a track on M1.
            across = [terminal.x, *choice] if trunk == "M2" else [terminal.x, *choice, common]
            yield self._climb(across, last)

    @staticmethod
    def _climb(across: Sequence[int], last: int) -> tuple[list[Wire], list[Via], tuple[int, str]]:
        vias: list[Via] = []
        for level in range(1, last + 1):
            below, here = across[level - 1], across[level]
            x, y = (here, below) if WIRES[METALS[level]].vertical else (below, here)
            vias.append(Via(f"V{level}", x, y))
        wires: list[Wire] = []
        for level in range(1, last):
            metal = METALS[level]
            along = [(via.y if WIRES[metal].vertical else via.x, via.layer) for via in vias[level - 1 : level + 1]]
            wires.append(span(metal, across[level], along))
        top = vias[-1]
        return wires, vias, (top.y if WIRES[METALS[last]].vertical else top.x, top.layer)
