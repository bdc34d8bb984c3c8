"""`EditSpace`: one typed edit or command as a fixed-shape action."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from edagym.errors import EditError
from edagym.spaces.contours import MAX_LAYERS
from edagym.spaces.edits import OP_NAMES, AddPath, AddPolygon, Clear, Cut, Edit, edit_from_json, edit_to_json
from edagym.spaces.json_schema import action_schema, closed_object, fixed_list
from edagym.spaces.layout import MAX_SHAPE_POINTS
from edagym.spaces.rings import MAX_COORD_UM, number_text, parse_ring, ring_text
from edagym.task_assets.fet.grid import ring_to_dbu, ring_to_um, to_dbu, to_um

MAX_WIDTH_UM = 100.0


class Command(StrEnum):
    """Actions that draw nothing."""

    VERIFY = "verify"
    SUBMIT = "submit"
    DECLARE_INFEASIBLE = "declare_infeasible"


Action = Edit | Command

OPERATIONS = ("add_polygon", "add_path", "cut", "clear", "verify", "submit", "declare_infeasible")
TEXT_OPERATIONS = ("add_polygon", "add_path", "cut", "clear", "declare_infeasible")
"""What the reply of a text policy may hold; verifying and submitting are the workflow's business."""
MAX_THOUGHT = 1000
"""Most characters of the thought in a constrained reply: small models may never come to the edits."""
MAX_EDITS = 256
"""Most edits in a constrained reply."""

_COMMANDS = {c.value: c for c in Command}
_FIELDS: dict[str, tuple[str, ...]] = {
    "add_polygon": ("layer", "points"),
    "add_path": ("layer", "points", "width"),
    "cut": ("layer", "points"),
    "clear": ("layer",),
    "verify": (),
    "submit": (),
    "declare_infeasible": (),
}
_PLACEHOLDER = {"layer": '"NAME"', "points": "[[x, y], ...]", "width": "w"}
_MEANING = {
    "add_polygon": "a filled polygon with these vertices",
    "add_path": "a strip of full width w along this centre line, with flat ends",
    "cut": "removes this polygon from everything drawn on the layer",
    "clear": "removes everything drawn on the layer",
    "verify": "runs the checks",
    "submit": "ends the task with the layout as it is",
    "declare_infeasible": "alone in the list, says that this cannot be done, and gives up",
}
_TEXT = re.compile(
    r'(?P<op>\w+)(?:\s+(?P<layer>\w+|"(?:[^"\\]|\\.)*"))?(?:\s+width=(?P<width>[^\s:]+))?(?:\s*:(?P<ring>.*))?'
)


def action_to_json(action: Action) -> dict[str, Any]:
    """Return an action as a JSON-ready object: an edit's own form, or ``{"op": "verify"}``."""
    return {"op": action.value} if isinstance(action, Command) else edit_to_json(action)


def action_from_json(data: Any) -> Action:
    """Parse `action_to_json`; raises `EditError` naming field, value and what is allowed."""
    if isinstance(data, Mapping) and isinstance(op := data.get("op"), str):
        if op in _COMMANDS:
            return _COMMANDS[op]
        if op not in OPERATIONS:
            raise EditError("unknown operation", field="op", value=op, allowed=list(OPERATIONS))
    return edit_from_json(data)


class EditSpace(Dict):
    """One action: an edit (add_polygon, add_path, cut, clear) or a command (verify, submit, declare_infeasible).

    Keys:
        op: Discrete(7), index into `OPERATIONS`.
        layer: Discrete(12), row of the task's layer table; ignored by commands.
        points: (64, 2) float32, um; rounded to the 1 nm grid; ignored by clear and commands.
        n_points: Discrete(65): how many rows of `points` count.
        width: () float32, um; for add_path.

    Args:
        seed: Seed of the space's own sampler.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(
            {
                "op": Discrete(len(OPERATIONS)),
                "layer": Discrete(MAX_LAYERS),
                "points": Box(-MAX_COORD_UM, MAX_COORD_UM, (MAX_SHAPE_POINTS, 2), np.float32),
                "n_points": Discrete(MAX_SHAPE_POINTS + 1),
                "width": Box(0.0, MAX_WIDTH_UM, (), np.float32),
            },
            seed=seed,
        )

    # -- for language models ---------------------------------------------------------------------------------------

    @staticmethod
    def schema(layers: Sequence[str] | None = None, ops: Sequence[str] = OPERATIONS) -> dict[str, Any]:
        """Return the JSON schema of one action: for constrained replies.

        Args:
            layers: Names to choose from; None: any.
            ops: Operations to choose from.
        """
        pair = fixed_list({"type": "number", "minimum": -MAX_COORD_UM, "maximum": MAX_COORD_UM}, 2)
        fields: dict[str, Any] = {
            "layer": {"type": "string"} if layers is None else {"enum": list(layers)},
            "points": {"type": "array", "items": pair, "minItems": 3, "maxItems": MAX_SHAPE_POINTS},
            "width": {"type": "number", "minimum": 0, "maximum": MAX_WIDTH_UM},
        }
        line = {**fields, "points": {**fields["points"], "minItems": 2}}
        return action_schema((op, {n: (line if op == "add_path" else fields)[n] for n in _FIELDS[op]}) for op in ops)

    @classmethod
    def reply_schema(
        cls, layers: Sequence[str] | None = None, ops: Sequence[str] = TEXT_OPERATIONS, *, max_edits: int = MAX_EDITS
    ) -> dict[str, Any]:
        """Return the JSON schema of a reply: an object with a thought and a list of edits (`describe`)."""
        edits = {"type": "array", "items": cls.schema(layers, ops), "minItems": 1, "maxItems": max_edits}
        return closed_object(thought={"type": "string", "maxLength": MAX_THOUGHT}, edits=edits)

    @staticmethod
    def describe(ops: Sequence[str] = TEXT_OPERATIONS) -> str:
        """Return the operations in words with their JSON forms, one a line: for prompts."""
        lines = []
        for op in ops:
            keys = "".join(f', "{name}": {_PLACEHOLDER[name]}' for name in _FIELDS[op])
            lines.append(f'{{"op": "{op}"{keys}}}: {_MEANING[op]}')
        return "\n".join(lines)

    @staticmethod
    def example(contact: str, gate: str) -> list[dict[str, Any]]:
        """Return a list of edits, in JSON form, that shows what a reply looks like; it belongs to no task."""
        return [
            edit_to_json(AddPolygon(contact, ((0.0, 0.0), (3.0, 0.0), (3.0, 2.5), (0.0, 2.5)))),
            edit_to_json(AddPath(gate, ((4.5, -1.0), (4.5, 4.0)), 1.0)),
        ]

    # -- arrays <-> edits ------------------------------------------------------------------------------------------

    def to_edit(self, action: Mapping[str, Any], layers: Sequence[str]) -> Action:
        """Return the edit or command that an action encodes; its coordinates lie on the 1 nm grid.

        Args:
            action: An action, not necessarily inside the space.
            layers: Names of the layer table, in order.

        Raises:
            EditError: If a key is missing, an index is out of range, or a used number is not finite.
        """
        try:
            op = int(action["op"])
            if not 0 <= op < len(OPERATIONS):
                raise EditError("unknown operation", field="op", value=op, allowed=f"0..{len(OPERATIONS) - 1}")
            if op > 3:
                return _COMMANDS[OPERATIONS[op]]
            row = int(action["layer"])
            if not 0 <= row < len(layers):
                raise EditError("no such layer", field="layer", value=row, allowed=f"0..{len(layers) - 1}")
            if op == 3:
                return Clear(layers[row])
            n = int(action["n_points"])
            if not 0 <= n <= MAX_SHAPE_POINTS:
                raise EditError("wrong number of points", field="n_points", value=n, allowed=f"0..{MAX_SHAPE_POINTS}")
            points = ring_to_um(ring_to_dbu(action["points"][:n].tolist()))
            if op == 1:
                return AddPath(layers[row], points, to_um(to_dbu(float(action["width"]))))
            return (AddPolygon if op == 0 else Cut)(layers[row], points)
        except (LookupError, TypeError, AttributeError) as e:
            raise EditError(f"malformed action ({type(e).__name__}: {e})", allowed=list(self.spaces)) from e
        except (ValueError, OverflowError) as e:
            raise EditError("malformed or not finite", field="points or width", allowed="finite um") from e

    def from_edit(self, edit: Action, layers: Sequence[str]) -> dict[str, Any]:
        """Return the action of an edit or command.

        Args:
            edit: The edit or command.
            layers: Names of the layer table, in order.

        Raises:
            EditError: If the edit does not fit the space (unknown layer, too many points, coordinate or width range).
        """
        out: dict[str, Any] = {
            "op": np.int64(0),
            "layer": np.int64(0),
            "points": np.zeros((MAX_SHAPE_POINTS, 2), np.float32),
            "n_points": np.int64(0),
            "width": np.array(0.0, np.float32),
        }
        if isinstance(edit, Command):
            out["op"] = np.int64(OPERATIONS.index(edit.value))
            return out
        out["op"] = np.int64(OPERATIONS.index(OP_NAMES[type(edit)]))
        if edit.layer not in layers:
            raise EditError("unknown layer", field="layer", value=edit.layer, allowed=list(layers))
        out["layer"] = np.int64(list(layers).index(edit.layer))
        if isinstance(edit, Clear):
            return out
        n = len(edit.points)
        if n > MAX_SHAPE_POINTS:
            raise EditError("too many points", field="points", value=n, allowed=f"<= {MAX_SHAPE_POINTS}")
        for i, point in enumerate(edit.points):
            # Written so that NaN fails too.
            if not all(-MAX_COORD_UM <= v <= MAX_COORD_UM for v in point):
                raise EditError(
                    "coordinate out of range", field=f"points[{i}]", value=point, allowed=f"+-{MAX_COORD_UM} um"
                )
            out["points"][i] = point
        out["n_points"] = np.int64(n)
        if isinstance(edit, AddPath):
            if not 0 <= edit.width <= MAX_WIDTH_UM:
                raise EditError("width out of range", field="width", value=edit.width, allowed=f"0..{MAX_WIDTH_UM} um")
            out["width"] = np.array(edit.width, np.float32)
        return out

    def read(self, action: Any, layers: Sequence[str]) -> Action:
        """Return the edit or command of an action in any form: itself, its JSON form, or arrays (`to_edit`).

        Args:
            action: The action.
            layers: Names of the layer table, in order.

        Raises:
            EditError: As `to_edit` and `action_from_json`.
        """
        if isinstance(action, Command) or type(action) in OP_NAMES:
            return cast(Action, action)
        if isinstance(action, Mapping) and isinstance(action.get("op"), str):
            return action_from_json(action)
        return self.to_edit(action, layers)

    # -- arrays <-> JSON and text ----------------------------------------------------------------------------------

    def to_json(self, action: Mapping[str, Any], layers: Sequence[str]) -> str:
        """Return an action as a JSON object (`action_to_json`)."""
        return json.dumps(action_to_json(self.to_edit(action, layers)))

    def from_json(self, text: str, layers: Sequence[str]) -> dict[str, Any]:
        """Parse `to_json`; raises `EditError`."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise EditError(f"not JSON ({e})", field="text", value=text) from e
        return self.from_edit(action_from_json(data), layers)

    def to_text(self, action: Mapping[str, Any], layers: Sequence[str]) -> str:
        """Return an action as one line, e.g. ``add_path gate width=0.5: 0,0 1.25,3``."""
        return action_text(self.to_edit(action, layers))

    def from_text(self, text: str, layers: Sequence[str]) -> dict[str, Any]:
        """Parse `to_text`; raises `EditError`."""
        return self.from_edit(parse_action_text(text), layers)


def action_text(action: Action) -> str:
    """Return an edit or command as one line, e.g. ``cut gate: 0,0 1,0 1,1``; um, at most three decimals."""
    if isinstance(action, Command):
        return action.value
    layer = action.layer if re.fullmatch(r"\w+", action.layer) else json.dumps(action.layer)
    head = f"{OP_NAMES[type(action)]} {layer}"
    if isinstance(action, Clear):
        return head
    width = f" width={number_text(action.width)}" if isinstance(action, AddPath) else ""
    return f"{head}{width}: {ring_text(action.points)}"


def parse_action_text(text: str) -> Action:
    """Parse `action_text`; raises `EditError`."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise EditError("not an action line", field="text", value=text, allowed="op layer [width=w]: x,y x,y ...")
    layer = match["layer"]
    data: dict[str, Any] = {"op": match["op"]}
    try:
        if layer is not None:
            data["layer"] = json.loads(layer) if layer.startswith('"') else layer
        if match["ring"] is not None:
            data["points"] = parse_ring(match["ring"])
        if match["width"] is not None:
            data["width"] = float(match["width"])
    except ValueError as e:
        raise EditError(f"not an action line ({e})", field="text", value=text) from e
    return action_from_json(data)
