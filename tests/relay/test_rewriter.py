"""What rewrites hand on though no rule speaks of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests._support.partitions import Case, X, Y, cases, inputs_of

from uma.errors import ModelError, PluginError
from uma.relay import (
    Call,
    Expr,
    Function,
    IRModule,
    Rewriter,
    Signature,
    Spans,
    TensorInfo,
    Tuple,
    Var,
    call,
    post_order,
    rewrite,
)
from uma.relay.evaluate import evaluate
from uma.relay.verify import verify
from uma.tir import te

INNER = call("nn.relu", X).pinned("npu")
BODY = call("add", call("nn.relu", INNER), Y)
SIGNATURE = Signature((TensorInfo("the x"), TensorInfo("the y")), (TensorInfo("sum"),))


def relu_once(expr: Expr) -> Expr | None:
    double = isinstance(expr, Call) and expr.op_name == "nn.relu" and isinstance(expr.args[0], Call)
    return expr.args[0] if double and expr.args[0].op_name == "nn.relu" else None  # type: ignore[attr-defined]  # what is double is two calls


def module_of(body: Expr = BODY) -> IRModule:
    layers = Spans({expr: [f"layer{number}"] for number, expr in enumerate(post_order(body))})
    main = Function([X, Y], body, {"note": "kept"})
    other = Function([X], call("nn.relu", call("nn.relu", X)), {"Compiler": "npu", "global_symbol": "one"})
    return IRModule.from_functions({"main": main, "one": other}, layers, SIGNATURE)


def test_all_is_handed_on() -> None:
    module = module_of()
    made = Rewriter(module).rewrite(relu_once)
    assert made.main.body is call("add", INNER, Y)
    assert made.main.attr("note") == "kept" and made.signature is SIGNATURE
    assert made.main.body.args[0].pin == "npu"  # type: ignore[attr-defined]  # a sum, as was just seen
    assert made.spans[INNER] == (*module.spans[INNER], *module.spans[BODY.args[0]])
    assert made.spans[made.main.body] == module.spans[BODY]
    assert {expr for expr, _ in made.spans} == {INNER, made.main.body}
    assert made["one"] is module["one"]
    assert module.main.body is BODY and len(dict(module.spans)) == 3


def test_a_pin_goes_to_what_takes_the_place() -> None:
    made = Rewriter(module_of()).rewrite(
        lambda e: call("maximum", *e.args, *e.args) if isinstance(e, Call) and e.op_name == "nn.relu" else None
    )
    assert [e.pin for e in post_order(made.main.body) if isinstance(e, Call)] == ["npu", None, None]


def test_functions_by_name() -> None:
    module = module_of()
    made = Rewriter(module).rewrite(relu_once, "one")
    function = made["one"]
    assert isinstance(function, Function) and function.body is call("nn.relu", X)
    assert dict(function.attrs) == {"Compiler": "npu", "global_symbol": "one"}
    assert made.main is module.main and made.spans == module.spans


def test_a_module_without_main() -> None:
    """As passes for regions are given."""
    module = IRModule.from_functions({"one": module_of()["one"]})
    assert Rewriter(module).rewrite(relu_once, "one")["one"].body is call("nn.relu", X)  # type: ignore[union-attr]  # a function of the graph


def test_what_changes_nothing_gives_the_module() -> None:
    module = module_of()
    assert Rewriter(module).rewrite(lambda expr: None) is module


def test_all_that_takes_the_place_of_one_has_its_layers() -> None:
    """Also where what it is computed from was rewritten before; and nothing else, that has no layers, gets them."""
    unnamed = call("abs", X)
    body = call("add", call("nn.relu", unnamed), Y)
    module = IRModule.from_functions({"main": Function([X, Y], body)}, Spans({body: ["sum"]}))

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call) or expr.op_name == "abs":
            return None
        if expr.op_name == "nn.relu":
            return call("clip", *expr.args, a_min=0, a_max=3)
        return call("add", expr.args[0], call("nn.relu", expr.args[1]))

    changed = call("add", call("clip", unnamed, a_min=0, a_max=3), call("nn.relu", Y))
    made = Rewriter(module).rewrite(rule)
    assert made.main.body is changed
    assert dict(made.spans) == dict.fromkeys((changed, call("nn.relu", Y)), ("sum",))


def test_functions_may_come_behind_others() -> None:
    module = module_of()
    two = Function([X], call("abs", X))
    rewriter = Rewriter(module)
    rewriter.record_rewrite(BODY, two.body)
    made = rewriter.with_functions({"two": two, "main": module.main})
    assert [var.name for var in made.functions] == ["main", "one", "two"] and made["two"] is two
    assert made.spans[two.body] == module.spans[BODY] and made.signature is SIGNATURE
    only = rewriter.module_of({made.global_var("two"): two})
    assert dict(only.spans) == {two.body: module.spans[BODY]} and list(only.functions.values()) == [two]


def test_what_no_rule_is_for() -> None:
    module = module_of()
    with pytest.raises(ModelError, match="the module has no function 'two'"):
        Rewriter(module).rewrite(relu_once, "two")
    x = te.placeholder((2,), "int32", "x")
    loops = IRModule.from_functions({"loops": te.prim_func([x], [te.compute((2,), lambda i: x[i], "y")]).func})
    with pytest.raises(PluginError, match="'loops' is a PrimFunc, which no rule for expressions rewrites"):
        Rewriter(loops).rewrite(relu_once, "loops")


def test_a_rule_that_changes_a_type() -> None:
    with pytest.raises(PluginError, match=r"a rewrite makes 'one', which is of type .*, one of type"):
        Rewriter(module_of()).rewrite(
            lambda e: Tuple([e, e]) if e is call("nn.relu", call("nn.relu", X)) else None, "one"
        )


@settings(max_examples=20)
@given(cases())
def test_random_models(case: Case) -> None:
    """A rewrite that keeps the meaning gives a module that means the same, with every layer that there was."""

    def rule(expr: Expr) -> Expr | None:
        swap = isinstance(expr, Call) and expr.op_name in ("add", "multiply", "maximum")
        return call(expr.op_name, *reversed(expr.args)) if swap else None  # type: ignore[attr-defined]  # what is swapped is a call

    layers = Spans({expr: [f"layer{n}"] for n, expr in enumerate(post_order(case.module.main.body))})
    module = IRModule(case.module.functions, layers, case.module.signature)
    made = Rewriter(module).rewrite(rule)
    verify(made)
    inputs = inputs_of(module.main)
    for one, other in zip(evaluate(module, inputs), evaluate(made, inputs), strict=True):
        np.testing.assert_array_equal(one, other)
    assert {layer for _, names in made.spans for layer in names} == {layer for _, names in layers for layer in names}
    assert made.main.body is rewrite(module.main.body, rule)


def test_rebuilding_leaves_pins_to_the_rule() -> None:
    rewriter = Rewriter(module_of())
    p = Var("p", X.tensor)
    done = rewriter.rebuild([INNER], lambda old, new: new.pinned(None) if isinstance(new, Call) else None, {X: p})
    assert done == {X: p, INNER: call("nn.relu", p)}
    assert rewriter.spans[done[INNER]] == rewriter.module.spans[INNER]
    assert rewriter.rebuild([BODY])[BODY] is BODY
    assert rewriter.rebuild([BODY.args[0], BODY], done=done) is done
    assert done[BODY] is call("add", call("nn.relu", done[INNER]), Y)


@pytest.mark.parametrize(("where", "named"), [(None, "'conv', 'bias'"), ("row 3", "row 3")])
def test_an_error_of_a_rule_names_the_layers(where: str | None, named: str) -> None:
    body = call("nn.relu", X)
    module = IRModule.from_functions({"main": Function([X], body)}, Spans({body: ["conv", "bias"]}))

    def rule(old: Expr, made: Expr) -> Expr | None:
        if old is body:
            raise ModelError("no such number", where=where)
        return None

    with pytest.raises(ModelError, match="no such number") as caught:
        Rewriter(module).rebuild(post_order(body), rule)
    assert caught.value.where == named
