"""The search policy of the DRC family: small layouts, deterministic repairs, what it keeps."""

from __future__ import annotations

import klayout.db as kdb
import numpy as np
import pytest

from edagym.baselines.search.drc_evaluate import evaluate_search, summarise_search, summary_text
from edagym.baselines.search.drc_moves import RuleLimits, candidates
from edagym.baselines.search.drc_repair import DRCSearchPolicy, SearchSettings, Workbench, repair
from edagym.envs.drc.edits import LayoutEditor
from edagym.envs.drc.reporting import report_items
from edagym.spaces.actions import Command
from edagym.spaces.drc_edits import ChangeShape, Delete, drc_edit_from_json
from edagym.task_assets.drc.task import DRCTask
from edagym.verifiers.drc import DRCLayout, full_check, load_table

Shapes = dict[str, list[tuple[int, int, int, int]]]

# Boxes in nm. Each violates one rule of a metal; none can be repaired by the first move that comes to mind alone.
NARROW: Shapes = {"M2": [(0, 0, 400, 9)]}
CLOSE: Shapes = {"M6": [(0, 0, 400, 32), (0, 52, 400, 84)]}
FAR_PAIR: Shapes = {"M2": [(0, 0, 400, 9), (5000, 0, 5400, 9)]}


def _layout(shapes: Shapes) -> DRCLayout:
    table = load_table()
    layout = kdb.Layout()
    layout.dbu = 0.001
    top = layout.create_cell("top")
    for name, boxes in shapes.items():
        entry = table.layers[name]
        for box in boxes:
            top.shapes(layout.layer(entry.layer, entry.datatype)).insert(kdb.Box(*box))
    return DRCLayout(layout)


def _task(shapes: Shapes, level: str = "L1") -> DRCTask:
    layout = _layout(shapes)
    report = full_check(layout, load_table())
    return DRCTask(
        id=f"Essential-{level}/q1",
        suite="essential",
        level=level,
        gds=layout.to_bytes(),
        top="top",
        counts=report.counts,
        violations=report_items(report),
    )


@pytest.mark.parametrize("shapes", [NARROW, CLOSE, FAR_PAIR])
def test_repairs_are_strict_and_within_budget(shapes: Shapes) -> None:
    (record,) = evaluate_search([_task(shapes)], progress=False)
    assert record["before"] > 0
    assert record["after"] == 0
    assert record["strict_success"], record["failed"]
    assert record["actions"] <= record["budget"]


def test_claimed_markers_are_those_of_a_full_check() -> None:
    layout = _layout(FAR_PAIR)
    bench = Workbench(layout, load_table())
    for budget in (1, 2):
        found = repair(bench, budget)
        repaired = layout.copy()
        editor = LayoutEditor(repaired, load_table())
        for edit in found.edits:
            editor.apply(edit)
        assert len(found.edits) <= budget
        assert full_check(repaired, load_table()).total == found.after
    assert found.after == 0


def test_search_leaves_the_layout_alone() -> None:
    layout = _layout(NARROW)
    before = layout.to_bytes()
    repair(Workbench(layout, load_table()), 3)
    assert layout.to_bytes() == before


def test_equal_seeds_give_equal_repairs() -> None:
    runs = [
        repair(Workbench(_layout(CLOSE), load_table()), 3, rng=np.random.default_rng(seed)).edits
        for seed in (1, 1, 2, 3)
    ]
    assert runs[0] == runs[1]
    assert all(runs)


def test_only_duplicates_are_deleted() -> None:
    table = load_table()
    for shapes, wanted in ((NARROW, False), ({"M2": NARROW["M2"] * 2}, True)):
        layout = _layout(shapes)
        markers = list(full_check(layout, table).markers)
        moves = candidates(layout, table, RuleLimits(table), markers)
        deletes = [c for c in moves if isinstance(c.edit, ChangeShape) and isinstance(c.edit.change, Delete)]
        assert bool(deletes) == wanted


def test_an_exhausted_search_gives_up() -> None:
    found = repair(Workbench(_layout(NARROW), load_table()), 3, SearchSettings(evaluations=0))
    assert (found.edits, found.after) == ((), found.before)


def test_policy_acts_on_what_an_attempt_shows() -> None:
    task = _task(CLOSE)

    class Attempt:
        task_view = task.view()
        layout = DRCLayout.from_bytes(task.gds)
        budget_left = task.budget
        rng = np.random.default_rng(0)

    policy = DRCSearchPolicy()
    policy.bind(Attempt())
    actions = []
    while not isinstance(action := policy.act({}, {}), Command):
        actions.append(action)
    assert 1 <= len(actions) < task.budget
    assert (action, policy.act({}, {})) == (Command.VERIFY, Command.SUBMIT)


def test_summary_counts_tasks_not_attempts() -> None:
    base = {"suite": "essential", "level": "L1", "strict_success": False, "vrr": 0.5}
    records = [
        {**base, "task_id": "a", "paper_success": True},
        {**base, "task_id": "a", "paper_success": True},
        {**base, "task_id": "b", "paper_success": False},
    ]
    row = next(r for r in summarise_search(records) if r["level"] == "L1")
    assert (row["tasks"], row["attempts"]) == (2, 3)
    assert row["sr_paper"]["mean"] == 0.5
    assert row["sr_paper"]["low"] <= 0.5 <= row["sr_paper"]["high"]
    assert "50.0" in summary_text([row])


def test_records_hold_replayable_edits() -> None:
    task = _task(NARROW)
    (record,) = evaluate_search([task], progress=False)
    layout = DRCLayout.from_bytes(task.gds)
    editor = LayoutEditor(layout, load_table())
    for edit in record["edits"]:
        editor.apply(drc_edit_from_json(edit))
    assert full_check(layout, load_table()).clean
