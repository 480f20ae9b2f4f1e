"""The graph that an accelerator is offered: what becomes of float scales, and what each expression stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uma.relay import Call, Expr, FloatScale, Function, TensorType, Var, call, const
from uma.relay.evaluate import evaluate
from uma.relay.pattern import Graph
from uma.relay.transform.fixed_point_view import InFixedPoints, in_fixed_points
from uma.support.rounding import FixedPointForm

TFLITE = FixedPointForm("even", additions=True, averages=True)

A, B = (Var(name, TensorType((2, 3), "int8")) for name in "ab")
SUMS = Var("sums", TensorType((2, 3), "int32"))


def made(root: Expr, form: FixedPointForm = TFLITE, but: tuple[Expr, ...] = ()) -> InFixedPoints:
    graph = Graph(root)
    return in_fixed_points(graph.order, graph.users, form, lambda exprs: not set(exprs) & set(but), {})


def requantized(data: Expr, *scales: float, **attrs: Any) -> Call:
    return call("qnn.requantize", data, scale=FloatScale(scales), **{"dtype": "int8", **attrs})


def added(a: Expr, b: Expr, scales: tuple[float, float, float] = (0.1, 0.07, 0.12), **attrs: Any) -> Call:
    floats = [
        call("qnn.dequantize", side, scale=scale, zero_point=zero)
        for side, scale, zero in zip((a, b), scales, (3, -5), strict=False)
    ]
    attrs = {"scale": scales[2], "zero_point": 7, "rounding": "even", "dtype": "int8", **attrs}
    total: Expr = call("add", *floats)
    for limit in attrs.pop("limits", ()):
        total = call("clip", total, a_min=limit[0], a_max=limit[1]) if limit else call("nn.relu", total)
    return call("qnn.quantize", total, **attrs)


def difference(root: Expr, found: InFixedPoints) -> int:
    """How far both graphs are apart on random data."""
    rng = np.random.default_rng(1)
    params = [expr for expr in Graph(root).order if isinstance(expr, Var)]
    sides = []
    low, high = (-128, 128) if SUMS not in params else (-4000, 4000)
    given = {p.name: rng.integers(low, high, p.shape).astype(p.dtype) for p in params}
    for body in (root, found.result):
        sides.append(evaluate(Function(params, body), given)[0].astype(np.int64))
    return int(np.abs(sides[0] - sides[1]).max())


def test_a_requantisation() -> None:
    root = call("clip", requantized(SUMS, 0.013, output_zero_point=4), a_min=-20, a_max=90)
    found = made(root)
    (new, change), *others = found.changes.items()
    assert not others
    assert isinstance(new, Call)
    assert (str(new.attrs.scale.rounding), new.attrs.output_zero_point, change.what) == ("even", 4, "requantisation")
    assert (found.value[new], found.stands[new]) == (root.args[0], (root.args[0],))
    assert found.replacements[root] is found.result
    assert difference(root, found) <= change.bound <= 1


@pytest.mark.parametrize(
    "root",
    [
        requantized(SUMS, 0.013, dtype="int32"),
        requantized(Var("wide", TensorType((2, 3), "int32")), 3e38),
        call("nn.relu", A),
    ],
    ids=["to int32", "out of reach", "nothing to do"],
)
def test_what_stays(root: Call) -> None:
    found = made(root)
    assert (found.result, dict(found.changes)) == (root, {})


def test_what_may_not_be_changed() -> None:
    first = requantized(SUMS, 0.013)
    found = made(requantized(first, 0.5), but=(first,))
    assert [type(new.attrs.scale).__name__ for new in found.changes if isinstance(new, Call)] == ["FixedPoint"]
    assert found.replacements[first] is first


@pytest.mark.parametrize(
    "limits",
    [(), ((),), ((-0.5, 2.0),), ((), (-0.5, 2.0)), ((-1e9, 1e9),), ((-1e9, 1e9), ())],
    ids=["plain", "relu", "clip", "both", "no limit", "one of two limits"],
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_an_addition(limits: Any, dtype: str) -> None:
    a, b = (Var(name, TensorType((2, 3), dtype)) for name in "ab")
    zero = 7
    floats = [call("qnn.dequantize", side, scale=s, zero_point=9) for side, s in ((a, 0.1), (b, 0.07))]
    total: Expr = call("add", *floats)
    for limit in limits:
        total = call("clip", total, a_min=limit[0], a_max=limit[1]) if limit else call("nn.relu", total)
    root = call("qnn.quantize", total, scale=0.12, zero_point=zero, rounding="even", dtype=dtype)
    found = made(root)
    (new, change) = next(iter(found.changes.items()))
    assert isinstance(new, Call)
    assert (new.op_name, new.args, change.what, change.rounding) == ("qnn.add", (a, b), "addition", "double")
    # Every op of before is stood for, once.
    stood = [expr for exprs in found.stands.values() for expr in exprs]
    assert len(stood) == len(set(stood)) == len(Graph(root).order)
    assert found.value[found.result] is root
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    given = {p.name: rng.integers(info.min, info.max + 1, p.shape).astype(dtype) for p in (a, b)}
    sides = [evaluate(Function([a, b], body), given)[0].astype(int) for body in (root, found.result)]
    assert np.abs(sides[0] - sides[1]).max() <= change.bound <= 1


def test_additions_that_stay() -> None:
    shared = added(A, B)
    inner = shared.args[0]
    assert isinstance(inner, Call)
    # The floats are needed by others, too.
    assert made(call("qnn.quantize", inner, scale=0.2, rounding="even", dtype="int8")).changes
    both = call("concatenate", call("qnn.dequantize", shared, scale=0.1), inner, axis=0)
    assert not any(change.what == "addition" for change in made(both).changes.values())
    # Halves go elsewhere; the type is another; the result is too fine for 20 bits; the form has none.
    assert not made(added(A, B, rounding="away")).changes
    assert not made(added(A, B, dtype="uint8")).changes
    assert not made(added(A, B, (0.1, 0.1, 1e-9))).changes
    assert not made(added(A, B), FixedPointForm("even")).changes
    # An operand is pinned elsewhere.
    root = added(A, B)
    assert isinstance(root.args[0], Call)
    pinned = Call(root.op, (root.args[0].pinned("npu"),), root.attrs)
    assert not made(pinned).changes
    # Added to itself it is one float.
    assert [change.what for change in made(added(A, A, (0.1, 0.1, 0.2))).changes.values()] == ["addition"]


@pytest.mark.parametrize(
    ("attrs", "bound"),
    [
        ({"pool_size": (2, 2)}, 1),
        ({"pool_size": (3, 3)}, 0),
        ({"pool_size": (3, 3), "padding": (1, 1, 1, 1)}, 1),
        ({"pool_size": (2, 2), "count_include_pad": True}, 1),
        ({"pool_size": (2, 2), "padding": (1, 1, 1, 1), "count_include_pad": True}, None),
    ],
)
def test_an_average(attrs: dict[str, Any], bound: int | None) -> None:
    data = Var("data", TensorType((1, 6, 6, 2), "int8"))
    root = call("qnn.avg_pool2d", data, strides=(1, 1), rounding="even", zero_point=-3, **attrs)
    found = made(root)
    assert [change.bound for change in found.changes.values()] == ([] if bound is None else [bound])
    assert not made(root, FixedPointForm("even")).changes
    if bound is None:
        return
    # Random data, and data of which every mean lies between two integers.
    halves = np.indices((1, 6, 6, 2))[2] % 2
    rng = np.random.default_rng(2)
    for given in (rng.integers(-128, 128, (1, 6, 6, 2)), halves - 4, halves + 4):
        inputs = {"data": given.astype(np.int8)}
        sides = [evaluate(Function([data], body), inputs)[0].astype(int) for body in (root, found.result)]
        assert np.abs(sides[0] - sides[1]).max() <= bound


def test_what_would_become_one_stays_apart() -> None:
    """A multiplier of few bits makes two scales alike: the second is left as it is."""
    narrow = FixedPointForm("even", 4)
    root = call("concatenate", requantized(SUMS, 0.5), requantized(SUMS, 0.501), axis=0)
    found = made(root, narrow)
    assert len(found.changes) == 1
    assert len(Graph(found.result).order) == len(Graph(root).order)
    fixed = next(iter(found.changes))
    assert isinstance(fixed, Call)
    # Nor does one become what there was already, wherever it stands.
    for pair in ((fixed, requantized(SUMS, 0.501)), (requantized(SUMS, 0.501), fixed)):
        assert not made(call("concatenate", *pair, axis=0), narrow).changes
    # And an addition stays where there is a sum like it.
    root = added(A, B)
    fixed = next(iter(made(root).changes))
    assert [made(call("concatenate", *pair, axis=0)).changes for pair in ((fixed, root), (root, fixed))] == [{}, {}]


def test_constants_are_no_operands_of_sums() -> None:
    root = added(A, const(np.ones((2, 3), np.int8)))
    assert not made(root).changes
