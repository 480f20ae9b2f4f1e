"""Every operator with an open extent: it refuses that, or its loops compute what its reference does at every value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.op_cases import CASES, on
from tests._support.relay_strategies import Choice, random_array

from uma.contract.fusion import Fusion
from uma.errors import ModelError
from uma.lowering.strategy_dispatch import declared_loops
from uma.relay.dimension_binding import bind_dimensions
from uma.relay.expr import Call, Function, Var, tensors_of
from uma.relay.module import IRModule
from uma.relay.op import Op
from uma.relay.tensors import tensor_function
from uma.relay.types import TensorType
from uma.tir.form.interp import interpret
from uma.tir.form.symbolic_dims import Extent, OpenExtentError, Symbol, substitute_symbols, upper_bounds
from uma.tir.proofs.obligations import unproven
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.simplify import simplify

Shape = tuple[Any, ...]


def opened(made: Call, name: str = "n") -> Iterator[Function]:
    """The functions of the call in which one dimension of the first argument is open, and perhaps others of that
    extent, of arguments and attributes."""
    shapes = [arg.shape for arg in made.args]
    for axis, extent in enumerate(shapes[0]):
        if extent < 2:
            continue
        symbol = Extent.from_symbol(Symbol(name, 1, extent + 1))
        equal = [
            (arg, d)
            for arg, shape in enumerate(shapes)
            for d, e in enumerate(shape)
            if e == extent and (arg, d) != (0, axis)
        ][:4]
        attrs: list[dict[str, Any]] = [dict(made.attrs.items)]
        for key in ("newshape", "shape", "end"):
            if isinstance(attrs[0].get(key), tuple):
                attrs += [
                    {**attrs[0], key: tuple(symbol if d == at else e for d, e in enumerate(attrs[0][key]))}
                    for at, e in enumerate(attrs[0][key])
                    if e == extent
                ]
        for others in itertools.chain.from_iterable(itertools.combinations(equal, r) for r in range(len(equal) + 1)):
            chosen = {(0, axis), *others}
            args = [
                Var(
                    f"x{arg}",
                    TensorType(tuple(symbol if (arg, d) in chosen else e for d, e in enumerate(shape)), one.dtype),
                )
                for arg, (shape, one) in enumerate(zip(shapes, made.args, strict=True))
            ]
            for given_attrs in attrs:
                try:
                    call = Call(made.op, args, given_attrs)
                except ModelError:
                    continue
                yield Function(args, call)


def check(function: Function, seed: int) -> bool:
    """Whether it has loops; if so they compute at each value what the reference does there, whatever lies beyond."""
    try:
        kernel = tensor_function(function).kernel()
    except OpenExtentError:
        return False
    func = simplify(kernel.func)
    assert [unproven(one) for one in (kernel.func, func, flatten(func))] == [None] * 3
    symbol = next(s for p in function.params for e in p.shape if isinstance(e, Extent) for s in e.symbols)
    names = [buffer.name for buffer in func.buffers("input")]
    for n in (symbol.low, (symbol.low + symbol.high) // 2, symbol.high):
        values = {symbol.name: n}
        fixed = bind_dimensions(IRModule.from_functions({"main": function}), values).main
        call = fixed.body
        assert isinstance(call, Call) and isinstance(call.op, Op)
        arrays = [random_array(param.shape, param.dtype, seed + i) for i, param in enumerate(fixed.params)]
        with np.errstate(all="ignore"):
            wanted = call.op.reference(call.attrs, *arrays)
        fields = wanted if isinstance(wanted, tuple) else (wanted,)
        lying = []
        for param, array in zip(function.params, arrays, strict=True):
            whole = random_array(upper_bounds(param.shape), param.dtype, 99)
            whole[tuple(map(slice, array.shape))] = array
            lying.append(whole)
        lying += [np.array([n], np.int32) for _ in kernel.symbols]
        taken = dict(
            zip(names, (a.reshape(b.shape) for a, b in zip(lying, func.buffers("input"), strict=True)), strict=True)
        )
        taken |= {b.name: a for b, a in zip(func.buffers("constant"), kernel.bind({}), strict=True)}
        got = interpret(func, taken)
        for result, field, type_ in zip(got.values(), fields, tensors_of(function.body.type), strict=True):
            part = result.reshape(upper_bounds(type_.shape))[tuple(map(slice, substitute_symbols(type_.shape, values)))]
            message = f"{call.op_name} {[str(p.type) for p in function.params]} {call.attrs.items} at {n}"
            assert part.shape == field.shape, message
            if field.dtype.kind != "f":
                np.testing.assert_array_equal(part, field, message)
            else:
                largest = float(np.abs(field[np.isfinite(field)]).max(initial=1.0))
                np.testing.assert_allclose(part, field, 1e-5, 1e-5 * largest, err_msg=message)
    return True


MOST_MACS = 50_000
"""More take the interpreter minutes, of a dozen functions at three values each."""

TAUGHT: Sequence[tuple[str, Sequence[tuple[Shape, str]], dict[str, Any]]] = [
    ("add", [((2, 5), "float32"), ((5,), "float32")], {}),
    ("where", [((5, 1), "bool"), ((5, 3), "float32"), ((), "float32")], {}),
    ("cast", [((3, 5), "float32")], {"dtype": "int32"}),
    ("matmul", [((2, 5, 3), "float32"), ((2, 3, 5), "float32")], {}),
    ("nn.dense", [((1, 5, 3), "float32"), ((4, 3), "float32")], {}),
    ("nn.softmax", [((2, 5, 5), "float32")], {}),
    ("nn.layer_norm", [((1, 5, 4), "float32")], {"axis": (-1,)}),
    ("mean", [((2, 5), "float32")], {"axis": (1,)}),
    ("max", [((5, 2), "float32")], {"axis": (0,)}),
    ("transpose", [((2, 5, 3), "float32")], {"axes": (1, 2, 0)}),
    ("concatenate", [((2, 5), "float32"), ((2, 3), "float32")], {"axis": 1}),
    ("take", [((7, 3), "float32"), ((1, 5), "int64")], {"axis": 0}),
    ("take", [((1, 5, 3), "float32"), ((), "int64")], {"axis": 1}),
    ("reshape", [((1, 5, 6), "float32")], {"newshape": (1, 5, 2, 3)}),
    ("strided_slice", [((9, 2), "float32")], {"begin": (0, 0), "end": (5, 2), "strides": (1, 1)}),
    ("broadcast_to", [((1, 3), "float32")], {"shape": (5, 3)}),
    ("nn.pad", [((1, 5), "float32")], {"pad_width": (0, 1, 0, 2)}),
]
"""What a BERT needs, and more: these take an open extent in the place of 5."""


@pytest.mark.parametrize(("name", "types", "attrs"), TAUGHT)
def test_what_is_taught_takes_an_open_extent(name: str, types: Any, attrs: Any) -> None:
    n = Extent.from_symbol(Symbol("n", 1, 6))

    def with_n(extents: Any) -> Any:
        return tuple(n if extent == 5 else extent for extent in extents) if isinstance(extents, tuple) else extents

    made = on(name, *((with_n(shape), dtype) for shape, dtype in types), **{k: with_n(v) for k, v in attrs.items()})
    if any(param.tensor.is_open for param in made.args):
        assert check(Function([arg for arg in made.args if isinstance(arg, Var)], made), 3)
    else:
        assert made.tensor.is_open  # by its attributes


def test_all_extents_of_one_are_dropped_of_no_shape_that_may_have_more() -> None:
    n, more = Extent.from_symbol(Symbol("n", 1, 6)), Extent.from_symbol(Symbol("n", 2, 6))
    with pytest.raises(OpenExtentError) as caught:
        on("squeeze", ((1, n), "float32"), axis=())
    assert "whether n[1:6] is 1 depends on the extent" in caught.value.what
    assert on("squeeze", ((1, more), "float32"), axis=()).shape == (more,)
    assert on("squeeze", ((1, n), "float32"), axis=(0,)).shape == (n,)


def test_a_reshape_leaves_what_is_around_an_open_extent() -> None:
    n = Extent.from_symbol(Symbol("n", 1, 6))
    assert on("reshape", ((n, 2, 3), "float32"), newshape=(2 * n, 3)).shape == (2 * n, 3)
    for shape, asked in (((2, n, 3), (2 * n, 3)), ((2, n), (n, 2)), ((2, n), (n * 2,))):
        with pytest.raises(OpenExtentError) as caught:
            on("reshape", (shape, "float32"), newshape=asked)
        assert "lie in memory in another way" in caught.value.what


def test_an_operator_with_loops_of_its_own_is_refused() -> None:
    n = Extent.from_symbol(Symbol("n", 1, 6))
    x = Var("x", TensorType((n, 2), "float32"))

    def never(*given: Any) -> Any:
        raise AssertionError("it was asked")

    op = Op("test.steps", "", ("data",), lambda attrs, data: data, never, None, "opaque", loops=never)
    with pytest.raises(OpenExtentError) as caught:
        declared_loops(Fusion(Function([x], Call(op, [x]))))
    assert "test.steps takes no open extents yet" in caught.value.what


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60, deadline=None)
@given(draw=st.data())
def test_an_operator_refuses_an_open_extent_or_computes_with_it(name: str, draw: st.DataObject) -> None:
    try:
        made = CASES[name](Choice(draw.draw), name)
    except ModelError:
        return
    if not isinstance(made.op, Op) or made.op.compute is None:
        return  # with loops of its own: `declared_loops` refuses
    if made.op.macs is not None and made.op.macs(made.attrs, made.type, *(arg.type for arg in made.args)) > MOST_MACS:
        return
    for function in opened(made):
        check(function, 7)
