/* A board without an operating system, below an emulated program: files by semihosting, by which a program asks its
 * debugger, or emulator, for them (Arm: Semihosting for AArch32 and AArch64, 2.0; RISC-V: Semihosting, 1.0). The start-up
 * code of its CPU is a file of its own, and the linker script says where everything is.
 */
#include <stdint.h>
#include <string.h>

#include "uma_emulated.h"
#include "uma_emulated_board.h"

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

/* Of the function that marks the stack: at most so many bytes, which it leaves alone. */
#define OWN_FRAME 64

extern unsigned char uma_guard_begin[], uma_stack_begin[];
extern unsigned char uma_data_load[], uma_data_begin[], uma_data_end[], uma_bss_begin[], uma_bss_end[];
extern unsigned char uma_heap_begin[], uma_heap_end[];

static uintptr_t asked, answer;
static size_t taken;

static void leave(uintptr_t status)
{
    /* Not on the stack, which may be the reason. */
    static uintptr_t arguments[] = {ADP_STOPPED_APPLICATION_EXIT, 0};

    arguments[1] = status;
    for (;;) uma_semihosting(SYS_EXIT_EXTENDED, arguments);
}

static uintptr_t open_file(const char *name, uintptr_t mode)
{
    const uintptr_t arguments[] = {(uintptr_t)name, mode, (uintptr_t)strlen(name)};

    return uma_semihosting(SYS_OPEN, arguments);
}

/* Reads and writes give the number of bytes that are left over. */
static int move(uint32_t operation, uintptr_t file, const void *data, size_t bytes)
{
    const uintptr_t arguments[] = {file, (uintptr_t)data, (uintptr_t)bytes};

    return bytes > 0 && uma_semihosting(operation, arguments) != 0;
}

int uma_system_open(void)
{
    asked = open_file("request", MODE_RB);
    answer = open_file("response", MODE_WB);
    return asked == UINTPTR_MAX || answer == UINTPTR_MAX;
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
    return uma_semihosting(SYS_CLOSE, &asked) != 0 || uma_semihosting(SYS_CLOSE, &answer) != 0;
}

/* The frame's address is where the caller's stack ended, but for what a function saves first. */
__attribute__((noinline)) void uma_system_paint(void)
{
    unsigned char *const end = (unsigned char *)__builtin_frame_address(0);
    volatile unsigned char *at;

    for (at = uma_stack_begin; at < end - OWN_FRAME; at++) *at = UNTOUCHED;
}

__attribute__((noinline)) size_t uma_system_painted(void)
{
    const unsigned char *const end = (const unsigned char *)__builtin_frame_address(0);
    const volatile unsigned char *at = uma_stack_begin;

    while (at < end && *at == UNTOUCHED) at++;
    return (size_t)(end - (const unsigned char *)at);
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

void uma_board_stopped(void)
{
    leave(FAULT);
}

void uma_board_start(void)
{
    memset(uma_guard_begin, UNTOUCHED, (size_t)(uma_stack_begin - uma_guard_begin));
    memcpy(uma_data_begin, uma_data_load, (size_t)(uma_data_end - uma_data_begin));
    memset(uma_bss_begin, 0, (size_t)(uma_bss_end - uma_bss_begin));
    leave((uintptr_t)uma_emulated());
}
