"""Modules, their layers, and what they say of inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from uma.errors import ModelError, PluginError
from uma.relay.expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Signature, Spans, StateInfo, TensorInfo, func_type
from uma.relay.types import FuncType, TensorType, TupleType
from uma.tir import te
from uma.tir.form.nodes import PrimFunc

T = TensorType((2, 4), "float32")
X = Var("x", T)
RELU = call("nn.relu", X)
MAIN = Function([X], RELU)


def kernel(*, outputs: int = 1) -> PrimFunc:
    x, w = te.placeholder((2, 4), "float32", "x"), te.placeholder((4,), "float32", "w")
    made = [te.compute((2, 4), lambda i, j, k=k: x[i, j] + w[j] * float(k), "y") for k in range(outputs)]
    return te.prim_func([x], made, constants=[w]).func


# --- layers ----------------------------------------------------------------------------------------------------------


def test_layers_are_added_once_each_in_order() -> None:
    spans = Spans()
    spans.add(RELU, ["b", "a", "b"])
    spans.add(RELU, ("a", "c"))
    assert spans[RELU] == ("b", "a", "c")
    assert RELU in spans
    assert spans[call("tanh", X)] == ()
    assert call("tanh", X) not in spans


def test_only_what_is_computed_has_layers() -> None:
    pair = Tuple([X, RELU])
    computed: list[Expr] = [RELU, pair, TupleGetItem(pair, 0), Call(MAIN, [X])]
    others: list[Expr] = [X, const(1), MAIN, GlobalVar("f", FuncType((), T))]
    spans = Spans(dict.fromkeys(computed + others, ("a",)))
    assert [expr for expr, _ in spans] == computed
    assert all(layers == ("a",) for _, layers in spans)


def test_no_layers_are_nothing() -> None:
    spans = Spans()
    spans.add(RELU, [])
    assert RELU not in spans
    assert spans == Spans()


def test_layers_are_names() -> None:
    spans = Spans()
    for layers in ("conv", ["conv", 1]):
        with pytest.raises(PluginError, match="the layers of an expression must be a list of names") as caught:
            spans.add(RELU, layers)  # type: ignore[arg-type]  # neither is a list of names
        assert caught.value.hint == '["conv1"], not "conv1"'
    assert spans == Spans()


def test_layers_of_a_module_that_is_only_to_be_read_stay() -> None:
    module = IRModule.from_functions({"main": MAIN}, Spans({RELU: ["a"]})).read_only()
    with pytest.raises(
        PluginError, match="the layers of a module that is only to be read cannot be added to"
    ) as caught:
        module.spans.add(RELU, ["b"])
    assert module.spans[RELU] == ("a",)
    assert caught.value.hint == "add to a copy: spans = Spans(dict(module.spans))"
    copy = Spans(dict(module.spans))
    copy.add(RELU, ["b"])
    assert copy[RELU] == ("a", "b")


def test_layers_compare_by_content() -> None:
    assert Spans({RELU: ("a",)}) == Spans({RELU: ["a", "a"]})
    assert Spans({RELU: ("a", "b")}) != Spans({RELU: ("b", "a")})
    assert Spans() != {}
    with pytest.raises(TypeError, match="unhashable"):
        hash(Spans())


def test_layers_of_what_moves_and_of_what_is_kept() -> None:
    tanh = call("tanh", X)
    spans = Spans({RELU: ("a",), tanh: ("b",)})
    spans.record_rewrite(RELU, tanh)
    assert spans[tanh] == ("b", "a")
    assert spans.only([tanh, X]) == Spans({tanh: ("b", "a")})


# --- signatures ------------------------------------------------------------------------------------------------------


def test_a_signature_made_up_for_a_function() -> None:
    assert Signature.from_function(MAIN) == Signature((TensorInfo("x"),), (TensorInfo("output"),))
    pair = Function([X], Tuple([X, RELU]))
    assert Signature.from_function(pair).outputs == (TensorInfo("output0"), TensorInfo("output1"))
    assert Signature.from_function(Function([X], Tuple([X]))).outputs == (TensorInfo("output"),)


def test_what_is_state_is_not_the_callers() -> None:
    states = (StateInfo("s", 2, 0, b""), StateInfo("t", 0, 3, b""))
    signature = Signature((TensorInfo("x"),), (TensorInfo("y"), TensorInfo("z")), states)
    assert signature.of_inputs("abc") == ("b",)
    assert signature.of_outputs("abcd") == ("b", "c")
    plain = Signature((), ())
    assert plain.of_inputs("ab") == plain.of_outputs("ab") == ("a", "b")


@pytest.mark.parametrize("given", [{"scale": 0.5}, {"zero_point": 3}])
def test_scale_and_zero_point_come_together(given: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="tensor 'x' has a scale or a zero point without the other"):
        TensorInfo("x", **given)
    assert TensorInfo("x", 0.5, 0).zero_point == 0


# --- modules ---------------------------------------------------------------------------------------------------------


def test_functions_are_found_by_name() -> None:
    prim = kernel()
    module = IRModule.from_functions({"main": MAIN, "f": prim})
    assert module["f"] is prim
    assert module.main is MAIN
    assert module.global_var("f") is GlobalVar("f", FuncType((T, TensorType((4,), "float32")), T))
    with pytest.raises(ModelError, match="the module has no function 'g'") as caught:
        _ = module["g"]
    assert caught.value.hint == "it has main, f"
    with pytest.raises(ModelError, match="the module has no function 'main'") as caught:
        _ = IRModule({}).main
    assert caught.value.hint == "it has none"


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: IRModule({1: MAIN}), "a module has Function under int, not a Function, PrimFunc or Extern under a"),
        (
            lambda: IRModule({GlobalVar("f", FuncType((), T)): RELU}),
            "a module has Call under GlobalVar, not a Function",
        ),
        (lambda: IRModule({}, {}), "a module has dict and NoneType, not Spans and a Signature"),
        (lambda: IRModule({}, Spans(), "x"), "a module has Spans and str, not Spans and a Signature"),
    ],
)
def test_a_module_of_something_else(make: Callable[[], IRModule], what: str) -> None:
    with pytest.raises(ModelError) as caught:
        make()
    assert caught.value.what.startswith(what)


def test_main_is_of_the_graph_form() -> None:
    with pytest.raises(ModelError, match="main is not a function of the graph form"):
        _ = IRModule.from_functions({"main": kernel()}).main


def test_the_type_of_a_kernel_is_inputs_and_constants_to_outputs() -> None:
    w = TensorType((4,), "float32")
    assert func_type(kernel()) is FuncType((T, w), T)
    assert func_type(kernel(outputs=2)) is FuncType((T, w), TupleType((T, T)))
    assert func_type(MAIN) is MAIN.type


def test_modules_are_equal_by_content() -> None:
    assert IRModule.from_functions({"main": MAIN}) == IRModule.from_functions({"main": MAIN}, Spans())
    assert IRModule.from_functions({"main": MAIN}) != IRModule.from_functions({"main": MAIN}, Spans({RELU: ("a",)}))
    assert IRModule.from_functions({"main": MAIN}) != IRModule.from_functions(
        {"main": MAIN}, None, Signature.from_function(MAIN)
    )
    assert IRModule.from_functions({"main": MAIN}) != IRModule.from_functions({"main": Function([X], X)})


def test_another_main_keeps_the_rest_and_the_layers_that_are_left() -> None:
    inner = Function([X], call("tanh", X))
    new = Function([X], Call(inner, [X]))
    spans = Spans({RELU: ("gone",), inner.body: ("inner",), new.body: ("outer",)})
    module = IRModule.from_functions({"f": kernel(), "main": MAIN}, spans, Signature.from_function(MAIN))
    changed = module.with_main(new, spans)
    assert changed.main is new
    assert [var.name for var in changed.functions] == ["main", "f"]
    assert changed.spans == Spans({inner.body: ("inner",), new.body: ("outer",)})
    assert changed.signature == module.signature
    assert module.main is MAIN
