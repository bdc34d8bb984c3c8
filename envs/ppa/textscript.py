"""The reading halves of sed and awk: printing, deleting and substituting lines; printing fields. Nothing else.

Both refuse what is not on their short lists by an `EditError` that says what is.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edagym.errors import EditError

_MAX_OUTPUT_LINES = 100_000
_MAX_OUTPUT = 8_000_000
_SED_ALLOWED = "p, d, q, =, s/old/new/[gip], with addresses 5, 5,9, $, /pattern/, and -n"
_AWK_ALLOWED = "'CONDITION {print ...}' with fields $n, NR, NF, texts; conditions /re/, $n ~ /re/, comparisons, && ||"


class Searcher(Protocol):
    """What of `re.Pattern` is used here."""

    @property
    def groups(self) -> int:
        """Number of groups."""
        ...

    def search(self, line: str) -> re.Match[str] | None:
        """See `re.Pattern.search`."""
        ...

    def split(self, line: str) -> list[str]:
        """See `re.Pattern.split`."""
        ...

    def subn(self, new: str, line: str, count: int) -> tuple[str, int]:
        """See `re.Pattern.subn`."""
        ...


Pattern = Callable[..., Searcher]


# -- sed ---------------------------------------------------------------------------------------------------------------


@dataclass
class _Command:
    start: Any  # None, a line number, "$" or a pattern
    end: Any
    negated: bool
    name: str
    old: Searcher | None = None
    new: str = ""
    flags: str = ""
    active: bool = False

    def applies(self, number: int, last: int, line: str) -> bool:
        if self.start is None:
            hit = True
        elif self.end is None:
            hit = _at(self.start, number, last, line)
        elif self.active:
            hit = True
            self.active = not (self.end <= number if isinstance(self.end, int) else _at(self.end, number, last, line))
        else:
            hit = _at(self.start, number, last, line)
            # A numeric end that has gone by leaves the range one line long.
            self.active = hit and not (isinstance(self.end, int) and self.end <= number)
        return hit != self.negated


def _at(address: Any, number: int, last: int, line: str) -> bool:
    if address == "$":
        return number == last
    return number == address if isinstance(address, int) else bool(address.search(line))


def sed(script: str, lines: Sequence[str], *, quiet: bool, pattern: Pattern) -> list[str]:
    """Return the lines that a sed script prints.

    Args:
        script: The script; commands are separated by ``;`` or line ends.
        lines: The input.
        quiet: Whether only explicit prints count (``-n``).
        pattern: Compiles a pattern.

    Raises:
        EditError: If the script does anything but print, delete, quit or substitute.
    """
    commands = _sed_commands(script, pattern)
    out: list[str] = []
    size = 0
    for number, line in enumerate(lines, 1):
        deleted = stop = False
        counted = len(out)
        for command in commands:
            if not command.applies(number, len(lines), line):
                continue
            if command.name == "p":
                out.append(line)
            elif command.name == "=":
                out.append(str(number))
            elif command.name == "d":
                deleted = True
                break
            elif command.name == "q":
                stop = True
                break
            elif command.name == "s":
                assert command.old is not None
                line, hits = command.old.subn(command.new, line, 0 if "g" in command.flags else 1)
                if hits and "p" in command.flags:
                    out.append(line)
        if not deleted and not quiet:
            out.append(line)
        size += sum(map(len, out[counted:]))
        if stop or len(out) > _MAX_OUTPUT_LINES or size > _MAX_OUTPUT:
            break
    return out


def _sed_commands(script: str, pattern: Pattern) -> list[_Command]:
    found = []
    at = 0

    def refuse(what: str) -> EditError:
        return EditError(f"sed: {what}", field="command", value=script, allowed=_SED_ALLOWED)

    def delimited(at: int, mark: str) -> tuple[str, int]:
        begin = at
        while at < len(script) and script[at] != mark:
            at += 2 if script[at] == "\\" else 1
        if at >= len(script):
            raise refuse("a pattern is not closed")
        return script[begin:at].replace("\\" + mark, mark), at + 1

    def address(at: int) -> tuple[Any, int]:
        match = re.compile(r"\d{1,9}|\$").match(script, at)
        if match:
            return (match[0] if match[0] == "$" else int(match[0])), match.end()
        if script[at : at + 1] == "/":
            text, at = delimited(at + 1, "/")
            return pattern(text), at
        return None, at

    while at < len(script):
        if script[at] in " \t\n;":
            at += 1
            continue
        start, at = address(at)
        end = None
        if start is not None and script[at : at + 1] == ",":
            end, at = address(at + 1)
            if end is None:
                raise refuse("an address is missing")
        while script[at : at + 1] in (" ", "\t"):
            at += 1
        negated = script[at : at + 1] == "!"
        at += negated
        name = script[at : at + 1]
        at += 1
        if name not in ("p", "d", "q", "=", "s"):
            raise refuse(f"the command {name!r} is not allowed")
        command = _Command(start, end, negated, name)
        if name == "s":
            mark = script[at : at + 1]
            if not mark or mark.isalnum() or mark in "\\\n":
                raise refuse("a substitution needs a delimiter")
            old, at = delimited(at + 1, mark)
            new, at = delimited(at, mark)
            match = re.compile(r"[A-Za-z0-9]*").match(script, at)
            assert match is not None
            command.flags, at = match[0].replace("I", "i"), match.end()
            if not set(command.flags) <= set("gip"):
                raise refuse(f"the flags {command.flags!r} are not allowed")
            command.old = pattern(old, re.IGNORECASE if "i" in command.flags else 0)
            command.new = re.sub(r"(?<!\\)&", r"\\g<0>", new.replace(r"\n", "\n")).replace(r"\&", "&")
            if re.search(r"\\(?![0-9g\\])", command.new) or any(
                int(n) > command.old.groups for n in re.findall(r"\\(\d+)", command.new)
            ):
                raise refuse("an escape in the replacement is not allowed")
        rest = re.compile(r"[ \t]*(?:[;\n]|$)").match(script, at)
        if rest is None:
            raise refuse("text after a command")
        at = rest.end()
        found.append(command)
    return found


# -- awk ---------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.?\d*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<name>NR|NF|FNR)|(?P<field>\$(?:\d+|NF))
    |(?P<op>==|!=|<=|>=|<|>|!~|~|&&|\|\||!|\(|\)|\+|-|\*|,|%))""",
    re.VERBOSE,
)
_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def awk(program: str, lines: Sequence[str], separator: str | None, pattern: Pattern) -> list[str]:
    """Return the lines that an awk program of one or several ``condition {print ...}`` rules prints.

    Args:
        program: The program.
        lines: The input.
        separator: Field separator (``-F``); None: white space.
        pattern: Compiles a pattern.

    Raises:
        EditError: If the program does anything else.
    """
    rules = _awk_rules(program, pattern)
    split = pattern(separator) if separator is not None and len(separator) > 1 else None
    out: list[str] = []
    size = 0
    for number, line in enumerate(lines, 1):
        if split is not None:
            fields = split.split(line)
        else:
            fields = line.split() if separator in (None, " ") else line.split(separator)
        record = _Record(line, [str(f) for f in fields], number)
        for condition, columns in rules:
            if condition is None or _true(condition(record)):
                if len(line) * sum(map(len, columns)) > _MAX_OUTPUT:
                    raise _awk_refuse("too much text at once", program)
                out.append(" ".join("".join(_as_text(v(record)) for v in column) for column in columns))
                size += len(out[-1])
        if len(out) > _MAX_OUTPUT_LINES or size > _MAX_OUTPUT:
            break
    return out


@dataclass
class _Record:
    line: str
    fields: list[str]
    number: int

    def field(self, index: int) -> str:
        if index == 0:
            return self.line
        return self.fields[index - 1] if index <= len(self.fields) else ""


_Value = Callable[[_Record], Any]


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _as_number(value: Any) -> float:
    if isinstance(value, str):
        match = re.match(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", value)
        return float(match[0]) if match else 0.0
    return float(value)


def _true(value: Any) -> bool:
    if isinstance(value, str):
        return _as_number(value) != 0 if _numeric(value) else value != ""
    return bool(value)


def _numeric(value: Any) -> bool:
    return (
        not isinstance(value, str)
        or re.fullmatch(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*", value) is not None
    )


def _awk_refuse(what: str, program: str) -> EditError:
    return EditError(f"awk: {what}", field="command", value=program, allowed=_AWK_ALLOWED)


def _awk_rules(program: str, pattern: Pattern) -> list[tuple[_Value | None, list[list[_Value]]]]:
    rules: list[tuple[_Value | None, list[list[_Value]]]] = []
    at = 0
    while program[at:].strip(" \t\n;"):
        at += len(program[at:]) - len(program[at:].lstrip(" \t\n;"))
        parser = _AwkParser(program, at, pattern)
        condition = None if program[at] == "{" else parser.condition()
        at = parser.skip()
        columns: list[list[_Value]] = [[lambda r: r.line]]
        if program[at : at + 1] == "{":
            match = re.compile(r"\{\s*print\b\s*").match(program, at)
            if match is None:
                raise _awk_refuse("only print is allowed in an action", program)
            parser.at = match.end()
            if program[parser.skip()] not in "};":
                columns = parser.columns()
            at = parser.skip()
            if program[at : at + 1] == ";":
                at = parser.skip(1)
            if program[at : at + 1] != "}":
                raise _awk_refuse("only print of fields, numbers and texts is allowed", program)
            at += 1
        rules.append((condition, columns))
    if not rules:
        raise _awk_refuse("an empty program", program)
    return rules


class _AwkParser:
    """Recursive descent over the conditions and print lists."""

    def __init__(self, text: str, at: int, pattern: Pattern) -> None:
        self.text, self.at, self.pattern, self.depth = text, at, pattern, 0

    def skip(self, ahead: int = 0) -> int:
        self.at += ahead
        while self.text[self.at : self.at + 1] in (" ", "\t", "\n"):
            self.at += 1
        return self.at if self.at < len(self.text) else len(self.text)

    def take(self, *kinds: str) -> str | None:
        match = _TOKEN.match(self.text, self.at)
        if match is None or match.lastgroup is None:
            return None
        token = match[match.lastgroup]
        if match.lastgroup in kinds or (match.lastgroup == "op" and token in kinds):
            self.at = match.end()
            return token
        return None

    def condition(self) -> _Value:
        left = self.conjunction()
        while self.take("||"):
            left = _either(left, self.conjunction())
        return left

    def conjunction(self) -> _Value:
        left = self.comparison()
        while self.take("&&"):
            left = _both(left, self.comparison())
        return left

    def regex(self) -> Searcher | None:
        if self.text[self.skip() : self.at + 1] != "/":
            return None
        match = re.compile(r"/((?:[^/\\\n]|\\.)*)/").match(self.text, self.at)
        if match is None:
            raise _awk_refuse("a pattern is not closed", self.text)
        self.at = match.end()
        return self.pattern(match[1].replace("\\/", "/"))

    def comparison(self) -> _Value:
        self.depth += 1
        if self.depth > 50:
            raise _awk_refuse("too deeply nested", self.text)
        try:
            if self.take("!"):
                inner = self.comparison()
                return lambda r: not _true(inner(r))
            found = self.regex()
            if found is not None:
                return lambda r: bool(found.search(r.line))
            if self.take("("):
                value = self.condition()
                if not self.take(")"):
                    raise _awk_refuse("a bracket is not closed", self.text)
            else:
                value = self.sum()
            match = self.take("~", "!~")
            if match:
                test = self.regex()
                if test is None:
                    raise _awk_refuse("a pattern is needed", self.text)
                return lambda r: bool(test.search(_as_text(value(r)))) == (match == "~")
            sign = self.take(*_COMPARE)
            if sign:
                return _compare(value, self.sum(), _COMPARE[sign])
            return value
        finally:
            self.depth -= 1

    def sum(self) -> _Value:
        left = self.atom()
        while sign := self.take("+", "-", "*", "%"):
            left = _arithmetic(left, self.atom(), sign)
        return left

    def atom(self) -> _Value:
        if number := self.take("number"):
            value = float(number)
            return lambda r: int(value) if value.is_integer() else value
        if text := self.take("string"):
            plain = re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text[1:-1])
            return lambda r: plain
        if name := self.take("name"):
            return (lambda r: len(r.fields)) if name == "NF" else (lambda r: r.number)
        if field := self.take("field"):
            if field == "$NF":
                return lambda r: r.field(len(r.fields))
            index = int(field[1:])
            return lambda r: r.field(index)
        if self.text[self.skip() : self.at + 1] in (">", "|"):
            raise _awk_refuse("output to files and commands is not allowed", self.text)
        raise _awk_refuse("this is not allowed", self.text)

    def columns(self) -> list[list[_Value]]:
        columns = [[self.sum()]]
        while True:
            if self.take(","):
                columns.append([self.sum()])
            elif self.text[self.skip() : self.at + 1] in ("", "}", ";"):
                return columns
            elif self.text[self.at] in ">|":
                raise _awk_refuse("output to files and commands is not allowed", self.text)
            else:
                columns[-1].append(self.sum())


def _either(a: _Value, b: _Value) -> _Value:
    return lambda r: _true(a(r)) or _true(b(r))


def _both(a: _Value, b: _Value) -> _Value:
    return lambda r: _true(a(r)) and _true(b(r))


def _compare(a: _Value, b: _Value, test: Callable[[Any, Any], bool]) -> _Value:
    def run(r: _Record) -> bool:
        x, y = a(r), b(r)
        if _numeric(x) and _numeric(y):
            return test(_as_number(x), _as_number(y))
        return test(_as_text(x), _as_text(y))

    return run


def _arithmetic(a: _Value, b: _Value, sign: str) -> _Value:
    def run(r: _Record) -> float:
        x, y = _as_number(a(r)), _as_number(b(r))
        if sign == "%":
            return x % y if y else 0.0
        return x + y if sign == "+" else x - y if sign == "-" else x * y

    return run
