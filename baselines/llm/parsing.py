"""Reading what models write: JSON among fences and prose, with trailing commas, cut off, in several pieces.

What is read is never completed by guessing: an object that was cut off before its end is dropped, and a list keeps the
members that are whole. Numbers and lengths stay what they are, except that a length written as a text with a unit
(``"1.5 um"``, ``"800nm"``) becomes a number of micrometres.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from edagym.errors import PolicyError

MAX_REPLY = 400_000
"""Characters of a reply that are read."""
MAX_STARTS = 2_000
"""Brackets of a reply that are tried as the beginning of a value."""
MAX_DEPTH = 64
"""Deepest nesting that is read."""

_THINKING = re.compile(r"<(/?)(think|thinking|reasoning)>", re.IGNORECASE)
_UNITS = {"": 1.0, "um": 1.0, "µm": 1.0, "μm": 1.0, "micron": 1.0, "microns": 1.0, "nm": 1e-3, "mm": 1e3}
_LENGTH = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([a-zµμ]*)")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SKIP = re.compile(r"(?:\s|//[^\n]*|/\*.{0,4000}?\*/)*", re.DOTALL)
_STRINGS = {q: re.compile(rf"{q}(?:[^{q}\\]|\\.)*{q}", re.DOTALL) for q in "\"'"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_HALVES = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


class _CutOff(Exception):
    """The text ends inside a value; `partial` is what was whole, or None."""

    def __init__(self, partial: Any = None) -> None:
        super().__init__()
        self.partial = partial


class _Malformed(Exception):
    """The text is no value here."""


def parse_values(text: str) -> list[Any]:
    """Return the JSON objects and lists of a reply in order: outermost ones, and whole ones inside broken ones.

    Tolerated: code fences, prose around, reasoning in ``<think>`` tags, comments, trailing and missing final commas,
    single quotes, bare keys, line breaks inside strings, Python's words for true, false and null, a cut-off end.

    Args:
        text: The reply.
    """
    text = _without_thinking(text[:MAX_REPLY])
    found: list[Any] = []
    at = 0
    for _ in range(MAX_STARTS):
        if (at := _opening(text, at)) < 0:
            break
        value, at = _value_at(text, at)
        if value is not None:
            found.append(value)
    # Half of a surrogate pair is no text: it cannot be written to a file or sent.
    return found if _HALVES.search(text) is None else [_whole_text(v) for v in found]


def _without_thinking(text: str) -> str:
    """Return a text without what stands between tags of reasoning; a tag that nothing closes stays."""
    tags = [(m[2].lower(), bool(m[1]), m.start(), m.end()) for m in _THINKING.finditer(text)]
    last = {name: start for name, closes, start, _ in tags if closes}
    kept: list[str] = []
    at, inside = 0, ""
    for name, closes, start, end in tags:
        if inside == name and closes:
            inside, at = "", end
        elif not inside and not closes and last.get(name, -1) > start:
            kept.append(text[at:start])
            inside = name
    return " ".join([*kept, text[at:]])


def _whole_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_text(v) for v in value]
    if isinstance(value, dict):
        return {_whole_text(k): _whole_text(v) for k, v in value.items()}
    return value


def parse_objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a reply; the members of lists count as objects of their own."""
    found: list[dict[str, Any]] = []
    for value in parse_values(text):
        found.extend(v for v in (value if isinstance(value, list) else [value]) if isinstance(v, dict))
    return found


def parse_actions(text: str, ops: Any, *, key: str = "edits") -> list[dict[str, Any]]:
    """Return the actions of a reply: objects with an ``op``, found wherever the reply has them.

    Lists and single objects are joined in order. A list that draws on a layer of an earlier one replaces it: first came
    a draft, then the answer. Lengths with units become micrometres.

    Args:
        text: The reply.
        ops: What there is to choose from, for the error message: names of operations, an action space (its `schema`),
            or the JSON schema of one action.
        key: Field of an outer object that holds the list.

    Raises:
        PolicyError: If there is no action in the reply. An object with an unknown ``op`` is one: refusing it is the
            environment's business.
    """
    lists: list[list[dict[str, Any]]] = []
    empty = single = False
    for value in parse_values(text):
        actions = list(_actions(value, key))
        empty = empty or value == [] or (isinstance(value, dict) and value.get(key) == [])
        if not actions:
            continue
        was_single, single = single, isinstance(value, dict) and "op" in value
        if single and was_single:
            lists[-1] += actions  # one object after another is one list
            continue
        drawn = _layers(actions)
        lists = [earlier for earlier in lists if not drawn & _layers(earlier)]
        lists.append(actions)
    if not lists:
        why = "the list of actions is empty" if empty else "no action in the reply"
        raise PolicyError(why, field="reply", value=text[:200], allowed=f'JSON objects with "op" among {_ops(ops)}')
    return [action for actions in lists for action in actions]


def _layers(actions: list[dict[str, Any]]) -> set[str]:
    return {layer for action in actions if isinstance(layer := action.get("layer"), str)}


def _ops(ops: Any) -> list[str]:
    schema = ops.schema() if hasattr(ops, "schema") else ops
    if isinstance(schema, Mapping):
        return sorted({form["properties"]["op"]["const"] for form in schema.get("anyOf", [schema])})
    return list(schema)


def _actions(value: Any, key: str) -> Iterator[dict[str, Any]]:
    """Yield the actions of one value: itself, its members, or those of its field."""
    if isinstance(value, list):
        for member in value:
            yield from _actions(member, key)
    elif isinstance(value, dict):
        if "op" in value:
            yield {name: _lengths(member) if name in ("points", "width") else member for name, member in value.items()}
        elif isinstance(value.get(key), list | dict):
            yield from _actions(value[key], key)
        else:
            # {"answer": {"edits": [...]}}, {"contacts": [...], "gate": [...]}: look one level further down.
            for member in value.values():
                if isinstance(member, list | dict):
                    yield from _actions(member, key)


def _lengths(value: Any) -> Any:
    """Turn lengths written as texts into numbers of um, and points written as objects into pairs."""
    if isinstance(value, list):
        return [_lengths(v) for v in value]
    if isinstance(value, dict) and set(value) == {"x", "y"}:
        return [_lengths(value["x"]), _lengths(value["y"])]
    if isinstance(value, str) and (match := _LENGTH.fullmatch(value.strip())) and match[2] in _UNITS:
        return float(match[1]) * _UNITS[match[2]]
    return value


# -- a forgiving JSON reader ---------------------------------------------------------------------------------------


def _opening(text: str, at: int) -> int:
    places = [i for i in (text.find("{", at), text.find("[", at)) if i >= 0]
    return min(places, default=-1)


def _value_at(text: str, at: int) -> tuple[Any, int]:
    """Return the object or list that begins here, or None, and where to look on."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, at)
        if _depth_within(value):
            return value, end
    except (ValueError, RecursionError):
        pass
    try:
        return _Reader(text).value(at, 0)
    except _CutOff as e:
        # An outer value that was cut off before anything in it was whole: perhaps a bracket in prose.
        return (e.partial, len(text)) if e.partial else (None, at + 1)
    except _Malformed:
        return None, at + 1


def _depth_within(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [m for v in level if isinstance(v, list | dict) for m in (v.values() if isinstance(v, dict) else v)]
        if not level:
            return True
    return False


class _Reader:
    """Recursive descent over a text; every method takes a place and returns a value and the place after it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def skip(self, at: int) -> int:
        match = _SKIP.match(self.text, at)
        at = match.end() if match else at
        if at >= len(self.text):
            raise _CutOff
        return at

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        at = self.skip(at)
        char = self.text[at]
        if char == "{" and depth < MAX_DEPTH:
            return self.object(at + 1, depth)
        if char == "[" and depth < MAX_DEPTH:
            return self.list(at + 1, depth)
        if char in "\"'":
            return self.string(at)
        if match := _NUMBER.match(self.text, at):
            if match.end() == len(self.text):
                raise _CutOff  # more digits may have followed
            return _number(match[0]), match.end()
        if (match := _WORD.match(self.text, at)) and match[0] in _WORDS:
            return _WORDS[match[0]], match.end()
        raise _Malformed

    def list(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        try:
            while True:
                at = self.skip(at)
                if self.text[at] == "]":
                    return found, at + 1
                if self.text[at] == ",":
                    at += 1
                    continue
                value, at = self.value(at, depth + 1)
                found.append(value)
        except _CutOff as e:
            # What the list held so far is whole; of the member that was cut off only what is whole by itself counts.
            if e.partial:
                found.append(e.partial)
            raise _CutOff(found or None) from None

    def object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        name = ""
        try:
            while True:
                at = self.skip(at)
                if self.text[at] == "}":
                    return found, at + 1
                if self.text[at] == ",":
                    at += 1
                    continue
                name, at = self.name(at)
                at = self.skip(at)
                if self.text[at] != ":":
                    raise _Malformed
                found[name], at = self.value(at + 1, depth + 1)
        except _CutOff as e:
            raise _CutOff(_whole(found, name, e.partial)) from None

    def name(self, at: int) -> tuple[str, int]:
        if self.text[at] in "\"'":
            return self.string(at)
        if match := _WORD.match(self.text, at):
            return match[0], match.end()
        raise _Malformed

    def string(self, at: int) -> tuple[str, int]:
        match = _STRINGS[self.text[at]].match(self.text, at)
        if match is None:
            raise _CutOff
        return _ESCAPE.sub(_unescaped, match[0][1:-1]), match.end()


def _unescaped(match: re.Match[str]) -> str:
    char = match[1]
    return chr(int(char[1:], 16)) if len(char) > 1 else _ESCAPES.get(char, char)


def _whole(found: dict[str, Any], name: str, partial: Any) -> dict[str, Any] | None:
    """Return what is whole of an object that was cut off inside the field `name`.

    An action without its last field is another action, so that such an object is dropped; but an outer object passes
    on the members of a list that was cut off in it.
    """
    if "op" in found or not isinstance(partial, list):
        return None
    members = [m for m in partial if isinstance(m, dict)]
    return {**found, name: members} if members else None


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        value = float(text)
        return value if math.isfinite(value) else math.inf
