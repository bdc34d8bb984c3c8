"""Injected violations with known repairs (PostEDA-Bench, Section 3.1.2).

A legal layout is changed in one place so that a wanted rule, and only that, is violated. The inverse of the change is a
repair. `inject_violation` leaves the violation in its context (DRC-Essential L2), `isolate` cuts it out of the layout
with the shapes that it needs (L1), and `inject_cluster` puts several next to each other (L3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import klayout.db as kdb
import numpy as np

from edagym.envs.drc.edits import LayoutEditor
from edagym.envs.drc.mutations import STEPS_NM, bumped, insert, moved_edge, to_polygon, vertices
from edagym.envs.drc.probe import Change, Probe, markers_of, per_rule, rules_on, subtable
from edagym.errors import TaskError
from edagym.spaces.drc_edits import (
    ORIENTATIONS,
    ChangeShape,
    DRCEdit,
    MoveCell,
    Points,
    Replace,
    ShapeRef,
    drc_edit_to_json,
)
from edagym.task_assets.drc.blocks import Block
from edagym.task_assets.drc.process import ALL_METALS, LAYERS, NM
from edagym.verifiers.drc import DRCLayout, full_check
from edagym.verifiers.drc.rules import RuleTable, load_table

FAMILIES: dict[str, tuple[str, ...]] = {
    "width": (".W.",),
    "spacing": (".S.",),
    "enclosure": (".EN.",),
    "extension": (".EX.", ".OV."),
    "area": (".A.", ".L."),
    "shape": (".AUX.",),
}
"""Rule families and the part of a rule id that gives them away."""

OPERATIONS: dict[str, dict[str, float]] = {
    "width": {"edge": 0.3, "extent": 0.4, "bump": 0.3},
    "spacing": {"edge": 0.2, "approach": 0.4, "bump": 0.2, "shift": 0.1, "place": 0.1},
    "enclosure": {"edge": 0.4, "extent": 0.1, "shift": 0.3, "place": 0.2},
    "extension": {"edge": 0.6, "extent": 0.1, "shift": 0.2, "bump": 0.1},
    "area": {"edge": 0.2, "extent": 0.7, "bump": 0.1},
    "shape": {"edge": 0.4, "bump": 0.3, "shift": 0.2, "place": 0.1},
}
"""How often each kind of change is proposed for a family: move one edge by a small step (edge), so that the shape gets
a small extent (extent) or so that it comes close to the next shape (approach); add or remove a piece at an edge (bump),
move the whole shape (shift) or a placed via (place)."""

SIGHT_NM = 400
"""How far away the next shape may be that a shape approaches."""

CLUSTER_RADIUS_NM = 350

LEEWAY_NM = 200
"""How far a change may reach out of the layout."""

MAX_COMPANIONS = 6
"""Rules that a change may violate before `isolate` takes away the shapes that the others need."""

ISOLATION_TRIES = 8

MIN_KEPT = 0.9
"""Share of a changed shape that its repair has to leave in place: strict success asks for as much by default."""

MIN_CUT_KEPT = 0.6
"""The same for cuts about which a rule is violated."""

LAST_RESORT_KEPT = 0.4
"""What is accepted in the second half of the search where nothing better was found: wires that came too close as a
whole, or that are too wide. Tasks made of these need limits of their own (`InjectionRecord.kept`)."""


@dataclass(frozen=True, slots=True)
class InjectionRecord:
    """What was done to a legal layout.

    Attributes:
        rules: Rules aimed at, one per injection.
        counts: Violations per rule of the changed layout, as the sign-off tool counts them.
        edits: The changes, in order.
        fix: Edits that restore the legal layout, in order.
        bbox: Extent of the changes, database units of the top cell.
        level: L1, L2 or L3.
        kept: Smallest share of a changed shape's area that the repair leaves in place, by layer; for a task's limits.
    """

    rules: tuple[str, ...]
    counts: Mapping[str, int]
    edits: tuple[DRCEdit, ...]
    fix: tuple[DRCEdit, ...]
    bbox: tuple[int, int, int, int]
    level: str
    kept: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return {
            "rules": list(self.rules),
            "counts": dict(self.counts),
            "edits": [drc_edit_to_json(edit) for edit in self.edits],
            "fix": [drc_edit_to_json(edit) for edit in self.fix],
            "bbox": list(self.bbox),
            "level": self.level,
            "kept": dict(self.kept),
        }


def family(rule: str) -> str:
    """Return the family of a rule, by its id."""
    for name, parts in FAMILIES.items():
        if any(part in rule for part in parts):
            return name
    return "shape"


# -- candidates ----------------------------------------------------------------------------------------------------


Place = tuple[str, str, int, int]
"""Name of a placed cell, its orientation and its displacement: one instance in the top cell."""


def _place(instance: kdb.Instance) -> Place:
    trans = instance.trans
    return instance.cell.name, ORIENTATIONS[trans.rot], trans.disp.x, trans.disp.y


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed change, in the cell that it is made in and as seen from the top cell.

    Attributes:
        instance: The placement whose master is changed; None where the top cell itself is.
        edit: The change; its cell is the shared master, not yet a private copy.
        inverse: What takes it back.
        changes: The same in the top cell's frame.
    """

    instance: Place | None
    edit: DRCEdit
    inverse: DRCEdit
    changes: tuple[Change, ...]


@dataclass(slots=True)
class _Site:
    """A shape that may be changed."""

    layer: str
    points: Points
    instance: kdb.Instance | None


@dataclass(slots=True)
class Candidates:
    """Draws random changes of a layout of one hierarchy level.

    Args:
        layout: The layout.
        rng: Source of the draws.
        within: Only shapes that touch this box (database units) are changed; None: all.
    """

    layout: kdb.Layout
    rng: np.random.Generator
    within: kdb.Box | None = None
    _sites: dict[str, list[_Site]] = field(default_factory=dict)
    _views: dict[str, np.ndarray] = field(default_factory=dict)

    def draw(self, layers: Sequence[str], operations: Mapping[str, float]) -> Candidate | None:
        """Draw one change on one of `layers`, or None where the draw came to nothing."""
        usable = [layer for layer in layers if self.sites(layer)]
        if not usable:
            return None
        kinds = list(operations)
        weights = np.array([operations[kind] for kind in kinds])
        kind = kinds[int(self.rng.choice(len(kinds), p=weights / weights.sum()))]
        layer = usable[int(self.rng.integers(len(usable)))]
        sites = self.sites(layer)
        site = sites[int(self.rng.integers(len(sites)))]
        if kind == "place":
            return self._move_placement(site)
        if kind == "bump" and layer.startswith("V"):
            kind = "edge"  # cuts stay rectangles
        trans = kdb.Trans() if site.instance is None else site.instance.trans
        flat = vertices(to_polygon(site.points).transformed(trans))
        if kind == "approach":
            other = layer if self.rng.random() < 0.7 else usable[int(self.rng.integers(len(usable)))]
            after = self._approached(flat, other)
        else:
            after = self._changed(flat, kind)
        if after is None or after == flat:
            return None
        return self._on_shape(site, flat, after)

    def sites(self, layer: str) -> list[_Site]:
        """Return the shapes of a layer that may be changed."""
        if layer not in self._sites:
            self._sites[layer] = list(self._collect(layer))
        return self._sites[layer]

    def _collect(self, layer: str) -> Iterator[_Site]:
        top = self.layout.top_cell()
        index = self.layout.find_layer(*LAYERS[layer]) if layer in LAYERS else None
        if index is None:
            return
        for shape in top.shapes(index).each():
            if self._touches(shape.bbox()):
                yield _Site(layer, vertices(shape), None)
        for instance in top.each_inst():
            if self._touches(instance.bbox(index)):
                for shape in instance.cell.shapes(index).each():
                    if self._touches(shape.bbox().transformed(instance.trans)):
                        yield _Site(layer, vertices(shape), instance)

    def _touches(self, box: kdb.Box) -> bool:
        return not box.empty() and (self.within is None or self.within.touches(box))

    def _nm(self, value: float) -> int:
        return round(value * 0.001 / self.layout.dbu)

    def _step(self) -> int:
        step = self._nm(STEPS_NM[int(self.rng.integers(len(STEPS_NM)))])
        return step if self.rng.random() < 0.5 else -step

    def _changed(self, points: Points, kind: str) -> Points | None:
        if kind == "edge":
            return moved_edge(points, int(self.rng.integers(len(points))), self._step())
        if kind == "extent":
            side = int(self.rng.integers(4))
            box = to_polygon(points).bbox()
            now = box.width() if side % 2 == 0 else box.height()
            return self._moved_side(points, side, self._nm(int(self.rng.integers(6, 64))) - now)
        if kind == "shift":
            dx, dy = (self._step(), 0) if self.rng.random() < 0.5 else (0, self._step())
            return tuple((x + dx, y + dy) for x, y in points)
        step, length = self._step(), self._nm(int(self.rng.integers(8, 80)))
        return bumped(points, self.rng, abs(step), length, outwards=step > 0)

    def _approached(self, points: Points, layer: str) -> Points | None:
        """Move the outermost edge of a random side towards the next shape of `layer`, to a small gap."""
        box, side = to_polygon(points).bbox(), int(self.rng.integers(4))
        view = self._boxes(layer)
        ahead, low, high = side % 2, 1 - side % 2, 3 - side % 2
        own = (box.left, box.bottom, box.right, box.top)
        reach, spread = self._nm(SIGHT_NM), self._nm(30)
        beside = (view[:, low] < own[high] + spread) & (view[:, high] > own[low] - spread)
        gaps = view[:, ahead] - own[ahead + 2] if side < 2 else own[ahead] - view[:, ahead + 2]
        gaps = gaps[beside & (gaps > 0) & (gaps < reach)]
        if not len(gaps):
            return None
        step = int(gaps.min()) - self._nm(int(self.rng.integers(1, 46)))
        return self._moved_side(points, side, step) if step > 0 else None

    def _boxes(self, layer: str) -> np.ndarray:
        """Bounding boxes of a layer's shapes in the top cell's frame, one row each."""
        if layer not in self._views:
            rows: list[tuple[int, int, int, int]] = []
            for site in self.sites(layer):
                box = to_polygon(site.points).bbox()
                if site.instance is not None:
                    box = box.transformed(site.instance.trans)
                rows.append((box.left, box.bottom, box.right, box.top))
            self._views[layer] = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return self._views[layer]

    @staticmethod
    def _moved_side(points: Points, side: int, outwards: int) -> Points | None:
        """Move the outermost edge on a side (0 right, 1 top, 2 left, 3 bottom) outwards."""
        axis = side % 2
        extreme = (max if side < 2 else min)(point[axis] for point in points)
        for index, point in enumerate(points):
            follower = points[(index + 1) % len(points)]
            if point[axis] == follower[axis] == extreme:
                return moved_edge(points, index, outwards if side < 2 else -outwards)
        return None

    @staticmethod
    def _on_shape(site: _Site, before: Points, after: Points) -> Candidate:
        changes = (Change(site.layer, before, after),)
        if site.instance is None:
            return Candidate(None, *_swap(site.layer, before, after, ""), changes)
        inside = vertices(to_polygon(after).transformed(site.instance.trans.inverted()))
        both = _swap(site.layer, site.points, inside, site.instance.cell.name)
        return Candidate(_place(site.instance), *both, changes)

    def _move_placement(self, site: _Site) -> Candidate | None:
        instance = site.instance
        if instance is None or not instance.cell.name.startswith(("VIA_", "CUT_")):
            return None
        dx, dy = (self._step(), 0) if self.rng.random() < 0.5 else (0, self._step())
        name, orientation, x, y = _place(instance)
        edit = MoveCell(name, (x, y), (dx, dy), orientation)
        inverse = MoveCell(name, (x + dx, y + dy), (-dx, -dy), orientation)
        changes: list[Change] = []
        moved = kdb.Trans(dx, dy) * instance.trans
        for layer, key in LAYERS.items():
            index = self.layout.find_layer(*key)
            if index is None:
                continue
            for shape in instance.cell.shapes(index).each():
                polygon = to_polygon(vertices(shape))
                before, after = (vertices(polygon.transformed(trans)) for trans in (instance.trans, moved))
                changes.append(Change(layer, before, after))
        return Candidate(None, edit, inverse, tuple(changes))


def kept_shares(changes: Iterable[Change]) -> dict[str, float]:
    """Return the share of each changed shape's area that stays when the change is undone; the smallest by layer."""
    shares: dict[str, float] = {}
    for change in changes:
        if change.before is not None and change.after is not None:
            after = kdb.Region(to_polygon(change.after))
            share = (after & kdb.Region(to_polygon(change.before))).area() / after.area()
            shares[change.layer] = min(share, shares.get(change.layer, 1.0))
    return shares


def keeps_enough(changes: Iterable[Change], rule: str, min_kept: float) -> bool:
    """Say whether the repair of a violation of `rule` leaves enough in place."""
    for layer, share in kept_shares(changes).items():
        cut = layer.startswith("V") and rule.split(".")[0] == layer
        if share < (min(min_kept, MIN_CUT_KEPT) if cut else min_kept):
            return False
    return True


def _swap(layer: str, before: Points, after: Points, cell: str) -> tuple[DRCEdit, DRCEdit]:
    """The edit that replaces one outline by another, and its inverse."""
    return (
        ChangeShape(layer, ShapeRef(points=before), Replace(after), cell),
        ChangeShape(layer, ShapeRef(points=after), Replace(before), cell),
    )


def make_change(layout: kdb.Layout, table: RuleTable, candidate: Candidate) -> tuple[DRCEdit, DRCEdit]:
    """Make a candidate's change in `layout`, in a private copy of the master where it has several placements."""
    edit, inverse = candidate.edit, candidate.inverse
    if candidate.instance is not None:
        assert isinstance(edit, ChangeShape)
        assert isinstance(inverse, ChangeShape)
        instance = next(i for i in layout.top_cell().each_inst() if _place(i) == candidate.instance)
        if sum(1 for other in layout.top_cell().each_inst() if other.cell_index == instance.cell_index) > 1:
            copy = instance.cell.dup()
            copy.name = _free_name(layout, candidate.instance[0])
            instance.cell_index = copy.cell_index()
            edit, inverse = replace(edit, cell=copy.name), replace(inverse, cell=copy.name)
    die = layout.top_cell().bbox().enlarged(LEEWAY_NM * NM, LEEWAY_NM * NM)
    LayoutEditor(DRCLayout(layout), table, die).apply(edit)
    return edit, inverse


def _free_name(layout: kdb.Layout, master: str) -> str:
    number = 1
    while layout.cell(f"{master}_v{number}") is not None:
        number += 1
    return f"{master}_v{number}"


# -- injection -----------------------------------------------------------------------------------------------------


def inject_violation(
    rng: np.random.Generator,
    base: Block | kdb.Layout,
    target: str,
    *,
    tries: int = 3000,
    min_kept: float = MIN_KEPT,
    table: RuleTable | None = None,
) -> tuple[kdb.Layout, InjectionRecord]:
    """Violate one rule in a legal layout, in one place and in no other way (DRC-Essential L2).

    Args:
        rng: Source of every choice.
        base: A legal layout; it is left as it is.
        target: A rule id, or a family and a layer such as ``width/M3``, whose rules count equally.
        tries: Largest number of changes to look at.
        min_kept: Share of the changed shape that the repair should leave in place; see `LAST_RESORT_KEPT`.
        table: The rules; None: the ASAP7 table.

    Returns:
        The changed layout and the record.

    Raises:
        TaskError: `target` names no rule, or no change was found.
    """
    table = table or load_table("asap7")
    wanted = targets(target, table)
    layout = base.layout() if isinstance(base, Block) else base.dup()
    candidate, rule = _search(rng, layout, wanted, table, tries, min_kept)
    made = make_change(layout, table, candidate)
    return layout, _record(layout, table, (rule,), (made,), candidate.changes, _extent(candidate.changes), "L2")


def targets(target: str, table: RuleTable) -> tuple[str, ...]:
    """Return the rule ids that a target names: itself, or those of ``family/layer``.

    Raises:
        TaskError: There is none.
    """
    if target in table.rules:
        return (target,)
    name, _, layer = target.partition("/")
    rules = tuple(
        rule
        for rule in table.rules
        if family(rule) == name and (not layer or rule.removeprefix("SRAM.").split(".")[0] == layer)
    )
    if not rules:
        raise TaskError("names no rule", field="target", value=target, allowed="a rule id or family/layer")
    return rules


def _search(
    rng: np.random.Generator,
    layout: kdb.Layout,
    wanted: Sequence[str],
    table: RuleTable,
    tries: int,
    min_kept: float,
    most: int = 1,
) -> tuple[Candidate, str]:
    """Draw changes until one violates a wanted rule, and not more than `most` rules in all."""
    probe = Probe(layout, table)
    candidates = Candidates(layout, rng)
    layers = sorted({layer for rule in wanted for layer in table.rules[rule].layers})
    operations = OPERATIONS[family(wanted[0])]
    for attempt in range(tries):
        if attempt == tries // 2:
            min_kept = min(min_kept, LAST_RESORT_KEPT)
        candidate = candidates.draw(layers, operations)
        if candidate is None or not any(keeps_enough(candidate.changes, rule, min_kept) for rule in wanted):
            continue
        effect = probe.effect(candidate.changes, wanted)
        if effect is None:
            continue
        added, removed = effect
        hit = [rule for rule in wanted if rule in added and keeps_enough(candidate.changes, rule, min_kept)]
        if hit and not removed and len(added) <= most:
            return candidate, hit[0]
    raise TaskError("no single change violates this rule alone here", field="target", value=list(wanted)[:5])


def _extent(changes: Sequence[Change]) -> kdb.Box:
    box = kdb.Box()
    for change in changes:
        box += change.bbox
    return box


def _record(
    layout: kdb.Layout,
    table: RuleTable,
    rules: tuple[str, ...],
    made: Sequence[tuple[DRCEdit, DRCEdit]],
    changes: Sequence[Change],
    box: kdb.Box,
    level: str,
) -> InjectionRecord:
    counts = dict(full_check(DRCLayout(layout), table).counts)
    edits = tuple(edit for edit, _ in made)
    fix = tuple(inverse for _, inverse in reversed(made))
    return InjectionRecord(
        rules, counts, edits, fix, (box.left, box.bottom, box.right, box.top), level, kept_shares(changes)
    )


def inject_cluster(
    rng: np.random.Generator,
    base: Block | kdb.Layout,
    *,
    n: int,
    families: Sequence[str] = ("width", "spacing", "area", "enclosure", "shape"),
    layers: Sequence[str] = ("M1", "V1", "M2", "V2", "M3", "V3", "M4", "V4", "M5"),
    radius_nm: int = CLUSTER_RADIUS_NM,
    tries: int = 4000,
    min_kept: float = MIN_KEPT,
    table: RuleTable | None = None,
) -> tuple[kdb.Layout, InjectionRecord]:
    """Put `n` violations next to each other (DRC-Essential L3).

    Each change violates one rule when made alone. All change different shapes within `radius_nm` of one point, so that
    repairs are independent of their order but see each other's markers.

    Args:
        rng: Source of every choice.
        base: A legal layout; it is left as it is.
        n: Number of injections; the paper has 5 to 15.
        families: Rule families to draw from.
        layers: Layers whose shapes are changed.
        radius_nm: Half the edge of the square that all changed shapes touch.
        tries: Largest number of changes to look at.
        min_kept: Share of the changed shape that the repair should leave in place; see `LAST_RESORT_KEPT`.
        table: The rules; None: the ASAP7 table.

    Returns:
        The changed layout and the record.

    Raises:
        TaskError: Fewer than `n` were found.
    """
    table = table or load_table("asap7")
    layout = base.layout() if isinstance(base, Block) else base.dup()
    probe = Probe(layout.dup(), table)
    centre = _busy_point(rng, layout, layers)
    reach = round(radius_nm * 0.001 / layout.dbu)
    candidates = Candidates(probe.layout, rng, kdb.Box(centre, centre).enlarged(reach, reach))
    chosen: list[tuple[Candidate, str]] = []
    taken: set[tuple[str, Points]] = set()
    seen: Counter[str] = Counter()
    for _ in range(tries):
        if len(chosen) == n:
            break
        name = families[int(rng.integers(len(families)))]
        candidate = candidates.draw(layers, OPERATIONS[name])
        if candidate is None or any((c.layer, c.before) in taken for c in candidate.changes):
            continue
        effect = probe.effect(candidate.changes)
        assert effect is not None
        added, removed = effect
        if len(added) != 1 or removed:
            continue
        (rule,) = added
        if family(rule) != name or seen[rule] > n // 3 or same_master(chosen, candidate):
            continue
        if not keeps_enough(candidate.changes, rule, min_kept):
            continue
        chosen.append((candidate, rule))
        seen[rule] += 1
        taken |= {(c.layer, c.before) for c in candidate.changes if c.before is not None}
    if len(chosen) < n:
        raise TaskError("too few violations fit in one place", field="n", value=n, allowed=f"up to {len(chosen)} here")
    changes = [change for candidate, _ in chosen for change in candidate.changes]
    made = [make_change(layout, table, candidate) for candidate, _ in chosen]
    return layout, _record(layout, table, tuple(rule for _, rule in chosen), made, changes, _extent(changes), "L3")


def same_master(chosen: Sequence[tuple[Candidate, str]], candidate: Candidate) -> bool:
    """Say whether a placement is changed already; a second change would need the first one's copy."""
    place = _placement_of(candidate)
    return place is not None and any(_placement_of(other) == place for other, _ in chosen)


def _placement_of(candidate: Candidate) -> Place | None:
    edit = candidate.edit
    if isinstance(edit, MoveCell):
        return (edit.cell, edit.orientation, *edit.at)
    return candidate.instance


def _busy_point(rng: np.random.Generator, layout: kdb.Layout, layers: Sequence[str]) -> kdb.Point:
    """A random via's or short wire's middle: somewhere with several layers around."""
    boxes: list[kdb.Box] = []
    for layer in layers:
        index = layout.find_layer(*LAYERS[layer])
        if index is not None and layer.startswith("V"):
            boxes += [polygon.bbox() for polygon in kdb.Region(layout.top_cell().begin_shapes_rec(index)).each()]
    if not boxes:
        return layout.top_cell().bbox().center()
    boxes.sort(key=lambda box: (box.left, box.bottom, box.right, box.top))
    return boxes[int(rng.integers(len(boxes)))].center()


# -- isolation -----------------------------------------------------------------------------------------------------


def isolate(
    rng: np.random.Generator,
    base: Block | kdb.Layout,
    target: str,
    *,
    tries: int = 3000,
    min_kept: float = MIN_KEPT,
    table: RuleTable | None = None,
    around_nm: int = 250,
) -> tuple[kdb.Layout, InjectionRecord]:
    """Violate one rule and keep only the shapes that the case needs (DRC-Essential L1).

    A change that violates the rule, possibly among others, is looked for in a legal layout. Of the shapes around it
    every one is dropped without which the changed case still violates the rule and nothing more is wrong than before;
    what is left is accepted when it violates exactly that rule and is legal once the change is undone.

    Args:
        rng: Source of every choice.
        base: A legal layout; it is left as it is.
        target: A rule id, or a family and a layer.
        tries: Largest number of changes to look at.
        min_kept: Share of the changed shape that the repair should leave in place; see `LAST_RESORT_KEPT`.
        table: The rules; None: the ASAP7 table.
        around_nm: Extent of the surroundings to start from.

    Returns:
        A flat layout near the origin, and the record.

    Raises:
        TaskError: `target` names no rule, or no case was found.
    """
    table = table or load_table("asap7")
    wanted = targets(target, table)
    layout = _flat(base.layout() if isinstance(base, Block) else base)
    for attempt in range(ISOLATION_TRIES):
        most = 1 + MAX_COMPANIONS * attempt // (ISOLATION_TRIES - 1)
        candidate, rule = _search(rng, layout, wanted, table, tries, min_kept, most)
        case = _Case(layout, table, candidate, rule, around_nm)
        case.shrink()
        if case.extra == 0:
            return case.draw()
    raise TaskError("the rule could not be isolated", field="target", value=target)


def _flat(base: kdb.Layout) -> kdb.Layout:
    """A flat copy in which the metals are merged, so that pads of vias and wires are one shape."""
    layout = base.dup()
    top = layout.top_cell()
    top.flatten(True)
    for metal in ALL_METALS:
        shapes = top.shapes(layout.layer(*LAYERS[metal]))
        merged = kdb.Region(shapes).merged()
        shapes.clear()
        for polygon in merged.each():
            shapes.insert(polygon.bbox() if polygon.is_box() else polygon)
    return layout


class _Case:
    """A change with its surroundings, flat, that can be thinned out."""

    def __init__(self, layout: kdb.Layout, table: RuleTable, candidate: Candidate, rule: str, around_nm: int) -> None:
        self.table = table
        self.probe = Probe(layout, table)
        self.rule = rule
        self.changes = candidate.changes
        grow = round(around_nm * 0.001 / layout.dbu)
        self.window = _extent(candidate.changes).enlarged(grow, grow)
        self.context: list[tuple[str, Points]] = []
        gone = Counter((change.layer, change.before) for change in self.changes)
        for name in table.layers:
            for polygon in self.probe.raw(name, self.window):
                key = (name, vertices(polygon))
                if gone[key]:
                    gone[key] -= 1
                else:
                    self.context.append(key)
        self.extra = self._extra(self.context)

    def _extra(self, context: Sequence[tuple[str, Points]]) -> int | None:
        """Number of unwanted rules violated with and without the change; None where the wanted one is not."""
        violated: list[Counter[str]] = []
        for version in ("after", "before"):
            shapes: dict[str, list[kdb.Polygon]] = {}
            changed = [(c.layer, getattr(c, version)) for c in self.changes]
            for layer, points in [*context, *changed]:
                if points is not None:
                    shapes.setdefault(layer, []).append(to_polygon(points))
            rules = subtable(self.table, rules_on(self.table, frozenset(shapes)))
            violated.append(per_rule(markers_of(self.table, rules, self.probe.layout.dbu, shapes)))
            if self.rule not in violated[0]:
                return None
        after, before = violated
        return None if self.rule in before else len(after) - 1 + len(before)

    def shrink(self) -> None:
        """Drop shapes: whole layers first, then ever smaller groups; then cut the long ones to the window."""
        for keep in (self.table.rules[self.rule].layers, _neighbours(self.table.rules[self.rule].layers)):
            if self._try([entry for entry in self.context if entry[0] in keep]):
                break
        before = -1
        while before != len(self.context):
            before = len(self.context)
            # Vias first: a via without its metal is a violation, metal without vias is none.
            for layer in sorted({layer for layer, _ in self.context}, key=lambda name: (name[0] != "V", name)):
                self._try([entry for entry in self.context if entry[0] != layer])
        self._drop_groups(max(1, len(self.context) // 2))
        for index, (layer, points) in enumerate(self.context):
            cut = kdb.Region(to_polygon(points)) & kdb.Region(self.window)
            if cut.count() == 1 and vertices(cut[0]) != points:
                self._try([*self.context[:index], (layer, vertices(cut[0])), *self.context[index + 1 :]])
        before = -1
        while before != len(self.context):
            before = len(self.context)
            self._drop_groups(1)

    def _drop_groups(self, size: int) -> None:
        """Try to drop neighbouring groups of `size` shapes, then of half as many, down to single ones."""
        while size:
            start = 0
            while start < len(self.context):
                if not self._try(self.context[:start] + self.context[start + size :]):
                    start += size
            size //= 2

    def _try(self, context: list[tuple[str, Points]]) -> bool:
        extra = self._extra(context)
        if extra is None or (self.extra is not None and extra > self.extra):
            return False
        self.context, self.extra = context, extra
        return True

    def draw(self) -> tuple[kdb.Layout, InjectionRecord]:
        """Return the case as a layout whose lower left corner is at the origin, and its record."""
        box = _extent(self.changes)
        for _, points in self.context:
            box += to_polygon(points).bbox()
        move = kdb.Trans(-box.left, -box.bottom)
        layout = kdb.Layout()
        layout.dbu = self.probe.layout.dbu
        top = layout.create_cell("atomic")
        for layer, points in self.context:
            insert(top.shapes(layout.layer(*LAYERS[layer])), vertices(to_polygon(points).transformed(move)))
        made: list[tuple[DRCEdit, DRCEdit]] = []
        for change in self.changes:
            assert change.before is not None
            assert change.after is not None
            before, after = (vertices(to_polygon(p).transformed(move)) for p in (change.before, change.after))
            made.append(_swap(change.layer, before, after, ""))
            insert(top.shapes(layout.layer(*LAYERS[change.layer])), after)
        extent = _extent(self.changes).transformed(move)
        return layout, _record(layout, self.table, (self.rule,), made, self.changes, extent, "L1")


def _neighbours(layers: Iterable[str]) -> frozenset[str]:
    """Layers together with the metals and vias directly above and below."""
    stack = ("V0", "M1", *(name for level in range(1, 9) for name in (f"V{level}", f"M{level + 1}")), "V9", "PAD")
    result = set(layers)
    for layer in layers:
        if layer in stack:
            at = stack.index(layer)
            result |= set(stack[max(0, at - 1) : at + 2])
    return frozenset(result)
