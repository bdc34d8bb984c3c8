"""`read_files`: the read-only command line of language-model agents (PostEDA-Bench, Appendix D.4).

Nothing is executed and no file system is touched: the commands are small functions over a mapping of path to text that
holds the files an agent may see, and nothing else. So there is nothing to escape to. What the real tools can do beyond
reading (awk's ``system`` and ``print >``, sed's ``w`` and ``e``, find's ``-exec``, a pager's shell) is not there, and
asking for it is refused with the reason.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from edagym.envs.ppa.textscript import awk, sed
from edagym.errors import EditError

COMMANDS = (
    *("awk", "cat", "cut", "diff", "file", "find", "grep", "head", "jq", "less", "ls", "more", "od", "sed", "sort"),
    *("stat", "strings", "tail", "tr", "tree", "uniq", "wc", "xxd"),
)
MAX_OUTPUT = 20_000
"""Characters of an answer; more is cut, and the answer says so."""
MAX_STAGES = 8
MAX_STEPS = 1_000_000_000
"""Steps that all searches of one pattern in one command may take."""
MAX_GROWTH = 20_000_000
_MAX_PATTERN = 200
_MAX_REPEATS = 3
_MAX_INPUT = 8_000_000
_MAX_RANGES = 100
HIDDEN = ("info.json", "task.json")
_QUOTES = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|([^\s'\"|]+)|(\s+)|(\|)", re.DOTALL)
_REFUSED = {
    "`": "command substitution is not allowed",
    "$(": "command substitution is not allowed",
    ">": "output redirection is not allowed",
    "<": "input redirection is not allowed",
    ";": "only one pipeline is allowed",
    "&": "shell control operators are not allowed",
    "||": "shell control operators are not allowed",
    "\n": "only one line is allowed",
    "${": "variables are not expanded here",
}

Files = Mapping[str, str]


def read_files(command: str, files: Files) -> str:
    """Run a read command.

    Args:
        command: One command of `COMMANDS`, or several joined by ``|``.
        files: Path relative to the sandbox -> text: everything that can be read.

    Returns:
        What it prints, at most `MAX_OUTPUT` characters.

    Raises:
        EditError: If the command is not allowed or malformed; the message says why.
    """
    stages = _split(command)
    text: str | None = None
    for words in stages:
        name, *arguments = words
        if name not in COMMANDS:
            raise EditError("this command is not allowed", field="command", value=name, allowed=COMMANDS)
        text = _TOOLS[name](_Call(name, arguments, files, text))
        if len(text) > _MAX_INPUT:
            raise EditError(f"{name}: too much text at once", field="command", value=f"> {_MAX_INPUT} characters")
    answer = text or ""
    if len(answer) > MAX_OUTPUT:
        answer = answer[:MAX_OUTPUT] + f"\n[cut: {len(answer) - MAX_OUTPUT} more characters]\n"
    return answer


def _split(command: str) -> list[list[str]]:
    """Return the stages of a pipeline as words; raises `EditError` for all other syntax of a shell."""
    command = command.strip()
    stages: list[list[str]] = [[]]
    at, word, open_word = 0, "", False
    while at < len(command):
        match = _QUOTES.match(command, at)
        if match is None:
            raise EditError("a quote is not closed", field="command", value=command)
        at = match.end()
        single, double, bare, space, pipe = match.groups()
        if single is not None:
            word, open_word = word + single, True
        elif double is not None:
            if "`" in double or re.search(r"\$[({\w]", double):
                raise EditError("nothing is expanded in double quotes", field="command", value=match[0])
            word, open_word = word + re.sub(r'\\([\\"`$])', r"\1", double), True
        elif bare is not None:
            for sign, reason in _REFUSED.items():
                if sign in bare:
                    raise EditError(reason, field="command", value=bare)
            if re.search(r"\$\w", bare):
                raise EditError("variables are not expanded here", field="command", value=bare)
            word, open_word = word + re.sub(r"\\(.)", r"\1", bare), True
        elif space is not None:
            if "\n" in space:
                raise EditError(_REFUSED["\n"], field="command", value=command)
            if open_word:
                stages[-1].append(word)
            word, open_word = "", False
        elif pipe is not None:
            if command[at : at + 1] in ("|", "&"):
                raise EditError(_REFUSED["||"], field="command", value=command)
            if open_word:
                stages[-1].append(word)
            word, open_word = "", False
            stages.append([])
    if open_word:
        stages[-1].append(word)
    if any(not words for words in stages) or len(stages) > MAX_STAGES:
        raise EditError("an empty or too long pipeline", field="command", value=command, allowed=f"<= {MAX_STAGES}")
    return stages


class _Call:
    """One stage: options, operands and input of a command."""

    def __init__(self, name: str, arguments: Sequence[str], files: Files, piped: str | None) -> None:
        self.name, self.arguments, self.files, self.piped = name, list(arguments), files, piped

    def refuse(self, reason: str, value: Any = None) -> EditError:
        return EditError(f"{self.name}: {reason}", field="command", value=value)

    def options(self, flags: str, valued: str = "", words: Sequence[str] = ()) -> tuple[dict[str, str], list[str]]:
        """Return options and operands; short flags may be joined, values may follow directly or as the next word."""
        found: dict[str, str] = {}
        rest: list[str] = []
        queue = list(self.arguments)
        while queue:
            word = queue.pop(0)
            if word == "--":
                rest += queue
                break
            if word.split("=")[0] in words:
                name, _, value = word.partition("=")
                found[name] = value
            elif re.fullmatch(r"-\d+", word) and self.name in ("head", "tail"):
                found["n"] = word[1:]
            elif len(word) > 1 and word[0] == "-" and not word.startswith("--"):
                i = 1
                while i < len(word):
                    letter = word[i]
                    i += 1
                    if letter in valued:
                        value = word[i:] if i < len(word) else (queue.pop(0) if queue else "")
                        if not value:
                            raise self.refuse("an option without value", word)
                        found[letter] = f"{found[letter]}\n{value}" if letter in found else value
                        break
                    if letter not in flags:
                        raise self.refuse("this option is not allowed", word)
                    found[letter] = ""
            elif word.startswith("--"):
                raise self.refuse("this option is not allowed", word)
            else:
                rest.append(word)
        return found, rest

    def expand(self, operand: str) -> list[str]:
        """Return the files that an operand names: a path, or a pattern with ``*``, ``?`` or ``[...]``."""
        path = self.path(operand)
        if any(c in operand for c in "*?["):
            parts = path.count("/")
            found = [p for p in self.files if fnmatch.fnmatchcase(p, path) and p.count("/") == parts]
            if found:
                return found
        return [path]

    def path(self, operand: str) -> str:
        """Return an operand's path in the sandbox; refuses what lies outside it."""
        pure = PurePosixPath(operand)
        if pure.is_absolute() or ".." in pure.parts or operand.startswith("~") or "\\" in operand:
            raise self.refuse("only files of the sandbox can be read", operand)
        path = str(pure)
        if pure.name in HIDDEN:
            raise self.refuse("this file is not for agents", operand)
        return "" if path == "." else path

    def text(self, path: str) -> str:
        if path in self.files:
            return self.files[path]
        if any(p.startswith(f"{path}/") for p in self.files) or path == "":
            raise self.refuse("is a folder", path or ".")
        raise self.refuse("no such file", path)

    def inputs(self, operands: Sequence[str]) -> list[tuple[str, str]]:
        """Return (path, text) of the operands, or the piped text under the path ``""``."""
        if not operands or list(operands) == ["-"]:
            if self.piped is None:
                raise self.refuse("needs a file")
            return [("", self.piped)]
        found = [(p, self.text(p)) for operand in operands for p in self.expand(operand)]
        if sum(len(text) for _, text in found) > _MAX_INPUT:
            raise self.refuse("too much text at once", f"> {_MAX_INPUT} characters")
        return found

    def joined(self, operands: Sequence[str]) -> str:
        """Return the texts of all operands one after the other."""
        return "".join(_ended(text) for _, text in self.inputs(operands))

    def below(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder."""
        if folder in self.files:
            return [folder]
        prefix = f"{folder}/" if folder else ""
        found = [p for p in self.files if p.startswith(prefix)]
        if not found:
            raise self.refuse("no such file or folder", folder)
        return found

    def regex(self, pattern: str, flags: int = 0) -> Pattern:
        return Pattern(pattern, flags, self.name)

    def whole(self, text: str, default: int = 0) -> int:
        if not text:
            return default
        if not re.fullmatch(r"[+-]?\d{1,9}", text):
            raise self.refuse("not a whole number", text)
        return int(text)


def compile_pattern(pattern: str, flags: int, tool: str) -> tuple[re.Pattern[str], int]:
    """Return a compiled pattern and how many repeats it has.

    Raises:
        EditError: If it is no pattern, too long, or has nested repeats, which could run for ever.
    """
    if len(pattern) > _MAX_PATTERN:
        raise EditError(f"{tool}: the pattern is too long", field="command", value=pattern)
    # Agents write the pattern and the text: repeats of repeats or of alternatives take exponential time, many repeats
    # in a row a high power of the line's length.
    bare = re.sub(r"\\[^1-9]|\[\^?\]?[^\]]*\]", "x", pattern)
    nested = re.search(r"[*+}]\)?[*+{]|\([^()]*[*+?}|(][^()]*\)+[*+{]|\\[1-9]", bare)
    repeats = len(re.findall(r"[*+]|\{", bare))
    if nested or repeats > _MAX_REPEATS:
        raise EditError(
            f"{tool}: nested or too many repeats and back-references are not allowed", field="command", value=pattern
        )
    for name, chars in _CLASSES.items():
        pattern = pattern.replace(f"[:{name}:]", chars)
    try:
        return re.compile(pattern, flags), repeats
    except (re.error, RecursionError, OverflowError) as e:
        raise EditError(f"{tool}: not a pattern ({e})", field="command", value=pattern) from None


class Pattern:
    """A compiled pattern that keeps count of the steps that its searches may take, and stops before they are too many.

    A pattern with n repeats may try every choice of n + 1 positions of a line. Agents write both, and a search cannot
    be stopped from outside.

    Args:
        pattern: The pattern, in Python's syntax.
        flags: Flags of the `re` module.
        tool: Name of the tool, for messages.

    Raises:
        EditError: If the pattern is refused.
    """

    def __init__(self, pattern: str, flags: int, tool: str) -> None:
        self._compiled, self._repeats = compile_pattern(pattern, flags, tool)
        self._left, self._tool = MAX_STEPS, tool

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self._compiled.groups

    def _charge(self, line: str) -> None:
        self._left -= math.comb(len(line) + 1, self._repeats + 1)
        if self._left < 0:
            pattern = self._compiled.pattern
            raise EditError(f"{self._tool}: too slow a pattern for lines this long", field="command", value=pattern)

    def search(self, line: str) -> re.Match[str] | None:
        """See `re.Pattern.search`."""
        self._charge(line)
        return self._compiled.search(line)

    def finditer(self, line: str) -> Iterator[re.Match[str]]:
        """See `re.Pattern.finditer`."""
        self._charge(line)
        return self._compiled.finditer(line)

    def split(self, line: str) -> list[str]:
        """See `re.Pattern.split`."""
        self._charge(line)
        return [str(part) for part in self._compiled.split(line)]

    def subn(self, new: str, line: str, count: int) -> tuple[str, int]:
        """See `re.Pattern.subn`."""
        self._charge(line)
        if len(line) * len(new) > MAX_GROWTH:
            raise EditError(f"{self._tool}: too much text at once", field="command", value=self._compiled.pattern)
        return self._compiled.subn(new, line, count=count)


_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "space": r"\s",
    "blank": r" \t",
    "upper": "A-Z",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
}


def basic_to_python(pattern: str) -> str:
    """Return a basic regular expression (grep, sed) in Python's syntax."""
    swap = {r"\(": "(", r"\)": ")", r"\{": "{", r"\}": "}", r"\|": "|", r"\+": "+", r"\?": "?"}
    out = re.sub(
        r"\\.|\[\^?\]?[^\]]*\]|[(){}|+?]",
        lambda m: swap.get(m[0], m[0] if len(m[0]) > 1 else "\\" + m[0]),
        pattern,
    )
    return out.replace(r"\<", r"\b").replace(r"\>", r"\b")


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _join(lines: Sequence[str] | Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# -- the commands --------------------------------------------------------------------------------------------------


def _cat(call: _Call) -> str:
    options, rest = call.options("nAes")
    text = call.joined(rest)
    if "n" not in options:
        return text
    return _join([f"{i:6d}\t{line}" for i, line in enumerate(_lines(text), 1)])


def _page(call: _Call) -> str:
    _, rest = call.options("NRSFX")
    if any(word.startswith("+") for word in rest):
        raise call.refuse("commands of the pager are not allowed", rest)
    return call.joined(rest)


def _head(call: _Call) -> str:
    options, rest = call.options("q", "nc")
    out = []
    texts = call.inputs(rest)
    for path, text in texts:
        if "c" in options:
            part = text[: max(call.whole(options["c"]), 0)]
        else:
            n = call.whole(options.get("n", ""), 10)
            part = _join(_lines(text)[: n if n >= 0 else len(_lines(text)) + n])
        out.append((f"==> {path} <==\n" if len(texts) > 1 and "q" not in options else "") + part)
    return "\n".join(out) if len(out) > 1 else out[0]


def _tail(call: _Call) -> str:
    options, rest = call.options("q", "nc")
    out = []
    texts = call.inputs(rest)
    for path, text in texts:
        if "c" in options:
            n = abs(call.whole(options["c"]))
            part = text[len(text) - min(n, len(text)) :]
        else:
            given = options.get("n", "")
            n, lines = abs(call.whole(given, 10)), _lines(text)
            part = _join(lines[max(n - 1, 0) :] if given.startswith("+") else lines[len(lines) - min(n, len(lines)) :])
        out.append((f"==> {path} <==\n" if len(texts) > 1 and "q" not in options else "") + part)
    return "\n".join(out) if len(out) > 1 else out[0]


def _grep(call: _Call) -> str:
    options, rest = call.options("nivcEFHhlLorRwxqsa", "eABCm", ("--include", "--color", "--color=auto"))
    if "e" in options:
        patterns = options["e"].split("\n")
    elif rest:
        patterns = [rest.pop(0)]
    else:
        raise call.refuse("needs a pattern")
    sources = []
    for pattern in patterns:
        one = re.escape(pattern) if "F" in options else pattern if "E" in options else basic_to_python(pattern)
        one = rf"(?<!\w)(?:{one})(?!\w)" if "w" in options else one
        sources.append(rf"^(?:{one})$" if "x" in options else one)
    tests = [call.regex(s, re.IGNORECASE if "i" in options else 0) for s in sources]
    recursive = "r" in options or "R" in options
    if recursive:
        folders = [call.path(r) for r in rest] or [""]
        texts = [(p, call.files[p]) for f in folders for p in call.below(f)]
        if "--include" in options:
            shape = options["--include"].strip("'\"")
            texts = [(p, t) for p, t in texts if fnmatch.fnmatchcase(p.rpartition("/")[2], shape)]
    else:
        texts = call.inputs(rest)
    before = call.whole(options.get("B", options.get("C", "")))
    after = call.whole(options.get("A", options.get("C", "")))
    most = call.whole(options.get("m", ""), 10**9)
    named = ("H" in options or recursive or len(texts) > 1) and "h" not in options
    out: list[str] = []
    for path, text in texts:
        lines = _lines(text)
        hits = [i for i, line in enumerate(lines) if any(t.search(line) for t in tests) != ("v" in options)][:most]
        head = f"{path}:" if named else ""
        if "q" in options:
            continue
        if "c" in options:
            out.append(f"{head}{len(hits)}")
        elif "l" in options or "L" in options:
            out += [path] if bool(hits) == ("l" in options) else []
        elif "o" in options:
            for i in hits:
                number = f"{i + 1}:" if "n" in options else ""
                out += [f"{head}{number}{m[0]}" for t in tests for m in t.finditer(lines[i]) if m[0]]
        else:
            shown: list[int] = []
            for i in hits:
                first = max(i - before, shown[-1] + 1 if shown else 0)
                shown += range(first, min(i + after + 1, len(lines)))
            marked = set(hits)
            for k, i in enumerate(shown):
                if k and i > shown[k - 1] + 1 and (before or after):
                    out.append("--")
                sign = ":" if i in marked else "-"
                name = f"{path}{sign}" if named else ""
                out.append(f"{name}{i + 1}{sign}{lines[i]}" if "n" in options else f"{name}{lines[i]}")
    return _join(out)


def _wc(call: _Call) -> str:
    options, rest = call.options("lwcm")
    rows = []
    texts = call.inputs(rest)
    for path, text in texts:
        rows.append((text.count("\n"), len(text.split()), len(text.encode()), path))
    if len(rows) > 1:
        rows.append((sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows), "total"))
    columns = [k for k, letter in enumerate("lwc") if letter in options or (letter == "c" and "m" in options)]
    columns = columns or [0, 1, 2]
    return _join([" ".join([*(str(row[k]) for k in columns), str(row[3])]).rstrip() for row in rows])


def _key(text: str) -> tuple[float, str]:
    match = re.match(r"\s*(-?\d+\.?\d*(?:[eE][+-]?\d+)?)", text)
    return (float(match[1]) if match else 0.0, text)


def _sort(call: _Call) -> str:
    options, rest = call.options("nrugbf", "kt")
    lines = _lines(call.joined(rest))
    separator = options.get("t")
    field = call.whole(re.match(r"\d*", options.get("k", ""))[0])  # type: ignore[index]

    def part(line: str) -> str:
        if not field:
            return line
        words = line.split(separator) if separator else line.split()
        return " ".join(words[field - 1 :]) if separator is None else separator.join(words[field - 1 :])

    def key(line: str) -> Any:
        text = part(line)
        if "n" in options or "g" in options or re.search(r"n", options.get("k", "")):
            return _key(text)
        return text.lower() if "f" in options else text

    lines = sorted(lines, key=key, reverse="r" in options or "r" in options.get("k", ""))
    if "u" in options:
        lines = list(dict.fromkeys(lines))
    return _join(lines)


def _uniq(call: _Call) -> str:
    options, rest = call.options("cdui")
    if len(rest) > 1:
        raise call.refuse("an output file is not allowed", rest[1])
    runs: list[tuple[str, int]] = []
    for line in _lines(call.joined(rest)):
        same = runs and (runs[-1][0].lower() == line.lower() if "i" in options else runs[-1][0] == line)
        runs[-1:] = [(runs[-1][0], runs[-1][1] + 1)] if same else [*runs[-1:], (line, 1)]
    kept = [(t, n) for t, n in runs if not ("d" in options and n < 2) and not ("u" in options and n > 1)]
    return _join([f"{n:7d} {t}" if "c" in options else t for t, n in kept])


def _ranges(call: _Call, text: str) -> list[tuple[int, int]]:
    found = []
    for part in text.split(",", _MAX_RANGES):
        match = re.fullmatch(r"(\d{0,6})(-?)(\d{0,6})", part)
        if match is None or not (match[1] or match[3]):
            raise call.refuse("not a list of positions", text)
        low = int(match[1] or 1)
        found.append((low, int(match[3] or 10**9) if match[2] else low))
    return found


def _cut(call: _Call) -> str:
    options, rest = call.options("s", "dfcb")
    out = []
    chars = options.get("c", options.get("b"))
    if (chars is None) == ("f" not in options):
        raise call.refuse("needs -f or -c")
    ranges = _ranges(call, options["f"] if chars is None else chars)
    mark = options.get("d", "\t")
    for line in _lines(call.joined(rest)):
        if chars is not None:
            out.append("".join(c for i, c in enumerate(line, 1) if any(a <= i <= b for a, b in ranges)))
        elif mark not in line:
            out += [] if "s" in options else [line]
        else:
            parts = line.split(mark)
            out.append(mark.join(p for i, p in enumerate(parts, 1) if any(a <= i <= b for a, b in ranges)))
    return _join(out)


def _set(call: _Call, text: str) -> list[str]:
    for name, chars in _CLASSES.items():
        text = text.replace(f"[:{name}:]", chars.replace("\\s", " \\t\\n"))
    text = text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")
    out: list[str] = []
    i = 0
    while i < len(text):
        if i + 2 < len(text) and text[i + 1] == "-":
            if ord(text[i + 2]) - ord(text[i]) > 1000:
                raise call.refuse("the range is too long", text)
            out += [chr(c) for c in range(ord(text[i]), ord(text[i + 2]) + 1)]
            i += 3
        else:
            out.append(text[i])
            i += 1
    return out


def _tr(call: _Call) -> str:
    options, rest = call.options("dsc")
    if call.piped is None or not 1 <= len(rest) <= 2:
        raise call.refuse("needs piped text and one or two sets")
    first = _set(call, rest[0])
    chosen = set(first)
    text = call.piped
    inside: Callable[[str], bool] = (lambda c: c not in chosen) if "c" in options else (lambda c: c in chosen)
    if "d" in options:
        return "".join(c for c in text if not inside(c))
    if len(rest) == 2:
        second = _set(call, rest[1]) or [""]
        table = {c: second[min(i, len(second) - 1)] for i, c in enumerate(first)}
        text = "".join((table.get(c, second[-1]) if inside(c) else c) for c in text)
        chosen, inside = set(second), lambda c: c in chosen
    if "s" in options:
        text = "".join(c for i, c in enumerate(text) if not (i and c == text[i - 1] and inside(c)))
    return text


def _ls(call: _Call) -> str:
    options, rest = call.options("laRhtr1Sd")
    out = []
    for operand in rest or ["."]:
        for path in call.expand(operand):
            if path in call.files:
                out.append(_entry(call, path, path, "l" in options))
                continue
            below = call.below(path)
            prefix = f"{path}/" if path else ""
            if "R" in options:
                names = {p[len(prefix) :] for p in below}
            else:
                names = {p[len(prefix) :].split("/")[0] for p in below}
            if len(rest) > 1:
                out.append(f"{path}:")
            out += [_entry(call, prefix + n, n, "l" in options) for n in sorted(names)]
    return _join(out)


def _entry(call: _Call, path: str, name: str, long: bool) -> str:
    if not long:
        return name
    if path in call.files:
        return f"-r--r--r-- {len(call.files[path].encode()):8d} {name}"
    return f"dr-xr-xr-x {0:8d} {name}"


def _find(call: _Call) -> str:
    folders, words = [], list(call.arguments)
    while words and not words[0].startswith(("-", "(", "!")):
        folders.append(call.path(words.pop(0)))
    folders = folders or [""]
    names: list[str] = []
    fold, kind, depth = False, "", 10**6
    while words:
        option = words.pop(0)
        if option in ("-name", "-iname", "-type", "-maxdepth", "-path") and words:
            value = words.pop(0)
            if option == "-type":
                kind = value
            elif option == "-maxdepth":
                depth = call.whole(value)
            else:
                names.append(("p" if option == "-path" else "n") + value)
                fold = fold or option == "-iname"
        elif option not in ("-print", "-o", "-or"):
            raise call.refuse("this option is not allowed", option)
    found = []
    for folder in folders:
        prefix = f"{folder}/" if folder else ""
        entries = {folder or "."}
        for path in call.below(folder):
            parts = path[len(prefix) :].split("/")
            entries |= {prefix + "/".join(parts[: i + 1]) for i in range(len(parts)) if i < depth}
        for path in sorted(entries):
            is_file = path in call.files
            if kind and (kind == "f") != is_file:
                continue
            last = path.rpartition("/")[2]
            if names and not any(_named(path if n[0] == "p" else last, n[1:], fold) for n in names):
                continue
            found.append(path)
    return _join(found)


def _named(name: str, pattern: str, fold: bool) -> bool:
    return fnmatch.fnmatchcase(name.lower(), pattern.lower()) if fold else fnmatch.fnmatchcase(name, pattern)


def _tree(call: _Call) -> str:
    options, rest = call.options("afd", "L")
    depth = call.whole(options.get("L", ""), 10**6)
    out = []
    for operand in rest or ["."]:
        folder = call.path(operand)
        prefix = f"{folder}/" if folder else ""
        out.append(folder or ".")
        shown = set()
        for path in call.below(folder):
            parts = path[len(prefix) :].split("/")
            for i, part in enumerate(parts[:depth]):
                key = "/".join(parts[: i + 1])
                if key not in shown:
                    shown.add(key)
                    out.append("    " * i + f"|-- {part}")
    return _join(out)


def _jq(call: _Call) -> str:
    options, rest = call.options("rcSM")
    if not rest:
        raise call.refuse("needs a filter")
    program, *operands = rest
    out = []
    for _, text in call.inputs(operands):
        try:
            values = [json.loads(text)]
        except (ValueError, RecursionError) as e:
            raise call.refuse(f"not JSON ({e})") from None
        for step in program.split("|"):
            values = [v for value in values for v in _jq_step(call, step.strip(), value)]
        for value in values:
            if isinstance(value, str) and "r" in options:
                out.append(value)
            else:
                out.append(json.dumps(value, indent=None if "c" in options else 2, sort_keys="S" in options))
    return _join(out)


def _jq_step(call: _Call, step: str, value: Any) -> list[Any]:
    if step == "keys":
        return [sorted(value) if isinstance(value, dict) else list(range(len(value)))]
    if step == "length":
        return [len(value)]
    if step == "to_entries" and isinstance(value, dict):
        return [[{"key": k, "value": v} for k, v in value.items()]]
    match = re.fullmatch(r"\.?((?:\.?(?:[A-Za-z_]\w*)|\.?\"[^\"]*\"|\[\s*\]|\[-?\d+\]|\[\"[^\"]*\"\])*)", step)
    if match is None or not step.startswith("."):
        raise call.refuse("only paths, keys, length and to_entries are allowed", step)
    values = [value]
    for part in re.findall(r"[A-Za-z_]\w*|\"[^\"]*\"|\[\s*\]|\[-?\d+\]|\[\"[^\"]*\"\]", match[1]):
        if part.strip("[] ") == "":
            values = [x for v in values for x in (v.values() if isinstance(v, dict) else v or ())]
        elif re.fullmatch(r"\[-?\d+\]", part):
            index = int(part[1:-1])
            values = [v[index] if isinstance(v, list) and -len(v) <= index < len(v) else None for v in values]
        else:
            key = part.strip('[]"')
            values = [v.get(key) if isinstance(v, dict) else None for v in values]
    return values


def _file(call: _Call) -> str:
    _, rest = call.options("b")
    return _join([f"{p}: UTF-8 text, {t.count(chr(10))} lines" for p, t in call.inputs(rest)])


def _stat(call: _Call) -> str:
    _, rest = call.options("")
    return _join([f"  File: {p}\n  Size: {len(t.encode())}\n  Type: regular file" for p, t in call.inputs(rest)])


def _diff(call: _Call) -> str:
    options, rest = call.options("uqwbiN", "U")
    if len(rest) != 2:
        raise call.refuse("needs two files")
    (a, one), (b, two) = call.inputs(rest[:1])[0], call.inputs(rest[1:])[0]
    if "q" in options:
        return "" if one == two else f"Files {a} and {b} differ\n"
    left, right = _lines(one), _lines(two)
    if len(left) * len(right) > 4_000_000:
        raise call.refuse("the files are too long to compare")
    context = call.whole(options.get("U", ""), 3)
    return _join([line.rstrip("\n") for line in difflib.unified_diff(left, right, a, b, n=context, lineterm="")])


def _strings(call: _Call) -> str:
    options, rest = call.options("a", "n")
    least = call.whole(options.get("n", ""), 4)
    return _join(re.findall(rf"[ -~\t]{{{min(max(least, 1), 1000)},}}", call.joined(rest)))


def _bytes(call: _Call, flags: str, valued: str) -> tuple[bytes, dict[str, str]]:
    options, rest = call.options(flags, valued)
    if call.name == "xxd" and len(rest) > 1:
        raise call.refuse("an output file is not allowed", rest[1])
    return call.joined(rest).encode()[:MAX_OUTPUT], options


def _xxd(call: _Call) -> str:
    data, options = _bytes(call, "p", "ls")
    start = max(call.whole(options.get("s", "")), 0)
    data = data[start : start + call.whole(options.get("l", ""), MAX_OUTPUT)]
    if "p" in options:
        return _join([data[i : i + 30].hex() for i in range(0, len(data), 30)])
    return _join(
        [
            f"{start + i:08x}: {data[i : i + 16].hex(' ', -2):<39}  "
            + "".join(chr(c) if 32 <= c < 127 else "." for c in data[i : i + 16])
            for i in range(0, len(data), 16)
        ]
    )


def _od(call: _Call) -> str:
    data, options = _bytes(call, "cxbv", "ANt")
    data = data[: call.whole(options.get("N", ""), MAX_OUTPUT)]
    rows = []
    for i in range(0, len(data), 16):
        row = data[i : i + 16]
        if "c" in options:
            body = " ".join(
                f"{chr(c) if 32 <= c < 127 else repr(chr(c))[1:-1] if c < 32 else f'{c:03o}':>3}" for c in row
            )
        else:
            body = " ".join(f"{c:03o}" for c in row)
        rows.append(f"{i:07o} {body}")
    return _join([*rows, f"{len(data):07o}"])


def _sed(call: _Call) -> str:
    options, rest = call.options("nEr", "e")
    if "e" in options:
        script = options["e"]
    elif rest:
        script = rest.pop(0)
    else:
        raise call.refuse("needs a script")
    extended = "E" in options or "r" in options

    def pattern(text: str, flags: int = 0) -> Pattern:
        return call.regex(text if extended else basic_to_python(text), flags)

    return _join(sed(script, _lines(call.joined(rest)), quiet="n" in options, pattern=pattern))


def _awk(call: _Call) -> str:
    options, rest = call.options("", "F")
    if not rest:
        raise call.refuse("needs a program")
    program, *operands = rest
    return _join(awk(program, _lines(call.joined(operands)), options.get("F"), lambda text: call.regex(text)))


_TOOLS: dict[str, Callable[[_Call], str]] = {
    "awk": _awk,
    "cat": _cat,
    "cut": _cut,
    "diff": _diff,
    "file": _file,
    "find": _find,
    "grep": _grep,
    "head": _head,
    "jq": _jq,
    "less": _page,
    "ls": _ls,
    "more": _page,
    "od": _od,
    "sed": _sed,
    "sort": _sort,
    "stat": _stat,
    "strings": _strings,
    "tail": _tail,
    "tr": _tr,
    "tree": _tree,
    "uniq": _uniq,
    "wc": _wc,
    "xxd": _xxd,
}
