"""The full check: every rule on a whole layout, tile by tile, in one or several processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import klayout.db as kdb
from tqdm import tqdm

from edagym.verifiers.drc.evaluate import evaluate
from edagym.verifiers.drc.graph import Graph, compile_table
from edagym.verifiers.drc.layout import DRCLayout, flat_shapes
from edagym.verifiers.drc.markers import Box, Marker, MarkerStore, collection_markers
from edagym.verifiers.drc.pool import run_tasks
from edagym.verifiers.drc.presence import Presence, Slants, is_small, layer_extents
from edagym.verifiers.drc.report import CheckReport, RoiUm
from edagym.verifiers.drc.rules import RuleTable
from edagym.verifiers.drc.zone import LocalView, RulePlan, TooWide, box_of, grown, plan_rules

# Larger layouts are evaluated in tiles, smaller ones by groups of rules, tiny ones at once.
_TILED_FROM = 2_000_000
_GROUPED_FROM = 5_000
_SHAPES_PER_TILE = 100_000
_PAD_NM = 40
# How far beyond its tile a rule may look before it is evaluated on the whole layout instead.
_LIMIT_NM = 2000

Found = dict[str, dict[Marker, int]]


def full_check(
    layout: DRCLayout, table: RuleTable, *, roi: RoiUm | None = None, workers: int = 1, progress: bool = False
) -> CheckReport:
    """Check a whole layout against all rules.

    Args:
        layout: The layout.
        table: The rules.
        roi: Region of interest (x1, y1, x2, y2) in micrometres: only markers inside it are reported.
        workers: Number of processes; the result doesn't depend on it.
        progress: Show a progress bar.

    Returns:
        The report.

    Raises:
        TaskError: If the rules don't fit the layout's database unit.
        ToolError: If a worker process failed.
    """
    return CheckReport(layout, table, find_markers(layout, table, workers=workers, progress=progress), roi)


def find_markers(
    layout: DRCLayout,
    table: RuleTable,
    rules: Iterable[str] | None = None,
    *,
    workers: int = 1,
    progress: bool = False,
    tile: float | None = None,
) -> MarkerStore:
    """Return all flat markers of a layout.

    Args:
        layout: The layout.
        table: The rules.
        rules: Ids of the rules to check; default all.
        workers: Number of processes; the result doesn't depend on it.
        progress: Show a progress bar.
        tile: Edge of the tiles in micrometres; default: chosen by the number of shapes, no tiles for layouts of common
            size. The result doesn't depend on it.
    """
    wanted = list(table.rules) if rules is None else [r for r in table.rules if r in set(rules)]
    checker = Checker(layout, table)
    tasks = checker.tasks(wanted, tile)
    markers = MarkerStore(table.rules, layout.dbu)
    wide: set[str] = set()
    with tqdm(total=len(tasks), desc="DRC", unit="part", disable=not progress) as bar:
        for result in run_tasks(checker, tasks, workers if len(tasks) > 1 else 1):
            wide |= result.wide
            _collect(markers, result.found)
            bar.update()
        # Where one rule looked too far in one tile, its markers from all tiles are dropped: they may be cut.
        for rule in wide:
            for m in markers.of(rule):
                markers.remove(m)
        rest = [Task((rule,), None) for rule in wanted if rule in wide]
        bar.total += len(rest)
        bar.refresh()
        for result in run_tasks(checker, rest, workers if len(rest) > 1 else 1):
            _collect(markers, result.found)
            bar.update()
    markers.context = (layer_extents(layout, checker.graph), is_small(layout), checker.slants)
    return markers


def _collect(markers: MarkerStore, found: Found) -> None:
    """Add a part's markers; one that several tiles see is one."""
    for entries in found.values():
        for m, n in entries.items():
            markers.put(m, n)


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a full check: some rules in one tile, or on the whole layout."""

    rules: tuple[str, ...]
    tile: Box | None


@dataclass(frozen=True, slots=True)
class Result:
    """Markers per rule with multiplicities, and the rules that a tile can't decide."""

    found: Found
    wide: frozenset[str] = frozenset()


class Checker:
    """Evaluates parts of a full check. Pickles, to be sent to worker processes.

    Args:
        layout: The layout.
        table: The rules.
        presence: What acts on what in it, if that is known.
    """

    def __init__(self, layout: DRCLayout, table: RuleTable, presence: Presence | None = None) -> None:
        self.layout = layout
        self.table = table
        self.graph: Graph = compile_table(table, layout.dbu)
        self._plans = plan_rules(self.graph)
        if presence is None:
            presence = Presence(self.graph, layer_extents(layout, self.graph), is_small(layout))
        self._presence = presence
        self.slants = Slants()
        self._wide: set[str] = set()

    def __reduce__(self) -> tuple[Callable[..., Checker], tuple[DRCLayout, RuleTable]]:
        return (Checker, (self.layout, self.table))

    def tasks(self, rules: Sequence[str], tile: float | None) -> list[Task]:
        """Split a check into parts.

        Args:
            rules: Ids of the rules to check.
            tile: Edge of tiles in micrometres, or None to choose by the number of shapes.
        """
        shapes = self.layout.flat_shapes()
        if shapes == 0 or (tile is None and shapes < _GROUPED_FROM):
            return [Task(tuple(rules), None)]
        if tile is None and shapes < _TILED_FROM:
            return [Task(tuple(g), None) for g in self._by_layer(rules)]
        if tile is None:
            area = self.layout.top.bbox().area() * self.layout.dbu**2
            tile = math.sqrt(area * _SHAPES_PER_TILE / shapes)
        return [Task(tuple(rules), t) for t in self._tiles(max(1, round(tile / self.layout.dbu)))]

    def _by_layer(self, rules: Sequence[str]) -> list[list[str]]:
        """Group rules by the layer that carries their violations: these share most. The costliest come first."""
        grouped: dict[str, list[str]] = {}
        for rule in rules:
            grouped.setdefault(self.table.rules[rule].primary_layer, []).append(rule)
        names = self.table.layers
        index = {n: self.layout.layer_index(names[n].layer, names[n].datatype) for n in grouped}
        sizes = {n: 0 if i is None else flat_shapes(self.layout.layout, self.layout.top, [i]) for n, i in index.items()}
        return [grouped[n] for n in sorted(grouped, key=lambda n: -sizes[n] * len(grouped[n]))]

    def _tiles(self, edge: int) -> list[Box]:
        """Return tiles that cover the layout."""
        box = self.layout.top.bbox()
        x1, y1, x2, y2 = box_of(box)
        nx, ny = max(1, math.ceil((x2 - x1) / edge)), max(1, math.ceil((y2 - y1) / edge))
        xs = [x1 + (x2 - x1) * i // nx for i in range(nx + 1)]
        ys = [y1 + (y2 - y1) * i // ny for i in range(ny + 1)]
        # Markers may lie a little outside of all shapes.
        more = max(p.reach for p in self._plans.values())
        xs[0], xs[-1], ys[0], ys[-1] = x1 - more, x2 + more, y1 - more, y2 + more
        return [(xs[i], ys[j], xs[i + 1], ys[j + 1]) for j in range(ny) for i in range(nx)]

    def run(self, task: Task) -> Result:
        """Evaluate one part."""
        if task.tile is None:
            return Result(self._whole(task.rules))
        wide: set[str] = set()
        found: Found = {}
        rules = [r for r in task.rules if r not in self._wide and r in self._plans]
        limit = grown(task.tile, max(p.reach for p in self._plans.values()) + self._dbu(_LIMIT_NM))
        bounds = box_of(self.layout.top.bbox())
        for group in groups([self._plans[r] for r in rules]):
            view = LocalView(
                self.graph,
                group,
                self._shapes,
                task.tile,
                self._dbu(_PAD_NM),
                bounds,
                self._presence,
                lambda name: self.slants.has(self.layout, self.graph, name),
                limit=limit,
            )
            for plan in group:
                try:
                    markers = view.markers(plan, task.tile)
                except TooWide:
                    wide.add(plan.rule)
                    continue
                if markers:
                    found[plan.rule] = markers
        self._wide |= wide
        return Result(found, frozenset(wide))

    def _dbu(self, nm: float) -> int:
        return max(1, round(nm * 0.001 / self.layout.dbu))

    def _shapes(self, name: str, box: Box | None) -> kdb.Region | None:
        return raw_shapes(self.layout, self.table, name, box)

    def _whole(self, rules: Sequence[str]) -> Found:
        wanted = set(rules)
        outputs = [i for i, o in enumerate(self.graph.outputs) if o.rule in wanted]
        found: Found = {}
        for i, values in evaluate(self.graph, lambda name: self._shapes(name, None), outputs, self._presence):
            output = self.graph.outputs[i]
            entries = found.setdefault(output.rule, {})
            for m in collection_markers(output.rule, values, output.unordered):
                entries[m] = entries.get(m, 0) + 1
        return found


def groups(plans: Sequence[RulePlan]) -> Iterator[list[RulePlan]]:
    """Split rules into groups of similar reach, so that a far-reaching rule doesn't widen the view of all others."""
    group: list[RulePlan] = []
    for p in sorted(plans, key=lambda p: p.reach):
        if group and p.reach > 3 * group[0].reach + 400:
            yield group
            group = []
        group.append(p)
    if group:
        yield group


def raw_shapes(layout: DRCLayout, table: RuleTable, name: str, box: Box | None = None) -> kdb.Region | None:
    """Return a layer's raw shapes, flat and unmerged, those that touch a box if one is given; None if there are none.

    Shapes are not cut at the box: cutting would move slanted edges.
    """
    entry = table.layers[name]
    index = layout.layer_index(entry.layer, entry.datatype)
    if index is None:
        return None
    if box is None:
        region = kdb.Region(layout.top.begin_shapes_rec(index))
    else:
        region = kdb.Region(layout.top.begin_shapes_rec_touching(index, kdb.Box(*box)))
    if region.is_empty():
        return None
    region.flatten()
    return region
