/* The driver of the stream machine. Each function gives 0, or a fault code. */
#ifndef STM_DRIVER_H
#define STM_DRIVER_H

#include "uma_device.h"

extern const uma_driver stm_driver;

/* device->parameters: the bytes of weight memory that code was generated for. The device may have more. */
#define STM_N_PARAMETERS 1

/* Starts a stream of `bytes` bytes, which may use the memory of `regions`, and comes back while it runs. Stream and
 * regions must stay until it has ended; no other is started before. */
int32_t stm_start(uma_device *device, const void *stream, size_t bytes, const uma_region *regions, int32_t n_regions);

/* Blocks until at most `pending` streams run. Only one ever does. */
int32_t stm_wait(uma_device *device, int32_t pending);

#endif
