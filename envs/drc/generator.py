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
from edagym.envs.drc.env import DRCEnv
from edagym.envs.drc.inject import InjectionRecord, inject_cluster, inject_violation, isolate
from edagym.envs.drc.mutations import to_polygon
from edagym.envs.drc.posteda import plain_markers
from edagym.envs.drc.queries import shapes_near
from edagym.envs.drc.reporting import report_items
from edagym.envs.drc.residual import generate_residual
from edagym.errors import EditError, TaskError, ToolError
from edagym.spaces.actions import Command
from edagym.spaces.drc_actions import MAX_VIOLATIONS
from edagym.spaces.drc_edits import ChangeShape, Delete, DRCEdit, MoveCell, Replace, ShapeRef, drc_edit_to_json
from edagym.task_assets.drc.blocks import Block, generate_block
from edagym.task_assets.drc.suite import SIZES, task_folder
from edagym.task_assets.drc.task import BUDGETS, MIN_AREA_KEPT, DRCTask, Limits
from edagym.verifiers.drc import DRCLayout, full_check, load_table
from edagym.verifiers.drc.guards import derive_limits
from edagym.verifiers.verdict import Verdict

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
    "spacing/M6",
    "shape/V6",
    "width/M7",
    "spacing/M8",
    "width/M9",
    "area/M3",
    "spacing/M1",
    "shape/V1",
    "spacing/M3",
    "shape/M4",
    "width/M2",
    "shape/GATE",
)
"""Rule classes of the atomic tasks in the order in which they are tried; one task each."""

CONTEXTUAL = (
    "width/M3",
    "spacing/M2",
    "shape/V2",
    "width/ACTIVE",
    "width/M1",
    "spacing/M4",
    "shape/V3",
    "width/M5",
    "spacing/M3",
    "width/M2",
    "shape/V4",
    "spacing/M1",
    "width/M4",
    "extension/ACTIVE",
    "shape/V1",
)
"""Rule classes of the tasks with one violation in context, likewise."""

TRAINING = tuple(t for t in CONTEXTUAL if t != "width/ACTIVE")


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

    Raises:
        TaskError: If the task does not hold what it says; the message gives the reason.
    """
    table = load_table()
    drawn = DRCLayout(layout)
    legal = drawn.copy()
    LayoutEditor(legal, table).restore(fix)
    report = full_check(drawn, table)
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
    verdict = outcome(DRCTask(**fields), fix)
    if verdict is not None and [c.id for c in verdict.failed()] == ["strict_area_kept"]:
        # The repair takes away what the injection added; the bound has to leave it room, but not for a deletion.
        share = next(c.measured for c in verdict.failed()) or 0.0
        kept = math.floor(100 * share) / 100 - 0.01
        if kept < LEAST_AREA_KEPT:
            raise TaskError("the repair takes too much away", field="min_area_kept", value=share)
        verdict = outcome(DRCTask(**fields, limits=Limits(dict.fromkeys(layers, kept))), fix)
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


def outcome(task: DRCTask, edits: Sequence[DRCEdit]) -> Verdict | None:
    """Return the verdict after edits and a submit; None where an edit is refused or the engine fails."""
    env = DRCEnv(tasks=[task], budget=max(task.budget, len(edits) + 1), on_tool_error="raise")
    env.reset()
    try:
        for edit in edits:
            if env.step_edit(edit)[4]["edit_error"]:
                return None
        env.step_edit(Command.SUBMIT)
    except ToolError:
        return None
    return env.verdict


def deletions(task: DRCTask) -> Iterator[tuple[DRCEdit, ...]]:
    """Yield the ways to delete shapes at the violations: each one alone, then all of them.

    Only shapes on the layers that a violated rule reads and that touch the violation count.
    """
    env = DRCEnv(tasks=[task])
    env.reset()
    layout, table = env.layout, load_table(task.rules)
    found: dict[DRCEdit, None] = {}
    for violation in env._violations:
        for shape in shapes_near(layout, table, violation.box, violation.box, violation.listed.layers):
            cell = "" if shape.cell == task.top else shape.cell
            found[ChangeShape(shape.layer, ShapeRef(points=shape.own), Delete(), cell)] = None
    for edit in found:
        yield (edit,)
    if len(found) > 1:
        yield tuple(found)


def solved_by_deleting(task: DRCTask) -> tuple[DRCEdit, ...] | None:
    """Return deletions that strictly solve a task, or None."""
    for edits in deletions(task):
        verdict = outcome(task, edits)
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
    progress: bool = True,
) -> dict[str, Any]:
    """Build the fixed suite: one folder per task.

    Args:
        out: Folder to write to.
        seed: Seed; equal seeds give equal bytes.
        solver: Finds the repairs of the reasoning tasks.
        only: Groups to build, e.g. ``["Essential-L1"]``; None: all.
        progress: Show a progress bar.

    Returns:
        Number of tasks, violations and bytes, and the sizes of the groups.

    Raises:
        TaskError: If a group is unknown, or too few tasks of one were found.
    """
    groups = list(only) if only is not None else list(SIZES)
    for group in groups:
        if group not in SIZES:
            raise TaskError("no such group", field="only", value=group, allowed=list(SIZES))
        if group.startswith("Reasoning") and solver is None:
            raise TaskError("reasoning tasks need a solver", field="solver", value=None)
    folder = Path(out)
    sizes: dict[str, int] = {}
    n_violations = n_bytes = 0
    with tqdm(total=sum(SIZES[g] for g in groups), desc="tasks", disable=not progress) as bar:
        for group in groups:
            for task in _group(group, seed, solver):
                place = folder / task_folder(task.id)
                task.save(place)
                n_violations += task.total
                n_bytes += sum(p.stat().st_size for p in place.iterdir())
                sizes[group] = sizes.get(group, 0) + 1
                bar.update()
    return {"tasks": sum(sizes.values()), "violations": n_violations, "bytes": n_bytes, **sizes}


def _group(group: str, seed: int, solver: Solver | None) -> Iterator[DRCTask]:
    """Yield the tasks of a group in order; each has its own random generator, so that any can be drawn alone."""
    classes = _CLASSES.get(group)
    number = draw = 0
    while number < SIZES[group]:
        if classes is not None and draw == len(classes):
            raise TaskError("too few rule classes can be drawn", field=group, value=number, allowed=SIZES[group])
        task = draw_task(group, number + 1, seed, solver, None if classes is None else classes[draw], draw)
        draw += 1
        if task is not None:
            number += 1
            yield task
        elif classes is None:
            raise TaskError("no task was found", field=group, value=number + 1)


def draw_task(
    group: str, number: int, seed: int, solver: Solver | None, target: str | None, draw: int
) -> DRCTask | None:
    """Draw one task of the suite.

    Args:
        group: A key of `edagym.task_assets.drc.suite.SIZES`.
        number: Its number in the group.
        seed: The suite's seed.
        solver: For reasoning tasks.
        target: Rule class, for groups that have them.
        draw: Number of the draw: with group and seed it sets the random generator.

    Returns:
        The task, or None where none was found.
    """
    suite, level = group.split("-")
    rng = np.random.default_rng([seed, list(SIZES).index(group), draw])
    task_id = f"{group}/q{number}"
    if group in _MAKERS:
        return _attempt(rng, _MAKERS[group], task_id, suite.lower(), level, target, seed)
    if solver is None:
        raise TaskError("reasoning tasks need a solver", field="solver", value=None)
    return _residual(rng, task_id, level, seed, solver)


def _attempt(
    rng: np.random.Generator,
    maker: Callable[[np.random.Generator, str | None], tuple[kdb.Layout, InjectionRecord]],
    task_id: str,
    suite: str,
    level: str,
    target: str | None,
    seed: int,
) -> DRCTask | None:
    for _ in range(ATTEMPTS if target is None else ATTEMPTS // 10):
        try:
            layout, record = maker(rng, target)
            metadata = {"generator": "injection", "seed": seed, "rules": list(record.rules)}
            return build_task(task_id, suite, level, layout, record.fix, steps=len(record.fix), metadata=metadata)
        except (TaskError, EditError):
            continue
    return None


def _residual(rng: np.random.Generator, task_id: str, level: str, seed: int, solver: Solver) -> DRCTask | None:
    """Draw a reasoning task: the smallest number of edits that the solver needs is its label and sets its level."""
    for _ in range(ATTEMPTS):
        n = {"L1": 1, "L2": int(rng.integers(2, 4)), "L3": int(rng.integers(3, 6))}[level]
        rows, width = int(rng.integers(2, 4)), int(rng.integers(24, 37))
        try:
            layout, record = generate_residual(rng, n=n, rows=rows, width_cpp=width, top_metal="M5")
            edits = _shortest(DRCLayout(layout), level, solver)
            if edits is None:
                continue
            metadata = {"generator": "residual", "seed": seed, **record.to_dict()}
            return build_task(
                task_id, "reasoning", level, layout, edits, steps=len(edits), metadata=metadata, keep=True
            )
        except (TaskError, EditError):
            continue
    return None


def _shortest(layout: DRCLayout, level: str, solver: Solver) -> tuple[DRCEdit, ...] | None:
    """Return the shortest repair that the solver finds and the level allows, or None."""
    if level == "L3":
        return solver(layout, BUDGETS[level] - 1)
    if level == "L1":
        return solver(layout, 1)
    found = solver(layout, BUDGETS[level] - 2)
    if found is None or len(found) == 1 or solver(layout, 1) is not None:
        return None
    return found


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
        record, edits=tuple(edit for edit, _ in kept), fix=tuple(inverse for _, inverse in reversed(kept))
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
_CLASSES = {"Essential-L1": ATOMIC, "Essential-L2": CONTEXTUAL}


# -- training ------------------------------------------------------------------------------------------------------


def generate_task(rng: np.random.Generator, *, level: str | None = None, target: str | None = None) -> DRCTask:
    """Draw a training task.

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
    number = int(rng.integers(2**63))
    for _ in range(ATTEMPTS):
        drawn = level or ("L1", "L2", "L3")[int(rng.integers(3))]
        block = _block(rng, (1, 2), (14, 20), ("M4", "M5"))
        try:
            if drawn == "L1":
                wanted = target or TRAINING[int(rng.integers(len(TRAINING)))]
                layout, record = isolate(rng, block, wanted, tries=100)
            elif drawn == "L3":
                layout, record = _cluster(rng, block, int(rng.integers(4, 8)), 2)
            elif target:
                layout, record = inject_violation(rng, block, target, tries=400)
            else:
                layout, record = _cluster(rng, block, 1, 1)
            return build_task(
                f"train/{number:016x}",
                "train",
                drawn,
                layout,
                record.fix,
                steps=len(record.fix),
                metadata={"rules": list(record.rules)},
                screen=False,
            )
        except (TaskError, EditError):
            continue
    raise TaskError("no training task was found", field="target", value=target)
