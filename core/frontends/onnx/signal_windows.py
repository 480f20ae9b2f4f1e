"""What signals are weighed with: windows in time, and the mel scale's in frequency. Both are known at import."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr
from ...relay.op import STEP_OPERATIONS
from ...support.import_budget import spend_operations
from ...tir.form.dtype import is_float
from .context import Context, Converter
from .tensors import dtype_name

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SIGNALS"]


def _dtype(c: Context) -> str:
    dtype = dtype_name(c.node.integer("output_datatype", 1), "its result")
    if not is_float(dtype):
        raise ModelError(f"its result is {dtype}; floats are supported")
    return dtype


def _window(*factors: float) -> Converter:
    """A sum of cosines of multiples of the angle, with these factors.

    The size is that of the declared result where it is computed at run time.
    """

    def convert(c: Context) -> np.ndarray:
        import numpy as np

        declared = c.declared[0] if c.declared else None
        if isinstance(c.value(0), Expr) and declared is not None and len(declared) == 1:
            size = declared[0]
        else:
            sizes = c.known_integers(0)
            size = sizes[0] if len(sizes) == 1 else -1
        if size < 1:
            raise ModelError(f"it has a size of {size}")
        c.reserve(1 + len(factors), size)
        turns = size if c.node.integer("periodic", 1) else max(size - 1, 1)
        angle = 2 * math.pi * np.arange(size) / turns
        window = np.sum([factor * np.cos(k * angle) for k, factor in enumerate(factors)], axis=0)
        return np.asarray(window, _dtype(c))

    return convert


def _mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def _mel_weights(c: Context) -> np.ndarray:
    """Triangles over the bins of a transform, at equal distances on the mel scale: (bins of it, mel bins)."""
    import numpy as np

    parameters = [c.known(index) for index in range(5)]
    if any(array.size != 1 for array in parameters):
        raise ModelError("its parameters are one number each")
    mels, length, rate, low, high = (array.item() for array in parameters)
    bins = length // 2 + 1
    if mels < 1 or length < 1 or rate < 1 or not 0 <= low < high < math.inf:
        raise ModelError(f"it has {mels} mel bins of {length} elements at {rate} Hz, from {low} to {high} Hz")
    c.reserve(bins, mels)
    spend_operations(STEP_OPERATIONS * mels)
    step = (_mel(high) - _mel(low)) / (mels + 2)
    hertz = 700 * (10 ** ((np.arange(mels + 2) * step + _mel(low)) / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(np.int64)
    if edges[-1] >= bins:
        raise ModelError(f"its highest frequency, {high} Hz, is beyond the {bins} bins of {rate} Hz")
    weights = np.zeros((bins, mels))
    for mel in range(mels):
        first, centre, last = edges[mel : mel + 3]
        if first == centre:
            weights[centre, mel] = 1
        else:
            weights[first : centre + 1, mel] = np.arange(centre - first + 1) / (centre - first)
        if centre < last:
            weights[centre:last, mel] = np.arange(last - centre, 0, -1) / (last - centre)
    return weights.astype(_dtype(c))


SIGNALS: Mapping[str, Converter] = {
    "BlackmanWindow": _window(0.42, -0.5, 0.08),
    "HammingWindow": _window(25 / 46, -21 / 46),
    "HannWindow": _window(0.5, -0.5),
    "MelWeightMatrix": _mel_weights,
}
