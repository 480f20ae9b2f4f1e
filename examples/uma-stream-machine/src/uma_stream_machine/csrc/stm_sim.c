/* A simulator of the stream machine, behind its registers: fetches and decodes what memory holds, and runs two engines
 * that know nothing of each other. It is strict where hardware would go wrong now and then: commands of the two engines
 * that touch the same memory are a fault unless a wait stands between them, whatever the cycles say. Time passes while
 * the host looks: STM_POLL_CYCLES for each look at the status, and as many as it takes when it waits for the interrupt.
 */
#include "stm_driver.h"
#include "stm_regs.h"
#include "stm_sim.h"
#include "uma_sim.h"

int32_t stm_sim_bus(uma_device *device, void *memory, size_t bytes);

#define STM_POLL_CYCLES 1000u

enum { CYCLES, DMA_CYCLES, COMPUTE_CYCLES, BYTES_READ, BYTES_WRITTEN, MACS, COMMANDS };

/* Commands of an engine in the order in which they came, numbered from 0. Command n is in slots[n % STM_QUEUE] until a
 * wait has seen that it has finished, or a later one needs its place. */
typedef struct engine {
    stm_slot slots[STM_QUEUE];
    uint64_t issued, finished, seen;
    uint64_t ends_at; /* of the one that runs */
    int busy;
} engine;

typedef struct region {
    uint32_t words[4]; /* address, bytes, writable */
} region;

typedef struct sim {
    engine engines[2];
    uma_bank weights; /* known is what this stream has loaded */
    region regions[STM_N_REGIONS];
    uint32_t stream[2], stream_bytes, n_regions;
    uint64_t now, fetched_at;
    uint64_t counters[STM_N_COUNTERS];
    uint32_t next; /* offset of the command that is fetched next */
    uint32_t fault_at;
    int32_t fault;
    int running;
} sim;

static void stop(sim *s, int32_t fault, uint32_t at)
{
    if (s->fault == 0 && fault != 0) {
        s->fault = fault;
        s->fault_at = at;
    }
    s->running = 0;
}

static uint8_t *address(const uint32_t *words)
{
    return uma_host_memory(words[0], words[1]);
}

/* --- Decoding ---------------------------------------------------------------------------------------------------- */

/* Takes the words of a command apart, as the table says. What no field covers must be 0. */
static int32_t decode(const sim *s, stm_slot *slot)
{
    const uint32_t rest = s->stream_bytes - s->next;
    const uint8_t *at;
    uint32_t words[STM_MAX_WORDS] = {0}, i;

    memset(slot, 0, sizeof *slot);
    slot->offset = s->next;
    if (rest < 4u) return STM_FAULT_STREAM;
    at = address(s->stream) + s->next;
    for (i = 0; i < STM_N_COMMANDS; i++) {
        if (stm_commands[i].opcode == at[0] && stm_commands[i].words == at[1]) slot->kind = &stm_commands[i];
    }
    if (slot->kind == NULL) return STM_FAULT_COMMAND;
    slot->residual = slot->kind->opcode >= STM_WITH_RESIDUAL;
    slot->op = slot->kind->opcode - (slot->residual ? STM_WITH_RESIDUAL : 0u);
    if (rest < 4u * slot->kind->words) return STM_FAULT_STREAM;
    for (i = 0; i < slot->kind->words; i++) words[i] = uma_load32(at + 4u * i);
    words[0] &= ~0xFFFFu;
    for (i = 0; i < slot->kind->n_fields; i++) {
        const stm_field *field = &slot->kind->fields[i];
        const uint32_t mask = field->bits == 32 ? 0xFFFFFFFFu : ((uint32_t)1 << field->bits) - 1u;
        int64_t value = words[field->word] >> field->lsb & mask;
        words[field->word] &= ~(mask << field->lsb);
        if (field->least < 0 && value > mask / 2u) value -= (int64_t)mask + 1;
        value *= field->unit;
        if (value < field->least || value > field->most) return STM_FAULT_COMMAND;
        slot->v[field->name] = value;
    }
    for (i = 0; i < slot->kind->words; i++) {
        if (words[i] != 0) return STM_FAULT_COMMAND;
    }
    return slot->v[STM_LOW] <= slot->v[STM_HIGH] ? 0 : STM_FAULT_COMMAND;
}

/* Gives layers and pools the fields that they do not have, as if they were convolutions. */
static void complete(stm_slot *slot)
{
    int64_t *v = slot->v;

    switch (slot->op) {
    case STM_OP_DEPTHWISE: v[STM_CHANNELS] = v[STM_OUT_CHANNELS]; break;
    case STM_OP_MAX_POOL:
    case STM_OP_AVERAGE_POOL: v[STM_OUT_CHANNELS] = v[STM_IN_PIXEL] = v[STM_OUT_PIXEL] = v[STM_CHANNELS]; break;
    case STM_OP_DENSE:
        v[STM_IN_HEIGHT] = v[STM_OUT_HEIGHT] = v[STM_ROWS];
        v[STM_CHANNELS] = v[STM_IN_PIXEL] = v[STM_DEPTH];
        v[STM_IN_WIDTH] = v[STM_OUT_WIDTH] = v[STM_KERNEL_HEIGHT] = v[STM_KERNEL_WIDTH] = 1;
        v[STM_STRIDE_Y] = v[STM_STRIDE_X] = 1;
        break;
    default: break;
    }
}

/* Finds the memory of an operand: `base` is the field of its base, behind which the one of its offset is. */
static int32_t resolve(const sim *s, stm_slot *slot, int base, uint64_t bytes, int written)
{
    const int64_t number = slot->v[base];
    const uint64_t offset = (uint64_t)slot->v[base + 1];
    stm_range *range = &slot->ranges[slot->n_ranges++];

    range->bytes = bytes;
    range->written = written;
    if (number == STM_WEIGHT_MEMORY && slot->kind->engine == STM_ENGINE_DMA) {
        if (offset + bytes > s->weights.size) return STM_FAULT_RANGE;
        range->at = s->weights.bytes + offset;
        return 0;
    }
    if (number >= (int64_t)s->n_regions || offset + bytes > s->regions[number].words[2]) return STM_FAULT_REGION;
    if (written && s->regions[number].words[3] == 0) return STM_FAULT_READ_ONLY;
    range->at = address(s->regions[number].words) + offset;
    return 0;
}

/* Bytes from the first one of a picture to behind its last. */
static uint64_t plane(int64_t height, int64_t width, int64_t pixel, int64_t channels)
{
    return (uint64_t)((height * width - 1) * pixel + channels);
}

static int32_t resolve_all(const sim *s, stm_slot *slot)
{
    const int64_t *v = slot->v;
    const uint64_t count = (uint64_t)v[STM_COUNT];
    uint64_t made;
    stm_range *weights;

    switch (slot->op) {
    case STM_OP_DMA:
        UMA_TRY(resolve(s, slot, STM_TO_BASE, (uint64_t)v[STM_BYTES], 1));
        return resolve(s, slot, STM_FROM_BASE, (uint64_t)v[STM_BYTES], 0);
    case STM_OP_ADD:
        UMA_TRY(resolve(s, slot, STM_OUTPUT_BASE, count, 1));
        UMA_TRY(resolve(s, slot, STM_LEFT_BASE, count, 0));
        return resolve(s, slot, STM_RIGHT_BASE, count, 0);
    default: break;
    }
    complete(slot);
    made = plane(v[STM_OUT_HEIGHT], v[STM_OUT_WIDTH], v[STM_OUT_PIXEL], v[STM_OUT_CHANNELS]);
    UMA_TRY(resolve(s, slot, STM_OUTPUT_BASE, made, 1));
    UMA_TRY(resolve(s, slot, STM_INPUT_BASE,
                    plane(v[STM_IN_HEIGHT], v[STM_IN_WIDTH], v[STM_IN_PIXEL], v[STM_CHANNELS]), 0));
    if (v[STM_WEIGHT_BYTES] == 0) return 0;
    weights = &slot->ranges[slot->n_ranges++];
    if (v[STM_WEIGHTS] + v[STM_WEIGHT_BYTES] > (int64_t)s->weights.size) return STM_FAULT_RANGE;
    weights->at = s->weights.bytes + v[STM_WEIGHTS];
    weights->bytes = (uint64_t)v[STM_WEIGHT_BYTES];
    return slot->residual ? resolve(s, slot, STM_RESIDUAL_BASE, made, 0) : 0;
}

/* --- Hazards ----------------------------------------------------------------------------------------------------- */

static int meet(const stm_range *a, const stm_range *b)
{
    const uintptr_t first = (uintptr_t)a->at, second = (uintptr_t)b->at;

    return (a->written || b->written) && first < second + b->bytes && second < first + a->bytes;
}

/* Whether a command and those of the other engine that may be unfinished could disturb each other; or it itself. */
static int32_t find_hazards(const sim *s, const stm_slot *slot)
{
    const engine *other = &s->engines[slot->kind->engine == STM_ENGINE_DMA ? STM_ENGINE_COMPUTE : STM_ENGINE_DMA];
    uint64_t n;
    int i, j;

    for (n = other->seen; n < other->issued; n++) {
        const stm_slot *unfinished = &other->slots[n % STM_QUEUE];
        for (i = 0; i < slot->n_ranges; i++) {
            for (j = 0; j < unfinished->n_ranges; j++) {
                if (meet(&slot->ranges[i], &unfinished->ranges[j])) return STM_FAULT_HAZARD;
            }
        }
    }
    for (i = 1; i < slot->n_ranges; i++) {
        /* An addition takes each number before it gives the one in its place; of a layer, its residual. */
        const int taken_first = slot->op == STM_OP_ADD || (slot->residual && i == STM_RESIDUAL_RANGE);
        const int in_place = taken_first && slot->ranges[i].at == slot->ranges[0].at;
        if (!in_place && meet(&slot->ranges[0], &slot->ranges[i])) return STM_FAULT_OVERLAP;
    }
    return 0;
}

/* --- Engines ----------------------------------------------------------------------------------------------------- */

static int in_weights(const sim *s, const stm_range *range)
{
    const uintptr_t at = (uintptr_t)range->at, start = (uintptr_t)s->weights.bytes;

    return at >= start && at < start + s->weights.size;
}

/* Where it is there. */
static uint64_t in_bank(const sim *s, const stm_range *range)
{
    return (uint64_t)(range->at - s->weights.bytes);
}

/* Does what a command says: all at once, at the end of its time. */
static int32_t execute(sim *s, const stm_slot *slot)
{
    int i;

    for (i = 0; i < slot->n_ranges; i++) {
        const stm_range *range = &slot->ranges[i];
        if (!in_weights(s, range)) {
            s->counters[range->written ? BYTES_WRITTEN : BYTES_READ] += range->bytes;
        } else if (!range->written) {
            UMA_TRY(uma_bank_readable(&s->weights, in_bank(s, range), range->bytes));
        }
    }
    if (slot->kind->engine == STM_ENGINE_COMPUTE) {
        s->counters[MACS] += stm_macs(slot);
        return stm_compute(slot);
    }
    memcpy(slot->ranges[0].at, slot->ranges[1].at, (size_t)slot->ranges[0].bytes);
    if (in_weights(s, &slot->ranges[0])) {
        uma_bank_note(&s->weights, in_bank(s, &slot->ranges[0]), slot->ranges[0].bytes);
    }
    return 0;
}

static void begin(sim *s, engine *e)
{
    if (!e->busy && e->finished < e->issued) {
        const uint64_t cycles = stm_cycles(&e->slots[e->finished % STM_QUEUE]);
        s->counters[e == &s->engines[STM_ENGINE_DMA] ? DMA_CYCLES : COMPUTE_CYCLES] += cycles;
        e->ends_at = s->now + cycles;
        e->busy = 1;
    }
}

static void finish(sim *s, engine *e)
{
    const stm_slot *slot = &e->slots[e->finished % STM_QUEUE];
    const int32_t fault = execute(s, slot);

    if (fault != 0) stop(s, fault, slot->offset);
    s->counters[COMMANDS] += 1;
    e->finished += 1;
    e->busy = 0;
}

/* Whether at most `pending` commands have not finished; then it is known of the others that they have. */
static int waited(engine *e, uint64_t pending)
{
    if (e->issued - e->finished > pending) return 0;
    if (e->issued > e->seen + pending) e->seen = e->issued - pending;
    return 1;
}

/* The next command of the stream. Gives 0 if it has to wait. */
static int issue(sim *s)
{
    engine *const dma = &s->engines[STM_ENGINE_DMA], *const compute = &s->engines[STM_ENGINE_COMPUTE];
    stm_slot slot;
    int32_t fault = decode(s, &slot);

    if (fault == 0 && slot.kind->engine == STM_ENGINE_CONTROL) {
        const int end = slot.op == STM_OP_END;
        const uint64_t of_dma = end ? 0 : (uint64_t)slot.v[STM_DMA], of_compute = end ? 0 : (uint64_t)slot.v[STM_COMPUTE];
        if (of_dma != STM_ANY && !waited(dma, of_dma)) return 0;
        if (of_compute != STM_ANY && !waited(compute, of_compute)) return 0;
        s->counters[COMMANDS] += 1;
        if (end) {
            s->running = 0;
            return 1;
        }
    } else if (fault == 0) {
        engine *const e = slot.kind->engine == STM_ENGINE_DMA ? dma : compute;
        if (e->issued - e->seen == STM_QUEUE && !waited(e, STM_QUEUE - 1u)) return 0;
        fault = resolve_all(s, &slot);
        if (fault == 0) fault = find_hazards(s, &slot);
        e->slots[e->issued % STM_QUEUE] = slot;
        e->issued += 1;
    }
    if (fault != 0) {
        stop(s, fault, slot.offset);
        return 1;
    }
    s->next += 4u * slot.kind->words;
    s->fetched_at = s->now + slot.kind->words;
    return 1;
}

/* Lets time pass until `until`, or the stream's end. */
static void advance(sim *s, uint64_t until)
{
    const uint64_t start = s->now;
    int i;

    while (s->running) {
        uint64_t next = UINT64_MAX;
        for (i = 0; i < 2; i++) begin(s, &s->engines[i]);
        if (s->fetched_at <= s->now && issue(s)) continue;
        if (s->fetched_at > s->now) next = s->fetched_at;
        for (i = 0; i < 2; i++) {
            if (s->engines[i].busy && s->engines[i].ends_at < next) next = s->engines[i].ends_at;
        }
        if (next > until) {
            s->now = until;
            break;
        }
        s->now = next;
        for (i = 0; i < 2; i++) {
            if (s->engines[i].busy && s->engines[i].ends_at == next) finish(s, &s->engines[i]);
        }
    }
    s->counters[CYCLES] += s->now - start;
}

/* --- Registers --------------------------------------------------------------------------------------------------- */

static void start(sim *s)
{
    int i;

    for (i = 0; i < 2; i++) {
        engine *e = &s->engines[i];
        e->issued = e->finished = e->seen = 0;
        e->busy = 0;
    }
    uma_bank_forget(&s->weights);
    s->next = 0;
    s->fetched_at = s->now;
    s->running = 1;
}

static void control(sim *s, uint32_t value)
{
    if (value == STM_RESET) {
        memset(s->counters, 0, sizeof s->counters);
        s->running = 0;
        s->fault = 0;
        s->fault_at = 0;
    } else if (value == STM_STOP) {
        s->running = 0;
    } else if (value != STM_START) {
        stop(s, STM_FAULT_REGISTER, s->next);
    } else if (s->running) {
        stop(s, STM_FAULT_BUSY, s->next);
    } else if (s->fault == 0) {
        start(s);
    }
}

static void write_register(void *self, uint32_t offset, uint32_t value)
{
    sim *s = self;

    if (offset == STM_CONTROL) {
        control(s, value);
    } else if (s->running) {
        stop(s, STM_FAULT_BUSY, s->next);
    } else if (offset >= STM_REGION && offset < STM_REGION + 16u * STM_N_REGIONS && offset % 4u == 0) {
        s->regions[(offset - STM_REGION) / 16u].words[offset / 4u % 4u] = value;
    } else if (offset == STM_STREAM || offset == STM_STREAM + 4u) {
        s->stream[(offset - STM_STREAM) / 4u] = value;
    } else if (offset == STM_STREAM_BYTES) {
        s->stream_bytes = value;
    } else if (offset == STM_REGION_COUNT && value <= STM_N_REGIONS) {
        s->n_regions = value;
    } else {
        stop(s, STM_FAULT_REGISTER, s->next);
    }
}

static uint32_t read_register(void *self, uint32_t offset)
{
    sim *s = self;

    if (offset >= STM_COUNTERS && offset < STM_COUNTERS + 8u * STM_N_COUNTERS && offset % 4u == 0) {
        return uma_counter_half(s->counters[(offset - STM_COUNTERS) / 8u], offset);
    }
    switch (offset) {
    case STM_ID: return STM_ID_VALUE;
    case STM_WEIGHT_SIZE: return s->weights.size;
    case STM_STATUS: advance(s, s->now + STM_POLL_CYCLES); return (uint32_t)s->running;
    case STM_FAULT: return (uint32_t)s->fault;
    case STM_FAULT_AT: return s->fault_at;
    default: stop(s, STM_FAULT_REGISTER, s->next); return 0;
    }
}

static void wait_for_interrupt(void *self)
{
    advance(self, UINT64_MAX);
}

int32_t stm_sim_bus(uma_device *device, void *memory, size_t bytes)
{
    sim *s = memory;

    if (device->n_parameters != STM_N_PARAMETERS || memory == NULL || bytes < sizeof *s ||
        (uint64_t)device->parameters[0] > (bytes - sizeof *s) / 2u) {
        return STM_FAULT_MEMORY;
    }
    memset(s, 0, sizeof *s);
    uma_bank_make(&s->weights, (uint8_t *)memory + sizeof *s, device->parameters[0], STM_FAULT_RANGE,
                  STM_FAULT_UNKNOWN);
    uma_sim_connect(device, s, read_register, write_register, wait_for_interrupt);
    return 0;
}
