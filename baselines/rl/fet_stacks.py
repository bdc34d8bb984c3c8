"""Wrapper stacks of the FET presets: ``make(base=None, ...)`` wraps a base, or makes a training environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym

import edagym
from edagym.wrappers.fet_macro import TransistorMacro
from edagym.wrappers.fet_rectangle import RegionRectangle

Env = gym.Env[Any, Any]


class TaskPool(gym.Wrapper[Any, Any, Any, Any]):
    """Gives training tasks several episodes each: making one costs as much as several steps.

    Args:
        env: A procedural environment.
        size: Tasks kept; a new one takes the place of a random one.
        fresh: Share of resets that make a new task, once the pool is full.
        levels: Levels of new tasks, drawn evenly; none: the environment's own choice.
    """

    def __init__(self, env: Env, size: int, fresh: float, levels: Sequence[str] = ()) -> None:
        super().__init__(env)
        self._size, self._fresh, self._levels = size, fresh, tuple(levels)
        self._tasks: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset to a known or a new task."""
        if seed is not None:
            self._tasks = []
            # The base's generator is seeded first, so that it chooses the level too.
            self.env.reset(seed=seed, options=options)
        rng = self.env.np_random
        if options or len(self._tasks) < self._size or rng.random() < self._fresh:
            if self._levels:
                base: Any = self.env.unwrapped
                base.redirect(level=self._levels[int(rng.integers(len(self._levels)))])
            return self._new(self.env.reset(options=options))
        return self.env.reset(options={"task": self._tasks[int(rng.integers(len(self._tasks)))]})

    def _new(self, result: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
        task = self.env.unwrapped.task  # type: ignore[attr-defined]
        if len(self._tasks) < self._size:
            self._tasks.append(task)
        else:
            self._tasks[int(self.env.np_random.integers(self._size))] = task
        return result


def _training_env(pool: int, fresh: float, options: dict[str, Any], levels: Sequence[str] = ()) -> Env:
    edagym.register_all()
    env = gym.make("FET-Train-v0", disable_env_checker=True, on_tool_error="raise", **options)
    return TaskPool(env, pool, fresh, levels) if pool else env


def fet_macro(
    base: Env | None = None,
    *,
    actions: Literal["discrete", "box"] = "discrete",
    pool: int = 0,
    fresh: float = 0.2,
    **options: Any,
) -> Env:
    """Transistor macros.

    Args:
        base: The environment to wrap; None: ``FET-Train-v0``.
        actions: See `TransistorMacro`.
        pool: Training tasks kept for several episodes (`TaskPool`); 0: every episode has a new one.
        fresh: Share of new tasks when the pool is full.
        **options: Keyword arguments of the training environment.
    """
    return TransistorMacro(_training_env(pool, fresh, options) if base is None else base, actions)


def fet_rectangle(
    base: Env | None = None,
    *,
    pool: int = 0,
    fresh: float = 0.2,
    levels: Sequence[str] = (),
    **options: Any,
) -> Env:
    """Rectangles in a flake's frame.

    Args:
        base: The environment to wrap; None: ``FET-Train-v0``.
        pool: Training tasks kept for several episodes (`TaskPool`); 0: every episode has a new one.
        fresh: Share of new tasks when the pool is full.
        levels: Levels of the training tasks; with a pool only.
        **options: Keyword arguments of the training environment.
    """
    return RegionRectangle(_training_env(pool, fresh, options, levels) if base is None else base)
