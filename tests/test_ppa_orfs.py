"""The OpenROAD-flow-scripts adapter, with a stand-in for `make` that succeeds, fails, crashes and hangs as told."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import orfs_stand_in as stand_in
import pytest
from ppa_cases import CONFIG, SDC, SOURCE, make_design

from edagym.envs.ppa.flow import orfs
from edagym.envs.ppa.flow.orfs import OrfsFlow, check_design, design_failure
from edagym.envs.ppa.flow.orfs_reports import clock_periods, parse_finish, parse_synth, read_metrics
from edagym.envs.ppa.runner import make_backend
from edagym.errors import FlowError, ToolError, ToolTimeout
from edagym.task_assets.ppa.design import DesignFiles


@pytest.fixture
def flow(tmp_path, monkeypatch):
    """Return a function that plans what `make` does and gives a flow."""
    plan = tmp_path / "plan.json"
    stand_in.install(tmp_path / "bin", tmp_path / "checkout", plan)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("OPENROAD_FLOW_DIR", str(tmp_path / "checkout"))
    monkeypatch.setenv("EDAGYM_ORFS_LOGS", str(tmp_path / "kept"))

    def planned(timeout_s: float = 60.0, **what) -> OrfsFlow:
        plan.write_text(json.dumps(what))
        return OrfsFlow(timeout_s=timeout_s)

    return planned


# -- success -----------------------------------------------------------------------------------------------------------


def test_a_run_gives_the_reports_numbers(flow, tmp_path):
    backend = flow()
    result = backend.run(make_design())
    report = result.report
    assert (report.backend, report.engine) == ("orfs", "OpenROAD-flow-scripts unknown")
    assert report.effective_period == 312.35  # as printed: the period less worst slack
    assert report.total_power == pytest.approx(sum(stand_in.POWER), abs=0)
    assert report.die_area == 110.25
    expected = {
        "finish__timing__setup__ws": -12.345,
        "finish__timing__setup__wns": -12.35,
        "finish__timing__setup__tns": -40.5,
        "synth__design__instance__area": 12.345,
        "synth__design__instance__count": 25,
        "floorplan__design__core__area": 90.25,
        "detailedroute__route__wirelength": 512,
    }
    assert {k: report.metrics[k] for k in expected} == pytest.approx(expected, abs=0.011)
    assert "finish__timing__drv__max_fanout_limit" not in report.metrics  # the timing engine's infinity
    assert "run__flow__platform__time_units" not in report.metrics
    assert report.warnings == ()
    # The path with the least slack of the section on setup: not the first one, and none of the hold section.
    assert result.critical_path == (
        "_1_/CLK (DFFHQNx1_ASAP7_75t_R) rise delay 0.00 arrival 20.00",
        "_1_/QN (DFFHQNx1_ASAP7_75t_R) fall delay 30.00 arrival 50.00",
        "_2_/Y (INVx1_ASAP7_75t_R) rise delay 15.50 arrival 65.50",
        "sum[4] (out) rise delay 0.00 arrival 65.50",
        "slack -12.35",
    )
    assert result.placement is None
    kept = backend.logs
    assert kept.parent == tmp_path / "kept"
    assert kept.joinpath("design/src/adder.v").read_text() == SOURCE
    assert "stage 6_report" in kept.joinpath("make.log").read_text()
    assert len(list(kept.rglob("6_report.json"))) == 1
    again = backend.run(make_design())
    assert again == result
    assert backend.logs != kept
    assert kept.joinpath("make.log").is_file()


def test_make_sees_the_design_and_nothing_else(flow, tmp_path, monkeypatch):
    monkeypatch.setenv("CORE_UTILIZATION", "99")
    monkeypatch.setenv("MAKEFLAGS", "-n")
    monkeypatch.setenv("YOSYS_EXE", "/opt/yosys")
    files = {**make_design().files, "src/parts/defs.vh": "// none\n", "src/parts/more.sv": "// none\n"}
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "checkout").rglob("*")}
    flow(record=str(tmp_path / "seen.json")).run(DesignFiles(files))
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["arguments"][:2] == ["-C", str(tmp_path / "checkout/flow")]
    given = dict(a.split("=", 1) for a in seen["arguments"][2:])
    work = given["WORK_HOME"]
    assert given == {
        "DESIGN_CONFIG": f"{work}/design/config/config.mk",
        "WORK_HOME": work,
        "FLOW_HOME": str(tmp_path / "checkout/flow"),
        "FLOW_VARIANT": "base",
        "VERILOG_FILES": f"{work}/design/src/adder.v {work}/design/src/parts/more.sv",
        "SDC_FILE": f"{work}/design/config/constraint.sdc",
        "VERILOG_INCLUDE_DIRS": f"{work}/design/src/parts",
    }
    assert not {"CORE_UTILIZATION", "MAKEFLAGS"} & set(seen["environment"])
    assert seen["environment"]["YOSYS_EXE"] == "/opt/yosys"
    assert not Path(work).exists()
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "checkout").rglob("*")} == before


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_real_make_lets_the_command_line_win(tmp_path):
    checkout = tmp_path / "checkout"
    (checkout / "flow").mkdir(parents=True)
    (checkout / "flow/Makefile").write_text(
        "include $(DESIGN_CONFIG)\n"
        "export WORK_HOME\n"
        "all:\n\t@echo sources $(VERILOG_FILES)\n\t@echo sdc $$SDC_FILE density $$PLACE_DENSITY\n\t@exit 3\n"
    )
    backend = OrfsFlow(checkout, keep=tmp_path / "kept", timeout_s=60)
    with pytest.raises(ToolError, match="ended with code 2 in stage all"):
        backend.run(make_design())
    log = backend.logs.joinpath("make.log").read_text()
    assert "/design/src/adder.v\n" in log
    assert "/design/config/constraint.sdc density 0.60\n" in log


def test_several_clocks(flow):
    clocks = {"rx": 300.44, "tx": 258.03, "bus": 497.44}
    report = flow(files={"reports/6_finish.rpt": stand_in.finish_report(clocks)}).run(make_design()).report
    assert report.effective_period == 497.44
    assert report.metrics["finish__timing__period_min__clock:tx"] == 258.03
    (note,) = report.warnings
    assert "497.44 ps of bus" in note
    assert "the public harness takes the first, 300.44 ps of rx" in note


def test_what_the_router_left_is_said(flow):
    log = json.dumps({"detailedroute__route__drc_errors": 4})
    report = flow(files={"logs/5_2_route.json": log}).run(make_design()).report
    assert report.warnings == ("detailed routing left 4 design rule violations",)


def test_without_constrained_paths_there_is_no_period(flow):
    for clocks in ({}, {"core_clock": 0.0}):
        backend = flow(files={"reports/6_finish.rpt": stand_in.finish_report(clocks)})
        with pytest.raises(FlowError, match="no timing path is constrained"):
            backend.run(make_design())


# -- the design's fault ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "message", "field", "reason"),
    [
        ("3_3_place_gp", "[ERROR FLW-0024] Place density exceeds 1.0.", "place", "density that placement would need"),
        ("3_3_place_gp", "[ERROR GPL-0301] Utilization 104.2 % exceeds 100%.", "place", "utilisation is over 100 %"),
        ("3_3_place_gp", "[ERROR GPL-0302] Use a higher -density.", "place", "target density"),
        ("3_3_place_gp", "[ERROR GPL-0307] RePlAce divergence detected.", "place", "diverged"),
        ("3_3_place_gp", "[ERROR PPL-0024] Number of IO pins (99) exceeds maximum (80).", "place", "pins don't fit"),
        ("3_5_place_dp", "[ERROR DPL-0036] Detailed placement failed.", "place", "detailed placement failed"),
        ("2_1_floorplan", "[ERROR IFP-0001] core too small.", "floorplan", "floorplan is impossible"),
        ("2_1_floorplan", "[ERROR PDN-0185] Insufficient width.", "floorplan", "power grid"),
        ("5_2_route", "[ERROR GRT-0118] Routing congestion too high.", "route", "congested"),
        ("2_1_floorplan", "Error: 1_synth.sdc, 7 no such port", "floorplan", "constraints are refused"),
        ("1_synth", "adder.v:7: ERROR: syntax error, unexpected TOK_END", "synthesis", "syntax error, unexpected"),
        ("1_synth", "ERROR: Module `\\part' is not part of the design.", "synthesis", "not part of the design"),
        ("1_synth", "ERROR: Can't open include file `defs.vh'!", "synthesis", "defs.vh"),
    ],
)
def test_failures_of_the_design(flow, stage, message, field, reason):
    say = f"[INFO X-0001] at work\n{message}\nError: script.tcl, 12 failed"
    with pytest.raises(FlowError, match=stage) as caught:
        flow(stop=stage, say=say).run(make_design())
    assert reason in str(caught.value)
    assert message.split("] ")[-1].removesuffix("!") in str(caught.value)
    assert caught.value.field == field


def test_what_an_earlier_stage_said_is_no_reason(flow):
    say = "[ERROR GPL-0301] Utilization 104 % exceeds 100%."
    log = f"Running a.tcl, stage 3_3_place_gp\n{say}\nRunning b.tcl, stage 4_1_cts\n[ERROR CTS-0001] odd\n"
    assert design_failure(log) is None
    assert "utilisation" in design_failure(log.partition("Running b")[0])
    assert "utilisation" in design_failure(say)


# -- the tool's fault --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("4_1_cts", "Signal 11 received\nStack trace:"),
        ("3_3_place_gp", "[ERROR GPL-0301] Utilization 104 % exceeds 100%.\nSegmentation fault (core dumped)"),
        ("3_3_place_gp", "/bin/sh: line 1: 4711 Killed    openroad"),
        ("4_1_cts", "[ERROR ORD-0001] something inside"),
        ("1_synth", "ERROR: ABC: execution of command failed: return code 134."),
        ("1_synth", "ERROR: Can't open input file `NLDM/merged.lib' for reading: No such file or directory"),
        ("1_synth", "/bin/sh: 1: yosys: not found"),
    ],
)
def test_crashes(flow, stage, message):
    backend = flow(stop=stage, say=message, code=2)
    with pytest.raises(ToolError) as caught:
        backend.run(make_design())
    assert type(caught.value) is ToolError
    assert caught.value.field == stage
    text = str(caught.value)
    assert message.splitlines()[-1] in text
    assert str(backend.logs) in text
    assert len(text.splitlines()) <= orfs.TAIL_LINES + 1
    # What the earlier stages wrote is kept.
    assert (len(list(backend.logs.rglob("*.json"))) > 0) == (stage != "1_synth")


def alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_a_hanging_run_is_killed_with_its_children(flow, tmp_path):
    pids = tmp_path / "pids"
    for limit in (2.0, 10.0, 60.0):  # on a busy machine the stand-in may need long to come to where it hangs
        backend = flow(timeout_s=limit, stop="4_1_cts", say="working", hang=str(pids))
        with pytest.raises(ToolTimeout) as caught:
            backend.run(make_design())
        if pids.exists():
            break
    assert "in stage 4_1_cts" in str(caught.value)
    assert (caught.value.field, caught.value.value) == ("4_1_cts", limit)
    for pid in map(int, pids.read_text().split()):
        for _ in range(200):  # the kernel may need a moment
            if not alive(pid):
                break
            time.sleep(0.05)
        assert not alive(pid)
    assert len(list(backend.logs.rglob("3_3_place_gp.json"))) == 1


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("logs/6_report.json", None, "left 0 files"),
        ("reports/6_finish.rpt", None, "left 0 files"),
        ("logs/6_report.json", "{}", "finish__power__total"),
        ("logs/6_report.json", '{\n "finish__power__total": 0.1,\n "finish__des', "6_report.json: not JSON"),
        ("logs/4_1_cts.json", "", "4_1_cts.json: not JSON"),
        ("logs/4_1_cts.json", "[1]", "not a JSON object"),
        ("logs/4_1_cts.json", '{"cts__design__io": [1]}', "is no number"),
        ("reports/6_finish.rpt", "", "6_finish.rpt: a section is missing"),
        ("reports/6_finish.rpt", "\x00\xff garbage", "a section is missing"),
        ("reports/synth_stat.txt", "Chip area", "synth_stat.txt: no chip area"),
        ("logs/2_1_floorplan.json", '{"run__flow__platform__time_units": "1ns"}', "times are not in ps"),
    ],
)
def test_partial_output(flow, file, text, message):
    with pytest.raises(ToolError, match=message) as caught:
        flow(files={file: text}).run(make_design())
    assert Path(file).name in str(caught.value) or message == "times are not in ps"


@pytest.mark.parametrize("key", ["finish__power__total", "finish__timing__setup__ws", "finish__design__die__area"])
def test_logs_and_report_of_different_runs(flow, key):
    log = stand_in.stage_metrics("6_report")
    for value in (-1.0, 0.5, math.nan):
        if (key, math.isnan(value)) == ("finish__timing__setup__ws", True) or (key, value) == (
            "finish__design__die__area",
            0.5,
        ):
            continue  # not stated, or nothing to compare it with
        with pytest.raises(ToolError, match=key):
            flow(files={"logs/6_report.json": json.dumps({**log, key: value})}).run(make_design())


def test_what_is_missing_is_named(tmp_path, monkeypatch, flow):
    monkeypatch.delenv("OPENROAD_FLOW_DIR")
    backend = make_backend("orfs")
    assert backend.name == "orfs"
    for use in (lambda: backend.engine, lambda: backend.run(make_design())):
        with pytest.raises(ToolError, match="set OPENROAD_FLOW_DIR to a checkout"):
            use()
    monkeypatch.setenv("OPENROAD_FLOW_DIR", str(tmp_path))
    with pytest.raises(ToolError, match="a folder with flow/Makefile"):
        backend.run(make_design())
    monkeypatch.setenv("OPENROAD_FLOW_DIR", str(tmp_path / "checkout"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(ToolError, match="make is not installed"):
        backend.run(make_design())
    for text in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv("EDAGYM_ORFS_TIMEOUT", text)
        with pytest.raises(ToolError, match="not a time limit"):
            OrfsFlow()
    monkeypatch.setenv("EDAGYM_ORFS_TIMEOUT", "12.5")
    assert OrfsFlow().timeout_s == 12.5
    monkeypatch.delenv("EDAGYM_ORFS_TIMEOUT")
    assert OrfsFlow().timeout_s == 1800


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_engine_is_the_checkouts_version(flow, tmp_path):
    checkout = tmp_path / "checkout"

    def git(*words: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(checkout), *identity, *words], check=True, capture_output=True)

    # A folder inside another repository is no checkout of its own.
    subprocess.run(["git", "init", str(tmp_path)], check=True, capture_output=True)
    assert flow().engine == "OpenROAD-flow-scripts unknown"
    git("init")
    git("add", ".")
    git("commit", "-m", "x")
    git("tag", "v3.0")
    assert flow().engine == "OpenROAD-flow-scripts v3.0"
    (checkout / "flow/Makefile").write_text("# changed\n")
    assert flow().engine == "OpenROAD-flow-scripts v3.0-dirty"


# -- files that reach too far ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "sdc", "source", "error"),
    [
        ("export CORE_MARGIN = $(shell touch pwned)\n", "", "", FlowError),
        ("export NUM_CORES = 1; touch pwned\n", "", "", FlowError),
        ("export SYNTH_ARGS = [exec touch pwned]\n", "", "", FlowError),
        ("export SYNTH_ARGS = -run begin:check\n", "", "", FlowError),
        ("export ROUTE_EFFORT = 1; touch pwned\n", "", "", FlowError),
        ("export DETAILED_ROUTE_ARGS = -output_drc x\n", "", "", FlowError),
        ("export OPENROAD_ARGS = -exit x.tcl\n", "", "", ToolError),
        ("export YOSYS_FLAGS = -c x.tcl\n", "", "", ToolError),
        ("all:\n\ttouch pwned\n", "", "", FlowError),
        ("include /etc/passwd\n", "", "", FlowError),
        ("", "exec touch pwned\n", "", FlowError),
        ("", "set x [exec touch pwned]\n", "", FlowError),
        ("", "", '`include "/etc/passwd"\n', FlowError),
        ("", "", 'module x; initial $system("touch pwned"); endmodule\n', FlowError),
        ("export PRE_CTS_TCL = $(shell touch pwned)\n", "", "", ToolError),
        ("export VERILOG_DEFINES = $(eval X)\n", "", "", ToolError),
        ("export VERILOG_DEFINES = ${shell touch pwned}\n", "", "", ToolError),
        ("export VERILOG_DEFINES = $(sort $(shell touch pwned))\n", "", "", ToolError),
        ("export VERILOG_DEFINES = $($(X))\n", "", "", ToolError),
        ("export VERILOG_DEFINES = $X\n", "", "", ToolError),
        ("export YOSYS_EXE = /bin/true\n", "", "", ToolError),
        ("SHELL = /bin/true\n", "", "", ToolError),
        ("export DESIGN_NICKNAME = a;touch pwned\n", "", "", ToolError),
        ("export PLATFORM = ../../elsewhere\n", "", "", ToolError),
    ],
)
def test_nothing_but_the_design_runs(flow, tmp_path, config, sdc, source, error):
    backend = flow(record=str(tmp_path / "seen.json"))
    with pytest.raises(error) as caught:
        backend.run(make_design(CONFIG + config, SDC + sdc, SOURCE + source))
    assert type(caught.value) is error
    assert not (tmp_path / "seen.json").exists()


def test_what_configurations_say_otherwise_is_accepted():
    more = (
        "export VERILOG_INCLUDE_DIRS = $(addprefix ./, $(wildcard ./designs/src/$(DESIGN_NAME)/*.h))\n"
        "export DIE_AREA = 0 0 30.5 30.5\n"
        "export ADDITIONAL_LEFS = ${PLATFORM_DIR}/lef/a.lef\n"
        "export UNKNOWN_SWITCH = 1\n"
    )
    config = check_design(make_design(CONFIG + more))
    assert config.design_name == "adder"
    assert config.warnings
    with pytest.raises(ToolError, match="plain file names"):
        check_design(DesignFiles({**make_design().files, "src/a;b.v": ""}))


# -- parsers -----------------------------------------------------------------------------------------------------------


def test_finish_report_cut_anywhere_is_refused_or_whole():
    text = stand_in.finish_report()
    whole = parse_finish(text)
    assert whole.periods == {"core_clock": 312.35}
    assert (whole.tns, whole.wns, whole.worst_slack) == (-40.5, -12.35, -12.35)
    assert whole.power["Total"] == (6.5e-05, 3.25e-05, 2.5e-08, 9.75e-05)
    assert whole.power["Combinational"] == (3.25e-05, 1.62e-05, 1.25e-08, 4.88e-05)
    refused = []
    for end in range(len(text)):
        try:
            cut = parse_finish(text[:end])
        except ToolError as e:
            refused.append(str(e))
        else:
            assert cut == whole
    assert all("6_finish.rpt" in message for message in refused)
    # Only the line of percentages behind the table can be missing.
    assert len(refused) >= len(text) - len(text.splitlines()[-1]) - 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("wns max -12.35", "wns max -12..35", "report_wns"),
        ("tns max -40.50", "tns min -40.50", "report_tns"),
        ("worst slack max", "worst slew max", "report_worst_slack"),
        ("period_min = 312.35", "period_min = x", "report_clock_min_period"),
        ("period_min = 312.35", "period_max = 312.35", "report_clock_min_period"),
        ("6.50e-05   3.25e-05", "6.50e-05   nan", "power table"),
        ("6.50e-05   3.25e-05", "6.50e-05   inf", "not a power"),
    ],
)
def test_garbled_finish_reports(old, new, message):
    text = stand_in.finish_report()
    assert old in text
    with pytest.raises(ToolError, match=message):
        parse_finish(text.replace(old, new))


def test_met_and_unconstrained_reports():
    met = parse_finish(stand_in.finish_report(slack=20.0, tns=0.0))
    assert (met.effective_period, met.wns, met.worst_slack) == (280.0, 0.0, 20.0)
    assert met.critical_path[-1] == "slack 20.00"
    none = parse_finish(stand_in.finish_report({}).replace("worst slack max -12.35", "worst slack max INF"))
    assert math.isnan(none.effective_period)
    assert math.isnan(none.first_period)
    assert none.worst_slack == math.inf
    assert clock_periods("a period_min = inf fmax = 0.00\nb period_min = 5.00 fmax = 1\n") == {"b": 5.0}


def test_metrics_that_were_not_measured_are_left_out(tmp_path):
    (tmp_path / "1_synth.json").write_text('{"a": 1, "b": 2, "b": 3, "unit": "1ps", "c": 7, "d": 7}')
    (tmp_path / "2_floorplan.json").write_text(
        '{"c": nan, "d": null, "e": -inf, "f": NaN, "g": Infinity, "h": -nan(ind), "i": 1e+39, "j": -2,\n"k": inf\n}'
    )
    numbers, texts = read_metrics(tmp_path)
    assert numbers == {"a": 1.0, "b": 3.0, "j": -2.0}
    assert texts == {"unit": "1ps"}
    (tmp_path / "3_place.json").write_text('{"a": true}')
    with pytest.raises(ToolError, match="3_place.json"):
        read_metrics(tmp_path)
    assert read_metrics(tmp_path / "nowhere") == ({}, {})


def test_reports_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(ToolError, match="cannot be read"):
        orfs.read_text(tmp_path / "none.rpt")
    big = tmp_path / "big.rpt"
    big.write_text("0123456789")
    monkeypatch.setattr("edagym.envs.ppa.flow.orfs_reports.MAX_REPORT_BYTES", 9)
    with pytest.raises(ToolError, match="too big"):
        orfs.read_text(big)


def test_synthesis_reports():
    found = parse_synth(stand_in.SYNTH_STAT)
    assert (found.top, found.area, found.cells, found.sequential_area) == ("adder", 12.345, 25, 2.345)
    hierarchical = (
        "=== part ===\n  3 1.5 cells\n  Chip area for module '\\part': 1.500000\n"
        "=== design hierarchy ===\n  Number of cells: 40\n  Chip area for top module '\\top': 33.25\n"
        "    of which used for sequential elements: 0.000000 (0.00%)\n"
    )
    found = parse_synth(hierarchical)
    assert (found.top, found.area, found.cells, found.sequential_area) == ("top", 33.25, 40, 0.0)
    for old, new, message in (
        ("25   12.345 cells", "", "no number of cells"),
        (": 12.345000", ": 12.3x", "not a number"),
        (": 12.345000", ": -1.0", "not an area"),
    ):
        with pytest.raises(ToolError, match=message):
            parse_synth(stand_in.SYNTH_STAT.replace(old, new))


def test_importing_the_adapter_needs_no_engine():
    code = "import sys; import edagym.envs.ppa.flow.orfs; sys.exit('pyosys' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
