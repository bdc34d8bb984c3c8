"""The typed edits of the FET family: pure data with a JSON round trip. Coordinates and widths in micrometres."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edagym.errors import EditError

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class AddPolygon:
    """Add a filled polygon.

    Attributes:
        layer: Layer name.
        points: Vertices in um, in order, not closed.
    """

    layer: str
    points: Points


@dataclass(frozen=True, slots=True)
class AddPath:
    """Add a path with flat ends.

    Attributes:
        layer: Layer name.
        points: Centre line in um.
        width: Full width in um.
    """

    layer: str
    points: Points
    width: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Subtract a polygon from everything drawn on a layer.

    Attributes:
        layer: Layer name.
        points: Vertices in um, in order, not closed.
    """

    layer: str
    points: Points


@dataclass(frozen=True, slots=True)
class Clear:
    """Remove everything drawn on a layer.

    Attributes:
        layer: Layer name.
    """

    layer: str


Edit = AddPolygon | AddPath | Cut | Clear

OPS: dict[str, type] = {"add_polygon": AddPolygon, "add_path": AddPath, "cut": Cut, "clear": Clear}
OP_NAMES: dict[type, str] = {cls: name for name, cls in OPS.items()}


def edit_to_json(edit: Edit) -> dict[str, Any]:
    """Return an edit as a JSON-ready object: ``{"op": "add_path", "layer": n, "points": [[x, y], ..], "width": w}``."""
    out: dict[str, Any] = {"op": OP_NAMES[type(edit)], "layer": edit.layer}
    if not isinstance(edit, Clear):
        out["points"] = [[x, y] for x, y in edit.points]
    if isinstance(edit, AddPath):
        out["width"] = edit.width
    return out


def edit_from_json(data: Any) -> Edit:
    """Parse the JSON form of an edit.

    Args:
        data: The object made by `edit_to_json`, or an agent's imitation of it.

    Raises:
        EditError: If the object is not an edit; names the field, the value and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise EditError("an edit is a JSON object", field="edit", value=data, allowed="{op, layer, points, width}")
    op = data.get("op")
    if not isinstance(op, str) or op not in OPS:
        raise EditError("unknown operation", field="op", value=op, allowed=sorted(OPS))
    layer = data.get("layer")
    if not isinstance(layer, str):
        raise EditError("layer must be a name", field="layer", value=layer, allowed="a layer name")
    if op == "clear":
        return Clear(layer)
    points = _points(data.get("points"))
    if op == "add_path":
        return AddPath(layer, points, _number(data.get("width"), "width"))
    return OPS[op](layer, points)


def _points(value: Any) -> Points:
    if not isinstance(value, list | tuple):
        raise EditError("points must be a list of [x, y]", field="points", value=value, allowed="[[x, y], ...] in um")
    points = []
    for i, p in enumerate(value):
        if not isinstance(p, list | tuple) or len(p) != 2:
            raise EditError("a point is [x, y]", field=f"points[{i}]", value=p, allowed="two numbers in um")
        points.append((_number(p[0], f"points[{i}][0]"), _number(p[1], f"points[{i}][1]")))
    return tuple(points)


def _number(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EditError("not a number", field=field, value=value, allowed="a finite number in um")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise EditError("not finite", field=field, value=value, allowed="a finite number in um")
    return number
