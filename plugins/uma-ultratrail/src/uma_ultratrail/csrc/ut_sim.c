/* The simulator behind the device's registers: memories, the port to them, counters. One machine moves cycle by cycle;
 * when it has ended without a fault, the functional one does the same network again, and both must agree. Or the
 * functional one is all there is, and time does not pass.
 */
#include "ut_sim.h"

#include <string.h>

#include "uma_device.h"

int32_t ut_sim_bus(uma_device *device, void *memory, size_t bytes);
int32_t ut_functional_bus(uma_device *device, void *memory, size_t bytes);

#define POLL_CYCLES 64u

typedef struct sim {
    ut_machine machine;
    ut_machine twin; /* the same with feature memories of its own, for the functional simulator */
    ut_stepped stepped;
    ut_sums sums;
    uint32_t parameters[UT_N_PARAMETERS];
    int functional; /* it is all there is */
    int running;
    int touched; /* the host wrote into a memory while the machine ran: they cannot be compared */
    int32_t fault;
    uint32_t layer, fault_layer, fault_cycle;
    uint64_t port_words, starts;
    uint32_t port_memory, port_address, port_byte;
    uint8_t port_word[UT_MAX_WORD_BYTES];
} sim;

static void stop(sim *s, int32_t fault)
{
    if (s->fault == 0 && fault != 0) {
        s->fault = fault;
        if (s->running) {
            s->fault_layer = s->layer;
            s->fault_cycle = s->stepped.cycle;
        }
    }
    s->running = 0;
}

/* --- Running ----------------------------------------------------------------------------------------------------- */

static void copy_features(sim *s)
{
    uint32_t i;

    for (i = 0; i < UT_FEATURES; i++) {
        const ut_memory *const from = &s->machine.memories[i], *const to = &s->twin.memories[i];
        memcpy(to->data, from->data, (size_t)from->words * from->word_bytes);
        memcpy(to->known, from->known, from->words);
    }
}

static int same_features(const sim *s)
{
    uint32_t i, word;

    for (i = 0; i < UT_FEATURES; i++) {
        const ut_memory *const a = &s->machine.memories[i], *const b = &s->twin.memories[i];
        if (memcmp(a->known, b->known, a->words) != 0) return 0;
        for (word = 0; word < a->words; word++) {
            const size_t at = (size_t)word * a->word_bytes;
            if (a->known[word] && memcmp(a->data + at, b->data + at, a->word_bytes) != 0) return 0;
        }
    }
    return 1;
}

static void start(sim *s)
{
    s->starts++;
    s->running = 1;
    if (s->functional) {
        stop(s, ut_functional_run(&s->machine, &s->sums, &s->layer));
        return;
    }
    memcpy(s->twin.registers, s->machine.registers, sizeof s->twin.registers);
    copy_features(s);
    ut_stepped_start(&s->stepped);
    s->touched = 0;
}

/* One cycle, with what the host does to a memory in it. */
static void step(sim *s, const ut_access *host)
{
    uint32_t layer;

    ut_stepped_cycle(&s->stepped, &s->machine, host);
    s->layer = s->stepped.layer;
    if (s->stepped.state != UT_IDLE) return;
    if (s->stepped.fault == 0 && !s->touched &&
        (ut_functional_run(&s->twin, &s->sums, &layer) != 0 || layer != s->layer || !same_features(s))) {
        s->stepped.fault = UT_FAULT_DISAGREE;
    }
    stop(s, s->stepped.fault);
}

static void advance(sim *s, uint32_t cycles)
{
    static const ut_access none = {0, 0, 0};

    while (s->running && cycles-- > 0) step(s, &none);
}

static void wait_for_interrupt(void *self)
{
    sim *s = self;

    while (s->running) advance(s, POLL_CYCLES);
}

static void clear(sim *s)
{
    uint32_t i;

    memset(s->machine.registers, 0, sizeof s->machine.registers);
    for (i = 0; i < UT_N_MEMORIES; i++) memset(s->machine.memories[i].known, 0, s->machine.memories[i].words);
    s->port_memory = s->port_address = s->port_byte = 0;
}

static void reset(sim *s)
{
    s->running = 0;
    s->fault = 0;
    s->layer = s->fault_cycle = 0;
    s->fault_layer = UT_NO_LAYER;
    s->port_words = s->starts = 0;
    memset(&s->stepped, 0, sizeof s->stepped);
    clear(s);
}

static void control(sim *s, uint32_t value)
{
    if (value == UT_RESET) {
        reset(s);
    } else if (value == UT_STOP) {
        s->running = 0;
    } else if (value != UT_START && value != UT_CLEAR) {
        stop(s, UT_FAULT_REGISTER);
    } else if (s->running) {
        stop(s, UT_FAULT_BUSY);
    } else if (value == UT_CLEAR) {
        clear(s);
    } else if (s->fault == 0) {
        start(s);
    }
}

/* --- The port ---------------------------------------------------------------------------------------------------- */

/* The host uses a memory: while the machine runs, in one of its cycles. */
static void use_port(sim *s, int read, int write)
{
    const ut_access host = {read, write, s->port_memory};

    s->touched |= write;
    if (s->running) step(s, &host);
}

static void finish_word(sim *s)
{
    s->port_byte += 4u;
    s->port_words++;
    if (s->port_byte >= s->machine.memories[s->port_memory].word_bytes) {
        s->port_byte = 0;
        s->port_address++;
    }
}

static void write_port(sim *s, uint32_t value)
{
    const ut_memory *const memory = &s->machine.memories[s->port_memory];
    uint32_t i;
    int complete;

    for (i = 0; i < 4u && s->port_byte + i < memory->word_bytes; i++) {
        s->port_word[s->port_byte + i] = (uint8_t)(value >> 8u * i);
    }
    complete = s->port_byte + 4u >= memory->word_bytes;
    use_port(s, 0, complete);
    if (complete && s->port_address >= memory->words) {
        stop(s, UT_FAULT_RANGE);
    } else if (complete) {
        uint8_t *const to = memory->data + (size_t)s->port_address * memory->word_bytes;
        memcpy(to, s->port_word, memory->word_bytes);
        memory->known[s->port_address] = 1;
        /* A lane of the feature memories has as many bits as a feature. */
        for (i = 0; s->port_memory < UT_FEATURES && i < memory->word_bytes; i++) {
            const uint32_t half = (uint32_t)1 << (s->machine.feature_bits - 1);
            to[i] = (uint8_t)(((to[i] & (2u * half - 1u)) ^ half) - half);
        }
    }
    finish_word(s);
}

static uint32_t read_port(sim *s)
{
    const ut_memory *const memory = &s->machine.memories[s->port_memory];
    uint32_t i, value = 0;

    if (s->port_byte == 0) {
        use_port(s, 1, 0);
        if (s->port_address >= memory->words || !memory->known[s->port_address]) {
            stop(s, s->port_address >= memory->words ? UT_FAULT_RANGE : UT_FAULT_UNKNOWN);
            return 0;
        }
        memcpy(s->port_word, memory->data + (size_t)s->port_address * memory->word_bytes, memory->word_bytes);
    }
    for (i = 0; i < 4u && s->port_byte + i < memory->word_bytes; i++) {
        value |= (uint32_t)s->port_word[s->port_byte + i] << 8u * i;
    }
    finish_word(s);
    return value;
}

/* --- Registers --------------------------------------------------------------------------------------------------- */

static void write_register(void *self, uint32_t offset, uint32_t value)
{
    sim *s = self;

    if (offset == UT_CONTROL) {
        control(s, value);
    } else if (offset == UT_PORT_DATA) {
        write_port(s, value);
    } else if (offset == UT_PORT_ADDRESS) {
        s->port_address = value;
        s->port_byte = 0;
    } else if (offset == UT_PORT_MEMORY && value < UT_N_MEMORIES) {
        s->port_memory = value;
        s->port_byte = 0;
    } else if (offset >= UT_LAYER && offset < UT_LAYER + 8u * (uint32_t)s->machine.layers && offset % 4u == 0) {
        uint64_t *const word = &s->machine.registers[(offset - UT_LAYER) / 8u];
        const uint32_t shift = offset % 8u * 8u;
        if (s->running) stop(s, UT_FAULT_BUSY);
        *word = (*word & ~((uint64_t)UINT32_MAX << shift)) | (uint64_t)value << shift;
    } else {
        stop(s, UT_FAULT_REGISTER);
    }
}

/* A counter of all layers, or of one. */
static uint64_t counted(const sim *s, uint32_t number)
{
    uint64_t sum = 0;
    uint32_t i;

    if (number == UT_PORT_WORDS) return s->port_words;
    if (number == UT_STARTS) return s->starts;
    for (i = 0; i < UT_MAX_LAYERS; i++) sum += s->stepped.counts[i][number];
    return sum;
}

static uint32_t read_register(void *self, uint32_t offset)
{
    sim *s = self;

    if (offset >= UT_CONFIG && offset < UT_CONFIG + 4u * UT_N_PARAMETERS && offset % 4u == 0) {
        return s->parameters[(offset - UT_CONFIG) / 4u];
    }
    if (offset >= UT_COUNTERS && offset < UT_COUNTERS + 8u * UT_N_COUNTERS && offset % 4u == 0) {
        return (uint32_t)(counted(s, (offset - UT_COUNTERS) / 8u) >> offset % 8u * 8u);
    }
    if (offset >= UT_LAYER_COUNTERS && offset < UT_LAYER_COUNTERS + 64u * UT_MAX_LAYERS && offset % 4u == 0 &&
        offset % 64u < 8u * UT_N_LAYER_COUNTERS) {
        const uint64_t *const counts = s->stepped.counts[(offset - UT_LAYER_COUNTERS) / 64u];
        return (uint32_t)(counts[offset % 64u / 8u] >> offset % 8u * 8u);
    }
    switch (offset) {
    case UT_ID: return UT_ID_VALUE;
    case UT_STATUS: advance(s, POLL_CYCLES); return (uint32_t)s->running;
    case UT_FAULT: return (uint32_t)s->fault;
    case UT_FAULT_LAYER: return s->fault_layer;
    case UT_FAULT_CYCLE: return s->fault_cycle;
    case UT_PORT_DATA: return read_port(s);
    default: stop(s, UT_FAULT_REGISTER); return 0;
    }
}

/* --- Making one -------------------------------------------------------------------------------------------------- */

/* Gives the bytes of memory behind the simulator's own that its memories take, and places them there. */
static uint64_t place_memories(sim *s, uint8_t *at)
{
    const uint32_t *const p = s->parameters;
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < UT_N_MEMORIES + UT_FEATURES; i++) {
        ut_memory *const memory = i < UT_N_MEMORIES ? &s->machine.memories[i] : &s->twin.memories[i - UT_N_MEMORIES];
        const uint32_t kind = i < UT_N_MEMORIES ? i : 0;
        memory->words = p[kind == UT_WEIGHTS ? UT_WMEM_WORDS : kind == UT_BIASES ? UT_BMEM_WORDS : UT_FMEM_WORDS];
        memory->word_bytes = p[UT_ARRAY_DIM];
        if (kind == UT_WEIGHTS) memory->word_bytes = (p[UT_ARRAY_DIM] * p[UT_ARRAY_DIM] * p[UT_WEIGHT_BITS] + 7u) / 8u;
        if (kind == UT_BIASES) memory->word_bytes = (p[UT_ARRAY_DIM] * p[UT_BIAS_BITS] + 7u) / 8u;
        if (at != NULL) memory->data = at + bytes;
        bytes += (uint64_t)memory->words * memory->word_bytes;
        if (at != NULL) memory->known = at + bytes;
        bytes += memory->words;
    }
    s->twin.memories[UT_WEIGHTS] = s->machine.memories[UT_WEIGHTS];
    s->twin.memories[UT_BIASES] = s->machine.memories[UT_BIASES];
    return bytes;
}

static int32_t make(uma_device *device, void *memory, size_t bytes, int functional)
{
    sim *s = memory;
    ut_machine *m;
    int i;

    if (device->n_parameters != UT_N_PARAMETERS || memory == NULL || bytes < sizeof *s) return UT_FAULT_MEMORY;
    memset(s, 0, sizeof *s);
    for (i = 0; i < UT_N_PARAMETERS; i++) s->parameters[i] = (uint32_t)device->parameters[i];
    if (place_memories(s, NULL) > bytes - sizeof *s) return UT_FAULT_MEMORY;
    memset((uint8_t *)memory + sizeof *s, 0, (size_t)place_memories(s, (uint8_t *)memory + sizeof *s));
    m = &s->machine;
    m->dim = (int32_t)s->parameters[UT_ARRAY_DIM];
    m->weight_bits = (int32_t)s->parameters[UT_WEIGHT_BITS];
    m->feature_bits = (int32_t)s->parameters[UT_FEATURE_BITS];
    m->bias_bits = (int32_t)s->parameters[UT_BIAS_BITS];
    m->accumulator_bits = (int32_t)s->parameters[UT_ACCUMULATOR_BITS];
    m->layers = (int32_t)s->parameters[UT_LAYERS];
    memcpy(&s->twin, m, offsetof(ut_machine, memories));
    s->functional = functional;
    reset(s);
    device->bus.self = s;
    device->bus.read32 = read_register;
    device->bus.write32 = write_register;
    device->bus.wait = wait_for_interrupt;
    return 0;
}

int32_t ut_sim_bus(uma_device *device, void *memory, size_t bytes)
{
    return make(device, memory, bytes, 0);
}

int32_t ut_functional_bus(uma_device *device, void *memory, size_t bytes)
{
    return make(device, memory, bytes, 1);
}
