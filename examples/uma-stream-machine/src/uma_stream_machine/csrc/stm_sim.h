/* What the two files of the simulator share. */
#ifndef STM_SIM_H
#define STM_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "stm_commands.h"

/* Which of a layer's ranges is its residual. */
#define STM_RESIDUAL_RANGE 3

/* Memory that a command touches. */
typedef struct stm_range {
    uint8_t *at;
    uint64_t bytes;
    int written;
} stm_range;

/* A command on its way: decoded, and its addresses found. Fields that it does not have are 0; those of a dense layer and
 * of pools are filled in, as if they were convolutions. */
typedef struct stm_slot {
    const stm_command *kind;
    uint32_t op; /* its opcode, that of the layer itself where it has a residual */
    int residual;
    uint32_t offset; /* in the stream */
    int64_t v[STM_N_FIELDS];
    stm_range ranges[4]; /* output, inputs; of layers output, input, weights, residual if there is one */
    int n_ranges;
} stm_slot;

/* The multiplications that a command makes, those of its padding too; the cycles that it takes. */
uint64_t stm_macs(const stm_slot *slot);
uint64_t stm_cycles(const stm_slot *slot);

/* Does what a command of the compute engine says. Gives 0 or a fault. */
int32_t stm_compute(const stm_slot *slot);

#endif
