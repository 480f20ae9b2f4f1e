/* Made from the table in machine.py by `python -m uma_ethosu_like.headers`; do not edit. */
#ifndef EU_MACHINE_H
#define EU_MACHINE_H

#include <stdint.h>

enum { EU_GRANULE_IFM8, EU_GRANULE_IFM16, EU_GRANULE_IFM8_ELEMENTWISE, EU_GRANULE_IFM16_ELEMENTWISE,
    EU_GRANULE_IFM32, EU_GRANULE_ACC16, EU_GRANULE_ACC32, EU_GRANULE_ACC40, EU_N_GRANULES };
enum { EU_CYCLES_BINARY_INT32, EU_CYCLES_UNARY_INT32, EU_CYCLES_MUL_TO_INT32, EU_CYCLES_MUL, EU_CYCLES_ADD_UNSCALED,
    EU_CYCLES_ADD, EU_CYCLES_MAX_POOL, EU_CYCLES_OTHER, EU_N_CYCLES };
enum { EU_CYCLES_TABLE, EU_CYCLES_RELU, EU_N_ACTIVATION_CYCLES };

#define EU_BANK_BYTES 1024
#define EU_OUTPUT_BANKS 2
#define EU_LUT_BANKS 2
#define EU_MAX_BANKS 48
#define EU_ARCH_MAJOR 1
#define EU_ARCH_MINOR 0
#define EU_ARCH_PATCH 6
#define EU_N_MACHINES 4

/* Blocks are rows, columns, channels; granules are banks; cycles per element are eighths; the register
 * CONFIG holds `config`. */
typedef struct eu_machine {
    uint16_t macs, config;
    uint8_t banks, reserved_banks, ofm_ublock[3], ifm_ublock[3];
    uint8_t granules[EU_N_GRANULES], output_cycles[EU_N_CYCLES], activation_cycles[EU_N_ACTIVATION_CYCLES];
} eu_machine;

static const eu_machine eu_machines[EU_N_MACHINES] = {
    {32, 4101, 16, 0, {1, 1, 4}, {1, 1, 8}, {2, 2, 2, 2, 4, 4, 4, 4}, {16, 24, 24, 24, 32, 48, 8, 16}, {8, 8}},
    {64, 4102, 16, 0, {1, 1, 8}, {1, 1, 8}, {2, 2, 2, 2, 4, 4, 4, 8}, {8, 12, 12, 12, 16, 24, 4, 8}, {8, 8}},
    {128, 6151, 24, 2, {1, 2, 8}, {1, 2, 8}, {4, 4, 4, 4, 8, 4, 8, 12}, {6, 10, 6, 6, 8, 12, 2, 4}, {8, 4}},
    {256, 12296, 48, 2, {2, 2, 8}, {2, 2, 8}, {8, 8, 8, 8, 16, 8, 16, 20}, {5, 9, 4, 3, 4, 6, 1, 2}, {8, 2}},
};

#endif
