/* A board with a Cortex-M and nothing else below an emulated program: start-up code, and semihosting, by which a program
 * asks its debugger, or emulator, for files (Arm: Semihosting for AArch32 and AArch64, 2.0). The linker script says where
 * everything is.
 */
#include <stdint.h>
#include <string.h>

#include "uma_emulated.h"

#define SYS_OPEN 0x01u
#define SYS_CLOSE 0x02u
#define SYS_WRITE 0x05u
#define SYS_READ 0x06u
#define SYS_EXIT_EXTENDED 0x20u
#define ADP_STOPPED_APPLICATION_EXIT 0x20026u
#define MODE_RB 1u
#define MODE_WB 5u

/* Exit status of a program that its CPU stopped, or that had too small a stack. */
#define FAULT 99u

/* What the bytes below the stack hold. */
#define UNTOUCHED 0xa5

extern unsigned char uma_guard_begin[], uma_stack_begin[], uma_stack_end[];
extern unsigned char uma_data_load[], uma_data_begin[], uma_data_end[], uma_bss_begin[], uma_bss_end[];
extern unsigned char uma_heap_begin[], uma_heap_end[];

void uma_reset(void);

static uint32_t asked, answer;
static size_t taken;

static uint32_t semihosting(uint32_t operation, const void *arguments)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;

    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void leave(uint32_t status)
{
    /* Not on the stack, which may be the reason. */
    static uint32_t arguments[] = {ADP_STOPPED_APPLICATION_EXIT, 0};

    arguments[1] = status;
    for (;;) semihosting(SYS_EXIT_EXTENDED, arguments);
}

static uint32_t open_file(const char *name, uint32_t mode)
{
    const uint32_t arguments[] = {(uint32_t)(uintptr_t)name, mode, (uint32_t)strlen(name)};

    return semihosting(SYS_OPEN, arguments);
}

/* Reads and writes give the number of bytes that are left over. */
static int move(uint32_t operation, uint32_t file, const void *data, size_t bytes)
{
    const uint32_t arguments[] = {file, (uint32_t)(uintptr_t)data, (uint32_t)bytes};

    return bytes > 0 && semihosting(operation, arguments) != 0;
}

int uma_system_open(void)
{
    asked = open_file("request", MODE_RB);
    answer = open_file("response", MODE_WB);
    return asked == UINT32_MAX || answer == UINT32_MAX;
}

int uma_system_read(void *data, size_t bytes)
{
    return move(SYS_READ, asked, data, bytes);
}

int uma_system_write(const void *data, size_t bytes)
{
    return move(SYS_WRITE, answer, data, bytes);
}

int uma_system_close(void)
{
    const unsigned char *guard;

    for (guard = uma_guard_begin; guard < uma_stack_begin; guard++) {
        if (*guard != UNTOUCHED) leave(FAULT);
    }
    return semihosting(SYS_CLOSE, &asked) != 0 || semihosting(SYS_CLOSE, &answer) != 0;
}

static unsigned char *heap(void)
{
    const uintptr_t begin = (uintptr_t)uma_heap_begin + taken;

    return (unsigned char *)((begin + UMA_SYSTEM_ALIGNMENT - 1) / UMA_SYSTEM_ALIGNMENT * UMA_SYSTEM_ALIGNMENT);
}

size_t uma_system_room(void)
{
    const uintptr_t end = (uintptr_t)uma_heap_end;

    return (uintptr_t)heap() > end ? 0 : end - (uintptr_t)heap();
}

void *uma_system_take(size_t bytes)
{
    unsigned char *memory = heap();

    if (bytes > uma_system_room()) leave(FAULT);
    taken = (size_t)(memory - uma_heap_begin) + bytes;
    return memory;
}

static void stopped(void)
{
    leave(FAULT);
}

static void start(void)
{
    memset(uma_guard_begin, UNTOUCHED, (size_t)(uma_stack_begin - uma_guard_begin));
    memcpy(uma_data_begin, uma_data_load, (size_t)(uma_data_end - uma_data_begin));
    memset(uma_bss_begin, 0, (size_t)(uma_bss_end - uma_bss_begin));
    leave((uint32_t)uma_emulated());
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
    __asm__ volatile("bl %c0\n" : : "i"(start));
}

/* With a stack that works, whatever became of it. */
__attribute__((naked)) static void fault(void)
{
    __asm__ volatile("ldr r0, =uma_stack_end\n"
                     "mov sp, r0\n"
                     "bl %c0\n"
                     :
                     : "i"(stopped));
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
