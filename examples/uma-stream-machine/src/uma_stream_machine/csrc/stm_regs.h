/* The registers of the stream machine: all that driver and hardware (or simulator) have in common, besides the commands
 * of stm_commands.h. README.md says what each does.
 */
#ifndef STM_REGS_H
#define STM_REGS_H

#define STM_ID_VALUE 0x53544D31u /* "STM1" */

/* What it is, and what it has. Read only. */
#define STM_ID 0x00u
#define STM_WEIGHT_SIZE 0x04u /* bytes of the weight memory */

/* What it does. */
#define STM_CONTROL 0x10u  /* write STM_RESET, STM_START or STM_STOP */
#define STM_STATUS 0x14u   /* read: 1 while a stream runs, else 0 */
#define STM_FAULT 0x18u    /* read: the first fault since the last reset, STM_FAULT_*; after one, nothing starts */
#define STM_FAULT_AT 0x1Cu /* read: the offset in the stream of the command that it was found in */

#define STM_RESET 1u /* stops, forgets fault and counters */
#define STM_START 2u /* begins the stream. What the weight memory holds is forgotten */
#define STM_STOP 3u  /* stops, keeps fault and counters */

/* Counters since the last reset, 64 bits each: low half at STM_COUNTERS + 8 * index, high half behind it. */
#define STM_COUNTERS 0x20u
#define STM_N_COUNTERS 7 /* cycles, dma_cycles, compute_cycles, bytes_read, bytes_written, macs, commands */

/* What the next stream is, and which memory it may use. Kept until written again; not to be written while one runs. */
#define STM_STREAM 0x80u /* and 0x84: address of the first command, low half first */
#define STM_STREAM_BYTES 0x88u
#define STM_REGION_COUNT 0x8Cu /* regions from here on are not there */
#define STM_REGION 0x100u      /* + 16 * number: address (two words, low half first), bytes, 1 if it may be written */
#define STM_REGION_BYTES 8u
#define STM_REGION_WRITABLE 12u

/* How many commands of an engine may be unfinished, or finished without that a wait has seen it. */
#define STM_QUEUE 16u

/* A block of weights begins with: bits of a weight, rows, int32 bias[8], int32 multiplier[8], int8 shift[8]. */
#define STM_LANES 8u
#define STM_BLOCK_HEADER 80u

/* Faults of the hardware. */
#define STM_FAULT_COMMAND 1   /* an unknown command, or an operand that it does not take */
#define STM_FAULT_STREAM 2    /* the stream has no end */
#define STM_FAULT_REGION 3    /* an address outside of the regions that were given */
#define STM_FAULT_READ_ONLY 4 /* a command writes into a region that may only be read */
#define STM_FAULT_RANGE 5     /* an address outside of the weight memory */
#define STM_FAULT_UNKNOWN 6   /* weights are read that this stream did not load */
#define STM_FAULT_WEIGHTS 7   /* what lies in the weight memory are no weights, or not those of the command */
#define STM_FAULT_HAZARD 8    /* a command touches what one of the other engine, not waited for, reads or writes */
#define STM_FAULT_OVERLAP 9   /* a command writes over what it reads */
#define STM_FAULT_BUSY 10     /* a register is written while a stream runs */
#define STM_FAULT_REGISTER 11 /* there is no such register, or it is not for that */

/* Faults that the driver finds. */
#define STM_FAULT_ABSENT 16  /* no stream machine answers at this address */
#define STM_FAULT_SIZE 17    /* the weight memory is smaller than the model was compiled for */
#define STM_FAULT_TIMEOUT 18 /* a stream does not end */
#define STM_FAULT_MEMORY 19  /* the simulator was given too little memory */
#define STM_FAULT_REGIONS 20 /* a stream needs more regions than there are, or a larger one than 4 GiB */

#endif
