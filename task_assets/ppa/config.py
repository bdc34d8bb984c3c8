"""`FlowConfig`: the configuration file ``config/*.mk`` of a design, read without running make.

Understood are lines ``export NAME = value`` (also ``:=`` and ``?=``, also without ``export``), comments and
continuation lines. Anything else is refused by a `FlowError` that names the line: the file is written by agents, and
the OpenROAD backend hands it to make, which would run what ``$(shell ...)`` says. References of make stand only in
locked variables, which agents cannot change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from edagym.errors import FlowError
from edagym.task_assets.ppa.knobs import STRUCTURAL, KnobValue, knob_table

_ASSIGNMENT = re.compile(r"(?P<head>[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*(?P<op>\?=|:=|=))")
_LOCKED = re.compile(
    r".*_(TCL|EXE|CMD|SCRIPTS?|HOOKS?|PATH|HOME|DIRS?|FILES?|LIBS?|LEFS?|MAP|DEF|GDS|PARAMS|DEFINES|CONSTRAINTS|ARGS"
    r"|FLAGS|OPTS|OPTIONS)"
    r"|VERILOG_.*|SHELL|MAKE.*|PATH|LD_.*|PYTHON.*|FLOW_VARIANT|\.SHELLFLAGS"
)


def is_locked(name: str) -> bool:
    """Return whether agents may not set a variable: structural ones, and those that name scripts, tools or files."""
    return name in STRUCTURAL or (name not in knob_table() and _LOCKED.fullmatch(name) is not None)


@dataclass(frozen=True)
class Assignment:
    """One assignment of the file.

    Attributes:
        name: Variable.
        op: ``"="``, ``":="`` or ``"?="``.
        value: Its text, continuation lines joined, without comment.
        line: Number of its first line, from 1.
        span: Range of the value in the file's text, without white space around it and without comment.
    """

    name: str
    op: str
    value: str
    line: int
    span: tuple[int, int]


@dataclass(frozen=True)
class FlowConfig:
    """A design's configuration, values typed by the knob table; units as there (um, ps, %).

    Attributes:
        knobs: Name -> value of the knobs that are set (not those that are empty).
        structural: Name -> text of the locked variables.
        other: Name -> text of variables that the table does not know.
        warnings: One sentence per unknown variable.
    """

    knobs: Mapping[str, KnobValue]
    structural: Mapping[str, str]
    other: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def design_name(self) -> str:
        """Name of the top module."""
        return self.structural["DESIGN_NAME"]

    def value(self, name: str) -> KnobValue | None:
        """Return a knob's value, or its default where it is unset."""
        return self.knobs.get(name, knob_table()[name].default)

    def flag(self, name: str) -> bool:
        """Return a switch."""
        return bool(self.value(name))

    def number(self, name: str) -> float:
        """Return a number that has a default."""
        value = self.optional(name)
        if value is None:
            raise KeyError(name)
        return value

    def optional(self, name: str) -> float | None:
        """Return a number, or None where it is unset and has no default."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, (int, float)):
            raise KeyError(name)
        return float(value)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a ``choice`` or ``vts`` knob as a tuple of names."""
        value = self.value(name)
        if value is None:
            return ()
        return (value,) if isinstance(value, str) else tuple(str(v) for v in value)  # type: ignore[union-attr]

    def box(self, name: str) -> tuple[float, float, float, float] | None:
        """Return x1, y1, x2, y2 in um, or None where it is unset."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise KeyError(name)
        x1, y1, x2, y2 = (float(v) for v in value)
        return (x1, y1, x2, y2)

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """Knobs with another value than their default on which the embedded flow does not act."""
        table = knob_table()
        return tuple(n for n, v in self.knobs.items() if not table[n].modelled and v != table[n].default)

    def embedded_warnings(self) -> tuple[str, ...]:
        """Return what the embedded flow has to say about this configuration."""
        return self.warnings + tuple(f"{name} is not modelled by the embedded flow" for name in self.not_modelled)


def parse_config(text: str, path: str = "config/config.mk") -> FlowConfig:
    """Read a configuration.

    Args:
        text: The file's text.
        path: Its name, for messages.

    Raises:
        FlowError: If a line is no assignment or a value is not one of its knob; the message names the line and what is
            allowed.
    """
    values: dict[str, Assignment] = {}
    for a in assignments(text, path):
        if a.op != "?=" or a.name not in values:
            values[a.name] = a
    table = knob_table()
    knobs: dict[str, KnobValue] = {}
    structural: dict[str, str] = {}
    other: dict[str, str] = {}
    warnings = []
    for name, a in values.items():
        if name in STRUCTURAL:
            structural[name] = a.value
        elif name in table:
            try:
                value = table[name].parse(a.value)
            except ValueError as e:
                raise FlowError(
                    f"{path}, line {a.line}: not a value", field=name, value=a.value, allowed=str(e)
                ) from None
            if value is not None:
                knobs[name] = value
        else:
            other[name] = a.value
            warnings.append(f"{name} is not a known variable")
    if not re.fullmatch(r"[A-Za-z_]\w*", structural.get("DESIGN_NAME", "")):
        raise FlowError(f"{path}: no design name", field="DESIGN_NAME", value=structural.get("DESIGN_NAME"))
    return FlowConfig(knobs, structural, other, tuple(warnings))


def assignments(text: str, path: str = "config/config.mk") -> list[Assignment]:
    """Return all assignments in file order; raises `FlowError` naming the line."""
    found = []
    at = 0
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # make knows no other line ends
    i = 0
    while i < len(lines):
        number, begin = i + 1, at
        while True:
            line = lines[i]
            at += len(line)
            i += 1
            if not line.rstrip("\r\n").endswith("\\") or i == len(lines):
                break
        raw = text[begin:at].rstrip("\r\n")
        code = re.sub(r"#.*", lambda m: " " * len(m[0]), raw, count=1, flags=re.DOTALL)
        if "\\" in code.replace("\\\n", "").replace("\\\r\n", "").rstrip("\\"):
            raise FlowError(f"{path}, line {number}: no backslashes but for continuation", field="config", value=raw)
        if not code.replace("\\", " ").strip():
            continue
        match = _ASSIGNMENT.match(code)
        if match is None:
            raise FlowError(
                f"{path}, line {number}: not an assignment", field="config", value=raw, allowed="export NAME = value"
            )
        body = code[match.end() :]
        stripped = body.replace("\\", " ")
        left = len(stripped) - len(stripped.lstrip())
        value_span = (begin + match.end() + left, begin + match.end() + len(stripped.rstrip()))
        if not stripped.strip():
            # Without a value the span is empty and lies behind the operator, before any comment.
            value_span = (begin + match.end(), begin + match.end())
        value = " ".join(re.sub(r"\\\r?\n", " ", body).rstrip("\\").split())
        _check(match["name"], value, path, number)
        found.append(Assignment(match["name"], match["op"], value, number, value_span))
    return found


def locked_variables(text: str, path: str = "config/config.mk") -> dict[str, list[str]]:
    """Return name -> all values assigned, in order, of the locked variables of a file; raises `FlowError`."""
    found: dict[str, list[str]] = {}
    for a in assignments(text, path):
        if is_locked(a.name):
            found.setdefault(a.name, []).append(f"{a.op} {a.value}")
    return found


def _check(name: str, value: str, path: str, line: int) -> None:
    # Locked variables cannot be changed by an agent, so that what make runs in them is the task's own.
    if ("$" in value or "`" in value) and not is_locked(name):
        raise FlowError(
            f"{path}, line {line}: references and functions of make are not allowed here", field=name, value=value
        )


def set_variable(text: str, name: str, value: str) -> str:
    """Return the file's text with one variable set; everything else, comments too, stays as it is.

    The assignment that counts is changed in place; where there is none, one is added at the end.

    Args:
        text: The file's text.
        name: Variable.
        value: Its new text; ``""`` unsets it.

    Raises:
        FlowError: If the file or the value cannot be read.
    """
    if re.search(r"[#$`\\\r\n]", value) or value != value.strip():
        raise FlowError("not a value", field=name, value=value, allowed="one line without # $ ` \\")
    effective: Assignment | None = None
    for a in assignments(text):
        if a.name == name and (a.op != "?=" or effective is None):
            effective = a
    if effective is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        new = f"{text}{gap}export {name} = {value}".rstrip() + "\n"
    else:
        begin, end = effective.span
        pad = " " if begin == end and value else ""
        tail = text[end:]
        if begin == end and tail.lstrip(" \t")[:1] in ("", "\r", "\n"):
            tail = tail.lstrip(" \t")
        new = text[:begin] + pad + value + (" " if pad and tail[:1] == "#" else "") + tail
    assignments(new)
    return new
