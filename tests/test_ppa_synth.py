"""Engine runner and synthesis: limits, refusals, cache, options."""

import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from edagym.envs.ppa.flow import synth
from edagym.envs.ppa.flow.synth import SynthOptions, synthesise
from edagym.errors import FlowError, ToolError, ToolTimeout
from edagym.task_assets.ppa.technology import load_technology
from edagym.verifiers.ppa import yosys

COUNTER = """
module counter #(parameter W = 4) (input clk, input reset, input enable, output reg [W-1:0] count);
  always @(posedge clk)
    if (reset) count <= 0;
    else if (enable) count <= count + 1;
endmodule
"""
ADDER = "module adder (input [15:0] a, b, output [16:0] s); assign s = a + b; endmodule\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDAGYM_CACHE", str(tmp_path / "cache"))
    synth.clear_memory()
    yield
    synth.clear_memory()


def commands(*more):
    return ["read_verilog a.v", *more]


def test_run_gives_log_and_outputs():
    run = yosys.run_yosys(
        commands("prep -top counter", "write_json o.json"), sources={"a.v": COUNTER}, outputs=["o.json"]
    )
    assert b'"counter"' in run.outputs["o.json"]
    assert "Executing PREP pass" in run.log


@pytest.mark.parametrize(
    "text",
    [
        "module m(input a, output b); assign b = a & ; endmodule",
        'module m; initial $system("id"); endmodule',
        '`include "/etc/passwd"',
        '`include "../../secret.v"',
        '`define P "/etc/passwd"\n`include `P',
        'module m; reg [7:0] x [0:3]; initial $readmemh("/etc/passwd", x); endmodule',
        'module m; reg [7:0] x [0:3]; initial $readmemb({"/etc", "/passwd"}, x); endmodule',
        "`define J(a,b) a``b\nmodule m; initial `J($sys,tem)(1); endmodule",
        'module m; integer f; initial f = $fopen("x"); endmodule',
        'import "DPI-C" function int system(string s);\nmodule m; endmodule',
        "module m; endmodule\0",
    ],
)
def test_faulty_and_reaching_sources_are_flow_errors(text):
    with pytest.raises(FlowError) as caught:
        yosys.run_yosys(commands("hierarchy -top m"), sources={"a.v": text})
    assert caught.value.field == "synthesis"


def test_words_in_comments_and_strings_are_no_calls():
    text = '// $system\n/* `include "/etc/passwd" */ module m (output a); localparam s = "$fopen"; endmodule'
    yosys.check_sources({"a.v": text})
    text = '`include "b.vh"\nmodule m (output a); assign a = `ONE; endmodule'
    run = yosys.run_yosys(
        commands("hierarchy -top m", "write_json o.json"),
        sources={"a.v": text, "b.vh": "`define ONE 1'b1\n"},
        outputs=["o.json"],
    )
    assert b'"m"' in run.outputs["o.json"]


@pytest.mark.parametrize(
    "text",
    [
        "/*" * 400_000,
        '"' * 400_001,
        '"\\' * 300_000,
        "module m; initial begin\n" + '$readmemh("a.v", x);' * 40_000 + "end endmodule",
        "`" * 3 + "include" * 100_000,
    ],
)
def test_big_sources_are_checked_in_linear_time(text):
    try:
        yosys.check_sources({"a.v": text})
    except FlowError:
        return


@pytest.mark.skipif(not os.path.exists("/sys/kernel/security"), reason="no Linux security modules")
def test_files_outside_the_scratch_folder_are_closed(tmp_path):
    (tmp_path / "secret.v").write_text(COUNTER)
    with pytest.raises(ToolError, match="ermission"):
        yosys.run_yosys([f"read_verilog {tmp_path}/secret.v"])
    with pytest.raises(ToolError, match="ermission"):
        yosys.run_yosys([*commands("prep"), f"write_verilog {tmp_path}/out.v"], sources={"a.v": COUNTER})
    assert not (tmp_path / "out.v").exists()


def test_timeout_ends_the_children_too(tmp_path):
    with pytest.raises(ToolTimeout):
        yosys.run_yosys(["exec -- sleep 47.25"], timeout_s=1)
    time.sleep(0.2)
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines.append(file.read())
        except OSError:
            continue
    assert not any(b"sleep\x0047.25" in line for line in lines)


def test_source_that_never_ends_is_a_timeout():
    text = """module m (output reg [7:0] y); integer i;
      initial begin y = 0; for (i = 0; i < 2000000000; i = i + 1) y = y + i; end endmodule"""
    with pytest.raises(ToolTimeout):
        synthesise({"a.v": text}, SynthOptions("m"), timeout_s=2)


BOMBS = {
    "generate": "genvar g; generate for (g = 0; g < 100000000; g = g + 1) begin: x wire w = a; end endgenerate",
    "endless": "genvar g; generate for (g = 0; g < 1; g = g + 0) begin: x wire w = a; end endgenerate",
    "instances": "split #(.N(60)) u (a, y);",
    "constant": "function automatic integer f (input integer x); f = f(x + 1); endfunction localparam Z = f(1);",
    "memory": "reg [7:0] mem [0:1073741823]; always @(posedge a) mem[{30{a}}] <= {8{a}}; assign y = ^mem[{30{~a}}];",
    "nesting": f"assign y = {'a ? ' * 100_000} a {': a' * 100_000};",
    "macros": "assign y = `M0 a;",
    "wide": "wire [1999999999:0] w = {2000000000{a}};",
    "product": "wire [8191:0] w = {4096{a}} * {4096{~a}}; assign y = ^w;",
}
SPLIT = """
module split #(parameter N = 0) (input a, output y);
  generate
    if (N == 0) assign y = ~a;
    else begin wire p; split #(N - 1) u (a, p); split #(N - 1) v (p, y); end
  endgenerate
endmodule
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_sources_that_explode_are_bounded(bomb):
    macros = "".join(f"`define M{i} `M{i + 1} `M{i + 1}\n" for i in range(40)) + "`define M40 a ^\n"
    text = f"{macros}module m (input a, output y); {BOMBS[bomb]} endmodule\n{SPLIT}"
    with pytest.raises((FlowError, ToolError)) as caught:
        synthesise({"a.v": text}, SynthOptions("m"), timeout_s=1, memory_mb=1024)
    assert caught.value.field in ("synthesis", "yosys")


def test_huge_outputs_are_refused(monkeypatch):
    monkeypatch.setattr(yosys, "MAX_OUTPUT_BYTES", 1000)
    with pytest.raises(FlowError, match="too big"):
        synthesise({"a.v": COUNTER}, SynthOptions("counter"))


def test_operator_without_cells_is_the_designs_fault():
    text = "module m (input [7:0] a, output [7:0] y); assign y = a ** a; endmodule"
    for _ in range(2):
        with pytest.raises(FlowError, match="pow"):
            synthesise({"a.v": text}, SynthOptions("m"))


def test_the_engine_stays_out_of_this_process():
    # pyosys opens the symbols of all later libraries to each other, and SDL then crashes.
    code = """
import os, sys
from edagym.envs.ppa.flow.synth import SynthOptions, synthesise
from edagym.verifiers.ppa.rtl import elaborate
before = sys.getdlopenflags()
sources = {"a.v": "module m (input a, b, output y); assign y = a & b; endmodule"}
synthesise(sources, SynthOptions("m"))
elaborate(sources, "m", None)
assert not any(name.split(".")[0] == "pyosys" for name in sys.modules)
assert sys.getdlopenflags() == before
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_memory_limit_and_unknown_command_are_tool_errors():
    big = "module m (input [15:0] a, output b); wire [15:0] x = a; assign b = ^x; endmodule"
    with pytest.raises(ToolError) as caught:
        yosys.run_yosys(commands("synth -top m"), sources={"a.v": big}, memory_mb=1)
    assert not isinstance(caught.value, ToolTimeout)
    with pytest.raises(ToolError):
        yosys.run_yosys(["no_such_command"])
    with pytest.raises(ToolError):
        yosys.run_yosys(["log hello"], outputs=["missing"])


def test_other_engine_version_names_both(monkeypatch):
    monkeypatch.setattr(yosys.importlib.metadata, "version", lambda name: "0.70")
    with pytest.raises(ToolError, match=r"0\.58.*0\.70"):
        yosys.engine()


def test_abc_compares_networks():
    one = ".model m\n.inputs a b\n.outputs c\n.names a b c\n11 1\n.end\n"
    other = one.replace("11 1", "1- 1")
    assert "equivalent" in yosys.run_abc(["cec -n a.blif a.blif"], files={"a.blif": one}).log
    log = yosys.run_abc(["cec -n a.blif b.blif"], files={"a.blif": one, "b.blif": other}).log
    assert "NOT EQUIVALENT" in log


def test_netlist_is_mapped_and_area_is_the_sum():
    result = synthesise({"src/counter.v": COUNTER}, SynthOptions("counter"))
    tech = load_technology()
    assert result.counts["DFFHQNx1_ASAP7_75t_R"] == 4
    assert all(name in tech.index for name in result.counts)
    assert not any(tech[name].dont_use and not name.startswith("HAxp5") for name in result.counts)
    netlist = result.netlist()
    assert netlist.area() == pytest.approx(result.area)
    assert netlist.counts() == result.counts
    assert netlist.port_name == ["clk", "reset", "enable", *[f"count[{i}]" for i in range(4)]]


def test_cached_and_fresh_results_are_equal(monkeypatch):
    sources = {"src/adder.v": ADDER}
    fresh = synthesise(sources, SynthOptions("adder"), cache=False)
    first = synthesise(sources, SynthOptions("adder"))
    monkeypatch.setattr(yosys, "run_yosys", None)
    from_memory = synthesise(sources, SynthOptions("adder"))
    synth.clear_memory()
    from_disk = synthesise(sources, SynthOptions("adder"))
    assert fresh.data == first.data == from_memory.data == from_disk.data
    assert list(fresh.data["modules"]["adder"]["cells"]) == list(from_disk.data["modules"]["adder"]["cells"])


def test_damaged_cache_entry_is_made_anew(tmp_path):
    first = synthesise({"a.v": ADDER}, SynthOptions("adder"))
    (entry,) = (tmp_path / "cache" / "synth").rglob("*.json.gz")
    entry.write_bytes(entry.read_bytes()[:100])
    synth.clear_memory()
    assert synthesise({"a.v": ADDER}, SynthOptions("adder")).data == first.data


def test_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EDAGYM_CACHE", str(tmp_path / "file"))
    assert synthesise({"a.v": ADDER}, SynthOptions("adder")).area > 0


def test_key_covers_what_the_result_depends_on():
    tech, engine = load_technology(), yosys.engine()
    base = synth._key({"a.v": ADDER}, SynthOptions("adder"), tech, engine)
    assert base == synth._key({"a.v": ADDER}, SynthOptions("adder"), tech, engine)
    others = [
        synth._key({"a.v": ADDER + " "}, SynthOptions("adder"), tech, engine),
        synth._key({"b.v": ADDER}, SynthOptions("adder"), tech, engine),
        synth._key({"a.v": ADDER}, SynthOptions("adder", abc_area=True), tech, engine),
        synth._key({"a.v": ADDER}, SynthOptions("adder", vt="LVT"), tech, engine),
        synth._key({"a.v": ADDER}, SynthOptions("adder"), tech, "pyosys 0.70"),
    ]
    assert len({base, *others}) == 6


def test_options_change_the_netlist():
    speed = synthesise({"a.v": ADDER}, SynthOptions("adder"))
    area = synthesise({"a.v": ADDER}, SynthOptions("adder", abc_area=True))
    low = synthesise({"a.v": ADDER}, SynthOptions("adder", vt="SLVT"))
    assert speed.data != area.data
    assert all(name.endswith("_SL") for name in low.counts)
    wide = synthesise({"a.v": COUNTER}, SynthOptions("counter", parameters=(("W", "7"),)))
    assert wide.counts["DFFHQNx1_ASAP7_75t_R"] == 7


def test_hierarchical_synthesis_keeps_module_borders():
    text = """module inv2 (input a, output b); wire c = ~a; assign b = ~c; endmodule
    module top (input a, output b); wire x; inv2 u (.a(a), .b(x)); inv2 v (.a(x), .b(b)); endmodule"""
    two = """module part (input [3:0] a, output y); assign y = ^a; endmodule
    module top (input [3:0] a, b, output x, y); part p (.a(a), .y(x)); part q (.a(a), .y(y)); endmodule"""
    flat = synthesise({"a.v": two}, SynthOptions("top"))
    kept = synthesise({"a.v": two}, SynthOptions("top", hierarchical=True))
    # Flat synthesis shares the two equal parts, hierarchical synthesis cannot.
    assert kept.area > flat.area
    assert synthesise({"a.v": text}, SynthOptions("top", hierarchical=True)).netlist().counts()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (ADDER, SynthOptions("missing")),
        (ADDER, SynthOptions("adder; exec")),
        (ADDER, SynthOptions("adder", vt="HVT")),
        (ADDER, SynthOptions("adder", parameters=(("W", "1; exec"),))),
        ("module adder (input a); endmodule", SynthOptions("adder")),
        ("module adder (inout a, output b); assign b = ~a; endmodule", SynthOptions("adder")),
    ],
)
def test_what_cannot_be_synthesised_is_a_flow_error(text, options):
    with pytest.raises(FlowError) as caught:
        synthesise({"a.v": text}, options).netlist()
    assert caught.value.field == "synthesis"


def _area_in_child(connection):
    connection.send(synthesise({"a.v": ADDER}, SynthOptions("adder"), cache=False).area)


def test_works_from_a_spawned_daemon():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=_area_in_child, args=(there,), daemon=True)
    child.start()
    assert here.poll(60)
    assert here.recv() == synthesise({"a.v": ADDER}, SynthOptions("adder")).area
    child.join()


def test_carry_and_adder_maps_keep_the_function():
    """The mapped adders, checked by exhaustive comparison of the sums in Yosys."""
    for text in (
        "module t (input [4:0] a, b, input c, output [5:0] s); assign s = a + b + c; endmodule",
        "module t (input [4:0] a, b, output [5:0] s); assign s = a - b; endmodule",
        "module t (input [3:0] a, b, output [7:0] s); assign s = a * b; endmodule",
        "module t (input [4:0] a, output [5:0] s); assign s = a + 5'd11; endmodule",
    ):
        tech = load_technology()
        netlist = synthesise({"a.v": text}, SynthOptions("t")).netlist()
        cells = _models(tech, netlist.counts())
        script = [
            "read_verilog a.v",
            "prep -top t",
            "design -stash first",
            "read_verilog gate.v cells.v",
            "prep -flatten -top t",
            "design -stash second",
            "design -copy-from first -as gold t",
            "design -copy-from second -as gate t",
            "miter -equiv -flatten -make_outputs gold gate miter",
            "sat -verify -prove trigger 0 miter",
        ]
        log = yosys.run_yosys(script, sources={"a.v": text, "gate.v": netlist.to_verilog(), "cells.v": cells}).log
        assert "SAT proof finished - no model found: SUCCESS!" in log


def _models(tech, names):
    """Return Verilog modules of cells from their truth tables."""
    lines = []
    for name in names:
        master = tech[name]
        ports = [f"input {pin}" for pin in master.inputs] + [f"output {pin}" for pin in master.outputs]
        lines.append(f"module {name} ({', '.join(ports)});")
        index = "{" + ", ".join(reversed(master.inputs)) + "}" if master.inputs else "1'b0"
        for output, function in zip(master.outputs, master.functions, strict=True):
            size = 1 << master.n_inputs
            lines.append(f"  wire [{size - 1}:0] t_{output} = {size}'b{function:0{size}b};")
            lines.append(f"  assign {output} = t_{output}[{index}];")
        lines.append("endmodule")
    return "\n".join(lines)
