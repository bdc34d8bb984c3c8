// 32-bit arithmetic and logic unit: sums, differences, comparisons, logic, shifts, with flags.
module alu32 (
  input  wire [31:0] a,
  input  wire [31:0] b,
  input  wire [3:0]  op,
  output reg  [31:0] y,
  output wire        zero,
  output wire        negative,
  output wire        carry,
  output wire        overflow
);
  localparam [3:0] ADD = 4'd0, SUB = 4'd1, AND = 4'd2, OR = 4'd3, XOR = 4'd4, NOR = 4'd5, SLT = 4'd6, SLTU = 4'd7,
                   SLL = 4'd8, SRL = 4'd9, SRA = 4'd10, LUI = 4'd11, MIN = 4'd12, MAX = 4'd13, ANDN = 4'd14, PASS = 4'd15;

  wire        subtract   = (op == SUB) || (op == SLT) || (op == SLTU) || (op == MIN) || (op == MAX);
  wire [32:0] total      = {1'b0, a} + {1'b0, subtract ? ~b : b} + {32'd0, subtract};
  wire        borrow     = !total[32];
  wire        signed_out = (a[31] == (b[31] ^ subtract)) && (total[31] != a[31]);
  wire        less       = total[31] ^ signed_out;
  wire [31:0] arithmetic_shift = $signed(a) >>> b[4:0];

  always @*
    case (op)
      ADD, SUB: y = total[31:0];
      AND:      y = a & b;
      OR:       y = a | b;
      XOR:      y = a ^ b;
      NOR:      y = ~(a | b);
      SLT:      y = {31'd0, less};
      SLTU:     y = {31'd0, borrow};
      SLL:      y = a << b[4:0];
      SRL:      y = a >> b[4:0];
      SRA:      y = arithmetic_shift;
      LUI:      y = {b[15:0], 16'd0};
      MIN:      y = less ? a : b;
      MAX:      y = less ? b : a;
      ANDN:     y = a & ~b;
      default:  y = b;
    endcase

  assign zero     = (y == 32'd0);
  assign negative = y[31];
  assign carry    = ((op == ADD) || (op == SUB)) && total[32];
  assign overflow = ((op == ADD) || (op == SUB)) && signed_out;
endmodule
