#ifndef UMA_ONEDNN_H
#define UMA_ONEDNN_H

#include "uma_device.h"

extern const uma_driver uma_onednn_driver;

/* Runs one operation of the library, which `spec` describes (uma_onednn_spec.h): 0, or a fault code.
 *
 * With the first call the operation is made, and constant weights are packed as the library wants them on this CPU; both
 * are kept with the device until it is closed. What an operation does not have is null. */
int32_t uma_onednn_run(uma_device *device, const void *spec, const void *src, const void *weights, const void *bias,
                       const void *other, void *dst);

#endif
