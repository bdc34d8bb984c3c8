// Adder of 32-bit fixed-point numbers in sign and magnitude form, Q16 with 15 integer bits, saturating.
// Operands and result are registered; a zero result has a positive sign.
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

  wire        same_sign = (x[31] == y[31]);
  wire        x_larger  = (x[30:0] >= y[30:0]);
  wire [31:0] total     = {1'b0, x[30:0]} + {1'b0, y[30:0]};
  wire [30:0] gap       = x_larger ? x[30:0] - y[30:0] : y[30:0] - x[30:0];
  wire        overflow  = same_sign && total[31];
  wire [30:0] magnitude = !same_sign ? gap : overflow ? 31'h7fffffff : total[30:0];
  wire        sign      = (magnitude != 31'd0) && (same_sign || x_larger ? x[31] : y[31]);

  always @(posedge clk)
    if (rst) begin
      x <= 32'd0;
      y <= 32'd0;
      c <= 32'd0;
      saturated <= 1'b0;
    end else begin
      x <= a;
      y <= b;
      c <= {sign, magnitude};
      saturated <= overflow;
    end
endmodule
