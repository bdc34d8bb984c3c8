"""Text queries around a violation at three zoom levels (PostEDA-Bench, Appendix C.3).

first: the shapes that cause the violation. second: further shapes inside their bounding box. third: the nearest
neighbours just outside it. Shapes are sorted by distance to the violation and come page by page. All coordinates are
integer database units of the layout in the frame of the queried cell; shapes of placed masters are given in the
master's own frame too, because that is where they can be edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import klayout.db as kdb

from edagym.errors import EditError
from edagym.spaces.drc_queries import Points, Query
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.rules import RuleTable

_THIRD_REACH_NM = 200
_MAX_REACH_NM = 3200

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class FoundShape:
    """A shape that a query found.

    Attributes:
        layer: Layer name.
        cell: Cell that owns the shape.
        points: Hull, database units, in the queried cell's frame; holes are cut open into it.
        distance: Distance between its bounding box and the violation's, database units.
        own: Hull in the owner's frame; equal to `points` if the queried cell is the owner.
        trans: Placement of the owner in the queried cell, KLayout's notation in database units; ``""`` for its own.
    """

    layer: str
    cell: str
    points: Points
    distance: float
    own: Points
    trans: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the shape JSON-ready; `own` and `trans` only where they say something."""
        out: dict[str, Any] = {"layer": self.layer, "cell": self.cell, "points": [list(p) for p in self.points]}
        if self.trans:
            out |= {"placed": self.trans, "own_points": [list(p) for p in self.own]}
        return {**out, "distance": round(self.distance, 2)}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """One page of found shapes.

    Attributes:
        query: The query.
        cell: The queried cell.
        dbu: Database unit in um.
        total: Number of shapes on all pages.
        shapes: Those of this page.
    """

    query: Query
    cell: str
    dbu: float
    total: int
    shapes: tuple[FoundShape, ...]

    def text(self) -> str:
        """Return the result as lines of text."""
        q = self.query
        last = q.start + len(self.shapes)
        more = f"; more with start={last}" if last < self.total else ""
        lines = [
            f"{q.level} level, {q.kind} in cell {self.cell}: {self.total} shapes, {q.start}..{last} shown{more} "
            f"(database units of {self.dbu:g} um, nearest first)"
        ]
        for i, s in enumerate(self.shapes, start=q.start):
            line = f"[{i}] {s.layer} in {s.cell}, distance {s.distance:g}: {_ring_text(s.points)}"
            if s.trans:
                line += f"; placed {s.trans}, in its own frame: {_ring_text(s.own)}"
            lines.append(line)
        return "\n".join(lines) + "\n"


def run_query(layout: DRCLayout, table: RuleTable, query: Query) -> QueryResult:
    """Answer a query.

    Args:
        layout: The layout.
        table: The rule table, whose layers can be queried.
        query: The query.

    Returns:
        The page.

    Raises:
        EditError: If a layer or the cell is unknown.
    """
    for name in ("direct_layers", "context_layers"):
        for layer in getattr(query, name):
            if layer not in table.layers:
                raise EditError("unknown layer", field=name, value=layer, allowed=list(table.layers))
    cell = layout.top if not query.cell else layout.layout.cell(query.cell)
    if cell is None:
        raise EditError("unknown cell", field="cell", value=query.cell, allowed="a cell of the layout")
    direct = query.direct_layers or tuple(table.layers)
    context = query.context_layers or tuple(table.layers)
    xs, ys = [x for x, _ in query.points], [y for _, y in query.points]
    focus = (min(xs), min(ys), max(xs), max(ys))
    causing = shapes_near(layout, table, focus, focus, direct, cell)
    if query.level == "first":
        found = causing
    else:
        around = _union([focus, *(_bbox(s.points) for s in causing)])
        known = set(causing)
        if query.level == "second":
            found = [s for s in shapes_near(layout, table, around, focus, context, cell) if s not in known]
        else:
            found = _outside(layout, table, around, focus, context, cell, query.stop)
    return QueryResult(query, cell.name, layout.dbu, len(found), tuple(found[query.start : query.stop]))


def _outside(
    layout: DRCLayout, table: RuleTable, around: Box, focus: Box, layers: tuple[str, ...], cell: kdb.Cell, enough: int
) -> list[FoundShape]:
    """Return the shapes that do not touch `around`, out to where there are `enough`."""
    reach = max(1, round(_THIRD_REACH_NM * 0.001 / layout.dbu))
    most = max(1, round(_MAX_REACH_NM * 0.001 / layout.dbu))
    while True:
        window = (around[0] - reach, around[1] - reach, around[2] + reach, around[3] + reach)
        found = [
            s for s in shapes_near(layout, table, window, focus, layers, cell) if _gap(_bbox(s.points), around) > 0
        ]
        if len(found) > enough or reach >= most:
            return found
        reach *= 2


def shapes_near(
    layout: DRCLayout,
    table: RuleTable,
    window: Box,
    focus: Box,
    layers: Iterable[str],
    cell: kdb.Cell | None = None,
    limit: int | None = None,
) -> list[FoundShape]:
    """Return the shapes whose bounding boxes touch a window, nearest to `focus` first.

    Args:
        layout: The layout.
        table: The rule table.
        window: Box (x1, y1, x2, y2), database units in the frame of `cell`.
        focus: Box from which distances are measured, likewise.
        layers: Layer names.
        cell: The cell to look at; None: the top cell.
        limit: Return so many at most; None: all.

    Returns:
        The shapes, by distance, then layer order and bounding box.
    """
    start = layout.top if cell is None else cell
    order = {name: i for i, name in enumerate(table.layers)}
    found: list[tuple[tuple[Any, ...], str, int, kdb.Shape, kdb.ICplxTrans]] = []
    box = kdb.Box(*window)
    for name in dict.fromkeys(layers):
        entry = table.layers[name]
        index = layout.layer_index(entry.layer, entry.datatype)
        if index is None:
            continue
        it = start.begin_shapes_rec_touching(index, box)
        it.shape_flags = kdb.Shapes.SRegions
        while not it.at_end():
            shape, trans = it.shape(), it.trans()
            b = shape.bbox().transformed(trans)
            place = (b.left, b.bottom, b.right, b.top)
            owner = it.cell_index()
            found.append(((_gap(place, focus), order[name], place, owner), name, owner, shape, trans))
            it.next()
    found.sort(key=lambda entry: entry[0])
    return [
        _found_shape(layout.layout, key[0], name, owner, shape, trans, owner == start.cell_index())
        for key, name, owner, shape, trans in found[:limit]
    ]


def _found_shape(
    layout: kdb.Layout, gap: float, name: str, owner: int, shape: kdb.Shape, trans: kdb.ICplxTrans, mine: bool
) -> FoundShape:
    polygon = shape.polygon
    own = _hull(polygon)
    points = own if mine else _hull(trans * polygon)
    return FoundShape(name, layout.cell(owner).name, points, gap, own, "" if mine else trans.to_s())


def _hull(polygon: kdb.Polygon) -> Points:
    if polygon.holes():
        polygon = polygon.resolved_holes()
    return tuple((p.x, p.y) for p in polygon.each_point_hull())


def _bbox(points: Points) -> Box:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return (min(xs), min(ys), max(xs), max(ys))


def _union(boxes: list[Box]) -> Box:
    return (min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes))


def _gap(a: Box, b: Box) -> float:
    dx = max(a[0] - b[2], b[0] - a[2], 0)
    dy = max(a[1] - b[3], b[1] - a[3], 0)
    return float((dx * dx + dy * dy) ** 0.5)


def _ring_text(points: Points) -> str:
    return " ".join(f"({x},{y})" for x, y in points)
