"""Restructured sources for the re-architecture tasks (Performance L3): what no knob does.

Each takes the place of one design's only source from ``module`` on. All keep the function under the strict check; what
is later by some cycles says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edagym.task_assets.ppa.designs import RtlDesign

BOOTH_SUMS = (
    """\
  always @(posedge clk)
    if (rst) p <= 32'd0;
    else     p <= (sum_01 + sum_23) + (sum_45 + sum_67);
""",
    """\
  // Each level of the tree of sums has a stage of its own.
  reg [31:0] s_01, s_23, s_45, s_67, s_03, s_47;
  always @(posedge clk)
    if (rst) {s_01, s_23, s_45, s_67, s_03, s_47, p} <= 224'd0;
    else     {s_01, s_23, s_45, s_67, s_03, s_47, p} <= {sum_01, sum_23, sum_45, sum_67, s_01 + s_23, s_45 + s_67,
                                                        s_03 + s_47};
""",
)

RADIX2_DIV = """\
module radix2_div (
  input  wire        clk,
  input  wire        rst,
  input  wire        req_valid,
  output wire        req_ready,
  input  wire        is_signed,
  input  wire [15:0] dividend,
  input  wire [15:0] divisor,
  output wire        res_valid,
  input  wire        res_ready,
  output wire [15:0] quotient,
  output wire [15:0] remainder
);
  // Signs are taken off in a cycle after the request and put back in a cycle before the response.
  reg        preparing, busy, fixing, finished;
  reg [3:0]  count;
  reg        with_sign, negate_quotient, negate_remainder;
  reg [15:0] denominator, partial, shifted;

  wire        dividend_negative = with_sign && shifted[15];
  wire        divisor_negative  = with_sign && denominator[15];
  wire [16:0] trial = {partial, shifted[15]};
  wire [16:0] difference = trial - {1'b0, denominator};
  wire        fits = !difference[16];

  assign req_ready = !(preparing || busy || fixing || finished);
  assign res_valid = finished;
  assign quotient  = shifted;
  assign remainder = partial;

  always @(posedge clk)
    if (rst) {preparing, busy, fixing, finished, count} <= 8'd0;
    else begin
      preparing <= req_ready && req_valid;
      fixing    <= busy && (count == 4'd0);
      if (preparing) busy <= 1'b1;
      else if (count == 4'd0) busy <= 1'b0;
      if (fixing) finished <= 1'b1;
      else if (res_ready) finished <= 1'b0;
      count <= busy ? count - 4'd1 : 4'd15;
    end

  always @(posedge clk)
    if (req_ready) begin
      with_sign   <= is_signed;
      denominator <= divisor;
      shifted     <= dividend;
      partial     <= 16'd0;
    end else if (preparing) begin
      negate_quotient  <= (dividend_negative != divisor_negative) && (denominator != 16'd0);
      negate_remainder <= dividend_negative;
      if (divisor_negative)  denominator <= -denominator;
      if (dividend_negative) shifted <= -shifted;
    end else if (busy) begin
      partial <= fits ? difference[15:0] : trial[15:0];
      shifted <= {shifted[14:0], fits};
    end else if (fixing) begin
      if (negate_quotient)  shifted <= -shifted;
      if (negate_remainder) partial <= -partial;
    end
endmodule
"""

FIXED_POINT_ADDER = """\
module fixed_point_adder (
  input  wire        clk,
  input  wire        rst,
  input  wire [31:0] a,
  input  wire [31:0] b,
  output reg  [31:0] c,
  output reg         saturated
);
  reg [31:0] x;
  reg [31:0] y;

  // Sum and both differences have a stage of their own; the selection comes after it.
  reg  [31:0] total, forward, backward;
  reg         x_sign, y_sign;
  wire        same_sign = (x_sign == y_sign);
  wire        x_larger  = !forward[31];
  wire        overflow  = same_sign && total[31];
  wire [30:0] gap       = x_larger ? forward[30:0] : backward[30:0];
  wire [30:0] magnitude = !same_sign ? gap : overflow ? 31'h7fffffff : total[30:0];
  wire        sign      = (magnitude != 31'd0) && (same_sign || x_larger ? x_sign : y_sign);

  always @(posedge clk)
    if (rst) begin
      {x, y} <= 64'd0;
      {x_sign, y_sign, total, forward, backward} <= 98'd0;
      {c, saturated} <= 33'd0;
    end else begin
      {x, y} <= {a, b};
      {x_sign, y_sign} <= {x[31], y[31]};
      total <= {1'b0, x[30:0]} + {1'b0, y[30:0]};
      forward <= {1'b0, x[30:0]} - {1'b0, y[30:0]};
      backward <= {1'b0, y[30:0]} - {1'b0, x[30:0]};
      {c, saturated} <= {sign, magnitude, overflow};
    end
endmodule
"""

ADDER_PIPE_64BIT = """\
module adder_pipe_64bit (
  input  wire        clk,
  input  wire        rst_n,
  input  wire        i_en,
  input  wire [63:0] adda,
  input  wire [63:0] addb,
  output wire [64:0] result,
  output wire        o_en
);
  // Eight stages of eight bits. Stage k works k cycles after the operands came in.
  reg [7:0] en;
  wire [8:0] active = {en, i_en};
  wire [8:0] carry;
  assign carry[0] = 1'b0;
  assign o_en = en[7];
  always @(posedge clk or negedge rst_n)
    if (!rst_n) en <= 8'd0;
    else        en <= {en[6:0], i_en};

  genvar k, d;
  generate
    for (k = 0; k < 8; k = k + 1) begin : stage
      wire [15:0] operands [0:k];
      assign operands[0] = {adda[8*k +: 8], addb[8*k +: 8]};
      for (d = 0; d < k; d = d + 1) begin : early
        reg [15:0] held;
        always @(posedge clk or negedge rst_n)
          if (!rst_n) held <= 16'd0;
          else        held <= operands[d];
        assign operands[d+1] = held;
      end
      reg [8:0] sum;
      always @(posedge clk or negedge rst_n)
        if (!rst_n)         sum <= 9'd0;
        else if (active[k]) sum <= operands[k][15:8] + operands[k][7:0] + carry[k];
      assign carry[k+1] = sum[8];
      wire [7:0] finished [0:7-k];
      assign finished[0] = sum[7:0];
      for (d = 0; d < 7 - k; d = d + 1) begin : late
        reg [7:0] held;
        always @(posedge clk or negedge rst_n)
          if (!rst_n) held <= 8'd0;
          else        held <= finished[d];
        assign finished[d+1] = held;
      end
      assign result[8*k +: 8] = finished[7-k];
    end
  endgenerate
  assign result[64] = carry[8];
endmodule
"""

ARRAY_MULT_LAST_ROW = (
    """\
  wire [16:0] ripple;
  assign ripple[0] = 1'b0;
  generate
    for (j = 0; j < 16; j = j + 1) begin : last
      wire upper = (j == 15) ? 1'b0 : sum[15][(j == 15) ? 15 : j + 1];
      full_adder cell_ (.a(upper), .b(carry[15][j]), .c(ripple[j]), .sum(p[16+j]), .carry(ripple[j+1]));
    end
  endgenerate
""",
    """\
  // The last row is an adder that synthesis may build as a parallel-prefix one.
  assign p[31:16] = {1'b0, sum[15][15:1]} + carry[15];
""",
)


@dataclass(frozen=True)
class Rewrite:
    """A restructuring of one design.

    Attributes:
        design: Name of the design.
        kind: What it is, in a few words.
        new: Text in place of the source's modules, or a passage and what takes its place.
    """

    design: str
    kind: str
    new: str | tuple[str, str]

    def edit(self, rtl: RtlDesign) -> Mapping[str, Any]:
        """Return the edit, JSON form."""
        path, text = next(iter(rtl.files.sources.items()))
        old, new = (text[text.index("module ") :], self.new) if isinstance(self.new, str) else self.new
        return {"op": "edit_file", "path": path, "old": old, "new": new}


REWRITES = (
    Rewrite("booth_mult_16bit", "pipelined: each level of the tree of sums apart", BOOTH_SUMS),
    Rewrite("radix2_div", "more states: signs are handled in cycles of their own", RADIX2_DIV),
    Rewrite("fixed_point_adder", "pipelined: sums and selection apart", FIXED_POINT_ADDER),
    Rewrite("adder_pipe_64bit", "pipelined: eight stages of eight bits", ADDER_PIPE_64BIT),
    Rewrite("array_mult_16bit", "last row by a parallel-prefix adder instead of a ripple", ARRAY_MULT_LAST_ROW),
)
