"""ONNX files that are refused: layers at fault, and broken files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests._support.onnx_builder import OnnxBuilder

from uma.errors import ModelError
from uma.frontends import import_model
from uma.frontends.onnx.converters import CONVERTERS
from uma.frontends.onnx.fold import FOLDERS
from uma.relay import Call, post_order


def refused(data: bytes) -> ModelError:
    with pytest.raises(ModelError) as caught:
        import_model(data)
    return caught.value


class Faulty:
    """Builds a node called ``bad``, of which something is wrong."""

    def __init__(self) -> None:
        self.b = OnnxBuilder(23)
        self.constant = self.b.constant

    def input(self, *shape: int, dtype: str = "float32") -> str:
        return self.b.input(f"x{len(self.b.inputs)}", shape, dtype)

    def ints(self, *values: int) -> str:
        return self.b.constant(values, "int64")

    def bad(self, op: str, *inputs: str, **attrs: Any) -> str:
        made = self.b.node(op, *inputs, name="bad", **attrs)
        return str(made if isinstance(made, str) else made[0])

    def second(self, op: str, *inputs: str, **attrs: Any) -> str:
        """The second of two results."""
        made = self.b.node(op, *inputs, name="bad", outputs=2, **attrs)
        return str(made[1])


def _conv(f: Faulty, weight: tuple[int, ...] = (2, 2, 3, 3), bias: int | None = None, **attrs: Any) -> str:
    args = [f.input(1, 2, 8, 8), f.constant(np.ones(weight), "float32")]
    return f.bad("Conv", *args, *([] if bias is None else [f.constant(np.ones(bias), "float32")]), **attrs)


def _quantised(
    f: Faulty, scale: Any = 0.5, zero: Any = 0, dtype: str = "int8", scale_dtype: str = "float32", **attrs: Any
) -> str:
    return f.bad("QuantizeLinear", f.input(2, 3), f.constant(scale, scale_dtype), f.constant(zero, dtype), **attrs)


def _dequantised(f: Faulty, dtype: str = "int8", zero: str = "int8", **attrs: Any) -> str:
    return f.bad(
        "DequantizeLinear", f.input(2, 3, dtype=dtype), f.constant(0.5, "float32"), f.constant(0, zero), **attrs
    )


def _norm(f: Faulty, variance: float = 1.0, channels: int = 2, **attrs: Any) -> str:
    values = [f.constant(np.full(channels, v), "float32") for v in (1, 0, 0, variance)]
    return f.bad("BatchNormalization", f.input(1, 2, 4), *values, **attrs)


def _pads(f: Faulty, *pads: int, **attrs: Any) -> str:
    return f.bad("Pad", f.input(2, 3), f.ints(*pads), **attrs)


def _without(f: Faulty, data: str, attribute: str) -> str:
    del f.b.nodes[-1].attribute[[a.name for a in f.b.nodes[-1].attribute].index(attribute)]
    return data


def _with_type(f: Faulty, data: str, value: Any) -> str:
    f.b.nodes[-1].attribute[0].CopyFrom(helper.make_attribute(f.b.nodes[-1].attribute[0].name, value))
    return data


FAULTS: dict[str, list[Callable[[Faulty], str]]] = {
    "this operator is not supported": [
        lambda f: f.bad("Unique", f.input(2)),
        lambda f: f.bad("Relu", f.input(2), domain="com.example"),
    ],
    "it has 2 results; one is supported": [lambda f: f.second("ConstantOfShape", f.ints(1))],
    "its input 0 is missing": [lambda f: f.bad("Relu"), lambda f: f.bad("Relu", "")],
    "where takes condition, a, b; got 4 arguments": [lambda f: f.bad("Where", *(f.ints(1) for _ in range(4)))],
    "its input 'x1' is computed at run time, and the model does not say the shape of its result 0": [
        lambda f: f.bad("Reshape", f.input(2), f.input(1, dtype="int64")),
        lambda f: f.bad("Expand", f.input(2), f.input(1, dtype="int64")),
    ],
    "its input 'x1' is computed at run time": [
        lambda f: f.bad(
            "QGemm",
            f.input(2, 2, dtype="int8"),
            f.input(dtype="float32"),
            f.constant(0, "int8"),
            *(f.constant([[1, 2], [3, 4]], "int8"), f.constant(0.5, "float32"), f.constant(0, "int8")),
            f.constant([1, 2], "int32"),
        )
    ],
    "is float64 of shape (1,), not a list of integers": [lambda f: f.bad("Reshape", f.input(2), f.constant([2.0]))],
    "its result 1 is used, which is not supported": [
        lambda f: f.second("Relu", f.input(2)),
    ],
    "it needs the attribute 'kernel_shape'": [lambda f: f.bad("MaxPool", f.input(1, 2, 8))],
    "it needs the attribute 'to'": [
        lambda f: f.bad("Cast", f.input(2)),
        lambda f: f.bad("Cast", f.constant([1.0], "float32")),
    ],
    "its attribute 'axis' has the wrong type": [
        lambda f: f.bad("Softmax", f.input(2), axis=1.0),
        lambda f: f.bad("Softmax", f.input(2), axis="1"),
    ],
    "its result has elements of ONNX's type FLOAT8E4M3FN, which is not supported": [
        lambda f: f.bad("Cast", f.input(2), to=17),
        lambda f: f.bad("Cast", f.constant([1.0]), to=17),
    ],
    # Arithmetic.
    "the dtypes differ": [
        lambda f: f.bad("Div", f.input(2), f.constant(2, "float64")),
        lambda f: f.bad("Add", f.ints(1), f.constant([1.0])),
        lambda f: f.bad("Add", f.ints(), f.constant([1.0])),
    ],
    "its scale or bias does not fit data of shape (2, 3)": [
        lambda f: f.bad("LayerNormalization", f.input(2, 3), f.constant(np.ones((4, 2, 3)), "float32"))
    ],
    "its indices leave the 3 elements of axis -1": [lambda f: f.bad("Gather", f.input(2, 3), f.ints(-4), axis=-1)],
    "it has no attribute 'ceilmode' in this opset (did you mean 'ceil_mode'?)": [
        lambda f: f.bad("MaxPool", f.input(1, 1, 4, 4), kernel_shape=[2, 2], ceilmode=1)
    ],
    "it has no attribute 'axes' in this opset (it has keepdims, noop_with_empty_axes)": [
        lambda f: f.bad("ReduceMean", f.input(2, 3), axes=[1])  # an input from opset 18 on
    ],
    "it has no attribute 'x' in this opset (it has none)": [lambda f: f.bad("Relu", f.input(2), x=1)],
    "it has num_outputs 3 and 2 outputs": [lambda f: f.second("Split", f.input(6), num_outputs=3)],
    "it divides in float16; float32 is supported": [lambda f: _quantised(f, precision=10)],
    "it divides in float64; float32 is supported": [lambda f: _quantised(f, precision=11)],
    "its limits are scalars": [lambda f: f.bad("Clip", f.input(2), f.constant([0, 0], "float32"))],
    "it multiplies no scalars": [lambda f: f.bad("MatMul", f.input(2), f.input())],
    "it multiplies matrices, not (2,) and (2, 3)": [lambda f: f.bad("Gemm", f.input(2), f.input(2, 3))],
    "its addend of shape (3, 4) does not fit its product of shape (1, 4)": [
        lambda f: f.bad("Gemm", f.input(1, 2), f.input(2, 4), f.input(3, 4))
    ],
    "do not broadcast": [
        lambda f: f.bad("Add", f.input(2), f.input(3)),
        lambda f: f.bad("Add", f.ints(1, 2), f.ints(1, 2, 3)),
        lambda f: f.bad("Add", f.ints(), f.ints(1, 2, 3)),
    ],
    "there is no axis 2 in 2 dimensions": [lambda f: f.bad("Softmax", f.input(2, 3), axis=2)],
    # Windows.
    "it has 4 spatial dimensions, not 1 to 3": [lambda f: f.bad("GlobalMaxPool", f.input(1, 2, 3, 4, 5, 6))],
    "it has 0 spatial dimensions, not 1 to 3": [lambda f: f.bad("GlobalMaxPool", f.input(1, 2))],
    "it has strides (1,) for 2 spatial dimensions": [lambda f: _conv(f, strides=[1])],
    "it has strides (0, 1) for 2 spatial dimensions": [lambda f: _conv(f, strides=[0, 1])],
    "it has dilations (1, -1) for 2 spatial dimensions": [lambda f: _conv(f, dilations=[1, -1])],
    "it has pads (0, 0, 0, -1) for 2 spatial dimensions": [lambda f: _conv(f, pads=[0, 0, 0, -1])],
    "it has kernel_shape (3,) for 2 spatial dimensions": [
        lambda f: f.bad("MaxPool", f.input(1, 2, 8, 8), kernel_shape=[3])
    ],
    "it has kernel_shape (3, 3) and a weight of shape (2, 2, 1, 1)": [
        lambda f: _conv(f, (2, 2, 1, 1), kernel_shape=[3, 3])
    ],
    "it has the unknown auto_pad 'SAME'": [lambda f: _conv(f, auto_pad="SAME")],
    "its weight of shape (2, 2, 3) does not fit data of shape (1, 2, 8, 8)": [lambda f: _conv(f, (2, 2, 3))],
    "it has a bias of shape (3,) for 2 channels": [lambda f: _conv(f, bias=3)],
    "the weight takes 3 channels, the data has 2 in 1 groups": [lambda f: _conv(f, (2, 3, 3, 3))],
    "0 groups do not divide": [lambda f: _conv(f, group=0)],
    "a window of 9 does not fit": [lambda f: _conv(f, (2, 2, 9, 9))],
    "it is in training mode": [
        lambda f: _norm(f, training_mode=1),
        lambda f: f.bad("Dropout", f.input(2), f.constant(0.5, "float32"), f.constant(True)),
    ],
    "its parameters do not fit data of shape (1, 2, 4)": [lambda f: _norm(f, channels=3)],
    "its variance is not positive everywhere": [lambda f: _norm(f, -1.0), lambda f: _norm(f, float("nan"))],
    # Shapes.
    "its data of shape (6,) cannot become (4, -1)": [lambda f: f.bad("Reshape", f.input(6), f.ints(4, -1))],
    "its data of shape (6,) cannot become (-1, -1)": [lambda f: f.bad("Reshape", f.input(6), f.ints(-1, -1))],
    "its data of shape (6,) cannot become (0, -1)": [
        lambda f: f.bad("Reshape", f.input(6), f.ints(0, -1), allowzero=1)
    ],
    "its data of shape (2,) cannot become (3,)": [lambda f: f.bad("Reshape", f.ints(1, 2), f.ints(3))],
    "it names no axes": [lambda f: f.bad("Unsqueeze", f.input(2), f.ints())],
    "its result has 34 dimensions": [lambda f: f.bad("Unsqueeze", f.input(1), f.ints(*range(33)))],
    "cannot become (1, 1, ": [lambda f: f.bad("Reshape", f.input(1), f.ints(*[1] * 40))],
    "it makes 34 dimensions of 1": [lambda f: f.bad("Unsqueeze", f.ints(1), f.ints(*range(33)))],
    "an axis is named twice": [
        lambda f: f.bad("Unsqueeze", f.input(2), f.ints(0, 0)),
        lambda f: f.bad("Slice", f.input(2), f.ints(0, 0), f.ints(1, 1), f.ints(0, -1)),
    ],
    "axis 0 has extent 2, not 1": [lambda f: f.bad("Squeeze", f.input(2), f.ints(0))],
    "not all of the axes (0,) of shape (2,) are 1": [lambda f: f.bad("Squeeze", f.ints(1, 2), f.ints(0))],
    "it splits 4 elements into 2 parts of (1, 2)": [lambda f: f.bad("Split", f.input(4), f.ints(1, 2), outputs=2)],
    "it splits 4 elements into 2 parts of (4, 1)": [lambda f: f.bad("Split", f.input(4), f.ints(4, 1), outputs=2)],
    "it splits 2 elements into 4 parts of (1, 1, 1, -1)": [lambda f: f.bad("Split", f.input(2), outputs=4)],
    "it slices from (0,) to (1, 2) by (1,) along (0,)": [lambda f: f.bad("Slice", f.input(4), f.ints(0), f.ints(1, 2))],
    "by (0,) along (0,)": [lambda f: f.bad("Slice", f.input(4), f.ints(0), f.ints(1), f.ints(0), f.ints(0))],
    "its mode is 'mirror'": [lambda f: _pads(f, 0, 0, 1, 1, mode="mirror")],
    "it has pads (1,) for 2 dimensions": [lambda f: _pads(f, 1)],
    "its constant_value has the shape (2,)": [
        lambda f: f.bad("Pad", f.input(2), f.ints(1, 1), f.constant([0, 1], "float32"))
    ],
    "over 2 GiB": [lambda f: _pads(f, 0, 0, 2**40, 0), lambda f: f.bad("Pad", f.input(2), f.ints(2**31, 2**31))],
    # Quantisation.
    "its scales have the shape (), its data (2, 3), in blocks of 2": [lambda f: _quantised(f, block_size=2)],
    "its scales are float64, not float32": [lambda f: _quantised(f, scale_dtype="float64")],
    "its scales have the shape (2,), its zero points ()": [lambda f: _quantised(f, [0.5, 0.5])],
    "its scales have the shape (1, 2), its zero points (1, 2)": [lambda f: _quantised(f, [[0.5, 0.5]], [[0, 0]])],
    "a scale is not a positive finite number": [
        lambda f, scale=scale: _quantised(f, scale) for scale in (0.0, -1.0, np.inf, np.nan)
    ],
    "its zero points are int8 of shape (1, 1)": [lambda f: _quantised(f, zero=[[0]])],
    "it quantises to float32; int8, uint8, int16 and uint16 are supported": [
        lambda f: _quantised(f, zero=0.0, dtype="float32")
    ],
    "2 scales and 2 zero points for the 3 elements of axis 1": [lambda f: _quantised(f, [0.5, 0.5], [0, 0])],
    "there is no axis 3 in 2 dimensions": [lambda f: _quantised(f, [0.5, 0.5], [0, 0], axis=3)],
    "its output_dtype is uint8, its zero point int8": [lambda f: _quantised(f, output_dtype=2)],
    "it quantises to uint32; int8, uint8, int16 and uint16 are supported": [lambda f: _quantised(f, dtype="uint32")],
    "it dequantises to float64; float32 is supported": [lambda f: _dequantised(f, output_dtype=11)],
    "its zero points are float32 of shape ()": [lambda f: _dequantised(f, zero="float32")],
    "its data is int8, its zero point uint8": [lambda f: _dequantised(f, zero="uint8")],
    "it dequantises int64; int8, uint8, int16, uint16 and int32 are supported": [
        lambda f: _dequantised(f, "int64", "int64")
    ],
    "it takes float32, not float64": [
        lambda f: f.bad("QuantizeLinear", f.input(2, dtype="float64"), f.constant(0.5, "float32"))
    ],
    "its blocks have no dimensions": [lambda f: f.bad("Col2Im", f.input(1, 1, 1), f.ints(), f.ints())],
    "it needs the number inf, which int32 does not hold": [lambda f: f.bad("IsInf", f.input(2, dtype="int32"))],
    # What is computed at import.
    "its result has the impossible shape (-1,)": [lambda f: f.bad("ConstantOfShape", f.ints(-1))],
    "its result has the impossible shape (1, 1, ": [lambda f: f.bad("ConstantOfShape", f.ints(*[1] * 40))],
    "it makes a constant of shape (1099511627776,), which is too large": [
        lambda f: f.bad("ConstantOfShape", f.ints(2**40)),
        lambda f: f.bad("Expand", f.ints(1), f.ints(2**40)),
        lambda f: f.bad("Range", *(f.constant(v, "int64") for v in (0, 2**40, 1))),
    ],
    "it makes a constant of shape (0, 4611686018427387904, 8), which is too large": [
        lambda f: f.bad("ConstantOfShape", f.ints(0, 2**62, 8))
    ],
    "it makes a constant of shape (0, 1073741824), which is too large": [
        lambda f: f.bad("Concat", *[f.b.node("ConstantOfShape", f.ints(0, 2**28))] * 4, axis=1)
    ],
    "it repeats 2 values, not one": [
        lambda f: f.bad("ConstantOfShape", f.ints(2), value=numpy_helper.from_array(np.zeros(2)))
    ],
    "its value is neither a dense tensor nor numbers": [lambda f: f.bad("Constant", value_string="x")],
    "it takes three numbers, the last not 0": [lambda f: f.bad("Range", *(f.constant(v, "int64") for v in (0, 2, 0)))],
    "its result has nan elements": [lambda f: f.bad("Range", *(f.constant(v, "float32") for v in (0, np.nan, 1)))],
    "its indices leave the 2 elements of axis 0": [
        lambda f: f.bad("Gather", f.ints(1, 2), f.ints(2)),
        lambda f: f.bad("Gather", f.ints(1, 2), f.constant([0.0])),
    ],
    "it takes tensors of one dtype and rank, at least one": [
        lambda f: f.bad("Concat", f.ints(1), f.constant([[1]], "int64"), axis=0)
    ],
    "the shapes differ elsewhere than along axis 0": [
        lambda f: f.bad("Concat", f.constant([[1]]), f.constant([[1, 2]]), axis=0),
        lambda f: f.bad("Concat", f.input(1, 1), f.input(1, 2), axis=0),
    ],
    "its perm (0, 0) is not a permutation of 2 dimensions": [
        lambda f: f.bad("Transpose", f.constant([[1]]), perm=[0, 0])
    ],
    "axes (0, 0) are not a permutation of 2 dimensions": [lambda f: f.bad("Transpose", f.input(1, 2), perm=[0, 0])],
    "it takes float tensors, not int64": [lambda f: f.bad("Sqrt", f.ints(4)), lambda f: f.bad("Sqrt", f.ints())],
    "it takes numbers, not bool": [lambda f: f.bad("Pow", f.constant([True]), f.ints(2))],
    "it takes no bool": [lambda f: f.bad("ReduceProd", f.constant([True]))],
    "it takes matrices and one diagonal, not (2,) and (0,)": [lambda f: f.bad("Trilu", f.ints(1, 2))],
    "it takes matrices and one diagonal, not (1, 1) and (0, 0)": [
        lambda f: f.bad("Trilu", f.constant([[1]]), f.ints(0, 0))
    ],
    "its condition is int64, not bool": [lambda f: f.bad("Where", f.ints(1), f.ints(1), f.ints(1))],
    "its attribute 'value' has 3 bytes, its shape (1,) 4": [
        lambda f: f.bad("Constant", value=onnx.TensorProto(data_type=1, dims=[1], raw_data=b"abc"))
    ],
}


@pytest.mark.parametrize(("message", "number"), [(m, i) for m, builds in FAULTS.items() for i in range(len(builds))])
def test_a_layer_at_fault(message: str, number: int) -> None:
    """The message names the layer and its operator."""
    f = Faulty()
    output = FAULTS[message][number](f)
    model = f.b.model(output)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    first, *lines = refused(model.SerializeToString()).what.splitlines()
    assert first == "the model has an operator that cannot be imported:"
    op = next(node for node in f.b.nodes if node.name == "bad").op_type
    assert len(lines) == 1 and lines[0].startswith("  'bad' (") and f"{op}, opset " in lines[0]
    assert message in lines[0]


def test_every_operator_knows_its_attributes() -> None:
    b = OnnxBuilder(23)
    ops = sorted({*CONVERTERS, *FOLDERS})
    model = b.model(*(b.node(op, name=f"n{op}", nonesuch=1) for op in ops))
    lines = refused(model.SerializeToString()).what.splitlines()[1:]
    assert len(lines) == len(ops) > 80
    for line, op in zip(lines, ops, strict=True):
        assert line.startswith(f"  'n{op}' ({op}, opset 23): it has no attribute 'nonesuch' in this opset (")


def test_an_onnx_that_is_older_than_the_model_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: 22)
    b = OnnxBuilder(23)
    fault = refused(b.model(b.node("Relu", b.input("x", [2]), new=1)).SerializeToString())
    assert "the package 'onnx' that is installed knows opsets to 22: update it" in fault.what


def test_computed_constants_have_a_budget() -> None:
    b = OnnxBuilder()
    parts = [b.node("ConstantOfShape", b.constant([1 << 24, i], "int64")) for i in (1, 2)]
    assert "with it, the constants that are computed at import exceed 256 MiB" in str(refused(b.build(*parts)))


def test_parts_were_equal_before_opset_18() -> None:
    b = OnnxBuilder(13)
    parts = b.node("Split", b.input("x", [5]), outputs=2)
    assert "it splits 5 elements into 2 equal parts" in refused(b.model(*parts).SerializeToString()).what


def test_what_depends_on_a_fault_is_not_blamed() -> None:
    b = OnnxBuilder()
    bad = b.node("Unique", b.input("x", [2]), name="one")
    y = b.node("Optional", b.node("Relu", bad, name="innocent"), name="two")
    assert refused(b.model(y).SerializeToString()).what.splitlines() == [
        "the model has 2 operators that cannot be imported:",
        "  'one' (Unique, opset 17): this operator is not supported",
        "  'two' (Optional, opset 17): this operator is not supported",
    ]


def test_what_is_known_of_a_fault_is_not_blamed() -> None:
    """The product of extents is computed at import, when these are known."""
    b = OnnxBuilder()
    shape = b.node("Shape", b.node("Unique", b.input("x", [2]), name="one"))
    data = b.build(b.node("ReduceProd", b.node("Cast", shape, to=1), name="innocent"))
    assert len(refused(data).what.splitlines()) == 2


def broken(change: Callable[[onnx.ModelProto], object]) -> bytes:
    """A model, correct but for ``change``."""
    b = OnnxBuilder()
    y = b.node("Add", b.input("x", [2, 3]), b.constant(np.ones((2, 3)), "float32", name="c"), name="sum")
    model = b.model(b.node("Relu", y, name="last"))
    change(model)
    return model.SerializeToString()


def _tensor(**fields: Any) -> Callable[[onnx.ModelProto], object]:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].CopyFrom(onnx.TensorProto(name="c", **fields))

    return change


def _external(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL


def _segment(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].segment.begin = 0


def _cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = model.graph.node[1].output[0]


BROKEN: dict[str, Callable[[onnx.ModelProto], object]] = {
    "this is not a model file of a format that can be read": lambda m: m.ClearField("graph"),
    "the model names no version of the operator set 'ai.onnx'": lambda m: setattr(m.opset_import[0], "domain", "other"),
    "the model uses opset 5: versions 6 to 28 are supported": lambda m: setattr(m.opset_import[0], "version", 5),
    "the model uses opset 29: versions 6 to 28 are supported": lambda m: setattr(m.opset_import[0], "version", 29),
    "the model names two versions of the operator set 'ai.onnx'": lambda m: m.opset_import.append(
        helper.make_opsetid("ai.onnx", 18)
    ),
    "two initialisers are called 'c'": lambda m: m.graph.initializer.append(m.graph.initializer[0]),
    "two inputs share a name": lambda m: m.graph.input.append(m.graph.input[0]),
    "the model has no outputs": lambda m: m.graph.ClearField("output"),
    "'y' is defined nowhere": lambda m: setattr(m.graph.output[0], "name", "y"),
    "'d' is defined nowhere": lambda m: m.graph.node[0].input.__setitem__(1, "d"),
    "'x' is defined twice": lambda m: m.graph.node[0].output.__setitem__(0, "x"),
    "the model has a cycle: a layer needs its own result": _cycle,
    "Relu has an attribute twice": lambda m: m.graph.node[1].attribute.extend([helper.make_attribute("a", 1)] * 2),
    "input 'x' has 99 dimensions": lambda m: m.graph.input[0].type.tensor_type.shape.dim.extend(
        [onnx.TensorShapeProto.Dimension(dim_value=1)] * 97
    ),
    "input 'x' is not a tensor": lambda m: m.graph.input[0].type.sequence_type.elem_type.tensor_type.SetInParent(),
    "input 'x' has elements of ONNX's type STRING": lambda m: setattr(
        m.graph.input[0].type.tensor_type, "elem_type", 8
    ),
    "'c' is stored in another file": _external,
    "'c' is stored in segments, which is not supported": _segment,
    "'c' has elements of ONNX's type FLOAT8E8M0": _tensor(data_type=24, dims=[1], raw_data=b"ab"),
    "'c' has 1 bytes, its shape (3,) 2": _tensor(data_type=22, dims=[3], raw_data=b"a"),
    "'c' has 3 elements, its shape (3,) 1": _tensor(data_type=25, dims=[3], int32_data=[1, 2, 3]),
    "'c' has elements that are not uint16": _tensor(data_type=16, dims=[1], int32_data=[1 << 16]),
    "'c' has the impossible shape (-1,)": _tensor(data_type=1, dims=[-1], raw_data=b""),
    "'c' has the impossible shape (4611686018427387904, 4)": _tensor(data_type=1, dims=[2**62, 4], raw_data=b""),
    "'c' has the impossible shape (0, 4611686018427387904, 8)": _tensor(data_type=1, dims=[0, 2**62, 8], raw_data=b""),
    "'c' has the impossible shape (1, 1, ": _tensor(data_type=1, dims=[1] * 40, raw_data=b"abcd"),
    "'c' has 3 bytes, its shape (1,) 4": _tensor(data_type=1, dims=[1], raw_data=b"abc"),
    "'c' has 1 elements, its shape (2,) 2": _tensor(data_type=1, dims=[2], float_data=[1.0]),
    "'c' has elements that are not int8": _tensor(data_type=3, dims=[1], int32_data=[128]),
    "has an extent that is not a positive integer": _tensor(data_type=1, dims=[0], raw_data=b""),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_file(message: str) -> None:
    error = refused(broken(BROKEN[message]))
    assert message in str(error)


def test_an_empty_output() -> None:
    b = OnnxBuilder()
    error = refused(b.build(b.constant(np.zeros((0, 3)), "float32")))
    assert error.where == "output 'c0'" and "not a positive integer" in error.what


@pytest.mark.parametrize("data", [b"\x00", b"not a model", b"\x08\x08", b"\x0a" * 400])
def test_no_model_at_all(data: bytes) -> None:
    assert refused(data).hint == "ONNX (.onnx) and TFLite (.tflite) can be read"


def test_names_that_are_no_text() -> None:
    """Bytes that are not UTF-8 are names like others."""
    b = OnnxBuilder()
    y = b.node("Tanh", b.node("Relu", b.input("input??", [2]), outputs=["inner??"], name="layer??"))
    model = import_model(b.build(y).replace(b"??", b"\xff\xfe"))
    call = next(e for e in post_order(model.module.main.body) if isinstance(e, Call))
    assert model.module.spans[call] == ("layer\\xff\\xfe",)
    assert model.module.signature is not None and model.module.signature.inputs[0].name == "input\\xff\\xfe"


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broken.onnx"
    file.write_bytes(broken(_cycle))
    with pytest.raises(ModelError) as caught:
        import_model(file)
    assert caught.value.where == f"{file}: last"


def test_deeply_nested_files_do_not_recurse() -> None:
    """A graph in an attribute in a graph in an attribute, and a chain of 20,000 nodes."""
    inner = b""
    for _ in range(5000):
        # AttributeProto.g = 6, NodeProto.attribute = 5, GraphProto.node = 1
        for tag in (0x32, 0x2A, 0x0A):
            size = len(inner)
            length = b""
            while size >= 128:
                length, size = length + bytes([size % 128 + 128]), size // 128
            inner = bytes([tag]) + length + bytes([size]) + inner
    refused(bytes([0x3A]) + inner)
