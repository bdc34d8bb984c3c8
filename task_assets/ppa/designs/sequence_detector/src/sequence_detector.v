// Finite state machine that sets match for one cycle after the serial input showed 1, 0, 0, 1, 1. Matches may overlap.
module sequence_detector (
  input  wire clk,
  input  wire rst,
  input  wire in,
  output reg  match
);
  localparam [2:0] S_NONE = 3'd0, S_1 = 3'd1, S_10 = 3'd2, S_100 = 3'd3, S_1001 = 3'd4;

  reg [2:0] state;

  always @(posedge clk)
    if (rst) begin
      state <= S_NONE;
      match <= 1'b0;
    end else begin
      match <= (state == S_1001) && in;
      case (state)
        S_NONE:  state <= in ? S_1    : S_NONE;
        S_1:     state <= in ? S_1    : S_10;
        S_10:    state <= in ? S_1    : S_100;
        S_100:   state <= in ? S_1001 : S_NONE;
        S_1001:  state <= in ? S_1    : S_10;
        default: state <= S_NONE;
      endcase
    end
endmodule
