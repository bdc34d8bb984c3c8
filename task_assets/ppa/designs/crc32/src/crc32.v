// CRC-32 of IEEE 802.3, 32 bits of data a cycle, least significant bit first. init starts a new frame;
// crc is the complemented remainder of the words since then.
module crc32 (
  input  wire        clk,
  input  wire        rst,
  input  wire        init,
  input  wire        valid,
  input  wire [31:0] data,
  output wire [31:0] crc
);
  localparam [31:0] POLYNOMIAL = 32'hedb88320;

  reg  [31:0] remainder;
  reg  [31:0] next;
  integer     i;

  always @* begin
    next = remainder ^ data;
    for (i = 0; i < 32; i = i + 1)
      next = next[0] ? ({1'b0, next[31:1]} ^ POLYNOMIAL) : {1'b0, next[31:1]};
  end

  always @(posedge clk)
    if (rst || init) remainder <= 32'hffffffff;
    else if (valid)  remainder <= next;

  assign crc = ~remainder;
endmodule
