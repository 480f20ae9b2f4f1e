"""Weights that are small multiples of one number for each run of them: found, and kept; the same bits are computed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests._support.built_layers import PLUGINS, SETS, target_for

import uma
from uma.relay import Function, IRModule, TensorType, Var, call, const
from uma.relay.transform import canonical
from uma_cpu_c.narrow_weights import narrow_of, narrow_weights

RNG = np.random.default_rng(24)


def weights(outputs: int, runs: int, run: int, low: int, high: int, zero: bool = False) -> np.ndarray:
    """Float32 as a format of integers has them: (outputs, runs * run)."""
    codes = RNG.integers(low, high + 1, (outputs, runs, run)).astype(np.float32)
    zeros = RNG.integers(low, high + 1, (outputs, runs, 1)).astype(np.float32) if zero else np.float32(0)
    scales = RNG.uniform(1e-3, 1e-2, (outputs, runs, 1)).astype(np.float32)
    return ((codes - zeros) * scales).reshape(outputs, runs * run)


@pytest.mark.parametrize(
    "given, dtype, zeros, shape",
    [
        (weights(20, 8, 32, -8, 7), "uint8", (), (20, 8, 32)),
        (weights(40, 1, 96, -8, 7), "uint8", (), (40, 1, 96)),
        (weights(20, 4, 64, 0, 15, zero=True), "uint8", (20, 4, 1), (20, 4, 64)),
        (weights(300, 1, 256, -128, 127), "int8", (), (300, 1, 256)),
        (3 * weights(20, 2, 16, -2, 2), "uint8", (), (20, 2, 16)),
        (np.zeros((20, 48), np.float32), "uint8", (), (20, 1, 48)),
        (RNG.choice((-21, -7, 0, 3, 9), (20, 48)).astype(np.float32) * np.float32(0.0123), "int8", (), (20, 1, 48)),
    ],
    ids=["int4", "int4 of an output", "uint4", "int8", "few", "zeros", "without ones"],
)
def test_multiples_are_found_to_the_bit(given: np.ndarray, dtype: str, zeros: tuple[int, ...], shape: object) -> None:
    found = narrow_of(given)
    assert found is not None
    assert (found.codes.dtype.name, found.zeros.shape, found.codes.shape) == (dtype, zeros, shape)
    assert dtype == "int8" or found.codes.max() < 16
    again = (found.codes.astype(np.float32) - found.zeros) * found.scales
    np.testing.assert_array_equal(again.reshape(given.shape), given)


def test_other_floats_are_left_as_they_are() -> None:
    good = weights(300, 2, 32, -8, 7)
    assert narrow_of(RNG.standard_normal((300, 64)).astype(np.float32)) is None
    for value in (np.nan, np.inf, 1e-40, np.nextafter(good[299, 63] + np.float32(1), np.float32(9))):
        wrong = good.copy()
        wrong[299, 63] = value  # beyond those that are looked at first
        assert narrow_of(wrong) is None
    assert narrow_of(weights(20, 2, 24, -8, 7)) is None


def built(module: IRModule, target: str, values: dict[str, np.ndarray]) -> tuple[uma.Artifact, list[bytes]]:
    artifact = uma.build(module, target, name="narrow", plugins=PLUGINS)
    return artifact, [array.tobytes() for array in artifact.run(values).values()]


def products() -> tuple[IRModule, dict[str, np.ndarray]]:
    """Products of 1 to 4 rows by weights of both forms, and what follows them."""
    one, several = Var("one", TensorType((192,), "float32")), Var("several", TensorType((1, 4, 192), "float32"))
    rows = Var("rows", TensorType((3, 192), "float32"))
    made = [
        call("nn.relu", call("nn.dense", rows, const(weights(96, 6, 32, -8, 7)))),
        call("matmul", several, const(np.ascontiguousarray(weights(40, 3, 64, 0, 15, zero=True).T))),
        call("add", call("matmul", rows, const(np.ascontiguousarray(weights(64, 1, 192, -127, 127).T))), const(0.5)),
        call("nn.dense", rows, const(weights(17, 6, 32, -8, 7))),
        call("nn.dense", call("reshape", one, newshape=(1, 192)), const(weights(128, 12, 16, -8, 7))),
    ]
    module = IRModule.from_functions({"main": Function((one, several, rows), uma.relay.Tuple(made))})
    values = {var.name: RNG.standard_normal(var.shape).astype(np.float32) for var in (one, several, rows)}
    return module, values


@pytest.mark.parametrize(
    "name, cc",
    [
        pytest.param(name, cc, marks=() if (name, cc) == ("avx2", "gcc") else pytest.mark.soak)
        for name in SETS
        if name != "x86-64"
        for cc in ("gcc", "clang")
    ],
)
def test_they_give_the_bits_that_floats_give(name: str, cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, values = products()
    target = target_for(name, cc, monkeypatch)
    plain, wanted = built(module, target, values)
    monkeypatch.setattr(sys.modules["uma_cpu_c.strategies"], "narrow_weights", lambda _: narrow_weights(1))
    found, made = built(module, target, values)
    assert made == wanted
    assert found.constant_bytes < plain.constant_bytes / 3
    assert built(module, f"{target} -threads=2", values)[1] == wanted


def test_a_model_with_weights_of_four_bits_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = RNG.integers(-8, 8, (64, 32)).astype(np.int8)
    scales = RNG.uniform(1e-3, 1e-2, (2, 32)).astype(np.float32)
    held = helper.make_tensor("codes", TensorProto.INT4, codes.shape, codes.ravel().tolist())
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scales"], ["weights"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "weights"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, size)) for name, size in (("x", 64), ("y", 32))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [held, numpy_helper.from_array(scales, "scales")])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    x = RNG.standard_normal((1, 64)).astype(np.float32)
    wanted = x @ (codes.reshape(2, 32, 32) * scales[:, None]).reshape(64, 32)
    monkeypatch.setattr(sys.modules["uma_cpu_c.strategies"], "narrow_weights", lambda _: narrow_weights(1))
    for most in (canonical.FOLD_LIMIT_BYTES, 1024):
        # However large they are.
        monkeypatch.setattr(canonical, "FOLD_LIMIT_BYTES", most)
        artifact = uma.build(path, "c -mcpu=x86-64-v3", plugins=PLUGINS)
        np.testing.assert_allclose(artifact.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)
        assert artifact.constant_bytes <= 64 * 32 // 2 + 2 * 2 * 32 * 4 + 64


def test_what_it_does_not_pay_for_is_left() -> None:
    shared = const(weights(64, 6, 32, -8, 7))
    x, many = Var("x", TensorType((2, 192), "float32")), Var("many", TensorType((5, 192), "float32"))
    both = call("add", call("nn.dense", x, shared), call("nn.dense", call("nn.relu", x), shared))
    for given, body in (((x,), call("nn.dense", x, shared)), ((many,), call("nn.dense", many, shared)), ((x,), both)):
        module = IRModule.from_functions({"main": Function(given, body)})
        fused = uma.build(module, "c -mcpu=x86-64", plugins=PLUGINS, stop_after="fuse")
        assert isinstance(fused, IRModule)
        least = 1 if given == (many,) else shared.tensor.nbytes + 1
        assert narrow_weights(least).fn(fused).main is fused.main
        made = narrow_weights(1).fn(fused)
        assert narrow_weights(1).fn(made).main is made.main
