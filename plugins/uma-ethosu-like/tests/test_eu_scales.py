"""Scales are found that give back every multiplier of a graph, where there are any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from uma.relay import Call, FixedPoint, TensorType, Var, call
from uma_ethosu_like.scales import Scales, Unsolved, multipliers_of, weight_scales

LAYERS: list[Call] = [call("nn.relu", Var(f"x{n}", TensorType((n + 1,), "int8"))) for n in range(8)]
"""What layers are named by."""


def fixed(*factors: float) -> FixedPoint:
    multipliers, shifts = multipliers_of(np.array(factors))
    return FixedPoint(tuple(multipliers.tolist()), tuple(shifts.tolist()), "double")


def check_chain(seed: int, channels: Sequence[int]) -> None:
    """Layers behind each other, the first and the last result of which are added."""
    rng = np.random.default_rng(seed)
    real = rng.uniform(0.005, 0.2, len(channels) + 2).astype(np.float32).astype(np.float64)
    scales, layers = Scales(), []
    tensors = [scales.tensor() for _ in real]
    for n, count in enumerate(channels):
        weights = rng.uniform(0.001, 0.02, count).astype(np.float32).astype(np.float64)
        layers.append(fixed(*(real[n] * weights / real[n + 1])))
        scales.layer(n, n + 1, layers[-1], LAYERS[n])
    small, large = sorted((1, len(channels)), key=lambda n: float(real[n]))
    sums = fixed(real[small] / (2 * real[large])), fixed(2 * real[large] / ((1 << 20) * real[-1]))
    scales.ratio(small, large, sums[0], 1, LAYERS[-2])
    scales.ratio(large, tensors[-1], sums[1], 19, LAYERS[-1])
    found = scales.solve()
    assert [float(np.float32(one)) for one in found] == found
    for n, layer in enumerate(layers):
        weights = weight_scales(found[n], found[n + 1], layer).astype(np.float64)
        assert fixed(*(found[n] * weights / found[n + 1])) == layer
    assert found[small] <= found[large]
    assert fixed(found[small] / (2 * found[large])) == sums[0]
    assert fixed(2 * found[large] / ((1 << 20) * found[-1])) == sums[1]


def test_a_residual_block_gets_its_multipliers_back() -> None:
    check_chain(0, [16, 1])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_many_chains_get_their_multipliers_back(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    check_chain(seed, [int(rng.choice([1, 2, 3, 4, 8, 64])) for _ in range(int(rng.integers(2, 6)))])


def test_where_there_are_none_the_layer_is_named() -> None:
    scales = Scales()
    given, made = scales.tensor(), scales.tensor()
    multipliers = np.random.default_rng(0).integers(1 << 30, 1 << 31, 12).tolist()
    scales.layer(given, made, FixedPoint(tuple(multipliers), (-7,) * 12, "double"), LAYERS[3])
    with pytest.raises(Unsolved) as caught:
        scales.solve()
    assert caught.value.at is LAYERS[3]


def test_what_is_known_counts() -> None:
    scales = Scales()
    first, second, third = (scales.tensor() for _ in range(3))
    scales.pin(first, 0.5, LAYERS[0])
    scales.equal(first, second, LAYERS[1])
    assert scales.solve() == [0.5, 0.5, 1.0]
    scales.pin(first, 0.5, LAYERS[2])
    with pytest.raises(Unsolved):
        scales.pin(first, 0.25, LAYERS[2])
    scales.pin(third, 0.25, LAYERS[2])
    scales.equal(second, third, LAYERS[4])
    with pytest.raises(Unsolved) as caught:
        scales.solve()
    assert caught.value.at is LAYERS[4]


def test_a_tensor_beside_itself() -> None:
    scales = Scales()
    one = scales.tensor()
    scales.ratio(one, one, fixed(0.5), 1, LAYERS[0])
    assert scales.solve() == [1.0]
    scales.ratio(one, one, fixed(0.25), 1, LAYERS[5])
    with pytest.raises(Unsolved) as caught:
        scales.solve()
    assert caught.value.at is LAYERS[5]
