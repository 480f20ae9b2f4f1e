"""IF, WHILE and CALL of TFLite files, beside LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import run
from tests._support.tflite_builder import litert
from tests._support.tflite_control import Builder, nested_control

from uma.errors import ModelError
from uma.frontends.tflite import from_tflite
from uma.program import Program
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Function
from uma.relay.module import IRModule
from uma.relay.verify import verify
from uma.relay.visit import nested_exprs


def agrees(data: bytes, *inputs: Any) -> IRModule:
    module = from_tflite(data).module
    verify(module)
    given = {p.name: np.asarray(array) for p, array in zip(module.main.params, inputs, strict=True)}
    for got, expected in zip(evaluate(module, given), litert(data, *given.values()), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert isinstance(run(module), Program)
    return module


X = np.array([[1.5, -2.0, 0.25]], np.float32)


def branching(wide: bool = False) -> bytes:
    """Whether a sum is above 0 says whether a value is doubled or made positive."""
    b = Builder()
    x = b.input((1, 3))
    zero, axis = b.constant(np.float32(0)), b.constant(np.array([0, 1], np.int32))
    total = b.made("SUM", x, axis, shape=())
    above = b.made("GREATER", total, zero, dtype="bool", shape=())
    with b.body() as then:
        given = b.input((1, 3))
        b.gives(b.made("ADD", given, given))
    with b.body() as other:
        given = b.input((1, 3))
        made = b.made("ABS", given)
        b.gives(b.made("CONCATENATION", made, made, shape=(1, 6), axis=1) if wide else made)
    b.graph = b.model.subgraphs[0]
    y = b.made("IF", above, x, thenSubgraphIndex=then, elseSubgraphIndex=other)
    return b.finish(y)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch(sign: int) -> None:
    agrees(branching(), sign * np.abs(X))


def looping(limit: int, swap: bool = False, copied: bool = True) -> bytes:
    """Doubles one value, or changes two with each other, until a count is at its limit."""
    b = Builder()
    n, x = b.input((1,), "int32"), b.input((1, 3))
    with b.body() as condition:
        i, _, _ = b.input((1,), "int32"), b.input((1, 3)), b.input((1, 3))
        b.gives(b.made("LESS", i, b.constant(np.array([limit], np.int32)), dtype="bool", shape=(1,)))
    with b.body() as body:
        i, one, two = b.input((1,), "int32"), b.input((1, 3)), b.input((1, 3))
        if swap and copied:
            zero = b.constant(np.float32(0))
            one, two = b.made("ADD", one, zero), b.made("ADD", two, zero)
        step = b.made("ADD", i, b.constant(np.array([1], np.int32)), dtype="int32", shape=(1,))
        b.gives(*((step, two, one) if swap else (step, b.made("ADD", one, two), two)))
    other = b.made("NEG", x)
    results = [b.tensor((1,), "int32"), b.tensor((1, 3)), b.tensor((1, 3))]
    b.op("WHILE", [n, x, other], results, condSubgraphIndex=condition, bodySubgraphIndex=body)
    return b.finish(*results)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("first", [0, 1, 5, 9])
def test_a_loop(first: int, swap: bool) -> None:
    module = agrees(looping(5, swap), np.array([first], np.int32), X)
    names = {layer for _, layers in module.spans for layer in layers}
    assert any("/" in name for name in names)


def test_values_that_change_places_at_once() -> None:
    """(LiteRT copies one over the other first, where a body's results are its inputs.)"""
    module = from_tflite(looping(5, swap=True, copied=False)).module
    count, x = module.main.params
    got = evaluate(module, {count.name: np.array([0], np.int32), x.name: X})
    np.testing.assert_array_equal(got[1], -X)
    np.testing.assert_array_equal(got[2], X)


@pytest.mark.parametrize("first", [0, 4, 5])
def test_what_is_in_each_other(first: int) -> None:
    agrees(nested_control(), np.array([first], np.int32), X)


def quantised(turns: int) -> bytes:
    """A layer of bytes, as often as a count says; and at last one of two layers, by the count."""
    b = Builder()
    q: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": -3}
    n, x = b.input((1,), "int32"), b.input((1, 4), **q)

    def dense(given: int, seed: int) -> int:
        rng = np.random.default_rng(seed)
        weights = b.constant(rng.integers(-127, 128, (4, 4), np.int8), scale=0.02, zero_point=0)
        bias = b.constant(rng.integers(-300, 300, 4, np.int32), scale=0.05 * 0.02, zero_point=0)
        made = b.tensor((1, 4), **q)
        b.op("FULLY_CONNECTED", [given, weights, bias], [made], fusedActivationFunction=1)
        return made

    with b.body() as condition:
        i, _ = b.input((1,), "int32"), b.input((1, 4), **q)
        b.gives(b.made("LESS", i, b.constant(np.array([turns], np.int32)), dtype="bool", shape=(1,)))
    with b.body() as body:
        i, value = b.input((1,), "int32"), b.input((1, 4), **q)
        step = b.made("ADD", i, b.constant(np.array([1], np.int32)), dtype="int32", shape=(1,))
        b.gives(step, dense(value, 1))
    sides = []
    for seed in (2, 3):
        with b.body() as side:
            b.gives(dense(b.input((1, 4), **q), seed))
        sides.append(side)
    results = [b.tensor((1,), "int32"), b.tensor((1, 4), **q)]
    b.op("WHILE", [n, x], results, condSubgraphIndex=condition, bodySubgraphIndex=body)
    even = b.made("EQUAL", n, b.constant(np.array([0], np.int32)), dtype="bool", shape=(1,))
    y = b.tensor((1, 4), **q)
    b.op("IF", [even, results[1]], [y], thenSubgraphIndex=sides[0], elseSubgraphIndex=sides[1])
    return b.finish(y)


@pytest.mark.parametrize("first", [0, 2, 9])
def test_layers_of_bytes_are_those_of_bytes_outside(first: int) -> None:
    x = np.random.default_rng(first).integers(-128, 128, (1, 4), np.int8)
    module = agrees(quantised(5), np.array([first], np.int32), x)
    functions = [function for function in module.functions.values() if isinstance(function, Function)]
    made = [e.op_name for function in functions for e in nested_exprs(function) if isinstance(e, Call)]
    assert made.count("qnn.dense") == made.count("qnn.requantize") == 3 and "qnn.dequantize" not in made


def calling(graph: int | None = None, *, inputs: int = 1, op: str = "ABS", dtype: str = "float32") -> bytes:
    b = Builder()
    x = b.input((1, 3))
    with b.body() as called:
        given = b.input((1, 3), dtype)
        options = {"subgraph": called} if op == "CALL" else {}
        b.gives(b.made(op, given, **options))
    return b.finish(b.made("CALL", *[x] * inputs, subgraph=called if graph is None else graph))


def test_a_graph_that_is_called() -> None:
    """(LiteRT has no kernel for it.)"""
    module = from_tflite(calling()).module
    assert [var.name for var in module.functions] == ["main"]
    np.testing.assert_array_equal(evaluate(module, {module.main.params[0].name: X})[0], np.abs(X))


def lacking() -> bytes:
    """A graph one of whose inputs is none."""
    b = Builder()
    x = b.input((1, 3))
    with b.body() as called:
        b.gives(b.made("ABS", b.input((1, 3))))
        b.graph.inputs = [-1]
    return b.finish(b.made("CALL", x, subgraph=called))


def undecided() -> bytes:
    b = Builder()
    with b.body() as side:
        b.gives(b.constant(np.ones((1, 3), np.float32)))
    return b.finish(b.made("IF", thenSubgraphIndex=side, elseSubgraphIndex=side))


def endless() -> bytes:
    b = Builder()
    x = b.input((1, 3))
    with b.body() as condition:
        b.input((1, 3))
        b.gives(b.constant(np.array([True])))
    with b.body() as body:
        given = b.input((1, 3))
        b.gives(b.made("ADD", given, given))
    return b.finish(b.made("WHILE", x, condSubgraphIndex=condition, bodySubgraphIndex=body))


def remembering() -> bytes:
    b = Builder()
    x = b.input((1, 3))
    with b.body() as called:
        b.input((1, 3))
        b.gives(b.read(b.handle("v"), (1, 3)))
    return b.finish(b.made("CALL", x, subgraph=called))


def wrong_loop(condition_results: int = 1, growing: bool = False, more: bool = False, dtype: str = "bool") -> bytes:
    b = Builder()
    x = b.input((1, 3))
    with b.body() as condition:
        given = b.input((1, 3))
        found = b.made("GREATER", given, given, dtype="bool") if dtype == "bool" else given
        b.gives(*[found] * condition_results)
    with b.body() as body:
        given = b.input((1, 3))
        made = b.made("CONCATENATION", given, given, shape=(1, 6), axis=1) if growing else b.made("ABS", given)
        b.gives(*([made, made] if more else [made]))
    return b.finish(b.made("WHILE", x, condSubgraphIndex=condition, bodySubgraphIndex=body))


FAULTS: dict[str, Callable[[], bytes]] = {
    "an operator CALL runs graph 7": lambda: calling(7),
    "an operator CALL runs graph 0": lambda: calling(0),
    "graph 1 of the file runs itself": lambda: calling(op="CALL"),
    "graph 1 takes 1 operands, and is given 2": lambda: calling(inputs=2),
    "which cannot be Tensor[(1, 3), float32]": lambda: calling(dtype="int32"),
    "in graph 1, which it runs: 't1' (WHERE): this operator is not supported": lambda: calling(op="WHERE"),
    "its branches are of different types": lambda: branching(wide=True),
    "graph 1 lacks an output or an input": lacking,
    "it has no condition": undecided,
    "its condition always holds: it would never end": endless,
    "keeps values from one run to the next": remembering,
    "its condition gives 2 results": lambda: wrong_loop(2),
    "value 0 is Tensor[(1, 3), float32] before a turn": lambda: wrong_loop(growing=True),
    "and its body gives 2 results": lambda: wrong_loop(more=True),
    "what its condition gives is Tensor[(1, 3), bool], not one bool": wrong_loop,
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_is_refused(what: str) -> None:
    with pytest.raises(ModelError) as caught:
        from_tflite(FAULTS[what]())
    assert what in str(caught.value), caught.value
