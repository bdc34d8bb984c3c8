"""The equivalence check itself: verdicts, counterexamples, determinism, masking, errors."""

from __future__ import annotations

import pytest
from ppa_engine import need_engine
from ppa_rewrites import edited

from edagym.errors import ToolError, ToolTimeout
from edagym.task_assets.ppa.designs import Interface, load_design
from edagym.verifiers.ppa import equivalence
from edagym.verifiers.ppa.equivalence import check_equivalence

need_engine()

COMBINATIONAL = Interface("combinational")
CLOCKED = Interface("pipelined", "clk", "rst")


def combinational(original: str, modified: str, **options: object) -> equivalence.EquivalenceResult:
    head = "module m(input [7:0] a, b, output [7:0] y, output z); "
    sources = [{"src/m.v": head + body + " endmodule"} for body in (original, modified)]
    return check_equivalence(*sources, "m", COMBINATIONAL, **options)  # type: ignore[arg-type]


def clocked(original: str, modified: str, **options: object) -> equivalence.EquivalenceResult:
    head = "module m(input clk, rst, input [7:0] d, output reg [7:0] q); "
    sources = [{"src/m.v": head + body + " endmodule"} for body in (original, modified)]
    return check_equivalence(*sources, "m", CLOCKED, formal_s=30, **options)  # type: ignore[arg-type]


def test_unchanged_sources_pass_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    design = load_design("gcd")
    monkeypatch.setattr(equivalence, "run_traffic", None)
    found = check_equivalence(design.files.sources, dict(design.files.sources), design.top, design.interface)
    assert found.passed_paper
    assert found.passed_strict
    assert found.formal == "proved"


def test_counterexample_is_true() -> None:
    found = combinational("assign y = a + b; assign z = 0;", "assign y = a | b; assign z = 0;")
    assert not found.passed_paper
    shown = found.counterexample
    assert shown is not None
    a, b = shown.inputs["a"], shown.inputs["b"]
    assert (shown.port, shown.expected, shown.found) == ("y", (a + b) & 255, a | b)
    assert "y is" in found.checks[0].message


def test_counterexample_of_a_pipeline_is_true() -> None:
    good = "always @(posedge clk) q <= rst ? 8'd0 : d;"
    found = clocked(good, "always @(posedge clk) q <= rst ? 8'd0 : d ^ {8{d == 8'h5a}};")
    shown = found.counterexample
    assert shown is not None
    assert shown.found == shown.expected ^ 0xFF == 0xA5  # type: ignore[operator]


def test_same_arguments_same_result() -> None:
    design = load_design("adder_pipe_64bit")
    broken = edited("adder_pipe_64bit", ("a3_ff2 + b3_ff2 + c2", "a3_ff2 + b3_ff2"))
    results = [check_equivalence(design.files.sources, broken, design.top, design.interface) for _ in range(2)]
    assert results[0] == results[1]


def test_undefined_outputs_are_masked_and_reported() -> None:
    original = "assign y = (a == 8'd3) ? 8'bx : a; assign z = 1'bz;"
    found = combinational(original, "assign y = a; assign z = b[0];")
    assert found.passed_strict
    assert found.masked == ("z[0]",)
    # The other way round the modified design is undefined where the original is not.
    assert not combinational("assign y = a; assign z = 0;", original).passed_strict


def test_undefined_register_of_the_original_asks_nothing() -> None:
    original = "reg [7:0] r; always @(posedge clk) begin r <= d; q <= r; end"
    found = clocked(original, "reg [7:0] s; always @(posedge clk) begin s <= rst ? 8'd0 : d; q <= s; end")
    assert not found.passed_paper  # the original takes data under reset
    again = clocked(
        original, original.replace("r <=", "s <=").replace("reg [7:0] r", "reg [7:0] s").replace("q <= r", "q <= s")
    )
    assert again.passed_strict


@pytest.mark.parametrize("latency", [0, 1, 3, 16])
def test_latency_is_found(latency: int) -> None:
    good = "always @(posedge clk) q <= rst ? 8'd0 : d * 8'd3;"
    stages = "".join(
        f"reg [7:0] p{i}; always @(posedge clk) p{i} <= rst ? 8'd0 : {f'p{i - 1}' if i else 'd'};"
        for i in range(latency)
    )
    last = f"p{latency - 1}" if latency else "d"
    found = clocked(good, f"{stages} always @(posedge clk) q <= rst ? 8'd0 : {last} * 8'd3; wire unused;")
    assert found.passed_strict, found.checks
    assert found.latency == latency
    assert found.formal == "proved"


def test_seventeen_cycles_are_too_late() -> None:
    good = "always @(posedge clk) q <= rst ? 8'd0 : d;"
    late = "reg [7:0] p [0:16]; integer i; always @(posedge clk) begin p[0] <= rst ? 0 : d; "
    late += "for (i = 1; i < 17; i = i + 1) p[i] <= rst ? 0 : p[i-1]; q <= rst ? 0 : p[16]; end"
    assert not clocked(good, late).passed_paper


def test_an_earlier_output_is_refused() -> None:
    original = "reg [7:0] p; always @(posedge clk) begin p <= rst ? 8'd0 : d; q <= rst ? 8'd0 : p; end"
    assert not clocked(original, "always @(posedge clk) q <= rst ? 8'd0 : d;").passed_paper


def test_original_that_cannot_be_checked_is_a_tool_error() -> None:
    with pytest.raises(ToolError, match="original"):
        combinational("wire q = ~(q & a[0]); assign y = q; assign z = 0;", "assign y = a; assign z = 0;")
    with pytest.raises(ToolError, match="ports"):
        check_equivalence({"m.v": "module m(input a); endmodule"}, {}, "m", Interface("pipelined", "a", "rst"))


def test_timeout_of_the_front_end_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> None:
        raise ToolTimeout("yosys ran too long", field="yosys", value=1)

    design = load_design("adder32")
    check_equivalence(
        design.files.sources,
        edited("adder32", ("generates  = a & b", "generates  = b & a")),
        design.top,
        design.interface,
    )
    monkeypatch.setattr(equivalence, "elaborate", late)
    with pytest.raises(ToolTimeout):
        check_equivalence(design.files.sources, {"src/a.v": "module adder32; endmodule"}, design.top, design.interface)


def test_formal_can_be_switched_off() -> None:
    found = combinational("assign y = a + b; assign z = 0;", "assign y = b + a; assign z = 0;", formal=False)
    assert found.passed_strict
    assert found.formal == "not attempted: switched off"


def test_unproved_multiplier_is_bounded_in_time() -> None:
    design = load_design("array_mult_16bit")
    text = "module array_mult_16bit(input [15:0] a, b, output [31:0] p); assign p = a * b; endmodule"
    found = check_equivalence(design.files.sources, {"src/m.v": text}, design.top, design.interface, formal_s=3)
    assert found.passed_strict
    assert found.formal == "proved" or found.formal.startswith("not attempted")
