"""Verdicts on PPA attempts: each check fails alone for its own reason; scores; no numbers of other engines."""

from __future__ import annotations

import dataclasses
import json

import pytest
from ppa_cases import CONFIG, SDC, FormulaFlow, make_design, make_task

from edagym.envs.ppa.training import apply_settings
from edagym.errors import ToolError
from edagym.verifiers.ppa.report import PPAReport
from edagym.verifiers.ppa.verifier import NEVER_RUN, SAME_SOURCES, FunctionCheck, verify
from edagym.verifiers.verdict import Verdict

TASK = make_task()
SOLVED = apply_settings(TASK.design, TASK.reference)
GOOD = FormulaFlow().run(SOLVED).report
START = FormulaFlow().run(TASK.design).report


def failed(verdict: Verdict, criterion: str = "strict") -> list[str]:
    return [c.id for c in verdict.failed(criterion)]


def test_the_reference_passes():
    verdict = verify(TASK, SOLVED, GOOD, SAME_SOURCES)
    assert verdict.paper_success
    assert verdict.strict_success
    assert failed(verdict) == []
    assert verdict.metrics["nis"] == 1.0
    assert verdict.metrics["nis_nothing"] == pytest.approx(2 / 3)
    assert [c.id for c in verdict.checks] == [
        "flow",
        "target:effective_period",
        "target:total_power",
        "target:die_area",
        "function",
        "locked",
        "files",
        "strict_function",
        "strict_knobs",
        "strict_clocks",
        "strict_io_delays",
        "strict_exceptions",
    ]
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_the_start_fails_by_its_target():
    verdict = verify(TASK, TASK.design, START, SAME_SOURCES)
    assert failed(verdict, "paper") == ["target:effective_period"]
    check = verdict.failed()[0]
    assert (check.required, check.measured, check.unit) == (295.0, START.effective_period, "ps")


def test_never_run():
    verdict = verify(TASK, SOLVED, None, None)
    assert not verdict.paper_success
    assert verdict.failed()[0].message == NEVER_RUN
    assert verdict.metrics["nis"] == verdict.metrics["nis_nothing"]
    assert verdict.metrics["completed"] == 0.0


def test_a_failed_run_keeps_the_last_report():
    better = dataclasses.replace(START, effective_period=308.5)
    verdict = verify(TASK, SOLVED, None, None, failure="the core is too small", last=better)
    assert not verdict.paper_success
    assert "the core is too small" in verdict.failed()[0].message
    assert verdict.metrics["nis"] == pytest.approx((0.5 + 1 + 1) / 3)
    # A failed run is no success, not even when the one before it was.
    assert not verify(TASK, SOLVED, None, None, failure="x", last=GOOD).paper_success


@pytest.mark.parametrize(
    ("function", "paper", "strict"),
    [
        (FunctionCheck(False, False, "outputs differ"), ["function"], ["function", "strict_function"]),
        (FunctionCheck(True, False, "a directed vector differs"), [], ["strict_function"]),
    ],
)
def test_function(function, paper, strict):
    verdict = verify(TASK, SOLVED, GOOD, function)
    assert failed(verdict, "paper") == paper
    assert failed(verdict) == strict
    assert verdict.metrics["nis_flagged"] == float(bool(paper))
    assert function.message in [c.message for c in verdict.failed()]
    assert FunctionCheck.from_dict(function.to_dict()) == function


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG.replace("= adder", "= other"), "DESIGN_NAME"),
        (CONFIG.replace("asap7", "nangate45", 1), "PLATFORM"),
        (CONFIG + "export VERILOG_FILES = x.v\n", "VERILOG_FILES"),
        (CONFIG + "export DESIGN_NICKNAME = other\n", "DESIGN_NICKNAME"),
        (CONFIG + "export PRE_SYNTH_TCL = x.tcl\n", "PRE_SYNTH_TCL"),
        (CONFIG + "include x\n", "line 10"),
    ],
)
def test_locked_variables(config, message):
    verdict = verify(TASK, make_design(config), GOOD, SAME_SOURCES)
    assert failed(verdict, "paper") == ["locked"]
    assert message in verdict.failed()[0].message


def test_knobs_that_a_task_locks():
    verdict = verify(TASK, make_design(CONFIG + "export CORE_MARGIN = 0\n"), GOOD, SAME_SOURCES)
    assert failed(verdict, "paper") == []
    assert failed(verdict) == ["strict_knobs"]
    assert "CORE_MARGIN" in verdict.failed()[0].message
    # Spelling the default out is no change.
    assert verify(TASK, make_design(CONFIG + "export CORE_MARGIN = 1\n"), GOOD, SAME_SOURCES).strict_success


@pytest.mark.parametrize(
    ("sdc", "check", "message"),
    [
        (SDC.replace("clk_period 300", "clk_period 149"), "strict_clocks", "150 to 600 ps, found 149"),
        (SDC.replace("clk_period 300", "clk_period 601"), "strict_clocks", "found 601"),
        (SDC + "create_clock -name d -period 300\n", "strict_clocks", "clocks were added"),
        (SDC.replace("$clk_period $clk_port", "$clk_period"), "strict_clocks", "clocks were added"),
        (SDC.replace("clk_io_pct 0.2", "clk_io_pct 0.1"), "strict_io_delays", "found 0.1"),
        (SDC.replace("clk_io_pct 0.2", "clk_io_pct 0.6"), "strict_io_delays", "found 0.6"),
        (SDC[: SDC.index("set_output_delay")], "strict_io_delays", "removed"),
        (SDC.replace("$non_clock_inputs\nset_out", "[get_ports a]\nset_out"), "strict_io_delays", "moved"),
        (SDC + "set_input_delay 0 -clock core_clock [get_ports a]\n", "strict_io_delays", "added"),
        (SDC + "set_false_path -from [all_inputs]\n", "strict_exceptions", "false paths"),
        (SDC + "set_multicycle_path 2 -to [all_outputs]\n", "strict_exceptions", "timing statements"),
        (SDC + "set_case_analysis 0 [get_ports a]\n", "strict_exceptions", "timing statements"),
    ],
)
def test_constraint_guards(sdc, check, message):
    verdict = verify(TASK, make_design(sdc=sdc), GOOD, SAME_SOURCES)
    assert failed(verdict, "paper") == []  # the paper lets constraints be edited freely
    assert failed(verdict) == [check]
    assert message in verdict.failed()[0].message


def test_unreadable_constraints_fail_all_guards():
    verdict = verify(TASK, make_design(sdc=SDC + "exec rm x\n"), GOOD, SAME_SOURCES)
    assert failed(verdict) == ["strict_clocks", "strict_io_delays", "strict_exceptions"]


def test_moves_within_bounds_pass():
    sdc = SDC.replace("clk_period 300", "clk_period 600").replace("clk_io_pct 0.2", "clk_io_pct 0.5")
    assert verify(TASK, make_design(sdc=sdc + "set_max_fanout 8 [current_design]\n"), GOOD, SAME_SOURCES).strict_success


def test_exceptions_of_the_task_itself_stay():
    sdc = SDC + "set_false_path -from [all_inputs]\nset_load 2 [all_outputs]\n"
    task = make_task(design=make_design(sdc=sdc))
    assert verify(task, task.design, GOOD, SAME_SOURCES).strict_success
    assert failed(verify(task, make_design(), GOOD, SAME_SOURCES)) == ["strict_exceptions"]


def test_files_are_the_same():
    more = {**TASK.design.files, "src/extra.v": "module extra; endmodule\n"}
    verdict = verify(TASK, type(TASK.design)(more), GOOD, SAME_SOURCES)
    assert failed(verdict, "paper") == ["files"]


@pytest.mark.parametrize("change", [{"backend": "orfs"}, {"engine": "formula 2"}])
def test_numbers_of_other_flows_are_refused(change):
    other: PPAReport = dataclasses.replace(GOOD, **change)
    with pytest.raises(ToolError, match="formula|backends"):
        verify(TASK, SOLVED, other, SAME_SOURCES)
    with pytest.raises(ToolError):
        verify(TASK, SOLVED, None, None, last=other)
    verify(dataclasses.replace(TASK, engine=""), SOLVED, GOOD, SAME_SOURCES)


def test_a_report_needs_a_functional_check():
    with pytest.raises(ValueError, match="functional check"):
        verify(TASK, SOLVED, GOOD, None)
