// Level-sensitive latches onto the library's cells, by the level that opens them.

module $_DLATCH_P_ (input E, input D, output Q);
  DHLx1_ASAP7_75t_R latch (.CLK(E), .D(D), .Q(Q));
endmodule

module $_DLATCH_N_ (input E, input D, output Q);
  DLLx1_ASAP7_75t_R latch (.CLK(E), .D(D), .Q(Q));
endmodule
