"""What the wrappers to plain actions and observations share.

A `PlainWrapper` maps an action of a plain space (Box, MultiDiscrete) to typed edits and commands, and the base
observation to arrays. Both maps use only what an agent may know, and they are methods of their own, so that a trained
policy acts on any base environment, also inside the evaluation harness: it asks the wrapper for the edits and hands
them over one by one. So every trace holds base edits and replays without wrappers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym

from edagym.envs.core.edit_env import StepResult
from edagym.errors import EditError


class PlainWrapper(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Base of the wrappers to plain actions and observations.

    Subclasses set `observation_space` and `action_space` and implement `encode` and `to_edits`; they record their own
    arguments with `gymnasium.utils.RecordConstructorArgs`. One step runs all edits of an action on the base
    environment, each at its usual charge, until one ends the episode; the rewards add up. An action without edits is
    refused and charged as such, unless the wrapper has `free_steps`: then nothing happens but a new `encode`.

    ``info`` gains ``n_edits`` and ``n_refused``: edits run in this step, and how many of them were refused.

    Args:
        env: The environment; its base is an `EditEnv`, or something that shows the same things
            (`edagym.baselines.rl.policy.AttemptEnv`).
    """

    privileged = False
    """Whether encoding or decoding reads what agents may not know."""
    free_steps = False
    """Whether actions may mean no edit, e.g. one that chooses where the next one acts. The wrapper bounds their number
    in a row, so that episodes end."""

    known: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    """The last base observation and info."""

    @property
    def base(self) -> Any:
        """The base environment: `EditEnv`, or its stand-in."""
        return self.env.unwrapped

    def begin(self) -> None:
        """Forget what belongs to one episode; called after each reset, before the first `encode`."""

    @abstractmethod
    def encode(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the plain observation of a base observation, in fresh arrays."""

    @abstractmethod
    def to_edits(self, action: Any) -> Sequence[Any]:
        """Return the edits and commands of an action; raises `EditError` for one that means nothing."""

    def after(self, edits: Sequence[Any], results: Sequence[StepResult]) -> None:
        """Take note of what became of the edits of an action; rewards in `results` mean nothing here."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; see `EditEnv.reset`."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.known = (observation, info)
        self.begin()
        return self.encode(observation, info), {**info, "n_edits": 0, "n_refused": 0}

    def step(self, action: Any) -> StepResult:
        """Run the edits of one action."""
        try:
            edits = list(self.to_edits(action))
            refusal = "" if self.free_steps else "the action names no edit"
        except EditError as e:
            edits, refusal = [], str(e)
        results: list[StepResult] = []
        if not edits and not refusal:
            observation, info = self.base.observe()
            return self.encode(observation, info), 0.0, False, False, {**info, "n_edits": 0, "n_refused": 0}
        if not edits:
            results.append(self.base.refuse(refusal))
        for edit in edits:
            results.append(self.base.step_edit(edit))
            if results[-1][2] or results[-1][3]:
                break
        self.after(edits[: len(results)], results)
        observation, _, terminated, truncated, info = results[-1]
        self.known = (observation, info)
        refused = sum(bool(r[4]["edit_error"]) for r in results)
        return (
            self.encode(observation, info),
            float(sum(r[1] for r in results)),
            terminated,
            truncated,
            {**info, "n_edits": len(results), "n_refused": refused},
        )


class BudgetTerminates(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Reports a spent budget as ``terminated``, for learning.

    The budget left is part of every observation, so that its end is a state of the task. Learners would otherwise
    credit a spent budget with the value of going on.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def step(self, action: Any) -> Any:
        """Run a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated and info.get("ended") == "budget":
            terminated, truncated = True, False
        return observation, reward, terminated, truncated, info


def wrappers_of(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """Yield an environment's wrappers from the outside in, then the base."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env


def is_privileged(env: gym.Env[Any, Any]) -> bool:
    """Return whether any wrapper of an environment reads what agents may not know."""
    return any(bool(getattr(w, "privileged", False)) for w in wrappers_of(env))


def plain_wrapper(env: gym.Env[Any, Any]) -> PlainWrapper:
    """Return the one `PlainWrapper` of a stack; raises ValueError if there is none or more than one."""
    found = [w for w in wrappers_of(env) if isinstance(w, PlainWrapper)]
    if len(found) != 1:
        raise ValueError(f"a stack has one PlainWrapper, this one has {len(found)}")
    return found[0]
