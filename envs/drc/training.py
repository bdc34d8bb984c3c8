"""Training tasks in a fraction of a second: candidates are judged with the incremental engine, not by full checks.

L2 and L3 put violations into a small generated block, L1 into two or three wires with their vias. Every violation is
made by one change of a legal layout, whose inverse is the reference repair; the finished task is verified like any
other. Blocks are smaller than those of the fixed suite, and no L1 layout of the suite is drawn again, so that no task
of the suite is met in training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import klayout.db as kdb
import numpy as np

from edagym.envs.drc.inject import OPERATIONS, Candidate, Candidates, family, keeps_enough, make_change, same_master
from edagym.envs.drc.mutations import to_polygon
from edagym.envs.drc.probe import Change
from edagym.errors import TaskError
from edagym.spaces.drc_edits import ChangeShape, DRCEdit, Points
from edagym.task_assets.drc.blocks import Block, generate_block
from edagym.task_assets.drc.process import DBU_UM, LAYERS, METALS, NM, VIAS, WIRES
from edagym.task_assets.drc.router import Via
from edagym.verifiers.drc import DRCLayout, MarkerStore, RuleTable, full_check
from edagym.verifiers.drc.incremental import IncrementalChecker

MAX_ROWS, MAX_WIDTH_CPP = 2, 20
"""Largest training block; every block of the suite is wider."""

RADIUS_NM = 700
"""Violations of one task lie within this distance of one point, along each axis."""

MIN_KEPT = 0.9
LAYERS_CHANGED = ("M1", "V1", "M2", "V2", "M3", "V3", "M4", "V4", "M5")
FAMILIES = ("width", "spacing", "area", "enclosure", "shape")


class Scratch:
    """A flat copy of a legal layout on which changes are tried.

    Args:
        layout: The layout.
        table: The rules.

    Raises:
        TaskError: If the layout is not legal.
    """

    def __init__(self, layout: kdb.Layout, table: RuleTable) -> None:
        flat = layout.dup()
        flat.top_cell().flatten(True)
        self.layout = DRCLayout(flat)
        self.checker = IncrementalChecker(self.layout, table)
        if len(self.checker.markers):
            raise TaskError("the layout is not legal", field="base", value=self.checker.markers.counts())
        self._legal = self.checker.markers.copy()

    def effect(self, changes: Sequence[Change]) -> Counter[str]:
        """Return the violations per rule that changes cause, and take them back."""
        self.make(changes)
        counts = Counter(self.checker.markers.counts())
        self._swap([Change(c.layer, c.after, c.before) for c in changes])
        self.checker.markers = self._legal.copy()
        return counts

    def make(self, changes: Sequence[Change]) -> None:
        """Make changes and bring the markers up to date."""
        self._swap(changes)
        boxes = [c.bbox for c in changes]
        self.checker.recheck([(b.left, b.bottom, b.right, b.top) for b in boxes], {c.layer for c in changes})

    def _swap(self, changes: Sequence[Change]) -> None:
        for change in changes:
            shapes = self.layout.top.shapes(self.layout.layout.layer(*LAYERS[change.layer]))
            if change.before is not None:
                old = to_polygon(change.before)
                next(s for s in shapes.each_touching(old.bbox()) if s.polygon == old).delete()
            if change.after is not None:
                shapes.insert(to_polygon(change.after))


def draw_violations(
    rng: np.random.Generator,
    base: kdb.Layout,
    table: RuleTable,
    *,
    n: int,
    fewest: int,
    wanted: Sequence[str] = (),
    tries: int = 60,
) -> tuple[kdb.Layout, MarkerStore, tuple[DRCEdit, ...], tuple[str, ...]]:
    """Violate rules in a legal layout, each by one change that violates nothing else when made alone.

    Args:
        rng: Source of every choice.
        base: The layout; it is left as it is.
        table: The rules.
        n: Number of violations wanted.
        fewest: Number of violations at least.
        wanted: Rules that may be violated; empty: any of `FAMILIES` by changes on `LAYERS_CHANGED`.
        tries: Largest number of changes to look at.

    Returns:
        The changed layout, its markers, the edits that repair it, and the rules that were aimed at.

    Raises:
        TaskError: If too few were found, or the layout is not legal.
    """
    layout = base.dup()
    scratch = Scratch(layout, table)
    layers = sorted({name for rule in wanted for name in table.rules[rule].layers}) or list(LAYERS_CHANGED)
    box = None
    if n > 1:
        centre = layout.top_cell().bbox()
        x, y = int(rng.integers(centre.left, centre.right + 1)), int(rng.integers(centre.bottom, centre.top + 1))
        box = kdb.Box(x, y, x, y).enlarged(RADIUS_NM * NM, RADIUS_NM * NM)
    candidates = Candidates(layout.dup(), rng, box)
    chosen: list[tuple[Candidate, str]] = []
    taken: set[tuple[str, Points | None]] = set()
    for _ in range(tries):
        if len(chosen) == n:
            break
        name = family(wanted[0]) if wanted else FAMILIES[int(rng.integers(len(FAMILIES)))]
        candidate = candidates.draw(layers, OPERATIONS[name])
        if candidate is None or any((c.layer, c.before) in taken for c in candidate.changes):
            continue
        if same_master(chosen, candidate) or not _moderate(candidate):
            continue
        added = scratch.effect(candidate.changes)
        if len(added) != 1:
            continue
        (rule,) = added
        if (rule not in wanted if wanted else family(rule) != name) or not keeps_enough(
            candidate.changes, rule, MIN_KEPT
        ):
            continue
        chosen.append((candidate, rule))
        taken |= {(c.layer, c.before) for c in candidate.changes}
    if len(chosen) < fewest:
        raise TaskError("too few violations were found", field="n", value=n, allowed=f"up to {len(chosen)} here")
    made = []
    for candidate, _ in chosen:
        scratch.make(candidate.changes)
        made.append(make_change(layout, table, candidate))
    fix = tuple(inverse for _, inverse in reversed(made))
    return layout, scratch.checker.markers, fix, tuple(rule for _, rule in chosen)


def _moderate(candidate: Candidate) -> bool:
    """Whether undoing a change takes away so little that no bound mistakes it for a deletion."""
    for change in candidate.changes:
        if change.before is None or change.after is None:
            return False
        if to_polygon(change.after).area() > 1.12 * to_polygon(change.before).area():
            return False
    return True


def training_block(rng: np.random.Generator) -> Block:
    """Draw a block of a training task."""
    rows, width = int(rng.integers(1, MAX_ROWS + 1)), int(rng.integers(14, MAX_WIDTH_CPP + 1))
    return generate_block(rng, rows=rows, width_cpp=width, top_metal=("M4", "M5")[int(rng.integers(2))])


def is_drawable(table: RuleTable, rules: Sequence[str]) -> bool:
    """Whether `few_wires` draws what rules are about: wires, or vias between them."""
    return table.rules[rules[0]].primary_layer in {*WIRES, *VIAS}


def few_wires(rng: np.random.Generator, table: RuleTable, wanted: Sequence[str]) -> kdb.Layout:
    """Draw a few shapes, mostly legal: wires of one metal, a via to the next, and a wire there.

    Args:
        rng: Source of every choice.
        table: The rules.
        wanted: Rules that the task is about (`is_drawable`); they decide which metals are drawn.
    """
    primary = table.rules[wanted[0]].primary_layer
    level = METALS.index(VIAS[primary].lower if primary in VIAS else primary)
    lower = min(level, len(METALS) - 2)
    with_via = primary in VIAS or rng.random() < 0.4
    layout = kdb.Layout()
    layout.dbu = DBU_UM
    top = layout.create_cell("atomic")
    boxes: list[tuple[str, tuple[int, int, int, int]]] = []
    centre = 1000
    rule = WIRES[METALS[level]]
    n = int(rng.integers(1 if with_via else 2, 4))
    at = centre
    for k in range(n):
        low, high = int(rng.integers(60, 400)), int(rng.integers(60, 400))
        boxes.append((rule.name, _bar(rule.vertical, at, centre - low, centre + high, rule.width)))
        at += rule.width + rule.side + 2 * int(rng.integers(0, 12)) * (k == 0)
    if with_via:
        via = Via(_via_between(METALS[lower]), centre, centre)
        other = WIRES[METALS[lower + 1] if level == lower else METALS[lower]]
        boxes.append((via.layer, via.cut))
        low, high = int(rng.integers(60, 400)), int(rng.integers(60, 400))
        boxes.append((other.name, _bar(other.vertical, centre, centre - low, centre + high, other.width)))
    for name, (x1, y1, x2, y2) in boxes:
        top.shapes(layout.layer(*LAYERS[name])).insert(kdb.Box(x1 * NM, y1 * NM, x2 * NM, y2 * NM))
    box = top.bbox()
    top.transform(kdb.Trans(-box.left, -box.bottom))
    return layout


def _via_between(lower: str) -> str:
    return next(name for name, via in VIAS.items() if via.lower == lower)


def _bar(vertical: bool, at: int, low: int, high: int, width: int) -> tuple[int, int, int, int]:
    half = width // 2
    return (at - half, low, at + half, high) if vertical else (low, at - half, high, at + half)


def pruned(layout: kdb.Layout, table: RuleTable, fix: Sequence[DRCEdit]) -> tuple[kdb.Layout, MarkerStore]:
    """Return a flat layout without the shapes that its violation does not need, and its markers."""
    kept = layout
    counts = full_check(DRCLayout(kept), table).markers
    named = {(e.layer, str(to_polygon(e.shape.points or ()))) for e in fix if isinstance(e, ChangeShape)}
    for index in layout.layer_indexes():
        name = next(n for n, gds in LAYERS.items() if layout.find_layer(*gds) == index)
        for shape in list(layout.top_cell().shapes(index).each()):
            polygon = shape.polygon
            if (name, str(polygon)) in named:
                continue
            trial = kept.dup()
            shapes = trial.top_cell().shapes(index)
            next(s for s in shapes.each() if s.polygon == polygon).delete()
            found = full_check(DRCLayout(trial), table).markers
            if found == counts:
                kept, counts = trial, found
    return kept, counts


@cache
def suite_outlines() -> frozenset[str]:
    """Return what the suite's L1 layouts look like, wherever they lie."""
    from edagym.task_assets.drc.suite import load_task, task_ids

    return frozenset(outline(DRCLayout.from_bytes(load_task(i).gds).layout) for i in task_ids("DRC-Essential-L1"))


def outline(layout: kdb.Layout) -> str:
    """Return all shapes of a layout as text, flat, relative to its lower left corner."""
    top = layout.top_cell()
    box = top.bbox()
    move = kdb.Trans(-box.left, -box.bottom)
    parts = []
    for index in layout.layer_indexes():
        region = kdb.Region(top.begin_shapes_rec(index)).merged().transformed(move)
        if not region.is_empty():
            parts.append(f"{layout.get_info(index)} {sorted(map(str, region.each()))}")
    return "\n".join(sorted(parts))
