/* Made from the table in commands.py by `python -m uma_ethosu_like.headers`; do not edit. */
#ifndef EU_COMMANDS_H
#define EU_COMMANDS_H

#include <stdint.h>

/* Bits of a command: those of its word `word` from lsb on, continued by those from upper_lsb on; a two's
 * complement if least < 0. Legal: from least to most, a multiple of `multiple`; and bit `value` of `legal`
 * is set, where that is not 0. So many sign_bits of the first word, from bit 16 on, repeat the sign.
 */
typedef struct eu_field {
    uint8_t word, lsb, bits, upper_lsb, upper_bits, multiple, sign_bits;
    uint32_t legal;
    int64_t least, most;
} eu_field;

/* `header` is the low half of its first word; its fields are eu_fields[first] on, which are its slots in the
 * state too; read_by has the bits EU_READ_* of the operations that may read what it sets. */
typedef struct eu_command {
    uint16_t header;
    uint8_t words, first, fields, read_by;
} eu_command;

enum { EU_POOL_MAX = 0, EU_POOL_AVERAGE = 1, EU_POOL_REDUCE_SUM = 2 };
enum { EU_ELEMENTWISE_MUL = 0, EU_ELEMENTWISE_ADD = 1, EU_ELEMENTWISE_SUB = 2, EU_ELEMENTWISE_MIN = 3,
    EU_ELEMENTWISE_MAX = 4, EU_ELEMENTWISE_LRELU = 5, EU_ELEMENTWISE_ABS = 6, EU_ELEMENTWISE_CLZ = 7,
    EU_ELEMENTWISE_SHR = 8, EU_ELEMENTWISE_SHL = 9 };
enum { EU_TYPE_UNSIGNED = 0, EU_TYPE_SIGNED = 1 };
enum { EU_PRECISION_8BIT = 0, EU_PRECISION_16BIT = 1, EU_PRECISION_32BIT = 2 };
enum { EU_FORMAT_NHWC = 0, EU_FORMAT_NHCWB16 = 1 };
enum { EU_UPSCALE_NONE = 0, EU_UPSCALE_NEAREST = 1, EU_UPSCALE_ZEROS = 2 };
enum { EU_OPERAND_SCALE_16BIT = 0, EU_OPERAND_SCALE_OPA_32BIT = 1, EU_OPERAND_SCALE_OPB_32BIT = 2 };
enum { EU_SCALE_PER_CHANNEL = 0, EU_SCALE_GLOBAL = 1 };
enum { EU_ROUND_TFL = 0, EU_ROUND_TRUNCATE = 1, EU_ROUND_NATURAL = 2 };
enum { EU_ACC_INT32 = 0, EU_ACC_INT40 = 1, EU_ACC_FP_S5_10 = 2 };
enum { EU_ACTIVATE_NONE = 0, EU_ACTIVATE_TANH = 3, EU_ACTIVATE_SIGMOID = 4, EU_ACTIVATE_LUT0 = 16, EU_ACTIVATE_LUT1
    = 17, EU_ACTIVATE_LUT2 = 18, EU_ACTIVATE_LUT3 = 19, EU_ACTIVATE_LUT4 = 20, EU_ACTIVATE_LUT5 = 21,
    EU_ACTIVATE_LUT6 = 22, EU_ACTIVATE_LUT7 = 23 };
enum { EU_CLIP_OFM_PRECISION = 0, EU_CLIP_UINT8 = 2, EU_CLIP_INT8 = 3, EU_CLIP_INT16 = 5 };
enum { EU_WEIGHT_ORDER_DEPTH_FIRST = 0, EU_WEIGHT_ORDER_PART_KERNEL_FIRST = 1 };
enum { EU_DMA_EXTERNAL = 0, EU_DMA_INTERNAL = 1 };
enum { EU_DMA_STRIDE_1D = 0, EU_DMA_STRIDE_2D = 1, EU_DMA_STRIDE_3D = 2 };
enum { EU_READ_CONV = 1, EU_READ_DEPTHWISE = 2, EU_READ_POOL = 4, EU_READ_ELEMENTWISE = 8, EU_READ_DMA = 16 };

#define EU_OP_STOP 0x0000u
#define EU_OP_IRQ 0x0001u
#define EU_OP_CONV 0x0002u
#define EU_OP_DEPTHWISE 0x0003u
#define EU_OP_POOL 0x0005u
#define EU_OP_ELEMENTWISE 0x0006u
#define EU_OP_DMA_START 0x0010u
#define EU_OP_DMA_WAIT 0x0011u
#define EU_OP_KERNEL_WAIT 0x0012u
#define EU_OP_PMU_MASK 0x0013u
#define EU_SET_IFM_PAD_TOP 0x0100u
#define EU_SET_IFM_PAD_LEFT 0x0101u
#define EU_SET_IFM_PAD_RIGHT 0x0102u
#define EU_SET_IFM_PAD_BOTTOM 0x0103u
#define EU_SET_IFM_DEPTH_M1 0x0104u
#define EU_SET_IFM_PRECISION 0x0105u
#define EU_SET_IFM_UPSCALE 0x0107u
#define EU_SET_IFM_ZERO_POINT 0x0109u
#define EU_SET_IFM_WIDTH0_M1 0x010au
#define EU_SET_IFM_HEIGHT0_M1 0x010bu
#define EU_SET_IFM_HEIGHT1_M1 0x010cu
#define EU_SET_IFM_IB_END 0x010du
#define EU_SET_IFM_REGION 0x010fu
#define EU_SET_OFM_WIDTH_M1 0x0111u
#define EU_SET_OFM_HEIGHT_M1 0x0112u
#define EU_SET_OFM_DEPTH_M1 0x0113u
#define EU_SET_OFM_PRECISION 0x0114u
#define EU_SET_OFM_BLK_WIDTH_M1 0x0115u
#define EU_SET_OFM_BLK_HEIGHT_M1 0x0116u
#define EU_SET_OFM_BLK_DEPTH_M1 0x0117u
#define EU_SET_OFM_ZERO_POINT 0x0118u
#define EU_SET_OFM_WIDTH0_M1 0x011au
#define EU_SET_OFM_HEIGHT0_M1 0x011bu
#define EU_SET_OFM_HEIGHT1_M1 0x011cu
#define EU_SET_OFM_REGION 0x011fu
#define EU_SET_KERNEL_WIDTH_M1 0x0120u
#define EU_SET_KERNEL_HEIGHT_M1 0x0121u
#define EU_SET_KERNEL_STRIDE 0x0122u
#define EU_SET_ACC_FORMAT 0x0124u
#define EU_SET_ACTIVATION 0x0125u
#define EU_SET_ACTIVATION_MIN 0x0126u
#define EU_SET_ACTIVATION_MAX 0x0127u
#define EU_SET_WEIGHT_REGION 0x0128u
#define EU_SET_SCALE_REGION 0x0129u
#define EU_SET_AB_START 0x012du
#define EU_SET_BLOCKDEP 0x012fu
#define EU_SET_DMA0_SRC_REGION 0x0130u
#define EU_SET_DMA0_DST_REGION 0x0131u
#define EU_SET_DMA0_SIZE0 0x0132u
#define EU_SET_DMA0_SIZE1 0x0133u
#define EU_SET_IFM2_BROADCAST 0x0180u
#define EU_SET_IFM2_SCALAR 0x0181u
#define EU_SET_IFM2_PRECISION 0x0185u
#define EU_SET_IFM2_ZERO_POINT 0x0189u
#define EU_SET_IFM2_WIDTH0_M1 0x018au
#define EU_SET_IFM2_HEIGHT0_M1 0x018bu
#define EU_SET_IFM2_HEIGHT1_M1 0x018cu
#define EU_SET_IFM2_IB_START 0x018du
#define EU_SET_IFM2_REGION 0x018fu
#define EU_SET_IFM_BASE0 0x4000u
#define EU_SET_IFM_BASE1 0x4001u
#define EU_SET_IFM_BASE2 0x4002u
#define EU_SET_IFM_BASE3 0x4003u
#define EU_SET_IFM_STRIDE_X 0x4004u
#define EU_SET_IFM_STRIDE_Y 0x4005u
#define EU_SET_IFM_STRIDE_C 0x4006u
#define EU_SET_OFM_BASE0 0x4010u
#define EU_SET_OFM_BASE1 0x4011u
#define EU_SET_OFM_BASE2 0x4012u
#define EU_SET_OFM_BASE3 0x4013u
#define EU_SET_OFM_STRIDE_X 0x4014u
#define EU_SET_OFM_STRIDE_Y 0x4015u
#define EU_SET_OFM_STRIDE_C 0x4016u
#define EU_SET_WEIGHT_BASE 0x4020u
#define EU_SET_WEIGHT_LENGTH 0x4021u
#define EU_SET_SCALE_BASE 0x4022u
#define EU_SET_SCALE_LENGTH 0x4023u
#define EU_SET_OFM_SCALE 0x4024u
#define EU_SET_OPA_SCALE 0x4025u
#define EU_SET_OPB_SCALE 0x4026u
#define EU_SET_DMA0_SRC 0x4030u
#define EU_SET_DMA0_DST 0x4031u
#define EU_SET_DMA0_LEN 0x4032u
#define EU_SET_DMA0_SKIP0 0x4033u
#define EU_SET_DMA0_SKIP1 0x4034u
#define EU_SET_IFM2_BASE0 0x4080u
#define EU_SET_IFM2_BASE1 0x4081u
#define EU_SET_IFM2_BASE2 0x4082u
#define EU_SET_IFM2_BASE3 0x4083u
#define EU_SET_IFM2_STRIDE_X 0x4084u
#define EU_SET_IFM2_STRIDE_Y 0x4085u
#define EU_SET_IFM2_STRIDE_C 0x4086u

#define EU_N_COMMANDS 92
#define EU_N_REGIONS 8

/* The state, one slot for each field. */
enum {
    EU_OP_STOP_MASK,
    EU_OP_IRQ_MASK,
    EU_OP_POOL_MODE,
    EU_OP_ELEMENTWISE_MODE,
    EU_OP_DMA_WAIT_OUTSTANDING,
    EU_OP_KERNEL_WAIT_OUTSTANDING,
    EU_OP_PMU_MASK_ENABLE,
    EU_IFM_PAD_TOP,
    EU_IFM_PAD_LEFT,
    EU_IFM_PAD_RIGHT,
    EU_IFM_PAD_BOTTOM,
    EU_IFM_DEPTH_M1,
    EU_IFM_PRECISION_TYPE,
    EU_IFM_PRECISION_PRECISION,
    EU_IFM_PRECISION_FORMAT,
    EU_IFM_PRECISION_SCALE_MODE,
    EU_IFM_PRECISION_ROUND_MODE,
    EU_IFM_UPSCALE,
    EU_IFM_ZERO_POINT,
    EU_IFM_WIDTH0_M1,
    EU_IFM_HEIGHT0_M1,
    EU_IFM_HEIGHT1_M1,
    EU_IFM_IB_END,
    EU_IFM_REGION,
    EU_OFM_WIDTH_M1,
    EU_OFM_HEIGHT_M1,
    EU_OFM_DEPTH_M1,
    EU_OFM_PRECISION_TYPE,
    EU_OFM_PRECISION_PRECISION,
    EU_OFM_PRECISION_FORMAT,
    EU_OFM_PRECISION_SCALE_MODE,
    EU_OFM_PRECISION_ROUND_MODE,
    EU_OFM_BLK_WIDTH_M1,
    EU_OFM_BLK_HEIGHT_M1,
    EU_OFM_BLK_DEPTH_M1,
    EU_OFM_ZERO_POINT,
    EU_OFM_WIDTH0_M1,
    EU_OFM_HEIGHT0_M1,
    EU_OFM_HEIGHT1_M1,
    EU_OFM_REGION,
    EU_KERNEL_WIDTH_M1,
    EU_KERNEL_HEIGHT_M1,
    EU_KERNEL_STRIDE_STRIDE_X_M1,
    EU_KERNEL_STRIDE_STRIDE_Y_M1,
    EU_KERNEL_STRIDE_WEIGHT_ORDER,
    EU_KERNEL_STRIDE_DILATION_X_M1,
    EU_KERNEL_STRIDE_DILATION_Y_M1,
    EU_KERNEL_STRIDE_DECOMPOSITION,
    EU_ACC_FORMAT,
    EU_ACTIVATION_FUNCTION,
    EU_ACTIVATION_CLIP_RANGE,
    EU_ACTIVATION_MIN,
    EU_ACTIVATION_MAX,
    EU_WEIGHT_REGION,
    EU_SCALE_REGION,
    EU_AB_START,
    EU_BLOCKDEP,
    EU_DMA0_SRC_REGION_REGION,
    EU_DMA0_SRC_REGION_MODE,
    EU_DMA0_SRC_REGION_STRIDE_MODE,
    EU_DMA0_DST_REGION_REGION,
    EU_DMA0_DST_REGION_MODE,
    EU_DMA0_DST_REGION_STRIDE_MODE,
    EU_DMA0_SIZE0,
    EU_DMA0_SIZE1,
    EU_IFM2_BROADCAST_HEIGHT,
    EU_IFM2_BROADCAST_WIDTH,
    EU_IFM2_BROADCAST_DEPTH,
    EU_IFM2_BROADCAST_REVERSED,
    EU_IFM2_BROADCAST_SCALAR,
    EU_IFM2_SCALAR,
    EU_IFM2_PRECISION_TYPE,
    EU_IFM2_PRECISION_PRECISION,
    EU_IFM2_PRECISION_FORMAT,
    EU_IFM2_ZERO_POINT,
    EU_IFM2_WIDTH0_M1,
    EU_IFM2_HEIGHT0_M1,
    EU_IFM2_HEIGHT1_M1,
    EU_IFM2_IB_START,
    EU_IFM2_REGION,
    EU_IFM_BASE0,
    EU_IFM_BASE1,
    EU_IFM_BASE2,
    EU_IFM_BASE3,
    EU_IFM_STRIDE_X,
    EU_IFM_STRIDE_Y,
    EU_IFM_STRIDE_C,
    EU_OFM_BASE0,
    EU_OFM_BASE1,
    EU_OFM_BASE2,
    EU_OFM_BASE3,
    EU_OFM_STRIDE_X,
    EU_OFM_STRIDE_Y,
    EU_OFM_STRIDE_C,
    EU_WEIGHT_BASE,
    EU_WEIGHT_LENGTH,
    EU_SCALE_BASE,
    EU_SCALE_LENGTH,
    EU_OFM_SCALE,
    EU_OFM_SCALE_SHIFT,
    EU_OPA_SCALE,
    EU_OPA_SCALE_SHIFT,
    EU_OPB_SCALE,
    EU_DMA0_SRC,
    EU_DMA0_DST,
    EU_DMA0_LEN,
    EU_DMA0_SKIP0,
    EU_DMA0_SKIP1,
    EU_IFM2_BASE0,
    EU_IFM2_BASE1,
    EU_IFM2_BASE2,
    EU_IFM2_BASE3,
    EU_IFM2_STRIDE_X,
    EU_IFM2_STRIDE_Y,
    EU_IFM2_STRIDE_C,
    EU_N_FIELDS
};

static const eu_field eu_fields[EU_N_FIELDS] = {
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_OP_STOP_MASK */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_OP_IRQ_MASK */
    {0, 16, 3, 0, 0, 1, 0, 7u, 0, 2}, /* EU_OP_POOL_MODE */
    {0, 16, 6, 0, 0, 1, 0, 1023u, 0, 9}, /* EU_OP_ELEMENTWISE_MODE */
    {0, 16, 4, 0, 0, 1, 0, 0u, 0, 15}, /* EU_OP_DMA_WAIT_OUTSTANDING */
    {0, 16, 2, 0, 0, 1, 0, 0u, 0, 3}, /* EU_OP_KERNEL_WAIT_OUTSTANDING */
    {0, 16, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_OP_PMU_MASK_ENABLE */
    {0, 16, 7, 0, 0, 1, 0, 0u, 0, 127}, /* EU_IFM_PAD_TOP */
    {0, 16, 7, 0, 0, 1, 0, 0u, 0, 127}, /* EU_IFM_PAD_LEFT */
    {0, 16, 8, 0, 0, 1, 0, 0u, 0, 255}, /* EU_IFM_PAD_RIGHT */
    {0, 16, 8, 0, 0, 1, 0, 0u, 0, 255}, /* EU_IFM_PAD_BOTTOM */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_IFM_DEPTH_M1 */
    {0, 16, 1, 0, 0, 1, 0, 3u, 0, 1}, /* EU_IFM_PRECISION_TYPE */
    {0, 18, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_IFM_PRECISION_PRECISION */
    {0, 22, 2, 0, 0, 1, 0, 3u, 0, 1}, /* EU_IFM_PRECISION_FORMAT */
    {0, 24, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_IFM_PRECISION_SCALE_MODE */
    {0, 30, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_IFM_PRECISION_ROUND_MODE */
    {0, 16, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_IFM_UPSCALE */
    {0, 16, 16, 0, 0, 1, 0, 0u, -32768, 32767}, /* EU_IFM_ZERO_POINT */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_IFM_WIDTH0_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_IFM_HEIGHT0_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_IFM_HEIGHT1_M1 */
    {0, 16, 6, 0, 0, 1, 0, 0u, 0, 63}, /* EU_IFM_IB_END */
    {0, 16, 3, 0, 0, 1, 0, 0u, 0, 7}, /* EU_IFM_REGION */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_OFM_WIDTH_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_OFM_HEIGHT_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_OFM_DEPTH_M1 */
    {0, 16, 1, 0, 0, 1, 0, 3u, 0, 1}, /* EU_OFM_PRECISION_TYPE */
    {0, 17, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_OFM_PRECISION_PRECISION */
    {0, 22, 2, 0, 0, 1, 0, 3u, 0, 1}, /* EU_OFM_PRECISION_FORMAT */
    {0, 24, 1, 0, 0, 1, 0, 3u, 0, 1}, /* EU_OFM_PRECISION_SCALE_MODE */
    {0, 30, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_OFM_PRECISION_ROUND_MODE */
    {0, 16, 6, 0, 0, 1, 0, 0u, 0, 63}, /* EU_OFM_BLK_WIDTH_M1 */
    {0, 16, 5, 0, 0, 1, 0, 0u, 0, 31}, /* EU_OFM_BLK_HEIGHT_M1 */
    {0, 16, 7, 0, 0, 1, 0, 0u, 0, 127}, /* EU_OFM_BLK_DEPTH_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, -32768, 32767}, /* EU_OFM_ZERO_POINT */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_OFM_WIDTH0_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_OFM_HEIGHT0_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_OFM_HEIGHT1_M1 */
    {0, 16, 3, 0, 0, 1, 0, 0u, 0, 7}, /* EU_OFM_REGION */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_KERNEL_WIDTH_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_KERNEL_HEIGHT_M1 */
    {0, 16, 1, 22, 1, 1, 0, 0u, 0, 2}, /* EU_KERNEL_STRIDE_STRIDE_X_M1 */
    {0, 17, 1, 25, 1, 1, 0, 0u, 0, 2}, /* EU_KERNEL_STRIDE_STRIDE_Y_M1 */
    {0, 18, 1, 0, 0, 1, 0, 3u, 0, 1}, /* EU_KERNEL_STRIDE_WEIGHT_ORDER */
    {0, 19, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_KERNEL_STRIDE_DILATION_X_M1 */
    {0, 20, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_KERNEL_STRIDE_DILATION_Y_M1 */
    {0, 21, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_KERNEL_STRIDE_DECOMPOSITION */
    {0, 16, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_ACC_FORMAT */
    {0, 16, 5, 0, 0, 1, 0, 16711705u, 0, 23}, /* EU_ACTIVATION_FUNCTION */
    {0, 28, 3, 0, 0, 1, 0, 45u, 0, 5}, /* EU_ACTIVATION_CLIP_RANGE */
    {0, 16, 16, 0, 0, 1, 0, 0u, -32768, 32767}, /* EU_ACTIVATION_MIN */
    {0, 16, 16, 0, 0, 1, 0, 0u, -32768, 32767}, /* EU_ACTIVATION_MAX */
    {0, 16, 3, 0, 0, 1, 0, 0u, 0, 7}, /* EU_WEIGHT_REGION */
    {0, 16, 3, 0, 0, 1, 0, 0u, 0, 7}, /* EU_SCALE_REGION */
    {0, 16, 6, 0, 0, 1, 0, 0u, 0, 63}, /* EU_AB_START */
    {0, 16, 2, 0, 0, 1, 0, 0u, 0, 3}, /* EU_BLOCKDEP */
    {0, 16, 3, 0, 0, 1, 0, 0u, 0, 7}, /* EU_DMA0_SRC_REGION_REGION */
    {0, 24, 1, 0, 0, 1, 0, 3u, 0, 1}, /* EU_DMA0_SRC_REGION_MODE */
    {0, 25, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_DMA0_SRC_REGION_STRIDE_MODE */
    {0, 16, 3, 0, 0, 1, 0, 0u, 0, 7}, /* EU_DMA0_DST_REGION_REGION */
    {0, 24, 1, 0, 0, 1, 0, 3u, 0, 1}, /* EU_DMA0_DST_REGION_MODE */
    {0, 25, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_DMA0_DST_REGION_STRIDE_MODE */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_DMA0_SIZE0 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_DMA0_SIZE1 */
    {0, 16, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_IFM2_BROADCAST_HEIGHT */
    {0, 17, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_IFM2_BROADCAST_WIDTH */
    {0, 18, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_IFM2_BROADCAST_DEPTH */
    {0, 22, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_IFM2_BROADCAST_REVERSED */
    {0, 23, 1, 0, 0, 1, 0, 0u, 0, 1}, /* EU_IFM2_BROADCAST_SCALAR */
    {0, 16, 16, 0, 0, 1, 0, 0u, -32768, 32767}, /* EU_IFM2_SCALAR */
    {0, 16, 1, 0, 0, 1, 0, 3u, 0, 1}, /* EU_IFM2_PRECISION_TYPE */
    {0, 18, 2, 0, 0, 1, 0, 7u, 0, 2}, /* EU_IFM2_PRECISION_PRECISION */
    {0, 22, 2, 0, 0, 1, 0, 3u, 0, 1}, /* EU_IFM2_PRECISION_FORMAT */
    {0, 16, 16, 0, 0, 1, 0, 0u, -32768, 32767}, /* EU_IFM2_ZERO_POINT */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_IFM2_WIDTH0_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_IFM2_HEIGHT0_M1 */
    {0, 16, 16, 0, 0, 1, 0, 0u, 0, 65535}, /* EU_IFM2_HEIGHT1_M1 */
    {0, 16, 6, 0, 0, 1, 0, 0u, 0, 63}, /* EU_IFM2_IB_START */
    {0, 16, 3, 0, 0, 1, 0, 0u, 0, 7}, /* EU_IFM2_REGION */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM_BASE0 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM_BASE1 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM_BASE2 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM_BASE3 */
    {1, 0, 32, 0, 0, 1, 8, 0u, -2147483648, 2147483647}, /* EU_IFM_STRIDE_X */
    {1, 0, 32, 0, 0, 1, 8, 0u, -2147483648, 2147483647}, /* EU_IFM_STRIDE_Y */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM_STRIDE_C */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_OFM_BASE0 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_OFM_BASE1 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_OFM_BASE2 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_OFM_BASE3 */
    {1, 0, 32, 0, 0, 1, 8, 0u, -2147483648, 2147483647}, /* EU_OFM_STRIDE_X */
    {1, 0, 32, 0, 0, 1, 8, 0u, -2147483648, 2147483647}, /* EU_OFM_STRIDE_Y */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_OFM_STRIDE_C */
    {1, 0, 32, 0, 0, 16, 0, 0u, 0, 4294967295}, /* EU_WEIGHT_BASE */
    {1, 0, 32, 0, 0, 16, 0, 0u, 0, 4294967295}, /* EU_WEIGHT_LENGTH */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_SCALE_BASE */
    {1, 0, 32, 0, 0, 16, 0, 0u, 0, 4294967295}, /* EU_SCALE_LENGTH */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_OFM_SCALE */
    {0, 16, 6, 0, 0, 1, 0, 0u, 0, 63}, /* EU_OFM_SCALE_SHIFT */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_OPA_SCALE */
    {0, 16, 6, 0, 0, 1, 0, 0u, 0, 63}, /* EU_OPA_SCALE_SHIFT */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_OPB_SCALE */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_DMA0_SRC */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_DMA0_DST */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_DMA0_LEN */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_DMA0_SKIP0 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_DMA0_SKIP1 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM2_BASE0 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM2_BASE1 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM2_BASE2 */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM2_BASE3 */
    {1, 0, 32, 0, 0, 1, 8, 0u, -2147483648, 2147483647}, /* EU_IFM2_STRIDE_X */
    {1, 0, 32, 0, 0, 1, 8, 0u, -2147483648, 2147483647}, /* EU_IFM2_STRIDE_Y */
    {1, 0, 32, 0, 0, 1, 0, 0u, 0, 4294967295}, /* EU_IFM2_STRIDE_C */
};

/* By header, ascending. */
static const eu_command eu_commands[EU_N_COMMANDS] = {
    {EU_OP_STOP, 1, 0, 1, 0},
    {EU_OP_IRQ, 1, 1, 1, 0},
    {EU_OP_CONV, 1, 2, 0, 0},
    {EU_OP_DEPTHWISE, 1, 2, 0, 0},
    {EU_OP_POOL, 1, 2, 1, 0},
    {EU_OP_ELEMENTWISE, 1, 3, 1, 0},
    {EU_OP_DMA_START, 1, 4, 0, 0},
    {EU_OP_DMA_WAIT, 1, 4, 1, 0},
    {EU_OP_KERNEL_WAIT, 1, 5, 1, 0},
    {EU_OP_PMU_MASK, 1, 6, 1, 0},
    {EU_SET_IFM_PAD_TOP, 1, 7, 1, 7},
    {EU_SET_IFM_PAD_LEFT, 1, 8, 1, 7},
    {EU_SET_IFM_PAD_RIGHT, 1, 9, 1, 7},
    {EU_SET_IFM_PAD_BOTTOM, 1, 10, 1, 7},
    {EU_SET_IFM_DEPTH_M1, 1, 11, 1, 15},
    {EU_SET_IFM_PRECISION, 1, 12, 5, 15},
    {EU_SET_IFM_UPSCALE, 1, 17, 1, 15},
    {EU_SET_IFM_ZERO_POINT, 1, 18, 1, 15},
    {EU_SET_IFM_WIDTH0_M1, 1, 19, 1, 15},
    {EU_SET_IFM_HEIGHT0_M1, 1, 20, 1, 15},
    {EU_SET_IFM_HEIGHT1_M1, 1, 21, 1, 15},
    {EU_SET_IFM_IB_END, 1, 22, 1, 15},
    {EU_SET_IFM_REGION, 1, 23, 1, 15},
    {EU_SET_OFM_WIDTH_M1, 1, 24, 1, 15},
    {EU_SET_OFM_HEIGHT_M1, 1, 25, 1, 15},
    {EU_SET_OFM_DEPTH_M1, 1, 26, 1, 15},
    {EU_SET_OFM_PRECISION, 1, 27, 5, 15},
    {EU_SET_OFM_BLK_WIDTH_M1, 1, 32, 1, 15},
    {EU_SET_OFM_BLK_HEIGHT_M1, 1, 33, 1, 15},
    {EU_SET_OFM_BLK_DEPTH_M1, 1, 34, 1, 15},
    {EU_SET_OFM_ZERO_POINT, 1, 35, 1, 15},
    {EU_SET_OFM_WIDTH0_M1, 1, 36, 1, 15},
    {EU_SET_OFM_HEIGHT0_M1, 1, 37, 1, 15},
    {EU_SET_OFM_HEIGHT1_M1, 1, 38, 1, 15},
    {EU_SET_OFM_REGION, 1, 39, 1, 15},
    {EU_SET_KERNEL_WIDTH_M1, 1, 40, 1, 7},
    {EU_SET_KERNEL_HEIGHT_M1, 1, 41, 1, 7},
    {EU_SET_KERNEL_STRIDE, 1, 42, 6, 7},
    {EU_SET_ACC_FORMAT, 1, 48, 1, 15},
    {EU_SET_ACTIVATION, 1, 49, 2, 15},
    {EU_SET_ACTIVATION_MIN, 1, 51, 1, 15},
    {EU_SET_ACTIVATION_MAX, 1, 52, 1, 15},
    {EU_SET_WEIGHT_REGION, 1, 53, 1, 3},
    {EU_SET_SCALE_REGION, 1, 54, 1, 3},
    {EU_SET_AB_START, 1, 55, 1, 15},
    {EU_SET_BLOCKDEP, 1, 56, 1, 15},
    {EU_SET_DMA0_SRC_REGION, 1, 57, 3, 16},
    {EU_SET_DMA0_DST_REGION, 1, 60, 3, 16},
    {EU_SET_DMA0_SIZE0, 1, 63, 1, 16},
    {EU_SET_DMA0_SIZE1, 1, 64, 1, 16},
    {EU_SET_IFM2_BROADCAST, 1, 65, 5, 8},
    {EU_SET_IFM2_SCALAR, 1, 70, 1, 8},
    {EU_SET_IFM2_PRECISION, 1, 71, 3, 8},
    {EU_SET_IFM2_ZERO_POINT, 1, 74, 1, 8},
    {EU_SET_IFM2_WIDTH0_M1, 1, 75, 1, 8},
    {EU_SET_IFM2_HEIGHT0_M1, 1, 76, 1, 8},
    {EU_SET_IFM2_HEIGHT1_M1, 1, 77, 1, 8},
    {EU_SET_IFM2_IB_START, 1, 78, 1, 8},
    {EU_SET_IFM2_REGION, 1, 79, 1, 8},
    {EU_SET_IFM_BASE0, 2, 80, 1, 15},
    {EU_SET_IFM_BASE1, 2, 81, 1, 15},
    {EU_SET_IFM_BASE2, 2, 82, 1, 15},
    {EU_SET_IFM_BASE3, 2, 83, 1, 15},
    {EU_SET_IFM_STRIDE_X, 2, 84, 1, 15},
    {EU_SET_IFM_STRIDE_Y, 2, 85, 1, 15},
    {EU_SET_IFM_STRIDE_C, 2, 86, 1, 15},
    {EU_SET_OFM_BASE0, 2, 87, 1, 15},
    {EU_SET_OFM_BASE1, 2, 88, 1, 15},
    {EU_SET_OFM_BASE2, 2, 89, 1, 15},
    {EU_SET_OFM_BASE3, 2, 90, 1, 15},
    {EU_SET_OFM_STRIDE_X, 2, 91, 1, 15},
    {EU_SET_OFM_STRIDE_Y, 2, 92, 1, 15},
    {EU_SET_OFM_STRIDE_C, 2, 93, 1, 15},
    {EU_SET_WEIGHT_BASE, 2, 94, 1, 3},
    {EU_SET_WEIGHT_LENGTH, 2, 95, 1, 3},
    {EU_SET_SCALE_BASE, 2, 96, 1, 3},
    {EU_SET_SCALE_LENGTH, 2, 97, 1, 3},
    {EU_SET_OFM_SCALE, 2, 98, 2, 15},
    {EU_SET_OPA_SCALE, 2, 100, 2, 8},
    {EU_SET_OPB_SCALE, 2, 102, 1, 8},
    {EU_SET_DMA0_SRC, 2, 103, 1, 16},
    {EU_SET_DMA0_DST, 2, 104, 1, 16},
    {EU_SET_DMA0_LEN, 2, 105, 1, 16},
    {EU_SET_DMA0_SKIP0, 2, 106, 1, 16},
    {EU_SET_DMA0_SKIP1, 2, 107, 1, 16},
    {EU_SET_IFM2_BASE0, 2, 108, 1, 8},
    {EU_SET_IFM2_BASE1, 2, 109, 1, 8},
    {EU_SET_IFM2_BASE2, 2, 110, 1, 8},
    {EU_SET_IFM2_BASE3, 2, 111, 1, 8},
    {EU_SET_IFM2_STRIDE_X, 2, 112, 1, 8},
    {EU_SET_IFM2_STRIDE_Y, 2, 113, 1, 8},
    {EU_SET_IFM2_STRIDE_C, 2, 114, 1, 8},
};

#endif
