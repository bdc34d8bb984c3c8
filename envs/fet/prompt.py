"""The text of a FET task for language models, made from `TaskView` alone (paper, Section 3 and Appendix B).

`render_task_text` is the task itself: objective, contours, layers, design order, rules. `render_prompt` adds what the
paper's harness adds: derived constraints that suggest one gate crossing and source/drain zones per flake, one of the
scaffolds C0, C1 and C2, and the answer format. All coordinates in the text are micrometres.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, get_args

from edagym.spaces.actions import EditSpace
from edagym.task_assets.fet.circuits import CircuitSpec, Stack, stacks
from edagym.task_assets.fet.task import Region, Rule, TaskView

if TYPE_CHECKING:
    from edagym.envs.fet.reference import CrossingHint

Scaffold = Literal["C0", "C1", "C2"]
SCAFFOLDS: tuple[str, ...] = get_args(Scaffold)

_ARCHITECTURE = {
    "top_gated": "top-gated: contacts on the flakes, gates above them.",
    "local_back_gated": "local back-gated: patterned gates below the flakes, contacts on top.",
    "global_back_gated": "global back-gated: the substrate is the gate, so that no gate is drawn, only contacts.",
    "dual_gated": "dual-gated: each channel has one gate below the flake and one above it, both crossing it.",
    "edge_contacted": "edge-contacted: contacts meet the flakes at their boundary, gates lie above.",
}

_TEMPLATE = {
    ("inverter", "active"): "the load and one driver A in series from VDD to GND, OUT between them",
    ("nand2", "active"): "the load, then drivers A and B in series from OUT to GND",
    ("nand3", "active"): "the load, then drivers A, B and C in series from OUT to GND",
    ("nor2", "active"): "the load, then drivers A and B in parallel from OUT to GND, sharing contacts",
    ("nor3", "active"): "the load, then drivers A, B and C in parallel from OUT to GND, sharing contacts",
    ("inverter", "complementary"): "n transistor A from GND to OUT, p transistor A from VDD to OUT",
    (
        "nand2",
        "complementary",
    ): "n transistors A, B in series from GND to OUT, p transistors A, B in parallel from VDD to OUT",
    ("nand3", "complementary"): (
        "n transistors A, B, C in series from GND to OUT, p transistors A, B, C in parallel from VDD to OUT"
    ),
    (
        "nor2",
        "complementary",
    ): "n transistors A, B in parallel from GND to OUT, p transistors A, B in series from VDD to OUT",
    ("nor3", "complementary"): (
        "n transistors A, B, C in parallel from GND to OUT, p transistors A, B, C in series from VDD to OUT"
    ),
}


def render_task_text(view: TaskView) -> str:
    """Return the task text: objective, flakes, layer table, design order and visible rules.

    This is the text whose length the paper reports (Figure 2h). Vertices have two decimals.

    Args:
        view: The agent-visible part of a task.
    """
    several = len({r.material for r in view.regions}) > 1
    lines = [
        "Draw field-effect transistors on fixed flakes of two-dimensional material. Coordinates are in um, on a "
        "0.001 um grid; y points up.",
        f"Objective: {view.objective}",
        f"Architecture: {_ARCHITECTURE[view.architecture]}",
    ]
    if view.circuit is not None:
        lines.append(f"Circuit: {_circuit_sentence(view.circuit)}")
    lines.append("Flakes (fixed; boundary vertices in um):")
    for region, demand in zip(view.regions, view.demand):
        notes = [region.material] if several else []
        if demand is not None:
            exact = "exactly" if view.circuit is not None else "at least"
            notes.append(f"{exact} {demand} transistor{'s' if demand != 1 else ''}")
        label = f" [{', '.join(notes)}]" if notes else ""
        lines.append(f"{region.name}{label}: {_points(region.hull)}")
        lines.extend(f"  hole: {_points(hole)}" for hole in region.holes)
    lines.append("Layers (name, GDS layer/datatype, role, status):")
    lines.extend(f"{s.name}, {s.gds_layer}/{s.datatype}, {s.role}, {s.status.replace('_', '-')}" for s in view.layers)
    lines.append("Design order, bottom to top (@ = fixed): " + ", ".join(view.design_order))
    lines.append("Rules:")
    lines.extend(f"- {text}" for text in _rule_lines(view.drc_rules))
    lines.append("- every editable layer of the design order holds at least one shape")
    lines.append("- shapes on read-only layers stay as they are")
    return "\n".join(lines) + "\n"


def render_prompt(view: TaskView, scaffold: Scaffold = "C0") -> str:
    """Return the first prompt for a text policy.

    Args:
        view: The agent-visible part of a task.
        scaffold: ``"C0"``: derived constraints only. ``"C1"``: also each flake's spine point and direction. ``"C2"``:
            C0 and guidance in words on how to place two contacts and a gate (paper, Appendix B: the scaffolds supply
            different guidance).

    Raises:
        ValueError: If the scaffold is unknown.
    """
    return "\n".join((render_brief(view, scaffold), answer_format(view)))


def render_brief(view: TaskView, scaffold: Scaffold = "C0") -> str:
    """Return `render_prompt` without the answer format: for prompts that ask for something else than a whole layout.

    Args:
        view: The agent-visible part of a task.
        scaffold: See `render_prompt`.

    Raises:
        ValueError: If the scaffold is unknown.
    """
    if scaffold not in SCAFFOLDS:
        raise ValueError(f"scaffold must be one of {SCAFFOLDS}, got {scaffold!r}")
    parts = [render_task_text(view), _definition(view), _constraints(view)]
    if scaffold == "C1":
        parts.append(_spine_section(view))
    if scaffold == "C2":
        parts.append(_structure_section(view))
    return "\n".join(parts)


def answer_format(view: TaskView) -> str:
    """Return the description of the expected reply: an object with the typed edits of `edagym.spaces.edits`.

    Operations, their meaning and the example come from the action space.
    """
    layers = [s.name for s in view.editable_layers]
    contact = view.layers_of("contact")[0].name
    gate = next((s.name for s in view.layers_of("gate electrode")), contact)
    return reply_format(EditSpace.describe(), layers, EditSpace.example(contact, gate))


def reply_format(operations: str, layers: Sequence[str], example: Sequence[Mapping[str, Any]]) -> str:
    """Return the description of a reply.

    Args:
        operations: What the list may hold (`EditSpace.describe`).
        layers: Names of the layers that may be drawn on.
        example: Edits, in JSON form, to show the form.
    """
    lines = [
        'Answer with one JSON object {"thought": "...", "edits": [...]}: first what you are going to do, briefly, then '
        "one list of edits. They are applied in order; one that is refused is reported by its index and the rest "
        "still apply.",
        operations,
        f"Editable layers: {', '.join(layers)}. Polygons are simple (no self-intersection) and not closed.",
        # Both follow from the 1 nm grid and the width rule, and cost agents rounds when they have to find out.
        "Overlapping shapes of a layer merge; let parts of one shape overlap rather than abut, since rounding can open "
        "a gap between slanted edges. Corners sharper than 90 degrees break a width rule.",
        f"Example of the form (not of this task): {json.dumps({'thought': '...', 'edits': list(example)})}",
    ]
    return "\n".join(lines) + "\n"


def _circuit_sentence(circuit: CircuitSpec) -> str:
    place = "on one flake" if circuit.flakes_per_instance == 1 else "on a pair of n-type and p-type flakes"
    load = {"active": " with active load", "complementary": ", complementary"}[circuit.load]
    each = "each " if circuit.instances > 1 else ""
    return (
        f"{circuit.instances} x {circuit.template}{load}, {each}{place}: "
        f"{_TEMPLATE[circuit.template, circuit.load]}. Counts are exact."
    )


def _points(ring: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"({_fixed(x)}, {_fixed(y)})" for x, y in ring)


def _fixed(value: float) -> str:
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text


def _rule_lines(rules: Sequence[Rule]) -> list[str]:
    """Return one line per rule; the rules of one kind that differ in the region only share a line."""
    lines = []
    for (kind, layers, limit), group in groupby(rules, key=lambda r: (r.kind, r.layers, r.min_um)):
        names = [r.region for r in group if r.region]
        a, b = layers[0], layers[-1]
        lines.append(
            {
                "min_width": f"{a}: width at least {_um(limit)}",
                "min_spacing": f"{a}: spacing at least {_um(limit)}",
                "min_separation": f"{a} and {b}: separation at least {_um(limit)}",
                "min_enclosure": f"{a} encloses {b} by at least {_um(limit)}",
                "must_not_overlap": f"{a} and {b} must not overlap",
                "must_touch_boundary": f"{a} must touch the boundary of {', '.join(names)}",
            }[kind]
        )
    return lines


def _um(value: float | None) -> str:
    return "" if value is None else f"{value:g} um"


def _definition(view: TaskView) -> str:
    """Return what counts as a transistor, as the paper's fixed system prompt does, and as `strict_success` reads it."""
    gates = [s.name for s in view.layers_of("gate electrode")]
    contacts = " and ".join(s.name for s in view.layers_of("contact"))
    if not gates:
        text = f"A device is a channel between two separate {contacts} shapes on one flake."
    else:
        both = " of every gate layer" if len(gates) > 1 else ""
        text = (
            f"A transistor is a place where a gate{both} crosses a flake from boundary to boundary and separate "
            f"shapes on {contacts}, the source and the drain, touch the flake on its two sides. The gate must part the "
            "flake between them; neighbouring transistors may share a contact."
        )
    lines = [text]
    if view.layers_of("via"):
        lines.append(f"Vias lie inside {contacts}, away from the gates.")
    if view.layers_of("via") and view.layers_of("pad cover"):
        lines.append("Each via lies under a pad cover.")
    return " ".join(lines) + "\n"


@lru_cache(maxsize=1024)
def hint_of(region: Region) -> CrossingHint | None:
    """Return the crossing and the zones that the prompt suggests for a flake; None if no gate can cross it."""
    # Imported late: the constructor loads KLayout, the spine code and the verifier.
    from edagym.envs.fet.reference import ReferenceInfeasible, channel_hint

    try:
        return channel_hint(region)
    except ReferenceInfeasible:
        return None


def _constraints(view: TaskView) -> str:
    gates = bool(view.layers_of("gate electrode"))
    lines = ["Derived constraints (one suggestion per flake; zones run along the flake's middle line):"]
    for region in view.regions:
        hint = hint_of(region)
        if hint is None:
            lines.append(f"{region.name}: no suggestion")
            continue
        crossing = f"gate crossing at {_points([hint.point])}; " if gates else ""
        lines.append(
            f"{region.name}: {crossing}source zone {_segment(hint.source_segment)}; "
            f"drain zone {_segment(hint.drain_segment)}"
        )
    if view.circuit is not None:
        lines.extend(_circuit_lines(view.regions, view.circuit))
    return "\n".join(lines) + "\n"


def _circuit_lines(regions: Sequence[Region], circuit: CircuitSpec) -> list[str]:
    lines = ["Circuit order along each flake (contact nets, gates in <>; inner nets x1, x2 need no contact):"]
    found = stacks(circuit)
    lines.extend(f"{region.name}: {_stack(stack)}" for region, stack in zip(regions, found))
    lines.append(
        "Contacts of one OUT net must be joined by contact metal. Pieces of VDD, of GND, and gates of one input may "
        "stay apart: they count as joined off-chip. Different nets must not touch."
    )
    if circuit.load == "active":
        lines.append("A LOAD gate may float or be tied to VDD or OUT, not to an input.")
    return lines


def _stack(stack: Stack) -> str:
    out = [stack.nets[0]]
    for gate, net in zip(stack.gates, stack.nets[1:]):
        out += [f"<{gate}>", net]
    return " ".join(out)


def _segment(segment: Sequence[tuple[float, float]]) -> str:
    return " to ".join(f"({_fixed(x)}, {_fixed(y)})" for x, y in segment)


def _spine_section(view: TaskView) -> str:
    lines = [
        "Spine of each flake (reference point and unit direction). Align the contacts along it, the gate across it:"
    ]
    for region in view.regions:
        hint = hint_of(region)
        if hint is not None:
            lines.append(f"{region.name}: point {_points([hint.point])}, direction {_points([hint.direction])}")
    return "\n".join(lines) + "\n"


def _structure_section(view: TaskView) -> str:
    width = max((r.min_um or 0.0 for r in view.drc_rules if r.kind == "min_width"), default=None)
    gap = max((r.min_um or 0.0 for r in view.drc_rules if r.kind == "min_separation"), default=None)
    lines = [
        "How to build one transistor:",
        "- Draw two separate contact rectangles on opposite sides of the crossing.",
    ]
    if width is not None and gap is not None:
        lines.append(
            "- Leave between them the gate width plus twice the minimum separation: at least "
            f"{width:g} + 2 x {gap:g} = {width + 2 * gap:g} um."
        )
    if view.layers_of("gate electrode"):
        lines.append("- Draw the gate through the crossing, across the flake, past both of its boundaries.")
    if view.layers_of("via"):
        lines.append("- Put each via well inside a contact, so that the enclosure holds on all sides.")
    return "\n".join(lines) + "\n"
