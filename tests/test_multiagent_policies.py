"""Single-agent policies in the multi-agent environments, unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drc_cases import bars
from drc_cases import make_task as drc_task
from fet_cases import box, make_task

pytest.importorskip("pettingzoo", reason="PettingZoo is in the extra `rl`")

from edagym.baselines.multiagent import (
    ApproveAll,
    FlakeAttempt,
    RuleCritic,
    flake_task,
    flake_view,
    run_pair,
    run_team,
)
from edagym.baselines.policies import RandomPolicy, ReferencePolicy
from edagym.baselines.search.drc_repair import DRCSearchPolicy
from edagym.envs.core.trace import trace_actions
from edagym.envs.drc.env import DRCEnv
from edagym.envs.fet.env import FETEnv
from edagym.envs.fet.observation import CHECK_KINDS, observation_space
from edagym.envs.multiagent.drc_aec import DRCProposerCriticEnv
from edagym.envs.multiagent.fet_parallel import FETParallelEnv
from edagym.errors import PolicyError
from edagym.spaces.actions import Command, EditSpace
from edagym.spaces.drc_edits import AddShape, drc_edit_to_json
from edagym.spaces.edits import AddPolygon, edit_from_json
from edagym.task_assets.fet import CircuitSpec

FLAKES = [(box(0, 0, 20, 6), ()), (box(0, 20, 20, 26), ())]
TASK = make_task(FLAKES, (1, 2), materials=("graphene", "MoS2"))
BARS = drc_task(bars(10))


class Scripted:
    """Plays a list of actions, in whatever form they are."""

    name, privileged, deterministic = "scripted", False, True

    def __init__(self, *actions: Any) -> None:
        self.actions = list(actions)
        self.seen: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def bind(self, attempt: Any) -> None:
        self.attempt = attempt

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        self.seen.append((observation, info))
        return self.actions.pop(0)


def device(y: float) -> list[AddPolygon]:
    return [
        AddPolygon("contacts", box(2, y + 1, 7, y + 5)),
        AddPolygon("contacts", box(13, y + 1, 18, y + 5)),
        AddPolygon("gate", box(9, y - 1, 11, y + 7)),
    ]


def seated(env: FETParallelEnv, *scripts: list[Any]) -> tuple[list[Scripted], Any]:
    policies = [Scripted(*script) for script in scripts]
    waiting = iter(policies)
    return policies, run_team(env, lambda: next(waiting))


def assert_replays(base: Any, task: Any, trace: dict[str, Any]) -> None:
    """The same verdict, step by step and at the end, without any team."""
    base.reset(options={"task": task})
    results = base.replay(trace_actions(trace))
    assert base.trace()["steps"] == trace["steps"]
    assert [r[4]["verdict"] for r in results if r[2] or r[3]] == [trace["steps"][-1]["verdict"]]


@pytest.mark.parametrize(("make", "share"), [(RandomPolicy, 0.0), (ReferencePolicy, 1.0)])
def test_policies_run_in_a_team_and_the_trace_replays(make, share):
    episode = run_team(FETParallelEnv(tasks=[TASK], reward="flake"), make, seed=3)
    assert set(episode.rewards.values()) == {share}
    assert episode.info["is_success"] == bool(share)
    assert {s["action"]["op"] for s in episode.trace["steps"]} == {"add_polygon", "submit"}
    assert_replays(FETEnv(tasks=[TASK]), TASK.id, episode.trace)
    assert run_team(FETParallelEnv(tasks=[TASK]), make, seed=3).trace == episode.trace


def test_a_trained_policy_runs_in_a_team(tmp_path):
    pytest.importorskip("sb3_contrib")
    from edagym.baselines.rl.policy import RLPolicy
    from edagym.baselines.rl.presets import Preset
    from edagym.baselines.rl.trainer import train

    small = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}}
    preset = Preset(
        name="small",
        family="fet",
        env="edagym.baselines.rl.fet_stacks:fet_macro",
        env_kwargs={"level": "L1", "pool": 2, "fresh": 0.0},
        algo="MaskablePPO",
        hyperparameters=small,
        n_envs=1,
        total_steps=16,
    )
    train(preset, tmp_path / "run", progress=False)
    env = FETParallelEnv(tasks=[TASK])
    episode = run_team(env, lambda: RLPolicy(str(tmp_path / "run")), seed=1)
    assert episode.info["ended"]
    ops = [s["action"]["op"] for s in episode.trace["steps"]]
    # At least a gate and two contacts for either flake; undoing needs a verify first.
    assert ops.count("add_polygon") >= 6
    assert_replays(FETEnv(tasks=[TASK]), TASK.id, episode.trace)
    again = run_team(env, lambda: RLPolicy(str(tmp_path / "run")), seed=1)
    assert again.trace == episode.trace


def test_an_agent_sees_one_flake_and_everybodys_shapes():
    env = FETParallelEnv(tasks=[TASK])
    left = [device(0)[0], Command.SUBMIT]
    policies, _ = seated(env, left, [device(20)[0], device(20)[1], Command.SUBMIT])
    space = observation_space()
    for k, policy in enumerate(policies):
        view = policy.attempt.task_view
        assert [r.name for r in view.regions] == [f"flake_{k + 1}"]
        assert view.demand == (TASK.demand[k],)
        assert view.layers == TASK.layers
        assert any(r.kind == "min_spacing" for r in view.drc_rules)
        assert "flake_1" in policy.attempt.prompt or k
        for observation, info in policy.seen:
            assert observation in space
            assert set(info) == set(FETEnv(tasks=[TASK]).reset()[1])
        observation = policy.seen[-1][0]
        n = int(observation["region_n_points"][0])
        assert observation["region_points"][0, :n].tolist() == [list(p) for p in FLAKES[k][0]]
        assert not observation["region_n_points"][1:].any()
        assert observation["region_demand"][0] == TASK.demand[k]
    assert (policies[1].seen[1][0]["shape_layer"] >= 0).sum() == 2  # a shape of either agent
    assert not np.shares_memory(policies[0].seen[0][0]["region_points"], policies[1].seen[0][0]["region_points"])


def test_an_agent_hears_what_concerns_its_flake():
    env = FETParallelEnv(tasks=[TASK], reward="flake")
    script = [*device(0), Command.VERIFY, Command.SUBMIT]
    policies, episode = seated(env, script, [*device(20), device(20)[0], Command.SUBMIT])
    first, second = (p.seen[-1] for p in policies)
    assert first[1]["verdict"] == {"paper": 1, "strict": 1, "share_passed": 1.0, "failed": "", "messages": ""}
    assert second[1]["verdict"]["strict"] == 0
    assert "flake_2" in second[1]["verdict"]["failed"]
    row = CHECK_KINDS.index("transistor_count")
    assert [s[0]["last_checks"][row] for s in (first, second)] == [1, 0]
    assert [s[0]["last_transistors"][0] for s in (first, second)] == [1, 1]
    assert first[0]["last_share"] == 1.0
    assert episode.rewards == {"flake_1": 1.0, "flake_2": 0.0}
    assert policies[0].attempt.verdict.strict_success
    assert not policies[1].attempt.verdict.paper_success


def test_actions_in_every_form_and_lists():
    env = FETParallelEnv(tasks=[TASK])
    layers = [s.name for s in TASK.layers]
    arrays = EditSpace().from_edit(device(0)[2], layers)
    forms = [device(0)[:2], arrays, [], {"op": "fly"}, EditSpace().from_edit(Command.SUBMIT, layers)]
    policies, episode = seated(env, forms, [*device(20), {"op": "declare_infeasible"}])
    steps = episode.trace["steps"]
    drawn = [s["action"] for s in steps if s["action"]["op"] == "add_polygon"]
    assert len(drawn) == 6
    assert {edit_from_json(a) for a in drawn} == {*device(0), *device(20)}
    assert episode.info["ended"] == "declare_infeasible"
    errors = [info["edit_error"] for _, info in policies[0].seen]
    assert "unknown operation" in errors[-1]
    assert episode.info["charged"] == 8


def test_agents_act_by_turns_only():
    env = FETParallelEnv(tasks=[TASK])
    env.reset()
    attempt = FlakeAttempt(env, 0)
    for run in (attempt.check, attempt.fork, attempt.restart, lambda: attempt.apply(device(0)[0])):
        with pytest.raises(PolicyError, match="an agent of a team"):
            run()
    with pytest.raises(PolicyError, match="an agent of a team"):
        attempt.restore(attempt.snapshot())
    with pytest.raises(PolicyError, match="hidden part"):
        _ = attempt.task
    assert FlakeAttempt(env, 1, privileged=True).task.demand == (2,)


def test_a_flakes_part_of_a_task():
    part = flake_task(TASK, 1)
    assert part.view() == flake_view(TASK.view(), 1)
    assert {r.region for r in part.structural} <= {None, "flake_2"}
    assert not any("graphene" in r.layers for r in part.structural)
    circuit = CircuitSpec("inverter", "complementary", 1, 2, (1, 1), 2)
    shared = make_task(FLAKES, (1, 1), materials=("graphene", "MoS2"), circuit=circuit)
    view = flake_view(shared.view(), 0)
    assert (view.circuit, view.demand) == (None, (1,))
    assert flake_task(shared, 0).circuit is None


@pytest.mark.parametrize("critic", [ApproveAll, RuleCritic])
def test_the_search_repairs_as_a_proposer(critic):
    env = DRCProposerCriticEnv(tasks=[BARS])
    episode = run_pair(env, DRCSearchPolicy(), critic())
    assert episode.rewards == {"proposer": 1.0, "critic": 1.0}
    assert [s["action"]["op"] for s in episode.trace["steps"]] == ["change_shape", "check"]
    # The rule critic pays for the edit and the check on its copy.
    assert episode.info["charged"] == (2 if critic is ApproveAll else 4)
    assert_replays(DRCEnv(tasks=[BARS]), BARS.id, episode.trace)


def test_random_proposals_and_a_critic_that_checks():
    env = DRCProposerCriticEnv(tasks=[BARS], max_vetoes=2)
    alone = run_pair(env, RandomPolicy(), ApproveAll(), seed=1)
    assert alone.info["ended"] == "submit"
    assert_replays(DRCEnv(tasks=[BARS]), BARS.id, alone.trace)
    # A sliver on M3, too narrow and too small, so that it is vetoed.
    worse = AddShape("M3", ((2500, 0), (2500, 30), (2505, 30), (2505, 0)))
    proposer = Scripted(drc_edit_to_json(worse), worse, Command.VERIFY, Command.SUBMIT)
    judged = run_pair(env, proposer, RuleCritic())
    assert [s["action"]["op"] for s in judged.trace["steps"]] == ["unreadable", "check", "submit"]
    assert judged.info["charged"] == 2 * 2 + 1 + 1  # two looks, the last veto, the check
    assert proposer.seen[1][1]["edit_error"] == ""
    assert set(proposer.seen[0][0]) == set(env.unwrapped_env.observation_space.spaces)


def test_a_critic_can_propose_something_else():
    class Other(ApproveAll):
        def judge(self, env, proposal):
            return Command.SUBMIT

    env = DRCProposerCriticEnv(tasks=[BARS])
    episode = run_pair(env, DRCSearchPolicy(), Other())
    assert [s["action"]["op"] for s in episode.trace["steps"]] == ["submit"]


def test_proposers_do_not_pass_the_critic_by():
    class Rash(DRCSearchPolicy):
        def act(self, observation, info):
            return self.attempt.check()

        def bind(self, attempt):
            self.attempt = attempt

    with pytest.raises(PolicyError, match="an agent of a team"):
        run_pair(DRCProposerCriticEnv(tasks=[BARS]), Rash(), ApproveAll())
