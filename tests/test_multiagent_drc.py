"""The AEC environment of a proposer and a critic over DRC edits."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from drc_cases import bars, make_task

pytest.importorskip("pettingzoo", reason="PettingZoo is in the extra `rl`")

from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo.test import api_test, seed_test

from edagym.envs.multiagent.drc_aec import DRCProposerCriticEnv
from edagym.spaces.actions import Command
from edagym.spaces.drc_edits import AddShape, ChangeShape, MoveEdge, ShapeRef

TASK = make_task(bars(10))
OUTLINE = ((-400, 0), (-400, 30), (-390, 30), (-390, 0))
HARMLESS = AddShape("M3", ((-400, 400), (-400, 418), (-200, 418), (-200, 400)))


def make_env(**kwargs: Any) -> DRCProposerCriticEnv:
    env = DRCProposerCriticEnv(tasks=[TASK], **kwargs)
    env.reset(seed=0)
    return env


def propose(env: DRCProposerCriticEnv, edit: Any) -> None:
    assert env.agent_selection == "proposer"
    env.step(env.action_space("proposer").from_edit(edit, env.unwrapped_env.context))


def judge(env: DRCProposerCriticEnv, verdict: str, edit: Any = None) -> None:
    assert env.agent_selection == "critic"
    action = env.action_space("critic").blank(verdict)
    if edit is not None:
        action |= env.action_space("proposer").from_edit(edit, env.unwrapped_env.context)
    env.step(action)


def test_api():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # PettingZoo's own test finds structured spaces and names without numbers unusual.
        warnings.filterwarnings("ignore", message="(Observation|Action|We recommend) .*")
        api_test(DRCProposerCriticEnv(tasks=[TASK]), num_cycles=60)
        seed_test(lambda: DRCProposerCriticEnv(tasks=[TASK]), num_cycles=30)


@pytest.mark.parametrize("mode", ["rgb_array", "ansi"])
def test_render(mode):
    picture = make_env(render_mode=mode).render()
    assert isinstance(picture, str) if mode == "ansi" else picture.dtype == np.uint8


def test_only_what_both_agree_on_is_done_and_charged():
    env = make_env()
    shared = env.unwrapped_env
    propose(env, HARMLESS)
    assert env.agent_selection == "critic"
    observation, *_, info = env.last()
    assert observation in env.observation_space("critic")
    assert observation["proposed"].tolist() == [1]
    assert json.loads(info["proposal"])["op"] == "add_shape"
    assert shared.edits == ()
    judge(env, "veto")
    observation, *_, info = env.last()
    assert (observation["proposed"].tolist(), observation["vetoes"].tolist(), info["proposal"]) == ([0], [1], "")
    assert (shared.edits, info["charged"]) == ((), 0)
    propose(env, HARMLESS)
    judge(env, "approve")
    assert shared.edits == (HARMLESS,)
    assert env.infos["proposer"]["charged"] == 1
    assert env.last()[0]["vetoes"].tolist() == [0]


def test_a_critic_can_replace_a_proposal():
    env = make_env()
    propose(env, HARMLESS)
    wider = ChangeShape("M3", ShapeRef(points=OUTLINE), MoveEdge(0, 10))
    judge(env, "replace", wider)
    assert HARMLESS not in env.unwrapped_env.edits


def test_endless_vetoes_are_charged():
    env = make_env(max_vetoes=2)
    for _ in range(2):
        propose(env, HARMLESS)
        judge(env, "veto")
    info = env.infos["proposer"]
    assert (info["charged"], info["edit_error"]) == (1, "vetoed 2 times in a row")
    with pytest.raises(ValueError, match="max_vetoes"):
        DRCProposerCriticEnv(tasks=[TASK], max_vetoes=0)


def test_unreadable_actions():
    env = make_env(max_vetoes=1)
    env.step({**env.action_space("proposer").blank(), "op": 99})
    assert env.agent_selection == "proposer"
    assert "beyond its table" in env.infos["proposer"]["edit_error"]
    propose(env, HARMLESS)
    env.step({})
    assert "cannot be read" in env.infos["critic"]["edit_error"]
    assert env.infos["critic"]["charged"] == 2


def test_the_team_ends_together_and_shares_the_reward():
    env = make_env(criterion="paper")
    # The sliver is the violation; the paper's contract does not mind its deletion.
    from edagym.spaces.drc_edits import Delete

    layout = env.unwrapped_env.layout
    for shape in env.unwrapped_env.context.shapes:
        if env.terminations["proposer"]:
            break
        propose(env, ChangeShape(shape.layer, ShapeRef(points=shape.points), Delete(), shape.cell))
        judge(env, "approve")
        propose(env, Command.VERIFY)
        judge(env, "approve")
    assert layout.flat_shapes()
    assert env.terminations == {"proposer": True, "critic": True}
    assert env.rewards == {"proposer": 1.0, "critic": 1.0}
    assert env.infos["critic"]["is_success"]
    for _ in range(2):
        env.step(None)
    assert env.agents == []
    with pytest.raises(ResetNeeded):
        env.step(None)


def test_both_see_the_same_in_memory_of_their_own():
    env = make_env()
    propose(env, HARMLESS)
    first, second = env.observe("proposer"), env.observe("critic")
    assert data_equivalence(first, second, exact=True)
    arrays = [k for k, v in first.items() if isinstance(v, np.ndarray) and v.ndim]
    assert not any(np.shares_memory(first[k], second[k]) for k in arrays)
