// 64-bit adder as a pipeline of four 16-bit stages. A stage holds its sum and carry unless its enable is set;
// the enable travels along and comes out as o_en.
module adder_pipe_64bit (
  input  wire        clk,
  input  wire        rst_n,
  input  wire        i_en,
  input  wire [63:0] adda,
  input  wire [63:0] addb,
  output wire [64:0] result,
  output reg         o_en
);
  reg en1, en2, en3;
  reg [15:0] a2_ff1, b2_ff1;
  reg [15:0] a3_ff1, b3_ff1, a3_ff2, b3_ff2;
  reg [15:0] a4_ff1, b4_ff1, a4_ff2, b4_ff2, a4_ff3, b4_ff3;
  reg [15:0] s1, s2, s3, s4;
  reg        c1, c2, c3, c4;
  reg [15:0] s1_ff1, s1_ff2, s1_ff3;
  reg [15:0] s2_ff1, s2_ff2;
  reg [15:0] s3_ff1;

  // The enable of each stage.
  always @(posedge clk or negedge rst_n)
    if (!rst_n) {o_en, en3, en2, en1} <= 4'd0;
    else        {o_en, en3, en2, en1} <= {en3, en2, en1, i_en};

  // Operands wait for their stage.
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      {a2_ff1, b2_ff1} <= 32'd0;
      {a3_ff1, b3_ff1, a3_ff2, b3_ff2} <= 64'd0;
      {a4_ff1, b4_ff1, a4_ff2, b4_ff2, a4_ff3, b4_ff3} <= 96'd0;
    end else begin
      {a2_ff1, b2_ff1} <= {adda[31:16], addb[31:16]};
      {a3_ff1, b3_ff1} <= {adda[47:32], addb[47:32]};
      {a4_ff1, b4_ff1} <= {adda[63:48], addb[63:48]};
      {a3_ff2, b3_ff2} <= {a3_ff1, b3_ff1};
      {a4_ff2, b4_ff2} <= {a4_ff1, b4_ff1};
      {a4_ff3, b4_ff3} <= {a4_ff2, b4_ff2};
    end

  // One 16-bit addition a stage.
  always @(posedge clk or negedge rst_n)
    if (!rst_n)    {c1, s1} <= 17'd0;
    else if (i_en) {c1, s1} <= adda[15:0] + addb[15:0];

  always @(posedge clk or negedge rst_n)
    if (!rst_n)   {c2, s2} <= 17'd0;
    else if (en1) {c2, s2} <= a2_ff1 + b2_ff1 + c1;

  always @(posedge clk or negedge rst_n)
    if (!rst_n)   {c3, s3} <= 17'd0;
    else if (en2) {c3, s3} <= a3_ff2 + b3_ff2 + c2;

  always @(posedge clk or negedge rst_n)
    if (!rst_n)   {c4, s4} <= 17'd0;
    else if (en3) {c4, s4} <= a4_ff3 + b4_ff3 + c3;

  // Finished sums wait for the last stage.
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      {s1_ff1, s1_ff2, s1_ff3} <= 48'd0;
      {s2_ff1, s2_ff2} <= 32'd0;
      s3_ff1 <= 16'd0;
    end else begin
      {s1_ff1, s1_ff2, s1_ff3} <= {s1, s1_ff1, s1_ff2};
      {s2_ff1, s2_ff2} <= {s2, s2_ff1};
      s3_ff1 <= s3;
    end

  assign result = {c4, s4, s3_ff1, s2_ff2, s1_ff3};
endmodule
