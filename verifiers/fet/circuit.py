"""`circuit_spec`: exact transistor counts and the template's contact sharing, region by region.

The paper checks "exact transistor counts and, for supported templates, contact sharing. For NOR-type templates, the
check also accepts a series arrangement" (Section 4) and gives no algorithm. This is our reading:

1. Channels of one gate shape between the same two pieces are one transistor (a gate over both arms of a ring).
2. Every region holds exactly the template's number of transistors.
3. They form one chain: a transistor joins two pieces of (region minus all gates), neighbours in the chain share one.
4. A shared piece carries exactly one contact shape. Inner nets of a series stack need none: the pieces that the
   template calls x1 and x2, and, since NOR templates accept the series arrangement, those between two inputs of one
   NOR. Two contacts on a shared piece are always wrong: the template shares one.

A stack may run in either direction. Example, NAND2 with active load, pieces and gates along the region:
``VDD | LOAD | OUT | A | x1 | B | GND``: three transistors, one contact on OUT, one or none on x1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import klayout.db as kdb

from edagym.task_assets.fet.circuits import CircuitSpec, Stack, is_input, stacks
from edagym.task_assets.fet.task import Rule
from edagym.verifiers.fet.drc import box_um
from edagym.verifiers.fet.structure import RegionState
from edagym.verifiers.fet.transistors import GROWTH, OPENING, RegionAnalysis, bordered, vanishes
from edagym.verifiers.verdict import BBox, CheckResult


@dataclass(frozen=True, slots=True)
class _Fault:
    message: str
    where: BBox
    required: int | None = None
    found: int | None = None


def circuit_spec(rule: Rule, id_: str, states: Sequence[RegionState]) -> CheckResult:
    """Check a circuit template; see the module docstring."""
    spec = rule.circuit
    assert spec is not None  # FETTask validates it
    title = f"{spec.instances} x {spec.template} ({spec.load})"
    for state, stack in zip(states, stacks(spec)):
        fault = _check_region(state, stack, spec)
        if fault is not None:
            message = f"{title}: {state.flake.name}: {fault.message}"
            return CheckResult(id_, rule.kind, False, fault.required, fault.found, "count", fault.where, message)
    required = sum(spec.exact_per_flake)
    return CheckResult(id_, rule.kind, True, required, required, "count", None, f"{title}: holds")


def _check_region(state: RegionState, stack: Stack, spec: CircuitSpec) -> _Fault | None:
    if not state.layers:
        return _Fault("expected gates, found no gate layer", box_um(state.flake.bbox), len(stack.gates), 0)
    for analysis in state.layers:
        fault = _check_stack(analysis, stack, spec)
        if fault is not None:
            return fault
    return None


def _check_stack(analysis: RegionAnalysis, stack: Stack, spec: CircuitSpec) -> _Fault | None:
    flake = analysis.flake
    everywhere = box_um(flake.bbox)
    pieces = _pieces(analysis)
    contacts: list[set[int]] = [set() for _ in pieces]
    for landing in analysis.landings:
        for i, piece in enumerate(pieces):
            if landing.is_on(piece):
                contacts[i].add(landing.contact)

    # 1. Transistors as sets of pieces; channels of one gate shape with the same sides are one.
    found: list[frozenset[int]] = []
    seen: set[tuple[int, frozenset[int]]] = set()
    region = kdb.Region(pieces)
    region.merged_semantics = False
    for channel in analysis.channels:
        if channel.transistor:
            sides = frozenset(i for arc in channel.arcs for i in bordered(arc, pieces, region))
            if (channel.gate, sides) not in seen:
                seen.add((channel.gate, sides))
                found.append(sides)

    # 2. Count.
    required = len(stack.gates)
    if len(found) != required:
        message = f"expected exactly {required} transistors, found {len(found)}"
        return _Fault(message, everywhere, required, len(found))

    # 3. Chain. A spur cut off by a gate is no terminal: terminals are contacted or shared.
    uses = [sum(i in sides for sides in found) for i in range(len(pieces))]
    links = [tuple(sorted(i for i in sides if contacts[i] or uses[i] > 1)) for sides in found]
    order = _chain(links)
    if order is None:
        message = "expected one chain in which neighbouring transistors share a piece of the region, found none"
        return _Fault(message, everywhere, required, len(found))

    # 4. Contact sharing.
    shared = order[1:-1]
    for i in shared:
        if len(contacts[i]) > 1:
            message = f"expected one shared contact between neighbouring transistors, found {len(contacts[i])}"
            return _Fault(message, box_um(pieces[i].bbox()), 1, len(contacts[i]))
    optional = _optional(stack, spec)
    if not any(
        all(contacts[i] or may for i, may in zip(shared, direction)) for direction in (optional, optional[::-1])
    ):
        bare = next(i for i in shared if not contacts[i])
        message = "expected a shared contact between transistors that the template does not stack in series, found none"
        return _Fault(message, box_um(pieces[bare].bbox()), 1, 0)
    return None


def _pieces(analysis: RegionAnalysis) -> list[kdb.Polygon]:
    """Pieces of region minus all gates of one layer, crumbs dropped (dbu)."""
    gates = kdb.Region([polygon.sized(GROWTH, 2) for polygon in analysis.components])
    return [piece for piece in (analysis.flake.region - gates).each() if not vanishes(piece, OPENING - GROWTH)]


def _chain(links: Sequence[tuple[int, ...]]) -> list[int] | None:
    """Return the pieces of a chain of transistors in order, or None if the links form no simple chain."""
    if any(len(link) != 2 for link in links):
        return None
    neighbours: dict[int, list[int]] = {}
    for a, b in links:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    ends = sorted(piece for piece, near in neighbours.items() if len(near) == 1)
    if len(ends) != 2 or len(neighbours) != len(links) + 1 or any(len(near) > 2 for near in neighbours.values()):
        return None
    order = [ends[0]]
    while len(order) < len(neighbours):
        onward = [p for p in neighbours[order[-1]] if len(order) < 2 or p != order[-2]]
        if len(onward) != 1:
            return None
        order.append(onward[0])
    return order


def _optional(stack: Stack, spec: CircuitSpec) -> list[bool]:
    """For each shared piece of a stack, whether it may stay without a contact."""
    result: list[bool] = []
    for i, net in enumerate(stack.nets[1:-1], start=1):
        before, after = stack.gates[i - 1], stack.gates[i]
        same_nor = (
            spec.template.startswith("nor")
            and is_input(before)
            and is_input(after)
            and before.split("#")[1] == after.split("#")[1]
        )
        result.append(net.startswith("x") or same_nor)
    return result
