"""Resizes by whole factors: each element is written to all of its places at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS

import uma
from uma.hookspecs import Fusion
from uma.relay import Call, Expr, Function, IRModule, TensorType, Tuple, Var, call
from uma_cpu_c.resizes import resized

CASES = [
    ((3, 5, 7, 1), (2, 2), "float32"),
    ((1, 4, 6, 33), (2, 2), "int8"),
    ((2, 5, 3, 3), (3, 1), "uint8"),
    ((1, 3, 9, 16), (1, 4), "float32"),
    ((1, 2, 2, 8), (4, 4), "int32"),
    ((1, 1, 11, 2), (2, 3), "bool"),
    ((1, 5, 1, 4), (2, 2), "float16"),
]
"""Shape, times that rows and columns are repeated, dtype."""


def resize(x: Expr, rows: Sequence[int], columns: Sequence[int]) -> Call:
    return call("nn.resize_nearest", x, rows=tuple(rows), columns=tuple(columns))


def enlarged(x: Expr, high: int, wide: int) -> Call:
    times = zip(x.shape[1:3], (high, wide), strict=True)
    return resize(x, *([place for place in range(extent) for _ in range(count)] for extent, count in times))


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_all_elements_are_where_they_belong(cc: str) -> None:
    rng = np.random.default_rng(3)
    inputs = [Var(f"x{number}", TensorType(shape, dtype)) for number, (shape, _, dtype) in enumerate(CASES)]
    values = {}
    for x in inputs:
        bits = rng.integers(0, 2 if x.dtype == "bool" else 60, x.tensor.nbytes, np.uint8)
        values[x.name] = bits.view(x.dtype).reshape(x.shape)
    made = [enlarged(x, *times) for x, (_, times, _) in zip(inputs, CASES, strict=True)]
    artifact = uma.build(
        IRModule.from_functions({"main": Function(inputs, Tuple(made))}),
        f"c -cc={cc} -opt=2",
        name="layers",
        plugins=PLUGINS,
    )
    for result, x, (_, (high, wide), _) in zip(artifact.run(values).values(), inputs, CASES, strict=True):
        assert result.tobytes() == values[x.name].repeat(high, axis=1).repeat(wide, axis=2).tobytes()


def test_what_stands_between_two_layouts_needs_no_transposition() -> None:
    x = Var("x", TensorType((2, 6, 5, 4), "float32"))
    last = call("layout_transform", x, src_layout="NCHW", dst_layout="NHWC")
    made = call("layout_transform", enlarged(last, 2, 2), src_layout="NHWC", dst_layout="NCHW")
    module = IRModule.from_functions({"main": Function((x,), made)})
    artifact = uma.build(module, "c -opt=2", name="layers", plugins=PLUGINS)
    assert [one.op for one in artifact.record.calls] == ["nn.resize_nearest"]
    values = {"x": np.random.default_rng(5).standard_normal(x.shape).astype(np.float32)}
    (found,) = artifact.run(values).values()
    assert found.tobytes() == values["x"].repeat(2, axis=2).repeat(2, axis=3).tobytes()


def test_what_is_left_to_the_plain_loops() -> None:
    x = Var("x", TensorType((1, 4, 6, 8), "float32"))

    def is_scheduled(made: Call) -> bool:
        return resized(Fusion(Function((x,), made))) is not None

    doubled = enlarged(x, 2, 2)
    assert is_scheduled(doubled)
    assert not is_scheduled(call("nn.relu", doubled))
    assert not is_scheduled(enlarged(call("nn.relu", x), 2, 2))
    assert not is_scheduled(enlarged(x, 1, 1))
    assert not is_scheduled(enlarged(x, 4, 5))  # too many places to write them out
    assert not is_scheduled(resize(x, (0, 0, 1, 2, 3, 3), range(6)))
    assert not is_scheduled(resize(x, (0, 2), (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5)))
