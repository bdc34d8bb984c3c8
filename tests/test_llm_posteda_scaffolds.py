"""The post-EDA scaffolds on scripted models: budgets, and what distinguishes each of them."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from posteda_models import (
    CHECK,
    MEND,
    PPA_FIX,
    PPA_TASK,
    QUERY,
    READ,
    RUN,
    SPOIL,
    SUBMIT,
    act,
    make_env,
    notes,
    run,
    scripted,
)

from edagym.baselines.llm.posteda.agent import read_actions
from edagym.baselines.llm.posteda.critic import ProposerCriticPolicy
from edagym.baselines.llm.posteda.orfs_agent import ORFSAgentPolicy, diverse, read_space
from edagym.baselines.llm.posteda.react import ReActPolicy, VisionReActPolicy
from edagym.baselines.llm.posteda.reflexion import ReflexionPolicy
from edagym.baselines.llm.posteda.tree import TreeOfThoughtPolicy
from edagym.baselines.llm.posteda.vision import MAX_PIXELS, to_jpeg
from edagym.baselines.policies import Attempt
from edagym.errors import ModelError, PolicyError
from edagym.task_assets.ppa.task import RUNS

IDLE = {"drc": QUERY, "ppa": READ}
CAPS = {"drc": 8, "ppa": 16}
MULTI = (ProposerCriticPolicy, ReflexionPolicy, TreeOfThoughtPolicy)


def busy(action):
    """A model that proposes one harmless action for ever, and agrees with everybody."""

    def answer(role, number):
        if role == "critic":
            return json.dumps({"reason": "fine", "verdict": "accept", "action": None})
        if role == "judge":
            return json.dumps({"reason": "", "scores": [5]})
        return "look again" if role == "reflection" else act(action)

    return answer


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", CAPS)
@pytest.mark.parametrize("kind", [ReActPolicy, *MULTI])
def test_budgets_are_held(kind, family):
    policy = scripted(kind, busy(IDLE[family]))
    env = make_env(family, policy)
    attempt, info, actions = run(env, policy)
    trials = 2 if kind is ReflexionPolicy else 1
    cap = CAPS[family] * trials
    assert env.budget == cap
    # The tree is told not to propose the same again and runs out of calls before it is out of units.
    assert info["charged"] <= cap if kind is TreeOfThoughtPolicy else info["charged"] == cap
    calls = len(policy._chat.asked)
    assert calls == len(notes(attempt, "model")) <= policy.call_budget
    assert policy.call_budget == 2 * policy.agents * cap + (trials - 1)
    assert policy.settings()["action_cap"] == cap
    if kind is ReActPolicy:
        assert calls == cap
        assert len(actions) == cap


@pytest.mark.parametrize("kind", [ReActPolicy, VisionReActPolicy, *MULTI])
def test_unreadable_replies_cost_calls_and_no_units(kind):
    policy = scripted(kind, lambda role, number: "I would rather talk about the weather.")
    env = make_env("drc", policy)
    attempt, info, _ = run(env, policy)
    assert (info["charged"], info["ended"], info["is_success"]) == (0, "submit", False)
    model = notes(attempt, "model")
    assert len(model) == policy.call_budget
    unread = [n for n in model if not n["parsed"]]
    assert len(unread) == len(model) - (kind is ReflexionPolicy) * sum(n["role"] == "reflection" for n in model)
    assert all("no action in it" in n["error"] for n in unread)


def test_the_episode_goes_on_after_an_unreadable_reply():
    replies = ["", act(MEND), '{"action": {"op": "che', act(CHECK)]
    policy = scripted(ReActPolicy, lambda role, number: replies[number])
    attempt, info, _ = run(make_env("drc"), policy)
    assert info["is_success"]
    assert info["charged"] == 2
    assert [n["parsed"] for n in notes(attempt, "model")] == [False, True, False, True]
    told = policy._chat.by("agent")[1][-1]["content"]
    assert told.startswith("Your answer could not be read")


def test_every_action_of_a_batch_is_charged_and_ends_with_the_budget():
    policy = scripted(ReActPolicy, lambda role, number: act(QUERY, {**QUERY, "level": "second"}, CHECK))
    _, info, actions = run(make_env("drc"), policy)
    assert info["charged"] == len(actions) == 8
    assert len(policy._chat.asked) == 3
    observed = [m["content"] for m in policy._chat.by("agent")[1] if m["role"] == "user"][1:]
    assert [o.startswith("Result of") for o in observed] == [True, True, True]


def test_refusals_are_observed_and_charged():
    replies = [act({**MEND, "layer": "M99"}), act({"op": "fly"}), act(SUBMIT)]
    policy = scripted(ReActPolicy, lambda role, number: replies[number])
    _, info, _ = run(make_env("drc"), policy)
    assert (info["charged"], info["ended"]) == (2, "submit")
    seen = policy._chat.by("agent")[2]
    assert "Refused, nothing changed" in seen[-1]["content"]
    assert "Units left: 6" in seen[-1]["content"]


def test_the_prompt_states_the_budget_of_the_episode():
    policy = scripted(ReActPolicy, busy(QUERY))
    run(make_env("drc", budget=5), policy)
    assert "costs one of 5 units" in policy._chat.asked[0][1][1]["content"]


def test_a_model_that_cannot_be_reached_is_no_failure_of_the_agent():
    policy = scripted(ReActPolicy, lambda role, number: act(QUERY))

    def broken(messages, **kwargs):
        error = ModelError("no answer")
        error.retries = 3
        raise error

    policy._chat.ask = broken
    env = make_env("drc")
    env.reset(seed=0)
    attempt = Attempt(env)
    policy.bind(attempt)
    with pytest.raises(ModelError):
        policy.act(*env.observe())
    (note,) = notes(attempt, "model")
    assert (note["parsed"], note["retries"], note["failed"]) == (None, 3, True)
    assert env.ended == ""


def test_families_and_arguments_are_checked():
    env = make_env("ppa")
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="not for this family"):
        scripted(VisionReActPolicy, busy(QUERY)).bind(Attempt(env))
    env = make_env("drc")
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="not for this family"):
        scripted(ORFSAgentPolicy, busy(QUERY)).bind(Attempt(env))
    for kind, options in (
        (ReActPolicy, {"call_factor": 0}),
        (VisionReActPolicy, {"pixels": 2000}),
        (TreeOfThoughtPolicy, {"breadth": 0}),
    ):
        with pytest.raises(ValueError, match="must be in"):
            kind({"model": "x"}, **options)


def test_actions_are_read_in_every_form():
    assert read_actions(json.dumps(CHECK)) == [CHECK]
    assert read_actions(f"Let me think.\n```json\n{act(CHECK)}\n```") == [CHECK]
    assert read_actions(json.dumps({"actions": [CHECK, SUBMIT]})) == [CHECK, SUBMIT]
    assert read_actions(act(CHECK) + act(CHECK)) == [CHECK]
    for text in ("", "[]", '{"action": null}', '{"action": {"op": 3}}', '{"action": {"op": "che'):
        with pytest.raises(PolicyError):
            read_actions(text)


# -- vision ------------------------------------------------------------------------------------------------------------


def test_the_vision_variant_sends_a_jpeg():
    replies = [act({**QUERY, "op": "vision_query", "stop": None}), act(MEND), act(CHECK)]
    policy = scripted(VisionReActPolicy, lambda role, number: replies[number])
    env = make_env("drc")
    attempt, info, _ = run(env, policy)
    assert info["is_success"]
    assert info["charged"] == 3
    assert [s["action"]["op"] for s in env.trace()["steps"]] == ["query", "change_shape", "check"]
    text, picture = policy._chat.by("agent")[1][-1]["content"]
    assert "window" in text["text"]
    assert "M1 #" in text["text"]
    kind, _, data = picture["image_url"]["url"].partition(";base64,")
    assert kind == "data:image/jpeg"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert (image.format, image.mode) == ("JPEG", "RGB")
    assert max(image.size) <= MAX_PIXELS
    # The red frame of the queried edge is in it.
    pixels = np.asarray(image).astype(int)
    assert ((pixels[..., 0] > 150) & (pixels[..., 1] < 70) & (pixels[..., 2] < 70)).sum() > 20
    # Notes hold the picture's digest, not the picture.
    assert data not in json.dumps(attempt.notes)
    assert any(p["type"] == "image" for p in notes(attempt, "model")[1]["messages"][-1]["content"])
    schema = policy._chat.asked[0][2]["properties"]["action"]["anyOf"]
    assert "vision_query" in {f["properties"]["op"]["const"] for f in schema}


def test_pictures_fit_and_have_the_stated_quality():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (1500, 3000, 4), dtype=np.uint8))
    jpeg = Image.open(io.BytesIO(to_jpeg(image)))
    assert (jpeg.format, jpeg.mode, jpeg.size) == ("JPEG", "RGB", (1024, 512))
    same = io.BytesIO()
    Image.new("RGB", (8, 8)).save(same, "JPEG", quality=85)
    assert jpeg.quantization == Image.open(same).quantization


def test_a_refused_vision_query_answers_in_words():
    replies = [act({**QUERY, "op": "vision_query", "direct_layers": ["M99"]}), act(SUBMIT)]
    policy = scripted(VisionReActPolicy, lambda role, number: replies[number])
    run(make_env("drc"), policy)
    assert "unknown layer" in policy._chat.by("agent")[1][-1]["content"]


# -- proposer and critic -----------------------------------------------------------------------------------------------


def verdict(word, action=None):
    return json.dumps({"reason": f"because of {word}", "verdict": word, "action": action})


def test_the_critic_vetoes_corrects_and_accepts():
    replies = {
        "proposer": [act(SPOIL), act(SPOIL), act(CHECK)],
        "critic": [verdict("reject"), verdict("revise", MEND), verdict("accept")],
    }
    policy = scripted(ProposerCriticPolicy, lambda role, number: replies[role][number])
    attempt, info, actions = run(make_env("drc"), policy)
    assert actions == [MEND, CHECK]
    assert info["charged"] == 2
    assert info["is_success"]
    second = policy._chat.by("proposer")[1][-1]["content"]
    assert "sends it back: because of reject" in second
    assert "corrected it: because of revise" in policy._chat.by("proposer")[2][-1]["content"]
    assert f"Proposal: {json.dumps(SPOIL)}" in policy._chat.by("critic")[0][-1]["content"]
    assert [n["verdict"] for n in notes(attempt, "critique")] == ["reject", "revise", "accept"]
    assert notes(attempt, "critique")[1]["agreed"] == MEND


@pytest.mark.parametrize("answer", [verdict("reject"), "hm", verdict("maybe"), verdict("revise")])
def test_nothing_is_carried_out_without_agreement(answer):
    policy = scripted(ProposerCriticPolicy, lambda role, number: answer if role == "critic" else act(SPOIL))
    env = make_env("drc")
    _, info, actions = run(env, policy)
    assert (actions, info["charged"], env.edits) == (["submit"], 0, ())
    assert len(policy._chat.asked) == policy.call_budget == 2 * 2 * 8


# -- Reflexion ---------------------------------------------------------------------------------------------------------


def test_the_second_trial_starts_fresh_with_the_reflection():
    replies = [act(SPOIL), act(CHECK), act(SUBMIT), act(MEND), act(CHECK)]
    policy = scripted(ReflexionPolicy, lambda r, n: "Lesson: move it right." if r == "reflection" else replies[n])
    env = make_env("drc", policy)
    attempt, info, actions = run(env, policy)
    # A submit of the first trial is a check of it.
    assert actions == [SPOIL, CHECK, CHECK, MEND, CHECK]
    assert info["is_success"]
    assert info["charged"] == 5
    assert [s["action"]["op"] for s in env.trace()["steps"]] == ["change_shape", "check"]
    first, second = policy._chat.by("agent")[0], policy._chat.by("agent")[3]
    assert "Lesson" not in first[0]["content"]
    assert "Lesson: move it right." in second[0]["content"]
    assert "trial 2" in second[0]["content"]
    # Nothing but the words is carried over: role and task only, and the layout of the start.
    assert len(second) == 2
    assert second[1] == first[1]
    assert "Result of" not in json.dumps(second)
    (reflecting,) = policy._chat.by("reflection")
    assert "Result of" in json.dumps(reflecting)
    assert [(r, s) for r, _, s in policy._chat.asked if r == "reflection"] == [("reflection", None)]
    assert notes(attempt, "reflection")[0]["text"] == "Lesson: move it right."


@pytest.mark.parametrize(("split", "total", "trial"), [(False, 16, 8), (True, 8, 4)])
def test_a_trial_has_its_cap(split, total, trial):
    policy = scripted(ReflexionPolicy, busy(QUERY), split=split)
    env = make_env("drc", policy)
    _, info, _ = run(env, policy)
    assert info["charged"] == env.budget == total
    stated = policy.settings()
    assert (stated["trial_cap"], stated["action_cap"], stated["split"], stated["trials"]) == (trial, total, split, 2)
    restarts = [i for i, m in enumerate(policy._chat.by("agent")) if len(m) == 2]
    assert restarts == [0, trial]
    assert f"it may spend {trial} units" in policy._chat.by("agent")[trial][0]["content"]
    assert "Units left: 0" in policy._chat.by("reflection")[0][-2]["content"]


def test_a_given_budget_is_the_cap_of_a_trial():
    # A sweep over budgets compares trials of the same cap.
    policy = scripted(ReflexionPolicy, busy(QUERY))
    env = make_env("drc", policy, budget=3)
    run(env, policy)
    assert (env.budget, policy.settings()["trial_cap"]) == (6, 3)
    with pytest.raises(ValueError, match="budget_factor"):
        make_env("drc", budget_factor=0)


def test_a_first_trial_that_succeeds_ends_the_episode():
    replies = [act(MEND), act(SUBMIT)]
    policy = scripted(ReflexionPolicy, lambda r, n: replies[n])
    _, info, actions = run(make_env("drc", policy), policy)
    assert info["is_success"]
    assert actions == [MEND, CHECK]


def test_runs_of_the_first_trial_are_gone_in_the_second():
    replies = [act(PPA_FIX[0]), act(RUN), act(SUBMIT), act({"op": "read_file", "command": "ls -R runs"}), act(SUBMIT)]
    policy = scripted(ReflexionPolicy, lambda r, n: "again" if r == "reflection" else replies[n])
    env = make_env("ppa", policy)
    _, info, _ = run(env, policy)
    answer = policy._chat.by("agent")[4][-1]["content"]
    assert "ppa.json" in answer
    assert "1" not in answer.split("Units left")[0].split(":\n", 1)[1]
    assert env.layout == PPA_TASK.design
    assert info["charged"] == 4


# -- Tree of Thought ---------------------------------------------------------------------------------------------------


def test_the_tree_takes_the_best_candidate_and_backtracks_to_a_restored_state():
    # Node 0: spoil (9) or mend (8). After spoil: check (9) or query (1). The check is no nearer: back to mend.
    candidates = [act(SPOIL), act(MEND), act(CHECK), act(QUERY), act(CHECK), act(QUERY)]
    scores = [[9, 8], [9, 1], [9, 1]]
    layouts = {}

    def answer(role, number):
        if role == "judge":
            return json.dumps({"reason": "", "scores": scores[number]})
        return candidates[number]

    policy = scripted(TreeOfThoughtPolicy, answer, breadth=2)
    env = make_env("drc", policy)
    env.reset(seed=0)
    initial = env.layout.to_bytes()
    attempt = Attempt(env)
    policy.bind(attempt)
    observation, info = env.observe()
    taken = []
    while not env.ended:
        action = policy.act(observation, info)
        layouts[len(taken)] = env.layout.to_bytes()
        taken.append(action)
        observation, _, _, _, info = env.step_any(action)
    assert taken == [SPOIL, CHECK, MEND, CHECK]
    assert info["is_success"]
    assert layouts[2] == initial  # mend is carried out on the layout of node 0
    assert layouts[1] != initial
    assert info["charged"] == 4  # what the abandoned branch cost stays spent
    assert [s["action"]["op"] for s in env.trace()["steps"]] == ["change_shape", "check"]
    assert notes(attempt, "restore")[0]["node"] == 0
    assert [n["scores"] for n in notes(attempt, "judge")] == [[9.0, 8.0], [9.0, 1.0], [9.0, 1.0]]
    # The conversation of the restored path knows nothing of the abandoned one.
    last = json.dumps(policy._chat.by("candidate")[-1])
    assert json.dumps(json.dumps(SPOIL))[1:-1] not in last.replace(json.dumps(json.dumps(MEND))[1:-1], "")
    # A candidate is told what has been proposed at its node.
    assert json.dumps(SPOIL, sort_keys=True) in policy._chat.by("candidate")[1][-1]["content"]


def test_a_refused_action_is_left_for_the_next_best():
    bad = {**MEND, "layer": "M99"}
    candidates = [act(bad), act(MEND), act(CHECK), act(QUERY)]

    def answer(role, number):
        return json.dumps({"scores": [9, 5], "reason": ""}) if role == "judge" else candidates[number]

    policy = scripted(TreeOfThoughtPolicy, answer, breadth=2)
    _, info, actions = run(make_env("drc", policy), policy)
    assert actions == [bad, MEND, CHECK]
    assert info["is_success"]


def spoiled_tree(budget, silent_after=99):
    """A search whose first path is spoil, check; the check is no nearer to the goal."""
    candidates = [SPOIL, {**QUERY, "start": 3}, CHECK, QUERY]
    scores = [[9, 8], [9, 1]]

    def answer(role, number):
        if role == "judge":
            return json.dumps({"reason": "", "scores": scores[number]})
        return act(candidates[number]) if number < silent_after else "hm"

    policy = scripted(TreeOfThoughtPolicy, answer, breadth=2)
    env = make_env("drc", policy, budget=budget)
    return policy, env, *run(env, policy)


def test_the_last_unit_is_for_the_best_path():
    # The check makes its node the best; with one unit left, no other branch may take the end of the episode.
    _, env, _, info, actions = spoiled_tree(budget=3)
    assert actions == [SPOIL, CHECK, "submit"]
    assert (info["charged"], env.budget) == (2, 3)
    # It is the best path's own step, so that it may be the last one.
    _, _, _, info, actions = spoiled_tree(budget=2)
    assert (actions, info["charged"], info["ended"]) == ([SPOIL, CHECK], 2, "budget")


def test_the_best_node_is_handed_in():
    policy, env, attempt, info, actions = spoiled_tree(budget=8, silent_after=4)
    # Other branches are tried, from restored states; the deepest verified one is handed in.
    assert actions == [SPOIL, CHECK, {**QUERY, "start": 3}, QUERY, "submit"]
    assert [n["node"] for n in notes(attempt, "restore")] == [0, 1, 2]
    assert [s["action"]["op"] for s in env.trace()["steps"]] == ["change_shape", "check", "submit"]
    assert info["charged"] == 4
    assert len(policy._chat.asked) == policy.call_budget == 2 * 3 * 8


def test_paths_are_no_deeper_than_allowed():
    def answer(role, number):
        return json.dumps({"reason": "", "scores": [5]}) if role == "judge" else act({**QUERY, "start": number})

    policy = scripted(TreeOfThoughtPolicy, answer, breadth=1, max_depth=3)
    env = make_env("drc", policy)
    _, info, actions = run(env, policy)
    assert (len(actions), actions[-1], info["charged"]) == (4, "submit", 3)


def test_an_unreadable_judge_leaves_the_order_of_the_candidates():
    candidates = [act(MEND), act(QUERY), act(CHECK), act(QUERY)]
    policy = scripted(TreeOfThoughtPolicy, lambda r, n: "dunno" if r == "judge" else candidates[n], breadth=2)
    attempt, info, actions = run(make_env("drc", policy), policy)
    assert actions == [MEND, CHECK]
    assert info["is_success"]
    assert [n["parsed"] for n in notes(attempt, "model") if n["role"] == "judge"] == [False, False]


# -- ORFS agent --------------------------------------------------------------------------------------------------------

SPACE = [
    {"name": "CORE_UTILIZATION", "low": 30, "high": 60, "choices": None, "default": "40"},
    {"name": "PLACE_DENSITY", "low": 0.4, "high": 0.9, "choices": None, "default": "0.6"},
    {"name": "ASAP7_USE_VT", "low": None, "high": None, "choices": ["RVT", "LVT", "SLVT"], "default": "RVT"},
    {"name": "CTS_CLUSTER_SIZE", "low": 10, "high": 60, "choices": None, "default": "50"},
    {"name": "clock_period", "low": 1, "high": 5000, "choices": None, "default": "300"},
    {"name": "CORE_MARGIN", "low": 0, "high": 1, "choices": None, "default": "1"},
    {"name": "PLATFORM", "low": None, "high": None, "choices": ["a", "b"], "default": "a"},
    {"name": "NONSENSE", "low": 0, "high": 1, "choices": None, "default": "1"},
    {"name": "TNS_END_PERCENT", "low": 50, "high": 50, "choices": None, "default": "50"},
]


def out_of_reach():
    from ppa_cases import make_task

    return make_task(targets=dict.fromkeys(PPA_TASK.targets, 1e-9))


def test_the_orfs_agent_makes_18_runs_after_one_call():
    pytest.importorskip("sklearn")
    space = json.dumps({"thought": "", "parameters": SPACE})
    policy = scripted(ORFSAgentPolicy, lambda role, number: space)
    env = make_env("ppa", policy, task=out_of_reach())
    attempt, info, actions = run(env, policy, seed=3)
    assert actions.count("run") == info["charged"] == RUNS == 18
    assert info["ended"] == "submit"
    assert len(policy._chat.asked) == 1
    asked = json.dumps(policy._chat.asked[0][1])
    assert "FlowVariables.md" in asked
    assert "create_clock" in asked
    assert "export CORE_UTILIZATION" in asked
    assert "src/adder.v" in asked

    found, *rounds = notes(attempt, "proposal")
    names = [d["name"] for d in found["dimensions"]]
    assert names == ["CORE_UTILIZATION", "PLACE_DENSITY", "ASAP7_USE_VT", "CTS_CLUSTER_SIZE", "clock_period"]
    assert len(found["dropped"]) == 4
    low, high = PPA_TASK.bounds.period
    assert [(d["low"], d["high"]) for d in found["dimensions"] if d["name"] == "clock_period"] == [(low, high)]
    assert [r["method"] for r in rounds] == ["lhs", *["gp-ucb"] * 5]
    assert [len(r["places"]) for r in rounds] == [3] * 6
    # Latin hypercube: one place in each third of the band around the default, in every dimension.
    view = PPA_TASK.view()
    _, start, _ = read_space(space, view)
    first = np.array(rounds[0]["places"])
    assert (np.abs(first - np.array(start)) <= policy.spread + 1e-9).all()
    for column, middle in zip(first.T, start):
        if policy.spread <= middle <= 1 - policy.spread:
            thirds = np.floor((column - middle + policy.spread) / (2 * policy.spread) * 3)
            assert sorted(thirds) == [0, 1, 2]
    # Candidates of one round keep their distance.
    for r in rounds[1:]:
        batch = np.array(r["places"])
        gaps = [np.linalg.norm(a - b) for i, a in enumerate(batch) for b in batch[:i]]
        assert min(gaps) >= policy.apart * np.sqrt(len(names)) - 1e-9
    # The best design of all runs is handed in.
    assert env.layout != PPA_TASK.design
    assert info["nis"] >= info["nis_nothing"]
    again = scripted(ORFSAgentPolicy, lambda role, number: space)
    assert run(make_env("ppa", again, task=out_of_reach()), again, seed=3)[2] == actions


def test_whole_numbers_stay_whole_and_the_first_success_ends_it():
    pytest.importorskip("sklearn")
    space = json.dumps({"thought": "", "parameters": SPACE})
    policy = scripted(ORFSAgentPolicy, lambda role, number: space)
    _, info, actions = run(make_env("ppa", policy), policy, seed=1)
    sizes = [a.value for a in actions if getattr(a, "name", "") == "CTS_CLUSTER_SIZE"]
    assert sizes
    assert all(s.isdigit() for s in sizes)
    assert info["charged"] <= RUNS
    if info["is_success"]:
        assert actions[-1] == "run"


@pytest.mark.parametrize("answer", ["no", '{"parameters": []}', '{"parameters": [{"name": "NONSENSE"}, 3]}'])
def test_without_a_search_space_nothing_is_run(answer):
    policy = scripted(ORFSAgentPolicy, lambda role, number: answer)
    env = make_env("ppa", policy)
    attempt, info, actions = run(env, policy)
    assert actions == ["submit"]
    assert info["charged"] == 0
    assert [n["parsed"] for n in notes(attempt, "model")] == [False, False]


def test_diverse_candidates():
    ranked = np.array([[0.5, 0.5], [0.51, 0.5], [0.9, 0.9], [0.1, 0.1]])
    assert diverse(ranked, 3, 0.1).tolist() == [[0.5, 0.5], [0.9, 0.9], [0.1, 0.1]]
    assert diverse(ranked[:2], 2, 0.1).tolist() == ranked[:2].tolist()
