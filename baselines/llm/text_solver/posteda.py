"""Replies for the prompts of the post-EDA scaffolds: agent, critic, judge, reflection, search space.

All that is known is in the messages: the task's prompt, and actions with what the tools answered. The role is told by
the words of the system message.
"""

from __future__ import annotations

import json
import re
from typing import Any

from . import posteda_drc, posteda_ppa
from .posteda_step import Action, Step

Messages = list[dict[str, str]]

_MARKS = ("You are a physical design engineer. You repair", "You are a physical design engineer. You bring a design")
_RESULT = re.compile(r"^Result of (vision_query|\{[^\n]*\}):[ \n]?(.*?)(?=^Result of |\Z)", re.MULTILINE | re.DOTALL)
_ACTION = re.compile(r"(?:Avoid|Begin with): (\{.*\})")


def matches(messages: Messages) -> bool:
    """Return whether the messages are those of a post-EDA scaffold."""
    return any(mark in messages[0]["content"] for mark in _MARKS)


def reply(messages: Messages, schema: dict[str, Any] | None) -> str:
    """Return the reply of the role that the messages ask for."""
    system, last = messages[0]["content"], messages[-1]["content"]
    if last.startswith("This trial is over"):
        return _reflection(messages)
    if "You set up an automatic search" in system:
        return _space(messages)
    options = _options(messages)
    if "You are the critic of a colleague" in system:
        return _criticism(messages, options)
    if "You are a judge" in system:
        return _judgement(last, options)
    if "vision_query" in system and not any("Result of vision_query" in m["content"] for m in messages):
        options = [_seen(options[0]), *options]
    return json.dumps({"thought": f"{len(options)} things can be done", "action": _chosen(last, options)})


def _steps(messages: Messages) -> list[tuple[Action, str]]:
    """Return actions and outcomes in order."""
    found = []
    for message in messages[2:]:
        if message["role"] != "user":
            continue
        for action, outcome in _RESULT.findall(message["content"]):
            known = {"op": "vision_query", "points": []} if action == "vision_query" else json.loads(action)
            found.append((known, outcome))
    return found


def _options(messages: Messages) -> list[Action]:
    """Return what could be done next, best first."""
    system, prompt = messages[0]["content"], messages[1]["content"]
    told = [json.loads(a) for a in _ACTION.findall(system)]
    steps = _steps(messages)
    if _MARKS[0] in system:
        refused = [a for a, outcome in steps if outcome.startswith("Refused")]
        repairer = posteda_drc.Repairer(prompt, [Step(*s) for s in steps], [*told, *refused])
        return repairer.options()
    return posteda_ppa.Tuner(prompt, [Step(*s) for s in steps], told).options()


def _chosen(last: str, options: list[Action]) -> Action:
    """Return the best option that is not ruled out by a list of other candidates."""
    match = re.search(r"^Propose candidate .*", last, re.MULTILINE | re.DOTALL)
    if match:
        others = [json.loads(line) for line in re.findall(r"^- (\{.*\})$", match[0], re.MULTILINE)]
        for option in options:
            if {k: v for k, v in option.items() if v is not None} not in others:
                return option
    return options[0]


def _seen(action: Action) -> Action:
    return {**action, "op": "vision_query"} if action["op"] == "query" else action


def _criticism(messages: Messages, options: list[Action]) -> str:
    proposal = json.loads(re.findall(r"^Proposal: (\{.*\})$", messages[-1]["content"], re.MULTILINE)[-1])
    steps = _steps(messages)
    if any(a == proposal and outcome.startswith("Refused") for a, outcome in steps):
        verdict, reason = "reject", "the tools have refused exactly this before"
    elif proposal["op"] == "submit" and options[0]["op"] != "submit":
        verdict, reason = "reject", "the goal is not reached and there is more to try"
    elif steps and steps[-1][0] == proposal and proposal["op"] in ("check", "run", "report"):
        verdict, reason = "reject", "nothing has changed since the last time"
    else:
        verdict, reason = "accept", "it follows from what the tools have answered"
    return json.dumps({"reason": reason, "verdict": verdict, "action": None})


def _judgement(last: str, options: list[Action]) -> str:
    listed = last.rpartition("Candidates:\n")[2]
    scores = []
    for line in re.findall(r"^\d+\. (\{.*\})$", listed, re.MULTILINE):
        candidate = json.loads(line)
        scores.append(max(9.0 - options.index(candidate), 1.0) if candidate in options else 0.5)
    return json.dumps({"reason": "the order in which I would do them", "scores": scores})


def _reflection(messages: Messages) -> str:
    """Return what failed, with the edits that are not to be repeated; for flows, the changes to begin with."""
    drc = _MARKS[0] in messages[0]["content"]
    changes = [(a, o) for a, o in _steps(messages) if a["op"] in ("change_shape", "set_knob", "set_period")]
    word = "Avoid" if drc else "Begin with"
    kept = [a for a, outcome in changes if drc or not outcome.startswith("Refused")]
    return "\n".join(["The goal was not reached with these changes.", *(f"{word}: {json.dumps(a)}" for a in kept)])


def _space(messages: Messages) -> str:
    page = messages[2]["content"]
    rows = posteda_ppa.search_space(messages[1]["content"], page, page)
    return json.dumps({"thought": "what the reference page says matters", "parameters": rows})
