/* The start-up code of a Cortex-M, and how it asks its debugger, or emulator. */
#include <stdint.h>

#include "uma_emulated_board.h"

extern unsigned char uma_stack_end[];

void uma_reset(void);

uintptr_t uma_semihosting(uint32_t operation, const void *arguments)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;

    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

/* Coprocessors 10 and 11 are the floating-point unit, which compilers may use in any function: it is switched on before
 * there is one (CPACR, 0xe000ed88). */
__attribute__((naked)) void uma_reset(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    __asm__ volatile("ldr r0, =0xe000ed88\n"
                     "ldr r1, [r0]\n"
                     "orr r1, r1, #0xf00000\n"
                     "str r1, [r0]\n"
                     "dsb\n"
                     "isb\n");
#endif
    __asm__ volatile("bl %c0\n" : : "i"(uma_board_start));
}

/* With a stack that works, whatever became of it. */
__attribute__((naked)) static void fault(void)
{
    __asm__ volatile("ldr r0, =uma_stack_end\n"
                     "mov sp, r0\n"
                     "bl %c0\n"
                     :
                     : "i"(uma_board_stopped));
}

typedef union vector {
    unsigned char *stack_end;
    void (*handler)(void);
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {.stack_end = uma_stack_end}, {.handler = uma_reset}, {.handler = fault}, {.handler = fault},
    {.handler = fault},           {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},           {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},           {.handler = fault}, {.handler = fault}, {.handler = fault},
};
