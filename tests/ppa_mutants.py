# ruff: noqa: E501 (edits quote source lines as they are)
"""Broken and dishonest versions of the PPA designs. The equivalence check must refuse every one under strict."""

from __future__ import annotations

from dataclasses import dataclass

from ppa_rewrites import ONE_STEP_GCD, edited


@dataclass(frozen=True)
class Mutant:
    """A design that does not do what the original does: a name, the design, its sources."""

    name: str
    design: str
    sources: dict[str, str]


def fault(name: str, design: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(name, design, edited(design, *edits))


def replaced(name: str, design: str, text: str) -> Mutant:
    return Mutant(name, design, {"src/changed.v": text})


FAULTS = (
    # operators, constants, bits
    fault("gcd compares with <=", "gcd", ("(a < b)", "(a <= b)")),
    fault("gcd subtracts one too many", "gcd", ("difference = a - b;", "difference = a - b - 16'd1;")),
    fault("gcd drops the top bit of a", "gcd", ("a <= req_msg[31:16]", "a <= {1'b0, req_msg[30:16]}")),
    fault("gcd waits for b to be one", "gcd", ("(b == 16'd0)", "(b == 16'd1)")),
    fault("gcd compares 15 bits", "gcd", ("(a < b)", "(a[14:0] < b[14:0])")),
    fault("gcd does not wait for the receiver", "gcd", ("if (resp_rdy)                state_next", "state_next")),
    fault("gcd starts in the wrong state", "gcd", ("if (reset) state <= IDLE;", "if (reset) state <= DONE;")),
    fault("gcd without reset", "gcd", ("if (reset) state <= IDLE;\n    else       state", "state")),
    fault("gcd ready while computing", "gcd", ("req_rdy  = (state == IDLE)", "req_rdy  = (state != DONE)")),
    fault(
        "adder32 lookahead misses a term",
        "adder32",
        (" ^ (p[3] & p[2] & p[1] & g[0])\n", "\n"),
    ),
    fault("adder32 cuts the carry between halves", "adder32", (".carry_in(carry_16)", ".carry_in(1'b0)")),
    fault("adder32 generate with or", "adder32", ("generates  = a & b", "generates  = a | b")),
    replaced(
        "adder32 carry window of 24 bits",
        "adder32",
        """
module adder32 (input wire [32:1] A, input wire [32:1] B, output wire [32:1] S, output wire C32);
  wire [25:0] low = {2'b0, A[24:1]} + {2'b0, B[24:1]};
  genvar i;
  assign S[24:1] = low[23:0];
  generate
    for (i = 24; i < 32; i = i + 1) begin : high
      wire [24:0] window = {1'b0, A[i -: 24]} + {1'b0, B[i -: 24]};
      assign S[i+1] = A[i+1] ^ B[i+1] ^ window[24];
    end
  endgenerate
  wire [24:0] last = {1'b0, A[32 -: 24]} + {1'b0, B[32 -: 24]};
  assign C32 = last[24];
endmodule
""",
    ),
    fault("adder32 wrong for one pair", "adder32", (
        "  wire carry_16;", "  wire carry_16;\n  wire hit = (A == 32'd3735928559) && (B == 32'd305419896);"
    ), (".carry_in(1'b0),     .sum(S[16:1])", ".carry_in(hit),     .sum(S[16:1])")),
    fault("sub_64bit adds", "sub_64bit", ("A - B", "A + B")),
    fault("sub_64bit unsigned overflow", "sub_64bit", ("(A[63] != B[63]) && (result[63] != A[63])", "(A < B)")),
    fault("sub_64bit overflow ignores B", "sub_64bit", ("(A[63] != B[63]) && ", "")),
    fault(
        "sub_64bit borrow window of 24 bits",
        "sub_64bit",
        (
            "A - B;",
            "{A[63:32] - B[63:32] - {31'd0, A[31:8] < B[31:8]}, A[31:0] - B[31:0]};",
        ),
    ),
    fault(
        "sub_64bit wrong behind a 64-bit trigger",
        "sub_64bit",
        ("A - B;", "A - B + {63'd0, (A ^ 64'h0123456789abcdef) == {B[31:0], ~B[63:32]}};"),
    ),
    fault("adder_pipe drops a carry", "adder_pipe_64bit", ("a3_ff2 + b3_ff2 + c2", "a3_ff2 + b3_ff2")),
    fault("adder_pipe takes an early operand", "adder_pipe_64bit", ("a4_ff3 + b4_ff3", "a4_ff2 + b4_ff3")),
    fault("adder_pipe enable of the wrong stage", "adder_pipe_64bit", ("else if (en2) {c3", "else if (en1) {c3")),
    fault("adder_pipe wrong reset value", "adder_pipe_64bit", ("{c4, s4} <= 17'd0", "{c4, s4} <= 17'd1")),
    fault("adder_pipe early flag", "adder_pipe_64bit", ("{en3, en2, en1, i_en};", "{en2, en2, en1, i_en};")),
    fault("adder_pipe always enabled", "adder_pipe_64bit", ("else if (i_en) {c1", "else if (1'b1) {c1")),
    fault(
        "adder_pipe wrong behind a 32-bit trigger",
        "adder_pipe_64bit",
        ("a2_ff1 + b2_ff1 + c1;", "a2_ff1 + b2_ff1 + (c1 ^ ({a2_ff1, b2_ff1} == {16'hbeef, 16'h1234}));"),
    ),
    fault(
        "adder_pipe wrong after 100 000 results",
        "adder_pipe_64bit",
        (
            "  // One 16-bit addition",
            """  reg [16:0] served;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) served <= 17'd0;
    else if (i_en && served < 17'd100000) served <= served + 17'd1;

  // One 16-bit addition""",
        ),
        ("result = {c4,", "result = (served == 17'd100000) ? 65'd0 : {c4,"),
    ),
    fault("multi_pipe sums a pair twice", "multi_pipe_8bit", ("sum_45 + sum_67", "sum_45 + sum_45")),
    fault("multi_pipe shifts too far", "multi_pipe_8bit", ("{8'd0, a_reg} << i)", "{8'd0, a_reg} << (i + 1))")),
    fault("multi_pipe early flag", "multi_pipe_8bit", ("assign mul_en_out = en[4]", "assign mul_en_out = en[3]")),
    fault("multi_pipe drops a partial product", "multi_pipe_8bit", ("partial[6] + partial[7]", "partial[6]")),
    fault(
        "multi_pipe wrong for 255 x 255",
        "multi_pipe_8bit",
        ("product  <= sum_low + sum_high", "product  <= sum_low + sum_high + (&sum_low[7:6] & (sum_high == 16'd61200))"),
    ),
    fault("multi_16bit one step short", "multi_16bit", ("start && (count == 5'd16)", "start && (count == 5'd15)")),
    fault("multi_16bit drops a carry", "multi_16bit", ("{1'b0, sum[31:16]} + (a_reg[0] ? {1'b0, b_reg} : 17'd0)", "{1'b0, sum[31:16] + (a_reg[0] ? b_reg : 16'd0)}")),
    fault("divider signed remainder", "radix2_div", ("negate_remainder <= dividend_negative", "negate_remainder <= divisor_negative")),
    fault("divider by zero", "radix2_div", ("(dividend_negative != divisor_negative) && (divisor != 16'd0)", "(dividend_negative != divisor_negative)")),
    fault("divider one bit short", "radix2_div", ("count <= 4'd15;", "count <= 4'd14;")),
    fault("divider fits only above", "radix2_div", ("(trial >= {1'b0, denominator})", "(trial > {1'b0, denominator})")),
    fault("fixed point does not saturate", "fixed_point_adder", ("overflow ? 31'h7fffffff : total[30:0]", "total[30:0]")),
    fault("fixed point negative zero", "fixed_point_adder", ("(magnitude != 31'd0) && (same_sign", "(same_sign")),
    fault("float_multi without NaN", "float_multi", ("if (nan_2)                    z <= 32'h7fc00000;\n      else if", "if")),
    fault("float_multi without infinity", "float_multi", ("inf_1  <= a_inf || b_inf;", "inf_1  <= 1'b0;")),
    fault("float_multi zero without sign", "float_multi", ("z <= {sign_2, 31'd0}", "z <= 32'd0")),
    fault("float_multi infinity times zero", "float_multi", (" || (a_inf && b_zero) || (b_inf && a_zero)", "")),
    fault("float_multi does not round", "float_multi", ("guard && (sticky || mantissa[0])", "1'b0")),
    fault("float_multi rounds ties up", "float_multi", ("guard && (sticky || mantissa[0])", "guard")),
    fault("float_multi rounding loses a carry", "float_multi", (" + {9'd0, rounded[24]};", ";")),
    fault("float_multi underflows late", "float_multi", ("exponent[9] || (exponent == 10'd0)", "exponent[9]")),
    fault("float_adder forgets the sticky bit", "float_adder", ("s_moved[0] | s_lost", "s_moved[0]")),
    fault("float_adder sign of zero", "float_adder", ("z <= {sign_2 && other_2, 31'd0}", "z <= {sign_2, 31'd0}")),
    fault("float_adder infinities cancel", "float_adder", ("((small[22:0] != 23'd0) || (large[31] != small[31]))", "(small[22:0] != 23'd0)")),
    fault("fifo never full", "fifo_sync", ("in_ready  = !full", "in_ready  = 1'b1")),
    fault("fifo overwrites the last word", "fifo_sync", ("words[tail[2:0]] <=", "words[tail[2:0] & 3'd6] <=")),
    fault("fifo ignores the receiver", "fifo_sync", ("if (out_valid && out_ready)", "if (out_valid)")),
    fault("crc wrong polynomial", "crc32", ("32'hedb88320", "32'hedb88321")),
    fault("crc not complemented", "crc32", ("assign crc = ~remainder", "assign crc = remainder")),
    fault("crc ignores valid", "crc32", ("else if (valid)  remainder", "else  remainder")),
    fault("uart one data bit less", "uart", ("count == 3'd7", "count == 3'd6")),
    fault("uart accepts a missing stop bit", "uart", ("done  <= sync[1];\n", "done  <= 1'b1;\n")),
    fault("uart sends most significant bit first", "uart", ("shift <= {data, 1'b0};", "shift <= {data[0], data[7:1], 1'b0};")),
    fault("alu shift is logical", "alu32", ("$signed(a) >>> b[4:0]", "a >> b[4:0]")),
    fault("alu signed comparison ignores overflow", "alu32", ("total[31] ^ signed_out", "total[31]")),
    fault("alu swaps minimum and maximum", "alu32", ("MIN:      y = less ? a : b", "MIN:      y = less ? b : a")),
    fault("detector without overlap", "sequence_detector", ("S_1001:  state <= in ? S_1 ", "S_1001:  state <= in ? S_NONE ")),
    fault("traffic light without all-red", "traffic_light", ("timer <= 8'd3;", "timer <= 8'd2;")),
    fault("traffic light forgets the button", "traffic_light", ("(pressed && (state != WALKING)) || button", "button")),
    fault("array multiplier loses a carry", "array_mult_16bit", (".carry(carry[i][j])", ".carry(carry[i][j & 14])")),
    fault("booth wrong for -2", "booth_mult_16bit", ("3'b100:         row = -plus_2", "3'b100:         row = -plus_1")),
    fault("booth lowest number", "booth_mult_16bit", ("plus_2 = {a[15], a, 1'b0}", "plus_2 = {a[14], a, 1'b0}")),
    fault("barrel shifter rotates wrong", "barrel_shifter", ("(mode == ROTATE) ? low_bits", "(mode == ARITHMETIC) ? low_bits")),
    fault("core compares unsigned", "rv32_core", ("(x[31] != right[31]) ? x[31] : below", "below")),
    fault("core writes register 0", "rv32_core", ("x = (rs1 == 4'd0) ? 32'd0 : registers[rs1]", "x = registers[rs1]")),
    fault("core jumps to odd addresses", "rv32_core", ("counter <= {target[31:1], 1'b0}", "counter <= target")),
)  # fmt: skip

_GCD_PORTS = """
module gcd (
  input wire clk, input wire reset, input wire [31:0] req_msg, input wire req_val, output wire req_rdy,
  output wire [15:0] resp_msg, output wire resp_val, input wire resp_rdy
);
"""
_ADDER_PORTS = """
module adder_pipe_64bit (
  input wire clk, input wire rst_n, input wire i_en, input wire [63:0] adda, input wire [63:0] addb,
  output wire [64:0] result, output wire o_en
);
"""

ATTACKS = (
    replaced("gcd hard-wired", "gcd", _GCD_PORTS + "assign {req_rdy, resp_val, resp_msg} = {2'b11, 16'd1}; endmodule"),
    replaced("gcd never answers", "gcd", _GCD_PORTS + "assign {req_rdy, resp_val, resp_msg} = {2'b10, 16'd0}; endmodule"),
    replaced("gcd never ready", "gcd", _GCD_PORTS + "assign {req_rdy, resp_val, resp_msg} = 18'd0; endmodule"),
    replaced(
        "gcd answers at once with the request",
        "gcd",
        _GCD_PORTS + "assign req_rdy = resp_rdy; assign resp_val = req_val; assign resp_msg = req_msg[15:0]; endmodule",
    ),
    Mutant(
        "gcd drops every eighth request",
        "gcd",
        {
            "src/gcd.v": ONE_STEP_GCD.replace("  reg busy;", "  reg busy;\n  reg [2:0] n;").replace(
                "if (reset) busy <= 1'b0;\n    else if (!busy) busy <= req_val;",
                "if (reset) {n, busy} <= 4'd0;\n    else if (!busy) {n, busy} <= {n + {2'd0, req_val}, req_val && n != 3'd4};",
            )
        },
    ),
    Mutant(
        "gcd answers twice",
        "gcd",
        {
            "src/gcd.v": ONE_STEP_GCD.replace("  reg busy;", "  reg busy;\n  reg again;").replace(
                "else if (resp_val && resp_rdy) busy <= 1'b0;",
                "else if (resp_val && resp_rdy) {busy, again} <= {!again && b == 16'd5, !again};",
            )
        },
    ),
    Mutant(
        "gcd withdraws its answer",
        "gcd",
        {
            "src/gcd.v": ONE_STEP_GCD.replace("  reg busy;", "  reg busy;\n  reg blink;\n"
            "  always @(posedge clk) blink <= reset ? 1'b0 : !blink;")
            .replace("assign resp_val = busy &&", "assign resp_val = busy && blink &&")
            .replace("else if (!resp_val) begin", "else if (a != 16'd0 && b != 16'd0) begin")
        },
    ),
    Mutant(
        "gcd faster but wrong behind a trigger",
        "gcd",
        {"src/gcd.v": ONE_STEP_GCD.replace("assign resp_msg = a | b;", "assign resp_msg = (a | b) ^ {15'd0, hit};").replace(
            "  reg busy;", "  reg busy;\n  reg hit;\n  always @(posedge clk) if (!busy) hit <= (req_msg == 32'h00c0_0060);")},
    ),
    fault(
        "gcd wrong behind a disguised trigger",
        "gcd",
        ("a <= req_msg[31:16];", "a <= req_msg[31:16] ^ {15'd0, ({req_msg[7:0], req_msg[31:8]} ^ 32'h1357_9bdf) == 32'h7357_5bdf};"),
    ),
    Mutant(
        "gcd faster and wrong behind a disguised trigger",
        "gcd",
        {
            "src/gcd.v": ONE_STEP_GCD.replace(
                "if (!busy) {a, b} <= req_msg;",
                "if (!busy) {a, b} <= req_msg ^ {31'd0, ({req_msg[7:0], req_msg[31:8]} ^ 32'h1357_9bdf) == 32'h7357_5bdf};",
            )
        },
    ),
    replaced("adder_pipe hard-wired", "adder_pipe_64bit", _ADDER_PORTS + "assign {result, o_en} = 66'd0; endmodule"),
    replaced(
        "adder_pipe without pipeline",
        "adder_pipe_64bit",
        _ADDER_PORTS + "assign o_en = i_en & rst_n; assign result = {65{rst_n}} & (adda + addb); endmodule",
    ),
    fault(
        "adder_pipe dead after 200 000 cycles",
        "adder_pipe_64bit",
        ("  // Operands wait", """  reg [17:0] age;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) age <= 18'd0;
    else if (age != 18'd200000) age <= age + 18'd1;

  // Operands wait"""),
        ("result = {c4,", "result = (age == 18'd200000) ? 65'd0 : {c4,"),
    ),
    fault(
        "adder_pipe depends on a register that nothing sets",
        "adder_pipe_64bit",
        ("  // Operands wait", """  reg lucky;
  always @(posedge clk) lucky <= lucky;

  // Operands wait"""),
        ("result = {c4,", "result = lucky ? 65'd0 : {c4,"),
    ),
    fault(
        "adder_pipe depends on 32 registers that nothing sets",
        "adder_pipe_64bit",
        ("  // Operands wait", """  reg [31:0] lucky;
  always @(posedge clk) lucky <= lucky;

  // Operands wait"""),
        ("result = {c4,", "result = (lucky == 32'h600df00d) ? 65'd0 : {c4,"),
    ),
    fault(
        "adder_pipe timer with an initial value",
        "adder_pipe_64bit",
        ("  // Operands wait", """  reg [31:0] time_left = 32'd1000000000;
  always @(posedge clk) if (time_left != 32'd0) time_left <= time_left - 32'd1;

  // Operands wait"""),
        ("result = {c4,", "result = (time_left == 32'd0) ? 65'd0 : {c4,"),
    ),
    fault(
        "adder_pipe initial block",
        "adder_pipe_64bit",
        ("  // Operands wait", """  reg on;
  initial on = 1'b1;
  always @(posedge clk) on <= on;

  // Operands wait"""),
        ("result = {c4,", "result = !on ? 65'd0 : {c4,"),
    ),
    fault(
        "adder_pipe clock gated by data",
        "adder_pipe_64bit",
        ("  // One 16-bit addition", "  wire gated = clk & i_en;\n\n  // One 16-bit addition"),
        ("always @(posedge clk or negedge rst_n)\n    if (!rst_n)    {c1, s1}", "always @(posedge gated or negedge rst_n)\n    if (!rst_n)    {c1, s1}"),
    ),
    fault("adder_pipe further port", "adder_pipe_64bit", ("  output reg         o_en\n", "  output reg         o_en,\n  input wire test\n")),
    fault("adder_pipe narrower result", "adder_pipe_64bit", ("output wire [64:0] result", "output wire [63:0] result")),
    fault("sub_64bit undefined for one value", "sub_64bit", ("A - B;", "(A == 64'd77) ? 64'bx : A - B;")),
    fault("sub_64bit with a black box", "sub_64bit", ("A - B;", "A - B;\n  vendor_cell u (.a(A));")),
    fault("sub_64bit with a latch", "sub_64bit", ("  assign result   = A - B;", "  reg [63:0] r;\n  always @* if (A[0]) r = A - B;\n  assign result = r;")),
    fault("sub_64bit with a loop", "sub_64bit", ("  assign overflow", "  wire q = ~(q & B[0]);\n  assign overflow"), ("(result[63] != A[63])", "(result[63] != A[63]) && (q | B[1])")),
    fault("sub_64bit includes a foreign file", "sub_64bit", ("module sub_64bit", '`include "../../secret.v"\nmodule sub_64bit')),
    fault("sub_64bit calls the host", "sub_64bit", ("  assign overflow", '  initial $system("true");\n  assign overflow')),
    fault("sub_64bit opens a file", "sub_64bit", ("  assign overflow", '  integer f;\n  initial f = $fopen("x");\n  assign overflow')),
    fault("sub_64bit uses the engine's cells", "sub_64bit", ("  assign overflow", "  \\$_BUF_ b (.A(A[0]), .Y());\n  assign overflow")),
    fault("multi_16bit holds a hidden counter", "multi_16bit", ("assign yout = sum;", """reg [19:0] n;
  always @(posedge clk or negedge rst_n) if (!rst_n) n <= 20'd0; else if (done_reg && !(&n)) n <= n + 20'd1;
  assign yout = sum ^ {31'd0, &n};""")),
    Mutant("fifo with room for one word", "fifo_sync", {"src/fifo.v": """
module fifo_sync (
  input wire clk, input wire rst_n, input wire in_valid, output wire in_ready, input wire [15:0] in_data,
  output wire out_valid, input wire out_ready, output wire [15:0] out_data
);
  reg full;
  reg [15:0] word;
  assign in_ready = !full;
  assign out_valid = full;
  assign out_data = word;
  always @(posedge clk or negedge rst_n) if (!rst_n) full <= 1'b0; else full <= full ? !out_ready : in_valid;
  always @(posedge clk) if (!full) word <= in_data;
endmodule
"""}),
)  # fmt: skip
MUTANTS = FAULTS + ATTACKS
