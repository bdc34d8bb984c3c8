"""`DRCActionSpace`: one typed edit, query or command of the DRC family as a fixed-shape action.

An action names a shape in two ways: by pointing at an entry of the observation's list of nearby shapes (`target`), or
by the explicit fields that `drc_edits.ShapeRef` has. Likewise a query points at a listed violation (`violation`) or
gives its geometry. `ActionContext` holds those lists; every action that `from_edit` makes is explicit, so that it means
the same whatever is listed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from edagym.errors import EditError
from edagym.spaces.actions import Command
from edagym.spaces.drc_edits import (
    CHANGES,
    MAX_COORD,
    MAX_POINTS,
    ORIENTATIONS,
    AddShape,
    Change,
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
    drc_edit_from_json,
    drc_edit_to_json,
)
from edagym.spaces.drc_queries import KINDS, LEVELS, MAX_PAGE, MAX_START, PAGE, Query, query_from_dict, query_to_dict
from edagym.spaces.drc_queries import MAX_POINTS as MAX_QUERY_POINTS
from edagym.spaces.json_schema import action_schema, closed_object, fixed_list

DRCAction = DRCEdit | Query | Command

OPERATIONS = ("add_shape", "change_shape", "move_cell", "query", "check", "submit")
CHANGE_NAMES = tuple(CHANGES)
REFERENCES = ("points", "box", "index")
MAX_LAYERS = 96
MAX_CELLS = 1024
"""Rows of the cell table; row 0 is the top cell."""
MAX_VIOLATIONS = 64
MAX_SHAPES = 128
MAX_SHAPE_INDEX = 10_000_000

_COMMANDS = {"check": Command.VERIFY, "submit": Command.SUBMIT}
_COMMAND_NAMES = {command: name for name, command in _COMMANDS.items()}


@dataclass(frozen=True, slots=True)
class NearbyShape:
    """A listed shape: where it can be edited.

    Attributes:
        layer: Layer name.
        cell: Cell that owns it; ``""``: the top cell.
        points: Its outline in that cell's frame, database units.
    """

    layer: str
    cell: str
    points: Points


@dataclass(frozen=True, slots=True)
class ListedViolation:
    """A listed violation: what a query about it asks.

    Attributes:
        cell: Cell in whose frame the points are; ``""``: the top cell.
        kind: One of `KINDS`.
        points: Its geometry, database units.
        layers: Layers that its rule reads.
    """

    cell: str
    kind: str
    points: Points
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActionContext:
    """The tables that actions point into.

    Attributes:
        layers: Layer names in table order.
        cells: Cell names; the first is ``""``, the top cell.
        shapes: The observation's nearby shapes.
        violations: The observation's violations.
    """

    layers: tuple[str, ...]
    cells: tuple[str, ...]
    shapes: tuple[NearbyShape, ...] = ()
    violations: tuple[ListedViolation, ...] = ()


def drc_action_to_json(action: DRCAction) -> dict[str, Any]:
    """Return an action as a JSON-ready object: an edit's or query's own form, ``{"op": "check"}`` or submit."""
    if isinstance(action, Command):
        if action not in _COMMAND_NAMES:
            raise EditError("no action of this family", field="op", value=action.value, allowed=list(OPERATIONS))
        return {"op": _COMMAND_NAMES[action]}
    return query_to_dict(action) if isinstance(action, Query) else drc_edit_to_json(action)


def drc_action_from_json(data: Any) -> DRCAction:
    """Parse `drc_action_to_json`; raises `EditError` naming field, value and what is allowed.

    A field that is null counts as absent: strict JSON schemas know no optional fields.
    """
    if isinstance(data, Mapping):
        data = {key: value for key, value in data.items() if value is not None}
    if isinstance(data, Mapping) and isinstance(op := data.get("op"), str):
        if op in _COMMANDS:
            return _COMMANDS[op]
        if op == "query":
            return query_from_dict(data)
        if op not in OPERATIONS:
            raise EditError("unknown operation", field="op", value=op, allowed=list(OPERATIONS))
    return drc_edit_from_json(data)


class DRCActionSpace(Dict):
    """One action: an edit (add_shape, change_shape, move_cell), a query, check or submit.

    Keys (coordinates and lengths: int32, database units; those that an operation does not need are ignored):
        op: Discrete(6), index into `OPERATIONS`.
        layer: Discrete(96), row of the layer table.
        cell: Discrete(1024), row of the cell table: the cell that is edited or queried; for move_cell the placed one.
        target: Discrete(129): 0: change_shape names its shape by `ref`; k: it is the k-th listed nearby shape, with
            its layer and cell.
        ref: Discrete(3), index into `REFERENCES`: how a shape is named explicitly.
        shape_points: (256, 2): its outline; for ``box`` the first two rows are opposite corners.
        n_shape_points: Discrete(257): how many rows of `shape_points` count.
        shape_index: () int32: its position, for ``index``.
        change: Discrete(5), index into `CHANGE_NAMES`.
        edge: Discrete(256), for move_edge.
        by: (2, 2): move and move_cell: dx, dy; move_edge: the first number; resize: left, bottom, then right, top.
        points: (256, 2): outline of add_shape and replace; geometry of an explicit query; move_cell: the first row is
            where the instance is.
        n_points: Discrete(257): how many rows of `points` count.
        orientation: Discrete(9), for move_cell: 0 any, k: `ORIENTATIONS[k - 1]`.
        parent: Discrete(1024), for move_cell: row of the cell table.
        violation: Discrete(65): 0: a query gives its geometry; k: it is about the k-th listed violation.
        level: Discrete(3), index into `LEVELS`.
        kind: Discrete(3), index into `KINDS`.
        direct_layers: MultiBinary(96): rows of the layer table; none: all (of the rule, with `violation`).
        context_layers: MultiBinary(96): layers of neighbouring shapes, likewise.
        start: Discrete(100000): first shape of the page.
        count: Discrete(201): shapes on the page; 0: the default of 20.

    Args:
        seed: Seed of the space's own sampler.
    """

    def __init__(self, seed: int | None = None) -> None:
        def lengths(*shape: int) -> Box:
            return Box(-MAX_COORD, MAX_COORD, shape, np.int32)

        super().__init__(
            {
                "op": Discrete(len(OPERATIONS)),
                "layer": Discrete(MAX_LAYERS),
                "cell": Discrete(MAX_CELLS),
                "target": Discrete(MAX_SHAPES + 1),
                "ref": Discrete(len(REFERENCES)),
                "shape_points": lengths(MAX_POINTS, 2),
                "n_shape_points": Discrete(MAX_POINTS + 1),
                "shape_index": Box(0, MAX_SHAPE_INDEX, (), np.int32),
                "change": Discrete(len(CHANGE_NAMES)),
                "edge": Discrete(MAX_POINTS),
                "by": lengths(2, 2),
                "points": lengths(MAX_POINTS, 2),
                "n_points": Discrete(MAX_POINTS + 1),
                "orientation": Discrete(len(ORIENTATIONS) + 1),
                "parent": Discrete(MAX_CELLS),
                "violation": Discrete(MAX_VIOLATIONS + 1),
                "level": Discrete(len(LEVELS)),
                "kind": Discrete(len(KINDS)),
                "direct_layers": MultiBinary(MAX_LAYERS),
                "context_layers": MultiBinary(MAX_LAYERS),
                "start": Discrete(MAX_START),
                "count": Discrete(MAX_PAGE + 1),
            },
            seed=seed,
        )

    # -- arrays -> edits -------------------------------------------------------------------------------------------

    def to_edit(self, action: Mapping[str, Any], context: ActionContext) -> DRCAction:
        """Return the edit, query or command that an action encodes.

        Args:
            action: An action, not necessarily inside the space.
            context: The tables that it points into.

        Raises:
            EditError: If a key is missing or malformed, or an index is beyond its table.
        """
        try:
            op = OPERATIONS[_row(action, "op", len(OPERATIONS))]
            if op in _COMMANDS:
                return _COMMANDS[op]
            if op == "query":
                return _to_query(action, context)
            if op == "move_cell":
                at = _ring(action, "points", 1)[0]
                turned = _row(action, "orientation", len(ORIENTATIONS) + 1)
                return MoveCell(
                    _cell(action, "cell", context),
                    at,
                    _by(action)[:2],
                    ORIENTATIONS[turned - 1] if turned else "",
                    _cell(action, "parent", context),
                )
            if op == "add_shape":
                return AddShape(_layer(action, context), _ring(action, "points"), _cell(action, "cell", context))
            target = _row(action, "target", len(context.shapes) + 1)
            change = _to_change(action)
            if target:
                shape = context.shapes[target - 1]
                return ChangeShape(shape.layer, ShapeRef(points=shape.points), change, shape.cell)
            return ChangeShape(_layer(action, context), _to_ref(action), change, _cell(action, "cell", context))
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as e:
            raise EditError(f"malformed action ({type(e).__name__}: {e})", allowed=list(self.spaces)) from e

    def read(self, action: Any, context: ActionContext) -> DRCAction:
        """Return the edit, query or command of an action in any form: itself, its JSON form, or arrays (`to_edit`).

        Args:
            action: The action.
            context: The tables that arrays point into.

        Raises:
            EditError: As `to_edit` and `drc_action_from_json`.
        """
        if isinstance(action, AddShape | ChangeShape | MoveCell | Query | Command):
            return action
        if isinstance(action, Mapping) and isinstance(action.get("op"), str):
            return drc_action_from_json(action)
        return self.to_edit(action, context)

    # -- edits -> arrays -------------------------------------------------------------------------------------------

    def from_edit(self, edit: DRCAction, context: ActionContext) -> dict[str, Any]:
        """Return the action of an edit, query or command; it points at no list.

        Args:
            edit: The edit, query or command.
            context: Layer and cell tables.

        Raises:
            EditError: If it does not fit the space (unknown layer or cell, too many points, a number out of range).
        """
        out = self.blank()
        if isinstance(edit, Command):
            out["op"] = np.int64(OPERATIONS.index(drc_action_to_json(edit)["op"]))
            return out
        if isinstance(edit, Query):
            return _from_query(edit, context, out)
        if isinstance(edit, MoveCell):
            out["op"] = np.int64(OPERATIONS.index("move_cell"))
            out["cell"], out["parent"] = _find(edit.cell, context, "cell"), _find(edit.parent, context, "parent")
            _put(out, "points", (edit.at,), MAX_POINTS)
            _put_lengths(out, edit.by)
            if edit.orientation:
                if edit.orientation not in ORIENTATIONS:
                    raise EditError(
                        "unknown orientation", field="orientation", value=edit.orientation, allowed=ORIENTATIONS
                    )
                out["orientation"] = np.int64(ORIENTATIONS.index(edit.orientation) + 1)
            return out
        out["layer"], out["cell"] = _find_layer(edit.layer, context, "layer"), _find(edit.cell, context, "cell")
        if isinstance(edit, AddShape):
            _put(out, "points", edit.points, MAX_POINTS)
            return out
        out["op"] = np.int64(OPERATIONS.index("change_shape"))
        _from_ref(edit.shape, out)
        _from_change(edit.change, out)
        return out

    def blank(self) -> dict[str, Any]:
        """Return an action with every number 0: an add_shape without points."""
        return {
            key: np.zeros(s.shape, s.dtype) if s.shape else s.dtype.type(0)  # type: ignore[union-attr]
            for key, s in self.spaces.items()
        } | {"shape_index": np.array(0, np.int32)}

    # -- arrays <-> JSON -------------------------------------------------------------------------------------------

    def to_json(self, action: Mapping[str, Any], context: ActionContext) -> str:
        """Return an action as a JSON object (`drc_action_to_json`)."""
        return json.dumps(drc_action_to_json(self.to_edit(action, context)))

    def from_json(self, text: str, context: ActionContext) -> dict[str, Any]:
        """Parse `to_json`; raises `EditError`."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise EditError(f"not JSON ({e})", field="text", value=text) from e
        return self.from_edit(drc_action_from_json(data), context)

    @staticmethod
    def describe() -> str:
        """Return the actions in words with their JSON forms, one a line: for prompts."""
        return _DESCRIPTION

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON schema of one action: for constrained replies. Optional fields may be null."""
        return action_schema(_FORMS)


_DESCRIPTION = """\
- {"op": "add_shape", "layer": "M2", "box": [x1, y1, x2, y2]}: draw a box; or "points": [[x, y], ...] for a polygon.
- {"op": "change_shape", "layer": "M2", "shape": {"box": [x1, y1, x2, y2]}, "change": ...}: change the shape with that \
bounding box (or "points": its outline). Changes: "move" with "by": [dx, dy]; "move_edge" with "edge": i and "by": d \
(edges are numbered clockwise from the lower left corner, a box has 0 left, 1 top, 2 right, 3 bottom; d > 0 makes the \
shape larger); "resize" with "by": [left, bottom, right, top]; "replace" with "box" or "points"; "delete".
- Both take "cell": NAME to edit a master's own shapes instead of the top cell's.
- {"op": "move_cell", "cell": NAME, "at": [x, y], "by": [dx, dy]}: displace one instance.
- {"op": "query", "level": "first", "kind": "edge_pair", "points": [[x, y], ...], "cell": NAME, "direct_layers": \
["M2"], "context_layers": ["V1", "V2"], "start": 0, "stop": 20}: list shapes near a violation, nearest first. Levels: \
first (shapes that cause it), second (shapes inside their bounding box), third (neighbours outside it).
- {"op": "check"}: run the design rule check and get the new list of violations.
- {"op": "submit"}: end the task."""

_NUMBER = {"type": "integer", "minimum": -MAX_COORD, "maximum": MAX_COORD}
_NAME = {"type": "string"}
_NAMES = {"type": ["array", "null"], "items": _NAME, "maxItems": MAX_LAYERS}
_MAYBE = {"type": ["string", "null"]}
_PAIR, _BOX = fixed_list(_NUMBER, 2), fixed_list(_NUMBER, 4)
_OUTLINE = {"type": "array", "items": _PAIR, "minItems": 3, "maxItems": MAX_POINTS}
_SHAPE = {
    "anyOf": [
        closed_object(box=_BOX),
        closed_object(points=_OUTLINE),
        closed_object(index={"type": "integer", "minimum": 0, "maximum": MAX_SHAPE_INDEX}),
    ]
}
_CHANGE_FORMS: dict[str, tuple[dict[str, Any], ...]] = {
    "move": ({"by": _PAIR},),
    "move_edge": ({"edge": {"type": "integer", "minimum": 0, "maximum": MAX_POINTS - 1}, "by": _NUMBER},),
    "resize": ({"by": _BOX},),
    "replace": ({"box": _BOX}, {"points": _OUTLINE}),
    "delete": ({},),
}
_FORMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("add_shape", {"layer": _NAME, "box": _BOX, "cell": _MAYBE}),
    ("add_shape", {"layer": _NAME, "points": _OUTLINE, "cell": _MAYBE}),
    *(
        ("change_shape", {"layer": _NAME, "shape": _SHAPE, "change": {"const": name}, **form, "cell": _MAYBE})
        for name in CHANGE_NAMES
        for form in _CHANGE_FORMS[name]
    ),
    (
        "move_cell",
        {
            "cell": _NAME,
            "at": _PAIR,
            "by": _PAIR,
            "orientation": {"enum": [*ORIENTATIONS, None]},
            "parent": _MAYBE,
        },
    ),
    (
        "query",
        {
            "level": {"enum": list(LEVELS)},
            "kind": {"enum": list(KINDS)},
            "points": {"type": "array", "items": _PAIR, "minItems": 2, "maxItems": MAX_QUERY_POINTS},
            "cell": _MAYBE,
            "direct_layers": _NAMES,
            "context_layers": _NAMES,
            "start": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_START - 1},
            "stop": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_START},
        },
    ),
    ("check", {}),
    ("submit", {}),
)


def _row(action: Mapping[str, Any], key: str, size: int) -> int:
    row = int(action[key])
    if not 0 <= row < size:
        raise EditError("beyond its table", field=key, value=row, allowed=f"0..{size - 1}")
    return row


def _layer(action: Mapping[str, Any], context: ActionContext) -> str:
    return context.layers[_row(action, "layer", len(context.layers))]


def _cell(action: Mapping[str, Any], key: str, context: ActionContext) -> str:
    return context.cells[_row(action, key, len(context.cells))]


def _ring(action: Mapping[str, Any], key: str, n: int | None = None) -> Points:
    if n is None:
        n = _row(action, f"n_{key}", MAX_POINTS + 1)
    return tuple((int(x), int(y)) for x, y in np.asarray(action[key])[:n].tolist())


def _to_ref(action: Mapping[str, Any]) -> ShapeRef:
    way = REFERENCES[_row(action, "ref", len(REFERENCES))]
    if way == "index":
        return ShapeRef(index=int(action["shape_index"]))
    if way == "points":
        return ShapeRef(points=_ring(action, "shape_points"))
    (x1, y1), (x2, y2) = _ring(action, "shape_points", 2)
    return ShapeRef(box=(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)))


def _from_ref(ref: ShapeRef, out: dict[str, Any]) -> None:
    if ref.index is not None:
        if not 0 <= ref.index <= MAX_SHAPE_INDEX:
            raise EditError("index out of range", field="shape.index", value=ref.index, allowed=f"<= {MAX_SHAPE_INDEX}")
        out["ref"], out["shape_index"] = np.int64(2), np.array(ref.index, np.int32)
    elif ref.box is not None:
        out["ref"] = np.int64(1)
        _put(out, "shape_points", (ref.box[:2], ref.box[2:]), MAX_POINTS)
    else:
        _put(out, "shape_points", ref.points or (), MAX_POINTS)


def _by(action: Mapping[str, Any]) -> tuple[int, int, int, int]:
    left, bottom, right, top = (int(v) for v in np.asarray(action["by"]).ravel().tolist())
    return (left, bottom, right, top)


def _to_change(action: Mapping[str, Any]) -> Change:
    name = CHANGE_NAMES[_row(action, "change", len(CHANGE_NAMES))]
    by = _by(action)
    if name == "move":
        return Move(by[0], by[1])
    if name == "move_edge":
        return MoveEdge(_row(action, "edge", MAX_POINTS), by[0])
    if name == "resize":
        return Resize(by[0], by[1], by[2], by[3])
    return Replace(_ring(action, "points")) if name == "replace" else Delete()


def _from_change(change: Change, out: dict[str, Any]) -> None:
    name = next(n for n, cls in CHANGES.items() if type(change) is cls)
    out["change"] = np.int64(CHANGE_NAMES.index(name))
    if isinstance(change, Move):
        _put_lengths(out, (change.dx, change.dy))
    elif isinstance(change, MoveEdge):
        if not 0 <= change.edge < MAX_POINTS:
            raise EditError("no such edge", field="edge", value=change.edge, allowed=f"0..{MAX_POINTS - 1}")
        out["edge"] = np.int64(change.edge)
        _put_lengths(out, (change.distance,))
    elif isinstance(change, Resize):
        _put_lengths(out, (change.left, change.bottom, change.right, change.top))
    elif isinstance(change, Replace):
        _put(out, "points", change.points, MAX_POINTS)


def _to_query(action: Mapping[str, Any], context: ActionContext) -> Query:
    picked = [
        tuple(name for name, bit in zip(context.layers, np.asarray(action[key]).tolist()) if bit)
        for key in ("direct_layers", "context_layers")
    ]
    level = LEVELS[_row(action, "level", len(LEVELS))]
    start, count = _row(action, "start", MAX_START), _row(action, "count", MAX_PAGE + 1) or PAGE
    number = _row(action, "violation", len(context.violations) + 1)
    if number:
        listed = context.violations[number - 1]
        kind, cell, points = listed.kind, listed.cell, listed.points
        picked[0] = picked[0] or listed.layers
    else:
        kind, cell = KINDS[_row(action, "kind", len(KINDS))], _cell(action, "cell", context)
        points = _ring(action, "points")
    # Parsed once more, because an action need not lie inside the space.
    return query_from_dict(query_to_dict(Query(level, kind, points, cell, picked[0], picked[1], start, start + count)))


def _from_query(query: Query, context: ActionContext, out: dict[str, Any]) -> dict[str, Any]:
    out["op"] = np.int64(OPERATIONS.index("query"))
    out["level"], out["kind"] = np.int64(LEVELS.index(query.level)), np.int64(KINDS.index(query.kind))
    out["cell"] = _find(query.cell, context, "cell")
    _put(out, "points", query.points, MAX_QUERY_POINTS)
    for key in ("direct_layers", "context_layers"):
        for name in getattr(query, key):
            out[key][_find_layer(name, context, key)] = 1
    out["start"], out["count"] = np.int64(query.start), np.int64(query.stop - query.start)
    return out


def _find(name: str, context: ActionContext, field: str) -> np.int64:
    return _index_of(name, context.cells, field, "unknown cell")


def _find_layer(name: str, context: ActionContext, field: str) -> np.int64:
    return _index_of(name, context.layers, field, "unknown layer")


def _index_of(name: str, table: Sequence[str], field: str, message: str) -> np.int64:
    if name not in table:
        shown = list(table[:20])
        raise EditError(message, field=field, value=name, allowed=f"{shown}{', ...' if len(table) > 20 else ''}")
    return np.int64(table.index(name))


def _put(out: dict[str, Any], key: str, points: Sequence[Sequence[int]], limit: int) -> None:
    if len(points) > limit:
        raise EditError("too many points", field=key, value=len(points), allowed=f"<= {limit}")
    for i, point in enumerate(points):
        if not all(isinstance(v, int) and abs(v) <= MAX_COORD for v in point):
            raise EditError("coordinate out of range", field=f"{key}[{i}]", value=point, allowed=f"+-{MAX_COORD}")
        out[key][i] = point
    out[f"n_{key}"] = np.int64(len(points))


def _put_lengths(out: dict[str, Any], lengths: Sequence[int]) -> None:
    for i, v in enumerate(lengths):
        if not (isinstance(v, int) and abs(v) <= MAX_COORD):
            raise EditError("length out of range", field="by", value=list(lengths), allowed=f"+-{MAX_COORD}")
        out["by"][divmod(i, 2)] = v
