// 16-bit unsigned multiplier, shift and add, one bit a cycle. Hold start and the operands; done comes 17 cycles later
// for one cycle. Taking start away begins anew.
module multi_16bit (
  input  wire        clk,
  input  wire        rst_n,
  input  wire        start,
  input  wire [15:0] ain,
  input  wire [15:0] bin,
  output wire [31:0] yout,
  output wire        done
);
  reg [15:0] a_reg;
  reg [15:0] b_reg;
  reg [31:0] sum;
  reg [4:0]  count;
  reg        done_reg;

  always @(posedge clk or negedge rst_n)
    if (!rst_n)                        count <= 5'd0;
    else if (!start)                   count <= 5'd0;
    else if (count < 5'd17)            count <= count + 5'd1;

  always @(posedge clk or negedge rst_n)
    if (!rst_n)              done_reg <= 1'b0;
    else                     done_reg <= start && (count == 5'd16);

  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      a_reg <= 16'd0;
      b_reg <= 16'd0;
      sum   <= 32'd0;
    end else if (start) begin
      if (count == 5'd0) begin
        a_reg <= ain;
        b_reg <= bin;
        sum   <= 32'd0;
      end else if (count < 5'd17) begin
        a_reg <= {1'b0, a_reg[15:1]};
        // The partial product enters at the top; sixteen shifts bring it down to its weight.
        sum   <= {{1'b0, sum[31:16]} + (a_reg[0] ? {1'b0, b_reg} : 17'd0), sum[15:1]};
      end
    end

  assign yout = sum;
  assign done = done_reg;
endmodule
