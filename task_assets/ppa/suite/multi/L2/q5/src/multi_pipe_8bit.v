// 8-bit unsigned multiplier in a pipeline: operands, partial products, pairs of sums, product.
// The product is zero unless mul_en_out is set.
module multi_pipe_8bit (
  input  wire        clk,
  input  wire        rst_n,
  input  wire        mul_en_in,
  input  wire [7:0]  mul_a,
  input  wire [7:0]  mul_b,
  output wire        mul_en_out,
  output wire [15:0] mul_out
);
  reg  [4:0]  en;
  reg  [7:0]  a_reg;
  reg  [7:0]  b_reg;
  reg  [15:0] partial [0:7];
  reg  [15:0] sum_01, sum_23, sum_45, sum_67;
  reg  [15:0] sum_low, sum_high;
  reg  [15:0] product;
  integer i;

  always @(posedge clk or negedge rst_n)
    if (!rst_n) en <= 5'd0;
    else        en <= {en[3:0], mul_en_in};

  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      a_reg <= 8'd0;
      b_reg <= 8'd0;
    end else begin
      a_reg <= mul_en_in ? mul_a : 8'd0;
      b_reg <= mul_en_in ? mul_b : 8'd0;
    end

  always @(posedge clk or negedge rst_n)
    if (!rst_n)
      for (i = 0; i < 8; i = i + 1) partial[i] <= 16'd0;
    else
      for (i = 0; i < 8; i = i + 1) partial[i] <= b_reg[i] ? ({8'd0, a_reg} << i) : 16'd0;

  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      {sum_01, sum_23, sum_45, sum_67} <= 64'd0;
      {sum_low, sum_high} <= 32'd0;
      product <= 16'd0;
    end else begin
      sum_01   <= partial[0] + partial[1];
      sum_23   <= partial[2] + partial[3];
      sum_45   <= partial[4] + partial[5];
      sum_67   <= partial[6] + partial[7];
      sum_low  <= sum_01 + sum_23;
      sum_high <= sum_45 + sum_67;
      product  <= sum_low + sum_high;
    end

  assign mul_en_out = en[4];
  assign mul_out    = en[4] ? product : 16'd0;
endmodule
