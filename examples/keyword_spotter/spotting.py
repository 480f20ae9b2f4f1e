"""The built model: from features to words, and from a sound to the words in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from . import DIGITS, WORDS
from .features import CLIP_SAMPLES, features
from .sound import windows

if TYPE_CHECKING:
    from uma.runtime.session import ModelSession

TARGET, LISTENING, HOST = "ultra_trail", "ultra_trail -impl=functional", "c"
SHARPNESS = 16 / 128
"""Training takes logits times this for the exponents of the softmax; so a confidence is one of training's."""

LEAST_CONFIDENCE = 0.7
LEAST_APART_S = 0.8


@dataclass(frozen=True)
class Detection:
    """A word that was heard.

    Args:
        word: one of `DIGITS`.
        start_s: where the second of sound begins in which it was clearest.
        confidence: 0 to 1, of that second.
    """

    word: str
    start_s: float
    confidence: float


def confidences(logits: NDArray[np.integer]) -> NDArray[np.float64]:
    """The softmax over the last axis of int8 logits, sharpened as in training: float64 of the same shape."""
    powers = np.exp((logits - logits.max(axis=-1, keepdims=True).astype(np.float64)) * SHARPNESS)
    made: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return made


def logits_of(session: ModelSession, taken: NDArray[np.int8]) -> NDArray[np.int8]:
    """The logits, int8 [12], for features int8 [40, 101]."""
    made: NDArray[np.int8] = session.run({"features": taken[None]})["logits"][0]
    return made


def heard(session: ModelSession, sound: NDArray[np.float32]) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """For every window of `sound` its start in seconds and the confidences, float64 [12]."""
    for start_s, clip in windows(sound):
        yield start_s, confidences(logits_of(session, features(clip)))


def detections(seconds: Iterable[tuple[float, NDArray[np.float64]]], least_windows: int = 2) -> Iterator[Detection]:
    """The words in what `heard` gives: windows in a row with one digit ahead are one word, where it is clearest.

    It must be ahead in `least_windows` in a row. Of words whose windows share more than a fifth of a second the surest
    is one: the others are what the window has of it at its ends.
    """
    rows = ((start_s, int(shares.argmax()), float(shares.max())) for start_s, shares in seconds)
    last = None
    for word, group in itertools.groupby(rows, key=itemgetter(1)):
        run = list(group)
        start_s, _, confidence = max(run, key=itemgetter(2))
        if word >= len(DIGITS) or confidence < LEAST_CONFIDENCE or len(run) < least_windows:
            continue
        found = Detection(WORDS[word], start_s, confidence)
        if last is not None and start_s - last.start_s < LEAST_APART_S:
            found = max(last, found, key=lambda one: one.confidence)
        elif last is not None:
            yield last
        last = found
    if last is not None:
        yield last


def heard_words(session: ModelSession, sound: NDArray[np.float32]) -> Iterator[Detection]:
    """The words in `sound` (16 kHz), as they come; what is no longer than a second has one window, which is enough."""
    return detections(heard(session, sound), 2 if len(sound) > CLIP_SAMPLES else 1)
