"""From one second of sound to what the network takes: 40 mel-frequency cepstral coefficients (MFCC) of 101 frames.

A frame is 30 ms of sound around every tenth millisecond, beyond the clip 0. It is weighted by a Hann window, and its
power spectrum summed by 40 triangular filters, evenly spaced on the mel scale (2595 log10(1 + f / 700)).
The orthonormal DCT-II of the logarithms of these sums gives the coefficients. Those from 1 on lose their mean over the
clip, which is what a microphone or a voice adds to every frame; coefficient 0, the loudness, keeps its own. Each is
multiplied by a gain, rounded half to even, and clipped to int8: so the features are the network's, at 2**-7.

`firmware/front_end.c` does the same in float32.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
CLIP_SAMPLES = 16_000
HOP_SAMPLES = 160
WINDOW_SAMPLES = 480
FFT_SAMPLES = 512
FRAMES = CLIP_SAMPLES // HOP_SAMPLES + 1
COEFFICIENTS = 40
LOWEST_HZ, HIGHEST_HZ = 60.0, 7600.0
FLOOR = 1e-5
"""Added to the power of a filter, of samples from -1 to 1: a quiet room, and no logarithm of 0."""

LOUDNESS_OFFSET = 24.0
"""Added to coefficient 0, which lies between -73 (nothing) and about 30."""


def window() -> NDArray[np.float64]:
    """The periodic Hann window: float64 [WINDOW_SAMPLES]."""
    made: NDArray[np.float64] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW_SAMPLES) / WINDOW_SAMPLES)
    return made


@functools.cache
def mel_filters() -> NDArray[np.float64]:
    """The weight of each bin of the power spectrum in each filter: float64 [COEFFICIENTS, FFT_SAMPLES / 2 + 1]."""
    low, high = (2595 * np.log10(1 + hz / 700) for hz in (LOWEST_HZ, HIGHEST_HZ))
    corners = 700 * (10 ** (np.linspace(low, high, COEFFICIENTS + 2) / 2595) - 1)
    bins = np.arange(FFT_SAMPLES // 2 + 1) * (SAMPLE_RATE_HZ / FFT_SAMPLES)
    rising = (bins - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    falling = (corners[2:, None] - bins) / (corners[2:] - corners[1:-1])[:, None]
    made: NDArray[np.float64] = np.maximum(0, np.minimum(rising, falling))
    return made


@functools.cache
def cosines() -> NDArray[np.float64]:
    """The orthonormal DCT-II: float64 [COEFFICIENTS, COEFFICIENTS], one row for each coefficient."""
    count = COEFFICIENTS
    rows = np.cos(np.pi / count * np.arange(count)[:, None] * (np.arange(count) + 0.5)) * np.sqrt(2 / count)
    rows[0] /= np.sqrt(2)
    made: NDArray[np.float64] = rows
    return made


def gains() -> NDArray[np.float64]:
    """Steps of a feature for 1 of a coefficient: float64 [COEFFICIENTS]; the higher ones are smaller by themselves.

    A feature spreads by about 7 steps, so that a clip takes 2 KB compressed.
    """
    order = np.arange(COEFFICIENTS)
    made: NDArray[np.float64] = np.where(order == 0, 1.0, 4.0 + order) / 3
    return made


def mfcc(clip: NDArray[np.floating]) -> NDArray[np.float64]:
    """The coefficients of `clip` (samples from -1 to 1, [CLIP_SAMPLES]): float64 [COEFFICIENTS, FRAMES]."""
    if clip.shape != (CLIP_SAMPLES,):
        raise ValueError(f"a clip has {CLIP_SAMPLES} samples; this one has shape {list(clip.shape)}")
    half = WINDOW_SAMPLES // 2
    padded = np.pad(clip.astype(np.float64), half)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW_SAMPLES)[::HOP_SAMPLES]
    spectrum = np.fft.rfft(frames * window(), FFT_SAMPLES)
    power = (spectrum.real**2 + spectrum.imag**2) @ mel_filters().T
    made: NDArray[np.float64] = cosines() @ np.log(power + FLOOR).T
    return made


def features(clip: NDArray[np.floating]) -> NDArray[np.int8]:
    """What the network takes of `clip` (samples from -1 to 1, [CLIP_SAMPLES]): int8 [COEFFICIENTS, FRAMES].

    Raises:
        ValueError: the clip has another shape.
    """
    found = mfcc(clip)
    found[1:] -= found[1:].mean(axis=1, keepdims=True)
    found[0] += LOUDNESS_OFFSET
    return np.clip(np.rint(found * gains()[:, None]), -128, 127).astype(np.int8)
