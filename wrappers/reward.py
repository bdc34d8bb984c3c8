"""Shaped rewards for training: potentials, credit per check, a price on refused edits.

`Shaped` and `CheckCredit` look at hidden verdicts at every step: their `privileged` is True, so are the specs and
checkpoints that they are part of, and no policy is evaluated under them. They go outside of action wrappers, so that
one action counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from edagym.envs.core.edit_env import EditEnv
from edagym.task_assets.drc.task import DRCTask
from edagym.task_assets.fet.task import FETTask
from edagym.verifiers.verdict import Criterion, Verdict

Potential = Callable[[EditEnv[Any, Any]], float]
"""Base environment -> how far the episode has come; 0 to 1 for those of this module. It may read hidden things."""


def transistors_formed(env: EditEnv[Any, Any], verdict: Verdict) -> float:
    """Return the share of the transistors asked for that were formed, flake by flake; 1 where no number is asked."""
    task = env.task
    view = task.view()
    asked = {r.name: n for r, n in zip(view.regions, view.demand) if n}
    formed = [min(verdict.metrics.get(f"transistors:{name}", 0.0) / n, 1.0) for name, n in asked.items()]
    return sum(formed) / len(formed) if formed else 1.0


def checks_potential(env: EditEnv[Any, Any]) -> float:
    """Return the share of checks passed under the environment's criterion."""
    return env.peek().share_passed(env.criterion)


def progress_potential(env: EditEnv[Any, Any]) -> float:
    """Return how far an episode has come, 0 to 1, the default of `Shaped`.

    FET: the mean of the share of checks passed and the share of transistors formed; DRC: the violation reduction rate;
    PPA: the improvement score, 0 where it is negative.
    """
    verdict = env.peek()
    if isinstance(env.task, FETTask):
        return (verdict.share_passed(env.criterion) + transistors_formed(env, verdict)) / 2
    if isinstance(env.task, DRCTask):
        return float(verdict.metrics["vrr"])
    return max(float(verdict.metrics["nis"]), 0.0)


POTENTIALS: dict[str, Potential] = {"progress": progress_potential, "checks": checks_potential}
"""Potentials by name."""


class Shaped(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Adds ``scale * (gamma * potential(after) - potential(before))`` to every reward (Ng, Harada and Russell 1999).

    The potential of an ended episode is 0, so that the discounted sum of what is added is minus the first potential,
    whatever the policy: no ranking of policies changes. ``info["potential"]`` is the potential after the step.

    Args:
        env: The environment, action wrappers included.
        potential: A name of `POTENTIALS`, or any `Potential`.
        gamma: Discount factor; the learner's own.
        scale: Weight.

    Raises:
        ValueError: If the name is unknown.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: str | Potential = "progress",
        gamma: float = 0.99,
        scale: float = 1.0,
        privileged: bool = True,
    ) -> None:
        # `privileged` is an argument only so that the spec names it; a potential that reads nothing hidden may say so.
        gym.utils.RecordConstructorArgs.__init__(
            self, potential=potential, gamma=gamma, scale=scale, privileged=privileged
        )
        super().__init__(env)
        if isinstance(potential, str) and potential not in POTENTIALS:
            raise ValueError(f"potential must be one of {sorted(POTENTIALS)} or a function, got {potential!r}")
        self.privileged = privileged or isinstance(potential, str)
        self._potential = POTENTIALS[potential] if isinstance(potential, str) else potential
        self.gamma, self.scale = gamma, scale
        self._before = 0.0

    @property
    def _base(self) -> EditEnv[Any, Any]:
        base = self.env.unwrapped
        assert isinstance(base, EditEnv)
        return base

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._before = float(self._potential(self._base))
        return observation, {**info, "potential": self._before}

    def step(self, action: Any) -> Any:
        """Run a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        after = 0.0 if terminated or truncated else float(self._potential(self._base))
        reward = float(reward) + self.scale * (self.gamma * after - self._before)
        self._before = after
        return observation, reward, terminated, truncated, {**info, "potential": after}


class CheckCredit(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Pays for each check that begins to pass, and takes it back when it fails again.

    Unlike `Shaped` it keeps what was paid when the episode ends: a layout that passes all but one check is worth more
    than an empty one. ``info["checks_gained"]`` is the weighted number of checks gained in the step.

    Args:
        env: The environment, action wrappers included.
        weight: Pay for all checks together.
        kinds: Check kind -> weight beside the others (1); 0 leaves a kind out.
    """

    privileged = True

    def __init__(self, env: gym.Env[Any, Any], weight: float = 0.5, kinds: Mapping[str, float] | None = None) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, weight=weight, kinds=kinds)
        super().__init__(env)
        self.weight = weight
        self._kinds = dict(kinds or {})
        self._before: dict[str, bool] = {}

    def _passed(self) -> dict[str, tuple[bool, float]]:
        base = self.env.unwrapped
        assert isinstance(base, EditEnv)
        criterion: Criterion = base.criterion
        checks = [c for c in base.peek().checks if criterion == "strict" or not c.strict]
        return {c.id: (c.passed, self._kinds.get(c.kind, 1.0)) for c in checks}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._before = {check: passed for check, (passed, _) in self._passed().items()}
        return observation, {**info, "checks_gained": 0.0}

    def step(self, action: Any) -> Any:
        """Run a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if info["error"]:
            return observation, reward, terminated, truncated, {**info, "checks_gained": 0.0}
        now = self._passed()
        gained = sum(w * (passed - self._before.get(check, False)) for check, (passed, w) in now.items())
        total = sum(w for _, w in now.values())
        self._before = {check: passed for check, (passed, _) in now.items()}
        credit = self.weight * gained / total if total else 0.0
        return observation, float(reward) + credit, terminated, truncated, {**info, "checks_gained": float(gained)}


class EditPenalty(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Takes a fixed amount for every refused edit; nothing hidden is read.

    Args:
        env: The environment, action wrappers included.
        penalty: Amount per refused edit.
    """

    privileged = False

    def __init__(self, env: gym.Env[Any, Any], penalty: float = 0.01) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, penalty=penalty)
        super().__init__(env)
        self.penalty = penalty

    def step(self, action: Any) -> Any:
        """Run a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        refused = info.get("n_refused", int(bool(info["edit_error"])))
        return observation, float(reward) - self.penalty * refused, terminated, truncated, info
