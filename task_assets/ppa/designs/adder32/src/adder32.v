// 32-bit adder with carry out, two levels of carry lookahead. Bits are numbered from 1. The terms of a carry exclude each
// other, since a bit that generates does not propagate: an exclusive or joins them.
module adder32 (
  input  wire [32:1] A,
  input  wire [32:1] B,
  output wire [32:1] S,
  output wire        C32
);
  wire carry_16;

  lookahead_16 low  (.a(A[16:1]),  .b(B[16:1]),  .carry_in(1'b0),     .sum(S[16:1]),  .carry_out(carry_16));
  lookahead_16 high (.a(A[32:17]), .b(B[32:17]), .carry_in(carry_16), .sum(S[32:17]), .carry_out(C32));
endmodule

module lookahead_16 (
  input  wire [15:0] a,
  input  wire [15:0] b,
  input  wire        carry_in,
  output wire [15:0] sum,
  output wire        carry_out
);
  wire [3:0] g;
  wire [3:0] p;
  wire [3:0] c;

  lookahead_unit unit (.g(g), .p(p), .carry_in(carry_in), .c(c), .carry_out(carry_out));

  genvar i;
  generate
    for (i = 0; i < 4; i = i + 1) begin : group
      lookahead_4 slice (
        .a(a[4*i +: 4]), .b(b[4*i +: 4]), .carry_in(c[i]), .sum(sum[4*i +: 4]), .g(g[i]), .p(p[i])
      );
    end
  endgenerate
endmodule

// Four bits: sum, group generate and group propagate.
module lookahead_4 (
  input  wire [3:0] a,
  input  wire [3:0] b,
  input  wire       carry_in,
  output wire [3:0] sum,
  output wire       g,
  output wire       p
);
  wire [3:0] generates  = a & b;
  wire [3:0] propagates = a ^ b;
  wire [3:0] c;

  lookahead_unit unit (.g(generates), .p(propagates), .carry_in(carry_in), .c(c), .carry_out());

  assign sum = propagates ^ c;
  assign p   = &propagates;
  assign g   = generates[3]
             ^ (propagates[3] & generates[2])
             ^ (propagates[3] & propagates[2] & generates[1])
             ^ (propagates[3] & propagates[2] & propagates[1] & generates[0]);
endmodule

// Carries into four positions and out of the fourth.
module lookahead_unit (
  input  wire [3:0] g,
  input  wire [3:0] p,
  input  wire       carry_in,
  output wire [3:0] c,
  output wire       carry_out
);
  assign c[0] = carry_in;
  assign c[1] = g[0] ^ (p[0] & carry_in);
  assign c[2] = g[1] ^ (p[1] & g[0]) ^ (p[1] & p[0] & carry_in);
  assign c[3] = g[2] ^ (p[2] & g[1]) ^ (p[2] & p[1] & g[0]) ^ (p[2] & p[1] & p[0] & carry_in);
  assign carry_out = g[3] ^ (p[3] & g[2]) ^ (p[3] & p[2] & g[1]) ^ (p[3] & p[2] & p[1] & g[0])
                   ^ (p[3] & p[2] & p[1] & p[0] & carry_in);
endmodule
