#include "eu_driver.h"

#include "eu_machine.h"
#include "eu_regs.h"

#define MAGIC 0x00504F43u /* "COP", then the version of the format */
#define VERSION 0x31u
#define N_REGIONS 8
#define CONSTANTS 0 /* where the table of bases has what is constant in the model */

enum { ACTION_CONFIG = 1, ACTION_STREAM = 2, ACTION_NOTHING = 5 };

/* Far more than any stream takes, and than a reset takes, so that what never ends does not stop the program for good. */
#ifndef EU_POLL_LIMIT
#define EU_POLL_LIMIT 100000000
#endif
#define RESET_LIMIT 100000

/* What the driver knows of a device. */
typedef struct state {
    int32_t simulated, started;
    uint32_t config, id;
} state;

/* A payload's stream. */
typedef struct stream {
    const uint8_t *at;
    uint32_t bytes;
} stream;

static uint32_t load_word(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* --- Payloads ----------------------------------------------------------------------------------------------------- */

/* Is the stream for this machine? Its configuration has to be the same; its architecture may be older. */
static int32_t check_machine(const state *s, uint32_t config, uint32_t id)
{
    const uint32_t version = 0xF0u;

    if ((config & version) > (s->config & version)) return EU_FAULT_NEWER;
    if (config != s->config) return EU_FAULT_STREAM_MACHINE;
    if (EU_ID_ARCH_MAJOR(id) != EU_ID_ARCH_MAJOR(s->id)) return EU_FAULT_NEWER;
    return EU_ID_ARCH_MINOR(id) > EU_ID_ARCH_MINOR(s->id) ? EU_FAULT_NEWER : 0;
}

static int32_t read_payload(const state *s, const uint8_t *at, size_t bytes, stream *found)
{
    const uint8_t *const end = at + bytes;
    int known = 0;

    found->at = NULL;
    found->bytes = 0;
    if (bytes < 4u || bytes % 4u != 0 || (load_word(at) & 0xFFFFFFu) != MAGIC) return EU_FAULT_PAYLOAD;
    if (at[3] != VERSION) return EU_FAULT_NEWER;
    at += 4;
    while (at < end) {
        const uint32_t tag = load_word(at), words = tag >> 16 | (tag >> 8 & 0xFFu) << 16;
        const size_t left = (size_t)(end - at) - 4u;

        at += 4;
        switch (tag & 0xFFu) {
        case ACTION_CONFIG:
            if (left < 8u) return EU_FAULT_PAYLOAD;
            UMA_TRY(check_machine(s, load_word(at), load_word(at + 4)));
            known = 1;
            at += 8;
            break;
        case ACTION_STREAM:
            if (words > left / 4u || found->at != NULL) return EU_FAULT_PAYLOAD;
            found->at = at;
            found->bytes = 4u * words;
            at += found->bytes;
            break;
        case ACTION_NOTHING:
            break;
        default:
            return EU_FAULT_PAYLOAD;
        }
    }
    return known && found->at != NULL ? 0 : EU_FAULT_PAYLOAD;
}

/* --- The machine -------------------------------------------------------------------------------------------------- */

static int aligned(const void *at)
{
    return (uintptr_t)at % 16u == 0;
}

/* An address into two registers; a machine that is none of the simulator's has 32 bits of it. */
static int32_t write_address(const uma_device *device, uint32_t offset, const void *host)
{
    const state *const s = device->state;
    uint64_t address = (uint64_t)(uintptr_t)host;

    if (device->bus.address != NULL) UMA_TRY(device->bus.address(device->bus.self, host, &address));
    if (!s->simulated && address > UINT32_MAX) return UMA_FAULT_UNREACHABLE;
    uma_write32(device, offset, (uint32_t)address);
    uma_write32(device, offset + 4u, (uint32_t)(address >> 32));
    return 0;
}

/* The table of base addresses; a region that is not there has none. As in the public driver the model's constants, which
 * may lie in flash, come by the second port, and all else by the first: the arena, and the caller's arrays too. */
static int32_t write_regions(const uma_device *device, const uma_region *regions, int32_t n_regions)
{
    const state *const s = device->state;
    uint32_t ports = 0;
    int32_t i;

    if (n_regions < 0 || n_regions > N_REGIONS) return EU_FAULT_REGIONS;
    for (i = 0; i < N_REGIONS; i++) {
        const int there = i < n_regions;

        if (there && regions[i].bytes > UINT32_MAX) return EU_FAULT_REGIONS;
        if (there && !s->simulated && !aligned(regions[i].at)) return EU_FAULT_UNALIGNED;
        ports |= (i == CONSTANTS ? EU_PORT_1 : EU_PORT_0) << 2 * i;
        UMA_TRY(write_address(device, EU_REG_BASEP + 8u * (uint32_t)i, there ? regions[i].at : NULL));
        if (s->simulated) {
            uma_write32(device, EU_SIM_REGION + 8u * (uint32_t)i, there ? (uint32_t)regions[i].bytes : 0);
            uma_write32(device, EU_SIM_REGION + 8u * (uint32_t)i + 4u, there && regions[i].writable);
        }
    }
    uma_write32(device, EU_REG_REGIONCFG, ports);
    return 0;
}

/* What a stream came to that ended, or did not. */
static int32_t outcome(const uma_device *device)
{
    const state *const s = device->state;
    const uint32_t status = uma_read32(device, EU_REG_STATUS);

    if (s->simulated) UMA_TRY((int32_t)uma_read32(device, EU_SIM_FAULT));
    if (status & EU_STATUS_BUS_FAULT) return EU_FAULT_BUS;
    if (status & EU_STATUS_PARSE_FAULT) return EU_FAULT_PARSE;
    if (status & EU_STATUS_WEIGHT_FAULT) return EU_FAULT_DECODER;
    if (status & EU_STATUS_ECC_FAULT) return EU_FAULT_ECC;
    return status & EU_STATUS_END ? 0 : EU_FAULT_UNFINISHED;
}

int32_t eu_start(uma_device *device, const void *payload, size_t bytes, const uma_region *regions, int32_t n_regions)
{
    state *const s = device->state;
    stream found;

    UMA_TRY(read_payload(s, payload, bytes, &found));
    if (!aligned(found.at)) return EU_FAULT_UNALIGNED;
    UMA_TRY(write_regions(device, regions, n_regions));
    UMA_TRY(write_address(device, EU_REG_QBASE, found.at));
    uma_write32(device, EU_REG_QSIZE, found.bytes);
    uma_write32(device, EU_REG_CMD, EU_CMD_RUN);
    s->started = 1;
    return 0;
}

int32_t eu_wait(uma_device *device, int32_t pending)
{
    state *const s = device->state;

    if (pending > 0 || !s->started) return 0;
    s->started = 0;
    if (!uma_poll(device, EU_REG_STATUS, EU_STATUS_IRQ, EU_STATUS_IRQ, EU_POLL_LIMIT)) return EU_FAULT_TIMEOUT;
    uma_write32(device, EU_REG_CMD, EU_CMD_CLEAR_IRQ);
    return outcome(device);
}

/* Resets it, as it has to be after a fault. */
static int32_t reset(uma_device *device)
{
    uma_write32(device, EU_REG_RESET, 0);
    return uma_poll(device, EU_REG_STATUS, EU_STATUS_RESETTING, 0, RESET_LIMIT) ? 0 : EU_FAULT_RESET;
}

/* Streams come by the second port; as many requests at once as the public driver allows. */
static void set_ports(const uma_device *device)
{
    uint32_t i;

    uma_write32(device, EU_REG_QCONFIG, EU_PORT_1);
    for (i = 0; i < 4u; i++) uma_write32(device, EU_REG_AXI_LIMIT + 4u * i, 15u << 24 | 31u << 16);
}

static void count_cycles(const uma_device *device)
{
    uma_write32(device, EU_REG_PMEVTYPER0, EU_EVENT_MAC_ACTIVE);
    uma_write32(device, EU_REG_PMCCNTR_CFG, 0); /* no event starts or stops it */
    uma_write32(device, EU_REG_PMCNTENSET, EU_PMCNT_CYCLES | EU_PMCNT_EVENT0);
    uma_write32(device, EU_REG_PMCR, EU_PMCR_ENABLE | EU_PMCR_RESET_EVENTS | EU_PMCR_RESET_CYCLES);
}

static int32_t activate(uma_device *device)
{
    UMA_TRY(reset(device));
    ((state *)device->state)->started = 0;
    uma_write32(device, EU_REG_CMD, 0); /* clock and power stay */
    set_ports(device);
    count_cycles(device);
    return 0;
}

/* After a run that failed a stream may be running still, on memory that is the caller's again. */
static int32_t deactivate(uma_device *device)
{
    if (uma_read32(device, EU_REG_STATUS) & EU_STATUS_RUNNING) {
        uma_write32(device, EU_REG_CMD, EU_CMD_STOP);
        UMA_TRY(reset(device));
    }
    uma_write32(device, EU_REG_CMD, EU_CMD_IDLE);
    return 0;
}

static int32_t open_device(uma_device *device)
{
    state *const s = device->state;
    uint32_t i, cid = 0;

    if (device->n_parameters != EU_N_PARAMETERS) return EU_FAULT_OTHER;
    s->id = uma_read32(device, EU_REG_ID);
    s->config = uma_read32(device, EU_REG_CONFIG);
    for (i = 0; i < 4u; i++) cid |= (uma_read32(device, EU_REG_CID + 4u * i) & 0xFFu) << 8u * i;
    s->simulated = cid == EU_SIM_CID;
    if (EU_ID_ARCH_MAJOR(s->id) != EU_ARCH_MAJOR) return EU_FAULT_ABSENT;
    for (i = 0; i < EU_N_MACHINES; i++) {
        const eu_machine *const m = &eu_machines[i];

        if (m->macs == device->parameters[EU_PARAMETER_MACS] && m->config == s->config) return activate(device);
    }
    return EU_FAULT_OTHER;
}

static uint64_t counter(uma_device *device, int32_t index)
{
    const state *const s = device->state;
    uint32_t at = EU_SIM_COUNTERS + 8u * (uint32_t)index;
    uint64_t low;

    if (index == EU_COUNT_MAC_CYCLES) return uma_read32(device, EU_REG_PMEVCNTR0);
    if (index != EU_COUNT_CYCLES && !s->simulated) return 0;
    if (index == EU_COUNT_CYCLES) at = EU_REG_PMCCNTR;
    low = uma_read32(device, at);
    return low | (uint64_t)uma_read32(device, at + 4u) << 32;
}

const uma_driver eu_driver = {
    "ethosu_like", sizeof(state), 8, open_device, activate, deactivate, deactivate, EU_N_COUNTERS, counter,
};
