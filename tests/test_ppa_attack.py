"""Ways past the PPA verifier and its environment that once worked; each is refused or fails with its reason."""

from __future__ import annotations

import dataclasses

import pytest
from ppa_cases import SDC

from edagym.envs.ppa.edits import apply_edit
from edagym.envs.ppa.flow.synth import SynthOptions, synthesise
from edagym.envs.ppa.sandbox import read_files
from edagym.errors import EditError, FlowError
from edagym.spaces.ppa_edits import ReplaceText, SetKnob
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.designs import Interface
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.task import PPATask, default_bounds
from edagym.verifiers.ppa.equivalence import EquivalenceResult, check_equivalence
from edagym.verifiers.ppa.rtl import elaborate
from edagym.verifiers.ppa.verifier import constraint_faults, knob_fault
from edagym.verifiers.ppa.yosys import check_sources

COMBINATIONAL = Interface.from_dict({"kind": "combinational"})
PIPELINED = Interface.from_dict({"kind": "pipelined", "clock": "clk", "reset": {"port": "rst", "active": "high"}})


def compare(original: str, modified: str, interface: Interface = COMBINATIONAL, **options) -> EquivalenceResult:
    return check_equivalence({"src/t.v": original}, {"src/t.v": modified}, "t", interface, **options)


def area(source: str) -> float:
    return synthesise({"src/t.v": source}, SynthOptions("t")).area


def reason(result: EquivalenceResult) -> str:
    assert not result.passed_strict
    return " ".join(c.message for c in result.checks if not c.passed)


# -- where synthesis reads a source differently than the check ---------------------------------------------------------

PARITY = "module t(input [5:0] a, output y); assign y = ^a; endmodule\n"
SHADOW = """\
module AO222x2_ASAP7_75t_R(input A1, A2, B1, B2, C1, C2, output Y);
  assign Y = A1 ^ A2 ^ B1 ^ B2 ^ C1 ^ C2;
endmodule
module t(input [5:0] a, output y);
  AO222x2_ASAP7_75t_R u(.A1(a[0]), .A2(a[1]), .B1(a[2]), .B2(a[3]), .C1(a[4]), .C2(a[5]), .Y(y));
endmodule
"""


def test_a_module_named_like_a_library_cell():
    assert area(SHADOW) < area(PARITY) / 2, "the flow takes the library's cell"
    assert "named like a cell of the library" in reason(compare(PARITY, SHADOW))


def test_a_library_cell_by_name():
    direct = SHADOW[SHADOW.index("module t") :]
    assert "AO222x2_ASAP7_75t_R" in reason(compare(PARITY, direct))


PRODUCT = """\
module t(input [7:0] a, b, input s, u, v, output reg [7:0] y);
  always @* if (s) y = u ? a * b : a; else if (v) y = b; else y = 0;
endmodule
"""
PARALLEL = """\
module t(input [7:0] a, b, input s, u, v, output reg [7:0] y);
  wire w = v & ~s;
  always @* BEFORE case (1'b1) BEHIND
    s: y = u ? a * b : a;
    u: y = w ? b : 0;
    w: y = u ? 0 : b;
    default: y = 0;
  endcase
endmodule
"""
DECLARED = {
    "attribute": ("(* parallel_case *)", ""),
    "unique": ("unique", ""),
    "unique0": ("unique0", ""),
    "comment": ("", "// synopsys parallel_case"),
}


@pytest.mark.parametrize("how", DECLARED)
def test_a_case_falsely_declared_parallel(how):
    before, behind = DECLARED[how]
    source = PARALLEL.replace("BEFORE", before).replace("BEHIND", behind)
    assert area(source) < area(PRODUCT) / 2, "synthesis believes the declaration"
    assert "The function differs" in reason(compare(PRODUCT, source))


def test_a_case_rightly_declared_parallel():
    source = """\
module t(input [7:0] a, b, input s, u, v, output reg [7:0] y);
  always @* unique case ({s, u, v})
    3'b110, 3'b111: y = a * b;
    3'b100, 3'b101: y = a;
    3'b001, 3'b011: y = b;
    default: y = 0;
  endcase
endmodule
"""
    result = compare(PRODUCT, source)
    assert (result.passed_strict, result.formal) == (True, "proved")


CLOCKED = """\
module t(input clk, rst, input [3:0] a, b, output reg y);
  always @(posedge clk) if (rst) y <= 0; else y <= a < b;
endmodule
"""


@pytest.mark.parametrize(("control", "passes"), [("rst", True), ("rst | (a == b)", False), ("a[0]", False)])
def test_only_the_reset_is_asynchronous(control, passes):
    source = f"""\
module t(input clk, rst, input [3:0] a, b, output reg y);
  wire clear = {control};
  always @(posedge clk or posedge clear) if (clear) y <= 0; else y <= a < b;
endmodule
"""
    netlist = elaborate({"src/t.v": source}, "t", "clk")
    assert netlist.async_controls == {"rst": ("rst",), "a[0]": ("a",)}.get(control, ("logic",))
    result = compare(CLOCKED.replace("posedge clk", "posedge clk or posedge rst"), source, PIPELINED)
    if passes:
        assert result.passed_strict
    else:
        assert "asynchronously by something else than the reset" in reason(result)


HIDDEN = """\
module t(input [23:0] a, b, output [47:0] y);
  wire [47:0] low = a * b[11:0], high = a * b[23:12];
  wire [23:0] k = (a ^ {b[0], b[23:1]}) + 24'd77;
  wire hit = (k == 24'h5a3c17) & (a[7:0] == ~b[15:8]);
  assign y = (low + (high << 12)) ^ hit;
endmodule
"""


@pytest.mark.slow
def test_a_hidden_trigger_in_a_multiplier_that_cannot_be_proved():
    original = "module t(input [23:0] a, b, output [47:0] y); assign y = a * b; endmodule\n"
    result = compare(original, HIDDEN, formal_s=20.0)
    assert result.passed_paper
    assert "Formal check: refuted" in reason(result)


# -- macros that spell names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["$sys`T(1)", "`define S() $sys\n`S()tem(1)", "wire a`X;", "\\a`X "])
def test_macros_joined_to_names(text):
    with pytest.raises(FlowError, match="macro joined to a name"):
        check_sources({"src/t.v": text})


@pytest.mark.parametrize("text", ["wire [`W-1:0] a;", "assign a = 4'd`N;", "assign a = 4'sh`N;", "`M(a) + `M(b)"])
def test_macros_that_stand_alone(text):
    check_sources({"src/t.v": text})


# -- configuration -----------------------------------------------------------------------------------------------------

CONFIG = """\
export DESIGN_NAME      = t
export PLATFORM         = asap7
export VERILOG_FILES    = ./src/t.v
export SDC_FILE         = ./config/constraint.sdc
export CORE_UTILIZATION = 40
"""


def make_task(constraints: str = SDC, **changes) -> PPATask:
    design = DesignFiles({"config/config.mk": CONFIG, "config/constraint.sdc": constraints, "src/t.v": CLOCKED})
    values = {"effective_period": 200.0, "total_power": 1e-4, "die_area": 50.0}
    task = PPATask(
        id="attack/q1",
        suite="multi",
        level="L2",
        backend="embedded",
        engine="",
        design=design,
        initial=values,
        targets={m: v / 2 for m, v in values.items()},
        bounds=default_bounds(parse_sdc(constraints)),
    )
    return dataclasses.replace(task, **changes)


def boxes(die: str, core: str) -> str:
    return CONFIG.replace("= 40", "=") + f"export DIE_AREA = {die}\nexport CORE_AREA = {core}\n"


@pytest.mark.parametrize("core", ["0 0 9 9", "1 1 9 8", "1 0.5 8 8", "-1 0 8 8"])
def test_boxes_do_not_give_the_locked_margin_away(core):
    try:
        fault = knob_fault(make_task(), parse_config(boxes("0 0 9 9", core)))
    except FlowError as e:
        fault = str(e) if core.startswith("-") else ""
    assert "CORE_MARGIN is locked" in fault or "CORE_AREA" in fault


def test_boxes_with_the_margin_are_allowed():
    assert knob_fault(make_task(), parse_config(boxes("0 0 9 9", "1 1 8 8"))) == ""
    design = apply_edit(make_task(), make_task().design, SetKnob("CORE_UTILIZATION", ""))
    design = apply_edit(make_task(), design, SetKnob("DIE_AREA", "0 0 9 9"))
    with pytest.raises(EditError, match="CORE_MARGIN is locked"):
        apply_edit(make_task(), design, SetKnob("CORE_AREA", "0 0 9 9"))


def test_unknown_variables_of_the_real_flow_are_locked():
    now = parse_config(CONFIG + "export SYNTH_BLACKBOXES = t\n")
    assert "SYNTH_BLACKBOXES" in knob_fault(make_task(backend="orfs"), now)
    assert knob_fault(make_task(), now) == "", "the embedded flow only warns of it"


# -- constraints -------------------------------------------------------------------------------------------------------


def faults(before: str, after: str) -> dict[str, str]:
    return constraint_faults(make_task(before), parse_sdc(after))


def test_a_variable_of_a_recorded_statement():
    before = SDC + "set unsure 20\nset_clock_uncertainty $unsure [all_clocks]\n"
    assert not faults(before, before)
    found = faults(before, before.replace("unsure 20", "unsure 0"))
    assert found == {"strict_exceptions": "timing statements were added, removed or changed"}


def test_a_false_path_for_hold_only():
    assert "strict_exceptions" in faults(SDC, SDC + "set_false_path -hold -to [all_outputs]\n")


@pytest.mark.parametrize("name", ["sta_crpr_enabled", "::env(X)", "env", "a::b", "tcl_precision", "a(1)", "auto_path"])
def test_settings_of_the_timing_engine(name):
    with pytest.raises(FlowError, match="not a name of a variable"):
        parse_sdc(f"set {name} 0\n" + SDC)
    edit = ReplaceText("config/constraint.sdc", "current_design", f"set {name} 0\ncurrent_design")
    if SDC.count("current_design") == 1:
        with pytest.raises(EditError, match="not a name of a variable"):
            apply_edit(make_task(), make_task().design, edit)


# -- the read command line ---------------------------------------------------------------------------------------------

LONG = {"src/t.v": "a" * 900_000 + "\n"}
SLOW = [
    "grep 'a*b' src/t.v",
    "grep 'a*a*a*b' src/t.v",
    "sed 's/a*b/x/' src/t.v",
    "awk '/a*b/ {print}' src/t.v",
    "awk -F 'a*b' '{print $1}' src/t.v",
]
BIG = [
    "sed 's/a/&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&/g' src/t.v",
    "sed 's/a/&&&/g' src/t.v | sed 's/a/&&&/g' | sed 's/a/&&&/g'",
    "awk '{print $0 $0 $0 $0 $0 $0 $0 $0 $0 $0}' src/t.v",
]


@pytest.mark.parametrize("command", SLOW)
def test_patterns_that_take_for_ever(command):
    with pytest.raises(EditError, match="too slow a pattern"):
        read_files(command, LONG)


@pytest.mark.parametrize("command", BIG)
def test_texts_that_explode(command):
    with pytest.raises(EditError, match="too much text"):
        read_files(command, LONG)


def test_many_columns():
    with pytest.raises(EditError, match="not a list of positions"):
        read_files("cut -c" + ",".join(["1"] * 240) + " src/t.v", LONG)


def test_ordinary_patterns_are_quick_enough():
    text = {"log.txt": "".join(f"Warning: net _{i}_ has {i} sinks, slack {i / 7:.3f} ps\n" for i in range(3000))}
    assert "_2999_" in read_files("grep -E 'net .* has [0-9]+ sinks, .*ps' log.txt | tail -1", text)
