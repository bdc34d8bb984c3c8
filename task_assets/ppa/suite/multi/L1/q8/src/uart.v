// UART: transmitter and receiver for frames of one start bit, eight data bits (least significant first), one stop bit.
// A bit takes (divisor + 1) clock cycles; use a divisor of at least 3.
module uart (
  input  wire       clk,
  input  wire       rst,
  input  wire [7:0] divisor,
  input  wire [7:0] tx_data,
  input  wire       tx_start,
  output wire       tx_busy,
  output wire       txd,
  input  wire       rxd,
  output wire [7:0] rx_data,
  output wire       rx_done,
  output wire       rx_error
);
  uart_transmitter transmitter (
    .clk(clk), .rst(rst), .divisor(divisor), .data(tx_data), .start(tx_start), .busy(tx_busy), .line(txd)
  );
  uart_receiver receiver (
    .clk(clk), .rst(rst), .divisor(divisor), .line(rxd), .data(rx_data), .done(rx_done), .error(rx_error)
  );
endmodule

module uart_transmitter (
  input  wire       clk,
  input  wire       rst,
  input  wire [7:0] divisor,
  input  wire [7:0] data,
  input  wire       start,
  output reg        busy,
  output wire       line
);
  reg [8:0] shift;
  reg [3:0] count;
  reg [7:0] timer;

  assign line = shift[0];

  always @(posedge clk)
    if (rst) begin
      busy  <= 1'b0;
      shift <= 9'h1ff;
      count <= 4'd0;
      timer <= 8'd0;
    end else if (!busy) begin
      if (start) begin
        busy  <= 1'b1;
        shift <= {data, 1'b0};
        count <= 4'd9;
        timer <= divisor;
      end
    end else if (timer != 8'd0)
      timer <= timer - 8'd1;
    else begin
      timer <= divisor;
      shift <= {1'b1, shift[8:1]};
      count <= count - 4'd1;
      if (count == 4'd0) busy <= 1'b0;
    end
endmodule

// The line is sampled in the middle of each bit, after two flip-flops that synchronise it.
module uart_receiver (
  input  wire       clk,
  input  wire       rst,
  input  wire [7:0] divisor,
  input  wire       line,
  output reg  [7:0] data,
  output reg        done,
  output reg        error
);
  localparam [1:0] IDLE = 2'd0, START = 2'd1, BITS = 2'd2, STOP = 2'd3;

  reg [1:0] state;
  reg [1:0] sync;
  reg [7:0] timer;
  reg [7:0] shift;
  reg [2:0] count;

  always @(posedge clk)
    if (rst) begin
      state <= IDLE;
      sync  <= 2'b11;
      timer <= 8'd0;
      shift <= 8'd0;
      count <= 3'd0;
      data  <= 8'd0;
      done  <= 1'b0;
      error <= 1'b0;
    end else begin
      sync  <= {sync[0], line};
      done  <= 1'b0;
      error <= 1'b0;
      if (state == IDLE) begin
        timer <= {1'b0, divisor[7:1]};
        if (!sync[1]) state <= START;
      end else if (timer != 8'd0)
        timer <= timer - 8'd1;
      else begin
        timer <= divisor;
        case (state)
          START: begin
            count <= 3'd0;
            state <= sync[1] ? IDLE : BITS;
          end
          BITS: begin
            shift <= {sync[1], shift[7:1]};
            count <= count + 3'd1;
            if (count == 3'd7) state <= STOP;
          end
          default: begin
            state <= IDLE;
            done  <= sync[1];
            error <= !sync[1];
            if (sync[1]) data <= shift;
          end
        endcase
      end
    end
endmodule
