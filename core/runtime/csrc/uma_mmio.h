/* The bus of a device whose registers are memory of this machine, from an address on.
 *
 * The device must see host memory at the addresses at which the processor does. A program that can wait for the device's
 * interrupt sets device->bus.wait after the device was opened; one with caches that do not see what the device does sets
 * device->bus.clean and device->bus.invalidate.
 */
#ifndef UMA_MMIO_H
#define UMA_MMIO_H

#include "uma_device.h"

/* Around accesses to registers: memory that a device was told of is written before, and what it wrote is read after. */
#if defined(__GNUC__)
#define UMA_MMIO_FENCE() __sync_synchronize()
#else
#define UMA_MMIO_FENCE() ((void)0)
#endif

/* A register's value; `self` is the address of the first one. */
static inline uint32_t uma_mmio_read32(void *self, uint32_t offset)
{
    const uint32_t value = *(volatile uint32_t *)(void *)((unsigned char *)self + offset);

    UMA_MMIO_FENCE();
    return value;
}

/* Sets a register. */
static inline void uma_mmio_write32(void *self, uint32_t offset, uint32_t value)
{
    UMA_MMIO_FENCE();
    *(volatile uint32_t *)(void *)((unsigned char *)self + offset) = value;
}

/* Fills in device->bus; `memory` is the first register. */
static inline int32_t uma_mmio_bus(uma_device *device, void *memory, size_t bytes)
{
    (void)bytes;
    device->bus.self = memory;
    device->bus.read32 = uma_mmio_read32;
    device->bus.write32 = uma_mmio_write32;
    device->bus.wait = NULL;
    return 0;
}

#endif
