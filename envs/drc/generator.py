"""Tasks of our own: the fixed suite and endless training tasks, from generated blocks with recorded repairs.

A task is accepted only when it holds what it says: its reference edits end with a strict success within the budget, and
deleting the shapes at its violations, one by one or together, does not (PostEDA-Bench, Section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import klayout.db as kdb
import numpy as np
from tqdm import tqdm

from edagym.envs.drc.edits import LayoutEditor
from edagym.envs.drc.inject import InjectionRecord, inject_cluster, inject_violation, isolate, targets
from edagym.envs.drc.labels import one_edit_repairs, outcome
from edagym.envs.drc.mutations import to_polygon
from edagym.envs.drc.posteda import plain_markers
from edagym.envs.drc.queries import shapes_near
from edagym.envs.drc.repairs import Repair, recorded_repairs, save_repairs
from edagym.envs.drc.reporting import report_items
from edagym.envs.drc.residual import ResidualRecord, generate_residual
from edagym.envs.drc.state import PreparedTask
from edagym.envs.drc.training import (
    draw_violations,
    few_wires,
    is_drawable,
    outline,
    pruned,
    suite_outlines,
    training_block,
)
from edagym.errors import EditError, TaskError
from edagym.spaces.drc_actions import MAX_VIOLATIONS
from edagym.spaces.drc_edits import ChangeShape, Delete, DRCEdit, MoveCell, Replace, ShapeRef, drc_edit_to_json
from edagym.task_assets.drc.blocks import Block, generate_block
from edagym.task_assets.drc.residuals import KINDS
from edagym.task_assets.drc.suite import SIZES, task_folder
from edagym.task_assets.drc.task import BUDGETS, MIN_AREA_KEPT, DRCTask, Limits
from edagym.verifiers.drc import CheckReport, DRCLayout, MarkerStore, RuleTable, full_check, load_table
from edagym.verifiers.drc.guards import derive_limits

Solver = Callable[[DRCLayout, int], tuple[DRCEdit, ...] | None]
"""Repairs a layout with at most so many edits that keep its circuit; None: not found."""

ATTEMPTS = 60
"""Draws per task before generation gives up."""

LEAST_AREA_KEPT = 0.7
"""A repair that leaves a smaller share of a piece is no task's reference."""

MAX_GROWTH = 1.12
"""Injections that enlarge a shape by more than this factor are left out of clusters."""

FEWEST_INJECTIONS = 5

ATOMIC = (
    "width/WELL",
    "width/NSELECT",
    "width/PSELECT",
    "spacing/GATE",
    "width/GATE",
    "width/ACTIVE",
    "extension/ACTIVE",
    "width/SDT",
    "spacing/LIG",
    "width/LISD",
    "width/M1",
    "enclosure/V1",
    "spacing/M2",
    "shape/V2",
    "width/M3",
    "shape/V3",
    "spacing/M4",
    "shape/V4",
    "width/M5",
    "shape/V5",
)
"""Rule classes of the atomic tasks, one each."""

CONTEXTUAL = (
    "width/M3",
    "spacing/M2",
    "shape/V2",
    "width/ACTIVE",
    "width/M1",
    "spacing/M4",
    "shape/V3",
    "width/M5",
    "extension/ACTIVE",
    "enclosure/V1",
)
"""Rule classes of the tasks with one violation in context, one each."""

SPARE = ("width/M2", "shape/V4", "spacing/M1", "spacing/M3", "width/M4", "shape/V1")
"""Rule classes for tasks whose own class cannot be drawn."""

TRAINING = (
    "width/M3",
    "spacing/M2",
    "shape/V2",
    "width/M1",
    "spacing/M4",
    "shape/V3",
    "width/M5",
    "spacing/M3",
    "width/M2",
    "shape/V4",
    "spacing/M1",
    "width/M4",
    "shape/V1",
)
"""Rule classes of training tasks at L1."""

ONE_EDIT = (
    "parallel-run",
    "short-end",
    "odd-cut",
    "patch",
    "stub",
    "abutment",
    "corner-to-corner",
    "via-on-wide-wire",
)
"""Kinds of careless work that may take one edit."""

MOST_EDITS = 6
"""Edits of a repair at level L2: what leaves an action for the check and one to spare."""

TRIES_PER_KIND = 6
"""Draws of one kind before the next is tried."""


# -- one task ------------------------------------------------------------------------------------------------------


def build_task(
    task_id: str,
    suite: str,
    level: str,
    layout: kdb.Layout,
    fix: Sequence[DRCEdit],
    *,
    steps: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    keep: bool = False,
    screen: bool = True,
    markers: MarkerStore | None = None,
) -> DRCTask:
    """Make a task of a layout with violations and its repair.

    Args:
        task_id: The task's id.
        suite: One of `edagym.task_assets.drc.task.SUITES`.
        level: One of `edagym.task_assets.drc.task.LEVELS`.
        layout: The layout.
        fix: Edits that repair it.
        steps: Label: smallest number of edits.
        metadata: Provenance.
        keep: The layout's own circuit has to be kept; else the one of the repaired layout.
        screen: Whether to try deletions too.
        markers: All flat markers of the layout; None: a full check finds them.

    Raises:
        TaskError: If the task does not hold what it says; the message gives the reason.
    """
    table = load_table()
    drawn = DRCLayout(layout)
    legal = drawn.copy()
    LayoutEditor(legal, table).restore(fix)
    report = full_check(drawn, table) if markers is None else CheckReport(drawn, table, markers)
    if not 0 < report.total <= MAX_VIOLATIONS:
        raise TaskError("too many violations or none", field="violations", value=report.total)
    reference = tuple(drc_edit_to_json(edit) for edit in fix)
    budget = BUDGETS[level]
    if len(reference) >= budget:
        raise TaskError("the repair does not fit the budget", field="reference", value=len(reference), allowed=budget)
    fields: dict[str, Any] = {
        "id": task_id,
        "suite": suite,
        "level": level,
        "gds": drawn.to_bytes(),
        "top": drawn.top.name,
        "counts": report.counts,
        "violations": report_items(report),
        "budget": budget,
        "markers": plain_markers(report.markers),
        "golden": None if keep else legal.to_bytes(),
        "reference": reference,
        "steps": steps,
        "metadata": dict(metadata or {}),
    }
    layers = sorted({e.layer for e in fix if not isinstance(e, MoveCell)})
    kept = MIN_AREA_KEPT
    prepared = PreparedTask(DRCTask(**fields))
    verdict = outcome(prepared.task, fix, prepared)
    if verdict is not None and [c.id for c in verdict.failed()] == ["strict_area_kept"]:
        # The repair takes away what the injection added; the bound has to leave it room, but not for a deletion.
        share = next(c.measured for c in verdict.failed()) or 0.0
        kept = math.floor(100 * share) / 100 - 0.01
        if kept < LEAST_AREA_KEPT:
            raise TaskError("the repair takes too much away", field="min_area_kept", value=share)
        prepared.verifier.limits = Limits(dict.fromkeys(layers, kept))
        verdict = outcome(prepared.task, fix, prepared)
    if verdict is None or not verdict.strict_success:
        failed = [] if verdict is None else [c.id for c in verdict.failed()]
        raise TaskError("the reference is no strict success", field="reference", value=failed)
    redrawn = next(c.measured for c in verdict.checks if c.id == "strict_edited_area")
    assert redrawn is not None
    shares = {} if kept == MIN_AREA_KEPT else dict.fromkeys(layers, round(kept, 2))
    derived = derive_limits([m.bbox for m in report.flat], drawn.dbu).max_edited_area or 0.0
    task = DRCTask(**{**fields, "limits": Limits(shares, round(max(derived, 2 * redrawn), 6))})
    if screen:
        solved = solved_by_deleting(task)
        if solved:
            raise TaskError("deleting solves it", field="violations", value=[drc_edit_to_json(e) for e in solved])
    return task


def recount(task: DRCTask) -> DRCTask:
    """Return a task with its report, counts and markers as the engine gives them now; all else stays."""
    report = full_check(DRCLayout.from_bytes(task.gds, task.id), load_table(task.rules), roi=task.roi)
    return replace(task, counts=report.counts, violations=report_items(report), markers=plain_markers(report.markers))


def deletions(task: DRCTask) -> Iterator[tuple[DRCEdit, ...]]:
    """Yield the ways to delete shapes at the violations: each alone; all of a violation, of a layer, and all of them.

    Only shapes on the layers that a violated rule reads and that touch the violation count.
    """
    prepared = PreparedTask(task)
    groups: dict[tuple[ChangeShape, ...], None] = {}
    found: dict[ChangeShape, None] = {}
    for violation in prepared.violations:
        box, layers = violation.box, violation.listed.layers
        here: dict[ChangeShape, None] = {}
        for shape in shapes_near(prepared.initial, prepared.table, box, box, layers):
            cell = "" if shape.cell == task.top else shape.cell
            here[ChangeShape(shape.layer, ShapeRef(points=shape.own), Delete(), cell)] = None
        groups[tuple(here)] = None
        found |= here
    for layer in dict.fromkeys(edit.layer for edit in found):
        groups[tuple(edit for edit in found if edit.layer == layer)] = None
    groups[tuple(found)] = None
    for edit in found:
        yield (edit,)
    yield from (edits for edits in groups if len(edits) > 1)


def solved_by_deleting(task: DRCTask) -> tuple[DRCEdit, ...] | None:
    """Return deletions that strictly solve a task, or None."""
    prepared = PreparedTask(task)
    for edits in deletions(task):
        verdict = outcome(task, edits, prepared)
        if verdict is not None and verdict.strict_success:
            return edits
    return None


# -- the fixed suite -----------------------------------------------------------------------------------------------


def generate_suite(
    out: str | Path,
    seed: int = 7,
    *,
    solver: Solver | None = None,
    only: Sequence[str] | None = None,
    search: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Build the fixed suite: one folder per task.

    The repairs of reasoning tasks come from a search. Those of the shipped suite are recorded
    (`edagym.envs.drc.repairs`) and only verified again, so that its tasks do not depend on the search policy of the
    day. For other seeds, or with `search`, the solver looks for them, and ``repairs.json`` records what it found.

    Args:
        out: Folder to write to.
        seed: Seed; equal seeds give equal bytes.
        solver: Finds the repairs of reasoning tasks.
        only: Groups (``"Essential-L1"``) or tasks (``"Essential-L1/q3"``) to build; None: all.
        search: Look for repairs even where they are recorded.
        progress: Show a progress bar.

    Returns:
        Number of tasks, violations and bytes, and the sizes of the groups.

    Raises:
        TaskError: If a group or task is unknown, or a task could not be found.
    """
    wanted = _wanted(only)
    known = {} if search else recorded_repairs(seed)
    folder = Path(out)
    sizes: dict[str, int] = {}
    n_violations = n_bytes = 0
    found: dict[str, Repair] = {}
    for task_id in tqdm(wanted, desc="tasks", disable=not progress):
        group = task_id.partition("/")[0]
        if group in _MAKERS:
            task = draw_injection(task_id, seed)
        else:
            task, repair = draw_residual(task_id, seed, solver, known.get(task_id))
            if task_id not in known:
                found[task_id] = repair
        place = folder / task_folder(task.id)
        task.save(place)
        n_violations += task.total
        n_bytes += sum(p.stat().st_size for p in place.iterdir())
        sizes[group] = sizes.get(group, 0) + 1
    if found:
        save_repairs(folder / "repairs.json", seed, found)
    return {"tasks": sum(sizes.values()), "violations": n_violations, "bytes": n_bytes, **sizes}


def _wanted(only: Sequence[str] | None) -> list[str]:
    """Return the ids to build, in suite order."""
    ids = {group: [f"{group}/q{n}" for n in range(1, size + 1)] for group, size in SIZES.items()}
    chosen: set[str] = set()
    for name in SIZES if only is None else only:
        if name not in SIZES and name not in ids.get(name.partition("/")[0], ()):
            raise TaskError("no such group or task", field="only", value=name, allowed=list(SIZES))
        chosen |= set(ids.get(name, (name,)))
    return [i for group in ids.values() for i in group if i in chosen]


def _place(task_id: str) -> tuple[str, str, int, int]:
    """Return suite, level, number of the group and number in the group of a task id."""
    group, _, name = task_id.partition("/")
    suite, level = group.split("-")
    return suite.lower(), level, list(SIZES).index(group), int(name[1:])


def draw_injection(task_id: str, seed: int) -> DRCTask:
    """Draw an essential task; its id and the seed alone decide what comes out.

    Raises:
        TaskError: If none was found.
    """
    suite, level, index, number = _place(task_id)
    rng = np.random.default_rng([seed, index, number])
    maker, (first, spare) = _MAKERS[f"{suite.capitalize()}-{level}"], _CLASSES[f"{suite.capitalize()}-{level}"]
    for target in (first[number - 1] if first else None, *spare):
        for _ in range(ATTEMPTS if target is None else ATTEMPTS // 10):
            try:
                layout, record = maker(rng, target)
                label = "exact" if len(record.fix) == 1 else "found"
                metadata = {"generator": "injection", "seed": seed, "rules": list(record.rules), "label": label}
                return build_task(task_id, suite, level, layout, record.fix, steps=len(record.fix), metadata=metadata)
            except (TaskError, EditError):
                continue
    raise TaskError("no task was found", field="task", value=task_id)


def draw_residual(
    task_id: str, seed: int, solver: Solver | None = None, known: Repair | None = None
) -> tuple[DRCTask, Repair]:
    """Draw a reasoning task: the number of edits that its repair needs sets its level.

    Args:
        task_id: Its id.
        seed: The suite's seed.
        solver: Looks for a repair.
        known: A repair found earlier for this id and seed; it is verified, not taken on trust.

    Raises:
        TaskError: If none was found, a known repair is none, or there is neither solver nor known repair.
    """
    suite, level, index, number = _place(task_id)
    if known is None and solver is None:
        raise TaskError("reasoning tasks need a solver", field="solver", value=None)
    for attempt in range(ATTEMPTS) if known is None else (known.attempt,):
        rng = np.random.default_rng([seed, index, number, attempt])
        try:
            layout, record = _careless(rng, level, number, attempt)
            repair = known
            if repair is None:
                assert solver is not None
                edits = _shortest(DRCLayout(layout), level, solver)
                if edits is None:
                    continue
                repair = Repair(attempt, edits)
            label = "exact" if len(repair.edits) == 1 else "found" if level == "L3" else "searched"
            metadata = {"generator": "residual", "seed": seed, **record.to_dict(), "label": label}
            n = len(repair.edits)
            task = build_task(task_id, suite, level, layout, repair.edits, steps=n, metadata=metadata, keep=True)
            if label == "searched":
                if known is None:
                    trial = one_edit_repairs(task)
                    if trial.repairs:
                        continue
                    repair = replace(repair, tried=trial.tried, clean=trial.clean)
                tried = {"one_edit_tried": repair.tried, "one_edit_clean": repair.clean}
                task = replace(task, metadata={**task.metadata, **tried})
        except (TaskError, EditError):
            if known is not None:
                raise
            continue
        return task, repair
    raise TaskError("no task was found", field="task", value=task_id)


def _careless(rng: np.random.Generator, level: str, number: int, attempt: int) -> tuple[kdb.Layout, ResidualRecord]:
    """Draw a block with one careless piece of work (L1), two or three (L2), or three to five (L3)."""
    kinds = tuple(KINDS)
    if level == "L1":
        kinds, n = (ONE_EDIT[(number - 1 + attempt // TRIES_PER_KIND) % len(ONE_EDIT)],), 1
    else:
        n = int(rng.integers(3, 6) if level == "L3" else rng.integers(2, 4))
    rows, width = int(rng.integers(2, 4)), int(rng.integers(24, 37))
    return generate_residual(rng, n=n, kinds=kinds, rows=rows, width_cpp=width, top_metal="M5")


def _shortest(layout: DRCLayout, level: str, solver: Solver) -> tuple[DRCEdit, ...] | None:
    """Return the shortest repair that the solver finds and the level allows, or None."""
    if level == "L3":
        return solver(layout, BUDGETS[level] - 1)
    if level == "L1":
        return solver(layout, 1)
    found = solver(layout, MOST_EDITS)
    return None if found is None or len(found) == 1 else found


def _block(rng: np.random.Generator, rows: tuple[int, int], width: tuple[int, int], metals: Sequence[str]) -> Block:
    return generate_block(
        rng,
        rows=int(rng.integers(rows[0], rows[1] + 1)),
        width_cpp=int(rng.integers(width[0], width[1] + 1)),
        top_metal=metals[int(rng.integers(len(metals)))],
    )


def _atomic(rng: np.random.Generator, target: str | None) -> tuple[kdb.Layout, InjectionRecord]:
    assert target is not None
    return isolate(rng, _block(rng, (2, 3), (44, 56), ("M9",)), target, tries=1500)


def _contextual(rng: np.random.Generator, target: str | None) -> tuple[kdb.Layout, InjectionRecord]:
    assert target is not None
    return inject_violation(rng, _block(rng, (3, 4), (30, 44), ("M5", "M6")), target, tries=1500)


def _sequential(rng: np.random.Generator, target: str | None) -> tuple[kdb.Layout, InjectionRecord]:
    block = _block(rng, (3, 4), (30, 40), ("M5", "M6"))
    return _cluster(rng, block, int(rng.integers(8, 14)), FEWEST_INJECTIONS)


def _cluster(rng: np.random.Generator, block: Block, n: int, fewest: int) -> tuple[kdb.Layout, InjectionRecord]:
    layout, record = inject_cluster(rng, block, n=n, radius_nm=700)
    # Shapes that grew much are put back: taking half of a via away again is what no bound can tell from a deletion.
    pairs = list(zip(record.edits, reversed(record.fix)))
    kept = [pair for pair in pairs if _growth(pair[0]) <= MAX_GROWTH]
    if len(kept) < fewest:
        raise TaskError("too few usable injections", field="n", value=len(kept), allowed=f">= {fewest}")
    editor = LayoutEditor(DRCLayout(layout), load_table())
    for pair in pairs:
        if pair not in kept:
            editor.apply(pair[1])
    return layout, replace(
        record,
        rules=tuple(rule for rule, pair in zip(record.rules, pairs) if pair in kept),
        edits=tuple(edit for edit, _ in kept),
        fix=tuple(inverse for _, inverse in reversed(kept)),
    )


def _growth(edit: DRCEdit) -> float:
    """Return by which factor an edit enlarges a shape."""
    if isinstance(edit, ChangeShape) and isinstance(edit.change, Replace) and edit.shape.points is not None:
        return to_polygon(edit.change.points).area() / to_polygon(edit.shape.points).area()
    return 1.0


_MAKERS: dict[str, Callable[[np.random.Generator, str | None], tuple[kdb.Layout, InjectionRecord]]] = {
    "Essential-L1": _atomic,
    "Essential-L2": _contextual,
    "Essential-L3": _sequential,
}
_CLASSES: dict[str, tuple[Sequence[str], Sequence[str | None]]] = {
    "Essential-L1": (ATOMIC, SPARE),
    "Essential-L2": (CONTEXTUAL, SPARE),
    "Essential-L3": ((), ()),
}


# -- training ------------------------------------------------------------------------------------------------------


def generate_task(rng: np.random.Generator, *, level: str | None = None, target: str | None = None) -> DRCTask:
    """Draw a training task; none is in the fixed suite (`edagym.envs.drc.training`).

    Args:
        rng: Source of every choice.
        level: ``"L1"`` (one violation alone), ``"L2"`` (one in context) or ``"L3"`` (several); None: any.
        target: Rule id or class, e.g. ``"width/M3"``, for L1 and L2; None: any.

    Returns:
        A task whose reference repair is a strict success.

    Raises:
        TaskError: If an argument is unknown, or no task was found.
    """
    if level not in (None, *BUDGETS):
        raise TaskError("no such level", field="level", value=level, allowed=list(BUDGETS))
    table = load_table()
    if target is not None:
        targets(target, table)
    number = int(rng.integers(2**63))
    for _ in range(ATTEMPTS):
        drawn = level or ("L1", "L2", "L3")[int(rng.integers(3))]
        try:
            layout, markers, fix, rules = _training_layout(rng, table, drawn, target)
            return build_task(
                f"train/{number:016x}",
                "train",
                drawn,
                layout,
                fix,
                steps=len(fix),
                metadata={"rules": list(rules), "label": "exact" if len(fix) == 1 else "found"},
                screen=False,
                markers=markers,
            )
        except (TaskError, EditError):
            continue
    raise TaskError("no training task was found", field="target", value=target)


def _training_layout(
    rng: np.random.Generator, table: RuleTable, level: str, target: str | None
) -> tuple[kdb.Layout, MarkerStore | None, tuple[DRCEdit, ...], tuple[str, ...]]:
    """Return a layout with violations for training, its markers if known, its repair and the rules aimed at."""
    if level == "L3":
        n = int(rng.integers(4, 8))
        return draw_violations(rng, training_block(rng).layout(), table, n=n, fewest=2, tries=20 * n)
    wanted = () if target is None else targets(target, table)
    if level == "L2":
        return draw_violations(rng, training_block(rng).layout(), table, n=1, fewest=1, wanted=wanted)
    name = target or TRAINING[int(rng.integers(len(TRAINING)))]
    rules = wanted or targets(name, table)
    if not is_drawable(table, rules):
        # Shapes of devices make sense in a cell only: cut them out of a block, which takes a second or more.
        layout, record = isolate(rng, training_block(rng), name, tries=100)
        return layout, None, record.fix, record.rules
    layout, _, fix, aimed = draw_violations(rng, few_wires(rng, table, rules), table, n=1, fewest=1, wanted=rules)
    layout, markers = pruned(layout, table, fix)
    if outline(layout) in suite_outlines():
        raise TaskError("a task of the suite", field="layout", value=aimed)
    return layout, markers, fix, aimed
