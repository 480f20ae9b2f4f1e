/* The arithmetic of the output unit: scaling with its roundings, shifts, and the interpolated table.
 *
 * Nothing here overflows for any input: products are taken to 128 bits where 64 do not hold them.
 */
#ifndef EU_ARITH_H
#define EU_ARITH_H

#include <stdint.h>

#include "eu_commands.h"

/* A two's complement of 128 bits. */
typedef struct eu_wide {
    uint64_t high, low;
} eu_wide;

static inline eu_wide eu_wide_add(eu_wide a, eu_wide b)
{
    eu_wide sum;

    sum.low = a.low + b.low;
    sum.high = a.high + b.high + (sum.low < a.low);
    return sum;
}

static inline eu_wide eu_wide_negative(eu_wide a)
{
    const eu_wide one = {0, 1};

    a.low = ~a.low;
    a.high = ~a.high;
    return eu_wide_add(a, one);
}

/* 2 ** bit, for a bit below 127. */
static inline eu_wide eu_wide_power(uint32_t bit)
{
    eu_wide power = {0, 0};

    if (bit < 64)
        power.low = (uint64_t)1 << bit;
    else
        power.high = (uint64_t)1 << (bit - 64);
    return power;
}

static inline int64_t eu_as_signed(uint64_t bits)
{
    return bits <= INT64_MAX ? (int64_t)bits : -(int64_t)(UINT64_MAX - bits) - 1;
}

/* floor(value / 2 ** shift), for any value and a shift of at most 63. */
static inline int64_t eu_shifted(int64_t value, uint32_t shift)
{
    return value >= 0 ? value >> shift : ~(~value >> shift);
}

/* The low bits of a value as a two's complement of so many bits, 1 to 63. */
static inline int64_t eu_wrapped(int64_t value, uint32_t bits)
{
    const uint64_t sign = (uint64_t)1 << (bits - 1), low = (uint64_t)value & (sign * 2 - 1);

    return (int64_t)(low ^ sign) - (int64_t)sign;
}

/* floor(value / 2 ** shift), for a shift below 127; what does not fit 64 bits ends at their limits. */
static inline int64_t eu_wide_shifted(eu_wide value, uint32_t shift)
{
    const int negative = value.high >> 63 != 0;
    uint64_t high, low;

    if (negative) { /* floor(v) = ~floor(~v) */
        value.high = ~value.high;
        value.low = ~value.low;
    }
    if (shift == 0) {
        high = value.high;
        low = value.low;
    } else if (shift < 64) {
        high = value.high >> shift;
        low = value.low >> shift | value.high << (64 - shift);
    } else {
        high = 0;
        low = value.high >> (shift - 64);
    }
    if (high != 0 || low > INT64_MAX) low = INT64_MAX;
    return negative ? ~(int64_t)low : (int64_t)low;
}

/* value * scale / 2 ** shift, for a shift of at most 100.
 *
 * TFL is the rounding of TFLite's reference kernels: half away from zero after a high multiplication that rounds
 * half up. In one step that is half, and 2 ** 30 with the sign of the value where the shift has more than 31 bits.
 * Natural is half up. Truncate is towards zero. */
static inline int64_t eu_scaled(int64_t value, uint32_t scale, uint32_t shift, int rounding)
{
    const int64_t limit = (int64_t)1 << 29;
    uint64_t magnitude;
    eu_wide product, part;

    if (value > -limit && value < limit && shift < 64) {
        int64_t small = value * (int64_t)scale;

        if (rounding == EU_ROUND_TRUNCATE) return small >= 0 ? small >> shift : -(-small >> shift);
        if (shift > 0) small += (int64_t)1 << (shift - 1);
        if (rounding == EU_ROUND_TFL && shift > 31) small += value < 0 ? -((int64_t)1 << 30) : (int64_t)1 << 30;
        return eu_shifted(small, shift);
    }
    magnitude = value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value;
    product.low = (magnitude & UINT32_MAX) * scale;
    product.high = 0;
    part.low = (magnitude >> 32) * scale;
    part.high = part.low >> 32;
    part.low <<= 32;
    product = eu_wide_add(product, part);
    if (rounding == EU_ROUND_TRUNCATE) {
        const int64_t whole = eu_wide_shifted(product, shift);
        return value < 0 ? -whole : whole;
    }
    if (value < 0) product = eu_wide_negative(product);
    if (shift > 0) product = eu_wide_add(product, eu_wide_power(shift - 1));
    if (rounding == EU_ROUND_TFL && shift > 31) {
        part = eu_wide_power(30);
        product = eu_wide_add(product, value < 0 ? eu_wide_negative(part) : part);
    }
    return eu_wide_shifted(product, shift);
}

/* sum / count, rounded half away from zero: the mean of a window that lies in part outside. */
static inline int64_t eu_mean(int64_t sum, int64_t count)
{
    return sum >= 0 ? (sum + count / 2) / count : -((-sum + count / 2) / count);
}

/* The zeros before the first one of 32 bits. */
static inline int32_t eu_leading_zeros(int64_t value)
{
    const uint32_t bits = (uint32_t)(uint64_t)value;
    int32_t zeros = 0;

    while (zeros < 32 && (bits >> (31 - zeros) & 1u) == 0) zeros++;
    return zeros;
}

/* An entry of a table for 16 bits: the value in its low half, and in its high half the way to the next entry, which
 * was added to the low one with its sign. `rest` is how far, in 128ths. */
static inline int64_t eu_interpolated(uint32_t entry, int32_t rest)
{
    const int64_t base = eu_wrapped((int64_t)(entry & 0xFFFFu), 16);
    const int64_t slope = eu_wrapped((int64_t)((uint32_t)(entry - (uint32_t)base) >> 16), 16);

    return base + eu_shifted(slope * rest + 64, 7);
}

static inline int64_t eu_clamped(int64_t value, int64_t least, int64_t most)
{
    if (value > most) value = most;
    return value < least ? least : value;
}

#endif
