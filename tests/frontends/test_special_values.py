"""The table of NaN, infinities and zeros in ``docs/operators.md``: what is compiled follows it on every CPU, and agrees
with onnxruntime and with LiteRT's reference kernels wherever the table names no difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from packaging.version import Version
from tests._support.built_layers import PLUGINS, target_for
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma
from uma.frontends import import_model
from uma.relay import get_op
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

NAN, INF = np.nan, np.inf

EDGES = np.array([NAN, INF, -INF, -0.0, 0.0, 1, -1, 3e30, 1e-45, 0.5, -3e30, 2, -2, 88, -88], np.float32)
"""Numbers at which functions have their ends; several vectors and a rest of them."""

UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu", "Erf"),
    *("Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg"),
    *("Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign"),
    *("Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
)
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
RELAY = {"ReduceMax": "max", "ReduceMin": "min", "ArgMax": "argmax", "ArgMin": "argmin", "Hardmax": "argmax"}
RELAY |= {"MaxPool": "nn.max_pool1d", "GlobalMaxPool": "nn.global_max_pool", "ScatterElements": "scatter"}
"""The op whose row of the table holds for an operator of ONNX; operators that are not here agree throughout."""
OTHERWISE_BEFORE = () if Version(onnxruntime.__version__) >= Version("1.32") else ("Erf", "TopK")
"""Operators of which an older onnxruntime makes something else of NaN: 1.23, the last one for Python 3.10, has 1 as
its error function and sorts by chance."""


def rows(size: int) -> dict[str, np.ndarray]:
    """Numbers with NaN at the start, in the middle, at the end, at the largest, in several places, everywhere."""
    plain = (np.arange(size) % 7 + 1).astype(np.float32)
    plain[size // 3] = 9
    places = {"none": [], "first": [0], "middle": [size // 2], "last": [size - 1], "largest": [size // 3]}
    places |= {"several": [1, size // 2, size - 1], "all": list(range(size))}
    made = {}
    for name, nan in places.items():
        made[name] = plain.copy()
        made[name][nan] = NAN
    made["infinite"] = plain.copy()
    made["infinite"][[1, size // 2]] = -INF, NAN
    return made


def largest(values: np.ndarray) -> float:
    """The largest of the finite numbers."""
    return float(values[np.isfinite(values)].max())


@dataclass
class Cases:
    """Many nodes of one ONNX model, each with inputs of its own."""

    builder: OnnxBuilder = field(default_factory=lambda: OnnxBuilder(20))
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    rounding: dict[str, float] = field(default_factory=dict)
    """By how much rounding may change outputs whose terms cancel, so that no tolerance relative to them will do."""

    def add(
        self, op: str, *values: np.ndarray, constants: tuple[Any, ...] = (), outputs: int = 1, **attrs: Any
    ) -> None:
        names = []
        for value in values:
            names.append(self.builder.input(f"x{len(self.inputs)}", value.shape, value.dtype.name))
            self.inputs[names[-1]] = value
        names += ["" if value is None else self.builder.constant(value) for value in constants]
        made = self.builder.node(op, *names, outputs=outputs, **attrs)
        self.outputs |= dict.fromkeys([made] if isinstance(made, str) else made, op)

    def functions(self) -> None:
        """Element by element."""
        edges = np.tile(EDGES, 3)[:37]
        for op in UNARY:
            self.add(op, edges)
        for limits in ((np.float32(0), None), (None, np.float32(6)), (np.float32(-1), np.float32(1))):
            self.add("Clip", edges, constants=limits)
        with np.errstate(over="ignore"):
            self.add("Clip", edges.astype(np.float16))
        few = EDGES[:8]
        for op in BINARY:
            self.add(op, np.repeat(few, len(few)), np.tile(few, len(few)))
        self.add("Where", edges > 0, edges, edges[::-1].copy())
        self.add("QuantizeLinear", edges, constants=(np.float32(1), np.int8(3)))
        self.add("CumSum", edges, constants=(np.int64(0),))

    def attention(self) -> None:
        """NaN and infinities among queries, keys and values."""
        rng = np.random.default_rng(0)
        for value, place in itertools.product((NAN, INF, -INF), range(3)):
            q, k, v = (rng.standard_normal((1, 2, 40, 32)).astype(np.float32) for _ in range(3))
            (q, k, v)[place][0, 1, 7, 9] = value
            x = [self.builder.input(f"x{len(self.inputs) + i}", one.shape) for i, one in enumerate((q, k, v))]
            self.inputs |= dict(zip(x, (q, k, v), strict=True))
            scores = self.builder.node("MatMul", x[0], self.builder.node("Transpose", x[1], perm=[0, 1, 3, 2]))
            made = self.builder.node("MatMul", self.builder.node("Softmax", scores, axis=-1), x[2])
            self.outputs[made] = "MatMul"
            # Each of the products of a score rounds; exp makes an error of a score a relative one of the weight.
            products = np.abs(q)[..., None, :] * np.abs(k)[..., None, :, :]
            self.rounding[made] = float(np.finfo(np.float32).eps) * largest(products.sum(-1)) * largest(np.abs(v))

    def along(self, size: int, names: Iterable[str] | None = None) -> None:
        """What is computed of a whole row, or window; of all `rows`, or of those with such names."""
        for name, row in rows(size).items():
            if names is not None and name not in names:
                continue
            one, columns = row[None, None], np.stack([row] * 9, 1)[None]
            for op in ("Softmax", "LogSoftmax", "Hardmax", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2"):
                attrs = {} if op.startswith("Reduce") else {"axis": -1}
                self.add(op, row[None], **attrs)
            for op in ("ReduceMax", "ReduceMin"):
                self.add(op, columns, constants=(np.array([1]),), keepdims=0)
            for op in ("ArgMax", "ArgMin"):
                self.add(op, row, select_last_index=name in ("several", "last"))
                self.add(op, columns, axis=1, keepdims=0)
            for largest in (0, 1):
                for k in (1, size // 2, size):
                    self.add("TopK", row, constants=(np.array([k]),), largest=largest, outputs=2)
            window = {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}
            self.add("MaxPool", one, **window)
            self.add("MaxPool", one, dilations=[2], **window)
            self.add("MaxPool", one, outputs=2, **window)
            self.add("MaxPool", np.ascontiguousarray(columns.transpose(0, 2, 1)), **window)
            self.add("GlobalMaxPool", np.ascontiguousarray(columns.transpose(0, 2, 1)))
            self.add("LayerNormalization", row[None], constants=(np.ones(size, np.float32),))
            image = np.broadcast_to(one[..., None] * np.ones(3, np.float32), (1, 1, size, 3)).copy()
            self.add("MaxPool", image, kernel_shape=[2, 2])
            self.add("MaxPool", image[..., None] * np.ones(2, np.float32), kernel_shape=[2, 2, 2])
            places = np.array([0, 1, 1, 2, 2, 3])
            for reduction in ("min", "max"):
                updates = row[:6]
                self.add("ScatterElements", row[-5:].copy(), constants=(places, updates), reduction=reduction)


def compare(name: str, ours: np.ndarray, wanted: np.ndarray, tolerance: float = 2e-6, rounding: float = 1e-30) -> None:
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(ours, wanted, tolerance, rounding, err_msg=name)
    else:
        np.testing.assert_array_equal(ours, wanted, name)


def check(cases: Cases, target: str, folder: Path, *, by_onnxruntime: bool) -> None:
    data = cases.builder.build(*cases.outputs)
    path = folder / "special.onnx"
    path.write_bytes(data)
    found: Mapping[str, np.ndarray] = uma.build(path, target, plugins=PLUGINS).run(cases.inputs)
    with np.errstate(all="ignore"):
        references = evaluate(canonicalise(import_model(data).module), cases.inputs)
    for (name, op), reference in zip(cases.outputs.items(), references, strict=True):
        tolerance = 1e-5 if op in ("Tan", "Pow") else 2e-6
        compare(f"{name} on {target}", found[name], reference, tolerance, cases.rounding.get(name, 1e-30))
    if by_onnxruntime:
        theirs = dict(zip(cases.outputs, run_onnxruntime(data, cases.inputs), strict=True))
        for name, op in cases.outputs.items():
            specials = get_op(RELAY[op]).specials if op in RELAY else None
            if (specials is None or not specials.onnx) and op not in OTHERWISE_BEFORE:
                compare(f"{name} by onnxruntime", found[name], theirs[name], 1e-5)


def test_special_values_by_the_host(tmp_path: Path) -> None:
    cases = Cases()
    cases.functions()
    cases.along(70, ("several", "all"))  # enough for vectors along rows
    check(cases, "c", tmp_path, by_onnxruntime=True)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["x86-64", "avx2", "avx512_vnni", "asimd"])
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_special_values_on_every_cpu(name: str, cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_for(name, cc, monkeypatch)
    cases = Cases()
    cases.functions()
    cases.attention()
    for size in (7, 33, 130):
        cases.along(size)
    check(cases, target, tmp_path, by_onnxruntime=False)


# --- the bug report --------------------------------------------------------------------------------------------------


def test_the_largest_number_is_found_beside_a_nan(tmp_path: Path) -> None:
    """The example of the bug report, and each of its positions."""
    cases = Cases()
    for at in range(5):
        row = np.array([[4, 9, 1, 2, 3]], np.float32)
        row[0, at] = NAN
        cases.add("ReduceMax", row, constants=(np.array([1]),), keepdims=0)
        cases.add("ArgMax", row, axis=1, keepdims=0)
    path = tmp_path / "bug.onnx"
    path.write_bytes(cases.builder.build(*cases.outputs))
    found = [int(value[0]) for value in uma.build(path, "c", plugins=PLUGINS).run(cases.inputs).values()]
    assert found[::2] == [9, 4, 9, 9, 9]
    assert found[1::2] == [1, 0, 1, 1, 1]


# --- TFLite ----------------------------------------------------------------------------------------------------------


def tflite_cases() -> Iterator[tuple[str, list[np.ndarray], list[np.ndarray], str, tuple[int, ...], dict[str, Any]]]:
    """Operator, inputs, constants, dtype and shape of the result, options; the table names no difference for these."""
    edges = np.tile(EDGES, 3)[:37]
    for op in ("ABS", "COS", "EXP", "GELU", "HARD_SWISH", "LOG", "LOGISTIC", "NEG", "RELU", "RELU6", "RSQRT", "SQRT"):
        yield op, [edges], [], "float32", edges.shape, {}
    for op in ("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "EQUAL", "NOT_EQUAL"):
        yield op, [np.repeat(EDGES[:8], 8), np.tile(EDGES[:8], 8)], [], "bool", (64,), {}
    for name, row in rows(20).items():
        yield "SOFTMAX", [row[None]], [], "float32", (1, 20), {"beta": 1.0}
        for op in ("ARG_MAX", "ARG_MIN"):
            yield op, [row[None]], [np.array([1], np.int32)], "int64", (1,), {"outputType": 4}
        if name == "all":
            continue
        for op in ("REDUCE_MAX", "REDUCE_MIN"):
            yield op, [row[None]], [np.array([1], np.int32)], "float32", (1,), {}
        options = {"padding": 1, "strideH": 1, "strideW": 2, "filterHeight": 1, "filterWidth": 5}
        yield "MAX_POOL_2D", [row.reshape(1, 1, 20, 1)], [], "float32", (1, 1, 8, 1), options


def test_tflite_agrees_with_the_reference_kernels(tmp_path: Path) -> None:
    for op, inputs, constants, dtype, shape, options in tflite_cases():
        b = TFLiteBuilder()
        names = [b.input(list(value.shape)) for value in inputs]
        names += [b.constant(value) for value in constants]
        result = b.tensor(shape, dtype)
        b.op(op, names, [result], **options)
        data = b.finish(result)
        path = tmp_path / "case.tflite"
        path.write_bytes(data)
        module = import_model(path).module
        with np.errstate(all="ignore"):
            (ours,) = evaluate(module, dict(zip((one.name for one in module.main.params), inputs, strict=True)))
        (wanted,) = litert(data, *inputs)
        compare(f"{op} {inputs}", np.asarray(ours).reshape(wanted.shape), wanted)
