// IEEE 754 single-precision adder in three stages, round to nearest even.
// Subnormal operands and results count as zeros of their sign; every NaN result is 32'h7fc00000. An exact zero from
// operands of opposite signs is positive.
module float_adder (
  input  wire        clk,
  input  wire        rst,
  input  wire [31:0] a,
  input  wire [31:0] b,
  output reg  [31:0] z
);
  // Stage 1: larger operand first, the smaller one shifted right to its weight. Three bits follow the mantissa: guard,
  // round, and sticky, which collects all that is shifted out.
  wire        swap     = (b[30:0] > a[30:0]);
  wire [31:0] large    = swap ? b : a;
  wire [31:0] small    = swap ? a : b;
  wire        l_zero   = (large[30:23] == 8'd0);
  wire        s_zero   = (small[30:23] == 8'd0);
  wire [7:0]  distance = large[30:23] - small[30:23];
  wire [26:0] l_full   = l_zero ? 27'd0 : {1'b1, large[22:0], 3'd0};
  wire [26:0] s_full   = s_zero ? 27'd0 : {1'b1, small[22:0], 3'd0};
  wire [26:0] s_moved  = (distance > 8'd26) ? 27'd0 : s_full >> distance;
  wire        s_lost   = (distance > 8'd26) ? (s_full != 27'd0) : ((s_moved << distance) != s_full);
  wire        nan      = ((large[30:23] == 8'hff) && (large[22:0] != 23'd0))
                      || ((large[30:23] == 8'hff) && (small[30:23] == 8'hff)
                          && ((small[22:0] != 23'd0) || (large[31] != small[31])));
  wire        inf      = (large[30:23] == 8'hff);

  reg         sign_1, other_1, nan_1, inf_1;
  reg  [7:0]  exponent_1;
  reg  [26:0] large_1, small_1;

  // Stage 2: sum or difference.
  reg         sign_2, nan_2, inf_2, other_2;
  reg  [7:0]  exponent_2;
  reg  [27:0] total;

  // Stage 3: normalised and rounded.
  reg  [4:0]  zeros;
  integer     i;
  always @* begin
    zeros = 5'd28;
    for (i = 0; i < 28; i = i + 1)
      if (total[i]) zeros = 5'd27 - i[4:0];
  end
  wire [27:0] normal    = total << zeros;
  wire [9:0]  exponent  = {2'd0, exponent_2} + 10'd1 - {5'd0, zeros};
  wire        round_up  = normal[3] && ((normal[2:0] != 3'd0) || normal[4]);
  wire [24:0] rounded   = {1'b0, normal[27:4]} + {24'd0, round_up};
  wire [9:0]  final_exponent = exponent + {9'd0, rounded[24]};
  wire        empty     = (total == 28'd0);
  wire        too_small = final_exponent[9] || (final_exponent == 10'd0);
  wire        too_large = !final_exponent[9] && (final_exponent >= 10'd255);

  always @(posedge clk)
    if (rst) begin
      {sign_1, other_1, nan_1, inf_1} <= 4'd0;
      {sign_2, other_2, nan_2, inf_2} <= 4'd0;
      {exponent_1, exponent_2} <= 16'd0;
      {large_1, small_1} <= 54'd0;
      total <= 28'd0;
      z <= 32'd0;
    end else begin
      sign_1     <= large[31];
      other_1    <= small[31];
      nan_1      <= nan;
      inf_1      <= inf;
      exponent_1 <= large[30:23];
      large_1    <= l_full;
      small_1    <= {s_moved[26:1], s_moved[0] | s_lost};

      {sign_2, other_2, nan_2, inf_2} <= {sign_1, other_1, nan_1, inf_1};
      exponent_2 <= exponent_1;
      total      <= (sign_1 == other_1) ? {1'b0, large_1} + {1'b0, small_1} : {1'b0, large_1} - {1'b0, small_1};

      if (nan_2)          z <= 32'h7fc00000;
      else if (inf_2)     z <= {sign_2, 8'hff, 23'd0};
      else if (empty)     z <= {sign_2 && other_2, 31'd0};
      else if (too_small) z <= {sign_2, 31'd0};
      else if (too_large) z <= {sign_2, 8'hff, 23'd0};
      else                z <= {sign_2, final_exponent[7:0], rounded[22:0]};
    end
endmodule
