/* The VEX forms of the VNNI instructions (vpdpbusd, vpdpbusds, vpdpwssd, vpdpwssds) on x86-64 Linux machines that have
 * AVX2 and not these: what such a CPU takes for an illegal instruction is computed here, and the program goes on. On a
 * machine that has them nothing of this is ever called. From Intel's Software Developer's Manual, volume 2. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { XMM = 160, STATES = 512, UPPER = 576 }; /* offsets in the saved state of the vector unit */

static const int general[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static void get(const char *state, int number, uint8_t *to)
{
    memcpy(to, state + XMM + 16 * number, 16);
    memcpy(to + 16, state + UPPER + 16 * number, 16);
}

static int64_t dot(int words, const uint8_t *a, const uint8_t *b)
{
    int64_t sum = 0;
    if (!words) {
        for (int i = 0; i < 4; ++i) {
            sum += (int)a[i] * (int)(int8_t)b[i];
        }
        return sum;
    }
    for (int i = 0; i < 4; i += 2) {
        int16_t x, y;
        memcpy(&x, a + i, 2);
        memcpy(&y, b + i, 2);
        sum += (int)x * (int)y;
    }
    return sum;
}

static void illegal(int number, siginfo_t *info, void *given)
{
    ucontext_t *context = given;
    greg_t *registers = context->uc_mcontext.gregs;
    char *state = (char *)context->uc_mcontext.fpregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    (void)number;
    (void)info;
    /* VEX of three bytes: 66.0F38.W0, opcodes 50 to 53. */
    if (code[0] != 0xC4 || (code[1] & 31) != 2 || (code[2] & 0x83) != 1 || code[3] < 0x50 || code[3] > 0x53) {
        _Exit(99);
    }
    int wide = code[2] >> 2 & 1, opcode = code[3], mode = code[4] >> 6, low = code[4] & 7, length = 5;
    int result = (code[4] >> 3 & 7) | (~code[1] >> 4 & 8), base = ~code[1] >> 2 & 8, index = ~code[1] >> 3 & 8;
    uint8_t a[32], b[32], sums[32];
    if (mode == 3) {
        get(state, low | base, b);
    } else {
        uint64_t address = 0;
        int bytes = mode == 1 ? 1 : mode == 2 ? 4 : 0, relative = 0;
        if (low == 4) {
            int sib = code[length++], scaled = (sib >> 3 & 7) | index;
            if (scaled != 4) {
                address += (uint64_t)registers[general[scaled]] << (sib >> 6);
            }
            if ((sib & 7) == 5 && mode == 0) {
                bytes = 4;
            } else {
                address += (uint64_t)registers[general[(sib & 7) | base]];
            }
        } else if (low == 5 && mode == 0) {
            bytes = 4;
            relative = 1;
        } else {
            address += (uint64_t)registers[general[low | base]];
        }
        if (bytes == 1) {
            address += (uint64_t)(int64_t)(int8_t)code[length];
        } else if (bytes == 4) {
            int32_t offset;
            memcpy(&offset, code + length, 4);
            address += (uint64_t)(int64_t)offset;
        }
        length += bytes;
        address += relative ? (uint64_t)(registers[REG_RIP] + length) : 0;
        memcpy(b, (const void *)address, wide ? 32 : 16);
    }
    get(state, ~code[2] >> 3 & 15, a);
    get(state, result, sums);
    for (int i = 0; i < (wide ? 32 : 16); i += 4) {
        int32_t sum;
        memcpy(&sum, sums + i, 4);
        int64_t exact = sum + dot(opcode >= 0x52, a + i, b + i);
        if (opcode & 1) {
            exact = exact > INT32_MAX ? INT32_MAX : exact < INT32_MIN ? INT32_MIN : exact;
        }
        uint32_t kept = (uint32_t)exact;
        memcpy(sums + i, &kept, 4);
    }
    if (!wide) {
        memset(sums + 16, 0, 16);
    }
    memcpy(state + XMM + 16 * result, sums, 16);
    memcpy(state + UPPER + 16 * result, sums + 16, 16);
    uint64_t states;
    memcpy(&states, state + STATES, 8);
    states |= 6; /* both halves are other than at the start */
    memcpy(state + STATES, &states, 8);
    registers[REG_RIP] += length;
}

__attribute__((constructor)) static void install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = illegal;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, NULL);
}
