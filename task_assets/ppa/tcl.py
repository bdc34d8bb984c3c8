r"""Reader of the small part of Tcl in which constraint files are written; nothing is ever executed.

Commands end at a line end or ``;``. A word is bare, ``"quoted"`` or ``{braced}``, and bare and quoted words hold
``$name``, ``${name}`` and ``[command ...]``. What else Tcl has (other backslashes than line continuation, arrays,
argument expansion) is refused. Every piece knows its range in the text, so that an editor can change it in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from edagym.errors import FlowError

_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_MAX_DEPTH = 20


@dataclass(frozen=True)
class Literal:
    """Plain text; `span` is its range in the file."""

    text: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Variable:
    """``$name``."""

    name: str


@dataclass(frozen=True)
class Script:
    """``[command]``."""

    command: Command


Part = Literal | Variable | Script


@dataclass(frozen=True)
class Word:
    """One word of a command.

    Attributes:
        parts: Its pieces.
        braced: Whether it stood in braces; then it is one `Literal`.
        span: Range in the text, delimiters included.
    """

    parts: tuple[Part, ...]
    braced: bool
    span: tuple[int, int]


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        words: Its words; the first is the command's name.
        line: Line number, from 1.
        span: Range in the text.
    """

    words: tuple[Word, ...]
    line: int
    span: tuple[int, int]


def parse_tcl(text: str, path: str = "config/constraint.sdc") -> list[Command]:
    """Return the commands of a file; raises `FlowError` naming the line where it cannot be read."""
    return _Reader(text, path).script()


class _Reader:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path, self.at, self.depth = text, path, 0, 0

    def fail(self, message: str, at: int | None = None) -> FlowError:
        line = self.text.count("\n", 0, self.at if at is None else at) + 1
        return FlowError(f"{self.path}, line {line}: {message}", field="constraints")

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def continues(self) -> int:
        """Return the length of a line continuation here, or 0."""
        return next((len(c) for c in ("\\\n", "\\\r\n") if self.text.startswith(c, self.at)), 0)

    def script(self) -> list[Command]:
        commands = []
        while self.at < len(self.text):
            if self.peek() in " \t\r\n;":
                self.at += 1
            elif n := self.continues():
                self.at += n
            elif self.peek() == "#":
                self.comment()
            else:
                commands.append(self.command("\n;"))
        return commands

    def comment(self) -> None:
        while self.at < len(self.text) and self.peek() != "\n":
            # A comment whose line ends in a backslash goes on in the next.
            self.at += self.continues() or 1

    def command(self, ends: str) -> Command:
        begin = self.at
        line = self.text.count("\n", 0, begin) + 1
        words = []
        while self.at < len(self.text) and self.peek() not in ends:
            if self.peek() in " \t\r":
                self.at += 1
            elif n := self.continues():
                self.at += n
            elif self.peek() == "\n":
                raise self.fail("a bracket is not closed")
            else:
                words.append(self.word(ends))
        if not words:
            raise self.fail("an empty command")
        return Command(tuple(words), line, (begin, words[-1].span[1]))

    def word(self, ends: str) -> Word:
        begin = self.at
        if self.peek() == "{":
            parts: tuple[Part, ...] = (self.braces(),)
            self.end_of_word(ends)
            return Word(parts, True, (begin, self.at))
        if self.peek() == '"':
            self.at += 1
            parts = self.parts('"')
            if self.peek() != '"':
                raise self.fail("a quote is not closed", begin)
            self.at += 1
            self.end_of_word(ends)
        else:
            parts = self.parts(" \t\r\n;" if "]" not in ends else " \t\r\n;]")
        return Word(parts, False, (begin, self.at))

    def end_of_word(self, ends: str) -> None:
        if self.at < len(self.text) and self.peek() not in " \t\r\n;" + ends and not self.continues():
            raise self.fail("text after a closing quote or brace")

    def braces(self) -> Literal:
        depth, begin = 0, self.at + 1
        while self.at < len(self.text):
            char = self.peek()
            if char == "\\":
                raise self.fail("no backslashes in braces")
            depth += (char == "{") - (char == "}")
            self.at += 1
            if depth == 0:
                return Literal(self.text[begin : self.at - 1], (begin, self.at - 1))
        raise self.fail("a brace is not closed", begin)

    def parts(self, ends: str) -> tuple[Part, ...]:
        found: list[Part] = []
        begin = self.at

        def plain() -> None:
            if self.at > begin:
                found.append(Literal(self.text[begin : self.at], (begin, self.at)))

        while self.at < len(self.text) and self.peek() not in ends:
            char = self.peek()
            if char == "$":
                plain()
                found.append(self.variable())
                begin = self.at
            elif char == "[":
                plain()
                found.append(self.bracket())
                begin = self.at
            elif char == "\\":
                if self.continues() and ends[0] != '"':
                    break
                raise self.fail("no backslashes but for continuation")
            else:
                self.at += 1
        plain()
        return tuple(found)

    def variable(self) -> Variable:
        self.at += 1
        if self.peek() == "{":
            end = self.text.find("}", self.at)
            name = self.text[self.at + 1 : end] if end > 0 else ""
            self.at = end + 1
        else:
            end = self.at
            while end < len(self.text) and self.text[end] in _NAME:
                end += 1
            name, self.at = self.text[self.at : end], end
        if not name or not set(name) <= _NAME or self.peek() == "(" or self.text.startswith("::", self.at):
            raise self.fail("not a plain variable name")
        return Variable(name)

    def bracket(self) -> Script:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.fail("too many nested brackets")
        self.at += 1
        command = self.command("];")
        if self.peek() != "]":
            raise self.fail("a bracket is not closed, or holds more than one command")
        self.at += 1
        self.depth -= 1
        return Script(command)
