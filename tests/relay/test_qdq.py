"""From QDQ to integers, relay to relay, whatever front-end a module is from. (Beside onnxruntime: tests of ONNX.)"""

from __future__ import annotations

import numpy as np

from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Expr, Function, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.op import FloatScale
from uma.relay.qdq import to_integers
from uma.relay.types import TensorType
from uma.relay.visit import post_order

X = Var("x", TensorType((2, 8), "int8"))
WEIGHT = const(np.arange(-12, 12, dtype=np.int8).reshape(3, 8))


def real(data: Expr, scale: float, zero_point: int = 0) -> Expr:
    return call("qnn.dequantize", data, scale=(scale,), zero_point=(zero_point,))


def stored(data: Expr, scale: float, zero_point: int = 0, rounding: str = "even") -> Call:
    return call("qnn.quantize", data, scale=(scale,), zero_point=(zero_point,), rounding=rounding, dtype="int8")


def made(body: Call) -> tuple[IRModule, tuple[str, ...]]:
    """The module on integers, which computes the same."""
    spans = Spans()
    for expr in post_order(body):
        if isinstance(expr, Call):
            spans.add(expr, [expr.op_name or ""])
    module = IRModule.from_functions({"main": Function([X], body)}, spans)
    after, notes = to_integers(module)
    inputs = {"x": np.random.default_rng(0).integers(-128, 127, (2, 8)).astype(np.int8)}
    assert np.array_equal(evaluate(module, inputs)[0], evaluate(after, inputs)[0])
    return after, notes


def ops(module: IRModule) -> list[str | None]:
    return [expr.op_name for expr in post_order(module.main.body) if isinstance(expr, Call)]


def test_a_product_becomes_sums_and_one_requantisation() -> None:
    product = call("nn.dense", real(X, 0.3, 5), real(WEIGHT, 0.7))
    after, notes = made(stored(call("nn.relu", product), 3.1, -9))
    assert ops(after) == ["qnn.dense", "qnn.requantize", "clip"] and notes == ()
    requantised = after.main.body.args[0]  # type: ignore[attr-defined]  # a clip is a call
    factor = np.float32(0.3) * np.float32(0.7) / np.float32(3.1)
    assert requantised.attrs.scale == FloatScale((float(factor),))


def test_floats_that_are_exact_become_integers() -> None:
    data = real(X, 0.25, 3)
    leaky = call("nn.leaky_relu", call("abs", call("negative", data)), alpha=0.5)
    halved = call("divide", leaky, real(const(np.int8(1)), 2.0))
    picked = call("take", call("broadcast_to", halved, shape=(3, 2, 8)), const(np.array([3, 0, 5])), axis=2)
    after, notes = made(stored(picked, 0.5))
    assert not {"qnn.dequantize", "qnn.quantize"} & set(ops(after)) and notes == ()


def test_a_slope_may_be_negative() -> None:
    after, _ = made(stored(call("nn.leaky_relu", real(X, 0.25, -7), alpha=-0.25), 0.125))
    assert "qnn.quantize" not in ops(after)


def test_a_slope_that_is_no_small_multiple_stays_in_float() -> None:
    _, notes = made(stored(call("nn.leaky_relu", real(X, 0.25), alpha=0.1), 0.5))
    assert notes == ("nn.leaky_relu stays in float: its numbers may need more than the 24 bits of a float32",)


def test_what_is_divided_by_several_numbers_stays_in_float() -> None:
    by = real(const(np.arange(1, 9, dtype=np.int8)), 1.0)
    _, notes = made(stored(call("divide", real(X, 0.25), by), 0.5))
    assert notes == ("divide stays in float: divide is not exact",)


def test_another_rounding_stays_in_float() -> None:
    """Which is how TFLite rounds, layer by layer."""
    body = stored(call("add", real(X, 0.5), real(X, 0.25)), 0.5, rounding="away")
    after, notes = made(body)
    assert ops(after).count("qnn.quantize") == 1
    assert notes == ("add stays in float: its result is rounded half away from zero",)


def test_elements_move_before_they_are_dequantised() -> None:
    picked = call("take", real(X, 0.3), const(np.array([5, 0, 0])), axis=1)
    after, _ = made(stored(call("reshape", picked, newshape=(6,)), 0.3))
    assert ops(after) == ["take", "reshape"]
