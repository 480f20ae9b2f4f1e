"""Parameters that a model is fed at run time: what they can be is in the shape that the file declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

import uma
from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

F = np.float32
DATA = np.random.default_rng(0).standard_normal((3, 2, 2)).astype(F)


@dataclass
class Fed:
    """An operator, values for all of its inputs (None for one that is left out), which of them are constants."""

    op: str
    values: list[Any]
    shapes: list[tuple[int, ...] | None]
    constants: tuple[int, ...] = ()
    opset: int = 18
    attrs: dict[str, Any] = field(default_factory=dict)

    def model(self) -> bytes:
        b = OnnxBuilder(self.opset)
        names = []
        for number, value in enumerate(self.values):
            if value is None:
                names.append("")
            elif number in self.constants:
                names.append(b.constant(value))
            else:
                names.append(b.input(f"x{number}", value.shape, value.dtype.name))
        outputs = [f"y{i}" for i in range(len(self.shapes))]
        b.node(self.op, *names, outputs=outputs, **self.attrs)
        model = onnx.shape_inference.infer_shapes(b.model(*outputs))
        for value, shape in zip(model.graph.output, self.shapes, strict=True):
            declared = helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape)
            value.CopyFrom(declared)
        return model.SerializeToString()

    @property
    def fed(self) -> dict[str, np.ndarray]:
        given = enumerate(self.values)
        return {f"x{i}": value for i, value in given if value is not None and i not in self.constants}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES = {
    "Reshape": Fed("Reshape", [DATA, ints(4, -1)], [(4, 3)]),
    "Expand": Fed("Expand", [DATA[:, :1], ints(3, 4, 1)], [(3, 4, 2)]),
    "Squeeze": Fed("Squeeze", [DATA[:1, :, :1], ints(-1)], [(1, 2)]),
    "Unsqueeze": Fed("Unsqueeze", [DATA, ints(-1, 0)], [(1, 3, 2, 2, 1)]),
    "Tile": Fed("Tile", [DATA, ints(1, 3, 2)], [(3, 6, 4)]),
    "Split": Fed("Split", [DATA, ints(1, 2)], [(1, 2, 2), (2, 2, 2)]),
    "Resize": Fed("Resize", [DATA[None], None, None, ints(1, 3, 4, 5)], [(1, 3, 4, 5)], attrs={"mode": "nearest"}),
    "one sum fits": Fed("ReduceSum", [DATA, ints(0)], [(1, 2, 2)]),
    "two sums fit": Fed("ReduceSum", [DATA, ints(1)], [(3, 2)], attrs={"keepdims": 0}),
    "two sums fit, the last is asked for": Fed("ReduceSum", [DATA, ints(-1)], [(3, 2)], attrs={"keepdims": 0}),
    "pairs of axes in any order": Fed("ReduceMax", [DATA, ints(-1, 0)], [(2,)], attrs={"keepdims": 0}),
    "another pair of axes": Fed("ReduceMax", [DATA, ints(0, 1)], [(2,)], attrs={"keepdims": 0}),
    "ConstantOfShape": Fed("ConstantOfShape", [ints(2, 3)], [(2, 3)]),
    "Range": Fed("Range", [np.array(3, np.int64), np.array(-4, np.int64), np.array(-2, np.int64)], [(4,)]),
    "Range of floats": Fed("Range", [np.array(1, F), np.array(2, F), np.array(0.25, F)], [(4,)]),
    "Slice": Fed("Slice", [DATA, ints(1), ints(3)], [(2, 2, 2)]),
    "Slice backwards": Fed("Slice", [DATA, ints(-1, 9), ints(-9, -9), ints(2, 0), ints(-1, -2)], [(2, 2, 2)]),
    "Slice with known steps": Fed("Slice", [DATA, ints(-3), ints(9), ints(0), ints(2)], [(2, 2, 2)], (3, 4)),
    "Slice of int32": Fed("Slice", [DATA, ints(1).astype(np.int32), ints(2).astype(np.int32)], [(1, 2, 2)]),
    "Pad": Fed("Pad", [DATA, ints(1, 0, 2, 0, 1, 0), np.array(7, F)], [(4, 3, 4)]),
    "Pad by zeros": Fed("Pad", [DATA, ints(0, 0, 1, 0, 0, 1)], [(3, 2, 4)]),
    "Pad that crops": Fed("Pad", [DATA, ints(-1, 0, 1, 0, 0, 0)], [(2, 2, 3)]),
    "Pad at axes": Fed("Pad", [DATA, ints(1, 2, 0, 1), np.array(7, F), ints(-1, 0)], [(6, 2, 3)]),
    "Pad by edges": Fed("Pad", [DATA, ints(2, 0, 0, 1, 0, 0)], [(6, 2, 2)], attrs={"mode": "edge"}),
    "Pad by reflections": Fed("Pad", [DATA, ints(2, 0, 0, 1, 0, 1)], [(6, 2, 3)], attrs={"mode": "reflect"}),
    "Pad by wrapping": Fed("Pad", [DATA, ints(2, 0, 0, 1, 0, 1)], [(6, 2, 3)], opset=19, attrs={"mode": "wrap"}),
    "upper triangle": Fed("Trilu", [DATA, np.array(1, np.int64)], [(3, 2, 2)]),
    "lower triangle": Fed("Trilu", [DATA, np.array(-1, np.int64)], [(3, 2, 2)], attrs={"upper": 0}),
}


def test_results_are_those_of_onnxruntime() -> None:
    mains = {name: import_model(case.model()).module for name, case in CASES.items()}
    for name, case in CASES.items():
        results = evaluate(mains[name], case.fed)
        for ours, theirs in zip(results, run_onnxruntime(case.model(), case.fed), strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-6, 1e-6, err_msg=name, strict=True)


def test_what_is_compiled_takes_the_parameter() -> None:
    case = CASES["two sums fit"]
    with uma.build(import_model(case.model()).module, "c").session() as session:
        for axis in (1, 2, -1, -2):
            (found,) = session.run({"x0": DATA, "x1": ints(axis)}).values()
            np.testing.assert_allclose(found, DATA.sum(axis), 1e-6, 1e-6)


def test_an_intermediate_result_has_the_shape_of_what_is_computed_from_it() -> None:
    b = OnnxBuilder(18)
    b.node("Log", b.node("ReduceSum", b.input("x", [3, 2]), b.input("axes", [1], "int64")), outputs=["y"])
    model = b.model("y")
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 1]))
    (found,) = evaluate(import_model(model.SerializeToString()).module, {"x": DATA[:, 0] ** 2, "axes": ints(1)})
    np.testing.assert_allclose(found, np.log((DATA[:, 0] ** 2).sum(1, keepdims=True)), 1e-6)


def test_an_input_without_elements_is_known() -> None:
    b = OnnxBuilder(18)
    data = b.model(b.node("ReduceSum", b.input("x", [3, 2]), b.input("axes", [None], "int64"))).SerializeToString()
    model = import_model(data, shapes={"axes": (0,)})
    assert model.constants["axes"].shape == (0,)
    (found,) = evaluate(model.module, {"x": DATA[:, 0]})
    np.testing.assert_allclose(found, DATA[:, 0].sum(keepdims=True), 1e-6)


REFUSED = {
    "its input 'x1' is computed at run time, and the model does not say the shape of its result 0": Fed(
        "Reshape", [DATA, ints(4, -1)], [None]
    ),
    "its input 'x1' is computed at run time, and none gives the shape that the model declares, (5,)": Fed(
        "ReduceSum", [DATA, ints(0)], [(5,)]
    ),
    "cannot become (5, 3)": Fed("Reshape", [DATA, ints(5, 3)], [(5, 3)]),
    "its data of shape (3, 2, 2) cannot become (2, 2)": Fed("Slice", [DATA, ints(1), ints(3)], [(2, 2)]),
    "its data of shape (3, 2, 2) cannot become (4,) by 6 pads": Fed("Pad", [DATA, ints(0, 0, 0, 0, 0, 0)], [(4,)]),
    "its mode is 'mirror'": Fed("Pad", [DATA, ints(0, 0, 0, 0, 0, 0)], [(3, 2, 2)], attrs={"mode": "mirror"}),
    "its result is declared to have 2 dimensions": Fed(
        "Range", [np.array(0, F), np.array(4, F), np.array(1, F)], [(2, 2)]
    ),
    "there is no axis 1 in 1 dimensions": Fed("Split", [DATA, ints(1, 1)], [(3,), (3,)], attrs={"axis": 1}),
    "there is no axis 4 in 4 dimensions": Fed(
        "Resize", [DATA[None], None, None, ints(1)], [(1, 3, 4, 5)], attrs={"axes": [4]}
    ),
    "it takes matrices, not (3,)": Fed("Trilu", [DATA[:, 0, 0], np.array(1, np.int64)], [(3,)]),
    "it repeats 2 values, not one": Fed(
        "ConstantOfShape", [ints(2)], [(2,)], attrs={"value": helper.make_tensor("v", 1, [2], [1.0, 2.0])}
    ),
    "and 65 values of it give the shape": Fed(
        "ReduceSum", [np.zeros((2,) * 9, F), ints(0, 1, 2)], [(2,) * 6], attrs={"keepdims": 0}
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    case = REFUSED[message]
    with pytest.raises(ModelError) as caught:
        import_model(case.model())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "case",
    [
        Fed("Col2Im", [DATA, ints(2), ints(1)], [(4,)]),
        Fed("Col2Im", [DATA[0, 0], ints(2), ints(1)], [(1, 1, 2)], constants=(1,)),
        Fed("STFT", [DATA[:, 0], np.array(1, np.int64), None, np.array(2, np.int64)], [(4,)], constants=(3,), opset=17),
        Fed("STFT", [DATA[0, 0], np.array(1, np.int64), None, np.array(2, np.int64)], [(1, 1, 2, 2)], opset=17),
    ],
)
def test_what_has_too_few_dimensions_to_try_parameters(case: Fed) -> None:
    b = OnnxBuilder(case.opset)
    names = [
        "" if value is None
        else b.constant(value) if number in case.constants
        else b.input(f"x{number}", value.shape, value.dtype.name)
        for number, value in enumerate(case.values)
    ]  # fmt: skip
    model = b.model(b.node(case.op, *names))
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, case.shapes[0]))
    with pytest.raises(ModelError, match="there is no axis 1 in 1 dimensions"):
        import_model(model.SerializeToString())
