/* A simulator of mac_array, behind its registers. Slow where it has to be to notice what hardware would get wrong:
 * of every byte of its memories it knows whether it was ever written. Not a cycle-accurate model: README.md has the
 * formulas by which it counts.
 */
#include "mac_array_regs.h"
#include "uma_sim.h"

int32_t mac_array_sim_bus(uma_device *device, void *memory, size_t bytes);

/* What a command costs besides its work: fetching its operands, and the way to host memory and back. */
#define COMMAND_CYCLES 4u
#define TRANSFER_CYCLES 16u

/* The status must be read so often, or the interrupt waited for once, until a command has ended. */
#define POLLS 2

#define PIXEL_BYTES (4u * MAC_ARRAY_LANES) /* of accumulators */

enum { CYCLES, BYTES_IN, BYTES_OUT, MACS, COMMANDS };

typedef struct sim {
    uma_bank act, wgt, acc;
    uint32_t operands[(MAC_ARRAY_OPERANDS_END - MAC_ARRAY_OPERANDS) / 4u];
    uint64_t counters[MAC_ARRAY_N_COUNTERS];
    int32_t fault;
    int busy; /* 0: no command runs */
} sim;

/* The operand of that name. */
#define R(name) s->operands[(MAC_ARRAY_##name - MAC_ARRAY_OPERANDS) / 4u]

/* No size has more than 24 bits, so that no address below, strides of 32 bits times sizes, overflows 64 bits. */
static int is_size(uint32_t value, uint32_t most)
{
    return value >= 1u && value <= most;
}

static int is_int8(int32_t value)
{
    return value >= INT8_MIN && value <= INT8_MAX;
}

/* --- Memory ------------------------------------------------------------------------------------------------------ */

/* Whether rows of bytes lie within a bank; and how many cycles it takes to go through them, 8 bytes in each. */
static int32_t rows_within(const sim *s, const uma_bank *bank)
{
    const uint64_t last = R(ROWS) - (uint64_t)1;

    if (!is_size(R(ROWS), MAC_ARRAY_MAX_SIZE)) return MAC_ARRAY_FAULT_COMMAND;
    if (!is_size(R(ROW_BYTES), MAC_ARRAY_MAX_SIZE)) return MAC_ARRAY_FAULT_COMMAND;
    return uma_bank_reach(bank, R(ADDRESS) + last * R(STRIDE), R(ROW_BYTES));
}

static uint64_t row_cycles(const sim *s)
{
    return (uint64_t)R(ROWS) * ((R(ROW_BYTES) + 7u) / 8u);
}

static int32_t transfer(sim *s, const uma_bank *bank, int is_store)
{
    uint8_t *const host = uma_host_memory(s->operands[0], s->operands[1]);
    const uint32_t rows = R(ROWS), bytes = R(ROW_BYTES);
    const uint32_t stride = rows > 1u ? R(STRIDE) : 0u;
    uint32_t row;

    if (bank == &s->wgt && (R(ADDRESS) | stride | bytes) % MAC_ARRAY_LANES != 0) return MAC_ARRAY_FAULT_MISALIGNED;
    UMA_TRY(rows_within(s, bank));
    for (row = 0; row < rows; row++) {
        const uint64_t at = R(ADDRESS) + (uint64_t)row * stride;
        uint8_t *const there = host + (ptrdiff_t)uma_signed(R(HOST_STRIDE)) * (ptrdiff_t)row;
        if (is_store) {
            UMA_TRY(uma_bank_readable(bank, at, bytes));
            memcpy(there, bank->bytes + at, bytes);
        } else {
            memcpy(bank->bytes + at, there, bytes);
            uma_bank_note(bank, at, bytes);
        }
    }
    s->counters[is_store ? BYTES_OUT : BYTES_IN] += (uint64_t)rows * bytes;
    s->counters[CYCLES] += TRANSFER_CYCLES + row_cycles(s);
    return 0;
}

static int32_t fill(sim *s)
{
    const int32_t value = uma_signed(R(VALUE));
    uint32_t row;

    if (!is_int8(value)) return MAC_ARRAY_FAULT_COMMAND;
    UMA_TRY(rows_within(s, &s->act));
    for (row = 0; row < R(ROWS); row++) {
        const uint64_t at = R(ADDRESS) + (uint64_t)row * R(STRIDE);
        memset(s->act.bytes + at, value, R(ROW_BYTES));
        uma_bank_note(&s->act, at, R(ROW_BYTES));
    }
    s->counters[CYCLES] += row_cycles(s);
    return 0;
}

/* --- The array --------------------------------------------------------------------------------------------------- */

/* Whether there are accumulators for the pixels of a command. */
static int32_t pixels_within(const sim *s)
{
    const uint64_t last = R(HEIGHT) - (uint64_t)1;

    if (!is_size(R(HEIGHT), MAC_ARRAY_MAX_EDGE)) return MAC_ARRAY_FAULT_COMMAND;
    if (!is_size(R(WIDTH), MAC_ARRAY_MAX_EDGE)) return MAC_ARRAY_FAULT_COMMAND;
    if ((R(ACC) | R(ACC_Y)) % PIXEL_BYTES != 0) return MAC_ARRAY_FAULT_MISALIGNED;
    return uma_bank_reach(&s->acc, R(ACC) + last * R(ACC_Y), R(WIDTH) * PIXEL_BYTES);
}

static uint64_t n_pixels(const sim *s)
{
    return (uint64_t)R(HEIGHT) * R(WIDTH);
}

static int32_t bias(sim *s)
{
    const uint32_t record = R(WGT);
    uint32_t y, x;

    UMA_TRY(pixels_within(s));
    if (record % MAC_ARRAY_LANES != 0) return MAC_ARRAY_FAULT_MISALIGNED;
    UMA_TRY(uma_bank_readable(&s->wgt, record, PIXEL_BYTES));
    for (y = 0; y < R(HEIGHT); y++) {
        const uint64_t row = R(ACC) + (uint64_t)y * R(ACC_Y);
        for (x = 0; x < R(WIDTH); x++) {
            memcpy(s->acc.bytes + row + x * PIXEL_BYTES, s->wgt.bytes + record, PIXEL_BYTES);
        }
        uma_bank_note(&s->acc, row, R(WIDTH) * PIXEL_BYTES);
    }
    s->counters[CYCLES] += n_pixels(s);
    return 0;
}

/* One run of bytes under one pixel times a block of weights, added to the pixel's accumulators modulo 2**32. */
static void multiply(const sim *s, uint64_t acc, uint64_t act, uint64_t wgt, uint32_t depth)
{
    uint32_t k, n;

    for (n = 0; n < MAC_ARRAY_LANES; n++) {
        uint32_t sum = uma_load32(s->acc.bytes + acc + 4u * n);
        for (k = 0; k < depth; k++) {
            const uint8_t weight = s->wgt.bytes[wgt + k * MAC_ARRAY_LANES + n];
            sum += (uint32_t)(uma_signed8(s->act.bytes[act + k]) * uma_signed8(weight));
        }
        uma_store32(s->acc.bytes + acc + 4u * n, sum);
    }
}

static int32_t mac(sim *s)
{
    const uint32_t taps = R(TAPS), depth = R(DEPTH), width = R(WIDTH);
    uint32_t t, y, x;

    UMA_TRY(pixels_within(s));
    if (!is_size(R(TAPS), MAC_ARRAY_MAX_TAPS)) return MAC_ARRAY_FAULT_COMMAND;
    if (!is_size(R(DEPTH), MAC_ARRAY_MAX_DEPTH)) return MAC_ARRAY_FAULT_COMMAND;
    if ((R(WGT) | R(WGT_T)) % MAC_ARRAY_LANES != 0) return MAC_ARRAY_FAULT_MISALIGNED;
    for (t = 0; t < taps; t++) {
        const uint64_t wgt = R(WGT) + (uint64_t)t * R(WGT_T);
        UMA_TRY(uma_bank_readable(&s->wgt, wgt, (uint64_t)depth * MAC_ARRAY_LANES));
        for (y = 0; y < R(HEIGHT); y++) {
            const uint64_t acc = R(ACC) + (uint64_t)y * R(ACC_Y);
            const uint64_t row = R(ACT) + (uint64_t)y * R(ACT_Y) + (uint64_t)t * R(ACT_T);
            UMA_TRY(uma_bank_readable(&s->acc, acc, width * PIXEL_BYTES));
            for (x = 0; x < width; x++) {
                const uint64_t act = row + (uint64_t)x * R(ACT_X);
                UMA_TRY(uma_bank_readable(&s->act, act, depth));
                multiply(s, acc + x * PIXEL_BYTES, act, wgt, depth);
            }
        }
    }
    s->counters[MACS] += n_pixels(s) * taps * depth * MAC_ARRAY_LANES;
    s->counters[CYCLES] += n_pixels(s) * taps * depth;
    return 0;
}

static int32_t requantise(sim *s)
{
    const uint32_t record = R(WGT), channels = R(CHANNELS), width = R(WIDTH);
    const int32_t rounding = uma_signed(R(ROUNDING)), zero_point = uma_signed(R(ZERO_POINT));
    const int32_t low = uma_signed(R(LOW)), high = uma_signed(R(HIGH));
    const uint8_t *multipliers, *shifts;
    uint32_t y, x, n;

    UMA_TRY(pixels_within(s));
    if (!is_size(channels, MAC_ARRAY_LANES) || R(ROUNDING) > MAC_ARRAY_ROUND_EVEN) return MAC_ARRAY_FAULT_COMMAND;
    if (!is_int8(low) || !is_int8(high) || low > high || !is_int8(zero_point)) return MAC_ARRAY_FAULT_COMMAND;
    if (record % MAC_ARRAY_LANES != 0) return MAC_ARRAY_FAULT_MISALIGNED;
    UMA_TRY(uma_bank_readable(&s->wgt, record, MAC_ARRAY_RECORD_BYTES));
    multipliers = s->wgt.bytes + record + PIXEL_BYTES;
    shifts = multipliers + PIXEL_BYTES;
    for (n = 0; n < channels; n++) {
        const int32_t shift = uma_signed(uma_load32(shifts + 4u * n));
        if (uma_signed(uma_load32(multipliers + 4u * n)) < 0) return MAC_ARRAY_FAULT_COMMAND;
        if (shift < -31 || shift > 30) return MAC_ARRAY_FAULT_COMMAND;
    }
    for (y = 0; y < R(HEIGHT); y++) {
        const uint64_t acc = R(ACC) + (uint64_t)y * R(ACC_Y);
        const uint64_t row = R(ADDRESS) + (uint64_t)y * R(STRIDE_Y);
        UMA_TRY(uma_bank_readable(&s->acc, acc, width * PIXEL_BYTES));
        for (x = 0; x < width; x++) {
            const uint64_t to = row + (uint64_t)x * R(STRIDE);
            UMA_TRY(uma_bank_reach(&s->act, to, channels));
            for (n = 0; n < channels; n++) {
                const int32_t sum = uma_signed(uma_load32(s->acc.bytes + acc + x * PIXEL_BYTES + 4u * n));
                const int32_t multiplier = uma_signed(uma_load32(multipliers + 4u * n));
                const int32_t shift = uma_signed(uma_load32(shifts + 4u * n));
                const int64_t result = uma_scaled(sum, multiplier, shift, rounding) + zero_point;
                s->act.bytes[to + n] = (uint8_t)(result < low ? low : result > high ? high : result);
            }
            uma_bank_note(&s->act, to, channels);
        }
    }
    s->counters[CYCLES] += n_pixels(s);
    return 0;
}

/* --- Registers --------------------------------------------------------------------------------------------------- */

static int32_t execute(sim *s, uint32_t command)
{
    switch (command) {
    case MAC_ARRAY_CMD_LOAD_ACT: return transfer(s, &s->act, 0);
    case MAC_ARRAY_CMD_LOAD_WGT: return transfer(s, &s->wgt, 0);
    case MAC_ARRAY_CMD_STORE: return transfer(s, &s->act, 1);
    case MAC_ARRAY_CMD_FILL: return fill(s);
    case MAC_ARRAY_CMD_BIAS: return bias(s);
    case MAC_ARRAY_CMD_MAC: return mac(s);
    case MAC_ARRAY_CMD_REQUANTISE: return requantise(s);
    default: return MAC_ARRAY_FAULT_COMMAND;
    }
}

static void stop(sim *s, int32_t fault)
{
    if (s->fault == 0) s->fault = fault;
}

static void reset(sim *s)
{
    uma_bank_forget(&s->act);
    uma_bank_forget(&s->wgt);
    uma_bank_forget(&s->acc);
    memset(s->counters, 0, sizeof s->counters);
    s->fault = 0;
    s->busy = 0;
}

static void write_register(void *self, uint32_t offset, uint32_t value)
{
    sim *s = self;

    if (offset == MAC_ARRAY_CONTROL && value == MAC_ARRAY_RESET) {
        reset(s);
    } else if (s->busy != 0) {
        stop(s, MAC_ARRAY_FAULT_BUSY);
    } else if (offset >= MAC_ARRAY_OPERANDS && offset < MAC_ARRAY_OPERANDS_END && offset % 4u == 0) {
        s->operands[(offset - MAC_ARRAY_OPERANDS) / 4u] = value;
    } else if (offset != MAC_ARRAY_COMMAND) {
        stop(s, MAC_ARRAY_FAULT_REGISTER);
    } else if (s->fault == 0) {
        s->counters[COMMANDS] += 1;
        s->counters[CYCLES] += COMMAND_CYCLES;
        stop(s, execute(s, value));
        s->busy = POLLS;
    }
}

static uint32_t read_register(void *self, uint32_t offset)
{
    sim *s = self;

    if (offset >= MAC_ARRAY_COUNTERS && offset < MAC_ARRAY_COUNTERS + 8u * MAC_ARRAY_N_COUNTERS && offset % 4u == 0) {
        return uma_counter_half(s->counters[(offset - MAC_ARRAY_COUNTERS) / 8u], offset);
    }
    switch (offset) {
    case MAC_ARRAY_ID: return MAC_ARRAY_ID_VALUE;
    case MAC_ARRAY_ACT_BYTES: return s->act.size;
    case MAC_ARRAY_WGT_BYTES: return s->wgt.size;
    case MAC_ARRAY_ACC_BYTES: return s->acc.size;
    case MAC_ARRAY_STATUS: return s->busy > 0 && --s->busy > 0;
    case MAC_ARRAY_FAULT: return (uint32_t)s->fault;
    default: stop(s, MAC_ARRAY_FAULT_REGISTER); return 0;
    }
}

static void wait_for_interrupt(void *self)
{
    sim *s = self;

    s->busy = 0;
}

int32_t mac_array_sim_bus(uma_device *device, void *memory, size_t bytes)
{
    const int64_t *sizes = device->parameters;
    sim *s = memory;
    uint8_t *next;

    if (device->n_parameters != 3 || memory == NULL || bytes < sizeof *s ||
        (uint64_t)(2 * (sizes[0] + sizes[1] + sizes[2])) > bytes - sizeof *s) {
        return UMA_FAULT_MEMORY;
    }
    memset(s, 0, sizeof *s);
    next = (uint8_t *)memory + sizeof *s;
    next = uma_bank_make(&s->act, next, sizes[0], MAC_ARRAY_FAULT_ACT_RANGE, MAC_ARRAY_FAULT_ACT_UNKNOWN);
    next = uma_bank_make(&s->wgt, next, sizes[1], MAC_ARRAY_FAULT_WGT_RANGE, MAC_ARRAY_FAULT_WGT_UNKNOWN);
    uma_bank_make(&s->acc, next, sizes[2], MAC_ARRAY_FAULT_ACC_RANGE, MAC_ARRAY_FAULT_ACC_UNKNOWN);
    uma_sim_connect(device, s, read_register, write_register, wait_for_interrupt);
    return 0;
}
