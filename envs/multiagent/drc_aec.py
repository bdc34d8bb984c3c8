"""`DRCProposerCriticEnv`: a proposer and a critic repair one layout in turns (PettingZoo's AECEnv).

The proposer proposes an action of the DRC family; the critic approves it, replaces it by one of its own, or vetoes it.
Only what both agree on is carried out and charged, as with the Proposer-Critic agents of PostEDA-Bench (Appendix E):
proposal, critique and dispatch count as one, rounds without a dispatch not at all. So that an episode ends, the last of
`max_vetoes` vetoes in a row is charged like a refused edit.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, Space
from pettingzoo import AECEnv

from edagym.envs.core.edit_env import StepResult
from edagym.envs.drc.env import DRCEnv, DRCTrainEnv
from edagym.errors import EditError
from edagym.spaces.drc_actions import DRCAction, DRCActionSpace, drc_action_to_json

PROPOSER, CRITIC = "proposer", "critic"
VERDICTS = ("veto", "approve", "replace")
"""What a critic may say, by the number under ``"verdict"`` in its action."""

Observation = dict[str, Any]


class CriticActionSpace(Dict):
    """A critic's action: ``verdict``, Discrete(3), index into `VERDICTS`, and the keys of `DRCActionSpace`.

    The latter count for ``"replace"`` only.

    Args:
        seed: Seed of the space's own sampler.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__({"verdict": Discrete(len(VERDICTS)), **DRCActionSpace().spaces}, seed=seed)
        self.edits = DRCActionSpace()

    def blank(self, verdict: str = "approve") -> dict[str, Any]:
        """Return an action with a verdict and no replacement."""
        return {"verdict": np.int64(VERDICTS.index(verdict)), **self.edits.blank()}


class DRCProposerCriticEnv(AECEnv):
    """Two agents, one layout, one verdict; the reward is the team's, the same for both.

    Observations are those of `DRCEnv` and, under ``proposal_`` and the key's name, the arrays of the proposed action
    (`DRCActionSpace`; all zeros in the proposer's turn) and:
        proposed: (1,) int8: whether there is a proposal.
        vetoes: (1,) int16: vetoes in a row so far.

    Infos are those of `DRCEnv`, and ``proposal``: the proposed action as JSON text, or ``""``.

    Args:
        env: The environment to share; None: `DRCEnv` (or `DRCTrainEnv` for suite ``"DRC-Train"``) with `kwargs`.
        max_vetoes: Vetoes in a row of which the last is charged, at least 1.
        **kwargs: Keyword arguments of that environment.

    Raises:
        ValueError: If `max_vetoes` is out of range.
    """

    metadata: ClassVar[dict[str, Any]] = {
        **DRCEnv.metadata,
        "name": "drc_proposer_critic_v0",
        "is_parallelizable": False,
    }

    def __init__(self, env: DRCEnv | None = None, *, max_vetoes: int = 4, **kwargs: Any) -> None:
        super().__init__()
        if max_vetoes < 1:
            raise ValueError(f"max_vetoes must be at least 1, got {max_vetoes!r}")
        if env is None:
            train = kwargs.get("suite") == "DRC-Train"
            if train:
                del kwargs["suite"]
            env = (DRCTrainEnv if train else DRCEnv)(**kwargs)
        self._env = env
        self.render_mode = env.render_mode
        self.max_vetoes = max_vetoes
        self.possible_agents = [PROPOSER, CRITIC]
        self.agents: list[str] = []
        self.action_spaces: dict[str, DRCActionSpace | CriticActionSpace] = {
            PROPOSER: DRCActionSpace(),
            CRITIC: CriticActionSpace(),
        }
        assert isinstance(env.observation_space, Dict)
        spaces: dict[str, Space[Any]] = {
            **env.observation_space.spaces,
            **{f"proposal_{key}": space for key, space in DRCActionSpace().spaces.items()},
            "proposed": Box(0, 1, (1,), np.int8),
            "vetoes": Box(0, np.iinfo(np.int16).max, (1,), np.int16),
        }
        self.observation_spaces = {agent: Dict(spaces) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Dict:
        """Return an agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> DRCActionSpace | CriticActionSpace:
        """Return an agent's action space, always the same object."""
        return self.action_spaces[agent]

    @property
    def unwrapped_env(self) -> DRCEnv:
        """The shared single-agent environment."""
        return self._env

    @property
    def proposal(self) -> DRCAction | None:
        """What the critic is to judge."""
        return self._proposal

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode with the proposer's turn.

        Args:
            seed: As of `EditEnv.reset`.
            options: ``{"task": id}`` picks the task; other keys are ignored, as PettingZoo's own test expects.
        """
        known = {"task": options["task"]} if options and "task" in options else None
        observation, info = self._env.reset(seed=seed, options=known)
        self.agents = list(self.possible_agents)
        self.agent_selection = PROPOSER
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._vetoes = 0
        self._set_proposal(None)
        self._see(observation, info)

    def step(self, action: Any) -> None:
        """Run the selected agent's action; a proposal that cannot be read is refused at once, and charged.

        Args:
            action: A proposal in any form that `DRCActionSpace.read` takes, or the critic's action.
        """
        if not self.agents:
            raise ResetNeeded("there are no agents: the episode is over (or never began), call reset()")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        if agent == PROPOSER:
            self._propose(action)
        else:
            self._judge(action)
        self._accumulate_rewards()

    def _propose(self, action: Any) -> None:
        try:
            self._set_proposal(self._env.action_space.read(action, self._env.context))
        except EditError as e:
            self._dispatched(self._env.refuse(str(e)))
            return
        self._see(*self._env.observe())
        self.agent_selection = CRITIC

    def _judge(self, action: Any) -> None:
        assert self._proposal is not None
        chosen: DRCAction = self._proposal
        refusal = ""
        try:
            row = int(action["verdict"])
            verdict = VERDICTS[row] if 0 <= row < len(VERDICTS) else "veto"
            if verdict == "replace":
                chosen = self._env.action_space.to_edit(action, self._env.context)
        except (EditError, LookupError, TypeError, ValueError) as e:
            verdict, refusal = "veto", f"the critic's action cannot be read: {e}"
        if verdict != "veto":
            self._vetoes = 0
            self._dispatched(self._env.step_edit(chosen))
            return
        self._vetoes += 1
        if self._vetoes == self.max_vetoes:
            self._vetoes = 0
            self._dispatched(self._env.refuse(refusal or f"vetoed {self.max_vetoes} times in a row"))
            return
        self._set_proposal(None)
        self._see(*self._env.observe())
        self.agent_selection = PROPOSER

    def _dispatched(self, result: StepResult) -> None:
        """Take over what the shared environment answered; it is the proposer's turn again."""
        observation, reward, terminated, truncated, info = result
        self._set_proposal(None)
        self.rewards = dict.fromkeys(self.agents, float(reward))
        self.terminations = dict.fromkeys(self.agents, terminated)
        self.truncations = dict.fromkeys(self.agents, truncated)
        self._see(observation, info)
        self.agent_selection = PROPOSER

    def _set_proposal(self, proposal: DRCAction | None) -> None:
        """Set what the critic is to judge; raises `EditError` if it does not fit the action space."""
        space = self._env.action_space
        arrays = space.blank() if proposal is None else space.from_edit(proposal, self._env.context)
        self._proposal = proposal
        self._proposal_arrays = {f"proposal_{key}": value for key, value in arrays.items()}

    def _see(self, observation: Observation, info: dict[str, Any]) -> None:
        self._observation = observation
        text = "" if self._proposal is None else json.dumps(drc_action_to_json(self._proposal))
        self.infos = {agent: {**info, "verdict": dict(info["verdict"]), "proposal": text} for agent in self.agents}

    def observe(self, agent: str) -> Observation:
        """Return what an agent sees: fresh arrays, the same for both agents."""
        shown = {key: np.copy(array) for key, array in self._observation.items()}
        shown |= {
            key: np.copy(array) if np.ndim(array) or isinstance(array, np.ndarray) else array
            for key, array in self._proposal_arrays.items()
        }
        shown["proposed"] = np.array([self._proposal is not None], np.int8)
        shown["vetoes"] = np.array([self._vetoes], np.int16)
        return shown

    def render(self) -> Any:
        """Render the shared layout; see `EditEnv.render`."""
        return self._env.render()

    def close(self) -> None:
        """Close the shared environment."""
        self._env.close()
