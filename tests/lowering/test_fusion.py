"""What strategies are given: the kernel, its anchor, what stands around it, its tensor expressions and its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.plugins import entry_of, members_of, module_of, toy
from tests._support.relay_strategies import random_array
from tests._support.residual_nets import residual_block
from tests._support.small_models import NET

from uma.errors import ModelError
from uma.hookspecs import ChannelBounds, Fusion, LoweredKernel, Pattern, Strategy
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.pipeline.stages import Build
from uma.plugins import PluginHost
from uma.relay import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    TensorType,
    Var,
    call,
    const,
    free_vars,
    post_order,
    substitute,
    tensor_function,
)
from uma.relay.evaluate import evaluate
from uma.relay.pattern import any_, constant, op, wildcard
from uma.relay.types import FuncType
from uma.targets import Target, TargetKind
from uma.tir.form.interp import interpret

I8 = "int8"
X = Var("x", TensorType((1, 4, 4, 2), "float32"))
Y = Var("y", TensorType((1, 4, 4, 3), "float32"))
WEIGHT = const(random_array((1, 1, 2, 3), "float32", 1))
BIAS = const([1.0, -2.0, 3.0])


def function(body: Expr) -> Function:
    return Function(free_vars(body), body)


def names(calls: Sequence[Call]) -> list[str | None]:
    return [one.op_name for one in calls]


# --- anchor, prologue, epilogue --------------------------------------------------------------------------------------


def test_what_stands_around_an_anchor() -> None:
    pool = call("nn.max_pool2d", call("nn.relu", call("tanh", Y)), pool_size=(2, 2))
    residual = call("sigmoid", Var("r", pool.tensor))
    fusion = Fusion(function(call("nn.relu", call("add", pool, residual))))
    assert fusion.anchor is pool and fusion.operands == pool.args
    assert names(fusion.prologue) == ["tanh", "nn.relu"]
    assert names(fusion.epilogue) == ["sigmoid", "add", "nn.relu"]
    assert len(fusion.calls) == 6


def test_what_has_no_anchor() -> None:
    fusion = Fusion(function(call("nn.relu", call("tanh", X))))
    assert (fusion.anchor, fusion.operands, fusion.prologue) == (None, (), ())
    assert names(fusion.epilogue) == ["tanh", "nn.relu"]
    two = Fusion(function(call("nn.max_pool2d", call("nn.conv2d", X, WEIGHT), pool_size=(2, 2))))
    assert two.anchor is None
    assert Fusion(Function([X], X)).anchor is None


def test_one_call_is_its_own_anchor_and_a_reshape_is_none() -> None:
    assert names([Fusion(function(call("tanh", X))).anchor or pytest.fail()]) == ["tanh"]
    dense = call("nn.dense", call("reshape", X, newshape=(1, 32)), const(random_array((4, 32), "float32", 1)))
    fusion = Fusion(function(dense))
    assert fusion.anchor is dense and names(fusion.prologue) == ["reshape"]


# --- tensor expressions ----------------------------------------------------------------------------------------------


def computed(made: Function, *arrays: np.ndarray) -> list[np.ndarray]:
    """What the core's loops for a function give."""
    kernel = tensor_function(made).kernel()
    given = zip(kernel.func.buffers("input"), arrays, strict=True)
    held = zip(kernel.func.buffers("constant"), kernel.bind(), strict=True)
    return list(interpret(kernel.func, {buffer.name: array for buffer, array in (*given, *held)}).values())


def test_functions_are_written_into_what_calls_them() -> None:
    inner = Function([X], call("nn.relu", X), {"Composite": "npu.relu"})
    body = call("add", Call(inner, [call("tanh", X)]), const(2.0))
    x = random_array((1, 4, 4, 2), "float32", 3)
    [got] = computed(function(body), x)
    [expected] = evaluate(IRModule.from_functions({"main": function(body)}), {"x": x})
    np.testing.assert_allclose(got, expected, 1e-6)


def test_each_expression_has_its_tensors() -> None:
    split = call("split", X, indices=(1,), axis=1)
    made = tensor_function(function(split))
    assert made.by_expr[split] == made.results and [t.shape for t in made.results] == [(1, 1, 4, 2), (1, 3, 4, 2)]
    assert made.by_expr[X] == made.params
    same = tensor_function(Function([X], X))
    assert same.results[0] not in same.params, "a result has memory of its own"


def test_functions_of_a_module_have_none() -> None:
    there = GlobalVar("there", FuncType((X.tensor,), X.tensor))
    with pytest.raises(ModelError, match="a kernel consists of calls of ops"):
        tensor_function(function(Call(there, [X])))


# --- bounds ----------------------------------------------------------------------------------------------------------


def bounds(body: Expr, *known: Constant) -> list[ChannelBounds]:
    """Of the constants ``known`` of a kernel to which they are parameters."""
    params = [Var(f"w{i}", constant.tensor) for i, constant in enumerate(known)]
    to_params: dict[Expr, Expr] = dict(zip(known, params, strict=True))
    made = function(substitute(body, to_params))
    fusion = Fusion(made, dict(zip(params, known, strict=True)))
    assert set(fusion.bounds) >= set(params)
    return [fusion.bounds[param] for param in params]


def test_the_weights_of_a_convolution_by_output_channels() -> None:
    array = np.array([[[[1, -2, 0], [3, 4, -128]]]], np.int8)
    weight = const(array)
    x = Var("x", TensorType((1, 4, 4, 2), I8))
    expected = ChannelBounds((1, -2, -128), (3, 4, 0), (4, 6, 128))
    assert bounds(call("qnn.conv2d", x, weight, input_zero_point=5), weight) == [expected]
    assert all(type(number) is int for number in (*expected.least, *expected.magnitude))


def test_the_weights_of_other_products() -> None:
    array = np.array([[1, -2, 3], [4, 5, -6]], np.int8)
    weight, x = const(array), Var("x", TensorType((4, 3), I8))
    assert bounds(call("qnn.dense", x, weight), weight) == [ChannelBounds((-2, -6), (3, 5), (6, 15))]
    y = Var("y", TensorType((4, 2), I8))
    assert bounds(call("qnn.matmul", y, weight), weight) == [ChannelBounds((1, -2, -6), (4, 5, 3), (5, 7, 9))]
    batches = const(np.stack([array, 2 * array, -array]))
    z = Var("z", TensorType((3, 4, 2), I8))
    assert bounds(call("qnn.matmul", z, batches), batches) == [ChannelBounds((-4, -5, -12), (8, 10, 6), (10, 14, 18))]
    taps = const(np.arange(-4, 5, dtype=np.int8).reshape(3, 3, 1, 1).repeat(2, 3))
    image = Var("i", TensorType((1, 5, 5, 2), I8))
    depthwise = call("qnn.conv2d", image, taps, groups=2, padding=(1, 1, 1, 1))
    assert bounds(depthwise, taps) == [ChannelBounds((-4, -4), (4, 4), (20, 20))]


def test_what_is_not_folded() -> None:
    residual = const(np.arange(-24, 24, dtype=np.float32).reshape(1, 4, 4, 3))
    both = bounds(call("add", call("add", call("nn.conv2d", X, WEIGHT), BIAS), residual), BIAS, residual)
    assert both[0] == ChannelBounds((1, -2, 3), (1, -2, 3), (1, 2, 3))
    assert both[1] == ChannelBounds((-24, -23, -22), (21, 22, 23), (24, 23, 23))
    column = const(np.array([[[[1.0]], [[2.0]], [[3.0]], [[-4.0]]]], np.float32))
    assert bounds(call("multiply", X, column), column) == [ChannelBounds((-4,), (3,), (4,))]


def test_constants_within_a_function_count_too() -> None:
    fusion = Fusion(function(call("add", call("nn.conv2d", X, WEIGHT), BIAS)))
    assert set(fusion.bounds) == {WEIGHT, BIAS}
    assert Fusion(function(call("add", X, const(2.0)))).bounds == {}


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3), st.integers(0, 2**16))
def test_sums_lie_within_their_bounds(inputs: int, units: int, zero: int, seed: int) -> None:
    weight = const(random_array((units, inputs), I8, seed))
    x = Var("x", TensorType((3, inputs), I8))
    body = call("qnn.dense", x, weight, input_zero_point=zero)
    [found] = bounds(body, weight)
    data = random_array((3, inputs), I8, seed + 1)
    [sums] = evaluate(IRModule.from_functions({"main": function(body)}), {"x": data})
    assert (np.abs(sums) <= np.array(found.magnitude) * np.abs(data.astype(int) - zero).max()).all()


# --- who is asked ----------------------------------------------------------------------------------------------------


def asked_of(model: Any, *anchors: str) -> tuple[list[Fusion], IRModule]:
    """The kernels that the strategies of a host for ``anchors`` are asked for; and what is left to the host."""
    seen: list[Fusion] = []

    def ask(fusion: Fusion, target: Target) -> None:
        assert target is Target.current()
        seen.append(fusion)

    host = TargetKind("asking", help="a host", is_host=True)
    entries = entry_of(host, strategies=lambda: [Strategy(name, ask) for name in anchors])
    members = resolve_targets("asking", PluginHost(lambda: entries))
    loaded = load_model(model, members)
    build = start_build(loaded, members)
    build.run(loaded.form, "lower")
    assert build.fused is not None
    return seen, build.fused


def convolutions(module: IRModule) -> list[str]:
    functions = [e.op for e in post_order(module.main.body) if isinstance(e, Call) and isinstance(e.op, Function)]
    calls = [e for made in functions for e in post_order(made.body) if isinstance(e, Call)]
    return [name for e in calls if (name := e.op_name) in ("nn.conv2d", "qnn.conv2d")]


def check_asked(model: Any, name: str, count: int) -> list[Fusion]:
    seen, left = asked_of(model, "nn.conv2d", "qnn.conv2d")
    assert names([fusion.anchor for fusion in seen if fusion.anchor]) == convolutions(left) == [name] * count
    for fusion in seen:
        [weight] = (fusion.bounds[operand] for operand in fusion.operands if operand in fusion.bounds)
        assert fusion.anchor is not None and len(weight.least) == fusion.anchor.shape[-1]
    return seen


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("mlperf-tiny/pretrainedResnet.tflite", "nn.conv2d"),
        ("mlperf-tiny/pretrainedResnet_quant.tflite", "qnn.conv2d"),
        ("mlperf-tiny-onnx/resnet8_fp32.onnx", "nn.conv2d"),
        ("mlperf-tiny-onnx/resnet8_int8.onnx", "qnn.conv2d"),
    ],
)
def test_every_convolution_of_resnet8(file: str, name: str, models: Path) -> None:
    seen = check_asked(models / file, name, 9)
    assert all(fusion.epilogue for fusion in seen), "all are fused"


def test_every_convolution_of_a_residual_network(tmp_path: Path) -> None:
    (tmp_path / "residual.onnx").write_bytes(residual_block(depthwise=True))
    seen = check_asked(tmp_path / "residual.onnx", "qnn.conv2d", 4)
    assert any("add" in names(fusion.epilogue)[1:] for fusion in seen), "a residual among them"


def test_anchors_that_are_no_products(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    seen, _ = asked_of(tmp_path / "net.py", "nn.max_pool2d", "nn.softmax", "multiply")
    assert [(names(f.prologue), names(f.epilogue)) for f in seen] == [(["nn.relu"], ["multiply"]), ([], [])]


def test_a_strategy_gives_the_loops_of_all_of_a_kernel() -> None:
    given: list[str | None] = []

    def conv2d(fusion: Fusion, target: Target) -> LoweredKernel:
        given.extend(names(fusion.calls))
        kernel = fusion.tensors.kernel()
        return LoweredKernel(kernel.func, kernel.bind())

    host = TargetKind("lowering", help="a host", is_host=True)
    entries = entry_of(host, strategies=lambda: [Strategy("nn.conv2d", lambda *_: None), Strategy("nn.conv2d", conv2d)])
    members = resolve_targets("lowering", PluginHost(lambda: entries))
    module = module_of(call("nn.relu", call("add", call("nn.conv2d", X, WEIGHT), BIAS)))
    Build("m", members).run(module)
    assert given == ["nn.conv2d", "add", "nn.relu"]


def test_a_pattern_comes_before_the_anchor_of_what_it_took() -> None:
    order: list[str] = []

    def says(name: str) -> Any:
        def lower(fusion: Fusion, target: Target) -> LoweredKernel | None:
            order.append(name)
            kernel = fusion.tensors.kernel()
            return LoweredKernel(kernel.func, kernel.bind()) if name == "anchor" else None

        return lower

    product = op("nn.conv2d")(wildcard("float32"), constant("float32"), padding=any_)
    table = [Pattern("npu.conv_relu", op("nn.relu")(product))]
    made = [Strategy("nn.conv2d", says("anchor")), Strategy("npu.conv_relu", says("pattern"))]
    members = members_of(toy(patterns=lambda: table, strategies=lambda: made))
    Build("m", members).run(module_of(call("nn.relu", call("nn.conv2d", X, WEIGHT))))
    assert order == ["pattern", "anchor"]
