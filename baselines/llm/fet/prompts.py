"""What the FET scaffolds say to a model beside the task's own prompt (`edagym.envs.fet.prompt`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edagym.envs.fet.prompt import reply_format
from edagym.spaces.actions import EditSpace
from edagym.task_assets.fet.grid import to_um
from edagym.task_assets.fet.task import TaskView
from edagym.verifiers.fet.layout import FETLayout

PLANNER = (
    "You are a device engineer who draws field-effect transistor layouts on flakes of two-dimensional material. You "
    "get a task in text and coordinates, and answer with drawing operations for the whole layout."
)
LAYER_PLANNER = (
    "You are a device engineer who draws field-effect transistor layouts on flakes of two-dimensional material, one "
    "layer at a time in the design order. A finished layer is locked: plan each one so that the later ones still fit."
)
FIXER = (
    "You mend one layer of a field-effect transistor layout. A checker found faults in it. Change as little as needed, "
    "and do not break what already holds."
)
REFLECTOR = (
    "You look back at one step of a layout task and say in two or three sentences what was learnt that helps with the "
    "steps to come. Name layers, flakes and distances."
)

# Marks by which a reader of prompts can tell them apart.
LAYER_NOW = "Layer to draw now"
LAYER_TO_MEND = "Layer to mend"
LOOK_BACK = "Look back at the layer"
LOOK_BACK_TRIAL = "Look back at the whole attempt"
DRAWN = "Drawn so far (vertices in um):"
LEARNT = "Reflections on earlier layers:"
EXPERIENCE = "Experience from earlier tasks, oldest first:"
FOUND = "The checker found:"
DEFERRED = "Checks that wait for layers not yet drawn:"


def feedback(number: int, rounds: int, findings: Sequence[str], refused: str) -> str:
    """Return what a whole-layout planner hears after a failed round (paper, Section 5: ReAct-3).

    Args:
        number: The round that failed, from 1.
        rounds: Rounds in all.
        findings: Messages of the failed checks; empty if no layout was checked.
        refused: Refused edits, one a line, or an empty string.
    """
    lines = [f"Round {number} of {rounds} failed."]
    if findings:
        lines += ["The verifier found:", *(f"- {m}" for m in findings)]
    if refused:
        lines += ["Refused edits:", *(f"- {line}" for line in refused.splitlines())]
    lines.append(
        "The layout is back at the initial scene. Answer with the complete list of edits for the whole layout, in the "
        "same form."
    )
    return "\n".join(lines)


def scene(view: TaskView, layout: FETLayout, locked: Sequence[str]) -> str:
    """Return the shapes of every editable layer that has any, with coordinates in um."""
    lines = [DRAWN]
    for spec in view.editable_layers:
        shapes = layout.shapes(spec.name)
        if shapes:
            lines.append(f"{spec.name}{' (locked)' if spec.name in locked else ''}:")
            lines += [f"  {', '.join(f'({to_um(x):g}, {to_um(y):g})' for x, y in ring)}" for ring in shapes]
    if len(lines) == 1:
        lines.append("nothing")
    return "\n".join(lines)


def exemplar(view: TaskView) -> str:
    """Return one finished transistor, as layer-wise planners are shown (paper, Appendix B); it belongs to no task."""
    contact = view.layers_of("contact")[0].name
    gates = [s.name for s in view.layers_of("gate electrode")]
    drawn = [
        EditSpace.example(contact, gate)[1] | {"points": [[6.0, -1.0], [6.0, 5.0]], "width": 1.0} for gate in gates
    ]
    for left, right in ((-0.5, 4.0), (8.0, 12.5)):
        points = [[left, 0.5], [right, 0.5], [right, 3.5], [left, 3.5]]
        drawn.append(EditSpace.example(contact, contact)[0] | {"points": points})
    return (
        "Example of one transistor (not of this task), on a flake (0, 0), (12, 0), (12, 4), (0, 4), all layers "
        f"together: {json.dumps(drawn)}"
    )


def layer_task(view: TaskView, layer: str, position: str) -> str:
    """Return the request to draw one layer, and the form of the answer.

    Args:
        view: The task.
        layer: Layer to draw.
        position: Its place in the design order, in words.
    """
    lines = [
        f"{LAYER_NOW}: {layer} ({view.layer(layer).role}), {position}.",
        "Draw all of it, and nothing on other layers: edits of other layers are turned away.",
        answer_format(layer),
    ]
    return "\n".join(lines)


def mend_task(layer: str, findings: Sequence[str], refused: Sequence[str]) -> str:
    """Return the request to mend a layer, and the form of the answer."""
    lines = [f"{LAYER_TO_MEND}: {layer}.", FOUND, *(f"- {m}" for m in findings)]
    if refused:
        lines += ["Edits that were turned away:", *(f"- {line}" for line in refused)]
    lines += [
        "Your edits are applied to the layer as it is now; begin with clear to draw it anew.",
        answer_format(layer),
    ]
    return "\n".join(lines)


def answer_format(layer: str) -> str:
    """Return the form of an answer that may draw on one layer."""
    return reply_format(EditSpace.describe(), [layer], EditSpace.example(layer, layer))


def look_back(
    layer: str, rounds: Sequence[Mapping[str, Any]], locked: bool, deferred: Sequence[str], *, success: bool
) -> str:
    """Return the request to reflect on a layer.

    Args:
        layer: The layer.
        rounds: What was tried, in order: ``{"thought", "findings"}``.
        locked: Whether it is locked without open findings.
        deferred: Ids of checks that wait for later layers.
        success: Whether this is the reflection right after the checker let the layer pass.
    """
    how = "passed the checker" if locked else "is locked with open faults"
    ask = "Say what made it pass." if success else "Say what the layers to come must heed."
    lines = [f"{LOOK_BACK}: {layer}, which {how} after {len(rounds)} round(s).", *_rounds(rounds)]
    if deferred:
        lines += [DEFERRED, *(f"- {name}" for name in deferred)]
    return "\n".join((*lines, ask, _REFLECTION))


def look_back_on_trial(layers: Sequence[str], findings: Sequence[str]) -> str:
    """Return the request to reflect on a failed trial, before a fresh one."""
    lines = [f"{LOOK_BACK_TRIAL}: all layers ({', '.join(layers)}) are drawn and the task is not solved.", FOUND]
    lines += [f"- {m}" for m in findings]
    return "\n".join((*lines, "Say what to do differently in a fresh attempt from the initial scene.", _REFLECTION))


_REFLECTION = 'Answer with one JSON object {"reflection": "..."}.'


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for i, one in enumerate(rounds, 1):
        lines.append(f"Round {i}: {one['thought'] or 'no thought given'}")
        lines += [f"- {m}" for m in one["findings"]] or ["- no fault found"]
    return lines


def lessons(reflections: Sequence[str], experiences: Sequence[Mapping[str, Any]]) -> str:
    """Return what a planner is reminded of: reflections of this attempt, experiences of earlier tasks."""
    parts = []
    if experiences:
        parts += [EXPERIENCE, *(f"- {json.dumps(e, ensure_ascii=False)}" for e in experiences)]
    if reflections:
        parts += [LEARNT, *(f"- {text}" for text in reflections)]
    return "\n".join(parts)
