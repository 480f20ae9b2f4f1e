/* The simulator behind the machine's registers. A stream runs to its end in the write that starts it. */
#include <string.h>

#include "eu_op.h"
#include "eu_regs.h"
#include "eu_sim.h"
#include "uma_device.h"

int32_t eu_sim_bus(uma_device *device, void *memory, size_t bytes);

#define N_WORDS (EU_REG_CID / 4u) /* registers that only keep what is written are these words */

typedef struct sim {
    eu_config config;
    uint32_t id, config_word, status, read_bytes, fault, word;
    uint32_t kept[N_WORDS];
    uint32_t region_bytes[EU_N_REGIONS], writable[EU_N_REGIONS];
    uint64_t counters[EU_N_COUNTERS];
    eu_memory memory;
} sim;

static uint8_t *address(const sim *s, uint32_t offset)
{
    const uint64_t at = s->kept[offset / 4u] | (uint64_t)s->kept[offset / 4u + 1u] << 32;

    return (uint8_t *)(uintptr_t)at;
}

/* What the machine itself would say of a fault. It sees no hazards: those are parse errors here. */
static uint32_t status_of(int32_t fault)
{
    if (fault == EU_FAULT_NONE) return EU_STATUS_END;
    if (fault == EU_FAULT_ADDRESS || fault == EU_FAULT_READ_ONLY) return EU_STATUS_BUS_FAULT;
    return fault == EU_FAULT_WEIGHTS ? EU_STATUS_WEIGHT_FAULT : EU_STATUS_PARSE_FAULT;
}

static void run(sim *s)
{
    eu_region regions[EU_N_REGIONS];
    eu_result result;
    uint32_t i;

    /* SRAM is behind port 0, flash behind port 1. Of a region's two bits the upper one is the port. */
    s->config.flash_regions = 0;
    for (i = 0; i < EU_N_REGIONS; i++) {
        regions[i].data = address(s, EU_REG_BASEP + 8u * i);
        regions[i].bytes = s->region_bytes[i];
        regions[i].writable = s->writable[i] != 0;
        s->config.flash_regions |= (s->kept[EU_REG_REGIONCFG / 4u] >> (2u * i + 1u) & 1u) << i;
    }
    memset(&result, 0, sizeof result);
    eu_run(&s->config, (const uint32_t *)(const void *)address(s, EU_REG_QBASE), s->kept[EU_REG_QSIZE / 4u] / 4u,
           regions, &s->memory, &result);
    s->fault = (uint32_t)result.fault;
    s->word = result.word;
    s->read_bytes = 4u * (result.word + (result.fault == EU_FAULT_NONE));
    s->status = status_of(result.fault) | EU_STATUS_IRQ;
    s->counters[EU_COUNT_CYCLES] += result.cycles;
    s->counters[EU_COUNT_MAC_CYCLES] += (result.macs + (uint64_t)s->config.macs - 1u) / (uint64_t)s->config.macs;
    for (i = 0; i < EU_N_KINDS; i++) {
        s->counters[EU_COUNT_CONV_CYCLES + i] += result.kind_cycles[i];
        s->counters[EU_COUNT_OPERATIONS] += result.kind_count[i];
    }
    s->counters[EU_COUNT_MACS] += result.macs;
    s->counters[EU_COUNT_DMA_BYTES] += result.dma_bytes;
}

static void reset(sim *s)
{
    s->status = s->read_bytes = s->fault = s->word = 0;
    memset(s->kept, 0, sizeof s->kept);
    memset(s->region_bytes, 0, sizeof s->region_bytes);
    memset(s->writable, 0, sizeof s->writable);
    memset(s->counters, 0, sizeof s->counters);
}

static void command(sim *s, uint32_t value)
{
    s->kept[EU_REG_CMD / 4u] = value & EU_CMD_IDLE;
    if (value & EU_CMD_CLEAR_IRQ) s->status &= ~EU_STATUS_IRQ;
    if (value & EU_CMD_RUN) run(s);
}

static uint32_t half(uint64_t value, uint32_t offset)
{
    return (uint32_t)(offset % 8u == 0 ? value : value >> 32);
}

static uint32_t read32(void *self, uint32_t offset)
{
    sim *s = self;

    if (offset >= EU_REG_CID && offset < EU_REG_CID + 16u) return EU_SIM_CID >> 2u * (offset - EU_REG_CID) & 0xFFu;
    if (offset >= EU_SIM_COUNTERS && offset < EU_SIM_COUNTERS + 8u * EU_N_COUNTERS) {
        return half(s->counters[(offset - EU_SIM_COUNTERS) / 8u], offset);
    }
    switch (offset) {
    case EU_REG_ID:
        return s->id;
    case EU_REG_STATUS:
        return s->status;
    case EU_REG_QREAD:
        return s->read_bytes;
    case EU_REG_CONFIG:
        return s->config_word;
    case EU_REG_PMCCNTR:
    case EU_REG_PMCCNTR + 4u:
        return half(s->counters[EU_COUNT_CYCLES], offset);
    case EU_REG_PMEVCNTR0:
        return (uint32_t)s->counters[EU_COUNT_MAC_CYCLES];
    case EU_SIM_FAULT:
        return s->fault;
    case EU_SIM_WORD:
        return s->word;
    default:
        return offset < 4u * N_WORDS ? s->kept[offset / 4u] : 0;
    }
}

static void write32(void *self, uint32_t offset, uint32_t value)
{
    sim *s = self;

    if (offset == EU_REG_CMD) {
        command(s, value);
    } else if (offset == EU_REG_RESET) {
        reset(s);
    } else if (offset >= EU_SIM_REGION && offset < EU_SIM_REGION + 8u * EU_N_REGIONS) {
        const uint32_t region = (offset - EU_SIM_REGION) / 8u;
        *(offset % 8u == 0 ? &s->region_bytes[region] : &s->writable[region]) = value;
    } else if (offset < 4u * N_WORDS) {
        s->kept[offset / 4u] = value;
    }
}

static eu_speed speed(const int64_t *parameters)
{
    eu_speed s;

    s.bytes_per_16_cycles = (int32_t)parameters[0];
    s.latency_cycles = (int32_t)parameters[1];
    return s;
}

int32_t eu_sim_bus(uma_device *device, void *memory, size_t bytes)
{
    sim *const s = memory;
    uint32_t i;

    if (bytes < sizeof *s) return EU_FAULT_MEMORY;
    if (device->n_parameters != EU_N_PARAMETERS) return EU_FAULT_OTHER;
    memset(s, 0, sizeof *s);
    s->config.macs = (int32_t)device->parameters[EU_PARAMETER_MACS];
    s->config.sram = speed(device->parameters + EU_PARAMETER_SRAM_BYTES_PER_16_CYCLES);
    s->config.flash = speed(device->parameters + EU_PARAMETER_FLASH_BYTES_PER_16_CYCLES);
    s->id = (uint32_t)EU_ARCH_MAJOR << 28 | EU_ARCH_MINOR << 20 | EU_ARCH_PATCH << 16;
    for (i = 0; i < EU_N_MACHINES; i++) {
        if (eu_machines[i].macs == s->config.macs) s->config_word = eu_machines[i].config;
    }
    device->bus.self = s;
    device->bus.read32 = read32;
    device->bus.write32 = write32;
    device->bus.wait = NULL;
    return 0;
}
