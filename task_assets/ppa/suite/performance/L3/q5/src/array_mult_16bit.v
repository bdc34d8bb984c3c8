// 16 x 16 bit unsigned array multiplier: rows of carry-save adders, then a ripple-carry row.
module array_mult_16bit (
  input  wire [15:0] a,
  input  wire [15:0] b,
  output wire [31:0] p
);
  // Row i holds the sum and carry bits after partial products 0..i; bit j has weight i + j.
  wire [15:0] sum   [0:15];
  wire [15:0] carry [0:15];

  assign sum[0]   = a & {16{b[0]}};
  assign carry[0] = 16'd0;
  assign p[0]     = sum[0][0];

  genvar i, j;
  generate
    for (i = 1; i < 16; i = i + 1) begin : row
      for (j = 0; j < 16; j = j + 1) begin : column
        wire upper = (j == 15) ? 1'b0 : sum[i-1][(j == 15) ? 15 : j + 1];
        full_adder cell_ (
          .a(a[j] & b[i]), .b(upper), .c(carry[i-1][j]), .sum(sum[i][j]), .carry(carry[i][j])
        );
      end
      assign p[i] = sum[i][0];
    end
  endgenerate

  wire [16:0] ripple;
  assign ripple[0] = 1'b0;
  generate
    for (j = 0; j < 16; j = j + 1) begin : last
      wire upper = (j == 15) ? 1'b0 : sum[15][(j == 15) ? 15 : j + 1];
      full_adder cell_ (.a(upper), .b(carry[15][j]), .c(ripple[j]), .sum(p[16+j]), .carry(ripple[j+1]));
    end
  endgenerate
endmodule

module full_adder (
  input  wire a,
  input  wire b,
  input  wire c,
  output wire sum,
  output wire carry
);
  assign sum   = a ^ b ^ c;
  assign carry = (a & b) | (a & c) | (b & c);
endmodule
