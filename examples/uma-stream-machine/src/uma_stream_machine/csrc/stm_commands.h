/* Made from the table in commands.py by `python -m uma_stream_machine.commands`; do not edit. */
#ifndef STM_COMMANDS_H
#define STM_COMMANDS_H

#include <stdint.h>

/* Bits of a word: (word >> lsb) & ((1 << bits) - 1), a two's complement if least < 0, times unit, is the
 * value of field `name`, from least to most. */
typedef struct stm_field {
    uint8_t name, word, lsb, bits, unit;
    int64_t least, most;
} stm_field;

typedef struct stm_command {
    uint8_t opcode, words, engine, n_fields;
    const stm_field *fields;
} stm_command;

enum { STM_ENGINE_DMA, STM_ENGINE_COMPUTE, STM_ENGINE_CONTROL };
enum { STM_ROUND_DOUBLE, STM_ROUND_UP, STM_ROUND_EVEN };

#define STM_OP_END 1
#define STM_OP_WAIT 2
#define STM_OP_DMA 3
#define STM_OP_CONV 4
#define STM_OP_DEPTHWISE 5
#define STM_OP_DENSE 6
#define STM_OP_MAX_POOL 7
#define STM_OP_AVERAGE_POOL 8
#define STM_OP_ADD 9
#define STM_OP_CONV_RESIDUAL 20
#define STM_OP_DEPTHWISE_RESIDUAL 21
#define STM_OP_DENSE_RESIDUAL 22

#define STM_N_COMMANDS 12
#define STM_MAX_WORDS 14
#define STM_N_REGIONS 16
#define STM_WEIGHT_MEMORY 255
#define STM_WEIGHT_UNIT 16
#define STM_ANY 255
#define STM_WITH_RESIDUAL 16

enum {
    STM_DMA,
    STM_COMPUTE,
    STM_TO_BASE,
    STM_TO,
    STM_FROM_BASE,
    STM_FROM,
    STM_BYTES,
    STM_OUTPUT_BASE,
    STM_OUTPUT,
    STM_INPUT_BASE,
    STM_INPUT,
    STM_IN_HEIGHT,
    STM_IN_WIDTH,
    STM_OUT_HEIGHT,
    STM_OUT_WIDTH,
    STM_KERNEL_HEIGHT,
    STM_KERNEL_WIDTH,
    STM_STRIDE_Y,
    STM_STRIDE_X,
    STM_PAD_TOP,
    STM_PAD_LEFT,
    STM_OUT_CHANNELS,
    STM_CHANNELS,
    STM_IN_PIXEL,
    STM_OUT_PIXEL,
    STM_ROUNDING,
    STM_WEIGHTS,
    STM_WEIGHT_BYTES,
    STM_INPUT_ZERO_POINT,
    STM_OUTPUT_ZERO_POINT,
    STM_LOW,
    STM_HIGH,
    STM_ROWS,
    STM_DEPTH,
    STM_LEFT_BASE,
    STM_LEFT,
    STM_RIGHT_BASE,
    STM_RIGHT,
    STM_COUNT,
    STM_LEFT_MULTIPLIER,
    STM_RIGHT_MULTIPLIER,
    STM_SUM_MULTIPLIER,
    STM_LEFT_SHIFT,
    STM_RIGHT_SHIFT,
    STM_SUM_SHIFT,
    STM_HEADROOM,
    STM_LEFT_ZERO_POINT,
    STM_RIGHT_ZERO_POINT,
    STM_SUM_ZERO_POINT,
    STM_RESIDUAL_BASE,
    STM_RESIDUAL,
    STM_RESIDUAL_FACTOR,
    STM_N_FIELDS
};

static const stm_field stm_wait_fields[] = {
    {STM_DMA, 0, 16, 8, 1, 0, 255},
    {STM_COMPUTE, 0, 24, 8, 1, 0, 255},
};

static const stm_field stm_dma_fields[] = {
    {STM_TO_BASE, 1, 0, 8, 1, 0, 255},
    {STM_TO, 2, 0, 32, 1, 0, 4294967295},
    {STM_FROM_BASE, 1, 8, 8, 1, 0, 255},
    {STM_FROM, 3, 0, 32, 1, 0, 4294967295},
    {STM_BYTES, 4, 0, 32, 1, 1, 4294967295},
};

static const stm_field stm_conv_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_INPUT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_INPUT, 3, 0, 32, 1, 0, 4294967295},
    {STM_IN_HEIGHT, 4, 0, 16, 1, 1, 65535},
    {STM_IN_WIDTH, 4, 16, 16, 1, 1, 65535},
    {STM_OUT_HEIGHT, 5, 0, 16, 1, 1, 65535},
    {STM_OUT_WIDTH, 5, 16, 16, 1, 1, 65535},
    {STM_KERNEL_HEIGHT, 6, 0, 8, 1, 1, 255},
    {STM_KERNEL_WIDTH, 6, 8, 8, 1, 1, 255},
    {STM_STRIDE_Y, 6, 16, 8, 1, 1, 255},
    {STM_STRIDE_X, 6, 24, 8, 1, 1, 255},
    {STM_PAD_TOP, 7, 0, 8, 1, 0, 255},
    {STM_PAD_LEFT, 7, 8, 8, 1, 0, 255},
    {STM_OUT_CHANNELS, 9, 0, 16, 1, 1, 65535},
    {STM_CHANNELS, 9, 16, 16, 1, 1, 65535},
    {STM_IN_PIXEL, 8, 0, 16, 1, 1, 65535},
    {STM_OUT_PIXEL, 8, 16, 16, 1, 1, 65535},
    {STM_ROUNDING, 7, 16, 8, 1, 0, 2},
    {STM_WEIGHTS, 10, 0, 16, 16, 0, 1048560},
    {STM_WEIGHT_BYTES, 10, 16, 16, 16, 16, 1048560},
    {STM_INPUT_ZERO_POINT, 11, 0, 8, 1, -128, 127},
    {STM_OUTPUT_ZERO_POINT, 11, 8, 8, 1, -128, 127},
    {STM_LOW, 11, 16, 8, 1, -128, 127},
    {STM_HIGH, 11, 24, 8, 1, -128, 127},
};

static const stm_field stm_depthwise_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_INPUT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_INPUT, 3, 0, 32, 1, 0, 4294967295},
    {STM_IN_HEIGHT, 4, 0, 16, 1, 1, 65535},
    {STM_IN_WIDTH, 4, 16, 16, 1, 1, 65535},
    {STM_OUT_HEIGHT, 5, 0, 16, 1, 1, 65535},
    {STM_OUT_WIDTH, 5, 16, 16, 1, 1, 65535},
    {STM_KERNEL_HEIGHT, 6, 0, 8, 1, 1, 255},
    {STM_KERNEL_WIDTH, 6, 8, 8, 1, 1, 255},
    {STM_STRIDE_Y, 6, 16, 8, 1, 1, 255},
    {STM_STRIDE_X, 6, 24, 8, 1, 1, 255},
    {STM_PAD_TOP, 7, 0, 8, 1, 0, 255},
    {STM_PAD_LEFT, 7, 8, 8, 1, 0, 255},
    {STM_OUT_CHANNELS, 9, 0, 16, 1, 1, 65535},
    {STM_IN_PIXEL, 8, 0, 16, 1, 1, 65535},
    {STM_OUT_PIXEL, 8, 16, 16, 1, 1, 65535},
    {STM_ROUNDING, 7, 16, 8, 1, 0, 2},
    {STM_WEIGHTS, 10, 0, 16, 16, 0, 1048560},
    {STM_WEIGHT_BYTES, 10, 16, 16, 16, 16, 1048560},
    {STM_INPUT_ZERO_POINT, 11, 0, 8, 1, -128, 127},
    {STM_OUTPUT_ZERO_POINT, 11, 8, 8, 1, -128, 127},
    {STM_LOW, 11, 16, 8, 1, -128, 127},
    {STM_HIGH, 11, 24, 8, 1, -128, 127},
};

static const stm_field stm_dense_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_INPUT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_INPUT, 3, 0, 32, 1, 0, 4294967295},
    {STM_ROWS, 4, 0, 24, 1, 1, 16777215},
    {STM_ROUNDING, 4, 24, 8, 1, 0, 2},
    {STM_DEPTH, 5, 0, 16, 1, 1, 65535},
    {STM_OUT_CHANNELS, 5, 16, 16, 1, 1, 65535},
    {STM_OUT_PIXEL, 6, 0, 16, 1, 1, 65535},
    {STM_WEIGHTS, 7, 0, 16, 16, 0, 1048560},
    {STM_WEIGHT_BYTES, 7, 16, 16, 16, 16, 1048560},
    {STM_INPUT_ZERO_POINT, 8, 0, 8, 1, -128, 127},
    {STM_OUTPUT_ZERO_POINT, 8, 8, 8, 1, -128, 127},
    {STM_LOW, 8, 16, 8, 1, -128, 127},
    {STM_HIGH, 8, 24, 8, 1, -128, 127},
};

static const stm_field stm_max_pool_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_INPUT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_INPUT, 3, 0, 32, 1, 0, 4294967295},
    {STM_IN_HEIGHT, 4, 0, 16, 1, 1, 65535},
    {STM_IN_WIDTH, 4, 16, 16, 1, 1, 65535},
    {STM_OUT_HEIGHT, 5, 0, 16, 1, 1, 65535},
    {STM_OUT_WIDTH, 5, 16, 16, 1, 1, 65535},
    {STM_KERNEL_HEIGHT, 6, 0, 8, 1, 1, 255},
    {STM_KERNEL_WIDTH, 6, 8, 8, 1, 1, 255},
    {STM_STRIDE_Y, 6, 16, 8, 1, 1, 255},
    {STM_STRIDE_X, 6, 24, 8, 1, 1, 255},
    {STM_PAD_TOP, 7, 0, 8, 1, 0, 255},
    {STM_PAD_LEFT, 7, 8, 8, 1, 0, 255},
    {STM_CHANNELS, 8, 0, 16, 1, 1, 65535},
    {STM_LOW, 7, 16, 8, 1, -128, 127},
    {STM_HIGH, 7, 24, 8, 1, -128, 127},
};

static const stm_field stm_average_pool_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_INPUT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_INPUT, 3, 0, 32, 1, 0, 4294967295},
    {STM_IN_HEIGHT, 4, 0, 16, 1, 1, 65535},
    {STM_IN_WIDTH, 4, 16, 16, 1, 1, 65535},
    {STM_OUT_HEIGHT, 5, 0, 16, 1, 1, 65535},
    {STM_OUT_WIDTH, 5, 16, 16, 1, 1, 65535},
    {STM_KERNEL_HEIGHT, 6, 0, 8, 1, 1, 255},
    {STM_KERNEL_WIDTH, 6, 8, 8, 1, 1, 255},
    {STM_STRIDE_Y, 6, 16, 8, 1, 1, 255},
    {STM_STRIDE_X, 6, 24, 8, 1, 1, 255},
    {STM_PAD_TOP, 7, 0, 8, 1, 0, 255},
    {STM_PAD_LEFT, 7, 8, 8, 1, 0, 255},
    {STM_CHANNELS, 8, 0, 16, 1, 1, 65535},
    {STM_LOW, 7, 16, 8, 1, -128, 127},
    {STM_HIGH, 7, 24, 8, 1, -128, 127},
};

static const stm_field stm_add_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_LEFT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_LEFT, 3, 0, 32, 1, 0, 4294967295},
    {STM_RIGHT_BASE, 1, 16, 8, 1, 0, 255},
    {STM_RIGHT, 4, 0, 32, 1, 0, 4294967295},
    {STM_COUNT, 5, 0, 32, 1, 1, 4294967295},
    {STM_LEFT_MULTIPLIER, 6, 0, 31, 1, 0, 2147483647},
    {STM_RIGHT_MULTIPLIER, 7, 0, 31, 1, 0, 2147483647},
    {STM_SUM_MULTIPLIER, 8, 0, 31, 1, 0, 2147483647},
    {STM_LEFT_SHIFT, 9, 0, 8, 1, -31, 0},
    {STM_RIGHT_SHIFT, 9, 8, 8, 1, -31, 0},
    {STM_SUM_SHIFT, 9, 16, 8, 1, -31, 30},
    {STM_HEADROOM, 9, 24, 8, 1, 0, 20},
    {STM_LEFT_ZERO_POINT, 10, 0, 8, 1, -128, 127},
    {STM_RIGHT_ZERO_POINT, 10, 8, 8, 1, -128, 127},
    {STM_SUM_ZERO_POINT, 10, 16, 8, 1, -128, 127},
    {STM_LOW, 11, 0, 8, 1, -128, 127},
    {STM_HIGH, 11, 8, 8, 1, -128, 127},
};

static const stm_field stm_conv_residual_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_INPUT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_INPUT, 3, 0, 32, 1, 0, 4294967295},
    {STM_RESIDUAL_BASE, 1, 16, 8, 1, 0, 255},
    {STM_RESIDUAL, 12, 0, 32, 1, 0, 4294967295},
    {STM_IN_HEIGHT, 4, 0, 16, 1, 1, 65535},
    {STM_IN_WIDTH, 4, 16, 16, 1, 1, 65535},
    {STM_OUT_HEIGHT, 5, 0, 16, 1, 1, 65535},
    {STM_OUT_WIDTH, 5, 16, 16, 1, 1, 65535},
    {STM_KERNEL_HEIGHT, 6, 0, 8, 1, 1, 255},
    {STM_KERNEL_WIDTH, 6, 8, 8, 1, 1, 255},
    {STM_STRIDE_Y, 6, 16, 8, 1, 1, 255},
    {STM_STRIDE_X, 6, 24, 8, 1, 1, 255},
    {STM_PAD_TOP, 7, 0, 8, 1, 0, 255},
    {STM_PAD_LEFT, 7, 8, 8, 1, 0, 255},
    {STM_OUT_CHANNELS, 9, 0, 16, 1, 1, 65535},
    {STM_CHANNELS, 9, 16, 16, 1, 1, 65535},
    {STM_IN_PIXEL, 8, 0, 16, 1, 1, 65535},
    {STM_OUT_PIXEL, 8, 16, 16, 1, 1, 65535},
    {STM_ROUNDING, 7, 16, 8, 1, 0, 2},
    {STM_WEIGHTS, 10, 0, 16, 16, 0, 1048560},
    {STM_WEIGHT_BYTES, 10, 16, 16, 16, 16, 1048560},
    {STM_INPUT_ZERO_POINT, 11, 0, 8, 1, -128, 127},
    {STM_OUTPUT_ZERO_POINT, 11, 8, 8, 1, -128, 127},
    {STM_LOW, 11, 16, 8, 1, -128, 127},
    {STM_HIGH, 11, 24, 8, 1, -128, 127},
    {STM_RESIDUAL_FACTOR, 13, 0, 32, 1, -8388608, 8388608},
};

static const stm_field stm_depthwise_residual_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_INPUT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_INPUT, 3, 0, 32, 1, 0, 4294967295},
    {STM_RESIDUAL_BASE, 1, 16, 8, 1, 0, 255},
    {STM_RESIDUAL, 12, 0, 32, 1, 0, 4294967295},
    {STM_IN_HEIGHT, 4, 0, 16, 1, 1, 65535},
    {STM_IN_WIDTH, 4, 16, 16, 1, 1, 65535},
    {STM_OUT_HEIGHT, 5, 0, 16, 1, 1, 65535},
    {STM_OUT_WIDTH, 5, 16, 16, 1, 1, 65535},
    {STM_KERNEL_HEIGHT, 6, 0, 8, 1, 1, 255},
    {STM_KERNEL_WIDTH, 6, 8, 8, 1, 1, 255},
    {STM_STRIDE_Y, 6, 16, 8, 1, 1, 255},
    {STM_STRIDE_X, 6, 24, 8, 1, 1, 255},
    {STM_PAD_TOP, 7, 0, 8, 1, 0, 255},
    {STM_PAD_LEFT, 7, 8, 8, 1, 0, 255},
    {STM_OUT_CHANNELS, 9, 0, 16, 1, 1, 65535},
    {STM_IN_PIXEL, 8, 0, 16, 1, 1, 65535},
    {STM_OUT_PIXEL, 8, 16, 16, 1, 1, 65535},
    {STM_ROUNDING, 7, 16, 8, 1, 0, 2},
    {STM_WEIGHTS, 10, 0, 16, 16, 0, 1048560},
    {STM_WEIGHT_BYTES, 10, 16, 16, 16, 16, 1048560},
    {STM_INPUT_ZERO_POINT, 11, 0, 8, 1, -128, 127},
    {STM_OUTPUT_ZERO_POINT, 11, 8, 8, 1, -128, 127},
    {STM_LOW, 11, 16, 8, 1, -128, 127},
    {STM_HIGH, 11, 24, 8, 1, -128, 127},
    {STM_RESIDUAL_FACTOR, 13, 0, 32, 1, -8388608, 8388608},
};

static const stm_field stm_dense_residual_fields[] = {
    {STM_OUTPUT_BASE, 1, 0, 8, 1, 0, 255},
    {STM_OUTPUT, 2, 0, 32, 1, 0, 4294967295},
    {STM_INPUT_BASE, 1, 8, 8, 1, 0, 255},
    {STM_INPUT, 3, 0, 32, 1, 0, 4294967295},
    {STM_RESIDUAL_BASE, 1, 16, 8, 1, 0, 255},
    {STM_RESIDUAL, 9, 0, 32, 1, 0, 4294967295},
    {STM_ROWS, 4, 0, 24, 1, 1, 16777215},
    {STM_ROUNDING, 4, 24, 8, 1, 0, 2},
    {STM_DEPTH, 5, 0, 16, 1, 1, 65535},
    {STM_OUT_CHANNELS, 5, 16, 16, 1, 1, 65535},
    {STM_OUT_PIXEL, 6, 0, 16, 1, 1, 65535},
    {STM_WEIGHTS, 7, 0, 16, 16, 0, 1048560},
    {STM_WEIGHT_BYTES, 7, 16, 16, 16, 16, 1048560},
    {STM_INPUT_ZERO_POINT, 8, 0, 8, 1, -128, 127},
    {STM_OUTPUT_ZERO_POINT, 8, 8, 8, 1, -128, 127},
    {STM_LOW, 8, 16, 8, 1, -128, 127},
    {STM_HIGH, 8, 24, 8, 1, -128, 127},
    {STM_RESIDUAL_FACTOR, 10, 0, 32, 1, -8388608, 8388608},
};

static const stm_command stm_commands[STM_N_COMMANDS] = {
    {1, 1, STM_ENGINE_CONTROL, 0, 0},
    {2, 1, STM_ENGINE_CONTROL, 2, stm_wait_fields},
    {3, 5, STM_ENGINE_DMA, 5, stm_dma_fields},
    {4, 12, STM_ENGINE_COMPUTE, 25, stm_conv_fields},
    {5, 12, STM_ENGINE_COMPUTE, 24, stm_depthwise_fields},
    {6, 9, STM_ENGINE_COMPUTE, 15, stm_dense_fields},
    {7, 9, STM_ENGINE_COMPUTE, 17, stm_max_pool_fields},
    {8, 9, STM_ENGINE_COMPUTE, 17, stm_average_pool_fields},
    {9, 12, STM_ENGINE_COMPUTE, 19, stm_add_fields},
    {20, 14, STM_ENGINE_COMPUTE, 28, stm_conv_residual_fields},
    {21, 14, STM_ENGINE_COMPUTE, 27, stm_depthwise_residual_fields},
    {22, 11, STM_ENGINE_COMPUTE, 18, stm_dense_residual_fields},
};

#endif
