// Small processor core for a subset of RV32E: sixteen registers, LUI, AUIPC, JAL, JALR, branches, LW, SW, and all
// register and immediate arithmetic. Every instruction takes one cycle; the instruction of address pc and the word of
// address mem_addr are answered in the same cycle. Other instructions are skipped and set illegal.
module rv32_core (
  input  wire        clk,
  input  wire        rst,
  input  wire [31:0] instruction,
  input  wire [31:0] mem_rdata,
  output wire [31:0] pc,
  output wire [31:0] mem_addr,
  output wire [31:0] mem_wdata,
  output wire        mem_read,
  output wire        mem_write,
  output wire        illegal
);
  localparam [6:0] OP_LUI = 7'b0110111, OP_AUIPC = 7'b0010111, OP_JAL = 7'b1101111, OP_JALR = 7'b1100111,
                   OP_BRANCH = 7'b1100011, OP_LOAD = 7'b0000011, OP_STORE = 7'b0100011, OP_IMM = 7'b0010011,
                   OP_REG = 7'b0110011;

  reg [31:0] counter;
  reg [31:0] registers [0:15];

  wire [6:0] opcode = instruction[6:0];
  wire [2:0] funct  = instruction[14:12];
  wire [3:0] rd     = instruction[10:7];
  wire [3:0] rs1    = instruction[18:15];
  wire [3:0] rs2    = instruction[23:20];

  wire [31:0] imm_i = {{20{instruction[31]}}, instruction[31:20]};
  wire [31:0] imm_s = {{20{instruction[31]}}, instruction[31:25], instruction[11:7]};
  wire [31:0] imm_b = {{20{instruction[31]}}, instruction[7], instruction[30:25], instruction[11:8], 1'b0};
  wire [31:0] imm_u = {instruction[31:12], 12'd0};
  wire [31:0] imm_j = {{12{instruction[31]}}, instruction[19:12], instruction[20], instruction[30:21], 1'b0};

  wire is_lui    = (opcode == OP_LUI);
  wire is_auipc  = (opcode == OP_AUIPC);
  wire is_jal    = (opcode == OP_JAL);
  wire is_jalr   = (opcode == OP_JALR) && (funct == 3'd0);
  wire is_branch = (opcode == OP_BRANCH) && (funct[2:1] != 2'b01);
  wire is_load   = (opcode == OP_LOAD) && (funct == 3'd2);
  wire is_store  = (opcode == OP_STORE) && (funct == 3'd2);
  wire is_imm    = (opcode == OP_IMM);
  wire is_reg    = (opcode == OP_REG) && (instruction[25] == 1'b0);
  wire known     = is_lui || is_auipc || is_jal || is_jalr || is_branch || is_load || is_store || is_imm || is_reg;
  wire runs      = known && !rst;

  assign illegal = !known && !rst;

  wire [31:0] x = (rs1 == 4'd0) ? 32'd0 : registers[rs1];
  wire [31:0] y = (rs2 == 4'd0) ? 32'd0 : registers[rs2];

  // One adder serves sums, differences and comparisons.
  wire [31:0] right    = is_reg || is_branch ? y : imm_i;
  wire        subtract = is_branch || (is_reg && instruction[30] && (funct == 3'd0)) || (funct[2:1] == 2'b01);
  wire [32:0] total    = {1'b0, x} + {1'b0, subtract ? ~right : right} + {32'd0, subtract};
  wire        below    = !total[32];
  wire        less     = (x[31] != right[31]) ? x[31] : below;
  // On its own, because a signed operand of a conditional expression would turn unsigned.
  wire [31:0] arithmetic_right = $signed(x) >>> right[4:0];
  wire [31:0] shifted_right    = instruction[30] ? arithmetic_right : x >> right[4:0];

  reg [31:0] arithmetic;
  always @*
    case (funct)
      3'd0:    arithmetic = total[31:0];
      3'd1:    arithmetic = x << right[4:0];
      3'd2:    arithmetic = {31'd0, less};
      3'd3:    arithmetic = {31'd0, below};
      3'd4:    arithmetic = x ^ right;
      3'd5:    arithmetic = shifted_right;
      3'd6:    arithmetic = x | right;
      default: arithmetic = x & right;
    endcase

  wire equal = (x == y);
  wire taken = funct[0] ^ (funct[2] ? (funct[1] ? below : less) : equal);

  wire [31:0] following = counter + 32'd4;
  wire [31:0] base      = is_jalr ? x : counter;
  wire [31:0] offset    = is_jalr ? imm_i : is_jal ? imm_j : is_auipc ? imm_u : imm_b;
  wire [31:0] target    = base + offset;

  assign pc        = counter;
  assign mem_addr  = x + (is_store ? imm_s : imm_i);
  assign mem_wdata = y;
  assign mem_read  = runs && is_load;
  assign mem_write = runs && is_store;

  wire [31:0] result = is_lui ? imm_u : is_auipc ? target : is_jal || is_jalr ? following : is_load ? mem_rdata : arithmetic;
  wire        writes = runs && !is_branch && !is_store;

  always @(posedge clk)
    if (writes) registers[rd] <= result;

  always @(posedge clk)
    if (rst)
      counter <= 32'd0;
    else if (is_jal || is_jalr || (is_branch && taken))
      counter <= {target[31:1], 1'b0};
    else
      counter <= following;
endmodule
