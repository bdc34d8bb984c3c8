"""`FETParallelEnv`: a FET task shared by one agent per flake (PettingZoo's ParallelEnv).

All agents draw on one layout. In every step each agent acts; edits are applied in agent order and each is charged to
the common budget. If any agent asks for a verify, one is run after the edits and charged once. The team submits in the
step in which every agent says submit or declare_infeasible; until then such an action waits and costs nothing.

The reward is the team's, the same for all, or, with ``reward="flake"``, each agent's own at the end of the episode: 1
if no failed check of the final verdict is the agent's (`concerns`). Checks say where their first violation lies: of
several agents who break one rule only the first is blamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Space
from pettingzoo import ParallelEnv

from edagym.envs.core.edit_env import StepResult
from edagym.envs.fet.env import FETEnv, FETTrainEnv
from edagym.errors import EditError
from edagym.spaces.actions import Command, EditSpace
from edagym.spaces.contours import MAX_REGIONS, MAX_RING_POINTS
from edagym.spaces.rings import MAX_COORD_UM
from edagym.task_assets.fet.task import Region
from edagym.verifiers.verdict import CheckResult

_FINAL = (Command.SUBMIT, Command.DECLARE_INFEASIBLE)

Agents = dict[str, Any]


def concerns(check: CheckResult, region: Region, regions: Sequence[Region]) -> bool:
    """Return whether a check is about a region: it names it, or else its violation lies at it, or at none of them."""
    named = {r.name for r in regions} & set(check.id.split(":"))
    if named or check.where is None:
        return not named or region.name in named
    at = [r.name for r in regions if _touch(_bounds(r), check.where)]
    return not at or region.name in at


def _bounds(region: Region) -> tuple[float, float, float, float]:
    xs, ys = zip(*region.hull)
    return (min(xs), min(ys), max(xs), max(ys))


def _touch(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


class FETParallelEnv(ParallelEnv):
    """One agent per flake, one layout, one verdict.

    Observations are those of `FETEnv` and:
        own_region: (1,) int16: row of the agent's flake.
        own_points: (128, 2) float32, um: outer ring of the agent's flake.
        own_n_points: (1,) int16.

    Args:
        env: The environment to share; None: `FETEnv` (or `FETTrainEnv` for suite ``"FET-Train"``) with `kwargs`.
        reward: ``"team"``: the shared environment's reward for all; ``"flake"``: each agent's own (module docstring).
        **kwargs: Keyword arguments of that environment.

    Raises:
        ValueError: If `reward` is unknown.
    """

    metadata: ClassVar[dict[str, Any]] = {**FETEnv.metadata, "name": "fet_parallel_v0", "is_parallelizable": True}

    def __init__(self, env: FETEnv | None = None, *, reward: Literal["team", "flake"] = "team", **kwargs: Any) -> None:
        if reward not in ("team", "flake"):
            raise ValueError(f"reward must be 'team' or 'flake', got {reward!r}")
        self.reward = reward
        if env is None:
            train = kwargs.get("suite") == "FET-Train"
            if train:
                del kwargs["suite"]
            env = (FETTrainEnv if train else FETEnv)(**kwargs)
        self._env = env
        self.render_mode = env.render_mode
        # As many as the largest task needs; endless environments may ask for the published maximum.
        sizes = [len(env.find_task(task_id).regions) for task_id in env.task_ids] or [MAX_REGIONS]
        self.possible_agents = [f"flake_{i + 1}" for i in range(max(sizes))]
        self.agents: list[str] = []
        own: dict[str, Space[Any]] = {
            "own_region": Box(0, MAX_REGIONS - 1, (1,), np.int16),
            "own_points": Box(-MAX_COORD_UM, MAX_COORD_UM, (MAX_RING_POINTS, 2), np.float32),
            "own_n_points": Box(0, MAX_RING_POINTS, (1,), np.int16),
        }
        assert isinstance(env.observation_space, Dict)
        shared: dict[str, Space[Any]] = env.observation_space.spaces
        self.observation_spaces = {a: Dict({**shared, **own}) for a in self.possible_agents}
        self.action_spaces = {a: EditSpace() for a in self.possible_agents}

    def observation_space(self, agent: str) -> Dict:
        """Return an agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> EditSpace:
        """Return an agent's action space, always the same object."""
        return self.action_spaces[agent]

    @property
    def unwrapped_env(self) -> FETEnv:
        """The shared single-agent environment."""
        return self._env

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Agents, Agents]:
        """Start an episode; the agents are the task's flakes, in region order.

        Args:
            seed: As of `EditEnv.reset`.
            options: ``{"task": id}`` picks the task; other keys are ignored, as PettingZoo's own test expects.
        """
        known = {"task": options["task"]} if options and "task" in options else None
        observation, info = self._env.reset(seed=seed, options=known)
        self.agents = self.possible_agents[: len(self._env.view.regions)]
        return self._shared(observation, info)

    def step(self, actions: Agents) -> tuple[Agents, Agents, Agents, Agents, Agents]:
        """Run one action of every agent; see the module docstring.

        Args:
            actions: By agent, in any form that `EditSpace.read` takes.

        Returns:
            Observations, rewards, terminations, truncations and infos by agent. ``edit_error`` in an agent's info is
            about its own edit.
        """
        agents = list(self.agents)
        layers = [spec.name for spec in self._env.view.layers]
        commands: dict[str, Command] = {}
        errors = dict.fromkeys(agents, "")
        result: StepResult | None = None
        for agent in agents:
            try:
                action = self.action_spaces[agent].read(actions[agent], layers)
            except EditError as e:
                result = self._env.refuse(str(e))
            else:
                if isinstance(action, Command):
                    commands[agent] = action
                    continue
                result = self._env.step_edit(action)
            errors[agent] = result[4]["edit_error"]
            if self._env.ended:
                break
        if not self._env.ended and commands:
            if len(commands) == len(agents) and all(c in _FINAL for c in commands.values()):
                unanimous = all(c is Command.SUBMIT for c in commands.values())
                result = self._env.step_edit(Command.SUBMIT if unanimous else Command.DECLARE_INFEASIBLE)
            elif Command.VERIFY in commands.values():
                result = self._env.step_edit(Command.VERIFY)
        # An edit, a verify or the team's end has run: when nobody edits and nobody verifies, all want to end.
        if result is None:
            raise ResetNeeded("there are no agents: the episode is over (or never began), call reset()")
        observation, reward, terminated, truncated, info = result
        observations, infos = self._shared(observation, info)
        for agent in agents:
            infos[agent]["edit_error"] = errors[agent]
        if terminated or truncated:
            self.agents = []
        return (
            observations,
            self._rewards(agents, reward),
            dict.fromkeys(agents, terminated),
            dict.fromkeys(agents, truncated),
            infos,
        )

    def _rewards(self, agents: list[str], team: float) -> dict[str, float]:
        verdict = self._env.verdict
        # After a tool failure the team's reward is NaN, and so is everybody's.
        if self.reward == "team" or np.isnan(team):
            return dict.fromkeys(agents, team)
        if not self._env.ended or verdict is None:
            return dict.fromkeys(agents, 0.0)
        regions = self._env.view.regions
        failed = verdict.failed(self._env.criterion)
        return {
            agent: float(not any(concerns(check, region, regions) for check in failed))
            for agent, region in zip(agents, regions)
        }

    def _shared(self, observation: Agents, info: Agents) -> tuple[Agents, Agents]:
        """Give every agent its own copy, with its flake added."""
        observations, infos = {}, {}
        for i, agent in enumerate(self.agents):
            observations[agent] = {key: array.copy() for key, array in observation.items()}
            observations[agent]["own_region"] = np.array([i], np.int16)
            observations[agent]["own_points"] = observation["region_points"][i].copy()
            observations[agent]["own_n_points"] = observation["region_n_points"][i : i + 1].copy()
            infos[agent] = {**info, "verdict": dict(info["verdict"])}
        return observations, infos

    def render(self) -> Any:
        """Render the shared layout; see `EditEnv.render`."""
        return self._env.render()

    def close(self) -> None:
        """Close the shared environment."""
        self._env.close()
