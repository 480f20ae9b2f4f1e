"""What is made of each byte alone becomes a table, with the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uma.contract.fusion import Fusion
from uma.lowering.lookup_table import table_kernel
from uma.relay.expr import Expr, Function, Var, call, const
from uma.relay.types import TensorType
from uma.relay.visit import free_vars
from uma.tir import te
from uma.tir.form.interp import interpret

ONE = const(np.float32(1))


def real(x: Expr) -> Expr:
    return call("qnn.dequantize", x, scale=0.04, zero_point=3)


def bytes_of(x: Expr, dtype: str = "int8") -> Expr:
    return call("qnn.quantize", x, scale=1 / 128, zero_point=0, rounding="even", dtype=dtype)


def silu(x: Expr) -> Expr:
    return call("multiply", x, call("sigmoid", x))


MAPS: dict[str, Callable[[Expr], Expr]] = {
    "tanh": lambda x: bytes_of(call("tanh", real(x))),
    "silu": lambda x: bytes_of(silu(real(x)), "uint8"),
    "of floats": lambda x: call("exp", call("add", real(x), ONE)),
    "of integers": lambda x: call("log", call("cast", call("nn.relu", x), dtype="float32")),
}


def fusion(result: Expr) -> Fusion:
    return Fusion(Function(free_vars(result), result))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", MAPS)
def test_tables_hold_the_same(name: str, dtype: str) -> None:
    """Of all bytes, and as the only constant."""
    given = fusion(MAPS[name](Var("x", TensorType((2, 3, 64), dtype))))
    made = table_kernel(given)
    assert made is not None
    (table,) = made.bind()
    assert table.shape == (256,)
    kernel, info = given.kernel(), np.iinfo(dtype)
    x = np.resize(np.arange(info.min, info.max + 1).astype(dtype), (2, 3, 64))
    for values in (x, x[::-1, ::-1]):
        (found,) = interpret(made.func, named(made, values, table)).values()
        (expected,) = interpret(kernel.func, named(kernel, values)).values()
        assert found.tobytes() == expected.tobytes()


def named(kernel: te.Kernel, *arrays: Any) -> dict[str, Any]:
    """Arrays by the names of the inputs and constants of a kernel."""
    buffers = [*kernel.func.buffers("input"), *kernel.func.buffers("constant")]
    return dict(zip((buffer.name for buffer in buffers), arrays, strict=True))


X = Var("x", TensorType((4, 64), "int8"))
LEFT: dict[str, Expr] = {
    "nothing that takes long": bytes_of(call("nn.relu", real(X))),
    "of two tensors": bytes_of(call("tanh", call("add", real(X), Var("y", TensorType((4, 64), "float32"))))),
    "by channels": bytes_of(call("tanh", call("multiply", real(X), const(np.arange(64, dtype=np.float32))))),
    "of more elements": call("broadcast_to", call("exp", real(X)), shape=(3, 4, 64)),
    "of other elements": call("transpose", call("tanh", real(X)), axes=(1, 0)),
    "of fewer elements than bytes": bytes_of(call("tanh", real(Var("x", TensorType((3, 64), "int8"))))),
    "of no bytes": call("tanh", Var("x", TensorType((4, 64), "float32"))),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_map_of_bytes(name: str) -> None:
    assert table_kernel(fusion(LEFT[name])) is None
