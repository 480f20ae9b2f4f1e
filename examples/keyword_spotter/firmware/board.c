/* Start-up code of a Cortex-M4F, and semihosting, by which a program asks its debugger, or emulator (Arm: Semihosting for
 * AArch32 and AArch64, 2.0). On a board without a debugger these are a UART, and a loop without end. */
#include "board.h"

#include <stdint.h>
#include <string.h>

#define SYS_WRITE0 0x04u
#define SYS_EXIT_EXTENDED 0x20u
#define ADP_STOPPED_APPLICATION_EXIT 0x20026u
#define UNTOUCHED 0xa5

extern unsigned char stack_begin[], stack_end[], data_load[], data_begin[], data_end[], bss_begin[], bss_end[], flash_end[];

void reset(void);
void start(void);
void fault(void);

static void ask(uint32_t operation, const void *arguments)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;

    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

void board_say(const char *text)
{
    ask(SYS_WRITE0, text);
}

void board_number(long number)
{
    char digits[24], *at = &digits[sizeof digits - 1];
    unsigned long rest = number < 0 ? 0ul - (unsigned long)number : (unsigned long)number;

    *at = '\0';
    do *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (number < 0) *--at = '-';
    board_say(at);
}

void board_end(int status)
{
    const uintptr_t arguments[] = {ADP_STOPPED_APPLICATION_EXIT, (uintptr_t)status};

    for (;;) ask(SYS_EXIT_EXTENDED, arguments);
}

size_t board_flash_bytes(void)
{
    return (size_t)(uintptr_t)flash_end;
}

size_t board_ram_bytes(void)
{
    return (size_t)(data_end - data_begin) + (size_t)(bss_end - bss_begin);
}

size_t board_stack_bytes(void)
{
    const unsigned char *at = stack_begin;

    while (at < stack_end && *at == UNTOUCHED) at++;
    return (size_t)(stack_end - at);
}

void fault(void)
{
    board_say("the CPU stopped at a fault\n");
    board_end(99);
}

void start(void)
{
    memcpy(data_begin, data_load, (size_t)(data_end - data_begin));
    memset(bss_begin, 0, (size_t)(bss_end - bss_begin));
    board_end(main());
}

/* Switches the floating-point unit on (CPACR, 0xe000ed88), and marks the stack, before there is anything on it. */
__attribute__((naked)) void reset(void)
{
    __asm__ volatile("ldr r0, =0xe000ed88\n"
                     "ldr r1, [r0]\n"
                     "orr r1, r1, #0xf00000\n"
                     "str r1, [r0]\n"
                     "dsb\n"
                     "isb\n"
                     "ldr r0, =stack_begin\n"
                     "ldr r1, =stack_end\n"
                     "ldr r2, =0xa5a5a5a5\n"
                     "1: str r2, [r0], #4\n"
                     "cmp r0, r1\n"
                     "blo 1b\n"
                     "bl start\n");
}

typedef union vector {
    unsigned char *stack_end;
    void (*handler)(void);
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {.stack_end = stack_end}, {.handler = reset}, {.handler = fault}, {.handler = fault},
    {.handler = fault},       {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},       {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},       {.handler = fault}, {.handler = fault}, {.handler = fault},
};
