"""Repair by search: best-first over local moves, scored with the incremental checker on the policy's own copy.

What the policy uses: the layout, the initial report, the limits and the rules, all of which an agent may see. It tries
moves on a copy of the layout with its own engine, and spends actions of the environment on the edits of the repair that
it chose and on the final check, nothing else.

Violations far from one another are repaired one group after the other. Within a group a beam search over a few moves
looks for the state with the fewest markers, then the smallest redrawn area. States that break the circuit or the bounds
on edits, judged against the initial layout, are passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import klayout.db as kdb
import numpy as np

from edagym.baselines.search.drc_moves import MAX_PLACEMENTS, Candidate, RuleLimits, candidates
from edagym.envs.drc.edits import Applied, LayoutEditor
from edagym.envs.drc.geometry import value_box
from edagym.errors import EditError, TaskError
from edagym.spaces.actions import Command
from edagym.spaces.drc_edits import AddShape, DRCEdit, MoveCell
from edagym.task_assets.drc.task import DRCView, Limits, RoiUm, Violation
from edagym.verifiers.drc.check import find_markers
from edagym.verifiers.drc.connectivity import Reference, guard_windows, window_guard
from edagym.verifiers.drc.diff import placements
from edagym.verifiers.drc.guards import strict_checks
from edagym.verifiers.drc.incremental import IncrementalChecker
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, Marker, MarkerStore, touches
from edagym.verifiers.drc.report import inside, roi_box
from edagym.verifiers.drc.rules import RuleTable, load_table
from edagym.verifiers.drc.stack import stack_of
from edagym.verifiers.drc.zone import grown, union

GROUP_NM = 150.0
"""Markers nearer than this are repaired together, nm."""
SMALL_LAYOUT = 100
"""Up to so many flat shapes every promising state is audited in full; beyond, in its window until the end."""
CHECKED_LAYOUT = 5_000
"""Up to so many flat shapes a layout of unknown markers is checked in full."""
_BOUNDS = frozenset({"strict_area_kept", "strict_edited_area"})
_SAME_KIND = 3
_DETOUR = 3
_COMPLETIONS = 3
_FULL = 4
MAX_COPIES = 20
"""Where more markers than this look alike, they are repaired in the master that repeats them, not one by one."""
PROBE_NM = 300.0
"""Placements of an edit this near to a marker are looked at first, nm."""
SAMPLES = 6
"""Placements of an edited master that are re-checked while searching; all are when a state is accepted."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How hard to search.

    Attributes:
        width: States kept per depth.
        depth: Most moves per group of violations.
        moves: Moves tried on the layout as it is, and on each state on the way.
        work: Effort per pass over the task, in probes of a move; a full evaluation counts more. The second pass, if
            needed, is greedy. A count and no time, so that equal tasks give equal repairs on any machine.
    """

    width: int = 8
    depth: int = 3
    moves: tuple[int, int] = (1_200, 400)
    work: int = 10_000


@dataclass(frozen=True)
class Repair:
    """The outcome of a search.

    Attributes:
        edits: The edits, in order.
        before: Number of flat markers at first, in the region of interest.
        after: Number of flat markers that are left.
        work: Effort spent (`SearchSettings.work`).
    """

    edits: tuple[DRCEdit, ...]
    before: int
    after: int
    work: int


@dataclass(slots=True)
class _State:
    """A layout on the way: the edits that lead there, its markers, and what it costs.

    `cost` is the number of markers, but an edit of a master changes it by what it does per placement: as a person sees
    it, one thing has changed.
    """

    edits: tuple[DRCEdit, ...]
    markers: MarkerStore
    count: int
    cost: float
    area: float
    boxes: tuple[Box, ...] = ()
    partial: bool = False
    bounded: bool = True
    parent: _State | None = None


@dataclass(slots=True)
class Workbench:
    """A copy of a layout on which moves are tried.

    Args:
        layout: The layout; it is copied.
        table: The rules.
        markers: All its flat markers, if known. Otherwise small layouts are checked, and in large ones only what lies
            around the reported items.
        items: The report.
        limits: Bounds on the repair.
        roi: Region of interest, um.
    """

    layout: DRCLayout
    table: RuleTable
    items: Sequence[Violation] = ()
    markers: MarkerStore | None = None
    limits: Limits = field(default_factory=Limits)
    roi: RoiUm | None = None
    work: int = 0
    initial: DRCLayout = field(init=False)
    editor: LayoutEditor = field(init=False)
    checker: IncrementalChecker = field(init=False)
    reference: Reference = field(init=False)
    small: bool = field(init=False)
    probes: dict[frozenset[str], IncrementalChecker] = field(init=False, default_factory=dict)
    start: _State = field(init=False)

    def __post_init__(self) -> None:
        self.initial = self.layout.copy()
        self.layout = self.layout.copy()
        self.editor = LayoutEditor(self.layout, self.table)
        n = self.initial.flat_shapes()
        self.small = n <= SMALL_LAYOUT
        self.reference = Reference(self.initial, stack_of(self.table))
        if self.markers is None and n > CHECKED_LAYOUT:
            found = markers_at(self.items, self.layout, self.table)
            self.checker = IncrementalChecker(self.layout, self.table, found)
        else:
            self.checker = IncrementalChecker(self.layout, self.table, self.markers)
        n_markers = self.count(self.checker.markers)
        self.start = _State((), self.checker.markers, n_markers, n_markers, 0.0)

    # -- markers ---------------------------------------------------------------------------------------------------

    def wanted(self, markers: MarkerStore) -> list[Marker]:
        """Return the markers that count."""
        if self.roi is None:
            return list(markers)
        box = roi_box(self.roi, self.layout.dbu)
        return [m for m in markers if inside(m.bbox, box)]

    def count(self, markers: MarkerStore) -> int:
        """Return how many markers count."""
        return len(markers) if self.roi is None else len(self.wanted(markers))

    # -- states ----------------------------------------------------------------------------------------------------

    def go(self, state: _State) -> None:
        """Bring the layout to a state."""
        self.editor.restore(state.edits)
        self.checker.markers = state.markers.copy()

    def complete(self, state: _State) -> None:
        """Re-check what was left out when the moves of a state were tried. The layout is left in that state."""
        if state.partial and state.parent is not None:
            self.complete(state.parent)
            applied = self.editor.apply(state.edits[-1])
            self.checker.recheck(applied.boxes, applied.layers)
            state.markers, state.partial = self.checker.markers, False
            state.count = self.count(state.markers)
        self.go(state)

    def attempt(self, state: _State, edit: DRCEdit, near: Sequence[Marker]) -> _State | None:
        """Return what a move leads to from the state that the layout is in.

        None if the move is refused, or if it takes none of the markers `near` away.
        """
        try:
            applied = self.editor.apply(edit)
        except EditError:
            return None
        self.work += 1
        if not self.small and not self._promising(applied, near):
            self.editor.undo()
            return None
        self.work += 1 if self.small else _FULL
        boxes, partial = self._sample(applied, state.markers, near)
        if not boxes:
            self.editor.undo()
            return None
        if self.small:
            markers = find_markers(self.layout, self.table)  # cheaper than finding out what an edit can reach
        else:
            before = self.checker.markers
            self.checker.markers = before.copy()
            self.checker.recheck(boxes, applied.layers)
            markers, self.checker.markers = self.checker.markers, before
        self.editor.undo()
        count = self.count(markers)
        cost = state.cost + (count - state.count) / len(boxes)
        if partial:
            # What holds at the sample holds, most likely, at all placements.
            everywhere = [grown(b, 1) for b in applied.boxes]
            seen = [grown(b, 1) for b in boxes]
            if count < state.count:
                left = sum(1 for m in self.wanted(markers) if any(touches(m.bbox, b) for b in everywhere))
                kept = sum(1 for m in self.wanted(markers) if any(touches(m.bbox, b) for b in seen))
                count = count - left + kept
        area = state.area + _redrawn(edit, applied.boxes[0])
        partial = partial or state.partial
        return _State((*state.edits, edit), markers, count, cost, area, (*state.boxes, *boxes), partial, parent=state)

    def _promising(self, applied: Applied, near: Sequence[Marker]) -> bool:
        """Return whether an edit just made takes a marker away, looking at these markers' rules only."""
        rules = frozenset(m.rule for m in near)
        probe = self.probes.get(rules)
        if probe is None:
            part = rules_only(self.table, rules)
            probe = self.probes[rules] = IncrementalChecker(self.layout, part, MarkerStore(rules, self.layout.dbu))
        probe.markers = MarkerStore(sorted(rules), self.layout.dbu, near)
        reach = round(PROBE_NM * 0.001 / self.layout.dbu)
        boxes = [b for b in applied.boxes if any(touches(grown(m.bbox, reach), b) for m in near)]
        probe.recheck(boxes[:SAMPLES], applied.layers)
        return any(probe.markers.multiplicity(m) < n for m, n in Counter(near).items())

    def _sample(self, applied: Applied, markers: MarkerStore, near: Sequence[Marker]) -> tuple[tuple[Box, ...], bool]:
        """Return the placements of an edit to look at while searching, and whether they are not all.

        The placement of the markers at hand, some with markers, and some of all.
        """
        n = len(applied.boxes)
        if n <= SAMPLES:
            return applied.boxes, False
        if n > MAX_PLACEMENTS:
            return (), True
        here = [b for b in applied.boxes if any(touches(m.bbox, grown(b, 1)) for m in near)]
        now = self.wanted(markers)
        marked = [b for b in applied.boxes if any(touches(m.bbox, grown(b, 1)) for m in now)]
        step = max(1, n // (SAMPLES // 2))
        chosen = {*here[: SAMPLES // 2], *marked[: SAMPLES // 2], *applied.boxes[::step]}
        return tuple(sorted(chosen)), True

    def soundness(self, state: _State, final: bool = False) -> int:
        """Return 2 if a state keeps circuit and bounds, 1 if only the circuit, 0 otherwise.

        Args:
            state: The state; the layout has to be in it.
            final: Whether to audit large layouts in full too.
        """
        if self.small or final:
            rules = {item.rule for item in self.items}
            checks = strict_checks(
                self.initial, self.layout, self.table, self.limits, self.reference, rules=rules, roi=self.roi
            )
            failed = {c.id for c in checks if not c.passed}
            return 2 if not failed else 1 if failed <= _BOUNDS else 0
        recent = [kdb.Box(*box) for box in state.boxes[-2 * SAMPLES :]]
        for window in guard_windows(state.boxes, self.layout.dbu):
            if not any(window.touches(box) for box in recent):
                continue
            if window_guard(self.initial, self.layout, window, self.reference.stack):
                return 0
        return 2


def markers_at(items: Sequence[Violation], layout: DRCLayout, table: RuleTable) -> MarkerStore:
    """Return the flat markers of the reported rules at the reported places: all, if the report is complete."""
    rules = {name: rule for name, rule in table.rules.items() if any(v.rule == name for v in items)}
    checker = IncrementalChecker(layout, rules_only(table, rules), MarkerStore(rules, layout.dbu))
    checker.recheck(item_boxes(items, layout), frozenset().union(*(r.layers for r in rules.values())))
    return MarkerStore(table.rules, layout.dbu, checker.markers)


def rules_only(table: RuleTable, names: Collection[str]) -> RuleTable:
    """Return a table with some of the rules only."""
    rules = {name: rule for name, rule in table.rules.items() if name in names}
    return RuleTable(table.name, table.title, table.source, table.layers, rules, table.data)


def item_boxes(items: Sequence[Violation], layout: DRCLayout) -> list[Box]:
    """Return where report items lie in the top cell's frame, at every placement of their cells; database units."""
    boxes = []
    for item in items:
        for value in item.values:
            x1, y1, x2, y2 = (round(v / layout.dbu) for v in value_box(value))
            box = kdb.Box(x1, y1, x2, y2)
            found = placements(layout.layout, layout.top, item.cell)
            # The report may give the coordinates of an oriented variant of the cell, so that the cell's own orientation
            # counts only half; look at both.
            for trans in found:
                for b in {str(t): t for t in (trans * box, kdb.Trans(trans.s_trans().disp) * box)}.values():
                    boxes.append((b.left, b.bottom, b.right, b.top))
    return boxes


def _redrawn(edit: DRCEdit, box: Box) -> float:
    """Roughly the area that an edit redraws, square database units; moved cells count least for their area."""
    if isinstance(edit, MoveCell):
        return float(abs(edit.by[0]) + abs(edit.by[1])) * (box[2] - box[0] + box[3] - box[1]) / 2
    if isinstance(edit, AddShape):
        return float((box[2] - box[0]) * (box[3] - box[1]))
    change = edit.change
    amounts = [abs(getattr(change, n, 0)) for n in ("dx", "dy", "distance", "left", "right", "bottom", "top")]
    return float(sum(amounts)) * (box[2] - box[0] + box[3] - box[1]) / 2


# -- the policy ----------------------------------------------------------------------------------------------------


class DRCSearchPolicy:
    """Plans a repair when an attempt begins, then spends one action per edit and one on the final check.

    Args:
        settings: How hard to search.
    """

    name = "search"
    privileged = False
    deterministic = True

    def __init__(self, settings: SearchSettings | None = None) -> None:
        self.settings = settings
        self._plan: Iterator[DRCEdit | Command] = iter(())

    def bind(self, attempt: SearchAttempt) -> None:
        """Search on a copy of the attempt's layout."""
        view = attempt.task_view
        if not isinstance(view, DRCView):
            raise TaskError("this search is for DRC tasks", field="policy", value=self.name, allowed="DRC suites")
        bench = Workbench(
            attempt.layout, load_table(view.rules), items=view.violations, limits=view.limits, roi=view.roi
        )
        found = repair(bench, attempt.budget_left - 1, self.settings)
        self._plan = iter((*found.edits, Command.VERIFY, Command.SUBMIT))

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> DRCEdit | Command:
        """Return the next edit of the repair, then the check; submit if violations are left."""
        return next(self._plan)


class SearchAttempt(Protocol):
    """What the policy uses of an attempt."""

    @property
    def task_view(self) -> DRCView:
        """What an agent may know about the task."""
        ...

    @property
    def layout(self) -> DRCLayout:
        """A copy of the current layout."""
        ...

    @property
    def budget_left(self) -> int:
        """Actions left."""
        ...


# -- search --------------------------------------------------------------------------------------------------------


def repair(
    bench: Workbench, max_edits: int, settings: SearchSettings | None = None, rng: np.random.Generator | None = None
) -> Repair:
    """Search for edits that remove the violations.

    Args:
        bench: The workbench, in its initial state.
        max_edits: Most edits.
        settings: How hard to search.
        rng: Breaks ties between moves of equal rank; None: the order in which they were found.
    """
    settings = settings or SearchSettings()
    limits = RuleLimits(bench.table)
    best = bench.start
    for mode in ("singly", "thorough", "greedy"):
        allowed = bench.work + settings.work
        found = _repair(bench, max_edits, settings, limits, rng, mode, allowed)
        if (found.count, not found.bounded) < (best.count, not best.bounded):
            best = found
        if best.count == 0 and best.bounded:
            break
    return Repair(best.edits, bench.start.count, best.count, bench.work)


def _repair(
    bench: Workbench,
    max_edits: int,
    settings: SearchSettings,
    limits: RuleLimits,
    rng: np.random.Generator | None,
    mode: str,
    allowed: int,
) -> _State:
    """Repair one group of markers after the other.

    Modes: ``"singly"``: one marker at a time, by one move each, which is all that independent faults need; what that
    leaves is searched as in ``"greedy"``: the first move that leaves fewer markers of a group is accepted.
    ``"thorough"``: the whole group is searched together.
    """
    greedy = mode != "thorough"
    state = bench.start
    given_up: set[Marker] = set()
    while state.count and len(state.edits) < max_edits and bench.work < allowed:
        bench.go(state)
        group = _next_group(bench, state, given_up)
        if not group:
            break
        better = None
        for single in _coincident(group) if mode == "singly" and len(group) > 1 else ():
            better = _search_group(bench, state, single, 1, settings, limits, rng, greedy, allowed, reach_nm=0)
            if better is not None:
                break
        if better is None:
            depth = min(settings.depth, max_edits - len(state.edits))
            better = _search_group(bench, state, group, depth, settings, limits, rng, greedy, allowed)
        if better is None:
            given_up.update(group)
        else:
            state = better
    return state


def _next_group(bench: Workbench, state: _State, given_up: set[Marker]) -> list[Marker]:
    """Return the first marker that is left with all that lie near it."""
    left = [m for m in bench.wanted(state.markers) if m not in given_up]
    if not left:
        return []
    reach = round(GROUP_NM * 0.001 / bench.layout.dbu)
    return [m for m in left if touches(grown(left[0].bbox, reach), m.bbox)]


def _coincident(group: Sequence[Marker]) -> list[list[Marker]]:
    """Return the markers of a group in lots that share a place and a rule."""
    lots: dict[tuple[str, Box], list[Marker]] = {}
    for marker in group:
        lots.setdefault((marker.rule, marker.bbox), []).append(marker)
    return list(lots.values())


def _search_group(
    bench: Workbench,
    start: _State,
    group: Sequence[Marker],
    depth: int,
    settings: SearchSettings,
    limits: RuleLimits,
    rng: np.random.Generator | None,
    greedy: bool,
    allowed: int,
    reach_nm: float = GROUP_NM,
) -> _State | None:
    """Return the best state with fewer markers than `start` that keeps the circuit, or None.

    States that keep the bounds on edits too are preferred. The search stops at the first of these that has none of the
    group's markers left and no others instead. Moves are made at the markers within `reach_nm` of the group.
    """
    beam = [start]
    best: list[_State | None] = [None, None, None]  # by soundness
    start_kind = tuple(m.rule for m in bench.wanted(start.markers))
    seen: set[frozenset[DRCEdit]] = set()
    in_masters = _repeats(bench.wanted(start.markers), group) > MAX_COPIES
    around = group[0].bbox
    for m in group:
        around = union(around, m.bbox)
    around = grown(around, round(reach_nm * 0.001 / bench.layout.dbu))
    goal = start.count - len(group)
    quiet = sum(1 for m in bench.wanted(start.markers) if touches(m.bbox, around)) - len(group)

    def clean(state: _State) -> bool:
        if state.count > goal:
            return False
        return sum(1 for m in bench.wanted(state.markers) if touches(m.bbox, around)) <= quiet

    for _ in range(depth):
        found: list[_State] = []
        for state in beam:
            bench.go(state)
            near = [m for m in bench.wanted(state.markers) if touches(m.bbox, around)]
            most = settings.moves[0 if state is start else 1]
            for candidate in _ordered(candidates(bench.layout, bench.table, limits, near[:12]), most, rng):
                if in_masters and (isinstance(candidate.edit, MoveCell) or not candidate.edit.cell):
                    continue
                if bench.work >= allowed:
                    break
                key = frozenset((*state.edits, candidate.edit))
                if key in seen:
                    continue
                seen.add(key)
                result = bench.attempt(state, candidate.edit, near)
                if result is None or result.cost > start.cost + _DETOUR:
                    continue
                if clean(result):
                    bench.complete(result)
                    if clean(result) and bench.soundness(result) == 2 and bench.soundness(result, True) == 2:
                        return result
                    bench.go(state)
                # Moves that change no violation are left out: if one is needed to make room, it can come second.
                if any(result.markers.multiplicity(m) < state.markers.multiplicity(m) for m in near):
                    found.append(result)
        found.sort(key=lambda state: (state.cost, state.area))
        beam = []
        audits = completions = 0
        kinds: Counter[tuple[str, ...]] = Counter()
        tried: set[tuple[tuple[str, ...], str]] = set()
        for result in found:
            if len(beam) == settings.width or audits == 5 * settings.width:
                break
            # Many moves leave the same violations behind: keep different ones, by what they change and what is left.
            kind = tuple(m.rule for m in bench.wanted(result.markers))
            if kinds[kind] == (1 if kind == start_kind else _SAME_KIND) or (kind, _subject(result.edits[-1])) in tried:
                continue
            audits += 1
            bench.go(result)
            soundness = bench.soundness(result)
            if not soundness:
                continue
            kinds[kind] += 1
            tried.add((kind, _subject(result.edits[-1])))
            beam.append(result)
            if result.partial and result.count < start.count and completions < _COMPLETIONS:
                completions += 1
                bench.complete(result)
            if not result.partial and result.count < start.count:
                if not bench.small:
                    soundness = bench.soundness(result, final=True)
                known = best[soundness]
                if known is None or result.count < known.count:
                    best[soundness] = result
                    result.bounded = soundness == 2
        if greedy and best[2] is not None:
            return best[2]
    kept = [state for state in best if state is not None]
    return min(kept, key=lambda state: (state.count, not state.bounded), default=None)


def _repeats(markers: Sequence[Marker], group: Sequence[Marker]) -> int:
    """Return how many markers look like the group's most frequent one: of one rule and one size, either way round."""

    def look(m: Marker) -> tuple[str, int, int]:
        width, height = m.bbox[2] - m.bbox[0], m.bbox[3] - m.bbox[1]
        return (m.rule, min(width, height), max(width, height))

    counts = Counter(map(look, markers))
    return max(counts[look(m)] for m in group)


def _subject(edit: DRCEdit) -> str:
    """What an edit changes, and in which way."""
    if isinstance(edit, MoveCell):
        return f"{edit.cell}{edit.at}"
    if isinstance(edit, AddShape):
        return f"{edit.layer}+"
    change = edit.change
    return f"{edit.layer}{edit.shape}{type(change).__name__}{getattr(change, 'edge', '')}"


def _ordered(found: list[Candidate], most: int, rng: np.random.Generator | None) -> list[Candidate]:
    if rng is not None:
        order = rng.permutation(len(found))
        found = [found[i] for i in order]
        found.sort(key=lambda c: c.rank)
    return found[:most]
