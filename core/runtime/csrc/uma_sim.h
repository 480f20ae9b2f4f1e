/* What simulators of accelerators have in common: memories that know which of their bytes were ever written, words of
 * memory, and the bus; with the numbers of uma_fixed.h. C99, no state, nothing but static inline functions. A plugin's C
 * includes it; it is written beside the files of a model that need it.
 */
#ifndef UMA_SIM_H
#define UMA_SIM_H

#include <string.h>

#include "uma_device.h"
#include "uma_fixed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- Memories ---------------------------------------------------------------------------------------------------- */

/* A memory of a device. */
typedef struct uma_bank {
    uint8_t *bytes;
    uint8_t *known; /* for each byte: 0 until it is written; what else it says is the simulator's own */
    uint32_t size;
    int32_t outside, unknown; /* fault codes: for addresses beyond it, and for bytes that are read and never written */
} uma_bank;

/* Lays a bank of `size` bytes, none of them known, into the memory that a simulator was given. It takes twice as much as
 * it has; gives what lies behind it. */
static inline uint8_t *uma_bank_make(uma_bank *bank, uint8_t *memory, int64_t size, int32_t outside, int32_t unknown)
{
    bank->bytes = memory;
    bank->known = memory + size;
    bank->size = (uint32_t)size;
    bank->outside = outside;
    bank->unknown = unknown;
    memset(bank->known, 0, (size_t)size);
    return memory + 2 * size;
}

/* After a reset no byte is known. */
static inline void uma_bank_forget(uma_bank *bank)
{
    memset(bank->known, 0, bank->size);
}

/* Whether a bank has `bytes` bytes at `at`: 0 or its fault. */
static inline int32_t uma_bank_reach(const uma_bank *bank, uint64_t at, uint64_t bytes)
{
    return bytes <= bank->size && at <= bank->size - bytes ? 0 : bank->outside;
}

/* Whether they may be read. */
static inline int32_t uma_bank_readable(const uma_bank *bank, uint64_t at, uint64_t bytes)
{
    UMA_TRY(uma_bank_reach(bank, at, bytes));
    return memchr(bank->known + at, 0, (size_t)bytes) == NULL ? 0 : bank->unknown;
}

/* Notes that they were written, which they may be. */
static inline void uma_bank_note(const uma_bank *bank, uint64_t at, uint64_t bytes)
{
    memset(bank->known + at, 1, (size_t)bytes);
}

/* --- Words ------------------------------------------------------------------------------------------------------- */

/* 32 bits of memory, the lowest byte first. */
static inline uint32_t uma_load32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Sets them. */
static inline void uma_store32(uint8_t *at, uint32_t value)
{
    int i;

    for (i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* Host memory whose address is in two registers. */
static inline uint8_t *uma_host_memory(uint32_t low, uint32_t high)
{
    return (uint8_t *)(uintptr_t)((uint64_t)high << 32 | low);
}

/* --- The bus ----------------------------------------------------------------------------------------------------- */

/* The half of a counter of 64 bits that is read at `offset`, a multiple of 4 from a multiple of 8 on. */
static inline uint32_t uma_counter_half(uint64_t counter, uint32_t offset)
{
    return (uint32_t)(counter >> (offset % 8u * 8u));
}

/* Has the registers of a device be those of a simulator, which has no cache beside it. `wait` may be null. */
static inline void uma_sim_connect(uma_device *device, void *self, uint32_t (*read)(void *, uint32_t),
                                   void (*write)(void *, uint32_t, uint32_t), void (*wait)(void *))
{
    device->bus.self = self;
    device->bus.read32 = read;
    device->bus.write32 = write;
    device->bus.wait = wait;
}

#ifdef __cplusplus
}
#endif

#endif
