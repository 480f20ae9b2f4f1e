"""A keyword spotter for UltraTrail: ten digits, silence and unknown words, in one second of sound."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MODEL = FOLDER / "spotter.onnx"
"""Input ``features`` int8 [1, 40, 101], output ``logits`` int8 [1, 12]; see README.md."""

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WORDS = (*DIGITS, "silence", "unknown")
"""The classes, in the order of the logits."""

SILENCE, UNKNOWN = WORDS.index("silence"), WORDS.index("unknown")

NOISE = "noise"
"""What clips.npz and results.json have in place of a voice where nobody speaks."""
