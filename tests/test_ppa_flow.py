"""The embedded flow as a whole: its report, its pictures, determinism, and designs that cannot be implemented."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ppa_runs import design, report, run

from edagym.cli import main
from edagym.envs.ppa.flow.embedded import EmbeddedFlow, timing_constraints
from edagym.envs.ppa.flow.layout_def import def_text
from edagym.envs.ppa.flow.synth import SynthOptions, clear_memory, synthesise
from edagym.errors import FlowError
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.verifiers.ppa.report import PPAReport


def test_report_is_consistent():
    result = run("gcd", 310)
    made = result.report
    metrics = made.metrics
    assert made.backend == "embedded"
    assert made.engine == EmbeddedFlow().engine
    assert made.effective_period == pytest.approx(310 - metrics["finish__timing__setup__ws"], abs=2e-3)
    assert result.endpoint_slacks[0] == pytest.approx(metrics["finish__timing__setup__ws"], abs=1e-5)
    parts = [metrics[f"finish__power__{kind}__total"] for kind in ("internal", "switching", "leakage")]
    assert made.total_power == pytest.approx(sum(parts), rel=1e-9)
    assert made.die_area == pytest.approx(metrics["finish__design__die__area"])
    assert PPAReport.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert "slack" in result.critical_path[-1]
    assert made.warnings == ()


def test_placement_is_legal():
    placed = run("gcd", 250).placement
    boxes = placed.boxes
    x1, y1, x2, y2 = placed.core
    assert len(placed.names) == len(set(placed.names)) == len(boxes) == len(placed.slacks)
    assert (boxes[:, :2].min(axis=0) >= (x1 - 1e-9, y1 - 1e-9)).all()
    assert (boxes[:, 2:].max(axis=0) <= (x2 + 1e-9, y2 + 1e-9)).all()
    for row in np.unique(boxes[:, 1].round(6)):
        inside = boxes[np.isclose(boxes[:, 1], row)]
        inside = inside[np.argsort(inside[:, 0])]
        assert (inside[1:, 0] >= inside[:-1, 2] - 1e-9).all()


def test_def_lists_every_cell():
    placed = run("gcd", 250).placement
    text = def_text("gcd", placed)
    lines = text.splitlines()
    assert f"COMPONENTS {len(placed.names)} ;" in lines
    assert sum("+ PLACED" in line for line in lines) == len(placed.names)
    assert "DIEAREA ( 0 0 )" in text


def test_hold_is_repaired_where_the_inputs_come_early():
    made = report("adder_pipe_64bit", 200)
    assert made.metrics["repair__hold__count"] > 50
    assert made.metrics["finish__timing__hold__ws"] > -3


@pytest.mark.parametrize(
    ("change", "stage"),
    [
        (("result   = A - B", "result   = A -* B"), "synthesis"),
        (("result   = A - B", "result   = A - B; missing_module part (.a(A))"), "synthesis"),
    ],
)
def test_synthesis_errors_are_outcomes(change, stage):
    files = design("sub_64bit", 500)
    path, text = next(iter(files.sources.items()))
    assert change[0] in text
    with pytest.raises(FlowError) as error:
        EmbeddedFlow().run(files.replaced(path, text.replace(*change)))
    assert error.value.field == stage


@pytest.mark.parametrize(
    ("name", "knobs", "message"),
    [
        ("gcd", {"CORE_UTILIZATION": "", "DIE_AREA": "0 0 5 5", "CORE_AREA": "1 1 4 4"}, "infeasible"),
        ("gcd", {"CORE_UTILIZATION": "", "DIE_AREA": "0 0 5 5", "CORE_AREA": "1 1 1.1 1.1"}, "too small"),
        ("gcd", {"CORE_UTILIZATION": "92"}, "infeasible"),
        ("gcd", {"CORE_UTILIZATION": ""}, "neither"),
        ("gcd", {"CORNER": "TC"}, "corner"),
        ("gcd", {"DESIGN_NAME": "nothing"}, "nothing"),
    ],
)
def test_what_cannot_be_implemented_says_why(name, knobs, message):
    files = design(name, 310, **knobs)
    if "DESIGN_NAME" in knobs:
        path, text = files.one(".mk")
        files = files.replaced(path, text.replace("DESIGN_NAME = gcd", "DESIGN_NAME = nothing"))
    with pytest.raises(FlowError, match=message) as error:
        EmbeddedFlow().run(files)
    assert error.value.field


def test_a_combinational_loop_is_an_outcome():
    files = design("sub_64bit", 500)
    path, _ = next(iter(files.sources.items()))
    loop = (
        "module sub_64bit (input [63:0] A, input [63:0] B, output [63:0] result, output overflow);\n"
        "  assign result = (A & ~result) | (B & {result[62:0], result[63]});\n  assign overflow = ^result;\nendmodule\n"
    )
    with pytest.raises(FlowError, match="loop") as error:
        EmbeddedFlow().run(files.replaced(path, loop))
    assert error.value.field in ("timing", "synthesis")


def test_a_huge_design_is_refused(monkeypatch):
    monkeypatch.setattr("edagym.envs.ppa.flow.embedded.MAX_CELLS", 100)
    with pytest.raises(FlowError, match="too many cells"):
        EmbeddedFlow().run(design("gcd", 310))


def test_unmodelled_knobs_warn():
    made = report("gcd", 310, ROUTING_LAYER_ADJUSTMENT="0.4")
    assert any("ROUTING_LAYER_ADJUSTMENT" in text for text in made.warnings)
    assert made.effective_period == report("gcd", 310).effective_period


def test_constraints_reach_the_engine():
    files = design("gcd", 310)
    netlist = synthesise(files.sources, SynthOptions("gcd")).netlist()
    text = files.one(".sdc")[1]
    base, notes = timing_constraints(parse_sdc(text), netlist)
    assert not notes
    assert {d.delay for d in base.input_delays} == {62.0}
    assert "clk" not in {d.port for d in base.input_delays}
    cut, _ = timing_constraints(parse_sdc(text + "set_false_path -from $inputs\n"), netlist)
    assert cut.input_delays == ()
    assert cut.output_delays == base.output_delays
    cut, _ = timing_constraints(parse_sdc(text + "set_false_path -to [all_outputs]\n"), netlist)
    assert cut.output_delays == ()
    _, notes = timing_constraints(parse_sdc(text + "set_false_path -through [get_pins x]\n"), netlist)
    assert notes
    with pytest.raises(FlowError, match="clock"):
        timing_constraints(parse_sdc(text.replace("get_ports clk", "get_ports tick")), netlist)


RANDOM = """
import json, sys
import numpy as np
from edagym.envs.ppa.flow.embedded import EmbeddedFlow
from edagym.errors import FlowError
sys.path.insert(0, sys.argv[1])
from ppa_runs import design
order, cache, number = int(sys.argv[2]), sys.argv[3] == "cached", int(sys.argv[4])
rng = np.random.default_rng(7)
cases = []
for _ in range(number):
    knobs = {
        "CORE_UTILIZATION": str(int(rng.integers(15, 90))), "PLACE_DENSITY": f"{rng.uniform(0.2, 0.95):.2f}",
        "ABC_AREA": str(int(rng.integers(2))), "ASAP7_USE_VT": ["RVT", "SLVT", "RVT LVT"][rng.integers(3)],
        "TNS_END_PERCENT": str(int(rng.integers(0, 101))), "RECOVER_POWER": str(int(rng.integers(2)) * 50),
        "SKIP_PIN_SWAP": str(int(rng.integers(2))), "GPL_TIMING_DRIVEN": str(int(rng.integers(2))),
        "CTS_CLUSTER_SIZE": str(int(rng.integers(3, 40))),
    }
    cases.append((["gcd", "uart", "traffic_light"][rng.integers(3)], float(rng.integers(220, 400)), knobs))
found = {}
for i in range(number)[::order]:
    name, period, knobs = cases[i]
    try:
        # Synthesis without cache is slow: it is done for two cases.
        result = EmbeddedFlow(cache=cache or i % 10 > 0).run(design(name, period, **knobs))
        path, boxes = list(result.critical_path), result.placement.boxes.tolist()
        found[i] = [result.report.to_dict(), path, boxes, result.endpoint_slacks.tolist()]
    except FlowError as e:
        found[i] = str(e)
print(json.dumps(found, sort_keys=True))
"""


@pytest.mark.parametrize("number", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_configurations_give_the_same_bytes_in_two_processes_and_orders(number):
    here = str(Path(__file__).parent)
    outputs = []
    for order, cache in ((1, "cached"), (-1, "fresh")):
        command = [sys.executable, "-c", RANDOM, here, str(order), cache, str(number)]
        outputs.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout)
    assert outputs[0] == outputs[1]
    found = json.loads(outputs[0])
    assert len(found) == number
    assert sum(isinstance(value, list) for value in found.values()) >= 0.6 * number


def test_a_cleared_synthesis_cache_changes_nothing():
    before = report("gcd", 310)
    clear_memory()
    assert EmbeddedFlow().run(design("gcd", 310)).report == before


def test_command_line_prints_report_and_stages(tmp_path, capsys):
    design("gcd", 310).write(tmp_path)
    assert main(["flow", str(tmp_path), "--json", "--def", str(tmp_path / "gcd.def")]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["effective_period"] == report("gcd", 310).effective_period
    assert set(data["cpu_seconds"]) >= {"synth", "place", "cts", "repair", "power"}
    assert (tmp_path / "gcd.def").read_text().startswith("VERSION 5.8")
    design("gcd", 310, CORE_UTILIZATION="95").write(tmp_path)
    assert main(["flow", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["stage"] == "place"
