/* What a program of `c_programs` needs of a machine, for an emulated AArch64 without an operating system: a start, memory,
 * and an output and an end by semihosting (Arm's "Semihosting for AArch32 and AArch64"). */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int main(void);
FILE *const stdout = NULL;

static long semihosting(long operation, const void *block)
{
    register long result __asm__("x0") = operation;
    register const void *given __asm__("x1") = block;

    __asm__ volatile("hlt #0xf000" : "+r"(result) : "r"(given) : "memory");
    return result;
}

size_t fwrite(const void *from, size_t size, size_t count, FILE *file)
{
    static long terminal = -1;

    (void)file;
    if (terminal < 0) {
        const uintptr_t opened[3] = {(uintptr_t)":tt", 4, 3};

        terminal = semihosting(0x01, opened);
    }
    const uintptr_t written[3] = {(uintptr_t)terminal, (uintptr_t)from, size * count};

    return semihosting(0x05, written) == 0 ? count : 0;
}

static void leave(int code)
{
    const uintptr_t reason[2] = {0x20026, (uintptr_t)code};

    semihosting(0x18, reason);
    for (;;) {
    }
}

void abort(void)
{
    leave(3);
    for (;;) {
    }
}

/* Volatile, as a compiler would call these functions for their own loops. */
void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    volatile char *byte = to;

    for (size_t i = 0; i < count; ++i) byte[i] = ((const char *)from)[i];
    return to;
}

void *memset(void *to, int value, size_t count)
{
    volatile char *byte = to;

    for (size_t i = 0; i < count; ++i) byte[i] = (char)value;
    return to;
}

int posix_memalign(void **made, size_t alignment, size_t bytes)
{
    static _Alignas(4096) char heap[64 << 20];
    static size_t used;

    used = (used + alignment - 1) & ~(alignment - 1);
    *made = heap + used;
    used += bytes;
    return used > sizeof heap;
}

void free(void *memory) { (void)memory; }

void bare_main(void) { leave(main()); }

/* Vectors are switched on, and so is the MMU, with one page of 1 GiB of normal memory: what lies there may be unaligned. */
__asm__("    .global _start\n"
        "_start:\n"
        "    mov x0, #(3 << 20)\n"
        "    msr cpacr_el1, x0\n"
        "    mov x0, #0xff\n"
        "    msr mair_el1, x0\n"
        "    ldr x0, =0x803520\n"
        "    msr tcr_el1, x0\n"
        "    adrp x0, pages\n"
        "    msr ttbr0_el1, x0\n"
        "    isb\n"
        "    mrs x0, sctlr_el1\n"
        "    mov x1, #0x1005\n"
        "    orr x0, x0, x1\n"
        "    msr sctlr_el1, x0\n"
        "    isb\n"
        "    adrp x0, stack_end\n"
        "    mov sp, x0\n"
        "    bl bare_main\n"
        "    .ltorg\n"
        "    .data\n"
        "    .balign 4096\n"
        "pages:\n"
        "    .quad 0, 0x40000701, 0, 0\n"
        "    .bss\n"
        "    .balign 4096\n"
        "    .skip 1 << 20\n"
        "stack_end:\n"
        "    .skip 16\n"
        "    .text\n");
