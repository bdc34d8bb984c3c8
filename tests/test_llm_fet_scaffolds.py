"""The five FET scaffolds against a scripted model over real HTTP: what each does, and what it may spend."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fet_cases import box, make_task
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_server import Raw, Scripted, failure, scripted

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.fet import (
    ExpeL4Policy,
    PlanExecutePolicy,
    React3Policy,
    React4Policy,
    Reflexion4Policy,
)
from edagym.baselines.llm.fet.tools import complete_contacts, guard
from edagym.baselines.policies import Attempt, MemoryPolicy
from edagym.baselines.rollout import run_attempt
from edagym.envs.fet.env import FETEnv
from edagym.envs.fet.prompt import render_prompt
from edagym.errors import PolicyError
from edagym.spaces.actions import OPERATIONS
from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.task import Rule

pytest.importorskip("openai")

WHOLE = (PlanExecutePolicy, React3Policy)
LAYERED = (React4Policy, Reflexion4Policy, ExpeL4Policy)
ALL = (*WHOLE, *LAYERED)

CONTACTS = [box(1, 0, 7, 6), box(13, 0, 19, 6)]
GATE = box(9.5, -1, 10.5, 7)
VIAS = [box(3, 2, 4, 3), box(16, 2, 17, 3)]
# What a full layout of the bar consists of, layer by layer.
GOOD = {"contacts": CONTACTS, "gate": [GATE], "via": VIAS}


def polygons(layer: str, rings: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"op": "add_polygon", "layer": layer, "points": [list(p) for p in ring]} for ring in rings]


def plan(edits: Sequence[dict[str, Any]], thought: str = "draw") -> str:
    return json.dumps({"thought": thought, "edits": list(edits)})


def whole(*layers: str) -> str:
    return plan([e for layer in layers or GOOD for e in polygons(layer, GOOD[layer])])


def bar(**options: Any) -> FETTask:
    return make_task(via=True, **options)


def attempt_at(
    policy: Any, task: FETTask, answers: Any, *, calls: Scripted | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]], FETEnv]:
    """Run one attempt; return record, notes and environment."""
    env = FETEnv(tasks=[task], **policy.env_options)
    env.reset(seed=0)
    attempt = Attempt(env)
    record = run_attempt(env, policy, suite="test", episode=0, seed=0, attempt=attempt)
    json.dumps(record)
    json.dumps(attempt.notes)
    return record, attempt.notes, env


def run(
    kind: type, answers: Any, task: FETTask | None = None, **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]], Scripted, FETEnv]:
    """Run one attempt of a scaffold against a scripted server."""
    with scripted(answers) as server:
        policy = kind(spec(server), **options)
        record, notes, env = attempt_at(policy, task or bar(), answers)
    return record, notes, server, env


def spec(server: Scripted) -> ModelSpec:
    return ModelSpec("scripted", server.base_url, backoff_s=0.0, retries=1, timeout_s=20.0)


def kinds(notes: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [n for n in notes if n["kind"] == kind]


# -- whole-layout planning ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaffold", ["C0", "C1", "C2"])
@pytest.mark.parametrize("kind", WHOLE)
def test_the_model_sees_the_prompt_as_it_is(kind: type, scaffold: Any) -> None:
    record, _, server, env = run(kind, [whole()], scaffold=scaffold)
    system, user = server.requests[0]["messages"]
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"] == render_prompt(env.view, scaffold)
    assert (env.prompt == user["content"]) == (scaffold == "C0")
    assert record["is_success"]
    assert record["settings"]["scaffold"] == scaffold


def test_plan_and_execute_plans_once_and_hears_nothing() -> None:
    record, notes, server, env = run(PlanExecutePolicy, [whole("contacts", "gate")])
    assert (record["is_success"], record["ended"], record["charged"]) == (False, "submit", 1)
    assert len(server.requests) == 1
    assert [s["action"]["op"] for s in env.trace()["steps"]] == [*["add_polygon"] * 3, "submit"]
    assert [n["kind"] for n in notes] == ["model", "plan"]


def test_whole_plans_are_interpreted_directly() -> None:
    """As in the paper, edits of fixed layers go through, and the check of input preservation decides."""
    bad = plan([*polygons("graphene", [box(0, 7, 1, 8)]), *json.loads(whole())["edits"]])
    record, _, _, _ = run(PlanExecutePolicy, [bad])
    assert record["refused"] == 0
    assert record["failed"] == ["inputs_preserved:graphene"]


def test_react_3_replans_from_the_initial_scene_with_feedback() -> None:
    crossed = {"op": "add_polygon", "layer": "gate", "points": [[0, 0], [2, 2], [2, 0], [0, 3]]}
    first = plan([*polygons("contacts", [*CONTACTS, box(1, 9, 2, 10)]), crossed], "too much")
    record, notes, server, env = run(React3Policy, [first, whole()])
    assert (record["is_success"], record["ended"], record["charged"]) == (True, "success", 4)
    # Nothing of the first plan is left: neither shapes nor trace.
    assert len(env.layout.shapes("contacts")) == 2
    assert env.n_steps == 6
    (restored,) = kinds(notes, "restore")
    assert [s["action"]["op"] for s in restored["dropped"]] == [*["add_polygon"] * 4, "verify"]
    said = server.said(1)
    assert "Round 1 of 3 failed." in said
    assert "- expected geometry on required layer gate, found none" in said
    assert "- edits[3]: the outline crosses or touches itself" in said
    assert server.requests[1]["messages"][2] == {"role": "assistant", "content": first}
    assert kinds(notes, "critique")[0]["text"].splitlines()[0] in said


def test_react_3_keeps_the_whole_conversation_and_stops_after_three_rounds() -> None:
    record, notes, server, _ = run(React3Policy, [whole("contacts"), whole("gate"), whole("via"), whole()])
    assert (record["is_success"], record["ended"], record["charged"], record["budget"]) == (False, "budget", 6, 6)
    assert len(server.requests) == 3
    assert [m["role"] for m in server.requests[2]["messages"]] == ["system", *["user", "assistant"] * 2, "user"]
    assert "Round 2 of 3 failed." in server.said(2)
    assert len(kinds(notes, "restore")) == 2
    assert record["failed"]


def test_a_reply_that_cannot_be_read_is_asked_for_again_and_counted() -> None:
    record, notes, server, _ = run(React3Policy, ["I will draw.", '{"edits": []}', whole()])
    assert (record["is_success"], record["charged"], record["unreadable"], record["model_calls"]) == (True, 2, 2, 3)
    assert [n["parsed"] for n in kinds(notes, "model")] == [False, False, True]
    assert "could not be read" in server.said(1)
    assert server.requests[1]["messages"][2]["content"] == "I will draw."


def test_a_round_without_readable_reply_is_charged_and_the_next_one_follows() -> None:
    record, _, server, env = run(React3Policy, ["no", "no", whole()], output_retries=1)
    assert (record["is_success"], record["charged"], record["unreadable"]) == (True, 3, 2)
    assert "Round 1 of 3 failed." in server.said(2)
    assert [s["action"]["op"] for s in env.trace()["steps"]][-1] == "verify"
    record, _, server, _ = run(PlanExecutePolicy, ["no"], output_retries=0)
    assert (record["is_success"], record["ended"], record["charged"], record["unreadable"]) == (False, "submit", 1, 1)


@pytest.mark.parametrize("kind", WHOLE)
def test_a_declaration_of_infeasibility_ends_the_attempt(kind: type) -> None:
    record, notes, server, _ = run(kind, [plan([{"op": "declare_infeasible"}])])
    assert (record["ended"], record["is_success"], record["charged"]) == ("declare_infeasible", False, 0)
    assert [n["infeasible"] for n in kinds(notes, "plan")] == [True]
    assert len(server.requests) == 1


def test_a_declaration_among_edits_is_refused_and_the_edits_count() -> None:
    edits = [*json.loads(whole())["edits"], {"op": "declare_infeasible"}]
    record, _, _, _ = run(React3Policy, [plan(edits)])
    assert (record["is_success"], record["refused"]) == (True, 1)


# -- layer-wise planning -----------------------------------------------------------------------------------------------

ROLE = {"one layer at a time": "planner", "You mend": "fixer", "You look back": "reflector"}
Draws = Callable[[str, str, str], str]


def brain(draw: Draws) -> Callable[[dict[str, Any]], str | Raw]:
    """Return a model: `draw` answers (role, layer, text of the request); reflections are numbered."""
    count = iter(range(1, 1000))

    def answer(body: dict[str, Any]) -> str:
        role, layer, text = request(body)
        if role == "reflector":
            return json.dumps({"reflection": f"lesson {next(count)}"})
        return draw(role, layer, text)

    return answer


def request(body: dict[str, Any]) -> tuple[str, str, str]:
    """Return role, layer and text of a request."""
    system, text = body["messages"][0]["content"], body["messages"][1]["content"]
    role = next(name for words, name in ROLE.items() if words in system)
    match = re.search(r"^(?:Layer to draw now|Layer to mend|Look back at the layer): (\w+)", text, re.M)
    return role, match[1] if match else "", text


def good(role: str, layer: str, text: str) -> str:
    return whole(layer)


def sequence(server: Scripted) -> list[tuple[str, str]]:
    return [request(body)[:2] for body in server.requests]


def test_react_4_draws_layer_by_layer_in_design_order() -> None:
    record, notes, server, env = run(React4Policy, brain(good))
    order = ["contacts", "gate", "via"]
    assert [layer for role, layer in sequence(server) if role == "planner"] == order
    assert record["is_success"]
    assert (record["charged"], record["budget"]) == (6, 18)
    assert [n["layer"] for n in kinds(notes, "lock")] == order[:2]  # the last verify ends the attempt
    for i, layer in enumerate(order):
        body = next(b for b in server.requests if request(b)[:2] == ("planner", layer))
        text = request(body)[2]
        schema = body["response_format"]["json_schema"]["schema"]
        forms = schema["properties"]["edits"]["items"]["anyOf"]
        assert forms[0]["properties"]["layer"]["enum"] == [layer]
        assert [f"{name} (locked):" in text for name in order] == [n < i for n in range(3)]
        assert "Example of one transistor" in text
        assert f"{layer} ({env.view.layer(layer).role}), {i + 1} of 3 in the design order" in text


def test_the_critic_defers_checks_of_layers_to_come() -> None:
    """A contact too small for any via passes the critic, is locked, and fails when the via comes (Appendix C)."""
    small = [box(1, 1, 2, 2), box(13, 1, 14, 2)]
    vias = [box(1, 1, 2, 2), box(13, 1, 14, 2)]

    def draw(role: str, layer: str, text: str) -> str:
        rings = {"contacts": small, "gate": [GATE], "via": vias}[layer]
        return plan([{"op": "clear", "layer": layer}, *polygons(layer, rings)])

    record, notes, _, _ = run(React4Policy, brain(draw))
    critiques = kinds(notes, "critique")
    assert [(n["layer"], bool(n["text"])) for n in critiques] == [
        ("contacts", False),
        ("gate", False),
        *[("via", True)] * 3,
    ]
    assert "min_enclosure:contacts:via" in critiques[0]["deferred"]
    assert "transistor_count:flake_1" in critiques[0]["deferred"]
    assert "transistor_count:flake_1" not in critiques[1]["deferred"]
    assert critiques[2]["deferred"] == []
    assert "contacts" in critiques[2]["text"]
    assert not record["is_success"]
    assert [n["passed"] for n in kinds(notes, "lock")] == [True, True, False]


def test_the_fixer_mends_what_the_critic_found() -> None:
    def draw(role: str, layer: str, text: str) -> str:
        if layer != "gate":
            return whole(layer)
        if role == "planner":
            return plan(polygons("gate", [box(9.7, -1, 10.3, 7)]), "thin")
        return plan([{"op": "clear", "layer": "gate"}, *polygons("gate", [GATE])], "wider")

    record, _, server, _ = run(React4Policy, brain(draw))
    assert sequence(server)[:5] == [
        ("planner", "contacts"),
        ("reflector", "contacts"),
        ("planner", "gate"),
        ("fixer", "gate"),
        ("reflector", "gate"),
    ]
    text = request(server.requests[3])[2]
    assert "- width on gate: expected at least 1 um, found 0.6 um" in text
    assert "(9.7, -1)" in text
    assert record["is_success"]
    looked_back = request(server.requests[4])[2]
    assert "passed the checker after 2 round(s)" in looked_back
    assert "Round 1: thin" in looked_back


def test_locked_layers_stay_as_they_are() -> None:
    def draw(role: str, layer: str, text: str) -> str:
        edits = [*polygons(layer, GOOD[layer])]
        if layer == "gate":
            edits += [{"op": "clear", "layer": "contacts"}, *polygons("via", VIAS), *polygons("graphene", [GATE])]
        return plan(edits)

    record, notes, _, env = run(React4Policy, brain(draw))
    assert record["is_success"]
    assert len(env.layout.shapes("contacts")) == 2
    (said,) = kinds(notes, "proposal")
    assert said["text"].splitlines() == [
        "edits[1]: contacts is locked",
        "edits[2]: via is not the layer to draw now, gate",
        "edits[3]: via is not the layer to draw now, gate",
        "edits[4]: graphene is not the layer to draw now, gate",
    ]


@pytest.mark.parametrize("guarded", [True, False])
def test_guarded_tools_repair_outlines_here_only(guarded: bool) -> None:
    x1, y1, x2, y2 = 9.5, -1.0, 10.5, 7.0
    crossed = {"op": "add_polygon", "layer": "gate", "points": [[x1, y1], [x2, y2], [x2, y1], [x1, y2]]}

    def draw(role: str, layer: str, text: str) -> str:
        return plan([crossed]) if layer == "gate" else whole(layer)

    record, notes, server, env = run(React4Policy, brain(draw), guarded_tools=guarded)
    assert record["is_success"] == guarded
    assert len(env.layout.shapes("gate")) == guarded
    assert ("convex hull" in json.dumps(notes)) == guarded
    if not guarded:
        assert any("- edits[0]: zero area" in request(b)[2] for b in server.requests if request(b)[0] == "fixer")
    # The whole-layout planners' polygons are refused.
    record, _, _, _ = run(React3Policy, [plan([*polygons("contacts", CONTACTS), *polygons("via", VIAS), crossed])])
    assert not record["is_success"]


@pytest.mark.parametrize(("drawn", "added"), [(0, 0), (1, 1), (2, 0)])
def test_contacts_are_completed_only_where_one_is_missing(drawn: int, added: int) -> None:
    def draw(role: str, layer: str, text: str) -> str:
        if layer == "contacts":
            return plan(polygons(layer, CONTACTS[:drawn]) or [{"op": "clear", "layer": layer}])
        return whole(layer)

    _, notes, _, env = run(React4Policy, brain(draw), make_task())
    assert len(env.layout.shapes("contacts")) == drawn + added
    assert ("missing contact(s) were added" in json.dumps(notes)) == bool(added)


def test_a_layer_that_cannot_be_mended_is_locked_with_its_faults_and_the_rest_follows() -> None:
    def draw(role: str, layer: str, text: str) -> str:
        return plan(polygons("gate", [box(9.7, -1, 10.3, 7)])) if layer == "gate" else whole(layer)

    record, notes, server, _ = run(React4Policy, brain(draw))
    assert [layer for _, layer in sequence(server)].count("gate") == 3 + 1
    assert [(n["layer"], n["passed"]) for n in kinds(notes, "lock")] == [
        ("contacts", True),
        ("gate", False),
        ("via", False),  # nothing is deferred any more: the gate's fault counts against the last layer
    ]
    assert record["ended"] in ("submit", "budget")
    assert not record["is_success"]


def test_an_infeasible_layer_is_left_and_the_declaration_ends_the_attempt() -> None:
    def draw(role: str, layer: str, text: str) -> str:
        return plan([{"op": "declare_infeasible"}]) if layer == "gate" else whole(layer)

    record, notes, server, env = run(React4Policy, brain(draw))
    assert record["ended"] == "declare_infeasible"
    assert [n["infeasible"] for n in kinds(notes, "plan")] == [False, True, *[False] * 3]
    assert not record["is_success"]
    assert env.layout.shapes("via")
    assert [role for role, layer in sequence(server) if layer == "gate"] == ["planner", "reflector"]


def test_unreadable_layer_replies_cost_a_round_and_the_planner_is_asked_again() -> None:
    replies = iter(["?", "?"])

    def draw(role: str, layer: str, text: str) -> str:
        return next(replies, whole(layer))

    record, _, server, _ = run(React4Policy, brain(draw), output_retries=1)
    assert (record["is_success"], record["unreadable"], record["charged"]) == (True, 2, 7)
    assert [role for role, layer in sequence(server) if layer == "contacts"][:1] == ["planner"]


NUMBERS = st.one_of(st.integers(-30, 30), st.floats(), st.sampled_from([1e300, "1 um", None, [], "x"]))
WILD = st.fixed_dictionaries(
    {"op": st.sampled_from([*OPERATIONS, "explode", 5, None])},
    optional={
        "layer": st.sampled_from(["contacts", "gate", "via", "graphene", "", 7, ["gate"], {}]),
        "points": st.lists(st.lists(NUMBERS, max_size=3), max_size=12) | NUMBERS,
        "width": NUMBERS,
        "more": st.none(),
    },
)


@settings(max_examples=150, deadline=None)
@given(st.lists(WILD, min_size=1, max_size=6), st.sampled_from(["contacts", "gate"]))
def test_the_tools_and_the_environment_bear_any_edit(edits: list[dict[str, Any]], layer: str) -> None:
    task = bar()
    env = FETEnv(tasks=[task])
    env.reset(seed=0)
    kept, said = guard(edits, layer, ("via",))
    assert len(kept) + sum("repl" not in line for line in said) == len(edits)
    kept += complete_contacts(env.view, env.layout, layer, kept)
    if kept:
        *_, info = env.step_any(kept)
        assert info["charged"] == 1
        assert not env.layout.shapes("via")


# -- reflection and memory ---------------------------------------------------------------------------------------------


def test_reflections_are_carried_to_later_layers() -> None:
    _, notes, server, _ = run(React4Policy, brain(good))
    assert [n["when"] for n in kinds(notes, "reflection")] == ["layer", "layer"]
    texts = {layer: request(b)[2] for b in server.requests for role, layer, _ in [request(b)] if role == "planner"}
    assert "Reflections" not in texts["contacts"]
    assert "- contacts: lesson 1\nDrawn" in texts["gate"]
    assert "- contacts: lesson 1\n- gate: lesson 2\n" in texts["via"]


def test_reflexion_4_reflects_twice_on_a_layer_that_passes() -> None:
    def draw(role: str, layer: str, text: str) -> str:
        return plan(polygons("gate", [box(9.7, -1, 10.3, 7)])) if layer == "gate" else whole(layer)

    _, notes, _, _ = run(Reflexion4Policy, brain(draw))
    found = [(n["layer"], n["when"]) for n in kinds(notes, "reflection")]
    assert found == [("contacts", "success"), ("contacts", "layer"), ("gate", "layer"), ("via", "layer")]
    order = [n["kind"] for n in notes if n.get("layer") == "contacts"]
    assert order == ["plan", "critique", "reflection", "lock", "reflection"]


def test_a_fresh_trial_starts_from_the_initial_scene_with_the_reflections() -> None:
    trial = iter([0])

    def draw(role: str, layer: str, text: str) -> str:
        if layer == "contacts" and role == "planner":
            draw.trial += 1  # type: ignore[attr-defined]
        bad = layer == "gate" and draw.trial == 1  # type: ignore[attr-defined]
        return plan(polygons("gate", [box(9.7, -1, 10.3, 7)])) if bad else whole(layer)

    draw.trial = next(trial)  # type: ignore[attr-defined]
    record, notes, server, env = run(Reflexion4Policy, brain(draw), trials=2)
    assert record["is_success"]
    assert record["budget"] == 2 * 18
    (restored,) = kinds(notes, "restore")
    assert restored["dropped"]
    assert [n["when"] for n in kinds(notes, "reflection")].count("trial") == 1
    assert len(env.layout.shapes("gate")) == 1
    second = [request(b)[2] for b in server.requests if request(b)[:2] == ("planner", "contacts")][1]
    assert "whole layout: lesson" in second
    assert "Drawn so far (vertices in um):\nnothing" in second
    fresh = next(request(b)[2] for b in server.requests if "Look back at the whole attempt" in request(b)[2])
    assert "- width on gate" in fresh


def test_expel_4_reads_the_three_most_recent_experiences_in_order() -> None:
    with scripted(brain(good)) as server:
        policy = ExpeL4Policy(spec(server))
        assert isinstance(policy, MemoryPolicy)
        assert policy.memory
        assert not isinstance(Reflexion4Policy(spec(server)), MemoryPolicy)
        kept = []
        for i in range(5):
            start = len(server.requests)
            record, notes, _ = attempt_at(policy, bar(task_id=f"test/case_{i}"), None)
            assert record["is_success"]
            text = request(server.requests[start])[2]
            recent = [f"test/case_{n}" for n in range(max(0, i - 3), i)]
            assert re.findall(r'^- \{"task": "(test/case_\d)"', text, re.M) == recent
            assert [n["record"]["task"] for n in kinds(notes, "experience")] == recent
            kept.append(policy.remember())
        assert kept[0]["solved"]
        assert kept[0]["layers"]["via"] == {"rounds": 1, "passed": True, "infeasible": False}
        assert kept[0]["lessons"]
        json.dumps(kept)
        # A resumed run recalls what the records hold, and asks the same.
        resumed = ExpeL4Policy(spec(server))
        resumed.recall(json.loads(json.dumps(kept[:4])))
        attempt_at(resumed, bar(task_id="test/case_4"), None)
        again = request(server.requests[-len(notes_models(notes)) :][0])[2]
    assert again == text
    assert "Experience from earlier tasks, oldest first:" in again


def notes_models(notes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return kinds(notes, "model")


def test_an_attempt_without_verdict_is_no_experience() -> None:
    with scripted([failure(500)]) as server:
        policy = ExpeL4Policy(spec(server))
        record, notes, _ = attempt_at(policy, bar(), None)
        assert policy.remember() is None
    assert (record["error_type"], record["is_success"], record["paper_success"]) == ("ModelError", None, None)
    assert [(n["reply"], n["parsed"]) for n in kinds(notes, "model")] == [(None, None)]


# -- budgets -----------------------------------------------------------------------------------------------------------


def hopeless(body: dict[str, Any]) -> str:
    """A model that never gets anything right, but always gives a readable answer."""
    system = body["messages"][0]["content"]
    if "You look back" in system:
        return "no form at all"
    layer = request(body)[1] if "one layer" in system or "You mend" in system else "contacts"
    return plan(polygons(layer, [box(-3, -3, -2.9, -2.9)]))


@pytest.mark.parametrize(
    ("kind", "trials", "calls", "lists", "verifies"),
    [
        (PlanExecutePolicy, 1, 1, 1, 0),
        (React3Policy, 1, 3, 3, 3),
        (React4Policy, 1, 3 * 3 + 3, 9, 9),
        (Reflexion4Policy, 1, 3 * 3 + 3, 9, 9),
        (Reflexion4Policy, 2, 2 * (3 * 3 + 3) + 1, 18, 18),
        (ExpeL4Policy, 1, 3 * 3 + 3, 9, 9),
    ],
)
def test_no_scaffold_exceeds_its_budget(
    kind: type, trials: int, calls: int, lists: int, verifies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = {"list": 0, "verify": 0}
    step = FETEnv.step_any

    def counting(env: FETEnv, action: Any) -> Any:
        spent["list"] += isinstance(action, list)
        spent["verify"] += getattr(action, "value", "") == "verify"
        return step(env, action)

    monkeypatch.setattr(FETEnv, "step_any", counting)
    # Completed contacts would pass, and save rounds.
    record, _, server, _ = run(
        kind, hopeless, **({"guarded_tools": False, "trials": trials} if kind in LAYERED else {})
    )
    assert (spent["list"], spent["verify"]) == (lists, verifies)
    assert len(server.requests) <= calls
    assert record["charged"] == lists + verifies <= record["budget"]
    assert record["model_calls"] == len(server.requests)
    assert not record["is_success"]


@pytest.mark.parametrize(("kind", "calls", "charged"), [(React3Policy, 3 * 3, 3), (React4Policy, 3 * (3 * 3 + 3), 9)])
def test_unreadable_replies_have_an_end_too(kind: type, calls: int, charged: int) -> None:
    record, _, server, _ = run(kind, [""])
    assert record["charged"] == charged
    assert len(server.requests) == calls == record["unreadable"]
    assert record["ended"] == "submit"


@pytest.mark.parametrize("kind", ALL)
def test_a_scaffold_works_in_an_environment_of_another_budget(kind: type) -> None:
    with scripted(hopeless) as server:
        policy = kind(spec(server))
        env = FETEnv(tasks=[bar()], budget=3)
        env.reset(seed=0)
        record = run_attempt(env, policy, suite="test", episode=0, seed=0)
    assert record["charged"] <= 3


# -- what is said and written ------------------------------------------------------------------------------------------

WORD, KEY = "zyzzyva", "sk-canary-51f0c2"


def planted(task: FETTask) -> FETTask:
    """Return the task with canaries in all that agents must not see."""
    hidden = (Rule("must_overlap", (task.layers[0].name, task.layers[0].name)), *task.structural)
    meta = {"note": WORD, "reference": {WORD: [7351.25]}, **task.metadata, "id": WORD, "reference_edits": 7351}
    return replace(task, name=WORD, structural=hidden, metadata=meta)


@pytest.mark.parametrize("kind", ALL)
def test_neither_prompts_nor_logs_hold_hidden_criteria_or_credentials(
    kind: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    task = planted(bar())
    with scripted(lambda body: failure(500, f"key {KEY}") if len(server.requests) == 1 else brain_of(body)) as server:
        policy = kind(spec(server))
        env = FETEnv(tasks=[task], **policy.env_options)
        env.reset(seed=0)
        attempt = Attempt(env)
        record = run_attempt(env, policy, suite="test", episode=0, seed=0, attempt=attempt)
        kept = policy.remember() if hasattr(policy, "remember") else None
    assert record["is_success"]
    assert record["model_retries"] == 1
    assert any(KEY in h["authorization"] for h in server.headers)  # the canary is planted
    asked = json.dumps(server.requests)
    written = json.dumps([record, attempt.notes, env.trace(), kept, policy.settings()])
    for text in (asked, written):
        assert WORD not in text
        assert "7351" not in text
        assert KEY not in text
    first = json.dumps(server.requests[0]["messages"])
    for hidden in ("must_overlap", "must_cross", "transistor_count", "strict"):
        assert hidden not in first


def brain_of(body: dict[str, Any]) -> str:
    """A model that gets everything right, in every scaffold."""
    system = body["messages"][0]["content"]
    if "for the whole layout" in system:
        return whole()
    return brain(good)(body)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ALL)
def test_settings_are_ready_for_records(kind: type) -> None:
    policy = kind("some-model", scaffold="C1")
    settings = json.loads(json.dumps(policy.settings()))
    assert (settings["workflow"], settings["scaffold"]) == (policy.name, "C1")
    assert settings["model"]["model"] == "some-model"
    assert (policy.privileged, policy.deterministic) == (False, False)


def test_arguments_out_of_range() -> None:
    for kind in ALL:
        with pytest.raises(ValueError, match="C0"):
            kind("m", scaffold="C3")
        with pytest.raises(ValueError, match="output_retries"):
            kind("m", output_retries=13)
    with pytest.raises(ValueError, match="rounds"):
        React3Policy("m", rounds=0)
    with pytest.raises(ValueError, match="trials"):
        Reflexion4Policy("m", trials=5)


@pytest.mark.parametrize("kind", ALL)
def test_a_task_of_another_family_is_refused(kind: type) -> None:
    from edagym.baselines.rollout import make_env

    env = make_env("DRC-Essential-L1")
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="not a FET task"):
        kind("m").bind(Attempt(env))
