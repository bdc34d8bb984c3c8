"""What every registered DRC id must do: Gymnasium's checks, determinism, pickling, specs, vector modes; the suite."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence

import edagym
from edagym.envs.drc.env import DRCEnv
from edagym.envs.drc.generator import deletions, draw_injection, draw_residual, generate_suite, generate_task, recount
from edagym.envs.drc.inject import family
from edagym.envs.drc.labels import SETS, one_edit_repairs, outcome
from edagym.envs.drc.repairs import recorded_repairs
from edagym.envs.drc.training import MAX_WIDTH_CPP, outline, suite_outlines
from edagym.errors import TaskError
from edagym.spaces.actions import Command
from edagym.spaces.drc_edits import drc_edit_from_json
from edagym.task_assets.drc.suite import SIZES, load_task, task_folder, task_ids
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
        there = pool.apply(_first_observations, (IDS,))
    assert data_equivalence(there, _first_observations(IDS), exact=True)


@every_id
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors(env_id, mode):
    envs = gym.make_vec(env_id, num_envs=2, vectorization_mode=mode, budget=2)
    try:
        observation, info = envs.reset(seed=1)
        assert observation in envs.observation_space
        assert (info["n_violations"] > 0).all()
        envs.action_space.seed(1)
        for _ in range(3):
            observation, _, _, _, info = envs.step(envs.action_space.sample())
        assert observation in envs.observation_space
    finally:
        envs.close()


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
SUITE = Path(__file__).parent.parent / "task_assets" / "drc" / "suite"
REBUILT = (
    "Essential-L1/q15",
    "Essential-L2/q1",
    "Essential-L3/q1",
    "Reasoning-L1/q2",
    "Reasoning-L2/q1",
    "Reasoning-L3/q1",
)


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
    assert task.budget == (16 if task.level == "L3" else 8)
    verdict = outcome(task, [drc_edit_from_json(e) for e in task.reference])
    assert verdict.strict_success
    assert verdict.metrics["vrr"] == 1.0
    nothing = outcome(task, [])
    assert not nothing.paper_success


@pytest.mark.parametrize("task_id", ["Essential-L1/q1", "Essential-L3/q1", "Reasoning-L2/q1"])
def test_an_episode_ends_as_the_outcome_says(task_id):
    task = load_task(task_id)
    env = DRCEnv(tasks=[task])
    env.reset()
    for edit in task.reference:
        assert env.step_any(edit)[4]["edit_error"] == ""
    _, reward, terminated, _, info = env.step_edit(Command.VERIFY)
    assert (reward, terminated, info["is_success"], info["ended"]) == (1.0, True, True, "success")


@pytest.mark.parametrize("task_id", TASKS)
def test_label(task_id):
    task = load_task(task_id)
    label = task.metadata["label"]
    assert label in SETS
    assert (label == "exact") == (task.steps == 1)
    if task.suite == "reasoning":
        assert label == {"L1": "exact", "L2": "searched", "L3": "found"}[task.level]
        assert (label == "searched") == (task.metadata.get("one_edit_tried", 0) > 0)
    elif task.level != "L3":
        assert label == "exact"
    else:
        assert 5 <= task.steps == len(task.metadata["rules"]) <= 15


@pytest.mark.slow
@pytest.mark.parametrize("task_id", task_ids("DRC-Reasoning-L2"))
def test_no_single_edit_is_enough(task_id):
    task = load_task(task_id)
    trial = one_edit_repairs(task)
    assert trial.repairs == ()
    assert (trial.tried, trial.clean) == (task.metadata["one_edit_tried"], task.metadata["one_edit_clean"])


def test_single_edits_find_the_repair_of_a_task_of_one_edit():
    assert one_edit_repairs(load_task("Essential-L1/q15")).repairs


def test_what_the_suite_covers():
    """As in the paper: a case per layer, several families; chains of 5 to 15; faults of different kinds."""
    atomic = [load_task(i).metadata["rules"][0] for i in task_ids("DRC-Essential-L1")]
    assert len({rule.split(".")[0] for rule in atomic}) >= 14
    assert len(set(atomic)) == 20
    assert {family(rule) for rule in atomic} == {"width", "spacing", "enclosure", "extension", "shape"}
    contextual = [load_task(i).metadata["rules"][0] for i in task_ids("DRC-Essential-L2")]
    assert len(set(contextual)) == 10
    pieces = {p["kind"] for i in task_ids("DRC-Reasoning") for p in load_task(i).metadata["pieces"]}
    assert len(pieces) >= 8
    single = {p["kind"] for i in task_ids("DRC-Reasoning-L1") for p in load_task(i).metadata["pieces"]}
    assert len(single) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("task_id", TASKS)
def test_deleting_solves_nothing(task_id):
    task = load_task(task_id)
    for edits in deletions(task):
        verdict = outcome(task, edits)
        assert verdict is None or not verdict.strict_success, edits


@pytest.mark.parametrize("task_id", ["Essential-L1/q1", "Essential-L2/q3", "Reasoning-L1/q1"])
def test_deleting_solves_nothing_here(task_id):
    task = load_task(task_id)
    tried = list(deletions(task))
    assert tried
    assert not any((v := outcome(task, edits)) is not None and v.strict_success for edits in tried)


@pytest.mark.parametrize("task_id", REBUILT)
def test_a_task_is_rebuilt_to_the_byte(task_id, tmp_path):
    known = recorded_repairs(7).get(task_id)
    task = draw_injection(task_id, 7) if known is None else draw_residual(task_id, 7, known=known)[0]
    task.save(tmp_path)
    assert _files(tmp_path) == _files(SUITE / task_folder(task_id))


@pytest.mark.slow
def test_the_suite_is_rebuilt_to_the_byte(tmp_path):
    report = generate_suite(tmp_path, 7, progress=False)
    assert report["tasks"] == 70
    assert _files(tmp_path) == _files(SUITE)


def _files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["L1", "L2", "L3"])
def test_training_tasks_hold_what_they_say(level):
    """Markers and counts are those of a full check; the reference is a strict success; nothing is of the suite."""
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(3):
        task = generate_task(rng, level=level)
        layout = DRCLayout.from_bytes(task.gds)
        assert recount(task) == task
        assert outcome(task, [drc_edit_from_json(e) for e in task.reference]).strict_success
        assert outline(layout.layout) not in suite_outlines()
        assert layout.top.dbbox().width() < 0.054 * (MAX_WIDTH_CPP + 3)
        seen.add(task.gds)
    assert len(seen) == 3
    layouts = [DRCLayout.from_bytes(load_task(i).gds) for i in TASKS[20:]]
    assert min(layout.top.dbbox().width() for layout in layouts) > 0.054 * (MAX_WIDTH_CPP + 3)


def test_generation_is_deterministic(tmp_path):
    one, two = (generate_task(np.random.default_rng(4), level="L1") for _ in range(2))
    assert one == two
    with pytest.raises(TaskError, match="no such group"):
        generate_suite(tmp_path, only=["Essential-L9"])
    with pytest.raises(TaskError, match="need a solver"):
        generate_suite(tmp_path, 8, only=["Reasoning-L1"])


def test_unbuilt_suite(monkeypatch):
    from edagym.task_assets.drc import suite

    monkeypatch.setattr(suite, "task_ids", lambda name: ())
    with pytest.raises(TaskError, match="not been built"):
        DRCEnv(suite="DRC-All")
