"""Shaped rewards and curricula."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from rl_stacks import Boxes, StandInFlow

import edagym
from edagym.baselines.policies import reference_edits
from edagym.spaces.actions import Command
from edagym.wrappers.core import is_privileged
from edagym.wrappers.curriculum import FET_STAGES, Curriculum
from edagym.wrappers.drc_actions import EdgeSteps
from edagym.wrappers.ppa_actions import KnobLevels
from edagym.wrappers.reward import CheckCredit, EditPenalty, Shaped

edagym.register_all()


def fet(**kwargs):
    return gym.make("FET-L2-v0", disable_env_checker=True, **kwargs)


def stacks():
    ppa = gym.make("PPA-Train-v0", disable_env_checker=True, backend=StandInFlow())
    return [Boxes(fet()), EdgeSteps(gym.make("DRC-Train-v0", level="L1", disable_env_checker=True)), KnobLevels(ppa)]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_shaping_telescopes(number, gamma):
    """What is added sums to minus the first potential, for any actions: no ranking of policies changes."""
    env = Shaped(stacks()[number], gamma=gamma, scale=2.0)
    env.action_space.seed(1)
    for seed in range(2):
        _, info = env.reset(seed=seed)
        first, added, n, done = info["potential"], 0.0, 0, False
        while not done:
            action = env.action_space.sample()
            _, reward, terminated, truncated, info = env.step(action)
            own = float(info["is_success"] and terminated)
            added += gamma**n * (reward - own)
            n, done = n + 1, terminated or truncated
        assert info["potential"] == 0.0
        assert added == pytest.approx(-2.0 * first, abs=1e-9)


def test_potentials_rise_along_the_reference():
    env = Shaped(fet(), gamma=1.0)
    base = env.unwrapped
    _, info = env.reset(options={"task": base.task_ids[3]})
    values = [info["potential"]]
    for edit in reference_edits(base.task):
        base.step_edit(edit)
        values.append(env._potential(base))
    assert values[-1] == 1.0
    assert values[0] < 0.8
    assert all(0 <= v <= 1 for v in values)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_agent_sees_nothing_of_it(number):
    """Observations and infos under shaping are those without, but for the keys that say so."""
    plain, shaped = stacks()[number], CheckCredit(Shaped(stacks()[number]))
    plain.action_space.seed(0)
    a, b = plain.reset(seed=0), shaped.reset(seed=0)
    for _ in range(5):
        np.testing.assert_equal(a[0], b[0])
        known = dict(b[-1])
        assert known.pop("potential") >= 0
        assert isinstance(known.pop("checks_gained"), float)
        assert known == a[-1]
        action = plain.action_space.sample()
        a, b = plain.step(action), shaped.step(action)
        assert a[2:4] == b[2:4]
        if a[2] or a[3]:
            break


def test_privilege_is_in_the_spec():
    env = Shaped(fet())
    assert is_privileged(env)
    (wrapper,) = env.spec.additional_wrappers
    assert wrapper.kwargs["privileged"] is True
    assert is_privileged(CheckCredit(fet()))
    assert is_privileged(EditPenalty(CheckCredit(fet())))
    assert not is_privileged(EditPenalty(fet()))
    assert Shaped(fet(), potential=lambda env: 0.0, privileged=False).privileged is False


def test_any_potential():
    env = Shaped(fet(), potential=lambda base: float(base.budget_left), gamma=1.0, scale=0.5)
    env.reset(seed=0)
    before = env.unwrapped.budget_left
    action = env.action_space.sample()
    action["op"] = np.int64(0)  # an edit: a unit of budget, and the episode goes on
    _, reward, *_ = env.step(action)
    assert reward == -0.5
    assert reward == pytest.approx(0.5 * (env.unwrapped.budget_left - before))
    with pytest.raises(ValueError, match="potential"):
        Shaped(fet(), potential="nothing")


def test_credit_per_check():
    env = CheckCredit(fet(), weight=1.0)
    base = env.unwrapped
    env.reset(options={"task": base.task_ids[0]})
    edits = reference_edits(base.task)
    names = [spec.name for spec in base.view.layers]
    total = 0.0
    first = base.peek().share_passed()
    for edit in edits:
        _, reward, _, _, _ = env.step(base.action_space.from_edit(edit, names))
        total += reward
    assert total == pytest.approx(base.peek().share_passed() - first)
    assert base.peek().strict_success
    _, reward, terminated, *_ = env.step(base.action_space.from_edit(Command.VERIFY, names))
    assert (reward, terminated) == (1.0, True)


def test_refused_edits_cost():
    env = EditPenalty(fet(), penalty=0.25)
    env.reset(seed=0)
    action = env.action_space.sample()
    action["op"], action["n_points"] = np.int64(0), np.int64(0)
    _, reward, _, _, info = env.step(action)
    assert info["edit_error"]
    assert reward == -0.25


# -- curriculum ------------------------------------------------------------------------------------------------------


class Outcome(gym.Wrapper):
    """Ends every episode at once, with the outcome that it is told."""

    outcome = True

    def step(self, action):
        observation, reward, _, _, info = self.env.step(action)
        return observation, reward, True, False, {**info, "is_success": self.outcome}


STAGES = ({"level": "L1"}, {"level": "L2", "demand": 2, "n_regions": 1}, {"level": "L2", "demand": 3, "n_regions": 1})


def _curriculum(**kwargs):
    inner = Outcome(gym.make("FET-Train-v0", disable_env_checker=True))
    return Curriculum(inner, **{"stages": STAGES, "window": 4, "revisit": 0.5, **kwargs}), inner


def _run(env, inner, outcomes, seed=0):
    stages = []
    env.reset(seed=seed)
    action = env.action_space.sample()
    for outcome in outcomes:
        inner.outcome = outcome
        _, _, _, _, info = env.step(action)
        stages.append(info["curriculum_stage"])
        env.reset()
    return stages


def test_stages_follow_success():
    env, inner = _curriculum(revisit=0.0)
    assert _run(env, inner, [True, False, False, True] * 3) == [0] * 12  # half is not enough
    _run(env, inner, [True] * 4)
    assert env.stage == 1
    assert set(env.unwrapped.view.demand) == {2}
    _run(env, inner, [True] * 20)
    assert env.stage == 2  # the last one stays
    assert set(env.unwrapped.view.demand) == {3}


def test_stages_are_deterministic_and_earlier_ones_come_back():
    runs = []
    for _ in range(2):
        env, inner = _curriculum()
        runs.append(_run(env, inner, [True] * 24, seed=5))
    assert runs[0] == runs[1]
    assert 0 in runs[0][runs[0].index(1) :]


def test_a_curriculum_goes_on_from_its_state():
    env, inner = _curriculum(revisit=0.0)
    _run(env, inner, [True] * 6)
    again, second = _curriculum(revisit=0.0)
    again.load_training_state(env.training_state())
    assert again.training_state() == env.training_state() == {"stage": 1, "outcomes": [True, True]}
    assert _run(again, second, [True] * 2) == [1, 1]
    assert again.stage == 2


def test_pools_keep_tasks_per_stage():
    env, inner = _curriculum(revisit=0.0, pool=3)
    action, tasks = env.action_space.sample(), []
    inner.outcome = False
    for i in range(24):
        env.reset(seed=1 if i == 0 else None)
        tasks.append(env.unwrapped.task.id)
        env.step(action)
    assert len(set(tasks[:3])) == 3
    assert 3 < len(set(tasks)) < 16  # old ones come again, and now and then a new one
    env.stage = 1
    env.reset()
    assert env.unwrapped.view.demand == (2,)
    assert env.unwrapped.task.id not in tasks
    env.stage = 0
    env.reset(seed=1)
    assert env.unwrapped.task.id == tasks[0]  # a seed begins anew


def test_the_default_stages_make_tasks():
    env = Curriculum(gym.make("FET-Train-v0", disable_env_checker=True), revisit=0.0)
    for stage, wanted in enumerate(FET_STAGES):
        env.stage = stage
        env.reset(seed=stage)
        assert env.unwrapped.task.metadata["level"] == wanted["level"]


def test_a_curriculum_needs_a_training_environment():
    with pytest.raises(ValueError, match="training environment"):
        Curriculum(fet())
    with pytest.raises(ValueError, match="stages"):
        _curriculum(stages=())
