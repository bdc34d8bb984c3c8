"""`Curriculum`: procedural tasks that get harder as the learner gets better."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from edagym.envs.core.tasks import Procedural

FET_STAGES: tuple[dict[str, Any], ...] = (
    {"level": "L1"},
    {"level": "L2", "demand": 2, "n_regions": 1},
    {"level": "L2"},
    {"level": "L3"},
    {"level": "L4"},
)
"""Stages over level and demand for ``FET-Train-v0``."""
_NEW_TASKS = 0.2


class Curriculum(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Chooses the arguments of a training environment by the success of the last episodes.

    The next stage begins when the success rate of the last `window` episodes of the present one reaches `threshold`.
    A share of the episodes goes back to an earlier stage, so that it is not forgotten; these do not count. With equal
    seeds, actions and outcomes the stages are the same. ``info["curriculum_stage"]`` is the stage of the episode.

    Args:
        env: An environment whose base is ``FET-Train-v0``, ``DRC-Train-v0`` or ``PPA-Train-v0``.
        stages: Arguments of the training environment (`Procedural.redirect`), easiest first.
        threshold: Success rate that ends a stage.
        window: Episodes that it is taken over.
        revisit: Share of episodes of earlier stages.
        pool: Tasks kept per stage for several episodes each, since making one may cost as much as an episode; 0: every
            episode has a new one. A full pool still gets a new task, for a random old one, in every fifth episode.

    Raises:
        ValueError: If there are no stages, a number is out of range, or the base makes no tasks.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        stages: Sequence[Mapping[str, Any]] = FET_STAGES,
        threshold: float = 0.7,
        window: int = 40,
        revisit: float = 0.2,
        pool: int = 0,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self, stages=stages, threshold=threshold, window=window, revisit=revisit, pool=pool
        )
        super().__init__(env)
        if not stages or window < 1 or pool < 0 or not (0 < threshold <= 1 and 0 <= revisit < 1):
            raise ValueError("a curriculum needs stages, window >= 1, pool >= 0, 0 < threshold <= 1, 0 <= revisit < 1")
        if not isinstance(env.unwrapped, Procedural):
            raise ValueError(f"a curriculum needs a training environment, got {type(env.unwrapped).__name__}")
        self.stages = tuple(dict(s) for s in stages)
        self.threshold, self.window, self.revisit = threshold, window, revisit
        self.stage = 0
        self._outcomes: deque[bool] = deque(maxlen=window)
        self._episode_stage = 0
        self._rng = np.random.default_rng()
        self._pool = pool
        self._tasks: list[list[Any]] = [[] for _ in self.stages]

    def training_state(self) -> dict[str, Any]:
        """Return what has been learnt about the learner, JSON-ready."""
        return {"stage": self.stage, "outcomes": list(self._outcomes)}

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        """Undo `training_state`."""
        self.stage = int(state["stage"])
        self._outcomes = deque((bool(v) for v in state["outcomes"]), maxlen=self.window)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment to a task of the stage; a seed also seeds the choice of stages and empties pools."""
        if seed is not None:
            self._rng = np.random.default_rng([seed, 0xC0])
            self._tasks = [[] for _ in self.stages]
        self._episode_stage = self.stage
        if self.stage and self._rng.random() < self.revisit:
            self._episode_stage = int(self._rng.integers(self.stage))
        base: Any = self.env.unwrapped
        base.redirect(**self.stages[self._episode_stage])
        known = self._tasks[self._episode_stage]
        full = self._pool and len(known) == self._pool
        if full and not options and self._rng.random() >= _NEW_TASKS:
            options = {"task": known[int(self._rng.integers(len(known)))]}
        observation, info = self.env.reset(seed=seed, options=options)
        if self._pool and not options:
            if full:
                known[int(self._rng.integers(len(known)))] = base.task
            else:
                known.append(base.task)
        return observation, {**info, "curriculum_stage": self._episode_stage}

    def step(self, action: Any) -> Any:
        """Run a step; count the episode if it ends."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        info = {**info, "curriculum_stage": self._episode_stage}
        if (terminated or truncated) and self._episode_stage == self.stage and not info["error"]:
            self._outcomes.append(bool(info["is_success"]))
            full = len(self._outcomes) == self.window
            if full and self.stage + 1 < len(self.stages) and np.mean(self._outcomes) >= self.threshold:
                self.stage += 1
                self._outcomes.clear()
        return observation, reward, terminated, truncated, info
