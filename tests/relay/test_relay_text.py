"""The text form of modules: what is printed parses to the same module, and faults are shown where they are."""

from __future__ import annotations

import hashlib
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.plugins import fused
from tests._support.relay_strategies import SCALES, modules, random_array

from uma.errors import ModelError, TextError
from uma.lowering.lower import lower
from uma.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Signature, Spans, StateInfo, TensorInfo
from uma.relay.op import FixedPoint
from uma.relay.text import parse_module, print_module
from uma.relay.types import TensorType
from uma.tir import te
from uma.tir.form.dtype import DTYPES

T = TensorType((1, 8), "int8")
X = Var("x", T)


def round_trip(module: IRModule) -> str:
    """The text of `module`, which parses to `module`."""
    text, constants = print_module(module)
    assert parse_module(text, constants) == module
    return text


def of(body: Expr, *params: Var, spans: Spans | None = None) -> IRModule:
    return IRModule.from_functions({"main": Function(params or [X], body)}, spans)


# --- what the text looks like ----------------------------------------------------------------------------------------

EXAMPLE = """\
signature(inputs=[tensor('input:0', scale=0.5, zero_point=-3)], outputs=[tensor('scores')])

@function
def main(x: Tensor[(1, 8), int8]) -> Tensor[(1, 4), float32]:
    @function(Primitive='1')
    def f0(p0: Tensor[(1, 8), int8], p1: Tensor[(4, 8), int8]) -> Tensor[(1, 4), int8]:
        v0: ('dense',) = qnn.dense(p0, p1, input_zero_point=-3)
        v1 = add(v0, const([1, -2, 3, 4], int32))
        v2: ('dense', 'relu') = qnn.requantize(v1, scale=FixedPoint((1073741824,), (-5,), 'up'), dtype='int8')
        return v2
    v0: ('dense', 'relu') = f0(x, const('DIGEST', (4, 8), int8))
    v1: ('halves',) = split(v0, indices=(2,), axis=-1)
    v2 = v1[1]
    v3 = v1[0]
    v4 = concatenate(v2, v3, axis=1)
    v5 = cast(v4, dtype='float32')
    v6 = multiply(v5, const(0.5, float32))
    return v6
"""


def test_an_example() -> None:
    weight = const(random_array((4, 8), "int8", 0))
    text = EXAMPLE.replace("DIGEST", weight.digest)
    module = parse_module(text, {weight.digest: weight.data})
    assert print_module(module) == (text, {weight.digest: weight.data})
    assert module.signature == Signature((TensorInfo("input:0", 0.5, -3),), (TensorInfo("scores"),))
    layers = {layers: expr for expr, layers in module.spans if isinstance(expr, Call) and not expr.op_name}
    kernel = layers["dense", "relu"].op
    assert isinstance(kernel, Function)
    assert kernel.attr("Primitive") == "1"


def test_what_is_written_by_hand_may_be_nested() -> None:
    text = """
        @function
        def main(x: Tensor[(2,), float32]) -> Tuple[Tensor[(2,), float32], Tensor[(), int32]]:
            return nn.relu(add(x, op.tanh((x, x)[1]))), const(3, int32)
    """
    x = Var("x", TensorType((2,), "float32"))
    sum_ = call("add", x, call("tanh", TupleGetItem(Tuple([x, x]), 1)))
    expected = Function([x], Tuple([call("nn.relu", sum_), const(3)]))
    assert parse_module(textwrap.dedent(text)) == IRModule.from_functions({"main": expected})


def test_large_constants_stand_beside_the_text() -> None:
    small, large = const(np.arange(16, dtype=np.int8)), const(np.arange(17, dtype=np.int8))
    text, constants = print_module(of(Tuple([small, large])))
    assert "const([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], int8)" in text
    assert f"const('{large.digest}', (17,), int8)" in text
    assert constants.keys() == {large.digest}


# --- round trips -----------------------------------------------------------------------------------------------------


@given(modules(dtypes=("float32", "float64", "int8", "uint8")))
def test_random_modules_parse_back(module: IRModule) -> None:
    round_trip(module)


@settings(max_examples=settings.default.max_examples // 2)
@given(modules(dtypes=("float32", "int8"), max_steps=8))
def test_random_modules_with_kernels_parse_back(module: IRModule) -> None:
    made = fused(module)
    round_trip(made)
    round_trip(lower(made))


def _constant_arrays() -> dict[str, np.ndarray]:
    arrays = {f"{dtype}-{n}": random_array((n,), dtype, n) for dtype in DTYPES for n in (1, 16, 17)}
    arrays |= {f"{dtype}-scalar": random_array((), dtype, 7) for dtype in DTYPES}
    arrays |= {f"{dtype}-matrix": random_array((2, 3), dtype, 7) for dtype in DTYPES}
    for dtype in ("float32", "float64"):
        specials = np.array([0.0, -0.0, np.inf, -np.inf, np.finfo(dtype).max, np.finfo(dtype).tiny, 5e-324], dtype)
        arrays |= {f"{dtype}-specials": specials, f"{dtype}-nan": np.array([np.nan, 1], dtype)}
    arrays["float32-payload"] = np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    for dtype in ("int64", "uint64", "int8"):
        info = np.iinfo(dtype)
        arrays[f"{dtype}-limits"] = np.array([info.min, info.max], dtype)
    return arrays


CONSTANTS = _constant_arrays()


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_parse_back_bit_by_bit(name: str) -> None:
    text = round_trip(of(const(CONSTANTS[name])))
    beside = CONSTANTS[name].size > 16 or bool((CONSTANTS[name] != CONSTANTS[name]).any())
    assert ("const('" in text) == beside


def test_constants_of_equal_bytes_and_different_types_parse_back() -> None:
    zeros = [np.zeros(32, np.int32), np.zeros(32, np.float32), np.zeros((4, 8), np.int32), np.zeros(128, np.int8)]
    module = of(Tuple([const(array) for array in zeros]))
    _, constants = print_module(module)
    assert len(constants) == 1
    round_trip(module)


@given(SCALES)
def test_scales_parse_back(scale: Any) -> None:
    data = Var("x", TensorType((2, len(scale)), "int32"))
    round_trip(of(call("qnn.requantize", data, scale=scale, dtype="int8"), data))


@pytest.mark.parametrize(
    ("attrs", "shown"),
    [
        ({}, "clip(x)"),
        ({"a_min": 0.0}, "clip(x, a_min=0.0)"),
        ({"a_min": -0.0}, "clip(x, a_min=-0.0)"),
        ({"a_min": -1, "a_max": 0.1}, "clip(x, a_min=-1.0, a_max=0.1)"),
        ({"a_min": float("inf")}, "clip(x, a_min=inf)"),
        ({"a_max": float("-inf")}, "clip(x, a_max=-inf)"),
    ],
)
def test_attributes_parse_back(attrs: dict[str, float], shown: str) -> None:
    x = Var("x", TensorType((2,), "float32"))
    assert shown in round_trip(of(call("clip", x, **attrs), x))


def test_nan_as_an_attribute_parses_back() -> None:
    x = Var("x", TensorType((2,), "float32"))
    assert "pad_value=nan" in round_trip(of(call("nn.pad", x, pad_width=(1, 0), pad_value=float("nan")), x))


HOSTILE = ["", "'", '"', "\\", "a\nb", "\r\n", "\t", "\0", "'''", "#", "({[", "größe", "🙂", "\u2028", "\ud800", "%s{}"]


def test_hostile_names_parse_back() -> None:
    relu = call("nn.relu", X)
    infos = tuple(TensorInfo(name) for name in HOSTILE)
    body = Tuple([relu] * len(HOSTILE))
    main = Function([X], body, {"Composite": "'\n\"", "Compiler": "größe\\"})
    signature = Signature((TensorInfo("\n'x"),), infos)
    round_trip(IRModule.from_functions({"main": main}, Spans({relu: HOSTILE, body: ("'",)}), signature))


@given(st.lists(st.text(), min_size=1, max_size=3), st.text())
def test_names_of_any_text_parse_back(layers: list[str], name: str) -> None:
    relu = call("nn.relu", X)
    signature = Signature((TensorInfo(name),), (TensorInfo(layers[0], 2.0**-3, 5),))
    round_trip(IRModule.from_functions({"main": Function([X], relu)}, Spans({relu: layers}), signature))


def stateful(*initial: bytes, name: str = "s") -> IRModule:
    """A model that keeps as many int8 values, which go round."""
    params = [Var(f"s{i}", TensorType((len(data),), "int8")) for i, data in enumerate(initial)]
    states = tuple(StateInfo(f"{name}{i}", 1 + i, 1 + i, data) for i, data in enumerate(initial))
    relu = call("nn.relu", X)
    main = Function([X, *params], Tuple([relu, *(call("nn.relu", param) for param in params)]))
    return IRModule.from_functions({"main": main}, None, Signature((TensorInfo("x"),), (TensorInfo("y"),), states))


def test_states_are_a_part_of_the_signature() -> None:
    long = bytes(range(17))
    module = stateful(bytes(64), bytes([1, 0, 255]), long, name="'n\n")
    text, constants = print_module(module)
    digest = hashlib.sha256(long).hexdigest()
    assert {name: array.tobytes() for name, array in constants.items()} == {digest: long}
    assert text.startswith(
        "signature(inputs=[tensor('x')], outputs=[tensor('y')], states=["
        'state("\'n\\n0", input=1, output=1, initial=zeros(64)), '
        'state("\'n\\n1", input=2, output=2, initial=[1, 0, 255]), '
        f"state(\"'n\\n2\", input=3, output=3, initial='{digest}')])\n"
    )
    assert parse_module(text, constants) == module
    round_trip(module)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=3), st.text())
def test_states_of_any_name_and_value_parse_back(initial: list[bytes], name: str) -> None:
    round_trip(stateful(*initial, name=name))


def test_bytes_of_a_state_that_are_missing_or_others() -> None:
    text, constants = print_module(stateful(bytes(range(17))))
    with pytest.raises(TextError, match="the bytes of this state are missing"):
        parse_module(text, {})
    other = {digest: array + 1 for digest, array in constants.items()}
    with pytest.raises(TextError, match="the bytes of this state are not those of its digest"):
        parse_module(text, other)


def test_zeros_beyond_all_memory_are_refused() -> None:
    text, _ = print_module(stateful(bytes(1), bytes(1)))
    huge = text.replace("zeros(1)", f"zeros({2**31 - 1})")
    with pytest.raises(TextError, match=r"expected zeros\(bytes\), a list of bytes, or a digest"):
        parse_module(huge)


def test_a_function_shared_by_several_calls_is_printed_once() -> None:
    kernel = Function([X], call("nn.relu", X), {"Primitive": "1"})
    text = round_trip(of(Call(kernel, [Call(kernel, [Call(kernel, [X])])])))
    assert text.count("def ") == 2


def test_functions_nest_and_their_variables_are_their_own() -> None:
    inner = Function([X], call("nn.relu", X))
    middle = Function([X], Call(inner, [Call(inner, [X])]))
    round_trip(of(call("add", Call(middle, [X]), Call(inner, [X]))))


def test_names_of_the_text_avoid_names_of_the_module() -> None:
    params = [Var(name, T) for name in ("v0", "f0", "add", "op", "inf", "nan", "Tensor", "tensor", "function")]
    body: Expr = params[0]
    for param in params[1:]:
        body = call("add", body, param)
    kernel = Function(params[:1], call("nn.relu", params[0]), {"Primitive": "1"})
    round_trip(of(Call(kernel, [body]), *params))


def test_functions_that_are_called_as_ops_or_values_are() -> None:
    x, y = te.placeholder((1, 8), "int8", "x"), te.placeholder((1, 8), "int8", "y")
    prim = te.prim_func([x, y], [te.compute((1, 8), lambda i, j: x[i, j] - y[i, j], "z")]).func
    functions = IRModule.from_functions(dict.fromkeys(("add", "f0", "f1", "v0", "minimum"), prim)).functions
    body: Expr = X
    for var in functions:
        body = call("add", Call(var, [body, X]), X)
    kernel = Function([X], call("minimum", X, call("add", X, X)), {"Primitive": "1"})
    main = Function([X], Call(kernel, [body]))
    text = round_trip(IRModule({**IRModule.from_functions({"main": main}).functions, **functions}))
    assert "op.add(" in text
    assert "op.minimum(" in text
    assert "def f2(" in text


def test_a_module_without_functions() -> None:
    assert round_trip(IRModule({})) == "\n"
    assert parse_module("# nothing\n") == IRModule({})


def test_the_order_of_functions_does_not_matter() -> None:
    one = "@function\ndef main(x: Tensor[(1, 8), int8]) -> Tensor[(1, 8), int8]:\n    return g(x)\n"
    other = "@function\ndef g(x: Tensor[(1, 8), int8]) -> Tensor[(1, 8), int8]:\n    return nn.relu(x)\n"
    assert parse_module(one + other) == parse_module(other + one)


# --- faults ----------------------------------------------------------------------------------------------------------

HEAD = "@function\ndef main(x: Tensor[(2,), float32]) -> Tensor[(2,), float32]:\n"


def body(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


SIGNED = "signature(inputs=[tensor('a')], outputs=[tensor('b')])\n"
STATED = "signature(inputs=[tensor('a')], outputs=[tensor('b')], states=[{}])\n"
RELU = body("return nn.relu(x)")

BAD: dict[str, tuple[str, int, int, str]] = {
    "syntax": ("@function\ndef main(:\n", 2, 10, "invalid syntax"),
    "not a function": ("x = 1\n", 1, 1, "expected a function"),
    "two signatures": (SIGNED + SIGNED, 2, 1, "expected a function"),
    "defined twice": (RELU + RELU, 5, 1, "function 'main' is defined twice"),
    "no mark": (HEAD.removeprefix("@function\n") + "    return x\n", 1, 1, "a function is marked with @function"),
    "unknown mark": (
        "@kernel\n" + RELU.removeprefix("@function\n"),
        2,
        1,
        "a function is marked with @function, @prim",
    ),
    "two marks": ("@function\n" + RELU, 3, 1, "a function is marked with @function, @prim_func or @extern"),
    "async": ("@function\nasync def main(): pass\n", 2, 1, "expected a function"),
    "docstring": ("'''text'''\n", 1, 1, "expected signature(inputs=[...], outputs=[...])"),
    "signature without outputs": ("signature(inputs=[])\n", 1, 1, "expected signature(inputs=[...], outputs=[...])"),
    "signature of more": ("signature(1, inputs=[], outputs=[])\n", 1, 1, "expected signature(inputs=[...]"),
    "signature of no list": ("signature(inputs=3, outputs=[])\n", 1, 18, "expected [...]"),
    "tensor": ("signature(inputs=[3], outputs=[])\n", 1, 19, "expected tensor('name') or"),
    "tensor without name": ("signature(inputs=[tensor()], outputs=[])\n", 1, 19, "expected tensor('name') or"),
    "tensor with scale only": ("signature(inputs=[tensor('a', scale=0.5)], outputs=[])\n", 1, 19, "expected tensor("),
    "tensor with wrong types": (
        "signature(inputs=[tensor('a', scale=True, zero_point=0)], outputs=[])\n",
        1,
        19,
        "expected tensor(",
    ),
    "no state": (STATED.format("3"), 1, 64, "expected state('name', input=1, output=1, initial=zeros(64))"),
    "state without name": (STATED.format("state(input=1, output=1, initial=zeros(2))"), 1, 64, "expected state('name'"),
    "state without value": (STATED.format("state('s', input=1, output=1)"), 1, 64, "expected state('name'"),
    "state at a name": (STATED.format("state('s', input='a', output=1, initial=zeros(2))"), 1, 64, "expected state("),
    "state of a number": (STATED.format("state('s', input=1, output=1, initial=2)"), 1, 102, "expected zeros("),
    "state of words": (STATED.format("state('s', input=1, output=1, initial=[256])"), 1, 102, "expected zeros("),
    "state of zero": (STATED.format("state('s', input=1, output=1, initial=zeros(2, 3))"), 1, 102, "expected zeros("),
    "state that does not fit": (
        STATED.format("state('s', input=1, output=0, initial=zeros(2))") + RELU,
        1,
        1,
        "state 's' is parameter 1 of main, which has 1",
    ),
    "signature without main": (SIGNED, 1, 1, "there is a signature, and no main in the graph form"),
    "signature that does not fit": (
        "signature(inputs=[], outputs=[tensor('b')])\n" + RELU,
        1,
        1,
        "the signature names 0 inputs, main has 1",
    ),
    "signature of quantised floats": (
        "signature(inputs=[tensor('a', scale=0.5, zero_point=0)], outputs=[tensor('b')])\n" + RELU,
        1,
        1,
        "input 'a' is quantised, but is Tensor[(2,), float32]",
    ),
    "no type of result": (
        "@function\ndef main(x: Tensor[(2,), int8]):\n    return x\n",
        2,
        1,
        "the type of the result",
    ),
    "no type of parameter": (
        "@function\ndef main(x) -> Tensor[(2,), int8]:\n    return x\n",
        2,
        10,
        "parameter 'x' needs",
    ),
    "default": (
        "@function\ndef main(x: Tensor[(2,), int8] = 1) -> Tensor[(2,), int8]:\n    return x\n",
        2,
        1,
        "parameters are name: type",
    ),
    "star": ("@function\ndef main(*x) -> Tensor[(2,), int8]:\n    return x\n", 2, 1, "parameters are name: type"),
    "same parameter": (
        "@function\ndef main(x: Tensor[(2,), int8], x: Tensor[(2,), int8]) -> Tensor[(2,), int8]:\n    return x\n",
        2,
        1,
        "two parameters share a name: x, x",
    ),
    "parameter that is not a name": (
        "@function\ndef main(größe: Tensor[(2,), int8]) -> Tensor[(2,), int8]:\n    return größe\n",
        2,
        10,
        "'größe' is not a name for a variable",
    ),
    "function that is not a name": (
        RELU + "@function\ndef const(x: Tensor[(2,), int8]) -> Tensor[(2,), int8]:\n    return x\n",
        5,
        1,
        "'const' is not a name for a function",
    ),
    "type": (HEAD.replace("Tensor[(2,), float32])", "int)") + "    return x\n", 2, 13, "expected a type"),
    "type of three": (HEAD.replace("float32])", "float32, 3])") + "    return x\n", 2, 13, "expected a type"),
    "shape": (HEAD.replace("(2,), float32])", "2, float32])") + "    return x\n", 2, 20, "expected a shape, a tuple"),
    "shape of floats": (
        HEAD.replace("(2,), float32])", "(2.0,), float32])") + "    return x\n",
        2,
        20,
        "expected a shape",
    ),
    "empty shape": (
        HEAD.replace("(2,), float32])", "(0,), float32])") + "    return x\n",
        2,
        20,
        "shape (0,) has an extent",
    ),
    "huge shape": (
        HEAD.replace("(2,), float32])", f"(0x{'f' * 9000},), float32])") + "    return x\n",
        2,
        21,
        "this number is too large",
    ),
    "dtype": (HEAD.replace("float32])", "float12])") + "    return x\n", 2, 26, "expected a dtype"),
    "tuple of tuples": (
        HEAD.replace("Tensor[(2,), float32])", "Tuple[Tuple[Tensor[(2,), int8]]])") + "    return x\n",
        2,
        19,
        "expected a type",
    ),
    "empty tuple type": (
        HEAD.replace("Tensor[(2,), float32])", "Tuple[()])") + "    return x\n",
        2,
        13,
        "a tuple holds",
    ),
    "no return": (body("v0 = nn.relu(x)"), 3, 5, "a function ends with return"),
    "empty return": (body("return"), 3, 5, "a function ends with return"),
    "statement": (body("if x: pass", "return x"), 3, 5, "expected name = ..., a nested function, or return"),
    "two targets": (body("a = b = nn.relu(x)", "return a"), 3, 5, "expected name = ..."),
    "early return": (body("return x", "return x"), 3, 5, "expected name = ..."),
    "defined again": (body("x = nn.relu(x)", "return x"), 3, 5, "'x' is defined twice"),
    "unknown name": (body("return nn.relu(y)"), 3, 20, "'y' is not defined"),
    "used before": (body("a = nn.relu(b)", "b = nn.relu(x)", "return a"), 3, 17, "'b' is not defined"),
    "layers": (body("a: 'layer' = nn.relu(x)", "return a"), 3, 8, "expected the names of layers, a tuple of strings"),
    "layers of numbers": (body("a: (1,) = nn.relu(x)", "return a"), 3, 8, "expected the names of layers"),
    "no value": (body("a: ('l',)", "return x"), 3, 5, "expected name = ..."),
    "expression": (body("return x + x"), 3, 12, "expected a call, a name, a tuple or a field"),
    "starred": (body("return nn.relu(*x)"), 3, 20, "expected a call, a name, a tuple or a field"),
    "callee": (body("return (x)()()"), 3, 12, "expected the name of an op or a function"),
    "renamed op": (body("return cut(x, x)"), 3, 12, "the op 'cut' is called 'take_first' now"),
    "unknown op": (body("return nn.rellu(x)"), 3, 12, "unknown op 'nn.rellu'"),
    "unknown attribute": (body("return nn.relu(x, a=1)"), 3, 12, "nn.relu has no attribute 'a'"),
    "attributes in a dict": (body("return nn.relu(x, **{})"), 3, 25, "expected name=value"),
    "wrong attribute": (body("return clip(x, a_min='0')"), 3, 12, "attribute 'a_min' of clip is '0': not a number"),
    "attribute that is not a literal": (body("return clip(x, a_min=x)"), 3, 26, "expected a literal"),
    "attribute of sums": (body("return clip(x, a_min=1+1)"), 3, 26, "expected a literal"),
    "attribute of signs": (body("return clip(x, a_min=--1)"), 3, 26, "expected a literal"),
    "large attribute": (body(f"return clip(x, a_min=0x{'f' * 9000})"), 3, 26, "this number is too large"),
    "ill-typed": (body("return add(x, const(1, int32))"), 3, 12, "add(Tensor[(2,), float32], Tensor[(), int32])"),
    "no such field": (body("return (x, x)[2]"), 3, 12, "there is no field 2 in Tuple["),
    "field of a tensor": (body("return x[0]"), 3, 12, "there is no field 0 in Tensor["),
    "field that is not a number": (body("return (x, x)['a']"), 3, 19, "expected the index of a field"),
    "field of a field": (body("return (x, x)[0][0]"), 3, 12, "a field is not a tuple"),
    "empty tuple": (body("return ()"), 3, 12, "a tuple holds at least one tensor"),
    "tuple in a tuple": (body("return ((x,), x)"), 3, 12, "a value must be a tensor"),
    "result of another type": (body("return sum(x, axis=())"), 3, 5, "the result is Tensor[(), float32], declared is"),
    "arguments of a function": (
        "@function\n"
        + body("@function", "def g(x: Tensor[(2,), float32]) -> Tensor[(2,), float32]:", "    return x")[10:]
        + "    return g()\n",
        6,
        12,
        "a function of type (Tensor[(2,), float32]) -> Tensor[(2,), float32] is called with ()",
    ),
    "attributes of a function": (body("return main(x, a=1)"), 3, 12, "the call of a function takes no attributes"),
    "function as a value": (
        body(
            "@function",
            "def g(y: Tensor[(2,), float32]) -> Tensor[(2,), float32]:",
            "    return y",
            "return nn.relu(g)",
        ),
        6,
        12,
        "data of nn.relu must be a tensor, not (Tensor[",
    ),
    "function as the result": (
        body("@function", "def g(y: Tensor[(2,), float32]) -> Tensor[(2,), float32]:", "    return y", "return g"),
        6,
        5,
        "declared is another type",
    ),
    "nested function without mark": (
        body("def g(y: Tensor[(2,), float32]) -> Tensor[(2,), float32]:", "    return y", "return g(x)"),
        3,
        5,
        "a function is marked with @function, @prim_func or @extern",
    ),
    "nested loops": (
        body("@prim_func", "def g(y: Tensor[(2,), float32]) -> Tensor[(2,), float32]:", "    return y", "return g(x)"),
        4,
        5,
        "a nested function is marked with @function",
    ),
    "free variable": (
        body("@function", "def g(y: Tensor[(2,), float32]) -> Tensor[(2,), float32]:", "    return x", "return g(x)"),
        5,
        16,
        "'x' is not defined",
    ),
    "attribute of a function that is not a string": (
        "@function(Primitive=1)\n" + RELU[10:],
        1,
        2,
        "expected attributes",
    ),
    "attribute of a function without name": (
        "@function('1')\n" + RELU[10:],
        1,
        2,
        "expected attributes that are strings",
    ),
    "attribute of a function that is not a name": (
        "@function(größe='1')\n" + RELU[10:],
        2,
        1,
        "'größe' is not a name for",
    ),
    "circle": (body("return main(x)"), 2, 1, "functions call each other in a circle: main"),
    "constant of one argument": (body("return const(1)"), 3, 12, "expected a constant"),
    "constant with names": (body("return const(1, dtype=int8)"), 3, 12, "expected a constant"),
    "too few elements": (
        body("return const([1.0], (2,), float32)"),
        3,
        18,
        "expected 2 numbers for Tensor[(2,), float32]",
    ),
    "element": (body("return const([1.0, 'a'], float32)"), 3, 24, "expected a number that float32 holds"),
    "bool among floats": (body("return const([1.0, True], float32)"), 3, 24, "expected a number that float32 holds"),
    "number among bools": (body("return const([True, 1], bool)"), 3, 25, "expected a number that bool holds"),
    "float among integers": (body("return const([1, 1.0], int8)"), 3, 22, "expected a number that int8 holds"),
    "element out of range": (body("return const(128, int8)"), 3, 18, "expected a number that int8 holds"),
    "float out of range": (body("return const(1e39, float32)"), 3, 18, "expected a number that float32 holds"),
    "constant of a name": (body("return const(x, float32)"), 3, 18, "expected a literal"),
    "missing constant": (body("return const('0f', (2,), float32)"), 3, 18, "no constant '0f' came with the text"),
    "digest without shape": (body("return const('0f', float32)"), 3, 18, "no constant '0f' came with the text"),
    "constant of another size": (
        body("return const('bytes', (3,), float32)"),
        3,
        18,
        "'bytes' has 8 bytes, not Tensor[",
    ),
    "constant of other bytes": (body("return const('bytes', (2,), float32)"), 3, 18, "that came as 'bytes' is another"),
    "record": (
        body("return qnn.requantize(x, scale=FixedPoint((1,), (1,)), dtype='int8')"),
        3,
        36,
        "expected FixedPoint(multiplier, shift, rounding)",
    ),
    "wrong record": (
        body("return qnn.requantize(x, scale=FloatScale(('a',)), dtype='int8')"),
        3,
        36,
        "scales ('a',): not a number",
    ),
    "infinite record": (
        body("return qnn.requantize(x, scale=FixedPoint((inf,), (1,), 'up'), dtype='int8')"),
        3,
        36,
        "multipliers (inf,): cannot convert float infinity to integer",
    ),
    "loops": ("@prim_func\ndef f(x: In[int8, (4,)]):\n    x[0] = 1\n", 3, 5, "'x' is written"),
    "kernel without outputs": ("@prim_func\ndef f(x: In[int8, (4,)]):\n    pass\n", 2, 1, "a tuple holds at least one"),
    "kernel with a bad name": (
        "@prim_func\ndef const(y: Out[int8, (1,)]):\n    y[0] = 1\n",
        2,
        1,
        "'const' is not a name",
    ),
    "registers without whole vectors": (
        "@prim_func\ndef f(y: Out[float32, (4,)]):\n"
        "    r = alloc(float32, (6,), scope('register'))\n"
        "    for i in vectorized(4):\n        r[i] = 1.0\n"
        "    for j in vectorized(4):\n        y[j] = r[j]\n",
        5,
        9,
        "'r', of 6 elements in registers, has no whole vectors of 4 lanes there",
    ),
    "inputs of one name": (
        "signature(inputs=[tensor('a'), tensor('a')], outputs=[tensor('y')])\n\n@function\n"
        "def main(x: Tensor[(4,), int8], y: Tensor[(4,), int8]) -> Tensor[(4,), int8]:\n    return add(x, y)\n",
        1,
        1,
        "two inputs are called 'a'",
    ),
    "null": ("@function\n\0", 2, 1, "the text contains '\\x00'"),
}


@pytest.mark.parametrize("name", BAD)
def test_faults_are_shown_where_they_are(name: str) -> None:
    text, line, column, what = BAD[name]
    with pytest.raises(TextError) as caught:
        parse_module(text, {"bytes": np.zeros(8, np.uint8)}, "model.py")
    assert what in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"model.py:{line}:{column}: ")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before Python 3.12, this is not a syntax")
def test_type_parameters() -> None:
    with pytest.raises(TextError) as caught:
        parse_module(body("return x").replace("def main(", "def main[T]("))
    assert caught.value.what == "a function has no type parameters"
    assert (caught.value.line, caught.value.column) == (2, 1)


def test_a_fault_is_shown_with_a_caret_and_a_hint() -> None:
    with pytest.raises(TextError) as caught:
        parse_module(body("a: ('größe',) = nn.rellu(x)", "return a"), name="kws.py")
    assert str(caught.value) == textwrap.dedent(
        """\
        kws.py:3:21: unknown op 'nn.rellu'
              a: ('größe',) = nn.rellu(x)
                              ^
          hint: did you mean 'nn.relu'?"""
    )


def test_a_text_as_deep_as_python_parses_it_is_refused_or_read() -> None:
    for depth in (50, 150, 250, 5_000, 100_000):
        for text in [
            body(f"return {'nn.relu(' * depth}x{')' * depth}"),
            body(f"return {'-' * depth}1"),
            body(f"return x{'[0]' * depth}"),
            body(f"return x{'.a' * depth}()"),
            body(f"return clip(x, a_min={'-' * depth}1)"),
            body(f"return const({'(' * depth}1{',)' * depth}, int8)"),
            body(f"return const({'[' * depth}1{']' * depth}, int8)"),
            HEAD.replace("Tensor[(2,), float32])", "Tuple[" * depth + "int" + "]" * depth + ")") + "    return x\n",
        ]:
            try:
                parse_module(text)
            except TextError as error:
                assert error.line in (2, 3)


def test_a_chain_of_tuples_is_refused() -> None:
    lines = [f"v{i} = (v{i - 1},)" for i in range(1, 3000)]
    with pytest.raises(TextError, match="a value must be a tensor"):
        parse_module(body("v0 = (x,)", *lines, "return x"))


def test_a_chain_of_functions_that_call_each_other_is_read() -> None:
    one = "@function\ndef g{}(x: Tensor[(2,), float32]) -> Tensor[(2,), float32]:\n    return {}\n"
    chain = "".join(one.format(i, f"g{i + 1}(x)") for i in range(1500))
    assert len(parse_module(chain + one.format(1500, "x")).functions) == 1501
    with pytest.raises(TextError, match="in a circle: g0, g1, "):
        parse_module(chain + one.format(1500, "g0(x)"))


# --- hostile texts ---------------------------------------------------------------------------------------------------


def _good_text() -> tuple[str, dict[str, np.ndarray]]:
    weight = const(random_array((4, 8), "int8", 0))
    x, w = te.placeholder((1, 4), "float32", "x"), te.placeholder((4,), "float32", "w")
    prim = te.prim_func([x], [te.compute((1, 4), lambda i, j: x[i, j] * w[j], "y")], constants=[w]).func
    module = parse_module(EXAMPLE.replace("DIGEST", weight.digest), {weight.digest: weight.data})
    text, constants = print_module(module)
    return text + "\n" + print_module(IRModule.from_functions({"scale": prim}))[0], constants


TEXT, WEIGHTS = _good_text()
PIECES = [
    *(
        "(",
        ")",
        "[",
        "]",
        ",",
        ":",
        "=",
        "'",
        "\n",
        "    ",
        "@",
        "-",
        "0",
        "1e999",
        "inf",
        "nan",
        "None",
        "True",
        "*",
        "**",
    ),
    *(
        "x",
        "v0",
        "f0",
        "main",
        "const",
        "int8",
        "float32",
        "Tensor",
        "Tuple",
        "return",
        "def f(",
        "(0,)",
        "99999999999",
    ),
    *("0x" + "f" * 5000, "1" * 5000, "\0", "\ud800", "é", "lambda: 0", "x for x in x", "f''", "b''", "...", "1j"),
    *(
        "FixedPoint((1,), (0,), 'up')",
        "FloatScale((0.5,))",
        "@function\n",
        "@prim_func\n",
        "nn.relu(",
        "# ",
        "\\",
        "\t",
    ),
]


@settings(max_examples=settings.default.max_examples * 6)
@given(st.data())
def test_a_mutated_text_is_read_or_refused(data: st.DataObject) -> None:
    text = TEXT
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        kind = data.draw(st.sampled_from(("replace", "delete", "repeat", "move")))
        piece = {"replace": data.draw(st.sampled_from(PIECES)), "repeat": text[start:end] * 2}.get(kind, "")
        rest = text[:start] + piece + text[end:]
        if kind == "move":
            to = data.draw(st.integers(0, len(rest)))
            rest = rest[:to] + text[start:end] + rest[to:]
        text = rest
    try:
        module = parse_module(text, WEIGHTS)
    except ModelError as error:
        assert isinstance(error, TextError), str(error)
        assert 1 <= error.line <= text.count("\n") + text.count("\r") + 1
        assert error.column >= 1
        str(error)
    else:
        assert parse_module(*print_module(module)) == module


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_module(text)
    except TextError as error:
        str(error)


def test_a_constant_is_what_its_digest_says() -> None:
    wanted = const(np.arange(20, dtype=np.int32))
    text, constants = print_module(of(wanted))
    parsed = parse_module(text, {wanted.digest: constants[wanted.digest].view(np.uint8)}).main.body
    assert parsed is wanted, "however the bytes came"
    assert isinstance(parsed, Constant)
    with pytest.raises(TextError, match="is another"):
        parse_module(text, {wanted.digest: constants[wanted.digest] + 1})


def test_fixed_points_are_shown_as_they_are_built() -> None:
    scale = FixedPoint((2**30, 3), (0, -5), "even")
    data = Var("x", TensorType((2,), "int32"))
    text = round_trip(of(call("qnn.requantize", data, scale=scale, dtype="int8"), data))
    assert "scale=FixedPoint((1073741824, 3), (0, -5), 'even')" in text
