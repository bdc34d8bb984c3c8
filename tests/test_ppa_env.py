"""The PPA environment: Gymnasium's checks, actions, budget, runs, failures, snapshots, determinism, pictures."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from ppa_cases import CONFIG, FormulaFlow, make_design, make_task, same_function
from test_ppa_task import make_sweep

from edagym.envs.ppa.env import PPAEnv, PPATrainEnv
from edagym.envs.ppa.prompt import render_prompt
from edagym.envs.ppa.viewer import render_svg
from edagym.errors import EditError, TaskError, ToolError, ToolTimeout
from edagym.spaces.actions import Command
from edagym.spaces.knobs import knob_rows
from edagym.spaces.ppa_actions import (
    OPERATIONS,
    PPAActionContext,
    PPAActionSpace,
    ppa_action_from_json,
    ppa_action_to_json,
)
from edagym.spaces.ppa_edits import (
    MAX_TEXT,
    Read,
    ReplaceText,
    Report,
    SetIOFraction,
    SetKnob,
    SetMaxFanout,
    SetPeriod,
)
from edagym.spaces.reports import BROKEN, COMPLETED, FLOW_FAILED, SUCCESS, ReportSpace
from edagym.task_assets.ppa.knobs import knob_table
from edagym.task_assets.ppa.task import METRICS, RUNS

TASK = make_task()
CONTEXT = PPAActionContext(("config/config.mk", "src/adder.v"), ("core_clock", "other"), (150.0, 600.0), (0.2, 0.5))


def make_env(**kwargs) -> PPAEnv:
    options = {"tasks": [TASK], "backend": FormulaFlow(), "function_check": same_function, "on_tool_error": "raise"}
    env = PPAEnv(**{**options, **kwargs})
    env.reset(seed=0)
    return env


class CheckedEnv(PPAEnv):
    """An environment that Gymnasium can make by name, with the formula instead of a flow."""

    def __init__(self, folder: str, **kwargs) -> None:
        super().__init__(folder, backend=FormulaFlow(), function_check=same_function, **kwargs)


class CheckedTrainEnv(PPATrainEnv):
    def __init__(self, folder: str, **kwargs) -> None:
        super().__init__(sweeps=folder, backend=FormulaFlow(), function_check=same_function, **kwargs)


@pytest.fixture(params=["PPACheck-v0", "PPATrainCheck-v0"])
def env_id(request, tmp_path):
    TASK.save(tmp_path / "q1")
    make_sweep().save(tmp_path / "sweeps" / "adder.json")
    kwargs = {"folder": str(tmp_path)} if request.param == "PPACheck-v0" else {"folder": str(tmp_path / "sweeps")}
    name = "CheckedEnv" if request.param == "PPACheck-v0" else "CheckedTrainEnv"
    gym.register(request.param, entry_point=f"test_ppa_env:{name}", kwargs=kwargs)
    yield request.param
    gym.registry.pop(request.param)


# -- Gymnasium ---------------------------------------------------------------------------------------------------------


def test_check_env_without_a_warning(env_id, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gym.make(env_id, render_size=[96, 64])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()


def test_spec_and_vectors(env_id):
    env = gym.make(env_id, budget=5)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(env.reset(seed=5), again.reset(seed=5), exact=True)
    assert again.unwrapped.budget == 5
    for mode in ("sync", "async"):
        envs = gym.make_vec(env_id, num_envs=2, vectorization_mode=mode, budget=3)
        try:
            observation, info = envs.reset(seed=1)
            assert observation in envs.observation_space
            assert info["n_runs"].tolist() == [0, 0]
            action = envs.action_space.sample()
            action["op"][:] = OPERATIONS.index("report")
            for _ in range(3):
                observation, _, _, truncated, info = envs.step(action)
            assert observation in envs.observation_space
            assert truncated.all()
            assert info["ended"].tolist() == ["budget"] * 2
        finally:
            envs.close()


def _first_observations(folder):
    import edagym  # noqa: F401  (registers the ids, as a user's import does)

    return [PPAEnv(folder).reset(seed=seed) for seed in range(3)]


def test_spawned_worker(tmp_path):
    for n in range(1, 4):
        make_task(f"Multi-L1/q{n}").save(tmp_path / f"q{n}")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(_first_observations, (str(tmp_path),))
    assert data_equivalence(there, _first_observations(str(tmp_path)), exact=True)


def test_all_tasks_share_the_spaces(tmp_path):
    make_sweep().save(tmp_path / "adder.json")
    train = PPATrainEnv(sweeps=str(tmp_path))
    assert make_env().observation_space == train.observation_space
    assert make_env().action_space == train.action_space
    assert train.task_ids == ()
    with pytest.raises(TaskError, match="no lasting id"):
        train.reset(options={"task": "Train/x"})
    with pytest.raises(TaskError, match="makes its own tasks"):
        PPATrainEnv(sweeps=str(tmp_path), suite="PPA-Multi-L1")
    with pytest.raises(TaskError, match="no such kind"):
        PPATrainEnv(kind="speed", sweeps=str(tmp_path)).reset(seed=0)
    train.reset(seed=0)
    assert train.reset(options={"task": TASK})[1]["task_id"] == TASK.id


def test_arguments_are_checked():
    with pytest.raises(TaskError, match="no such task"):
        make_env().reset(options={"task": "Multi-L9/q1"})
    with pytest.raises(TaskError, match="needs a task"):
        PPAEnv(tasks=[])
    with pytest.raises(TaskError, match="unknown suite"):
        PPAEnv(suite="PPA-Fun")
    with pytest.raises(ValueError, match="charge"):
        make_env(charge="words")
    with pytest.raises(ValueError, match="render_size"):
        make_env(render_size=[8, 8])


def test_sampled_actions_stay_in_the_space():
    env = make_env(budget=300, stop_on_success=False)
    env.action_space.seed(3)
    refused = 0
    for _ in range(250):
        observation, reward, terminated, _, info = env.step(env.action_space.sample())
        assert observation in env.observation_space
        assert reward == 0 or terminated
        refused += bool(info["edit_error"])
        if terminated:
            env.reset()
    assert 0 < refused < 250


# -- the episode -------------------------------------------------------------------------------------------------------


def test_the_reference_solves_the_task():
    env = make_env()
    for edit in TASK.reference:
        _, reward, terminated, truncated, info = env.step_any(edit)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert info["edit_error"] == ""
    observation, reward, terminated, truncated, info = env.step_edit(Command.VERIFY)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["is_success"]
    assert info["ended"] == "success"
    assert info["nis"] == 1.0
    assert info["nis_nothing"] == pytest.approx(2 / 3)
    assert info["charged"] == 3
    assert observation["history_status"].tolist()[:2] == [SUCCESS, -1]
    assert observation["gap"].max() <= 0
    assert "All targets are met" in info["text"]


def test_every_action_is_charged_but_submit():
    env = make_env()
    for n, action in enumerate(
        [Report(), Read("ls"), Read("rm x"), SetKnob("ABC_AREA", "1"), SetKnob("ABC_AREA", "9"), Command.VERIFY], 1
    ):
        assert env.step_edit(action)[4]["charged"] == n
    assert env.refuse("not JSON")[4]["charged"] == 7
    assert env.step_edit(Command.SUBMIT)[4]["charged"] == 7
    assert make_env().budget == 16


def test_the_budget_ends_the_episode():
    env = make_env(budget=2)
    assert env.step_edit(Report())[3] is False
    _, reward, terminated, truncated, info = env.step_edit(Report())
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "has not been run" in info["verdict"]["messages"]
    with pytest.raises(gym.error.ResetNeeded):
        env.step_edit(Report())


def test_a_run_on_the_last_unit_counts():
    env = make_env(budget=3)
    for edit in TASK.reference:
        env.step_any(edit)
    assert env.step_edit(Command.VERIFY)[2]


def test_what_was_not_run_does_not_count():
    flow = FormulaFlow()
    env = make_env(backend=flow)
    for edit in TASK.reference:
        env.step_any(edit)
    _, reward, terminated, _, info = env.step_edit(Command.SUBMIT)
    assert (reward, terminated, info["is_success"]) == (0.0, True, False)
    assert flow.calls == 0


def test_success_counts_until_the_design_is_changed():
    for extra, success in ([], True), ([Read("ls")], True), ([SetKnob("ENABLE_DPO", "0")], False):
        env = make_env(stop_on_success=False)
        for edit in TASK.reference:
            env.step_any(edit)
        assert not env.step_edit(Command.VERIFY)[2]
        for action in extra:
            env.step_edit(action)
        *_, info = env.step_edit(Command.SUBMIT)
        assert info["is_success"] == success


def test_a_failed_run_is_seen_and_keeps_the_last_values():
    env = make_env()
    env.step_edit(SetKnob("PLACE_DENSITY", "0.7"))
    better = env.step_edit(Command.VERIFY)[4]
    env.step_edit(SetKnob("CORE_UTILIZATION", "95"))
    observation, _, terminated, _, info = env.step_edit(Command.VERIFY)
    assert not terminated
    assert info["flow_error"].startswith("the core is too small")
    assert "The flow failed" in info["text"]
    assert info["nis"] == better["nis"] > info["nis_nothing"]
    assert observation["last_flow_error"].tolist() == [1]
    assert observation["history_status"].tolist()[:3] == [COMPLETED, FLOW_FAILED, -1]
    assert observation["report"][0] == np.float32(better["effective_period"])
    assert env.step_edit(Read("cat runs/2/error.txt"))[4]["text"].startswith("the core is too small")
    env.step_edit(SetKnob("CORE_UTILIZATION", "40"))
    assert env.step_edit(Command.VERIFY)[4]["flow_error"] == ""


class FailingFlow(FormulaFlow):
    """Raises an error on runs whose number, from 1, or source says so."""

    def __init__(self, error, runs=(), word="never finished"):
        super().__init__()
        self.error, self.runs, self.word = error, runs, word

    def run(self, design):
        result = super().run(design)
        if self.calls in self.runs or self.word in design.files["src/adder.v"]:
            raise self.error
        return result


CRASH = ToolError("the engine crashed", field="yosys", value=-11)
LATE = ToolTimeout("yosys ran too long", field="yosys", value=300)
ENDLESS = ReplaceText("src/adder.v", "a + b", "a + b /* never finished */")


@pytest.mark.parametrize("error", [CRASH, LATE])
def test_a_tool_failure_is_never_scored(error):
    env = make_env(backend=FailingFlow(error, [1]), on_tool_error="truncate")
    env.step_edit(SetKnob("CORE_UTILIZATION", "40"))
    _, reward, terminated, truncated, info = env.step_edit(Command.VERIFY)
    assert np.isnan(reward)
    assert (terminated, truncated, info["ended"]) == (False, True, "tool_error")
    assert str(error) in info["error"]
    with pytest.raises(type(error)):
        make_env(backend=FailingFlow(error, [1])).step_edit(Command.VERIFY)


@pytest.mark.parametrize(("error", "runs"), [(CRASH, 3), (LATE, 2)])
def test_changed_sources_that_the_engine_cannot_manage_are_a_failed_run(error, runs):
    flow = FailingFlow(error)
    env = make_env(backend=flow)
    env.step_edit(ENDLESS)
    observation, reward, _, _, info = env.step_edit(Command.VERIFY)
    assert (reward, info["ended"], info["error"]) == (0.0, "", "")
    assert info["flow_error"].startswith("synthesis: fails on the changed sources")
    assert str(error) in info["text"]
    assert observation["last_flow_error"].tolist() == [1]
    # The changed design (a crash: twice), and the task's own as the control.
    assert flow.calls == runs
    env.step_edit(ReplaceText("src/adder.v", " /* never finished */", ""))
    assert env.step_edit(Command.VERIFY)[4]["flow_error"] == ""


def test_an_engine_that_fails_on_the_original_too_is_no_verdict():
    for error, runs in ((CRASH, (1, 2, 3)), (LATE, (1, 2))):
        env = make_env(backend=FailingFlow(error, runs))
        env.step_edit(ReplaceText("src/adder.v", "a + b", "b + a"))
        with pytest.raises(type(error)):
            env.step_edit(Command.VERIFY)


def test_a_crash_that_does_not_happen_again_costs_nothing():
    env = make_env(backend=FailingFlow(CRASH, [1]))
    env.step_edit(ReplaceText("src/adder.v", "a + b", "b + a"))
    assert env.step_edit(Command.VERIFY)[4]["flow_error"] == ""


def test_a_functional_check_that_never_ends_is_a_failed_check():
    def check(task, design):
        if "never finished" in design.files["src/adder.v"]:
            raise LATE
        return same_function(task, design)

    env = make_env(function_check=check)
    for edit in TASK.reference:
        env.step_any(edit)
    env.step_edit(ENDLESS)
    info = env.step_edit(Command.VERIFY)[4]
    assert not info["is_success"]
    assert "cannot be checked" in info["function"]
    dead = make_env(function_check=lambda task, design: check(task, task.design.replaced("src/adder.v", ENDLESS.new)))
    dead.step_edit(ENDLESS)
    with pytest.raises(ToolTimeout):
        dead.step_edit(Command.VERIFY)


def test_a_fault_of_the_flow_is_a_tool_failure():
    class Broken(FormulaFlow):
        def run(self, design):
            return [][1]

    for edit in (SetKnob("CORE_UTILIZATION", "40"), ReplaceText("src/adder.v", "a + b", "b + a")):
        env = make_env(backend=Broken())
        env.step_edit(edit)
        with pytest.raises(ToolError, match="IndexError"):
            env.step_edit(Command.VERIFY)


def test_another_engine_is_a_tool_failure():
    env = make_env(tasks=[dataclasses.replace(TASK, engine="formula 0")])
    with pytest.raises(ToolError, match="formula 1.*formula 0"):
        env.step_edit(Command.VERIFY)
    with pytest.raises(ToolError, match="another flow"):
        make_env(tasks=[dataclasses.replace(TASK, backend="orfs")]).step_edit(Command.VERIFY)


@pytest.mark.parametrize(
    ("word", "criterion", "success", "status"),
    [("broken", "paper", False, BROKEN), ("sneaky", "paper", True, SUCCESS), ("sneaky", "strict", False, SUCCESS)],
)
def test_function_decides(word, criterion, success, status):
    env = make_env(criterion=criterion)
    for edit in TASK.reference:
        env.step_any(edit)
    env.step_edit(ReplaceText("src/adder.v", "a + b", f"b + a /* {word} */"))
    observation, _, terminated, _, info = env.step_edit(Command.VERIFY)
    assert terminated == info["is_success"] == success
    assert info["nis_flagged"] == (word == "broken")
    assert observation["history_status"][0] == status
    assert "differ" in info["text"]


def test_the_score_stays_flagged_until_another_run_completes():
    env = make_env()
    env.step_edit(ReplaceText("src/adder.v", "a + b", "a /* broken */"))
    assert env.step_edit(Command.VERIFY)[4]["nis_flagged"] == 1
    env.step_edit(ReplaceText("src/adder.v", "a /* broken */", "a + b"))
    env.step_edit(SetKnob("CORE_UTILIZATION", "95"))
    *_, info = env.step_edit(Command.VERIFY)
    assert info["flow_error"]
    assert info["nis_flagged"] == 1
    assert env.verdict.metrics["nis_flagged"] == 1
    env.step_edit(SetKnob("CORE_UTILIZATION", "50"))
    assert env.step_edit(Command.VERIFY)[4]["nis_flagged"] == 0


def test_equal_designs_are_run_once():
    flow = FormulaFlow()
    env = make_env(backend=flow, budget=40)
    for value in ("1", "0", "1", "0"):
        env.step_edit(SetKnob("ABC_AREA", value))
        env.step_edit(Command.VERIFY)
    assert flow.calls == 2
    assert len(env.runs) == 4
    env.reset()
    env.step_edit(Command.VERIFY)
    assert flow.calls == 2


def test_equal_sources_are_compared_once():
    calls = []

    def count(task, design):
        calls.append(design)
        return same_function(task, design)

    env = make_env(function_check=count, budget=40)
    env.step_edit(ReplaceText("src/adder.v", "a + b", "b + a"))
    for value in ("0.5", "0.55", "0.65"):
        env.step_edit(SetKnob("PLACE_DENSITY", value))
        env.step_edit(Command.VERIFY)
    assert len(calls) == 1
    env.step_edit(ReplaceText("src/adder.v", "b + a", "a+ b"))
    env.step_edit(Command.VERIFY)
    assert len(calls) == 2


def test_runs_can_be_the_only_charge():
    env = make_env(charge="runs")
    assert env.budget == RUNS == 18
    for i in range(18):
        assert not env.ended
        env.step_edit(SetKnob("PLACE_DENSITY", str(0.2 + i / 100)))
        env.step_edit(Report())
        _, _, _, truncated, info = env.step_edit(Command.VERIFY)
        assert info["charged"] == i + 1
    assert truncated
    endless = make_env(charge="runs", budget=2)
    steps = 0
    while not endless.ended:
        endless.step_edit(Report())
        steps += 1
    assert steps == 102


# -- edits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (SetKnob("PLATFORM", "x"), "locked"),
        (SetKnob("DESIGN_NAME", "x"), "locked"),
        (SetKnob("VERILOG_FILES", "x.v"), "locked"),
        (SetKnob("PRE_CTS_TCL", "x"), "locked"),
        (SetKnob("MAGIC", "1"), "unknown variable"),
        (SetKnob("CORE_MARGIN", "0"), "this task locks"),
        (SetKnob("CORE_UTILIZATION", "500"), "not a value"),
        (SetKnob("ROUTE_EFFORT", "$(shell x)"), "not a value"),
        (SetKnob("ROUTE_EFFORT", "x # y"), "not a value"),
        (SetPeriod(100.0), "150 to 600 ps, found 100"),
        (SetPeriod(700.0), "150 to 600 ps"),
        (SetPeriod(300.0, "other"), "no such clock"),
        (SetIOFraction(0.1), "0.2 to 0.5 of the period"),
        (SetIOFraction(0.1, "output"), "0.2 to 0.5 of the period"),
        (SetMaxFanout(-3), "not a number in range"),
        (ReplaceText("src/adder.v", "nothing", "x"), "does not occur"),
        (ReplaceText("src/adder.v", "input", "x"), "occurs 3 times"),
        (ReplaceText("src/adder.v", "", "x"), "does not occur"),
        (ReplaceText("src/none.v", "a", "x"), "not a file of the design"),
        (ReplaceText("../x.v", "a", "x"), "not a file of the design"),
        (ReplaceText("info.json", "a", "x"), "not a file of the design"),
        (ReplaceText("runs/0/ppa.json", "a", "x"), "not a file of the design"),
        (ReplaceText("config/config.mk", "= adder", "= other"), "locked"),
        (ReplaceText("config/config.mk", "# percent", "\nexport DESIGN_NAME = x"), "locked"),
        (ReplaceText("config/config.mk", "# percent", "\ninclude x"), "not an assignment"),
        (ReplaceText("config/config.mk", "# percent", "$(shell x)"), "references and functions"),
        (ReplaceText("config/constraint.sdc", "clk_period 300", "clk_period 10"), "150 to 600 ps"),
        (ReplaceText("config/constraint.sdc", "clk_io_pct 0.2", "clk_io_pct 0"), "0.2 to 0.5"),
        (ReplaceText("config/constraint.sdc", "set_output_delay", "set_false_path -to [all_outputs]\n#"), "delays"),
        (
            ReplaceText("config/constraint.sdc", "set_output", "set_false_path -to [all_outputs]\nset_output"),
            "false path",
        ),
        (ReplaceText("config/constraint.sdc", "set_output", "exec ls\nset_output"), "not allowed"),
    ],
)
def test_refused_edits(edit, reason):
    env = make_env()
    before = env.layout
    *_, info = env.step_edit(edit)
    assert reason in info["edit_error"]
    assert env.layout == before
    assert info["charged"] == 1
    assert env.observe()[0]["last_edit_error"].tolist() == [1]


def test_edits_change_the_files():
    env = make_env()
    edits = [
        SetKnob("CORE_UTILIZATION", "55"),
        SetKnob("TNS_END_PERCENT", "50"),
        SetPeriod(280.0),
        SetIOFraction(0.3),
        SetMaxFanout(9),
        ReplaceText("src/adder.v", "a + b", "b + a"),
        ReplaceText("config/config.mk", "# percent", "# %"),
    ]
    for edit in edits:
        assert env.step_edit(edit)[4]["edit_error"] == ""
    config, sdc = env.layout.one(".mk")[1], env.layout.one(".sdc")[1]
    assert config == CONFIG.replace("= 40 ", "= 55 ").replace("# percent", "# %") + "export TNS_END_PERCENT = 50\n"
    assert "clk_period 280" in sdc
    assert sdc.endswith("set_max_fanout 9 [current_design]\n")
    observation, _ = env.observe()
    rows = knob_rows()
    assert observation["knob_values"][rows["TNS_END_PERCENT"], 0] == 0.5
    assert observation["clock_period"][0] == 280
    assert observation["io_fraction"].tolist() == pytest.approx([0.3, 0.3])
    assert observation["max_fanout"].tolist() == [9]
    assert observation["sources_changed"].tolist() == observation["design_changed"].tolist() == [1]
    env.step_edit(SetMaxFanout(0))
    assert env.observe()[0]["max_fanout"].tolist() == [0]


def test_an_agent_reads_its_files_and_no_others():
    env = make_env()
    env.step_edit(SetPeriod(280.0))
    env.step_edit(Command.VERIFY)
    assert "clk_period 280" in env.step_edit(Read("cat config/constraint.sdc"))[4]["text"]
    assert set(env.files) == {
        "FlowVariables.md",
        "config/config.mk",
        "config/constraint.sdc",
        "logs/6_report.json",
        "runs/0/ppa.json",
        "runs/1/critical_path.rpt",
        "runs/1/ppa.json",
        "src/adder.v",
    }
    assert not any("reference fix" in text or "LVT" in text for p, text in env.files.items() if p != "FlowVariables.md")
    text = env.step_edit(Read("cat task.json"))[4]
    assert text["text"] == ""
    assert "not for agents" in text["edit_error"]


def test_report_text():
    env = make_env()
    assert "No run yet" in env.step_edit(Report())[4]["text"]
    env.step_edit(Command.VERIFY)
    text = env.step_edit(Report())[4]["text"]
    assert "effective period: 322 ps; target at most 295: missed by 27 (9.15 %)" in text
    assert "worst path:\na INVx1 5.0 5.0" in text
    assert "finish__timing__setup__wns: -22" in text


def test_prompt_tells_the_task_and_no_more():
    prompt = make_env().prompt
    for part in (
        "effective period: now 322 ps, target at most 295 ps",
        "FlowVariables.md",
        "150 to 600 ps",
        "16 units",
    ):
        assert part in prompt
    assert "LVT" not in prompt
    assert all(op in prompt for op in OPERATIONS)
    mono = make_task(targets={"total_power": 9e-4}, suite="power")
    text = render_prompt(mono.view(), "")
    assert "No bound: effective period" in text
    assert "What is met already" not in text


# -- actions -----------------------------------------------------------------------------------------------------------

ACTIONS = [
    SetKnob("CORE_UTILIZATION", "55.5"),
    SetKnob("CORE_UTILIZATION", ""),
    SetKnob("PLACE_DENSITY", "0.65"),
    SetKnob("SETUP_SLACK_MARGIN", "-33.3"),
    SetKnob("CTS_CLUSTER_SIZE", "20"),
    SetKnob("ABC_AREA", "1"),
    SetKnob("ABC_AREA", "0"),
    SetKnob("ASAP7_USE_VT", "RVT SLVT"),
    SetKnob("ASAP7_USE_VT", "SLVT LVT RVT"),
    SetKnob("CORNER", "WC"),
    SetKnob("DIE_AREA", "0 0 16.2 16.2"),
    SetKnob("ROUTE_EFFORT", "high"),
    SetPeriod(287.5),
    SetPeriod(300.0, "other"),
    SetIOFraction(0.25),
    SetIOFraction(0.35, "output"),
    SetMaxFanout(12),
    SetMaxFanout(0),
    ReplaceText("src/adder.v", "a + b", "ä\nb"),
    Read("grep -n x src/adder.v | head"),
    Report(),
    Command.VERIFY,
    Command.SUBMIT,
]


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_actions_survive_arrays_and_json(action):
    space = PPAActionSpace()
    arrays = space.from_edit(action, CONTEXT)
    assert arrays in space
    assert space.to_edit(arrays, CONTEXT) == action
    assert ppa_action_from_json(json.loads(json.dumps(ppa_action_to_json(action)))) == action
    assert space.to_edit(space.from_json(space.to_json(arrays, CONTEXT), CONTEXT), CONTEXT) == action


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"op": "fly"},
        {"op": "declare_infeasible"},
        {"op": "set_knob"},
        {"op": "set_knob", "name": "ABC_AREA", "value": []},
        {"op": "set_knob", "name": "ABC_AREA", "value": "1", "extra": 1},
        {"op": "set_knob", "name": "PLACE_DENSITY", "value": float("nan")},
        {"op": "set_period", "period": "fast"},
        {"op": "set_period", "period": float("inf")},
        {"op": "set_period", "period": True},
        {"op": "set_max_fanout", "fanout": 2.5},
        {"op": "set_io_fraction", "fraction": 0.2, "direction": "up"},
        {"op": "edit_file", "path": "src/adder.v", "old": "x" * (MAX_TEXT + 1), "new": ""},
        {"op": "edit_file", "path": "src/adder.v", "old": "\ud800", "new": ""},
        {"op": "edit_file", "path": "src/adder.v", "old": "\0", "new": ""},
        {"op": "read_file", "command": "x" * 600},
    ],
)
def test_malformed_actions_name_the_fault(data):
    with pytest.raises(EditError):
        ppa_action_from_json(data)
    *_, info = make_env().step_any(data)
    assert info["edit_error"]


def test_numbers_and_switches_are_taken_as_text():
    assert ppa_action_from_json({"op": "set_knob", "name": "ABC_AREA", "value": True}) == SetKnob("ABC_AREA", "1")
    assert ppa_action_from_json({"op": "set_knob", "name": "ABC_AREA", "value": 1}) == SetKnob("ABC_AREA", "1")
    assert ppa_action_from_json({"op": "set_knob", "name": "PLACE_DENSITY", "value": 0.5}).value == "0.5"


@pytest.mark.parametrize(
    "change",
    [{"op": 99}, {"knob": 95}, {"file": 2}, {"clock": 2}, {"place": np.full(4, np.nan, np.float32)}, {"n_new": 99999}],
)
def test_actions_beyond_their_tables(change):
    space = PPAActionSpace()
    for op in ("set_knob", "set_period", "edit_file"):
        action = {**space.blank(), "op": OPERATIONS.index(op), **change}
        if op == "set_period" and set(change) & {"op", "clock", "place"}:
            with pytest.raises(EditError):
                space.to_edit(action, CONTEXT)
        if op == "set_knob" and set(change) & {"knob"}:
            with pytest.raises(EditError):
                space.to_edit(action, CONTEXT)
        if op == "edit_file" and set(change) & {"file", "n_new"}:
            with pytest.raises(EditError):
                space.to_edit(action, CONTEXT)
    with pytest.raises(EditError, match="malformed action"):
        space.to_edit({}, CONTEXT)


@settings(max_examples=100)
@given(st.sampled_from(sorted(knob_table())), st.floats(0, 1, width=32), st.integers(0, 15))
def test_places_always_give_a_value_of_the_knob(name, place, choice):
    knob = knob_table()[name]
    space = PPAActionSpace()
    action = {**space.blank(), "knob": list(knob_table()).index(name), "choice": choice}
    action["place"] = np.array([0.0, 0.0, max(place, 0.01), max(place, 0.01)], np.float32)
    if knob.type not in ("box", "pair"):
        action["place"][0] = place
    edit = space.to_edit(action, CONTEXT)
    if knob.type != "text":
        assert knob.parse(edit.value) is not None


# -- snapshots, pickling, traces ---------------------------------------------------------------------------------------


def script(env: PPAEnv) -> list:
    actions = [SetKnob("ABC_AREA", "1"), Command.VERIFY, SetPeriod(250.0), SetKnob("ABC_AREA", "7"), Command.VERIFY]
    return [env.step_edit(a) for a in actions]


def test_restoring_runs_nothing():
    flow = FormulaFlow()
    env = make_env(backend=flow)
    start = env.snapshot()
    script(env)
    calls, middle = flow.calls, json.loads(json.dumps(env.snapshot()))
    before = env.observe()
    env.step_edit(SetKnob("CORE_UTILIZATION", "70"))
    assert data_equivalence(env.restore(middle), before, exact=True)
    assert data_equivalence(env.restore(start)[0], make_env().observe()[0], exact=True)
    other = make_env(backend=FormulaFlow())
    assert data_equivalence(other.restore(middle), before, exact=True)
    assert flow.calls == calls
    env.restore(start)
    assert env.budget_left == 16
    env.restore(middle)
    env.restore(start, keep_charges=True)
    assert env.budget_left == 11


def test_bad_snapshots_are_refused():
    env = make_env()
    snapshot = env.snapshot()
    with pytest.raises(TaskError):
        env.restore({**snapshot, "schema_version": 99})
    env.reset()
    layout = {**snapshot["layout"], "changed": {"config/config.mk": "include x\n"}}
    with pytest.raises(TaskError, match="cannot be read"):
        env.restore({**snapshot, "layout": layout})
    env.reset()
    with pytest.raises(TaskError):
        env.restore({**snapshot, "layout": {**snapshot["layout"], "changed": {"../x": ""}}})


def test_pickled_environments_go_on_alike():
    env = make_env()
    script(env)
    twin = pickle.loads(pickle.dumps(env))
    assert data_equivalence(env.observe(), twin.observe(), exact=True)
    assert data_equivalence(env.step_edit(Command.VERIFY), twin.step_edit(Command.VERIFY), exact=True)


def test_traces_replay():
    env = make_env()
    first = script(env)
    trace = env.trace()
    assert json.loads(json.dumps(trace)) == trace
    again = env.replay([s["action"] for s in trace["steps"]])
    assert data_equivalence(again, first, exact=True)


def test_info_is_plain():
    env = make_env()
    keys = set(env.observe()[1])
    for result in script(env):
        info = result[4]
        assert set(info) == keys
        json.dumps(info)
        assert all(isinstance(v, (str, int, float, bool, dict)) for v in info.values())


def test_report_space_round_trip():
    observation = make_env().observe()[0]
    found = ReportSpace.decode(observation)
    for key, values in (("report", TASK.initial), ("initial", TASK.initial), ("target", TASK.targets)):
        assert found[key] == pytest.approx(dict(values))
    assert set(found["target"]) == set(METRICS)


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_pictures():
    env = make_env(render_mode="rgb_array", render_size=[320, 200])
    empty = env.render()
    assert empty.shape == (200, 320, 3)
    assert empty.dtype == np.uint8
    env.step_edit(SetKnob("ASAP7_USE_VT", "LVT"))
    env.step_edit(Command.VERIFY)
    full = env.render()
    assert not np.array_equal(full, empty)
    assert np.array_equal(full, env.picture())
    assert (full == (202, 0, 32)).all(axis=2).any()  # the worst cell is red
    assert make_env(render_size=[1024, 1024]).picture().shape == (1024, 1024, 3)
    svg = render_svg(TASK.initial, TASK.targets, env.runs, None)
    assert svg.startswith("<svg")
    assert "no completed run here" in svg


def test_summary():
    env = make_env(render_mode="ansi")
    assert "Multi-L1/q1: 0 runs; budget left: 16 of 16" in env.render()
    assert "score 0.667 (left alone: 0.667)" in env.render()


def test_a_task_that_cannot_be_read_is_no_task():
    bad = make_design(config="include x\n")
    task = dataclasses.replace(TASK, design=bad)
    with pytest.raises(TaskError, match="not an assignment"):
        PPAEnv(tasks=[task]).reset()
