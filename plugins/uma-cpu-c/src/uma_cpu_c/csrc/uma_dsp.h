/* Products of int8 for cores with the DSP extension of Arm (Cortex-M4, M7, M33): two of int16 in an instruction.
 *
 * Data is expanded to int16 once for each block of pixels: "a block" is int16 e[groups][2][pixels][2], where number k of
 * a pixel's sum is e[k / 4][k % 2][pixel][k / 2 % 2], which is how SXTB16 leaves four bytes. Weights of two channels lie
 * in one half word, those of four side by side: "pairs" are int16 q[channels / 4][groups][2][2][2] by half group, pair and
 * number, with 256 * w1 + w0. One product by a half word adds to S0 + 256 * S1, one by its low byte to S0;
 * S1 = (the first - S0) >> 8, exact where |S1| < 2**23. What follows is four int32 for each channel: twice what is added
 * to its sum, multiplier, what is added to the product, shift.
 *
 * Each function has a form in C99, and with __ARM_FEATURE_DSP one in assembler. Both give the same bits: sums wrap.
 */
#ifndef UMA_DSP_H
#define UMA_DSP_H

#include <stdint.h>
#include <string.h>

#include "uma_math.h"

#if defined(__GNUC__)
#define UMA_DSP_CALLED __attribute__((noinline, unused)) static
#define UMA_DSP_INLINE __attribute__((always_inline)) static inline
#else
#define UMA_DSP_CALLED static inline
#define UMA_DSP_INLINE static inline
#endif

/* A core that has it, and registers enough for the loops. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && defined(__OPTIMIZE__)
#define UMA_DSP 1
#else
#define UMA_DSP 0
#endif

#if UMA_DSP
#define UMA_DSP_ONE(name, text)                                                                                        \
    UMA_DSP_INLINE int32_t uma_dsp_##name(int32_t a)                                                                   \
    {                                                                                                                  \
        int32_t r;                                                                                                     \
        __asm__(text : "=r"(r) : "r"(a));                                                                              \
        return r;                                                                                                      \
    }
#define UMA_DSP_TWO(name)                                                                                              \
    UMA_DSP_INLINE int32_t uma_dsp_##name(int32_t a, int32_t b)                                                        \
    {                                                                                                                  \
        int32_t r;                                                                                                     \
        __asm__(#name " %0, %1, %2" : "=r"(r) : "r"(a), "r"(b));                                                       \
        return r;                                                                                                      \
    }
#define UMA_DSP_ADD(name)                                                                                              \
    UMA_DSP_INLINE int32_t uma_dsp_##name(int32_t a, int32_t b, int32_t c)                                             \
    {                                                                                                                  \
        int32_t r;                                                                                                     \
        __asm__(#name " %0, %1, %2, %3" : "=r"(r) : "r"(a), "r"(b), "r"(c));                                           \
        return r;                                                                                                      \
    }
UMA_DSP_ONE(even, "sxtb16 %0, %1")
UMA_DSP_ONE(odd, "sxtb16 %0, %1, ror #8")
UMA_DSP_ONE(byte, "ssat %0, #8, %1")
UMA_DSP_TWO(smmulr)
UMA_DSP_TWO(smmul)
UMA_DSP_ADD(smlad)
UMA_DSP_ADD(smlabt)
UMA_DSP_ADD(smlatb)
UMA_DSP_INLINE int32_t uma_dsp_pair(const int16_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
UMA_DSP_INLINE int32_t uma_dsp_halves(int32_t low, int32_t high)
{
    int32_t r;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(r) : "r"(low), "r"(high));
    return r;
}
#else
#define UMA_DSP_LOW(a) ((int32_t)(int16_t)(uint16_t)(uint32_t)(a))
#define UMA_DSP_HIGH(a) ((int32_t)(a) >> 16)
UMA_DSP_INLINE int32_t uma_dsp_byte(int32_t a)
{
    return a < -128 ? -128 : a > 127 ? 127 : a;
}
UMA_DSP_INLINE int32_t uma_dsp_smmulr(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + INT64_C(0x80000000)) >> 32);
}
UMA_DSP_INLINE int32_t uma_dsp_smmul(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b) >> 32);
}
UMA_DSP_INLINE int32_t uma_dsp_smlad(int32_t a, int32_t b, int32_t c)
{
    return (int32_t)((uint32_t)c + (uint32_t)(UMA_DSP_LOW(a) * UMA_DSP_LOW(b)) +
                     (uint32_t)(UMA_DSP_HIGH(a) * UMA_DSP_HIGH(b)));
}
UMA_DSP_INLINE int32_t uma_dsp_smlabt(int32_t a, int32_t b, int32_t c)
{
    return (int32_t)((uint32_t)c + (uint32_t)(UMA_DSP_LOW(a) * UMA_DSP_HIGH(b)));
}
UMA_DSP_INLINE int32_t uma_dsp_smlatb(int32_t a, int32_t b, int32_t c)
{
    return (int32_t)((uint32_t)c + (uint32_t)(UMA_DSP_HIGH(a) * UMA_DSP_LOW(b)));
}
UMA_DSP_INLINE int32_t uma_dsp_halves(int32_t low, int32_t high)
{
    return (int32_t)(((uint32_t)low & 0xffffu) | ((uint32_t)high << 16));
}
UMA_DSP_INLINE int32_t uma_dsp_pair(const int16_t *p)
{
    return uma_dsp_halves(p[0], p[1]);
}
#endif

/* Twice a sum as the int8 that it becomes, by the four numbers of its channel: rounded twice, half away from zero the
 * second time (TFLite's convolutions), or once, half up (its fully connected layers). |sum| < 2**30. */
UMA_DSP_INLINE int8_t uma_dsp_twice(int32_t sum, int32_t multiplier, int32_t add, int32_t shift)
{
    const int32_t v = uma_dsp_smmulr(sum, multiplier);
    return (int8_t)uma_dsp_byte((v + (v >> 31) + add) >> shift);
}
UMA_DSP_INLINE int8_t uma_dsp_once(int32_t sum, int32_t multiplier, int32_t add, int32_t shift)
{
    return (int8_t)uma_dsp_byte((uma_dsp_smmul(sum, multiplier) + add) >> shift);
}

/* Of one pixel of a block: `count` bytes that lie side by side, and zeros up to a multiple of four. */
UMA_DSP_INLINE void uma_dsp_expand(int16_t *e, int32_t pixels, const int8_t *x, int32_t count)
{
    int32_t k = 0;
#if UMA_DSP
    for (; k + 4 <= count; k += 4, e += 4 * pixels) {
        int32_t v, even, odd;
        memcpy(&v, x + k, sizeof v);
        even = uma_dsp_even(v);
        odd = uma_dsp_odd(v);
        memcpy(e, &even, sizeof even);
        memcpy(e + 2 * pixels, &odd, sizeof odd);
    }
#endif
    for (; k < count; k += 4, e += 4 * pixels) {
        e[0] = x[k];
        e[2 * pixels] = (int16_t)(k + 1 < count ? x[k + 1] : 0);
        e[1] = (int16_t)(k + 2 < count ? x[k + 2] : 0);
        e[2 * pixels + 1] = (int16_t)(k + 3 < count ? x[k + 3] : 0);
    }
}

/* The same of `count` times one number. */
UMA_DSP_INLINE void uma_dsp_fill(int16_t *e, int32_t pixels, int32_t value, int32_t count)
{
    for (int32_t k = 0; k < count; k += 4, e += 4 * pixels) {
        e[0] = (int16_t)value;
        e[2 * pixels] = (int16_t)(k + 1 < count ? value : 0);
        e[1] = (int16_t)(k + 2 < count ? value : 0);
        e[2 * pixels + 1] = (int16_t)(k + 3 < count ? value : 0);
    }
}

/* Of one pixel of a block: a window of `rows` by `columns`, each row up to a multiple of four numbers. Its rows from
 * `above` up to `end` are those of a picture of channels, which begins with them, from column x on; `zero` is where there
 * is no picture. */
UMA_DSP_CALLED void uma_dsp_window(int16_t *e, int32_t pixels, const int8_t *picture, int32_t x, int32_t above,
                                   int32_t end, int32_t width, int32_t channels, int32_t rows, int32_t columns,
                                   int32_t zero)
{
    const int32_t count = columns * channels;
    for (int32_t r = 0; r < rows; ++r, e += (count + 3) / 4 * 4 * pixels) {
        if (r < above || r >= end) {
            uma_dsp_fill(e, pixels, zero, count);
            continue;
        }
        const int8_t *row = picture + (r - above) * width * channels;
        if (x >= 0 && x + columns <= width) {
            uma_dsp_expand(e, pixels, row + x * channels, count);
        } else if (channels % 4 == 0) {
            int16_t *at = e;
            for (int32_t c = 0; c < columns; ++c, at += channels * pixels) {
                if (x + c >= 0 && x + c < width) {
                    uma_dsp_expand(at, pixels, row + (x + c) * channels, channels);
                } else {
                    uma_dsp_fill(at, pixels, zero, channels);
                }
            }
        } else {
            const int32_t first = x < 0 ? -x * channels : 0;
            const int32_t end = x + columns > width ? (width - x) * channels : count;
            for (int32_t k = 0; k < (count + 3) / 4 * 4; ++k) {
                const int32_t v = k >= count ? 0 : k >= first && k < end ? row[x * channels + k] : zero;
                e[k / 4 * 4 * pixels + (k & 1) * 2 * pixels + ((k >> 1) & 1)] = (int16_t)v;
            }
        }
    }
}

/* Twice the sums of four channels of up to two pixels: by channel and pixel. */
typedef struct {
    int32_t s[4][2];
} uma_dsp_sums;

/* Twice the sum of the second channel of a pair, from that of whole half words and that of low bytes. */
UMA_DSP_INLINE int32_t uma_dsp_second(int32_t both, int32_t low)
{
    return (int32_t)((uint32_t)both - (uint32_t)low) >> 7;
}
UMA_DSP_INLINE int32_t uma_dsp_doubled(int32_t low)
{
    return (int32_t)((uint32_t)low << 1);
}

/* Loops in assembler take 13 registers, which clang does not always have. */
#if UMA_DSP && !defined(__clang__)
#define UMA_DSP_FOUR_OF_TWO(low0, low1, both0, both1)                                                                  \
    "ldr %[a], [%[q]], #4\n\t"                                                                                         \
    "smlad %[" #both0 "], %[v], %[a], %[" #both0 "]\n\t"                                                               \
    "smlad %[" #both1 "], %[t], %[a], %[" #both1 "]\n\t"                                                               \
    "sxtb16 %[a], %[a]\n\t"                                                                                            \
    "smlad %[" #low0 "], %[v], %[a], %[" #low0 "]\n\t"                                                                 \
    "smlad %[" #low1 "], %[t], %[a], %[" #low1 "]\n\t"
#define UMA_DSP_HALF_OF_TWO                                                                                            \
    "ldrd %[v], %[t], [%[e]], #8\n\t" UMA_DSP_FOUR_OF_TWO(a0, a1, b0, b1) UMA_DSP_FOUR_OF_TWO(c0, c1, d0, d1)
/* Two groups in a turn, one in the first where they are odd. */
#define UMA_DSP_SUMS_OF_TWO(sums, block, pairs, groups)                                                                \
    do {                                                                                                               \
        int32_t a0 = 0, a1 = 0, b0 = 0, b1 = 0, c0 = 0, c1 = 0, d0 = 0, d1 = 0, a, v, t = (groups) & 1;                \
        const int16_t *e = (block), *q = (pairs), *const uma_end = q + (groups) * 8;                                   \
        __asm__ volatile("cmp %[t], #0\n\t"                                                                            \
                         "bne 2f\n\t"                                                                                  \
                         "1:\n\t" UMA_DSP_HALF_OF_TWO UMA_DSP_HALF_OF_TWO                                              \
                         "2:\n\t" UMA_DSP_HALF_OF_TWO UMA_DSP_HALF_OF_TWO "ldr %[a], %[end]\n\t"                       \
                         "cmp %[q], %[a]\n\t"                                                                          \
                         "bne 1b"                                                                                      \
                         : [a0] "+r"(a0), [a1] "+r"(a1), [b0] "+r"(b0), [b1] "+r"(b1), [c0] "+r"(c0), [c1] "+r"(c1),   \
                           [d0] "+r"(d0), [d1] "+r"(d1), [e] "+r"(e), [q] "+r"(q), [a] "=&r"(a), [v] "=&r"(v),         \
                           [t] "+r"(t)                                                                                 \
                         : [end] "m"(uma_end)                                                                          \
                         : "cc", "memory");                                                                            \
        (sums).s[0][0] = uma_dsp_doubled(a0);                                                                          \
        (sums).s[0][1] = uma_dsp_doubled(a1);                                                                          \
        (sums).s[1][0] = uma_dsp_second(b0, a0);                                                                       \
        (sums).s[1][1] = uma_dsp_second(b1, a1);                                                                       \
        (sums).s[2][0] = uma_dsp_doubled(c0);                                                                          \
        (sums).s[2][1] = uma_dsp_doubled(c1);                                                                          \
        (sums).s[3][0] = uma_dsp_second(d0, c0);                                                                       \
        (sums).s[3][1] = uma_dsp_second(d1, c1);                                                                       \
    } while (0)
#define UMA_DSP_SUMS_OF_ONE(sums, block, pairs, groups)                                                                \
    do {                                                                                                               \
        int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, a, b, u, v, t, left = (groups);                                        \
        const int16_t *e = (block), *q = (pairs);                                                                      \
        __asm__ volatile("1:\n\t"                                                                                      \
                         "ldrd %[v], %[t], [%[e]], #8\n\t"                                                             \
                         "ldrd %[a], %[b], [%[q]], #8\n\t"                                                             \
                         "sxtb16 %[u], %[a]\n\t"                                                                       \
                         "smlad %[s1], %[v], %[a], %[s1]\n\t"                                                          \
                         "smlad %[s0], %[v], %[u], %[s0]\n\t"                                                          \
                         "sxtb16 %[u], %[b]\n\t"                                                                       \
                         "smlad %[s3], %[v], %[b], %[s3]\n\t"                                                          \
                         "smlad %[s2], %[v], %[u], %[s2]\n\t"                                                          \
                         "ldrd %[a], %[b], [%[q]], #8\n\t"                                                             \
                         "sxtb16 %[u], %[a]\n\t"                                                                       \
                         "smlad %[s1], %[t], %[a], %[s1]\n\t"                                                          \
                         "smlad %[s0], %[t], %[u], %[s0]\n\t"                                                          \
                         "sxtb16 %[u], %[b]\n\t"                                                                       \
                         "smlad %[s3], %[t], %[b], %[s3]\n\t"                                                          \
                         "smlad %[s2], %[t], %[u], %[s2]\n\t"                                                          \
                         "subs %[left], #1\n\t"                                                                        \
                         "bne 1b"                                                                                      \
                         : [s0] "+r"(s0), [s1] "+r"(s1), [s2] "+r"(s2), [s3] "+r"(s3), [e] "+r"(e), [q] "+r"(q),       \
                           [left] "+r"(left), [a] "=&r"(a), [b] "=&r"(b), [u] "=&r"(u), [v] "=&r"(v), [t] "=&r"(t)     \
                         :                                                                                             \
                         : "cc", "memory");                                                                            \
        (sums).s[0][0] = uma_dsp_doubled(s0);                                                                          \
        (sums).s[1][0] = uma_dsp_second(s1, s0);                                                                       \
        (sums).s[2][0] = uma_dsp_doubled(s2);                                                                          \
        (sums).s[3][0] = uma_dsp_second(s3, s2);                                                                       \
    } while (0)
#else
#define UMA_DSP_SUMS_OF_TWO(sums, block, pairs, groups) uma_dsp_sum(&(sums), block, pairs, groups, 2)
#define UMA_DSP_SUMS_OF_ONE(sums, block, pairs, groups) uma_dsp_sum(&(sums), block, pairs, groups, 1)
#endif
/* Twice the sums of all pixels of a block. */
UMA_DSP_INLINE void uma_dsp_sum(uma_dsp_sums *sums, const int16_t *block, const int16_t *pairs, int32_t groups,
                                int32_t pixels)
{
    for (int32_t i = 0; i < 2; ++i) {
        const int16_t *e = block, *q = pairs + i * 2;
        int32_t low[2] = {0, 0}, both[2] = {0, 0};
        for (int32_t k = 0; k < groups * 2; ++k, q += 4, e += 2 * pixels) {
#if UMA_DSP
            const int32_t w = uma_dsp_pair(q), even = uma_dsp_even(w);
#else
            const int32_t w = uma_dsp_pair(q);
            const int32_t even = uma_dsp_halves((int8_t)(uint8_t)(q[0] & 255), (int8_t)(uint8_t)(q[1] & 255));
#endif
            for (int32_t p = 0; p < pixels; ++p) {
                const int32_t x = uma_dsp_pair(e + p * 2);
                low[p] = uma_dsp_smlad(x, even, low[p]);
                both[p] = uma_dsp_smlad(x, w, both[p]);
            }
        }
        for (int32_t p = 0; p < pixels; ++p) {
            sums->s[i * 2][p] = uma_dsp_doubled(low[p]);
            sums->s[i * 2 + 1][p] = uma_dsp_second(both[p], low[p]);
        }
    }
}

/* All channels of the pixels of a block, of two or of one, four channels at a time. */
#define UMA_DSP_CHANNEL(c, pixels, scaled)                                                                             \
    do {                                                                                                               \
        const int32_t bias = m[4 * (c)], multiplier = m[4 * (c) + 1], add = m[4 * (c) + 2], shift = m[4 * (c) + 3];    \
        out[c] = scaled((int32_t)((uint32_t)sums.s[c][0] + (uint32_t)bias), multiplier, add, shift);                   \
        if ((pixels) > 1) {                                                                                            \
            out[channels + (c)] = scaled((int32_t)((uint32_t)sums.s[c][1] + (uint32_t)bias), multiplier, add, shift);  \
        }                                                                                                              \
    } while (0)
#define UMA_DSP_TILE(name, scaled, pixels, summed)                                                                     \
    UMA_DSP_CALLED void uma_dsp_##name(int8_t *out, const int16_t *block, const int16_t *pairs, const int32_t *m,      \
                                       int32_t groups, int32_t channels)                                               \
    {                                                                                                                  \
        for (int32_t n = channels; n > 0; n -= 4, m += 16, pairs += groups * 8, out += 4) {                            \
            uma_dsp_sums sums;                                                                                         \
            summed(sums, block, pairs, groups);                                                                        \
            UMA_DSP_CHANNEL(0, pixels, scaled);                                                                        \
            if (n > 1) UMA_DSP_CHANNEL(1, pixels, scaled);                                                             \
            if (n > 2) UMA_DSP_CHANNEL(2, pixels, scaled);                                                             \
            if (n > 3) UMA_DSP_CHANNEL(3, pixels, scaled);                                                             \
        }                                                                                                              \
    }
UMA_DSP_TILE(tile_twice, uma_dsp_twice, 2, UMA_DSP_SUMS_OF_TWO)
UMA_DSP_TILE(tile_once, uma_dsp_once, 2, UMA_DSP_SUMS_OF_TWO)
UMA_DSP_TILE(row_twice, uma_dsp_twice, 1, UMA_DSP_SUMS_OF_ONE)
UMA_DSP_TILE(row_once, uma_dsp_once, 1, UMA_DSP_SUMS_OF_ONE)

/* One channel of a picture, a byte every `channels`, to a plane of int16 with rows of `pitch`. */
UMA_DSP_INLINE void uma_dsp_plane(int16_t *plane, const int8_t *x, int32_t height, int32_t width, int32_t channels,
                                  int32_t pitch)
{
    for (int32_t i = 0; i < height; ++i, plane += pitch, x += width * channels) {
        int32_t j = 0;
        for (; j + 4 <= width; j += 4) {
            plane[j] = x[j * channels];
            plane[j + 1] = x[(j + 1) * channels];
            plane[j + 2] = x[(j + 2) * channels];
            plane[j + 3] = x[(j + 3) * channels];
        }
        for (; j < width; ++j) plane[j] = x[j * channels];
    }
}

/* A window of three by three over a plane, `stride` 1 or 2: one channel of the result, two numbers of a row at a time. */
#define UMA_DSP_WINDOW_ROW(r)                                                                                          \
    do {                                                                                                               \
        const int32_t a = uma_dsp_pair(i + (r) * pitch), b = uma_dsp_pair(i + (r) * pitch + 2);                        \
        s0 = uma_dsp_smlad(a, w01_##r, s0);                                                                            \
        s0 = uma_dsp_smlabt(b, w12_##r, s0);                                                                           \
        if (stride == 1) {                                                                                             \
            s1 = uma_dsp_smlatb(a, w01_##r, s1);                                                                       \
            s1 = uma_dsp_smlad(b, w12_##r, s1);                                                                        \
        } else {                                                                                                       \
            s1 = uma_dsp_smlad(b, w01_##r, s1);                                                                        \
            s1 = uma_dsp_smlabt(uma_dsp_pair(i + (r) * pitch + 4), w12_##r, s1);                                       \
        }                                                                                                              \
    } while (0)
#define UMA_DSP_WINDOW_END(r)                                                                                          \
    do {                                                                                                               \
        s0 = uma_dsp_smlad(uma_dsp_pair(i + (r) * pitch), w01_##r, s0);                                                \
        s0 = uma_dsp_smlabt(uma_dsp_pair(i + (r) * pitch + 2), w12_##r, s0);                                           \
    } while (0)
UMA_DSP_INLINE void uma_dsp_filter(int8_t *out, const int16_t *plane, const int8_t *w, const int32_t *m, int32_t height,
                                   int32_t width, int32_t channels, int32_t pitch, int32_t stride)
{
    const int32_t w01_0 = uma_dsp_halves(w[0], w[1]), w12_0 = uma_dsp_halves(w[1], w[2]);
    const int32_t w01_1 = uma_dsp_halves(w[3], w[4]), w12_1 = uma_dsp_halves(w[4], w[5]);
    const int32_t w01_2 = uma_dsp_halves(w[6], w[7]), w12_2 = uma_dsp_halves(w[7], w[8]);
    const int32_t bias = m[0] >> 1, multiplier = m[1], add = m[2], shift = m[3];
    for (int32_t y = 0; y < height; ++y, plane += stride * pitch) {
        const int16_t *i = plane;
        int32_t x = 0;
        for (; x + 2 <= width; x += 2, i += 2 * stride, out += 2 * channels) {
            int32_t s0 = bias, s1 = bias;
            UMA_DSP_WINDOW_ROW(0);
            UMA_DSP_WINDOW_ROW(1);
            UMA_DSP_WINDOW_ROW(2);
            out[0] = uma_dsp_twice(uma_dsp_doubled(s0), multiplier, add, shift);
            out[channels] = uma_dsp_twice(uma_dsp_doubled(s1), multiplier, add, shift);
        }
        if (x < width) {
            int32_t s0 = bias;
            UMA_DSP_WINDOW_END(0);
            UMA_DSP_WINDOW_END(1);
            UMA_DSP_WINDOW_END(2);
            out[0] = uma_dsp_twice(uma_dsp_doubled(s0), multiplier, add, shift);
            out += channels;
        }
    }
}

#endif
