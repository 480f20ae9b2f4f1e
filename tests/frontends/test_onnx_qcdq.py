"""QuantizeLinear, Clip, DequantizeLinear, as exporters of narrow integers write it: the scale of a bias is its own."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.qdq import fused
from uma.relay.transform import canonicalise

F = np.float32
REASON = "its bias is not exactly a multiple of the product of the scales"


class Layer:
    """A convolution of 225 results whose scales have ties, and a bias.

    Args:
        seed: of scales, weights and data.
        error: by which the scale of the bias differs from the product of the others, relative.
    """

    def __init__(self, seed: int, error: float) -> None:
        rng = np.random.default_rng(seed)
        self.scales = [F(rng.choice(v)) for v in ([0.1, 0.05, 0.2, 1 / 3, 1 / 7], [0.1, 0.02, 0.2], [0.5, 0.25, 0.3])]
        x, w, y = self.scales
        high = 2 ** int(rng.integers(1, 8)) - 1
        self.weights = np.clip(rng.normal(0, high / 2, (1, 3, 3, 3)).round(), -high, high).astype(int)
        self.data = np.clip(rng.normal(0, 40, (1, 3, 17, 17)).round(), -127, 127).astype(int)
        self.bias_scale = F(x * w * F(1 + error))
        self.bias = int(np.rint(rng.normal(0, 24 * y) / self.bias_scale))

    def model(self) -> bytes:
        b = OnnxBuilder(17)
        x, w, y = map(float, self.scales)

        def clipped(data: str, scale: float, high: int) -> str:
            stored = b.quantize(data, scale, 0, "int8")
            return str(b.node("Clip", stored, b.constant(-high, "int8"), b.constant(high, "int8")))

        data = b.dequantize(clipped(b.input("x", self.data.shape), x, 127), x, 0, "int8")
        high = max(1, int(np.abs(self.weights).max()))
        weights = clipped(b.constant(self.weights * w, "float32"), w, high)
        bias = b.dequantize(b.constant([self.bias], "int32"), float(self.bias_scale), 0, "int32")
        made = b.node("Conv", data, b.dequantize(weights, w, 0, "int8"), bias)
        return b.build(clipped(made, y, 127))

    def exact(self) -> np.ndarray:
        """What the text of the operators gives in exact fractions."""
        x, w, y = (Fraction(float(scale)) for scale in self.scales)
        real = self.bias * Fraction(float(self.bias_scale))
        sums = np.zeros((15, 15), int)
        for c, i, j in np.ndindex(3, 3, 3):
            sums += self.data[0, c, i : i + 15, j : j + 15] * self.weights[0, c, i, j]
        results = [min(max(round((x * w * int(total) + real) / y), -127), 127) for total in sums.reshape(-1)]
        return np.array(results, np.int8).reshape(1, 1, 15, 15)

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        return {"x": self.data.astype(F) * self.scales[0]}


@pytest.mark.parametrize("seed", [30, 49, 154, 331])
def test_a_bias_whose_scale_is_off_by_one_unit_in_the_last_place(seed: int) -> None:
    """In units of the sums it would move ties: results would be one step off."""
    layer = Layer(seed, 2.0**-23)
    data = layer.model()
    imported = import_model(data)
    (ours,) = evaluate(canonicalise(imported.module), layer.inputs)
    np.testing.assert_array_equal(ours, layer.exact())
    np.testing.assert_array_equal(ours, run_onnxruntime(data, layer.inputs)[0])
    assert REASON in imported.notes[0]


@pytest.mark.parametrize(("seed", "error"), [(0, 0.0), (49, 0.0), (3, 2.0**-23)])
def test_a_bias_that_changes_no_result_is_an_integer(seed: int, error: float) -> None:
    layer = Layer(seed, error)
    imported = import_model(layer.model())
    assert imported.notes == ()
    np.testing.assert_array_equal(evaluate(imported.module, layer.inputs)[0], layer.exact())


def test_a_proof_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_MAX_THRESHOLDS", 100)
    assert REASON in import_model(Layer(3, 2.0**-23).model()).notes[0]
