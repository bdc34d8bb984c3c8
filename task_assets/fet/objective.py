"""Objective texts: one wording for suite and training tasks.

An objective must state everything that its task's hidden criteria ask: the number of transistors of every flake, the
circuit with its flakes and roles, the architecture, and what vias, pad covers and dielectric are for. `TaskView`
exposes the demand on the strength of this.
"""

from __future__ import annotations

from collections.abc import Sequence

from edagym.task_assets.fet.circuits import CircuitSpec
from edagym.task_assets.fet.task import LayerSpec

_ARCHITECTURES = {
    "top_gated": "",
    "local_back_gated": "Use a local back-gated structure: gates are drawn below the flake. ",
    "global_back_gated": "",
    "dual_gated": "Use a dual-gated structure: a top gate and a back gate over every channel. ",
    "edge_contacted": "Use an edge-contacted structure: contacts reach every flake at its boundary. ",
}
_NAMES = {"inverter": "inverter", "nand2": "NAND2", "nand3": "NAND3", "nor2": "NOR2", "nor3": "NOR3"}


def objective_text(
    architecture: str,
    layers: Sequence[LayerSpec],
    demand: Sequence[int | None],
    materials: Sequence[str],
    circuit: CircuitSpec | None = None,
    *,
    holes: bool = False,
) -> str:
    """Return the objective of a task.

    Args:
        architecture: Device architecture.
        layers: Layer table.
        demand: Transistors asked of each flake, in order; None for no number.
        materials: Material label of each flake, in order.
        circuit: Circuit requirement, if any.
        holes: Whether flakes have interior holes.
    """
    roles = {spec.role for spec in layers}
    if circuit is not None:
        text = _circuit(circuit)
    elif None in demand:
        text = "Place separate source and drain contacts on " + (
            "the flake. " if len(demand) == 1 else f"each of the {len(demand)} flakes. "
        )
    else:
        text = _transistors([n for n in demand if n is not None])
    if architecture == "global_back_gated":
        text += "The substrate is the gate: draw no gate. "
    text += _ARCHITECTURES[architecture]
    if "via" in roles:
        text += "Place vias inside the contacts. "
    if "pad cover" in roles:
        text += "Cover the contact pads. "
    if "dielectric" in roles:
        text += "Add the dielectric between flake and top gate. "
    if holes:
        text += "Interior holes hold no material: every channel must cut its flake between source and drain. "
    return text.strip()


def _transistors(demand: list[int]) -> str:
    n = len(demand)
    if n == 1:
        return f"Create {_count(demand[0], 'transistor')} on the flake. "
    if len(set(demand)) == 1:
        return f"Create {_count(demand[0], 'transistor')} per flake across {n} flakes. "
    split = ", ".join(f"{k} on flake_{i + 1}" for i, k in enumerate(demand))
    return f"Create {sum(demand)} transistors across {n} flakes: {split}. "


def _circuit(spec: CircuitSpec) -> str:
    n_flakes = len(spec.exact_per_flake)
    name = _NAMES[spec.template]
    groups = n_flakes // spec.flakes_per_instance
    each = spec.instances // groups
    counts = (
        f"exactly {_count(spec.exact_per_flake[0], 'transistor')}"
        + ("" if n_flakes == 1 else " per flake" if spec.load == "active" else " on each flake")
        if len(set(spec.exact_per_flake)) == 1
        else "exactly "
        + ", ".join(f"{k} on flake_{i + 1}" for i, k in enumerate(spec.exact_per_flake))
        + " transistors"
    )
    head = f"Create {_count(spec.instances, f'{name} circuit')}"
    if spec.load == "active":
        where = "on the flake" if n_flakes == 1 else f"on {n_flakes} flakes, {each} per flake"
        text = f"{head} with an active load {where}, {counts}: {_active(spec.template)}. "
    else:
        pairs = (
            "flake_1 (n-type) and flake_2 (p-type)"
            if groups == 1
            else "consecutive flakes, n-type first: "
            + ", ".join(f"flake_{2 * g + 1} with flake_{2 * g + 2}" for g in range(groups))
        )
        text = f"{head} as complementary pairs on {pairs}; {counts}: {_complementary(spec.template)}. "
    if spec.load == "complementary" or spec.template.startswith("nor"):
        text += "Join the pieces of each output on the contact layer. "
    if each > 1:
        text += f"The {each} circuits of a flake meet at a common supply contact. "
    return text


def _active(template: str) -> str:
    if template == "inverter":
        return "a load between VDD and the output, a driver between the output and GND, sharing the output contact"
    n = template[-1]
    kind = "parallel" if template.startswith("nor") else "series"
    return f"a load between VDD and the output, and {n} drivers in {kind} between the output and GND"


def _complementary(template: str) -> str:
    if template == "inverter":
        return "an n-type transistor between GND and the output, a p-type one between VDD and the output"
    n = template[-1]
    n_kind, p_kind = ("parallel", "series") if template.startswith("nor") else ("series", "parallel")
    return (
        f"{n} n-type transistors in {n_kind} between GND and the output, "
        f"{n} p-type ones in {p_kind} between VDD and the output"
    )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
