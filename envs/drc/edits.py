"""Applying typed edits to a layout: validation, where the layout changed, undo and snapshots.

`LayoutEditor.apply` changes a `DRCLayout` in place or raises an `EditError` and leaves it as it was. Refused are:
unknown layers and cells (labels, pins and outlines lie on other layers and cannot be named); shapes and instances that
are not there; outlines that are not Manhattan, touch or cross themselves, or have no area, since the rules measure only
edges along x and y; whatever leaves the die in any instance; and edits that change nothing.

All coordinates are integer database units, in the frame of the edited cell; dirty boxes are in the top cell's frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import klayout.db as kdb

from edagym.errors import EditError
from edagym.spaces.drc_edits import (
    MAX_COORD,
    MAX_POINTS,
    ORIENTATIONS,
    AddShape,
    ChangeShape,
    Delete,
    DRCEdit,
    Move,
    MoveCell,
    MoveEdge,
    Points,
    Replace,
    Resize,
    ShapeRef,
)
from edagym.verifiers.drc.diff import placements
from edagym.verifiers.drc.guards import die_box
from edagym.verifiers.drc.incremental import ShapeChange
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box
from edagym.verifiers.drc.rules import RuleTable

_NEAREST = 5
"""Existing shapes or instances that an error message names when none fits."""

ShapeValue = kdb.Box | kdb.Path | kdb.SimplePolygon | kdb.Polygon


@dataclass(frozen=True, slots=True)
class Applied:
    """Where an edit (or its undoing) changed a layout.

    Attributes:
        edit: The edit.
        cell: The cell whose own shapes or instances changed.
        layers: Names of the rule table's layers on which geometry may differ.
        boxes: Boxes (x1, y1, x2, y2) in the top cell's frame that hold all differences: before and after in one box
            for each flat instance of `cell`.
        master: Whether `cell` is not the top cell, so that all its instances changed.
        change: The shapes that were removed and added, for edits of the top cell's shapes.
    """

    edit: DRCEdit
    cell: str
    layers: frozenset[str]
    boxes: tuple[Box, ...]
    master: bool
    change: ShapeChange | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """One applied edit with its inverse: shapes (value, properties) or an instance's transformation."""

    applied: Applied
    cell: int
    layer: int = -1
    before: tuple[ShapeValue, int] | None = None
    after: tuple[ShapeValue, int] | None = None
    child: int = -1
    trans: tuple[kdb.Trans, kdb.Trans] | None = None


class LayoutEditor:
    """Edits a layout in place and remembers how to take edits back.

    Args:
        layout: The layout; change it only through this editor.
        table: The rules; their layers are the ones that may be edited.
        die: Box in which all geometry has to stay, top cell's frame; None: `die_box` of the layout.
    """

    def __init__(self, layout: DRCLayout, table: RuleTable, die: kdb.Box | None = None) -> None:
        self.layout = layout
        self.table = table
        self.die = die_box(layout) if die is None else die
        self._log: list[_Entry] = []

    # -- applying and taking back ----------------------------------------------------------------------------------

    @property
    def edits(self) -> tuple[DRCEdit, ...]:
        """All applied edits, oldest first: with the initial layout, a complete snapshot as plain data."""
        return tuple(entry.applied.edit for entry in self._log)

    @property
    def applied(self) -> tuple[Applied, ...]:
        """Where the applied edits changed the layout, oldest first."""
        return tuple(entry.applied for entry in self._log)

    def apply(self, edit: DRCEdit) -> Applied:
        """Apply one edit.

        Raises:
            EditError: If the edit is refused; names field, value and what is allowed. The layout is as it was.
        """
        try:
            entry = self._entry(edit)
        except (TypeError, ValueError, AttributeError, LookupError, OverflowError, RuntimeError) as e:
            # Edits that were not read from JSON may hold anything: NaN, infinities, text for numbers.
            raise EditError(f"malformed edit ({e})", field="edit", value=repr(edit)[:200]) from e
        self._do(entry, forward=True)
        self._log.append(entry)
        return entry.applied

    def _entry(self, edit: DRCEdit) -> _Entry:
        if isinstance(edit, MoveCell):
            return self._move_cell(edit)
        return self._add_shape(edit) if isinstance(edit, AddShape) else self._change_shape(edit)

    def undo(self) -> Applied:
        """Take the last edit back and return where the layout changed.

        Raises:
            EditError: If there is nothing to undo.
        """
        if not self._log:
            raise EditError("there is no edit to undo", field="undo", value=0)
        entry = self._log.pop()
        self._do(entry, forward=False)
        change = entry.applied.change
        if change is None:
            return entry.applied
        return replace(entry.applied, change=ShapeChange(change.layer, change.added, change.removed))

    def restore(self, edits: Sequence[DRCEdit]) -> list[Applied]:
        """Bring the layout to the state after `edits`, an earlier value of `edits` of this or an equal editor.

        Returns:
            Where the layout changed, in order.

        Raises:
            EditError: If one of the edits does not fit the layout; those before it are applied.
        """
        common = 0
        for entry, edit in zip(self._log, edits):
            if entry.applied.edit != edit:
                break
            common += 1
        changes = [self.undo() for _ in range(len(self._log) - common)]
        return changes + [self.apply(edit) for edit in edits[common:]]

    def _do(self, entry: _Entry, forward: bool) -> None:
        cell = self.layout.layout.cell(entry.cell)
        if entry.trans is not None:
            source, target = entry.trans if forward else entry.trans[::-1]
            child = self.layout.layout.cell(entry.child)
            (instance, *_) = (i for i in _instances_at(cell, child, source.disp) if i.trans == source)
            instance.trans = target
            return
        shapes = cell.shapes(entry.layer)
        source_shape, target_shape = (entry.before, entry.after) if forward else (entry.after, entry.before)
        old = None if source_shape is None else _find_value(shapes, *source_shape)
        if old is None:
            assert target_shape is not None
            _insert(shapes, *target_shape)
        elif target_shape is None:
            shapes.erase(old)
        else:
            shapes.replace(old, target_shape[0])

    # -- shapes ----------------------------------------------------------------------------------------------------

    def _add_shape(self, edit: AddShape) -> _Entry:
        cell, gds = self._cell(edit.cell, "cell"), self._gds(edit.layer)
        value = _value(edit.points, "points")
        applied = self._with_shapes(self._applied(edit, cell, {edit.layer}, value.bbox()), None, value)
        return _Entry(applied, cell.cell_index(), self.layout.layout.layer(*gds), None, (value, 0))

    def _change_shape(self, edit: ChangeShape) -> _Entry:
        cell, gds = self._cell(edit.cell, "cell"), self._gds(edit.layer)
        layer = self.layout.layer_index(*gds)
        if layer is None:
            raise EditError("the layer has no shapes", field="layer", value=edit.layer)
        shape = _find(cell.shapes(layer), edit.shape)
        before = _shape_value(shape)
        after = _changed(before, edit)
        if after is not None and _polygon(after) == _polygon(before):
            raise EditError("the change leaves the shape as it is", field="change", value=edit.change)
        box = before.bbox() if after is None else before.bbox() + after.bbox()
        applied = self._applied(edit, cell, {edit.layer}, box, None if after is None else after.bbox())
        applied = self._with_shapes(applied, before, after)
        properties = shape.prop_id
        return _Entry(
            applied,
            cell.cell_index(),
            layer,
            (before, properties),
            None if after is None else (after, properties),
        )

    @staticmethod
    def _with_shapes(applied: Applied, before: ShapeValue | None, after: ShapeValue | None) -> Applied:
        """Add the shapes themselves to what is known about an edit of the top cell."""
        if applied.master:
            return applied
        (layer,) = applied.layers
        removed, added = (() if v is None else (_polygon(v),) for v in (before, after))
        return replace(applied, change=ShapeChange(layer, removed, added))

    def _gds(self, name: str) -> tuple[int, int]:
        entry = self.table.layers.get(name)
        if entry is None:
            raise EditError("unknown layer", field="layer", value=name, allowed=list(self.table.layers))
        return (entry.layer, entry.datatype)

    def _cell(self, name: str, field: str) -> kdb.Cell:
        if not name:
            return self.layout.top
        cell = self.layout.layout.cell(name)
        if cell is None:
            names = sorted(c.name for c in self.layout.layout.each_cell())
            raise EditError("unknown cell", field=field, value=name, allowed=names[:100])
        return cell

    # -- instances -------------------------------------------------------------------------------------------------

    def _move_cell(self, edit: MoveCell) -> _Entry:
        parent, child = self._cell(edit.parent, "parent"), self._cell(edit.cell, "cell")
        if edit.by == (0, 0):
            raise EditError("the instance does not move", field="by", value=edit.by)
        if max(map(abs, (*edit.at, *edit.by))) > MAX_COORD:
            raise EditError("displacement too large", field="by", value=edit.by, allowed=f"-{MAX_COORD}..{MAX_COORD}")
        instance = _find_instance(parent, child, edit)
        before = instance.trans
        after = kdb.Trans(kdb.Vector(*edit.by)) * before
        was = instance.bbox()
        becomes = was.moved(*edit.by)
        layers = {
            name
            for name, entry in self.table.layers.items()
            if (index := self.layout.layer_index(entry.layer, entry.datatype)) is not None
            and not child.bbox(index).empty()
        }
        applied = self._applied(edit, parent, layers, was + becomes, becomes)
        return _Entry(applied, parent.cell_index(), child=child.cell_index(), trans=(before.dup(), after))

    # -- places ----------------------------------------------------------------------------------------------------

    def _applied(
        self, edit: DRCEdit, cell: kdb.Cell, layers: Iterable[str], box: kdb.Box, result: kdb.Box | None = None
    ) -> Applied:
        """Describe an edit's place; raises if what it draws (`result`; None: all of `box`) leaves the die."""
        found = placements(self.layout.layout, self.layout.top, cell.name)
        drawn = box if result is None else result
        if not isinstance(edit, ChangeShape) or not isinstance(edit.change, Delete):
            for trans in found:
                if not (trans * drawn).inside(self.die):
                    raise EditError(
                        "outside the die",
                        field="points" if isinstance(edit, AddShape) else "by",
                        value=str(trans * drawn),
                        allowed=f"inside {self.die} (top cell)",
                    )
        boxes = (trans * box for trans in found)
        return Applied(
            edit,
            cell.name,
            frozenset(layers),
            tuple((b.left, b.bottom, b.right, b.top) for b in boxes),
            cell.cell_index() != self.layout.top.cell_index(),
        )


# -- outlines ------------------------------------------------------------------------------------------------------


def _value(points: Points, field: str) -> ShapeValue:
    """Return checked points as a KLayout shape: a box if they outline one.

    Raises:
        EditError: If they are no simple Manhattan polygon of positive area.
    """
    if len(points) > MAX_POINTS:
        raise EditError("too many points", field=field, value=len(points), allowed=f"<= {MAX_POINTS}")
    for i, (x, y) in enumerate(points):
        if not (isinstance(x, int) and isinstance(y, int)):
            raise EditError("off the grid", field=f"{field}[{i}]", value=(x, y), allowed="integers, in database units")
        if max(abs(x), abs(y)) > MAX_COORD:
            raise EditError("point too far away", field=f"{field}[{i}]", value=(x, y), allowed=f"+-{MAX_COORD}")
    ring = _corners(points)
    edges = list(zip(ring, (*ring[1:], *ring[:1])))
    for (x1, y1), (x2, y2) in edges:
        if x1 != x2 and y1 != y2:
            text = "an edge that is neither horizontal nor vertical"
            raise EditError(text, field=field, value=((x1, y1), (x2, y2)), allowed="Manhattan polygons")
    if len(ring) < 4:
        raise EditError("a shape of zero area", field=field, value=points, allowed="at least 4 corners")
    if len(ring) > 4:
        _check_simple(edges, field)
    polygon = kdb.Polygon([kdb.Point(x, y) for x, y in ring])
    if polygon.area() == 0 or (len(ring) == 4 and not polygon.is_box()):
        raise EditError("a shape of zero area", field=field, value=points, allowed="a positive area")
    return polygon.bbox() if polygon.is_box() else kdb.SimplePolygon([kdb.Point(x, y) for x, y in ring])


def _corners(points: Points) -> list[tuple[int, int]]:
    """Drop repeated points and points on straight stretches."""
    ring: list[tuple[int, int]] = []
    for p in points:
        if not ring or p != ring[-1]:
            ring.append(p)
    while len(ring) > 1 and ring[0] == ring[-1]:
        ring.pop()
    n = len(ring)

    def straight(i: int) -> bool:
        (ax, ay), (bx, by), (cx, cy) = ring[i - 1], ring[i], ring[(i + 1) % n]
        turn = (bx - ax) * (cy - by) - (by - ay) * (cx - bx)
        return turn == 0 and (bx - ax) * (cx - bx) + (by - ay) * (cy - by) > 0

    return [p for i, p in enumerate(ring) if not straight(i)]


def _check_simple(edges: Sequence[tuple[tuple[int, int], tuple[int, int]]], field: str) -> None:
    """Refuse outlines that touch or cross themselves. Axis-parallel edges meet exactly where their boxes do."""
    boxes = [(min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1])) for a, b in edges]
    n = len(boxes)
    for i in range(n):
        for j in range(i + 1, n):
            a, b = boxes[i], boxes[j]
            if not (a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]):
                continue
            neighbours = j == i + 1 or (i == 0 and j == n - 1)
            # Neighbours share their corner; more than that means that the outline runs back on itself.
            if not neighbours or (a[0] == a[2]) == (b[0] == b[2]):
                raise EditError("the outline touches or crosses itself", field=field, value=(edges[i], edges[j]))


def _polygon(value: ShapeValue) -> kdb.Polygon:
    if isinstance(value, kdb.Polygon):
        return value
    if isinstance(value, kdb.SimplePolygon):
        return kdb.Polygon(list(value.each_point()))
    return kdb.Polygon(value) if isinstance(value, kdb.Box) else value.polygon()


def hull(polygon: kdb.Polygon) -> Points:
    """Return the corners of a polygon's hull, numbered as `edagym.spaces.drc_edits` says."""
    return tuple((p.x, p.y) for p in polygon.each_point_hull())


def _changed(before: ShapeValue, edit: ChangeShape) -> ShapeValue | None:
    change = edit.change
    if isinstance(change, Delete):
        return None
    if isinstance(change, Move):
        if max(abs(change.dx), abs(change.dy)) > MAX_COORD:
            raise EditError(
                "displacement too large", field="by", value=(change.dx, change.dy), allowed=f"+-{MAX_COORD}"
            )
        return before.moved(change.dx, change.dy)
    if isinstance(change, Replace):
        return _value(change.points, "points")
    polygon = _polygon(before)
    if isinstance(change, Resize):
        if not polygon.is_box():
            text = "only boxes can be resized; move an edge or replace the outline"
            raise EditError(text, field="change", value="resize", allowed=["move", "move_edge", "replace", "delete"])
        box = polygon.bbox()
        x1, y1, x2, y2 = (
            box.left - change.left,
            box.bottom - change.bottom,
            box.right + change.right,
            box.top + change.top,
        )
        if x1 >= x2 or y1 >= y2:
            raise EditError("nothing would be left of the shape", field="by", value=change, allowed="a positive area")
        return _value(((x1, y1), (x1, y2), (x2, y2), (x2, y1)), "by")
    return _value(_edge_moved(hull(polygon), change), "by")


def _edge_moved(points: Points, change: MoveEdge) -> Points:
    n, i = len(points), change.edge
    if not 0 <= i < n:
        raise EditError("no such edge", field="edge", value=i, allowed=f"0..{n - 1}")
    (x1, y1), (x2, y2) = points[i], points[(i + 1) % n]
    if x1 != x2 and y1 != y2:
        raise EditError("only horizontal and vertical edges can be moved", field="edge", value=i)
    # Clockwise outlines have their outside on the left of the direction of travel.
    sx, sy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    dx, dy = -sy * change.distance, sx * change.distance
    moved = list(points)
    moved[i] = (x1 + dx, y1 + dy)
    moved[(i + 1) % n] = (x2 + dx, y2 + dy)
    # An edge pushed past its opposite one turns the outline over: such a shape has vanished.
    if _area2(moved) >= 0:
        raise EditError("nothing would be left of the shape", field="by", value=change.distance)
    return tuple(moved)


def _area2(points: Sequence[tuple[int, int]]) -> int:
    """Twice the signed area; negative for clockwise outlines."""
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(points, (*points[1:], points[0])))


# -- finding things ------------------------------------------------------------------------------------------------


def shape_polygons(cell: kdb.Cell, layer: int) -> list[kdb.Polygon]:
    """Return a layer's own polygons, boxes and paths in a cell, in the order that `ShapeRef.index` counts."""
    return [_polygon(_shape_value(s)) for s in _sorted_shapes(cell.shapes(layer))]


def _sorted_shapes(shapes: kdb.Shapes) -> list[kdb.Shape]:
    keyed = []
    for shape in shapes.each(kdb.Shapes.SRegions):
        box = shape.bbox()
        keyed.append(((box.left, box.bottom, box.right, box.top), str(_polygon(_shape_value(shape))), shape))
    keyed.sort(key=lambda k: k[:2])
    return [k[2] for k in keyed]


def _shape_value(shape: kdb.Shape) -> ShapeValue:
    if shape.is_box():
        return shape.box
    if shape.is_path():
        return shape.path
    return shape.simple_polygon if shape.is_simple_polygon() else shape.polygon


def _find(shapes: kdb.Shapes, ref: ShapeRef) -> kdb.Shape:
    if ref.index is not None:
        found = _sorted_shapes(shapes)
        if not 0 <= ref.index < len(found):
            raise EditError("no such shape", field="shape.index", value=ref.index, allowed=f"0..{len(found) - 1}")
        return found[ref.index]
    if ref.box is not None:
        wanted = kdb.Box(*ref.box)
        found = [s for s in shapes.each_touching(kdb.Shapes.SRegions, wanted) if s.bbox() == wanted]
        outlines = {str(_polygon(_shape_value(s))) for s in found}
        if len(outlines) > 1:
            text = "several shapes have this bounding box; name one by its points"
            raise EditError(text, field="shape.box", value=ref.box, allowed=sorted(outlines)[:_NEAREST])
        if not found:
            raise _no_shape(shapes, wanted, "shape.box", ref.box)
        return found[0]
    polygon = _polygon(_value(ref.points or (), "shape.points"))
    for shape in shapes.each_touching(kdb.Shapes.SRegions, polygon.bbox()):
        if _polygon(_shape_value(shape)) == polygon:
            return shape
    raise _no_shape(shapes, polygon.bbox(), "shape.points", ref.points)


def _no_shape(shapes: kdb.Shapes, wanted: kdb.Box, field: str, value: Any) -> EditError:
    center = wanted.center()
    boxes = [s.bbox() for s in shapes.each(kdb.Shapes.SRegions)]
    boxes.sort(key=lambda b: (b.center().sq_distance(center), str(b)))
    nearest = [(b.left, b.bottom, b.right, b.top) for b in boxes[:_NEAREST]]
    return EditError("no such shape", field=field, value=value, allowed=f"nearest boxes: {nearest}")


def _find_instance(parent: kdb.Cell, child: kdb.Cell, edit: MoveCell) -> kdb.Instance:
    found = _instances_at(parent, child, kdb.Vector(*edit.at))
    if edit.orientation:
        found = [i for i in found if ORIENTATIONS[i.trans.rot] == edit.orientation]
    names = {ORIENTATIONS[i.trans.rot] for i in found}
    if len(names) > 1:
        text = "several instances lie there; name the orientation"
        raise EditError(text, field="orientation", value=edit.orientation, allowed=sorted(names))
    if not found:
        placed = [i for i in parent.each_inst() if i.cell_index == child.cell_index()]
        placed.sort(key=lambda i: (abs(i.trans.disp.x - edit.at[0]) + abs(i.trans.disp.y - edit.at[1]), str(i.trans)))
        nearest = [(i.trans.disp.x, i.trans.disp.y, ORIENTATIONS[i.trans.rot]) for i in placed[:_NEAREST]]
        raise EditError("no such instance", field="at", value=edit.at, allowed=f"nearest: {nearest}")
    return found[0]


def _instances_at(parent: kdb.Cell, child: kdb.Cell, at: kdb.Vector) -> list[kdb.Instance]:
    """Return the instances of a cell at a displacement."""
    box = child.bbox()
    if box.empty():
        candidates = parent.each_inst()
    else:
        reach = max(map(abs, (box.left, box.bottom, box.right, box.top)))
        # Whatever its orientation, an instance lies within this square.
        around = kdb.Box(at.x - reach, at.y - reach, at.x + reach, at.y + reach)
        candidates = parent.each_touching_inst(around)
    return [i for i in candidates if i.cell_index == child.cell_index() and i.trans.disp == at]


def _find_value(shapes: kdb.Shapes, value: ShapeValue, properties: int) -> kdb.Shape:
    """Find a shape of known value; it is there, because the log says so."""
    for shape in shapes.each_touching(kdb.Shapes.SRegions, value.bbox()):
        if shape.prop_id == properties:
            other = _shape_value(shape)
            if type(other) is type(value) and other == value:
                return shape
    raise LookupError(f"the layout was changed behind the editor's back: {value} is gone")


def _insert(shapes: kdb.Shapes, value: ShapeValue, properties: int) -> None:
    if properties:
        shapes.insert(value, properties)
    else:
        shapes.insert(value)
