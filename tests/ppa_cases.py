"""Small PPA tasks and a flow backend of a few lines: its numbers follow knobs and period by a made-up formula."""

from __future__ import annotations

import numpy as np

from edagym.envs.ppa.flow.backend import FlowResult, Placement
from edagym.errors import FlowError
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.task import METRICS, PPATask, default_bounds
from edagym.verifiers.ppa.report import PPAReport
from edagym.verifiers.ppa.verifier import SAME_SOURCES, FunctionCheck

ENGINE = "formula 1"

CONFIG = """\
# A small adder.
export DESIGN_NAME     = adder
export PLATFORM        = asap7
export VERILOG_FILES   = $(sort $(wildcard ./designs/src/adder/*.v))
export SDC_FILE        = ./designs/asap7/adder/constraint.sdc

export CORE_UTILIZATION = 40   # percent
export PLACE_DENSITY   ?= 0.60
export ABC_AREA         = 0
"""

SDC = """\
current_design adder

set clk_name core_clock
set clk_port_name clk
set clk_period 300
set clk_io_pct 0.2

set clk_port [get_ports $clk_port_name]
create_clock -name $clk_name -period $clk_period $clk_port

set non_clock_inputs [lsearch -inline -all -not -exact [all_inputs] $clk_port]

set_input_delay  [expr $clk_period * $clk_io_pct] -clock $clk_name $non_clock_inputs
set_output_delay [expr $clk_period * $clk_io_pct] -clock $clk_name [all_outputs]
"""

SOURCE = """\
// Registered sum of two numbers.
module adder (
  input  wire       clk,
  input  wire [3:0] a,
  input  wire [3:0] b,
  output reg  [4:0] sum
);
  always @(posedge clk) sum <= a + b;
endmodule
"""


def make_design(config: str = CONFIG, sdc: str = SDC, source: str = SOURCE) -> DesignFiles:
    return DesignFiles({"config/config.mk": config, "config/constraint.sdc": sdc, "src/adder.v": source})


class FormulaFlow:
    """A backend: period falls with density and fast cells, power with the period, area with utilisation."""

    name = "embedded"
    engine = ENGINE

    def __init__(self) -> None:
        self.calls = 0

    def run(self, design: DesignFiles) -> FlowResult:
        self.calls += 1
        config = parse_config(design.one(".mk")[1])
        sdc = parse_sdc(design.one(".sdc")[1])
        if "syntax error" in design.files["src/adder.v"]:
            raise FlowError("a syntax error", field="synth")
        utilization = config.number("CORE_UTILIZATION")
        if utilization > 90:
            raise FlowError("the core is too small", field="place")
        fast = {"RVT": 0.0, "LVT": 1.0, "SLVT": 2.0}[config.names("ASAP7_USE_VT")[0]]
        period = 0.5 * sdc.period + 200 - 60 * config.number("PLACE_DENSITY") - 20 * fast + 0.2 * utilization
        power = (1 + 0.1 * fast - 0.2 * config.flag("ABC_AREA")) * 0.3 / sdc.period
        area = 4000 / utilization
        report = PPAReport(
            self.name,
            self.engine,
            period,
            power,
            area,
            {"finish__timing__setup__wns": min(0.0, sdc.period - period)},
            config.embedded_warnings(),
        )
        boxes = np.array([[i, 0.0, i + 0.8, 1.0] for i in range(5)])
        slacks = np.array([-5.0, 0.0, 5.0, 9.0, np.inf])
        placement = Placement((0, 0, 10, 10), (1, 1, 9, 9), tuple("abcde"), ("INVx1",) * 5, boxes, slacks)
        return FlowResult(report, ("a INVx1 5.0 5.0", "b INVx1 6.0 11.0"), np.array([-5.0, 1.0, 4.0]), placement)


def same_function(task: PPATask, design: DesignFiles) -> FunctionCheck:
    """A functional check that looks for a word."""
    if design.sources == task.design.sources:
        return SAME_SOURCES
    text = design.files["src/adder.v"]
    if "broken" in text:
        return FunctionCheck(False, False, "outputs differ")
    if "sneaky" in text:
        return FunctionCheck(True, False, "a directed vector differs")
    return FunctionCheck(True, True, "no difference found")


def make_task(
    task_id: str = "Multi-L1/q1",
    targets: dict[str, float] | None = None,
    design: DesignFiles | None = None,
    **kwargs: object,
) -> PPATask:
    """A task whose targets are reached by LVT cells and a density of 0.8 (or SLVT), area to be kept."""
    design = make_design() if design is None else design
    report = FormulaFlow().run(design).report
    fields: dict[str, object] = {
        "suite": "multi",
        "level": "L1",
        "backend": "embedded",
        "engine": ENGINE,
        "initial": {m: report.value(m) for m in METRICS},
        "initial_metrics": dict(report.metrics),
        "targets": targets or {"effective_period": 295.0, "total_power": 0.00115, "die_area": 100.0},
        "bounds": default_bounds(parse_sdc(design.one(".sdc")[1])),
        "facts": {"logs/6_report.json": '{"finish__timing__setup__wns": -12.0, "list": [1, {"a": "x"}]}\n'},
        "reference": (
            {"op": "set_knob", "name": "ASAP7_USE_VT", "value": "LVT"},
            {"op": "set_knob", "name": "PLACE_DENSITY", "value": "0.8"},
        ),
        "metadata": {"secret": "reference fix"},
    }
    return PPATask(id=task_id, design=design, **{**fields, **kwargs})  # type: ignore[arg-type]
