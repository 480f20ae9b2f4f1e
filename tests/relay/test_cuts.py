"""Extents that a module computes: what holds of them, from the types to the loops."""

from __future__ import annotations

import numpy as np
import pytest

from uma.errors import ModelError
from uma.relay import IRModule, TensorType, Tuple, TupleGetItem, Var, call, const, parse_module, print_module
from uma.relay.dimension_binding import bind_dimensions
from uma.relay.evaluate import evaluate
from uma.relay.expr import Expr, Function
from uma.relay.module import Signature, TensorInfo
from uma.relay.verify import faults
from uma.tir.form.symbolic_dims import Extent, OpenExtentError, Symbol

N = Extent.from_symbol(Symbol("n", 0, 6))
X = Var("x", TensorType((6,), "float32"))
COUNT = Var("count", TensorType((1,), "int32"))
FOUND = call("nonzero", X)
PLACES = call("take_first", TupleGetItem(FOUND, 0), TupleGetItem(FOUND, 1), axis=1, extent=N)


def module(*results: Expr, names: tuple[str, ...], params: tuple[Var, ...] = (X,)) -> IRModule:
    signature = Signature(tuple(TensorInfo(p.name) for p in params), tuple(map(TensorInfo, names)))
    return IRModule.from_functions({"main": Function(params, Tuple(results))}, signature=signature)


def told(made: IRModule) -> str:
    return "; ".join(str(fault.what) for fault in faults(made))


def test_what_is_right() -> None:
    good = module(PLACES, TupleGetItem(FOUND, 1), names=("places", "n"))
    assert not told(good)
    assert parse_module(*print_module(good)) == good
    for values in ([0] * 6, [1] * 6, [0, 2, 0, 3, 0, 0]):
        x = np.array(values, np.float32)
        places, count = evaluate(good, {"x": x})
        np.testing.assert_array_equal(places, np.nonzero(x))
        assert count == [np.count_nonzero(x)]


def test_what_is_wrong() -> None:
    assert "there is no parameter or result 'n'" in told(module(PLACES, names=("places",)))
    assert "there is no parameter or result 'n'" in told(module(PLACES, COUNT, names=("a", "b"), params=(X, COUNT)))
    second = call("take_first", X, COUNT, axis=0, extent=N)
    twice = module(PLACES, second, TupleGetItem(FOUND, 1), names=("a", "b", "n"), params=(X, COUNT))
    assert "the extent n[0:6] is computed twice" in told(twice)
    given = Var("n", TensorType((1,), "int32"))
    both = module(call("take_first", X, given, axis=0, extent=N), given, names=("a", "n"), params=(X, given))
    assert "the extent n[0:6] is a parameter and is computed" in told(both)
    loose = call("broadcast_to", const(np.float32(1)), shape=(N,))
    alone = module(PLACES, loose, TupleGetItem(FOUND, 1), names=("a", "b", "n"))
    assert "nothing that it is made of has the extent n[0:6], which is computed" in told(alone)


def test_types_of_cuts() -> None:
    for count, extent, what in (
        (X, N, "the count must be"),
        (COUNT, N + 1, "is computed of others"),
        (COUNT, Extent.from_symbol(Symbol("m", 0, 7)), "are not part of"),
    ):
        with pytest.raises(ModelError, match=what):
            call("take_first", X, count, axis=0, extent=extent)
    with pytest.raises(ModelError, match="1 dimension or more"):
        call("nonzero", Var("s", TensorType((), "float32")))


def test_types_of_boxes() -> None:
    def made(boxes: tuple[int, ...], scores: tuple[int, ...], limit: int, most: str = "int64") -> None:
        types = TensorType(boxes, "float32"), TensorType(scores, "float32"), TensorType((1,), most)
        of = [Var(f"v{i}", type_) for i, type_ in enumerate(types)]
        number = Var("number", TensorType((1,), "float32"))
        call("nn.non_max_suppression", *of, number, number, limit=limit)

    made((1, 4, 4), (1, 2, 4), 4)
    for args, what in (
        (((1, 4, 4), (1, 2, 5), 4), "do not fit"),
        (((1, 4, 4), (1, 2, 4), 5), "are no limit"),
        (((1, 4, 4), (1, 2, 4), 4, "int32"), "must be"),
    ):
        with pytest.raises(ModelError, match=what):
            made(*args)


@pytest.mark.parametrize(
    ("name", "attrs"), [("max", {"axis": (0,)}), ("mean", {"axis": ()}), ("argmax", {"axis": 0, "dtype": "int32"})]
)
def test_what_is_not_defined_of_nothing(name: str, attrs: dict[str, object]) -> None:
    data = Var("data", TensorType((N,), "float32"))
    with pytest.raises(OpenExtentError, match="of which there may be none"):
        call(name, data, **attrs)
    with pytest.raises(OpenExtentError, match="of which there may be none"):
        call("take", data, const(np.array([0], np.int32)), axis=0)
    assert call("sum", data, axis=(0,)).shape == ()
    assert call("take", data, Var("at", TensorType((N,), "int32")), axis=0).shape == (N,)


def test_only_what_is_computed_may_be_nothing() -> None:
    for extent in (Extent.from_symbol(Symbol("n", 1, 6)) - 1, N - 1):
        with pytest.raises(ModelError, match="not a positive integer"):
            TensorType((extent,), "float32")


def test_a_cut_of_what_a_caller_leaves_open_has_the_bound_of_what_is_there() -> None:
    rows = Extent.from_symbol(Symbol("rows", 1, 3))
    given, x = Var("rows", TensorType((1,), "int32")), Var("x", TensorType((rows, 2), "float32"))
    found = call("nonzero", x)
    cut = call("take_first", TupleGetItem(found, 0), TupleGetItem(found, 1), axis=1, extent=N)
    made = module(cut, TupleGetItem(found, 1), names=("a", "n"), params=(x, given))
    assert not told(made)
    fixed = bind_dimensions(made, {"rows": 2})
    places, _ = evaluate(fixed, {"x": np.ones((2, 2), np.float32), "rows": np.array([2], np.int32)})
    assert fixed.main.body.type.fields[0].shape[1].high == 4  # type: ignore[attr-defined]  # a tuple, its first of an open extent
    assert places.shape == (2, 4)
