"""What is shown about the number of edits that a task needs.

A task with violations needs at least one edit, so that a repair of one edit is a shortest one. That a task needs more
than one is shown by trying: `one_edit_repairs` makes every single edit of a stated set and verifies what comes out
clean. No such set holds every edit (a shape may be replaced by any outline), so the label says what was tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import klayout.db as kdb

from edagym.envs.drc.edits import LayoutEditor, hull
from edagym.envs.drc.probe import subtable
from edagym.envs.drc.state import LayoutState, PreparedTask
from edagym.errors import EditError, ToolError
from edagym.spaces.drc_edits import (
    ORIENTATIONS,
    AddShape,
    ChangeShape,
    Delete,
    DRCEdit,
    Move,
    MoveCell,
    MoveEdge,
    ShapeRef,
    box_points,
)
from edagym.task_assets.drc.task import DRCTask
from edagym.verifiers.drc import DRCLayout, MarkerStore, RuleTable, load_table
from edagym.verifiers.drc.incremental import IncrementalChecker
from edagym.verifiers.verdict import Verdict

NEAR_NM = 40
"""A shape this near to a violation may be its cause, nm."""
REACH_NM = 36
"""Edges, shapes and instances are moved by every whole nm up to so many."""

SETS = {
    "exact": "no repair of fewer edits is possible",
    "searched": (
        "no repair of one edit is among these: for every shape on a layer of a "
        f"violated rule within {NEAR_NM} nm of a violation, each edge and the whole shape moved along its normals, its "
        f"placement likewise, a rectangle added at each edge, all by every whole nm up to {REACH_NM}, and its deletion"
    ),
    "found": "the length of the repair that is recorded; shorter ones are not ruled out",
}
"""What a step count claims, by the kind of label in a task's metadata."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of making every single edit.

    Attributes:
        tried: Edits made; refused ones are not counted.
        clean: Edits after which no violation is left.
        repairs: Those of them that are strict successes.
    """

    tried: int
    clean: int
    repairs: tuple[DRCEdit, ...]


def outcome(task: DRCTask, edits: Sequence[DRCEdit], prepared: PreparedTask | None = None) -> Verdict | None:
    """Return the verdict on a task's layout after edits; None where an edit is refused or the engine fails.

    Args:
        task: The task.
        edits: The edits.
        prepared: The same task, prepared before.
    """
    state = LayoutState(PreparedTask(task) if prepared is None else prepared)
    try:
        for edit in edits:
            state.apply(edit)
        report = state.report()
        return state.prepared.verifier.verify(report, strict=report.clean)
    except (EditError, ToolError):
        return None


def one_edit_repairs(task: DRCTask, first: bool = True) -> Trial:
    """Make every single edit of the set that `SETS` describes.

    Args:
        task: The task.
        first: Stop at the first strict repair.
    """
    layout = DRCLayout.from_bytes(task.gds, task.id)
    table = load_table(task.rules)
    violated = subtable(table, frozenset(task.counts))
    editor = LayoutEditor(layout, table)
    checker = IncrementalChecker(layout, violated)
    before = checker.markers.copy()
    prepared = PreparedTask(task)
    tried = clean = 0
    repairs: list[DRCEdit] = []
    for edit in dict.fromkeys(single_edits(layout, table, before)):
        try:
            applied = editor.apply(edit)
        except EditError:
            continue
        tried += 1
        checker.recheck(applied.boxes, applied.layers)
        left = len(checker.markers)
        editor.undo()
        checker.markers = before.copy()
        if left:
            continue
        verdict = outcome(task, (edit,), prepared)
        if verdict is not None and verdict.paper_success:
            clean += 1
            if verdict.strict_success:
                repairs.append(edit)
                if first:
                    break
    return Trial(tried, clean, tuple(repairs))


def single_edits(layout: DRCLayout, table: RuleTable, markers: MarkerStore) -> Iterator[DRCEdit]:
    """Yield the edits of the set; some twice, some of them refused.

    Args:
        layout: The layout; it may change while edits are drawn, if it is put back each time.
        table: The rules.
        markers: Its markers.
    """
    nm = round(0.001 / layout.dbu)
    steps = [d * nm * sign for d in range(1, REACH_NM + 1) for sign in (1, -1)]
    for layer, polygon, trans, instance in list(_causes(layout, table, markers, NEAR_NM * nm)):
        points = hull(polygon)
        cell = "" if instance is None else instance.cell.name
        shape = ShapeRef(points=points)
        yield ChangeShape(layer, shape, Delete(), cell)
        for index, (a, b) in enumerate(zip(points, (*points[1:], points[0]))):
            for d in steps:
                yield ChangeShape(layer, shape, MoveEdge(index, d), cell)
                if d > 0 and cell:
                    strip = trans * _strip(a, b, d)
                    yield AddShape(layer, box_points((strip.left, strip.bottom, strip.right, strip.top)))
        for d in steps:
            for dx, dy in ((d, 0), (0, d)):
                yield ChangeShape(layer, shape, Move(dx, dy), cell)
                if instance is not None:
                    at = instance.trans.disp
                    yield MoveCell(cell, (at.x, at.y), (dx, dy), ORIENTATIONS[instance.trans.rot])


def _causes(
    layout: DRCLayout, table: RuleTable, markers: MarkerStore, reach: int
) -> Iterator[tuple[str, kdb.Polygon, kdb.Trans, kdb.Instance | None]]:
    """Yield (layer, outline in its cell, placement, instance) of the shapes near markers that their rules read."""
    found: dict[tuple[str, str, str], tuple[str, kdb.Polygon, kdb.Trans, kdb.Instance | None]] = {}
    for marker in markers:
        window = kdb.Box(*marker.bbox).enlarged(reach, reach)
        for layer in sorted(table.rules[marker.rule].layers):
            entry = table.layers[layer]
            index = layout.layer_index(entry.layer, entry.datatype)
            if index is None:
                continue
            it = layout.top.begin_shapes_rec_touching(index, window)
            it.shape_flags = kdb.Shapes.SRegions
            while not it.at_end():
                polygon, path = it.shape().polygon, it.path()
                if not polygon.holes() and len(path) <= 1:
                    instance = path[0].inst() if path else None
                    trans = kdb.Trans() if instance is None else instance.trans
                    found.setdefault((layer, str(trans), str(polygon)), (layer, polygon.dup(), trans.dup(), instance))
                it.next()
    yield from (found[key] for key in sorted(found))


def _strip(a: tuple[int, int], b: tuple[int, int], d: int) -> kdb.Box:
    """Return the box between an edge of a clockwise outline and the edge moved outwards by `d`."""
    sx, sy = (b[0] > a[0]) - (b[0] < a[0]), (b[1] > a[1]) - (b[1] < a[1])
    edge = kdb.Edge(*a, *b)
    return edge.bbox() + edge.moved(-sy * d, sx * d).bbox()
