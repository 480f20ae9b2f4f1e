#include "ut_driver.h"

#include "ut_regs.h"

#define MAGIC 0x314E5455u /* "UTN1" */

/* A device that in so many polls does not come a cycle further has stopped: at the slowest clock, 1 kHz, they take many
 * cycles. One that takes more cycles than 16 layers with all that their registers can say does not end either. */
#define STALLED_POLLS 10000000
#define MOST_CYCLES (UT_MAX_LAYERS * (15u * 15u * 15u * 127u + 1000u))

/* A network, taken apart: image.py says how it is laid out. */
typedef struct network {
    const uint8_t *shapes, *registers, *weights, *biases, *places;
    uint32_t n_layers, n_loads, n_stores, weight_bytes, bias_bytes;
} network;

/* A map and where it is in the caller's memory. */
typedef struct map {
    uint8_t *at;
    uint32_t memory, frames, channels;
} map;

static uint32_t load_word(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t parameter(const uma_device *device, int number)
{
    return (uint32_t)device->parameters[number];
}

static uint32_t divided_up(uint32_t value, uint32_t by)
{
    return (value + by - 1u) / by;
}

static uint32_t crc32(const uint8_t *at, size_t bytes)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
        0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
    };
    uint32_t crc = 0xFFFFFFFFu;
    size_t i;

    for (i = 0; i < bytes; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}

/* --- The network ------------------------------------------------------------------------------------------------- */

static int32_t open_network(const uma_device *device, network *n, const uint8_t *at, size_t bytes)
{
    const uint32_t dim = parameter(device, UT_ARRAY_DIM);
    const uint32_t weight_word = divided_up(dim * dim * parameter(device, UT_WEIGHT_BITS), 8u);
    const uint32_t bias_word = divided_up(dim * parameter(device, UT_BIAS_BITS), 8u);
    uint32_t counts;
    uint64_t checked;

    if (bytes < 20u || load_word(at) != MAGIC) return UT_FAULT_NETWORK;
    counts = load_word(at + 8);
    n->n_layers = counts & 0xFFu;
    n->n_loads = counts >> 8 & 0xFFu;
    n->n_stores = counts >> 16;
    n->weight_bytes = load_word(at + 12);
    n->bias_bytes = load_word(at + 16);
    checked = 20u + 4u * ((uint64_t)n->n_loads + n->n_stores) + 8u * (uint64_t)n->n_layers;
    checked += (uint64_t)n->weight_bytes + n->bias_bytes;
    checked = (checked + 3u) / 4u * 4u;
    if (checked + 8u * ((uint64_t)n->n_loads + n->n_stores) != bytes) return UT_FAULT_DAMAGED;
    if (crc32(at + 8, (size_t)checked - 8u) != load_word(at + 4)) return UT_FAULT_DAMAGED;
    n->shapes = at + 20;
    n->registers = n->shapes + 4u * (n->n_loads + n->n_stores);
    n->weights = n->registers + 8u * n->n_layers;
    n->biases = n->weights + n->weight_bytes;
    n->places = at + checked;
    if (n->n_layers > parameter(device, UT_LAYERS)) return UT_FAULT_NETWORK;
    if (n->weight_bytes % weight_word != 0 || n->weight_bytes / weight_word > parameter(device, UT_WMEM_WORDS)) {
        return UT_FAULT_NETWORK;
    }
    if (n->bias_bytes % bias_word != 0 || n->bias_bytes / bias_word > parameter(device, UT_BMEM_WORDS)) {
        return UT_FAULT_NETWORK;
    }
    return 0;
}

/* The map of a load or store: in memory that was given, and no larger than a feature memory. */
static int32_t find_map(const uma_device *device, const network *n, uint32_t number, const uma_region *regions,
                        int32_t n_regions, map *found)
{
    const uint32_t shape = load_word(n->shapes + 4u * number);
    const uint32_t offset = load_word(n->places + 8u * number), base = load_word(n->places + 8u * number + 4u);
    const uma_region *region;
    uint32_t words;

    found->frames = shape & 0xFFu;
    found->channels = shape >> 8 & 0xFFu;
    found->memory = shape >> 16;
    words = divided_up(found->channels, parameter(device, UT_ARRAY_DIM)) * found->frames;
    if (found->memory >= UT_FEATURES || words > parameter(device, UT_FMEM_WORDS)) return UT_FAULT_NETWORK;
    if (n_regions < 0 || base >= (uint32_t)n_regions) return UT_FAULT_NETWORK;
    region = &regions[base];
    if (offset > region->bytes || found->frames * found->channels > region->bytes - offset) return UT_FAULT_NETWORK;
    if (number >= n->n_loads && !region->writable) return UT_FAULT_NETWORK;
    found->at = (uint8_t *)region->at + offset;
    return 0;
}

/* --- The port ---------------------------------------------------------------------------------------------------- */

static void aim_port(uma_device *device, uint32_t memory)
{
    uma_write32(device, UT_PORT_MEMORY, memory);
    uma_write32(device, UT_PORT_ADDRESS, 0);
}

static void load_packed(uma_device *device, uint32_t memory, const uint8_t *at, uint32_t bytes, uint32_t word_bytes)
{
    const uint8_t *const end = at + bytes;

    aim_port(device, memory);
    while (at < end) {
        uint32_t i, word = 0;
        for (i = 0; i < word_bytes; i++) {
            word |= (uint32_t)at[i] << 8u * (i % 4u);
            if (i % 4u == 3u || i + 1u == word_bytes) {
                uma_write32(device, UT_PORT_DATA, word);
                word = 0;
            }
        }
        at += word_bytes;
    }
}

/* A map in the caller's memory is a row of frames, in the machine's a row of blocks. */
static int32_t load_map(uma_device *device, const map *m)
{
    const uint32_t dim = parameter(device, UT_ARRAY_DIM);
    const int32_t most = (1 << (parameter(device, UT_FEATURE_BITS) - 1u)) - 1;
    uint32_t first, frame, lane;

    aim_port(device, m->memory);
    for (first = 0; first < m->channels; first += dim) {
        for (frame = 0; frame < m->frames; frame++) {
            const uint8_t *const row = m->at + frame * m->channels;
            uint32_t word = 0;
            for (lane = 0; lane < dim; lane++) {
                const uint8_t byte = first + lane < m->channels ? row[first + lane] : 0;
                const int32_t feature = byte < 128 ? byte : byte - 256;
                if (feature > most || feature < -most - 1) return UT_FAULT_FEATURE;
                word |= (uint32_t)byte << 8u * (lane % 4u);
                if (lane % 4u == 3u || lane + 1u == dim) {
                    uma_write32(device, UT_PORT_DATA, word);
                    word = 0;
                }
            }
        }
    }
    return 0;
}

static void store_map(uma_device *device, const map *m)
{
    const uint32_t dim = parameter(device, UT_ARRAY_DIM);
    uint32_t first, frame, lane;

    aim_port(device, m->memory);
    for (first = 0; first < m->channels; first += dim) {
        for (frame = 0; frame < m->frames; frame++) {
            uint8_t *const row = m->at + frame * m->channels;
            uint32_t word = 0;
            for (lane = 0; lane < dim; lane++) {
                if (lane % 4u == 0) word = uma_read32(device, UT_PORT_DATA);
                if (first + lane < m->channels) row[first + lane] = (uint8_t)(word >> 8u * (lane % 4u));
            }
        }
    }
}

/* --- Running ----------------------------------------------------------------------------------------------------- */

static uint64_t read_counter(const uma_device *device, uint32_t offset)
{
    const uint64_t low = uma_read32(device, offset);

    return low | (uint64_t)uma_read32(device, offset + 4u) << 32;
}

static int32_t start_and_wait(uma_device *device)
{
    const uint64_t before = read_counter(device, UT_COUNTERS + 8u * UT_CYCLES);
    uint64_t seen = before;

    uma_write32(device, UT_CONTROL, UT_START);
    while (!uma_poll(device, UT_STATUS, UINT32_MAX, 0, STALLED_POLLS)) {
        const uint64_t now = read_counter(device, UT_COUNTERS + 8u * UT_CYCLES);
        if (now == seen || now - before > MOST_CYCLES) return UT_FAULT_TIMEOUT;
        seen = now;
    }
    return (int32_t)uma_read32(device, UT_FAULT);
}

int32_t ut_run(uma_device *device, const void *blob, size_t bytes, const uma_region *regions, int32_t n_regions)
{
    const uint32_t dim = parameter(device, UT_ARRAY_DIM);
    network n;
    map m;
    uint32_t i;

    UMA_TRY(open_network(device, &n, blob, bytes));
    uma_write32(device, UT_CONTROL, UT_CLEAR);
    load_packed(device, UT_WEIGHTS, n.weights, n.weight_bytes,
                divided_up(dim * dim * parameter(device, UT_WEIGHT_BITS), 8u));
    load_packed(device, UT_BIASES, n.biases, n.bias_bytes, divided_up(dim * parameter(device, UT_BIAS_BITS), 8u));
    for (i = 0; i < n.n_loads; i++) {
        UMA_TRY(find_map(device, &n, i, regions, n_regions, &m));
        UMA_TRY(load_map(device, &m));
    }
    for (i = 0; i < n.n_layers; i++) {
        uma_write32(device, UT_LAYER + 8u * i, load_word(n.registers + 8u * i));
        uma_write32(device, UT_LAYER + 8u * i + 4u, load_word(n.registers + 8u * i + 4u));
    }
    UMA_TRY(start_and_wait(device));
    for (i = n.n_loads; i < n.n_loads + n.n_stores; i++) {
        UMA_TRY(find_map(device, &n, i, regions, n_regions, &m));
        store_map(device, &m);
    }
    return (int32_t)uma_read32(device, UT_FAULT);
}

/* --- The device -------------------------------------------------------------------------------------------------- */

static int32_t activate(uma_device *device)
{
    uma_write32(device, UT_CONTROL, UT_RESET);
    return (int32_t)uma_read32(device, UT_FAULT);
}

/* After a run that failed it may be at work still. */
static int32_t deactivate(uma_device *device)
{
    uma_write32(device, UT_CONTROL, UT_STOP);
    return 0;
}

/* Widths are those that the model was compiled for; there may be more of everything else. */
static int32_t open_device(uma_device *device)
{
    int i;

    if (uma_read32(device, UT_ID) != UT_ID_VALUE) return UT_FAULT_ABSENT;
    if (device->n_parameters != UT_N_PARAMETERS) return UT_FAULT_OTHER;
    for (i = 0; i < UT_N_PARAMETERS; i++) {
        const int64_t has = uma_read32(device, UT_CONFIG + 4u * (uint32_t)i), needed = device->parameters[i];
        if (i < UT_ACCUMULATOR_BITS ? has != needed : has < needed) return UT_FAULT_OTHER;
    }
    return activate(device);
}

/* Those of all layers, those of each, and where a fault was found. */
static uint64_t counter(uma_device *device, int32_t index)
{
    const uint32_t of_layers = UT_MAX_LAYERS * UT_N_LAYER_COUNTERS;
    uint32_t number = (uint32_t)index;

    if (number < UT_N_COUNTERS) return read_counter(device, UT_COUNTERS + 8u * number);
    number -= UT_N_COUNTERS;
    if (number >= of_layers) return uma_read32(device, number == of_layers ? UT_FAULT_LAYER : UT_FAULT_CYCLE);
    return read_counter(
        device, UT_LAYER_COUNTERS + 64u * (number / UT_N_LAYER_COUNTERS) + 8u * (number % UT_N_LAYER_COUNTERS));
}

const uma_driver ut_driver = {
    "ultra_trail", 0, 1, open_device, activate, deactivate, deactivate,
    UT_N_COUNTERS + (int32_t)UT_MAX_LAYERS * UT_N_LAYER_COUNTERS + 2, counter,
};
