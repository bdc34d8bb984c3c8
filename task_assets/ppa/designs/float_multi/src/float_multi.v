// IEEE 754 single-precision multiplier in three stages, round to nearest even.
// Subnormal operands and results count as zeros of their sign; every NaN result is 32'h7fc00000.
module float_multi (
  input  wire        clk,
  input  wire        rst,
  input  wire [31:0] a,
  input  wire [31:0] b,
  output reg  [31:0] z
);
  wire [7:0] a_exponent = a[30:23];
  wire [7:0] b_exponent = b[30:23];
  wire       a_nan  = (a_exponent == 8'hff) && (a[22:0] != 23'd0);
  wire       b_nan  = (b_exponent == 8'hff) && (b[22:0] != 23'd0);
  wire       a_inf  = (a_exponent == 8'hff) && (a[22:0] == 23'd0);
  wire       b_inf  = (b_exponent == 8'hff) && (b[22:0] == 23'd0);
  wire       a_zero = (a_exponent == 8'd0);
  wire       b_zero = (b_exponent == 8'd0);

  // Stage 1: unpacked operands and what makes the result special.
  reg         sign_1, nan_1, inf_1, zero_1;
  reg  [23:0] a_mantissa, b_mantissa;
  reg  [9:0]  exponent_1;

  // Stage 2: the product of the mantissas.
  reg         sign_2, nan_2, inf_2, zero_2;
  reg  [47:0] product;
  reg  [9:0]  exponent_2;

  // Stage 3: normalised and rounded.
  wire        high      = product[47];
  wire [23:0] mantissa  = high ? product[47:24] : product[46:23];
  wire        guard     = high ? product[23] : product[22];
  wire        sticky    = high ? (product[22:0] != 23'd0) : (product[21:0] != 22'd0);
  wire        round_up  = guard && (sticky || mantissa[0]);
  wire [24:0] rounded   = {1'b0, mantissa} + {24'd0, round_up};
  wire [9:0]  exponent  = exponent_2 + {9'd0, high} + {9'd0, rounded[24]};
  wire        too_small = exponent[9] || (exponent == 10'd0);
  wire        too_large = !exponent[9] && (exponent >= 10'd255);

  always @(posedge clk)
    if (rst) begin
      {sign_1, nan_1, inf_1, zero_1} <= 4'd0;
      {sign_2, nan_2, inf_2, zero_2} <= 4'd0;
      {a_mantissa, b_mantissa} <= 48'd0;
      {exponent_1, exponent_2} <= 20'd0;
      product <= 48'd0;
      z <= 32'd0;
    end else begin
      sign_1 <= a[31] ^ b[31];
      nan_1  <= a_nan || b_nan || (a_inf && b_zero) || (b_inf && a_zero);
      inf_1  <= a_inf || b_inf;
      zero_1 <= a_zero || b_zero;
      a_mantissa <= {1'b1, a[22:0]};
      b_mantissa <= {1'b1, b[22:0]};
      exponent_1 <= {2'd0, a_exponent} + {2'd0, b_exponent} - 10'd127;

      {sign_2, nan_2, inf_2, zero_2} <= {sign_1, nan_1, inf_1, zero_1};
      product    <= a_mantissa * b_mantissa;
      exponent_2 <= exponent_1;

      if (nan_2)                    z <= 32'h7fc00000;
      else if (inf_2)               z <= {sign_2, 8'hff, 23'd0};
      else if (zero_2 || too_small) z <= {sign_2, 31'd0};
      else if (too_large)           z <= {sign_2, 8'hff, 23'd0};
      else                          z <= {sign_2, exponent[7:0], rounded[22:0]};
    end
endmodule
