/* The walk over a stream: what a command sets, and when an operation starts. */
#include "eu_sim.h"

#include <string.h>

#include "eu_op.h"

uint32_t eu_memory_bytes(void)
{
    return (uint32_t)sizeof(eu_memory);
}

int32_t eu_fail(eu_memory *m, int32_t fault, int32_t slot)
{
    if (m->result->fault == EU_FAULT_NONE) {
        m->result->fault = fault;
        m->result->slot = slot;
    }
    return m->result->fault;
}

int32_t eu_work(eu_memory *m, uint64_t amount)
{
    const uint64_t limit = m->config->work_limit;

    if (limit == 0) return EU_FAULT_NONE;
    if (amount > limit - m->work) return eu_fail(m, EU_FAULT_WORK, -1);
    m->work += amount;
    return EU_FAULT_NONE;
}

/* --- Commands ----------------------------------------------------------------------------------------------------- */

static const eu_command *find(uint32_t header)
{
    uint32_t low = 0, high = EU_N_COMMANDS;

    while (low < high) {
        const uint32_t middle = (low + high) / 2;

        if (eu_commands[middle].header == header) return &eu_commands[middle];
        if (eu_commands[middle].header < header)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int64_t field_of(const eu_field *f, const uint32_t *words)
{
    const uint32_t word = words[f->word], lower = f->bits == 32 ? word : word >> f->lsb & (((uint32_t)1 << f->bits) - 1);
    const uint32_t upper = f->upper_bits ? word >> f->upper_lsb & (((uint32_t)1 << f->upper_bits) - 1) : 0;
    const int64_t value = (int64_t)((uint64_t)upper << f->bits | lower), bits = (int64_t)1 << (f->bits + f->upper_bits);

    return f->least < 0 && value >= bits / 2 ? value - bits : value;
}

static uint32_t mask_of(const eu_field *f, uint32_t word)
{
    uint32_t mask;

    if (f->word != word) return 0;
    mask = f->bits == 32 ? UINT32_MAX : (((uint32_t)1 << f->bits) - 1) << f->lsb;
    if (f->upper_bits) mask |= (((uint32_t)1 << f->upper_bits) - 1) << f->upper_lsb;
    return mask;
}

/* Sets the state that a command carries, if all of it is legal. */
static int32_t set(eu_memory *m, const eu_command *command, const uint32_t *words)
{
    uint32_t covered[2] = {0xFFFFu, 0}, i;

    for (i = command->first; i < (uint32_t)command->first + command->fields; i++) {
        const eu_field *f = &eu_fields[i];
        const int64_t value = field_of(f, words);
        const uint32_t sign = ((uint32_t)1 << f->sign_bits) - 1;

        if ((words[0] >> 16 & sign) != (value < 0 ? sign : 0)) return eu_fail(m, EU_FAULT_RESERVED, (int32_t)i);
        covered[0] |= mask_of(f, 0) | sign << 16;
        covered[1] |= mask_of(f, 1);
        if (value < f->least || value > f->most || value % f->multiple != 0 ||
            (f->legal != 0 && (value < 0 || value > 31 || (f->legal >> value & 1u) == 0)))
            return eu_fail(m, EU_FAULT_VALUE, (int32_t)i);
        m->value[i] = value;
        m->known[i] = 1;
    }
    for (i = 0; i < command->words; i++)
        if ((words[i] & ~covered[i]) != 0) return eu_fail(m, EU_FAULT_RESERVED, -1);
    return EU_FAULT_NONE;
}

/* --- Operations --------------------------------------------------------------------------------------------------- */

static void count(eu_memory *m, uint32_t word, uint32_t kind, uint64_t start, uint64_t cycles, uint64_t macs)
{
    eu_result *r = m->result;

    if (r->records != NULL && r->n_records < r->records_room) {
        eu_record *record = &r->records[r->n_records];

        record->word = word;
        record->kind = kind;
        record->start = start;
        record->cycles = cycles;
        record->macs = macs;
    }
    r->n_records++;
    r->kind_cycles[kind] += cycles;
    r->kind_count[kind]++;
    r->macs += macs;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The slots of tables that an operation needs have to be loaded; what has no table may overwrite all. */
static int32_t use_tables(eu_memory *m)
{
    const eu_op *op = &m->op;
    uint32_t slot;

    if (!op->uses_lut) {
        if (m->machine->reserved_banks == 0) m->lut_known = 0;
        return EU_FAULT_NONE;
    }
    for (slot = op->lut_start / EU_LUT_SLOT_BYTES; slot < op->lut_end / EU_LUT_SLOT_BYTES; slot++)
        if ((m->lut_known >> slot & 1u) == 0) return eu_fail(m, EU_FAULT_TABLE, EU_ACTIVATION_FUNCTION);
    return EU_FAULT_NONE;
}

/* Products or elements, whichever are more, and a weight's way through the decoder for each block. */
static uint64_t work_of(const eu_op *op)
{
    const uint64_t pixels = (uint64_t)op->ofm.height * (uint64_t)op->ofm.width, macs = eu_kernel_macs(op);
    const uint64_t blocks = ((uint64_t)op->ofm.height / (uint64_t)op->block_height + 1) *
                            ((uint64_t)op->ofm.width / (uint64_t)op->block_width + 1);

    return macs + macs / pixels * 8 * blocks + pixels * (uint64_t)op->ofm.depth;
}

static int32_t run_kernel(eu_memory *m, uint32_t word, uint32_t kind, int32_t mode)
{
    uint64_t cycles, start;
    int32_t fault;

    if (eu_read_kernel(m, word, kind, mode) || eu_work(m, work_of(&m->op)) || use_tables(m) || eu_kernel_hazards(m))
        return m->result->fault;
    if (kind == EU_KIND_POOL)
        fault = eu_pool(m);
    else
        fault = kind == EU_KIND_ELEMENTWISE ? eu_elementwise(m) : eu_convolve(m);
    if (fault) return fault;
    cycles = eu_kernel_cycles(m);
    start = later(m->now, m->kernels_end[0]);
    count(m, word, kind, start, cycles, eu_kernel_macs(&m->op));
    m->kernels_end[1] = m->kernels_end[0];
    m->kernels_end[0] = start + cycles;
    m->now = later(m->now, m->kernels_end[1]); /* a third kernel is not taken before the first has ended */
    m->flight[1] = m->flight[0];
    m->flight[0] = m->op;
    if (m->n_flight < 2) m->n_flight++;
    return EU_FAULT_NONE;
}

static int32_t run_copy(eu_memory *m, uint32_t word)
{
    eu_copy *copy = &m->copy;
    uint64_t length, cycles, start;

    copy->in_flight = 0; /* the one before has to be over: there is one channel */
    if (eu_read_copy(m, word)) return m->result->fault;
    length = (uint64_t)(copy->from.end - copy->from.start);
    if (eu_work(m, length) || eu_copy_hazards(m, copy)) return m->result->fault;
    if (copy->to.region == EU_N_REGIONS) {
        int64_t slot;

        memcpy(m->lut + copy->to.start, m->regions[copy->from.region].data + copy->from.start, (size_t)length);
        for (slot = (copy->to.start + EU_LUT_SLOT_BYTES - 1) / EU_LUT_SLOT_BYTES; slot < copy->to.end / EU_LUT_SLOT_BYTES; slot++)
            m->lut_known |= (uint32_t)1 << slot;
    } else if (length > 0) {
        memmove(m->regions[copy->to.region].data + copy->to.start, m->regions[copy->from.region].data + copy->from.start,
                (size_t)length);
    }
    copy->in_flight = 1;
    cycles = eu_copy_cycles(m, copy);
    start = later(m->now, m->copy_end);
    m->now = start;
    m->copy_end = start + cycles;
    m->result->dma_bytes += length;
    count(m, word, EU_KIND_DMA, start, cycles, 0);
    return EU_FAULT_NONE;
}

static void wait_for_kernels(eu_memory *m, int64_t left)
{
    if (left >= 2) return;
    m->now = later(m->now, m->kernels_end[left]);
    if (m->n_flight > left) m->n_flight = (int)left;
}

static void wait_for_copy(eu_memory *m, int64_t left)
{
    if (left >= 1) return;
    m->now = later(m->now, m->copy_end);
    m->copy.in_flight = 0;
}

/* Does a command. Gives whether the stream goes on. */
static int step(eu_memory *m, const eu_command *command, const uint32_t *words, uint32_t at)
{
    if (set(m, command, words)) return 0;
    switch (command->header) {
    case EU_OP_STOP:
        wait_for_kernels(m, 0);
        wait_for_copy(m, 0);
        return 0;
    case EU_OP_CONV:
        return run_kernel(m, at, EU_KIND_CONV, 0) == EU_FAULT_NONE;
    case EU_OP_DEPTHWISE:
        return run_kernel(m, at, EU_KIND_DEPTHWISE, 0) == EU_FAULT_NONE;
    case EU_OP_POOL:
        return run_kernel(m, at, EU_KIND_POOL, (int32_t)m->value[EU_OP_POOL_MODE]) == EU_FAULT_NONE;
    case EU_OP_ELEMENTWISE:
        return run_kernel(m, at, EU_KIND_ELEMENTWISE, (int32_t)m->value[EU_OP_ELEMENTWISE_MODE]) == EU_FAULT_NONE;
    case EU_OP_DMA_START:
        return run_copy(m, at) == EU_FAULT_NONE;
    case EU_OP_DMA_WAIT:
        wait_for_copy(m, m->value[EU_OP_DMA_WAIT_OUTSTANDING]);
        return 1;
    case EU_OP_KERNEL_WAIT:
        wait_for_kernels(m, m->value[EU_OP_KERNEL_WAIT_OUTSTANDING]);
        return 1;
    default: /* registers, OP_IRQ, OP_PMU_MASK */
        return 1;
    }
}

static int is_speed(const eu_speed *speed)
{
    return speed->bytes_per_16_cycles > 0 && speed->latency_cycles >= 0;
}

void eu_run(const eu_config *config, const uint32_t *words, uint32_t count, const eu_region regions[EU_N_REGIONS],
            eu_memory *memory, eu_result *result)
{
    static const eu_result nothing;
    eu_record *records = result->records;
    const uint32_t room = result->records_room;
    uint32_t at = 0;
    int i;

    *result = nothing;
    result->records = records;
    result->records_room = room;
    result->slot = -1;
    memset(memory, 0, sizeof *memory);
    memory->config = config;
    for (i = 0; i < EU_N_MACHINES; i++)
        if (eu_machines[i].macs == config->macs) memory->machine = &eu_machines[i];
    memory->regions = regions;
    memory->result = result;
    if (memory->machine == NULL || !is_speed(&config->sram) || !is_speed(&config->flash))
        eu_fail(memory, EU_FAULT_CONFIGURATION, -1);
    while (result->fault == EU_FAULT_NONE) {
        const eu_command *command;

        result->word = at;
        if (at >= count) {
            eu_fail(memory, EU_FAULT_NO_STOP, -1);
            break;
        }
        command = find(words[at] & 0xFFFFu);
        if (command == NULL)
            eu_fail(memory, EU_FAULT_COMMAND, -1);
        else if (command->words > count - at)
            eu_fail(memory, EU_FAULT_CUT, -1);
        else if (step(memory, command, words + at, at))
            at += command->words;
        else
            break;
    }
    result->cycles = later(memory->now, later(memory->kernels_end[0], memory->copy_end));
}
