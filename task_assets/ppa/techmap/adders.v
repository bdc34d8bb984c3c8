// Full and half adders of the mapper onto the library's cells.
//
// The library's adder cells give both results inverted: FAx1 CON = not carry, SN = not sum; HAxp5 likewise. Where one
// operand is constant, a full adder is a half adder: with 0 the carry is the AND and the sum the XOR of the others; with
// 1 they are OR and XNOR, which a half adder of the inverted operands gives. The inversions are logic, not cells, so that
// the mapper can merge them with their neighbours.

(* techmap_celltype = "$fa" *)
module _map_full_adder (A, B, C, X, Y);
  parameter WIDTH = 1;
  parameter _TECHMAP_CONSTMSK_A_ = 0;
  parameter _TECHMAP_CONSTVAL_A_ = 0;
  parameter _TECHMAP_CONSTMSK_B_ = 0;
  parameter _TECHMAP_CONSTVAL_B_ = 0;
  parameter _TECHMAP_CONSTMSK_C_ = 0;
  parameter _TECHMAP_CONSTVAL_C_ = 0;

  (* force_downto *)
  input [WIDTH-1:0] A, B, C;
  (* force_downto *)
  output [WIDTH-1:0] X, Y;

  genvar i;
  generate
    for (i = 0; i < WIDTH; i = i + 1) begin : bit_slice
      localparam fixed_a = _TECHMAP_CONSTMSK_A_[i];
      localparam fixed_b = _TECHMAP_CONSTMSK_B_[i];
      localparam fixed_c = _TECHMAP_CONSTMSK_C_[i];
      localparam fixed = fixed_a | fixed_b | fixed_c;
      localparam value = fixed_a ? _TECHMAP_CONSTVAL_A_[i] : fixed_b ? _TECHMAP_CONSTVAL_B_[i] : _TECHMAP_CONSTVAL_C_[i];
      wire not_carry, not_sum;
      if (fixed) begin : half
        wire first = fixed_a ? B[i] : A[i];
        wire second = (fixed_a | fixed_b) ? C[i] : B[i];
        if (value) begin : with_one
          wire not_first, not_second;
          assign not_first = ~first;
          assign not_second = ~second;
          HAxp5_ASAP7_75t_R adder (.A(not_first), .B(not_second), .CON(not_carry), .SN(not_sum));
          // not (not a and not b) is the OR; XOR does not change when both operands are inverted.
          assign X[i] = not_carry;
          assign Y[i] = not_sum;
        end else begin : with_zero
          HAxp5_ASAP7_75t_R adder (.A(first), .B(second), .CON(not_carry), .SN(not_sum));
          assign X[i] = ~not_carry;
          assign Y[i] = ~not_sum;
        end
      end else begin : full
        FAx1_ASAP7_75t_R adder (.A(A[i]), .B(B[i]), .CI(C[i]), .CON(not_carry), .SN(not_sum));
        assign X[i] = ~not_carry;
        assign Y[i] = ~not_sum;
      end
    end
  endgenerate
endmodule
