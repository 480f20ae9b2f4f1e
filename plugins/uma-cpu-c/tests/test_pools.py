"""Pools in vectors: the bits of the default lowering, floats included, as each mean is summed up in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, SETS, features, same, target_for
from tests._support.random_layers import Layers, reference

import uma
from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.relay import Expr, FixedPoint, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.tir import print_func
from uma_cpu_c.pools import pooled
from uma_cpu_c.vector_units import VectorModel

AVX2 = VectorModel(32, 16, 2, 2, 4)


def check(seed: int, count: int, target: str, is_compared: bool = True) -> str:
    made = Layers(seed)
    for number in range(count):
        made.add("pool", number % 2 == 0)
    values = made.values()
    artifact = uma.build(made.module, target, name="pools", plugins=PLUGINS)
    found = artifact.run(values)
    same(found, reference(made.module, values))
    if not is_compared:
        return artifact.files["pools.c"].decode()
    plain = uma.build(made.module, "c -mcpu=x86-64", name="pools", plugins=PLUGINS).run(values)
    for number, (one, other) in enumerate(zip(found.values(), plain.values(), strict=True)):
        np.testing.assert_array_equal(one, other, err_msg=f"output {number}")
    return artifact.files["pools.c"].decode()


@pytest.mark.few(1)
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_random_pools(cc: str) -> None:
    text = check(6, 4, f"c -cc={cc} -opt=2", is_compared=False)
    if "avx2" in features():
        assert "lanes of" in text


@pytest.mark.soak
@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(20, 23))
@pytest.mark.parametrize("name", SETS)
def test_many_pools(name: str, seed: int, cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, 30, target_for(name, cc, monkeypatch))


def test_means_whose_sums_no_float_holds_are_divided_as_integers() -> None:
    """Sums of 192 numbers of 16 bits."""
    x = Var("x", TensorType((1, 64, 3, 8), "int16"))
    big = call("qnn.avg_pool2d", x, pool_size=(64, 3))
    assert isinstance(pooled(Fusion(Function((x,), big)), AVX2), ScheduledKernel)
    module, values = IRModule.from_functions({"main": Function((x,), big)}), {"x": np.full(x.shape, -32768, np.int16)}
    (found,) = uma.build(module, "c -opt=2", name="pools", plugins=PLUGINS).run(values).values()
    assert (found == -32768).all()


def fusion(channels: int, attrs: dict[str, Any]) -> Fusion:
    x = Var("x", TensorType((1, 12, 12, channels), "float32"))
    return Fusion(Function((x,), call("nn.max_pool2d", x, **attrs)))


def test_windows_that_share_little_are_left_to_the_plain_loops() -> None:
    assert pooled(fusion(8, {"pool_size": (2, 2), "strides": (2, 2)}), AVX2) is None


@pytest.mark.parametrize(
    ("channels", "attrs", "reason"),
    [
        (3, {"pool_size": (3, 3)}, "it has 3 channels, fewer than 4"),
        (8, {"pool_size": (1, 10)}, "rows of its windows have 10 elements, more than 9"),
        (8, {"pool_size": (2, 2)}, None),
    ],
)
def test_what_has_no_form(channels: int, attrs: dict[str, Any], reason: str | None) -> None:
    answer = pooled(fusion(channels, attrs), AVX2)
    if reason is None:
        assert isinstance(answer, ScheduledKernel)
    else:
        assert answer == Declined(f"no pool in vectors: {reason}")


def test_what_is_looked_up_in_a_table_is_no_vector() -> None:
    """After a pool and a convolution, and before a transposition; nor is what reads nothing at all."""
    rng = np.random.default_rng(0)
    x = Var("x", TensorType((1, 5, 17, 32), "int8"))
    weight = const(rng.integers(-99, 99, (1, 1, 32, 16)).astype(np.int8))
    sums = call("qnn.conv2d", x, weight, input_zero_point=3)
    narrow = call("qnn.requantize", sums, scale=FixedPoint((1 << 30,), (9,), "double"), dtype="int8")
    made = [
        curve(call("nn.max_pool2d", x, pool_size=(3, 3))),
        curve(narrow),
        call("transpose", curve(x), axes=(0, 3, 1, 2)),
        call("transpose", call("clip", x, a_min=5, a_max=5), axes=(0, 3, 1, 2)),
    ]
    module = IRModule.from_functions({"main": Function((x,), Tuple(made))})
    values = {"x": rng.integers(-128, 128, x.shape).astype(np.int8)}
    same(uma.build(module, "c -opt=2", name="pools", plugins=PLUGINS).run(values), reference(module, values))


def curve(x: Expr) -> Expr:
    return call("qnn.tanh", x, input_scale=0.05, input_zero_point=0, output_scale=1 / 128, output_zero_point=0)


@pytest.mark.parametrize("unit", [VectorModel(32, 16, 2, 2, 4), VectorModel(64, 32, 2, 2, 4)])
def test_data_that_are_computed_from_wider_numbers_give_narrower_vectors(unit: VectorModel) -> None:
    """As where an accelerator's sums are brought to int8 on the way into the pool."""
    x, scale = Var("x", TensorType((1, 3, 3, 256), "int32")), Var("scale", TensorType((256,), "float64"))
    scaled = call("round", call("multiply", call("cast", x, dtype="float64"), scale))
    data = call("cast", call("clip", scaled, a_min=-128.0, a_max=127.0), dtype="int8")
    made = pooled(Fusion(Function((x, scale), call("qnn.avg_pool2d", data, pool_size=(3, 3)))), unit)
    assert isinstance(made, ScheduledKernel)
    text = print_func(made.kernel.func, "f")
    assert f"vectorized({unit.bytes // 8})" in text and f"vectorized({unit.bytes // 4})" not in text
