"""Hosts requantise in floats where that is proven: what becomes of calls, and of clips and biases beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.relay_strategies import random_array

from uma.errors import ModelError
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Constant, Expr, Function, Tuple, Var, call, const
from uma.relay.float_requantisation import FloatForm, SumForm
from uma.relay.module import IRModule, Spans
from uma.relay.op import FixedPoint, FloatScale
from uma.relay.text import parse_module, print_module
from uma.relay.transform.float_requantisation import FormCheck, check_forms, requantise_in_floats
from uma.relay.types import TensorType
from uma.relay.verify import verify
from uma.relay.visit import free_vars, post_order, rewrite

ALL = frozenset({"float32", "float64", "fma"})
X = Var("x", TensorType((1, 5, 4, 6), "int8"))
WIDE = Var("wide", TensorType((1, 5, 4, 3), "int32"))
A, B = (Var(name, TensorType((2, 256), "int8")) for name in "ab")
MULTIPLIERS = (1518500249, 1893287561, 1120458719)
PER_CHANNEL = FixedPoint(MULTIPLIERS, (-8, -7, -9), "double")
ONE = FixedPoint((1518500249,), (-8,), "double")


def weights(*shape: int) -> Constant:
    return const(random_array(shape, "int8", 3))


def sums(bias: bool = True) -> Call:
    made = call("qnn.conv2d", X, weights(3, 3, 6, 3), padding=(1, 1, 1, 1), input_zero_point=-128)
    return call("add", made, const(np.array([900, -1400, 77], np.int32))) if bias else made


def requantised(data: Expr, scale: Any = PER_CHANNEL, zero_point: int = -11, dtype: str = "int8", **attrs: Any) -> Call:
    return call("qnn.requantize", data, scale=scale, output_zero_point=zero_point, dtype=dtype, **attrs)


def of(*results: Expr) -> IRModule:
    body = results[0] if len(results) == 1 else Tuple(results)
    calls = [e for e in post_order(body) if isinstance(e, Call)]
    return IRModule.from_functions(
        {"main": Function(free_vars(body), body)}, Spans({e: [e.op_name or ""] for e in calls})
    )


def in_floats(*results: Expr, features: frozenset[str] = ALL) -> IRModule:
    """What ``results`` become, which computes the same, prints, and becomes nothing else again."""
    module = of(*results)
    made = requantise_in_floats(module, lambda call: features)
    verify(made)
    assert requantise_in_floats(made, lambda call: features).main is made.main
    text = print_module(made)
    assert print_module(parse_module(*text)) == text
    for seed in range(2):
        inputs = {p.name: random_array(p.shape, p.dtype, seed) for p in module.main.params}
        for got, wanted in zip(evaluate(made, inputs), evaluate(module, inputs), strict=True):
            np.testing.assert_array_equal(got, wanted)
    assert not any(found.wrong for found in check_forms(made))
    return made


def ops(module: IRModule) -> list[Call]:
    return [e for e in post_order(module.main.body) if isinstance(e, Call)]


def form_of(module: IRModule) -> FloatForm:
    form = ops(module)[-1].attrs.form
    assert isinstance(form, FloatForm)
    return form


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale", [PER_CHANNEL, ONE, FloatScale((0.0171234, 0.0234567, 0.0093127))])
def test_a_layer(scale: Any, bias: bool) -> None:
    form = form_of(in_floats(requantised(sums(bias), scale)))
    assert (form.dtype, form.low, form.high, len(form)) == ("float32", -128, 127, len(scale))


@pytest.mark.parametrize(
    "product",
    [
        call("qnn.dense", Var("x", TensorType((3, 20), "int8")), weights(3, 20), input_zero_point=4),
        call("qnn.matmul", Var("x", TensorType((3, 20), "int16")), weights(20, 3), kernel_zero_point=9),
        call("qnn.matmul", Var("x", TensorType((2, 3, 20), "int8")), weights(2, 20, 3), input_zero_point=4),
        call("qnn.conv1d", Var("x", TensorType((1, 9, 6), "int8")), weights(4, 2, 3), groups=3),
    ],
    ids=lambda made: f"{made.op_name}, {made.args[1].shape}",
)
def test_products_have_the_ranges_of_their_weights(product: Call) -> None:
    found = form_of(in_floats(requantised(product)))
    assert len(found) == 3


def test_a_clip_of_nothing_else_is_part_of_the_form() -> None:
    for clip in (call("clip", requantised(sums()), a_min=-11, a_max=90), call("nn.relu", requantised(sums(), ONE, 4))):
        made = in_floats(clip)
        assert [c.op_name for c in ops(made)] == ["qnn.conv2d", "add", "qnn.requantize"]
        form = form_of(made)
        assert (form.low, form.high) == ((-11, 90) if clip.op_name == "clip" else (0, 127))
        assert not form.offset_below or form.low > -11, "what a second offset is for is clipped away"
        assert made.spans[made.main.body] == ("qnn.requantize", clip.op_name)


def test_a_clip_of_what_others_use_too_stays() -> None:
    whole = requantised(sums())
    made = in_floats(call("clip", whole, a_min=-11), whole)
    assert [c.op_name for c in ops(made)] == ["qnn.conv2d", "add", "qnn.requantize", "clip"]


def test_without_features_nothing_becomes_floats() -> None:
    for features in (frozenset(), frozenset({"fma"})):
        module = of(requantised(sums(), narrow=True), call("qnn.add", A, B, **ADDED))
        assert requantise_in_floats(module, lambda call, given=features: given) is module  # type: ignore[misc]  # mypy infers no lambda with a default


def test_features_say_in_what_is_computed() -> None:
    assert not form_of(in_floats(requantised(sums()), features=frozenset({"float32"}))).fused
    assert form_of(in_floats(requantised(sums()), features=frozenset({"float64"}))).dtype == "float64"
    made = in_floats(call("qnn.add", A, B, **ADDED), features=frozenset({"float64"}))
    assert ops(made)[0].attrs.form is None, "sums are in float32 only"


def test_each_call_is_asked_for() -> None:
    here, there = requantised(sums()).pinned("here"), requantised(sums(), ONE).pinned("there")
    made = requantise_in_floats(of(here, there), lambda call: ALL if call.pin == "here" else frozenset())
    assert {c.pin: c.attrs.form is not None for c in ops(made) if c.op_name == "qnn.requantize"} == {
        "here": True,
        "there": False,
    }
    clip = call("clip", here, a_min=-11).pinned("there")
    assert ops(requantise_in_floats(of(clip), lambda call: ALL))[-1] is not clip
    assert ops(requantise_in_floats(of(clip), lambda call: ALL))[-1].op_name == "clip", "another host's clip stays"


def test_any_int32_has_no_float32_but_a_float64() -> None:
    form = form_of(in_floats(requantised(WIDE, FixedPoint((MULTIPLIERS[0],), (-12,), "up"))))
    assert form.dtype == "float64"
    assert ops(in_floats(requantised(WIDE, dtype="int16")))[-1].attrs.form is None, "it steps too often"


def test_a_bias_takes_a_shift() -> None:
    rng = np.random.default_rng(5)
    dense = call(
        "qnn.dense", Var("x", TensorType((1, 640), "int8")), const(rng.integers(-127, 128, (64, 640)).astype(np.int8))
    )
    scale = FixedPoint(tuple(int(m) for m in rng.integers(2**30, 2**31, 64)), (-9,) * 64, "double")
    biased = call("add", dense, const(rng.integers(-9000, 9000, 64).astype(np.int32)))
    made = in_floats(call("clip", requantised(biased, scale, -128), a_min=-128))
    _, add, last = ops(made)
    form = last.attrs.form
    assert form.dtype == "float32"
    assert any(form.shift)
    assert isinstance(add.args[1], Constant)
    assert (add.args[1].data - biased.args[1].data == form.shift).all()  # type: ignore[attr-defined]  # a constant, as that of `add`
    assert made.spans[add] == ("add",)
    shared = in_floats(requantised(biased, scale, -128), biased)
    assert not any(next(c for c in ops(shared) if c.op_name == "qnn.requantize").attrs.form.shift)


ADDED: dict[str, Any] = {
    "left_shift": 20,
    "lhs_scale": FixedPoint((1073741824,), (0,), "double"),
    "rhs_scale": FixedPoint((1895372161,), (-1,), "double"),
    "output_scale": FixedPoint((1340512811,), (-18,), "double"),
    "lhs_zero_point": -4,
    "rhs_zero_point": 17,
    "output_zero_point": 9,
}


@pytest.mark.parametrize("name", ["qnn.add", "qnn.subtract"])
@pytest.mark.parametrize("fused", [True, False])
def test_sums(name: str, fused: bool) -> None:
    made = in_floats(call(name, A, B, **ADDED), features=ALL if fused else ALL - {"fma"})
    form = ops(made)[0].attrs.form
    assert isinstance(form, SumForm)
    assert (form.low, form.high) == (-128, 127)
    clipped = in_floats(call("clip", call(name, A, B, **ADDED), a_min=9.0))
    assert [c.op_name for c in ops(clipped)] == [name]


def with_form(module: IRModule, **change: Any) -> IRModule:
    """``module`` with other numbers in the form of its last call."""

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call) or expr.op_name not in ("qnn.requantize", "qnn.add"):
            return None
        form = expr.attrs.form
        made = type(form)(**{**{name: getattr(form, name) for name in form.__dataclass_fields__}, **change})
        return Call(expr.op, expr.args, expr.attrs.replace(form=made))

    return of(rewrite(module.main.body, rule))


def test_a_proof_is_made_anew() -> None:
    made = in_floats(requantised(sums()))
    assert list(check_forms(made)) == [FormCheck(("qnn.requantize",), 3, "float32")]
    numbers = form_of(made).offset
    wrong = with_form(made, offset=(numbers[0], numbers[1] + 0.01, numbers[2]))
    assert [found.wrong for found in check_forms(wrong)] == [1]
    assert [found.wrong for found in check_forms(with_form(made, shift=(1,)))] == [3]
    added = in_floats(call("qnn.add", A, B, **ADDED))
    assert list(check_forms(added)) == [FormCheck(("qnn.add",), 1, "float32")]
    assert [found.wrong for found in check_forms(with_form(added, offset=3.0))] == [1]
    plain = of(requantised(sums()), requantised(sums(), FloatScale((0.5,))), call("qnn.add", A, B, **ADDED))
    assert sorted((found.form, found.channels) for found in check_forms(plain)) == [
        ("float32", 1),
        ("integer", 1),
        ("integer", 3),
    ]


def test_kernels_are_looked_into() -> None:
    """What a kernel's parameters are is known where it is called."""
    made = in_floats(requantised(sums()))
    last = ops(made)[-1]
    add = last.args[0]
    assert isinstance(add, Call)
    params = [Var("p0", add.args[0].tensor), Var("p1", add.args[1].tensor)]
    inner = call("qnn.requantize", call("add", *params), **dict(last.attrs.items))
    kernel = Call(Function(params, inner, {"Primitive": "1"}), add.args)
    assert [(found.channels, found.wrong) for found in check_forms(of(kernel))] == [(3, 0)]


@pytest.mark.parametrize(
    ("name", "args", "form", "message"),
    [
        (
            "qnn.requantize",
            [WIDE],
            FloatForm("float32", (1.0,), (0.0,), (), 0, 200, True),
            r"0 \.\. 200, which are not int8",
        ),
        ("qnn.requantize", [WIDE], FloatForm("float32", (1.0,) * 2, (0.0,) * 2, (), 0, 1, True), "2 scales for the 3"),
        ("qnn.requantize", [WIDE], FloatScale((1.0,)), "not a FloatForm, nor None"),
        ("qnn.add", [A, B], SumForm(1.0, 1.0, 0.0, -129, 1, True), r"-129 \.\. 1, which are not int8"),
        ("qnn.add", [A, B], FloatForm("float32", (1.0,), (0.0,), (), 0, 1, True), "not a SumForm, nor None"),
    ],
)
def test_forms_that_do_not_fit_are_refused(name: str, args: list[Expr], form: Any, message: str) -> None:
    attrs = ADDED if name == "qnn.add" else {"scale": ONE, "dtype": "int8"}
    with pytest.raises(ModelError, match=message):
        call(name, *args, **attrs, form=form)


def test_results_of_32_bits_stay_integers_however_few_there_are() -> None:
    """Their limits are not float32."""
    few = call("cast", A, dtype="int32")
    made = in_floats(requantised(few, FixedPoint((1 << 30,), (-6,), "double"), 0, "int32"))
    assert ops(made)[-1].attrs.form is None
