"""Table of the flow's knobs: the variables of ``config/*.mk`` that an agent may set.

The names are those of OpenROAD-flow-scripts, so that the same file drives both backends; types, ranges, defaults and
what each one does stand in ``knobs.json``. A knob that is not *modelled* is accepted by the embedded flow, changes
nothing there, and is reported by a warning.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

KnobValue = bool | int | float | str | tuple[str, ...] | tuple[float, ...]

STRUCTURAL = ("PLATFORM", "DESIGN_NAME", "DESIGN_NICKNAME", "VERILOG_FILES", "SDC_FILE")
"""Variables that say what the design is: locked for agents (PostEDA-Bench, Appendix D.4)."""
TYPES = ("bool", "int", "float", "choice", "vts", "box", "pair", "text")
_LENGTHS = {"box": 4, "pair": 2}


@dataclass(frozen=True)
class Knob:
    """One row of the table.

    Attributes:
        name: Variable name.
        type: One of `TYPES`: a switch (0 or 1), numbers, a name, several different names, 4 or 2 numbers, or text.
        default: Value when the variable is unset or empty; None where the flow then goes without.
        stage: Flow stage that reads it.
        modelled: Whether the embedded flow acts on it.
        meaning: What it does.
        unit: Unit of its numbers, or ``""``.
        min: Smallest number, or None.
        max: Largest number, or None.
        choices: Allowed names of ``choice`` and ``vts``.
        pattern: Regular expression of all that a ``text`` may be. The real flow hands it to shells, Tcl and tools, some
            of whose options name files, programs or parts of the design to leave out: no text is free.
        form: The same in words.
    """

    name: str
    type: str
    default: KnobValue | None
    stage: str
    modelled: bool
    meaning: str
    unit: str = ""
    min: float | None = None
    max: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    form: str = ""

    def parse(self, text: str) -> KnobValue | None:
        """Return the value that a text means; None for an empty text, which unsets the knob.

        Raises:
            ValueError: If it is no value of this knob; the message says what is allowed.
        """
        words = text.split()
        if not words:
            return None
        value: KnobValue
        if self.type == "text":
            if not re.fullmatch(self.pattern, " ".join(words), re.ASCII):
                raise ValueError(self.allowed)
            return " ".join(words)
        if self.type == "vts":
            value = tuple(words)
            if len(set(words)) != len(words) or not set(words) <= set(self.choices):
                raise ValueError(self.allowed)
            return value
        if len(words) != _LENGTHS.get(self.type, 1):
            raise ValueError(self.allowed)
        if self.type == "choice":
            if words[0] not in self.choices:
                raise ValueError(self.allowed)
            return words[0]
        if self.type == "bool":
            if words[0] not in ("0", "1"):
                raise ValueError(self.allowed)
            return words[0] == "1"
        numbers = tuple(self._number(w) for w in words)
        if self.type == "box" and not (numbers[0] < numbers[2] and numbers[1] < numbers[3]):
            raise ValueError(self.allowed)
        if self.type == "int":
            if numbers[0] != int(numbers[0]):
                raise ValueError(self.allowed)
            return int(numbers[0])
        return numbers[0] if self.type == "float" else numbers

    def _number(self, word: str) -> float:
        try:
            # Python's float also takes underscores and other alphabets' digits, which make and Tcl don't.
            number = float(word) if word.isascii() and "_" not in word else math.nan
        except ValueError:
            number = math.nan
        low, high = -math.inf if self.min is None else self.min, math.inf if self.max is None else self.max
        if not (math.isfinite(number) and low <= number <= high):
            raise ValueError(self.allowed)
        return number

    def text(self, value: KnobValue | None) -> str:
        """Return a value as the variable's text; `parse` undoes it."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(int(value))
        if isinstance(value, tuple):
            return " ".join(v if isinstance(v, str) else number_text(v) for v in value)
        return value if isinstance(value, str) else number_text(value)

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.type == "bool":
            return "0 or 1"
        if self.type == "text":
            return self.form
        if self.choices:
            return ("one of " if self.type == "choice" else "one or several of ") + ", ".join(self.choices)
        what = {"int": "a whole number", "float": "a number", "box": "x1 y1 x2 y2", "pair": "two numbers"}[self.type]
        limits = [f"{sign} {number_text(v)}" for sign, v in ((">=", self.min), ("<=", self.max)) if v is not None]
        return " ".join([what, *([self.unit] if self.unit else []), *([" and ".join(limits)] if limits else [])])


def number_text(value: float) -> str:
    """Return the shortest decimal text of a number that reads back the same; whole numbers have no point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return repr(value)


@cache
def knob_table() -> Mapping[str, Knob]:
    """Return name -> knob, in the order of ``knobs.json``."""
    data = json.loads(resources.files("edagym.task_assets.ppa").joinpath("knobs.json").read_text(encoding="utf-8"))
    table = {}
    for row in data["knobs"]:
        default = tuple(row["default"]) if isinstance(row["default"], list) else row["default"]
        knob = Knob(**{**row, "default": default, "choices": tuple(row.get("choices", ()))})
        table[knob.name] = knob
    return MappingProxyType(table)


def reference_page() -> str:
    """Return the table as a Markdown page: what an agent may read as ``FlowVariables.md``."""
    lines = [
        "# Flow variables",
        "",
        "Set them in `config/*.mk` as `export NAME = value`; an empty value means the default. Variables marked *no "
        "effect* are accepted but change nothing in the embedded flow. "
        f"{', '.join(f'`{n}`' for n in STRUCTURAL)} are locked.",
        "",
    ]
    stage = ""
    for knob in sorted(knob_table().values(), key=lambda k: list(_STAGES).index(k.stage)):
        if knob.stage != stage:
            stage = knob.stage
            lines += [f"## {stage.capitalize()}", "", "| name | values | default | effect |", "|---|---|---|---|"]
        default = knob.text(knob.default) or "(none)"
        note = "" if knob.modelled else " (*no effect*)"
        lines.append(f"| `{knob.name}` | {knob.allowed} | {default} | {knob.meaning}{note} |")
        if knob is _last_of(stage):
            lines.append("")
    lines += [
        "## Constraints (`config/*.sdc`)",
        "",
        "- `create_clock -period`: clock period, ps. Timing repair works towards it, and power is stated at it.",
        "- `set_input_delay`, `set_output_delay`: part of the period that lies outside the chip.",
        "- `set_max_fanout`: nets with more sinks are split by buffers.",
        "",
        "The clock period and the input and output delays may be changed within the bounds of the task; timing",
        "exceptions (`set_false_path`, `set_multicycle_path` and the like) may not be added.",
    ]
    return "\n".join(lines) + "\n"


_STAGES = ("synth", "floorplan", "place", "cts", "timing repair", "route", "finish", "check")


@cache
def _last_of(stage: str) -> Knob:
    return [k for k in knob_table().values() if k.stage == stage][-1]
