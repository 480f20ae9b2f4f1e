/* Mel-frequency cepstral coefficients in float32. keyword_spotter/features.py says what they are, and makes the tables. */
#define FRONT_END_TABLES
#include "front_end.h"

#include <math.h>
#include <stddef.h>

/* Decimation in time, in place, of FRONT_END_FFT complex numbers that are in bit-reversed order already. */
static void transform(float *real, float *imaginary)
{
    int half, first, k;

    for (half = 1; half < FRONT_END_FFT; half *= 2) {
        const int stride = FRONT_END_FFT / (2 * half);

        for (first = 0; first < FRONT_END_FFT; first += 2 * half) {
            for (k = 0; k < half; k++) {
                const float c = front_end_cosines[k * stride], s = front_end_sines[k * stride];
                float *r0 = &real[first + k], *i0 = &imaginary[first + k], *r1 = r0 + half, *i1 = i0 + half;
                const float r = *r1 * c + *i1 * s, i = *i1 * c - *r1 * s;

                *r1 = *r0 - r;
                *i1 = *i0 - i;
                *r0 += r;
                *i0 += i;
            }
        }
    }
}

static int reversed(int index)
{
    int bit, made = 0;

    for (bit = 1; bit < FRONT_END_FFT; bit *= 2) {
        made = 2 * made + (index & 1);
        index /= 2;
    }
    return made;
}

/* The logarithms of the filters' sums for the window that begins at `start`, which may be before the clip. */
static void measure(front_end_memory *m, const int16_t *samples, int start)
{
    const float *weight = front_end_weights;
    int n, filter, bin;

    for (n = 0; n < FRONT_END_FFT; n++) {
        const int at = start + n, to = reversed(n);
        const int heard = n < FRONT_END_WINDOW && at >= 0 && at < FRONT_END_SAMPLES;

        m->real[to] = heard ? (float)samples[at] / 32768.0f * front_end_window[n] : 0.0f;
        m->imaginary[to] = 0.0f;
    }
    transform(m->real, m->imaginary);
    for (filter = 0; filter < FRONT_END_COEFFICIENTS; filter++) {
        float sum = 0.0f;

        for (bin = front_end_first[filter]; bin < front_end_first[filter] + front_end_bins[filter]; bin++) {
            sum += (m->real[bin] * m->real[bin] + m->imaginary[bin] * m->imaginary[bin]) * *weight++;
        }
        m->energies[filter] = logf(sum + FRONT_END_FLOOR);
    }
}

void front_end_features(front_end_memory *m, const int16_t *samples, int8_t *features)
{
    int frame, k, filter;

    for (frame = 0; frame < FRONT_END_FRAMES; frame++) {
        measure(m, samples, frame * FRONT_END_HOP - FRONT_END_WINDOW / 2);
        for (k = 0; k < FRONT_END_COEFFICIENTS; k++) {
            float sum = 0.0f;

            for (filter = 0; filter < FRONT_END_COEFFICIENTS; filter++) {
                sum += front_end_dct[k][filter] * m->energies[filter];
            }
            m->coefficients[k][frame] = sum;
        }
    }
    for (k = 0; k < FRONT_END_COEFFICIENTS; k++) {
        float mean = 0.0f;

        for (frame = 0; frame < FRONT_END_FRAMES; frame++) mean += m->coefficients[k][frame];
        mean /= (float)FRONT_END_FRAMES;
        for (frame = 0; frame < FRONT_END_FRAMES; frame++) {
            const float level = k == 0 ? -FRONT_END_LOUDNESS_OFFSET : mean;
            const float steps = rintf((m->coefficients[k][frame] - level) * front_end_gains[k]);

            *features++ = (int8_t)(steps > 127.0f ? 127.0f : steps < -128.0f ? -128.0f : steps);
        }
    }
}
