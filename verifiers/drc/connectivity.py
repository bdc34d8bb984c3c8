"""Connectivity audit: does a layout still hold the circuit of its original?

`Reference.audit` extracts both layouts and compares them anchor by anchor. Anchors are device terminals and labels,
paired by place. A net of the original whose anchors now lie on two nets is open; a net that now holds anchors of two
original nets is shorted. The result does not depend on names. Anchors that moved are paired with the nearest; where
only such pairs disagree, KLayout's graph comparison decides.

Conductors with at most one anchor (dangling wires, test structures without transistors) mean nothing to a netlist, so
they are followed by their geometry wherever the two layouts differ: what overlaps must stay together and apart, and no
part of a net may be cut off from all its anchors.

`window_guard` is the same audit on a window, in milliseconds: wires that leave the window are anchors too. It finds
every change of connectivity that an edit inside the window can make; but what it reports as open or short may be
joined outside, so that only the full audit convicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import klayout.db as kdb

from edagym.errors import EDAGymError, TaskError, ToolError
from edagym.verifiers.drc.active import compare_active
from edagym.verifiers.drc.diff import (
    LayoutChanges,
    compare_layouts,
    placements,
    with_instances_moved,
    without_instances,
)
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.netlist import Extraction, NetKey, Netlist
from edagym.verifiers.drc.pairing import FINDING_KINDS, Finding, Pairing
from edagym.verifiers.drc.stack import POLY, Stack
from edagym.verifiers.drc.window import (
    LocalNets,
    box_um,
    changed_layers,
    clip,
    clipped_layout,
    conductors,
    touch_devices,
)

MAX_WINDOWS = 16
"""Of the instances of an edited master, geometry is followed in so many; netlists always cover all."""
GUARD_MARGIN_UM = 0.15
"""Room around an edit in a guard window, um."""


class Reference:
    """The circuit that a layout must keep. Its netlist is extracted once; pickles with it.

    Args:
        layout: The original layout; a copy is kept.
        stack: The conductors of the technology.
    """

    def __init__(self, layout: DRCLayout, stack: Stack) -> None:
        self.layout = layout.copy()
        self.stack = stack
        self._netlist: Netlist | None = None
        self._extraction: Extraction | None = None

    def __getstate__(self) -> dict[str, Any]:
        netlist = self.netlist.to_bytes()
        return {"layout": self.layout, "stack": self.stack, "netlist": netlist}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.layout, self.stack = state["layout"], state["stack"]
        self._netlist = Netlist.from_bytes(state["netlist"])
        self._extraction = None

    @property
    def netlist(self) -> Netlist:
        """The original's flat netlist."""
        if self._netlist is None:
            self._netlist = self.extraction.netlist
        return self._netlist

    @property
    def extraction(self) -> Extraction:
        """The original's live extraction; made when first needed, also after unpickling."""
        if self._extraction is None:
            self._extraction = Extraction(self.layout.layout, self.layout.top.name, self.stack)
        return self._extraction

    def audit(
        self, layout: DRCLayout, changes: LayoutChanges | None = None, *, exact_sizes: bool = False
    ) -> list[Finding]:
        """Compare a layout's circuit with the original's.

        Args:
            layout: The layout; not changed.
            changes: Its differences from the original, if they are at hand.
            exact_sizes: Whether transistors have to keep their channels and fins exactly; else both may change by
                `MAX_RESIZE`, as repairs of active areas and gates need it.

        Returns:
            All findings, in the order of `FINDING_KINDS`; empty if the circuit is kept.

        Raises:
            TaskError: If the layout has another database unit or top cell than the original.
            ToolError: If the extraction engine fails.
        """
        if abs(layout.dbu - self.layout.dbu) > 1e-9 * self.layout.dbu:
            raise TaskError("another database unit", field="dbu", value=layout.dbu, allowed=self.layout.dbu)
        if layout.top.name != self.layout.top.name:
            raise TaskError("another top cell", field="top", value=layout.top.name, allowed=self.layout.top.name)
        if changes is None:
            changes = compare_layouts(self.layout.layout, layout.layout)
        if changes.empty:
            return []
        try:
            found = Extraction(layout.layout, layout.top.name, self.stack)
            windows = self._windows(layout, changes)
            steps = _steps(layout, changes)
            base = with_instances_moved(self.layout, changes)[0]
            golden = _Side(self.extraction, self.layout)
            still = without_instances(self.layout, [a for a, _ in changes.moves]) if changes.moves else None
            return _audit(golden, _Side(found, layout), windows, steps, self.netlist, base, still, exact_sizes)
        except EDAGymError:
            raise
        except RuntimeError as e:
            raise ToolError(f"connectivity audit failed: {e}") from e

    def _windows(self, layout: DRCLayout, changes: LayoutChanges) -> list[kdb.Box]:
        """Boxes in the top cell's frame in which the two layouts differ, near ones joined."""
        boxes = kdb.Region()
        for site in changes.sites(self.layout.layout, layout.layout):
            for source in (self.layout, layout):
                for box in site.in_top(source.layout, source.top, MAX_WINDOWS):
                    boxes.insert(box.enlarged(1, 1))
        return [p.bbox() for p in boxes.merged().each()]


def _steps(layout: DRCLayout, changes: LayoutChanges) -> list[tuple[int, int]]:
    """Displacements that moved instances made in the top cell's frame."""
    found: set[tuple[int, int]] = set()
    for a, b in changes.moves[:MAX_WINDOWS]:
        for trans in placements(layout.layout, layout.top, a.parent):
            step = trans * kdb.Vector(b.x - a.x, b.y - a.y)
            found.add((step.x, step.y))
    return sorted(found)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two layouts that are compared."""

    extraction: Extraction
    layout: DRCLayout


def _audit(
    golden: _Side,
    found: _Side,
    windows: Sequence[kdb.Box],
    steps: Sequence[tuple[int, int]],
    netlist: Netlist | None = None,
    base: DRCLayout | None = None,
    still: DRCLayout | None = None,
    exact_sizes: bool = False,
) -> list[Finding]:
    """Compare two extracted layouts.

    `base` is the original with instances where the other layout has them, `still` the original without those that were
    displaced.
    """
    before = golden.extraction.netlist if netlist is None else netlist
    pairing = Pairing(before, found.extraction.netlist, steps)
    findings = pairing.kept_in_place()
    findings += pairing.opens_and_shorts(exact_only=True)
    if not findings:
        findings = pairing.lost_and_added() + pairing.opens_and_shorts(exact_only=False)
        # Only anchors that moved disagree, and which is which was a guess: let the graphs decide.
        if findings and pairing.could_have_moved() and _same_graph(golden.extraction, found.extraction):
            findings = []
    else:
        findings += pairing.lost_and_added()
    findings += pairing.resized(exact_sizes)
    stack = golden.extraction.stack
    findings += compare_active(golden.layout if base is None else base, found.layout, stack, windows, exact_sizes)
    if still is not None:
        findings += compare_active(golden.layout, found.layout, stack, windows, exact_sizes, only=still)
    findings += _loose_conductors(golden, found, windows)
    findings.sort(key=lambda f: FINDING_KINDS.index(f.kind))
    return findings


# -- graphs --------------------------------------------------------------------------------------------------------


def _same_graph(golden: Extraction, found: Extraction) -> bool:
    """Whether two circuits are equal as graphs of transistors and labelled nets; sizes don't count."""
    netlists = []
    for extraction in (golden, found):
        flat = extraction.flat_circuits()
        for circuit in flat.each_circuit():
            for net in circuit.each_net():
                tokens = net.name.split(",") if net.name else []
                net.name = ",".join(sorted({extraction.labels[int(t)][0] for t in tokens}))
        for device_class in flat.each_device_class():
            ids = [p.id() for p in device_class.parameter_definitions() if p.name in ("L", "W")]
            ignored = [kdb.EqualDeviceParameters.ignore(i) for i in ids]
            device_class.equal_parameters = sum(ignored[1:], ignored[0])
        netlists.append(flat)
    comparer = kdb.NetlistComparer()
    return bool(comparer.compare(*netlists))


# -- conductors without anchors ------------------------------------------------------------------------------------


def _loose_conductors(golden: _Side, found: _Side, windows: Sequence[kdb.Box]) -> list[Finding]:
    """Follow conductors that have no anchors by their geometry in the windows where the layouts differ."""
    dbu = golden.layout.dbu
    joined: dict[NetKey, dict[NetKey, kdb.Box]] = {}
    merged: dict[NetKey, dict[NetKey, kdb.Box]] = {}
    severed: dict[NetKey, kdb.Box] = {}
    loose: set[NetKey] = set()
    floating: list[dict[NetKey, set[str]]] = [{}, {}]
    gone: set[str] = set()
    stray: dict[str, kdb.Box] = {}
    findings: list[Finding] = []
    for window in windows:
        before, after = (conductors(side.layout, side.extraction.stack, window) for side in (golden, found))
        for name in golden.extraction.stack.nodes:
            common = (before[name] & after[name]).merged()
            for piece in common.each():
                g = golden.extraction.net_at(name, *_inner_point(piece))
                m = found.extraction.net_at(name, *_inner_point(piece))
                if g is None or m is None:
                    continue
                if golden.extraction.anchors(g) == 0:
                    loose.add(g)
                # Anchors say where the rest of a net went; only a part that lost them all has to be followed.
                if golden.extraction.anchors(g) < 2:
                    joined.setdefault(g, {}).setdefault(m, piece.bbox())
                elif name != POLY and found.extraction.anchors(m) == 0:
                    severed.setdefault(m, piece.bbox())
                merged.setdefault(m, {}).setdefault(g, piece.bbox())
            present = before[name]
            if name == POLY:
                # What a gate cut removed is no loss.
                present = present.not_inside(_gate_cuts(found, window))
            if name in golden.extraction.stack.cuts:
                continue  # of several vias, one may go
            if name != POLY:
                gone |= {name for p in before[name].not_interacting(after[name]).each() if _anchored(golden, name, p)}
                for piece in after[name].not_interacting(before[name]).each():
                    if not _anchored(found, name, piece):
                        stray.setdefault(name, piece.bbox())
            for side, region, nets in zip((golden, found), (present, after[name]), floating):
                for piece in region.each():
                    key = side.extraction.net_at(name, *_inner_point(piece))
                    if key is not None and side.extraction.anchors(key) == 0:
                        nets.setdefault(key, set()).add(name)
    for parts in joined.values():
        if len(parts) > 1:
            boxes = list(parts.values())
            text = f"a conductor was cut into {len(parts)} parts"
            findings.append(Finding("open", text, box_um(min(boxes, key=_kdb_area), dbu)))
    for place in severed.values():
        findings.append(Finding("open", "a conductor was cut off from its net", box_um(place, dbu)))
    for name in sorted(gone & stray.keys()):
        findings.append(Finding("open", f"a piece of {name} was moved off its net", box_um(stray[name], dbu)))
    for origins in merged.values():
        if len(origins) > 1 and not loose.isdisjoint(origins):
            boxes = list(origins.values())
            text = f"{len(origins)} separate conductors were joined"
            findings.append(Finding("short", text, box_um(min(boxes, key=_kdb_area), dbu)))
    # A conductor that was moved further than its width overlaps nothing of its own: there must be one like it.
    lost = _unmatched(floating[0].values(), floating[1].values())
    if lost and not findings:
        layers = "-".join(n for n in golden.extraction.stack.nodes if n in lost[0])
        text = (
            f"of {len(floating[0])} separate conductors without devices, {len(lost)} are gone, one of them of {layers}"
        )
        findings.append(Finding("conductor_lost", text, box_um(windows[0], dbu)))
    return findings


def _anchored(side: _Side, name: str, piece: kdb.Polygon) -> bool:
    net = side.extraction.net_at(name, *_inner_point(piece))
    return net is not None and side.extraction.anchors(net) > 0


def _unmatched(before: Iterable[set[str]], after: Iterable[set[str]]) -> list[set[str]]:
    """Return the sets of layers to which no set of `after` belongs that has all of them."""
    free = [set(layers) for layers in after]
    rest = []
    for layers in sorted(before, key=lambda found: (-len(found), sorted(found))):
        if layers in free:
            free.remove(layers)
        else:
            rest.append(layers)
    lost = []
    for layers in rest:
        larger = min((found for found in free if found >= layers), key=len, default=None)
        if larger is None:
            lost.append(layers)
        else:
            free.remove(larger)
    return lost


def _gate_cuts(side: _Side, window: kdb.Box) -> kdb.Region:
    stack = side.extraction.stack
    if stack.mos is None or not stack.mos.gate_cut:
        return kdb.Region()
    return clip(side.layout, stack.gds[stack.mos.gate_cut], window)


def _kdb_area(box: kdb.Box) -> int:
    return int(box.area())


def _inner_point(polygon: kdb.Polygon) -> tuple[int, int]:
    """A point inside a polygon or, of one thinner than the grid, on its outline."""
    parts = polygon.decompose_trapezoids()
    best = max(parts, key=lambda p: p.area(), default=polygon)
    center = best.bbox().center()
    return (center.x, center.y)


# -- the guard of single steps -------------------------------------------------------------------------------------


def guard_windows(boxes: Iterable[tuple[int, int, int, int]], dbu: float) -> list[kdb.Box]:
    """Return boxes for `window_guard` that cover changed places, so far apart that no window sees part of another.

    Args:
        boxes: Where two layouts differ, (x1, y1, x2, y2) in database units of the top cell.
        dbu: Database unit, um.
    """
    margin = round(GUARD_MARGIN_UM / dbu) + 1
    places = kdb.Region()
    for box in boxes:
        places.insert(kdb.Box(*box).enlarged(margin, margin))
    apart = places.merged().extents()
    while apart.count() > apart.merged().count():
        apart = apart.merged().extents()
    # One unit stays: a change at a box's border concerns what touches it from outside.
    return [p.bbox().enlarged(1 - margin, 1 - margin) for p in apart.each()]


def window_guard(
    golden: DRCLayout, layout: DRCLayout, box: kdb.Box, stack: Stack, layers: Iterable[str] | None = None
) -> list[Finding]:
    """Compare the circuits of two layouts inside a window.

    Args:
        golden: The layout before.
        layout: The layout after; equal to `golden` outside `box`.
        box: Where they differ, database units of the top cell.
        stack: The conductors of the technology.
        layers: Drawn layers that differ, if known: saves looking for them.

    Returns:
        What changed inside the window; empty if certainly no net, device or label did. An open or short that is
        reported may be joined outside the window.
    """
    margin = round(GUARD_MARGIN_UM / golden.dbu)
    window = box.enlarged(margin, margin)
    changed = changed_layers(golden, layout, window, stack, layers)
    if not changed:
        return []
    if not touch_devices(changed, stack) and LocalNets(golden, window, stack, changed) == LocalNets(
        layout, window, stack, changed
    ):
        return []
    before, after = (_window_side(source, stack, window) for source in (golden, layout))
    return _audit(before, after, [box.enlarged(1, 1)], [])


def _window_side(layout: DRCLayout, stack: Stack, window: kdb.Box) -> _Side:
    clipped, labels = clipped_layout(layout, stack, window)
    return _Side(Extraction(clipped.layout, clipped.top.name, stack, labels), clipped)
