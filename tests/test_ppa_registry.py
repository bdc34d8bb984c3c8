"""Every registered PPA id: spec, spaces, and, where its tasks are built, Gymnasium's checks and determinism."""

from __future__ import annotations

import json
import warnings

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from ppa_cases import FormulaFlow, make_task, same_function

import edagym
from edagym.cli.listing import id_table
from edagym.envs.ppa.reference import edited_design, outcome, reference_edits
from edagym.envs.ppa.runner import FlowRunner
from edagym.errors import EditError, TaskError
from edagym.spaces.ppa_edits import SetKnob
from edagym.task_assets.ppa.suite import SIZES, load_task, task_ids
from edagym.task_assets.ppa.sweep import FOLDER

IDS = tuple(i for i in edagym.ENVIRONMENTS if i.startswith("PPA-"))
every_id = pytest.mark.parametrize("env_id", IDS)


def is_built(env_id: str) -> bool:
    """Whether an id has tasks in this checkout."""
    if env_id == "PPA-Train-v0":
        return any(FOLDER.glob("*.json"))
    return bool(task_ids(env_id.removesuffix("-v0")))


def test_the_published_ids_are_registered():
    assert set(IDS) == {f"PPA-{group}-v0" for group in SIZES} | {"PPA-Train-v0"}
    assert {row.id for row in id_table("PPA")} == set(IDS)


@every_id
def test_specs(env_id):
    spec = gym.spec(env_id)
    assert json.loads(json.dumps(spec.kwargs)) == spec.kwargs
    if not is_built(env_id):
        with pytest.raises(TaskError, match=r"not been built|no sweep tables"):
            gym.make(env_id)
        return
    env = gym.make(env_id)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(env.reset(seed=5), again.reset(seed=5), exact=True)
    group = env_id.removeprefix("PPA-").removesuffix("-v0")
    if group in SIZES:
        assert env.unwrapped.task_ids == tuple(f"{group}/q{n}" for n in range(1, SIZES[group] + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id, render_size=[64, 64]).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("task_id", task_ids())
def test_tasks_of_the_suite(task_id):
    task = load_task(task_id)
    assert task.to_improve
    assert task.reference
    assert all(task.reference_values[m] <= t for m, t in task.targets.items())
    assert edited_design(task, reference_edits(task)) != task.design


def test_outcomes_outside_an_episode():
    task, runner = make_task(), FlowRunner(FormulaFlow(), same_function)
    assert outcome(task, task.reference, runner).strict_success
    assert outcome(task, reference_edits(task), runner).strict_success
    assert not outcome(task, [], runner).paper_success
    failed = outcome(task, [SetKnob("CORE_UTILIZATION", "95")], runner)
    assert "too small" in failed.failed()[0].message
    with pytest.raises(EditError, match="locked"):
        outcome(task, [SetKnob("PLATFORM", "x")], runner)
    with pytest.raises(TaskError, match="no reference"):
        reference_edits(make_task(reference=()))
    with pytest.raises(TaskError, match="not an edit"):
        edited_design(task, [{"op": "report"}])
