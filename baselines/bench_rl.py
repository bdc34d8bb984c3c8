"""Speed of learning: steps per second through each wrapper stack, and where the time of training goes."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from tqdm import tqdm

import edagym
from edagym.baselines.rl.presets import load_preset, preset_names, resolve
from edagym.envs.core.trace import tool_versions
from edagym.wrappers.observation import FlatVector, Raster

Make = Callable[[], gym.Env[Any, Any]]

TYPED = ("FET-L2-v0", "DRC-Essential-L1-v0")
"""Ids whose typed actions are measured. Those of PPA wait for flow runs: `edagym bench ppa` times them."""


class _Typed:
    """Makes a base environment, wrapped for observation; pickles for worker processes."""

    def __init__(self, env_id: str, wrapper: Any = None) -> None:
        self.env_id, self.wrapper = env_id, wrapper

    def __call__(self) -> gym.Env[Any, Any]:
        edagym.register_all()
        env: gym.Env[Any, Any] = gym.make(self.env_id, disable_env_checker=True)
        return env if self.wrapper is None else self.wrapper(env)


class _Stack:
    """Makes a preset's stack."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> gym.Env[Any, Any]:
        preset = load_preset(self.name)
        env: gym.Env[Any, Any] = resolve(preset.env)(**preset.env_kwargs)
        return env


def stacks() -> Iterator[tuple[str, Make]]:
    """Yield name and maker of every stack: typed, vectors, rasters, and those of the presets."""
    for env_id in TYPED:
        yield f"{env_id} typed", _Typed(env_id)
        yield f"{env_id} FlatVector", _Typed(env_id, FlatVector)
        yield f"{env_id} Raster", _Typed(env_id, Raster)
    for name in preset_names():
        yield f"preset {name}", _Stack(name)


def bench_rl(
    seconds: float = 2.0,
    workers: int = 2,
    train_steps: int = 512,
    names: Sequence[str] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Measure stacks and short trainings.

    Args:
        seconds: Time per throughput measurement.
        workers: Environments of the vectorised measurements; processes of the asynchronous one.
        train_steps: Steps of each preset's training.
        names: Presets and stacks whose names contain one of these; None: all.
        progress: Whether to show a progress bar.

    Returns:
        A JSON-ready dict: ``steps_per_s`` (per stack: ``single``, ``sync``, ``async``, steps of all environments
        together, random actions, resets included, the drawing of actions not), ``training`` (per preset: steps per
        second and ``env_share``, the share of time spent in the environments), ``machine``.
    """

    def wanted(name: str) -> bool:
        return names is None or any(n in name for n in names)

    todo = [(name, make) for name, make in stacks() if wanted(name)]
    presets = [name for name in preset_names() if wanted(name)]
    result: dict[str, Any] = {"steps_per_s": {}, "training": {}}
    with tqdm(total=3 * len(todo) + len(presets), desc="bench rl", disable=not progress) as bar:
        for name, make in todo:
            figures = {}
            kinds: list[tuple[str, Callable[[], float]]] = [
                ("single", lambda make=make: _single(make(), seconds)),  # type: ignore[misc]
                ("sync", lambda make=make: _vector(SyncVectorEnv([make] * workers), seconds)),  # type: ignore[misc]
                ("async", lambda make=make: _vector(AsyncVectorEnv([make] * workers), seconds)),  # type: ignore[misc]
            ]
            for kind, measure in kinds:
                gc.collect()
                figures[kind] = round(measure(), 1)
                bar.update()
            result["steps_per_s"][name] = figures
        for name in presets:
            result["training"][name] = _training(name, train_steps)
            bar.update()
    result["machine"] = {"cpus": os.cpu_count(), "workers": workers, "load": os.getloadavg()[0], **tool_versions()}
    return result


def _single(env: gym.Env[Any, Any], seconds: float) -> float:
    env.action_space.seed(0)
    env.reset(seed=0)  # the first reset fills caches
    spent, steps = 0.0, 0
    while spent < seconds:
        action = env.action_space.sample()
        start = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
        spent += time.perf_counter() - start
        steps += 1
    env.close()
    return steps / spent


def _vector(envs: VectorEnv[Any, Any, Any], seconds: float) -> float:
    try:
        envs.action_space.seed(0)
        envs.reset(seed=0)
        spent, steps = 0.0, 0
        while spent < seconds:
            actions = envs.action_space.sample()
            start = time.perf_counter()
            envs.step(actions)
            spent += time.perf_counter() - start
            steps += envs.num_envs
        return steps / spent
    finally:
        envs.close()


def _training(name: str, steps: int) -> dict[str, float]:
    """Train a preset for a while, without warm start, comparison or worker processes."""
    from edagym.baselines.rl.trainer import train

    changes = (f"total_steps={steps}", "eval_episodes=0", "warm_start=null", "checkpoint_every=1000000", "vec=dummy")
    preset = load_preset(name, changes)
    with tempfile.TemporaryDirectory() as folder:
        summary = train(preset, Path(folder) / "run", progress=False)
    return {"steps_per_s": round(summary["steps"] / summary["seconds"], 1), "env_share": summary["env_share"]}
