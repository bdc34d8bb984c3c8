"""`Marker`: one violation's geometry in canonical form; `MarkerStore`: markers bucketed by rule and place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import klayout.db as kdb

MarkerKind = Literal["polygon", "edge", "edge_pair"]
Box = tuple[int, int, int, int]
Ring = tuple[int, ...]

_BUCKET_NM = 1000
_MAX_BUCKETS = 64


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """The geometry of one violation, in database units of the top cell.

    Attributes:
        rule: Rule id.
        kind: ``"polygon"``, ``"edge"`` or ``"edge_pair"``.
        rings: Flat coordinates (x1, y1, x2, y2, ...): hull and holes of a polygon, one edge, or two edges. Rings start
            at their lowest-left point, single edges at their smaller end, and the edges of a pair on one layer are
            sorted, so that equal violations are equal objects.
        symmetric: Whether the two edges of a pair play the same part (both lie on one layer).
    """

    rule: str
    kind: MarkerKind
    rings: tuple[Ring, ...]
    symmetric: bool = False

    @property
    def bbox(self) -> Box:
        """Bounding box (x1, y1, x2, y2) in database units."""
        xs = [x for ring in self.rings for x in ring[::2]]
        ys = [y for ring in self.rings for y in ring[1::2]]
        return (min(xs), min(ys), max(xs), max(ys))

    def touches(self, box: Box) -> bool:
        """Return whether the geometry (not only its bounding box) meets a box; pairs with what is between."""
        own = self.bbox
        if not touches(own, box):
            return False
        return geometry_touches(self.to_klayout(), own, box)

    def moved(self, trans: kdb.Trans | kdb.ICplxTrans, unordered: bool = False) -> Marker:
        """Return the marker in another frame, canonical again."""
        return from_klayout(self.rule, self.to_klayout().transformed(cast(Any, trans)), unordered)

    def to_klayout(self) -> kdb.Polygon | kdb.Edge | kdb.EdgePair:
        """Return the KLayout object in database units."""
        if self.kind == "edge":
            return kdb.Edge(*self.rings[0])
        if self.kind == "edge_pair":
            return kdb.EdgePair(kdb.Edge(*self.rings[0]), kdb.Edge(*self.rings[1]), self.symmetric)
        polygon = kdb.Polygon([kdb.Point(*p) for p in points(self.rings[0])], True)
        for ring in self.rings[1:]:
            polygon.insert_hole([kdb.Point(*p) for p in points(ring)], True)
        return polygon

    def text(self, dbu: float) -> str:
        """Return the geometry as report text in micrometres, e.g. ``edge-pair: (0,0;0,0.125)|(0.06,0.125;0.06,0)``."""
        value = self.to_klayout()
        name = self.kind.replace("_", "-")
        return f"{name}: {value.to_dtype(dbu).to_s()}"


def points(ring: Ring) -> Iterator[tuple[int, int]]:
    """Yield the points of flat coordinates."""
    return zip(ring[::2], ring[1::2])


def _edge(e: kdb.Edge) -> Ring:
    return (e.x1, e.y1, e.x2, e.y2)


def _ring(source: Iterable[kdb.Point]) -> Ring:
    pts = [(p.x, p.y) for p in source]
    start = pts.index(min(pts))
    return tuple(c for p in pts[start:] + pts[:start] for c in p)


def from_klayout(rule: str, value: kdb.Polygon | kdb.Edge | kdb.EdgePair, unordered: bool = False) -> Marker:
    """Return the canonical marker of a KLayout object (database units); `unordered`: a pair's order means nothing."""
    if isinstance(value, kdb.Edge):
        ring = _edge(value)
        return Marker(rule, "edge", (min(ring, ring[2:] + ring[:2]),))
    if isinstance(value, kdb.EdgePair):
        rings = (_edge(value.first), _edge(value.second))
        if (unordered or value.symmetric) and rings[0] > rings[1]:
            rings = (rings[1], rings[0])
        return Marker(rule, "edge_pair", rings, value.symmetric)
    holes = sorted(_ring(value.each_point_hole(i)) for i in range(value.holes()))
    return Marker(rule, "polygon", (_ring(value.each_point_hull()), *holes))


def collection_markers(rule: str, collection: Any, unordered: bool = False) -> Iterator[Marker]:
    """Yield the markers of a Region, Edges or EdgePairs collection."""
    for value in collection.each():
        yield from_klayout(rule, value, unordered)


class _RuleMarkers:
    """The markers of one rule: multiplicities, bounding boxes, and a grid of buckets."""

    __slots__ = ("buckets", "large", "members", "pitch")

    def __init__(self, pitch: int) -> None:
        self.pitch = pitch
        self.members: dict[Marker, tuple[Box, int]] = {}
        self.buckets: dict[tuple[int, int], set[Marker]] = {}
        self.large: set[Marker] = set()

    def copy(self) -> _RuleMarkers:
        other = _RuleMarkers(self.pitch)
        other.members = dict(self.members)
        other.buckets = {k: set(v) for k, v in self.buckets.items()}
        other.large = set(self.large)
        return other

    def _cells(self, box: Box) -> list[tuple[int, int]] | None:
        x1, y1, x2, y2 = (v // self.pitch for v in box)
        if (x2 - x1 + 1) * (y2 - y1 + 1) > _MAX_BUCKETS:
            return None
        return [(x, y) for x in range(x1, x2 + 1) for y in range(y1, y2 + 1)]

    def put(self, marker: Marker, count: int) -> None:
        box = marker.bbox
        if marker not in self.members:
            cells = self._cells(box)
            if cells is None:
                self.large.add(marker)
            else:
                for c in cells:
                    self.buckets.setdefault(c, set()).add(marker)
        self.members[marker] = (box, count)

    def drop(self, marker: Marker) -> None:
        box, _ = self.members.pop(marker)
        cells = self._cells(box)
        if cells is None:
            self.large.discard(marker)
        else:
            for c in cells:
                bucket = self.buckets[c]
                bucket.discard(marker)
                if not bucket:
                    del self.buckets[c]

    def touching(self, box: Box) -> list[Marker]:
        cells = self._cells(box)
        if cells is None:
            found: Iterable[Marker] = self.members
        else:
            found = self.large.union(*(self.buckets.get(c, ()) for c in cells))
        return [m for m in found if touches(self.members[m][0], box)]


def touches(a: Box, b: Box) -> bool:
    """Return whether two boxes share a point."""
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


def geometry_touches(value: kdb.Polygon | kdb.Edge | kdb.EdgePair, own: Box, box: Box) -> bool:
    """Return whether an object shares a point with a box that its bounding box `own` touches."""
    if box[0] <= own[0] and own[2] <= box[2] and box[1] <= own[1] and own[3] <= box[3]:
        return True
    window = kdb.Box(*box)
    if isinstance(value, kdb.Edge):
        return value.clipped(window) is not None
    if isinstance(value, kdb.EdgePair):
        ends = (value.first, value.second)
        return any(e.clipped(window) is not None for e in ends) or value.polygon(0).touches(window)
    return bool(value.touches(window))


class MarkerStore:
    """A multiset of markers. `copy` is cheap: rules are shared until one side changes them.

    Args:
        rules: Rule ids in reporting order.
        dbu: Database unit in micrometres (sets the bucket size only).
        markers: Initial markers with multiplicities by repetition.

    Attributes:
        context: For `IncrementalChecker`: what it knows about the layout that the markers belong to.
    """

    context: Any = None

    def __init__(self, rules: Iterable[str], dbu: float, markers: Iterable[Marker] = ()) -> None:
        self._pitch = max(1, round(_BUCKET_NM * 0.001 / dbu))
        self._rules: dict[str, _RuleMarkers] = {r: _RuleMarkers(self._pitch) for r in rules}
        self._owned: set[str] = set(self._rules)
        for m in markers:
            self.add(m)

    def copy(self) -> MarkerStore:
        """Return an independent copy."""
        other = MarkerStore.__new__(MarkerStore)
        other._pitch = self._pitch
        other._rules = dict(self._rules)
        other.context = self.context
        self._owned, other._owned = set(), set()
        return other

    def _own(self, rule: str) -> _RuleMarkers:
        if rule not in self._owned:
            self._rules[rule] = self._rules[rule].copy()
            self._owned.add(rule)
        return self._rules[rule]

    def add(self, marker: Marker, count: int = 1) -> None:
        """Add a marker `count` times."""
        owned = self._own(marker.rule)
        owned.put(marker, count + (owned.members[marker][1] if marker in owned.members else 0))

    def put(self, marker: Marker, count: int) -> None:
        """Set a marker's multiplicity (positive)."""
        self._own(marker.rule).put(marker, count)

    def remove(self, marker: Marker) -> None:
        """Remove a marker, whatever its multiplicity."""
        self._own(marker.rule).drop(marker)

    def touching(self, rule: str, box: Box) -> list[Marker]:
        """Return the markers of a rule that touch a box."""
        return [m for m in self._rules[rule].touching(box) if m.touches(box)]

    def multiplicity(self, marker: Marker) -> int:
        """Return how often a marker occurs (0: not at all)."""
        entry = self._rules[marker.rule].members.get(marker)
        return entry[1] if entry else 0

    def has(self, rule: str) -> bool:
        """Return whether a rule has markers."""
        return bool(self._rules[rule].members)

    def of(self, rule: str) -> dict[Marker, int]:
        """Return the markers of a rule with their multiplicities, sorted."""
        return {m: c for m, (_, c) in sorted(self._rules[rule].members.items())}

    def counts(self) -> dict[str, int]:
        """Return the number of markers per rule, repeated ones counted, rules without any left out."""
        totals = ((r, sum(c for _, c in entry.members.values())) for r, entry in self._rules.items())
        return {r: n for r, n in totals if n}

    def __iter__(self) -> Iterator[Marker]:
        """Yield all markers, repeated ones repeatedly, rule by rule in reporting order, sorted within a rule."""
        for rule in self._rules:
            for m, c in self.of(rule).items():
                yield from [m] * c

    def __len__(self) -> int:
        return sum(self.counts().values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MarkerStore):
            return NotImplemented
        rules = self._rules.keys() | other._rules.keys()
        return all(
            (self.of(r) if r in self._rules else {}) == (other.of(r) if r in other._rules else {}) for r in rules
        )

    __hash__ = None  # type: ignore[assignment]  # mutable
