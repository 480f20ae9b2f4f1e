"""An import uses memory and arithmetic in proportion to its file and declared tensors, whatever sizes that names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser
from tests._support.fuzz import try_input
from tests._support.onnx_builder import OnnxBuilder
from tests._support.small_models import Uma
from tests._support.tflite_builder import TFLiteBuilder
from tests._support.tflite_control import Builder

import uma
from uma.errors import ModelError, UsageError
from uma.frontends import import_model
from uma.relay import Call, Constant, Function, IRModule, post_order
from uma.relay.expr import call, const, effort_of
from uma.relay.transform.canonical import canonicalise
from uma.support.import_budget import IMPORT_LIMIT, Budget, BudgetError

EXCEEDED = "with it, the constants that are computed at import exceed"
TOO_MUCH = "with it, the arithmetic at import exceeds"

LARGE = 1 << 28


def onnx_file(build: Callable[[OnnxBuilder], str], opset: int = 22) -> bytes:
    b = OnnxBuilder(opset)
    return b.model(build(b)).SerializeToString()


def ints(b: OnnxBuilder, *values: int) -> str:
    return b.constant(values, "int64")


def zeros(b: OnnxBuilder, *shape: int, dtype: type = np.float32) -> str:
    """A constant that a few bytes ask for."""
    made: str = b.node("ConstantOfShape", ints(b, *shape), value=numpy_helper.from_array(np.zeros(1, dtype)))
    return made


def doubling(levels: int) -> bytes:
    """Functions each of which calls the next one twice."""
    functions = [f"f{i} (x) => (y) {{ t = mine.f{i + 1} (x) y = mine.f{i + 1} (t) }}" for i in range(levels)]
    head = '<opset_import: ["": 18, "mine": 1], domain: "mine">'
    text = "\n".join(
        [
            '<ir_version: 9, opset_import: ["": 18, "mine": 1]>',
            "g (float[2] x) => (float[2] y) { y = mine.f0 (x) }",
            *(f"{head} {function}" for function in functions),
            f"{head} f{levels} (x) => (y) {{ y = Relu (x) }}",
        ]
    )
    data: bytes = parser.parse_model(text).SerializeToString()
    return data


def gathering(turns: int) -> bytes:
    """A loop that keeps what every turn computes."""
    data: bytes = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18]>
        m (float[64] x) => (float[{turns}, 64] p) <int64 n = {{{turns}}}, bool go = {{1}}> {{
            p = Loop (n, go) <body = t (int64 i, bool c) => (bool d, float[64] o) {{ d = Identity (c)  o = Abs (x) }}>
        }}"""
    ).SerializeToString()
    return data


def computed_resize(size: int) -> bytes:
    """A resize whose scale is an input; the file declares the size of its result."""
    data: bytes = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18]>
        m (float[1] x, float[1] s) => (float[{size}] y) {{ y = Resize <mode="nearest"> (x, , s) }}"""
    ).SerializeToString()
    return data


def tflite_doubling(levels: int) -> bytes:
    """Graphs each of which calls the next one twice."""
    b = Builder()
    with b.body() as graph:
        b.gives(b.made("ABS", b.input((1, 3))))
    for _ in range(levels):
        with b.body() as outer:
            once = b.made("CALL", b.input((1, 3)), subgraph=graph)
            b.gives(b.made("CALL", once, subgraph=graph))
        graph = outer
    return b.finish(b.made("CALL", b.input((1, 3)), subgraph=graph))


def tflite_file(build: Callable[[TFLiteBuilder], int]) -> bytes:
    b = TFLiteBuilder()
    return b.finish(build(b))


def add_op(b: TFLiteBuilder, op: str, inputs: list[int], shape: Any, dtype: str = "float32", **options: Any) -> int:
    result = b.tensor([-1] * len(shape), dtype)
    b.op(op, inputs, [result], **options)
    return result


def sharing(count: int, size: int) -> bytes:
    """Constants that have one buffer."""
    b = TFLiteBuilder()
    value = b.input([2])
    first = b.constant(np.arange(2 * size, dtype=np.float32).reshape(size, 2))
    for i in range(count):
        shared = b.tensor([size, 2], name=f"c{i}")
        b.graph.tensors[shared].buffer = b.graph.tensors[first].buffer
        result = b.tensor([size, 2], name=f"y{i}")
        b.op("ADD", [value, shared], [result])
    return b.finish(result)


REFUSED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a depth": (
        EXCEEDED,
        lambda: onnx_file(
            lambda b: b.node("OneHot", b.input("i", [1], "int64"), ints(b, LARGE), b.constant([0, 1], "float32"))
        ),
    ),
    "blocks of an image": (
        EXCEEDED,
        lambda: onnx_file(lambda b: b.node("Col2Im", b.input("x", [1, 20_000, 1]), ints(b, 20_000), ints(b, 20_000))),
    ),
    "repeated constants": (
        EXCEEDED,
        lambda: onnx_file(lambda b: b.node("Concat", *[zeros(b, 1 << 22)] * 32, axis=0)),
    ),
    "a range": (
        EXCEEDED,
        lambda: onnx_file(lambda b: b.node("Range", *(b.constant(v, "int64") for v in (0, LARGE // 2, 1)))),
    ),
    "classes": (EXCEEDED, lambda: onnx_file(lambda b: b.node("Hardmax", b.input("x", [1, LARGE])))),
    "places": (
        EXCEEDED,
        lambda: onnx_file(
            lambda b: b.node("GatherElements", b.input("x", [LARGE, 1]), b.input("i", [LARGE, 1], "int32"), axis=1)
        ),
    ),
    "axes": (
        EXCEEDED,
        lambda: onnx_file(lambda b: b.node("ReduceMean", b.input("x", [2, 3]), zeros(b, 1 << 23, dtype=np.int64))),
    ),
    "places of a resize": (
        EXCEEDED,
        lambda: onnx_file(
            lambda b: b.node(
                "Resize", b.input("x", [1 << 25, 1]), "", "", ints(b, 1 << 13, 1), mode="linear", antialias=1
            )
        ),
    ),
    "places of a resize at run time": (EXCEEDED, lambda: computed_resize(LARGE)),
    "a window in time": (EXCEEDED, lambda: onnx_file(lambda b: b.node("HannWindow", b.constant(LARGE, "int64")))),
    "frequencies": (EXCEEDED, lambda: onnx_file(lambda b: b.node("DFT", b.input("x", [1, 20_000, 1])))),
    "padding with elements": (
        EXCEEDED,
        lambda: onnx_file(lambda b: b.node("Pad", b.input("x", [2]), ints(b, 0, LARGE), mode="edge")),
    ),
    "taps": (
        EXCEEDED,
        lambda: onnx_file(
            lambda b: b.node(
                "Resize",
                b.input("x", [1, 1, 1, LARGE]),
                "",
                "",
                ints(b, 1, 1, 1, 2),
                mode="linear",
                antialias=1,
            )
        ),
    ),
    "gaps of a window": (
        EXCEEDED,
        lambda: onnx_file(
            lambda b: b.node("AveragePool", b.input("x", [1, 1, LARGE]), kernel_shape=[1 << 20], dilations=[2])
        ),
    ),
    "zeros of a state": (
        EXCEEDED,
        lambda: onnx_file(
            lambda b: b.node("RNN", b.input("x", [1, LARGE, 1]), zeros(b, 1, 1, 1), zeros(b, 1, 1, 1), hidden_size=1)
        ),
    ),
    "ones of a convolution": (
        EXCEEDED,
        lambda: onnx_file(
            lambda b: b.node(
                "ConvInteger",
                b.input("x", [1, 1, LARGE], "uint8"),
                b.constant(np.ones((1, 1, 1)), "uint8"),
                b.input("z", [], "uint8"),
            )
        ),
    ),
    "steps of a weight": (
        TOO_MUCH,
        lambda: onnx_file(
            lambda b: b.node("ConvTranspose", b.input("x", [1, 1, 1]), zeros(b, 1, 1, 1), strides=[LARGE])
        ),
    ),
    "turns": (EXCEEDED, lambda: gathering(1 << 22)),
    "functions": (TOO_MUCH, lambda: doubling(30)),
    "graphs of TFLite": (TOO_MUCH, lambda: tflite_doubling(30)),
    "shared buffers of TFLite": (EXCEEDED, lambda: sharing(300, 1 << 12)),
    "places of TFLite": (
        EXCEEDED,
        lambda: tflite_file(
            lambda b: add_op(
                b,
                "DYNAMIC_UPDATE_SLICE",
                [b.input([LARGE]), b.input([1]), b.input([1], "int32")],
                [LARGE],
            )
        ),
    ),
}
"""What of a small file asks for more than it may have; the words of the refusal, and the file."""


LIMITS = {"functions": 2, "graphs of TFLite": 2, "shared buffers of TFLite": 1}
"""Of those that take some time to reach the limit that is set unless a user chooses another."""


@pytest.mark.parametrize("what", REFUSED)
def test_small_files_that_ask_for_much_are_refused_at_once(what: str) -> None:
    message, build = REFUSED[what]
    limit = LIMITS.get(what, IMPORT_LIMIT)
    trial = try_input(lambda data: import_model(data, import_limit=limit), build())
    assert trial.fault is None, trial.fault
    assert isinstance(trial.error, BudgetError), trial.error
    assert message in trial.error.what
    assert trial.error.where, "the layer"
    assert f"--import-limit {2 * limit}, in Python import_limit={2 * limit}" in (trial.error.hint or "")
    assert trial.cpu_s < 4


LEFT: dict[str, Callable[[OnnxBuilder], str]] = {
    "windows": lambda b: b.node("MaxPool", zeros(b, 1, 1, 1 << 21), kernel_shape=[1 << 20]),
    "taps": lambda b: b.node("Conv", zeros(b, 1, 1, 1 << 20), zeros(b, 1, 1, 1 << 20)),
    "updates": lambda b: b.node(
        "ScatterElements", zeros(b, 1 << 20), zeros(b, 1 << 20, dtype=np.int64), zeros(b, 1 << 20)
    ),
    "products": lambda b: b.node("MatMul", zeros(b, 2000, 2000), zeros(b, 2000, 2000)),
    "steps": lambda b: b.node(
        "RNN", zeros(b, 1 << 20, 1, 1), zeros(b, 1, 1, 1), zeros(b, 1, 1, 1), outputs=["", "last"], hidden_size=1
    )[1],
    "boxes": lambda b: b.node(
        "NonMaxSuppression",
        zeros(b, 1, 1 << 16, 4),
        zeros(b, 1, 1, 1 << 16),
        ints(b, 1 << 16),
        b.constant([0.5], "float32"),
    ),
}
"""Nodes of constants that take too much arithmetic to evaluate: they are left for when the model runs."""


@pytest.mark.parametrize("what", LEFT)
def test_what_takes_much_arithmetic_is_left_for_run_time(what: str) -> None:
    data = onnx_file(LEFT[what])
    modules: list[IRModule] = []
    trial = try_input(lambda data: modules.append(canonicalise(import_model(data).module)), data)
    assert (trial.fault, trial.error) == (None, None)
    assert trial.cpu_s < 6
    assert any(isinstance(expr, Call) and effort_of(expr)[1] > 1 << 27 for expr in post_order(modules[0].main.body))


def test_parameters_that_a_run_decides_are_tried_in_little_time() -> None:
    """Sets of more axes than there are, and the blocks of an image that a prime number of taps has."""
    b = OnnxBuilder(18)
    sets = b.model(b.node("ReduceSum", b.input("x", [2]), b.input("axes", [LARGE], "int64")))
    c = OnnxBuilder(18)
    prime = 2**31 - 1
    blocks = [c.input("x", [1, prime, 1], "int8"), ints(c, 1, prime), c.input("block", [2], "int64")]
    taps = c.model(c.node("Col2Im", *blocks))
    for model, shape in ((sets, [1]), (taps, [1, 1, 1, prime])):
        model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, shape))
        trial = try_input(import_model, model.SerializeToString())
        assert trial.fault is None and isinstance(trial.error, ModelError)
        assert trial.cpu_s < 4


def test_what_takes_little_is_still_folded() -> None:
    def build(b: OnnxBuilder) -> str:
        pooled = b.node("MaxPool", b.constant(np.arange(64).reshape(1, 1, 8, 8), "float32"), kernel_shape=[2, 2])
        data: str = b.node("Add", b.input("x", [1, 1, 7, 7]), pooled)
        return data

    body = import_model(onnx_file(build)).module.main.body
    assert isinstance(body, Call) and isinstance(body.args[1], Constant)


def test_weights_given_as_a_product_of_two_matrices_are_folded() -> None:
    """As files have them whose weights were factorised: otherwise each run multiplies them."""

    def build(b: OnnxBuilder) -> str:
        factors = (b.constant(np.ones(shape), "float32") for shape in ((1024, 512), (512, 1024)))
        data: str = b.node("MatMul", b.input("x", [1, 1024]), b.node("MatMul", *factors))
        return data

    body = canonicalise(import_model(onnx_file(build)).module).main.body
    assert sum(isinstance(expr, Call) for expr in post_order(body)) == 1


def test_a_larger_limit_lets_more_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uma_cli = Uma(capsys)
    file = tmp_path / "window.onnx"
    file.write_bytes(
        onnx_file(lambda b: b.node("Add", b.input("x", [1]), b.node("HannWindow", b.constant(1 << 19, "int64"))))
    )
    error = uma_cli("build", str(file), "--target", "c", "--no-compile", "--import-limit", "1").error(3)
    assert EXCEEDED in error and "--import-limit 2" in error and "n_HannWindow_0" in error
    with pytest.raises(ModelError, match=EXCEEDED):
        uma.build(file, "c", import_limit=1)
    assert uma.build(file, "c", import_limit=4, stop_after="import") is not None
    out = tmp_path / "out"
    args = ("build", str(file), "--target", "c", "--no-compile", "--import-limit", "4", "-o", str(out))
    assert uma_cli(*args).code == 0
    assert json.loads((out / "metadata.json").read_text())["constant_bytes"] >= 1 << 21


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "64", None])
def test_what_is_no_limit(wrong: Any) -> None:
    with pytest.raises(UsageError, match="the import limit is"):
        uma.build(IRModule({}), "c", import_limit=wrong)


def test_the_allowance_grows_with_the_file_and_what_it_declares() -> None:
    small, large = Budget(0).allowance, Budget(1 << 30).allowance
    assert small == 128 << 20 and large - small == IMPORT_LIMIT << 30
    declared = [Budget(0, size).allowance for size in (0, 1 << 20, 1 << 40, 1 << 50)]
    assert declared[0] < declared[1] < declared[2] == declared[3]
    assert Budget(0, -(2**62)).allowance == small, "impossible dimensions take nothing away"


def test_nothing_is_charged_outside_of_an_import() -> None:
    assert const(np.zeros(1 << 20)).tensor.nbytes == 8 << 20


def test_a_module_is_folded_as_far_as_its_constants_go() -> None:
    big = call("broadcast_to", const(np.ones(1, np.float32)), shape=(3000, 3000))
    module = IRModule.from_functions(
        {"main": Function((), call("sum", call("nn.dense", big, big), axis=(0, 1), keepdims=False))}
    )
    ops = [expr.op_name for expr in post_order(canonicalise(module).main.body) if isinstance(expr, Call)]
    assert ops == ["nn.dense", "sum"]


def test_declared_shapes_of_any_size_are_no_fault() -> None:
    b = OnnxBuilder()
    model = b.model(b.node("Relu", b.input("x", [2, 3])))
    model.graph.value_info.append(helper.make_tensor_value_info("t", 1, [2**62, 2**62]))
    assert import_model(model.SerializeToString()).module.main.body.shape == (2, 3)
