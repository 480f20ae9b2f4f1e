/* The simulator: runs a stream of commands over regions of memory, as README.md says the machine does.
 *
 * It takes no memory but `eu_memory`, and keeps nothing between two streams. A stream that the machine may not run ends
 * with a fault that says where and why; what operations before it wrote stays written.
 */
#ifndef EU_SIM_H
#define EU_SIM_H

#include <stdint.h>

#include "eu_commands.h"

/* Memory that a stream can name by its number. Offsets in it are bytes; `data` may be null where `bytes` is 0. */
typedef struct eu_region {
    uint8_t *data;
    uint64_t bytes;
    int writable;
} eu_region;

/* How fast a memory is: what goes over its port, and how long the first byte is away. */
typedef struct eu_speed {
    int32_t bytes_per_16_cycles, latency_cycles;
} eu_speed;

/* The machine. */
typedef struct eu_config {
    int32_t macs;           /* in a cycle: 32, 64, 128 or 256 */
    uint32_t flash_regions; /* bit n: region n is in flash, else in SRAM */
    eu_speed sram, flash;
    uint64_t work_limit;    /* elements that a stream may touch and products it may make; 0: no limit */
} eu_config;

typedef enum eu_fault {
    EU_FAULT_NONE,
    EU_FAULT_CONFIGURATION, /* the machine is none that there is */
    EU_FAULT_COMMAND,       /* there is no such command */
    EU_FAULT_RESERVED,      /* bits of a command that have to be 0 are not */
    EU_FAULT_VALUE,         /* a field may not have this value; `slot` is which */
    EU_FAULT_UNSET,         /* an operation reads a register that was never set; `slot` is which */
    EU_FAULT_CUT,           /* the stream ends within a command */
    EU_FAULT_NO_STOP,       /* the stream ends without OP_STOP */
    EU_FAULT_ADDRESS,       /* bytes outside of their region; `slot` is the register of its address */
    EU_FAULT_READ_ONLY,     /* a region that may not be written; `slot` as above */
    EU_FAULT_MISALIGNED,    /* an address or stride that is no multiple of what it has to be; `slot` is which */
    EU_FAULT_SHAPE,         /* sizes that do not belong together; `slot` is one of them */
    EU_FAULT_BLOCK,         /* a block that is not made of micro-blocks, or too large for the shared memory */
    EU_FAULT_WEIGHTS,       /* weights that do not decompress, or are not as many as the operation takes */
    EU_FAULT_TABLE,         /* a look-up table that was never loaded, or was overwritten */
    EU_FAULT_HAZARD_KERNEL, /* no wait covers what a kernel in flight does; `other` is where it was started */
    EU_FAULT_HAZARD_DMA,    /* no wait covers what a copy in flight does; `other` is where it was started */
    EU_FAULT_UNSUPPORTED,   /* the machine has it, the simulator does not; `slot` is what asks for it */
    EU_FAULT_WORK,          /* more work than the limit */
    EU_N_FAULTS
} eu_fault;

/* Kinds of operation, in the order of the bits EU_READ_*. */
enum { EU_KIND_CONV, EU_KIND_DEPTHWISE, EU_KIND_POOL, EU_KIND_ELEMENTWISE, EU_KIND_DMA, EU_N_KINDS };

/* What one operation took. */
typedef struct eu_record {
    uint32_t word, kind;
    uint64_t start, cycles, macs; /* `start` counts cycles from the start of the stream */
} eu_record;

typedef struct eu_result {
    int32_t fault;  /* eu_fault */
    uint32_t word;  /* index of the command at fault, or of OP_STOP */
    int32_t slot;   /* of the field at fault (EU_IFM_PAD_TOP, ...), -1 if there is none */
    uint32_t other; /* of a hazard: index of the command that started what is in flight */
    uint64_t cycles;
    uint64_t kind_cycles[EU_N_KINDS];
    uint32_t kind_count[EU_N_KINDS];
    uint64_t macs, dma_bytes;
    eu_record *records; /* set by the caller, with room for so many; null: none are wanted */
    uint32_t records_room, n_records; /* n_records counts those too for which there was no room */
} eu_result;

typedef struct eu_memory eu_memory;

/* Bytes of an eu_memory, for those who do not know what it is (see eu_op.h). */
uint32_t eu_memory_bytes(void);

/* Runs a stream up to its OP_STOP. Everything in `result` but where its records go is set. */
void eu_run(const eu_config *config, const uint32_t *words, uint32_t count, const eu_region regions[EU_N_REGIONS],
            eu_memory *memory, eu_result *result);

#endif
