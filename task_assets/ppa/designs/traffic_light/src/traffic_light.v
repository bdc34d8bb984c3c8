// Traffic light of a crossing with a pedestrian button. The main road is green until the side road or a pedestrian asks
// and the minimum time is over; yellow and all-red phases lie in between. Durations are in cycles.
module traffic_light (
  input  wire       clk,
  input  wire       rst,
  input  wire       car_waits,
  input  wire       button,
  input  wire [7:0] green_time,
  input  wire [3:0] yellow_time,
  output wire [2:0] main_light,
  output wire [2:0] side_light,
  output wire       walk,
  output wire [7:0] remaining
);
  localparam [2:0] RED = 3'b100, YELLOW = 3'b010, GREEN = 3'b001;
  localparam [2:0] MAIN_GREEN = 3'd0, MAIN_YELLOW = 3'd1, ALL_RED = 3'd2, SIDE_GREEN = 3'd3, SIDE_YELLOW = 3'd4,
                   WALKING = 3'd5, CLEARING = 3'd6;

  reg [2:0] state;
  reg [7:0] timer;
  reg       pressed;

  wire over = (timer == 8'd0);

  always @(posedge clk)
    if (rst) pressed <= 1'b0;
    else     pressed <= (pressed && (state != WALKING)) || button;

  always @(posedge clk)
    if (rst) begin
      state <= MAIN_GREEN;
      timer <= 8'd0;
    end else if (!over)
      timer <= timer - 8'd1;
    else
      case (state)
        MAIN_GREEN:
          if (car_waits || pressed) begin
            state <= MAIN_YELLOW;
            timer <= {4'd0, yellow_time};
          end
        MAIN_YELLOW: begin
          state <= ALL_RED;
          timer <= 8'd3;
        end
        ALL_RED: begin
          state <= pressed ? WALKING : SIDE_GREEN;
          timer <= pressed ? {1'b0, green_time[7:1]} : green_time;
        end
        SIDE_GREEN: begin
          state <= SIDE_YELLOW;
          timer <= {4'd0, yellow_time};
        end
        WALKING: begin
          state <= CLEARING;
          timer <= 8'd7;
        end
        default: begin
          state <= MAIN_GREEN;
          timer <= green_time;
        end
      endcase

  assign main_light = (state == MAIN_GREEN) ? GREEN : (state == MAIN_YELLOW) ? YELLOW : RED;
  assign side_light = (state == SIDE_GREEN) ? GREEN : (state == SIDE_YELLOW) ? YELLOW : RED;
  assign walk       = (state == WALKING);
  assign remaining  = timer;
endmodule
