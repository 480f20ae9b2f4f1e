/* Vectors for generated kernels: the vector types of gcc and clang, and what these compilers print badly.
 *
 * uma_f32x8 has 8 lanes of float; comparisons give masks, uma_i32x8 of 0 and -1. All is macros, which a compiler sees
 * where a kernel uses them: vectors that are passed by value have an ABI, of which gcc and clang warn wherever the
 * machine's own vectors are smaller, inlined or not. Arguments t, n are a type and a number of lanes: f32, 8. Every
 * form gives the same bits as the scalar one of uma_math.h. Forms for an instruction set are taken where the compiler
 * has the builtin for it; immintrin.h would take longer to compile than most kernels (0.3 s).
 */
#ifndef UMA_VECTORS_H
#define UMA_VECTORS_H

#include "uma_math.h"

#if !defined(__GNUC__)
#error "kernels in vectors need the vector types of gcc or clang: build for another mcpu, or with opt=s"
#endif
#if defined(__has_builtin)
#define UMA_HAS(builtin) __has_builtin(builtin)
#else
#define UMA_HAS(builtin) 0
#endif

/* uma_f32x8, and uma_f32x8_at, which may lie wherever an element may, in memory of whatever type. */
#define UMA_DEFINE_VECTOR(t, type, n)                                                                                  \
    typedef type uma_##t##x##n __attribute__((vector_size(n * sizeof(type))));                                         \
    typedef type uma_##t##x##n##_at __attribute__((vector_size(n * sizeof(type)), aligned(sizeof(type)), may_alias));
#define UMA_DEFINE_VECTORS(t, type)                                                                                    \
    UMA_DEFINE_VECTOR(t, type, 2)                                                                                      \
    UMA_DEFINE_VECTOR(t, type, 4)                                                                                      \
    UMA_DEFINE_VECTOR(t, type, 8)                                                                                      \
    UMA_DEFINE_VECTOR(t, type, 16)                                                                                     \
    UMA_DEFINE_VECTOR(t, type, 32)                                                                                     \
    UMA_DEFINE_VECTOR(t, type, 64)

UMA_DEFINE_VECTORS(i8, int8_t)
UMA_DEFINE_VECTORS(u8, uint8_t)
UMA_DEFINE_VECTORS(i16, int16_t)
UMA_DEFINE_VECTORS(u16, uint16_t)
UMA_DEFINE_VECTORS(i32, int32_t)
UMA_DEFINE_VECTORS(u32, uint32_t)
UMA_DEFINE_VECTORS(i64, int64_t)
UMA_DEFINE_VECTORS(u64, uint64_t)
UMA_DEFINE_VECTORS(f16, uint16_t)
UMA_DEFINE_VECTORS(f32, float)
UMA_DEFINE_VECTORS(f64, double)

/* As builtins know them: of char, which is a third type beside int8_t and uint8_t, of short, int and long long. */
typedef char uma_qi16 __attribute__((vector_size(16)));
typedef char uma_qi32 __attribute__((vector_size(32)));
typedef short uma_hi8 __attribute__((vector_size(16)));
typedef short uma_hi16 __attribute__((vector_size(32)));
typedef short uma_hi32 __attribute__((vector_size(64)));
typedef int uma_si4 __attribute__((vector_size(16)));
typedef int uma_si16 __attribute__((vector_size(64)));
typedef long long uma_di8 __attribute__((vector_size(64)));

#define UMA_LOAD(t, n, pointer) ((uma_##t##x##n)(*(const uma_##t##x##n##_at *)(pointer)))
#define UMA_STORE(t, n, pointer, vector) (*(uma_##t##x##n##_at *)(pointer) = (vector))

/* A scalar in all lanes. */
#define UMA_SPLAT(t, n, scalar)                                                                                        \
    __extension__({                                                                                                    \
        const __typeof__((uma_##t##x##n){0}[0]) uma_s = (scalar);                                                      \
        (uma_##t##x##n){UMA_REPEAT_##n(uma_s)};                                                                        \
    })
#define UMA_REPEAT_2(s) s, s
#define UMA_REPEAT_4(s) UMA_REPEAT_2(s), UMA_REPEAT_2(s)
#define UMA_REPEAT_8(s) UMA_REPEAT_4(s), UMA_REPEAT_4(s)
#define UMA_REPEAT_16(s) UMA_REPEAT_8(s), UMA_REPEAT_8(s)
#define UMA_REPEAT_32(s) UMA_REPEAT_16(s), UMA_REPEAT_16(s)
#define UMA_REPEAT_64(s) UMA_REPEAT_32(s), UMA_REPEAT_32(s)

/* The numbers of the lanes. */
#define UMA_IOTA(t, n) ((uma_##t##x##n){UMA_COUNT_##n(0)})
#define UMA_COUNT_2(s) (s), (s) + 1
#define UMA_COUNT_4(s) UMA_COUNT_2(s), UMA_COUNT_2((s) + 2)
#define UMA_COUNT_8(s) UMA_COUNT_4(s), UMA_COUNT_4((s) + 4)
#define UMA_COUNT_16(s) UMA_COUNT_8(s), UMA_COUNT_8((s) + 8)
#define UMA_COUNT_32(s) UMA_COUNT_16(s), UMA_COUNT_16((s) + 16)
#define UMA_COUNT_64(s) UMA_COUNT_32(s), UMA_COUNT_32((s) + 32)

/* A function of scalars, for each lane: for what no instruction does. */
#define UMA_LANES(t, n, function, a)                                                                                   \
    __extension__({                                                                                                    \
        const __auto_type uma_a = (a);                                                                                 \
        uma_##t##x##n uma_r = {0};                                                                                     \
        for (int uma_l = 0; uma_l < n; ++uma_l) uma_r[uma_l] = function(uma_a[uma_l]);                                 \
        uma_r;                                                                                                         \
    })
#define UMA_LANES2(t, n, function, a, b)                                                                               \
    __extension__({                                                                                                    \
        const __auto_type uma_a = (a);                                                                                 \
        const __auto_type uma_b = (b);                                                                                 \
        uma_##t##x##n uma_r = {0};                                                                                     \
        for (int uma_l = 0; uma_l < n; ++uma_l) uma_r[uma_l] = function(uma_a[uma_l], uma_b[uma_l]);                   \
        uma_r;                                                                                                         \
    })
#define UMA_LANES3(t, n, function, a, b, c)                                                                            \
    __extension__({                                                                                                    \
        const __auto_type uma_a = (a);                                                                                 \
        const __auto_type uma_b = (b);                                                                                 \
        const __auto_type uma_c = (c);                                                                                 \
        uma_##t##x##n uma_r = {0};                                                                                     \
        for (int uma_l = 0; uma_l < n; ++uma_l) uma_r[uma_l] = function(uma_a[uma_l], uma_b[uma_l], uma_c[uma_l]);     \
        uma_r;                                                                                                         \
    })

/* A function of vectors, which takes them and gives its result by way of memory. */
#define UMA_CALL(t, n, function, a)                                                                                    \
    __extension__({                                                                                                    \
        const uma_##t##x##n uma_a = (a);                                                                               \
        uma_##t##x##n uma_r;                                                                                           \
        function(&uma_r, &uma_a);                                                                                      \
        uma_r;                                                                                                         \
    })

/* a where the mask is set, else what a function of scalars makes of b: for what hardly ever happens. */
#define UMA_RARE(t, n, mask, a, function, b)                                                                           \
    __extension__({                                                                                                    \
        const __auto_type uma_m = (mask);                                                                              \
        const uma_##t##x##n uma_b = (b);                                                                               \
        uma_##t##x##n uma_r = (a);                                                                                     \
        int32_t uma_all = -1;                                                                                          \
        for (int uma_l = 0; uma_l < n; ++uma_l) uma_all &= (int32_t)uma_m[uma_l];                                      \
        if (uma_all == 0) {                                                                                            \
            for (int uma_l = 0; uma_l < n; ++uma_l) {                                                                  \
                if (uma_m[uma_l] == 0) uma_r[uma_l] = function(uma_b[uma_l]);                                          \
            }                                                                                                          \
        }                                                                                                              \
        uma_r;                                                                                                         \
    })

/* a where the mask is set, else b: gcc has no ?: on vectors in C. */
#define UMA_SELECT(mask, a, b)                                                                                         \
    __extension__({                                                                                                    \
        const __auto_type uma_m = (mask);                                                                              \
        const __auto_type uma_a = (a);                                                                                 \
        const __auto_type uma_b = (b);                                                                                 \
        (__typeof__(uma_a))((uma_m & (__typeof__(uma_m))uma_a) | (~uma_m & (__typeof__(uma_m))uma_b));                 \
    })

/* The second operand where either is NaN, or both are zeros. */
#define UMA_MIN(t, n, a, b)                                                                                            \
    __extension__({                                                                                                    \
        const uma_##t##x##n uma_x = (a), uma_y = (b);                                                                  \
        UMA_SELECT(uma_x < uma_y, uma_x, uma_y);                                                                       \
    })
#define UMA_MAX(t, n, a, b)                                                                                            \
    __extension__({                                                                                                    \
        const uma_##t##x##n uma_x = (a), uma_y = (b);                                                                  \
        UMA_SELECT(uma_x > uma_y, uma_x, uma_y);                                                                       \
    })

/* Lanes converted as C converts scalars, which are to fit the type. */
#define UMA_CONVERT(t, n, vector) __builtin_convertvector((vector), uma_##t##x##n)

/* Floats as integers of 32 bits: truncated, saturated, 0 for NaN. */
#define UMA_f32_TO_i32(n, vector)                                                                                      \
    __extension__({                                                                                                    \
        const uma_f32x##n uma_v = (vector);                                                                            \
        const uma_f32x##n uma_f = UMA_MAX(f32, n, uma_v, UMA_SPLAT(f32, n, -0x1p31f));                                 \
        const uma_i32x##n uma_i = UMA_CONVERT(i32, n, UMA_MIN(f32, n, uma_f, UMA_SPLAT(f32, n, 0x1.fffffep30f)));      \
        UMA_SELECT(uma_v >= 0x1p31f, UMA_SPLAT(i32, n, INT32_MAX), uma_i) & (uma_v == uma_v);                          \
    })

/* What follows has a form of its own for vectors of 16, 32 and 64 bytes, and is called for these alone:
 * UMA_FMA_f32x8. The portable form is as slow as its lanes one by one, or as what gcc 12 makes of it.
 *
 * UMA_WIDEN: small integers as larger ones: about 20 instructions with gcc 12, and one here; clang finds it.
 * UMA_FMIN, UMA_FMAX: UMA_MIN and UMA_MAX of floats: 3 instructions with gcc 12, and one here.
 * UMA_NARROW: int32 to smaller integers, saturated: 20 and more with gcc, 8 with clang; 2 or 3 here.
 * UMA_WHOLE: a float rounded, 8 to even, 9 down, 10 up, 11 to zero; `function` does that to a scalar.
 * UMA_NEAREST: a float that an int32 can hold, rounded to even, as that int32: one instruction, or calls.
 * UMA_CUT: a float cut off so that UMA_NEAREST and then UMA_NARROW of it saturate, NaN to the least: only above where
 * UMA_NEAREST gives the least int32 of what is too small and of NaN, only below where it saturates.
 * UMA_FMA: a * b + c with one rounding, which C can say of scalars only.
 * UMA_MUL_HIGH: uma_mul_high. No compiler finds the products of 32 by 32 bits: 15 instructions, or 50 and more. */
#define UMA_LOW8(vector) ((uma_i64x2){(int64_t)(vector), 0})
#define UMA_LOW4(vector) ((uma_i32x4){(int32_t)(vector), 0, 0, 0})

/* AArch64 is in assembler: gcc and clang call these builtins by different names, and arm_neon.h takes long to compile.
 * A low word is in the low lane of a register, whatever is above it. */
typedef int32_t uma_low_word;
#define UMA_NEON(instruction, to, from, vector)                                                                        \
    __extension__({                                                                                                    \
        const uma_##from uma_v = (vector);                                                                             \
        uma_##to uma_r;                                                                                                \
        __asm__(instruction : "=w"(uma_r) : "w"(uma_v));                                                               \
        uma_r;                                                                                                         \
    })

/* Where there is no instruction for it, a function does it: gcc takes minutes for a kernel that has it written out. */
#if defined(__clang__)
#define UMA_WIDENING(from, to, n)
#define UMA_WIDENED(from, to, n, vector) UMA_CONVERT(to, n, vector)
#else
#define UMA_WIDENING(from, to, n)                                                                                      \
    __attribute__((noinline, unused)) static void uma_widen_##from##_##to##x##n(uma_##to##x##n *result,                \
                                                                                const uma_##from##x##n *vector)        \
    {                                                                                                                  \
        *result = UMA_CONVERT(to, n, *vector);                                                                         \
    }
#define UMA_WIDENED(from, to, n, vector)                                                                               \
    __extension__({                                                                                                    \
        const uma_##from##x##n uma_v = (vector);                                                                       \
        uma_##to##x##n uma_r;                                                                                          \
        uma_widen_##from##_##to##x##n(&uma_r, &uma_v);                                                                 \
        uma_r;                                                                                                         \
    })
#endif

#if defined(__SSE4_1__) && !defined(__clang__) && UMA_HAS(__builtin_ia32_pmovzxbd128)
#define UMA_WIDEN_u8_i16x8(vector) ((uma_i16x8)__builtin_ia32_pmovzxbw128((uma_qi16)UMA_LOW8(vector)))
#define UMA_WIDEN_i8_i16x8(vector) ((uma_i16x8)__builtin_ia32_pmovsxbw128((uma_qi16)UMA_LOW8(vector)))
#define UMA_WIDEN_u8_i32x4(vector) ((uma_i32x4)__builtin_ia32_pmovzxbd128((uma_qi16)UMA_LOW4(vector)))
#define UMA_WIDEN_i8_i32x4(vector) ((uma_i32x4)__builtin_ia32_pmovsxbd128((uma_qi16)UMA_LOW4(vector)))
#define UMA_WIDEN_u16_i32x4(vector) ((uma_i32x4)__builtin_ia32_pmovzxwd128((uma_hi8)UMA_LOW8(vector)))
#define UMA_WIDEN_i16_i32x4(vector) ((uma_i32x4)__builtin_ia32_pmovsxwd128((uma_hi8)UMA_LOW8(vector)))
#elif defined(__aarch64__) && !defined(__clang__)
#define UMA_WIDEN_u8_i16x8(vector) UMA_NEON("ushll %0.8h, %1.8b, #0", i16x8, u8x8, vector)
#define UMA_WIDEN_i8_i16x8(vector) UMA_NEON("sshll %0.8h, %1.8b, #0", i16x8, i8x8, vector)
#define UMA_WIDEN_u8_i32x4(vector)                                                                                     \
    UMA_NEON("ushll %0.8h, %1.8b, #0\n\tushll %0.4s, %0.4h, #0", i32x4, low_word, (int32_t)(vector))
#define UMA_WIDEN_i8_i32x4(vector)                                                                                     \
    UMA_NEON("sshll %0.8h, %1.8b, #0\n\tsshll %0.4s, %0.4h, #0", i32x4, low_word, (int32_t)(vector))
#define UMA_WIDEN_u16_i32x4(vector) UMA_NEON("ushll %0.4s, %1.4h, #0", i32x4, u16x4, vector)
#define UMA_WIDEN_i16_i32x4(vector) UMA_NEON("sshll %0.4s, %1.4h, #0", i32x4, i16x4, vector)
#else
UMA_WIDENING(u8, i16, 8)
#define UMA_WIDEN_u8_i16x8(vector) UMA_WIDENED(u8, i16, 8, vector)
UMA_WIDENING(i8, i16, 8)
#define UMA_WIDEN_i8_i16x8(vector) UMA_WIDENED(i8, i16, 8, vector)
UMA_WIDENING(u8, i32, 4)
#define UMA_WIDEN_u8_i32x4(vector) UMA_WIDENED(u8, i32, 4, vector)
UMA_WIDENING(i8, i32, 4)
#define UMA_WIDEN_i8_i32x4(vector) UMA_WIDENED(i8, i32, 4, vector)
UMA_WIDENING(u16, i32, 4)
#define UMA_WIDEN_u16_i32x4(vector) UMA_WIDENED(u16, i32, 4, vector)
UMA_WIDENING(i16, i32, 4)
#define UMA_WIDEN_i16_i32x4(vector) UMA_WIDENED(i16, i32, 4, vector)
#endif

#if defined(__AVX2__) && !defined(__clang__) && UMA_HAS(__builtin_ia32_pmovzxbd256)
#define UMA_WIDEN_u8_i16x16(vector) ((uma_i16x16)__builtin_ia32_pmovzxbw256((uma_qi16)(vector)))
#define UMA_WIDEN_i8_i16x16(vector) ((uma_i16x16)__builtin_ia32_pmovsxbw256((uma_qi16)(vector)))
#define UMA_WIDEN_u8_i32x8(vector) ((uma_i32x8)__builtin_ia32_pmovzxbd256((uma_qi16)UMA_LOW8(vector)))
#define UMA_WIDEN_i8_i32x8(vector) ((uma_i32x8)__builtin_ia32_pmovsxbd256((uma_qi16)UMA_LOW8(vector)))
#define UMA_WIDEN_u16_i32x8(vector) ((uma_i32x8)__builtin_ia32_pmovzxwd256((uma_hi8)(vector)))
#define UMA_WIDEN_i16_i32x8(vector) ((uma_i32x8)__builtin_ia32_pmovsxwd256((uma_hi8)(vector)))
#else
UMA_WIDENING(u8, i16, 16)
#define UMA_WIDEN_u8_i16x16(vector) UMA_WIDENED(u8, i16, 16, vector)
UMA_WIDENING(i8, i16, 16)
#define UMA_WIDEN_i8_i16x16(vector) UMA_WIDENED(i8, i16, 16, vector)
UMA_WIDENING(u8, i32, 8)
#define UMA_WIDEN_u8_i32x8(vector) UMA_WIDENED(u8, i32, 8, vector)
UMA_WIDENING(i8, i32, 8)
#define UMA_WIDEN_i8_i32x8(vector) UMA_WIDENED(i8, i32, 8, vector)
UMA_WIDENING(u16, i32, 8)
#define UMA_WIDEN_u16_i32x8(vector) UMA_WIDENED(u16, i32, 8, vector)
UMA_WIDENING(i16, i32, 8)
#define UMA_WIDEN_i16_i32x8(vector) UMA_WIDENED(i16, i32, 8, vector)
#endif

#if defined(__AVX512BW__) && !defined(__clang__) && UMA_HAS(__builtin_ia32_pmovzxbd512_mask)
#define UMA_WIDEN_u8_i16x32(vector)                                                                                    \
    ((uma_i16x32)__builtin_ia32_pmovzxbw512_mask((uma_qi32)(vector), (uma_hi32){0}, (uint32_t)-1))
#define UMA_WIDEN_i8_i16x32(vector)                                                                                    \
    ((uma_i16x32)__builtin_ia32_pmovsxbw512_mask((uma_qi32)(vector), (uma_hi32){0}, (uint32_t)-1))
#define UMA_WIDEN_u8_i32x16(vector)                                                                                    \
    ((uma_i32x16)__builtin_ia32_pmovzxbd512_mask((uma_qi16)(vector), (uma_si16){0}, (uint16_t)-1))
#define UMA_WIDEN_i8_i32x16(vector)                                                                                    \
    ((uma_i32x16)__builtin_ia32_pmovsxbd512_mask((uma_qi16)(vector), (uma_si16){0}, (uint16_t)-1))
#define UMA_WIDEN_u16_i32x16(vector)                                                                                   \
    ((uma_i32x16)__builtin_ia32_pmovzxwd512_mask((uma_hi16)(vector), (uma_si16){0}, (uint16_t)-1))
#define UMA_WIDEN_i16_i32x16(vector)                                                                                   \
    ((uma_i32x16)__builtin_ia32_pmovsxwd512_mask((uma_hi16)(vector), (uma_si16){0}, (uint16_t)-1))
#else
UMA_WIDENING(u8, i16, 32)
#define UMA_WIDEN_u8_i16x32(vector) UMA_WIDENED(u8, i16, 32, vector)
UMA_WIDENING(i8, i16, 32)
#define UMA_WIDEN_i8_i16x32(vector) UMA_WIDENED(i8, i16, 32, vector)
UMA_WIDENING(u8, i32, 16)
#define UMA_WIDEN_u8_i32x16(vector) UMA_WIDENED(u8, i32, 16, vector)
UMA_WIDENING(i8, i32, 16)
#define UMA_WIDEN_i8_i32x16(vector) UMA_WIDENED(i8, i32, 16, vector)
UMA_WIDENING(u16, i32, 16)
#define UMA_WIDEN_u16_i32x16(vector) UMA_WIDENED(u16, i32, 16, vector)
UMA_WIDENING(i16, i32, 16)
#define UMA_WIDEN_i16_i32x16(vector) UMA_WIDENED(i16, i32, 16, vector)
#endif

#define UMA_CLAMPED(t, n, low, high, vector)                                                                           \
    UMA_CONVERT(t, n, UMA_MIN(i32, n, UMA_MAX(i32, n, vector, UMA_SPLAT(i32, n, low)), UMA_SPLAT(i32, n, high)))
#define UMA_CLIPPED(n, low, high, vector)                                                                              \
    UMA_FMIN_f32x##n(UMA_FMAX_f32x##n(vector, UMA_SPLAT(f32, n, low)), UMA_SPLAT(f32, n, high))
/* (a * b + 2**30) >> 31 from the products of even and of odd lanes, as vectors of 64-bit lanes. */
#define UMA_MUL_HIGH_JOINED(n, half, product, a, b)                                                                    \
    __extension__({                                                                                                    \
        const uma_i32x##n uma_a = (a), uma_b = (b);                                                                    \
        const uma_u64x##half uma_odd_a = (uma_u64x##half)uma_a >> 32, uma_odd_b = (uma_u64x##half)uma_b >> 32;         \
        const uma_u64x##half uma_even = ((uma_u64x##half)product(uma_a, uma_b) + (UINT64_C(1) << 30)) >> 31;           \
        const uma_u64x##half uma_odd =                                                                                 \
            ((uma_u64x##half)product((uma_i32x##n)uma_odd_a, (uma_i32x##n)uma_odd_b) + (UINT64_C(1) << 30)) << 1;      \
        (uma_i32x##n)((uma_even & UINT32_MAX) | (uma_odd & ~(uint64_t)UINT32_MAX));                                    \
    })

#if defined(__SSE4_1__) && UMA_HAS(__builtin_ia32_minps) && UMA_HAS(__builtin_ia32_roundps) &&                         \
    UMA_HAS(__builtin_ia32_roundpd) && UMA_HAS(__builtin_ia32_cvtps2dq) && UMA_HAS(__builtin_ia32_pmuldq128) &&        \
    UMA_HAS(__builtin_ia32_packssdw128) && UMA_HAS(__builtin_ia32_packsswb128) &&                                      \
    UMA_HAS(__builtin_ia32_packuswb128)
#define UMA_FMIN_f32x4(a, b) ((uma_f32x4)__builtin_ia32_minps((a), (b)))
#define UMA_FMAX_f32x4(a, b) ((uma_f32x4)__builtin_ia32_maxps((a), (b)))
#define UMA_WHOLE_f32x4(vector, mode, function) ((uma_f32x4)__builtin_ia32_roundps((vector), (mode)))
#define UMA_WHOLE_f64x2(vector, mode, function) ((uma_f64x2)__builtin_ia32_roundpd((vector), (mode)))
#define UMA_NEAREST_i32x4(vector) ((uma_i32x4)__builtin_ia32_cvtps2dq(vector))
#define UMA_CUT_f32x4(vector, low, high) UMA_FMIN_f32x4(UMA_SPLAT(f32, 4, high), vector)
#define UMA_MUL_HIGH_i32x4(a, b) UMA_MUL_HIGH_JOINED(4, 2, __builtin_ia32_pmuldq128, a, b)
#define UMA_NARROW_i8x4(vector)                                                                                        \
    __extension__({                                                                                                    \
        const uma_i32x4 uma_v = (vector);                                                                              \
        const uma_hi8 uma_h = __builtin_ia32_packssdw128((uma_si4)uma_v, (uma_si4)uma_v);                              \
        (uma_i8x4)((uma_i32x4)__builtin_ia32_packsswb128(uma_h, uma_h))[0];                                            \
    })
#define UMA_NARROW_u8x4(vector)                                                                                        \
    __extension__({                                                                                                    \
        const uma_i32x4 uma_v = (vector);                                                                              \
        const uma_hi8 uma_h = __builtin_ia32_packssdw128((uma_si4)uma_v, (uma_si4)uma_v);                              \
        (uma_u8x4)((uma_i32x4)__builtin_ia32_packuswb128(uma_h, uma_h))[0];                                            \
    })
#define UMA_NARROW_i16x4(vector)                                                                                       \
    __extension__({                                                                                                    \
        const uma_i32x4 uma_v = (vector);                                                                              \
        const uma_hi8 uma_h = __builtin_ia32_packssdw128((uma_si4)uma_v, (uma_si4)uma_v);                              \
        (uma_i16x4)((uma_i64x2)uma_h)[0];                                                                              \
    })
#elif defined(__aarch64__)
#define UMA_FMIN_f32x4(a, b) UMA_MIN(f32, 4, a, b)
#define UMA_FMAX_f32x4(a, b) UMA_MAX(f32, 4, a, b)
#define UMA_WHOLE_f32x4(vector, mode, function) UMA_WHOLE_4S_##mode(vector)
#define UMA_WHOLE_f64x2(vector, mode, function) UMA_WHOLE_2D_##mode(vector)
#define UMA_WHOLE_4S_8(vector) UMA_NEON("frintn %0.4s, %1.4s", f32x4, f32x4, vector)
#define UMA_WHOLE_2D_8(vector) UMA_NEON("frintn %0.2d, %1.2d", f64x2, f64x2, vector)
#define UMA_WHOLE_4S_9(vector) UMA_NEON("frintm %0.4s, %1.4s", f32x4, f32x4, vector)
#define UMA_WHOLE_2D_9(vector) UMA_NEON("frintm %0.2d, %1.2d", f64x2, f64x2, vector)
#define UMA_WHOLE_4S_10(vector) UMA_NEON("frintp %0.4s, %1.4s", f32x4, f32x4, vector)
#define UMA_WHOLE_2D_10(vector) UMA_NEON("frintp %0.2d, %1.2d", f64x2, f64x2, vector)
#define UMA_WHOLE_4S_11(vector) UMA_NEON("frintz %0.4s, %1.4s", f32x4, f32x4, vector)
#define UMA_WHOLE_2D_11(vector) UMA_NEON("frintz %0.2d, %1.2d", f64x2, f64x2, vector)
#define UMA_NEAREST_i32x4(vector) UMA_NEON("fcvtns %0.4s, %1.4s", i32x4, f32x4, vector)
#define UMA_CUT_f32x4(vector, low, high) UMA_FMAX_f32x4(vector, UMA_SPLAT(f32, 4, low))
/* sqrdmulh saturates the one result that wraps around. */
#define UMA_MUL_HIGH_i32x4(a, b)                                                                                       \
    __extension__({                                                                                                    \
        const uma_i32x4 uma_a = (a), uma_b = (b);                                                                      \
        uma_i32x4 uma_r;                                                                                               \
        __asm__("sqrdmulh %0.4s, %1.4s, %2.4s" : "=w"(uma_r) : "w"(uma_a), "w"(uma_b));                                \
        uma_r ^ ((uma_a == INT32_MIN) & (uma_b == INT32_MIN));                                                         \
    })
#define UMA_NARROW_i8x4(vector)                                                                                        \
    ((uma_i8x4)UMA_NEON("sqxtn %0.4h, %1.4s\n\tsqxtn %0.8b, %0.8h", i32x4, i32x4, vector)[0])
#define UMA_NARROW_u8x4(vector)                                                                                        \
    ((uma_u8x4)UMA_NEON("sqxtun %0.4h, %1.4s\n\tuqxtn %0.8b, %0.8h", i32x4, i32x4, vector)[0])
#define UMA_NARROW_i16x4(vector) UMA_NEON("sqxtn %0.4h, %1.4s", i16x4, i32x4, vector)
#else
#define UMA_FMIN_f32x4(a, b) UMA_MIN(f32, 4, a, b)
#define UMA_FMAX_f32x4(a, b) UMA_MAX(f32, 4, a, b)
#define UMA_WHOLE_f32x4(vector, mode, function) UMA_LANES(f32, 4, function, vector)
#define UMA_WHOLE_f64x2(vector, mode, function) UMA_LANES(f64, 2, function, vector)
#define UMA_NEAREST_i32x4(vector) UMA_LANES(i32, 4, (int32_t)rintf, vector)
#define UMA_CUT_f32x4(vector, low, high) UMA_CLIPPED(4, low, high, vector)
#define UMA_MUL_HIGH_i32x4(a, b) UMA_LANES2(i32, 4, uma_mul_high, a, b)
#define UMA_NARROW_i8x4(vector) UMA_CLAMPED(i8, 4, -128, 127, vector)
#define UMA_NARROW_u8x4(vector) UMA_CLAMPED(u8, 4, 0, 255, vector)
#define UMA_NARROW_i16x4(vector) UMA_CLAMPED(i16, 4, -32768, 32767, vector)
#endif

#if defined(__AVX2__) && UMA_HAS(__builtin_ia32_minps256) && UMA_HAS(__builtin_ia32_roundps256) &&                     \
    UMA_HAS(__builtin_ia32_roundpd256) && UMA_HAS(__builtin_ia32_cvtps2dq256) && UMA_HAS(__builtin_ia32_pmuldq256) &&  \
    UMA_HAS(__builtin_ia32_packssdw128) && UMA_HAS(__builtin_ia32_packsswb128) &&                                      \
    UMA_HAS(__builtin_ia32_packuswb128) && UMA_HAS(__builtin_shufflevector)
#define UMA_FMIN_f32x8(a, b) ((uma_f32x8)__builtin_ia32_minps256((a), (b)))
#define UMA_FMAX_f32x8(a, b) ((uma_f32x8)__builtin_ia32_maxps256((a), (b)))
#define UMA_WHOLE_f32x8(vector, mode, function) ((uma_f32x8)__builtin_ia32_roundps256((vector), (mode)))
#define UMA_WHOLE_f64x4(vector, mode, function) ((uma_f64x4)__builtin_ia32_roundpd256((vector), (mode)))
#define UMA_NEAREST_i32x8(vector) ((uma_i32x8)__builtin_ia32_cvtps2dq256(vector))
#define UMA_CUT_f32x8(vector, low, high) UMA_FMIN_f32x8(UMA_SPLAT(f32, 8, high), vector)
#define UMA_MUL_HIGH_i32x8(a, b) UMA_MUL_HIGH_JOINED(8, 4, __builtin_ia32_pmuldq256, a, b)
#define UMA_NARROW_i8x8(vector)                                                                                        \
    __extension__({                                                                                                    \
        const uma_i32x8 uma_v = (vector);                                                                              \
        const uma_hi8 uma_h = __builtin_ia32_packssdw128((uma_si4)__builtin_shufflevector(uma_v, uma_v, 0, 1, 2, 3),   \
            (uma_si4)__builtin_shufflevector(uma_v, uma_v, 4, 5, 6, 7));                                               \
        (uma_i8x8)((uma_i64x2)__builtin_ia32_packsswb128(uma_h, uma_h))[0];                                            \
    })
#define UMA_NARROW_u8x8(vector)                                                                                        \
    __extension__({                                                                                                    \
        const uma_i32x8 uma_v = (vector);                                                                              \
        const uma_hi8 uma_h = __builtin_ia32_packssdw128((uma_si4)__builtin_shufflevector(uma_v, uma_v, 0, 1, 2, 3),   \
            (uma_si4)__builtin_shufflevector(uma_v, uma_v, 4, 5, 6, 7));                                               \
        (uma_u8x8)((uma_i64x2)__builtin_ia32_packuswb128(uma_h, uma_h))[0];                                            \
    })
#define UMA_NARROW_i16x8(vector)                                                                                       \
    __extension__({                                                                                                    \
        const uma_i32x8 uma_v = (vector);                                                                              \
        const uma_hi8 uma_h = __builtin_ia32_packssdw128((uma_si4)__builtin_shufflevector(uma_v, uma_v, 0, 1, 2, 3),   \
            (uma_si4)__builtin_shufflevector(uma_v, uma_v, 4, 5, 6, 7));                                               \
        (uma_i16x8)uma_h;                                                                                              \
    })
#else
#define UMA_FMIN_f32x8(a, b) UMA_MIN(f32, 8, a, b)
#define UMA_FMAX_f32x8(a, b) UMA_MAX(f32, 8, a, b)
#define UMA_WHOLE_f32x8(vector, mode, function) UMA_LANES(f32, 8, function, vector)
#define UMA_WHOLE_f64x4(vector, mode, function) UMA_LANES(f64, 4, function, vector)
#define UMA_NEAREST_i32x8(vector) UMA_LANES(i32, 8, (int32_t)rintf, vector)
#define UMA_CUT_f32x8(vector, low, high) UMA_CLIPPED(8, low, high, vector)
#define UMA_MUL_HIGH_i32x8(a, b) UMA_LANES2(i32, 8, uma_mul_high, a, b)
#define UMA_NARROW_i8x8(vector) UMA_CLAMPED(i8, 8, -128, 127, vector)
#define UMA_NARROW_u8x8(vector) UMA_CLAMPED(u8, 8, 0, 255, vector)
#define UMA_NARROW_i16x8(vector) UMA_CLAMPED(i16, 8, -32768, 32767, vector)
#endif

#if defined(__AVX512F__) && UMA_HAS(__builtin_ia32_rndscaleps_mask) && UMA_HAS(__builtin_ia32_rndscalepd_mask) &&      \
    UMA_HAS(__builtin_ia32_cvtps2dq512_mask) && UMA_HAS(__builtin_ia32_pmovsdb512_mask) &&                             \
    UMA_HAS(__builtin_ia32_pmovusdb512_mask) && UMA_HAS(__builtin_ia32_pmovsdw512_mask)
#define UMA_WHOLE_f32x16(vector, mode, function)                                                                       \
    ((uma_f32x16)__builtin_ia32_rndscaleps_mask((vector), (mode), (uma_f32x16){0}, (uint16_t)-1, 4))
#define UMA_WHOLE_f64x8(vector, mode, function)                                                                        \
    ((uma_f64x8)__builtin_ia32_rndscalepd_mask((vector), (mode), (uma_f64x8){0}, (uint8_t)-1, 4))
#define UMA_NEAREST_i32x16(vector)                                                                                     \
    ((uma_i32x16)__builtin_ia32_cvtps2dq512_mask((vector), (uma_si16){0}, (uint16_t)-1, 4))
#define UMA_CUT_f32x16(vector, low, high) UMA_FMIN_f32x16(UMA_SPLAT(f32, 16, high), vector)
#define UMA_NARROW_i8x16(vector)                                                                                       \
    ((uma_i8x16)__builtin_ia32_pmovsdb512_mask((uma_si16)(vector), (uma_qi16){0}, (uint16_t)-1))
#define UMA_NARROW_u8x16(vector)                                                                                       \
    ((uma_u8x16)__builtin_ia32_pmovusdb512_mask(                                                                       \
        (uma_si16)UMA_MAX(i32, 16, vector, UMA_SPLAT(i32, 16, 0)), (uma_qi16){0}, (uint16_t)-1))
#define UMA_NARROW_i16x16(vector)                                                                                      \
    ((uma_i16x16)__builtin_ia32_pmovsdw512_mask((uma_si16)(vector), (uma_hi16){0}, (uint16_t)-1))
#else
#define UMA_WHOLE_f32x16(vector, mode, function) UMA_LANES(f32, 16, function, vector)
#define UMA_WHOLE_f64x8(vector, mode, function) UMA_LANES(f64, 8, function, vector)
#define UMA_NEAREST_i32x16(vector) UMA_LANES(i32, 16, (int32_t)rintf, vector)
#define UMA_CUT_f32x16(vector, low, high) UMA_CLIPPED(16, low, high, vector)
#define UMA_NARROW_i8x16(vector) UMA_CLAMPED(i8, 16, -128, 127, vector)
#define UMA_NARROW_u8x16(vector) UMA_CLAMPED(u8, 16, 0, 255, vector)
#define UMA_NARROW_i16x16(vector) UMA_CLAMPED(i16, 16, -32768, 32767, vector)
#endif
#if defined(__AVX512F__) && UMA_HAS(__builtin_ia32_minps512_mask) && UMA_HAS(__builtin_ia32_maxps512_mask) &&          \
    UMA_HAS(__builtin_ia32_pmuldq512_mask)
#define UMA_FMIN_f32x16(a, b) ((uma_f32x16)__builtin_ia32_minps512_mask((a), (b), (uma_f32x16){0}, (uint16_t)-1, 4))
#define UMA_FMAX_f32x16(a, b) ((uma_f32x16)__builtin_ia32_maxps512_mask((a), (b), (uma_f32x16){0}, (uint16_t)-1, 4))
#define UMA_MULDQ512(a, b) __builtin_ia32_pmuldq512_mask((uma_si16)(a), (uma_si16)(b), (uma_di8){0}, (uint8_t)-1)
#define UMA_MUL_HIGH_i32x16(a, b) UMA_MUL_HIGH_JOINED(16, 8, UMA_MULDQ512, a, b)
#elif defined(__AVX512F__) && UMA_HAS(__builtin_ia32_pmuldq512)
#define UMA_FMIN_f32x16(a, b) UMA_MIN(f32, 16, a, b)
#define UMA_FMAX_f32x16(a, b) UMA_MAX(f32, 16, a, b)
#define UMA_MULDQ512(a, b) __builtin_ia32_pmuldq512((uma_si16)(a), (uma_si16)(b))
#define UMA_MUL_HIGH_i32x16(a, b) UMA_MUL_HIGH_JOINED(16, 8, UMA_MULDQ512, a, b)
#else
#define UMA_FMIN_f32x16(a, b) UMA_MIN(f32, 16, a, b)
#define UMA_FMAX_f32x16(a, b) UMA_MAX(f32, 16, a, b)
#define UMA_MUL_HIGH_i32x16(a, b) UMA_LANES2(i32, 16, uma_mul_high, a, b)
#endif

#if defined(__FMA__) && UMA_HAS(__builtin_ia32_vfmaddps) && UMA_HAS(__builtin_ia32_vfmaddpd) &&                        \
    UMA_HAS(__builtin_ia32_vfmaddps256) && UMA_HAS(__builtin_ia32_vfmaddpd256)
#define UMA_FMA_f32x4(a, b, c) ((uma_f32x4)__builtin_ia32_vfmaddps((a), (b), (c)))
#define UMA_FMA_f64x2(a, b, c) ((uma_f64x2)__builtin_ia32_vfmaddpd((a), (b), (c)))
#define UMA_FMA_f32x8(a, b, c) ((uma_f32x8)__builtin_ia32_vfmaddps256((a), (b), (c)))
#define UMA_FMA_f64x4(a, b, c) ((uma_f64x4)__builtin_ia32_vfmaddpd256((a), (b), (c)))
#elif defined(__aarch64__)
#define UMA_FMA_f32x4(a, b, c)                                                                                         \
    __extension__({                                                                                                    \
        const uma_f32x4 uma_a = (a), uma_b = (b);                                                                      \
        uma_f32x4 uma_r = (c);                                                                                         \
        __asm__("fmla %0.4s, %1.4s, %2.4s" : "+w"(uma_r) : "w"(uma_a), "w"(uma_b));                                    \
        uma_r;                                                                                                         \
    })
#define UMA_FMA_f64x2(a, b, c)                                                                                         \
    __extension__({                                                                                                    \
        const uma_f64x2 uma_a = (a), uma_b = (b);                                                                      \
        uma_f64x2 uma_r = (c);                                                                                         \
        __asm__("fmla %0.2d, %1.2d, %2.2d" : "+w"(uma_r) : "w"(uma_a), "w"(uma_b));                                    \
        uma_r;                                                                                                         \
    })
#define UMA_FMA_f32x8(a, b, c) UMA_LANES3(f32, 8, uma_fmaf, a, b, c)
#define UMA_FMA_f64x4(a, b, c) UMA_LANES3(f64, 4, uma_fma, a, b, c)
#else
#define UMA_FMA_f32x4(a, b, c) UMA_LANES3(f32, 4, uma_fmaf, a, b, c)
#define UMA_FMA_f64x2(a, b, c) UMA_LANES3(f64, 2, uma_fma, a, b, c)
#define UMA_FMA_f32x8(a, b, c) UMA_LANES3(f32, 8, uma_fmaf, a, b, c)
#define UMA_FMA_f64x4(a, b, c) UMA_LANES3(f64, 4, uma_fma, a, b, c)
#endif
#if defined(__AVX512F__) && UMA_HAS(__builtin_ia32_vfmaddps512_mask) && UMA_HAS(__builtin_ia32_vfmaddpd512_mask)
#define UMA_FMA_f32x16(a, b, c) ((uma_f32x16)__builtin_ia32_vfmaddps512_mask((a), (b), (c), (uint16_t)-1, 4))
#define UMA_FMA_f64x8(a, b, c) ((uma_f64x8)__builtin_ia32_vfmaddpd512_mask((a), (b), (c), (uint8_t)-1, 4))
#else
#define UMA_FMA_f32x16(a, b, c) UMA_LANES3(f32, 16, uma_fmaf, a, b, c)
#define UMA_FMA_f64x8(a, b, c) UMA_LANES3(f64, 8, uma_fma, a, b, c)
#endif

#endif
