/* The driver as a program: devices, payloads and memory come in, what became of them goes out. A device is the
 * simulator, or registers that say what they are told to, as silicon would.
 */
#include <stdio.h>
#include <stdlib.h>

#include "eu_driver.h"
#include "eu_regs.h"

int32_t eu_sim_bus(uma_device *device, void *memory, size_t bytes);

#define SIMULATOR_BYTES (1u << 18)
#define MAX_WRITES 256

/* Registers of a machine that is not simulated. */
typedef struct silicon {
    uint32_t cid, id, config, status_at_end, never_resets;
    uint32_t status;
    uint32_t n_writes, writes[MAX_WRITES][2];
} silicon;

static uint32_t read_silicon(void *self, uint32_t offset)
{
    const silicon *s = self;

    if (offset >= EU_REG_CID && offset < EU_REG_CID + 16u) return s->cid >> 2u * (offset - EU_REG_CID) & 0xFFu;
    switch (offset) {
    case EU_REG_ID:
        return s->id;
    case EU_REG_CONFIG:
        return s->config;
    case EU_REG_STATUS:
        return s->status | (s->never_resets ? EU_STATUS_RESETTING : 0);
    case EU_REG_PMCCNTR:
        return 77u;
    case EU_REG_PMCCNTR + 4u:
        return 1u;
    case EU_REG_PMEVCNTR0:
        return 55u;
    default:
        return 0;
    }
}

static void write_silicon(void *self, uint32_t offset, uint32_t value)
{
    silicon *s = self;

    if (s->n_writes < MAX_WRITES) {
        s->writes[s->n_writes][0] = offset;
        s->writes[s->n_writes++][1] = value;
    }
    if (offset == EU_REG_CMD && value & EU_CMD_RUN) s->status = s->status_at_end;
    if (offset == EU_REG_RESET) s->status = 0;
}

/* The device sees memory 16 bytes from where the processor sees it, and only so far. */
static int32_t seen(void *self, const void *host, uint64_t *address)
{
    (void)self;
    (void)host;
    *address = host == NULL ? 0 : 0x1000u;
    return 0;
}

static int32_t silicon_bus(uma_device *device, void *memory, size_t bytes)
{
    (void)bytes;
    device->bus.self = memory;
    device->bus.read32 = read_silicon;
    device->bus.write32 = write_silicon;
    device->bus.address = seen;
    return 0;
}

static void take(void *at, size_t bytes)
{
    if (bytes != 0 && fread(at, 1, bytes, stdin) != bytes) exit(3);
}

static uint32_t take_word(void)
{
    uint32_t word;

    take(&word, sizeof word);
    return word;
}

static void give(const void *at, size_t bytes)
{
    if (bytes != 0) fwrite(at, 1, bytes, stdout);
}

/* Memory that begins `shift` bytes behind a multiple of 64. */
static uint8_t *room(size_t bytes, uint32_t shift, void **whole)
{
    *whole = malloc(bytes + 128u);
    if (*whole == NULL) exit(3);
    return (uint8_t *)*whole + (64u - (uintptr_t)*whole % 64u) % 64u + shift;
}

static void give_counters(uma_device *device)
{
    int32_t i;

    for (i = 0; i < device->driver->n_counters; i++) {
        const uint64_t count = device->driver->counter(device, i);
        give(&count, sizeof count);
    }
}

/* One run: its payload and regions, then what came of it, and what the regions hold. */
static void run(uma_device *device)
{
    uma_region regions[16];
    void *whole[17];
    const uint32_t bytes = take_word(), shift = take_word(), n_regions = take_word();
    uint8_t *const payload = room(bytes, shift, &whole[16]);
    int32_t codes[3] = {0, 0, 0};
    uint32_t i;

    if (n_regions > 16u) exit(3);
    take(payload, bytes);
    for (i = 0; i < n_regions; i++) {
        const uint32_t size = take_word(), writable = take_word(), region_shift = take_word();
        regions[i].at = room(size, region_shift, &whole[i]);
        regions[i].bytes = size;
        regions[i].writable = (int32_t)writable;
        take(regions[i].at, size);
    }
    codes[0] = device->driver->activate(device);
    if (codes[0] == 0) codes[1] = eu_start(device, payload, bytes, regions, (int32_t)n_regions);
    if (codes[0] == 0 && codes[1] == 0 && eu_wait(device, 1) == 0) codes[1] = eu_wait(device, 0);
    if (eu_wait(device, 0) != 0) exit(4); /* it was said once */
    codes[2] = device->driver->deactivate(device);
    give(codes, sizeof codes);
    give_counters(device);
    for (i = 0; i < n_regions; i++) {
        give(regions[i].at, regions[i].bytes);
        free(whole[i]);
    }
    free(whole[16]);
}

int main(void)
{
    uint32_t n_devices;

    for (n_devices = take_word(); n_devices > 0; n_devices--) {
        int64_t parameters[16];
        uint64_t state[8];
        uma_device_info info = {"npu", &eu_driver, NULL, 0, 0, parameters, 0};
        const uint32_t is_silicon = take_word(), n_parameters = take_word(), memory_bytes = take_word();
        uint32_t n_runs;
        silicon registers = {0};
        void *whole;
        uma_device device;
        int32_t opened;

        if (n_parameters > 16u || sizeof state < eu_driver.state_bytes) return 3;
        take(parameters, n_parameters * sizeof *parameters);
        take(&registers, 5u * sizeof(uint32_t));
        n_runs = take_word();
        info.n_parameters = (int32_t)n_parameters;
        info.bus = is_silicon ? silicon_bus : eu_sim_bus;
        info.bus_bytes = memory_bytes;
        opened = uma_device_open(&device, &info, state, is_silicon ? (void *)&registers : room(memory_bytes, 0, &whole));
        give(&opened, sizeof opened);
        if (opened == 0) {
            for (; n_runs > 0; n_runs--) run(&device);
            opened = uma_device_close(&device);
            give(&opened, sizeof opened);
        }
        if (is_silicon) {
            give(&registers.n_writes, sizeof registers.n_writes);
            give(registers.writes, registers.n_writes * sizeof *registers.writes);
        } else {
            free(whole);
        }
    }
    return 0;
}
