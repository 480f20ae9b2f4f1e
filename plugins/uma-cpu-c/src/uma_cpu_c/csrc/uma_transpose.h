/* Matrices transposed: what compilers do not make of loops.
 *
 * uma_transpose_8, _16, _32, _64: y[j, i] = x[i, j] for all i below `rows` and j below `columns`, of elements of so
 * many bits, which are moved as they are. `to` and `from` are the bytes from one row to the next, of y and of x. There
 * are as many rows and columns, at least, as there are elements in 16 bytes.
 *
 * A block has 16 bytes of a row, and as many rows as make a vector of the result. It is transposed in registers. The
 * parts of 16 bytes of a vector are of rows that lie as far apart as they have elements: so all happens within parts.
 * The last block begins before the end of the one before it where there is no more: some is written twice then.
 */
#ifndef UMA_TRANSPOSE_H
#define UMA_TRANSPOSE_H

#include <stddef.h>

#include "uma_vectors.h"

/* Lanes of two vectors, those of the second counted on. gcc knows the first form since 12. */
#if UMA_HAS(__builtin_shufflevector)
#define UMA_MIX(t, n, a, b, ...) __builtin_shufflevector((a), (b), __VA_ARGS__)
#else
#define UMA_MIX(t, n, a, b, ...) __builtin_shuffle((a), (b), (uma_##t##x##n){__VA_ARGS__})
#endif

/* The low, or high, halves of the parts of two vectors, one element of each in turn. */
#define UMA_TURNS_2(n, i) (i), (n) + (i), (i) + 1, (n) + (i) + 1
#define UMA_TURNS_4(n, i) UMA_TURNS_2(n, i), UMA_TURNS_2(n, (i) + 2)
#define UMA_TURNS_8(n, i) UMA_TURNS_4(n, i), UMA_TURNS_4(n, (i) + 4)
#define UMA_LOW_i64x2(a, b) UMA_MIX(i64, 2, a, b, 0, 2)
#define UMA_HIGH_i64x2(a, b) UMA_MIX(i64, 2, a, b, 1, 3)
#define UMA_LOW_i64x4(a, b) UMA_MIX(i64, 4, a, b, 0, 4, 2, 6)
#define UMA_HIGH_i64x4(a, b) UMA_MIX(i64, 4, a, b, 1, 5, 3, 7)
#define UMA_LOW_i64x8(a, b) UMA_MIX(i64, 8, a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define UMA_HIGH_i64x8(a, b) UMA_MIX(i64, 8, a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#define UMA_PARTS_1(turns, n, i, e) UMA_TURNS_##turns(n, i)
#define UMA_PARTS_2(turns, n, i, e) UMA_TURNS_##turns(n, i), UMA_TURNS_##turns(n, (i) + (e))
#define UMA_PARTS_4(turns, n, i, e) UMA_PARTS_2(turns, n, i, e), UMA_PARTS_2(turns, n, (i) + 2 * (e), e)
#define UMA_LOW_i32x4(a, b) UMA_MIX(i32, 4, a, b, UMA_PARTS_1(2, 4, 0, 4))
#define UMA_HIGH_i32x4(a, b) UMA_MIX(i32, 4, a, b, UMA_PARTS_1(2, 4, 2, 4))
#define UMA_LOW_i32x8(a, b) UMA_MIX(i32, 8, a, b, UMA_PARTS_2(2, 8, 0, 4))
#define UMA_HIGH_i32x8(a, b) UMA_MIX(i32, 8, a, b, UMA_PARTS_2(2, 8, 2, 4))
#define UMA_LOW_i32x16(a, b) UMA_MIX(i32, 16, a, b, UMA_PARTS_4(2, 16, 0, 4))
#define UMA_HIGH_i32x16(a, b) UMA_MIX(i32, 16, a, b, UMA_PARTS_4(2, 16, 2, 4))
#define UMA_LOW_i16x8(a, b) UMA_MIX(i16, 8, a, b, UMA_PARTS_1(4, 8, 0, 8))
#define UMA_HIGH_i16x8(a, b) UMA_MIX(i16, 8, a, b, UMA_PARTS_1(4, 8, 4, 8))
#define UMA_LOW_i16x16(a, b) UMA_MIX(i16, 16, a, b, UMA_PARTS_2(4, 16, 0, 8))
#define UMA_HIGH_i16x16(a, b) UMA_MIX(i16, 16, a, b, UMA_PARTS_2(4, 16, 4, 8))
#define UMA_LOW_i16x32(a, b) UMA_MIX(i16, 32, a, b, UMA_PARTS_4(4, 32, 0, 8))
#define UMA_HIGH_i16x32(a, b) UMA_MIX(i16, 32, a, b, UMA_PARTS_4(4, 32, 4, 8))
#define UMA_LOW_i8x16(a, b) UMA_MIX(i8, 16, a, b, UMA_PARTS_1(8, 16, 0, 16))
#define UMA_HIGH_i8x16(a, b) UMA_MIX(i8, 16, a, b, UMA_PARTS_1(8, 16, 8, 16))
#define UMA_LOW_i8x32(a, b) UMA_MIX(i8, 32, a, b, UMA_PARTS_2(8, 32, 0, 16))
#define UMA_HIGH_i8x32(a, b) UMA_MIX(i8, 32, a, b, UMA_PARTS_2(8, 32, 8, 16))
#define UMA_LOW_i8x64(a, b) UMA_MIX(i8, 64, a, b, UMA_PARTS_4(8, 64, 0, 16))
#define UMA_HIGH_i8x64(a, b) UMA_MIX(i8, 64, a, b, UMA_PARTS_4(8, 64, 8, 16))

/* 16 bytes of rows `apart` bytes apart, as a vector: of 1, 2 and 4 of them. Rows of bytes begin anywhere. */
#define UMA_STACK_1(x, apart) ((uma_i64x2)UMA_LOAD(i8, 16, x))
#define UMA_STACK_2(x, apart)                                                                                          \
    __builtin_shufflevector(UMA_STACK_1(x, apart), UMA_STACK_1((x) + (apart), apart), 0, 1, 2, 3)
#define UMA_STACK_4(x, apart)                                                                                          \
    __builtin_shufflevector(UMA_STACK_2(x, apart), UMA_STACK_2((x) + 2 * (apart), apart), 0, 1, 2, 3, 4, 5, 6, 7)

/* Pairs of vectors h apart, dealt out: as often as their number can be halved, that transposes each part. */
#define UMA_DEAL(tn, to, from, k, h)                                                                                   \
    to[2 * (k)] = UMA_LOW_##tn(from[k], from[(k) + (h)]);                                                              \
    to[2 * (k) + 1] = UMA_HIGH_##tn(from[k], from[(k) + (h)]);
#define UMA_DEAL_2(tn, to, from) UMA_DEAL(tn, to, from, 0, 1)
#define UMA_DEAL_4(tn, to, from) UMA_DEAL(tn, to, from, 0, 2) UMA_DEAL(tn, to, from, 1, 2)
#define UMA_DEAL_8(tn, to, from)                                                                                       \
    UMA_DEAL(tn, to, from, 0, 4) UMA_DEAL(tn, to, from, 1, 4) UMA_DEAL(tn, to, from, 2, 4) UMA_DEAL(tn, to, from, 3, 4)
#define UMA_DEAL_16(tn, to, from)                                                                                      \
    UMA_DEAL(tn, to, from, 0, 8) UMA_DEAL(tn, to, from, 1, 8) UMA_DEAL(tn, to, from, 2, 8)                             \
    UMA_DEAL(tn, to, from, 3, 8) UMA_DEAL(tn, to, from, 4, 8) UMA_DEAL(tn, to, from, 5, 8)                             \
    UMA_DEAL(tn, to, from, 6, 8) UMA_DEAL(tn, to, from, 7, 8)
#define UMA_DEALT_2(tn, a, b) UMA_DEAL_2(tn, b, a)
#define UMA_DEALT_4(tn, a, b) UMA_DEAL_4(tn, b, a) UMA_DEAL_4(tn, a, b)
#define UMA_DEALT_8(tn, a, b) UMA_DEAL_8(tn, b, a) UMA_DEAL_8(tn, a, b) UMA_DEAL_8(tn, b, a)
#define UMA_DEALT_16(tn, a, b) UMA_DEAL_16(tn, b, a) UMA_DEAL_16(tn, a, b) UMA_DEAL_16(tn, b, a) UMA_DEAL_16(tn, a, b)
#define UMA_LAST_2(a, b) b
#define UMA_LAST_4(a, b) a
#define UMA_LAST_8(a, b) b
#define UMA_LAST_16(a, b) a

/* Blocks of e columns and e * parts rows, of e elements in 16 bytes; n is e * parts. */
#define UMA_TRANSPOSE_BLOCKS(bits, t, n, e, parts)                                                                     \
    static inline void uma_transpose_##bits##_by_##parts(unsigned char *y, ptrdiff_t to, const unsigned char *x,       \
                                                         ptrdiff_t from)                                               \
    {                                                                                                                  \
        uma_##t##x##n a[e], b[e];                                                                                      \
        UMA_UP_##e(UMA_FILL, t, n, parts, e)                                                                           \
        UMA_DEALT_##e(t##x##n, a, b)                                                                                   \
        UMA_UP_##e(UMA_DROP, t, n, parts, e)                                                                           \
    }
#define UMA_FILL(k, t, n, parts, e) a[k] = (uma_##t##x##n)UMA_STACK_##parts(x + (k) * from, (e) * from);
#define UMA_DROP(k, t, n, parts, e) UMA_STORE(t, n, y + (k) * to, UMA_LAST_##e(a, b)[k]);
#define UMA_UP_2(f, ...) f(0, __VA_ARGS__) f(1, __VA_ARGS__)
#define UMA_UP_4(f, ...) UMA_UP_2(f, __VA_ARGS__) f(2, __VA_ARGS__) f(3, __VA_ARGS__)
#define UMA_UP_8(f, ...)                                                                                               \
    UMA_UP_4(f, __VA_ARGS__) f(4, __VA_ARGS__) f(5, __VA_ARGS__) f(6, __VA_ARGS__) f(7, __VA_ARGS__)
#define UMA_UP_16(f, ...)                                                                                              \
    UMA_UP_8(f, __VA_ARGS__)                                                                                           \
    f(8, __VA_ARGS__) f(9, __VA_ARGS__) f(10, __VA_ARGS__) f(11, __VA_ARGS__) f(12, __VA_ARGS__)                       \
    f(13, __VA_ARGS__) f(14, __VA_ARGS__) f(15, __VA_ARGS__)

UMA_TRANSPOSE_BLOCKS(8, i8, 16, 16, 1)
UMA_TRANSPOSE_BLOCKS(16, i16, 8, 8, 1)
UMA_TRANSPOSE_BLOCKS(32, i32, 4, 4, 1)
UMA_TRANSPOSE_BLOCKS(64, i64, 2, 2, 1)
#if defined(__AVX2__) && UMA_HAS(__builtin_shufflevector)
#define UMA_TRANSPOSE_2 1
UMA_TRANSPOSE_BLOCKS(8, i8, 32, 16, 2)
UMA_TRANSPOSE_BLOCKS(16, i16, 16, 8, 2)
UMA_TRANSPOSE_BLOCKS(32, i32, 8, 4, 2)
UMA_TRANSPOSE_BLOCKS(64, i64, 4, 2, 2)
#else
#define UMA_TRANSPOSE_2 0
#define uma_transpose_8_by_2 uma_transpose_8_by_1
#define uma_transpose_16_by_2 uma_transpose_16_by_1
#define uma_transpose_32_by_2 uma_transpose_32_by_1
#define uma_transpose_64_by_2 uma_transpose_64_by_1
#endif
#if defined(__AVX512BW__) && UMA_HAS(__builtin_shufflevector)
#define UMA_TRANSPOSE_4 1
UMA_TRANSPOSE_BLOCKS(8, i8, 64, 16, 4)
UMA_TRANSPOSE_BLOCKS(16, i16, 32, 8, 4)
UMA_TRANSPOSE_BLOCKS(32, i32, 16, 4, 4)
UMA_TRANSPOSE_BLOCKS(64, i64, 8, 2, 4)
#else
#define UMA_TRANSPOSE_4 0
#define uma_transpose_8_by_4 uma_transpose_8_by_2
#define uma_transpose_16_by_4 uma_transpose_16_by_2
#define uma_transpose_32_by_4 uma_transpose_32_by_2
#define uma_transpose_64_by_4 uma_transpose_64_by_2
#endif

/* All blocks, those of a line of the data one after the other. Which side is gone along first is told by which is the
 * longer one: what is read and written in turns is near then. */
#define UMA_TRANSPOSE_ALL(bits, e, parts)                                                                              \
    do {                                                                                                               \
        const int32_t high = (e) * (parts), wide = rows < columns ? columns : 4 * (e);                                 \
        for (int32_t side = 0; side < columns; side += wide)                                                           \
            for (int32_t r = 0; r < rows; r += high)                                                                   \
                for (int32_t c = side; c < columns && c < side + wide; c += (e)) {                                     \
                    const ptrdiff_t i = r + high <= rows ? r : rows - high;                                            \
                    const ptrdiff_t j = c + (e) <= columns ? c : columns - (e);                                        \
                    uma_transpose_##bits##_by_##parts(y + j * to + i * ((bits) / 8), to,                               \
                                                      x + i * from + j * ((bits) / 8), from);                          \
                }                                                                                                      \
    } while (0)
#define UMA_TRANSPOSE(bits, e)                                                                                         \
    __attribute__((unused)) static void uma_transpose_##bits(void *result, int32_t to, const void *data, int32_t from, \
                                                             int32_t rows, int32_t columns)                            \
    {                                                                                                                  \
        unsigned char *y = (unsigned char *)result;                                                                    \
        const unsigned char *x = (const unsigned char *)data;                                                          \
        if (UMA_TRANSPOSE_4 && rows >= 4 * (e))                                                                        \
            UMA_TRANSPOSE_ALL(bits, e, 4);                                                                             \
        else if (UMA_TRANSPOSE_2 && rows >= 2 * (e))                                                                   \
            UMA_TRANSPOSE_ALL(bits, e, 2);                                                                             \
        else                                                                                                           \
            UMA_TRANSPOSE_ALL(bits, e, 1);                                                                             \
    }

UMA_TRANSPOSE(8, 16)
UMA_TRANSPOSE(16, 8)
UMA_TRANSPOSE(32, 4)
UMA_TRANSPOSE(64, 2)

#endif
