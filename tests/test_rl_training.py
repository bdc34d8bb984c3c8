"""Training: reproducible, resumable, and its policies act on base environments."""

from __future__ import annotations

import csv
import json
import shutil

import gymnasium as gym
import numpy as np
import pytest
from rl_stacks import StandInFlow

import edagym
from edagym.errors import PolicyError, TaskError

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

import torch

from edagym.baselines.policies import Attempt
from edagym.baselines.rl.checkpoint import SHIPPED, checkpoints, load_policy, shipped_names, state_hash
from edagym.baselines.rl.compare import compare_with_random
from edagym.baselines.rl.policy import RLPolicy
from edagym.baselines.rl.presets import Preset, load_preset, preset_names
from edagym.baselines.rl.trainer import train
from edagym.envs.core.trace import trace_actions

SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}}
OF_SAC = {
    "learning_starts": 32,
    "batch_size": 16,
    "train_freq": 4,
    "buffer_size": 500,
    "policy_kwargs": {"net_arch": [8]},
}


def small(algo: str = "PPO", **changes) -> Preset:
    """A preset that trains in a second."""
    stack = "levels" if algo == "MaskablePPO" else "boxes"
    fields = {
        "name": "small",
        "family": "fet",
        "env": f"rl_stacks:{stack}",
        "algo": algo,
        "hyperparameters": OF_SAC if algo == "SAC" else SMALL,
        "n_envs": 2,
        "total_steps": 256,
        "checkpoint_every": 128,
    }
    return Preset(**{**fields, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "a"
    return folder, train(small(), folder, progress=False)


@pytest.mark.parametrize("algo", ["PPO", "MaskablePPO", "SAC"])
def test_a_killed_run_goes_on_to_the_same_weights(algo, tmp_path):
    whole = train(small(algo), tmp_path / "whole", progress=False)
    part = tmp_path / "part"
    shutil.copytree(tmp_path / "whole", part)
    shutil.rmtree(part / "final")
    kept = checkpoints(part)[0]
    for later in checkpoints(part)[1:]:
        shutil.rmtree(later)
    assert load_policy(kept).metadata["steps"] < whole["steps"]
    again = train(small(algo), part, resume=True, progress=False)
    assert again["steps"] == whole["steps"]
    assert again["hash"] == whole["hash"]


@pytest.mark.slow
def test_a_killed_run_with_a_curriculum_goes_on_to_the_same_weights(tmp_path):
    from edagym.baselines.rl.shaping_experiment import preset

    chosen = preset("curriculum", 0, 1_024, 512)
    whole = train(chosen, tmp_path / "whole", progress=False)
    shutil.copytree(tmp_path / "whole" / "checkpoints" / checkpoints(tmp_path / "whole")[0].name, tmp_path / "kept")
    part = tmp_path / "part"
    shutil.copytree(tmp_path / "kept", part / "checkpoints" / checkpoints(tmp_path / "whole")[0].name)
    again = train(chosen, part, resume=True, progress=False)
    assert again["hash"] == whole["hash"]


def test_equal_seeds_give_equal_weights_and_others_do_not(run, tmp_path):
    _, first = run
    assert train(small(), tmp_path / "b", progress=False)["hash"] == first["hash"]
    assert train(small(seed=1), tmp_path / "c", progress=False)["hash"] != first["hash"]


@pytest.mark.slow
def test_two_runs_of_20000_steps_give_the_same_hash(tmp_path):
    preset = small(total_steps=20_000, checkpoint_every=10_000, hyperparameters={**SMALL, "n_steps": 256})
    hashes = [train(preset, tmp_path / str(i), progress=False)["hash"] for i in range(2)]
    assert hashes[0] == hashes[1]


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_worker_processes_give_the_same_weights(start_method, run, tmp_path):
    other = train(small(vec="subproc", start_method=start_method), tmp_path / "d", progress=False)
    assert other["hash"] == run[1]["hash"]


def test_logs(run):
    folder, summary = run
    with (folder / "progress.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert [float(r["time/total_timesteps"]) for r in rows] == [64.0, 128.0, 192.0, 256.0]
    assert {"rollout/ep_rew_mean", "rollout/success_rate", "train/loss"} <= set(rows[0])
    assert list((folder / "tb").glob("events*"))
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert 0 < summary["env_share"] < 1


def test_checkpoints_are_plain_arrays_that_the_hash_is_of(run):
    folder, summary = run
    checkpoint = load_policy(folder)
    with np.load(folder / "final" / "policy.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == set(checkpoint.weights)
    network = checkpoint.build(gym.spaces.Box(-1, 1, (5,), np.float32), gym.spaces.Box(-1, 1, (5,), np.float32))
    assert state_hash(network.state_dict()) == checkpoint.metadata["hash"] == summary["hash"]


def test_a_checkpoint_of_another_stack_is_refused(run):
    with pytest.raises(PolicyError, match="another wrapper stack"):
        load_policy(run[0]).build(gym.spaces.Box(-1, 1, (6,), np.float32), gym.spaces.Box(-1, 1, (5,), np.float32))


def _episode(policy, env, seed=0):
    attempt = Attempt(env, seed)
    policy.bind(attempt)
    observation, info = env.observe()
    done = False
    while not done:
        observation, _, terminated, truncated, info = env.step_any(policy.act(observation, info))
        done = terminated or truncated
    return env.trace()


def test_a_policy_acts_on_the_base_environment_and_its_trace_replays(run):
    edagym.register_all()
    env = gym.make("FET-L1-v0").unwrapped
    env.reset(options={"task": env.task_ids[0]})
    policy = RLPolicy(str(run[0]))
    first = _episode(policy, env)
    assert {s["action"]["op"] for s in first["steps"]} == {"add_polygon", "verify"}
    env.replay(trace_actions(first))
    assert env.trace() == first
    env.reset(options={"task": env.task_ids[0]})
    assert _episode(policy, env) == first
    env.reset(options={"task": env.task_ids[0]})
    assert _episode(policy, env, seed=1) != first
    greedy = RLPolicy(str(run[0]), greedy=True)
    assert greedy.deterministic
    traces = []
    for seed in (0, 1):
        env.reset(options={"task": env.task_ids[0]})
        traces.append(_episode(greedy, env, seed))
    assert traces[0] == traces[1]


def test_the_policy_does_what_the_stack_would_do(run):
    """The edits through `RLPolicy` are those of the wrapped environment under the same actions."""
    from rl_stacks import boxes

    env = boxes()
    task = env.unwrapped.task_ids[1]
    checkpoint = load_policy(run[0])
    network = checkpoint.build(env.observation_space, env.action_space)
    observation, _ = env.reset(options={"task": task})
    done = False
    while not done:
        observation, _, terminated, truncated, _ = env.step(network.predict(observation, deterministic=True)[0])
        done = terminated or truncated
    wrapped = env.unwrapped.trace()
    base = gym.make("FET-L1-v0").unwrapped
    base.reset(options={"task": task})
    assert _episode(RLPolicy(str(run[0]), greedy=True), base)["steps"] == wrapped["steps"]


def test_privileged_stacks_are_refused(run, tmp_path):
    shutil.copytree(run[0] / "final", tmp_path / "p")
    path = tmp_path / "p" / "policy.json"
    path.write_text(path.read_text().replace("rl_stacks:boxes", "rl_stacks:peeking"))
    env = gym.make("FET-L1-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="may not know"):
        RLPolicy(str(tmp_path / "p")).bind(Attempt(env))


def test_comparison_with_random_actions(run):
    result = compare_with_random(small(), run[0], 4, progress=False)
    for name in ("policy", "random"):
        assert 0 <= result[name]["low"] <= result[name]["rate"] <= result[name]["high"] <= 1
    assert result == compare_with_random(small(), run[0], 4, progress=False)


def test_a_folder_holds_one_run(run):
    with pytest.raises(TaskError, match="holds a run"):
        train(small(), run[0], progress=False)
    with pytest.raises(TaskError, match="another preset"):
        train(small(seed=3), run[0], resume=True, progress=False)


def test_presets_load_and_can_be_changed():
    for name in preset_names():
        preset = load_preset(name)
        assert Preset.from_dict(json.loads(json.dumps(preset.to_dict()))) == preset
    changed = load_preset("ppa-knobs", ["hyperparameters.gamma=5e-1", "env_kwargs.level=L1", "n_envs=3"])
    assert changed.hyperparameters["gamma"] == 0.5
    assert changed.env_kwargs["level"] == "L1"
    assert changed.n_envs == 3


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (["n_envs=0"], "n_envs"),
        (["algo=DQN"], "algo"),
        (["nothing=1"], "nothing"),
        (["seed"], "--set"),
        (["seed=-1"], "seed"),
    ],
)
def test_bad_changes_are_named(changes, field):
    with pytest.raises(TaskError) as e:
        load_preset("ppa-knobs", changes)
    assert e.value.field == field


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_policies_are_what_their_metadata_say(name):
    checkpoint = load_policy(name)
    state = {key: torch.from_numpy(array) for key, array in checkpoint.weights.items()}
    assert state_hash(state) == checkpoint.metadata["hash"]
    card = (SHIPPED / f"{name}.md").read_text(encoding="utf-8")
    assert checkpoint.metadata["hash"][:16] in card
    assert (SHIPPED / f"{name}.npz").stat().st_size <= 2_000_000
    assert not RLPolicy(name).privileged


@pytest.mark.parametrize(("name", "env_id"), [("drc-edit", "DRC-Essential-L1-v0"), ("ppa-knobs", "PPA-Area-L1-v0")])
def test_shipped_policies_act(name, env_id):
    options = {"backend": StandInFlow()} if name == "ppa-knobs" else {}
    env = gym.make(env_id, **options).unwrapped
    env.reset(seed=0)
    assert _episode(RLPolicy(name), env)["steps"]


def test_unknown_presets_and_policies_are_refused(tmp_path):
    with pytest.raises(TaskError, match="unknown preset"):
        load_preset("nothing")
    with pytest.raises(TaskError, match="no such policy"):
        RLPolicy(str(tmp_path))
