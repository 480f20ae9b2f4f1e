"""The host's own patterns over what is left in main, each other op by itself. What ops declare: `test_kernels`."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests._support.plugins import module_of
from tests._support.relay_strategies import assert_same, modules, random_array, values_of

from uma.errors import PluginError
from uma.lowering.fuse import fuse as fuse_for
from uma.lowering.fuse import is_view
from uma.partition import Owner
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Spans, func_type
from uma.relay.op import Op
from uma.relay.pattern import (
    Clause,
    Match,
    Outputs,
    Pattern,
    PatternTable,
    Term,
    any_,
    any_of,
    chain,
    op,
    outputs,
    tuple_item,
    wildcard,
)
from uma.relay.transform import canonicalise
from uma.relay.types import TensorType
from uma.relay.verify import verify
from uma.relay.visit import post_order
from uma.targets import Limits


def var(shape: tuple[int, ...], dtype: str = "float32", name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


X = var((1, 4, 4, 2))
W = const(random_array((1, 1, 2, 2), "float32", 1))
BIAS = const([1.0, 2.0])
CONV = call("nn.conv2d", X, W)
F = wildcard("float32")


def relu(x: Expr) -> Call:
    return call("nn.relu", x)


def tanh(x: Expr) -> Call:
    return call("tanh", x)


def table(**terms: Term | Outputs) -> PatternTable:
    return PatternTable([Pattern(name, term) for name, term in terms.items()])


def conv(x: Term) -> Term:
    return op("nn.conv2d")(x, wildcard("float32"), padding=any_)


def elementwise(x: Term) -> Term:
    add, multiply = (op(name)(x, wildcard(any_)) for name in ("add", "multiply"))
    return any_of(op("nn.relu")(x), op("tanh")(x), add, multiply)


ANYTHING = chain(wildcard(any_), elementwise, most=8)
SOME = table(some=ANYTHING)
CONV_BIAS_RELU = table(conv=op("nn.relu")(op("add")(conv(F), wildcard("float32"))))
NOTHING = PatternTable()


def fuse(module: IRModule, patterns: PatternTable) -> IRModule:
    return fuse_for(module, [Owner("host", patterns, Limits(calls=1))])


def kernels(patterns: PatternTable, *results: Expr) -> list[tuple[str | None, str]]:
    """Pattern and ops of every kernel, in the order in which they run; views in brackets."""
    module = fuse(module_of(results[0] if len(results) == 1 else Tuple(results)), patterns)
    verify(module)
    found: list[tuple[str | None, str]] = []
    for expr in post_order(module.main.body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            assert expr.op.attr("Primitive") == "1"
            ops = [e.op_name for e in post_order(expr.op.body) if isinstance(e, Call)]
            found.append((expr.op.attr("Composite"), " ".join(name.rpartition(".")[2] for name in ops if name)))
        elif isinstance(expr, Call):
            assert is_view(expr)
            found.append((None, f"[{expr.op_name}]"))
    return found


# --- what becomes a kernel -------------------------------------------------------------------------------------------


def test_what_a_pattern_takes_is_a_kernel_and_what_none_takes_is_one_each() -> None:
    body = tanh(relu(call("add", CONV, BIAS)))
    assert kernels(CONV_BIAS_RELU, body) == [("conv", "conv2d add relu"), (None, "tanh")]
    assert kernels(NOTHING, body) == [(None, name) for name in ("conv2d", "add", "relu", "tanh")]


def test_what_is_used_outside_of_a_kernel_does_not_stay_in_one() -> None:
    bias = call("add", CONV, BIAS)
    assert kernels(CONV_BIAS_RELU, relu(bias), bias) == [(None, "conv2d"), (None, "add"), (None, "relu")]
    assert kernels(CONV_BIAS_RELU, call("add", relu(bias), bias))[-1] == (None, "add")


def test_patterns_apply_in_their_order_from_the_results_backwards() -> None:
    body = tanh(relu(tanh(relu(X))))
    first, second = op("tanh")(op("nn.relu")(F)), op("nn.relu")(op("tanh")(F))
    assert kernels(table(a=first, b=second), body) == [("a", "relu tanh"), ("a", "relu tanh")]
    assert kernels(table(b=second, a=first), body) == [(None, "relu"), ("b", "tanh relu"), (None, "tanh")]
    pair = chain(F, lambda v: any_of(op("tanh")(v), op("nn.relu")(v)), least=3, most=3)
    assert kernels(table(a=pair), body) == [(None, "relu"), ("a", "tanh relu tanh")]


def test_where_a_predicate_does_not_hold_a_smaller_kernel_may() -> None:
    few = Clause("few", lambda m: len(m.nodes) <= 2, "two calls")
    patterns = PatternTable([Pattern("few", ANYTHING, [few])])
    assert kernels(patterns, tanh(relu(tanh(relu(tanh(X)))))) == [
        ("few", "tanh"),
        ("few", "relu tanh"),
        ("few", "relu tanh"),
    ]


def test_a_pattern_may_have_several_outputs() -> None:
    split = op("split")(F.named("in"), indices=any_, axis=any_)
    patterns = table(gates=outputs(op("sigmoid")(tuple_item(split, 0)), op("tanh")(tuple_item(split, 1))))
    halves = call("split", X, indices=(2,), axis=1)
    left, right = call("sigmoid", TupleGetItem(halves, 0)), tanh(TupleGetItem(halves, 1))
    assert kernels(patterns, call("multiply", left, right)) == [("gates", "split sigmoid tanh"), (None, "multiply")]


def test_outputs_that_are_tuples_are_taken_apart() -> None:
    split = op("split")(F.named("in"), indices=any_, axis=any_)
    both = call("split", X, indices=(1,), axis=1)
    parts = [TupleGetItem(both, 1), TupleGetItem(both, 0)]
    body = call("concatenate", *parts, axis=1)
    for patterns, name in ((NOTHING, None), (table(split=split), "split")):
        assert kernels(patterns, body) == [(name, "split"), (None, "concatenate")]
        assert kernels(patterns, both) == [(name, "split")]
    source = op("nn.relu")(F)
    two = table(two=outputs(op("split")(source, indices=any_, axis=any_), op("tanh")(source)))
    both = call("split", relu(X), indices=(1,), axis=1)
    parts = [TupleGetItem(both, 1), TupleGetItem(both, 0)]
    body = call("add", call("concatenate", *parts, axis=1), tanh(relu(X)))
    assert kernels(two, body) == [("two", "relu split tanh"), (None, "concatenate"), (None, "add")]


def test_two_matches_of_several_outputs_form_no_cycle() -> None:
    a, b = (var((4,), name=name) for name in "ab")
    source = wildcard("float32")
    pairs = table(pair=outputs(op("add")(source, wildcard("float32")), op("nn.relu")(source)))
    # Each pair would be computed from the other.
    made = kernels(pairs, call("add", a, relu(b)), call("add", b, relu(a)))
    assert sorted(made, key=str) == [("pair", "add relu"), (None, "add"), (None, "relu")]


def test_views_stay_where_they_are_unless_a_pattern_takes_them() -> None:
    flat = tanh(call("reshape", relu(X), newshape=(32,)))
    assert kernels(NOTHING, flat) == [(None, "relu"), (None, "[reshape]"), (None, "tanh")]
    assert kernels(NOTHING, call("squeeze", X, axis=(0,))) == [(None, "[squeeze]")]
    through = op("tanh")(op("reshape")(op("nn.relu")(F), newshape=any_))
    assert kernels(table(through=through), flat) == [("through", "relu reshape tanh")]


def test_regions_are_left_alone() -> None:
    region = Function([X], relu(X), {"Compiler": "npu", "global_symbol": "npu_0"})
    npu = GlobalVar("npu_0", func_type(region))
    main = Function([X], tanh(Call(npu, [relu(X)])))
    made = fuse(IRModule.from_functions({"main": main, "npu_0": region}), table(some=ANYTHING))
    verify(made)
    assert made.functions[npu] is region
    assert [e.op is npu for e in post_order(made.main.body) if isinstance(e, Call)] == [False, True, False]


def test_a_predicate_at_fault_stops_the_build() -> None:
    def broken(match: Match) -> bool:
        raise ValueError("no")

    with pytest.raises(PluginError, match="a predicate raised ValueError: no"):
        fuse(module_of(relu(X)), PatternTable([Pattern("p", op("nn.relu")(F), broken)]))


# --- what a kernel is given ------------------------------------------------------------------------------------------


def only_kernel(main: Function) -> tuple[Function, Call]:
    (made,) = {e for e in post_order(main.body) if isinstance(e, Call) and isinstance(e.op, Function)}
    assert isinstance(made.op, Function)
    return made.op, made


def test_large_constants_are_parameters_and_small_ones_stay() -> None:
    body = call("add", call("multiply", X, const([[2.0]])), BIAS)
    kernel, made = only_kernel(fuse(module_of(body), SOME).main)
    assert made.args == (X, BIAS)
    assert [p.name for p in kernel.params] == ["p0", "p1"]
    inside = [e for e in post_order(kernel.body) if isinstance(e, Constant)]
    assert inside == [const([[2.0]])]
    assert dict(kernel.attrs) == {"Composite": "some", "Primitive": "1"}
    assert dict(only_kernel(fuse(module_of(relu(X)), NOTHING).main)[0].attrs) == {"Primitive": "1"}


def test_a_value_is_given_once() -> None:
    kernel, made = only_kernel(fuse(module_of(call("add", call("add", X, X), X)), SOME).main)
    assert made.args == (X,)
    assert len(kernel.params) == 1


def test_kernels_that_differ_by_their_weights_only_are_one() -> None:
    other = const(random_array((1, 1, 2, 2), "float32", 2))
    body = relu(call("add", call("nn.conv2d", relu(call("add", CONV, BIAS)), other), BIAS))
    functions = {e.op for e in post_order(fuse(module_of(body), CONV_BIAS_RELU).main.body) if isinstance(e, Call)}
    assert len(functions) == 1


def test_what_is_fused_already_stays_as_it_is() -> None:
    module = fuse(module_of(relu(call("add", CONV, BIAS))), CONV_BIAS_RELU)
    assert fuse(module, CONV_BIAS_RELU) == module


def test_attributes_of_main_are_kept() -> None:
    main = Function([X], relu(X), {"global_symbol": "m"})
    assert fuse(IRModule.from_functions({"main": main}), NOTHING).main.attr("global_symbol") == "m"


# --- layers ----------------------------------------------------------------------------------------------------------


def test_a_kernel_has_the_layers_of_its_calls() -> None:
    bias = call("add", CONV, BIAS)
    body = relu(bias)
    view = call("reshape", body, newshape=(32,))
    spans = Spans({CONV: ("conv",), bias: ("conv", "bias"), body: ("relu",), view: ("flat",)})
    module = fuse(IRModule.from_functions({"main": Function([X], view)}, spans), CONV_BIAS_RELU)
    kernel, made = only_kernel(module.main)
    assert module.spans[made] == ("conv", "bias", "relu")
    assert module.spans[kernel.body] == ("relu",)
    assert module.spans[module.main.body] == ("flat",)
    assert body not in module.spans, "what is gone has no layers"


# --- every graph -----------------------------------------------------------------------------------------------------


@given(modules(), st.integers(0, 2**16))
def test_random_graphs_compute_the_same_in_kernels_that_form_no_cycle(module: IRModule, seed: int) -> None:
    inputs, expected, largest = values_of(module, seed)
    assume(math.isfinite(largest))
    for form in (module, canonicalise(module)):
        for host in (Owner("host", NOTHING), Owner("host", SOME), Owner("host", SOME, Limits(calls=1))):
            made = fuse_for(form, [host])
            verify(made)  # a cycle could not be built, and what is used from within a kernel would be a free variable
            assert_same(evaluate(made, inputs), expected, largest)
            for expr in post_order(made.main.body):
                assert not (isinstance(expr, Call) and isinstance(expr.op, Op)) or is_view(expr)
            assert fuse_for(made, [host]) == made
            names = {name for _, layers in form.spans for name in layers}
            assert names == {name for _, layers in made.spans for name in layers}
