"""Agents with shared parameters: the vector environment and training on it."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest
from fet_cases import box, make_task
from gymnasium.vector.utils import concatenate, create_empty_array

pytest.importorskip("pettingzoo", reason="PettingZoo is in the extra `rl`")
pytest.importorskip("sb3_contrib")

from edagym.baselines.multiagent import run_team
from edagym.baselines.rl.checkpoint import checkpoints
from edagym.baselines.rl.fet_stacks import fet_macro, fet_rectangle
from edagym.baselines.rl.multiagent import FlakeVecEnv, Team, compare_team_with_random, make_team, random_choice
from edagym.baselines.rl.policy import RLPolicy
from edagym.baselines.rl.presets import load_preset
from edagym.baselines.rl.trainer import train
from edagym.envs.multiagent.fet_parallel import FETParallelEnv
from edagym.errors import TaskError
from edagym.wrappers.fet_macro import COMPONENTS, FOCUS, PLACE, SELECT, SUBMIT, UNDO, VERIFY

FLAKES = [(box(0, 0, 20, 6), ()), (box(0, 20, 20, 26), ())]
TASK = make_task(FLAKES, (1, 1))
GOOD = {"advance": 13, "gate_extra": 1, "gap_source": 4, "gap_drain": 4, "contact_share": 3, "lateral": 3, "tilt": 2}
BAD = {**GOOD, "advance": 8}  # where the curve turns into the corner
SMALL = [
    "total_steps=256",
    "checkpoint_every=128",
    "n_envs=2",
    "hyperparameters.n_steps=16",
    "hyperparameters.batch_size=32",
    "hyperparameters.n_epochs=1",
    "hyperparameters.policy_kwargs.net_arch.pi=[8]",
    "hyperparameters.policy_kwargs.net_arch.vf=[8]",
    "env_kwargs.pool=4",
    "env_kwargs.fresh=0",
]


def team(**kwargs: Any) -> Team:
    found = Team(FETParallelEnv(tasks=[TASK], reward="flake", **kwargs), fet_macro, 2)
    found.reset(seed=0)
    return found


def macro(op: int, **levels: int) -> np.ndarray:
    return np.array([op if name == "op" else levels.get(name, 0) for name in COMPONENTS])


def allowed_ops(found: Team, k: int) -> list[int]:
    return np.flatnonzero(found.seats[k].action_masks()[: COMPONENTS["op"]]).tolist()


def placed(first: dict[str, int], second: dict[str, int]) -> Team:
    """A team whose agents have drawn a transistor each."""
    t = team()
    for op in (FOCUS, SELECT):  # free, so that nothing is run
        _, rewards, *_, infos = t.step([macro(op)] * 2)
        assert (rewards, infos[0]["charged"]) == ([0.0, 0.0], 0)
    t.step([macro(PLACE, **first), macro(PLACE, **second)])
    return t


def test_the_seats_draw_on_one_layout_and_are_rewarded_apart():
    t = placed(GOOD, BAD)
    assert len(t.env.unwrapped_env.layout.shapes("gate")) == 2
    _, rewards, terminated, _, infos = t.step([macro(SUBMIT)] * 2)
    assert terminated
    assert (infos[0]["charged"], infos[0]["ended"], infos[0]["is_success"]) == (6, "submit", False)
    assert rewards == [1.0, 0.0]


def test_who_has_finished_waits_for_the_others():
    t = placed(GOOD, BAD)
    assert VERIFY in allowed_ops(t, 0)
    _, _, over, _, infos = t.step([macro(SUBMIT), macro(VERIFY)])
    assert (over, infos[0]["charged"]) == (False, 7)
    # The first agent cannot do anything any more, whatever its slot's action is; the second hears of its own flake.
    assert t.seats[0].action_masks().sum() == len(COMPONENTS)
    assert t.seats[1].plain.known[1]["verdict"]["strict"] == 0
    assert t.seats[0].plain.known[1]["verdict"]["strict"] == 1
    _, _, over, _, infos = t.step([macro(VERIFY), macro(UNDO, undo_region=0)])
    assert not over
    assert infos[0]["edit_error"] == ""
    for op in (FOCUS, SELECT, PLACE):
        *_, over, _, _ = t.step([macro(VERIFY), macro(op, **GOOD)])
        assert not over
    _, rewards, over, _, infos = t.step([macro(VERIFY), macro(VERIFY)])
    assert over
    assert rewards == [1.0, 1.0]
    assert infos[0]["ended"] == "success"


def test_vector_environment():
    venv = FlakeVecEnv([make_team(load_preset("fet-team", SMALL)) for _ in range(2)])
    assert venv.num_envs == 4
    assert venv.has_attr("action_masks")
    assert not venv.has_attr("training_state")
    rng = np.random.default_rng(0)
    episodes = 0
    for _ in range(2):
        venv.seed(5)
        first = venv.reset()
        assert first.shape == (4, *venv.observation_space.shape)
    assert (venv.reset() != first).any()
    for _ in range(30):
        masks = venv.env_method("action_masks")
        actions = np.stack([random_choice(venv.action_space, mask, rng) for mask in masks])
        observations, rewards, dones, infos = venv.step(actions)
        assert all(row in venv.observation_space for row in observations)
        assert dones[0] == dones[1]
        assert dones[2] == dones[3]
        for done, info, reward in zip(dones, infos, rewards):
            assert ("terminal_observation" in info) == done
            assert done or reward == 0
        episodes += int(dones.sum())
    assert episodes
    venv.close()


def test_one_network_for_all_agents_trains_and_resumes(tmp_path):
    preset = load_preset("fet-team", [*SMALL, "eval_episodes=3"])
    summary = train(preset, tmp_path / "run", progress=False)
    assert summary["steps"] == 256
    assert summary["success_rate"] is not None
    result = summary["evaluation"]
    for part in (result, result["flakes"]):
        assert part["policy"]["low"] <= part["policy"]["rate"] <= part["policy"]["high"]
    assert compare_team_with_random(preset, tmp_path / "run", 3, progress=False) == json.loads(json.dumps(result))
    shutil.rmtree(tmp_path / "run" / "final")
    for later in checkpoints(tmp_path / "run")[1:]:
        shutil.rmtree(later)
    assert train(preset, tmp_path / "run", resume=True, progress=False)["hash"] == summary["hash"]
    # The network is a single-agent policy like any other.
    episode = run_team(FETParallelEnv(tasks=[TASK]), lambda: RLPolicy(str(tmp_path / "run")), seed=1)
    assert episode.info["ended"]


def test_presets_that_are_none_of_a_teams():
    for change, field in (("env_kwargs.n_regions=1", "env_kwargs.n_regions"), ("training=a:b", "training")):
        with pytest.raises(TaskError) as e:
            make_team(load_preset("fet-team", [change]))
        assert e.value.field == field
    with pytest.raises(TaskError, match="not a task for this team"):
        Team(FETParallelEnv(tasks=["L1/case_1"]), fet_macro, 2).reset()


def test_stacks_without_masks_run_too():
    t = Team(FETParallelEnv(tasks=[TASK], reward="flake"), fet_rectangle, 2)
    t.reset(seed=0)
    draw, submit = np.full(8, -0.5), np.ones(8)
    *_, infos = t.step([draw, submit])
    assert infos[0]["charged"] == 1
    *_, over, _, _ = t.step([submit, draw])
    assert over


def test_supersuit_makes_a_vector_environment_of_the_parallel_one():
    supersuit = pytest.importorskip("supersuit")
    venv = supersuit.pettingzoo_env_to_vec_env_v1(FETParallelEnv(tasks=[TASK], reward="flake"))
    observations, _ = venv.reset(seed=0)
    assert observations["region_points"].shape[0] == venv.num_envs == 2
    space = venv.action_space
    space.seed(0)
    actions = concatenate(space, [space.sample() for _ in range(2)], create_empty_array(space, 2))
    assert venv.step(actions)[1].tolist() == [0.0, 0.0]
