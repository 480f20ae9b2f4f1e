"""docs/rounding.md: its table is what importers make of a layer of each kind, and what the reference kernels give."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime
from tests._support.tflite_builder import TFLiteBuilder, litert

from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call
from uma.relay.fixed_point import scale_integer
from uma.relay.module import IRModule
from uma.relay.op import FixedPoint, FloatScale
from uma.relay.transform import canonicalise
from uma.relay.visit import post_order

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rounding.md"

TIES = {2: (5, -5), 4: (10, -10, 9, -9)}
"""Sums that are divided by 2, and by 4."""

Build = Callable[[int, np.ndarray], bytes]
"""Takes by what to divide, and the sums, int8 (n,); gives a model of one input (n,), or (n, divisor), int8."""


def _tflite(make: Callable[[TFLiteBuilder, int, int], int], dtype: str = "int8", width: int = 1) -> Build:
    def build(divisor: int, sums: np.ndarray) -> bytes:
        b = TFLiteBuilder()
        shape = (1, 1, len(sums), width if width > 0 else divisor)
        return b.finish(make(b, b.input(shape, dtype, scale=1.0, zero_point=0), divisor))

    return build


def _convolution(name: str, dtype: str = "int8") -> Build:
    def make(b: TFLiteBuilder, x: int, divisor: int) -> int:
        shape = b.graph.tensors[x].shape
        weight = b.constant(np.ones((1, 1, 1, 1), np.int8), scale=1 / divisor, zero_point=0)
        bias = b.constant(np.zeros(1, np.int64 if dtype == "int16" else np.int32), scale=1 / divisor, zero_point=0)
        y = b.tensor(shape, dtype, scale=1.0, zero_point=0)
        more = {"depthMultiplier": 1} if name.startswith("DEPTH") else {}
        b.op(name, [x, weight, bias], [y], padding=1, strideH=1, strideW=1, **more)
        return y

    return _tflite(make, dtype)


def _fully_connected() -> Build:
    def make(b: TFLiteBuilder, x: int, divisor: int) -> int:
        rows = b.graph.tensors[x].shape[2]
        weight = b.constant(np.ones((1, 1), np.int8), scale=1 / divisor, zero_point=0)
        y = b.tensor((rows, 1), "int8", scale=1.0, zero_point=0)
        b.op("FULLY_CONNECTED", [x, weight, -1], [y])
        return y

    return _tflite(make)


def _pool() -> Build:
    def make(b: TFLiteBuilder, x: int, divisor: int) -> int:
        """Of a window of as many elements: the first is the sum, the others are 0."""
        _, _, rows, _ = b.graph.tensors[x].shape
        picture = b.tensor((1, rows, divisor, 1), "int8", scale=1.0, zero_point=0)
        b.op("RESHAPE", [x, b.constant([1, rows, divisor, 1], "int32")], [picture])
        y = b.tensor((1, rows, 1, 1), "int8", scale=1.0, zero_point=0)
        b.op("AVERAGE_POOL_2D", [picture], [y], padding=1, strideH=1, strideW=1, filterHeight=1, filterWidth=divisor)
        return y

    return _tflite(make, width=0)


def _mean() -> Build:
    def make(b: TFLiteBuilder, x: int, divisor: int) -> int:
        _, _, rows, _ = b.graph.tensors[x].shape
        y = b.tensor((1, 1, rows), "int8", scale=1.0, zero_point=0)
        b.op("MEAN", [x, b.constant([3], "int32")], [y], keepDims=False)
        return y

    return _tflite(make, width=0)


def _elementwise(name: str, other: int | None, dtype: str = "int8") -> Build:
    """Of an operand, and of a constant beside it where there is one; the result's scale divides."""

    def make(b: TFLiteBuilder, x: int, divisor: int) -> int:
        operands = [x] if other is None else [x, b.constant(np.array([other], np.int8), scale=1.0, zero_point=0)]
        y = b.tensor(b.graph.tensors[x].shape, dtype, scale=float(divisor), zero_point=0)
        b.op(name, operands, [y], **({"alpha": 0.5} if name == "LEAKY_RELU" else {}))
        return y

    return _tflite(make)


def _quantize_floats() -> Build:
    def build(divisor: int, sums: np.ndarray) -> bytes:
        b = TFLiteBuilder()
        x = b.input((1, 1, len(sums), 1), "float32")
        y = b.tensor((1, 1, len(sums), 1), "int8", scale=float(divisor), zero_point=0)
        b.op("QUANTIZE", [x], [y])
        return b.finish(y)

    return build


def _onnx(make: Callable[[OnnxBuilder, str, int, int], str], width: int = 1, dtype: str = "int8") -> Build:
    """``make`` takes what is dequantised, by what to divide, and how many sums there are; gives floats."""

    def build(divisor: int, sums: np.ndarray) -> bytes:
        b = OnnxBuilder(13)
        shape = (1, 1, len(sums), width if width > 0 else divisor)
        if dtype != "int8":
            return b.build(b.quantize(b.input("x", shape, dtype), float(divisor), 0, "int8"))
        data = b.dequantize(b.input("x", shape, "int8"), 1.0, 0, "int8")
        return b.build(make(b, data, divisor, len(sums)))

    return build


def _onnx_conv(b: OnnxBuilder, data: str, divisor: int, rows: int) -> str:
    weight = b.dequantize(b.constant(np.ones((1, 1, 1, 1)), "int8"), 1 / divisor, 0, "int8")
    return b.quantize(b.node("Conv", data, weight), 1.0, 0, "int8")


def _onnx_gemm(b: OnnxBuilder, data: str, divisor: int, rows: int) -> str:
    weight = b.dequantize(b.constant(np.ones((1, 1)), "int8"), 1 / divisor, 0, "int8")
    rows_of = b.node("Reshape", data, b.constant([rows, 1], "int64"))
    return b.quantize(b.node("Gemm", rows_of, weight), 1.0, 0, "int8")


def _onnx_pool(b: OnnxBuilder, data: str, divisor: int, rows: int) -> str:
    return b.quantize(b.node("AveragePool", data, kernel_shape=[1, divisor]), 1.0, 0, "int8")


def _onnx_pair(op: str, other: int, scale: float = 1.0) -> Callable[[OnnxBuilder, str, int, int], str]:
    def make(b: OnnxBuilder, data: str, divisor: int, rows: int) -> str:
        one = b.dequantize(b.constant([other], "int8"), scale, 0, "int8")
        return b.quantize(b.node(op, data, one), float(divisor), 0, "int8")

    return make


@dataclass(frozen=True)
class Row:
    """A line of the table: what it is called, how a model of it is made, and whether sums are spread over a window."""

    name: str
    build: Build
    spread: bool = False
    dtype: str = "int8"


TFLITE = [
    Row("CONV_2D", _convolution("CONV_2D")),
    Row("CONV_2D, int16", _convolution("CONV_2D", "int16"), dtype="int16"),
    Row("DEPTHWISE_CONV_2D", _convolution("DEPTHWISE_CONV_2D")),
    Row("FULLY_CONNECTED", _fully_connected()),
    Row("AVERAGE_POOL_2D", _pool(), spread=True),
    Row("MEAN", _mean(), spread=True),
    Row("ADD", _elementwise("ADD", 0)),
    Row("SUB", _elementwise("SUB", 0)),
    Row("MUL", _elementwise("MUL", 1)),
    Row("RELU, to another scale", _elementwise("RELU", None)),
    Row("QUANTIZE, int8 to int8", _elementwise("QUANTIZE", None)),
    Row("QUANTIZE, float to int8", _quantize_floats(), dtype="float32"),
]
ONNX = [
    Row("Conv", _onnx(_onnx_conv)),
    Row("Gemm, MatMul", _onnx(_onnx_gemm)),
    Row("AveragePool, one scale", _onnx(_onnx_pool, width=0), spread=True),
    Row("Add, scales powers of two", _onnx(_onnx_pair("Add", 0))),
    Row("Add, other scales", _onnx(_onnx_pair("Add", 0, 0.3))),
    Row("Mul, scales powers of two", _onnx(_onnx_pair("Mul", 1))),
    Row("QuantizeLinear", _onnx(_onnx_pool, dtype="float32"), dtype="float32"),
]


def _given(row: Row, divisor: int) -> np.ndarray:
    sums = np.array(TIES[divisor])
    made = np.zeros((1, 1, len(sums), divisor if row.spread else 1))
    made[0, 0, :, 0] = sums
    return made.astype(row.dtype)


def _results(row: Row, divisor: int, is_tflite: bool) -> tuple[IRModule, list[int], list[int]]:
    """What is imported, what that gives, and what the format's own kernels give."""
    given = _given(row, divisor)
    data = row.build(divisor, np.array(TIES[divisor]))
    module = canonicalise(import_model(data).module)
    [ours] = evaluate(module, {module.main.params[0].name: given})
    [theirs] = litert(data, given) if is_tflite else run_onnxruntime(data, {"x": given}, optimise=False)
    return module, ours.ravel().tolist(), theirs.ravel().tolist()


def _roundings(module: IRModule) -> str:
    """What the ops of a model say of how they round, a word for each that does."""
    said: dict[str, None] = {}
    for expr in post_order(module.main.body):
        if isinstance(expr, Call):
            for name, value in expr.attrs.items:
                if isinstance(value, FixedPoint):
                    said[f"`{value.rounding}`"] = None
                elif isinstance(value, FloatScale):
                    said["`FloatScale`"] = None
                elif name == "rounding":
                    said[f"`{value}`"] = None
    return ", ".join(said)


def _line(row: Row, is_tflite: bool) -> str:
    found = {divisor: _results(row, divisor, is_tflite) for divisor in TIES}
    for _, ours, theirs in found.values():
        assert ours == theirs, row.name
    module = found[4][0]
    ops = [f"`{e.op_name}`" for e in post_order(module.main.body) if isinstance(e, Call) and e.op_name != "reshape"]
    (half, minus), quarters = found[2][2], found[4][2]
    cells = [f"{half}, {minus}", f"{quarters[0]}, {quarters[1]}", f"{quarters[2]}, {quarters[3]}"]
    return "| " + " | ".join([row.name, ", ".join(ops), _roundings(module), *cells]) + " |"


def _table(title: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| (?!---|layer|rounding).*", text, re.MULTILINE)


@pytest.mark.parametrize("rows", [TFLITE, ONNX], ids=["tflite", "onnx"])
def test_the_tables_say_what_reference_kernels_and_importers_do(rows: list[Row]) -> None:
    is_tflite = rows is TFLITE
    assert _table("TFLite" if is_tflite else "ONNX") == [_line(row, is_tflite) for row in rows]


def test_the_table_of_fixed_points_is_their_arithmetic() -> None:
    sums = [(value, 2**30, {2: 0, 4: -1}[divisor]) for divisor, values in TIES.items() for value in values]
    lines = []
    for rounding in ("double", "up", "even", "away"):
        made = [scale_integer(*one, rounding) for one in sums]
        lines.append((f"`{rounding}`", *(f"{made[i]}, {made[i + 1]}" for i in (0, 2, 4))))
    shown = [tuple(cell.strip() for cell in line.strip("| ").split("|")) for line in _table("The four roundings")]
    assert [(line[0], *line[2:5]) for line in shown] == lines
