"""Clips of one second from spoken words: where a word lies in them, how loud it is, how fast, and in what noise.

    python -m keyword_spotter.making.augment FOLDER

takes the WAV files that `speech` made, and writes FOLDER/training.npz (augmented, features only) and FOLDER/test.npz
(every test word once, in weak noise, with its voice and its sound).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import DIGITS, NOISE, SILENCE, UNKNOWN
from ..features import CLIP_SAMPLES, COEFFICIENTS, FRAMES, SAMPLE_RATE_HZ, features
from ..sound import read_wav, resampled

SEED = 0
UNKNOWN_SHARE = 0.2
"""Of the unknown words, so many are taken: they would be more than half of all clips."""

SILENT_SHARE = 0.06
"""Of all clips: noise alone."""

NOISES = 300
"""So many different noises are enough: each is turned round by a random time, and as loud as is drawn."""

Sound = NDArray[np.float32]


def words(folder: Path) -> Iterator[tuple[str, int, Path]]:
    """The voice, the class and the file of every WAV in `folder`, in a fixed order."""
    for path in sorted(folder.glob("*.wav")):
        engine, voice, _, word = path.stem.split("_")
        yield f"{engine} {voice}", DIGITS.index(word) if word in DIGITS else UNKNOWN, path


def noise(draw: np.random.Generator) -> Sound:
    """A second of noise whose power falls with frequency by some random power, sometimes with a hum: RMS 1."""
    spectrum = np.fft.rfft(draw.normal(size=CLIP_SAMPLES))
    bins = np.maximum(np.arange(len(spectrum)), 20)
    made = np.fft.irfft(spectrum * bins ** -draw.uniform(0, 1), CLIP_SAMPLES)
    made /= made.std()
    if draw.random() < 0.2:
        seconds = np.arange(CLIP_SAMPLES) / SAMPLE_RATE_HZ
        made += draw.uniform(0.3, 2) * np.sin(2 * np.pi * draw.uniform(50, 2000) * seconds)
    normal: Sound = (made / made.std()).astype(np.float32)
    return normal


def placed(word: Sound, draw: np.random.Generator, slack_samples: int) -> Sound:
    """`word` in a clip, up to `slack_samples` from the middle; of what is longer than a clip, the middle."""
    clip = np.zeros(CLIP_SAMPLES + 2 * CLIP_SAMPLES, np.float32)
    start = (len(clip) - min(len(word), CLIP_SAMPLES)) // 2 + int(draw.integers(-slack_samples, slack_samples + 1))
    word = word[:CLIP_SAMPLES]
    clip[start : start + len(word)] = word
    return clip[CLIP_SAMPLES:-CLIP_SAMPLES]


def coloured(clip: Sound, draw: np.random.Generator) -> Sound:
    """`clip` through a room or a microphone: a random smooth gain over frequency, and an echo."""
    spectrum = np.fft.rfft(clip)
    anchors = draw.normal(0, 4, 8)
    decibels = np.interp(np.arange(len(spectrum)), np.linspace(0, len(spectrum), 8), anchors)
    made = np.fft.irfft(spectrum * 10 ** (decibels / 20), CLIP_SAMPLES).astype(np.float32)
    delay = int(draw.integers(80, 4000))
    made[delay:] += np.float32(draw.uniform(0, 0.6)) * made[:-delay].copy()
    return made


def augmented(word: Sound, noises: Sequence[Sound], draw: np.random.Generator) -> Sound:
    """One clip of `word` as a training set wants it: another each time."""
    word = resampled(word, 200 * int(draw.integers(64, 101)))  # 0.8 to 1.25 times as fast, and as high
    clip = placed(word, draw, 2400)
    if draw.random() < 0.6:
        clip = coloured(clip, draw)
    loud = clip / max(float(np.abs(clip).max()), 1e-9) * draw.uniform(0.1, 1)
    below_db = draw.uniform(5, 50)
    background = np.roll(noises[int(draw.integers(len(noises)))], int(draw.integers(CLIP_SAMPLES)))
    made: Sound = (loud + background * (loud.std() * 10 ** (-below_db / 20))).astype(np.float32)
    return made


def silent(draw: np.random.Generator) -> Sound:
    """A clip without a word: noise, from next to nothing to loud."""
    return noise(draw) * np.float32(10 ** draw.uniform(-5, -1))


def training(folder: Path, copies: int) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """Features int8 [N, FRAMES, COEFFICIENTS] and classes uint8 [N], `copies` of every word of the training voices."""
    draw = np.random.default_rng(SEED)
    noises = [noise(draw) for _ in range(NOISES)]
    made, labels = [], []
    for _, label, path in words(folder / "training"):
        sound = read_wav(path)
        for _ in range(copies):
            if label != UNKNOWN or draw.random() < UNKNOWN_SHARE:
                made.append(features(augmented(sound, noises, draw)).T)
                labels.append(label)
            if draw.random() < SILENT_SHARE:
                made.append(features(silent(draw)).T)
                labels.append(SILENCE)
    assert made[0].shape == (FRAMES, COEFFICIENTS)
    return np.stack(made), np.array(labels, np.uint8)


def test(folder: Path) -> dict[str, NDArray[Any]]:
    """Every word of the test voices once, and a silence for every tenth, as arrays.

    These are ``clips`` (int16 samples), ``features``, ``labels`` and ``voices``.
    """
    draw = np.random.default_rng(SEED + 1)
    clips, labels, names = [], [], []
    for number, (voice, label, path) in enumerate(words(folder / "test")):
        clip = placed(read_wav(path), draw, 1600)
        clips.append(clip * draw.uniform(0.3, 1.5) + noise(draw) * (clip.std() * 10 ** (-draw.uniform(20, 45) / 20)))
        labels.append(label)
        names.append(voice)
        if number % 10 == 0:
            clips.append(silent(draw))
            labels.append(SILENCE)
            names.append(NOISE)
    stored = np.clip(np.rint(np.stack(clips) * 32767), -32768, 32767).astype(np.int16)
    return {
        "clips": stored,
        "features": np.stack([features(clip / np.float32(32768)) for clip in stored]),
        "labels": np.array(labels, np.uint8),
        "voices": np.array(names),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", type=int, default=8, help="of every training word (default: 8)")
    given = parser.parse_args()
    np.savez(given.folder / "test.npz", allow_pickle=False, **test(given.folder))
    made, labels = training(given.folder, given.copies)
    np.savez(given.folder / "training.npz", features=made, labels=labels)
    print(f"{len(made)} training clips, by class {np.bincount(labels).tolist()}")


if __name__ == "__main__":
    main()
