/* The bus of a device that Linux gives to a program: its registers, and a buffer that both reach, mapped from files.
 *
 * The registers are those of a driver of user space, /dev/uio0, the buffer is memory that lies in one piece, such as
 * /dev/udmabuf0, with the address at which the device has it. The program maps them, places in the buffer what the
 * device reaches (arena, inputs and outputs, weights that are loaded), and opens the device with the `uma_uio` as its
 * memory. The buffer is mapped uncached where its driver takes O_SYNC for that; else the program sets device->bus.clean
 * and device->bus.invalidate. The driver polls, unless the program sets device->bus.wait.
 */
#ifndef UMA_UIO_H
#define UMA_UIO_H

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "uma_mmio.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the program says of a device that it has from Linux, and where it has mapped that. */
typedef struct uma_uio {
    const char *registers; /* the file of the registers */
    size_t register_bytes;
    const char *buffer; /* the file of the buffer; null where the driver copies with the processor */
    size_t buffer_bytes;
    uint64_t buffer_address; /* where the device has it */
    /* What uma_uio_map fills in. */
    unsigned char *mapped_registers;
    unsigned char *mapped_buffer;
} uma_uio;

/* A whole file in memory; null where that cannot be. */
static inline unsigned char *uma_uio_file(const char *path, size_t bytes)
{
    const int file = path == NULL || bytes == 0 ? -1 : open(path, O_RDWR | O_SYNC);
    void *at;

    if (file < 0) return NULL;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : (unsigned char *)at;
}

/* Undoes uma_uio_map, after the devices are closed. */
static inline void uma_uio_unmap(uma_uio *uio)
{
    if (uio->mapped_registers != NULL) munmap(uio->mapped_registers, uio->register_bytes);
    if (uio->mapped_buffer != NULL) munmap(uio->mapped_buffer, uio->buffer_bytes);
    uio->mapped_registers = NULL;
    uio->mapped_buffer = NULL;
}

/* Maps registers and buffer; 0, or UMA_FAULT_UNMAPPED. */
static inline int32_t uma_uio_map(uma_uio *uio)
{
    uio->mapped_buffer = NULL;
    uio->mapped_registers = uma_uio_file(uio->registers, uio->register_bytes);
    if (uio->buffer != NULL) uio->mapped_buffer = uma_uio_file(uio->buffer, uio->buffer_bytes);
    if (uio->mapped_registers != NULL && (uio->buffer == NULL || uio->mapped_buffer != NULL)) return 0;
    uma_uio_unmap(uio);
    return UMA_FAULT_UNMAPPED;
}

/* A register's value; `self` is the `uma_uio`. */
static inline uint32_t uma_uio_read32(void *self, uint32_t offset)
{
    return uma_mmio_read32(((const uma_uio *)self)->mapped_registers, offset);
}

/* Sets a register. */
static inline void uma_uio_write32(void *self, uint32_t offset, uint32_t value)
{
    uma_mmio_write32(((const uma_uio *)self)->mapped_registers, offset, value);
}

/* Of memory in the buffer: the address at which the device has it. Of other memory: UMA_FAULT_UNREACHABLE. */
static inline int32_t uma_uio_address(void *self, const void *host, uint64_t *address)
{
    const uma_uio *uio = (const uma_uio *)self;
    const uintptr_t offset = (uintptr_t)host - (uintptr_t)uio->mapped_buffer;

    if (uio->mapped_buffer == NULL || offset >= uio->buffer_bytes) return UMA_FAULT_UNREACHABLE;
    *address = uio->buffer_address + offset;
    return 0;
}

/* Fills in device->bus; `memory` is a `uma_uio`, which is mapped if the program has not done that. */
static inline int32_t uma_uio_bus(uma_device *device, void *memory, size_t bytes)
{
    uma_uio *uio = (uma_uio *)memory;

    if (uio == NULL || bytes < sizeof *uio) return UMA_FAULT_UNMAPPED;
    if (uio->mapped_registers == NULL) UMA_TRY(uma_uio_map(uio));
    device->bus.self = uio;
    device->bus.read32 = uma_uio_read32;
    device->bus.write32 = uma_uio_write32;
    device->bus.address = uma_uio_address;
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
