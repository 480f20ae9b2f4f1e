/* What generated kernels use beyond the operators of C. C99, no state, nothing but static inline functions.
 *
 * Integers wrap around in two's complement. Conversion to a smaller signed type, and >> of a negative number, are left
 * to the implementation by C99; gcc, clang and every compiler we know of keep the low bits, and the sign.
 */
#ifndef UMA_MATH_H
#define UMA_MATH_H

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#if CHAR_BIT != 8 || INT_MAX < 2147483647 || FLT_RADIX != 2 || FLT_MANT_DIG != 24 || DBL_MANT_DIG != 53
#error "models are for machines with bytes of 8 bits, int of 32 or more, and float and double as in IEEE 754"
#endif

#if defined(__GNUC__)
#define UMA_ALIGNED(bytes) __attribute__((aligned(bytes)))
/* For kernels. All of them in one function is no faster to run, and clang 14 takes 14 s for what takes 1.3 s apart. */
#define UMA_NOINLINE __attribute__((noinline))
#define UMA_ASSUME_ALIGNED(pointer, bytes) __builtin_assume_aligned((pointer), (bytes))
#else
#define UMA_ALIGNED(bytes)
#define UMA_NOINLINE
#define UMA_ASSUME_ALIGNED(pointer, bytes) (pointer)
#endif

/* What is written for one caller, and what compilers may make vectors of around it. */
#if defined(__GNUC__)
#define UMA_INLINED __attribute__((always_inline, unused)) inline
#else
#define UMA_INLINED inline
#endif
/* A function of floats that kernels call. Where code is to be small, or there are no vectors, there is one of it. */
#if !defined(__GNUC__)
#define UMA_FUNCTION
#elif defined(__OPTIMIZE_SIZE__) || !(defined(__SSE2__) || defined(__aarch64__) || defined(__ARM_NEON) ||             \
                                      defined(__riscv_vector) || defined(__ALTIVEC__) || defined(__wasm_simd128__))
#define UMA_FUNCTION __attribute__((noinline, unused))
#else
#define UMA_FUNCTION UMA_INLINED
#endif

/* A product and a sum are rounded each by itself. (gcc does so with -std=c99, and where it is told -ffp-contract=off.) */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

/* In the body of a loop: gcc vectorises neither it nor those around it, only what is within. gcc 12 miscompiles a nest of
 * which it unrolls the inner loops and vectorises the outer one, where two rows that are read lie side by side and are
 * read under one condition, as by the taps of a window that begins in the padding. For machines whose vector loads take
 * a mask (x86 from AVX2 on), one of the rows is taken for the other. */
#if defined(__GNUC__) && !defined(__clang__)
#define UMA_KEEP_SCALAR __asm__ volatile("")
#else
#define UMA_KEEP_SCALAR ((void)0)
#endif

/* Before a short loop: gcc vectorises it. Unrolled whole, as it would be else, it is scalars that are compared with limits
 * by branches, which nothing predicts. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define UMA_ROLLED _Pragma("GCC unroll 1")
#else
#define UMA_ROLLED
#endif

/* The mode of this thread's floating-point arithmetic: how it rounds, whether it flushes small numbers to zero, which
 * exceptions trap. A kernel computes in the mode that it is called in, which is to be UMA_FLOAT_DEFAULT. On machines
 * that are not named here nothing reads or changes it. */
#if defined(__GNUC__) && defined(__SSE2__)
typedef uint32_t uma_float_mode;
#define UMA_FLOAT_DEFAULT 0x1f80u
static inline uma_float_mode uma_float_now(void)
{
    uint32_t mxcsr;

    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    return mxcsr & 0xffc0u;
}
static inline void uma_float_set(uma_float_mode mode)
{
    if (uma_float_now() != mode) {
        uint32_t mxcsr = mode; /* what was raised so far is forgotten: nobody asks for it */

        __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr) : "memory");
    }
}
#elif defined(__GNUC__) && defined(__aarch64__)
typedef uint64_t uma_float_mode;
#define UMA_FLOAT_DEFAULT 0u
static inline uma_float_mode uma_float_now(void)
{
    uint64_t fpcr;

    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}
static inline void uma_float_set(uma_float_mode mode)
{
    if (uma_float_now() != mode) __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#else
typedef int uma_float_mode;
#define UMA_FLOAT_DEFAULT 0
static inline uma_float_mode uma_float_now(void) { return UMA_FLOAT_DEFAULT; }
static inline void uma_float_set(uma_float_mode mode) { (void)mode; }
#endif

/* The second operand where either is NaN: what one minps or maxps instruction does. */
#define UMA_DEFINE_ORDER(suffix, type)                                                                                 \
    static inline type uma_min_##suffix(type a, type b) { return a < b ? a : b; }                                      \
    static inline type uma_max_##suffix(type a, type b) { return a > b ? a : b; }

UMA_DEFINE_ORDER(i8, int8_t)
UMA_DEFINE_ORDER(u8, uint8_t)
UMA_DEFINE_ORDER(i16, int16_t)
UMA_DEFINE_ORDER(u16, uint16_t)
UMA_DEFINE_ORDER(i32, int32_t)
UMA_DEFINE_ORDER(u32, uint32_t)
UMA_DEFINE_ORDER(i64, int64_t)
UMA_DEFINE_ORDER(u64, uint64_t)
UMA_DEFINE_ORDER(f32, float)
UMA_DEFINE_ORDER(f64, double)

/* The smallest number is its own negative and magnitude; divided by -1 it is itself, without remainder. Quotients
 * round to zero (truncdiv) or to minus infinity (floordiv); a remainder (floormod) has the sign of the divisor. What is
 * divided by 0 gives 0, and leaves 0. */
#define UMA_DEFINE_SIGNED(suffix, type, unsigned_type)                                                                 \
    static inline type uma_neg_##suffix(type a) { return (type)((unsigned_type)0 - (unsigned_type)a); }                \
    static inline type uma_abs_##suffix(type a) { return a < 0 ? uma_neg_##suffix(a) : a; }                            \
    static inline type uma_truncdiv_##suffix(type a, type b)                                                           \
    {                                                                                                                  \
        return b == 0 ? (type)0 : b == -1 ? uma_neg_##suffix(a) : (type)(a / b);                                       \
    }                                                                                                                  \
    static inline type uma_floordiv_##suffix(type a, type b)                                                           \
    {                                                                                                                  \
        type quotient = uma_truncdiv_##suffix(a, b);                                                                   \
                                                                                                                       \
        return b != 0 && b != -1 && a % b != 0 && (a < 0) != (b < 0) ? (type)(quotient - 1) : quotient;                \
    }                                                                                                                  \
    static inline type uma_floormod_##suffix(type a, type b)                                                           \
    {                                                                                                                  \
        type rest = b == 0 || b == -1 ? (type)0 : (type)(a % b);                                                       \
                                                                                                                       \
        return rest != 0 && (rest < 0) != (b < 0) ? (type)(rest + b) : rest;                                           \
    }

UMA_DEFINE_SIGNED(i8, int8_t, uint8_t)
UMA_DEFINE_SIGNED(i16, int16_t, uint16_t)
UMA_DEFINE_SIGNED(i32, int32_t, uint32_t)
UMA_DEFINE_SIGNED(i64, int64_t, uint64_t)

#define UMA_DEFINE_UNSIGNED(suffix, type)                                                                              \
    static inline type uma_floordiv_##suffix(type a, type b) { return b == 0 ? (type)0 : (type)(a / b); }              \
    static inline type uma_floormod_##suffix(type a, type b) { return b == 0 ? (type)0 : (type)(a % b); }

UMA_DEFINE_UNSIGNED(u8, uint8_t)
UMA_DEFINE_UNSIGNED(u16, uint16_t)
UMA_DEFINE_UNSIGNED(u32, uint32_t)
UMA_DEFINE_UNSIGNED(u64, uint64_t)

/* Float to integer: truncated, saturated, 0 for NaN. `below` is the largest float under the first one beyond the
 * type, `beyond`. The number is brought into range before it is converted, so that compilers need no branch. */
#define UMA_DEFINE_CONVERT(from, float_type, to, type, low, below, beyond, high)                                       \
    static inline type uma_##from##_to_##to(float_type a)                                                              \
    {                                                                                                                  \
        float_type fitting = a > (low) ? a : (low);                                                                    \
        type whole = (type)(fitting < (below) ? fitting : (below));                                                    \
        whole = a >= (beyond) ? (high) : whole;                                                                        \
        return a == a ? whole : (type)0;                                                                               \
    }

UMA_DEFINE_CONVERT(f32, float, i8, int8_t, -128.0f, 127.0f, 128.0f, INT8_MAX)
UMA_DEFINE_CONVERT(f32, float, u8, uint8_t, 0.0f, 255.0f, 256.0f, UINT8_MAX)
UMA_DEFINE_CONVERT(f32, float, i16, int16_t, -32768.0f, 32767.0f, 32768.0f, INT16_MAX)
UMA_DEFINE_CONVERT(f32, float, u16, uint16_t, 0.0f, 65535.0f, 65536.0f, UINT16_MAX)
UMA_DEFINE_CONVERT(f32, float, i32, int32_t, -0x1p31f, 0x1.fffffep30f, 0x1p31f, INT32_MAX)
UMA_DEFINE_CONVERT(f32, float, u32, uint32_t, 0.0f, 0x1.fffffep31f, 0x1p32f, UINT32_MAX)
UMA_DEFINE_CONVERT(f32, float, i64, int64_t, -0x1p63f, 0x1.fffffep62f, 0x1p63f, INT64_MAX)
UMA_DEFINE_CONVERT(f32, float, u64, uint64_t, 0.0f, 0x1.fffffep63f, 0x1p64f, UINT64_MAX)
UMA_DEFINE_CONVERT(f64, double, i8, int8_t, -128.0, 127.0, 128.0, INT8_MAX)
UMA_DEFINE_CONVERT(f64, double, u8, uint8_t, 0.0, 255.0, 256.0, UINT8_MAX)
UMA_DEFINE_CONVERT(f64, double, i16, int16_t, -32768.0, 32767.0, 32768.0, INT16_MAX)
UMA_DEFINE_CONVERT(f64, double, u16, uint16_t, 0.0, 65535.0, 65536.0, UINT16_MAX)
UMA_DEFINE_CONVERT(f64, double, i32, int32_t, -0x1p31, 0x1.fffffffcp30, 0x1p31, INT32_MAX)
UMA_DEFINE_CONVERT(f64, double, u32, uint32_t, 0.0, 0x1.fffffffep31, 0x1p32, UINT32_MAX)
UMA_DEFINE_CONVERT(f64, double, i64, int64_t, -0x1p63, 0x1.fffffffffffffp62, 0x1p63, INT64_MAX)
UMA_DEFINE_CONVERT(f64, double, u64, uint64_t, 0.0, 0x1.fffffffffffffp63, 0x1p64, UINT64_MAX)

/* The nearest int32, halves to the even one: of floats up to 2**22 in size, of doubles that an int32 holds. Where one unit
 * is the last place of a sum, its low bits are the number; no CPU has to have an instruction that rounds, and compilers
 * vectorise it. */
static inline int32_t uma_round_f32_to_i32(float a)
{
#if FLT_EVAL_METHOD == 0
    union {
        float value;
        uint32_t bits;
    } sum = {a + 0x1.8p23f};

    return (int32_t)(sum.bits - UINT32_C(0x4b400000));
#else
    return (int32_t)rintf(a);
#endif
}
static inline int32_t uma_round_f64_to_i32(double a)
{
#if FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 1
    union {
        double value;
        uint64_t bits;
    } sum = {a + 0x1.8p52};

    return (int32_t)(uint32_t)sum.bits;
#else
    return (int32_t)rint(a);
#endif
}

/* One of two numbers that are both there: what compilers make no branch of. */
static inline float uma_select_f32(bool condition, float a, float b) { return condition ? a : b; }
static inline double uma_select_f64(bool condition, double a, double b) { return condition ? a : b; }
static inline uint16_t uma_select_f16(bool condition, uint16_t a, uint16_t b) { return condition ? a : b; }

/* The bits of a float, and the float that bits are. */
static inline uint32_t uma_float_bits_f32(float a)
{
    union {
        float value;
        uint32_t bits;
    } both = {a};

    return both.bits;
}
static inline float uma_bits_float_f32(uint32_t a)
{
    union {
        uint32_t bits;
        float value;
    } both = {a};

    return both.value;
}
static inline uint64_t uma_float_bits_f64(double a)
{
    union {
        double value;
        uint64_t bits;
    } both = {a};

    return both.bits;
}
static inline double uma_bits_float_f64(uint64_t a)
{
    union {
        uint64_t bits;
        double value;
    } both = {a};

    return both.value;
}

/* A float16 of IEEE 754, which C99 has no type for: the number that its bits are, and the bits of the nearest one, halves
 * to the even one. Beyond the largest it is infinite; what is NaN stays NaN. */
static inline float uma_f16_to_f32(uint16_t a)
{
    uint32_t sign = (uint32_t)(a & 0x8000u) << 16, rest = a & 0x7fffu;

    if (rest >= 0x7c00u) return uma_bits_float_f32(sign | UINT32_C(0x7f800000) | (rest & 0x3ffu) << 13);
    if (rest >= 0x0400u) return uma_bits_float_f32(sign | ((rest << 13) + UINT32_C(0x38000000)));
    return sign != 0 ? -((float)rest * 0x1p-24f) : (float)rest * 0x1p-24f;
}
static inline uint16_t uma_f32_to_f16(float a)
{
    uint32_t bits = uma_float_bits_f32(a), sign = bits >> 16 & 0x8000u, rest = bits & UINT32_C(0x7fffffff), lost, half;

    if (rest > UINT32_C(0x7f800000)) return (uint16_t)(sign | 0x7e00u);
    if (rest >= UINT32_C(0x477ff000)) return (uint16_t)(sign | 0x7c00u);
    if (rest >= UINT32_C(0x38800000)) { /* rounding up carries into the exponent */
        rest += UINT32_C(0xfff) + (rest >> 13 & 1u);
        return (uint16_t)(sign | (rest - UINT32_C(0x38000000)) >> 13);
    }
    if (rest < UINT32_C(0x33000000)) return (uint16_t)sign; /* less than half of the smallest */
    lost = 126u - (rest >> 23);                             /* of 24 bits of the number */
    rest = (rest & UINT32_C(0x7fffff)) | UINT32_C(0x800000);
    half = (UINT32_C(1) << (lost - 1u)) - 1u + (rest >> lost & 1u);
    return (uint16_t)(sign | (rest + half) >> lost);
}
static inline double uma_f16_to_f64(uint16_t a) { return (double)uma_f16_to_f32(a); }
/* By way of a float that is odd where it is not exact: rounding it rounds the double (Boldo and Melquiond, 2008). */
static inline uint16_t uma_f64_to_f16(double a)
{
    float nearest = (float)a;
    uint32_t bits = uma_float_bits_f32(nearest);

    if (a == a && (double)nearest != a && (bits & 1u) == 0) {
        bits = fabs((double)nearest) < fabs(a) ? bits + 1u : bits - 1u;
    }
    return uma_f32_to_f16(uma_bits_float_f32(bits));
}

/* Leading zero bits; 32 for 0. */
static inline int32_t uma_clz(uint32_t a)
{
#if defined(__GNUC__) && __SIZEOF_INT__ == 4
    return a == 0 ? 32 : __builtin_clz(a);
#else
    int32_t zeros = 32;
    for (; a != 0; a >>= 1) {
        --zeros;
    }
    return zeros;
#endif
}

/* (a * b + 2**30) >> 31. The low 32 bits are the same where the sum is shifted as an unsigned number, which compilers
 * vectorise: before AVX-512, x86 has no shift of 64 bits that keeps the sign. */
static inline int32_t uma_mul_high(int32_t a, int32_t b)
{
    return (int32_t)(uint32_t)((uint64_t)((int64_t)a * b + (INT64_C(1) << 30)) >> 31);
}

/* a * b + c, rounded once: fmaf of math.h, where it is an instruction (or where doubles are computed more precisely than
 * they are stored). Else by doubles: the product is exact, and where the sum is not, its last bit is made odd, so that
 * rounding it to a float gives what rounding the exact sum would (Boldo and Melquiond, 2008). */
static inline float uma_fmaf(float a, float b, float c)
{
#if defined(FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA) || FLT_EVAL_METHOD > 1
    return fmaf(a, b, c);
#else
    double product = (double)a * b;
    union {
        double value;
        uint64_t bits;
    } sum = {product + c};
    double part = sum.value - product;
    double lost = (product - (sum.value - part)) + (c - part);

    if ((lost < 0.0 || lost > 0.0) && (sum.bits & 1u) == 0) { /* neither exact, infinite nor NaN */
        sum.bits = (lost > 0.0) == (sum.value > 0.0) ? sum.bits + 1 : sum.bits - 1;
    }
    return (float)sum.value;
#endif
}

/* The same for doubles is left to math.h. C99 says that it is rounded once, which not every library of microcontrollers
 * does. */
static inline double uma_fma(double a, double b, double c) { return fma(a, b, c); }

#endif
