"""Agents with shared parameters: a vector environment for Stable-Baselines3 with one slot per flake of a team.

A team draws one layout (`FETParallelEnv`, a reward per flake). Each of its slots shows one agent's part through the
wrapper stack of a single-agent preset, so that one network learns from all agents, and acts for all. A preset trains
this way with ``vec: team``.

An agent's action may be several edits, or none. The edits of the slots are carried out round by round; who has none
left waits, which costs nothing. An agent that has submitted waits to the end of the episode, and its slot then allows
no other action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from tqdm import tqdm

from edagym.baselines.metrics import paired_bootstrap, task_bootstrap
from edagym.baselines.multiagent import FINAL, FlakeAttempt
from edagym.baselines.rl.checkpoint import load_policy
from edagym.baselines.rl.compare import plain_interval, random_choice
from edagym.baselines.rl.policy import AttemptEnv
from edagym.baselines.rl.presets import Preset, resolve
from edagym.baselines.rl.trainer import segment_seed
from edagym.envs.core.edit_env import StepResult
from edagym.envs.multiagent.fet_parallel import FETParallelEnv
from edagym.errors import EditError, TaskError
from edagym.spaces.actions import Command
from edagym.wrappers.core import is_privileged, plain_wrapper, wrappers_of

Stack = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]
"""Puts a preset's wrappers around a base environment."""
_UNREADABLE: dict[str, Any] = {}
"""An action that the environment refuses, and charges."""


class Seat:
    """One agent's place: its wrapper stack, which outlives the episodes, and its part of the task at hand.

    Args:
        stack: The wrappers.
        attempt: The agent's first part.
    """

    def __init__(self, stack: Stack, attempt: FlakeAttempt) -> None:
        self._base = AttemptEnv(attempt)
        self.stack = stack(self._base)
        if is_privileged(self.stack):
            raise TaskError("the stack reads what agents may not know", field="env", allowed="unprivileged wrappers")
        self.plain: Any = plain_wrapper(self.stack)
        self.sit(attempt)

    def sit(self, attempt: FlakeAttempt) -> None:
        """Begin an episode."""
        self._base.seat(attempt)
        self.attempt = attempt
        self.final: Command | None = None

    def encoded(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return what the network sees of an agent's observation and info."""
        self.plain.known = self.attempt.shown(observation, info)
        return self.plain.encode(*self.plain.known)

    def edits(self, action: Any) -> list[Any]:
        """Return the edits and commands of an action; none once the agent has finished."""
        if self.final:
            return []
        try:
            found = list(self.plain.to_edits(action))
        except EditError:
            return [_UNREADABLE]
        return found if found or self.plain.free_steps else [_UNREADABLE]

    def action_masks(self) -> np.ndarray:
        """Return the stack's mask; the first allowed level of each component once the agent has finished."""
        mask = np.array(self.plain.action_masks(), bool)
        if self.final:
            ends = np.cumsum(self.plain.action_space.nvec)
            for start, end in zip((0, *ends[:-1]), ends):
                first = start + int(np.argmax(mask[start:end]))
                mask[start:end] = False
                mask[first] = True
        return mask


class Team:
    """One `FETParallelEnv` with its seats.

    Args:
        env: The environment; all its tasks have as many flakes as the team has agents.
        stack: The wrappers of every seat.
        size: Number of agents.
        pool: Tasks kept for several episodes; 0: every episode has a new one.
        fresh: Share of new tasks when the pool is full.
    """

    def __init__(self, env: FETParallelEnv, stack: Stack, size: int, pool: int = 0, fresh: float = 0.2) -> None:
        self.env = env
        self.size = size
        self._stack, self._pool, self._fresh = stack, pool, fresh
        self._tasks: list[Any] = []
        self.seats: list[Seat] = []
        self._known: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def reset(self, seed: int | None = None, task: Any = None) -> list[Any]:
        """Begin an episode and return what the network sees, by seat.

        Args:
            seed: Forget the pool and seed the environment.
            task: The task; None: one of the pool, or a new one.
        """
        if seed is not None:
            self._tasks = []
        observations, infos = self._next_task(seed, task)
        n = len(self.env.agents)
        if n != self.size:
            raise TaskError("not a task for this team", field="regions", value=n, allowed=self.size)
        attempts = [FlakeAttempt(self.env, k) for k in range(n)]
        if not self.seats:
            self.seats = [Seat(self._stack, attempt) for attempt in attempts]
        for seat, attempt in zip(self.seats, attempts):
            seat.sit(attempt)
            seat.plain.begin()
        self._known = (observations, infos)
        return self._encoded(self.env.agents)

    def _next_task(self, seed: int | None, task: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if task is not None or not self._pool:
            return self.env.reset(seed=seed, options=None if task is None else {"task": task})
        rng = self.env.unwrapped_env.np_random
        full = len(self._tasks) == self._pool
        if seed is None and full and rng.random() >= self._fresh:
            return self.env.reset(options={"task": self._tasks[int(rng.integers(self._pool))]})
        result = self.env.reset(seed=seed)
        new = self.env.unwrapped_env.task
        if full:
            self._tasks[int(self.env.unwrapped_env.np_random.integers(self._pool))] = new
        else:
            self._tasks.append(new)
        return result

    def step(self, actions: Sequence[Any]) -> tuple[list[Any], list[float], bool, bool, list[dict[str, Any]]]:
        """Run one action of every seat.

        Returns:
            What the network sees and the rewards, by seat; whether the episode has terminated, or was truncated; the
            agents' infos.
        """
        agents = list(self.env.agents)
        plans = [seat.edits(action) for seat, action in zip(self.seats, actions)]
        results: list[list[StepResult]] = [[] for _ in agents]
        rewards = np.zeros(len(agents))
        terminated = truncated = False
        for i in range(max(1, *map(len, plans))):
            turn = [plan[i] if i < len(plan) else None for plan in plans]
            for seat, edit in zip(self.seats, turn):
                if edit in FINAL:
                    seat.final = edit
            # A final command waits for the others', and costs nothing: it also stands for having no edit left.
            sent = [seat.final or (Command.SUBMIT if edit is None else edit) for seat, edit in zip(self.seats, turn)]
            if all(action in FINAL for action in sent) and not all(seat.final for seat in self.seats):
                continue
            observations, gained, terminations, truncations, infos = self.env.step(dict(zip(agents, sent)))
            self._known = (observations, infos)
            rewards += [gained[a] for a in agents]
            terminated, truncated = terminations[agents[0]], truncations[agents[0]]
            for seat, agent, edit, mine in zip(self.seats, agents, turn, results):
                if edit is not None:
                    info = seat.attempt.own_info(infos[agent])
                    mine.append((observations[agent], 0.0, terminated, truncated, info))
            if terminated or truncated:
                break
        for seat, plan, mine in zip(self.seats, plans, results):
            if mine:
                seat.plain.after(plan[: len(mine)], mine)
        return self._encoded(agents), rewards.tolist(), terminated, truncated, [self._known[1][a] for a in agents]

    def _encoded(self, agents: Sequence[str]) -> list[Any]:
        observations, infos = self._known
        return [seat.encoded(observations[a], infos[a]) for seat, a in zip(self.seats, agents)]


class FlakeVecEnv(VecEnv):
    """All seats of some teams as the slots of a vector environment.

    The seats of a team begin and end their episodes together. ``info["is_success"]`` is the team's.

    Args:
        teams: Teams of one size and stack.
    """

    def __init__(self, teams: Sequence[Team]) -> None:
        self.teams = list(teams)
        for i, team in enumerate(self.teams):
            team.reset(seed=i)  # the seats, and with them the spaces, come with the first task
        self._seats = [seat for team in self.teams for seat in team.seats]
        stack = self._seats[0].stack
        super().__init__(len(self._seats), stack.observation_space, stack.action_space)
        self._actions: list[Any] = []

    def reset(self) -> np.ndarray:
        """Begin new episodes everywhere."""
        found: list[Any] = []
        for team in self.teams:
            found += team.reset(seed=self._seeds[len(found)])
        self._reset_seeds()
        return np.stack(found)

    def step_async(self, actions: np.ndarray) -> None:
        """Take the slots' actions."""
        self._actions = list(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Carry the actions out; teams whose episode is over begin the next one."""
        seen: list[Any] = []
        rewards: list[float] = []
        dones: list[bool] = []
        infos: list[dict[str, Any]] = []
        for team in self.teams:
            observations, gained, terminated, truncated, found = team.step(self._actions[len(seen) :][: team.size])
            if terminated or truncated:
                for observation, info in zip(observations, found):
                    info["terminal_observation"] = observation
                    # The budget left is part of every observation: its end is a state of the task.
                    info["TimeLimit.truncated"] = truncated and info["ended"] != "budget"
                observations = team.reset()
            seen += observations
            rewards += gained
            dones += [terminated or truncated] * team.size
            infos += found
        return np.stack(seen), np.array(rewards, np.float32), np.array(dones), infos

    def close(self) -> None:
        """Close the environments."""
        for team in self.teams:
            team.env.close()

    def _chosen(self, indices: Any) -> list[Seat]:
        return [self._seats[i] for i in self._get_indices(indices)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of seats, or of their stacks."""
        return [getattr(s if hasattr(s, attr_name) else s.stack, attr_name) for s in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of stacks."""
        for seat in self._chosen(indices):
            setattr(seat.stack, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of seats, or of their stacks."""
        return [method(*args, **kwargs) for method in self.get_attr(method_name, indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return whether stacks have a wrapper of a class."""
        return [any(isinstance(w, wrapper_class) for w in wrappers_of(s.stack)) for s in self._chosen(indices)]


def make_team(preset: Preset, *, training: bool = True) -> Team:
    """Return one team of a preset whose ``env_kwargs`` name ``n_regions``; only in training it keeps a pool of tasks.

    Raises:
        TaskError: If the preset cannot be trained by a team.
    """
    size = preset.env_kwargs.get("n_regions")
    if preset.family != "fet" or not isinstance(size, int) or size < 2:
        raise TaskError("a team needs a number of flakes", field="env_kwargs.n_regions", value=size, allowed=">= 2")
    if preset.training:
        raise TaskError("a team has rewards of its own", field="training", value=preset.training, allowed=None)
    own = {"pool": 0, "fresh": 0.2, "actions": "discrete"}
    options = {k: v for k, v in preset.env_kwargs.items() if k not in own}
    env = FETParallelEnv(suite="FET-Train", reward="flake", on_tool_error="raise", **options)
    make = resolve(preset.env)
    pool = {k: preset.env_kwargs.get(k, own[k]) for k in ("pool", "fresh")} if training else {}
    return Team(env, lambda base: make(base, **preset.env_kwargs), size, **pool)


def make_team_vec(preset: Preset) -> VecEnv:
    """Return the vector environment of a preset with ``vec: team``: `Preset.n_envs` teams, one slot per agent."""
    return VecMonitor(FlakeVecEnv([make_team(preset) for _ in range(preset.n_envs)]))


Chooser = Callable[[list[Any], Team], Any]
"""(what the network sees by seat, team) -> actions by seat."""


def run_episodes(team: Team, choose: Chooser, seeds: Sequence[int], label: str, progress: bool) -> np.ndarray:
    """Return of each episode whether the team succeeded and the share of agents who did, float64 (n, 2)."""
    found = []
    for seed in tqdm(seeds, desc=label, disable=not progress):
        observations = team.reset(seed=seed)
        rewards = np.zeros(team.size)
        over = False
        while not over:
            observations, gained, terminated, truncated, infos = team.step(choose(observations, team))
            rewards += gained
            over = terminated or truncated
        found.append((float(infos[0]["is_success"]), float(rewards.mean())))
    return np.array(found)


def compare_team_with_random(
    preset: Preset, policy: str | Path, episodes: int, *, seed: int = 1, progress: bool = True
) -> dict[str, Any]:
    """Run a team that shares a policy, and a team of random agents, on the same fresh tasks.

    Args:
        preset: The preset; its environment draws the tasks.
        policy: The policy's files.
        episodes: Number of tasks.
        seed: Seed of the tasks and actions; other than those of training.
        progress: Whether to show progress bars.

    Returns:
        ``policy``, ``random`` and ``difference`` of the team's success and, under ``flakes``, of the share of agents
        who succeeded, each ``{"rate", "low", "high"}`` with 95 % bootstrap intervals over tasks; ``episodes``, ``seed``
        and ``actions``.
    """
    team = make_team(preset, training=False)
    rng = np.random.default_rng(segment_seed(seed, -2))
    seeds = [int(s) for s in rng.integers(2**31, size=episodes)]
    team.reset(seed=seeds[0])
    stack = team.seats[0].stack
    network = load_policy(policy).build(stack.observation_space, stack.action_space)
    masked = preset.algo == "MaskablePPO"

    def trained(observations: list[Any], team: Team) -> Any:
        options = {"action_masks": np.stack([s.action_masks() for s in team.seats])} if masked else {}
        return network.predict(np.stack(observations), deterministic=False, **options)[0]

    def random(observations: list[Any], team: Team) -> Any:
        space = stack.action_space
        return [random_choice(space, seat.action_masks() if masked else None, rng) for seat in team.seats]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(segment_seed(seed, -3))
        ours = run_episodes(team, trained, seeds, "policy", progress)
    floor = run_episodes(team, random, seeds, "random", progress)
    team.env.close()
    result: dict[str, Any] = {"episodes": episodes, "seed": seed, "actions": "sampled"}
    for place, column in ((result, 0), (result.setdefault("flakes", {}), 1)):
        mine, theirs = ours[:, column], floor[:, column]
        place["policy"] = plain_interval(task_bootstrap(mine, rng))
        place["random"] = plain_interval(task_bootstrap(theirs, rng))
        place["difference"] = plain_interval(paired_bootstrap(mine, theirs, rng))
    return result
