/* Tests of the driver: networks on simulators, on registers in memory, and on broken devices. */
#include "ut_tests.h"

#include "uma_mmio.h"

static uint32_t crc32(const uint8_t *at, size_t bytes)
{
    uint32_t crc = 0xFFFFFFFFu;
    int i;

    while (bytes-- > 0) {
        crc ^= *at++;
        for (i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1u ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static const int8_t given[8] = {1, 2, -8, 12, 100, -100, 127, 127};
static int8_t data[16] = {1, 2, -8, 12, 100, -100, 127, 127};

/* Two channels of four frames at data, to memory 0, through one layer, from memory 1 to data + 8. */
enum { WORDS = 5 + 2 + 2 + 1 + 4 };
static void make_network(uint32_t words[WORDS])
{
    const fields plain = PLAIN;
    const uint64_t layer = encoded(plain);
    const uint32_t made[WORDS] = {0x314E5455u, 0, 1u | 1u << 8 | 1u << 16, 2, 0, 4u | 2u << 8, 4u | 2u << 8 | 1u << 16,
                                  (uint32_t)layer, (uint32_t)(layer >> 32), WEIGHTS(0, 4, 2, 1), 0, 0, 8, 0};

    memcpy(words, made, sizeof made);
}

static void seal(uint32_t words[WORDS])
{
    words[1] = crc32((const uint8_t *)(words + 2), 4 * (WORDS - 6));
}

static int32_t run_words(const uma_device_info *info, const uint32_t words[WORDS])
{
    const uma_region regions[2] = {{data, sizeof data, 1}, {data, 8, 0}};
    uma_device device = opened(info);

    memset(data + 8, 77, 8);
    return ut_run(&device, words, 4 * WORDS, regions, 2);
}

static void test_networks(const uma_device_info *info)
{
    uint32_t words[WORDS];

    make_network(words);
    seal(words);
    CHECK(run_words(info, words) == 0);
    CHECK(memcmp(data + 8, "\x01\x00\x06\x00\xCE\x0C\x40\x30", 8) == 0);
    words[10] = 0, words[11] = 1; /* from the region that may only be read */
    CHECK(run_words(info, words) == 0 && data[8] == 1);
}

static void test_bad_networks(const uma_device_info *info)
{
    static const struct {
        int word;
        uint32_t value;
        int32_t fault;
    } wrong[] = {
        {0, 1, UT_FAULT_NETWORK},
        {2, 5u | 1u << 8 | 1u << 16, UT_FAULT_DAMAGED},            /* more layers than there are */
        {3, 6, UT_FAULT_DAMAGED},                                  /* and so on */
        {4, 4, UT_FAULT_DAMAGED},
        {3, 0xFFFFFFFFu, UT_FAULT_DAMAGED},
        {5, 0u | 2u << 8, 0},                                      /* an empty map: words of it are unknown then */
        {5, 4u | 10u << 8, UT_FAULT_NETWORK},                      /* 20 words, and 40 bytes of 16 */
        {5, 4u | 8u << 8, UT_FAULT_NETWORK},                       /* 16 words, and 32 bytes of 16 */
        {5, 4u | 2u << 8 | 3u << 16, UT_FAULT_NETWORK},            /* there is no such memory */
        {10, 9, UT_FAULT_NETWORK},
        {10, 0xFFFFFFFFu, UT_FAULT_NETWORK},
        {11, 2, UT_FAULT_NETWORK},
        {12, 9, UT_FAULT_NETWORK},
        {13, 1, UT_FAULT_NETWORK},                                 /* may not be written, nor has it 16 bytes */
        {6, 4u | 2u << 8 | 2u << 16, UT_FAULT_UNKNOWN},            /* nobody wrote there */
    };
    uint32_t words[WORDS];
    size_t i;

    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int32_t fault;
        make_network(words);
        words[wrong[i].word] = wrong[i].value;
        seal(words);
        fault = run_words(info, words);
        CHECK(fault == (wrong[i].fault != 0 ? wrong[i].fault : UT_FAULT_UNKNOWN));
        if (fault != UT_FAULT_UNKNOWN) CHECK(data[8] == 77 && data[15] == 77);
        make_network(words);
        seal(words);
        CHECK(run_words(info, words) == 0);
    }
    make_network(words);
    words[13] = 1, words[12] = 0;
    seal(words);
    CHECK(run_words(info, words) == UT_FAULT_NETWORK);
    /* One bit, wherever it is checked. */
    for (i = 32; i < 32 * (WORDS - 4); i++) {
        make_network(words);
        seal(words);
        words[i / 32] ^= (uint32_t)1 << i % 32;
        CHECK(run_words(info, words) == UT_FAULT_DAMAGED && data[8] == 77);
    }
}

/* The right length for one with more layers, or words, than the machine has. */
static void test_networks_that_are_too_large(void)
{
    static const uint32_t counts[][3] = {{5, 0, 0}, {1, 66, 0}, {1, 0, 10}, {1, 3, 0}, {1, 0, 3}};
    uint32_t words[64], i;
    uma_device device = opened(&stepped);

    for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const uint32_t bytes = (20u + 8u * counts[i][0] + counts[i][1] + counts[i][2] + 3u) / 4u * 4u;
        memset(words, 0, sizeof words);
        words[0] = 0x314E5455u;
        memcpy(words + 2, counts[i], sizeof counts[i]);
        words[1] = crc32((const uint8_t *)(words + 2), bytes - 8u);
        CHECK(ut_run(&device, words, bytes, NULL, 0) == UT_FAULT_NETWORK);
        CHECK(ut_run(&device, words, bytes + 4u, NULL, 0) == UT_FAULT_DAMAGED);
    }
    CHECK(ut_run(&device, words, 16, NULL, 0) == UT_FAULT_NETWORK);
}

/* 20 words of features, in memory that is large enough. */
static void test_maps_that_are_too_large(void)
{
    static int8_t large[64];
    const uma_region regions[1] = {{large, sizeof large, 1}};
    uint32_t words[WORDS];
    uma_device device = opened(&stepped);
    int i;

    for (i = 5; i < 7; i++) {
        make_network(words);
        words[i] += 8u << 8;
        seal(words);
        CHECK(ut_run(&device, words, sizeof words, regions, 1) == UT_FAULT_NETWORK);
        CHECK(ut_driver.activate(&device) == 0);
    }
}

static void test_features_of_fewer_bits(void)
{
    static const int64_t narrow[UT_N_PARAMETERS] = {2, 4, 4, 7, 12, 4, 16, 32, 4};
    static const uint32_t wide = PAIR(0x48, 0x17);
    uma_device_info info = stepped;
    uint32_t words[WORDS];
    uma_device device;

    info.parameters = narrow;
    device = opened(&info);
    put_words(&device, 0, 3, &wide, 1);
    uma_write32(&device, UT_PORT_ADDRESS, 3);
    uma_write32(&device, UT_PORT_MEMORY, 0);
    CHECK(uma_read32(&device, UT_PORT_DATA) == PAIR(-8, 7));
    make_network(words);
    seal(words);
    memset(data, 0, 8);
    data[5] = 7;
    CHECK(run_words(&info, words) == 0);
    data[5] = -8;
    CHECK(run_words(&info, words) == 0);
    data[5] = 8;
    CHECK(run_words(&info, words) == UT_FAULT_FEATURE && data[8] == 77);
    data[5] = -9;
    CHECK(run_words(&info, words) == UT_FAULT_FEATURE && data[8] == 77);
    memcpy(data, given, sizeof given);
}

/* --- Registers in memory, and broken devices --------------------------------------------------------------------- */

static uint32_t file[0x600 / 4]; /* a register file that nobody is behind */

static void fill_file(void)
{
    int i;

    memset(file, 0, sizeof file);
    file[UT_ID / 4] = UT_ID_VALUE;
    for (i = 0; i < UT_N_PARAMETERS; i++) file[UT_CONFIG / 4 + i] = (uint32_t)small[i];
}

static const uma_device_info in_memory = {"ut", &ut_driver, uma_mmio_bus, sizeof file, 0, small, UT_N_PARAMETERS};

static int32_t open_file(uma_device *device, const uma_device_info *info)
{
    return uma_device_open(device, info, no_state, file);
}

static void test_registers_in_memory(void)
{
    const uma_region regions[1] = {{data, sizeof data, 1}};
    uint32_t words[WORDS];
    uma_device device;

    fill_file();
    CHECK(open_file(&device, &in_memory) == 0 && file[UT_CONTROL / 4] == UT_RESET);
    make_network(words);
    seal(words);
    memset(data + 8, 77, 8);
    file[UT_FAULT_LAYER / 4] = 3;
    file[UT_FAULT_CYCLE / 4] = 1234;
    file[UT_LAYER_COUNTERS / 4 + 16 * 2 + 2 * UT_WEIGHT_READS] = 5;
    file[UT_LAYER_COUNTERS / 4 + 16 * 2 + 2 * UT_WEIGHT_READS + 1] = 6;
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == 0);
    CHECK(file[UT_CONTROL / 4] == UT_START && file[UT_PORT_MEMORY / 4] == 1 && file[UT_PORT_ADDRESS / 4] == 0);
    CHECK(file[UT_LAYER / 4] == words[7] && file[UT_LAYER / 4 + 1] == words[8]);
    /* Every read of the port gives what was written last: the last two features of the map. */
    CHECK(file[UT_PORT_DATA / 4] == PAIR(127, 127) && data[8] == 127 && data[15] == 127);
    CHECK(counter(&device, FAULT_LAYER) == 3 && counter(&device, FAULT_CYCLE) == 1234);
    CHECK(counter(&device, OF_LAYER(2, UT_WEIGHT_READS)) == ((uint64_t)6 << 32 | 5));
    file[UT_FAULT / 4] = UT_FAULT_OVERFLOW;
    memset(data + 8, 77, 8);
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == UT_FAULT_OVERFLOW && data[8] == 77);
    CHECK(ut_driver.activate(&device) == UT_FAULT_OVERFLOW);
    CHECK(ut_driver.close(&device) == 0 && file[UT_CONTROL / 4] == UT_STOP);
}

/* A device whose cycles go on for ever. */
static uint32_t read_restless(void *self, uint32_t offset)
{
    static uint32_t polls;

    (void)self;
    if (offset == UT_STATUS) polls++;
    return offset == UT_STATUS ? 1 : offset == UT_COUNTERS ? polls / 4 : 0;
}

/* One that counts no cycle for some polls, which is no fault. */
static int busy_polls;

static uint32_t read_slow(void *self, uint32_t offset)
{
    (void)self;
    if (offset == UT_STATUS) return busy_polls-- > 0;
    return offset == UT_PORT_DATA ? PAIR(3, 4) : 0;
}

static void test_broken_devices(void)
{
    const uma_region regions[1] = {{data, sizeof data, 1}};
    uma_device_info info = in_memory;
    int64_t other[UT_N_PARAMETERS];
    uint32_t words[WORDS];
    uma_device device;
    int i;

    fill_file();
    file[0] = 0xFFFFFFFFu;
    CHECK(open_file(&device, &in_memory) == UT_FAULT_ABSENT);
    fill_file();
    info.n_parameters = 1;
    CHECK(open_file(&device, &info) == UT_FAULT_OTHER);
    /* Widths are exact, sizes at least. */
    info = in_memory;
    info.parameters = other;
    for (i = 0; i < UT_N_PARAMETERS; i++) {
        memcpy(other, small, sizeof other);
        other[i]++;
        CHECK(open_file(&device, &info) == UT_FAULT_OTHER);
        other[i] -= 2;
        CHECK(open_file(&device, &info) == (i < UT_ACCUMULATOR_BITS ? UT_FAULT_OTHER : 0));
    }
    /* One that is at work for ever, and one that counts cycles besides. */
    make_network(words);
    seal(words);
    CHECK(open_file(&device, &in_memory) == 0);
    file[UT_STATUS / 4] = 1;
    memset(data + 8, 77, 8);
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == UT_FAULT_TIMEOUT && data[8] == 77);
    device.bus.read32 = read_slow;
    busy_polls = 100;
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == 0 && busy_polls == -1 && data[8] == 3 && data[15] == 4);
    memset(data + 8, 77, 8);
    device.bus.read32 = read_restless;
    CHECK(ut_run(&device, words, sizeof words, regions, 1) == UT_FAULT_TIMEOUT && data[8] == 77);
    /* Simulators with too little memory. */
    info = stepped;
    info.bus_bytes = 100;
    CHECK(uma_device_open(&device, &info, no_state, memory) == UT_FAULT_MEMORY);
    info.bus_bytes = 24000;
    other[UT_WMEM_WORDS] = 20000;
    info.parameters = other;
    CHECK(uma_device_open(&device, &info, no_state, memory) == UT_FAULT_MEMORY);
    info.n_parameters = 3;
    CHECK(uma_device_open(&device, &info, no_state, memory) == UT_FAULT_MEMORY);
    info = functional;
    info.bus_bytes = 100;
    CHECK(uma_device_open(&device, &info, no_state, memory) == UT_FAULT_MEMORY);
}

void test_driver(void)
{
    const uma_device_info *const both[2] = {&stepped, &functional};
    int i;

    for (i = 0; i < 2; i++) {
        test_networks(both[i]);
        test_bad_networks(both[i]);
    }
    test_networks_that_are_too_large();
    test_maps_that_are_too_large();
    test_features_of_fewer_bits();
    test_registers_in_memory();
    test_broken_devices();
}
