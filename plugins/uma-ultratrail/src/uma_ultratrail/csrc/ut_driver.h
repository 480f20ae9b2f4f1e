/* The driver of UltraTrail. */
#ifndef UT_DRIVER_H
#define UT_DRIVER_H

#include "uma_device.h"

extern const uma_driver ut_driver;

/* Loads a network and its input maps, runs it, and takes its output maps.
 *
 * network: as image.py makes it; `bytes` bytes, of which it is said here only whether they are all.
 * regions: the memory that the network's maps are in.
 */
int32_t ut_run(uma_device *device, const void *network, size_t bytes, const uma_region *regions, int32_t n_regions);

#endif
