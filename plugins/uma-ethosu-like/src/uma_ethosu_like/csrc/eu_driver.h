/* The driver of the machine: of Ethos-U55 as far as public headers say what it is, and of the simulator. */
#ifndef EU_DRIVER_H
#define EU_DRIVER_H

#include "uma_device.h"

extern const uma_driver eu_driver;

/* Starts the stream of a payload.
 *
 * payload: as payload.py makes it, or Vela; `bytes` bytes, beginning at a multiple of 16.
 * regions: the memory that the stream names by number, at most 8; on silicon each begins at a multiple of 16.
 */
int32_t eu_start(uma_device *device, const void *payload, size_t bytes, const uma_region *regions, int32_t n_regions);

/* Waits for its end, unless one may be pending. */
int32_t eu_wait(uma_device *device, int32_t pending);

#endif
