// 16-bit divider, signed or unsigned, restoring, one quotient bit a cycle, with valid/ready request and response.
// The quotient rounds towards zero and the remainder has the dividend's sign. A division by zero gives an all-ones
// quotient and the dividend as remainder.
module radix2_div (
  input  wire        clk,
  input  wire        rst,
  input  wire        req_valid,
  output wire        req_ready,
  input  wire        is_signed,
  input  wire [15:0] dividend,
  input  wire [15:0] divisor,
  output wire        res_valid,
  input  wire        res_ready,
  output wire [15:0] quotient,
  output wire [15:0] remainder
);
  reg        busy;
  reg        finished;
  reg [3:0]  count;
  reg        negate_quotient;
  reg        negate_remainder;
  reg [15:0] denominator;
  reg [15:0] partial;
  reg [15:0] shifted;

  wire        dividend_negative = is_signed && dividend[15];
  wire        divisor_negative  = is_signed && divisor[15];
  wire [16:0] trial = {partial, shifted[15]};
  wire [16:0] difference = trial - {1'b0, denominator};
  wire        fits = (trial >= {1'b0, denominator});

  assign req_ready = !busy && !finished;
  assign res_valid = finished;
  assign quotient  = negate_quotient ? -shifted : shifted;
  assign remainder = negate_remainder ? -partial : partial;

  always @(posedge clk)
    if (rst) begin
      busy     <= 1'b0;
      finished <= 1'b0;
      count    <= 4'd0;
    end else if (req_ready && req_valid) begin
      busy  <= 1'b1;
      count <= 4'd15;
    end else if (busy) begin
      count <= count - 4'd1;
      if (count == 4'd0) begin
        busy     <= 1'b0;
        finished <= 1'b1;
      end
    end else if (finished && res_ready)
      finished <= 1'b0;

  always @(posedge clk)
    if (req_ready && req_valid) begin
      negate_quotient  <= (dividend_negative != divisor_negative) && (divisor != 16'd0);
      negate_remainder <= dividend_negative;
      denominator      <= divisor_negative ? -divisor : divisor;
      shifted          <= dividend_negative ? -dividend : dividend;
      partial          <= 16'd0;
    end else if (busy) begin
      partial <= fits ? difference[15:0] : trial[15:0];
      shifted <= {shifted[14:0], fits};
    end
endmodule
