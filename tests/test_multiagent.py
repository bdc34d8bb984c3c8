"""The minimal ParallelEnv: one agent per flake, one layout, one verdict."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
import pytest
from fet_cases import box, make_task
from gymnasium.utils.env_checker import data_equivalence

pytest.importorskip("pettingzoo", reason="PettingZoo is in the extra `rl`")

from gymnasium.error import ResetNeeded
from pettingzoo.test import parallel_api_test, parallel_seed_test, render_test
from pettingzoo.utils import parallel_to_aec

from edagym.envs.multiagent.fet_parallel import FETParallelEnv, concerns
from edagym.spaces import AddPolygon, Command
from edagym.verifiers.verdict import CheckResult

FLAKES = [(box(0, 0, 20, 6), ()), (box(0, 20, 20, 26), ())]
TASK = make_task(FLAKES, (1, 1))


def device(y: float) -> list[AddPolygon]:
    return [
        AddPolygon("contacts", box(2, y + 1, 7, y + 5)),
        AddPolygon("contacts", box(13, y + 1, 18, y + 5)),
        AddPolygon("gate", box(9, y - 1, 11, y + 7)),
    ]


def make_env(**kwargs) -> FETParallelEnv:
    env = FETParallelEnv(tasks=[TASK], **kwargs)
    env.reset(seed=0)
    return env


def act(env: FETParallelEnv, *actions):
    layers = [s.name for s in TASK.layers]
    return env.step({a: env.action_space(a).from_edit(x, layers) for a, x in zip(env.agents, actions)})


def test_api():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(FETParallelEnv(tasks=[TASK]), num_cycles=60)
        parallel_seed_test(lambda: FETParallelEnv(suite="FET-L3"), num_cycles=20)


def test_rendering():
    # Without a window: a display is none of the suite's requirements.
    class Headless(FETParallelEnv):
        metadata: ClassVar = {**FETParallelEnv.metadata, "render_modes": ["rgb_array", "ansi"]}

    render_test(lambda render_mode: parallel_to_aec(Headless(tasks=[TASK], render_mode=_mode(render_mode))))


def _mode(mode: str) -> str:
    return "ansi" if mode == "human" else mode


def test_every_agent_sees_its_own_flake():
    env = make_env()
    observations, infos = env.reset(seed=1)
    assert env.agents == env.possible_agents == ["flake_1", "flake_2"]
    for i, agent in enumerate(env.agents):
        own = observations[agent]
        assert own in env.observation_space(agent)
        n = int(own["own_n_points"][0])
        assert own["own_points"][:n].tolist() == [list(p) for p in FLAKES[i][0]]
        assert own["own_region"].tolist() == [i]
    shared = [k for k in observations["flake_1"] if not k.startswith("own_")]
    assert data_equivalence(*({k: observations[a][k] for k in shared} for a in env.agents), exact=True)
    assert not any(np.shares_memory(observations["flake_1"][k], observations["flake_2"][k]) for k in shared)
    assert infos["flake_1"]["task_id"] == env.unwrapped_env.view.id == TASK.id


def test_the_team_solves_the_task_and_shares_the_reward():
    env = make_env()
    for left, right in zip(device(0), device(20)):
        _, rewards, terminations, _, infos = act(env, left, right)
        assert set(rewards.values()) == {0.0}
        assert not any(terminations.values())
    assert infos["flake_1"]["charged"] == 6
    _, rewards, terminations, truncations, infos = act(env, Command.VERIFY, Command.SUBMIT)
    assert rewards == {"flake_1": 1.0, "flake_2": 1.0}
    assert all(terminations.values())
    assert not any(truncations.values())
    assert infos["flake_2"]["is_success"]
    assert infos["flake_2"]["charged"] == 7
    assert env.agents == []
    with pytest.raises(ResetNeeded):
        env.step({})


def test_each_flake_can_have_a_reward_of_its_own():
    env = make_env(reward="flake")
    for edit in device(0):
        _, rewards, *_ = act(env, edit, AddPolygon("gate", box(-9, 40, -5, 44)))
        assert set(rewards.values()) == {0.0}
    _, rewards, *_, infos = act(env, Command.SUBMIT, Command.SUBMIT)
    assert not infos["flake_1"]["is_success"]
    assert rewards == {"flake_1": 1.0, "flake_2": 0.0}
    with pytest.raises(ValueError, match="reward must be"):
        FETParallelEnv(tasks=[TASK], reward="mine")


def test_whose_a_failed_check_is():
    regions = TASK.view().regions
    named = CheckResult("transistor_count:flake_2", "transistor_count", False, where=(0, 0, 20, 6))
    placed = CheckResult("min_width:gate", "min_width", False, where=(1, 1, 2, 2))
    nowhere = CheckResult("layer_not_empty:gate", "layer_not_empty", False)
    apart = CheckResult("min_width:gate", "min_width", False, where=(100, 100, 101, 101))
    found = {c.id + str(c.where): [concerns(c, r, regions) for r in regions] for c in (named, placed, nowhere, apart)}
    assert list(found.values()) == [[False, True], [True, False], [True, True], [True, True]]


def test_submit_waits_for_everybody():
    env = make_env()
    *_, infos = act(env, Command.SUBMIT, device(20)[0])
    assert infos["flake_1"]["ended"] == ""
    assert len(env.agents) == 2
    *_, infos = act(env, Command.SUBMIT, Command.SUBMIT)
    assert infos["flake_1"]["ended"] == "submit"
    env.reset(seed=0)
    *_, infos = act(env, Command.SUBMIT, Command.DECLARE_INFEASIBLE)
    assert infos["flake_1"]["ended"] == "declare_infeasible"


def test_errors_are_the_agents_own():
    env = make_env()
    *_, infos = act(env, AddPolygon("graphene", box(0, 0, 1, 1)), device(20)[0])
    assert infos["flake_1"]["edit_error"].startswith("read-only")
    assert infos["flake_2"]["edit_error"] == ""


def test_the_budget_is_common():
    env = make_env(budget=3)
    _, _, _, truncations, _ = act(env, device(0)[0], device(20)[0])
    assert not any(truncations.values())
    _, _, terminations, truncations, infos = act(env, device(0)[1], device(20)[1])
    assert all(truncations.values())
    assert not any(terminations.values())
    assert infos["flake_1"]["ended"] == "budget"
    assert env.agents == []


def test_other_tasks_have_other_teams():
    env = FETParallelEnv(tasks=["L1/case_1", TASK])
    assert len(env.possible_agents) == 2
    env.reset(options={"task": "L1/case_1"})
    assert env.agents == ["flake_1"]
