"""Connectivity stacks: which layers conduct, which of them touch, and how transistors are recognised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

import klayout.db as kdb

from edagym.errors import TaskError
from edagym.verifiers.drc.rules import RuleTable

RegionT = TypeVar("RegionT", bound=kdb.Region)

POLY, NDIFF, PDIFF = "poly", "ndiff", "pdiff"
DERIVED = (POLY, NDIFF, PDIFF)
"""Conductors that are computed from drawn layers: uncut gates, and source/drain areas outside and inside the well."""


@dataclass(frozen=True, slots=True)
class Mos:
    """How transistors are drawn: a gate line over an active area; p-type where the active area lies in the well.

    Attributes:
        gate: Layer of the gate lines.
        gate_cut: Layer that cuts gate lines, or "".
        active: Layer of the active areas.
        well: Layer of the n-well, or "".
        implants: Layers of source and drain implants; a channel must not lose one.
        thresholds: Layers that choose a threshold voltage; a channel must neither lose nor gain one.
        fin: Layer of the fins, or "".
    """

    gate: str
    gate_cut: str
    active: str
    well: str
    implants: tuple[str, ...] = ()
    thresholds: tuple[str, ...] = ()
    fin: str = ""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that form transistors."""
        return tuple(n for n in (self.gate, self.gate_cut, self.active, self.well) if n)


@dataclass(frozen=True, eq=False)
class Stack:
    """The conductors of a technology.

    Attributes:
        name: Short name.
        conductors: Drawn conducting layers, vias included, from the lowest up.
        joins: Pairs of conductors (drawn or `DERIVED`) that conduct where they overlap; touching edges do not conduct.
        contacts: Drawn conductors of which every join has at least one: contacts and vias.
        labelled: Conductors that carry labels and pin shapes: texts and shapes on the same GDSII layer number with
            another datatype belong to them.
        mos: How transistors are drawn; None if the stack has none.
        exempting: Marker layers under which weaker rules hold: drawing one hides violations instead of repairing them.
        gds: Layer and datatype numbers of the drawn layers.
    """

    name: str
    conductors: tuple[str, ...]
    joins: tuple[tuple[str, str], ...]
    contacts: tuple[str, ...]
    labelled: tuple[str, ...]
    mos: Mos | None = None
    exempting: tuple[str, ...] = ()
    gds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Names of the contacts that are vias: they join layers above and below, never each other."""
        return tuple(n for n in self.contacts if n.startswith("V"))

    @property
    def drawn(self) -> tuple[str, ...]:
        """Names of all drawn layers that the stack reads."""
        return (*self.conductors, *(self.mos.layers if self.mos else ()))

    @property
    def marks(self) -> tuple[str, ...]:
        """Names of all layers that choose a kind of transistor without conducting."""
        return (
            (*self.mos.implants, *self.mos.thresholds, *((self.mos.fin,) if self.mos.fin else ())) if self.mos else ()
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of all conductors, derived ones first."""
        return (*(DERIVED if self.mos else ()), *self.conductors)


def _metals(n: int) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Names of metals 1..n with the vias between them, and what joins what."""
    names = tuple(name for i in range(1, n + 1) for name in (f"M{i}", f"V{i}"))[:-1]
    return names, tuple(pairwise(names))


_ASAP7_METALS, _ASAP7_JOINS = _metals(9)
_ASAP7_VIAS = tuple(f"V{i}" for i in range(10))

# From the transistors to M9: trench contacts (SDT) carry source and drain to LISD, and LIG contacts gates.
_ASAP7 = Stack(
    name="asap7",
    conductors=("SDT", "LISD", "LIG", "V0", *_ASAP7_METALS, "V9", "PAD"),
    joins=(
        (NDIFF, "SDT"),
        (PDIFF, "SDT"),
        ("SDT", "LISD"),
        ("LISD", "V0"),
        ("LIG", POLY),
        ("LIG", "LISD"),
        ("LIG", "V0"),
        ("V0", "M1"),
        *_ASAP7_JOINS,
        ("M9", "V9"),
        ("V9", "PAD"),
    ),
    contacts=("SDT", "LIG", *_ASAP7_VIAS),
    labelled=tuple(f"M{i}" for i in range(1, 10)),
    mos=Mos(
        gate="GATE",
        gate_cut="GCUT",
        active="ACTIVE",
        well="WELL",
        implants=("NSELECT", "PSELECT"),
        thresholds=("LVT", "SLVT", "SRAMVT"),
        fin="FIN",
    ),
    exempting=("SRAMDRC",),
)
# The tutorial's technology.
_TWO_METALS = Stack("tutorial", *_metals(2), contacts=("V1",), labelled=("M1", "M2"))

_STACKS = {s.name: s for s in (_ASAP7, _TWO_METALS)}


def stack_of(table: RuleTable) -> Stack:
    """Return the connectivity stack that belongs to a rule table.

    Raises:
        TaskError: If there is none for the table's technology, or the table lacks one of its layers.
    """
    stack = _STACKS.get(table.name)
    if stack is None:
        raise TaskError("no connectivity stack", field="rules", value=table.name, allowed=sorted(_STACKS))
    needed = (*stack.drawn, *stack.marks)
    missing = [n for n in needed if n not in table.layers]
    if missing:
        raise TaskError("the rule table lacks layers of the stack", field="layers", value=missing)
    return replace(stack, gds={n: (table.layers[n].layer, table.layers[n].datatype) for n in needed})


def derive(drawn: Mapping[str, RegionT], stack: Stack) -> tuple[dict[str, kdb.Region], kdb.Region, kdb.Region]:
    """Compute the conductors of a layout.

    Args:
        drawn: The drawn layers of `Stack.drawn`.
        stack: The stack.

    Returns:
        Conductors by name, n-type and p-type gate areas (empty without transistors).
    """
    nodes: dict[str, kdb.Region] = {n: drawn[n] for n in stack.conductors}
    mos = stack.mos
    if mos is None:
        return nodes, kdb.Region(), kdb.Region()
    gate, active = drawn[mos.gate], drawn[mos.active]
    poly = gate - drawn[mos.gate_cut] if mos.gate_cut else gate
    channel, diffusion = active.andnot(poly)
    if mos.well:
        well = drawn[mos.well]
        pdiff, ndiff = diffusion.andnot(well)
        pchannel, nchannel = channel.andnot(well)
    else:
        ndiff, pdiff, nchannel, pchannel = diffusion, kdb.Region(), channel, kdb.Region()
    return {POLY: poly, NDIFF: ndiff, PDIFF: pdiff, **nodes}, nchannel, pchannel
