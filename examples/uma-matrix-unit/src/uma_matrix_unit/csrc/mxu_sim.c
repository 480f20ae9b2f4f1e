/* A simulator of the matrix unit, behind its registers. Slow where it has to be to notice what hardware would get
 * wrong: of every byte of its memories it knows whether it was ever written. Not a cycle-accurate model: README.md has
 * the formulas by which it counts.
 */
#include "mxu_regs.h"
#include "uma_sim.h"

int32_t mxu_sim_bus(uma_device *device, void *memory, size_t bytes);

/* What a command costs besides its work: fetching its operands, and the way to host memory and back. */
#define ISSUE_CYCLES 4u
#define DMA_CYCLES 16u

/* A status must be read so often, or the interrupt waited for once, until a command has ended. */
#define POLLS 2

/* What a bank says of each byte: was it written since the last reset, and does a started transfer use it? STORING: known,
 * and read by a transfer that was started. */
enum { UNKNOWN, KNOWN, STORING, LOADING };

/* A transfer: rows of bytes between a uma_bank and host memory. */
typedef struct transfer {
    uma_bank *b;
    uint8_t *host;
    ptrdiff_t host_stride;
    uint64_t address, stride, end; /* the cycle in which it ends */
    uint32_t rows, row_bytes;
    int is_store;
} transfer;

enum { CYCLES, BYTES_IN, BYTES_OUT, MACS, COMMANDS };

typedef struct sim {
    uma_bank act, wgt, acc;
    uint32_t operands[(MXU_OPERANDS_END - MXU_OPERANDS) / 4u];
    uint64_t counters[MXU_N_COUNTERS];
    transfer queue[MXU_QUEUE_SIZE]; /* transfer n that was started is at n % MXU_QUEUE_SIZE */
    uint64_t started, ended;        /* how many of them */
    uint64_t dma_end;               /* the cycle in which the last one ends */
    int32_t fault;
    int busy; /* 0: no command runs */
} sim;

static uint32_t get(const sim *s, uint32_t offset)
{
    return s->operands[(offset - MXU_OPERANDS) / 4u];
}

static int32_t get_signed(const sim *s, uint32_t offset)
{
    return uma_signed(get(s, offset));
}

/* No size has more than 24 bits, so that no address below, strides of 32 bits times sizes, overflows 64 bits. */
static int is_size(const sim *s, uint32_t offset, uint32_t most)
{
    return get(s, offset) >= 1u && get(s, offset) <= most;
}

/* Whether bytes of a bank were written, and may be read; whether they may be written. */
static int32_t readable(const uma_bank *b, uint64_t address, uint64_t bytes)
{
    UMA_TRY(uma_bank_readable(b, address, bytes));
    return memchr(b->known + address, LOADING, (size_t)bytes) == NULL ? 0 : MXU_FAULT_IN_FLIGHT;
}

static int32_t writable(const uma_bank *b, uint64_t address, uint64_t bytes)
{
    UMA_TRY(uma_bank_reach(b, address, bytes));
    if (memchr(b->known + address, STORING, (size_t)bytes) != NULL) return MXU_FAULT_IN_FLIGHT;
    return memchr(b->known + address, LOADING, (size_t)bytes) == NULL ? 0 : MXU_FAULT_IN_FLIGHT;
}

/* --- DMA and fill ------------------------------------------------------------------------------------------------ */

/* Whether rows of bytes lie within a bank; and how many cycles it takes to go through them. */
static int32_t rows_within(const sim *s, const uma_bank *b)
{
    const uint64_t rows = get(s, MXU_ROWS), row_bytes = get(s, MXU_ROW_BYTES);

    if (!is_size(s, MXU_ROWS, MXU_MAX_SIZE) || !is_size(s, MXU_ROW_BYTES, MXU_MAX_SIZE)) return MXU_FAULT_COMMAND;
    return uma_bank_reach(b, get(s, MXU_ADDRESS) + (rows - 1) * get(s, MXU_STRIDE), row_bytes);
}

static uint64_t row_cycles(const sim *s)
{
    return (uint64_t)get(s, MXU_ROWS) * ((get(s, MXU_ROW_BYTES) + 7u) / 8u);
}

/* What a command says of a transfer; whether that can be done. */
static int32_t prepare(const sim *s, uma_bank *b, int is_store, transfer *t)
{
    const uint64_t host = (uint64_t)get(s, MXU_HOST + 4u) << 32 | get(s, MXU_HOST);
    uint32_t row;

    t->b = b;
    t->is_store = is_store;
    t->host = (uint8_t *)(uintptr_t)host;
    t->host_stride = get_signed(s, MXU_HOST_STRIDE);
    t->address = get(s, MXU_ADDRESS);
    t->rows = get(s, MXU_ROWS);
    t->row_bytes = get(s, MXU_ROW_BYTES);
    t->stride = t->rows > 1 ? get(s, MXU_STRIDE) : 0;
    if (b == &s->wgt && (t->address | t->stride | t->row_bytes) % MXU_LANES != 0) return MXU_FAULT_MISALIGNED;
    UMA_TRY(rows_within(s, b));
    for (row = 0; row < t->rows; row++) {
        const uint64_t at = t->address + row * t->stride;
        UMA_TRY(is_store ? readable(b, at, t->row_bytes) : writable(b, at, t->row_bytes));
    }
    return 0;
}

static void mark(const transfer *t, int state)
{
    uint32_t row;

    for (row = 0; row < t->rows; row++) memset(t->b->known + t->address + row * t->stride, state, t->row_bytes);
}

static void move(const transfer *t)
{
    uint32_t row;

    for (row = 0; row < t->rows; row++) {
        uint8_t *const own = t->b->bytes + t->address + row * t->stride;
        uint8_t *const host = t->host + t->host_stride * (ptrdiff_t)row;
        memcpy(t->is_store ? host : own, t->is_store ? own : host, t->row_bytes);
    }
    mark(t, KNOWN);
}

static void pass_until(sim *s, uint64_t cycle)
{
    if (s->counters[CYCLES] < cycle) s->counters[CYCLES] = cycle;
}

/* Waits until no more than `pending` transfers have not ended. Only then is what they move there: a wait that is missing
 * is seen whatever the cycles are. */
static void wait_for_transfers(sim *s, uint64_t pending)
{
    uint64_t n;

    while (s->started - s->ended > pending) {
        const transfer *t = &s->queue[s->ended % MXU_QUEUE_SIZE];
        pass_until(s, t->end);
        move(t);
        s->ended++;
    }
    for (n = s->ended; n < s->started; n++) { /* two may store the same bytes */
        const transfer *t = &s->queue[n % MXU_QUEUE_SIZE];
        mark(t, t->is_store ? STORING : LOADING);
    }
}

/* A transfer, which begins when those before it have ended. */
static int32_t run_transfer(sim *s, uma_bank *b, int is_store, int is_started)
{
    transfer t;

    if (!is_started) wait_for_transfers(s, 0);
    UMA_TRY(prepare(s, b, is_store, &t));
    s->counters[is_store ? BYTES_OUT : BYTES_IN] += (uint64_t)t.rows * t.row_bytes;
    if (is_started) wait_for_transfers(s, MXU_QUEUE_SIZE - 1);
    t.end = (s->dma_end > s->counters[CYCLES] ? s->dma_end : s->counters[CYCLES]) + DMA_CYCLES + row_cycles(s);
    s->dma_end = t.end;
    if (is_started) {
        mark(&t, is_store ? STORING : LOADING);
        s->queue[s->started++ % MXU_QUEUE_SIZE] = t;
    } else {
        pass_until(s, t.end);
        move(&t);
    }
    return 0;
}

static int32_t fill(sim *s)
{
    const uint32_t bytes = get(s, MXU_ROW_BYTES);
    const int32_t value = get_signed(s, MXU_VALUE);
    uint32_t row;

    if (value < INT8_MIN || value > INT8_MAX) return MXU_FAULT_COMMAND;
    UMA_TRY(rows_within(s, &s->act));
    for (row = 0; row < get(s, MXU_ROWS); row++) {
        const size_t to = get(s, MXU_ADDRESS) + (size_t)row * get(s, MXU_STRIDE);
        UMA_TRY(writable(&s->act, to, bytes));
        memset(s->act.bytes + to, value, bytes);
        memset(s->act.known + to, KNOWN, bytes);
    }
    s->counters[CYCLES] += row_cycles(s);
    return 0;
}

/* --- The array --------------------------------------------------------------------------------------------------- */

#define PIXEL_BYTES (4u * MXU_LANES) /* of accumulators */

/* Whether there are accumulators for the pixels of a command. */
static int32_t pixels_within(const sim *s)
{
    const uint64_t acc = get(s, MXU_ACC), height = get(s, MXU_HEIGHT);

    if (!is_size(s, MXU_HEIGHT, MXU_MAX_EDGE) || !is_size(s, MXU_WIDTH, MXU_MAX_EDGE)) return MXU_FAULT_COMMAND;
    if ((acc | get(s, MXU_ACC_Y)) % PIXEL_BYTES != 0) return MXU_FAULT_MISALIGNED;
    return uma_bank_reach(&s->acc, acc + (height - 1) * get(s, MXU_ACC_Y), get(s, MXU_WIDTH) * PIXEL_BYTES);
}

static uint64_t n_pixels(const sim *s)
{
    return (uint64_t)get(s, MXU_HEIGHT) * get(s, MXU_WIDTH);
}

static int32_t bias(sim *s)
{
    const uint32_t record = get(s, MXU_WGT);
    uint32_t y, x;

    UMA_TRY(pixels_within(s));
    if (record % MXU_LANES != 0) return MXU_FAULT_MISALIGNED;
    UMA_TRY(readable(&s->wgt, record, PIXEL_BYTES));
    for (y = 0; y < get(s, MXU_HEIGHT); y++) {
        const size_t row = get(s, MXU_ACC) + (size_t)y * get(s, MXU_ACC_Y);
        for (x = 0; x < get(s, MXU_WIDTH); x++) {
            memcpy(s->acc.bytes + row + x * PIXEL_BYTES, s->wgt.bytes + record, PIXEL_BYTES);
        }
        memset(s->acc.known + row, KNOWN, get(s, MXU_WIDTH) * PIXEL_BYTES);
    }
    s->counters[CYCLES] += n_pixels(s);
    return 0;
}

/* One run of bytes of one pixel times a column of blocks, added to the pixel's accumulators modulo 2**32. */
static void multiply(sim *s, uint64_t acc, uint64_t act, uint64_t wgt, uint32_t depth)
{
    uint32_t sums[MXU_LANES], k, n;

    for (n = 0; n < MXU_LANES; n++) sums[n] = uma_load32(s->acc.bytes + acc + 4u * n);
    for (k = 0; k < depth; k++) {
        const int32_t a = (int8_t)s->act.bytes[act + k];
        const uint8_t *w = s->wgt.bytes + wgt + (size_t)k * MXU_LANES;
        for (n = 0; n < MXU_LANES; n++) sums[n] += (uint32_t)(a * (int8_t)w[n]);
    }
    for (n = 0; n < MXU_LANES; n++) uma_store32(s->acc.bytes + acc + 4u * n, sums[n]);
}

static int32_t mac(sim *s)
{
    const uint64_t acc = get(s, MXU_ACC), act = get(s, MXU_ACT), wgt = get(s, MXU_WGT);
    const uint32_t height = get(s, MXU_HEIGHT), width = get(s, MXU_WIDTH);
    const uint32_t taps = get(s, MXU_TAPS), depth = get(s, MXU_DEPTH);
    uint32_t t, y, x;

    UMA_TRY(pixels_within(s));
    if (!is_size(s, MXU_TAPS, MXU_MAX_TAPS) || !is_size(s, MXU_DEPTH, MXU_MAX_DEPTH)) return MXU_FAULT_COMMAND;
    if ((wgt | get(s, MXU_WGT_T)) % MXU_LANES != 0) return MXU_FAULT_MISALIGNED;
    for (t = 0; t < taps; t++) {
        const uint64_t weights = wgt + (uint64_t)t * get(s, MXU_WGT_T);
        UMA_TRY(readable(&s->wgt, weights, (uint64_t)depth * MXU_LANES));
        for (y = 0; y < height; y++) {
            const uint64_t sums = acc + (uint64_t)y * get(s, MXU_ACC_Y);
            const uint64_t row = act + (uint64_t)y * get(s, MXU_ACT_Y) + (uint64_t)t * get(s, MXU_ACT_T);
            UMA_TRY(readable(&s->acc, sums, width * PIXEL_BYTES));
            for (x = 0; x < width; x++) {
                const uint64_t from = row + (uint64_t)x * get(s, MXU_ACT_X);
                UMA_TRY(readable(&s->act, from, depth));
                multiply(s, sums + x * PIXEL_BYTES, from, weights, depth);
            }
        }
    }
    s->counters[MACS] += n_pixels(s) * taps * depth * MXU_LANES;
    s->counters[CYCLES] += (uint64_t)taps * ((depth + MXU_LANES - 1u) / MXU_LANES) * (MXU_LANES + n_pixels(s));
    return 0;
}

/* --- Requantisation ---------------------------------------------------------------------------------------------- */

static int32_t requantise(sim *s)
{
    const uint32_t record = get(s, MXU_WGT), height = get(s, MXU_HEIGHT), width = get(s, MXU_WIDTH);
    const uint32_t channels = get(s, MXU_CHANNELS), rounding = get(s, MXU_ROUNDING);
    const int32_t zero = get_signed(s, MXU_ZERO_POINT), low = get_signed(s, MXU_LOW), high = get_signed(s, MXU_HIGH);
    uint32_t y, x, n;

    UMA_TRY(pixels_within(s));
    if (channels < 1 || channels > MXU_LANES || rounding > MXU_ROUND_EVEN) return MXU_FAULT_COMMAND;
    if (low < INT8_MIN || low > high || high > INT8_MAX || zero < INT8_MIN || zero > INT8_MAX) return MXU_FAULT_COMMAND;
    if (record % MXU_LANES != 0) return MXU_FAULT_MISALIGNED;
    UMA_TRY(readable(&s->wgt, record, MXU_RECORD_BYTES));
    for (n = 0; n < channels; n++) {
        const int32_t multiplier = uma_signed(uma_load32(s->wgt.bytes + record + PIXEL_BYTES + 4u * n));
        const int32_t shift = uma_signed(uma_load32(s->wgt.bytes + record + 2u * PIXEL_BYTES + 4u * n));
        if (multiplier < 0 || shift < -31 || shift > 30) return MXU_FAULT_COMMAND;
    }
    for (y = 0; y < height; y++) {
        const uint64_t row = get(s, MXU_ADDRESS) + (uint64_t)y * get(s, MXU_STRIDE_Y);
        const uint64_t acc = get(s, MXU_ACC) + (uint64_t)y * get(s, MXU_ACC_Y);
        UMA_TRY(readable(&s->acc, acc, width * PIXEL_BYTES));
        for (x = 0; x < width; x++) {
            const size_t to = row + (size_t)x * get(s, MXU_STRIDE);
            UMA_TRY(writable(&s->act, to, channels));
            for (n = 0; n < channels; n++) {
                const int32_t multiplier = uma_signed(uma_load32(s->wgt.bytes + record + PIXEL_BYTES + 4u * n));
                const int32_t shift = uma_signed(uma_load32(s->wgt.bytes + record + 2u * PIXEL_BYTES + 4u * n));
                const int32_t sum = uma_signed(uma_load32(s->acc.bytes + acc + x * PIXEL_BYTES + 4u * n));
                const int64_t result = uma_scaled(sum, multiplier, shift, (int32_t)rounding) + zero;
                s->act.bytes[to + n] = (uint8_t)(result < low ? low : result > high ? high : result);
            }
            memset(s->act.known + to, KNOWN, channels);
        }
    }
    s->counters[CYCLES] += n_pixels(s);
    return 0;
}

/* --- Registers --------------------------------------------------------------------------------------------------- */

static int32_t execute(sim *s, uint32_t command)
{
    const int is_started = command > MXU_START;

    switch (is_started ? command - MXU_START : command) {
    case MXU_CMD_LOAD_ACT: return run_transfer(s, &s->act, 0, is_started);
    case MXU_CMD_LOAD_WGT: return run_transfer(s, &s->wgt, 0, is_started);
    case MXU_CMD_STORE: return run_transfer(s, &s->act, 1, is_started);
    default: break;
    }
    switch (command) {
    case MXU_CMD_FILL: return fill(s);
    case MXU_CMD_BIAS: return bias(s);
    case MXU_CMD_MAC: return mac(s);
    case MXU_CMD_REQUANTISE: return requantise(s);
    case MXU_CMD_WAIT: wait_for_transfers(s, get(s, MXU_PENDING)); return 0;
    default: return MXU_FAULT_COMMAND;
    }
}

static void stop(sim *s, int32_t fault)
{
    if (s->fault == 0) s->fault = fault;
    if (s->fault != 0) s->ended = s->started; /* what was started is given up */
}

static void reset(sim *s)
{
    uma_bank_forget(&s->act);
    uma_bank_forget(&s->wgt);
    uma_bank_forget(&s->acc);
    memset(s->counters, 0, sizeof s->counters);
    s->started = s->ended = s->dma_end = 0;
    s->fault = 0;
    s->busy = 0;
}

static void write_register(void *self, uint32_t offset, uint32_t value)
{
    sim *s = self;

    if (offset == MXU_CONTROL && value == MXU_RESET) {
        reset(s);
    } else if (s->busy != 0) {
        stop(s, MXU_FAULT_BUSY);
    } else if (offset >= MXU_OPERANDS && offset < MXU_OPERANDS_END && offset % 4u == 0) {
        s->operands[(offset - MXU_OPERANDS) / 4u] = value;
    } else if (offset != MXU_COMMAND) {
        stop(s, MXU_FAULT_REGISTER);
    } else if (s->fault == 0) {
        s->counters[COMMANDS] += 1;
        s->counters[CYCLES] += ISSUE_CYCLES;
        stop(s, execute(s, value));
        s->busy = POLLS;
    }
}

static uint32_t read_register(void *self, uint32_t offset)
{
    sim *s = self;

    if (offset >= MXU_COUNTERS && offset < MXU_COUNTERS + 8u * MXU_N_COUNTERS && offset % 4u == 0) {
        return uma_counter_half(s->counters[(offset - MXU_COUNTERS) / 8u], offset);
    }
    switch (offset) {
    case MXU_ID: return MXU_ID_VALUE;
    case MXU_ACT_BYTES: return s->act.size;
    case MXU_WGT_BYTES: return s->wgt.size;
    case MXU_ACC_BYTES: return s->acc.size;
    case MXU_STATUS: return s->busy > 0 && --s->busy > 0;
    case MXU_FAULT: return (uint32_t)s->fault;
    default: stop(s, MXU_FAULT_REGISTER); return 0;
    }
}

static void wait_for_interrupt(void *self)
{
    sim *s = self;

    s->busy = 0;
}

int32_t mxu_sim_bus(uma_device *device, void *memory, size_t bytes)
{
    const int64_t *sizes = device->parameters;
    sim *s = memory;
    uint8_t *next;

    if (device->n_parameters != 3 || memory == NULL || bytes < sizeof *s ||
        (uint64_t)(2 * (sizes[0] + sizes[1] + sizes[2])) > bytes - sizeof *s) {
        return MXU_FAULT_MEMORY;
    }
    memset(s, 0, sizeof *s);
    next = uma_bank_make(&s->act, (uint8_t *)memory + sizeof *s, sizes[0], MXU_FAULT_ACT_RANGE, MXU_FAULT_ACT_UNKNOWN);
    next = uma_bank_make(&s->wgt, next, sizes[1], MXU_FAULT_WGT_RANGE, MXU_FAULT_WGT_UNKNOWN);
    uma_bank_make(&s->acc, next, sizes[2], MXU_FAULT_ACC_RANGE, MXU_FAULT_ACC_UNKNOWN);
    reset(s);
    uma_sim_connect(device, s, read_register, write_register, wait_for_interrupt);
    return 0;
}
