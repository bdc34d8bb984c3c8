"""The typed edits of the DRC family: pure data with a JSON round trip.

Coordinates are integers in the layout's native units, that is database units, as the second paper's tools have them
(PostEDA-Bench, Appendix C.3), in the frame of the cell that is edited: 0.25 nm in most ASAP7 layouts. Sign-off reports
are in micrometres: micrometres / dbu = native units.

An edit names the cell whose own shapes or instances it changes; "" is the top cell. Editing a master changes every
instance of it.

Points of a shape are numbered clockwise from the lowest one (the leftmost of several), and edge i runs from point i to
point i + 1; a box has edges 0 left, 1 top, 2 right, 3 bottom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edagym.errors import EditError

Point = tuple[int, int]
Points = tuple[Point, ...]
BoxPoints = tuple[int, int, int, int]

MAX_COORD = 2**29
"""Largest absolute coordinate, database units."""
MAX_POINTS = 256
"""Most points of one polygon."""

ORIENTATIONS = ("r0", "r90", "r180", "r270", "m0", "m45", "m90", "m135")
"""Rotation and mirroring of an instance in KLayout's notation and order."""


@dataclass(frozen=True, slots=True)
class AddShape:
    """Add a polygon.

    Attributes:
        layer: Layer name.
        points: Vertices in order, not closed.
        cell: Cell that gets the shape; "": the top cell.
    """

    layer: str
    points: Points
    cell: str = ""


@dataclass(frozen=True, slots=True)
class ShapeRef:
    """Names one shape of a layer in a cell, by exactly one of three ways.

    Attributes:
        points: Its outline; any start and direction.
        box: Its bounding box (x1, y1, x2, y2), if no other shape of the layer in that cell has the same.
        index: Its position among the layer's shapes in that cell, sorted by bounding box, then points.
    """

    points: Points | None = None
    box: BoxPoints | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Displace a shape."""

    dx: int
    dy: int


@dataclass(frozen=True, slots=True)
class MoveEdge:
    """Displace one edge of a shape along its normal; a positive distance makes the shape larger."""

    edge: int
    distance: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Displace the four sides of a box; positive amounts make it larger."""

    left: int
    bottom: int
    right: int
    top: int


@dataclass(frozen=True, slots=True)
class Replace:
    """Give a shape another outline."""

    points: Points


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a shape."""


Change = Move | MoveEdge | Resize | Replace | Delete


@dataclass(frozen=True, slots=True)
class ChangeShape:
    """Change one polygon, box or path; its layer and properties stay. A path that is reshaped becomes a polygon.

    Attributes:
        layer: Layer name.
        shape: Which shape.
        change: What happens to it.
        cell: Cell that holds the shape; "": the top cell.
    """

    layer: str
    shape: ShapeRef
    change: Change
    cell: str = ""


@dataclass(frozen=True, slots=True)
class MoveCell:
    """Displace one instance of a cell (an array as a whole).

    Attributes:
        cell: Name of the placed cell.
        at: The instance's displacement before.
        by: How far it moves in x and y.
        orientation: One of `ORIENTATIONS`, where several instances of the cell lie at `at`; "": any.
        parent: Cell that holds the instance; "": the top cell.
    """

    cell: str
    at: Point
    by: Point
    orientation: str = ""
    parent: str = ""


DRCEdit = AddShape | ChangeShape | MoveCell

OPS = ("add_shape", "change_shape", "move_cell")
CHANGES: dict[str, type] = {
    "move": Move,
    "move_edge": MoveEdge,
    "resize": Resize,
    "replace": Replace,
    "delete": Delete,
}
_CHANGE_NAMES = {cls: name for name, cls in CHANGES.items()}

_FIELDS = {
    "add_shape": ("op", "layer", "points", "box", "cell"),
    "change_shape": ("op", "layer", "shape", "change", "by", "edge", "points", "box", "cell"),
    "move_cell": ("op", "cell", "at", "by", "orientation", "parent"),
}
_CHANGE_FIELDS = {
    "move": ("by",),
    "move_edge": ("edge", "by"),
    "resize": ("by",),
    "replace": ("points", "box"),
    "delete": (),
}


def box_points(box: BoxPoints) -> Points:
    """Return the vertices of a box (x1, y1, x2, y2), clockwise from the lower left."""
    x1, y1, x2, y2 = box
    return ((x1, y1), (x1, y2), (x2, y2), (x2, y1))


def points_box(points: Points) -> BoxPoints | None:
    """Return the box (x1, y1, x2, y2) that four points outline in any order around it, or None."""
    if len(points) != 4:
        return None
    xs, ys = sorted({x for x, _ in points}), sorted({y for _, y in points})
    if len(xs) != 2 or len(ys) != 2:
        return None
    box = (xs[0], ys[0], xs[1], ys[1])
    around = box_points(box)
    start = around.index(points[0])
    ring = around[start:] + around[:start]
    return box if points in (ring, (ring[0], *ring[:0:-1])) else None


# -- JSON ----------------------------------------------------------------------------------------------------------


def drc_edit_to_json(edit: DRCEdit) -> dict[str, Any]:
    """Return an edit as a JSON-ready object.

    ``{"op": "add_shape", "layer": "M2", "box": [x1, y1, x2, y2]}``,
    ``{"op": "change_shape", "layer": "M2", "shape": {"box": [..]}, "change": "move_edge", "edge": 2, "by": 8}``,
    ``{"op": "move_cell", "cell": "VIA12", "at": [x, y], "by": [dx, dy]}``; fields at their defaults are left out.
    """
    if isinstance(edit, AddShape):
        return {"op": "add_shape", "layer": edit.layer, **_outline(edit.points), **_optional(cell=edit.cell)}
    if isinstance(edit, MoveCell):
        optional = _optional(orientation=edit.orientation, parent=edit.parent)
        return {"op": "move_cell", "cell": edit.cell, "at": list(edit.at), "by": list(edit.by), **optional}
    shape: dict[str, Any] = {}
    if edit.shape.points is not None:
        shape["points"] = [list(p) for p in edit.shape.points]
    if edit.shape.box is not None:
        shape["box"] = list(edit.shape.box)
    if edit.shape.index is not None:
        shape["index"] = edit.shape.index
    change = edit.change
    out: dict[str, Any] = {
        "op": "change_shape",
        "layer": edit.layer,
        "shape": shape,
        "change": _CHANGE_NAMES[type(change)],
    }
    if isinstance(change, Move):
        out["by"] = [change.dx, change.dy]
    elif isinstance(change, MoveEdge):
        out |= {"edge": change.edge, "by": change.distance}
    elif isinstance(change, Resize):
        out["by"] = [change.left, change.bottom, change.right, change.top]
    elif isinstance(change, Replace):
        out |= _outline(change.points)
    return {**out, **_optional(cell=edit.cell)}


def _outline(points: Points) -> dict[str, Any]:
    box = points_box(points)
    return {"points": [list(p) for p in points]} if box is None else {"box": list(box)}


def _optional(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def drc_edit_from_json(data: Any) -> DRCEdit:
    """Parse the JSON form of an edit.

    Args:
        data: The object made by `drc_edit_to_json`, or an agent's imitation of it. Whole numbers may be written as
            floats; a fraction of a database unit is off the grid and refused.

    Raises:
        EditError: If the object is not an edit; names the field, the value and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise EditError("an edit is a JSON object", field="edit", value=data, allowed=f"an object with op in {OPS}")
    op = data.get("op")
    if not isinstance(op, str) or op not in OPS:
        raise EditError("unknown operation", field="op", value=op, allowed=OPS)
    _only(data, _FIELDS[op], "")
    if op == "move_cell":
        orientation = _text(data, "orientation", "")
        if orientation and orientation not in ORIENTATIONS:
            raise EditError("unknown orientation", field="orientation", value=orientation, allowed=ORIENTATIONS)
        at, by = _numbers(data.get("at"), "at", 2), _numbers(data.get("by"), "by", 2)
        return MoveCell(_text(data, "cell"), (at[0], at[1]), (by[0], by[1]), orientation, _text(data, "parent", ""))
    layer, cell = _text(data, "layer"), _text(data, "cell", "")
    if op == "add_shape":
        return AddShape(layer, _shape_points(data, ""), cell)
    name = data.get("change")
    if not isinstance(name, str) or name not in CHANGES:
        raise EditError("unknown change", field="change", value=name, allowed=sorted(CHANGES))
    _only(data, ("op", "layer", "cell", "shape", "change", *_CHANGE_FIELDS[name]), "")
    return ChangeShape(layer, _shape_ref(data.get("shape")), _change(name, data), cell)


def _change(name: str, data: Mapping[str, Any]) -> Change:
    if name == "move":
        dx, dy = _numbers(data.get("by"), "by", 2)
        return Move(dx, dy)
    if name == "move_edge":
        return MoveEdge(_index(data.get("edge"), "edge"), _number(data.get("by"), "by"))
    if name == "resize":
        left, bottom, right, top = _numbers(data.get("by"), "by", 4)
        return Resize(left, bottom, right, top)
    if name == "replace":
        return Replace(_shape_points(data, ""))
    return Delete()


def _shape_ref(value: Any) -> ShapeRef:
    ways = ("points", "box", "index")
    if not isinstance(value, Mapping):
        raise EditError("shape must be an object", field="shape", value=value, allowed=f"one of {ways}")
    _only(value, ways, "shape.")
    if sum(value.get(w) is not None for w in ways) != 1:
        raise EditError("name a shape by exactly one way", field="shape", value=dict(value), allowed=f"one of {ways}")
    if value.get("index") is not None:
        return ShapeRef(index=_index(value["index"], "shape.index"))
    if value.get("box") is not None:
        x1, y1, x2, y2 = _numbers(value["box"], "shape.box", 4)
        return ShapeRef(box=(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)))
    return ShapeRef(points=_shape_points(value, "shape."))


def _shape_points(data: Mapping[str, Any], prefix: str) -> Points:
    if (data.get("box") is None) == (data.get("points") is None):
        field = f"{prefix}points"
        raise EditError("give points or a box", field=field, value=data.get("points"), allowed="[[x, y], ...] or box")
    if data.get("box") is not None:
        x1, y1, x2, y2 = _numbers(data["box"], f"{prefix}box", 4)
        return box_points((min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)))
    points = data["points"]
    if not isinstance(points, list | tuple):
        raise EditError(
            "points must be a list of [x, y]", field=f"{prefix}points", value=points, allowed="[[x, y], ...]"
        )
    if len(points) > MAX_POINTS:
        raise EditError("too many points", field=f"{prefix}points", value=len(points), allowed=f"<= {MAX_POINTS}")
    pairs = (_numbers(p, f"{prefix}points[{i}]", 2) for i, p in enumerate(points))
    return tuple((x, y) for x, y in pairs)


def _only(data: Mapping[str, Any], allowed: tuple[str, ...], prefix: str) -> None:
    unknown = sorted(str(k) for k in data if k not in allowed)
    if unknown:
        raise EditError("unknown field", field=prefix + unknown[0], value=data.get(unknown[0]), allowed=allowed)


def _text(data: Mapping[str, Any], field: str, default: str | None = None) -> str:
    value = data.get(field, default)
    if not isinstance(value, str) or (default is None and not value):
        raise EditError(f"{field} must be a name", field=field, value=value, allowed="a name")
    return value


def _numbers(value: Any, field: str, n: int) -> list[int]:
    if not isinstance(value, list | tuple) or len(value) != n:
        raise EditError(f"expected {n} numbers", field=field, value=value, allowed=f"a list of {n} database units")
    return [_number(v, f"{field}[{i}]") for i, v in enumerate(value)]


def _number(value: Any, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EditError("not a number", field=field, value=value, allowed="an integer, in database units")
    if isinstance(value, float) and not (math.isfinite(value) and value.is_integer()):
        raise EditError("off the grid", field=field, value=value, allowed="an integer, in database units")
    if abs(value) > MAX_COORD:
        raise EditError("number too large", field=field, value=value, allowed=f"-{MAX_COORD}..{MAX_COORD}")
    return int(value)


def _index(value: Any, field: str) -> int:
    number = _number(value, field)
    if number < 0:
        raise EditError("must not be negative", field=field, value=value, allowed=">= 0")
    return number
