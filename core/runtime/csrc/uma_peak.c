/* What one core does of multiply-accumulates and nothing else, in the widest instructions that the compiler may use:
 * float32, and bytes into sums of 32 bits. Prints both per second, 0 where they are not known of this machine.
 *
 * Twelve sums at once: each instruction finds its own done, where two a cycle take five cycles. Where it takes an
 * addition besides, this alone waits for a sum, and six do; with more, gcc runs out of registers. The least of many
 * short times counts, since what else runs on the machine makes them longer and never shorter.
 */
#define _POSIX_C_SOURCE 199309L

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#if defined(__GNUC__) && defined(__SSE2__)
#include <immintrin.h>
#define UNKNOWN(value) __asm__ volatile("" : "+x"(value))
#if defined(__AVX512F__)
typedef __m512 floats;
#define FLOATS 16
#define ALL_FLOATS(value) _mm512_set1_ps(value)
#define ADD_FLOATS(sum) (sum) = _mm512_fmadd_ps(a, b, (sum))
#elif defined(__AVX__)
typedef __m256 floats;
#define FLOATS 8
#define ALL_FLOATS(value) _mm256_set1_ps(value)
#if defined(__FMA__)
#define ADD_FLOATS(sum) (sum) = _mm256_fmadd_ps(a, b, (sum))
#else
#define ADD_FLOATS(sum) (sum) = _mm256_add_ps((sum), _mm256_mul_ps(a, b))
#endif
#else
typedef __m128 floats;
#define FLOATS 4
#define ALL_FLOATS(value) _mm_set1_ps(value)
#define ADD_FLOATS(sum) (sum) = _mm_add_ps((sum), _mm_mul_ps(a, b))
#endif
#if defined(__AVX512VNNI__)
typedef __m512i bytes;
#define BYTES 64
#define ALL_BYTES(value) _mm512_set1_epi8(value)
#define ADD_BYTES(sum) (sum) = _mm512_dpbusd_epi32((sum), a, b)
#define EACH_BYTES TWELVE
#define SUMS_OF_BYTES 12
#elif defined(__AVX512BW__)
typedef __m512i bytes;
#define BYTES 32
#define ALL_BYTES(value) _mm512_set1_epi16(value)
#define ADD_BYTES(sum) (sum) = _mm512_add_epi32((sum), _mm512_madd_epi16(a, b))
#elif defined(__AVXVNNI__)
typedef __m256i bytes;
#define BYTES 32
#define ALL_BYTES(value) _mm256_set1_epi8(value)
#define ADD_BYTES(sum) (sum) = _mm256_dpbusd_avx_epi32((sum), a, b)
#define EACH_BYTES TWELVE
#define SUMS_OF_BYTES 12
#elif defined(__AVX2__)
typedef __m256i bytes;
#define BYTES 16
#define ALL_BYTES(value) _mm256_set1_epi16(value)
#define ADD_BYTES(sum) (sum) = _mm256_add_epi32((sum), _mm256_madd_epi16(a, b))
#else
typedef __m128i bytes;
#define BYTES 8
#define ALL_BYTES(value) _mm_set1_epi16(value)
#define ADD_BYTES(sum) (sum) = _mm_add_epi32((sum), _mm_madd_epi16(a, b))
#endif

#elif defined(__GNUC__) && defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#define UNKNOWN(value) __asm__ volatile("" : "+w"(value))
typedef float32x4_t floats;
#define FLOATS 4
#define ALL_FLOATS(value) vdupq_n_f32(value)
#define ADD_FLOATS(sum) (sum) = vfmaq_f32((sum), a, b)
#if defined(__ARM_FEATURE_DOTPROD)
typedef int8x16_t operand;
#define BYTES 16
#define ALL_BYTES(value) vdupq_n_s8(value)
#define ADD_BYTES(sum) (sum) = vdotq_s32((sum), a, b)
#define EACH_BYTES TWELVE
#define SUMS_OF_BYTES 12
#else
typedef int8x8_t operand;
#define BYTES 8
#define ALL_BYTES(value) vdup_n_s8(value)
#define ADD_BYTES(sum) (sum) = vpadalq_s16((sum), vmull_s8(a, b))
#endif
typedef int32x4_t bytes;
#define NO_BYTES vdupq_n_s32(0)
#endif

#if defined(FLOATS)
#if !defined(NO_BYTES)
typedef bytes operand;
#define NO_BYTES ALL_BYTES(0)
#endif

#define TURNS 4000
#define BATCHES 400
#define SIX(act) act(0) act(1) act(2) act(3) act(4) act(5)
#define TWELVE(act) SIX(act) act(6) act(7) act(8) act(9) act(10) act(11)
#if !defined(EACH_BYTES)
#define EACH_BYTES SIX
#define SUMS_OF_BYTES 6
#endif

static void add_floats(void)
{
    floats a = ALL_FLOATS(0.5f), b = ALL_FLOATS(0.25f);
    int32_t turn;
#define BEGIN(n) floats sum##n = ALL_FLOATS(0.0f);
#define ADD(n) UNKNOWN(a); ADD_FLOATS(sum##n);
#define END(n) UNKNOWN(sum##n);
    TWELVE(BEGIN)
    for (turn = 0; turn < TURNS; turn++) {
        TWELVE(ADD)
    }
    TWELVE(END)
#undef BEGIN
#undef ADD
}

static void add_bytes(void)
{
    operand a = ALL_BYTES(3), b = ALL_BYTES(5);
    int32_t turn;
#define BEGIN(n) bytes sum##n = NO_BYTES;
#define ADD(n) UNKNOWN(a); ADD_BYTES(sum##n);
    EACH_BYTES(BEGIN)
    for (turn = 0; turn < TURNS; turn++) {
        EACH_BYTES(ADD)
    }
    EACH_BYTES(END)
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Multiply-accumulates per second; a turn does so many. */
static double per_second(void (*add)(void), int32_t macs)
{
    uint64_t least_ns = UINT64_MAX;
    int32_t batch;

    for (batch = 0; batch < BATCHES; batch++) {
        const uint64_t begin_ns = now_ns();
        uint64_t took_ns;

        add();
        took_ns = now_ns() - begin_ns;
        if (took_ns < least_ns) least_ns = took_ns;
    }
    return 1e9 * TURNS * macs / (double)least_ns;
}

int main(void)
{
    printf("%.0f %.0f\n", per_second(add_floats, 12 * FLOATS), per_second(add_bytes, SUMS_OF_BYTES * BYTES));
    return 0;
}
#else
int main(void)
{
    printf("0 0\n");
    return 0;
}
#endif
