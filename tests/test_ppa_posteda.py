"""Import of the public PPA tasks, from folders in the public form that these tests write; the real ones, if there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ppa_cases import CONFIG, ENGINE, SDC, SOURCE, FormulaFlow, same_function

from edagym.cli import main
from edagym.envs.ppa.env import PPAEnv
from edagym.envs.ppa.function import guess_interface
from edagym.envs.ppa.posteda import import_ppa, rebase, reported_values
from edagym.errors import TaskError
from edagym.spaces.actions import Command
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.suite import load_folder

FINISH = """\
==========================================================================
finish report_clock_min_period
--------------------------------------------------------------------------
fast_clock period_min = 300.37 fmax = 3329.23
slow_clock period_min = 497.44 fmax = 2010.29
"""
REPORT = {"finish__power__total": 0.0021, "finish__design__die__area": 98.5, "finish__timing__setup__ws": -3.5}


def write_task(folder: Path, info: dict, source: str = SOURCE) -> Path:
    """Write a task in the public benchmark's form."""
    files = {
        "config/config.mk": CONFIG,
        "config/constraint.sdc": SDC,
        "src/adder.v": source,
        "info.json": json.dumps(info),
        "prompt.txt": "The design has completed the OpenROAD flow, but area is not met.\n",
        "logs/6_report.json": json.dumps(REPORT),
        "logs/1_synth.json": json.dumps({"floorplan__flow__errors__count": 0, "some__text": "x"}),
        "reports/6_finish.rpt": FINISH,
        "reports/synth_stat.txt": "   Chip area for module: 40.0\n",
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def benchmark(tmp_path):
    """A copy of the benchmark with three tasks."""
    root = tmp_path / "bench"
    area = {"knob": "CORE_UTILIZATION", "target_area": 80, "initial_area": 98.5, "num_iterations": 1}
    write_task(root / "ppa_bench/ppa_mono/area/L1/q2", area)
    perf = {"knob": ["A", "B"], "value": ["1", 2], "target_effective_period": 300.0, "initial_effective_period": 322.0}
    write_task(root / "ppa_bench/ppa_mono/perf/L3/q10", perf)
    multi = {
        "target_effective_period": 301,
        "initial_effective_period": 322.0,
        "target_power": 0.0025,
        "initial_power": 0.0021,
        "num_iterations": 2,
    }
    write_task(root / "ppa_bench/ppa_multi/L2/q1", multi)
    return root


def test_tasks_keep_the_benchmark_numbers(benchmark):
    perf, area, multi = import_ppa(benchmark)
    assert [t.id for t in (perf, area, multi)] == [
        "posteda/Performance-L3/q10",
        "posteda/Area-L1/q2",
        "posteda/Multi-L2/q1",
    ]
    assert (area.suite, area.level, area.backend, area.engine, area.budget) == ("area", "L1", "orfs", "", 16)
    assert area.targets == {"die_area": 80.0}
    # What info.json leaves out comes from the reports; the period is the largest over the clocks.
    assert area.initial == {"effective_period": 497.44, "total_power": 0.0021, "die_area": 98.5}
    assert area.initial_metrics["finish__timing__setup__ws"] == -3.5
    assert multi.targets == {"effective_period": 301.0, "total_power": 0.0025}
    assert multi.to_improve == ("effective_period",)
    assert multi.to_keep == ("total_power",)
    assert perf.metadata["knobs"] == ["A", "B"]
    assert perf.metadata["values"] == ["1", "2"]
    assert "reports/6_finish.rpt" in perf.facts
    assert "CORE_UTILIZATION" not in json.dumps(area.view().facts)
    assert area.function == {"kind": "pipelined", "clock": "clk"}
    assert import_ppa(benchmark / "ppa_bench") == [perf, area, multi]
    assert import_ppa(benchmark / "ppa_bench/ppa_multi/L2/q1") == [multi]


def test_tasks_for_the_embedded_flow_are_re_based(benchmark):
    flow = FormulaFlow()
    perf, area, multi = import_ppa(benchmark, backend=flow)
    assert (area.backend, area.engine) == ("embedded", ENGINE)
    report = flow.run(area.design).report
    assert area.initial["die_area"] == report.die_area
    assert area.targets["die_area"] == pytest.approx(report.die_area * 80 / 98.5, rel=1e-5)
    assert area.metadata["public_targets"] == {"die_area": 80.0}
    assert multi.to_improve == ("effective_period",)
    assert perf.facts == {}  # numbers of another flow
    failing = rebase(perf, type("Failing", (), {"name": "embedded", "engine": "x", "run": _fail})())
    assert failing is None


def _fail(self, design):
    from edagym.errors import FlowError

    raise FlowError("no")


def test_imported_tasks_run(benchmark, tmp_path):
    for task in import_ppa(benchmark, backend=FormulaFlow()):
        task.save(tmp_path / "out" / task.id)
    env = PPAEnv(str(tmp_path / "out"), backend=FormulaFlow(), function_check=same_function, on_tool_error="raise")
    assert env.task_ids == tuple(load_folder(tmp_path / "out"))
    env.reset(options={"task": "posteda/Area-L1/q2"})
    assert "CORE_UTILIZATION" not in env.prompt
    env.step_any({"op": "set_knob", "name": "CORE_UTILIZATION", "value": "60"})
    _, reward, terminated, _, _ = env.step_edit(Command.VERIFY)
    assert (reward, terminated) == (1.0, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"info.json": "{"}, "not JSON"),
        ({"info.json": "[]"}, "not a JSON object"),
        ({"info.json": "{}"}, "no targets"),
        ({"info.json": '{"target_area": 80}'}, "initial_area"),
        ({"info.json": '{"target_area": -80, "initial_area": 90}'}, "target_area"),
        ({"info.json": '{"target_area": "small", "initial_area": 90}'}, "target_area"),
        ({"logs/6_report.json": "{}"}, "no initial values"),
        ({"reports/6_finish.rpt": "nothing"}, "no initial values"),
        ({"config/config.mk": "include x\n"}, "not an assignment"),
        ({"config/constraint.sdc": "exec x\n"}, "not allowed"),
        ({"config/more.mk": ""}, "needs one"),
    ],
)
def test_malformed_folders_are_named(benchmark, change, message):
    folder = benchmark / "ppa_bench/ppa_mono/area/L1/q2"
    for path, text in change.items():
        (folder / path).write_text(text)
    with pytest.raises(TaskError, match=message):
        import_ppa(folder)


def test_no_tasks_there(tmp_path):
    with pytest.raises(TaskError, match="no PPA tasks"):
        import_ppa(tmp_path)


def test_links_are_not_followed(benchmark):
    folder = benchmark / "ppa_bench/ppa_mono/area/L1/q2"
    (folder / "src" / "more.v").symlink_to(folder / "info.json")
    with pytest.raises(TaskError, match="must not be a link"):
        import_ppa(folder)


@pytest.mark.parametrize(
    ("header", "sdc", "expected"),
    [
        ("(input clk, input rst_n, output q)", "clk", {"port": "rst_n", "active": "low"}),
        ("(input clk, rst, output q)", "clk", {"port": "rst", "active": "high"}),
        ("(clk, reset, q); input clk; input reset; output q", "clk", {"port": "reset", "active": "high"}),
        ("(input wire clk, input wire [3:0] first, output q)", "clk", None),
    ],
)
def test_interfaces_are_guessed(header, sdc, expected):
    constraints = parse_sdc(f"create_clock -name c -period 300 [get_ports {sdc}]\n")
    found = guess_interface("top", {"src/a.v": f"module top {header};\nendmodule\n"}, constraints)
    assert found["kind"] == "pipelined"
    assert found.get("reset") == expected


def test_interfaces_without_or_with_several_clocks():
    virtual = parse_sdc("create_clock -name v -period 300\n")
    assert guess_interface("top", {"a": "module top(input a); endmodule"}, virtual) == {"kind": "combinational"}
    with pytest.raises(TaskError, match="no source defines"):
        guess_interface("top", {"a": "module tops(input a); endmodule"}, virtual)
    two = parse_sdc("create_clock -period 1 [get_ports a]\ncreate_clock -period 1 [get_ports b]\n")
    with pytest.raises(TaskError, match="several clocks"):
        guess_interface("top", {"a": "module top(input a, b); endmodule"}, two)


def test_command_line(benchmark, tmp_path, capsys):
    assert main(["import-posteda", str(benchmark), "--out", str(tmp_path / "out"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in printed["ppa_tasks"]] == [
        "posteda/Performance-L3/q10",
        "posteda/Area-L1/q2",
        "posteda/Multi-L2/q1",
    ]
    assert len(load_folder(tmp_path / "out" / "ppa-orfs")) == 3
    assert main(["import-posteda", str(tmp_path / "none"), "--out", str(tmp_path / "x")]) == 2


@pytest.mark.real
def test_real_reports_give_the_published_values():
    root = Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev"
    facts = json.loads((root / "ppa_facts.json").read_text())
    assert len(facts) == 41
    for row in facts:
        values, _ = reported_values(root / "ppa_bench" / row["task"])
        assert values["total_power"] == pytest.approx(row["total_power_w"], rel=1e-9), row["task"]
        assert values["die_area"] == pytest.approx(row["die_area_um2"], rel=1e-9)
        # The facts have the first clock's period, as the public harness; the task states the largest.
        stated = row["info"].get("initial_effective_period", 0.0) if row["design"] == "ethmac" else 0.0
        assert values["effective_period"] == pytest.approx(max(row["effective_period_ps"], stated), rel=1e-9)
