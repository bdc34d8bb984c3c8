"""Vector environments of Gymnasium and Stable-Baselines3 around the base environments and the wrapper stacks."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from rl_stacks import Boxes, StandInFlow, boxes

import edagym
from edagym.wrappers.drc_actions import EdgeSteps
from edagym.wrappers.observation import FlatVector, Raster
from edagym.wrappers.ppa_actions import KnobLevels

edagym.register_all()


def fet():
    return boxes()


def drc():
    return EdgeSteps(gym.make("edagym:DRC-Essential-L1-v0", disable_env_checker=True))


def ppa():
    return KnobLevels(gym.make("edagym:PPA-Area-L1-v0", disable_env_checker=True, backend=StandInFlow()))


def raster():
    return Raster(gym.make("edagym:FET-L1-v0", disable_env_checker=True), size=36)


def short():
    """Episodes of two steps."""
    return Boxes(gym.make("edagym:FET-L1-v0", disable_env_checker=True, budget=2))


STACKS = {"fet": fet, "drc": drc, "ppa": ppa, "raster": raster}


def _record(envs, n: int = 6):
    envs.action_space.seed(0)
    out = [envs.reset(seed=3)[0]]
    for _ in range(n):
        observation, reward, terminated, truncated, _ = envs.step(envs.action_space.sample())
        done = terminated | truncated
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and done.any():
            observation, _ = envs.reset(options={"reset_mask": done})
        out.append((deepcopy(observation), reward, terminated, truncated))
    envs.close()
    return out


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_synchronous(name, mode):
    envs = SyncVectorEnv([STACKS[name]] * 2, autoreset_mode=mode)
    out = _record(envs)
    assert all(envs.observation_space.contains(o[0]) for o in out[1:])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("fet", "drc") else pytest.mark.slow) for n in STACKS]
)
def test_processes_give_what_one_process_gives(name):
    one = _record(SyncVectorEnv([STACKS[name]] * 2))
    two = _record(AsyncVectorEnv([STACKS[name]] * 2, context="forkserver"))
    np.testing.assert_equal(one, two)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_every_autoreset_mode_in_processes(mode, context):
    one = _record(SyncVectorEnv([short] * 2, autoreset_mode=mode))
    two = _record(AsyncVectorEnv([short] * 2, autoreset_mode=mode, context=context))
    np.testing.assert_equal(one, two)


def test_autoreset_modes_restart_when_they_say():
    for mode, steps in ((AutoresetMode.NEXT_STEP, 3), (AutoresetMode.SAME_STEP, 2)):
        envs = SyncVectorEnv([short] * 2, autoreset_mode=mode)
        envs.reset(seed=0)
        ends = [bool(np.all(envs.step(envs.action_space.sample())[3])) for _ in range(6)]
        assert ends == [(i + 1) % steps == (2 % steps) for i in range(6)]
        envs.close()
    envs = SyncVectorEnv([short] * 2, autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=0)
    for _ in range(2):
        *_, truncated, _ = envs.step(envs.action_space.sample())
    assert truncated.all()
    envs.reset(options={"reset_mask": np.array([True, True])})
    assert not envs.step(envs.action_space.sample())[3].any()


def test_base_ids_make_vectors():
    envs = gym.make_vec("FET-L1-v0", num_envs=2, vectorization_mode="sync")
    observation, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(observation)
    envs.step(envs.action_space.sample())
    envs.close()


# -- Stable-Baselines3 -----------------------------------------------------------------------------------------------


def _sb3(kind, makers, **kwargs):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common import vec_env

    envs = getattr(vec_env, kind)(makers, **kwargs)
    envs.seed(5)
    rng = np.random.default_rng(0)
    out = [envs.reset()]
    for _ in range(5):
        actions = rng.uniform(-1, 1, (2, 5)).astype(np.float32)
        out.append(envs.step(actions)[:3])
    envs.close()
    return out


def test_dummy_vec_env():
    out = _sb3("DummyVecEnv", [short] * 2)
    assert out[-1][0].shape == (2, 5)
    assert any(o[2].all() for o in out[1:])


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_subproc_vec_env(method):
    np.testing.assert_equal(_sb3("DummyVecEnv", [short] * 2), _sb3("SubprocVecEnv", [short] * 2, start_method=method))


FAMILIES = {"fet": fet, "drc": drc, "ppa": ppa}


@pytest.mark.parametrize("name", FAMILIES)
def test_ppo_trains_for_a_few_hundred_steps(name):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", FAMILIES[name](), n_steps=64, batch_size=64, n_epochs=2, seed=0, device="cpu")
    before = {k: v.numpy().copy() for k, v in model.policy.state_dict().items()}
    model.learn(192)
    after = {k: v.numpy() for k, v in model.policy.state_dict().items()}
    assert all(np.isfinite(v).all() for v in after.values())
    assert any(not np.array_equal(before[k], after[k]) for k in after)


@pytest.mark.slow
def test_ppo_trains_on_dictionaries_and_pictures():
    sb3 = pytest.importorskip("stable_baselines3")
    env = Raster(drc(), size=36)
    sb3.PPO("MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu").learn(64)


# -- Gymnasium's wrappers --------------------------------------------------------------------------------------------


def test_statistics_video_and_normalisation(tmp_path):
    pytest.importorskip("moviepy")
    env = gym.make("FET-L1-v0", render_mode="rgb_array", render_size=(64, 64), budget=3)
    env = gym.wrappers.RecordVideo(
        Boxes(env), str(tmp_path / "video"), episode_trigger=lambda i: i == 0, disable_logger=True
    )
    env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.NormalizeObservation(env))
    observation, _ = env.reset(seed=0)
    done = False
    while not done:
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        done = terminated or truncated
    env.close()
    assert env.observation_space.contains(observation.astype(np.float32))
    assert info["episode"]["l"] <= 3
    assert [p.suffix for p in (tmp_path / "video").iterdir()] == [".mp4"]


def test_vector_statistics_and_normalisation():
    envs = SyncVectorEnv([partial(_flat, "FET-L1-v0"), partial(_flat, "FET-L1-v0")])
    envs = gym.wrappers.vector.NormalizeObservation(gym.wrappers.vector.RecordEpisodeStatistics(envs))
    observation, _ = envs.reset(seed=0)
    envs.action_space.seed(0)
    seen = {}
    for _ in range(60):
        observation, _, _, _, info = envs.step(envs.action_space.sample())
        seen.update(info)
    assert np.isfinite(observation).all()
    assert "episode" in seen
    envs.close()


def _flat(env_id):
    return FlatVector(gym.make(f"edagym:{env_id}", disable_env_checker=True))
