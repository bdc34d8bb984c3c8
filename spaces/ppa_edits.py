"""Typed edits and queries of the PPA family, with their JSON forms. Pure data: applying them is the environment's work.

Periods are ps. A knob's value is the text that stands in the configuration.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edagym.errors import EditError

MAX_TEXT = 16_384
"""Most bytes (UTF-8) of each of the two texts of a `ReplaceText`."""
MAX_COMMAND = 512
"""Most bytes of the command of a `Read`."""


@dataclass(frozen=True, slots=True)
class SetKnob:
    """Set a variable of the configuration; an empty value unsets it.

    Attributes:
        name: Variable.
        value: Its text.
    """

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SetPeriod:
    """Set a clock's period.

    Attributes:
        period: ps.
        clock: Name of the clock; ``""``: the first.
    """

    period: float
    clock: str = ""


@dataclass(frozen=True, slots=True)
class SetIOFraction:
    """Set input and output delays.

    Attributes:
        fraction: Delay over clock period.
        direction: ``"input"``, ``"output"`` or ``""``: both.
    """

    fraction: float
    direction: str = ""


@dataclass(frozen=True, slots=True)
class SetMaxFanout:
    """Set the largest fan-out of a net; 0 removes the bound."""

    fanout: int


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Replace a passage of one of the design's files.

    Attributes:
        path: The file, e.g. ``"src/gcd.v"``.
        old: A passage that occurs in it exactly once.
        new: What takes its place.
    """

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read files by a command like ``grep -n always src/gcd.v | head -5``."""

    command: str


@dataclass(frozen=True, slots=True)
class Report:
    """Ask for the last run's values and their gaps to the targets."""


PPAEdit = SetKnob | SetPeriod | SetIOFraction | SetMaxFanout | ReplaceText
PPAQuery = Read | Report

OP_NAMES: dict[type, str] = {
    SetKnob: "set_knob",
    SetPeriod: "set_period",
    SetIOFraction: "set_io_fraction",
    SetMaxFanout: "set_max_fanout",
    ReplaceText: "edit_file",
    Read: "read_file",
    Report: "report",
}
_TYPES = {name: kind for kind, name in OP_NAMES.items()}
DIRECTIONS = ("", "input", "output")


def ppa_edit_to_json(edit: PPAEdit | PPAQuery) -> dict[str, Any]:
    """Return an edit or query as a JSON-ready object with its ``op``."""
    return {"op": OP_NAMES[type(edit)], **dataclasses.asdict(edit)}


def ppa_edit_from_json(data: Any) -> PPAEdit | PPAQuery:
    """Parse `ppa_edit_to_json`; raises `EditError` naming field, value and what is allowed.

    A knob's value may also be a number or a switch; optional fields may be missing.
    """
    if not isinstance(data, Mapping) or not isinstance(op := data.get("op"), str):
        raise EditError("not an action", field="op", value=data, allowed="an object with op")
    kind = _TYPES.get(op)
    if kind is None:
        raise EditError("unknown operation", field="op", value=op, allowed=[*_TYPES])
    fields = {f.name: f for f in dataclasses.fields(kind)}
    extra = sorted(set(data) - {"op", *fields})
    if extra:
        raise EditError("unknown field", field=", ".join(map(str, extra)), allowed=[*fields])
    values: dict[str, Any] = {}
    for name, f in fields.items():
        if name not in data:
            if f.default is dataclasses.MISSING:
                raise EditError("a field is missing", field=name, allowed=[*fields])
            continue
        values[name] = _value(op, name, str(f.type), data[name])
    if values.get("direction", "") not in DIRECTIONS:
        raise EditError("unknown direction", field="direction", value=values["direction"], allowed=DIRECTIONS)
    made = kind(**values)
    assert isinstance(made, PPAEdit | PPAQuery)
    return made


def _value(op: str, name: str, kind: str, value: Any) -> Any:
    if kind == "str":
        if op == "set_knob" and name == "value" and isinstance(value, int | float) and not isinstance(value, bool):
            return _number_text(name, value)
        if op == "set_knob" and name == "value" and isinstance(value, bool):
            return str(int(value))
        if not isinstance(value, str):
            raise EditError("text is needed", field=name, value=value)
        limit = {"command": MAX_COMMAND, "old": MAX_TEXT, "new": MAX_TEXT}.get(name, 1024)
        if (size := len(value.encode("utf-8", errors="surrogatepass"))) > limit or not _is_plain(value):
            raise EditError("the text is too long or not UTF-8", field=name, value=size, allowed=f"<= {limit} bytes")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise EditError("a finite number is needed", field=name, value=value)
    if kind == "int":
        if value != int(value):
            raise EditError("a whole number is needed", field=name, value=value)
        return int(value)
    return float(value)


def _number_text(name: str, value: float) -> str:
    if not _is_finite(value):
        raise EditError("a finite number is needed", field=name, value=value)
    return repr(int(value)) if value == int(value) else repr(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float holds
        return False


def _is_plain(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text
