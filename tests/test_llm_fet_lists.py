"""Lists of edits as one action, forks, notes and budgets in rounds: what text policies stand on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fet_cases import box, make_task

from edagym.baselines.policies import Attempt
from edagym.baselines.rollout import make_env
from edagym.envs.core import trace_actions
from edagym.envs.core.edit_env import MAX_LIST
from edagym.envs.fet.env import FETEnv
from edagym.errors import PolicyError
from edagym.spaces.actions import Command
from edagym.spaces.edits import AddPath, AddPolygon, Clear

GOOD: list[Any] = [
    AddPolygon("contacts", box(1, 0, 4, 6)),
    {"op": "add_polygon", "layer": "contacts", "points": box(9, 0, 12, 6)},
    AddPath("gate", ((6.5, -1.0), (6.5, 7.0)), 1.0),
]
MIXED: list[Any] = [
    GOOD[0],
    {"op": "explode"},
    GOOD[1],
    AddPolygon("graphene", box(0, 0, 1, 1)),
    Command.SUBMIT,
    3,
    GOOD[2],
]


def ready(**options: Any) -> FETEnv:
    env = FETEnv(tasks=[make_task([(box(0, 0, 20, 6), ())])], **options)
    env.reset(seed=0)
    return env


def test_a_list_costs_one_unit_and_a_verify_another() -> None:
    env = ready(rounds=3)
    assert env.budget == 6
    *_, info = env.step_any(GOOD)
    assert (info["charged"], info["edit_error"], env.n_steps) == (1, "", 3)
    *_, terminated, truncated, info = env.step_any(Command.VERIFY)
    assert (terminated, truncated, info["is_success"], info["charged"]) == (True, False, True, 2)


def test_refused_edits_are_reported_by_index_and_the_rest_applies() -> None:
    env = ready()
    *_, info = env.step_any(MIXED)
    lines = info["edit_error"].splitlines()
    assert [line.split(":")[0] for line in lines] == ["edits[1]", "edits[3]", "edits[4]", "edits[5]"]
    assert "explode" in lines[0]
    assert "read-only" in lines[1]
    assert "submit stands alone" in lines[2]
    assert "int" in lines[3]
    assert (len(env.layout.shapes("contacts")), len(env.layout.shapes("gate"))) == (2, 1)
    assert (info["charged"], info["ended"]) == (1, "")
    assert env.step_any(Command.VERIFY)[4]["is_success"]


def test_the_trace_keeps_single_edits_and_replays_with_the_same_charges() -> None:
    env = ready(rounds=4)
    for action in ([GOOD[0]], MIXED, MIXED[:2], Clear("gate"), [GOOD[2]], [], Command.VERIFY):
        env.step_any(action)
    trace = json.loads(json.dumps(env.trace()))
    assert [s.get("group") for s in trace["steps"]] == [0, *[1] * 7, *[8] * 2, None, 11, None, None]
    assert all(isinstance(s["action"], dict) and "op" in s["action"] for s in trace["steps"])
    assert "verdict" in trace["steps"][-1]
    assert [i for i, s in enumerate(trace["steps"]) if "edit_error" in s] == [2, 4, 5, 6, 9, 12]
    again = ready(rounds=4)
    again.replay(trace_actions(trace))
    assert [s["action"] for s in again.trace()["steps"]] == [s["action"] for s in trace["steps"]]
    assert [s.get("group") for s in again.trace()["steps"]] == [s.get("group") for s in trace["steps"]]
    assert again.trace()["charged"] == trace["charged"] == 7
    assert again.layout.shapes("contacts") == env.layout.shapes("contacts")


def test_neighbouring_lists_stay_apart_in_a_replay() -> None:
    env = ready()
    for action in ([GOOD[0]], [GOOD[1]], [GOOD[2]]):
        env.step_any(action)
    assert [len(a) for a in trace_actions(env.trace())] == [1, 1, 1]


def test_the_last_list_of_the_budget_still_counts() -> None:
    env = ready(budget=2)
    env.step_any([GOOD[0], GOOD[1]])
    *_, terminated, truncated, info = env.step_any([GOOD[2]])
    assert (terminated, truncated, info["ended"], info["is_success"]) == (False, True, "budget", True)
    assert env.trace()["steps"][-1]["verdict"]["strict"] == 1


@pytest.mark.parametrize("junk", [[], [GOOD[0]] * (MAX_LIST + 1), ()])
def test_empty_and_endless_lists_are_refused_as_a_whole(junk: Any) -> None:
    env = ready()
    *_, info = env.step_any(junk)
    assert "a list of" in info["edit_error"]
    assert info["charged"] == 1
    assert env.layout.n_shapes == 0


@pytest.mark.parametrize("suite", ["DRC-Essential-L1", "PPA-Area-L1"])
def test_where_every_tool_call_counts_a_list_is_refused(suite: str) -> None:
    env = make_env(suite)
    env.reset(seed=0)
    *_, info = env.step_any([Command.VERIFY, Command.VERIFY])
    assert "one edit, query or command at a time" in info["edit_error"]
    assert info["charged"] == 1


def test_snapshots_hold_lists() -> None:
    env = ready()
    env.step_any(MIXED)
    place = json.loads(json.dumps(env.snapshot()))
    env.step_any([Clear("contacts")])
    env.restore(place)
    assert env.n_steps == len(MIXED)
    assert len(env.layout.shapes("contacts")) == 2


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"rounds": 1.5}, {"rounds": 101}, {"rounds_per": "flake"}])
def test_rounds_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rounds"):
        ready(**bad)


def test_rounds_for_every_layer_and_trial() -> None:
    assert ready(rounds=3, rounds_per="layer").budget == 2 * 3 * 2
    assert ready(rounds=3, rounds_per="layer", budget_factor=2).budget == 2 * 2 * 3 * 2


# -- attempts ----------------------------------------------------------------------------------------------------------


def test_forks_are_independent_and_share_the_budget() -> None:
    env = ready(rounds=3)
    attempt = Attempt(env)
    attempt.apply([GOOD[0]])
    left, right = attempt.fork(), attempt.fork()
    left.apply([GOOD[1], GOOD[2]])
    right.apply([Clear("contacts")])
    assert (attempt.budget_left, left.budget_left, right.budget_left) == (3, 3, 3)
    assert [len(a.layout.shapes("contacts")) for a in (attempt, left, right)] == [1, 2, 0]
    *_, terminated, _, info = left.check()
    assert info["verdict"]["strict"] == 1
    assert not terminated  # what happens on a branch ends nothing
    assert attempt.verdict is None
    assert left.verdict is not None
    attempt.restore(left.snapshot())
    assert attempt.budget_left == 2
    *_, terminated, _, info = env.step_any(Command.SUBMIT)
    assert (terminated, info["is_success"], info["charged"]) == (True, True, 4)


def test_a_fork_of_a_fork_and_its_generator() -> None:
    attempt = Attempt(ready(), seed=3)
    twin, other = attempt.fork(), attempt.fork()
    draws = {a.rng.random() for a in (attempt, twin, other, twin.fork())}
    assert len(draws) == 4
    assert Attempt(ready(), seed=3).fork().rng.random() in draws


def test_branches_cannot_overdraw_the_budget() -> None:
    env = ready(rounds=1)
    attempt = Attempt(env)
    branch = attempt.fork()
    branch.apply([GOOD[0]])
    branch.check()
    assert attempt.budget_left == 0
    for late in (branch, attempt.fork()):
        if late is branch:
            with pytest.raises(PolicyError, match="over"):
                late.check()
        else:
            *_, info = late.apply(GOOD)
            assert (info["charged"], late.layout.n_shapes) == (2, 0)
    # The attempt itself may still submit; another edit comes too late.
    *_, truncated, info = env.step_any(GOOD)
    assert (truncated, info["ended"], info["edit_error"], info["charged"]) == (True, "budget", "the budget is spent", 2)
    assert env.layout.n_shapes == 0


def test_what_a_branch_drew_with_the_last_unit_can_be_submitted() -> None:
    env = ready(budget=2)
    attempt = Attempt(env)
    branch = attempt.fork()
    branch.apply(GOOD)
    branch.check()
    attempt.restore(branch.snapshot())
    assert env.step_any(Command.SUBMIT)[4]["is_success"]


@pytest.mark.parametrize("suite", ["DRC-Essential-L1", "PPA-Area-L1"])
def test_forks_of_the_other_families(suite: str) -> None:
    env = make_env(suite)
    env.reset(seed=0)
    attempt = Attempt(env)
    branch = attempt.fork()
    branch.apply({"op": "nonsense"})
    assert attempt.budget_left == branch.budget_left == env.budget - 1
    assert env.n_steps == 0
    assert attempt.prompt == branch.prompt == env.prompt
    attempt.restore(branch.snapshot())
    assert env.n_steps == 1


def test_notes_count_and_know_their_place() -> None:
    attempt = Attempt(ready())
    attempt.note("plan", text="one")
    attempt.apply(GOOD)
    branch = attempt.fork()
    branch.check()
    branch.note("critique", text="two")
    assert attempt.notes == [
        {"n": 0, "step": 0, "kind": "plan", "text": "one"},
        {"n": 1, "step": 4, "kind": "critique", "text": "two"},
    ]
    json.dumps(attempt.notes)
    assert len(attempt.steps) == 3
    assert (attempt.ended, attempt.criterion) == ("", "strict")
