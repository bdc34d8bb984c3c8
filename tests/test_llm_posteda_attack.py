"""DRC and PPA environments and their scaffolds before an agent that wants more than it may have."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from drc_cases import bars
from drc_cases import make_task as drc_task
from hypothesis import given, settings
from hypothesis import strategies as st
from posteda_models import (
    CHECK,
    DRC_TASK,
    MEND,
    PPA_FIX,
    PPA_TASK,
    QUERY,
    READ,
    RUN,
    SPOIL,
    act,
    make_env,
    notes,
    run,
    scripted,
)
from ppa_cases import make_task

from edagym.baselines.llm.client import ChatModel
from edagym.baselines.llm.posteda.agent import read_actions
from edagym.baselines.llm.posteda.critic import ProposerCriticPolicy, read_verdict
from edagym.baselines.llm.posteda.orfs_agent import ORFSAgentPolicy, read_space
from edagym.baselines.llm.posteda.react import ReActPolicy, VisionReActPolicy
from edagym.baselines.llm.posteda.reflexion import ReflexionPolicy
from edagym.baselines.llm.posteda.tree import TreeOfThoughtPolicy, read_scores
from edagym.baselines.policies import Attempt
from edagym.envs.ppa.state import visible_files
from edagym.errors import EditError, PolicyError
from edagym.spaces.actions import Command
from edagym.spaces.drc_actions import drc_action_from_json
from edagym.spaces.ppa_actions import ppa_action_from_json
from edagym.task_assets.drc.task import DRCTask
from edagym.task_assets.ppa.suite import load_task, task_ids

CANARY = "canary-7f3a"
KEY = "sk-canary-5d2c81"


def tainted_ppa():
    """A task with a canary in everything that is hidden; the reference's numbers are such that they stand out."""
    return make_task(
        reference=({"op": "set_knob", "name": "PLACE_DENSITY", "value": "0.777313"}, *PPA_TASK.reference),
        reference_values={"effective_period": 291.7313, "total_power": 0.0011117313, "die_area": 99.7313},
        metadata={"secret": CANARY, "fix": {"note": CANARY}},
    )


def tainted_drc() -> DRCTask:
    reference = ({**MEND, "by": [8, 77313]},)
    return drc_task(bars(10), reference=reference, metadata={"secret": CANARY}, golden=bars(18))


PPA_SECRETS = (CANARY, "777313", "291.7313", "0.0011117313", "99.7313")
DRC_SECRETS = (CANARY, "77313")


def everything(env, actions):
    """All that an agent sees of an episode, as text."""
    seen = [env.prompt, json.dumps(env.trace()), env._render_text()]
    observation, info = env.observe()
    for action in [None, *actions]:
        if action is not None:
            observation, _, _, _, info = env.step_any(action)
        seen += [repr(info), json.dumps({k: np.asarray(v).tolist() for k, v in observation.items()})]
    return "\n".join([*seen, json.dumps(env.trace()), repr(env.view)])


# -- what is hidden stays hidden ---------------------------------------------------------------------------------------


def test_ppa_prompt_info_files_and_trace_hold_no_ground_truth():
    task = tainted_ppa()
    env = make_env("ppa", task=task, budget=30)
    env.reset(seed=0)
    commands = ["ls -R", "find .", "grep -rn canary .", "cat config/config.mk", "cat runs/*/ppa.json", "cat logs/*"]
    reads = [{"op": "read_file", "command": c} for c in commands]
    text = everything(env, [*reads, {"op": "report"}, PPA_FIX[0], RUN, *reads, {"op": "report"}, {"op": "submit"}])
    for secret in PPA_SECRETS:
        assert secret not in text.replace("grep -rn canary", "")
    assert not any(CANARY in body for body in env.files.values())


def test_readable_files_of_the_shipped_designs_hold_no_reference():
    for task_id in task_ids("PPA-All"):
        task = load_task(task_id)
        text = "\n".join(visible_files(task, task.design, ()).values())
        for metric, value in task.reference_values.items():
            assert repr(value) not in text or value == task.initial[metric], (task_id, metric)
        for edit in task.reference:
            assert edit["op"] != "edit_file" or edit["new"] not in text, task_id


@pytest.mark.parametrize("name", ["info.json", "task.json", "./info.json", "config/../info.json", "x/task.json"])
@pytest.mark.parametrize("command", ["cat {}", "head -5 {}", "grep -n . {}", "xxd {}", "ls | cat {}", "strings {}"])
def test_ground_truth_files_are_refused(name, command):
    env = make_env("ppa", budget=30)
    env.reset(seed=0)
    info = env.step_any({"op": "read_file", "command": command.format(name)})[4]
    assert info["edit_error"]
    assert info["text"] == ""
    assert info["charged"] == 1


def test_drc_prompt_info_and_trace_hold_no_ground_truth():
    env = make_env("drc", task=tainted_drc(), budget=30)
    env.reset(seed=0)
    queries = [{**QUERY, "level": level, "direct_layers": []} for level in ("first", "second", "third")]
    text = everything(env, [*queries, SPOIL, CHECK, *queries, CHECK])
    for secret in DRC_SECRETS:
        assert secret not in text


def test_an_unseen_verdict_is_in_no_info():
    # Edits change nothing that tells whether they helped, before a check or run is paid for.
    env = make_env("ppa", budget=30)
    before = env.reset(seed=0)[1]
    for edit in PPA_FIX:
        info = env.step_any(edit)[4]
        for key in (
            "verdict",
            "nis",
            "is_success",
            "effective_period",
            "total_power",
            "die_area",
            "n_runs",
            "function",
        ):
            assert info[key] == before[key]
    env = make_env("drc", budget=30)
    before = env.reset(seed=0)[1]
    info = env.step_any(MEND)[4]
    for key in ("verdict", "n_violations", "vrr", "is_success", "text"):
        assert info[key] == before[key]


def babble(family):
    """A model that does a little of everything."""

    def answer(role, number):
        if role == "critic":
            return json.dumps({"reason": "ok", "verdict": "accept", "action": None})
        if role == "judge":
            return json.dumps({"reason": "ok", "scores": [5, 4, 3]})
        if role == "reflection":
            return "try again"
        if role == "space":
            row = {"name": "PLACE_DENSITY", "low": 0.5, "high": 0.7, "choices": None, "default": "0.6"}
            return json.dumps({"thought": "", "parameters": [row]})
        drc = [QUERY, {**QUERY, "op": "vision_query"}, SPOIL, CHECK, {**QUERY, "level": "third"}]
        ppa = [READ, {"op": "report"}, {"op": "set_knob", "name": "PLACE_DENSITY", "value": f"0.5{number}"}, RUN]
        choice = drc if family == "drc" else ppa
        return act(choice[number % len(choice)]) if number % 7 else "unreadable"

    return answer


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *(
            ("drc", k)
            for k in (ReActPolicy, VisionReActPolicy, ProposerCriticPolicy, ReflexionPolicy, TreeOfThoughtPolicy)
        ),
        *(
            ("ppa", k)
            for k in (ReActPolicy, ProposerCriticPolicy, ReflexionPolicy, TreeOfThoughtPolicy, ORFSAgentPolicy)
        ),
    ],
)
def test_messages_notes_and_settings_hold_no_hidden_criteria_and_no_key(family, kind, monkeypatch):
    if kind is ORFSAgentPolicy:
        pytest.importorskip("sklearn")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    policy = scripted(kind, babble(family))
    env = make_env(family, policy, task=tainted_drc() if family == "drc" else tainted_ppa())
    attempt, _, _ = run(env, policy)
    texts = [json.dumps(policy._chat.asked), json.dumps(attempt.notes), json.dumps(policy.settings())]
    texts += [json.dumps(env.trace()), repr(vars(policy)["model"])]
    for secret in (*(DRC_SECRETS if family == "drc" else PPA_SECRETS), KEY):
        assert not any(secret in text for text in texts), secret
    assert len(notes(attempt, "model")) > 0
    assert isinstance(kind({"model": "m"})._chat, ChatModel)  # what the stand-in has replaced


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["drc", "ppa"])
def test_restoring_gives_nothing_back(family):
    env = make_env(family)
    env.reset(seed=0)
    attempt = Attempt(env)
    mark = attempt.snapshot()
    cost = 0
    for action in (QUERY, SPOIL, CHECK, SPOIL) if family == "drc" else (READ, PPA_FIX[0], RUN, {"op": "report"}):
        attempt.apply(action)
        cost += 1
        attempt.restore(mark)
        assert attempt.budget_left == env.budget - cost
    attempt.restart()
    assert attempt.budget_left == env.budget - cost
    later = attempt.snapshot()
    attempt.restore(mark)
    assert attempt.restore(later)[1]["charged"] == cost


@pytest.mark.parametrize("family", ["drc", "ppa"])
def test_forks_give_no_verdict_for_nothing(family):
    env = make_env(family)
    env.reset(seed=0)
    attempt = Attempt(env)
    for action in [MEND] if family == "drc" else PPA_FIX:
        info = attempt.apply(action)[4]
    before = info["charged"]
    # To end a fork is refused, and charged like any action that cannot be read.
    for n, command in enumerate((Command.SUBMIT, {"op": "submit"}), 1):
        info = attempt.fork().apply(command)[4]
        assert info["edit_error"] == "a fork cannot end the episode"
        assert (info["charged"], info["is_success"], info["ended"]) == (before + n, False, "")
        assert (info["verdict"]["paper"], info["text"]) == (-1, "")
    # Nor does a fork that has used up the budget tell what the layout is worth, or run anything.
    branch = attempt.fork()
    while attempt.budget_left:
        info = branch.apply(QUERY if family == "drc" else READ)[4]
    assert (info["ended"], info["is_success"], info["verdict"]["paper"]) == ("budget", False, -1)
    late = attempt.fork().apply(CHECK if family == "drc" else RUN)[4]
    assert (late["is_success"], late["verdict"]["paper"], late["edit_error"]) == (False, -1, "the budget is spent")
    # The attempt's own end is judged; a run that comes too late is none.
    last = env.step_any(CHECK if family == "drc" else RUN)[4]
    assert (last["ended"], last["is_success"]) == ("budget", family == "drc")
    if family == "ppa":
        assert (late["n_runs"], last["n_runs"]) == (0, 0)


@pytest.mark.parametrize("family", ["drc", "ppa"])
def test_every_form_of_an_action_is_charged_once(family):
    """Whatever comes in, an action costs one unit, or it is a submit; nothing is free by being malformed."""
    env = make_env(family, budget=100)
    env.reset(seed=0)
    odd = [
        {},
        {"op": None},
        {"op": []},
        {"op": "submit "},
        {"op": "RUN"},
        {"op": "verify"},
        [],
        [CHECK, CHECK],
        "check",
    ]
    odd += [None, 3, {"op": "unreadable"}, {"op": "declare_infeasible"}, {"op": "query"}, {"op": "read_file"}]
    for n, action in enumerate(odd, 1):
        _, _, terminated, truncated, info = env.step_any(action)
        assert (terminated, truncated) == (False, False), action
        assert info["charged"] == n
        assert info["edit_error"]


@pytest.mark.parametrize(("family", "verify"), [("drc", CHECK), ("ppa", RUN)])
def test_a_repeated_check_or_run_costs_and_answers_again(family, verify):
    env = make_env(family, budget=6)
    env.reset(seed=0)
    first = env.step_any(verify)[4]
    second = env.step_any(verify)[4]
    assert (first["charged"], second["charged"]) == (1, 2)
    assert first["text"] == second["text"] != ""
    # So it does in a restored state.
    attempt = Attempt(env)
    attempt.restore(attempt.snapshot())
    assert attempt.apply(verify)[4]["text"] == first["text"]


def test_a_design_that_was_not_run_has_nothing_to_show():
    env = make_env("ppa")
    env.reset(seed=0)
    for edit in PPA_FIX:
        env.step_any(edit)
    info = env.step_edit(Command.SUBMIT)[4]
    assert not info["is_success"]
    # Nor does a good run count for a design that was changed after it.
    env = make_env("ppa", stop_on_success=False)
    env.reset(seed=0)
    for action in (*PPA_FIX, RUN):
        env.step_any(action)
    env.step_any({"op": "set_knob", "name": "PLACE_DENSITY", "value": "0.7"})
    assert not env.step_edit(Command.SUBMIT)[4]["is_success"]


def test_runs_of_another_branch_do_not_count():
    env = make_env("ppa", stop_on_success=False)
    env.reset(seed=0)
    attempt = Attempt(env)
    start = attempt.snapshot()
    for action in (*PPA_FIX, RUN):
        info = attempt.apply(action)[4]
    assert info["verdict"]["paper"] == 1
    _, info = attempt.restore(start)
    assert (info["n_runs"], info["nis"]) == (0, info["nis_nothing"])
    assert info["verdict"]["paper"] == -1
    for action in PPA_FIX:
        info = attempt.apply(action)[4]
    assert info["n_runs"] == 0
    assert not attempt.apply(Command.SUBMIT)[4]["is_success"]


def test_failed_runs_are_charged_and_keep_the_last_values():
    env = make_env("ppa")
    env.reset(seed=0)
    env.step_any(RUN)
    env.step_any({"op": "set_knob", "name": "CORE_UTILIZATION", "value": "95"})
    info = env.step_any(RUN)[4]
    assert "The flow failed" in info["text"]
    assert info["charged"] == 3
    assert info["effective_period"] == pytest.approx(322.0)


# -- nothing breaks ----------------------------------------------------------------------------------------------------

NASTY = st.one_of(
    st.sampled_from(
        [10**400, -(10**400), float("nan"), float("inf"), 1e308, "\ud800", "\0", "a" * 20_000, "1e999", ""]
    ),
    st.sampled_from(["٣", "1_0", "$(shell id)", "`id`", "\n", [[10**400, 1]], [1, 2, 3, 4], [[0, 0]] * 300]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    ),
)
FORMS = {
    "drc": [
        SPOIL,
        CHECK,
        QUERY,
        {"op": "add_shape", "layer": "M1", "box": [0, 0, 50, 50], "cell": ""},
        {"op": "change_shape", "layer": "M3", "shape": {"index": 0}, "change": "move_edge", "edge": 1, "by": 3},
        {"op": "move_cell", "cell": "PAIR", "at": [1000, 500], "by": [1, 1], "orientation": "r0", "parent": ""},
    ],
    "ppa": [
        RUN,
        READ,
        {"op": "report"},
        {"op": "edit_file", "path": "src/adder.v", "old": "a + b", "new": "b + a"},
        PPA_FIX[0],
        {"op": "set_knob", "name": "SYNTH_ARGS", "value": "-flatten"},
        {"op": "set_period", "period": 300, "clock": "core_clock"},
        {"op": "set_io_fraction", "fraction": 0.25, "direction": "input"},
        {"op": "set_max_fanout", "fanout": 3},
    ],
}
FIELDS = ["op", "action", "actions", "verdict", "reason", "scores", "parameters", "name", "low", "high", "choices"]
PARSERS = {"drc": drc_action_from_json, "ppa": ppa_action_from_json}


@pytest.mark.parametrize("family", FORMS)
@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_no_action_breaks_an_environment(family, data):
    env = ENVS[family]
    if env.ended or env.budget_left < 3:
        env.reset(seed=0)
    form = dict(data.draw(st.sampled_from(FORMS[family])))
    form[data.draw(st.sampled_from([*form, "extra"]))] = data.draw(NASTY)
    with contextlib.suppress(EditError):
        PARSERS[family](form)
    charged = env.observe()[1]["charged"]
    observation, _, _, _, info = env.step_any(form)
    assert info["charged"] == charged + (form.get("op") != "submit")
    assert observation in env.observation_space
    assert info["error"] == ""
    json.dumps(env.trace())


@given(
    text=st.one_of(
        st.recursive(
            st.sampled_from([None, True, 0, 1e308, 10**400, float("nan"), float("inf"), "", "check", "0.5", "\ud800"]),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(FIELDS),
                    inner
                    | st.sampled_from(["PLACE_DENSITY", "clock_period", "ASAP7_USE_VT", "revise", "accept", [1, 2]]),
                    max_size=6,
                )
            ),
            max_leaves=20,
        ).map(json.dumps),
        st.text(max_size=60),
    )
)
@settings(max_examples=300, deadline=None)
def test_no_reply_breaks_a_reader(text):
    view = PPA_TASK.view()
    for read in (read_actions, read_verdict, lambda t: read_scores(t, 2), lambda t: read_space(t, view)):
        with contextlib.suppress(PolicyError):
            read(text)


def test_scores_of_all_kinds():
    assert read_scores('{"scores": [3, -1, 1e999, ' + "9" * 400 + "]}", 4) == [3.0, 0.0, 10.0, 10.0]
    for bad in ("[1]", "[1, NaN]", "[1, true]", '[1, "2"]', "3", "null"):
        with pytest.raises(PolicyError):
            read_scores(f'{{"scores": {bad}}}', 2)


def test_search_spaces_of_all_kinds():
    view = PPA_TASK.view()
    rows = [
        {"name": "PLACE_DENSITY"},
        {"name": "CORE_UTILIZATION", "low": 20, "high": 10**400},
        {"name": "RECOVER_POWER", "low": 80, "high": 20, "default": "nan"},
        {"name": "SKIP_PIN_SWAP"},
        {"name": "ASAP7_USE_VT", "choices": ["RVT", "FAST"]},
        {"name": "TNS_END_PERCENT", "low": "0", "high": 1000, "default": 1e9},
    ]
    dims, start, dropped = read_space(json.dumps({"parameters": rows}), view)
    assert [(d.name, d.low, d.high, d.choices) for d in dims] == [
        ("RECOVER_POWER", 20.0, 80.0, ()),
        ("SKIP_PIN_SWAP", 0.0, 1.0, ("0", "1")),
        ("TNS_END_PERCENT", 0.0, 100.0, ()),
    ]
    assert start == [0.5, 0.5, 1.0]
    assert [d.split(":")[0].strip("'") for d in dropped] == ["PLACE_DENSITY", "CORE_UTILIZATION", "ASAP7_USE_VT"]


ENVS = {family: make_env(family, budget=500, stop_on_success=False) for family in FORMS}
for _env in ENVS.values():
    _env.reset(seed=0)


def test_tasks_are_what_these_tests_take_them_for():
    env = make_env("drc")
    env.reset(seed=0)
    assert env.step_any(SPOIL)[4]["edit_error"] == ""
    env.step_any({**SPOIL, "shape": {"box": [46, 0, 86, 200]}, "by": [12, 0]})
    assert env.step_any(CHECK)[4]["is_success"]
    assert DRC_TASK.total == 1
