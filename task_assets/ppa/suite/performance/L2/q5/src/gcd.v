// Greatest common divisor of two 16-bit numbers by repeated subtraction, with valid/ready request and response.
// A request carries both operands; the response follows after a number of cycles that depends on them.
module gcd (
  input  wire        clk,
  input  wire        reset,
  input  wire [31:0] req_msg,
  input  wire        req_val,
  output wire        req_rdy,
  output wire [15:0] resp_msg,
  output wire        resp_val,
  input  wire        resp_rdy
);
  wire       a_en;
  wire       b_en;
  wire [1:0] a_sel;
  wire       b_sel;
  wire       b_is_zero;
  wire       a_below_b;

  gcd_control control (
    .clk(clk), .reset(reset),
    .req_val(req_val), .req_rdy(req_rdy), .resp_val(resp_val), .resp_rdy(resp_rdy),
    .b_is_zero(b_is_zero), .a_below_b(a_below_b),
    .a_en(a_en), .b_en(b_en), .a_sel(a_sel), .b_sel(b_sel)
  );

  gcd_datapath dpath (
    .clk(clk), .req_msg(req_msg), .resp_msg(resp_msg),
    .a_en(a_en), .b_en(b_en), .a_sel(a_sel), .b_sel(b_sel),
    .b_is_zero(b_is_zero), .a_below_b(a_below_b)
  );
endmodule

// States: wait for a request, compute, hold the response until it is taken.
module gcd_control (
  input  wire       clk,
  input  wire       reset,
  input  wire       req_val,
  output wire       req_rdy,
  output wire       resp_val,
  input  wire       resp_rdy,
  input  wire       b_is_zero,
  input  wire       a_below_b,
  output reg        a_en,
  output reg        b_en,
  output reg  [1:0] a_sel,
  output reg        b_sel
);
  localparam [1:0] IDLE = 2'd0, CALC = 2'd1, DONE = 2'd2;
  localparam [1:0] A_LOAD = 2'd0, A_SWAP = 2'd1, A_SUB = 2'd2;
  localparam       B_LOAD = 1'b0, B_SWAP = 1'b1;

  reg [1:0] state;
  reg [1:0] state_next;

  always @(posedge clk)
    if (reset) state <= IDLE;
    else       state <= state_next;

  assign req_rdy  = (state == IDLE);
  assign resp_val = (state == DONE);

  always @* begin
    state_next = state;
    case (state)
      IDLE:    if (req_val)                 state_next = CALC;
      CALC:    if (!a_below_b && b_is_zero) state_next = DONE;
      DONE:    if (resp_rdy)                state_next = IDLE;
      default:                              state_next = IDLE;
    endcase
  end

  always @* begin
    a_en  = 1'b0;
    b_en  = 1'b0;
    a_sel = A_LOAD;
    b_sel = B_LOAD;
    case (state)
      IDLE: begin
        a_en = 1'b1;
        b_en = 1'b1;
      end
      CALC:
        if (a_below_b) begin
          a_en  = 1'b1;
          a_sel = A_SWAP;
          b_en  = 1'b1;
          b_sel = B_SWAP;
        end else if (!b_is_zero) begin
          a_en  = 1'b1;
          a_sel = A_SUB;
        end
      default: ;
    endcase
  end
endmodule

module gcd_datapath (
  input  wire        clk,
  input  wire [31:0] req_msg,
  output wire [15:0] resp_msg,
  input  wire        a_en,
  input  wire        b_en,
  input  wire [1:0]  a_sel,
  input  wire        b_sel,
  output wire        b_is_zero,
  output wire        a_below_b
);
  reg  [15:0] a;
  reg  [15:0] b;
  wire [15:0] difference = a - b;

  always @(posedge clk) begin
    if (a_en)
      case (a_sel)
        2'd0:    a <= req_msg[31:16];
        2'd1:    a <= b;
        default: a <= difference;
      endcase
    if (b_en) b <= b_sel ? a : req_msg[15:0];
  end

  assign b_is_zero = (b == 16'd0);
  assign a_below_b = (a < b);
  assign resp_msg  = difference;
endmodule
