/* The registers of UltraTrail as this package drives it: all that driver and hardware (or simulator) have in common,
 * besides the fields of a layer's register in ut_fields.h. README.md says what each does.
 */
#ifndef UT_REGS_H
#define UT_REGS_H

#define UT_ID_VALUE 0x55545231u /* "UTR1" */

/* What it is, and what it has. Read only. */
#define UT_ID 0x00u
#define UT_CONFIG 0x04u  /* + 4 * number of the parameter, UT_ARRAY_DIM to UT_BMEM_WORDS */
#define UT_N_PARAMETERS 9

enum {
    UT_ARRAY_DIM,
    UT_WEIGHT_BITS,
    UT_FEATURE_BITS,
    UT_BIAS_BITS,
    UT_ACCUMULATOR_BITS,
    UT_LAYERS,
    UT_FMEM_WORDS,
    UT_WMEM_WORDS,
    UT_BMEM_WORDS
};

/* What it does. */
#define UT_CONTROL 0x30u     /* write UT_RESET, UT_CLEAR, UT_START or UT_STOP */
#define UT_STATUS 0x34u      /* read: 1 while it runs, else 0. Its end raises the interrupt */
#define UT_FAULT 0x38u       /* read: the first fault since the last reset, UT_FAULT_*; after one, nothing starts */
#define UT_FAULT_LAYER 0x3Cu /* read: the number of the layer in which it was found, UT_NO_LAYER for none */
#define UT_FAULT_CYCLE 0x40u /* read: the cycle in which it was found, from the start on */
#define UT_NO_LAYER 0xFFFFFFFFu

#define UT_RESET 1u /* stops, forgets fault and counters, and does what UT_CLEAR does */
#define UT_CLEAR 2u /* forgets the layers' registers and what the memories hold */
#define UT_START 3u /* begins with the first layer */
#define UT_STOP 4u  /* stops, keeps fault and counters */

/* The port to the memories. A word takes as many accesses of UT_PORT_DATA as it has groups of four bytes, the lowest
 * first; a feature is a byte. Then the address goes on by one. */
#define UT_PORT_MEMORY 0x50u  /* write: 0 to 2 features, UT_WEIGHTS or UT_BIASES */
#define UT_PORT_ADDRESS 0x54u /* write: the word with which the port goes on */
#define UT_PORT_DATA 0x58u    /* read or write: the next four bytes */

#define UT_FEATURES 3u /* memories of features */
#define UT_WEIGHTS 3u
#define UT_BIASES 4u
#define UT_N_MEMORIES 5u

/* The register of each layer: the lower 32 of its bits, the others behind them. */
#define UT_LAYER 0x80u /* + 8 * number of the layer */
#define UT_MAX_LAYERS 16u

/* Counters since the last reset, 64 bits each, the lower half first. */
#define UT_COUNTERS 0x100u       /* + 8 * number: UT_CYCLES and so on of all layers, UT_PORT_WORDS, UT_STARTS */
#define UT_LAYER_COUNTERS 0x200u /* + 64 * number of the layer + 8 * number */

enum {
    UT_CYCLES,         /* from its start to the end of the layer */
    UT_ARRAY_CYCLES,   /* those in which the array multiplied */
    UT_FEATURE_READS,  /* words, of all feature memories; what goes through the port is not counted */
    UT_FEATURE_WRITES, /* likewise */
    UT_WEIGHT_READS,
    UT_BIAS_READS,
    UT_N_LAYER_COUNTERS,
    UT_PORT_WORDS = UT_N_LAYER_COUNTERS, /* accesses of UT_PORT_DATA */
    UT_STARTS,
    UT_N_COUNTERS
};

/* What the array can be at most. */
#define UT_MAX_DIM 16u

/* Faults of the hardware. */
#define UT_FAULT_LAYER_REGISTER 1 /* the register of a layer is illegal, or none is the last */
#define UT_FAULT_RANGE 2          /* an address outside of a memory */
#define UT_FAULT_PORT 3           /* two accesses to one port of a memory in one cycle */
#define UT_FAULT_OVERFLOW 4       /* a sum leaves the accumulator's bits */
#define UT_FAULT_UNKNOWN 5        /* a word is read that nobody wrote */
#define UT_FAULT_BUSY 6           /* a register is written while it runs */
#define UT_FAULT_REGISTER 7       /* there is no such register, or it takes no such value */
#define UT_FAULT_DISAGREE 8       /* the stepped and the functional simulator came to different results */

/* Faults that the driver finds. */
#define UT_FAULT_ABSENT 16   /* no UltraTrail answers */
#define UT_FAULT_OTHER 17    /* it is another one than the model was compiled for */
#define UT_FAULT_TIMEOUT 18  /* it does not come to an end */
#define UT_FAULT_MEMORY 19   /* the simulator was given too little memory */
#define UT_FAULT_DAMAGED 20  /* the check sum of the network is another */
#define UT_FAULT_NETWORK 21  /* the network is malformed, or touches memory that it was not given */
#define UT_FAULT_FEATURE 22  /* a feature of the input does not fit the machine's bits */

#endif
