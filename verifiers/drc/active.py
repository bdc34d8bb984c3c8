"""What makes a transistor of an active area: well, implants, thresholds and fins under every piece, before and after.

A netlist knows a transistor's class, size and nets. It does not see that fins were moved away from under a gate, that a
source lost its implant or its well, or that a tap changed its type. So where two layouts differ, every channel and
every source, drain or tap is compared with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import klayout.db as kdb

from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.pairing import MAX_RESIZE, Finding
from edagym.verifiers.drc.stack import Mos, Stack
from edagym.verifiers.drc.window import box_um, clip

_MARGIN_UM = 0.05
_FIN_SLACK = 0.1
_SLACK = 0.02
"""Share of a piece's area by which a mark may miss it without changing its kind."""


def compare_active(
    golden: DRCLayout,
    found: DRCLayout,
    stack: Stack,
    windows: Sequence[kdb.Box],
    exact: bool = False,
    only: DRCLayout | None = None,
) -> list[Finding]:
    """Compare the active areas of two layouts, each piece with the one that lies in its place.

    Args:
        golden: The original.
        found: The layout to compare.
        stack: The conductors of the technology.
        windows: Boxes in the top cell's frame that hold all differences.
        exact: Whether the number of fins has to stay; else it may change by `MAX_RESIZE` of it.
        only: A part of the original: only its active areas are compared. None: all.

    Returns:
        Findings of the kind ``device_changed``.
    """
    mos = stack.mos
    if mos is None:
        return []
    findings: list[Finding] = []
    for window in _whole_pieces((golden, found), stack, windows):
        before, after = ({n: clip(s, stack.gds[n], window) for n in _names(mos)} for s in (golden, found))
        changed = kdb.Region()
        for name in before:
            changed += before[name] ^ after[name]
        if changed.is_empty():
            continue
        changed.merge()
        pieces = _pieces(before, mos).interacting(changed)
        if only is not None:
            pieces = pieces.inside(clip(only, stack.gds[mos.active], window))
        others = [p.dup() for p in _pieces(after, mos).each()]
        for piece in pieces.each():
            same = _best_overlap(piece, others)
            if same is not None:
                findings += _changed(piece, before, same, after, mos, exact, golden.dbu)
        if only is None:
            findings += _wells(before, after, mos, changed, golden.dbu)
    return findings


def _names(mos: Mos) -> tuple[str, ...]:
    return tuple(n for n in (*mos.layers, *mos.implants, *mos.thresholds, mos.fin) if n)


def _whole_pieces(layouts: Iterable[DRCLayout], stack: Stack, windows: Sequence[kdb.Box]) -> list[kdb.Box]:
    """Enlarge windows so that no active area reaches out of one."""
    assert stack.mos is not None
    gds = stack.gds[stack.mos.active]
    boxes = kdb.Region()
    for layout in layouts:
        margin = round(_MARGIN_UM / layout.dbu)
        index = layout.layer_index(*gds)
        for window in windows:
            box = window.dup()
            if index is not None:
                box += kdb.Region(layout.top.begin_shapes_rec_touching(index, window)).bbox()
            boxes.insert(box.enlarged(margin, margin))
    return [p.bbox() for p in boxes.merged().each()]


def _pieces(layers: Mapping[str, kdb.Region], mos: Mos) -> kdb.Region:
    """Channels, and active areas beside them."""
    gate = layers[mos.gate] - layers[mos.gate_cut] if mos.gate_cut else layers[mos.gate]
    channels, beside = layers[mos.active].andnot(gate)
    pieces = channels.merged()
    pieces.merged_semantics = False
    return pieces + beside.merged()


def _best_overlap(piece: kdb.Polygon, others: Sequence[kdb.Polygon]) -> kdb.Polygon | None:
    best, most = None, 0
    for other in others:
        if other.bbox().overlaps(piece.bbox()):
            area = (kdb.Region(other) & kdb.Region(piece)).area()
            if area > most:
                best, most = other, area
    return best


def _changed(
    piece: kdb.Polygon,
    before: Mapping[str, kdb.Region],
    same: kdb.Polygon,
    after: Mapping[str, kdb.Region],
    mos: Mos,
    exact: bool,
    dbu: float,
) -> list[Finding]:
    """Compare one piece: shares of it under every mark, and fins across it."""
    findings = []
    where = box_um(piece.bbox(), dbu)
    at = f"({(where[0] + where[2]) / 2:.4g}, {(where[1] + where[3]) / 2:.4g}) um"
    old, new = ({n: _share(p, layers[n]) for n in _names(mos)} for p, layers in ((piece, before), (same, after)))
    implants = [n for n in mos.implants if old[n] >= 0.5]
    for name in (*((mos.well,) if mos.well else ()), *mos.implants, *mos.thresholds):
        kind = round(old[name])
        off = abs(new[name] - kind) - abs(old[name] - kind)
        if off <= _SLACK:
            continue
        if name in mos.implants:
            # Without an implant one had to come, and of two one had to go.
            others = [n for n in mos.implants if n != name and new[n] >= 1 - _SLACK]
            if (not implants and not others) or (len(implants) > 1 and others):
                continue
        text = f"{name} over the active area at {at} changed: it covered {old[name]:.0%} of it, now {new[name]:.0%}"
        findings.append(Finding("device_changed", text, where))
    if mos.fin:
        had, has = _fins(piece, before[mos.fin]), _fins(same, after[mos.fin])
        room = _FIN_SLACK if exact else max(_FIN_SLACK, MAX_RESIZE * had)
        if had - has > room or has - had > (0.5 if exact else room + 1):
            text = f"the active area at {at} had {had:.3g} fins and has {has:.3g}"
            findings.append(Finding("device_changed", text, where))
    return findings


def _share(piece: kdb.Polygon, layer: kdb.Region) -> float:
    if layer.is_empty():
        return 0.0
    region = kdb.Region(piece)
    return float((region & layer).area() / region.area())


def _fins(piece: kdb.Polygon, fins: kdb.Region) -> float:
    """Count fins that lie in a piece with their whole height; one that ends in it counts in part."""
    region, width = kdb.Region(piece), piece.bbox().width()
    count = 0.0
    for fin in fins.merged().interacting(region).each():
        height = fin.bbox().height()
        parts = (part.bbox() for part in (kdb.Region(fin) & region).each())
        count += sum(part.width() / width for part in parts if part.height() == height)
    return count


def _wells(
    before: Mapping[str, kdb.Region], after: Mapping[str, kdb.Region], mos: Mos, changed: kdb.Region, dbu: float
) -> list[Finding]:
    """Find wells with active areas that were cut: a part may have lost its tap."""
    if not mos.well:
        return []
    old, new = (layers[mos.well].merged().interacting(layers[mos.active]) for layers in (before, after))
    findings = []
    for well in old.interacting(changed).each():
        parts = [p for p in new.each() if not (kdb.Region(p) & kdb.Region(well)).is_empty()]
        if len(parts) > 1:
            where = box_um(well.bbox(), dbu)
            findings.append(Finding("open", f"a {mos.well} was cut into {len(parts)} parts", where))
    return findings
