/* Sums of products of small integers, a vector of int32 at a time: what compilers do not make of loops.
 *
 * UMA_DOT2_i32x8(acc, a, w): acc[l] + a[0] * w[2 * l] + a[1] * w[2 * l + 1], of int16. One instruction and an addition.
 * UMA_DOT2W_i32x8: the same, w of int8: half the memory, for an instruction more where w is loaded.
 * UMA_DOT4_i32x8(acc, a, w): acc[l] + a[0] * w[4 * l] + .. + a[3] * w[4 * l + 3], a of uint8, w of int8. One instruction
 * of VNNI, in assembler: as a builtin it makes gcc 12 spill the accumulators.
 * UMA_SDOT4_i32x4: the same, a of int8. One instruction of NEON's dot product.
 * UMA_SDOT2_i32x4(acc, a, w): acc[l] + a[0] * w[2 * l] + a[1] * w[2 * l + 1], of int8. Two instructions of NEON.
 * UMA_ROWS2_i32x8(acc, a, stride, w): acc[l] + a[l] * w[2 * l] + a[stride + l] * w[2 * l + 1], a of int8, w of int16.
 * UMA_ROWS4_i32x8(acc, a, stride, w): of four rows, as UMA_DOT4 has its operands. Where rows are used again, compilers
 * bring them together once. UMA_SROWS2_i32x4, UMA_SROWS4_i32x4: as UMA_SDOT2 and UMA_SDOT4.
 *
 * acc is a vector, a and w are pointers, of no alignment. Sums wrap around. All forms give the same bits.
 */
#ifndef UMA_DOTS_H
#define UMA_DOTS_H

#include <string.h>

#include "uma_vectors.h"

#define UMA_DOT_SPLAT(n, pointer)                                                                                      \
    __extension__({                                                                                                    \
        int32_t uma_word;                                                                                              \
        memcpy(&uma_word, (pointer), sizeof uma_word);                                                                 \
        UMA_SPLAT(i32, n, uma_word);                                                                                   \
    })

/* The products of the low halves of words and of the high halves, added: vectors of int32 that are pairs of int16. */
#define UMA_PAIRS_PLAIN(n, p, q)                                                                                       \
    __extension__({                                                                                                    \
        const uma_i32x##n uma_p = (p), uma_q = (q);                                                                    \
        const uma_i32x##n uma_low = ((uma_i32x##n)((uma_u32x##n)uma_p << 16) >> 16) *                                  \
                                    ((uma_i32x##n)((uma_u32x##n)uma_q << 16) >> 16);                                   \
        (uma_i32x##n)((uma_u32x##n)uma_low + (uma_u32x##n)((uma_p >> 16) * (uma_q >> 16)));                            \
    })
/* As a function where compilers make much of it: gcc takes long for kernels that have it written out. */
#define UMA_PAIRING(n)                                                                                                 \
    __attribute__((noinline, unused)) static void uma_pairs_##n(uma_i32x##n *result, const uma_i32x##n *p,             \
                                                                const uma_i32x##n *q)                                  \
    {                                                                                                                  \
        *result = UMA_PAIRS_PLAIN(n, *p, *q);                                                                          \
    }
#define UMA_PAIRS_CALLED(n, p, q)                                                                                      \
    __extension__({                                                                                                    \
        const uma_i32x##n uma_x = (p), uma_y = (q);                                                                    \
        uma_i32x##n uma_r;                                                                                             \
        uma_pairs_##n(&uma_r, &uma_x, &uma_y);                                                                         \
        uma_r;                                                                                                         \
    })
#if defined(__SSE2__) && UMA_HAS(__builtin_ia32_pmaddwd128)
#define UMA_PAIRS_i32x4(p, q) ((uma_i32x4)__builtin_ia32_pmaddwd128((uma_hi8)(p), (uma_hi8)(q)))
#elif defined(__aarch64__)
#define UMA_PAIRS_i32x4(p, q)                                                                                          \
    __extension__({                                                                                                    \
        const uma_i32x4 uma_p = (p), uma_q = (q);                                                                      \
        uma_i32x4 uma_low, uma_high;                                                                                   \
        __asm__("smull %0.4s, %1.4h, %2.4h" : "=w"(uma_low) : "w"(uma_p), "w"(uma_q));                                 \
        __asm__("smull2 %0.4s, %1.8h, %2.8h" : "=w"(uma_high) : "w"(uma_p), "w"(uma_q));                               \
        __asm__("addp %0.4s, %0.4s, %1.4s" : "+w"(uma_low) : "w"(uma_high));                                           \
        uma_low;                                                                                                       \
    })
#else
#define UMA_PAIRS_i32x4(p, q) UMA_PAIRS_PLAIN(4, p, q)
#endif
#if defined(__AVX2__) && UMA_HAS(__builtin_ia32_pmaddwd256)
#define UMA_PAIRS_i32x8(p, q) ((uma_i32x8)__builtin_ia32_pmaddwd256((uma_hi16)(p), (uma_hi16)(q)))
#else
UMA_PAIRING(8)
#define UMA_PAIRS_i32x8(p, q) UMA_PAIRS_CALLED(8, p, q)
#endif
#if defined(__AVX512BW__) && UMA_HAS(__builtin_ia32_pmaddwd512_mask)
#define UMA_PAIRS_i32x16(p, q)                                                                                         \
    ((uma_i32x16)__builtin_ia32_pmaddwd512_mask((uma_hi32)(p), (uma_hi32)(q), (uma_si16){0}, (uint16_t)-1))
#elif defined(__AVX512BW__) && UMA_HAS(__builtin_ia32_pmaddwd512)
#define UMA_PAIRS_i32x16(p, q) ((uma_i32x16)__builtin_ia32_pmaddwd512((uma_hi32)(p), (uma_hi32)(q)))
#else
UMA_PAIRING(16)
#define UMA_PAIRS_i32x16(p, q) UMA_PAIRS_CALLED(16, p, q)
#endif

#define UMA_DOT2_SUM(n, acc, a, q)                                                                                     \
    ((uma_i32x##n)((uma_u32x##n)(acc) + (uma_u32x##n)UMA_PAIRS_i32x##n(UMA_DOT_SPLAT(n, a), q)))
#define UMA_DOT2_i32x4(acc, a, w) UMA_DOT2_SUM(4, acc, a, UMA_LOAD(i32, 4, w))
#define UMA_DOT2_i32x8(acc, a, w) UMA_DOT2_SUM(8, acc, a, UMA_LOAD(i32, 8, w))
#define UMA_DOT2_i32x16(acc, a, w) UMA_DOT2_SUM(16, acc, a, UMA_LOAD(i32, 16, w))
#define UMA_DOT2W_i32x4(acc, a, w) UMA_DOT2_SUM(4, acc, a, (uma_i32x4)UMA_WIDEN_i8_i16x8(UMA_LOAD(i8, 8, w)))
#define UMA_DOT2W_i32x8(acc, a, w) UMA_DOT2_SUM(8, acc, a, (uma_i32x8)UMA_WIDEN_i8_i16x16(UMA_LOAD(i8, 16, w)))
#define UMA_DOT2W_i32x16(acc, a, w) UMA_DOT2_SUM(16, acc, a, (uma_i32x16)UMA_WIDEN_i8_i16x32(UMA_LOAD(i8, 32, w)))

#define UMA_DOT4_BYTE(n, p, q, shift)                                                                                  \
    ((uma_u32x##n)((uma_i32x##n)(((uma_u32x##n)(p) >> (shift)) & 255u) *                                               \
                   ((uma_i32x##n)((uma_u32x##n)(q) << (24 - (shift))) >> 24)))
#define UMA_QUADS_PLAIN(n, acc, p, q)                                                                                  \
    __extension__({                                                                                                    \
        const uma_i32x##n uma_p = (p), uma_q = (q);                                                                    \
        (uma_i32x##n)((uma_u32x##n)(acc) + UMA_DOT4_BYTE(n, uma_p, uma_q, 0) + UMA_DOT4_BYTE(n, uma_p, uma_q, 8) +     \
                      UMA_DOT4_BYTE(n, uma_p, uma_q, 16) + UMA_DOT4_BYTE(n, uma_p, uma_q, 24));                        \
    })
#define UMA_QUADS_ASM(n, instruction, constraint, acc, p, q)                                                           \
    __extension__({                                                                                                    \
        uma_i32x##n uma_sum = (acc);                                                                                   \
        const uma_i32x##n uma_p = (p), uma_q = (q);                                                                    \
        __asm__(instruction " %2, %1, %0" : "+" constraint(uma_sum) : constraint(uma_p), constraint(uma_q));           \
        uma_sum;                                                                                                       \
    })
#if defined(__AVX512VNNI__)
#define UMA_QUADS_i32x16(acc, p, q) UMA_QUADS_ASM(16, "vpdpbusd", "v", acc, p, q)
#else
#define UMA_QUADS_i32x16(acc, p, q) UMA_QUADS_PLAIN(16, acc, p, q)
#endif
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define UMA_QUADS_i32x8(acc, p, q) UMA_QUADS_ASM(8, "vpdpbusd", "v", acc, p, q)
#define UMA_QUADS_i32x4(acc, p, q) UMA_QUADS_ASM(4, "vpdpbusd", "v", acc, p, q)
#elif defined(__AVXVNNI__)
#define UMA_QUADS_i32x8(acc, p, q) UMA_QUADS_ASM(8, "%{vex%} vpdpbusd", "x", acc, p, q)
#define UMA_QUADS_i32x4(acc, p, q) UMA_QUADS_ASM(4, "%{vex%} vpdpbusd", "x", acc, p, q)
#else
#define UMA_QUADS_i32x8(acc, p, q) UMA_QUADS_PLAIN(8, acc, p, q)
#define UMA_QUADS_i32x4(acc, p, q) UMA_QUADS_PLAIN(4, acc, p, q)
#endif
#define UMA_DOT4_i32x4(acc, a, w) UMA_QUADS_i32x4(acc, UMA_DOT_SPLAT(4, a), UMA_LOAD(i32, 4, w))
#define UMA_DOT4_i32x8(acc, a, w) UMA_QUADS_i32x8(acc, UMA_DOT_SPLAT(8, a), UMA_LOAD(i32, 8, w))
#define UMA_DOT4_i32x16(acc, a, w) UMA_QUADS_i32x16(acc, UMA_DOT_SPLAT(16, a), UMA_LOAD(i32, 16, w))

#define UMA_SQUAD_BYTE(p, q, shift)                                                                                    \
    ((uma_u32x4)(((uma_i32x4)((uma_u32x4)(p) << (24 - (shift))) >> 24) *                                               \
                 ((uma_i32x4)((uma_u32x4)(q) << (24 - (shift))) >> 24)))
#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define UMA_SQUADS(acc, p, q)                                                                                          \
    __extension__({                                                                                                    \
        uma_i32x4 uma_sum = (acc);                                                                                     \
        const uma_i32x4 uma_p = (p), uma_q = (q);                                                                      \
        __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(uma_sum) : "w"(uma_p), "w"(uma_q));                                \
        uma_sum;                                                                                                       \
    })
#define UMA_SDOT4_i32x4(acc, a, w)                                                                                     \
    __extension__({                                                                                                    \
        uma_i32x4 uma_sum = (acc);                                                                                     \
        const uma_i32x4 uma_q = UMA_LOAD(i32, 4, w);                                                                   \
        uma_low_word uma_p;                                                                                            \
        memcpy(&uma_p, (a), sizeof uma_p);                                                                             \
        __asm__("sdot %0.4s, %2.16b, %1.4b[0]" : "+w"(uma_sum) : "w"(uma_p), "w"(uma_q));                              \
        uma_sum;                                                                                                       \
    })
#else
#define UMA_SQUADS(acc, p, q)                                                                                          \
    __extension__({                                                                                                    \
        const uma_i32x4 uma_p = (p), uma_q = (q);                                                                      \
        (uma_i32x4)((uma_u32x4)(acc) + UMA_SQUAD_BYTE(uma_p, uma_q, 0) + UMA_SQUAD_BYTE(uma_p, uma_q, 8) +             \
                    UMA_SQUAD_BYTE(uma_p, uma_q, 16) + UMA_SQUAD_BYTE(uma_p, uma_q, 24));                              \
    })
#define UMA_SDOT4_i32x4(acc, a, w) UMA_SQUADS(acc, UMA_DOT_SPLAT(4, a), UMA_LOAD(i32, 4, w))
#endif

/* Vectors of eight bytes. The products of two fit 16 bits, their sum does not: -128 * -128 + -128 * -128. */
#if defined(__aarch64__)
#define UMA_SPAIRS(acc, p, q)                                                                                          \
    __extension__({                                                                                                    \
        uma_i32x4 uma_sum = (acc);                                                                                     \
        const uma_i8x8 uma_p = (p), uma_q = (q);                                                                       \
        uma_i16x8 uma_products;                                                                                        \
        __asm__("smull %0.8h, %1.8b, %2.8b" : "=w"(uma_products) : "w"(uma_p), "w"(uma_q));                            \
        __asm__("sadalp %0.4s, %1.8h" : "+w"(uma_sum) : "w"(uma_products));                                            \
        uma_sum;                                                                                                       \
    })
#else
#define UMA_SPAIRS(acc, p, q)                                                                                          \
    __extension__({                                                                                                    \
        const uma_i16x4 uma_p = (uma_i16x4)(p), uma_q = (uma_i16x4)(q);                                                \
        const uma_i32x4 uma_x = UMA_WIDEN_i16_i32x4(uma_p), uma_y = UMA_WIDEN_i16_i32x4(uma_q);                        \
        (uma_i32x4)((uma_u32x4)(acc) + UMA_SQUAD_BYTE(uma_x, uma_y, 0) + UMA_SQUAD_BYTE(uma_x, uma_y, 8));             \
    })
#endif
#define UMA_SDOT2_SPLAT(pointer)                                                                                       \
    __extension__({                                                                                                    \
        int16_t uma_pair;                                                                                              \
        memcpy(&uma_pair, (pointer), sizeof uma_pair);                                                                 \
        (uma_i8x8) UMA_SPLAT(i16, 4, uma_pair);                                                                        \
    })
#define UMA_SDOT2_i32x4(acc, a, w) UMA_SPAIRS(acc, UMA_SDOT2_SPLAT(a), UMA_LOAD(i8, 8, w))

/* The same channels of several rows, one below the other, as the groups of the lanes. */
#define UMA_DOT_ROW(t, n, a, stride, row, shift)                                                                       \
    ((uma_u32x##n)UMA_WIDEN_##t##_i32x##n(UMA_LOAD(t, n, (const char *)(a) + (row) * (stride))) << (shift))
#define UMA_TWO_ROWS_PLAIN(n, a, stride)                                                                               \
    ((uma_i32x##n)((UMA_DOT_ROW(i8, n, a, stride, 0, 0) & 0xFFFFu) | UMA_DOT_ROW(i8, n, a, stride, 1, 16)))
#define UMA_FOUR_ROWS(n, a, stride)                                                                                    \
    ((uma_i32x##n)(UMA_DOT_ROW(u8, n, a, stride, 0, 0) | UMA_DOT_ROW(u8, n, a, stride, 1, 8) |                         \
                   UMA_DOT_ROW(u8, n, a, stride, 2, 16) | UMA_DOT_ROW(u8, n, a, stride, 3, 24)))
#if defined(__AVX2__) && UMA_HAS(__builtin_shufflevector)
#define UMA_TWO_ROWS_8(a, stride)                                                                                      \
    __extension__({                                                                                                    \
        const uma_i64x2 uma_p = UMA_LOW8(UMA_LOAD(i8, 8, a));                                                          \
        const uma_i64x2 uma_q = UMA_LOW8(UMA_LOAD(i8, 8, (const char *)(a) + (stride)));                               \
        (uma_i32x8)UMA_WIDEN_i8_i16x16(                                                                                \
            __builtin_shufflevector((uma_i8x16)uma_p, (uma_i8x16)uma_q, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,             \
                                    5, 21, 6, 22, 7, 23));                                                             \
    })
#else
#define UMA_TWO_ROWS_8(a, stride) UMA_TWO_ROWS_PLAIN(8, a, stride)
#endif
#define UMA_TWO_ROWS_4(a, stride) UMA_TWO_ROWS_PLAIN(4, a, stride)
#define UMA_TWO_ROWS_16(a, stride) UMA_TWO_ROWS_PLAIN(16, a, stride)
#define UMA_ROWS2(n, acc, a, stride, w)                                                                                \
    ((uma_i32x##n)((uma_u32x##n)(acc) +                                                                                \
                   (uma_u32x##n)UMA_PAIRS_i32x##n(UMA_TWO_ROWS_##n(a, stride), UMA_LOAD(i32, n, w))))
#define UMA_ROWS2_i32x4(acc, a, stride, w) UMA_ROWS2(4, acc, a, stride, w)
#define UMA_ROWS2_i32x8(acc, a, stride, w) UMA_ROWS2(8, acc, a, stride, w)
#define UMA_ROWS2_i32x16(acc, a, stride, w) UMA_ROWS2(16, acc, a, stride, w)
#define UMA_ROWS4_i32x4(acc, a, stride, w)                                                                             \
    UMA_QUADS_i32x4(acc, UMA_FOUR_ROWS(4, a, stride), UMA_LOAD(i32, 4, w))
#define UMA_ROWS4_i32x8(acc, a, stride, w)                                                                             \
    UMA_QUADS_i32x8(acc, UMA_FOUR_ROWS(8, a, stride), UMA_LOAD(i32, 8, w))
#define UMA_ROWS4_i32x16(acc, a, stride, w)                                                                            \
    UMA_QUADS_i32x16(acc, UMA_FOUR_ROWS(16, a, stride), UMA_LOAD(i32, 16, w))

#if defined(__aarch64__)
#define UMA_ZIPPED(n, to, from, p, q)                                                                                  \
    __extension__({                                                                                                    \
        const uma_##from uma_zip_p = (p), uma_zip_q = (q);                                                             \
        uma_##to uma_r;                                                                                                \
        __asm__("zip1 %0." n ", %1." n ", %2." n : "=w"(uma_r) : "w"(uma_zip_p), "w"(uma_zip_q));                      \
        uma_r;                                                                                                         \
    })
#define UMA_BYTE_ROW(a, stride, row)                                                                                   \
    __extension__({                                                                                                    \
        uma_low_word uma_word;                                                                                         \
        memcpy(&uma_word, (const char *)(a) + (row) * (stride), sizeof uma_word);                                      \
        uma_word;                                                                                                      \
    })
#define UMA_BYTE_ROWS(a, stride, row, next)                                                                            \
    UMA_ZIPPED("8b", i8x8, low_word, UMA_BYTE_ROW(a, stride, row), UMA_BYTE_ROW(a, stride, next))
#define UMA_TWO_BYTE_ROWS(a, stride) UMA_BYTE_ROWS(a, stride, 0, 1)
#define UMA_FOUR_BYTE_ROWS(a, stride)                                                                                  \
    UMA_ZIPPED("16b", i32x4, i8x8, UMA_BYTE_ROWS(a, stride, 0, 2), UMA_BYTE_ROWS(a, stride, 1, 3))
#else
#define UMA_TWO_BYTE_ROWS(a, stride)                                                                                   \
    ((uma_i8x8)UMA_CONVERT(u16, 4, (UMA_DOT_ROW(u8, 4, a, stride, 0, 0) | UMA_DOT_ROW(u8, 4, a, stride, 1, 8))))
#define UMA_FOUR_BYTE_ROWS(a, stride) UMA_FOUR_ROWS(4, a, stride)
#endif
#define UMA_SROWS2_i32x4(acc, a, stride, w) UMA_SPAIRS(acc, UMA_TWO_BYTE_ROWS(a, stride), UMA_LOAD(i8, 8, w))
#define UMA_SROWS4_i32x4(acc, a, stride, w) UMA_SQUADS(acc, UMA_FOUR_BYTE_ROWS(a, stride), UMA_LOAD(i32, 4, w))

#endif
