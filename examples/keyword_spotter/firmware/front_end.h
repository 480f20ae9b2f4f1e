/* From one second of sound to what the network takes, as keyword_spotter/features.py does it. */
#ifndef FRONT_END_H
#define FRONT_END_H

#include <stdint.h>

#include "front_end_tables.h"

/* What is worked in: 20 KB, which may be used for anything else between two calls. */
typedef struct front_end_memory {
    float real[FRONT_END_FFT], imaginary[FRONT_END_FFT];
    float energies[FRONT_END_COEFFICIENTS];
    float coefficients[FRONT_END_COEFFICIENTS][FRONT_END_FRAMES];
} front_end_memory;

/* samples: FRONT_END_SAMPLES of 16 kHz. features: [FRONT_END_COEFFICIENTS][FRONT_END_FRAMES]. */
void front_end_features(front_end_memory *memory, const int16_t *samples, int8_t *features);

#endif
