"""The opt-ins to results that differ from the model's arithmetic: the keys and values of the option ``allow``."""

from __future__ import annotations

__all__ = ["OPT_INS", "REPLACED", "split_key"]

OPT_INS = {"rounding": ("fixed-point", "float"), "hybrid": ("litert", "float"), "pass": ("declared", "off")}
"""The values of each subject: the opt-in, then its opposite, which is the default."""

REPLACED = {
    "requantize": ("rounding", "fixed-point"),
    "tolerate": ("LABEL.PASS", "declared"),
    "hybrid": ("hybrid", "litert"),
}
"""The options that ``allow`` replaced, each with an entry of ``allow`` that does the same."""


def split_key(key: str) -> tuple[str, str]:
    """Return the subject of a key of ``allow``, and the pattern of the layers or passes that it applies to.

    ``rounding`` applies to all layers, ``rounding:LAYER`` to some of them, ``hybrid`` to all hybrid layers; each other
    key is a pattern of passes, ``LABEL.PASS``.
    """
    subject, colon, pattern = key.partition(":")
    if key in ("rounding", "hybrid"):
        return key, "*"
    return (subject, pattern) if colon and subject == "rounding" else ("pass", key)
