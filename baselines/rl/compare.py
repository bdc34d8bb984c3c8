"""A trained policy beside random actions of the same wrapper stack, on fresh tasks of the training distribution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tqdm import tqdm

from edagym.baselines.metrics import Interval, paired_bootstrap, task_bootstrap
from edagym.baselines.rl.checkpoint import load_policy
from edagym.baselines.rl.presets import Preset
from edagym.baselines.rl.trainer import make_env, segment_seed
from edagym.wrappers.core import plain_wrapper

Chooser = Callable[[Any, gym.Env[Any, Any]], Any]
"""(encoded observation, stack) -> action."""


def run_episodes(env: gym.Env[Any, Any], choose: Chooser, seeds: list[int], label: str, progress: bool) -> np.ndarray:
    """Return whether each episode succeeded, float64 (n,): 1, 0, or NaN where a tool failed."""
    found: list[float] = []
    for seed in tqdm(seeds, desc=label, disable=not progress):
        observation, info = env.reset(seed=seed)
        done = False
        while not done:
            observation, _, terminated, truncated, info = env.step(choose(observation, env))
            done = terminated or truncated
        found.append(float("nan") if info["error"] else float(info["is_success"]))
    return np.array(found)


def random_action(rng: np.random.Generator) -> Chooser:
    """Return a chooser of random actions, among those that the stack's mask allows."""

    def choose(observation: Any, env: gym.Env[Any, Any]) -> Any:
        plain = plain_wrapper(env)
        mask = plain.action_masks() if hasattr(plain, "action_masks") else None
        return random_choice(env.action_space, mask, rng)

    return choose


def random_choice(space: Any, mask: Any, rng: np.random.Generator) -> Any:
    """Return a random action of a space, among those that a mask (None: all) allows."""
    space.seed(int(rng.integers(2**31)))
    if mask is None:
        return space.sample()
    mask = np.asarray(mask)
    if isinstance(space, gym.spaces.Discrete):
        return int(rng.choice(np.flatnonzero(mask)))
    ends = np.cumsum(space.nvec)
    parts = np.split(mask, ends[:-1])
    return np.array([rng.choice(np.flatnonzero(part)) for part in parts], space.dtype)


def network_action(network: Any, masked: bool, greedy: bool = False) -> Chooser:
    """Return a chooser that samples from a network."""

    def choose(observation: Any, env: gym.Env[Any, Any]) -> Any:
        plain: Any = plain_wrapper(env)
        options = {"action_masks": plain.action_masks()} if masked else {}
        return network.predict(observation, deterministic=greedy, **options)[0]

    return choose


def compare_with_random(
    preset: Preset, policy: str | Path, episodes: int, *, seed: int = 1, greedy: bool = False, progress: bool = True
) -> dict[str, Any]:
    """Run a policy and random actions on the same fresh tasks.

    Args:
        preset: The preset; its environment draws the tasks. Rewards and curricula of the training are left out.
        policy: The policy's files.
        episodes: Number of tasks.
        seed: Seed of the tasks and actions; other than those of training.
        greedy: Take the likeliest actions instead of sampled ones.
        progress: Whether to show progress bars.

    Returns:
        ``policy``, ``random`` and ``difference``, each ``{"rate", "low", "high"}`` with 95 % bootstrap intervals over
        tasks, ``episodes``, ``seed`` and ``actions``.
    """
    checkpoint = load_policy(policy)
    env = make_env(preset, training=False)
    try:
        network = checkpoint.build(env.observation_space, env.action_space)
        rng = np.random.default_rng(segment_seed(seed, -2))
        seeds = [int(s) for s in rng.integers(2**31, size=episodes)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(segment_seed(seed, -3))
            chooser = network_action(network, preset.algo == "MaskablePPO", greedy)
            ours = run_episodes(env, chooser, seeds, "policy", progress)
        floor = run_episodes(env, random_action(rng), seeds, "random", progress)
    finally:
        env.close()
    result: dict[str, Any] = {"episodes": episodes, "seed": seed, "actions": "greedy" if greedy else "sampled"}
    result["policy"] = plain_interval(task_bootstrap(ours, rng))
    result["random"] = plain_interval(task_bootstrap(floor, rng))
    result["difference"] = plain_interval(paired_bootstrap(ours, floor, rng))
    return result


def plain_interval(interval: Interval) -> dict[str, float]:
    """Return an interval, JSON-ready."""
    return {"rate": interval.estimate, "low": interval.low, "high": interval.high}
