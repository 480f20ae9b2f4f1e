/* Whole inner loops of small integers for cores with M-profile vectors (Helium, Armv8.1-M).
 *
 * uma_mve_dots: sums of products of bytes, of up to three rows with several others: two channels by three pixels at a
 * time, 96 products in eleven instructions; of one row four channels at a time.
 * uma_mve_requantise_real: sums to int8 in floats, four at a time; _away, _up: in integers.
 * uma_mve_window_real and so on: convolutions of which each channel has data of its own, sixteen channels at a time.
 * uma_mve_copy, uma_mve_row: bytes as they are; or, where `is_there` is 0, a number in their place.
 *
 * Strides are in bytes, but for those of sums. All forms give the same bits as the loops beside them; loops whose tail
 * is predicated by hardware (dlstp, letp) are in assembler.
 */
#ifndef UMA_MVE_H
#define UMA_MVE_H

#include <string.h>

#include "uma_math.h"

#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
#define UMA_MVE 1
#include <arm_mve.h>
#else
#define UMA_MVE 0
#endif
#if UMA_MVE && (__ARM_FEATURE_MVE & 2)
#define UMA_MVE_FLOATS 1
#else
#define UMA_MVE_FLOATS 0
#endif
#if defined(__GNUC__)
#define UMA_MVE_FUNCTION __attribute__((noinline, unused)) static
#define UMA_MVE_INLINE __attribute__((always_inline, unused)) static inline
#else
#define UMA_MVE_FUNCTION static
#define UMA_MVE_INLINE static inline
#endif

#if UMA_MVE
/* Sums of three rows with two others, in the order of rows: s[0], s[1] of a0. */
UMA_MVE_INLINE void uma_mve_three_by_two(int32_t s[6], const int8_t *a0, const int8_t *a1, const int8_t *a2,
                                         const int8_t *w0, const int8_t *w1, int32_t k)
{
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0;
    register int32_t left __asm__("lr") = k;
    __asm__ volatile("dlstp.8 lr, lr\n"
            "1:\n\t"
            "vldrb.8 q0, [%[w0]], #16\n\t"
            "vldrb.8 q2, [%[a0]], #16\n\t"
            "vmladava.s8 %[s0], q2, q0\n\t"
            "vldrb.8 q1, [%[w1]], #16\n\t"
            "vmladava.s8 %[s1], q2, q1\n\t"
            "vldrb.8 q2, [%[a1]], #16\n\t"
            "vmladava.s8 %[s2], q2, q0\n\t"
            "vldrb.8 q3, [%[a2]], #16\n\t"
            "vmladava.s8 %[s3], q2, q1\n\t"
            "vmladava.s8 %[s4], q3, q0\n\t"
            "vmladava.s8 %[s5], q3, q1\n\t"
            "letp lr, 1b\n"
            : [s0] "+Te"(s0), [s1] "+Te"(s1), [s2] "+Te"(s2), [s3] "+Te"(s3), [s4] "+Te"(s4), [s5] "+Te"(s5),
              [w0] "+r"(w0), [w1] "+r"(w1), [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), "+r"(left)
            :
            : "q0", "q1", "q2", "q3", "cc", "memory");
    s[0] = s0;
    s[1] = s1;
    s[2] = s2;
    s[3] = s3;
    s[4] = s4;
    s[5] = s5;
}

/* Sums of one row with four others. */
UMA_MVE_INLINE void uma_mve_one_by_four(int32_t s[4], const int8_t *a, const int8_t *w0, const int8_t *w1,
                                        const int8_t *w2, const int8_t *w3, int32_t k)
{
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    register int32_t left __asm__("lr") = k;
    __asm__ volatile("dlstp.8 lr, lr\n"
            "1:\n\t"
            "vldrb.8 q0, [%[a]], #16\n\t"
            "vldrb.8 q1, [%[w0]], #16\n\t"
            "vmladava.s8 %[s0], q0, q1\n\t"
            "vldrb.8 q2, [%[w1]], #16\n\t"
            "vmladava.s8 %[s1], q0, q2\n\t"
            "vldrb.8 q1, [%[w2]], #16\n\t"
            "vmladava.s8 %[s2], q0, q1\n\t"
            "vldrb.8 q2, [%[w3]], #16\n\t"
            "vmladava.s8 %[s3], q0, q2\n\t"
            "letp lr, 1b\n"
            : [s0] "+Te"(s0), [s1] "+Te"(s1), [s2] "+Te"(s2), [s3] "+Te"(s3), [w0] "+r"(w0), [w1] "+r"(w1),
              [w2] "+r"(w2), [w3] "+r"(w3), [a] "+r"(a), "+r"(left)
            :
            : "q0", "q1", "q2", "cc", "memory");
    s[0] = s0;
    s[1] = s1;
    s[2] = s2;
    s[3] = s3;
}
#endif

/* acc[p][o] = a[p][0] * w[o][0] + .. + a[p][k - 1] * w[o][k - 1]; at most three pixels. */
UMA_MVE_FUNCTION void uma_mve_dots(int32_t *acc, int32_t acc_stride, const int8_t *a, int32_t a_stride, const int8_t *w,
                                   int32_t pixels, int32_t channels, int32_t k)
{
#if UMA_MVE
    const int8_t *const a1 = pixels > 1 ? a + a_stride : a;
    const int8_t *const a2 = pixels > 2 ? a1 + a_stride : a1;
    int32_t o = 0, s[6];
    if (pixels == 1) {
        for (; o + 4 <= channels; o += 4, w += 4 * k) {
            uma_mve_one_by_four(s, a, w, w + k, w + 2 * k, w + 3 * k, k);
            acc[o] = s[0];
            acc[o + 1] = s[1];
            acc[o + 2] = s[2];
            acc[o + 3] = s[3];
        }
    }
    if (pixels == 3) {
        int32_t *first = acc, *second = acc + acc_stride, *third = second + acc_stride;
        for (; o + 2 <= channels; o += 2, w += 2 * k, first += 2, second += 2, third += 2) {
            uma_mve_three_by_two(s, a, a1, a2, w, w + k, k);
            first[0] = s[0];
            first[1] = s[1];
            second[0] = s[2];
            second[1] = s[3];
            third[0] = s[4];
            third[1] = s[5];
        }
    }
    for (; o < channels; o += 2, w += 2 * k) {
        int32_t *to = acc + o;
        const int32_t is_pair = o + 1 < channels;
        uma_mve_three_by_two(s, a, a1, a2, w, is_pair ? w + k : w, k);
        to[0] = s[0];
        if (is_pair) to[1] = s[1];
        if (pixels > 1) {
            to += acc_stride;
            to[0] = s[2];
            if (is_pair) to[1] = s[3];
        }
        if (pixels > 2) {
            to += acc_stride;
            to[0] = s[4];
            if (is_pair) to[1] = s[5];
        }
    }
#else
    for (int32_t p = 0; p < pixels; ++p) {
        for (int32_t o = 0; o < channels; ++o) {
            int32_t s = 0;
            for (int32_t i = 0; i < k; ++i) s += (int32_t)a[p * a_stride + i] * (int32_t)w[o * k + i];
            acc[p * acc_stride + o] = s;
        }
    }
#endif
}

/* How sums become int8: in floats, out = clip(round_even(float(sum) * first + second)), rounded once before; or in
 * integers, multiplied by first / 2^31 and shifted right by second + 1, as TFLite rounds it (away: twice,
 * halves up and then away from zero) or once, halves up. */
enum { UMA_MVE_REAL, UMA_MVE_AWAY, UMA_MVE_UP };

#if UMA_MVE_FLOATS
/* Four sums as whole numbers. `every` are the bytes from one number to the next. */
UMA_MVE_INLINE int32x4_t uma_mve_whole(int how, int32x4_t sum, const void *first, const void *second, uint32x4_t every,
                                       int32_t zero)
{
    int32x4_t value, less;
    if (how == UMA_MVE_REAL) {
        const float32x4_t factor = vldrwq_gather_offset_f32((const float *)first, every);
        return vcvtnq_s32_f32(vfmaq_f32(vldrwq_gather_offset_f32((const float *)second, every), vcvtq_f32_s32(sum),
                                        factor));
    }
    value = vldrwq_gather_offset_s32((const int32_t *)first, every);
    less = vldrwq_gather_offset_s32((const int32_t *)second, every);
    if (how == UMA_MVE_AWAY) {
        value = vqrdmulhq_s32(sum, value);
        value = vaddq_s32(value, vshrq_n_s32(value, 31));
    } else {
        value = vqdmulhq_s32(sum, value);
    }
    return vaddq_n_s32(vrshlq_s32(value, vmvnq_s32(less)), zero);
}

UMA_MVE_INLINE int32x4_t uma_mve_clip(int32x4_t value, int32_t low, int32_t high)
{
    return vminq_s32(vmaxq_s32(value, vdupq_n_s32(low)), vdupq_n_s32(high));
}
#else
UMA_MVE_INLINE int8_t uma_mve_scaled(int how, int32_t sum, const void *first, const void *second, int32_t at,
                                     int32_t zero, int32_t low, int32_t high)
{
    int64_t value;
    if (how == UMA_MVE_REAL) {
        const float real = uma_fmaf((float)sum, ((const float *)first)[at], ((const float *)second)[at]);
        const float least = (float)low, most = (float)high;
        return (int8_t)uma_round_f32_to_i32(real < least ? least : real > most ? most : real);
    }
    value = (int64_t)sum * ((const int32_t *)first)[at];
    if (how == UMA_MVE_AWAY) {
        value = (value + 1073741824) >> 31;
        value += value >> 63;
    } else {
        value >>= 31;
    }
    value = (((value >> ((const int32_t *)second)[at]) + 1) >> 1) + zero;
    return (int8_t)(value < low ? low : value > high ? high : value);
}
#endif

/* out[p][o] = acc[p][o] + bias[o] as an int8. */
UMA_MVE_INLINE void uma_mve_requantise(int how, int8_t *out, int32_t out_stride, const int32_t *acc, int32_t acc_stride,
                                       const int32_t *bias, const void *first, const void *second, int32_t zero,
                                       int32_t low, int32_t high, int32_t pixels, int32_t channels)
{
#if UMA_MVE_FLOATS
    const uint32x4_t every = {0, 4, 8, 12};
    int32_t o = 0;
    for (; o + 4 <= channels; o += 4) {
        const int32x4_t b = vldrwq_s32(bias + o);
        const int32_t *from = acc + o, *const f = (const int32_t *)first + o, *const s = (const int32_t *)second + o;
        int8_t *to = out + o;
        int32_t p = pixels;
        do {
            const int32x4_t sum = vaddq_s32(vldrwq_s32(from), b);
            vstrbq_s32(to, uma_mve_clip(uma_mve_whole(how, sum, f, s, every, zero), low, high));
            from += acc_stride;
            to += out_stride;
        } while (--p);
    }
    if (o < channels) {
        /* What is beyond the last channel is the last one again. */
        const int32_t last = channels - 1 - o;
        const uint32x4_t some = {0, last > 0 ? 4u : 0u, last > 1 ? 8u : (uint32_t)last * 4u, (uint32_t)last * 4u};
        const mve_pred16_t there = vctp32q((uint32_t)last + 1u);
        const int32_t *const f = (const int32_t *)first + o, *const s = (const int32_t *)second + o;
        for (int32_t p = 0; p < pixels; ++p) {
            const int32x4_t sum = vaddq_s32(vldrwq_gather_offset_s32(acc + p * acc_stride + o, some),
                                            vldrwq_gather_offset_s32(bias + o, some));
            const int32x4_t value = uma_mve_whole(how, sum, f, s, some, zero);
            vstrbq_p_s32(out + p * out_stride + o, uma_mve_clip(value, low, high), there);
        }
    }
#else
    for (int32_t p = 0; p < pixels; ++p) {
        for (int32_t o = 0; o < channels; ++o) {
            const int32_t sum = (int32_t)((uint32_t)acc[p * acc_stride + o] + (uint32_t)bias[o]);
            out[p * out_stride + o] = uma_mve_scaled(how, sum, first, second, o, zero, low, high);
        }
    }
#endif
}
#define UMA_MVE_REQUANTISE(name, how)                                                                                  \
    UMA_MVE_FUNCTION void uma_mve_requantise_##name(                                                                   \
        int8_t *out, int32_t out_stride, const int32_t *acc, int32_t acc_stride, const int32_t *bias,                  \
        const void *first, const void *second, int32_t zero, int32_t low, int32_t high, int32_t pixels,                \
        int32_t channels)                                                                                              \
    {                                                                                                                  \
        uma_mve_requantise(how, out, out_stride, acc, acc_stride, bias, first, second, zero, low, high, pixels,        \
                           channels);                                                                                  \
    }
UMA_MVE_REQUANTISE(real, UMA_MVE_REAL)
UMA_MVE_REQUANTISE(away, UMA_MVE_AWAY)
UMA_MVE_REQUANTISE(up, UMA_MVE_UP)

UMA_MVE_INLINE void uma_mve_copy(int8_t *to, const int8_t *from, int32_t n)
{
#if UMA_MVE
    __asm__ volatile("dlstp.8 lr, %[n]\n"
            "1:\n\t"
            "vldrb.8 q0, [%[from]], #16\n\t"
            "vstrb.8 q0, [%[to]], #16\n\t"
            "letp lr, 1b\n"
            : [to] "+r"(to), [from] "+r"(from)
            : [n] "r"(n)
            : "q0", "lr", "cc", "memory");
#else
    memcpy(to, from, (size_t)n);
#endif
}

UMA_MVE_INLINE void uma_mve_fill(int8_t *to, int32_t value, int32_t n)
{
#if UMA_MVE
    __asm__ volatile("vdup.8 q0, %[value]\n\t"
            "dlstp.8 lr, %[n]\n"
            "1:\n\t"
            "vstrb.8 q0, [%[to]], #16\n\t"
            "letp lr, 1b\n"
            : [to] "+r"(to)
            : [value] "r"(value), [n] "r"(n)
            : "q0", "lr", "cc", "memory");
#else
    memset(to, value, (size_t)n);
#endif
}

UMA_MVE_INLINE void uma_mve_row(int8_t *to, const int8_t *from, int32_t n, int32_t is_there, int32_t value)
{
    if (is_there) uma_mve_copy(to, from, n);
    else uma_mve_fill(to, value, n);
}

#if UMA_MVE_FLOATS
/* Four sums, of every fourth channel. */
#define UMA_MVE_FOURTH(sum, at)                                                                                        \
    uma_mve_whole(how, vaddq_s32(sum, vldrwq_gather_offset_s32(bias + (at), every)), (const int32_t *)first + (at),    \
                  (const int32_t *)second + (at), every, zero)
#define UMA_MVE_AT(pointer) (is_whole ? vldrbq_s8(pointer) : vldrbq_z_s8(pointer, some))
#define UMA_MVE_WIDER(even, odd)                                                                                       \
    do {                                                                                                               \
        s0 = vaddq_s32(s0, vmovlbq_s16(even));                                                                         \
        s1 = vaddq_s32(s1, vmovltq_s16(even));                                                                         \
        s2 = vaddq_s32(s2, vmovlbq_s16(odd));                                                                          \
        s3 = vaddq_s32(s3, vmovltq_s16(odd));                                                                          \
    } while (0)
/* Two products of bytes fit 16 bits where no weight is -128. */
#define UMA_MVE_PAIR(p, q)                                                                                             \
    do {                                                                                                               \
        const int8x16_t uma_a = UMA_MVE_AT(p), uma_w = vldrbq_s8(w);                                                   \
        const int16x8_t uma_even = vmullbq_int_s8(uma_a, uma_w), uma_odd = vmulltq_int_s8(uma_a, uma_w);               \
        const int8x16_t uma_b = UMA_MVE_AT(q), uma_v = vldrbq_s8(w + 16);                                              \
        const int16x8_t uma_two = vaddq_s16(uma_even, vmullbq_int_s8(uma_b, uma_v));                                   \
        const int16x8_t uma_too = vaddq_s16(uma_odd, vmulltq_int_s8(uma_b, uma_v));                                    \
        UMA_MVE_WIDER(uma_two, uma_too);                                                                               \
        w += 32;                                                                                                       \
    } while (0)
#define UMA_MVE_ONE(p)                                                                                                 \
    do {                                                                                                               \
        const int8x16_t uma_a = UMA_MVE_AT(p), uma_w = vldrbq_s8(w);                                                   \
        const int16x8_t uma_even = vmullbq_int_s8(uma_a, uma_w), uma_odd = vmulltq_int_s8(uma_a, uma_w);               \
        UMA_MVE_WIDER(uma_even, uma_odd);                                                                              \
        w += 16;                                                                                                       \
    } while (0)

/* Sixteen channels of all pixels of a row; or fewer, where they are not whole. */
UMA_MVE_INLINE void uma_mve_sixteen(int how, int8_t *out, int32_t out_stride, const int8_t *a, int32_t row, int32_t column,
                                    int32_t pixel, const int8_t *weights, const int32_t *bias, const void *first,
                                    const void *second, int32_t zero, int32_t low, int32_t high, int32_t pixels, int32_t rows,
                                    int32_t columns, int is_whole, mve_pred16_t some)
{
    for (int32_t x = 0; x < pixels; ++x, a += pixel, out += out_stride) {
        int32x4_t s0 = vdupq_n_s32(0), s1 = s0, s2 = s0, s3 = s0;
        const int8_t *w = weights, *from = a;
        if (rows == 3 && columns == 3) {
            const int8_t *const second = a + row, *const third = second + row;
            UMA_MVE_PAIR(a, a + column);
            UMA_MVE_PAIR(a + 2 * column, second);
            UMA_MVE_PAIR(second + column, second + 2 * column);
            UMA_MVE_PAIR(third, third + column);
            UMA_MVE_ONE(third + 2 * column);
        } else {
            for (int32_t r = 0; r < rows; ++r, from += row) {
                const int8_t *at = from;
                int32_t left = columns;
                for (; left > 1; left -= 2, at += 2 * column) UMA_MVE_PAIR(at, at + column);
                if (left) UMA_MVE_ONE(at);
            }
        }
        {
            const uint32x4_t every = {0, 16, 32, 48};
            int16x8_t even = vqmovnbq_s32(vdupq_n_s16(0), UMA_MVE_FOURTH(s0, 0)), odd;
            even = vqmovntq_s32(even, UMA_MVE_FOURTH(s1, 2));
            odd = vqmovnbq_s32(vdupq_n_s16(0), UMA_MVE_FOURTH(s2, 1));
            odd = vqmovntq_s32(odd, UMA_MVE_FOURTH(s3, 3));
            int8x16_t all = vqmovntq_s16(vqmovnbq_s16(vdupq_n_s8(0), even), odd);
            all = vminq_s8(vmaxq_s8(all, vdupq_n_s8((int8_t)low)), vdupq_n_s8((int8_t)high));
            if (is_whole) vstrbq_s8(out, all);
            else vstrbq_p_s8(out, all, some);
        }
    }
}
#endif

/* out[x][c] = requantised(a[0][0][x][c] * w[0][0][c] + ..) over the rows and columns of a window, for each channel c.
 * Weights, bias and what scales are there for sixteen channels, of which there may be fewer. */
UMA_MVE_INLINE void uma_mve_window(int how, int8_t *out, int32_t out_stride, const int8_t *a, int32_t row,
                                   int32_t column, int32_t pixel, const int8_t *w, const int32_t *bias,
                                   const void *first, const void *second, int32_t zero, int32_t low, int32_t high,
                                   int32_t pixels, int32_t channels, int32_t rows, int32_t columns)
{
#if UMA_MVE_FLOATS
    if (channels == 16) {
        uma_mve_sixteen(how, out, out_stride, a, row, column, pixel, w, bias, first, second, zero, low, high, pixels,
                        rows, columns, 1, 0xFFFF);
    } else {
        uma_mve_sixteen(how, out, out_stride, a, row, column, pixel, w, bias, first, second, zero, low, high, pixels,
                        rows, columns, 0, vctp8q((uint32_t)channels));
    }
#else
    for (int32_t x = 0; x < pixels; ++x) {
        for (int32_t c = 0; c < channels; ++c) {
            const int8_t *of = w + c;
            int32_t s = 0;
            for (int32_t r = 0; r < rows; ++r) {
                for (int32_t k = 0; k < columns; ++k, of += 16) {
                    s += (int32_t)a[x * pixel + r * row + k * column + c] * (int32_t)*of;
                }
            }
            s = (int32_t)((uint32_t)s + (uint32_t)bias[c]);
            out[x * out_stride + c] = uma_mve_scaled(how, s, first, second, c, zero, low, high);
        }
    }
#endif
}
#define UMA_MVE_WINDOW(name, how)                                                                                      \
    UMA_MVE_FUNCTION void uma_mve_window_##name(                                                                       \
        int8_t *out, int32_t out_stride, const int8_t *a, int32_t row, int32_t column, int32_t pixel, const int8_t *w, \
        const int32_t *bias, const void *first, const void *second, int32_t zero, int32_t low, int32_t high,           \
        int32_t pixels, int32_t channels, int32_t rows, int32_t columns)                                               \
    {                                                                                                                  \
        uma_mve_window(how, out, out_stride, a, row, column, pixel, w, bias, first, second, zero, low, high, pixels,   \
                       channels, rows, columns);                                                                       \
    }
UMA_MVE_WINDOW(real, UMA_MVE_REAL)
UMA_MVE_WINDOW(away, UMA_MVE_AWAY)
UMA_MVE_WINDOW(up, UMA_MVE_UP)

#endif
