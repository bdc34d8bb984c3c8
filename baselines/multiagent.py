"""Single-agent policies in the multi-agent environments, unchanged.

`FlakeTeam` gives every flake of a `FETParallelEnv` a policy of its own. To its policy an agent's part looks like a task
with one flake: view, observation, prompt and verdict are those of its own flake, in row 0. The design rules, the
layout with all that others have drawn, and the budget are everybody's. `run_pair` seats a policy as the proposer of a
`DRCProposerCriticEnv`, beside a critic. What they lead to is in the shared environment's trace, which replays without
any of this.

An agent acts in turn: only what `act` returns is done. Attempts here cannot apply or restore anything, which would pass
the critic by, or undo what others did; policies that try get a `PolicyError`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from edagym.baselines.policies import Attempt, Bookmark, Policy, attempt_seed
from edagym.envs.core.edit_env import verdict_summary
from edagym.envs.drc.env import DRCEnv
from edagym.envs.fet.observation import check_flags, found_transistors, static_arrays
from edagym.envs.multiagent.drc_aec import CRITIC, PROPOSER, CriticActionSpace, DRCProposerCriticEnv
from edagym.envs.multiagent.fet_parallel import FETParallelEnv, concerns
from edagym.errors import EditError, PolicyError
from edagym.spaces.actions import Command
from edagym.spaces.drc_actions import DRCAction
from edagym.spaces.drc_queries import Query
from edagym.task_assets.fet.task import FETTask, Region, Rule, TaskView
from edagym.verifiers.verdict import Verdict

FINAL = (Command.SUBMIT, Command.DECLARE_INFEASIBLE)
"""Commands by which an agent says that it has finished."""


# -- what belongs to one flake -----------------------------------------------------------------------------------------


def flake_view(view: TaskView, k: int) -> TaskView:
    """Return a task as the agent of region `k` sees it: one flake, its demand, the rules that apply to it.

    A circuit becomes the number of transistors that it needs on the flake: wires between flakes are no single agent's.
    The objective, the layer table and the design order stay those of the whole task.
    """
    region = view.regions[k]
    demand = view.circuit.exact_per_flake[k] if view.circuit else view.demand[k]
    rules = tuple(r for r in view.drc_rules if _applies(r, region, view))
    return dataclasses.replace(view, regions=(region,), drc_rules=rules, demand=(demand,), circuit=None)


def flake_task(task: FETTask, k: int) -> FETTask:
    """Return the part of a task, hidden criteria included, that is about region `k`; see `flake_view`."""
    view = task.view()
    region = task.regions[k]
    drc = tuple(r for r in task.drc_rules if _applies(r, region, view))
    structural = tuple(r for r in task.structural if r.kind != "circuit_spec" and _applies(r, region, view))
    return dataclasses.replace(task, regions=(region,), drc_rules=drc, structural=structural)


def _applies(rule: Rule, region: Region, view: TaskView) -> bool:
    """Return whether a rule is about a region: it names no other one, and no other one's material."""
    fixed = {spec.name for spec in view.layers if not spec.editable}
    return rule.region in (None, region.name) and not (fixed - {region.material}) & set(rule.layers)


def flake_verdict(verdict: Verdict, k: int, regions: tuple[Region, ...]) -> Verdict:
    """Return the part of a verdict that is about region `k` (`edagym.envs.multiagent.fet_parallel.concerns`)."""
    checks = tuple(c for c in verdict.checks if concerns(c, regions[k], regions))
    return Verdict(
        all(c.passed for c in checks if not c.strict), all(c.passed for c in checks), checks, dict(verdict.metrics)
    )


class FlakeAttempt(Attempt):
    """An agent's handle on its part of a shared task.

    Args:
        env: The environment, just reset.
        k: Index of the agent's region.
        seed: Seed of the agent's generator.
        privileged: Whether the policy may see the hidden part of its flake's task.
    """

    def __init__(self, env: FETParallelEnv, k: int, seed: int = 0, privileged: bool = False) -> None:
        super().__init__(env.unwrapped_env, seed, privileged)
        self._k = k
        self._regions = env.unwrapped_env.view.regions
        self._view = flake_view(env.unwrapped_env.view, k)
        self._static = static_arrays(self._view)
        self._heard: tuple[Verdict | None, Verdict | None] = (None, None)

    @property
    def task_view(self) -> TaskView:
        """What the agent may know: its own flake, with the rules and demand that apply to it."""
        return self._view

    @property
    def task(self) -> FETTask:
        """The part of the task that is about the agent's flake; raises `PolicyError` unless privileged."""
        return flake_task(super().task, self._k)

    @property
    def prompt(self) -> str:
        """The agent's part as a text for language models (scaffold C0)."""
        from edagym.envs.fet.prompt import render_prompt

        return render_prompt(self._view)

    @property
    def verdict(self) -> Verdict | None:
        """The part of the last verdict, whoever of the team asked for it, that is about the agent's flake."""
        found = super().verdict
        if found is not self._heard[0]:
            self._heard = (found, None if found is None else flake_verdict(found, self._k, self._regions))
        return self._heard[1]

    def shown(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the single-agent observation and info of an agent's observation and info; arrays are fresh.

        Args:
            observation: The agent's observation of `FETParallelEnv`.
            info: Its info.

        Returns:
            An observation in `edagym.envs.fet.observation.observation_space`: the own flake in row 0, the shapes of the
            whole team, and flags of the own part of the last verdict; and the info of `EditEnv` with that part.
        """
        verdict, mine = self.verdict, self.own_info(info)
        own = {key: np.copy(array) for key, array in self._static.items()}
        for key in ("shape_points", "shape_n_points", "shape_layer", "budget_left", "inputs_changed"):
            own[key] = np.copy(observation[key])
        own["last_checks"] = check_flags(verdict, self.criterion)
        own["last_transistors"] = found_transistors(verdict, self._view.regions)
        own["last_share"] = np.array((mine["verdict"]["share_passed"],), np.float32)
        own["last_edit_error"] = np.array((bool(info["edit_error"]),), np.int8)
        return own, mine

    def own_info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return an agent's info with the own part of the last verdict."""
        return {**info, "verdict": verdict_summary(self.verdict, self.criterion)}

    def apply(self, action: Any) -> NoReturn:
        """Refuse: what is not the agent's turn is not done."""
        _refuse("apply")

    def check(self) -> NoReturn:
        """Refuse: see `apply`."""
        _refuse("check")

    def fork(self) -> NoReturn:
        """Refuse: see `apply`."""
        _refuse("fork")

    def restore(self, place: Bookmark) -> NoReturn:
        """Refuse: it would undo what others did."""
        _refuse("restore")

    def restart(self) -> NoReturn:
        """Refuse: it would undo what others did."""
        _refuse("restart")


def _refuse(what: str) -> NoReturn:
    raise PolicyError("an agent of a team acts by what `act` returns", field="attempt", value=what)


# -- a team of policies ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TeamEpisode:
    """An episode that is over.

    Attributes:
        rewards: Sum of rewards by agent; NaN after a tool failure.
        info: The last info of the shared environment.
        trace: Trace of the shared environment: typed edits and commands, which replay without the team.
        notes: What the policies wrote down, by agent.
    """

    rewards: dict[str, float]
    info: dict[str, Any]
    trace: dict[str, Any]
    notes: dict[str, list[dict[str, Any]]]


class FlakeTeam:
    """One policy per flake of a `FETParallelEnv`.

    A policy that has submitted, or declared its flake infeasible, is not asked again; its command waits for the
    others'. Lists of edits are handed over one by one, each at its own charge.

    Args:
        env: The environment.
        make: Returns a new policy, e.g. a policy's class; called once per agent and episode.
    """

    def __init__(self, env: FETParallelEnv, make: Callable[[], Policy]) -> None:
        self.env = env
        self._make = make
        self.attempts: dict[str, FlakeAttempt] = {}
        self._policies: dict[str, Policy] = {}
        self._queues: dict[str, deque[Any]] = {}
        self._final: dict[str, Any] = {}

    def begin(self, seed: int = 0) -> None:
        """Seat a new policy at every flake of the task at hand; call it after each reset.

        Args:
            seed: Seed of the episode; every agent's generator gets one of its own.
        """
        task_id = self.env.unwrapped_env.view.id
        self._policies = {agent: self._make() for agent in self.env.agents}
        self._queues = {agent: deque() for agent in self.env.agents}
        self._final = {}
        self.attempts = {
            agent: FlakeAttempt(self.env, k, attempt_seed(agent, task_id, 0, seed), self._policies[agent].privileged)
            for k, agent in enumerate(self.env.agents)
        }
        for agent, policy in self._policies.items():
            policy.bind(self.attempts[agent])

    def act(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> dict[str, Any]:
        """Return every agent's action, in any form that `FETParallelEnv.step` takes."""
        return {agent: self._next(agent, observations[agent], infos[agent]) for agent in self.env.agents}

    def _next(self, agent: str, observation: Mapping[str, Any], info: Mapping[str, Any]) -> Any:
        if agent in self._final:
            return self._final[agent]
        queue = self._queues[agent]
        if not queue:
            action = self._policies[agent].act(*self.attempts[agent].shown(observation, info))
            queue.extend(action if isinstance(action, list | tuple) else [action])
        # An empty list names no edit; the environment refuses it.
        action = queue.popleft() if queue else {}
        if self._command(action) in FINAL:
            self._final[agent] = action
        return action

    def _command(self, action: Any) -> Any:
        """Return the command that an action in any form is, or something else."""
        layers = [spec.name for spec in self.env.unwrapped_env.view.layers]
        try:
            return self.env.action_space("flake_1").read(action, layers)
        except EditError:
            return None


def run_team(env: FETParallelEnv, make: Callable[[], Policy], *, task: Any = None, seed: int = 0) -> TeamEpisode:
    """Run one episode with a policy per flake.

    Args:
        env: The environment.
        make: Returns a new policy.
        task: Task id or object; None: the environment's choice.
        seed: Seed of the environment's choice and of the agents.

    Raises:
        PolicyError: If a policy fails, or needs more than a team can give.
    """
    observations, infos = env.reset(seed=seed, options=None if task is None else {"task": task})
    team = FlakeTeam(env, make)
    team.begin(seed)
    totals = dict.fromkeys(env.agents, 0.0)
    while env.agents:
        observations, rewards, _, _, infos = env.step(team.act(observations, infos))
        totals = {agent: total + rewards[agent] for agent, total in totals.items()}
    notes = {agent: attempt.notes for agent, attempt in team.attempts.items()}
    return TeamEpisode(totals, next(iter(infos.values())), env.unwrapped_env.trace(), notes)


# -- proposer and critic -----------------------------------------------------------------------------------------------


class Critic(Protocol):
    """Judges proposals."""

    def judge(self, env: DRCEnv, proposal: DRCAction) -> str | DRCAction:
        """Return ``"approve"``, ``"veto"``, or the edit, query or command to be carried out instead."""


class ApproveAll:
    """Approves everything: the proposer alone, in the other environment."""

    def judge(self, env: DRCEnv, proposal: DRCAction) -> str:
        """Approve."""
        return "approve"


class RuleCritic:
    """Vetoes edits that would leave more violations than there were, by a paid check on a copy of the layout.

    Every judgement of an edit costs two units of the common budget: the edit on the copy, and its check. What is no
    edit, or what the budget does not allow to look at, is approved.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, Any], int] = {}  # violations by task and edits

    def judge(self, env: DRCEnv, proposal: DRCAction) -> str:
        """Return the judgement."""
        if isinstance(proposal, Command | Query) or env.budget_left < 4:
            return "approve"
        _, info = env.observe()
        task_id = info["task_id"]
        before = self._found.get((task_id, env.edits), info["n_violations"])
        twin = env.fork()
        *_, drawn = twin.step_edit(proposal)
        *_, checked = twin.step_edit(Command.VERIFY)
        env.charge_up_to(twin)
        self._found[task_id, (*env.edits, proposal)] = checked["n_violations"]
        return "veto" if drawn["edit_error"] or checked["n_violations"] > before else "approve"


class ProposerAttempt(Attempt):
    """A proposer's handle: all of an `Attempt` but acting on its own."""

    def apply(self, action: Any) -> NoReturn:
        """Refuse: the critic would not be asked."""
        _refuse("apply")

    def check(self) -> NoReturn:
        """Refuse: the critic would not be asked."""
        _refuse("check")

    def restore(self, place: Bookmark) -> NoReturn:
        """Refuse: the critic would not be asked."""
        _refuse("restore")

    def restart(self) -> NoReturn:
        """Refuse: the critic would not be asked."""
        _refuse("restart")


def run_pair(
    env: DRCProposerCriticEnv, proposer: Policy, critic: Critic, *, task: Any = None, seed: int = 0
) -> TeamEpisode:
    """Run one episode with a policy as the proposer.

    Args:
        env: The environment.
        proposer: The policy.
        critic: The critic.
        task: Task id or object; None: the environment's choice.
        seed: Seed of the environment's choice and of the policy.

    Raises:
        PolicyError: If the policy fails, or needs more than a proposer has.
    """
    env.reset(seed=seed, options=None if task is None else {"task": task})
    shared = env.unwrapped_env
    attempt = ProposerAttempt(shared, attempt_seed(PROPOSER, shared.view.id, 0, seed), proposer.privileged)
    proposer.bind(attempt)
    totals = dict.fromkeys(env.possible_agents, 0.0)
    names = [key for key in env.observe(PROPOSER) if key in shared.observe()[0]]
    while not (env.terminations[PROPOSER] or env.truncations[PROPOSER]):
        observation, _, _, _, info = env.last()
        if env.agent_selection == PROPOSER:
            shown = {key: observation[key] for key in names}
            env.step(proposer.act(shown, {k: v for k, v in info.items() if k != "proposal"}))
        else:
            assert env.proposal is not None
            said = critic.judge(shared, env.proposal)
            space = env.action_spaces[CRITIC]
            assert isinstance(space, CriticActionSpace)
            if isinstance(said, str) and not isinstance(said, Command):
                env.step(space.blank(said))
            else:
                env.step(space.blank("replace") | space.edits.from_edit(said, shared.context))
        totals = {agent: total + env.rewards[agent] for agent, total in totals.items()}
    info = {k: v for k, v in env.infos[PROPOSER].items() if k != "proposal"}
    return TeamEpisode(totals, info, shared.trace(), {PROPOSER: attempt.notes, CRITIC: []})
