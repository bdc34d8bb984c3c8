"""Local moves that may repair violations: edges, shapes and instances near a marker, displaced to a rule's limits.

Where a violation is repaired, some edge usually ends up at a rule's limit from another edge, or flush with it. So the
moves near a marker are the displacements that bring an edge of a causing shape there. All coordinates are database
units; edges, markers and displacements are in the top cell's frame, shapes in the frame of their cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import klayout.db as kdb

from edagym.envs.drc.edits import hull
from edagym.spaces.drc_edits import (
    ORIENTATIONS,
    AddShape,
    ChangeShape,
    Delete,
    DRCEdit,
    Move,
    MoveCell,
    MoveEdge,
    Points,
    Resize,
    ShapeRef,
    box_points,
)
from edagym.task_assets.drc.task import MIN_AREA_KEPT
from edagym.verifiers.drc.expression import Expr, Quantity
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, Marker, touches
from edagym.verifiers.drc.rules import RuleTable
from edagym.verifiers.drc.zone import grown

CAUSE_NM = 40.0
"""A shape this near to a marker may be its cause, nm."""
LONG_NM = 2000.0
"""Longer shapes are tried after others: what depends on them lies far away."""
REACH_NM = 200.0
"""Longest displacement that is tried, nm."""
MAX_LIMIT_NM = 700.0
MAX_SHAPES = 14
"""Causing shapes looked at per marker, nearest first."""
MAX_DISTANCES = 12
"""Displacements tried per edge and direction, likeliest first."""
MAX_VIA_SHAPES = 12
"""Cells with more shapes of their own are no via cells: moving them comes last."""
MAX_PLACEMENTS = 400
"""Shapes in masters with more placements than this stay as they are."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A move with its rank: smaller is more likely."""

    rank: tuple[int, int]
    edit: DRCEdit


@dataclass(frozen=True, slots=True)
class _Source:
    """A raw shape near a marker and where it lies."""

    layer: str
    cell: str
    polygon: kdb.Polygon
    trans: kdb.ICplxTrans
    instance: kdb.Instance | None
    distance: int


@dataclass(frozen=True, slots=True)
class _Edge:
    """An axis-parallel edge: position across (`at`), extent along (`low`, `high`), outward normal; top cell's frame."""

    layer: str
    vertical: bool
    at: int
    low: int
    high: int
    normal: tuple[int, int]


class RuleLimits:
    """Lengths (nm) that rules compare with, by pair of layers, and areas (nm2) by rule."""

    def __init__(self, table: RuleTable) -> None:
        self.by_rule: dict[str, tuple[float, ...]] = {}
        self.areas: dict[str, tuple[float, ...]] = {}
        pairs: dict[tuple[str, str], set[float]] = {}
        for rule in table.rules.values():
            quantities = [q for m in rule.measures for q in _quantities(m)]
            lengths = {q.nm for q in quantities if q.kind == "length" and 0.0 < q.nm <= MAX_LIMIT_NM}
            self.by_rule[rule.id] = tuple(sorted(lengths))
            self.areas[rule.id] = tuple(sorted({q.nm for q in quantities if q.kind == "area" and q.nm > 0.0}))
            for a in rule.layers:
                for b in rule.layers:
                    pairs.setdefault((a, b), set()).update(lengths)
        self.by_pair: Mapping[tuple[str, str], tuple[float, ...]] = {k: tuple(sorted(v)) for k, v in pairs.items()}


def _quantities(e: Expr) -> Iterator[Quantity]:
    for p in e.params:
        if isinstance(p, Quantity):
            yield p
    for a in e.args:
        yield from _quantities(a)


def candidates(layout: DRCLayout, table: RuleTable, limits: RuleLimits, markers: Sequence[Marker]) -> list[Candidate]:
    """Return moves that may repair markers, without repetition, most likely first.

    Args:
        layout: The layout as it is.
        table: The rules.
        limits: The table's limits.
        markers: Violations that lie near one another.
    """
    found: dict[DRCEdit, tuple[int, int]] = {}
    for marker in markers:
        for candidate in _for_marker(layout, table, limits, marker):
            known = found.get(candidate.edit)
            if known is None or candidate.rank < known:
                found[candidate.edit] = candidate.rank
    ranked = [Candidate(rank, edit) for edit, rank in found.items()]
    ranked.sort(key=lambda c: c.rank)
    return ranked


def _for_marker(layout: DRCLayout, table: RuleTable, limits: RuleLimits, marker: Marker) -> Iterator[Candidate]:
    nm = 0.001 / layout.dbu
    rule = table.rules[marker.rule]
    names = [n for n in table.layers if n in rule.layers]
    around = grown(marker.bbox, math.ceil(REACH_NM * nm))
    merged = {n: _merged(layout, table, n, around) for n in names}
    edges = [e for n in names for p in merged[n].each() for e in _edges(n, p, kdb.ICplxTrans())]
    edges = [e for e in edges if _near(e, around)]
    for source in _sources(layout, table, names, marker.bbox, math.ceil(CAUSE_NM * nm)):
        if _is_duplicate(layout, table, source):
            yield Candidate((0, 0), _change(source, Delete()))
        yield from _spans(source, edges)
        own = _edges(source.layer, source.polygon, source.trans)
        for index, edge in enumerate(own):
            if edge is None:
                continue
            distances = _distances(edge, edges, limits, marker, merged[source.layer], nm)
            near = source.layer == rule.primary_layer or _on_marker(edge, marker)
            rank = 0 if source.distance == 0 and near else 3
            if max(source.polygon.bbox().width(), source.polygon.bbox().height()) > LONG_NM * nm:
                rank += 2
            for sign in (1, -1):
                ordered = sorted((p, abs(d)) for p, d in distances if d * sign > 0)
                for k, (priority, d) in enumerate(ordered[:MAX_DISTANCES]):
                    yield from _moves(source, index, edge, sign * d, rank + 4 * priority + k)
    yield from _fills(names, marker)


def _is_via(instance: kdb.Instance) -> bool:
    """Return whether an instance holds few shapes, as vias do."""
    cell = instance.cell
    return sum(cell.shapes(i).size() for i in cell.layout().layer_indexes()) <= MAX_VIA_SHAPES


# -- what lies near ------------------------------------------------------------------------------------------------


def _merged(layout: DRCLayout, table: RuleTable, name: str, box: Box) -> kdb.Region:
    entry = table.layers[name]
    index = layout.layer_index(entry.layer, entry.datatype)
    if index is None:
        return kdb.Region()
    return kdb.Region(layout.top.begin_shapes_rec_touching(index, kdb.Box(*box))).merged()


def _sources(layout: DRCLayout, table: RuleTable, names: Iterable[str], box: Box, reach: int) -> list[_Source]:
    """Return the raw shapes near a box, nearest first: those that touch it, then those within reach."""
    found = []
    area = kdb.Box(*box)
    for name in names:
        entry = table.layers[name]
        index = layout.layer_index(entry.layer, entry.datatype)
        if index is None:
            continue
        it = layout.top.begin_shapes_rec_touching(index, area.enlarged(reach, reach))
        while not it.at_end():
            polygon = it.shape().polygon
            if polygon is not None and polygon.holes() == 0:
                trans = kdb.ICplxTrans(it.trans())
                flat = (trans * polygon).bbox()
                path = it.path()
                instance = path[0].inst() if len(path) == 1 else None
                gap = max(flat.left - area.right, area.left - flat.right, 0) + max(
                    flat.bottom - area.top, area.bottom - flat.top, 0
                )
                name_of_cell = "" if not path else it.cell().name
                found.append(_Source(name, name_of_cell, polygon, trans, instance, gap))
            it.next()
    found.sort(key=lambda s: (s.distance, s.cell, s.polygon.area(), s.layer, str(s.polygon), str(s.trans)))
    return found[:MAX_SHAPES]


def _is_duplicate(layout: DRCLayout, table: RuleTable, source: _Source) -> bool:
    """Whether the shape adds nothing to the other shapes of its layer, at this placement."""
    entry = table.layers[source.layer]
    index = layout.layer_index(entry.layer, entry.datatype)
    if index is None:
        return False
    flat = source.trans * source.polygon
    others = kdb.Region(layout.top.begin_shapes_rec_touching(index, flat.bbox()))
    same = sum(1 for p in others.each() if p == flat)
    rest = kdb.Region([p for p in others.each() if p != flat])
    return same > 1 or (kdb.Region(flat) - rest).is_empty()


def _edges(layer: str, polygon: kdb.Polygon, trans: kdb.ICplxTrans) -> list[_Edge | None]:
    """Return the hull's edges in the top cell's frame; None for slanted ones."""
    points = hull(polygon)
    edges: list[_Edge | None] = []
    for (x1, y1), (x2, y2) in zip(points, (*points[1:], points[0])):
        if x1 != x2 and y1 != y2:
            edges.append(None)
            continue
        sx, sy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
        a, b = trans * kdb.Point(x1, y1), trans * kdb.Point(x2, y2)
        normal = trans * kdb.Vector(-sy, sx)
        if a.x == b.x:
            edges.append(_Edge(layer, True, a.x, min(a.y, b.y), max(a.y, b.y), (normal.x, 0)))
        else:
            edges.append(_Edge(layer, False, a.y, min(a.x, b.x), max(a.x, b.x), (0, normal.y)))
    return edges


def _near(edge: _Edge | None, box: Box) -> bool:
    if edge is None:
        return False
    if edge.vertical:
        return touches((edge.at, edge.low, edge.at, edge.high), box)
    return touches((edge.low, edge.at, edge.high, edge.at), box)


# -- how far to move -----------------------------------------------------------------------------------------------


def _distances(
    edge: _Edge,
    others: Sequence[_Edge | None],
    limits: RuleLimits,
    marker: Marker,
    merged: kdb.Region,
    nm: float,
) -> list[tuple[int, int]]:
    """Return (priority, outward displacement) of an edge, without repetition."""
    best: dict[int, int] = {}
    reach = math.floor(REACH_NM * nm)
    side = edge.normal[0] or edge.normal[1]

    def offer(priority: int, distance: float) -> None:
        # Away from zero: a limit that is no whole number of units has to be passed, not missed.
        d = math.ceil(distance) if distance > 0 else math.floor(distance)
        if d and abs(d) <= reach and priority < best.get(d, 9):
            best[d] = priority

    own = limits.by_rule[marker.rule]
    on_marker = _on_marker(edge, marker)
    for other in others:
        if other is None or other.vertical != edge.vertical:
            continue
        apart = max(0, other.low - edge.high, edge.low - other.high)
        if apart > 60 * nm:
            continue
        offer(0 if apart == 0 else 1, (other.at - edge.at) * side)
        for priority, lengths in ((0, own), (1, limits.by_pair.get((edge.layer, other.layer), ()))):
            for length in lengths:
                limit = length * nm
                if apart >= limit:
                    continue
                # Corners may be nearer in one direction, if they are further apart in the other.
                limit = math.sqrt(limit * limit - apart * apart) if apart else limit
                for target in (other.at + limit, other.at - limit):
                    offer(priority, (target - edge.at) * side)
    if marker.kind == "edge_pair":
        for gap_limit in _gaps(marker, own, nm, edge.vertical):
            for d in (gap_limit, -gap_limit):
                offer(-1 if on_marker else 0, d)
                offer(0, d / 2)
    elif on_marker:
        # Cover the marker, or clear it.
        x1, y1, x2, y2 = marker.bbox
        through = x2 - x1 if edge.vertical else y2 - y1
        offer(-1, through)
        offer(-1, -through)
    length_along = edge.high - edge.low
    for area in limits.areas[marker.rule]:
        pieces = [p for p in merged.each() if p.bbox().touches(kdb.Box(*marker.bbox))]
        for piece in pieces:
            missing = area * nm * nm - piece.area()
            if missing > 0 and length_along:
                offer(0, missing / length_along)
                offer(0, math.ceil(missing / length_along / nm) * nm)
    return [(priority, d) for d, priority in best.items()]


def _on_marker(edge: _Edge, marker: Marker) -> bool:
    """Whether one of the marker's edges lies on the edge."""
    for ring in marker.rings:
        points = list(zip(ring[::2], ring[1::2]))
        for (x1, y1), (x2, y2) in zip(points, (*points[1:], points[0])):
            if edge.vertical and x1 == x2 == edge.at and max(min(y1, y2), edge.low) < min(max(y1, y2), edge.high):
                return True
            if not edge.vertical and y1 == y2 == edge.at and max(min(x1, x2), edge.low) < min(max(x1, x2), edge.high):
                return True
    return False


def _gaps(marker: Marker, lengths: Sequence[float], nm: float, along_x: bool) -> Iterator[float]:
    """Yield what is missing between the two edges of a pair to each limit, in one direction."""
    boxes = []
    for x1, y1, x2, y2 in (r[:4] for r in marker.rings):
        boxes.append((min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)))
    a, b = boxes
    gx = max(0, a[0] - b[2], b[0] - a[2])
    gy = max(0, a[1] - b[3], b[1] - a[3])
    gap, across = (gx, gy) if along_x else (gy, gx)
    for length in lengths:
        limit = length * nm
        yield limit - gap
        if 0 < across < limit:
            yield math.ceil(math.sqrt(limit * limit - across * across)) - gap


# -- edits ---------------------------------------------------------------------------------------------------------


def _change(source: _Source, change: Delete | Move | MoveEdge | Resize) -> ChangeShape:
    box = source.polygon.bbox()
    if source.polygon.is_box():
        ref = ShapeRef(box=(box.left, box.bottom, box.right, box.top))
    else:
        ref = ShapeRef(points=hull(source.polygon))
    return ChangeShape(source.layer, ref, change, source.cell)


def _moves(source: _Source, index: int, edge: _Edge, d: int, rank: int) -> Iterator[Candidate]:
    """Yield the edits that displace an edge outwards by `d`: alone, with its shape, its instance, or by an addition."""
    yield Candidate((rank, abs(d)), _change(source, MoveEdge(index, d)))
    step = kdb.Vector(edge.normal[0] * d, edge.normal[1] * d)
    inner = source.trans.inverted() * step
    yield Candidate((rank + 1, abs(d)), _change(source, Move(inner.x, inner.y)))
    if source.polygon.is_box() and d % 2 == 0:
        # Index 0 left, 1 top, 2 right, 3 bottom.
        half = d // 2
        both = Resize(half, 0, half, 0) if index in (0, 2) else Resize(0, half, 0, half)
        yield Candidate((rank + 1, abs(d)), _change(source, both))
    if source.polygon.is_box():
        both = Resize(d, 0, d, 0) if index in (0, 2) else Resize(0, d, 0, d)
        yield Candidate((rank + 2, abs(d)), _change(source, both))
    if source.polygon.is_box() and d < 0:
        for change in _compensated(source.polygon.bbox(), index, d):
            yield Candidate((rank + 1, abs(d)), _change(source, change))
    if source.instance is not None:
        trans = source.instance.trans
        move = MoveCell(
            source.cell, (trans.disp.x, trans.disp.y), (step.x, step.y), orientation=ORIENTATIONS[trans.rot]
        )
        # Moving a whole standard cell hardly ever helps and costs most to check.
        yield Candidate((rank + 1 if _is_via(source.instance) else rank + 12, abs(d)), move)
    if source.cell and d > 0:
        strip = _strip(edge, d)
        yield Candidate((rank + 1, abs(d)), AddShape(source.layer, box_points(strip)))
        own = source.trans.inverted() * kdb.Box(*strip)
        points = box_points((own.left, own.bottom, own.right, own.top))
        yield Candidate((rank + 2, abs(d)), AddShape(source.layer, points, source.cell))


def _spans(source: _Source, edges: Sequence[_Edge | None]) -> Iterator[Candidate]:
    """Yield resizings of a box that make it as wide, or as high, as what lies around it on another layer."""
    if not source.polygon.is_box() or source.distance > 0:
        return
    flat = (source.trans * source.polygon).bbox()
    for vertical in (True, False):
        low, high, middle = (
            (flat.bottom, flat.top, flat.center().x) if vertical else (flat.left, flat.right, flat.center().y)
        )
        near = [e for e in edges if e is not None and e.vertical == vertical and e.layer != source.layer]
        near = [e for e in near if e.low < high and low < e.high]
        for layer in dict.fromkeys(e.layer for e in near):
            lower = {e.at for e in near if e.layer == layer and sum(e.normal) < 0 and e.at < middle}
            upper = {e.at for e in near if e.layer == layer and sum(e.normal) > 0 and e.at > middle}
            for k, a in enumerate(sorted(lower, reverse=True)[:2]):
                for n, b in enumerate(sorted(upper)[:2]):
                    target = kdb.Box(a, flat.bottom, b, flat.top) if vertical else kdb.Box(flat.left, a, flat.right, b)
                    if target != flat:
                        old, new = source.polygon.bbox(), source.trans.inverted() * target
                        change = Resize(
                            old.left - new.left, old.bottom - new.bottom, new.right - old.right, new.top - old.top
                        )
                        yield Candidate((2 * (k + n), abs(b - a)), _change(source, change))


def _compensated(box: kdb.Box, index: int, d: int) -> Iterator[Resize]:
    """Yield shortenings that make the box wider, so that it keeps its area as far as the bounds on edits ask."""
    length, width = (box.width(), box.height()) if index in (0, 2) else (box.height(), box.width())
    left = length + d
    if left <= 0 or left >= MIN_AREA_KEPT * length:
        return
    more = math.ceil(width * (MIN_AREA_KEPT * length / left - 1.0))
    for low, high in ((more, 0), (0, more), (more - more // 2, more - more // 2)):
        if index in (0, 2):
            sides = [0, low, 0, high]
            sides[index] = d
        else:
            sides = [low, 0, high, 0]
            sides[3 if index == 1 else 1] = d
        yield Resize(*sides)


def _strip(edge: _Edge, d: int) -> Box:
    """Return the box that an edge sweeps when it moves outwards by `d`."""
    low, high = sorted((edge.at, edge.at + d * (edge.normal[0] or edge.normal[1])))
    return (low, edge.low, high, edge.high) if edge.vertical else (edge.low, low, edge.high, high)


def _fills(names: Sequence[str], marker: Marker) -> Iterator[Candidate]:
    """Yield the marker's own box as a new shape: fills notches and missing cover."""
    x1, y1, x2, y2 = marker.bbox
    if x1 < x2 and y1 < y2:
        points: Points = box_points((x1, y1, x2, y2))
        for name in names:
            yield Candidate((3, min(x2 - x1, y2 - y1)), AddShape(name, points))
