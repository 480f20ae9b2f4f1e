"""Quotients of uint8, of all pairs of numbers, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

from uma.errors import ModelError
from uma.frontends.tflite import from_tflite
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise


def quotient(scales: tuple[float, float, float], zeros: tuple[int, int, int], activation: int = 0) -> bytes:
    builder = TFLiteBuilder()
    given = [{"scale": scale, "zero_point": zero} for scale, zero in zip(scales, zeros, strict=True)]
    inputs = [builder.input(shape, "uint8", **own) for shape, own in zip(([256, 1], [1, 255]), given[:2], strict=True)]
    y = builder.tensor([256, 255], "uint8", **given[2])
    builder.op("DIV", inputs, [y], fusedActivationFunction=activation)
    return builder.finish(y)


@pytest.mark.parametrize("seed", range(6))
def test_every_pair(seed: int) -> None:
    """Quotients below half a step are 0: of many of these LiteRT shifts by more bits than there are."""
    rng = np.random.default_rng(seed)
    first, second = np.exp(rng.uniform(-5, 0, 2))
    scales = (float(first), float(second), float(first / second * np.exp(rng.uniform(-5, 3))))
    zeros = tuple(int(zero) for zero in rng.integers(0, 256, 3))
    model = quotient(scales, (zeros[0], zeros[1], zeros[2]), int(rng.integers(0, 2)))
    a = np.arange(256, dtype=np.uint8).reshape(256, 1)
    b = np.delete(a, zeros[1]).reshape(1, 255)
    steps = (a.astype(float) - zeros[0]) / (b.astype(float) - zeros[1]) * (scales[0] / scales[1] / scales[2])
    expected = np.where(np.abs(steps) < 0.499, zeros[2], litert(model, a, b)[0])
    module = from_tflite(model).module
    for form in (module, canonicalise(module)):
        (got,) = evaluate(form, dict(zip((param.name for param in form.main.params), (a, b), strict=True)))
        np.testing.assert_array_equal(got, expected)


def test_a_scale_that_is_too_small() -> None:
    with pytest.raises(ModelError, match="its result's scale is too small beside its operands'"):
        from_tflite(quotient((1.0, 1.0, 2.0**-23), (0, 0, 0)))
