/* The registers of mac_array: all that driver and hardware (or simulator) have in common. README.md says what each
 * command does.
 */
#ifndef MAC_ARRAY_REGS_H
#define MAC_ARRAY_REGS_H

#define MAC_ARRAY_ID_VALUE 0x77CC2788u
#define MAC_ARRAY_LANES 8u /* output channels that are made at once */

/* Operands that count something have limits; what is 0 or larger is a fault. */
#define MAC_ARRAY_MAX_SIZE 0xFFFFFFu /* ROWS, ROW_BYTES */
#define MAC_ARRAY_MAX_EDGE 64u       /* HEIGHT, WIDTH */
#define MAC_ARRAY_MAX_TAPS 16u
#define MAC_ARRAY_MAX_DEPTH 16384u

/* What it is, and what it has. Read only. */
#define MAC_ARRAY_ID 0x00u
#define MAC_ARRAY_ACT_BYTES 0x04u
#define MAC_ARRAY_WGT_BYTES 0x08u
#define MAC_ARRAY_ACC_BYTES 0x0Cu

/* What it does. */
#define MAC_ARRAY_CONTROL 0x10u /* write RESET: stops, forgets fault, counters and all that the memories hold */
#define MAC_ARRAY_COMMAND 0x14u /* write CMD_*: starts it */
#define MAC_ARRAY_STATUS 0x18u  /* read: 1 while a command runs, else 0 */
#define MAC_ARRAY_FAULT 0x1Cu   /* read: the first fault since the last reset; after one, commands do nothing */

#define MAC_ARRAY_RESET 1u

/* Counters since the last reset, 64 bits each, the low half first. */
#define MAC_ARRAY_COUNTERS 0x20u
#define MAC_ARRAY_N_COUNTERS 5 /* cycles, bytes_in, bytes_out, macs, commands */

/* Operands. They keep what was written last. Strides and addresses of memories are in bytes. */
#define MAC_ARRAY_OPERANDS 0x80u
#define MAC_ARRAY_HOST 0x80u /* and 0x84: address of host memory, low half first */
#define MAC_ARRAY_HOST_STRIDE 0x88u
#define MAC_ARRAY_ADDRESS 0x8Cu
#define MAC_ARRAY_STRIDE 0x90u
#define MAC_ARRAY_ROWS 0x94u
#define MAC_ARRAY_ROW_BYTES 0x98u
#define MAC_ARRAY_VALUE 0x9Cu
#define MAC_ARRAY_ACC 0xA0u
#define MAC_ARRAY_ACC_Y 0xA4u
#define MAC_ARRAY_ACT 0xA8u
#define MAC_ARRAY_ACT_Y 0xACu
#define MAC_ARRAY_ACT_X 0xB0u
#define MAC_ARRAY_ACT_T 0xB4u
#define MAC_ARRAY_WGT 0xB8u
#define MAC_ARRAY_WGT_T 0xBCu
#define MAC_ARRAY_HEIGHT 0xC0u
#define MAC_ARRAY_WIDTH 0xC4u
#define MAC_ARRAY_TAPS 0xC8u
#define MAC_ARRAY_DEPTH 0xCCu
#define MAC_ARRAY_STRIDE_Y 0xD0u
#define MAC_ARRAY_CHANNELS 0xD4u
#define MAC_ARRAY_ROUNDING 0xD8u
#define MAC_ARRAY_ZERO_POINT 0xDCu
#define MAC_ARRAY_LOW 0xE0u
#define MAC_ARRAY_HIGH 0xE4u
#define MAC_ARRAY_OPERANDS_END 0xE8u

#define MAC_ARRAY_CMD_LOAD_ACT 1u
#define MAC_ARRAY_CMD_LOAD_WGT 2u
#define MAC_ARRAY_CMD_STORE 3u
#define MAC_ARRAY_CMD_FILL 4u
#define MAC_ARRAY_CMD_BIAS 5u
#define MAC_ARRAY_CMD_MAC 6u
#define MAC_ARRAY_CMD_REQUANTISE 7u

#define MAC_ARRAY_ROUND_DOUBLE 0u
#define MAC_ARRAY_ROUND_UP 1u
#define MAC_ARRAY_ROUND_EVEN 2u

/* A record of eight output channels in the memory for weights: int32 bias[8], multiplier[8], shift[8]. */
#define MAC_ARRAY_RECORD_BYTES 96u

/* Faults of the hardware; those that the driver finds are UMA_FAULT_* of uma_device.h. */
#define MAC_ARRAY_FAULT_COMMAND 1     /* an unknown command, or an operand that it does not take */
#define MAC_ARRAY_FAULT_ACT_RANGE 2   /* an address outside of the memory for activations */
#define MAC_ARRAY_FAULT_WGT_RANGE 3   /* outside of that for weights */
#define MAC_ARRAY_FAULT_ACC_RANGE 4   /* outside of the accumulators */
#define MAC_ARRAY_FAULT_ACT_UNKNOWN 5 /* activations are read that were never written */
#define MAC_ARRAY_FAULT_WGT_UNKNOWN 6
#define MAC_ARRAY_FAULT_ACC_UNKNOWN 7
#define MAC_ARRAY_FAULT_MISALIGNED 8 /* weights must lie at multiples of 8 bytes, accumulators of 32 */
#define MAC_ARRAY_FAULT_BUSY 9       /* a register is written while a command runs */
#define MAC_ARRAY_FAULT_REGISTER 10  /* there is no such register, or it is not for that */

#endif
