/* The counter by which a profile times the steps of a model. UMA_TICKS says what it counts; uma_ticks_hz() how fast, 0
 * where only a clock beside it tells. Of C that is compiled for no machine named here, the system's clock.
 *
 * -DUMA_TICKS_NOW=function takes a function of the board's own instead: uint64_t function(void).
 * -DUMA_TICKS_PMU takes the core's cycles on AArch64, where the system lets programs read them (PMUSERENR_EL0.EN): where
 * it does not, that ends the program. On x86 programs read cycles of the core by the system's leave alone, and through
 * its interface for performance counters, which is not used here.
 */
#ifndef UMA_TICKS_H
#define UMA_TICKS_H

#include <stdint.h>

#if defined(UMA_TICKS_NOW)
#define UMA_TICKS "the counter of the board"
typedef uint64_t uma_ticks;
uint64_t UMA_TICKS_NOW(void);
static inline void uma_ticks_start(void) {}
static inline uma_ticks uma_ticks_now(void) { return UMA_TICKS_NOW(); }
static inline uint64_t uma_ticks_hz(void) { return 0; }

#elif defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
/* What programs may read of x86 without leave is no count of the core's cycles: it goes on at one rate whether the core
 * runs faster, slower or not at all. The fence has it wait for what came before. */
#define UMA_TICKS "the time-stamp counter (not the clock of the core)"
typedef uint64_t uma_ticks;
static inline void uma_ticks_start(void) {}
static inline uma_ticks uma_ticks_now(void)
{
    uint32_t low, high;

    __asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}
static inline uint64_t uma_ticks_hz(void) { return 0; }

#elif defined(__GNUC__) && defined(__aarch64__)
typedef uint64_t uma_ticks;
static inline void uma_ticks_start(void) {}
static inline uma_ticks uma_ticks_now(void)
{
    uint64_t now;

#if defined(UMA_TICKS_PMU)
#define UMA_TICKS "the core's cycles (PMCCNTR_EL0)"
    __asm__ volatile("isb\n\tmrs %0, pmccntr_el0" : "=r"(now) : : "memory");
#else
#define UMA_TICKS "the timer of the machine (CNTVCT_EL0), slower than the core"
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(now) : : "memory");
#endif
    return now;
}
static inline uint64_t uma_ticks_hz(void)
{
    uint64_t hz = 0;

#if !defined(UMA_TICKS_PMU)
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
#endif
    return hz;
}

#elif defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && __ARM_ARCH_ISA_THUMB >= 2
/* The cycle counter of a Cortex-M3 or larger (Armv7-M Architecture Reference Manual, C1.8). It has 32 bits: a step may
 * take so many cycles. A debugger may use the unit as well, and is not disturbed. */
#define UMA_TICKS "the core's cycles (DWT_CYCCNT)"
typedef uint32_t uma_ticks;
static inline volatile uint32_t *uma_ticks_register(uint32_t address) { return (volatile uint32_t *)address; }
static inline void uma_ticks_start(void)
{
    *uma_ticks_register(0xE000EDFCu) |= 1u << 24;  /* DEMCR.TRCENA: the unit is on */
    *uma_ticks_register(0xE0001FB0u) = 0xC5ACCE55u; /* DWT_LAR: a Cortex-M7 locks the unit; others ignore it */
    *uma_ticks_register(0xE0001000u) |= 1u;         /* DWT_CTRL.CYCCNTENA */
}
static inline uma_ticks uma_ticks_now(void) { return *uma_ticks_register(0xE0001004u); }
static inline uint64_t uma_ticks_hz(void) { return 0; }

#elif defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
#error "this core has no cycle counter: give a timer of the board with -DUMA_TICKS_NOW=function"

#else
#include <time.h>
#define UMA_TICKS "the system's clock"
typedef uint64_t uma_ticks;
static inline void uma_ticks_start(void) {}
static inline uma_ticks uma_ticks_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static inline uint64_t uma_ticks_hz(void) { return 1000000000u; }
#endif

/* What one reading takes: the least difference of two that follow each other. */
static inline uint64_t uma_ticks_cost(void)
{
    uma_ticks least = ~(uma_ticks)0, before = uma_ticks_now();
    int32_t i;

    for (i = 0; i < 1000; i++) {
        const uma_ticks now = uma_ticks_now(), took = (uma_ticks)(now - before);

        least = took < least ? took : least;
        before = now;
    }
    return least;
}

#endif
