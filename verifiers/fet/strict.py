"""Strict checks: what a working device needs and the paper's contract does not ask for (paper, Section 6.5).

`strict_success` is `paper_success` and every check here. They follow the six questions of the paper's expert audit:
the requested devices form on the intended flakes, each gate cuts its channel, source and drain can be used, circuits
are connected as asked. Kinds:

* ``strict_transistor_count`` (per region with a demand): at least the demanded number of *strict transistors*; for
  circuits exactly. A strict transistor is a crossing of gates and region (`strict_geometry`) whose gates overhang the
  edge of the flake and part it into pieces, two of which, both bordering the crossing,

  - carry a landed contact each (for circuits: or are inner pieces between two gates),
  - belong to different nets, so that no contact, pad cover or neighbouring flake shorts them,
  - reach a via (and its pad cover) in tasks that have these layers.

  A piece that borders the crossing is reached without passing under another gate. On dual-gated devices the gates of
  both layers face each other across the whole flake, and a dielectric layer covers the channel under the upper gate.
  Crossings of one gate between the same two nets are one transistor, as the fingers of one device are, on whatever
  flakes they lie.
* ``strict_contacts`` (per region, instead, where the substrate is the only gate): contacts of at least two different
  nets land on the region, one net more than a demanded number of transistors.
* ``strict_via``: every via lies inside a contact, and inside a pad cover where the task has them.
* ``strict_stray``: no contact or via overlaps a crossing of gate and region.
* ``strict_window``: all editable shapes lie within `WINDOW_UM` of the flakes, the field in which agents may draw.
* ``strict_netlist`` (circuits): the extracted netlist equals the template's (`netlist`).

Allowed on purpose: contacts shared by neighbouring transistors; contacts that reach several flakes, as long as no
required transistor is shorted; further gates and contacts that do no harm.
"""

from __future__ import annotations

import klayout.db as kdb

from edagym.task_assets.fet.task import DBU_UM, FETTask
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.netlist import Netlist, crossing_fault, match_template, netlist_of
from edagym.verifiers.fet.strict_geometry import (
    LANDING,
    OVERHANG,
    SNAP,
    Crossing,
    Extraction,
    extract,
    solid_nets,
    usable_landings,
)
from edagym.verifiers.verdict import BBox, CheckResult

# As `edagym.envs.fet.interpreter.WINDOW_MARGIN_UM`: what cannot be drawn must not come in by file either.
WINDOW_UM = 50.0

# Gate shapes of every gate layer, and the two nets that they part.
_Device = tuple[tuple[tuple[int, ...], ...], int, int]


def strict_checks(task: FETTask, layout: FETLayout) -> list[CheckResult]:
    """Return the strict checks of a layout, in a fixed order; every result has ``strict=True``.

    Args:
        task: The task; its fixed flakes are taken from here, not from the layout.
        layout: The layout to check.
    """
    extraction = extract(task, layout)
    checks = [_vias(task, layout), _stray(extraction), _window(task, layout)]
    if task.stacks is not None:
        netlist = netlist_of(extraction)
        checks += [_circuit_count(netlist, i, len(stack.gates)) for i, stack in enumerate(task.stacks)]
        mismatch = match_template(netlist, task.stacks)
        message = mismatch.message if mismatch else "the extracted netlist equals the template's"
        checks.append(_result("strict_netlist", mismatch is None, message))
        return checks
    reached = _reached(extraction)
    seen: set[_Device] = set()
    for i, demand in enumerate(task.demand):
        if not task.layers_of("gate electrode"):
            checks.append(_ungated(extraction, i, demand or 1))
        elif demand is not None:
            checks.append(_count(extraction, i, demand, reached, seen))
    return checks


def _result(
    id_: str,
    passed: bool,
    message: str,
    required: int | None = None,
    measured: int | None = None,
    where: BBox | None = None,
) -> CheckResult:
    unit = "" if required is None else "count"
    kind = id_.split(":")[0]
    return CheckResult(id_, kind, passed, required, measured, unit, where, message, hidden=True, strict=True)


def _um(box: kdb.Box) -> BBox:
    return (box.left / 1000, box.bottom / 1000, box.right / 1000, box.top / 1000)


def _vias(task: FETTask, layout: FETLayout) -> CheckResult:
    """Every via lies inside a contact and, where the task has pad covers, inside a pad cover."""
    covers = [spec.name for role in ("contact", "pad cover") for spec in task.layers_of(role)]
    for via in task.layers_of("via"):
        for cover in covers:
            outside = (layout.region(via.name) - layout.region(cover)).sized(-SNAP)
            if not outside.is_empty():
                message = f"expected every {via.name} inside {cover}, found {outside.count()} part(s) outside"
                return _result("strict_via", False, message, 0, outside.count(), _um(outside.bbox()))
    return _result("strict_via", True, "every via lies on the shapes that it joins")


def _stray(extraction: Extraction) -> CheckResult:
    """No contact or via overlaps a crossing."""
    for crossing in (c for crossings in extraction.crossings for c in crossings):
        if crossing.stray:
            name = extraction.task.regions[crossing.region].name
            message = f"{name}: expected nothing on the channel, found a {crossing.stray}"
            return _result("strict_stray", False, message, where=_um(crossing.polygon.bbox()))
    return _result("strict_stray", True, "no contact or via overlaps a channel")


def _window(task: FETTask, layout: FETLayout) -> CheckResult:
    """No editable shape lies far from the flakes."""
    xs, ys = zip(*(point for region in task.regions for point in region.hull))
    window = kdb.DBox(min(xs), min(ys), max(xs), max(ys)).enlarged(WINDOW_UM).to_itype(DBU_UM)
    for spec in task.editable_layers:
        box = layout.region(spec.name).bbox()
        if not box.empty() and not box.inside(window):
            message = f"{spec.name}: expected all shapes within {WINDOW_UM:g} um of the flakes, found some outside"
            return _result("strict_window", False, message, where=_um(box))
    return _result("strict_window", True, f"all shapes lie within {WINDOW_UM:g} um of the flakes")


def _circuit_count(netlist: Netlist, region: int, required: int) -> CheckResult:
    found = sum(t.region == region for t in netlist.transistors)
    message = f"{netlist.regions[region]}: expected exactly {required} strict transistor(s), found {found}"
    faults = [f"{f.message} at {f.at}" for f in netlist.faults if f.region == region]
    message = "; ".join([message, *faults])
    id_ = f"strict_transistor_count:{netlist.regions[region]}"
    return _result(id_, found == required and not faults, message, required, found)


def _reached(extraction: Extraction) -> set[int] | None:
    """Bodies (by number) that solidly reach a usable via; None where the task has no via layer."""
    if not extraction.task.layers_of("via"):
        return None
    nets, reached = solid_nets(extraction)
    return {body.number for bodies in extraction.bodies for body in bodies if nets.find(body.number) in reached}


def _count(
    extraction: Extraction, region: int, required: int, reached: set[int] | None, seen: set[_Device]
) -> CheckResult:
    """At least `required` strict transistors on a region, none of them in `seen`; those found are added to it."""
    before = len(seen)
    faults: list[tuple[str, Crossing]] = []
    for crossing in extraction.crossings[region]:
        key, reason = _device(extraction, crossing, reached)
        if key is None:
            faults.append((reason, crossing))
        elif (crossing.gates, *key) in seen:
            faults.append(("gate, source and drain are those of a transistor already counted", crossing))
        else:
            seen.add((crossing.gates, *key))
    found = len(seen) - before
    name = extraction.task.regions[region].name
    message = f"{name}: expected at least {required} strict transistor(s), found {found}"
    passed = found >= required
    where = None
    if not passed and faults:
        where = _um(faults[0][1].polygon.bbox())
        centres = [crossing.polygon.bbox().center() for _, crossing in faults]
        reasons = [f"{why} at ({c.x / 1000:g}, {c.y / 1000:g})" for (why, _), c in zip(faults, centres)]
        message = "; ".join([message, *reasons[:3]])
    return _result(f"strict_transistor_count:{name}", passed, message, required, found, where)


def _device(extraction: Extraction, crossing: Crossing, reached: set[int] | None) -> tuple[tuple[int, int] | None, str]:
    """Return the two nets that a crossing parts, as a transistor, or None and the reason why it is none."""
    if len(crossing.pieces) < 2:
        if crossing.sides > 1:
            return None, f"the gate overhangs the flake by less than {OVERHANG / 1000:g} um"
        return None, "removing the gate does not part the flake here"
    landed = [p for p in crossing.pieces if any(b.landed for b in crossing.bodies_of(p))]
    if len(landed) < 2:
        return None, (
            f"contacts land (at least {LANDING / 1000:g} um square) on {len(landed)} of the "
            f"{len(crossing.pieces)} pieces beside the gate"
        )
    usable = [
        p for p in landed if reached is None or any(b.landed and b.number in reached for b in crossing.bodies_of(p))
    ]
    if len(usable) < 2:
        return None, "source or drain has no usable via (and pad cover, where the task has them)"
    reason = ""
    for i, first in enumerate(usable):
        for second in usable[i + 1 :]:
            nets = (extraction.net(first), extraction.net(second))
            if nets[0] == nets[1]:
                reason = reason or "source and drain are one net"
                continue
            fault = crossing_fault(crossing, first, second)
            if not fault:
                return (min(nets), max(nets)), ""
            reason = fault
    return None, reason


def _ungated(extraction: Extraction, region: int, required: int) -> CheckResult:
    """Without gate layers: contacts of at least `required` + 1 different nets land on a region."""
    name = extraction.task.regions[region].name
    landings = [landing for landing in usable_landings(extraction) if landing.body.piece.region == region]
    nets = {extraction.nets.find(landing.contact) for landing in landings}
    message = f"{name}: expected contacts of at least {required + 1} separate nets, found {len(nets)}"
    return _result(f"strict_contacts:{name}", len(nets) > required, message, required + 1, len(nets))
