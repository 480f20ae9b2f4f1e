"""WAV files, whatever their rate, as one channel of 16 kHz."""

from __future__ import annotations

import math
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .features import CLIP_SAMPLES, SAMPLE_RATE_HZ

STEP_SAMPLES = SAMPLE_RATE_HZ // 10
RATES_HZ = 1_000, 768_000
ZERO_CROSSINGS = 16
BLOCK_SAMPLES = 1 << 12


class SoundError(ValueError):
    """A file that is not a sound that can be read: which, why, and what to do."""


def read_wav(path: Path) -> NDArray[np.float32]:
    """The sound of a WAV file of 16-bit PCM, mono or stereo, at 16 kHz: samples from -1 to 1, float32 [samples].

    Raises:
        SoundError: there is no such file, or it is not such a WAV file, is empty or truncated.
    """
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, rate_hz, frames, *_ = file.getparams()
            # What a header claims may be more than there is memory for: no more is asked for than the file has.
            data = file.readframes(min(frames, path.stat().st_size // (channels * width)))
    except OSError as error:
        raise SoundError(f"{path}: {error.strerror}") from None
    except (wave.Error, EOFError, RuntimeError) as error:  # RuntimeError: a chunk that leaves the file
        reason = str(error) or "it ends before its sound begins"
        raise SoundError(f"{path}: no WAV file of 16-bit PCM: {reason}{_hint(path)}") from None
    if width != 2 or channels not in (1, 2):
        found = f"{8 * width} bits and {channels} channel{'s' * (channels > 1)}"
        raise SoundError(f"{path}: samples have {found}, not 16 and 1 or 2{_hint(path)}")
    if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
        raise SoundError(f"{path}: the rate is {rate_hz} Hz, not {RATES_HZ[0]} to {RATES_HZ[1]}{_hint(path)}")
    if frames == 0:
        raise SoundError(f"{path}: there are no samples in it")
    there = len(data) // (channels * 2)
    if there < frames:
        raise SoundError(f"{path}: truncated: {there} of {frames} samples are there{_hint(path)}")
    sound = np.frombuffer(data, "<i2").reshape(-1, channels).mean(axis=1, dtype=np.float32) / np.float32(32768)
    return resampled(sound, rate_hz)


def _hint(path: Path) -> str:
    return f"\n  hint: ffmpeg -i {path} -c:a pcm_s16le -ac 1 -ar {SAMPLE_RATE_HZ} out.wav writes such a file"


def resampled(sound: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """`sound` (float32 [samples]) at 16 kHz: a sinc under a Hann window, that cuts off at the lower rate's half."""
    if rate_hz == SAMPLE_RATE_HZ:
        return sound
    common = math.gcd(rate_hz, SAMPLE_RATE_HZ)
    up, down = SAMPLE_RATE_HZ // common, rate_hz // common
    cutoff = min(1.0, up / down)
    reach = math.ceil(ZERO_CROSSINGS / cutoff)
    taps = np.arange(-reach, reach + 2)
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(sound, (reach, reach + 2)), len(taps))
    made = np.empty(max(1, len(sound) * up // down), np.float32)
    for first in range(0, len(made), BLOCK_SAMPLES):
        # Sample n is at n * down / up, so there are no more than `up` different ways to lie between samples.
        whole, phase = np.divmod(np.arange(first, min(first + BLOCK_SAMPLES, len(made))) * down, up)
        phases, which = np.unique(phase, return_inverse=True)
        away = (phases / up)[:, None] - taps
        filters = cutoff * np.sinc(cutoff * away) * np.cos(np.pi / 2 * np.clip(away / (reach + 1), -1, 1)) ** 2
        filters = (filters / filters.sum(axis=1, keepdims=True)).astype(np.float32)
        made[first : first + len(whole)] = np.einsum("nt,nt->n", seen[whole], filters[which])
    return made


def windows(sound: NDArray[np.float32]) -> Iterator[tuple[float, NDArray[np.float32]]]:
    """Every second of `sound` (16 kHz), a tenth of a second from one to the next: the start in seconds, the clip.

    What is shorter than a second is in the middle of one clip, between zeros. The last window ends with the sound.
    """
    missing = CLIP_SAMPLES - len(sound)
    if missing > 0:
        sound = np.pad(sound, (missing // 2, missing - missing // 2))
    last = len(sound) - CLIP_SAMPLES
    for start in (*range(0, last, STEP_SAMPLES), last):
        yield start / SAMPLE_RATE_HZ, sound[start : start + CLIP_SAMPLES]
