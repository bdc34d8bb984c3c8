"""What every registered DRC id must do: Gymnasium's checks, determinism, pickling, specs, vector modes; the suite."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import warnings

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence

import edagym
from edagym.envs.drc.env import DRCEnv
from edagym.envs.drc.generator import deletions, generate_suite, generate_task, outcome, recount
from edagym.errors import TaskError
from edagym.spaces.drc_edits import drc_edit_from_json
from edagym.task_assets.drc.suite import SIZES, load_task, task_ids
from edagym.verifiers.drc import DRCLayout, full_check, load_table

SUITE_IDS = tuple(i for i in edagym.ENVIRONMENTS if i.startswith("DRC-") and i != "DRC-Train-v0")
IDS = (*SUITE_IDS, "DRC-Train-v0")
every_id = pytest.mark.parametrize("env_id", IDS)


def test_the_published_ids_are_registered():
    assert set(IDS) == {f"DRC-{group}-v0" for group in SIZES} | {"DRC-Train-v0"}
    for group, size in SIZES.items():
        expected = tuple(f"{group}/q{n}" for n in range(1, size + 1))
        assert gym.make(f"DRC-{group}-v0").unwrapped.task_ids == expected
    assert gym.make("DRC-Train-v0").unwrapped.task_ids == ()


@every_id
def test_spec_is_plain_data(env_id):
    spec = gym.spec(env_id)
    assert json.loads(json.dumps(spec.kwargs)) == spec.kwargs
    env = gym.make(env_id)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(env.reset(seed=5), again.reset(seed=5), exact=True)
    assert env.observation_space == gym.make(IDS[0]).observation_space
    assert env.action_space == gym.make(IDS[0]).action_space


@every_id
def test_check_env_without_a_warning(env_id, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gym.make(env_id, render_size=[64, 64])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=env_id == "DRC-Train-v0")
    env.close()


def episode(env: gym.Env, seed: int) -> list:
    """Reset, then sampled actions until the end."""
    out = [env.reset(seed=seed)]
    env.action_space.seed(seed)
    while not env.unwrapped.ended:
        out.append(env.step(env.action_space.sample()))
    return out


@every_id
def test_environments_repeat_themselves(env_id):
    one = gym.make(env_id)
    first = episode(one, 11)
    twin = pickle.loads(pickle.dumps(one))
    assert data_equivalence(episode(twin, 11), first, exact=True)
    assert data_equivalence(one.reset(), twin.reset(), exact=True)


def _first_observations(ids):
    return [gym.make(f"edagym:{i}").reset(seed=1) for i in ids]


def test_spawned_worker():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(_first_observations, (SUITE_IDS,))
    assert data_equivalence(there, _first_observations(SUITE_IDS), exact=True)


def test_train_arguments():
    env = gym.make("DRC-Train-v0", level="L3")
    env.reset(seed=0)
    assert env.unwrapped.task.level == "L3"
    assert env.unwrapped.budget == 16
    task = env.unwrapped.task
    verdict = outcome(task, [drc_edit_from_json(e) for e in task.reference])
    assert verdict.strict_success
    with pytest.raises(TaskError, match="no lasting id"):
        env.reset(options={"task": task.id})
    with pytest.raises(TaskError, match="makes its own tasks"):
        gym.make("DRC-Train-v0", suite="DRC-Essential-L1")
    with pytest.raises(TaskError, match="no such level"):
        gym.make("DRC-Train-v0", level="L9").reset()


# -- the suite ---------------------------------------------------------------------------------------------------------

TASKS = task_ids()


def test_the_suite_is_small():
    tasks = [load_task(i) for i in TASKS]
    assert len(tasks) == 70
    assert max(len(t.gds) for t in tasks) < 2_000_000
    assert sum(len(t.gds) + len(t.golden or b"") for t in tasks) < 8_000_000


@pytest.mark.parametrize("task_id", TASKS)
def test_task(task_id):
    """Counts are reproduced, the reference is a strict success with as many edits as labelled."""
    task = load_task(task_id)
    report = full_check(DRCLayout.from_bytes(task.gds), load_table(task.rules))
    assert report.counts == dict(task.counts)
    assert recount(task) == task
    assert task.steps == len(task.reference) < task.budget
    verdict = outcome(task, [drc_edit_from_json(e) for e in task.reference])
    assert verdict.strict_success
    assert verdict.metrics["vrr"] == 1.0
    nothing = outcome(task, [])
    assert not nothing.paper_success
    if task.suite == "reasoning":
        assert (task.steps == 1) == (task.level == "L1") or task.level == "L3"


@pytest.mark.slow
@pytest.mark.parametrize("task_id", TASKS)
def test_deleting_solves_nothing(task_id):
    task = load_task(task_id)
    for edits in deletions(task):
        verdict = outcome(task, edits)
        assert verdict is None or not verdict.strict_success, edits


@pytest.mark.parametrize("task_id", ["Essential-L1/q1", "Reasoning-L1/q1"])
def test_deleting_solves_nothing_here(task_id):
    task = load_task(task_id)
    tried = list(deletions(task))
    assert tried
    assert not any((v := outcome(task, edits)) is not None and v.strict_success for edits in tried)


def test_generation_is_deterministic(tmp_path):
    import numpy as np

    one, two = (generate_task(np.random.default_rng(4), level="L1") for _ in range(2))
    assert one == two
    with pytest.raises(TaskError, match="no such group"):
        generate_suite(tmp_path, only=["Essential-L9"])
    with pytest.raises(TaskError, match="need a solver"):
        generate_suite(tmp_path, only=["Reasoning-L1"])


def test_unbuilt_suite(monkeypatch):
    from edagym.task_assets.drc import suite

    monkeypatch.setattr(suite, "task_ids", lambda name: ())
    with pytest.raises(TaskError, match="not been built"):
        DRCEnv(suite="DRC-All")
