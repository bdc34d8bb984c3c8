"""The search policy of the DRC family: small layouts, deterministic repairs, what it keeps."""

from __future__ import annotations

import dataclasses

import klayout.db as kdb
import numpy as np
import pytest

from edagym.baselines.policies import Attempt
from edagym.baselines.rollout import rollout
from edagym.baselines.search.drc_moves import RuleLimits, candidates
from edagym.baselines.search.drc_repair import DRCSearchPolicy, SearchSettings, Workbench, repair
from edagym.envs.drc.edits import LayoutEditor
from edagym.envs.drc.env import DRCEnv
from edagym.envs.drc.reporting import report_items
from edagym.errors import PolicyError, TaskError
from edagym.spaces.actions import Command
from edagym.spaces.drc_edits import ChangeShape, Delete
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
    (record,) = rollout(DRCEnv(tasks=[_task(shapes)]), "search", progress=False)
    assert record["metrics"]["initial_violations"] > 0
    assert record["metrics"]["violations"] == 0
    assert record["strict_success"], record["failed"]
    assert record["charged"] <= record["budget"]
    assert (record["refused"], record["privileged"]) == (0, False)


@pytest.mark.parametrize("budget", [2, 3])
def test_the_budget_holds(budget: int) -> None:
    env = DRCEnv(tasks=[_task(FAR_PAIR)], budget=budget)
    (record,) = rollout(env, "search", progress=False)
    assert record["charged"] == budget
    # Two places, one edit each: with a check there is time for one, or for both.
    assert record["strict_success"] == (budget == 3)
    assert record["metrics"]["vrr"] == (1.0 if budget == 3 else 0.5)


def test_suite_tasks_are_solved() -> None:
    records = rollout("DRC-Essential-L1", "search", tasks=["Essential-L1/q1", "Essential-L1/q2"], progress=False)
    assert [r["strict_success"] for r in records] == [True, True]


def test_hidden_parts_of_a_task_have_no_effect() -> None:
    task = _task(CLOSE)
    other = dataclasses.replace(
        task,
        golden=_layout(NARROW).to_bytes(),
        reference=({"op": "unreadable"},),
        markers=(("M6.S.1", "edge", ((0, 0, 1, 1),), False, 7),),
        steps=3,
        metadata={"hint": "none"},
    )
    found = []
    for t in (task, other):
        env = DRCEnv(tasks=[t])
        env.reset()
        attempt = Attempt(env, seed=4)
        policy = DRCSearchPolicy()
        policy.bind(attempt)
        with pytest.raises(PolicyError):
            _ = attempt.task
        found.append([policy.act({}, {}) for _ in range(2)])
    assert found[0] == found[1]


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
    found = repair(Workbench(_layout(NARROW), load_table()), 3, SearchSettings(work=0))
    assert (found.edits, found.after) == ((), found.before)


def test_policy_acts_on_what_an_attempt_shows() -> None:
    task = _task(CLOSE)

    class Attempt:
        task_view = task.view()
        layout = DRCLayout.from_bytes(task.gds)
        budget_left = task.budget

    policy = DRCSearchPolicy()
    policy.bind(Attempt())
    actions = []
    while not isinstance(action := policy.act({}, {}), Command):
        actions.append(action)
    assert 1 <= len(actions) < task.budget
    assert (action, policy.act({}, {})) == (Command.VERIFY, Command.SUBMIT)


def test_the_search_is_for_drc_tasks() -> None:
    with pytest.raises(TaskError, match="DRC"):
        rollout("FET-L1", "search", progress=False)
