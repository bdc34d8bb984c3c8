// Carry lookahead as a Kogge-Stone prefix network: in stage k, each position joins its group with the one 2**k below.
// Yosys tries templates by name; this one comes before its own carry template, whose name starts with 90.
// The module's name decides: of several maps for a cell Yosys takes the first by name, and its own is "_90_lcu".

(* techmap_celltype = "$lcu" *)
module _80_carry_lookahead (P, G, CI, CO);
  parameter WIDTH = 2;

  (* force_downto *)
  input [WIDTH-1:0] P, G;
  input CI;
  (* force_downto *)
  output [WIDTH-1:0] CO;

  localparam STAGES = $clog2(WIDTH);

  // One row of group generates and group propagates per stage, the inputs being row 0.
  wire [(STAGES+1)*WIDTH-1:0] generates, propagates;

  assign generates[0] = G[0] | (P[0] & CI);
  assign propagates[WIDTH-1:0] = P;
  assign CO = generates[STAGES*WIDTH +: WIDTH];

  genvar stage, i;
  generate
    for (i = 1; i < WIDTH; i = i + 1) begin : first_row
      assign generates[i] = G[i];
    end
    for (stage = 0; stage < STAGES; stage = stage + 1) begin : level
      for (i = 0; i < WIDTH; i = i + 1) begin : position
        localparam here = stage * WIDTH + i;
        if (i >= 2**stage) begin : joined
          assign generates[here+WIDTH] = generates[here] | (propagates[here] & generates[here-2**stage]);
          assign propagates[here+WIDTH] = propagates[here] & propagates[here-2**stage];
        end else begin : kept
          assign generates[here+WIDTH] = generates[here];
          assign propagates[here+WIDTH] = propagates[here];
        end
      end
    end
  endgenerate
endmodule
