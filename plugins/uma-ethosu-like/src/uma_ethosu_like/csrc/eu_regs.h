/* The registers of the machine: all that driver and hardware (or simulator) have in common, besides the commands.
 *
 * Offsets and bits up to 0xFFF are those of Ethos-U55 (ethosu_interface_u55.h of Arm's core driver, Apache-2.0). Those
 * from 0x1000 on are the simulator's own: the driver uses them where the component's number is the simulator's.
 */
#ifndef EU_REGS_H
#define EU_REGS_H

#define EU_REG_ID 0x000u
#define EU_ID_ARCH_MAJOR(id) ((id) >> 28)
#define EU_ID_ARCH_MINOR(id) ((id) >> 20 & 0xFFu)

#define EU_REG_STATUS 0x004u
#define EU_STATUS_RUNNING 0x001u
#define EU_STATUS_IRQ 0x002u
#define EU_STATUS_BUS_FAULT 0x004u
#define EU_STATUS_RESETTING 0x008u
#define EU_STATUS_PARSE_FAULT 0x010u
#define EU_STATUS_END 0x020u
#define EU_STATUS_WEIGHT_FAULT 0x080u
#define EU_STATUS_ECC_FAULT 0x100u
#define EU_STATUS_FAULTS                                                                                               \
    (EU_STATUS_BUS_FAULT | EU_STATUS_PARSE_FAULT | EU_STATUS_WEIGHT_FAULT | EU_STATUS_ECC_FAULT)

#define EU_REG_CMD 0x008u
#define EU_CMD_RUN 0x001u
#define EU_CMD_CLEAR_IRQ 0x002u
#define EU_CMD_IDLE 0x00Cu /* the clock and the power may go while it does nothing */
#define EU_CMD_STOP 0x010u

#define EU_REG_RESET 0x00Cu /* written: bit 0 privileged, bit 1 non-secure, and it resets */
#define EU_REG_QBASE 0x010u /* and 0x014: address of the stream */
#define EU_REG_QREAD 0x018u /* bytes of the stream that were read */
#define EU_REG_QCONFIG 0x01Cu /* by which limits and port streams come */
#define EU_REG_QSIZE 0x020u /* bytes of the stream */
#define EU_REG_CONFIG 0x028u    /* log2 of macs; from bit 4 version of the stream; from bit 8 KiB of shared memory */
#define EU_REG_REGIONCFG 0x03Cu /* for each region, 2 bits: by which limits and port it is reached */
#define EU_PORT_0 1u            /* reads and writes */
#define EU_PORT_1 3u            /* reads */
#define EU_REG_AXI_LIMIT 0x040u /* four of them: for port 0 two, for port 1 two */
#define EU_REG_BASEP 0x080u     /* + 8 * region: its address, low half first */

#define EU_REG_PMCR 0x180u
#define EU_PMCR_ENABLE 0x1u
#define EU_PMCR_RESET_EVENTS 0x2u
#define EU_PMCR_RESET_CYCLES 0x4u
#define EU_REG_PMCNTENSET 0x184u
#define EU_PMCNT_CYCLES 0x80000000u
#define EU_PMCNT_EVENT0 0x1u
#define EU_REG_PMCCNTR 0x1A0u /* and 0x1A4: cycles, 48 bits */
#define EU_REG_PMCCNTR_CFG 0x1A8u
#define EU_REG_PMEVCNTR0 0x300u
#define EU_REG_PMEVTYPER0 0x380u
#define EU_EVENT_MAC_ACTIVE 0x30u /* the array multiplies */

#define EU_REG_CID 0xFF0u /* + 4 * n: four bytes that say what kind of component it is */

/* The simulator's. */
#define EU_SIM_CID 0x53554D41u /* its bytes, the lowest first */
#define EU_SIM_REGION 0x1000u  /* + 8 * region: its bytes; then 1 if it may be written */
#define EU_SIM_FAULT 0x1080u   /* read: eu_fault of the last stream */
#define EU_SIM_WORD 0x1084u    /* read: index of the command at fault */
#define EU_SIM_COUNTERS 0x1100u /* + 8 * index from 2 on: since the last reset, low half first */

/* Counters of the driver. The first two are the machine's own; the others only the simulator has. */
enum {
    EU_COUNT_CYCLES,
    EU_COUNT_MAC_CYCLES,
    EU_COUNT_CONV_CYCLES, /* from here on in the order of the simulator's kinds */
    EU_COUNT_DEPTHWISE_CYCLES,
    EU_COUNT_POOL_CYCLES,
    EU_COUNT_ELEMENTWISE_CYCLES,
    EU_COUNT_DMA_CYCLES,
    EU_COUNT_OPERATIONS,
    EU_COUNT_MACS,
    EU_COUNT_DMA_BYTES,
    EU_N_COUNTERS
};

/* Parameters of a device. */
enum {
    EU_PARAMETER_MACS,
    EU_PARAMETER_SRAM_BYTES_PER_16_CYCLES,
    EU_PARAMETER_SRAM_LATENCY,
    EU_PARAMETER_FLASH_BYTES_PER_16_CYCLES,
    EU_PARAMETER_FLASH_LATENCY,
    EU_N_PARAMETERS
};

/* Faults that the driver finds; those below are the simulator's, of eu_sim.h. */
#define EU_FAULT_ABSENT 64        /* no such machine answers */
#define EU_FAULT_OTHER 65         /* the machine has another configuration than the model was compiled for */
#define EU_FAULT_PAYLOAD 66       /* the payload is malformed */
#define EU_FAULT_NEWER 67         /* the payload is of a newer version */
#define EU_FAULT_STREAM_MACHINE 68 /* the stream is for a machine of another configuration */
#define EU_FAULT_REGIONS 69       /* more regions than the machine has base addresses for, or a larger one than 4 GiB */
#define EU_FAULT_UNALIGNED 70     /* the stream, or a region on silicon, does not begin at a multiple of 16 bytes */
#define EU_FAULT_TIMEOUT 71       /* the stream does not end */
#define EU_FAULT_RESET 72         /* it does not come out of its reset */
#define EU_FAULT_BUS 73           /* the machine says: an access to memory failed */
#define EU_FAULT_PARSE 74         /* the machine says: no such command */
#define EU_FAULT_DECODER 75       /* the machine says: weights that do not decompress */
#define EU_FAULT_ECC 76           /* the machine says: a bit of its memory flipped */
#define EU_FAULT_UNFINISHED 77    /* the machine stopped before the end of the stream */
#define EU_FAULT_MEMORY 78        /* the simulator was given too little memory */

#endif
