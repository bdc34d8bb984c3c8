"""`Constraints`: the timing constraints ``config/*.sdc`` of a design, read without running Tcl; all times are ps.

Understood is what the flow's usual constraint files hold: ``set``, ``expr``, ``create_clock`` (virtual clocks too),
``set_input_delay``, ``set_output_delay``, ``set_max_fanout``, ``set_false_path``, and the ways of naming ports
(``get_ports``, ``all_inputs``, ``all_outputs``, ``lsearch`` and ``remove_from_collection`` to leave the clock out).
Further SDC statements are recorded as they stand. Anything else is refused by a `FlowError` that names the line.
"""

from __future__ import annotations

import ast
import fnmatch
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from edagym.errors import FlowError
from edagym.task_assets.ppa.knobs import number_text
from edagym.task_assets.ppa.tcl import Command, Literal, Script, Variable, Word, parse_tcl

Span = tuple[int, int]

RECORDED = (
    "group_path",
    "set_case_analysis",
    "set_clock_groups",
    "set_clock_latency",
    "set_clock_transition",
    "set_clock_uncertainty",
    "set_disable_timing",
    "set_driving_cell",
    "set_ideal_network",
    "set_input_transition",
    "set_load",
    "set_max_capacitance",
    "set_max_delay",
    "set_max_transition",
    "set_min_delay",
    "set_multicycle_path",
    "set_propagated_clock",
    "set_timing_derate",
    "set_units",
)
"""Statements that are kept as text and not interpreted."""
MAX_PERIOD = 1e6
"""Largest clock period, ps."""


@dataclass(frozen=True)
class Ports:
    """A set of ports (or of clocks, pins, cells) as the constraints name it.

    Attributes:
        kind: ``"inputs"``, ``"outputs"``, ``"ports"``, ``"clocks"``, ``"design"``, ``"registers"``, ``"pins"``,
            ``"cells"`` or ``"nets"``.
        names: Names or patterns with ``*`` and ``?``; empty for the kinds that mean all.
        exclude: Port names left out.
        no_clocks: Whether ports with a clock are left out.
    """

    kind: str
    names: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    no_clocks: bool = False

    def select(self, inputs: Iterable[str], outputs: Iterable[str], clock_ports: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the ports that belong to the set, inputs first.

        Args:
            inputs: Names of the design's input ports, one a bit (``"a[3]"``).
            outputs: Names of its output ports.
            clock_ports: Input ports that have a clock.
        """
        pools = {"inputs": [*inputs], "outputs": [*outputs], "ports": [*inputs, *outputs]}
        found = [p for p in pools.get(self.kind, ()) if not self.names or any(_matches(p, n) for n in self.names)]
        drop = (*self.exclude, *(clock_ports if self.no_clocks else ()))
        return tuple(p for p in found if not any(_matches(p, n) for n in drop))


@dataclass(frozen=True)
class Clock:
    """A clock.

    Attributes:
        name: Its name.
        period: Period, ps.
        port: Port that it enters by; ``""``: a virtual clock.
        waveform: Text of ``-waveform``, or ``""``.
        span: Range of the number in the text that states the period, or of the word behind ``-period``.
    """

    name: str
    period: float
    port: str = ""
    waveform: str = ""
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True)
class IODelay:
    """What part of the clock period lies outside the chip, for some ports.

    Attributes:
        direction: ``"input"`` or ``"output"``.
        clock: Name of the clock.
        ports: For which ports.
        delay: The delay, ps.
        fraction: Delay over the clock's period.
        options: Further options (``-min``, ``-max``, ``-add_delay``, ``-rise``, ``-fall``), sorted.
        span: Range of the text to change.
        scale: What a fraction is multiplied by to give the number that stands there: 1 or the period.
    """

    direction: str
    clock: str
    ports: Ports
    delay: float
    fraction: float
    options: tuple[str, ...] = ()
    span: Span = field(default=(0, 0), compare=False)
    scale: float = field(default=1.0, compare=False)


@dataclass(frozen=True)
class FalsePath:
    """A path exception; each of the three may be None.

    Attributes:
        start: ``-from``.
        end: ``-to``.
        through: ``-through``.
    """

    start: Ports | None = None
    end: Ports | None = None
    through: Ports | None = None


@dataclass(frozen=True)
class Constraints:
    """All constraints of a design.

    Attributes:
        clocks: In file order.
        io_delays: In file order; later ones override earlier ones for the same port.
        max_fanout: Most sinks of a net, or None.
        false_paths: Path exceptions.
        other: The statements of `RECORDED` as text, variables and expressions resolved.
        fanout_span: Range of the statement's number, or None.
    """

    clocks: tuple[Clock, ...]
    io_delays: tuple[IODelay, ...] = ()
    max_fanout: int | None = None
    false_paths: tuple[FalsePath, ...] = ()
    other: tuple[str, ...] = ()
    fanout_span: Span | None = field(default=None, compare=False)

    @property
    def period(self) -> float:
        """Period of the first clock, ps."""
        return self.clocks[0].period

    @property
    def clock_ports(self) -> tuple[str, ...]:
        """Ports with a clock."""
        return tuple(c.port for c in self.clocks if c.port)

    @property
    def io_fraction(self) -> float | None:
        """Smallest delay fraction of all inputs and outputs, or None where there is none."""
        return min((d.fraction for d in self.io_delays if "-min" not in d.options), default=None)

    def delays(self, direction: str, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, tuple[str, float]]:
        """Return port -> (clock name, delay in ps) for setup analysis.

        Args:
            direction: ``"input"`` or ``"output"``.
            inputs: Names of the design's input ports, one a bit.
            outputs: Names of its output ports.
        """
        found: dict[str, tuple[str, float]] = {}
        for d in self.io_delays:
            if d.direction == direction and ("-min" not in d.options or "-max" in d.options):
                for port in d.ports.select(inputs, outputs, self.clock_ports):
                    found[port] = (d.clock, d.delay)
        return found

    def warnings(self) -> tuple[str, ...]:
        """Return one sentence per statement on which the embedded flow does not act."""
        return tuple(f"{text.split()[0]} is not modelled by the embedded flow" for text in self.other)


def _matches(port: str, pattern: str) -> bool:
    # A bus name without index means all its bits; brackets are not character classes here.
    pattern = pattern.replace("[", "[[]")
    return fnmatch.fnmatchcase(port, pattern) or fnmatch.fnmatchcase(port, pattern + "[[]*]")


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """A word's value. `span`: where its literal stands; `factors`: of a product, each with its own span."""

    text: str
    span: Span | None = None
    factors: tuple[tuple[int | float, Span | None], ...] = ()


_Value = _Text | Ports


def parse_sdc(text: str, path: str = "config/constraint.sdc") -> Constraints:
    """Read constraints.

    Args:
        text: The file's text.
        path: Its name, for messages.

    Raises:
        FlowError: If a statement is unknown or malformed, a number is out of range, or there is no clock; the message
            names the line.
    """
    return _Interpreter(text, path).run()


class _Interpreter:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        self.variables: dict[str, _Value] = {}
        self.clocks: dict[str, Clock] = {}
        self.io_delays: list[IODelay] = []
        self.false_paths: list[FalsePath] = []
        self.other: list[str] = []
        self.max_fanout: int | None = None
        self.fanout_span: Span | None = None
        self.line = 0

    def fail(self, message: str, value: object = None, allowed: object = None) -> FlowError:
        return FlowError(f"{self.path}, line {self.line}: {message}", field="constraints", value=value, allowed=allowed)

    def run(self) -> Constraints:
        for command in parse_tcl(self.text, self.path):
            self.line = command.line
            self.statement(command)
        if not self.clocks:
            raise FlowError(f"{self.path}: no clock", field="constraints", allowed="create_clock -period ps ...")
        return Constraints(
            tuple(self.clocks.values()),
            tuple(self.io_delays),
            self.max_fanout,
            tuple(self.false_paths),
            tuple(self.other),
            self.fanout_span,
        )

    def statement(self, command: Command) -> None:
        name = self.name_of(command)
        statements: dict[str, Callable[[Command], None]] = {
            "set": self.set,
            "create_clock": self.create_clock,
            "set_input_delay": self.io_delay,
            "set_output_delay": self.io_delay,
            "set_max_fanout": self.set_max_fanout,
            "set_false_path": self.set_false_path,
            "current_design": lambda command: None,
        }
        if name in statements:
            statements[name](command)
        elif name in RECORDED:
            values = [self.shown(self.value(word)) for word in command.words[1:]]
            self.other.append(" ".join([name, *values]))
        else:
            raise self.fail("this statement is not allowed", name, [*statements, *RECORDED])

    def shown(self, value: _Value) -> str:
        """Return a value as text: variables are resolved, so that statements that read alike say alike."""
        if isinstance(value, _Text):
            return " ".join(value.text.split()) or "{}"
        names = [
            value.kind,
            *value.names,
            *(f"!{n}" for n in value.exclude),
            *(["-no_clocks"] if value.no_clocks else []),
        ]
        return f"[{' '.join(names)}]"

    def name_of(self, command: Command) -> str:
        first = command.words[0]
        if len(first.parts) != 1 or not isinstance(first.parts[0], Literal):
            raise self.fail("a command's name must be plain", self.text[first.span[0] : first.span[1]])
        return first.parts[0].text

    # -- statements

    def set(self, command: Command) -> None:
        if len(command.words) != 3:
            raise self.fail("set takes a name and a value")
        name = self.string(command.words[1])
        # Names with these heads, or with colons or brackets, are settings of the real timing engine and of Tcl.
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name.startswith(("sta_", "tcl_", "env", "auto_")):
            raise self.fail("not a name of a variable", name)
        self.variables[name] = self.value(command.words[2])

    def create_clock(self, command: Command) -> None:
        options, rest, words = self.options(command, ("-name", "-period", "-waveform"), ("-add",))
        if "-period" not in options or len(rest) > 1:
            raise self.fail("a clock needs -period and at most one port")
        port = ""
        if rest:
            target = rest[0]
            names = target.names if isinstance(target, Ports) else tuple(target.text.split())
            if (isinstance(target, Ports) and target.kind != "ports") or len(names) != 1:
                raise self.fail("a clock needs one port", allowed="[get_ports name]")
            port = names[0]
        period = options["-period"]
        number = self.number(period, 1e-3, MAX_PERIOD)
        name = self.plain(options["-name"]) if "-name" in options else port
        if not name:
            raise self.fail("a virtual clock needs -name")
        if name in self.clocks:
            raise self.fail("two clocks of one name", name)
        span = period.span if isinstance(period, _Text) and period.span else words["-period"].span
        waveform = self.plain(options["-waveform"]) if "-waveform" in options else ""
        self.clocks[name] = Clock(name, number, port, waveform, span)

    def io_delay(self, command: Command) -> None:
        flags = ("-min", "-max", "-rise", "-fall", "-add_delay", "-clock_fall")
        options, rest, _ = self.options(command, ("-clock",), flags)
        if "-clock" not in options or len(rest) != 2:
            raise self.fail("needs a delay, -clock and ports")
        named = options["-clock"]
        clock = self.plain(named) if isinstance(named, _Text) else " ".join(named.names)
        if clock not in self.clocks:
            raise self.fail("unknown clock", clock, list(self.clocks))
        delay, ports = rest
        if not isinstance(ports, Ports):
            ports = Ports("ports", tuple(ports.text.split()))
        if ports.kind not in ("inputs", "outputs", "ports"):
            raise self.fail("delays belong to ports", ports.kind)
        number = self.number(delay, -MAX_PERIOD, MAX_PERIOD)
        period = self.clocks[clock].period
        word = next(w for w in command.words[1:] if self.value(w) == delay)
        span, scale = word.span, period
        if isinstance(delay, _Text):
            others = [f for f in delay.factors if f[1] != self.clocks[clock].span]
            if len(delay.factors) == 2 and len(others) == 1 and others[0][1] is not None:
                span, scale = others[0][1], 1.0
            elif delay.span is not None:
                span = delay.span
        given = tuple(sorted(o for o in options if o in flags))
        direction = self.name_of(command).split("_")[1]
        self.io_delays.append(IODelay(direction, clock, ports, number, number / period, given, span, scale))

    def set_max_fanout(self, command: Command) -> None:
        _, rest, _ = self.options(command, (), ())
        if len(rest) != 2 or not isinstance(rest[1], Ports) or rest[1].kind != "design":
            raise self.fail("set_max_fanout takes a number and [current_design]")
        number = self.number(rest[0], 1, 10_000)
        if number != int(number):
            raise self.fail("not a whole number", number)
        self.max_fanout = int(number)
        first = rest[0]
        self.fanout_span = first.span if isinstance(first, _Text) and first.span else command.words[1].span

    def set_false_path(self, command: Command) -> None:
        names = ("-from", "-to", "-through")
        options, rest, _ = self.options(command, names, ("-setup", "-hold"))
        if rest or not any(n in options for n in names):
            raise self.fail("set_false_path takes -from, -to or -through")
        ends = []
        for n in names:
            value = options.get(n)
            ends.append(Ports("ports", tuple(value.text.split())) if isinstance(value, _Text) else value)
        if "-hold" not in options or "-setup" in options:
            self.false_paths.append(FalsePath(*ends))
        else:
            # Not a setup exception, but it lets the flow leave hold violations, and so must not change unseen.
            shown = [self.shown(self.value(word)) for word in command.words[1:]]
            self.other.append(" ".join(["set_false_path", *shown]))

    def options(
        self, command: Command, valued: tuple[str, ...], flags: tuple[str, ...]
    ) -> tuple[dict[str, _Value], list[_Value], dict[str, Word]]:
        """Return option -> value (flags: an empty text), the other values in order, and option -> value's word."""
        found: dict[str, _Value] = {}
        places: dict[str, Word] = {}
        rest: list[_Value] = []
        words = iter(command.words[1:])
        for word in words:
            value = self.value(word)
            if isinstance(value, Ports) or not re.match(r"-[a-z]", value.text):
                rest.append(value)
                continue
            name = value.text
            if name not in (*valued, *flags) or name in found:
                raise self.fail("unknown or repeated option", name, [*valued, *flags])
            if name in flags:
                found[name] = _Text("")
                continue
            argument = next(words, None)
            if argument is None:
                raise self.fail("an option without value", name)
            found[name], places[name] = self.value(argument), argument
        return found, rest, places

    # -- values

    def value(self, word: Word) -> _Value:
        values = [self.part(p) for p in word.parts]
        if len(values) == 1:
            return values[0]
        if any(isinstance(v, Ports) for v in values):
            raise self.fail("a collection inside a word", self.text[word.span[0] : word.span[1]])
        return _Text("".join(v.text for v in values if isinstance(v, _Text)))

    def part(self, part: Literal | Variable | Script) -> _Value:
        if isinstance(part, Literal):
            return _Text(part.text, part.span)
        if isinstance(part, Variable):
            if part.name not in self.variables:
                raise self.fail("unknown variable", part.name)
            return self.variables[part.name]
        return self.call(part.command)

    def call(self, command: Command) -> _Value:
        name = self.name_of(command)
        if name == "expr":
            return self.expr(command)
        arguments = [self.value(w) for w in command.words[1:]]
        texts = [a.text for a in arguments if isinstance(a, _Text)]
        if (
            name in ("get_ports", "get_clocks", "get_pins", "get_cells", "get_nets")
            and len(texts) == len(arguments) == 1
        ):
            return Ports(name.removeprefix("get_"), tuple(texts[0].split()))
        if name in ("all_inputs", "all_outputs", "all_clocks", "all_registers") and texts in ([], ["-no_clocks"]):
            return Ports(name.removeprefix("all_"), no_clocks=bool(texts))
        if name == "current_design" and not arguments:
            return Ports("design")
        if name == "lsearch" and set(texts[:4]) == {"-inline", "-all", "-not", "-exact"} and len(arguments) == 6:
            return self.without(arguments[4], arguments[5])
        if name == "remove_from_collection" and len(arguments) == 2:
            return self.without(*arguments)
        if name == "list" and len(texts) == len(arguments):
            return _Text(" ".join(texts))
        raise self.fail("this command is not allowed", name)

    def without(self, whole: _Value, less: _Value) -> Ports:
        if not isinstance(whole, Ports):
            raise self.fail("a collection is needed", whole.text)
        names = less.names if isinstance(less, Ports) else tuple(less.text.split())
        return Ports(whole.kind, whole.names, (*whole.exclude, *names), whole.no_clocks)

    def expr(self, command: Command) -> _Text:
        if len(command.words) < 2:
            raise self.fail("expr without expression")
        first, last = command.words[1], command.words[-1]
        begin, end = first.span[0], last.span[1]
        if len(command.words) == 2 and self.text[begin] in '{"':
            begin, end = begin + 1, end - 1
        return _Expression(self, begin, end).value()

    def string(self, word: Word) -> str:
        return self.plain(self.value(word))

    def plain(self, value: _Value) -> str:
        if isinstance(value, Ports):
            raise self.fail("text is needed, not a collection", value.kind)
        return value.text

    def number(self, value: _Value, low: float, high: float) -> float:
        text = self.plain(value).strip()
        number = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not low <= number <= high:
            raise self.fail("not a number in range", text, f"{number_text(low)} to {number_text(high)}")
        return number


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>{_NUMBER.pattern.removeprefix('[+-]?')})|\$(?P<name>\w+|\{{\w+\}})|(?P<op>[-+*/()]))"
)
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


class _Expression:
    """Arithmetic of ``expr``: numbers, variables, + - * / and parentheses."""

    def __init__(self, interpreter: _Interpreter, begin: int, end: int) -> None:
        self.interpreter, self.begin, self.end = interpreter, begin, end

    def value(self) -> _Text:
        text, at = self.interpreter.text, self.begin
        leaves: list[tuple[int | float, Span | None]] = []
        code = []
        while text[at : self.end].strip():
            match = _TOKEN.match(text, at, self.end)
            if match is None:
                raise self.interpreter.fail("not plain arithmetic", text[self.begin : self.end])
            at = match.end()
            if match["op"]:
                code.append(match["op"])
                continue
            if match["number"]:
                leaf = _Text(match["number"], match.span("number"))
            else:
                found = self.interpreter.variables.get(match["name"].strip("{}"))
                if not isinstance(found, _Text):
                    raise self.interpreter.fail("unknown variable, or no number", match["name"])
                leaf = found
            number: int | float = self.interpreter.number(leaf, -1e12, 1e12)
            if re.fullmatch(r"[+-]?0[0-9].*", leaf.text.strip()):
                raise self.interpreter.fail("a number with a leading zero, which Tcl takes as octal", leaf.text)
            # Tcl divides whole numbers to whole numbers.
            leaves.append((int(number) if re.fullmatch(r"[+-]?[0-9]+", leaf.text.strip()) else number, leaf.span))
            code.append(f"v{len(leaves) - 1}")
        try:
            tree = ast.parse(" ".join(code), mode="eval").body
            result = self.evaluate(tree, [v for v, _ in leaves])
        except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
            raise self.interpreter.fail("not plain arithmetic", text[self.begin : self.end]) from None
        product = (
            isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult) and code[1:2] == ["*"] and len(code) == 3
        )
        return _Text(repr(result), None, tuple(leaves) if product else ())

    def evaluate(self, node: ast.AST, leaves: list[int | float]) -> int | float:
        if isinstance(node, ast.Name):
            return leaves[int(node.id[1:])]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self.evaluate(node.operand, leaves)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = self.evaluate(node.left, leaves), self.evaluate(node.right, leaves)
            whole = isinstance(node.op, ast.Div) and isinstance(left, int) and isinstance(right, int)
            result: int | float = left // right if whole else _OPERATORS[type(node.op)](left, right)
            return result
        raise SyntaxError


# -- writing -----------------------------------------------------------------------------------------------------------


def set_period(text: str, period: float, clock: str | None = None) -> str:
    """Return the file's text with another clock period; all else, comments too, stays as it is.

    Args:
        text: The file's text.
        period: New period, ps.
        clock: Name of the clock; None: the first.

    Raises:
        FlowError: If the file cannot be read, has no such clock, or states the period in a way that one change of a
            number cannot follow.
    """
    old = parse_sdc(text)
    found = next((c for c in old.clocks if clock in (None, c.name)), None)
    if found is None:
        raise FlowError("no such clock", field="clock", value=clock, allowed=[c.name for c in old.clocks])
    new = text[: found.span[0]] + number_text(period) + text[found.span[1] :]
    after = next((c for c in parse_sdc(new).clocks if c.name == found.name), None)
    if after is None or after.period != period:
        raise FlowError("the period cannot be changed in place", field="clock", value=found.name)
    return new


def set_io_fraction(text: str, fraction: float, direction: str | None = None) -> str:
    """Return the file's text with other input and output delays, as a fraction of the clock period.

    Args:
        text: The file's text.
        fraction: New delay over period.
        direction: ``"input"`` or ``"output"``; None: both.

    Raises:
        FlowError: If the file cannot be read, has no such delays, or states them in a way that this cannot change.
    """
    for _ in range(1000):
        constraints = parse_sdc(text)
        wanted = [d for d in constraints.io_delays if direction in (None, d.direction) and "-min" not in d.options]
        if not wanted:
            raise FlowError("there are no delays to change", field="io_fraction", value=direction)
        wrong = [d for d in wanted if not math.isclose(d.fraction, fraction, rel_tol=1e-9, abs_tol=1e-12)]
        if not wrong:
            return text
        d = wrong[0]
        new = text[: d.span[0]] + number_text(round(fraction * d.scale, 9)) + text[d.span[1] :]
        if new == text:
            break
        text = new
    raise FlowError("the delays cannot be changed in place", field="io_fraction", value=fraction)


def set_max_fanout(text: str, fanout: int | None) -> str:
    """Return the file's text with another bound on fan-out; None removes it.

    Raises:
        FlowError: If the file cannot be read or the number is out of range.
    """
    constraints = parse_sdc(text)
    if fanout is None:
        for command in reversed(parse_tcl(text)):
            if isinstance(p := command.words[0].parts[0], Literal) and p.text == "set_max_fanout":
                text = text[: command.span[0]] + text[command.span[1] :]
        new = text
    elif constraints.fanout_span is not None:
        new = text[: constraints.fanout_span[0]] + str(fanout) + text[constraints.fanout_span[1] :]
    else:
        gap = "" if text.endswith("\n") else "\n"
        new = f"{text}{gap}set_max_fanout {fanout} [current_design]\n"
    if parse_sdc(new).max_fanout != fanout:
        raise FlowError("the fan-out cannot be changed in place", field="max_fanout", value=fanout)
    return new
