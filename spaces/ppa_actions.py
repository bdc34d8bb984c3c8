"""`PPAActionSpace`: one typed edit, query or command of the PPA family as a fixed-shape action.

A number is given in one of two ways: as a *place* in its range (0 to 1; the knob's range, or the task's bounds), which
is what a learning agent wants, or as the number itself, which is what text means. `from_edit` writes numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from edagym.errors import EditError
from edagym.spaces.actions import Command
from edagym.spaces.json_schema import action_schema
from edagym.spaces.knobs import MAX_CLOCKS, MAX_KNOBS, MAX_PERIOD, arrangements, number_at
from edagym.spaces.ppa_edits import (
    DIRECTIONS,
    MAX_COMMAND,
    MAX_TEXT,
    PPAEdit,
    PPAQuery,
    Read,
    ReplaceText,
    Report,
    SetIOFraction,
    SetKnob,
    SetMaxFanout,
    SetPeriod,
    ppa_edit_from_json,
    ppa_edit_to_json,
)
from edagym.task_assets.ppa.design import MAX_FILES
from edagym.task_assets.ppa.knobs import Knob, KnobValue, knob_table, number_text

PPAAction = PPAEdit | PPAQuery | Command

OPERATIONS = (
    "set_knob",
    "set_period",
    "set_io_fraction",
    "set_max_fanout",
    "edit_file",
    "read_file",
    "report",
    "run",
    "submit",
)
WAYS = ("place", "number", "unset")
MAX_CHOICES = 16
MAX_FANOUT = 10_000
_ROW = 256
"""Bytes per row of a text's array: Gymnasium's checker wants long vectors to be normalised numbers."""
_FANOUTS = (2, 64)
"""Range of places for the fan-out; beyond it numbers go."""

_COMMANDS = {"run": Command.VERIFY, "submit": Command.SUBMIT}
_COMMAND_NAMES = {command: name for name, command in _COMMANDS.items()}


@dataclass(frozen=True, slots=True)
class PPAActionContext:
    """The tables that actions point into.

    Attributes:
        files: Paths of the design's files, sorted.
        clocks: Names of the clocks.
        period: Bounds of the clock period, ps.
        io_fraction: Bounds of the delay fraction.
    """

    files: tuple[str, ...]
    clocks: tuple[str, ...]
    period: tuple[float, float]
    io_fraction: tuple[float, float]


def ppa_action_to_json(action: PPAAction) -> dict[str, Any]:
    """Return an action as a JSON-ready object: an edit's or query's own form, ``{"op": "run"}`` or submit."""
    if isinstance(action, Command):
        if action not in _COMMAND_NAMES:
            raise EditError("no action of this family", field="op", value=action.value, allowed=list(OPERATIONS))
        return {"op": _COMMAND_NAMES[action]}
    return ppa_edit_to_json(action)


def ppa_action_from_json(data: Any) -> PPAAction:
    """Parse `ppa_action_to_json`; raises `EditError` naming field, value and what is allowed.

    A field that is null counts as absent: strict JSON schemas know no optional fields.
    """
    if isinstance(data, Mapping):
        data = {key: value for key, value in data.items() if value is not None}
    if isinstance(data, Mapping) and isinstance(op := data.get("op"), str):
        if op in _COMMANDS:
            return _COMMANDS[op]
        if op not in OPERATIONS:
            raise EditError("unknown operation", field="op", value=op, allowed=list(OPERATIONS))
    return ppa_edit_from_json(data)


class PPAActionSpace(Dict):
    """One action: a knob, a constraint, a text edit, a read, the report, a flow run, or submit.

    Keys (those that an operation does not need are ignored):
        op: Discrete(9), index into `OPERATIONS`.
        knob: Discrete(96), row of the knob table.
        way: Discrete(3), index into `WAYS`: how the value is given. ``unset``: the knob or the fan-out bound is unset.
        place: (4,) float32 in [0, 1]: the value's numbers as places in their ranges.
        number: (4, 1) float32: the value's numbers themselves (ps, um, %).
        choice: Discrete(16): switches: odd is on; names: index of the choice; several names: index into
            `edagym.spaces.knobs.arrangements`. All wrap around.
        clock: Discrete(8): row of the clock table, for set_period.
        direction: Discrete(3), index into ``("", "input", "output")``, for set_io_fraction.
        file: Discrete(64): row of the file table, for edit_file.
        old: (64, 256) uint8: UTF-8 bytes, row by row, of the passage to replace.
        n_old: Discrete(16385): how many bytes of `old` count.
        new: (64, 256) uint8: what takes its place; for knobs of type text, the value.
        n_new: Discrete(16385): how many bytes of `new` count.
        command: (2, 256) uint8: UTF-8 bytes of a read_file command.
        n_command: Discrete(513): how many bytes of `command` count.

    Args:
        seed: Seed of the space's own sampler.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(
            {
                "op": Discrete(len(OPERATIONS)),
                "knob": Discrete(MAX_KNOBS),
                "way": Discrete(len(WAYS)),
                "place": Box(0.0, 1.0, (4,), np.float32),
                "number": Box(-MAX_PERIOD, MAX_PERIOD, (4, 1), np.float32),
                "choice": Discrete(MAX_CHOICES),
                "clock": Discrete(MAX_CLOCKS),
                "direction": Discrete(len(DIRECTIONS)),
                "file": Discrete(MAX_FILES),
                "old": Box(0, 255, (MAX_TEXT // _ROW, _ROW), np.uint8),
                "n_old": Discrete(MAX_TEXT + 1),
                "new": Box(0, 255, (MAX_TEXT // _ROW, _ROW), np.uint8),
                "n_new": Discrete(MAX_TEXT + 1),
                "command": Box(0, 255, (MAX_COMMAND // _ROW, _ROW), np.uint8),
                "n_command": Discrete(MAX_COMMAND + 1),
            },
            seed=seed,
        )

    # -- arrays -> edits -------------------------------------------------------------------------------------------

    def to_edit(self, action: Mapping[str, Any], context: PPAActionContext) -> PPAAction:
        """Return the edit, query or command that an action encodes; numbers have at most six digits.

        Args:
            action: An action, not necessarily inside the space.
            context: The tables that it points into.

        Raises:
            EditError: If a key is missing or malformed, an index is beyond its table, or a text is not UTF-8.
        """
        try:
            op = OPERATIONS[_row(action, "op", len(OPERATIONS))]
            if op in _COMMANDS:
                return _COMMANDS[op]
            if op == "report":
                return Report()
            if op == "read_file":
                return Read(_text(action, "command", MAX_COMMAND))
            way = WAYS[_row(action, "way", len(WAYS))]
            if op == "set_knob":
                knobs = [*knob_table().values()]
                knob = knobs[_row(action, "knob", len(knobs))]
                return SetKnob(knob.name, _knob_text(knob, action, way))
            if op == "set_period":
                clock = context.clocks[_row(action, "clock", len(context.clocks))]
                return SetPeriod(_number(action, way, context.period), "" if clock == context.clocks[0] else clock)
            if op == "set_io_fraction":
                direction = DIRECTIONS[_row(action, "direction", len(DIRECTIONS))]
                return SetIOFraction(_number(action, way, context.io_fraction), direction)
            if op == "set_max_fanout":
                return SetMaxFanout(0 if way == "unset" else round(_number(action, way, _FANOUTS)))
            path = context.files[_row(action, "file", len(context.files))]
            return ReplaceText(path, _text(action, "old", MAX_TEXT), _text(action, "new", MAX_TEXT))
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as e:
            raise EditError(f"malformed action ({type(e).__name__}: {e})", allowed=list(self.spaces)) from e

    # -- edits -> arrays -------------------------------------------------------------------------------------------

    def from_edit(self, edit: PPAAction, context: PPAActionContext) -> dict[str, Any]:
        """Return the action of an edit, query or command.

        Args:
            edit: The edit, query or command.
            context: The tables.

        Raises:
            EditError: If it does not fit the space (unknown knob, file or clock; text too long; number out of range).
        """
        out = self.blank()
        out["op"] = np.int64(OPERATIONS.index(ppa_action_to_json(edit)["op"]))
        if isinstance(edit, Read):
            _put_text(out, "command", edit.command, MAX_COMMAND)
        elif isinstance(edit, ReplaceText):
            out["file"] = _find(edit.path, context.files, "path")
            _put_text(out, "old", edit.old, MAX_TEXT)
            _put_text(out, "new", edit.new, MAX_TEXT)
        elif isinstance(edit, SetKnob):
            _put_knob(out, edit)
        elif isinstance(edit, SetPeriod):
            out["clock"] = _find(edit.clock or context.clocks[0], context.clocks, "clock")
            _put_numbers(out, (edit.period,))
        elif isinstance(edit, SetIOFraction):
            out["direction"] = _find(edit.direction, DIRECTIONS, "direction")
            _put_numbers(out, (edit.fraction,))
        elif isinstance(edit, SetMaxFanout):
            if edit.fanout == 0:
                out["way"] = np.int64(WAYS.index("unset"))
            else:
                _put_numbers(out, (edit.fanout,))
        return out

    def blank(self) -> dict[str, Any]:
        """Return an action with every number 0."""
        return {
            key: np.zeros(s.shape, s.dtype) if s.shape else s.dtype.type(0)  # type: ignore[union-attr]
            for key, s in self.spaces.items()
        }

    # -- arrays <-> JSON -------------------------------------------------------------------------------------------

    def to_json(self, action: Mapping[str, Any], context: PPAActionContext) -> str:
        """Return an action as a JSON object (`ppa_action_to_json`)."""
        return json.dumps(ppa_action_to_json(self.to_edit(action, context)))

    def from_json(self, text: str, context: PPAActionContext) -> dict[str, Any]:
        """Parse `to_json`; raises `EditError`."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise EditError(f"not JSON ({e})", field="text", value=text) from e
        return self.from_edit(ppa_action_from_json(data), context)

    @staticmethod
    def describe() -> str:
        """Return the actions in words with their JSON forms, one a line: for prompts."""
        return _DESCRIPTION

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON schema of one action: for constrained replies. Optional fields may be null."""
        return action_schema(_forms())


_DESCRIPTION = """\
- {"op": "read_file", "command": "grep -n always src/top.v | head -20"}: read files. Commands: cat, head, tail, grep, \
awk, sed, wc, sort, uniq, cut, tr, ls, find, tree, jq, less, more, file, stat, diff, strings, xxd, od; pipes are \
allowed, nothing that writes or runs.
- {"op": "edit_file", "path": "src/top.v", "old": "...", "new": "..."}: replace a passage that occurs exactly once.
- {"op": "set_knob", "name": "PLACE_DENSITY", "value": "0.5"}: set a variable of the configuration; "" unsets it.
- {"op": "set_period", "period": 300}: clock period in ps. {"op": "set_io_fraction", "fraction": 0.25}: input and \
output delays over the period. {"op": "set_max_fanout", "fanout": 12}: 0 removes the bound.
- {"op": "run"}: run the flow from synthesis to the final report.
- {"op": "report"}: the last run's values and their gaps to the targets.
- {"op": "submit"}: end the task."""


def _forms() -> tuple[tuple[str, dict[str, Any]], ...]:
    text = {"type": "string", "maxLength": MAX_TEXT}
    number = {"type": "number", "minimum": 0, "maximum": MAX_PERIOD}
    return (
        ("read_file", {"command": {"type": "string", "minLength": 1, "maxLength": MAX_COMMAND}}),
        ("edit_file", {"path": {"type": "string"}, "old": text, "new": text}),
        ("set_knob", {"name": {"enum": list(knob_table())}, "value": {"type": "string", "maxLength": 1024}}),
        ("set_period", {"period": number, "clock": {"type": ["string", "null"]}}),
        ("set_io_fraction", {"fraction": number, "direction": {"enum": [*DIRECTIONS, None]}}),
        ("set_max_fanout", {"fanout": {"type": "integer", "minimum": 0, "maximum": MAX_FANOUT}}),
        ("run", {}),
        ("report", {}),
        ("submit", {}),
    )


def _row(action: Mapping[str, Any], key: str, size: int) -> int:
    row = int(action[key])
    if not 0 <= row < size:
        raise EditError("beyond its table", field=key, value=row, allowed=f"0..{size - 1}")
    return row


def _text(action: Mapping[str, Any], key: str, limit: int) -> str:
    n = _row(action, f"n_{key}", limit + 1)
    return np.asarray(action[key], np.uint8).ravel()[:n].tobytes().decode("utf-8")


def _number(action: Mapping[str, Any], way: str, bounds: tuple[float, float], index: int = 0) -> float:
    if way == "unset":
        raise EditError("a value is needed", field="way", value=way, allowed=WAYS[:2])
    value = float(np.asarray(action[way]).ravel()[index])
    if not math.isfinite(value):
        raise EditError("not a finite number", field=way, value=value)
    if way == "place":
        value = bounds[0] + min(max(value, 0.0), 1.0) * (bounds[1] - bounds[0])
        return min(max(float(f"{value:.4g}"), bounds[0]), bounds[1])
    return float(f"{value:.6g}")


def _knob_text(knob: Knob, action: Mapping[str, Any], way: str) -> str:
    if way == "unset":
        return ""
    value: KnobValue
    if knob.type == "text":
        return _text(action, "new", MAX_TEXT)
    if knob.type in ("bool", "choice", "vts"):
        choice = _row(action, "choice", MAX_CHOICES)
        if knob.type == "bool":
            value = choice % 2 == 1
        elif knob.type == "choice":
            value = knob.choices[choice % len(knob.choices)]
        else:
            value = arrangements(knob)[choice % len(arrangements(knob))]
        return knob.text(value)
    n = {"box": 4, "pair": 2}.get(knob.type, 1)
    if way == "place":
        numbers = tuple(number_at(knob, float(np.asarray(action["place"])[k])) for k in range(n))
    else:
        numbers = tuple(_number(action, way, (0.0, 0.0), k) for k in range(n))
    return " ".join(number_text(v) for v in numbers)


def _put_knob(out: dict[str, Any], edit: SetKnob) -> None:
    table = knob_table()
    out["knob"] = _find(edit.name, [*table], "name")
    knob = table[edit.name]
    try:
        value = knob.parse(edit.value)
    except ValueError as e:
        raise EditError("not a value", field=edit.name, value=edit.value, allowed=str(e)) from None
    out["way"] = np.int64(WAYS.index("unset" if value is None else "number"))
    if value is None:
        return
    if isinstance(value, bool):
        out["choice"] = np.int64(value)
    elif knob.type == "choice":
        out["choice"] = np.int64(knob.choices.index(str(value)))
    elif knob.type == "vts":
        out["choice"] = np.int64(arrangements(knob).index(tuple(edit.value.split())))
    elif knob.type == "text":
        _put_text(out, "new", str(value), MAX_TEXT)
    else:
        _put_numbers(out, value if isinstance(value, tuple) else (value,))  # type: ignore[arg-type]


def _put_numbers(out: dict[str, Any], numbers: Sequence[float]) -> None:
    out["way"] = np.int64(WAYS.index("number"))
    for k, v in enumerate(numbers):
        if not -MAX_PERIOD <= v <= MAX_PERIOD:
            raise EditError("number out of range", field="number", value=v, allowed=f"+-{MAX_PERIOD:g}")
        out["number"][k, 0] = v


def _put_text(out: dict[str, Any], key: str, text: str, limit: int) -> None:
    data = text.encode("utf-8", errors="surrogatepass")
    if len(data) > limit:
        raise EditError("the text is too long", field=key, value=len(data), allowed=f"<= {limit} bytes")
    out[key].ravel()[: len(data)] = np.frombuffer(data, np.uint8)
    out[f"n_{key}"] = np.int64(len(data))


def _find(name: str, table: Sequence[str], field: str) -> np.int64:
    if name not in table:
        raise EditError("unknown", field=field, value=name, allowed=list(table)[:20])
    return np.int64(list(table).index(name))
