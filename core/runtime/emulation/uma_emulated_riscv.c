/* The start-up code of a RISC-V, in machine mode, and how it asks its debugger, or emulator. */
#include <stdint.h>

#include "uma_emulated_board.h"

void uma_reset(void);

/* The three instructions, which none of other lengths may stand between, are what a debugger knows (RISC-V:
 * Semihosting, 1.0); they lie in one page. */
__attribute__((noinline)) uintptr_t uma_semihosting(uint32_t operation, const void *arguments)
{
    register uintptr_t a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = arguments;

    __asm__ volatile(".option push\n"
                     ".option norvc\n"
                     ".balign 16\n"
                     "slli x0, x0, 0x1f\n"
                     "ebreak\n"
                     "srai x0, x0, 7\n"
                     ".option pop\n"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
}

/* With a stack that works, whatever became of it. */
__attribute__((naked, aligned(4))) static void fault(void)
{
    __asm__ volatile("la sp, uma_stack_end\n"
                     "call uma_board_stopped\n");
}

/* The floating-point unit is off until the status of its registers is another (mstatus.FS); what stops the CPU leads to
 * `fault` (mtvec). */
__attribute__((naked, section(".vectors"), used)) void uma_reset(void)
{
#if defined(__riscv_flen)
    __asm__ volatile(".option arch, +zicsr\n"
                     "li t0, 0x2000\n"
                     "csrs 0x300, t0\n");
#endif
    __asm__ volatile(".option arch, +zicsr\n"
                     "la t0, %0\n"
                     "csrw 0x305, t0\n"
                     "la sp, uma_stack_end\n"
                     "call uma_board_start\n"
                     :
                     : "i"(fault));
}
