"""TC-ResNet8 (Choi et al., 2019, arXiv 1904.03814) in numpy: forward and backward, in float and as UltraTrail computes.

A layer is a convolution over frames, then perhaps a residual, a sum over all frames divided by 16, a ReLU, and a clamp
to what a feature can be: [-1, 127/128]. In float a batch normalisation follows the convolution; it is folded before the
network is quantised. Quantised, weights are multiples of 2**-5 and biases and features of 2**-7, rounded half to even,
and gradients pass through the rounding as if it were not there (Bengio et al., 2013, arXiv 1308.3432). Sums of such
numbers are exact in float32, so what is trained is what the machine computes.

Maps are float32 [clips, frames, channels].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import WORDS

Array = NDArray[np.float32]

WEIGHT_STEP, FEATURE_STEP = np.float32(2.0**-5), np.float32(2.0**-7)
WEIGHT_LIMITS = np.float32(-1), np.float32(31 / 32)
FEATURE_LIMITS = np.float32(-1), np.float32(127 / 128)
GAMMA = 0.4
"""Where gamma of a batch normalisation begins: from 1, a fifth of some layers' weights would leave their range."""

FEATURES_GAIN = 3
"""The first layer has no normalisation, and what it takes spreads by a sixteenth: its weights begin larger."""

POOL_DIVISOR = np.float32(16)
"""The pool sums 13 frames and divides by the next power of two."""

EPSILON, MOMENTUM = 1e-5, 0.05


@dataclass(frozen=True)
class Shape:
    """A layer without its numbers.

    Args:
        name: of the layer.
        source: the name of the layer that it takes, "features" for the input.
        inputs, outputs: channels.
        taps, stride, pad: of the convolution; ``pad`` frames of zeros on both sides.
        residual: the name of the layer whose map is added, if any.
        pool: whether all frames are summed and divided by 16.
        relu: whether what is below 0 becomes 0.
        norm: whether there is a batch normalisation in float training.
    """

    name: str
    source: str
    inputs: int
    outputs: int
    taps: int
    stride: int = 1
    pad: int = 0
    residual: str | None = None
    pool: bool = False
    relu: bool = True
    norm: bool = True


def shapes() -> list[Shape]:
    """The layers of TC-ResNet8, in order."""
    made = [Shape("conv0", "features", 40, 16, 3, relu=False, norm=False)]
    channels, last = 16, "conv0"
    for number, outputs in enumerate((24, 32, 48), 1):
        block = f"b{number}"
        made += [
            Shape(f"{block}.conv1", last, channels, outputs, 9, 2, 4),
            Shape(f"{block}.down", last, channels, outputs, 1, 2),
            Shape(f"{block}.conv2", f"{block}.conv1", outputs, outputs, 9, 1, 4, f"{block}.down", pool=number == 3),
        ]
        channels, last = outputs, f"{block}.conv2"
    return [*made, Shape("logits", last, channels, len(WORDS), 1, relu=False, norm=False)]


class Layer:
    """One layer with its numbers and their gradients; one batch is under way at a time.

    Args:
        shape: what it is.
        draw: draws the weights that training begins with.
    """

    def __init__(self, shape: Shape, draw: np.random.Generator) -> None:
        self.shape = shape
        fan_in = shape.taps * shape.inputs
        spread = (2 / fan_in) ** 0.5 * (FEATURES_GAIN if shape.source == "features" else 1)
        self.values: dict[str, Array] = {
            "weights": draw.normal(0, spread, (fan_in, shape.outputs)).astype(np.float32),
            "bias": np.zeros(shape.outputs, np.float32),
        }
        if shape.norm:
            self.values["gamma"] = np.full(shape.outputs, GAMMA, np.float32)
        self.gradients: dict[str, Array] = {}
        self.mean = np.zeros(shape.outputs, np.float32)
        self.variance = np.ones(shape.outputs, np.float32)
        self.quantised = False

    def forward(self, x: Array, residual: Array | None, *, training: bool) -> Array:
        """The map of this layer for the map that it takes."""
        shape = self.shape
        weights, bias = self.values["weights"], self.values["bias"]
        if self.quantised:
            weights, bias = rounded(weights, WEIGHT_STEP), rounded(bias, FEATURE_STEP)
        padded = np.ascontiguousarray(np.pad(x, ((0, 0), (shape.pad, shape.pad), (0, 0))))
        frames = (padded.shape[1] - shape.taps) // shape.stride + 1
        clip, frame, channel = padded.strides
        view = np.lib.stride_tricks.as_strided(
            padded, (len(x), frames, shape.taps * shape.inputs), (clip, frame * shape.stride, channel)
        )
        self._columns, self._padded = view.reshape(-1, shape.taps * shape.inputs), padded.shape
        self._used = weights
        y = self._columns @ weights
        if "gamma" in self.values:
            y = self._normalised(y, training)
        y = (y + bias).reshape(len(x), frames, shape.outputs)
        if residual is not None:
            y = y + residual
        if shape.pool:
            self._pooled = frames
            y = y.sum(axis=1, keepdims=True) / POOL_DIVISOR
        low = np.float32(0) if shape.relu else FEATURE_LIMITS[0]
        self._inside = (y > low) & (y < FEATURE_LIMITS[1])
        if self.quantised:
            y = rounded(y, FEATURE_STEP)
        made: Array = np.clip(y, low, FEATURE_LIMITS[1])
        return made

    def backward(self, dy: Array, *, first: bool) -> tuple[Array | None, Array]:
        """From the gradient of the result: that of what was taken (not for the first layer), and of the residual."""
        shape = self.shape
        dy = dy * self._inside
        if shape.pool:
            dy = np.repeat(dy / POOL_DIVISOR, self._pooled, axis=1)
        flat = dy.reshape(-1, shape.outputs)
        self.gradients["bias"] = flat.sum(axis=0)
        if "gamma" in self.values:
            flat = self._normalised_backward(flat)
        self.gradients["weights"] = self._columns.T @ flat
        if first:
            return None, dy
        columns = (flat @ self._used.T).reshape(dy.shape[0], dy.shape[1], shape.taps, shape.inputs)
        padded = np.zeros(self._padded, np.float32)
        for tap in range(shape.taps):
            end = tap + shape.stride * (dy.shape[1] - 1) + 1
            padded[:, tap : end : shape.stride] += columns[:, :, tap]
        return (padded[:, shape.pad : -shape.pad] if shape.pad else padded), dy

    def fold(self) -> None:
        """Makes the batch normalisation part of weights and bias, and quantises from here on."""
        if "gamma" in self.values:
            deviation: Array = np.sqrt(self.variance + np.float32(EPSILON)).astype(np.float32, copy=False)
            factor = self.values.pop("gamma") / deviation
            self.values["bias"] = self.values["bias"] - self.mean * factor
            self.values["weights"] = self.values["weights"] * factor
        self.quantised = True
        self.clamp()

    def clamp(self) -> None:
        """Weights and biases into the range of what they are to be rounded to; not where a normalisation follows."""
        if "gamma" not in self.values:
            np.clip(self.values["weights"], *WEIGHT_LIMITS, out=self.values["weights"])
            np.clip(self.values["bias"], *FEATURE_LIMITS, out=self.values["bias"])

    def _normalised(self, y: Array, training: bool) -> Array:
        mean, variance = self.mean, self.variance
        if training:
            mean, variance = y.mean(axis=0), y.var(axis=0)
            self.mean += np.float32(MOMENTUM) * (mean - self.mean)
            self.variance += np.float32(MOMENTUM) * (variance - self.variance)
        self._deviation: Array = np.sqrt(variance + np.float32(EPSILON)).astype(y.dtype, copy=False)
        self._normal: Array = (y - mean) / self._deviation
        made: Array = self._normal * self.values["gamma"]
        return made

    def _normalised_backward(self, dy: Array) -> Array:
        self.gradients["gamma"] = (dy * self._normal).sum(axis=0)
        dn = dy * self.values["gamma"]
        centred = dn - dn.mean(axis=0) - self._normal * (dn * self._normal).mean(axis=0)
        made: Array = (centred / self._deviation).astype(dy.dtype, copy=False)
        return made


class Network:
    """TC-ResNet8 under training.

    Args:
        seed: draws the weights.
    """

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.layers = {shape.name: Layer(shape, draw) for shape in shapes()}

    def forward(self, x: Array, *, training: bool = False) -> Array:
        """The logits, float32 [clips, classes] in [-1, 127/128], of maps [clips, 101, 40]."""
        maps = {"features": x}
        for name, layer in self.layers.items():
            residual = layer.shape.residual
            maps[name] = layer.forward(
                maps[layer.shape.source], maps[residual] if residual else None, training=training
            )
        return maps["logits"][:, 0]

    def backward(self, gradient: Array) -> None:
        """Leaves in every layer the gradients for that of the logits, after a `forward` in training."""
        waiting: dict[str, Array] = {"logits": gradient[:, None]}
        for name, layer in reversed(self.layers.items()):
            shape = layer.shape
            dx, dr = layer.backward(waiting.pop(name), first=shape.source == "features")
            for source, given in ((shape.source, dx), (shape.residual, dr)):
                if source is not None and given is not None:
                    waiting[source] = waiting[source] + given if source in waiting else given

    def fold(self) -> None:
        """See `Layer.fold`."""
        for layer in self.layers.values():
            layer.fold()


def rounded(values: Array, step: np.float32) -> Array:
    """`values` to multiples of `step`, half to even."""
    made: Array = np.rint(values / step) * step
    return made
