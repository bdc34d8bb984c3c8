"""Strict guards on a repair: what has to be left as it was, and how much may be taken away or redrawn.

Rules alone invite cheating: a layout without shapes has no violations. So a repair must keep cells, labels, fixed
layers and die; keep `Limits.min_area_kept` of every piece that it thins out, even of a lone rectangle that no netlist
sees; redraw no more than `Limits.max_edited_area`; and keep the circuit (`edagym.verifiers.drc.connectivity`).

Areas are of merged geometry in the top cell's frame. Free are: removing an exact duplicate, and moving a shape or an
instance by up to `MOVE_REACH_UM`, but not onto another shape; what is drawn within that distance of a loss makes up for
it. On a via layer whose limit a task relaxes, all shapes within that distance are one account, so that one of several
redundant vias may go. A master counts once, however many instances it has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import klayout.db as kdb

from edagym.errors import TaskError
from edagym.task_assets.drc.task import MIN_AREA_KEPT, Limits
from edagym.verifiers.drc.connectivity import Reference
from edagym.verifiers.drc.diff import (
    Instance,
    LayerKey,
    LayoutChanges,
    Site,
    compare_layouts,
    placements,
    with_instances_moved,
    without_instances,
)
from edagym.verifiers.drc.incremental import IncrementalChecker
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, MarkerStore
from edagym.verifiers.drc.pairing import FindingKind
from edagym.verifiers.drc.report import RoiUm, inside, roi_box
from edagym.verifiers.drc.rules import RuleTable
from edagym.verifiers.drc.window import box_um
from edagym.verifiers.verdict import BBox, CheckResult

MOVE_REACH_UM = 0.5
"""A shape redrawn within this distance, um, of where it was counts as kept."""
DIE_MARGIN_UM = 2.0
"""Room around a layout that has no outline, um."""
OUTLINE_LAYER = 235
"""GDSII layer number of a placed design's outline in OpenROAD and Innovus layouts for ASAP7."""
MAX_ADDED_SHAPES = 1000
"""Shapes that a repair may add, over all cells; far above what any action budget can draw."""
MAX_ADDED_FLAT = 200_000
"""The same, every instance counted."""
MAX_SITES = 16
"""Of the instances of an edited master, areas are measured in so many."""
MAX_MOVED = 200
"""Where more shapes and instances than this were moved, the moves are not free."""
WINDOW_UM = 0.1
"""Room around a violation that `derive_limits` lets a repair redraw, um."""

VIAS_KEPT = 0.6
"""Share of a via layer near by that has to stay where a task is about surplus vias: two of three, not one of two."""
_VIA = re.compile("V[0-9]")

_SKIPPED = "not checked: too many shapes were added"
_NETS: tuple[tuple[str, frozenset[FindingKind]], ...] = (
    ("strict_opens", frozenset({"open"})),
    ("strict_shorts", frozenset({"short"})),
    ("strict_conductors", frozenset({"conductor_lost"})),
    ("strict_devices", frozenset({"device_lost", "device_added", "device_changed", "device_resized"})),
    ("strict_net_labels", frozenset({"label_lost", "label_added"})),
)


def die_box(layout: DRCLayout) -> kdb.Box:
    """Return the box in which shapes may lie, database units: outline and contents, or contents and a margin."""
    contents = layout.top.bbox()
    outline = kdb.Box()
    for index in layout.layout.layer_indexes():
        if layout.layout.get_info(index).layer == OUTLINE_LAYER:
            outline += layout.top.bbox(index)
    if not outline.empty():
        return contents + outline
    margin = round(DIE_MARGIN_UM / layout.dbu)
    return contents.enlarged(margin, margin)


def derive_limits(
    boxes: Iterable[Box], dbu: float, rules: Iterable[str] = (), table: RuleTable | None = None
) -> Limits:
    """Return the limits of a task that states none: the default share kept, and one layer redrawn around violations.

    Of a via layer about which a rule is violated, `VIAS_KEPT` has to stay: cuts have fixed sizes, so that a surplus one
    can only be taken away.

    Args:
        boxes: Bounding boxes of the reported items, database units.
        dbu: Database unit, um.
        rules: Rules that are violated.
        table: Their table; None: no limit is relaxed.
    """
    margin = round(WINDOW_UM / dbu)
    windows = kdb.Region()
    for box in boxes:
        windows.insert(kdb.Box(*box).enlarged(margin, margin))
    about = sorted({table.rules[r].primary_layer for r in rules}) if table is not None else []
    return Limits({name: VIAS_KEPT for name in about if _VIA.fullmatch(name)}, windows.area() * dbu * dbu)


def strict_checks(
    initial: DRCLayout,
    layout: DRCLayout,
    table: RuleTable,
    limits: Limits,
    golden: Reference,
    *,
    rules: Iterable[str] | None = None,
    changes: LayoutChanges | None = None,
    roi: RoiUm | None = None,
) -> list[CheckResult]:
    """Run all strict guards.

    Args:
        initial: The task's layout with its violations.
        layout: The repaired layout; not changed.
        table: The rules; their layers are the ones that may be edited.
        limits: Bounds of the repair.
        golden: The circuit that has to be kept.
        rules: Rules that `initial` violates; None: unknown. A marker layer that exempts from rules may be edited only
            to repair a rule about itself, and transistors may change their sizes only to repair one about active areas,
            gates or fins (or where the rules are unknown).
        changes: Differences of `layout` from `initial`, if they are at hand.
        roi: Region of interest in um. Violations outside do not count, but there must not be more of them than before.

    Returns:
        One result per guard, all with `strict=True`, always the same ids in the same order; but if database unit or
        top cell differ, nothing can be compared and only that result is returned.

    Raises:
        ToolError: If the extraction engine fails.
    """
    same, message = _comparable(initial, layout)
    if not same:
        return [_result("strict_frame", False, message)]
    results = [_result("strict_frame", True, message)]
    added = _raw_shapes(layout) - _raw_shapes(initial)
    flat = layout.flat_shapes() - initial.flat_shapes()
    too_many = added > MAX_ADDED_SHAPES or flat > MAX_ADDED_FLAT
    text = f"at most {MAX_ADDED_SHAPES} shapes ({MAX_ADDED_FLAT} in all instances) may be added, found {added} ({flat})"
    limit, measured = float(MAX_ADDED_SHAPES), float(added)
    name = "strict_shape_count"
    results.append(CheckResult(name, name, not too_many, limit, measured, "count", None, text, strict=True))
    if too_many:
        names = (
            "strict_cells",
            "strict_labels",
            "strict_fixed_layers",
            "strict_markers",
            "strict_rectilinear",
            "strict_die",
            "strict_elsewhere",
        )
        skipped = (*names, "strict_area_kept", "strict_edited_area", *(name for name, _ in _NETS))
        return results + [_result(name, True, _SKIPPED) for name in skipped]
    if changes is None:
        changes = compare_layouts(initial.layout, layout.layout)
    results += [
        _cells(changes),
        _labels(changes),
        _fixed_layers(changes, table, initial.dbu),
        _markers(changes, table, golden.stack.exempting, rules or (), initial.dbu),
        _rectilinear(changes, initial.dbu),
        _die(initial, layout),
        _elsewhere(initial, layout, table, changes, roi),
        *_areas(initial, layout, table, limits, changes),
        *_nets(golden, layout, _exact_sizes(golden, table, rules)),
    ]
    return results


def _result(id_: str, passed: bool, message: str, where: BBox | None = None) -> CheckResult:
    return CheckResult(id_, id_, passed, where=where, message=message, strict=True)


def _comparable(initial: DRCLayout, layout: DRCLayout) -> tuple[bool, str]:
    if abs(layout.dbu - initial.dbu) > 1e-9 * initial.dbu:
        return False, f"expected the database unit {initial.dbu:g} um, found {layout.dbu:g} um"
    if layout.top.name != initial.top.name:
        return False, f"expected the top cell {initial.top.name}, found {layout.top.name}"
    return True, "database unit and top cell are as given"


def _raw_shapes(layout: DRCLayout) -> int:
    indices = list(layout.layout.layer_indexes())
    return sum(cell.shapes(i).size() for cell in layout.layout.each_cell() for i in indices)


# -- what has to stay as it is -------------------------------------------------------------------------------------


def _cells(changes: LayoutChanges) -> CheckResult:
    """Cells and instances: displaced ones are kept, turned, lost and added ones are not."""
    faults = [f"cell {name} was removed" for name in changes.cells_lost]
    faults += [f"cell {name} was added" for name in changes.cells_added]
    moved_from, moved_to = (Counter(side) for side in zip(*changes.moves)) if changes.moves else (Counter(), Counter())
    lost = list((Counter(changes.instances_lost) - moved_from).elements())
    added = list((Counter(changes.instances_added) - moved_to).elements())
    for inst in lost:
        turned = any((o.parent, o.child) == (inst.parent, inst.child) for o in added)
        what = "turned or resized" if turned else "removed"
        faults.append(f"an instance of {inst.child} in {inst.parent} was {what}")
    if not lost:
        faults += [f"an instance of {inst.child} was added to {inst.parent}" for inst in added]
    return _result("strict_cells", not faults, _first(faults, "all cells and instances are kept"))


def _labels(changes: LayoutChanges) -> CheckResult:
    faults = []
    for cell, layer, text, added in changes.texts:
        verb = "was added to" if added else "is missing from"
        faults.append(f"label {text} {verb} layer {layer[0]}/{layer[1]} of cell {cell}")
    return _result("strict_labels", not faults, _first(faults, "all labels are kept"))


def _fixed_layers(changes: LayoutChanges, table: RuleTable, dbu: float) -> CheckResult:
    editable = {(d.layer, d.datatype) for d in table.layers.values()}
    faults, where = _changed_on(changes, lambda layer: layer not in editable, dbu)
    texts = [f"fixed layer {layer[0]}/{layer[1]} of cell {cell} was changed" for cell, layer in faults]
    return _result("strict_fixed_layers", not texts, _first(texts, "pins and other fixed layers are as given"), where)


def _markers(
    changes: LayoutChanges, table: RuleTable, exempting: Sequence[str], rules: Iterable[str], dbu: float
) -> CheckResult:
    about = {table.rules[r].primary_layer for r in rules}
    held = {(table.layers[n].layer, table.layers[n].datatype): n for n in exempting if n not in about}
    faults, where = _changed_on(changes, lambda layer: layer in held, dbu)
    texts = [f"{held[layer]}, which exempts from rules, was changed in cell {cell}" for cell, layer in faults]
    return _result("strict_markers", not texts, _first(texts, "no layer that exempts from rules was changed"), where)


def _changed_on(
    changes: LayoutChanges, concerned: Callable[[LayerKey], bool], dbu: float
) -> tuple[list[tuple[str, LayerKey]], BBox | None]:
    """Cells and layers whose own merged shapes changed, and the box of the first change in its cell's frame, um."""
    found: list[tuple[str, LayerKey]] = []
    where: BBox | None = None
    for cell, layer in sorted(changes.removed.keys() | changes.added.keys()):
        if not concerned(layer):
            continue
        key = (cell, layer)
        difference = changes.removed.get(key, kdb.Region()) ^ changes.added.get(key, kdb.Region())
        if not difference.is_empty():
            found.append(key)
            where = where or box_um(difference.bbox(), dbu)
    return found, where


def _rectilinear(changes: LayoutChanges, dbu: float) -> CheckResult:
    """The rules measure edges along x and y only: a slanted edge would slip through."""
    slanted = kdb.Region()
    for polygons in changes.added.values():
        slanted += polygons.non_rectilinear()
    ok = slanted.is_empty()
    text = "all new shapes are Manhattan" if ok else f"{slanted.count()} new shapes have slanted edges"
    return _result("strict_rectilinear", ok, text, None if ok else box_um(slanted.bbox(), dbu))


def _die(initial: DRCLayout, layout: DRCLayout) -> CheckResult:
    die, found = die_box(initial), layout.top.bbox()
    inside = found.empty() or found.inside(die)
    text = "all shapes lie inside the die" if inside else f"shapes reach outside the die {die}, to {found}"
    return _result("strict_die", inside, text, None if inside else box_um(found, initial.dbu))


def _elsewhere(
    initial: DRCLayout, layout: DRCLayout, table: RuleTable, changes: LayoutChanges, roi: RoiUm | None
) -> CheckResult:
    """A violation that was pushed out of the region of interest is not repaired."""
    name = "strict_elsewhere"
    if roi is None:
        return _result(name, True, "there is no region of interest: all violations count")
    box = roi_box(roi, initial.dbu)
    boxes = [
        (found.left, found.bottom, found.right, found.top)
        for site in changes.sites(initial.layout, layout.layout)
        for found in (*site.in_top(initial.layout, initial.top), *site.in_top(layout.layout, layout.top))
    ]
    counts, places = [], {}
    for source in (initial, layout):
        checker = IncrementalChecker(source, table, MarkerStore(table.rules, source.dbu))
        checker.recheck(boxes, table.layers)
        outside = [m for m in checker.markers if not inside(m.bbox, box)]
        counts.append(Counter(m.rule for m in outside))
        places = {m.rule: kdb.Box(*m.bbox) for m in outside}
    more = sorted((counts[1] - counts[0]).items())
    texts = [f"{n} new violation(s) of {rule} outside the region of interest" for rule, n in more]
    where = box_um(places[more[0][0]], initial.dbu) if more else None
    return _result(name, not more, _first(texts, "no new violations outside the region of interest"), where)


def _first(faults: Sequence[str], otherwise: str) -> str:
    if not faults:
        return otherwise
    return faults[0] + (f" (and {len(faults) - 1} more)" if len(faults) > 1 else "")


# -- how much may change -------------------------------------------------------------------------------------------


def _areas(
    initial: DRCLayout, layout: DRCLayout, table: RuleTable, limits: Limits, changes: LayoutChanges
) -> list[CheckResult]:
    sites = changes.sites(initial.layout, layout.layout)
    moved, items = _with_moves(initial, changes)
    unit = initial.dbu * initial.dbu
    worst: tuple[float, str, float, BBox] | None = None
    for name, share, place in _buried(initial, table, items):
        margin = share - limits.kept(name)
        if worst is None or margin < worst[0]:
            worst = (margin, name, share, place)
    edited = 0.0
    for site in sites:
        layers = _layers_at(site, changes, table)
        boxes = site.in_top(initial.layout, initial.top, MAX_SITES) or site.in_top(layout.layout, layout.top, MAX_SITES)
        for k, box in enumerate(boxes):
            for name in layers:
                before, after = (_flat(source, table, name, box) for source in (initial, layout))
                if k == 0:
                    edited += (before ^ after).area() * unit
                lost = _flat(moved, table, name, box) - after
                if lost.is_empty():
                    continue
                kept_share = limits.kept(name)
                each = kept_share >= MIN_AREA_KEPT or not _VIA.fullmatch(name)
                share = _share_kept(moved, layout, table, name, lost, kept_share, each)
                margin = share - kept_share
                if worst is None or margin < worst[0]:
                    worst = (margin, name, share, box_um(lost.bbox(), initial.dbu))
    kept = worst is None or worst[0] >= -1e-9
    text = "no layer lost area" if worst is None else f"{worst[2]:.1%} of a piece of {worst[1]} is left"
    required = None if worst is None else limits.kept(worst[1])
    text += "" if required is None else f", at least {required:.0%} has to be"
    measured = None if worst is None else worst[2]
    where = None if kept or worst is None else worst[3]
    area_kept = CheckResult(
        "strict_area_kept", "strict_area_kept", kept, required, measured, "", where, text, strict=True
    )
    limit = limits.max_edited_area
    within = limit is None or edited <= limit + 1e-9
    text = f"{edited:.5g} um2 were redrawn" + ("" if limit is None else f", at most {limit:.5g} um2 may be")
    edited_area = CheckResult(
        "strict_edited_area", "strict_edited_area", within, limit, edited, "um2", None, text, strict=True
    )
    return [area_kept, edited_area]


def _layers_at(site: Site, changes: LayoutChanges, table: RuleTable) -> list[str]:
    """Editable layers that may differ at a site: where an instance of its cell was moved, all."""
    moved = (*changes.instances_lost, *changes.instances_added)
    if any(inst.parent == site.cell for inst in moved):
        return list(table.layers)
    keys = changes.removed.keys() | changes.added.keys()
    return [name for name, d in table.layers.items() if (site.cell, (d.layer, d.datatype)) in keys]


def _flat(layout: DRCLayout, table: RuleTable, name: str, box: kdb.Box) -> kdb.Region:
    """A layer inside a box, flat and merged."""
    return (_touching(layout, table, name, box) & kdb.Region(box)).merged()


def _touching(layout: DRCLayout, table: RuleTable, name: str, box: kdb.Box) -> kdb.Region:
    entry = table.layers[name]
    index = layout.layer_index(entry.layer, entry.datatype)
    return kdb.Region() if index is None else kdb.Region(layout.top.begin_shapes_rec_touching(index, box))


def _share_kept(
    initial: DRCLayout,
    layout: DRCLayout,
    table: RuleTable,
    name: str,
    lost: kdb.Region,
    required: float,
    each_piece: bool,
) -> float:
    """Return what is left of the piece that lost most, as a share of its area; gains near by make up for losses.

    `each_piece` False: as a share of all area near by.
    """
    share = 1.0
    reach = round(MOVE_REACH_UM / initial.dbu)
    pieces = _touching(initial, table, name, lost.bbox()).merged().interacting(lost)
    # Pieces whose surroundings overlap share one account, or one shape's growth would pay for several losses.
    for area in pieces.extents(reach).merged().each():
        around = kdb.Region(area)
        before, after = (
            (_touching(source, table, name, area.bbox()) & around).merged() for source in (initial, layout)
        )
        if not each_piece:
            size = before.area()
            share = min(share, after.area() / size if size else 1.0)
            continue
        grown = (after - before).merged()
        free = float(grown.not_interacting(before).area())
        for piece in pieces.interacting(around).each():
            # What a large piece may lose is no credit for a small one, and what another piece gained pays for that one
            # alone: vias that were widened are no room for one that was taken out.
            size, left = piece.area(), (kdb.Region(piece) & after).area()
            others = before.not_interacting(kdb.Region(piece))
            own = float(grown.interacting(kdb.Region(piece)).not_interacting(others).area())
            need = max(0.0, required * size - left)
            paid = min(own, need)
            redrawn = min(free, need - paid)
            free -= redrawn
            share = min(share, (left + paid + redrawn) / size)
    return max(0.0, share)


@dataclass(frozen=True, slots=True)
class _Moved:
    """A displaced instance, or a displaced polygon of a layer, in its cell's frame."""

    cell: str
    before: Instance | kdb.Polygon
    after: Instance | kdb.Polygon
    layer: LayerKey | None = None

    def regions(self, layout: DRCLayout, table: RuleTable) -> Iterable[tuple[str, kdb.Region, kdb.Vector]]:
        """Yield layer, merged shapes before, and displacement, in the cell's frame."""
        if isinstance(self.before, kdb.Polygon):
            assert isinstance(self.after, kdb.Polygon)
            step = self.after.bbox().p1 - self.before.bbox().p1
            for name, entry in table.layers.items():
                if (entry.layer, entry.datatype) == self.layer:
                    yield name, kdb.Region(self.before), step
            return
        assert isinstance(self.after, Instance)
        step = kdb.Vector(self.after.x - self.before.x, self.after.y - self.before.y)
        child = layout.layout.cell(self.before.child)
        for inst in layout.layout.cell(self.cell).each_inst():
            if inst.cell_index == child.cell_index() and inst.trans.disp == kdb.Vector(self.before.x, self.before.y):
                for name, entry in table.layers.items():
                    index = layout.layer_index(entry.layer, entry.datatype)
                    if index is not None and not child.bbox(index).empty():
                        own, region = kdb.Region(child.begin_shapes_rec(index)), kdb.Region()
                        for trans in inst.cell_inst.each_cplx_trans():
                            region += own.transformed(trans)
                        yield name, region.merged(), step
                return


def _with_moves(initial: DRCLayout, changes: LayoutChanges) -> tuple[DRCLayout, list[_Moved]]:
    """Return the initial layout with all short moves of instances and shapes made, and what was moved."""
    reach = round(MOVE_REACH_UM / initial.dbu)
    shifts = {
        key: _shifts(changes.removed[key], added, reach)
        for key, added in changes.added.items()
        if key in changes.removed
    }
    if len(changes.moves) + sum(map(len, shifts.values())) > MAX_MOVED:
        return initial, []
    moved, steps = with_instances_moved(initial, changes, reach)
    items = [_Moved(a.parent, a, b) for a, b in steps]
    if moved is initial and any(shifts.values()):
        moved = initial.copy()
    for (cell, layer), pairs in shifts.items():
        shapes = moved.layout.cell(cell).shapes(moved.layout.layer(*layer))
        for old, new in pairs:
            items.append(_Moved(cell, old, new, layer))
            for shape in shapes.each_touching(kdb.Shapes.SRegions, old.bbox()):
                if shape.polygon == old:
                    shape.polygon = new
                    break
    return moved, items


def _buried(initial: DRCLayout, table: RuleTable, items: Sequence[_Moved]) -> Iterable[tuple[str, float, BBox]]:
    """Yield layer, share left and place of moved pieces that came to lie on other shapes of their layer.

    The merged region loses what they cover: moving one via onto another removes one.
    """
    if not items:
        return
    still = without_instances(initial, [i.before for i in items if isinstance(i.before, Instance)])
    for item in items:
        if item.layer is not None:
            for shape in still.layout.cell(item.cell).shapes(still.layout.layer(*item.layer)).each(kdb.Shapes.SRegions):
                if shape.polygon == item.before:
                    shape.delete()
                    break
    flat: list[list[tuple[str, kdb.Region, kdb.Region]]] = []
    for item in items:
        places = placements(initial.layout, initial.top, item.cell)[:MAX_SITES]
        rows = []
        for name, region, step in item.regions(initial, table):
            for trans in places:
                rows.append((name, region.transformed(trans), region.moved(step).transformed(trans)))
        flat.append(rows)
    for k, rows in enumerate(flat):
        for name, before, after in rows:
            rest = _touching(still, table, name, after.bbox())
            for row in (row for i, found in enumerate(flat) if i != k for row in found if row[0] == name):
                rest += row[2]
            if (after & rest).is_empty():
                continue
            around = _touching(initial, table, name, before.bbox()).merged()
            for piece, there in zip(before.each(), after.each()):
                own = around.interacting(kdb.Region(piece))
                covered = (kdb.Region(there) & (rest - own)).area()
                if covered:
                    yield name, max(0.0, 1 - covered / own.area()), box_um(there.bbox(), initial.dbu)


def _shifts(removed: kdb.Region, added: kdb.Region, reach: int) -> list[tuple[kdb.Polygon, kdb.Polygon]]:
    """Pair removed with added polygons of the same shape that lie within reach, the nearest first."""
    places: dict[str, list[kdb.Polygon]] = {}
    for polygon in added.each():
        places.setdefault(_form(polygon), []).append(polygon.dup())
    pairs = []
    for polygon in removed.each():
        old = polygon.bbox().p1
        near = [(p.bbox().p1.distance(old), p) for p in places.get(_form(polygon), [])]
        if near:
            distance, new = min(near, key=lambda entry: entry[0])
            if distance <= reach:
                places[_form(polygon)].remove(new)
                pairs.append((polygon.dup(), new))
    return pairs


def _form(polygon: kdb.Polygon) -> str:
    corner = polygon.bbox().p1
    return str(polygon.moved(-corner.x, -corner.y))


# -- the circuit ---------------------------------------------------------------------------------------------------


def _exact_sizes(golden: Reference, table: RuleTable, rules: Iterable[str] | None) -> bool:
    mos = golden.stack.mos
    if mos is None or rules is None:
        return False
    return {table.rules[r].primary_layer for r in rules}.isdisjoint((mos.gate, mos.active, mos.fin))


def _nets(golden: Reference, layout: DRCLayout, exact_sizes: bool) -> list[CheckResult]:
    try:
        findings = golden.audit(layout, exact_sizes=exact_sizes)
    except TaskError as e:  # the golden layout belongs to another technology or design: the task is at fault
        raise TaskError(f"golden layout: {e}") from e
    results = []
    for name, kinds in _NETS:
        found = [f for f in findings if f.kind in kinds]
        passed = not found
        message = _first([f.message for f in found], "as in the original")
        where = next((f.where for f in found if f.where), None)
        results.append(CheckResult(name, name, passed, 0.0, float(len(found)), "count", where, message, strict=True))
    return results
