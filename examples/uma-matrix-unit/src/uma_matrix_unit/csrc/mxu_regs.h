/* The registers of the matrix unit: all that driver and hardware (or simulator) have in common. README.md says what
 * each command does.
 */
#ifndef MXU_REGS_H
#define MXU_REGS_H

#define MXU_ID_VALUE 0x4D585531u /* "MXU1" */
#define MXU_LANES 8u             /* rows and columns of the array */

/* Operands that count something have limits; what is 0 or larger is a fault. */
#define MXU_MAX_SIZE 0xFFFFFFu /* MXU_ROWS, MXU_ROW_BYTES */
#define MXU_MAX_EDGE 64u        /* MXU_HEIGHT, MXU_WIDTH */
#define MXU_MAX_TAPS 16u
#define MXU_MAX_DEPTH 16384u

/* What it is, and what it has. Read only. */
#define MXU_ID 0x00u
#define MXU_ACT_BYTES 0x04u
#define MXU_WGT_BYTES 0x08u
#define MXU_ACC_BYTES 0x0Cu

/* What it does. */
#define MXU_CONTROL 0x10u /* write MXU_RESET: stops, forgets fault, counters and all that the memories hold */
#define MXU_COMMAND 0x14u /* write MXU_CMD_*: starts it */
#define MXU_STATUS 0x18u  /* read: 1 while a command runs, else 0 */
#define MXU_FAULT 0x1Cu   /* read: the first fault since the last reset, MXU_FAULT_*; after one, commands do nothing */

#define MXU_RESET 1u

/* Counters since the last reset, 64 bits each: low half at MXU_COUNTERS + 8 * index, high half behind it. */
#define MXU_COUNTERS 0x20u
#define MXU_N_COUNTERS 5 /* cycles, bytes_in, bytes_out, macs, commands */

/* Operands. They keep what was written last. Strides and addresses of scratchpads are in bytes. */
#define MXU_OPERANDS 0x80u
#define MXU_HOST 0x80u /* and 0x84: address of host memory, low half first */
#define MXU_HOST_STRIDE 0x88u
#define MXU_ADDRESS 0x8Cu
#define MXU_STRIDE 0x90u
#define MXU_ROWS 0x94u
#define MXU_ROW_BYTES 0x98u
#define MXU_VALUE 0x9Cu
#define MXU_ACC 0xA0u
#define MXU_ACC_Y 0xA4u
#define MXU_ACT 0xA8u
#define MXU_ACT_Y 0xACu
#define MXU_ACT_X 0xB0u
#define MXU_ACT_T 0xB4u
#define MXU_WGT 0xB8u
#define MXU_WGT_T 0xBCu
#define MXU_HEIGHT 0xC0u
#define MXU_WIDTH 0xC4u
#define MXU_TAPS 0xC8u
#define MXU_DEPTH 0xCCu
#define MXU_STRIDE_Y 0xD0u
#define MXU_CHANNELS 0xD4u
#define MXU_ROUNDING 0xD8u
#define MXU_ZERO_POINT 0xDCu
#define MXU_LOW 0xE0u
#define MXU_HIGH 0xE4u
#define MXU_PENDING 0xE8u
#define MXU_OPERANDS_END 0xECu

#define MXU_CMD_LOAD_ACT 1u
#define MXU_CMD_LOAD_WGT 2u
#define MXU_CMD_STORE 3u
#define MXU_CMD_FILL 4u
#define MXU_CMD_BIAS 5u
#define MXU_CMD_MAC 6u
#define MXU_CMD_REQUANTISE 7u
#define MXU_CMD_WAIT 8u /* until at most MXU_PENDING of the transfers that were started have not ended */

#define MXU_START 16u     /* added to MXU_CMD_LOAD_ACT, MXU_CMD_LOAD_WGT, MXU_CMD_STORE: is not waited for */
#define MXU_QUEUE_SIZE 16 /* transfers that were started and have not ended; one more waits for room */

#define MXU_ROUND_DOUBLE 0u
#define MXU_ROUND_UP 1u
#define MXU_ROUND_EVEN 2u

/* A record of eight output channels in the weight scratchpad: int32 bias[8], multiplier[8], shift[8]. */
#define MXU_RECORD_BYTES 96u

/* Faults of the hardware. */
#define MXU_FAULT_COMMAND 1     /* an unknown command, or an operand that it does not take */
#define MXU_FAULT_ACT_RANGE 2   /* an address outside of the activation scratchpad */
#define MXU_FAULT_WGT_RANGE 3   /* outside of the weight scratchpad */
#define MXU_FAULT_ACC_RANGE 4   /* outside of the accumulators */
#define MXU_FAULT_ACT_UNKNOWN 5 /* bytes of the activation scratchpad are read that were never written */
#define MXU_FAULT_WGT_UNKNOWN 6
#define MXU_FAULT_ACC_UNKNOWN 7
#define MXU_FAULT_MISALIGNED 8 /* weights must lie at multiples of 8 bytes, accumulators of 32 */
#define MXU_FAULT_BUSY 9       /* a register is written while a command runs */
#define MXU_FAULT_REGISTER 10  /* there is no such register, or it is not for that */
#define MXU_FAULT_IN_FLIGHT 11 /* a command uses bytes of a transfer that was started and not waited for */

/* Faults that the driver finds. */
#define MXU_FAULT_ABSENT 16  /* no matrix unit answers at this address */
#define MXU_FAULT_SIZE 17    /* a memory is smaller than the model was compiled for */
#define MXU_FAULT_TIMEOUT 18 /* a command does not end */
#define MXU_FAULT_MEMORY 19  /* the simulator was given too little memory */

#endif
