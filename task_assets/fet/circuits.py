"""Circuit templates of the FET family as explicit sequences of pieces and gates along a region.

A *stack* lists the nets of the region's pieces and the nets of the gates between them, in order along the region:
``nets[0] | gates[0] | nets[1] | gates[1] | ... | nets[n]``. Transistor ``i`` has gate ``gates[i]`` and source/drain
``nets[i]`` and ``nets[i + 1]``. The stacks of all regions of a task are its netlist (paper, Section 4: inverter and
NAND/NOR templates with active or complementary load).

Net names end in ``#k`` for instance k = 1, 2, ...; the supplies ``VDD`` and ``GND`` are common to all instances.
What may be joined off-chip, and so need not be joined in the layout: pieces of one supply, and gates of one input
port. ``OUT`` and inner nets (``x1``, ``x2``) must each be one net in the layout. ``LOAD`` is the gate of an active
load: a free port, which may float, or be tied to VDD or OUT, but not to an input.
"""

from __future__ import annotations

from dataclasses import dataclass

TEMPLATES = ("inverter", "nand2", "nand3", "nor2", "nor3")
LOADS = ("active", "complementary")


@dataclass(frozen=True, slots=True)
class CircuitSpec:
    """A circuit requirement of a task.

    Attributes:
        template: One of `TEMPLATES`.
        load: ``"active"`` (one load transistor, same flake) or ``"complementary"`` (n and p flakes).
        instances: Number of circuits in the task.
        transistors_per_instance: Transistors in one circuit, load included.
        exact_per_flake: Exact transistor count of every region, in region order.
        flakes_per_instance: 1 (active) or 2 (complementary; consecutive regions, n-type first).
    """

    template: str
    load: str
    instances: int
    transistors_per_instance: int
    exact_per_flake: tuple[int, ...]
    flakes_per_instance: int


@dataclass(frozen=True, slots=True)
class Stack:
    """Transistors in a row on one region; see the module docstring.

    Attributes:
        nets: Net of each piece, length n + 1.
        gates: Net of each gate, length n.
    """

    nets: tuple[str, ...]
    gates: tuple[str, ...]

    @property
    def transistors(self) -> tuple[tuple[str, str, str], ...]:
        """(gate, source/drain, source/drain) net names of every transistor."""
        return tuple((g, self.nets[i], self.nets[i + 1]) for i, g in enumerate(self.gates))


def is_supply(net: str) -> bool:
    """Whether `net` is VDD or GND."""
    return net in ("VDD", "GND")


def is_input(net: str) -> bool:
    """Whether `net` is an input port (A, B, C of some instance)."""
    return net.split("#")[0] in ("A", "B", "C")


def is_load_gate(net: str) -> bool:
    """Whether `net` is the free gate port of an active load."""
    return net.split("#")[0] == "LOAD"


def is_onchip(net: str) -> bool:
    """Whether all pieces of `net` must be one net in the layout (outputs and inner nets)."""
    return net.split("#")[0] in ("OUT", "x1", "x2")


def _series(start: str, end: str, inputs: list[str], k: int) -> tuple[list[str], list[str]]:
    inner = [f"x{i}#{k}" for i in range(1, len(inputs))]
    return [start, *inner, end], list(inputs)


def _parallel(start: str, other: str, inputs: list[str]) -> tuple[list[str], list[str]]:
    nets = [start if i % 2 == 0 else other for i in range(len(inputs) + 1)]
    return nets, list(inputs)


def _instance(template: str, load: str, k: int) -> tuple[Stack, ...]:
    """Stacks of instance k: one (active) or two (complementary: n flake, p flake)."""
    out = f"OUT#{k}"
    fan_in = 1 if template == "inverter" else int(template[-1])
    inputs = [f"{name}#{k}" for name in "ABC"[:fan_in]]
    nor = template.startswith("nor")
    if load == "active":
        nets, gates = _parallel(out, "GND", inputs) if nor else _series(out, "GND", inputs, k)
        return (Stack(("VDD", *nets), (f"LOAD#{k}", *gates)),)
    pull_down = _parallel("GND", out, inputs) if nor else _series("GND", out, inputs, k)
    pull_up = _series("VDD", out, inputs, k) if nor else _parallel("VDD", out, inputs)
    return (Stack(tuple(pull_down[0]), tuple(pull_down[1])), Stack(tuple(pull_up[0]), tuple(pull_up[1])))


def _concatenate(stacks_: list[Stack]) -> Stack:
    """Join the stacks of several instances on one region at their common supply piece.

    Every second stack is reversed so that the supplies meet: OUT1 .. GND .. OUT2. Without a shared supply piece two
    circuits on one flake would be shorted through the ungated material between them.
    """
    nets, gates = list(stacks_[0].nets), list(stacks_[0].gates)
    for s in stacks_[1:]:
        n, g = list(s.nets), list(s.gates)
        if not is_supply(nets[-1]):
            nets, gates = nets[::-1], gates[::-1]
        if n[0] != nets[-1]:
            n, g = n[::-1], g[::-1]
        if n[0] != nets[-1] or not is_supply(nets[-1]):
            raise ValueError("stacks of two instances on one region must meet at a common supply")
        nets, gates = nets + n[1:], gates + g
    return Stack(tuple(nets), tuple(gates))


def stacks(spec: CircuitSpec) -> tuple[Stack, ...]:
    """Return the stack of every region of a circuit task, in region order.

    Regions are dealt in groups of `flakes_per_instance` consecutive ones. When there are fewer groups than instances,
    each group holds ``instances / groups`` circuits, joined at a common supply piece.

    Args:
        spec: The circuit requirement.

    Returns:
        One `Stack` per region; their lengths equal ``spec.exact_per_flake``.

    Raises:
        ValueError: If the counts of `spec` contradict each other.
    """
    n_regions = len(spec.exact_per_flake)
    if spec.template not in TEMPLATES or spec.load not in LOADS:
        raise ValueError(f"unknown circuit template {spec.template!r} with load {spec.load!r}")
    groups, rest = divmod(n_regions, spec.flakes_per_instance)
    per_group, rest2 = divmod(spec.instances, groups or 1)
    if rest or rest2 or not groups:
        raise ValueError(f"{spec.instances} instances do not divide over {n_regions} regions")
    result: list[Stack] = []
    for group in range(groups):
        members = [_instance(spec.template, spec.load, group * per_group + j + 1) for j in range(per_group)]
        result.extend(_concatenate([m[i] for m in members]) for i in range(spec.flakes_per_instance))
    found = tuple(len(s.gates) for s in result)
    if found != spec.exact_per_flake:
        raise ValueError(f"template {spec.template}/{spec.load} gives {found} transistors, not {spec.exact_per_flake}")
    return tuple(result)
