"""What every registered id must do: Gymnasium's checks, determinism, pickling, specs, vector modes."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode

import edagym
from edagym.baselines.policies import Attempt, RandomPolicy
from edagym.spaces import EditSpace

# The DRC ids have their own file: their spaces, tasks and policies are others.
IDS = tuple(i for i in edagym.ENVIRONMENTS if i.startswith("FET-"))
every_id = pytest.mark.parametrize("env_id", IDS)


def test_the_published_ids_are_registered():
    levels = {f"FET-L{n}-v0" for n in (1, 2, 3, 4)}
    assert set(IDS) == levels | {"FET-Holes-v0", "FET-All-v0", "FET-Train-v0"}
    assert set(IDS) <= set(gym.registry)


def test_registration_is_idempotent():
    before = {i: gym.registry[i] for i in IDS}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edagym.register_all()
    assert all(gym.registry[i] is spec for i, spec in before.items())


@every_id
def test_spec_is_plain_data(env_id):
    spec = gym.spec(env_id)
    assert isinstance(spec.entry_point, str)
    assert spec.max_episode_steps is None
    assert json.loads(json.dumps(spec.kwargs)) == spec.kwargs
    env = gym.make(env_id)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(env.reset(seed=5), again.reset(seed=5), exact=True)


def test_the_prefix_works():
    assert gym.make("edagym:FET-L2-v0").spec.id == "FET-L2-v0"


def test_keyword_arguments_pass_through_the_spec():
    env = gym.make("FET-L1-v0", criterion="paper", budget=7, render_size=[64, 64])
    again = gym.make(EnvSpec.from_json(env.spec.to_json())).unwrapped
    assert (again.criterion, again.render_size) == ("paper", (64, 64))
    again.reset(seed=0)
    assert again.budget == 7


def test_spaces_are_the_same_everywhere():
    envs = [gym.make(i) for i in IDS]
    for env in envs[1:]:
        assert env.observation_space == envs[0].observation_space
        assert env.action_space == envs[0].action_space


def test_suites_hold_what_they_say():
    counts = {i: len(gym.make(i).unwrapped.task_ids) for i in IDS}
    assert [counts[f"FET-L{n}-v0"] for n in (1, 2, 3, 4)] == [8, 39, 41, 40]
    assert (counts["FET-Holes-v0"], counts["FET-All-v0"]) == (15, 128)


@every_id
def test_check_env_without_a_warning(env_id, monkeypatch):
    pytest.importorskip("pygame")  # the human render mode is checked too
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gym.make(env_id, render_size=[96, 96])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()


def episode(env: gym.Env, seed: int) -> list:
    """Reset, then a mixture of sampled actions and a random policy's edits, until the end."""
    out = [env.reset(seed=seed)]
    base = env.unwrapped
    env.action_space.seed(seed)
    policy = RandomPolicy(n_edits=6)
    policy.bind(Attempt(base, seed))
    layers = [s.name for s in base.view.layers]
    out.extend(env.step(env.action_space.sample()) for _ in range(2) if not base.ended)
    while not base.ended:
        out.append(env.step(base.action_space.from_edit(policy.act({}, {}), layers)))
    return out


@every_id
def test_two_environments_agree(env_id):
    one, two = gym.make(env_id), gym.make(env_id)
    first = episode(one, 11)
    assert data_equivalence(first, episode(two, 11), exact=True)
    assert data_equivalence(one.reset(), two.reset(), exact=True)
    assert data_equivalence(first, episode(one, 11), exact=True), "a used environment repeats itself"


@every_id
def test_pickled_environment_repeats(env_id):
    env = gym.make(env_id)
    env.reset(seed=2)
    twin = pickle.loads(pickle.dumps(env))
    assert data_equivalence(env.reset(), twin.reset(), exact=True)
    assert data_equivalence(episode(env, 3), episode(twin, 3), exact=True)


def _first_observations(ids):
    """Run in a fresh process that has imported nothing of EDAGym but what the ids' prefix brings."""
    return [gym.make(f"edagym:{i}").reset(seed=1) for i in ids]


def test_spawned_worker():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(_first_observations, (IDS,))
    assert data_equivalence(there, _first_observations(IDS), exact=True)


def clear_actions(envs) -> dict:
    """The same `clear` of an editable layer for every environment: cheap and always inside the space."""
    rows = envs.action_space.sample()
    rows["op"][:] = 3
    rows["layer"][:] = 1
    return rows


@every_id
@pytest.mark.parametrize("vector", ["sync", "async"])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_modes(env_id, vector, mode):
    n, budget = 2, 3
    envs = gym.make_vec(
        env_id, num_envs=n, vectorization_mode=vector, vector_kwargs={"autoreset_mode": mode}, budget=budget
    )
    try:
        observation, info = envs.reset(seed=[1, 2])
        assert observation in envs.observation_space
        assert all(isinstance(t, str) for t in info["task_id"])
        for step in range(1, budget + 1):
            observation, reward, terminated, truncated, info = envs.step(clear_actions(envs))
            assert truncated.tolist() == [step == budget] * n
        assert not terminated.any()
        assert reward.tolist() == [0.0] * n
        if mode is AutoresetMode.SAME_STEP:
            assert info["final_info"]["ended"].tolist() == ["budget"] * n
            assert info["final_obs"][0]["budget_left"].tolist() == [0]
        elif mode is AutoresetMode.NEXT_STEP:
            assert info["ended"].tolist() == ["budget"] * n
            observation, *_, info = envs.step(clear_actions(envs))
        else:
            observation, info = envs.reset(options={"reset_mask": np.ones(n, bool)})
        assert observation in envs.observation_space
        assert observation["budget_left"].tolist() == [[budget]] * n
        assert info["charged"].tolist() == [0] * n
        assert info["verdict"]["paper"].tolist() == [-1] * n
    finally:
        envs.close()


def test_train_arguments():
    env = gym.make("FET-Train-v0", n_regions=2)
    env.reset(seed=0)
    assert len(env.unwrapped.view.regions) == 2
    env = gym.make("FET-Train-v0", architecture="edge_contacted", holes=False)
    env.reset(seed=0)
    assert env.unwrapped.view.architecture == "edge_contacted"
    with pytest.raises(edagym.errors.TaskError):
        env.reset(options={"task": "L1/case_1"})
    with pytest.raises(edagym.errors.TaskError, match="makes its own tasks"):
        gym.make("FET-Train-v0", suite="FET-L1")


# -- Stable-Baselines3 -------------------------------------------------------------------------------------------------


class Rectangles(gym.ActionWrapper):
    """A plain Box over `EditSpace`, for algorithms that take no Dict actions: layer and two corners."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = gym.spaces.Box(-1, 1, (6,), np.float32)

    def action(self, action):
        base = self.env.unwrapped
        space: EditSpace = base.action_space
        out = {key: np.zeros(s.shape, s.dtype) for key, s in space.spaces.items()}
        x1, y1, x2, y2 = base.window_um
        scale, low = np.array([x2 - x1, y2 - y1]), np.array([x1, y1])
        a, b = (low + scale * (np.asarray(c) + 1) / 2 for c in (action[2:4], action[4:6]))
        out["op"] = 0 if action[0] < 0.8 else 4
        out["layer"] = int((action[1] + 1) / 2 * (len(base.view.layers) - 1) + 0.5)
        out["points"][:4] = [(a[0], a[1]), (b[0], a[1]), (b[0], b[1]), (a[0], b[1])]
        out["n_points"] = 4
        return out


def test_stable_baselines3_trains():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env as sb3_check_env
    from stable_baselines3.common.monitor import Monitor

    env = Rectangles(gym.make("FET-L1-v0", budget=8))
    with warnings.catch_warnings():
        # Advice only: point arrays have three axes, which SB3 suspects to be pictures, and MultiInputPolicy flattens.
        warnings.filterwarnings("ignore", message=".*(image|minimal resolution|unconventional shape)")
        sb3_check_env(env, skip_render_check=True)
    model = PPO("MultiInputPolicy", Monitor(env), n_steps=16, batch_size=8, n_epochs=1, seed=0, device="cpu")
    model.learn(32)
    observation, _ = env.reset(seed=0)
    assert model.predict(observation)[0].shape == (6,)
    assert len(model.ep_success_buffer) > 0, "SB3 reads info['is_success']"
