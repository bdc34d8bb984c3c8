// 32-bit barrel shifter with registered result: shift left, shift right, arithmetic shift right, rotate right.
module barrel_shifter (
  input  wire        clk,
  input  wire        rst,
  input  wire [31:0] data,
  input  wire [4:0]  amount,
  input  wire [1:0]  mode,
  output reg  [31:0] result
);
  localparam [1:0] LEFT = 2'd0, RIGHT = 2'd1, ARITHMETIC = 2'd2, ROTATE = 2'd3;

  wire        fill = (mode == ARITHMETIC) && data[31];
  wire [31:0] level [0:5];

  // A shift to the left is a shift to the right of the mirrored word.
  genvar i, k;
  generate
    for (i = 0; i < 32; i = i + 1) begin : enter
      assign level[0][i] = (mode == LEFT) ? data[31-i] : data[i];
    end
    for (k = 0; k < 5; k = k + 1) begin : stage
      wire [31:0] low_bits = level[k];
      wire [31:0] entering = (mode == ROTATE) ? low_bits << (32 - (1 << k)) : {32{fill}} << (32 - (1 << k));
      assign level[k+1] = amount[k] ? (low_bits >> (1 << k)) | entering : low_bits;
    end
  endgenerate

  wire [31:0] leaving;
  generate
    for (i = 0; i < 32; i = i + 1) begin : leave
      assign leaving[i] = (mode == LEFT) ? level[5][31-i] : level[5][i];
    end
  endgenerate

  always @(posedge clk)
    if (rst) result <= 32'd0;
    else     result <= leaving;
endmodule
