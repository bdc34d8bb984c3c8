"""Reference constructor: a layout that passes, for every architecture and circuit template.

It knows the hidden criteria. Method: curves along the flake (medial axis and straight sweeps), contact and gate
stations along a curve, a greedy row contact, gate, contact, ... with exact local checks; vias and pads inside the
contacts; outputs of circuits joined by wires on the contact layer over bare substrate. A finished layout goes through
the verifier; when it is rejected the next candidate is tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import shapely

from edagym.envs.fet.construct.assembly import Assembly, Plan, Stuck, assemblies
from edagym.envs.fet.construct.edge import place_edge_device
from edagym.envs.fet.construct.place import MARGIN_UM, Limits, largest_chain, place_stack, size_levels
from edagym.envs.fet.construct.shapes import Array, Flake, Points, Rect
from edagym.envs.fet.construct.spine import Curve, curves
from edagym.envs.fet.construct.stations import gate_stations
from edagym.errors import EDAGymError
from edagym.spaces.edits import AddPolygon, Edit
from edagym.task_assets.fet.grid import ring_to_dbu, ring_to_um
from edagym.task_assets.fet.task import FETTask, Region
from edagym.task_assets.fet.template import RuleValues
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.verifier import FETVerifier

# Stand-ins for values that a task does not state (a global back gate has neither gates nor separation), um.
_GATE_UM, _SPACING_UM, _SEPARATION_UM, _ENCLOSURE_UM = 1.0, 0.2, 0.2, 0.5
_MAX_VIA_UM = 0.6
_PAD_INSET_UM = 0.05
_DIELECTRIC_UM = 0.3

Segment = tuple[tuple[float, float], tuple[float, float]]


class ReferenceInfeasible(EDAGymError):
    """The constructor finds no layout; says which region is in the way and why."""


@dataclass(frozen=True, slots=True)
class CrossingHint:
    """Where a gate could cross a flake: made from the contour alone.

    Attributes:
        point: Middle of the crossing, um.
        direction: Unit vector along the flake (source to drain); the gate runs across it.
        source_segment: Part of the flake's spine before the crossing, two points inside the flake, um.
        drain_segment: Part of it after the crossing.
    """

    point: tuple[float, float]
    direction: tuple[float, float]
    source_segment: Segment
    drain_segment: Segment


def build_reference(task: FETTask, *, rng: np.random.Generator | None = None) -> tuple[Edit, ...]:
    """Return edits that solve a task under the paper's and the strict criterion.

    Args:
        task: The task, hidden criteria included.
        rng: Draws where to start the search, for varied references. None: always the same reference.

    Returns:
        `AddPolygon` edits in design order, um on the 1 nm grid, at most 16 points each.

    Raises:
        ReferenceInfeasible: If no layout is found; names the region and the reason.
    """
    plan = _plan(task)
    verifier = FETVerifier(task)
    complaint: tuple[str, str] | None = None
    try:
        for assembly in assemblies(plan, first=0 if rng is None else int(rng.integers(1, 6))):
            shapes = _shapes(task, plan, assembly)
            verdict = verifier.verify(layout_of(task, shapes))
            if verdict.paper_success and verdict.strict_success:
                return _edits(task, shapes)
            failed = verdict.failed()
            complaint = (failed[0].id, failed[0].message) if failed else ("", "rejected")
    except Stuck as e:
        name = task.regions[e.region].name
        raise ReferenceInfeasible(f"task {task.id}: {name}: {e.reason}", field="region", value=name) from e
    field, reason = complaint or ("", "nothing to build")
    raise ReferenceInfeasible(f"task {task.id}: every candidate is rejected ({reason})", field=field or None)


def capacity(
    region: Region,
    values: RuleValues,
    *,
    architecture: str = "top_gated",
    via: bool = False,
    pad_cover: bool = False,
    limit: int = 8,
) -> int:
    """Return the largest number of transistors that the constructor places on a contour, at most `limit`.

    Args:
        region: The contour (um).
        values: Numeric rules.
        architecture: One of `task.ARCHITECTURES`. Edge-contacted and globally back-gated flakes hold one device.
        via: Whether contacts must enclose vias.
        pad_cover: Whether pads cover them. Pads stay inside the contacts, so this changes nothing.
        limit: Most transistors to look for.
    """
    flake, limits = Flake(region), _limits(values, via or pad_cover)
    if limit < 1:
        return 0
    if architecture == "edge_contacted":
        return int(next(place_edge_device(flake, limits), None) is not None)
    if architecture == "global_back_gated":
        return int(next(place_stack(flake, 1, limits), None) is not None)
    chain = largest_chain(flake, limits, limit)
    return len(chain.gates) if chain else 0


def channel_hint(region: Region) -> CrossingHint:
    """Return a suggested gate crossing and source and drain zones, from the contour alone.

    The crossing is the narrowest one in the middle half of the flake's first usable curve.

    Args:
        region: The contour (um).

    Raises:
        ReferenceInfeasible: If no gate of 0.5 um can cross the flake.
    """
    flake = Flake(region)
    shapely.prepare(flake.polygon)
    sizes = size_levels(Limits(0.5, _SPACING_UM, _SEPARATION_UM))[-1]
    for curve in curves(flake):
        gates = gate_stations(flake, curve, sizes)
        usable = np.flatnonzero(gates.ok & shapely.contains_xy(flake.polygon, curve.points[:, 0], curve.points[:, 1]))
        m = len(curve.points)
        middle = usable[(usable > 0.25 * m) & (usable < 0.75 * m)]
        for k in sorted((middle if len(middle) else usable).tolist(), key=lambda i: (gates.rects[i].hy, i)):
            away = max(1, round(0.5 / curve.step))
            source = _inner_segment(flake, curve, 0, k - away)
            drain = _inner_segment(flake, curve, k + away, m - 1)
            if source and drain:
                direction = _rounded(curve.tangents[k], 6)
                return CrossingHint(_rounded(curve.points[k]), direction, source, drain)
    raise ReferenceInfeasible(f"{region.name}: no gate can cross it", field="region", value=region.name)


def _inner_segment(flake: Flake, curve: Curve, first: int, last: int) -> Segment | None:
    """Longest of a few chords of the curve between two stations that lie inside the flake."""
    span = last - first
    for share in (0.1, 0.2, 0.3, 0.4):
        i, j = first + round(share * span), last - round(share * span)
        if j - i < 2:
            break
        ends = curve.points[i], curve.points[j]
        if flake.polygon.contains_properly(shapely.LineString(np.round(ends, 3))):
            return _rounded(ends[0]), _rounded(ends[1])
    return None


def _rounded(point: Array, digits: int = 3) -> tuple[float, float]:
    return round(float(point[0]), digits), round(float(point[1]), digits)


# -- from task to plan ---------------------------------------------------------------------------------------------


def _limits(values: RuleValues, via: bool) -> Limits:
    return Limits(
        gate_width=values.min_gate_width or _GATE_UM,
        spacing=values.contact_spacing,
        separation=values.contact_gate_separation or _SEPARATION_UM,
        enclosure=(values.via_enclosure or _ENCLOSURE_UM) if via else None,
    )


def _plan(task: FETTask) -> Plan:
    def largest(kind: str) -> float | None:
        return max((r.min_um for r in task.drc_rules if r.kind == kind and r.min_um is not None), default=None)

    values = RuleValues(
        largest("min_width"), largest("min_spacing") or _SPACING_UM, largest("min_separation"), largest("min_enclosure")
    )
    stacks = task.stacks
    counts = tuple(len(s.gates) for s in stacks) if stacks else tuple(1 if n is None else n for n in task.demand)
    return Plan(
        architecture=task.architecture,
        limits=_limits(values, bool(task.layers_of("via"))),
        flakes=tuple(Flake(r) for r in task.regions),
        counts=counts,
        stacks=stacks,
        circuit=task.circuit,
    )


# -- from assembly to edits ----------------------------------------------------------------------------------------


def _shapes(task: FETTask, plan: Plan, assembly: Assembly) -> dict[str, list[Points]]:
    """Polygons per editable layer, um."""
    chains = [assembly.chains[k] for k in sorted(assembly.chains)]
    contacts = [c for chain in chains for c in chain.contacts]
    gates = [g for chain in chains for g in chain.gates]
    wires = [p for _, wire in assembly.wires for p in wire.polygons]
    vias = [_via(c, plan.limits) for c in contacts] if plan.limits.enclosure is not None else []
    by_role: dict[str, Iterable[Rect]] = {
        "contact": contacts,
        "gate electrode": gates,
        "via": vias,
        "pad cover": [c.grown(-_PAD_INSET_UM) for c in contacts],
        "dielectric": [g.grown(_DIELECTRIC_UM) for g in gates],
    }
    result: dict[str, list[Points]] = {}
    for name in task.required_layers:
        role = task.layer(name).role
        result[name] = [r.corners for r in by_role[role]] + (wires if role == "contact" else [])
    return result


def _via(contact: Rect, limits: Limits) -> Rect:
    assert limits.enclosure is not None
    half = min(_MAX_VIA_UM / 2, min(contact.hx, contact.hy) - limits.enclosure - MARGIN_UM)
    return contact.resized(half, half)


def layout_of(task: FETTask, shapes: dict[str, list[Points]]) -> FETLayout:
    """Return the task's initial layout with polygons (um) added."""
    layout = FETLayout.from_task(task)
    for name, polygons in shapes.items():
        for points in polygons:
            layout.add(name, ring_to_dbu(points))
    return layout


def _edits(task: FETTask, shapes: dict[str, list[Points]]) -> tuple[Edit, ...]:
    return tuple(
        AddPolygon(name, ring_to_um(ring_to_dbu(points))) for name in task.required_layers for points in shapes[name]
    )
