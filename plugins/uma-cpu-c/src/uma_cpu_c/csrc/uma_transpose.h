/* Blocks of a matrix of 32-bit numbers, transposed in registers: what compilers do not make of loops.
 *
 * uma_transpose_4 and uma_transpose_8: y[j, i] = x[i, j] for all i and j below 4, or below 8. x and y are pointers to
 * floats or integers, `from` and `to` the bytes from one row to the next. The bits are moved as they are.
 */
#ifndef UMA_TRANSPOSE_H
#define UMA_TRANSPOSE_H

#include "uma_vectors.h"

/* Lanes of two vectors, those of the second counted on. gcc knows the first form since 12. */
#if UMA_HAS(__builtin_shufflevector)
#define UMA_MIX(n, a, b, ...) __builtin_shufflevector((a), (b), __VA_ARGS__)
#else
#define UMA_MIX(n, a, b, ...) __builtin_shuffle((a), (b), (uma_i32x##n){__VA_ARGS__})
#endif
#define UMA_ROW(n, x, from, i) UMA_LOAD(i32, n, (const unsigned char *)(x) + (i) * (from))
#define UMA_TO_ROW(n, y, to, i, vector) UMA_STORE(i32, n, (unsigned char *)(y) + (i) * (to), vector)

static inline void uma_transpose_4(void *y, int32_t to, const void *x, int32_t from)
{
    const uma_i32x4 a = UMA_ROW(4, x, from, 0), b = UMA_ROW(4, x, from, 1);
    const uma_i32x4 c = UMA_ROW(4, x, from, 2), d = UMA_ROW(4, x, from, 3);
    const uma_i32x4 ab = UMA_MIX(4, a, b, 0, 4, 1, 5), ab2 = UMA_MIX(4, a, b, 2, 6, 3, 7);
    const uma_i32x4 cd = UMA_MIX(4, c, d, 0, 4, 1, 5), cd2 = UMA_MIX(4, c, d, 2, 6, 3, 7);

    UMA_TO_ROW(4, y, to, 0, UMA_MIX(4, ab, cd, 0, 1, 4, 5));
    UMA_TO_ROW(4, y, to, 1, UMA_MIX(4, ab, cd, 2, 3, 6, 7));
    UMA_TO_ROW(4, y, to, 2, UMA_MIX(4, ab2, cd2, 0, 1, 4, 5));
    UMA_TO_ROW(4, y, to, 3, UMA_MIX(4, ab2, cd2, 2, 3, 6, 7));
}

/* Columns k and k + 4 of four rows, for k = 0, .. 3, in one vector each. */
#define UMA_COLUMNS(r0, r1, r2, r3, x, from, i)                                                                        \
    do {                                                                                                               \
        const uma_i32x8 uma_a = UMA_ROW(8, x, from, i), uma_b = UMA_ROW(8, x, from, i + 1);                            \
        const uma_i32x8 uma_c = UMA_ROW(8, x, from, i + 2), uma_d = UMA_ROW(8, x, from, i + 3);                        \
        const uma_i32x8 uma_p = UMA_MIX(8, uma_a, uma_b, 0, 8, 1, 9, 4, 12, 5, 13);                                    \
        const uma_i32x8 uma_q = UMA_MIX(8, uma_c, uma_d, 0, 8, 1, 9, 4, 12, 5, 13);                                    \
        const uma_i32x8 uma_s = UMA_MIX(8, uma_a, uma_b, 2, 10, 3, 11, 6, 14, 7, 15);                                  \
        const uma_i32x8 uma_t = UMA_MIX(8, uma_c, uma_d, 2, 10, 3, 11, 6, 14, 7, 15);                                  \
        r0 = UMA_MIX(8, uma_p, uma_q, 0, 1, 8, 9, 4, 5, 12, 13);                                                       \
        r1 = UMA_MIX(8, uma_p, uma_q, 2, 3, 10, 11, 6, 7, 14, 15);                                                     \
        r2 = UMA_MIX(8, uma_s, uma_t, 0, 1, 8, 9, 4, 5, 12, 13);                                                       \
        r3 = UMA_MIX(8, uma_s, uma_t, 2, 3, 10, 11, 6, 7, 14, 15);                                                     \
    } while (0)

/* The low halves of two vectors, and the high ones. */
#define UMA_HALVES(y, to, k, a, b)                                                                                     \
    do {                                                                                                               \
        UMA_TO_ROW(8, y, to, k, UMA_MIX(8, a, b, 0, 1, 2, 3, 8, 9, 10, 11));                                           \
        UMA_TO_ROW(8, y, to, k + 4, UMA_MIX(8, a, b, 4, 5, 6, 7, 12, 13, 14, 15));                                     \
    } while (0)

static inline void uma_transpose_8(void *y, int32_t to, const void *x, int32_t from)
{
    uma_i32x8 a0, a1, a2, a3, b0, b1, b2, b3;

    UMA_COLUMNS(a0, a1, a2, a3, x, from, 0);
    UMA_COLUMNS(b0, b1, b2, b3, x, from, 4);
    UMA_HALVES(y, to, 0, a0, b0);
    UMA_HALVES(y, to, 1, a1, b1);
    UMA_HALVES(y, to, 2, a2, b2);
    UMA_HALVES(y, to, 3, a3, b3);
}

#endif
