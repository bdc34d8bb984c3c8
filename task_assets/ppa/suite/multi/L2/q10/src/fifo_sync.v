// First-in first-out buffer of eight 16-bit words with valid/ready on both sides.
module fifo_sync (
  input  wire        clk,
  input  wire        rst_n,
  input  wire        in_valid,
  output wire        in_ready,
  input  wire [15:0] in_data,
  output wire        out_valid,
  input  wire        out_ready,
  output wire [15:0] out_data
);
  reg [15:0] words [0:7];
  reg [3:0]  head;
  reg [3:0]  tail;

  wire empty = (head == tail);
  wire full  = (head[2:0] == tail[2:0]) && (head[3] != tail[3]);

  assign in_ready  = !full;
  assign out_valid = !empty;
  assign out_data  = words[head[2:0]];

  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      head <= 4'd0;
      tail <= 4'd0;
    end else begin
      if (in_valid && in_ready)   tail <= tail + 4'd1;
      if (out_valid && out_ready) head <= head + 4'd1;
    end

  always @(posedge clk)
    if (in_valid && in_ready) words[tail[2:0]] <= in_data;
endmodule
