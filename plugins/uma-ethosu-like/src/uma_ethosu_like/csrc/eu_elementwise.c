/* Operations element by element. */
#include "eu_arith.h"
#include "eu_op.h"

/* The operands of ADD and SUB before they meet. With scales of 16 bits, each is multiplied. With one of 32 bits, the
 * operand that it belongs to is scaled at a higher precision, and the other is shifted to the same: 20 bits for inputs
 * of 8 bits, 15 for those of 16, one bit less for the sum to have room. */
static void scale_operands(const eu_op *op, int64_t *a, int64_t *b)
{
    const uint32_t up = op->ifm.bytes == 1 ? 20 : 15;
    int64_t *scaled = op->operand_scale == EU_OPERAND_SCALE_OPA_32BIT ? a : b;
    int64_t *other = scaled == a ? b : a;

    if (op->operand_scale == EU_OPERAND_SCALE_16BIT) {
        *a *= op->opa_scale & 0xFFFFu;
        *b *= op->opb_scale & 0xFFFFu;
        return;
    }
    *scaled = eu_scaled(*scaled * ((int64_t)1 << up), op->opa_scale, op->opa_shift + up, op->operand_rounding);
    *scaled = eu_clamped(*scaled, -((int64_t)1 << 60), (int64_t)1 << 60);
    *other *= (int64_t)1 << (up - 1);
}

/* A shift of 32 bits, rounded as the operation says. */
static int64_t shifted_right(const eu_op *op, int64_t value, int64_t by)
{
    return eu_scaled(value, 1, (uint32_t)eu_clamped(by, 0, 63), op->rounding);
}

/* A result before zero point and limits. */
static int64_t result_of(const eu_op *op, int64_t a, int64_t b)
{
    int64_t value = a;

    switch (op->mode) {
    case EU_ELEMENTWISE_MUL:
        value = a * b;
        break;
    case EU_ELEMENTWISE_ADD:
    case EU_ELEMENTWISE_SUB:
        scale_operands(op, &a, &b);
        value = op->mode == EU_ELEMENTWISE_ADD ? a + b : a - b;
        break;
    case EU_ELEMENTWISE_MIN:
        value = a < b ? a : b;
        break;
    case EU_ELEMENTWISE_MAX:
        value = a > b ? a : b;
        break;
    case EU_ELEMENTWISE_LRELU:
        if (a >= 0) return a;
        break;
    case EU_ELEMENTWISE_ABS:
        value = a < 0 ? -a : a;
        break;
    case EU_ELEMENTWISE_CLZ:
        return eu_leading_zeros(a);
    case EU_ELEMENTWISE_SHR:
        return shifted_right(op, a, b);
    default: /* SHL */
        return b < 0 || b > 31 ? 0 : eu_wrapped((int64_t)((uint64_t)a << b), 32);
    }
    /* Of a scale for 32-bit inputs only the shift counts. */
    return op->global_scale ? eu_scaled(value, op->ifm.bytes == 4 ? 1 : op->scale, op->shift, op->rounding) : value;
}

int32_t eu_elementwise(eu_memory *m)
{
    const eu_op *op = &m->op;
    int32_t y, x, c;

    for (y = 0; y < op->ofm.height; y++)
        for (x = 0; x < op->ofm.width; x++) {
            const int64_t pixel = eu_pixel(&op->ifm, y, x), to = eu_pixel(&op->ofm, y, x);
            const int64_t pixel2 = op->has_ifm2 ? eu_pixel(&op->ifm2, op->repeat_y ? 0 : y, op->repeat_x ? 0 : x) : 0;

            for (c = 0; c < op->ofm.depth; c++) {
                const int64_t a = eu_load(&op->ifm, pixel + eu_channel(&op->ifm, c)) - op->ifm.zero;
                int64_t b = op->scalar;

                if (op->has_ifm2)
                    b = eu_load(&op->ifm2, pixel2 + eu_channel(&op->ifm2, op->repeat_c ? 0 : c)) - op->ifm2.zero;
                eu_store(m, op->reversed ? result_of(op, b, a) : result_of(op, a, b), to + eu_channel(&op->ofm, c));
            }
        }
    return EU_FAULT_NONE;
}
