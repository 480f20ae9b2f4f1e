/* Streams on the simulator: cases come in, what became of them goes out.
 *
 * `run`: every case of the input. `fuzz SEED COUNT`: the case of the input, COUNT times, with words changed; gives how
 * many streams ended in each fault.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eu_sim.h"

typedef struct header {
    int32_t macs;
    uint32_t flash_regions, words, records;
    uint64_t work_limit, bytes[EU_N_REGIONS];
    uint32_t writable;
    int32_t speeds[4]; /* bytes in 16 cycles and latency: SRAM, flash */
    uint32_t unused;
} header;

static uint64_t random_state;

static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

/* Of exactly so many bytes, that a sanitizer sees a byte too far; none for none. */
static void *room(uint64_t bytes)
{
    void *data = bytes ? malloc(bytes) : NULL;

    if (bytes && data == NULL) exit(3);
    return data;
}

static void *taken(uint64_t bytes)
{
    void *data = room(bytes);

    if (bytes && fread(data, 1, bytes, stdin) != bytes) exit(2);
    return data;
}

static void given(const void *data, uint64_t bytes)
{
    if (bytes && fwrite(data, 1, bytes, stdout) != bytes) exit(4);
}

static void configure(const header *h, eu_config *config)
{
    config->macs = h->macs;
    config->flash_regions = h->flash_regions;
    config->work_limit = h->work_limit;
    config->sram.bytes_per_16_cycles = h->speeds[0];
    config->sram.latency_cycles = h->speeds[1];
    config->flash.bytes_per_16_cycles = h->speeds[2];
    config->flash.latency_cycles = h->speeds[3];
}

static void run(const header *h, eu_memory *memory)
{
    eu_region regions[EU_N_REGIONS];
    eu_config config;
    eu_result result;
    uint32_t *words = taken(4u * (uint64_t)h->words);
    int i;

    configure(h, &config);
    for (i = 0; i < EU_N_REGIONS; i++) {
        regions[i].bytes = h->bytes[i];
        regions[i].writable = (h->writable >> i & 1u) != 0;
        regions[i].data = taken(h->bytes[i]);
    }
    result.records_room = h->records;
    result.records = room(h->records * (uint64_t)sizeof(eu_record));
    eu_run(&config, words, h->words, regions, memory, &result);
    given(&result, sizeof result);
    if (result.n_records < h->records)
        memset(result.records + result.n_records, 0, (h->records - result.n_records) * sizeof(eu_record));
    given(result.records, h->records * (uint64_t)sizeof(eu_record));
    for (i = 0; i < EU_N_REGIONS; i++) {
        if (regions[i].writable) given(regions[i].data, regions[i].bytes);
        free(regions[i].data);
    }
    free(result.records);
    free(words);
}

/* Changes what a mutation may: bits, whole words, numbers near the old one, parameters that are small or at an end;
 * words left out, doubled or swapped; the end. Gives how many words there are then. */
static uint32_t mutate(uint32_t *words, uint32_t count)
{
    uint32_t n = 1 + random_bits() % 4;

    while (n-- > 0 && count > 1) {
        const uint32_t at = random_bits() % count, other = random_bits() % count;

        switch (random_bits() % 9) {
        case 0: words[at] ^= (uint32_t)1 << random_bits() % 32; break;
        case 1: words[at] = random_bits() << 1; break;
        case 2: words[at] += (random_bits() % 9 - 4) << 16 * (random_bits() % 2); break;
        case 3: words[at] = (words[at] & 0xFFFFu) | (random_bits() % 20) << 16; break;
        case 4: words[at] = (words[at] & 0xFFFFu) | 0xFFFF0000u; break;
        case 5: words[at] = words[other]; break;
        case 6: count = random_bits() % 16 == 0 ? at + 1 : count; break;
        case 7:
            memmove(words + at, words + at + 1, 4 * (count - at - 1));
            count--;
            break;
        default: words[at] = (words[at] & 0xFFFFu) | (words[other] & 0xFFFF0000u); break;
        }
    }
    return count;
}

static void fuzz(const header *h, eu_memory *memory, uint32_t times)
{
    uint32_t faults[EU_N_FAULTS] = {0}, *words = taken(4u * (uint64_t)h->words);
    uint8_t *contents[EU_N_REGIONS];
    eu_region regions[EU_N_REGIONS];
    eu_config config;
    int i;

    configure(h, &config);
    for (i = 0; i < EU_N_REGIONS; i++) {
        contents[i] = taken(h->bytes[i]);
        regions[i].bytes = h->bytes[i];
        regions[i].writable = (h->writable >> i & 1u) != 0;
        regions[i].data = room(h->bytes[i]);
    }
    while (times-- > 0) {
        uint32_t *changed = room(4u * (uint64_t)h->words), count;
        eu_result result;

        memcpy(changed, words, 4u * (size_t)h->words);
        count = mutate(changed, h->words);
        if (random_bits() % 16 == 0) /* nothing of the stream is left */
            for (count = 0; count < h->words; count++) changed[count] = random_bits() << 1 ^ random_bits();
        changed = realloc(changed, 4u * (size_t)count + 4);
        if (changed == NULL) exit(3);
        for (i = 0; i < EU_N_REGIONS; i++)
            if (h->bytes[i]) memcpy(regions[i].data, contents[i], h->bytes[i]);
        for (i = 0; i < EU_N_REGIONS; i++) /* weights that are damaged */
            if (h->bytes[i] && random_bits() % 8 == 0)
                regions[i].data[random_bits() % h->bytes[i]] ^= (uint8_t)(1u << random_bits() % 8);
        result.records = NULL;
        result.records_room = 0;
        eu_run(&config, changed, count, regions, memory, &result);
        if (result.fault < 0 || result.fault >= EU_N_FAULTS || result.word > count) exit(5);
        faults[result.fault]++;
        free(changed);
    }
    given(faults, sizeof faults);
    for (i = 0; i < EU_N_REGIONS; i++) {
        free(contents[i]);
        free(regions[i].data);
    }
    free(words);
}

int main(int argc, char **argv)
{
    eu_memory *memory = room(eu_memory_bytes());
    header h;

    while (fread(&h, sizeof h, 1, stdin) == 1) {
        if (argc == 4 && strcmp(argv[1], "fuzz") == 0) {
            random_state = strtoull(argv[2], NULL, 10);
            fuzz(&h, memory, (uint32_t)strtoul(argv[3], NULL, 10));
        } else {
            run(&h, memory);
        }
    }
    free(memory);
    return 0;
}
