"""uint8 becomes int8 in canonical relay: every op by example, and what stays as it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from tests._support.relay_strategies import assert_same, modules, random_array, values_of

from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.op import FixedPoint, FloatScale
from uma.relay.text import print_module
from uma.relay.transform import canonicalise
from uma.relay.types import TensorType, TupleType
from uma.relay.verify import verify
from uma.relay.visit import free_vars, nested_exprs, post_order

SHAPE = (1, 5, 4, 6)
X, Y = Var("x", TensorType(SHAPE, "uint8")), Var("y", TensorType(SHAPE, "uint8"))
F = Var("f", TensorType(SHAPE, "float32"))
HALF, SMALL = FixedPoint((2**30,), (0,), "double"), FixedPoint((2**30 + 12345,), (-9,), "even")


def unsigned(*shape: int) -> Constant:
    return const(random_array(shape, "uint8", 3))


def requantised(sums: Expr, zero_point: int = 130, dtype: str = "uint8", scale: object = SMALL) -> Call:
    return call("qnn.requantize", sums, scale=scale, output_zero_point=zero_point, dtype=dtype)


CONV = requantised(
    call("qnn.conv2d", X, unsigned(3, 3, 6, 8), padding=(1, 1, 1, 1), input_zero_point=128, kernel_zero_point=117)
)
"""A layer whose result is a uint8; its channels are eight."""

ADD = {"lhs_scale": HALF, "rhs_scale": HALF, "output_scale": SMALL, "left_shift": 8}
POINTS = {"lhs_zero_point": 128, "rhs_zero_point": 3, "output_zero_point": 100}
ACTIVATION = {"input_scale": 0.05, "output_scale": 1 / 256, "input_zero_point": 99}
STAYS = requantised(call("qnn.sum", Y, axis=(1,), keepdims=True, input_zero_point=7), scale=FloatScale((0.1,)))

COMPUTED: dict[str, Expr] = {
    "qnn.conv2d": CONV,
    "qnn.conv1d": requantised(call("qnn.conv1d", call("reshape", X, newshape=(1, 20, 6)), unsigned(3, 6, 2))),
    "qnn.dense": requantised(call("qnn.dense", CONV, unsigned(3, 8), input_zero_point=130), dtype="int8", zero_point=2),
    "qnn.matmul": requantised(call("qnn.matmul", X, call("transpose", Y, axes=(0, 1, 3, 2)), kernel_zero_point=255)),
    "qnn.requantize": call("qnn.requantize", X, scale=HALF, input_zero_point=128, output_zero_point=-7, dtype="int8"),
    "qnn.add": call("qnn.add", X, Y, **ADD, **POINTS),
    "qnn.subtract": call("qnn.subtract", X, unsigned(6), **ADD, **POINTS),
    "qnn.multiply": call("qnn.multiply", X, Y, scale=SMALL, **POINTS),
    "qnn.sum": STAYS,
    "qnn.avg_pool2d": call("qnn.avg_pool2d", X, pool_size=(2, 2)),
    "qnn.avg_pool2d to even": call(
        "qnn.avg_pool2d", CONV, pool_size=(2, 2), padding=(1, 0, 0, 1), rounding="even", zero_point=131
    ),
    "qnn.avg_pool1d": requantised(
        call("qnn.avg_pool1d", call("reshape", X, newshape=(1, 20, 6)), pool_size=(4,), zero_point=128)
    ),
    "qnn.sigmoid": call("qnn.sigmoid", CONV, **ACTIVATION),
    "qnn.tanh": call("qnn.tanh", X, **{**ACTIVATION, "output_zero_point": 128}),
    "qnn.hard_swish": call("qnn.hard_swish", CONV, **ACTIVATION | {"output_scale": 0.25, "output_zero_point": 3}),
    "qnn.leaky_relu": call("qnn.leaky_relu", CONV, scale=HALF, negative_scale=SMALL, input_zero_point=120),
    "qnn.abs": call("qnn.abs", X, scale=HALF, input_zero_point=128, output_zero_point=77),
    "qnn.softmax": call("qnn.softmax", X, scale=FixedPoint((2**30,), (20,), "double")),
    "qnn.quantize": requantised(
        call(
            "qnn.dense",
            call("qnn.quantize", F, scale=0.1, zero_point=120, rounding="away", dtype="uint8"),
            unsigned(2, 6),
            input_zero_point=120,
        )
    ),
    "qnn.quantize by channel": call(
        "qnn.sum",
        call("qnn.quantize", F, scale=[0.1] * 6, zero_point=[0, 1, 2, 128, 254, 255], rounding="even", dtype="uint8"),
        axis=(1,),
    ),
    "qnn.dequantize": call("qnn.dequantize", CONV, scale=0.5, zero_point=130),
    "qnn.dequantize by channel": call("qnn.dequantize", CONV, scale=[0.5] * 8, zero_point=list(range(8))),
    "reshape": requantised(call("qnn.sum", call("reshape", CONV, newshape=(5, 32)), axis=(0,))),
    "transpose": call("qnn.sum", call("transpose", CONV, axes=(0, 3, 1, 2)), axis=(3,)),
    "strided_slice": call("strided_slice", CONV, begin=(0, 1, 0, 0), end=(1, 4, 3, 8), strides=(1, 2, 1, 1)),
    "concatenate": call("concatenate", CONV, unsigned(1, 5, 4, 2), X, axis=3),
    "split": TupleGetItem(call("split", CONV, indices=(3,), axis=3), 1),
    "a tuple": call("split", CONV, indices=(3,), axis=3),
    "nn.pad": call("nn.pad", CONV, pad_width=(0, 1, 0, 0, 0, 0, 2, 0), pad_value=201),
    "nn.pad into a window": requantised(
        call(
            "qnn.conv2d",
            call("nn.pad", X, pad_width=(0, 1, 1, 0, 0, 1, 1, 0), pad_value=128),
            unsigned(3, 3, 6, 2),
            input_zero_point=128,
        )
    ),
    "nn.resize_nearest": call("nn.resize_nearest", CONV, rows=(0, 2, 1), columns=(0, 0, 1, 1)),
    "nn.max_pool2d": call("nn.max_pool2d", CONV, pool_size=(2, 2), padding=(1, 1, 0, 0)),
    "nn.global_max_pool": call("nn.global_max_pool", CONV),
    "clip": call("clip", CONV, a_min=130.0, a_max=200.0),
    "clip below": call("clip", CONV, a_min=-math.inf, a_max=200.0),
    "nn.relu": call("nn.relu", CONV),
    "minimum": call("minimum", requantised(call("qnn.sum", X, axis=(3,), keepdims=True)), Y),
    "maximum": call("maximum", CONV, unsigned(8)),
    "multiply": call("multiply", call("nn.global_max_pool", CONV), const(np.ones((1, 3, 2, 8), np.uint8))),
    "cast": call("cast", CONV, dtype="int32"),
    "cast and subtract": call("subtract", call("cast", CONV, dtype="int32"), const(130)),
    "cast and subtract 128": call("subtract", call("cast", CONV, dtype="int16"), const(128, "int16")),
    "cast and add": call("add", call("cast", CONV, dtype="int64"), const(-5, "int64")),
}
"""What computes with quantised numbers of uint8, or joins what does."""

ALONE: dict[str, Expr] = {
    "a reshape": call("reshape", X, newshape=(20, 6)),
    "a maximum pool": call("nn.max_pool2d", X, pool_size=(2, 2)),
    "quantised floats": call("qnn.quantize", F, scale=0.1, zero_point=120, rounding="away", dtype="uint8"),
    "dequantised inputs": call("qnn.dequantize", X, scale=0.1, zero_point=128),
    "floats of a picture": call("cast", X, dtype="float32"),
    "sums that wrap around": call("add", X, Y),
    "products": call("multiply", X, Y),
    "bits": call("cast", X, dtype="int8"),
}
"""What neither computes with quantised numbers nor joins what does."""


def of(body: Expr) -> IRModule:
    calls = [e for e in post_order(body) if isinstance(e, Call)]
    return IRModule.from_functions(
        {"main": Function(free_vars(body), body)}, Spans({e: [f"l{i}"] for i, e in enumerate(calls)})
    )


def signed(module: IRModule) -> IRModule:
    """``module`` in canonical form, which computes the same and has none that is more so."""
    made = canonicalise(module)
    verify(made)
    assert canonicalise(made).main is made.main
    for seed in range(3):
        inputs, expected, largest = values_of(module, seed)
        with np.errstate(all="ignore"):
            assert_same(evaluate(made, inputs), expected, largest)
    return made


def borders(module: IRModule) -> list[Call]:
    """Where int8 meets uint8."""
    calls = [e for e in nested_exprs(module.main) if isinstance(e, Call) and e.op_name == "qnn.requantize"]
    return [e for e in calls if "uint8" in (e.dtype, e.args[0].dtype)]


@pytest.mark.parametrize("name", COMPUTED)
def test_what_computes_is_int8(name: str) -> None:
    module = of(COMPUTED[name])
    made = signed(module)
    at_the_border = borders(made)
    for expr in post_order(made.main.body):
        if not isinstance(expr, Call) or expr in at_the_border:
            continue
        types = [arg.type for arg in expr.args] + [expr.type]
        assert not any("uint8" in str(type_) for type_ in types), print_module(made)[0]
    results = made.main.body.fields if isinstance(made.main.body, Tuple) else (made.main.body,)
    sources = {*made.main.params, *results, *(e for r in results if isinstance(r, TupleGetItem) for e in (r.tuple,))}
    assert all(e in sources or e.args[0] in sources for e in at_the_border)
    assert all(e.attrs.scale.is_one and made.spans[e] for e in at_the_border)


@pytest.mark.parametrize("name", ALONE)
def test_what_does_not_compute_stays(name: str) -> None:
    module = of(ALONE[name])
    assert signed(module).main.body is module.main.body


def test_a_layer_as_text() -> None:
    body = requantised(call("qnn.dense", X, const(np.array([[1, 2, 3, 4, 5, 250]], np.uint8)), input_zero_point=128))
    scales = "scale=FixedPoint((1073741824,), (1,), 'up')", "scale=FixedPoint((1073754169,), (-9,), 'even')"
    weight = [-127, -126, -125, -124, -123, 122]
    assert print_module(canonicalise(of(body)))[0].splitlines()[2:] == [
        f"    v0: ('l0',) = qnn.requantize(x, {scales[0]}, input_zero_point=128, dtype='int8')",
        f"    v1: ('l0',) = qnn.dense(v0, const({weight}, (1, 6), int8), kernel_zero_point=-128)",
        f"    v2: ('l1',) = qnn.requantize(v1, {scales[1]}, output_zero_point=2, dtype='int8')",
        f"    v3: ('l1',) = qnn.requantize(v2, {scales[0]}, output_zero_point=128, dtype='uint8')",
        "    return v3",
    ]


def test_between_two_layers_there_is_no_border() -> None:
    pooled = call("nn.max_pool2d", CONV, pool_size=(2, 2))
    second = requantised(call("qnn.dense", pooled, unsigned(3, 8), input_zero_point=130))
    assert [e.args[0].dtype for e in borders(signed(of(second)))] == ["uint8", "int8"]


def test_what_is_computed_and_then_read_as_it_is() -> None:
    """A call that takes uint8 as such is given it, exactly."""
    made = signed(of(call("add", CONV, CONV)))
    assert [e.dtype for e in borders(made)] == ["int8", "uint8"]


def test_a_requantisation_that_only_changes_the_type_is_the_border() -> None:
    one = FixedPoint((2**30,), (1,), "double")
    body = call("qnn.requantize", X, scale=one, input_zero_point=128, output_zero_point=0, dtype="int8")
    assert len(borders(signed(of(call("qnn.sum", body, axis=(1,)))))) == 1


def test_what_is_pinned_stays_pinned() -> None:
    pinned = call("qnn.softmax", X, scale=FixedPoint((2**30,), (20,), "double")).pinned("npu")
    made = signed(of(pinned))
    assert [e.pin for e in post_order(made.main.body) if isinstance(e, Call)] == [None, "npu", None]


def test_states_keep_their_type() -> None:
    """What a model keeps is as its file says; a session shows it so."""
    state = Var("s", X.tensor)
    body = Tuple([call("qnn.add", X, state, **ADD, **POINTS), call("maximum", X, state)])
    made = signed(of(body))
    assert [p.dtype for p in made.main.params] == ["uint8", "uint8"]
    assert isinstance(made.main.body.type, TupleType)
    assert [field.dtype for field in made.main.body.type.fields] == ["uint8", "uint8"]


@given(modules(dtypes=("uint8",)))
def test_random_modules(module: IRModule) -> None:
    signed(module)
