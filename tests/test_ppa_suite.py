"""The shipped PPA suite: counts, starts, references, greedy searches, what agents may see."""

from __future__ import annotations

import json
from functools import cache

import pytest
from ppa_engine import need_engine

from edagym.envs.ppa.flow.embedded import EmbeddedFlow
from edagym.envs.ppa.generator import MIN_GAP, check_tasks, greedy_outcomes
from edagym.envs.ppa.prompt import render_prompt
from edagym.envs.ppa.runner import FlowRunner
from edagym.envs.ppa.training import SLACK, apply_settings, distance, pareto_front
from edagym.spaces.ppa_actions import PPAActionSpace
from edagym.task_assets.ppa.suite import SIZES, load_task, task_folder, task_ids
from edagym.task_assets.ppa.sweep import FOLDER, load_sweeps
from edagym.task_assets.ppa.task import METRICS

need_engine()
IDS = task_ids()
MULTI = task_ids("PPA-Multi")
QUICK = ("Performance-L1/q4", "Performance-L3/q2", "Power-L2/q3", "Area-L1/q2", "Multi-L1/q3", "Multi-L2/q6")


@cache
def runner() -> FlowRunner:
    return FlowRunner(EmbeddedFlow())


@cache
def located(task_id):
    """The table, start and reference that a task was made from."""
    task = load_task(task_id)
    table = next(s for s in load_sweeps() if s.name == task.metadata["design"])
    start = next(p for p in table.points if apply_settings(table.design, p.edits) == task.design)
    reference = next(p for p in table.points if p.values == task.reference_values)
    return table, start, reference


def test_counts():
    assert len(IDS) == 75
    for group, size in SIZES.items():
        assert task_ids(f"PPA-{group}") == tuple(f"{group}/q{n}" for n in range(1, size + 1))


def test_size():
    files = [p for p in FOLDER.parent.joinpath("suite").rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 3_000_000


@pytest.mark.parametrize("task_id", IDS)
def test_starts_miss_and_references_reach(task_id):
    task = load_task(task_id)
    assert task.backend == "embedded"
    assert task.engine == EmbeddedFlow().engine
    assert task.to_improve == tuple(task.targets)
    for metric, target in task.targets.items():
        assert task.initial[metric] / target - 1 >= MIN_GAP - 1e-4
        assert task.reference_values[metric] <= target <= task.reference_values[metric] * (1 + SLACK + 1e-4)
    assert len(task.reference) >= 1
    assert task.initial_metrics
    assert set(task.facts) == {"logs/6_report.json", "reports/6_finish.rpt"}


@pytest.mark.parametrize("task_id", [i for i in IDS if i[-5:-3] in ("L1", "L2") and i not in MULTI])
def test_one_metric_tasks_move_as_many_knobs_as_their_level_says(task_id):
    task = load_task(task_id)
    table, start, reference = located(task_id)
    n = distance(table.design, start, reference)
    assert n == 1 if task.level == "L1" else 2 <= n <= 3
    (metric,) = task.targets
    assert reference.values[metric] == min(p.values[metric] for p in table.points if p.values)


@pytest.mark.parametrize("task_id", task_ids("PPA-Performance-L3"))
def test_rewrites_go_beyond_what_knobs_reach(task_id):
    task = load_task(task_id)
    (target,) = task.targets.values()
    assert task.metadata["best_by_knobs"] / target - 1 >= MIN_GAP - 1e-4
    assert task.reference[0]["op"] == "edit_file"


@pytest.mark.parametrize("task_id", MULTI)
def test_trade_off_targets_are_on_the_front_and_starts_are_not(task_id):
    task = load_task(task_id)
    table, start, reference = located(task_id)
    front = pareto_front(table.points, tuple(task.targets))
    assert reference.values in [p.values for p in front]
    assert start not in front
    assert greedy_outcomes(table, start, reference, tuple(task.targets)) == task.metadata["greedy"]


def test_every_pair_of_metrics_is_asked_for():
    pairs = [tuple(load_task(i).targets) for i in task_ids("PPA-Multi-L1")]
    assert sorted(pairs.count(p) for p in set(pairs)) == [6, 7, 7]
    assert all(tuple(load_task(i).targets) == METRICS for i in task_ids("PPA-Multi-L2"))


def test_greedy_searches_fail_on_most_trade_offs():
    outcomes = [load_task(i).metadata["greedy"] for i in MULTI]
    assert sum(not o["single_knob"] for o in outcomes) == len(MULTI)
    assert sum(not o["single_metric"] for o in outcomes) >= 0.8 * len(MULTI)
    assert sum(not o["steepest"] for o in outcomes) >= 0.7 * len(MULTI)


@pytest.mark.parametrize("task_id", IDS)
def test_nothing_hidden_is_shown(task_id):
    task = load_task(task_id)
    folder = FOLDER.parent / "suite" / task_folder(task_id)
    prompt = (folder / "prompt.txt").read_text()
    assert prompt == render_prompt(task.view(), PPAActionSpace().describe())
    shown = prompt + repr(task.view())
    assert not {"reference", "metadata", "reference_values"} & set(vars(task.view()))
    assert "solved_by_table_share" not in shown
    for edit in task.reference:
        if edit["op"] == "edit_file":
            assert edit["new"] not in shown
        assert json.dumps(dict(edit)) not in shown
    assert json.loads((folder / "info.json").read_text()) == task.info()


@pytest.mark.parametrize("task_id", [i for i in QUICK if i in IDS])
def test_some_references_run(task_id):
    assert check_tasks([load_task(task_id)], runner(), progress=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("task_id", IDS)
def test_every_reference_runs(task_id):
    assert check_tasks([load_task(task_id)], runner(), progress=False) == []
