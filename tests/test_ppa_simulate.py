"""Front end and simulator: gates against Python's operators, unknown values, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ppa_engine import need_engine

from edagym.errors import FlowError, ToolTimeout
from edagym.task_assets.ppa.designs import Interface
from edagym.verifiers.ppa.miter import after_reset, depth, feedback_bits
from edagym.verifiers.ppa.rtl import elaborate
from edagym.verifiers.ppa.simulate import Simulator, lane_value, pack, unpack
from edagym.verifiers.ppa.stimulus import carry_runs, corner_values, directed_vectors, literals, random_planes

need_engine()

OPERATORS = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a & ~b": lambda a, b: a & ~b,
    "a ^ b": lambda a, b: a ^ b,
    "(a < b) ? a : b": min,
    "a << b[2:0]": lambda a, b: a << (b & 7),
    "a >> b[2:0]": lambda a, b: a >> (b & 7),
    "{7'd0, ^a}": lambda a, b: a.bit_count() & 1,
    "b ? a % b : 8'd0": lambda a, b: a % b if b else 0,
    "b ? a / b : 8'd0": lambda a, b: a // b if b else 0,
}


def test_operators_of_all_pairs() -> None:
    body = "".join(f"assign y{i} = {text};" for i, text in enumerate(OPERATORS))
    ports = ", ".join(f"output [7:0] y{i}" for i in range(len(OPERATORS)))
    netlist = elaborate({"a.v": f"module m(input [7:0] a, b, {ports}); {body} endmodule"}, "m", None)
    pairs = [(a, b) for a in range(256) for b in (*range(17), *range(20, 256, 7), 254, 255)]
    simulator = Simulator(netlist, len(pairs))
    out = simulator.settle({"a": pack([a for a, _ in pairs], 8), "b": pack([b for _, b in pairs], 8)})
    for i, function in enumerate(OPERATORS.values()):
        assert unpack(out[f"y{i}"], len(pairs)) == [function(a, b) & 255 for a, b in pairs], i


@given(st.lists(st.integers(0, (1 << 70) - 1), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_pack_and_back(values: list[int]) -> None:
    planes = pack(values, 70)
    assert unpack(planes, len(values)) == values
    assert [lane_value(planes, k) for k in range(len(values))] == values


def test_asynchronous_reset_acts_at_once() -> None:
    text = """module m(input clk, rst_n, input [3:0] d, output reg [3:0] q);
      always @(posedge clk or negedge rst_n) if (!rst_n) q <= 4'd9; else q <= d; endmodule"""
    netlist = elaborate({"a.v": text}, "m", "clk")
    simulator = Simulator(netlist, 1)
    assert simulator.step({"rst_n": [1], "d": pack([5], 4)})["q"] == [0, 0, 0, 0]
    assert lane_value(simulator.settle({"rst_n": [1], "d": pack([5], 4)})["q"], 0) == 5
    assert lane_value(simulator.settle({"rst_n": [0], "d": pack([5], 4)})["q"], 0) == 9
    assert {name for flop in netlist.flops for name in flop.names} == {f"q[{i}]" for i in range(4)}


def test_unknown_values_are_the_callers() -> None:
    text = "module m(input a, output y, z, w); wire u; "
    text += "assign y = a ? 1'bx : 1'b1; assign z = u; assign w = 1'bz; endmodule"
    netlist = elaborate({"a.v": text}, "m", None)
    assert len(netlist.undefined) == 3
    assert set(netlist.masked_outputs) == {"z[0]", "w[0]"}
    simulator = Simulator(netlist, 2)
    simulator.power_up(lambda: 0)
    assert simulator.settle({"a": [0b10]})["y"] == [0b01]
    simulator.power_up(lambda: 0b11)
    assert simulator.settle({"a": [0b10]})["y"] == [0b11]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("reg q; always @* if (a) q = b; assign y = q;", "latch"),
        ("wire q = ~(q & a); assign y = q;", "loop"),
        ("reg q; always @(negedge clk) q <= a; assign y = q;", "rising edge"),
        ("reg q; always @(posedge b) q <= a; assign y = q;", "rising edge"),
        ("reg q; wire g = clk & b; always @(posedge g) q <= a; assign y = q;", "rising edge"),
        ("reg q; always @(posedge clk) q <= a; assign y = q & clk;", "clock used as data"),
        ("macro u (.a(a), .y(y));", "macro"),
        ("assign y = a +;", "syntax error"),
        ("\\$_NOT_ u (.A(a), .Y(y));", "reserved"),
        ('initial $readmemh("/etc/passwd", m); assign y = a;', "not a source"),
    ],
)
def test_refusals(body: str, reason: str) -> None:
    with pytest.raises(FlowError, match=reason):
        elaborate({"a.v": f"module m(input clk, a, b, output y); {body} endmodule"}, "m", "clk")


def test_bidirectional_port_is_refused() -> None:
    with pytest.raises(FlowError, match="bidirectional"):
        elaborate({"a.v": "module m(inout a, output y); assign y = a; endmodule"}, "m", None)


def test_initial_values_are_seen() -> None:
    text = "module m(input clk, a, output reg q = 1'b1); always @(posedge clk) q <= a; endmodule"
    assert elaborate({"a.v": text}, "m", "clk").has_initial_values


def test_engine_time_is_limited() -> None:
    text = "module m(input [3:0] a, output reg [3:0] y); integer i; "
    text += "always @* begin y = a; for (i = 0; i < 100000000; i = i + 1) y = y + a; end endmodule"
    with pytest.raises(ToolTimeout):
        elaborate({"a.v": text}, "m", None, timeout_s=2)


def test_shape_of_registers() -> None:
    text = """module m(input clk, rst, input [3:0] d, output reg [3:0] n, output reg [3:0] p);
      reg [3:0] q, lost;
      always @(posedge clk) begin
        n <= rst ? 4'd0 : d[0] ? n + 4'd1 : n; q <= rst ? 4'd3 : d; p <= q ^ lost; lost <= d; end endmodule"""
    netlist = elaborate({"a.v": text}, "m", "clk")
    interface = Interface("pipelined", "clk", "rst")
    values = {flop.names[0]: v for flop, v in zip(netlist.flops, after_reset(netlist, interface))}
    assert [values[f"n[{i}]"] for i in range(4)] == [0, 0, 0, 0]
    assert [values[f"q[{i}]"] for i in range(4)] == [1, 1, 0, 0]
    assert [values[f"lost[{i}]"] for i in range(4)] == [2, 2, 2, 2]
    assert feedback_bits(netlist) == 4
    assert depth(netlist) is None


def test_holding_is_no_feedback() -> None:
    text = """module m(input clk, rst_n, en, input [7:0] d, output reg [7:0] q, output reg [7:0] r);
      always @(posedge clk or negedge rst_n) if (!rst_n) q <= 8'd5; else if (en) q <= d;
      always @(posedge clk) if (en) r <= q; endmodule"""
    assert feedback_bits(elaborate({"a.v": text}, "m", "clk")) == 0


def test_stimuli() -> None:
    assert literals({"a.v": "x == 32'hdead_beef; y <= 8'd200; z = 12 + w2; // 'q"}) == (0xDEADBEEF, 200, 12)
    corners = corner_values(32, (77,))
    assert {0, 0xFFFFFFFF, 0x7F800000, 0x80000000, 76, 77, 78} <= set(corners)
    assert len(set(corners)) == len(corners)
    runs = carry_runs(16, np.random.default_rng(0))
    lengths = set()
    for a, b in runs:
        carries = (a + b) ^ a ^ b
        lengths.add(max(len(s) for s in f"{carries >> 1:b}".split("0")))
    assert 16 in lengths
    vectors = directed_vectors([("a", 16), ("b", 16)], (), np.random.default_rng(0), limit=3000)
    assert 1500 < len(vectors) <= 3000
    assert vectors == directed_vectors([("a", 16), ("b", 16)], (), np.random.default_rng(0), limit=3000)
    planes = random_planes(4, 1000, np.random.default_rng(0), 0.1)
    assert all(50 < plane.bit_count() < 150 for plane in planes)
