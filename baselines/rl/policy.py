"""`RLPolicy`: a trained network acts on base environments, through the wrapper stack that it was trained with."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import gymnasium as gym
import torch

from edagym.baselines.policies import Attempt
from edagym.baselines.rl.checkpoint import load_policy
from edagym.baselines.rl.presets import resolve
from edagym.envs.core.edit_env import StepResult
from edagym.errors import EditError, PolicyError
from edagym.task_assets.drc.task import DRCView
from edagym.task_assets.fet.task import TaskView
from edagym.wrappers.core import PlainWrapper, is_privileged, plain_wrapper, wrappers_of

_MAX_FREE = 1000
"""Actions without edits in a row that are taken for a wrapper's fault."""


class AttemptEnv(gym.Env[Any, Any]):
    """Shows a wrapper stack what an attempt shows a policy; it cannot be stepped.

    Args:
        attempt: The attempt.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.observation_space, self.action_space = family_spaces(attempt.task_view)
        self.seat(attempt)

    def seat(self, attempt: Attempt) -> None:
        """Show another attempt of the family from now on."""
        self._attempt = attempt
        self.budget = attempt.budget_left

    @property
    def view(self) -> Any:
        """What an agent may know about the task."""
        return self._attempt.task_view

    @property
    def layout(self) -> Any:
        """A copy of the current layout."""
        return self._attempt.layout

    @property
    def budget_left(self) -> int:
        """Units of budget left."""
        return self._attempt.budget_left


def family_spaces(view: Any) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the base observation and action space of a task's family."""
    if isinstance(view, TaskView):
        from edagym.envs.fet.observation import observation_space
        from edagym.spaces.actions import EditSpace

        return observation_space(), EditSpace()
    if isinstance(view, DRCView):
        from edagym.envs.drc.observation import observation_space
        from edagym.spaces.drc_actions import DRCActionSpace

        return observation_space(), DRCActionSpace()
    from edagym.envs.ppa.observation import observation_space
    from edagym.spaces.ppa_actions import PPAActionSpace

    return observation_space(), PPAActionSpace()


class RLPolicy:
    """A trained policy as the harness wants it: base observations in, typed edits out.

    Args:
        name: A shipped policy's name, or the path of a checkpoint or run
            (`edagym.baselines.rl.checkpoint.load_policy`).
        greedy: Take the likeliest action instead of a sampled one.

    Raises:
        TaskError: If there is no such policy.
        PolicyError: If its wrapper stack reads what agents may not know.
    """

    privileged = False

    def __init__(self, name: str, greedy: bool = False) -> None:
        self._checkpoint = load_policy(name)
        self.greedy = greedy
        self.deterministic = greedy
        metadata = self._checkpoint.metadata
        self.name = f"rl:{metadata['name']}"
        self.env_options: dict[str, Any] = dict(metadata["eval_options"])
        self._make = resolve(metadata["env"])
        self._attempt: Attempt | None = None
        self._stack: gym.Env[Any, Any] | None = None
        self._network: Any = None
        self._forget()

    def _forget(self) -> None:
        self._waiting: deque[Any] = deque()
        self._edits: list[Any] = []
        self._results: list[StepResult] = []
        self._acted = False

    def settings(self) -> dict[str, Any]:
        """Return what goes into records: the policy, its weights' hash, and how it acts."""
        keys = ("name", "algo", "env", "env_kwargs", "steps", "seed", "hash")
        metadata = self._checkpoint.metadata
        return {**{k: metadata[k] for k in keys}, "actions": "greedy" if self.greedy else "sampled"}

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt; raises `PolicyError` if the stack is privileged or of another family."""
        self._forget()
        self._attempt = attempt
        self._stack = self._make(base=AttemptEnv(attempt), **self._checkpoint.metadata["env_kwargs"])
        if is_privileged(self._stack):
            raise PolicyError("the policy's wrappers read what agents may not know", field="env", value=self.name)
        self._plain.begin()
        if self._network is None:
            self._network = self._checkpoint.build(self._stack.observation_space, self._stack.action_space)

    @property
    def _plain(self) -> PlainWrapper:
        assert self._stack is not None, "bind comes before act"
        return plain_wrapper(self._stack)

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the next edit or command of the current action, or of the next one."""
        if self._acted:
            self._results.append((observation, 0.0, False, False, info))
        self._acted = True
        if not self._waiting:
            plain = self._plain
            if self._results:
                plain.after(self._edits, self._results)
                self._edits, self._results = [], []
            for _ in range(_MAX_FREE if plain.free_steps else 1):
                plain.known = (observation, info)
                action = self._choose(plain.encode(observation, info))
                try:
                    self._waiting.extend(plain.to_edits(action))
                except EditError as e:
                    raise PolicyError(str(e)) from e
                if self._waiting:
                    break
            else:
                raise PolicyError("the action names no edit")
        edit = self._waiting.popleft()
        self._edits.append(edit)
        return edit

    def _choose(self, observation: Any) -> Any:
        """Return the network's action for an encoded observation."""
        assert self._stack is not None
        assert self._attempt is not None
        outer = [w for w in wrappers_of(self._stack) if isinstance(w, gym.ObservationWrapper)]
        for wrapper in reversed(outer):
            observation = wrapper.observation(observation)
        options: dict[str, Any] = {"deterministic": self.greedy}
        if self._checkpoint.metadata["algo"] == "MaskablePPO":
            options["action_masks"] = cast(Any, self._plain).action_masks()
        with torch.random.fork_rng(devices=[]):
            # The networks sample with torch's global generator: it gets a seed of the attempt's own.
            torch.manual_seed(int(self._attempt.rng.integers(2**63)))
            action, _ = self._network.predict(observation, **options)
        return action
