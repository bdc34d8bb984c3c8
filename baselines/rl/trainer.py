"""`train`: run a preset with Stable-Baselines3 or its contrib package, with logs, checkpoints and exact resumption.

At every checkpoint all environments are reset and every random generator is seeded anew, by the run's seed and the step
count. So a run that was killed and goes on from its last checkpoint ends with the same weights as one that was not.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import CSVOutputFormat, Logger, TensorBoardOutputFormat
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.utils import LinearSchedule, set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecEnvWrapper
from tqdm import tqdm

from edagym.baselines.rl.checkpoint import algorithm, checkpoints, resolved, save_policy, space_to_plain, state_hash
from edagym.baselines.rl.presets import Preset, resolve
from edagym.envs.core.trace import tool_versions
from edagym.errors import TaskError
from edagym.wrappers.core import BudgetTerminates, is_privileged


def make_env(preset: Preset, *, training: bool = True) -> gym.Env[Any, Any]:
    """Return one environment of a preset.

    Args:
        preset: The preset.
        training: Whether with the training's rewards and curricula, else with the environment's own reward.
    """
    env: gym.Env[Any, Any] = resolve(preset.env)(**preset.env_kwargs)
    if training and preset.training:
        env = resolve(preset.training)(env, **preset.training_kwargs)
    return BudgetTerminates(env)


class _Maker:
    """Makes an environment in a worker process."""

    def __init__(self, preset: Preset) -> None:
        self.preset = preset

    def __call__(self) -> gym.Env[Any, Any]:
        if self.preset.vec == "subproc":
            torch.set_num_threads(1)
        return Monitor(make_env(self.preset))


class Stopwatch(VecEnvWrapper):
    """Adds up the wall time that a learner spends in its environments."""

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self.seconds = 0.0

    def reset(self) -> Any:
        """Reset all environments."""
        start = time.perf_counter()
        found = self.venv.reset()
        self.seconds += time.perf_counter() - start
        return found

    def step_async(self, actions: np.ndarray) -> None:
        """Send actions."""
        start = time.perf_counter()
        self.venv.step_async(actions)
        self.seconds += time.perf_counter() - start

    def step_wait(self) -> Any:
        """Wait for what they lead to."""
        start = time.perf_counter()
        found = self.venv.step_wait()
        self.seconds += time.perf_counter() - start
        return found


def make_vec(preset: Preset) -> Stopwatch:
    """Return a preset's vector environment."""
    if preset.vec == "team":
        from edagym.baselines.rl.multiagent import make_team_vec

        return Stopwatch(make_team_vec(preset))
    makers: list[Callable[[], gym.Env[Any, Any]]] = [_Maker(preset) for _ in range(preset.n_envs)]
    if preset.vec == "subproc":
        return Stopwatch(SubprocVecEnv(makers, start_method=preset.start_method))
    return Stopwatch(DummyVecEnv(makers))


def make_model(preset: Preset, env: VecEnv) -> Any:
    """Return a fresh learner of a preset."""
    kwargs = resolved(preset.hyperparameters)
    rate = kwargs.get("learning_rate")
    if isinstance(rate, Mapping):
        kwargs["learning_rate"] = LinearSchedule(float(rate["start"]), float(rate["end"]), 1.0)
    try:
        return algorithm(preset.algo)(preset.policy, env, seed=preset.seed, device="cpu", **kwargs)
    except TypeError as e:
        raise TaskError(f"{preset.algo} refuses a hyperparameter ({e})", field="hyperparameters") from e


def segment_seed(seed: int, steps: int) -> int:
    """Return the seed of everything between the checkpoint at a step count and the next."""
    digest = hashlib.sha256(f"edagym train\x1f{seed}\x1f{steps}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class _Run(BaseCallback):
    """Saves checkpoints between rollouts, seeds what follows them, and shows progress."""

    def __init__(self, preset: Preset, folder: Path, extra: Mapping[str, Any], bar: tqdm[Any]) -> None:
        super().__init__()
        self.preset, self.folder, self.extra, self.bar = preset, folder, extra, bar
        self._next = -1

    def _on_rollout_start(self) -> None:
        if self.num_timesteps < self._next:
            return
        if self._next >= 0:
            save_checkpoint(self.model, self.preset, self.folder, self.extra)
        every = self.preset.checkpoint_every
        self._next = (self.num_timesteps // every + 1) * every
        seed = segment_seed(self.preset.seed, self.num_timesteps)
        set_random_seed(seed)
        env: Any = self.model.get_env()
        env.seed(seed)
        self.model.action_space.seed(seed)
        self.model._last_obs = env.reset()
        self.model._last_episode_starts = np.ones((env.num_envs,), dtype=bool)

    def _on_step(self) -> bool:
        self.bar.update(min(self.num_timesteps, self.preset.total_steps) - self.bar.n)
        buffer = self.model.ep_success_buffer
        if buffer and self.n_calls % 50 == 0:
            self.bar.set_postfix(success=f"{np.mean(buffer):.2f}")
        return True


def policy_metadata(model: Any, preset: Preset, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint says about itself; see `edagym.baselines.rl.checkpoint.Checkpoint`."""
    return {
        "name": preset.name,
        "family": preset.family,
        "env": preset.env,
        "env_kwargs": dict(preset.env_kwargs),
        "eval_options": dict(preset.eval_options),
        "algo": preset.algo,
        "policy": preset.policy,
        "policy_kwargs": dict(preset.hyperparameters.get("policy_kwargs", {})),
        "observation_space": space_to_plain(model.observation_space),
        "action_space": space_to_plain(model.action_space),
        "steps": int(model.num_timesteps),
        "seed": preset.seed,
        "versions": {**tool_versions(), "torch": torch.__version__},
        **extra,
    }


def save_checkpoint(model: Any, preset: Preset, folder: Path, extra: Mapping[str, Any]) -> Path:
    """Write a checkpoint that training can go on from, and return its folder; a kill leaves no half of one."""
    final = folder / "checkpoints" / f"step_{model.num_timesteps:09d}"
    draft = final.with_name(f"tmp_{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    model.save(draft / "model.zip")
    if hasattr(model, "save_replay_buffer"):
        model.save_replay_buffer(draft / "replay.pkl")
    states = _training_states(model.get_env())
    (draft / "envs.json").write_text(json.dumps(states) + "\n", encoding="utf-8")
    save_policy(draft / "policy", model.policy.state_dict(), policy_metadata(model, preset, extra))
    shutil.rmtree(final, ignore_errors=True)
    draft.rename(final)
    return final


def _training_states(env: VecEnv) -> list[Any]:
    """Return what curricula have learnt so far, one entry per environment."""
    return env.env_method("training_state") if _has_state(env) else []


def _has_state(env: VecEnv) -> bool:
    return all(env.has_attr(name) for name in ("training_state", "load_training_state"))


def train(
    preset: Preset, folder: str | Path, *, resume: bool = False, progress: bool = True, keep: int | None = None
) -> dict[str, Any]:
    """Train a preset.

    Args:
        preset: What to train.
        folder: Where logs (``progress.csv``, ``tb/``), checkpoints and the final policy go.
        resume: Go on from the last checkpoint there; without one, begin.
        progress: Whether to show a progress bar.
        keep: Checkpoints to keep, the latest; None: all.

    Returns:
        A JSON-ready summary, also written to ``summary.json``: ``steps``, ``seconds``, ``cpu_seconds`` (of this
        process), ``env_share`` (share of time spent in the environments), ``success_rate`` (last 100 training
        episodes, or None), ``hash`` of the weights, ``warm_start``, ``policy`` (path), and ``evaluation`` if asked for.

    Raises:
        TaskError: If the folder holds another run, or the preset cannot be run.
    """
    out = Path(folder)
    found = checkpoints(out)
    _claim(preset, out, resume)
    torch.set_num_threads(preset.threads)
    start, cpu = time.perf_counter(), time.process_time()
    set_random_seed(segment_seed(preset.seed, -1))
    env = make_vec(preset)
    try:
        privileged = is_privileged(make_env(preset))
        warm: Any = None
        if resume and found:
            model = algorithm(preset.algo).load(found[-1] / "model.zip", env=env, device="cpu")
            if hasattr(model, "load_replay_buffer"):
                model.load_replay_buffer(found[-1] / "replay.pkl")
            for i, state in enumerate(json.loads((found[-1] / "envs.json").read_text(encoding="utf-8"))):
                env.env_method("load_training_state", state, indices=i)
            warm = json.loads((found[-1] / "policy.json").read_text(encoding="utf-8"))["warm_start"]
        else:
            model = make_model(preset, env)
            if preset.warm_start:
                warm = resolve(preset.warm_start)(model, preset, preset.seed, **preset.warm_start_kwargs)
        extra = {"privileged_training": privileged, "training": preset.training, "warm_start": warm}
        at = int(model.num_timesteps)
        model.set_logger(_logger(out, at))
        with tqdm(total=preset.total_steps, initial=at, desc=preset.name, unit="step", disable=not progress) as bar:
            run = _Run(preset, out, extra, bar)
            # Off-policy learners append to a buffer that is full of earlier segments; nothing else is carried over.
            model.learn(
                max(preset.total_steps - at, 0), callback=run, reset_num_timesteps=at == 0, log_interval=_often(preset)
            )
        model.logger.close()
        facts = policy_metadata(model, preset, extra)
        metadata = save_policy(out / "final" / "policy", model.policy.state_dict(), facts)
        for old in checkpoints(out)[:-keep] if keep else []:
            shutil.rmtree(old)
        seconds = time.perf_counter() - start
        summary = {
            "preset": preset.name,
            "steps": int(model.num_timesteps),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "env_share": round(env.seconds / seconds, 3),
            "success_rate": float(np.mean(model.ep_success_buffer)) if model.ep_success_buffer else None,
            "hash": metadata["hash"],
            "warm_start": warm,
            "policy": str(out / "final"),
        }
    finally:
        env.close()
    if preset.eval_episodes:
        compare: Callable[..., dict[str, Any]]
        if preset.vec == "team":
            from edagym.baselines.rl.multiagent import compare_team_with_random as compare
        else:
            from edagym.baselines.rl.compare import compare_with_random as compare
        summary["evaluation"] = compare(preset, out / "final", preset.eval_episodes, progress=progress)
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def _often(preset: Preset) -> int:
    """Return the log interval: rollouts for on-policy learners, episodes for others."""
    return 4 if preset.algo == "SAC" else 1


def _claim(preset: Preset, out: Path, resume: bool) -> None:
    """Write the preset, or see that the one there is the same but for its length."""
    path = out / "preset.json"
    mine = json.loads(json.dumps(preset.to_dict()))
    free = ("total_steps", "eval_episodes")
    if path.exists():
        theirs = json.loads(path.read_text(encoding="utf-8"))
        if not resume:
            raise TaskError("the folder holds a run; resume it or take another", field="out", value=str(out))
        changed = sorted(k for k in mine if k not in free and mine[k] != theirs.get(k))
        if changed:
            key = changed[0]
            raise TaskError("another preset than the run's", field=key, value=mine[key], allowed=theirs.get(key))
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(mine, indent=1) + "\n", encoding="utf-8")


def _logger(out: Path, at: int) -> Logger:
    """Return a logger that goes on where a checkpoint was: later rows of a killed run are dropped."""
    path = out / "progress.csv"
    rows: list[dict[str, Any]] = []
    if at and path.exists():
        with path.open(encoding="utf-8", newline="") as f:
            rows = [r for r in csv.DictReader(f) if r.get("time/total_timesteps") not in (None, "")]
        rows = [r for r in rows if float(r["time/total_timesteps"]) <= at]
    table = CSVOutputFormat(str(path))
    for row in rows:
        table.write({k: float(v) for k, v in row.items() if v not in ("", None)}, {}, 0)
    board = TensorBoardOutputFormat(str(out / "tb"))
    return Logger(str(out), [table, board])


def weights_hash(model: Any) -> str:
    """Return `state_hash` of a learner's network."""
    return state_hash(model.policy.state_dict())
