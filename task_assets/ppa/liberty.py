"""Liberty files: a parser for characterisation, a writer for the technology mapper, and logic expressions.

The parser reads the whole syntax (groups, simple and complex attributes) into nested `Group` objects and gives no
attribute a meaning. The writer makes the library that Yosys and ABC read from our numeric tables; equal tables give
equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edagym.errors import TaskError

if TYPE_CHECKING:
    from edagym.task_assets.ppa.technology import Master, Technology

_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\\\r?\n|[{}();:,]|[^\s{}();:,"\\]+', re.DOTALL)


@dataclass
class Group:
    """One Liberty group: ``name (arguments) { attributes and groups }``.

    Attributes:
        name: Kind of group, e.g. ``cell``.
        arguments: Its arguments without quotes.
        attributes: Simple attributes as strings; complex ones as lists of strings.
        groups: Inner groups in file order.
    """

    name: str
    arguments: tuple[str, ...] = ()
    attributes: dict[str, str | list[str]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def inner(self, name: str) -> list[Group]:
        """Return the inner groups of one kind."""
        return [group for group in self.groups if group.name == name]

    def text(self, name: str, default: str = "") -> str:
        """Return a simple attribute, or the first item of a complex one."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, str) else (value[0] if value else default)

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a simple attribute as a number."""
        value = self.text(name)
        return float(value) if value else default


def parse(text: str) -> Group:
    """Return the library group of a Liberty text.

    Raises:
        TaskError: If the text is not a Liberty library; the message names the place.
    """
    tokens = (
        found.group() for found in _TOKEN.finditer(text) if not found.group().startswith(("/*", "//", "\\\n", "\\\r"))
    )
    root = Group("file")
    try:
        _parse_body(tokens, root, top=True)
    except StopIteration as e:
        raise TaskError("a Liberty file ends within a group", field="liberty", value=text[-80:]) from e
    libraries = root.inner("library")
    if len(libraries) != 1:
        raise TaskError("not one Liberty library", field="liberty", value=text[:80], allowed=1)
    return libraries[0]


def _parse_body(tokens: Iterator[str], group: Group, *, top: bool = False) -> None:
    while True:
        try:
            name = next(tokens)
        except StopIteration:
            if top:
                return
            raise
        if name == "}" and not top:
            return
        if name == ";":
            continue
        mark = next(tokens)
        if mark == ":":
            words = []
            while (token := next(tokens)) not in (";", "}"):
                words.append(token.strip('"'))
            group.attributes[name] = " ".join(words)
            if token == "}":
                return
        elif mark == "(":
            arguments = []
            while (token := next(tokens)) != ")":
                if token != ",":
                    arguments.append(token.strip('"'))
            following = next(tokens, ";")
            if following == "{":
                inner = Group(name, tuple(arguments))
                group.groups.append(inner)
                _parse_body(tokens, inner)
            else:
                group.attributes[name] = arguments
                if following == "}":
                    return
        else:
            raise TaskError(
                "a Liberty statement is neither attribute nor group", field="liberty", value=f"{name} {mark}"
            )


def numbers(values: Sequence[str]) -> np.ndarray:
    """Return the numbers of a ``values`` or ``index`` attribute as float64, one row per quoted string.

    A continuation mark inside a string is skipped.
    """
    rows = [[float(item) for item in re.split(r"[,\s\\]+", row) if item] for row in values]
    return np.array(rows[0] if len(rows) == 1 else rows, dtype=float)


def truth_table(expression: str, inputs: Sequence[str]) -> int:
    """Return the truth table of a Liberty function.

    Args:
        expression: Liberty's operators: ``!``, postfix ``'``, ``*`` ``&`` or blank, ``+`` ``|``, ``^``, ``0``, ``1``.
        inputs: Names in the order of the table's bits.

    Returns:
        An integer whose bit m is the value where input i has the value of bit i of m.

    Raises:
        TaskError: If the expression cannot be read or names something that is no input.
    """
    tokens = re.findall(r"[A-Za-z_][\w\[\]]*|[01!'*&+|^()]", expression)
    size = 1 << len(inputs)
    full = (1 << size) - 1
    values = {"0": 0, "1": full}
    for i, name in enumerate(inputs):
        values[name] = sum(1 << m for m in range(size) if m >> i & 1)
    position = 0

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def take() -> str:
        nonlocal position
        token = peek()
        position += 1
        return token

    def atom() -> int:
        token = take()
        if token == "!":
            return full & ~atom()
        if token == "(":
            value = either()
            if take() != ")":
                raise TaskError("a bracket is open", field="function", value=expression)
        elif token in values:
            value = values[token]
        else:
            raise TaskError("a function has an unknown name", field="function", value=expression, allowed=list(inputs))
        while peek() == "'":
            take()
            value = full & ~value
        return value

    def exclusive() -> int:
        value = atom()
        while peek() == "^":
            take()
            value ^= atom()
        return value

    def both() -> int:
        value = exclusive()
        while peek() not in ("", "+", "|", ")", "^"):
            if peek() in ("*", "&"):
                take()
            value &= exclusive()
        return value

    def either() -> int:
        value = both()
        while peek() in ("+", "|"):
            take()
            value |= both()
        return value

    value = either()
    if position != len(tokens):
        raise TaskError("a function has more than one expression", field="function", value=expression)
    return value


_HEADER = """library ({name}) {{
  delay_model : table_lookup; time_unit : "1ps"; capacitive_load_unit (1,ff); voltage_unit : "1V"; current_unit : "1mA";
  leakage_power_unit : "1pW"; pulling_resistance_unit : "1kohm"; nom_voltage : {voltage:g}; nom_process : 1;
  nom_temperature : 0; default_max_transition : 320; slew_derate_from_library : 1;
  input_threshold_pct_fall : 50; input_threshold_pct_rise : 50;
  output_threshold_pct_fall : 50; output_threshold_pct_rise : 50;
  slew_lower_threshold_pct_fall : 10; slew_lower_threshold_pct_rise : 10;
  slew_upper_threshold_pct_fall : 90; slew_upper_threshold_pct_rise : 90;
  lu_table_template (delay) {{ variable_1 : input_net_transition; variable_2 : total_output_net_capacitance;
    index_1 ({slews}); index_2 ({loads}); }}
  lu_table_template (check) {{ variable_1 : constrained_pin_transition; variable_2 : related_pin_transition;
    index_1 ({slews}); index_2 ({slews}); }}
  power_lut_template (energy) {{ variable_1 : input_transition_time; variable_2 : total_output_net_capacitance;
    index_1 ({slews}); index_2 ({loads}); }}
  power_lut_template (input_energy) {{ variable_1 : input_transition_time; index_1 ({slews}); }}
"""


def write(technology: Technology, vt: str, *, power: bool = False, dont_use: bool = True) -> str:
    """Return a Liberty library of the cells of one threshold voltage.

    Args:
        technology: Source of the tables.
        vt: Threshold voltage.
        power: Write internal energies too; the mapper needs none.
        dont_use: Write the cells that neither mapper nor repair may choose, too.
    """
    slews, loads = _row(np.array([5, 10, 20, 40, 80, 160, 320])), _row(np.array([1, 2, 4, 8, 16, 32, 64]))
    name = f"{technology.name}_{vt}_{technology.corner}"
    lines = [_HEADER.format(name=name, voltage=technology.voltage, slews=slews, loads=loads)]
    for master in technology.masters:
        if master.vt == vt and (dont_use or not master.dont_use):
            lines += _cell(master, technology, power)
    return "\n".join([*lines, "}", ""])


def _row(values: np.ndarray) -> str:
    return '"' + ", ".join(f"{value:.6g}" for value in values.tolist()) + '"'


def _table(kind: str, template: str, values: np.ndarray, base: float = 0.0) -> str:
    axis = f"index_2 ({_row(base * np.array([1, 2, 4, 8, 16, 32, 64]))}); " if base else ""
    rows = ", ".join(_row(row) for row in np.atleast_2d(values))
    return f"{kind} ({template}) {{ {axis}values ({rows}); }}"


def _cell(master: Master, technology: Technology, power: bool) -> list[str]:
    cell = master.description
    lines = [f"cell ({master.name}) {{ area : {master.area:g}; cell_leakage_power : {master.leakage:g};"]
    state = cell.get("register")
    if state:
        names = ("enable", "data_in") if state["latch"] else ("clocked_on", "next_state")
        values = {names[0]: state["clock"], names[1]: state["next"], "clear": state["clear"], "preset": state["preset"]}
        text = " ".join(f'{key} : "{value}";' for key, value in values.items() if value)
        lines.append(f"{'latch' if state['latch'] else 'ff'} ({','.join(state['names'])}) {{ {text} }}")
    offsets = master.offsets
    for number in [*range(master.n_inputs, len(master.pins)), *range(master.n_inputs)]:
        pin = cell["pins"][number]
        if pin["direction"] == "output":
            lines.append(
                f'pin ({pin["name"]}) {{ direction : output; function : "{pin["function"]}";'
                f" max_capacitance : {pin['max_cap']:g};"
            )
        else:
            rise, fall = pin["cap"]
            clock = " clock : true;" if pin["clock"] else ""
            lines.append(
                f"pin ({pin['name']}) {{ direction : input; capacitance : {max(rise, fall):g};"
                f" rise_capacitance : {rise:g}; fall_capacitance : {fall:g};{clock}"
            )
        base = master.load_base[number]
        for arc in cell["arcs"]:
            if arc["pin"] == pin["name"]:
                lines.append(
                    f'timing () {{ related_pin : "{arc["related"]}"; timing_sense : {arc["sense"]};'
                    f" timing_type : {arc['type']};"
                )
                for edge, table in zip(("rise", "fall"), arc["tables"], strict=True):
                    if table >= 0:
                        pair = technology.pairs[offsets["pairs"] + table]
                        lines.append(_table(f"cell_{edge}", "delay", pair[..., 0], base))
                        lines.append(_table(f"{edge}_transition", "delay", pair[..., 1], base))
                lines.append("}")
        for check in cell["checks"]:
            if check["pin"] == pin["name"]:
                lines.append(f'timing () {{ related_pin : "{check["related"]}"; timing_type : {check["type"]};')
                for edge, table in zip(("rise", "fall"), check["tables"], strict=True):
                    if table >= 0:
                        values = technology.constraints[offsets["constraints"] + table]
                        lines.append(_table(f"{edge}_constraint", "check", values))
                lines.append("}")
        if power:
            lines += _energies(cell, pin["name"], base, offsets, technology)
        lines.append("}")
    lines.append("}")
    return lines


def _energies(
    cell: dict[str, Any], pin: str, base: float, offsets: dict[str, int], technology: Technology
) -> list[str]:
    lines = []
    for item in cell["power"]:
        if item["pin"] != pin:
            continue
        lines.append("internal_power () {" + (f' related_pin : "{item["related"]}";' if item["related"] else ""))
        for edge, table in zip(("rise", "fall"), item["tables"], strict=True):
            if item["related"]:
                values = technology.energies[offsets["energies"] + table] if table >= 0 else np.zeros((7, 7))
                lines.append(_table(f"{edge}_power", "energy", values, base))
            else:
                values = technology.input_energies[offsets["input_energies"] + table] if table >= 0 else np.zeros(7)
                lines.append(_table(f"{edge}_power", "input_energy", values))
        lines.append("}")
    return lines
