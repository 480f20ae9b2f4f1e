/* One row of a convolution by a window of three by three in which each channel has data of its own, for cores with the
 * DSP extension of Arm: pixel by pixel, four channels at a time, as memory holds them. Nothing is copied: where a window
 * goes beyond the picture, its taps are read from as many bytes of the data's zero.
 *
 * What is known of four channels is int32 q[34]: twice what is added to each sum; for each tap two words, twice the
 * weights of channels 0 and 2 as int16, and of 1 and 3; and multiplier, what is added to the product, and shift of each.
 */
#ifndef UMA_DSP_DEPTH_H
#define UMA_DSP_DEPTH_H

#include "uma_dsp.h"

/* All channels of one pixel. `taps` are where the nine begin, then the result, then the number of channels. */
typedef struct {
    const int8_t *taps[9];
    int8_t *out;
    int32_t channels;
} uma_dsp_nine;

#if UMA_DSP && !defined(__clang__)
#define UMA_DSP_TAP(p)                                                                                                 \
    "ldr %[" #p "], [%[" #p "], %[c]]\n\t"                                                                             \
    "ldrd %[u], %[v], [%[q]], #8\n\t"                                                                                  \
    "sxtb16 %[e], %[" #p "]\n\t"                                                                                       \
    "sxtb16 %[" #p "], %[" #p "], ror #8\n\t"                                                                          \
    "smlabb %[s0], %[e], %[u], %[s0]\n\t"                                                                              \
    "smlabb %[s1], %[" #p "], %[v], %[s1]\n\t"                                                                         \
    "smlatt %[s2], %[e], %[u], %[s2]\n\t"                                                                              \
    "smlatt %[s3], %[" #p "], %[v], %[s3]\n\t"
#define UMA_DSP_THREE_TAPS                                                                                             \
    "ldm %[at]!, {%[p0], %[p1], %[p2]}\n\t" UMA_DSP_TAP(p0) UMA_DSP_TAP(p1) UMA_DSP_TAP(p2)
#define UMA_DSP_ROUNDED(s)                                                                                             \
    "ldm %[q]!, {%[p0], %[p1], %[p2]}\n\t"                                                                             \
    "smmulr %[" #s "], %[" #s "], %[p0]\n\t"                                                                           \
    "add %[" #s "], %[" #s "], %[" #s "], asr #31\n\t"                                                                 \
    "add %[" #s "], %[" #s "], %[p1]\n\t"                                                                              \
    "asr %[" #s "], %[" #s "], %[p2]\n\t"                                                                              \
    "ssat %[" #s "], #8, %[" #s "]\n\t"                                                                                \
    "strb %[" #s "], [%[u]], #1\n\t"
UMA_DSP_INLINE void uma_dsp_depth_pixel(const uma_dsp_nine *nine, const int32_t *q)
{
    /* Several registers are loaded in the order of their numbers. */
    register int32_t p0 __asm__("r4");
    register int32_t p1 __asm__("r5");
    register int32_t p2 __asm__("r6");
    int32_t s0, s1, s2, s3, e, u, v, c = 0;
    __asm__ volatile("1:\n\t"
                     "ldrd %[s0], %[s1], [%[q]], #8\n\t"
                     "ldrd %[s2], %[s3], [%[q]], #8\n\t" UMA_DSP_THREE_TAPS UMA_DSP_THREE_TAPS UMA_DSP_THREE_TAPS
                     "ldrd %[u], %[v], [%[at]], #-36\n\t"
                     "add %[u], %[u], %[c]\n\t" UMA_DSP_ROUNDED(s0) UMA_DSP_ROUNDED(s1) UMA_DSP_ROUNDED(s2)
                         UMA_DSP_ROUNDED(s3) "add %[c], %[c], #4\n\t"
                     "cmp %[c], %[v]\n\t"
                     "bne 1b"
                     : [at] "+r"(nine), [q] "+r"(q), [c] "+r"(c), [s0] "=&r"(s0), [s1] "=&r"(s1), [s2] "=&r"(s2),
                       [s3] "=&r"(s3), [e] "=&r"(e), [u] "=&r"(u), [v] "=&r"(v), [p0] "=&r"(p0), [p1] "=&r"(p1),
                       [p2] "=&r"(p2)
                     :
                     : "cc", "memory");
}
#else
UMA_DSP_INLINE void uma_dsp_depth_pixel(const uma_dsp_nine *nine, const int32_t *q)
{
    for (int32_t c = 0; c < nine->channels; c += 4, q += 34) {
        for (int32_t i = 0; i < 4; ++i) {
            uint32_t sum = (uint32_t)q[i];
            for (int32_t t = 0; t < 9; ++t) {
                const int32_t w = q[4 + 2 * t + i % 2];
                const int32_t weight = i < 2 ? (int32_t)(int16_t)(uint16_t)((uint32_t)w & 0xffffu) : w >> 16;
                sum += (uint32_t)(nine->taps[t][c + i] * weight);
            }
            nine->out[c + i] = uma_dsp_twice((int32_t)sum, q[22 + 3 * i], q[23 + 3 * i], q[24 + 3 * i]);
        }
    }
}
#endif

/* `across` pixels of a row. The rows of the window from `above` up to `end` are those of a picture, which begins with
 * them; the window of the first pixel begins `left` columns before it. `zeros` are as many as there are channels, which
 * are a multiple of four. */
#define UMA_DSP_ROW_OF_TAPS(first, pointer, step)                                                                      \
    do {                                                                                                               \
        const int8_t *const tap = pointer;                                                                             \
        nine.taps[first] = tap;                                                                                        \
        nine.taps[(first) + 1] = tap + (step);                                                                         \
        nine.taps[(first) + 2] = tap + 2 * (step);                                                                     \
    } while (0)
UMA_DSP_CALLED void uma_dsp_depth(int8_t *out, const int8_t *picture, const int8_t *zeros, const int32_t *q, int32_t above,
                                  int32_t end, int32_t width, int32_t channels, int32_t stride, int32_t left, int32_t across)
{
    /* A row that is not there is one of zeros, which goes on for ever. */
    const int32_t line = width * channels, beyond = 3 <= end ? 3 : end;
    const int32_t step0 = above > 0 || beyond < 1 ? 0 : channels, step1 = above > 1 || beyond < 2 ? 0 : channels;
    const int32_t step2 = above > 2 || beyond < 3 ? 0 : channels;
    const int8_t *const row0 = step0 ? picture : zeros;
    const int8_t *const row1 = step1 ? picture + (1 - above) * line : zeros;
    const int8_t *const row2 = step2 ? picture + (2 - above) * line : zeros;
    uma_dsp_nine nine;
    nine.out = out;
    nine.channels = channels;
    for (int32_t x = -left; across > 0; --across, x += stride, nine.out += channels) {
        if (x >= 0 && x + 3 <= width) {
            UMA_DSP_ROW_OF_TAPS(0, row0 + x * step0, step0);
            UMA_DSP_ROW_OF_TAPS(3, row1 + x * step1, step1);
            UMA_DSP_ROW_OF_TAPS(6, row2 + x * step2, step2);
        } else {
            for (int32_t k = 0; k < 3; ++k) {
                const int32_t at = x + k, is_there = at >= 0 && at < width;
                nine.taps[k] = is_there ? row0 + at * step0 : zeros;
                nine.taps[k + 3] = is_there ? row1 + at * step1 : zeros;
                nine.taps[k + 6] = is_there ? row2 + at * step2 : zeros;
            }
        }
        uma_dsp_depth_pixel(&nine, q);
    }
}

#endif
