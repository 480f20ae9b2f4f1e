/* Made from the table in registers.py by `python -m uma_ultratrail.registers`; do not edit. */
#ifndef UT_FIELDS_H
#define UT_FIELDS_H

#include <stdint.h>

/* A field is (register >> lsb) & ((1 << bits) - 1), and legal from least to most. */
typedef struct ut_field {
    uint8_t lsb, bits, least, most;
} ut_field;

#define UT_REGISTER_BITS 42

enum {
    UT_MEM_CTRL,
    UT_CH_IN_LEN,
    UT_CH_IN_BLK,
    UT_CH_OUT_LEN,
    UT_CH_OUT_BLK,
    UT_KERNEL_SHAPE,
    UT_STRIDE,
    UT_AVG_POOL_EXP,
    UT_PAD,
    UT_RELU,
    UT_BIAS,
    UT_AVG,
    UT_EARLY_EXIT,
    UT_LAST,
    UT_N_FIELDS
};

static const ut_field ut_fields[UT_N_FIELDS] = {
    {38, 4, 0, 11}, /* mem_ctrl */
    {31, 7, 1, 127}, /* ch_in_len */
    {27, 4, 1, 15}, /* ch_in_blk */
    {20, 7, 1, 127}, /* ch_out_len */
    {16, 4, 1, 15}, /* ch_out_blk */
    {12, 4, 1, 15}, /* kernel_shape */
    {9, 3, 1, 7}, /* stride */
    {6, 3, 0, 7}, /* avg_pool_exp */
    {5, 1, 0, 1}, /* pad */
    {4, 1, 0, 1}, /* relu */
    {3, 1, 0, 1}, /* bias */
    {2, 1, 0, 1}, /* avg */
    {1, 1, 0, 0}, /* early_exit */
    {0, 1, 0, 1}, /* last */
};

/* By mem_ctrl: the memories that are read and written. */
static const uint8_t ut_memories[12][2] = {
    {0, 1},
    {0, 1},
    {1, 0},
    {1, 0},
    {0, 2},
    {0, 2},
    {2, 0},
    {2, 0},
    {1, 2},
    {1, 2},
    {2, 1},
    {2, 1},
};

#endif
