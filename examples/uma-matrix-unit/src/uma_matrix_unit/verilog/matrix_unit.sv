// The matrix unit as registers and logic: README.md is its data sheet. It computes one pixel of eight channels a cycle,
// as the data sheet says, and its cycles are its own: what it counts of them is no formula.
//
// It notices faults 1 to 4 and 8 to 10. Whether bytes were ever written, or are in flight, it does not keep (5 to 7, 11):
// that is the simulator's to notice.
module matrix_unit #(
    parameter int unsigned ACT_BYTES = 32768,
    parameter int unsigned WGT_BYTES = 32768,
    parameter int unsigned ACC_BYTES = 16384
) (
    input logic clk,
    input logic rst,

    // Registers: one access a cycle.
    input  logic        write,
    input  logic        read,
    input  logic [31:0] offset,
    input  logic [31:0] wdata,
    output logic [31:0] rdata,
    output logic        irq,

    // Host memory: up to 8 bytes a cycle, from any address on, the lowest one in the lowest bits.
    output logic        host_read,
    output logic        host_write,
    output logic [63:0] host_address,
    output logic [ 3:0] host_bytes,
    output logic [63:0] host_wdata,
    input  logic [63:0] host_rdata
);
  localparam int unsigned QUEUE = 16;
  localparam int unsigned N_OPERANDS = 27;

  // Of the registers, those that are no operands; of the operands, their number.
  localparam bit [31:0] ID = 32'h00, ACT_SIZE = 32'h04, WGT_SIZE = 32'h08, ACC_SIZE = 32'h0C;
  localparam bit [31:0] CONTROL = 32'h10, COMMAND = 32'h14, STATUS = 32'h18, FAULT = 32'h1C;
  localparam bit [31:0] COUNTERS = 32'h20, COUNTERS_END = 32'h48, OPERANDS = 32'h80, OPERANDS_END = 32'hEC;
  localparam bit [4:0] HOST = 0, HOST_HIGH = 1, HOST_STRIDE = 2, ADDRESS = 3, STRIDE = 4, ROWS = 5, ROW_BYTES = 6;
  localparam bit [4:0] VALUE = 7, ACC = 8, ACC_Y = 9, ACT = 10, ACT_Y = 11, ACT_X = 12, ACT_T = 13, WGT = 14;
  localparam bit [4:0] WGT_T = 15, HEIGHT = 16, WIDTH = 17, TAPS = 18, DEPTH = 19, STRIDE_Y = 20, CHANNELS = 21;
  localparam bit [4:0] ROUNDING = 22, ZERO_POINT = 23, LOW = 24, HIGH = 25, PENDING = 26;

  localparam bit [4:0] BAD_COMMAND = 1, ACT_RANGE = 2, WGT_RANGE = 3, ACC_RANGE = 4;
  localparam bit [4:0] MISALIGNED = 8, IS_BUSY = 9, NO_REGISTER = 10;

  // --- What it is made of ------------------------------------------------------------------------------------------

  logic [7:0] act[ACT_BYTES];
  logic [7:0][7:0] wgt[(WGT_BYTES + 7) / 8];
  logic [7:0][31:0] acc[(ACC_BYTES + 31) / 32];
  logic [31:0] r[N_OPERANDS];

  typedef enum logic [3:0] {
    IDLE,
    DRAIN,     // before a transfer that is waited for
    PUSH,      // until there is room in the queue
    PENDED,    // until few enough transfers are left
    FILL,
    BIAS,
    WEIGHTS,   // a block of them into the array
    MAC,
    REQUANTISE
  } state_t;
  state_t state;
  logic [4:0] command, fault;
  logic [63:0] counters[5];

  // Transfers that were started, of which `ended` have ended.
  typedef struct packed {
    logic store;
    logic weights;
    logic [63:0] host;
    logic [31:0] host_stride;
    logic [31:0] address;
    logic [31:0] stride;
    logic [23:0] rows;
    logic [23:0] row_bytes;
  } transfer_t;
  transfer_t queue[QUEUE];
  logic [31:0] started, ended;

  // The DMA engine, in the oldest one.
  logic dma_active;
  transfer_t dma;
  logic [23:0] dma_done;  // bytes of the row

  // Where a command is: rows, pixels or bytes of a row, taps, bytes of a tap; and the addresses there, accumulators and
  // weights by the pixel and by the word.
  logic [31:0] y, x, tap, k;
  logic [31:0] to_row, act_tap, act_row, act_pixel, acc_row, wgt_block;
  logic [7:0][7:0] block[8];  // the weights in the array: of 8 inputs, for 8 outputs each

  // --- Checks ------------------------------------------------------------------------------------------------------

  // Whether bytes lie beyond a memory. No product has more than 56 bits.
  function automatic logic beyond(input logic [63:0] address, input logic [63:0] bytes, input logic [31:0] size);
    return address + bytes > 64'(size);
  endfunction

  function automatic logic is_size(input logic [31:0] value, input logic [31:0] most);
    return value != 0 && value <= most;
  endfunction

  function automatic logic is_byte(input logic [31:0] value);
    return value == {{24{value[7]}}, value[7:0]};
  endfunction

  function automatic logic [4:0] rows_fault(input logic [31:0] size, input logic [4:0] outside);
    if (!is_size(r[ROWS], 32'hFFFFFF) || !is_size(r[ROW_BYTES], 32'hFFFFFF)) return BAD_COMMAND;
    if (beyond(64'(r[ADDRESS]) + (64'(r[ROWS]) - 1) * 64'(r[STRIDE]), 64'(r[ROW_BYTES]), size)) return outside;
    return 0;
  endfunction

  function automatic logic [4:0] transfer_fault(input logic weights);
    logic [31:0] stride;
    stride = r[ROWS] > 1 ? r[STRIDE] : 0;
    if (weights && |((r[ADDRESS] | stride | r[ROW_BYTES]) & 7)) return MISALIGNED;
    return weights ? rows_fault(WGT_BYTES, WGT_RANGE) : rows_fault(ACT_BYTES, ACT_RANGE);
  endfunction

  function automatic logic [4:0] pixels_fault();
    if (!is_size(r[HEIGHT], 64) || !is_size(r[WIDTH], 64)) return BAD_COMMAND;
    if (|((r[ACC] | r[ACC_Y]) & 31)) return MISALIGNED;
    if (beyond(64'(r[ACC]) + (64'(r[HEIGHT]) - 1) * 64'(r[ACC_Y]), 64'(r[WIDTH]) * 32, ACC_BYTES)) return ACC_RANGE;
    return 0;
  endfunction

  function automatic logic [4:0] record_fault(input logic [31:0] bytes);
    if (|(r[WGT] & 7)) return MISALIGNED;
    return beyond(64'(r[WGT]), 64'(bytes), WGT_BYTES) ? WGT_RANGE : 0;
  endfunction

  // An int32 of the record: 0 to 7 biases, 8 to 15 multipliers, 16 to 23 shifts.
  function automatic logic [31:0] record(input int unsigned n);
    logic [7:0][7:0] word;
    word = wgt[(r[WGT]>>3)+(n>>1)];
    return n[0] ? word[7:4] : word[3:0];
  endfunction

  function automatic logic [4:0] requantise_fault();
    if (pixels_fault() != 0) return pixels_fault();
    if (!is_size(r[CHANNELS], 8) || r[ROUNDING] > 2) return BAD_COMMAND;
    if (!is_byte(r[LOW]) || !is_byte(r[HIGH]) || !is_byte(r[ZERO_POINT]) || $signed(r[LOW]) > $signed(r[HIGH]))
      return BAD_COMMAND;
    if (record_fault(96) != 0) return record_fault(96);
    for (int unsigned n = 0; n < 8; n++) begin
      if (n < r[CHANNELS]) begin
        if ($signed(record(8 + n)) < 0 || $signed(record(16 + n)) < -31 || $signed(record(16 + n)) > 30)
          return BAD_COMMAND;
      end
    end
    return 0;
  endfunction

  function automatic logic [4:0] mac_fault();
    if (pixels_fault() != 0) return pixels_fault();
    if (!is_size(r[TAPS], 16) || !is_size(r[DEPTH], 16384)) return BAD_COMMAND;
    return |((r[WGT] | r[WGT_T]) & 7) ? MISALIGNED : 0;
  endfunction

  // --- The requantiser ---------------------------------------------------------------------------------------------

  function automatic logic [7:0] requantised(input logic [31:0] sum, input logic [31:0] multiplier,
                                             input logic [31:0] shift);
    logic signed [63:0] high, product, result;
    logic [31:0] left;
    logic [5:0] right;
    logic [63:0] low, half;
    if (r[ROUNDING] == 0) begin
      left = sum << ($signed(shift) > 0 ? shift[4:0] : 5'd0);
      right = $signed(shift) < 0 ? 6'(-shift) : 6'd0;
      high = ($signed({{32{left[31]}}, left}) * $signed({32'd0, multiplier}) + 64'sh40000000) >>> 31;
      result = high >>> right;
      low = high - (result << right);
      half = (((64'd1 << right) - 1) >> 1) + 64'(high < 0);
      result = result + 64'(low > half);
    end else begin
      right = 6'(32'd31 - shift);
      product = $signed({{32{sum[31]}}, sum}) * $signed({32'd0, multiplier});
      half = 64'd1 << (right - 6'd1);
      result = product >>> right;
      if (r[ROUNDING] == 2) half = half - 64'd1 + 64'(result[0]);
      result = (product + $signed(half)) >>> right;
    end
    result = result + 64'($signed(r[ZERO_POINT]));
    if (result < 64'($signed(r[LOW]))) return r[LOW][7:0];
    if (result > 64'($signed(r[HIGH]))) return r[HIGH][7:0];
    return result[7:0];
  endfunction

  // --- The array ---------------------------------------------------------------------------------------------------

  // Eight sums, and what eight bytes of a tap add to them: those beyond its depth nothing.
  function automatic logic [7:0][31:0] multiplied(input logic [7:0][31:0] sums, input logic [31:0] address);
    logic [7:0][31:0] result;
    logic signed [7:0] a;
    result = sums;
    for (int unsigned i = 0; i < 8; i++) begin
      a = k + i < r[DEPTH] ? $signed(act[address+i]) : 8'sd0;
      for (int unsigned n = 0; n < 8; n++) result[n] = result[n] + 32'(a * 16'($signed(block[i][n])));
    end
    return result;
  endfunction

  // --- Host memory -------------------------------------------------------------------------------------------------

  logic [23:0] dma_left;
  assign dma_left = dma.row_bytes - dma_done;
  assign host_bytes = dma_left < 8 ? dma_left[3:0] : 4'd8;
  assign host_address = dma.host + 64'(dma_done);
  assign host_read = dma_active && !dma.store;
  assign host_write = dma_active && dma.store;
  always_comb begin
    for (int unsigned i = 0; i < 8; i++) host_wdata[8*i+:8] = act[dma.address+32'(dma_done)+i];
  end

  assign irq = state == IDLE;

  // --- Registers ---------------------------------------------------------------------------------------------------

  always_comb begin
    rdata = 0;
    if (offset >= COUNTERS && offset < COUNTERS_END) begin
      rdata = offset[2] ? counters[3'((offset - COUNTERS) >> 3)][63:32] : counters[3'((offset - COUNTERS) >> 3)][31:0];
    end else begin
      case (offset)
        ID: rdata = 32'h4D585531;
        ACT_SIZE: rdata = ACT_BYTES;
        WGT_SIZE: rdata = WGT_BYTES;
        ACC_SIZE: rdata = ACC_BYTES;
        STATUS: rdata = 32'(state != IDLE);
        FAULT: rdata = 32'(fault);
        default: ;
      endcase
    end
  end

  logic is_register;
  assign is_register = offset[1:0] == 0 && (offset < COUNTERS_END && offset != CONTROL && offset != COMMAND);

  // A command ends with a fault, and what was started is given up.
  task automatic stop(input logic [4:0] code);
    if (fault == 0) fault <= code;
    ended <= started;
    dma_active <= 0;
    state <= IDLE;
  endtask

  task automatic begin_command(input logic [31:0] code);
    logic [4:0] found;
    counters[4] <= counters[4] + 1;
    command <= code[4:0];
    x <= 0;
    y <= 0;
    tap <= 0;
    k <= 0;
    to_row <= r[ADDRESS];
    acc_row <= r[ACC] >> 5;
    act_tap <= r[ACT];
    act_row <= r[ACT];
    act_pixel <= r[ACT];
    wgt_block <= r[WGT] >> 3;
    found = 0;
    case (code)
      1, 2, 3: state <= DRAIN;
      17, 18, 19: begin
        found = transfer_fault(code == 18);
        state <= PUSH;
      end
      4: begin
        found = is_byte(r[VALUE]) ? rows_fault(ACT_BYTES, ACT_RANGE) : BAD_COMMAND;
        state <= FILL;
      end
      5: begin
        found = pixels_fault();
        if (found == 0) found = record_fault(32);
        state <= BIAS;
      end
      6: begin
        found = mac_fault();
        state <= WEIGHTS;
      end
      7: begin
        found = requantise_fault();
        state <= REQUANTISE;
      end
      8: state <= PENDED;
      default: found = BAD_COMMAND;
    endcase
    if (found != 0) stop(found);
    else if (code == 6) counters[3] <= counters[3] + 64'(r[HEIGHT]) * 64'(r[WIDTH]) * 64'(r[TAPS]) * 64'(r[DEPTH]) * 8;
  endtask

  task automatic push();
    queue[started[3:0]] <= '{
        command[1:0] == 3,
        command[1:0] == 2,
        {r[HOST_HIGH], r[HOST]},
        r[HOST_STRIDE],
        r[ADDRESS],
        r[STRIDE],
        r[ROWS][23:0],
        r[ROW_BYTES][23:0]
    };
    started <= started + 1;
    if (command[1:0] == 3) counters[2] <= counters[2] + 64'(r[ROWS]) * 64'(r[ROW_BYTES]);
    else counters[1] <= counters[1] + 64'(r[ROWS]) * 64'(r[ROW_BYTES]);
  endtask

  // The next pixel, and what follows the last one.
  task automatic next_pixel(input state_t then);
    if (x + 1 < r[WIDTH]) begin
      x <= x + 1;
      act_pixel <= act_pixel + r[ACT_X];
    end else begin
      x <= 0;
      acc_row <= acc_row + (r[ACC_Y] >> 5);
      act_row <= act_row + r[ACT_Y];
      act_pixel <= act_row + r[ACT_Y];
      y <= y + 1;
      if (y + 1 == r[HEIGHT]) state <= then;
    end
  endtask

  // The next eight bytes of the taps, from the first pixel on.
  task automatic next_block();
    y <= 0;
    acc_row <= r[ACC] >> 5;
    if (k + 8 < r[DEPTH]) begin
      k <= k + 8;
      wgt_block <= wgt_block + 8;
      act_row <= act_tap + k + 8;
      act_pixel <= act_tap + k + 8;
      state <= WEIGHTS;
    end else begin
      k <= 0;
      tap <= tap + 1;
      wgt_block <= wgt_block - k + (r[WGT_T] >> 3);
      act_tap <= act_tap + r[ACT_T];
      act_row <= act_tap + r[ACT_T];
      act_pixel <= act_tap + r[ACT_T];
      state <= tap + 1 < r[TAPS] ? WEIGHTS : IDLE;
    end
  endtask

  task automatic execute();
    logic [31:0] to;
    logic [63:0] at;
    case (state)
      DRAIN: begin
        if (started == ended) begin
          if (transfer_fault(command == 2) != 0) stop(transfer_fault(command == 2));
          else begin
            push();
            state <= PENDED;
          end
        end
      end
      PUSH: begin
        if (started - ended < QUEUE) begin
          push();
          state <= IDLE;
        end
      end
      PENDED: if (started - ended <= (command == 8 ? r[PENDING] : 0)) state <= IDLE;
      FILL: begin
        for (int unsigned i = 0; i < 8; i++) if (x + i < r[ROW_BYTES]) act[to_row+x+i] <= r[VALUE][7:0];
        if (x + 8 < r[ROW_BYTES]) x <= x + 8;
        else begin
          x <= 0;
          y <= y + 1;
          to_row <= to_row + r[STRIDE];
          if (y + 1 == r[ROWS]) state <= IDLE;
        end
      end
      BIAS: begin
        for (int unsigned n = 0; n < 8; n++) acc[acc_row+x][n] <= record(n);
        next_pixel(IDLE);
      end
      WEIGHTS: begin
        at = 64'(r[WGT]) + 64'(tap) * 64'(r[WGT_T]);
        if (beyond(at, 64'(r[DEPTH]) * 8, WGT_BYTES)) stop(WGT_RANGE);
        else begin
          for (int unsigned i = 0; i < 8; i++) block[i] <= wgt[wgt_block+i];
          state <= MAC;
        end
      end
      MAC: begin
        at = 64'(r[ACT]) + 64'(tap) * 64'(r[ACT_T]) + 64'(y) * 64'(r[ACT_Y]) + 64'(x) * 64'(r[ACT_X]);
        if (beyond(at, 64'(r[DEPTH]), ACT_BYTES)) stop(ACT_RANGE);
        else begin
          acc[acc_row+x] <= multiplied(acc[acc_row+x], act_pixel);
          if (x + 1 == r[WIDTH] && y + 1 == r[HEIGHT]) begin
            x <= 0;
            next_block();
          end else next_pixel(MAC);
        end
      end
      REQUANTISE: begin
        at = 64'(r[ADDRESS]) + 64'(y) * 64'(r[STRIDE_Y]) + 64'(x) * 64'(r[STRIDE]);
        to = at[31:0];
        if (beyond(at, 64'(r[CHANNELS]), ACT_BYTES)) stop(ACT_RANGE);
        else begin
          for (int unsigned n = 0; n < 8; n++) begin
            if (n < r[CHANNELS]) act[to+n] <= requantised(acc[acc_row+x][n], record(8 + n), record(16 + n));
          end
          next_pixel(IDLE);
        end
      end
      default: ;
    endcase
  endtask

  // Eight bytes of the oldest transfer.
  task automatic transfer();
    if (!dma_active) begin
      if (started != ended) begin
        dma <= queue[ended[3:0]];
        dma_done <= 0;
        dma_active <= 1;
      end
    end else begin
      if (!dma.store && dma.weights) wgt[(dma.address+32'(dma_done))>>3] <= host_rdata;
      else if (!dma.store) begin
        for (int unsigned i = 0; i < 8; i++) begin
          if (i < 32'(host_bytes)) act[dma.address+32'(dma_done)+i] <= host_rdata[8*i+:8];
        end
      end
      if (dma_left > 8) dma_done <= dma_done + 8;
      else begin
        dma_done <= 0;
        dma.rows <= dma.rows - 1;
        dma.host <= dma.host + {{32{dma.host_stride[31]}}, dma.host_stride};
        dma.address <= dma.address + dma.stride;
        if (dma.rows == 1) begin
          dma_active <= 0;
          ended <= ended + 1;
        end
      end
    end
  endtask

  always_ff @(posedge clk) begin
    if (rst || (write && offset == CONTROL && wdata == 1)) begin
      state <= IDLE;
      fault <= 0;
      started <= 0;
      ended <= 0;
      dma_active <= 0;
      for (int n = 0; n < 5; n++) counters[n] <= 0;
    end else begin
      if (state != IDLE || dma_active) counters[0] <= counters[0] + 1;
      transfer();
      if (state != IDLE) execute();
      if (write) begin
        if (state != IDLE) stop(IS_BUSY);
        else if (offset >= OPERANDS && offset < OPERANDS_END && offset[1:0] == 0) r[offset[6:2]] <= wdata;
        else if (offset != COMMAND) stop(NO_REGISTER);
        else if (fault == 0) begin_command(wdata);
      end
      if (read && !is_register) stop(NO_REGISTER);
    end
  end
endmodule
