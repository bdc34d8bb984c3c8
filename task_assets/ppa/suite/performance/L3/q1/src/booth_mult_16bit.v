// 16 x 16 bit signed multiplier, radix-4 Booth recoding, in two stages: recoded partial products, then their sum.
module booth_mult_16bit (
  input  wire        clk,
  input  wire        rst,
  input  wire [15:0] a,
  input  wire [15:0] b,
  output reg  [31:0] p
);
  wire [16:0] digits = {b, 1'b0};
  wire [17:0] plus_1 = {{2{a[15]}}, a};
  wire [17:0] plus_2 = {a[15], a, 1'b0};
  reg  [31:0] partial [0:7];
  reg  [17:0] row;
  integer     i;

  always @(posedge clk)
    for (i = 0; i < 8; i = i + 1)
      if (rst) partial[i] <= 32'd0;
      else begin
        case (digits[2*i +: 3])
          3'b001, 3'b010: row = plus_1;
          3'b011:         row = plus_2;
          3'b100:         row = -plus_2;
          3'b101, 3'b110: row = -plus_1;
          default:        row = 18'd0;
        endcase
        partial[i] <= {{14{row[17]}}, row} << (2 * i);
      end

  wire [31:0] sum_01 = partial[0] + partial[1];
  wire [31:0] sum_23 = partial[2] + partial[3];
  wire [31:0] sum_45 = partial[4] + partial[5];
  wire [31:0] sum_67 = partial[6] + partial[7];

  always @(posedge clk)
    if (rst) p <= 32'd0;
    else     p <= (sum_01 + sum_23) + (sum_45 + sum_67);
endmodule
