"""`Query`: a text query around a violation, as data with a JSON round trip (PostEDA-Bench, Appendix C.3).

Coordinates are integer database units in the frame of the queried cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edagym.errors import EditError
from edagym.spaces.drc_edits import MAX_COORD

LEVELS = ("first", "second", "third")
KINDS = ("polygon", "edge", "edge_pair")
PAGE = 20
"""Default number of shapes on a page."""
MAX_PAGE = 200
MAX_START = 100_000
MAX_POINTS = 64
"""Most points of a queried geometry."""

Points = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A text query: a charged action that changes nothing.

    Attributes:
        level: One of `LEVELS`.
        kind: One of `KINDS`: how `points` are to be read. An edge has two, an edge pair four.
        points: Geometry of the violation, database units, in the frame of `cell`.
        cell: Cell to look at; ``""``: the top cell.
        direct_layers: Layers whose shapes can cause the violation; empty: all.
        context_layers: Layers of the second and third level; empty: all.
        start: First shape of the page.
        stop: One past its last shape.
    """

    level: str
    kind: str
    points: Points
    cell: str = ""
    direct_layers: tuple[str, ...] = ()
    context_layers: tuple[str, ...] = ()
    start: int = 0
    stop: int = PAGE


def query_from_dict(data: Mapping[str, Any]) -> Query:
    """Parse the JSON form ``{"op": "query", "level": ..., ...}``.

    Raises:
        EditError: If it is malformed; the message names the field.
    """
    unknown = sorted(set(data) - {"op", *Query.__slots__})
    if unknown:
        raise EditError("unknown field", field=unknown[0], allowed=list(Query.__slots__))
    level, kind = _choice(data, "level", LEVELS, "first"), _choice(data, "kind", KINDS)
    points = data.get("points")
    if not isinstance(points, list | tuple) or not all(
        isinstance(p, list | tuple) and len(p) == 2 and all(type(v) is int and abs(v) <= MAX_COORD for v in p)
        for p in points
    ):
        raise EditError("malformed points", field="points", value=points, allowed="[[x, y], ...], database units")
    need = {"edge": (2, 2), "edge_pair": (4, 4), "polygon": (3, MAX_POINTS)}[kind]
    if not need[0] <= len(points) <= need[1]:
        raise EditError("wrong number of points", field="points", value=len(points), allowed=f"{need[0]}..{need[1]}")
    cell = data.get("cell", "")
    if not isinstance(cell, str) or not cell.isprintable():  # half characters would break the layout engine
        raise EditError("malformed cell", field="cell", value=cell, allowed="a cell name")
    start, stop = data.get("start", 0), data.get("stop", None)
    if stop is None and type(start) is int:
        stop = start + PAGE
    if type(start) is not int or type(stop) is not int or not 0 <= start < stop <= min(start + MAX_PAGE, MAX_START):
        raise EditError("bad page", field="start, stop", value=[start, stop], allowed=f"at most {MAX_PAGE} shapes")
    layers = {}
    for name in ("direct_layers", "context_layers"):
        value = data.get(name, ())
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise EditError("malformed layers", field=name, value=value, allowed="a list of layer names")
        layers[name] = tuple(value)
    return Query(level, kind, tuple((p[0], p[1]) for p in points), cell, **layers, start=start, stop=stop)


def query_to_dict(query: Query) -> dict[str, Any]:
    """Return the JSON form of a query."""
    return {
        "op": "query",
        "level": query.level,
        "kind": query.kind,
        "points": [list(p) for p in query.points],
        "cell": query.cell,
        "direct_layers": list(query.direct_layers),
        "context_layers": list(query.context_layers),
        "start": query.start,
        "stop": query.stop,
    }


def _choice(data: Mapping[str, Any], name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
    value = data.get(name, default)
    if not isinstance(value, str) or value not in allowed:
        raise EditError("unknown value", field=name, value=value, allowed=list(allowed))
    return value
