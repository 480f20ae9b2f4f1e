/* The driver of mac_array. Each function runs one command to its end and gives 0, or a fault code. */
#ifndef MAC_ARRAY_DRIVER_H
#define MAC_ARRAY_DRIVER_H

#include "uma_device.h"

extern const uma_driver mac_array_driver;

/* device->parameters: the bytes of activations, weights and accumulators that code was generated for. The device may
 * have more. */
#define MAC_ARRAY_N_PARAMETERS 3

/* DMA: `rows` rows of `row_bytes` bytes, `to_stride` and `from_stride` bytes apart. */
int32_t mac_array_load_act(uma_device *device, uint32_t to, const void *from, int32_t rows, int32_t row_bytes,
                        int32_t to_stride, int32_t from_stride);
int32_t mac_array_load_wgt(uma_device *device, uint32_t to, const void *from, int32_t rows, int32_t row_bytes,
                        int32_t to_stride, int32_t from_stride);
int32_t mac_array_store(uma_device *device, void *to, uint32_t from, int32_t rows, int32_t row_bytes, int32_t to_stride,
                     int32_t from_stride);

/* Writes `value` into `rows` rows of `row_bytes` activations, `stride` bytes apart. */
int32_t mac_array_fill(uma_device *device, uint32_t to, int32_t stride, int32_t rows, int32_t row_bytes, int32_t value);

/* Accumulators of height * width pixels become the biases of a record. */
int32_t mac_array_bias(uma_device *device, uint32_t acc, int32_t acc_y, uint32_t record, int32_t height, int32_t width);

/* Adds to the accumulators of height * width pixels the products of the activations under them with one block of
 * weights, over `taps` runs of `depth` bytes each. */
int32_t mac_array_mac(uma_device *device, uint32_t acc, int32_t acc_y, uint32_t act, int32_t act_y, int32_t act_x,
                   int32_t act_t, uint32_t wgt, int32_t wgt_t, int32_t height, int32_t width, int32_t taps,
                   int32_t depth);

/* Accumulators become int8: the first `channels` channels of height * width pixels, whose rows are `out_y` bytes apart
 * and whose columns `out_x`. */
int32_t mac_array_requantise(uma_device *device, uint32_t out, int32_t out_y, int32_t out_x, uint32_t acc,
                          int32_t acc_y, uint32_t record, int32_t height, int32_t width, int32_t channels,
                          int32_t rounding, int32_t zero_point, int32_t low, int32_t high);

#endif
