"""Legal rewrites of the PPA designs: other structure, same function. Every one must pass the equivalence check."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edagym.task_assets.ppa.designs import load_design


@dataclass(frozen=True)
class Rewrite:
    """A rewritten design: name, design, its sources, cycles by which it is later, and whether a proof is expected."""

    name: str
    design: str
    sources: dict[str, str]
    latency: int | None
    proved: bool


def edited(design: str, *edits: tuple[str, str]) -> dict[str, str]:
    """Return the sources of a design after edits (old text -> new text), each of which must fit exactly once."""
    sources = dict(load_design(design).files.sources)
    for old, new in edits:
        paths = [path for path, text in sources.items() if old in text]
        assert len(paths) == 1, f"{old!r} is in {paths}"
        assert sources[paths[0]].count(old) == 1, f"{old!r} is there {sources[paths[0]].count(old)} times"
        sources[paths[0]] = sources[paths[0]].replace(old, new)
    return sources


CARRY_SELECT_ADDER = """
module adder32 (input wire [32:1] A, input wire [32:1] B, output wire [32:1] S, output wire C32);
  wire [4:0] c;
  assign c[0] = 1'b0;
  genvar i;
  generate
    for (i = 0; i < 4; i = i + 1) begin : block
      wire [8:0] without = {1'b0, A[8*i+8 -: 8]} + {1'b0, B[8*i+8 -: 8]};
      wire [8:0] with_carry = {1'b0, A[8*i+8 -: 8]} + {1'b0, B[8*i+8 -: 8]} + 9'd1;
      assign {c[i+1], S[8*i+8 -: 8]} = c[i] ? with_carry : without;
    end
  endgenerate
  assign C32 = c[4];
endmodule
"""

PREFIX_ADDER = """
module adder32 (input wire [32:1] A, input wire [32:1] B, output wire [32:1] S, output wire C32);
  wire [31:0] g [0:5];
  wire [31:0] p [0:5];
  assign g[0] = A & B;
  assign p[0] = A ^ B;
  genvar l, i;
  generate
    for (l = 0; l < 5; l = l + 1) begin : level
      for (i = 0; i < 32; i = i + 1) begin : bit_
        if (i >= (1 << l)) begin : merged
          assign g[l+1][i] = g[l][i] | (p[l][i] & g[l][i - (1 << l)]);
          assign p[l+1][i] = p[l][i] & p[l][i - (1 << l)];
        end else begin : kept
          assign g[l+1][i] = g[l][i];
          assign p[l+1][i] = p[l][i];
        end
      end
    end
  endgenerate
  assign S = p[0] ^ {g[5][30:0], 1'b0};
  assign C32 = g[5][31];
endmodule
"""

CARRY_SELECT_SUBTRACTOR = """
module sub_64bit (input wire [63:0] A, input wire [63:0] B, output wire [63:0] result, output wire overflow);
  wire [4:0] c;
  assign c[0] = 1'b1;
  genvar i;
  generate
    for (i = 0; i < 4; i = i + 1) begin : block
      wire [16:0] lower = {1'b0, A[16*i +: 16]} + {1'b0, ~B[16*i +: 16]};
      wire [16:0] upper = lower + 17'd1;
      assign {c[i+1], result[16*i +: 16]} = c[i] ? upper : lower;
    end
  endgenerate
  assign overflow = (A[63] ^ B[63]) & (A[63] ^ result[63]);
endmodule
"""

ONE_HOT_GCD = (
    (
        "localparam [1:0] IDLE = 2'd0, CALC = 2'd1, DONE = 2'd2;",
        "localparam [2:0] IDLE = 3'b001, CALC = 3'b010, DONE = 3'b100;",
    ),
    ("reg [1:0] state;", "reg [2:0] state;"),
    ("reg [1:0] state_next;", "reg [2:0] state_next;"),
)

# Swapping and subtracting in one cycle: fewer cycles for the same answers.
ONE_STEP_GCD = """
module gcd (
  input wire clk, input wire reset, input wire [31:0] req_msg, input wire req_val, output wire req_rdy,
  output wire [15:0] resp_msg, output wire resp_val, input wire resp_rdy
);
  reg busy;
  reg [15:0] a, b;
  wire [16:0] ab = {1'b0, a} - {1'b0, b};
  wire [16:0] ba = {1'b0, b} - {1'b0, a};
  assign req_rdy = !busy;
  assign resp_val = busy && (b == 16'd0 || a == 16'd0);
  assign resp_msg = a | b;
  always @(posedge clk)
    if (reset) busy <= 1'b0;
    else if (!busy) busy <= req_val;
    else if (resp_val && resp_rdy) busy <= 1'b0;
  always @(posedge clk)
    if (!busy) {a, b} <= req_msg;
    else if (!resp_val) begin
      if (ab[16]) b <= ba[15:0];
      else a <= ab[15:0];
    end
endmodule
"""

LATER_ADDER_PIPE = (
    ("output wire [64:0] result", "output reg [64:0] result"),
    ("output reg         o_en", "output reg         o_en_late"),
    ("  reg en1, en2, en3;", "  reg en1, en2, en3, o_en;"),
    (
        "  assign result = {c4, s4, s3_ff1, s2_ff2, s1_ff3};",
        """  always @(posedge clk or negedge rst_n)
    if (!rst_n) {result, o_en_late} <= 66'd0;
    else {result, o_en_late} <= {c4, s4, s3_ff1, s2_ff2, s1_ff3, o_en};""",
    ),
)


def _swapped_names(sources: dict[str, str]) -> dict[str, str]:
    """The output stage above needs the port's name for the late flag."""
    return {
        k: v.replace("o_en_late", "O").replace("o_en", "o_en_early").replace("O", "o_en") for k, v in sources.items()
    }


EARLY_OPERAND_ADDER_PIPE = (
    ("  input  wire        i_en,\n", "  input  wire        i_en_now,\n"),
    ("  input  wire [63:0] adda,\n", "  input  wire [63:0] adda_now,\n"),
    ("  input  wire [63:0] addb,\n", "  input  wire [63:0] addb_now,\n"),
    (
        "  reg en1, en2, en3;",
        """  reg en1, en2, en3, i_en;
  reg [63:0] adda, addb;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) {i_en, adda, addb} <= 129'd0;
    else {i_en, adda, addb} <= {i_en_now, adda_now, addb_now};""",
    ),
)


def _late_inputs(sources: dict[str, str]) -> dict[str, str]:
    """Give the ports their names back after the input stage above."""
    out = {}
    for path, text in sources.items():
        for name in ("i_en", "adda", "addb"):
            text = text.replace(f"{name}_now", f"@{name}").replace(name, f"{name}_q").replace(f"@{name}_q", name)
        out[path] = text
    return out


CARRY_SELECT_STAGE = (
    (
        "{c2, s2} <= a2_ff1 + b2_ff1 + c1;",
        """begin
      {c2, s2[15:8]} <= lower[8] ? high_1 : high_0;
      s2[7:0] <= lower[7:0];
    end""",
    ),
    (
        "  // Finished sums wait",
        """  wire [8:0] lower = a2_ff1[7:0] + b2_ff1[7:0] + c1;
  wire [8:0] high_0 = a2_ff1[15:8] + b2_ff1[15:8];
  wire [8:0] high_1 = a2_ff1[15:8] + b2_ff1[15:8] + 9'd1;

  // Finished sums wait""",
    ),
)

RETIMED_MULTIPLIER = (
    ("reg  [15:0] sum_low, sum_high;", "reg  [15:0] sum_low, sum_high;\n  reg  [15:0] low, high, mid;"),
    (
        "      sum_low  <= sum_01 + sum_23;\n      sum_high <= sum_45 + sum_67;\n",
        "      sum_low  <= sum_01 + sum_23 + sum_45;\n      sum_high <= sum_67;\n",
    ),
    ("\n  reg  [15:0] low, high, mid;", ""),
)

BEHAVIOURAL_MULTIPLIER = """
module multi_pipe_8bit (
  input wire clk, input wire rst_n, input wire mul_en_in, input wire [7:0] mul_a, input wire [7:0] mul_b,
  output wire mul_en_out, output wire [15:0] mul_out
);
  reg [4:0] en;
  reg [7:0] a, b;
  reg [15:0] p [0:3];
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      en <= 5'd0;
      {a, b} <= 16'd0;
      p[0] <= 16'd0;
      p[1] <= 16'd0;
      p[2] <= 16'd0;
      p[3] <= 16'd0;
    end else begin
      en <= {en[3:0], mul_en_in};
      {a, b} <= mul_en_in ? {mul_a, mul_b} : 16'd0;
      p[0] <= a * b;
      p[1] <= p[0];
      p[2] <= p[1];
      p[3] <= p[2];
    end
  assign mul_en_out = en[4];
  assign mul_out = p[3] & {16{en[4]}};
endmodule
"""

DEEPER_MULTIPLIER = (
    ("reg  [4:0]  en;", "reg  [5:0]  en;"),
    ("en <= 5'd0", "en <= 6'd0"),
    ("en <= {en[3:0], mul_en_in}", "en <= {en[4:0], mul_en_in}"),
    ("  reg  [15:0] product;", "  reg  [15:0] product;\n  reg  [7:0] low;\n  reg [8:0] upper_low, upper_high;"),
    (
        "      product <= 16'd0;\n    end",
        "      product <= 16'd0;\n      {low, upper_low, upper_high} <= 26'd0;\n      carry <= 1'b0;\n    end",
    ),
    (
        "      product  <= sum_low + sum_high;",
        "      {carry, low} <= sum_low[7:0] + sum_high[7:0];\n      upper_low <= sum_low[15:8];\n"
        "      upper_high <= sum_high[15:8];\n      product <= {upper_low[7:0] + upper_high[7:0] + carry, low};",
    ),
    ("  integer i;", "  reg carry;\n  integer i;"),
    ("  assign mul_en_out = en[4];", "  assign mul_en_out = en[5];"),
    ("  assign mul_out    = en[4] ?", "  assign mul_out    = en[5] ?"),
)

UNMASKED_MULTIPLIER = (("en[4] ? product : 16'd0", "product"),)

GRAY_DETECTOR = (
    (
        "S_NONE = 3'd0, S_1 = 3'd1, S_10 = 3'd2, S_100 = 3'd3, S_1001 = 3'd4",
        "S_NONE = 3'b000, S_1 = 3'b001, S_10 = 3'b011, S_100 = 3'b010, S_1001 = 3'b110",
    ),
)

SHIFTED_DETECTOR = """
module sequence_detector (input wire clk, input wire rst, input wire in, output wire match);
  reg [4:0] seen;
  always @(posedge clk)
    if (rst) seen <= 5'd0;
    else seen <= {seen[3:0], in};
  assign match = (seen == 5'b10011);
endmodule
"""

# The eight rows one after the other, instead of as a tree.
CHAINED_BOOTH = (("p <= (sum_01 + sum_23) + (sum_45 + sum_67)", "p <= sum_01 + (sum_23 + (sum_45 + sum_67))"),)

# The table of the register-transfer loop, unrolled two bits at a time.
TWO_BIT_CRC = (
    (
        """    for (i = 0; i < 32; i = i + 1)
      next = next[0] ? ({1'b0, next[31:1]} ^ POLYNOMIAL) : {1'b0, next[31:1]};""",
        """    for (i = 0; i < 16; i = i + 1)
      next = {2'b00, next[31:2]} ^ ({32{next[0]}} & {1'b0, POLYNOMIAL[31:1]})
           ^ ({32{next[1] ^ (next[0] & POLYNOMIAL[0])}} & POLYNOMIAL);""",
    ),
)

# Rounding and special values in a stage of their own.
DEEPER_FLOAT = (
    ("output reg  [31:0] z\n", "output reg  [31:0] z_late\n"),
    (
        "  wire [7:0] a_exponent",
        "  reg [31:0] z;\n  always @(posedge clk) z_late <= rst ? 32'd0 : z;\n  wire [7:0] a_exponent",
    ),
)


def _late_float() -> dict[str, str]:
    text = edited("float_multi", *DEEPER_FLOAT)["src/float_multi.v"]
    return {"src/float_multi.v": re.sub(r"\bz\b", "z_early", text).replace("z_late", "z")}


REWRITES = (
    Rewrite(
        "multi_pipe product not masked", "multi_pipe_8bit", edited("multi_pipe_8bit", *UNMASKED_MULTIPLIER), 0, True
    ),
    Rewrite("detector with Gray code", "sequence_detector", edited("sequence_detector", *GRAY_DETECTOR), 0, True),
    Rewrite("detector as shift register", "sequence_detector", {"src/d.v": SHIFTED_DETECTOR}, 0, True),
    Rewrite("booth rows in a chain", "booth_mult_16bit", edited("booth_mult_16bit", *CHAINED_BOOTH), 0, False),
    Rewrite("crc two bits at a time", "crc32", edited("crc32", *TWO_BIT_CRC), 0, True),
    Rewrite("float_multi output stage", "float_multi", _late_float(), 1, True),
    Rewrite("adder32 carry select", "adder32", {"src/adder32.v": CARRY_SELECT_ADDER}, 0, True),
    Rewrite("adder32 parallel prefix", "adder32", {"src/adder32.v": PREFIX_ADDER}, 0, True),
    Rewrite("sub_64bit carry select", "sub_64bit", {"src/sub_64bit.v": CARRY_SELECT_SUBTRACTOR}, 0, True),
    Rewrite("gcd one-hot states", "gcd", edited("gcd", *ONE_HOT_GCD), None, True),
    Rewrite("gcd swap and subtract at once", "gcd", {"src/gcd.v": ONE_STEP_GCD}, None, False),
    Rewrite(
        "adder_pipe output stage",
        "adder_pipe_64bit",
        _swapped_names(edited("adder_pipe_64bit", *LATER_ADDER_PIPE)),
        1,
        True,
    ),
    Rewrite(
        "adder_pipe input stage",
        "adder_pipe_64bit",
        _late_inputs(edited("adder_pipe_64bit", *EARLY_OPERAND_ADDER_PIPE)),
        1,
        True,
    ),
    Rewrite("adder_pipe carry select", "adder_pipe_64bit", edited("adder_pipe_64bit", *CARRY_SELECT_STAGE), 0, True),
    Rewrite("multi_pipe retimed sums", "multi_pipe_8bit", edited("multi_pipe_8bit", *RETIMED_MULTIPLIER), 0, True),
    Rewrite("multi_pipe product first", "multi_pipe_8bit", {"src/m.v": BEHAVIOURAL_MULTIPLIER}, 0, False),
    Rewrite("multi_pipe deeper", "multi_pipe_8bit", edited("multi_pipe_8bit", *DEEPER_MULTIPLIER), 1, False),
)
