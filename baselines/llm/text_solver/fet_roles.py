"""Replies to the prompts of the layer-wise FET scaffolds: planner and fixer of one layer, reflector.

The planner draws its layer of the layout that `fet` computes for the whole task, so that layers drawn one after another
fit together. The fixer draws it anew, trying other variants of the flakes that the checker names, as long as no layer
below is locked. The reflector sums up what the messages say. Everything is read from the text alone.
"""

from __future__ import annotations

import json
import re
from typing import Any

from . import fet
from .fet_prompt import read_prompt

_DRAW = re.compile(r"^Layer to draw now: (\w+) ", re.M)
_MEND = re.compile(r"^Layer to mend: (\w+)\.$", re.M)
_LOOK_BACK = re.compile(r"^Look back at the (?:layer: (\w+)|whole attempt)", re.M)
_FLAKE = re.compile(r"\bflake_\d+\b")


def matches(messages: list[dict[str, str]]) -> bool:
    """Whether a message is a request of a layer-wise scaffold."""
    return bool(_request(messages))


def _request(messages: list[dict[str, str]]) -> str:
    """Return the latest request: after it there may be complaints about an unreadable answer."""
    marks = (_DRAW, _MEND, _LOOK_BACK)
    return next((m["content"] for m in reversed(messages) if any(k.search(m["content"]) for k in marks)), "")


def reply(messages: list[dict[str, str]], schema: dict[str, Any] | None) -> str:
    """Return the answer to such a request."""
    text = _request(messages)
    if match := _LOOK_BACK.search(text):
        return json.dumps({"reflection": _reflection(match[1] or "the whole layout", text)})
    if match := _MEND.search(text):
        return _layer(text, match[1], _blamed(text))
    match = _DRAW.search(text)
    return _layer(text, match[1] if match else "", {})


def _layer(text: str, layer: str, variants: dict[str, int]) -> str:
    problem = read_prompt(text)
    drawn = [] if problem is None else fet.draw(problem, variants)
    edits = [e for e in drawn if e["layer"] == layer]
    if variants:
        edits = [{"op": "clear", "layer": layer}, *edits]
    return json.dumps({"thought": f"{len(edits)} edits on {layer}", "edits": edits})


def _blamed(text: str) -> dict[str, int]:
    """Return the variants to try: the next one for the flakes that the checker names, if no layer is locked yet."""
    if " (locked):" in text:
        return {}
    found = text[_MEND.search(text).end() :] if _MEND.search(text) else ""  # type: ignore[union-attr]
    return dict.fromkeys(_FLAKE.findall(found), 1)


def _reflection(what: str, text: str) -> str:
    tried = text.split("Checks that wait", 1)[0]
    faults = [line[2:] for line in tried.splitlines() if line.startswith("- ") and line != "- no fault found"]
    if not faults:
        return f"{what} passed at once; keep to the same construction."
    return f"{what}: heed {'; '.join(faults[:3])}."
