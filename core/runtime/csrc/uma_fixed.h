/* Fixed points as accelerators compute them: numbers as registers hold them, and how sums are scaled. C99, no state, nothing
 * but static inline functions. A plugin's C includes it; it is written beside the files of a model that need it.
 */
#ifndef UMA_FIXED_H
#define UMA_FIXED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bits as a two's complement. */
static inline int32_t uma_signed(uint32_t value)
{
    return value <= INT32_MAX ? (int32_t)value : -(int32_t)~value - 1;
}

/* Likewise 8 bits. */
static inline int32_t uma_signed8(uint8_t value)
{
    return value < 128 ? value : value - 256;
}

/* value / 2**bits, rounded down: what >> does to a negative number is the C compiler's choice. */
static inline int64_t uma_shift_right(int64_t value, int32_t bits)
{
    return value >= 0 ? value >> bits : ~(~value >> bits);
}

/* The roundings of fixed points, by the numbers that `with_requantisation` gives them where it is told no others. */
#define UMA_ROUND_DOUBLE 0 /* at bit 31, then half away from zero */
#define UMA_ROUND_UP 1     /* once, half up */
#define UMA_ROUND_EVEN 2   /* once, half to even */

/* x * multiplier * 2**(shift - 31), rounded; not saturated. The multiplier is not negative, the shift -31 to 30.
 *
 * Double: x * 2**max(shift, 0) modulo 2**32; times the multiplier, half up at bit 31; then divided by
 * 2**max(-shift, 0), half away from zero. Up: the exact product rounded once, half up. Even: the same, half to even. */
static inline int64_t uma_scaled(int32_t x, int32_t multiplier, int32_t shift, int32_t rounding)
{
    const int32_t bits = 31 - shift;
    const int64_t product = x * (int64_t)multiplier;
    int64_t more;

    if (rounding == UMA_ROUND_DOUBLE) {
        const int32_t left = shift > 0 ? shift : 0, right = left - shift;
        const int64_t wrapped = uma_signed((uint32_t)x << left);
        const int64_t high = uma_shift_right(wrapped * multiplier + ((int64_t)1 << 30), 31);
        const int64_t size = high < 0 ? -high : high;
        const int64_t rounded = right == 0 ? size : (size + ((int64_t)1 << (right - 1))) >> right;
        return high < 0 ? -rounded : rounded;
    }
    more = (int64_t)1 << (bits - 1);
    if (rounding == UMA_ROUND_EVEN) more += (uma_shift_right(product, bits) & 1) - 1;
    return uma_shift_right(product + more, bits);
}

#ifdef __cplusplus
}
#endif

#endif
