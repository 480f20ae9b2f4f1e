"""ONNX files of which extents stay open: what they compute of shapes stays a shape, and right at every extent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.errors import ModelError, UsageError
from uma.frontends import import_model
from uma.relay import parse_module, print_module
from uma.relay.dimension_binding import bind_dimensions
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

LARGEST = 7

Build = Callable[[OnnxBuilder, str], Any]


def extent(b: OnnxBuilder, x: str, axis: int) -> str:
    return str(b.node("Unsqueeze", b.node("Gather", b.node("Shape", x), b.constant(axis, "int64")), ints(b, 0)))


def ints(b: OnnxBuilder, *values: int) -> str:
    return b.constant(values, "int64")


def file_of(build: Build, dims: tuple[int | str | None, ...] = (1, "steps", 6), dtype: str = "float32") -> bytes:
    b = OnnxBuilder(17)
    made = build(b, b.input("x", dims, dtype))
    return b.model(*([made] if isinstance(made, str) else made)).SerializeToString()


def check(build: Build) -> None:
    data = file_of(build)
    module = import_model(data, shapes={"steps": f"1..{LARGEST}"}).module
    canonical = canonicalise(module)
    assert [param.name for param in module.main.params] == ["x", "steps"]
    assert parse_module(*print_module(module)) == module
    assert parse_module(*print_module(canonical)) == canonical
    for steps in (1, 2, LARGEST):
        x = np.random.default_rng(steps).standard_normal((1, steps, 6)).astype(np.float32)
        expected = run_onnxruntime(data, {"x": x})
        for form in (module, canonical):
            got = evaluate(bind_dimensions(form, {"steps": steps}), {"x": x, "steps": np.array([steps], np.int32)})
            for ours, theirs in zip(got, expected, strict=True):
                assert ours.dtype == theirs.dtype
                assert ours.shape == theirs.shape
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def reshaped(b: OnnxBuilder, x: str) -> str:
    shape = b.node("Concat", ints(b, 1), extent(b, x, 1), ints(b, 2), ints(b, 3), axis=0)
    return str(b.node("Transpose", b.node("Reshape", x, shape), perm=[0, 2, 1, 3]))


def places(b: OnnxBuilder, x: str) -> str:
    steps = b.node("Gather", b.node("Shape", x), b.constant(1, "int64"))
    return str(b.node("Range", b.constant(0, "int64"), steps, b.constant(1, "int64")))


def table(b: OnnxBuilder, x: str) -> str:
    rows = b.node(
        "Slice", b.constant(np.arange(60.0).reshape(10, 6), "float32"), ints(b, 0), extent(b, x, 1), ints(b, 0)
    )
    return str(b.node("Add", x, rows))


def causal(b: OnnxBuilder, x: str) -> str:
    at = places(b, x)
    rows = b.node("Unsqueeze", at, ints(b, 1))
    later = b.node("Greater", b.node("Unsqueeze", at, ints(b, 0)), rows)
    scores = b.node("MatMul", x, b.node("Transpose", x, perm=[0, 2, 1]))
    return str(b.node("Softmax", b.node("Where", later, b.constant(-1e9, "float32"), scores), axis=-1))


def expanded(b: OnnxBuilder, x: str) -> str:
    wanted = b.node("Concat", ints(b, -1), extent(b, x, 1), ints(b, 6), axis=0)
    one = np.array([1], np.int64)
    ones = b.node("ConstantOfShape", b.node("Shape", wanted), value=_tensor(one))
    shape = b.node("Where", b.node("Equal", wanted, ints(b, -1)), ones, wanted)
    return str(b.node("Expand", b.node("ReduceMean", x, axes=[1]), shape))


def filled(b: OnnxBuilder, x: str) -> str:
    shape = b.node("Concat", extent(b, x, 1), ints(b, 6), axis=0)
    return str(b.node("Add", x, b.node("ConstantOfShape", shape, value=_tensor(np.array([2.5], np.float32)))))


def counted(b: OnnxBuilder, x: str) -> str:
    """The extent as a number that data are divided by."""
    steps = b.node("Cast", b.node("Gather", b.node("Shape", x), b.constant(1, "int64")), to=1)
    return str(b.node("Div", b.node("ReduceSum", x, ints(b, 1)), steps))


def sized(b: OnnxBuilder, x: str) -> list[str]:
    """Shapes as results."""
    doubled = b.node("Mul", extent(b, x, 1), b.constant(2, "int64"))
    return [b.node("Shape", x), b.node("Add", doubled, b.constant(1, "int64")), b.node("Size", x)]


def halves(b: OnnxBuilder, x: str) -> str:
    whole = b.node("Concat", x, x, axis=1)
    steps = b.node("Div", b.node("Gather", b.node("Shape", whole), ints(b, 1)), ints(b, 2))
    return str(b.node("Slice", whole, steps, ints(b, 2**62), ints(b, 1)))


def inferred(b: OnnxBuilder, x: str) -> str:
    return str(b.node("Reshape", x, ints(b, 0, -1, 2, 3)))


def flattened(b: OnnxBuilder, x: str) -> str:
    return str(b.node("Reshape", x, ints(b, -1, 6)))


def pooled(b: OnnxBuilder, x: str) -> str:
    return str(b.node("Gather", x, b.constant(0, "int64"), axis=1))


def _tensor(value: np.ndarray) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(value)


@pytest.mark.parametrize(
    "build",
    [
        reshaped, places, table, causal, expanded, filled, counted, sized, halves, inferred, flattened, pooled,
    ],
)  # fmt: skip
def test_what_is_computed_of_shapes_is_right_at_every_extent(build: Build) -> None:
    check(build)


def test_an_extent_may_be_of_an_input_by_all_its_extents() -> None:
    data = file_of(reshaped, (1, None, 6))
    module = import_model(data, shapes={"x": (1, "2..5", 6)}).module
    assert str(module.main.params[0].type) == "Tensor[(1, x_1[2:5], 6), float32]"
    named = import_model(file_of(reshaped), shapes={"x": (1, "2..5", 6)}).module
    assert str(named.main.params[0].type) == "Tensor[(1, steps[2:5], 6), float32]"


def test_a_range_of_one_number_and_a_number_are_fixed() -> None:
    for shapes in ({"steps": 4}, {"steps": "4..4"}, {"steps": ("4",)}, {"x": (1, 4, 6)}):
        module = import_model(file_of(reshaped), shapes=shapes).module
        assert [str(param.type) for param in module.main.params] == ["Tensor[(1, 4, 6), float32]"]


def test_inputs_that_name_one_dimension_share_its_extent() -> None:
    b = OnnxBuilder(17)
    x, y = b.input("x", (1, "n t"), "float32"), b.input("y", ("n t", 1), "float32")
    data = b.model(b.node("MatMul", x, y)).SerializeToString()
    module = import_model(data, shapes={"n t": "1..9"}).module
    assert [str(p.type) for p in module.main.params][:2] == [
        "Tensor[(1, n_t[1:9]), float32]", "Tensor[(n_t[1:9], 1), float32]",
    ]  # fmt: skip
    assert module.signature is not None
    assert [info.name for info in module.signature.inputs] == ["x", "y", "n t"]


@pytest.mark.parametrize(
    ("shapes", "what"),
    [
        ({"steps": "0..0"}, "an extent is 1 at least"),
        ({"steps": "1.."}, "is not a shape"),
        ({"steps": "..4"}, "is not a shape"),
        ({"steps": "5..2"}, "it ends before it begins"),
        ({"steps": "1..99999999999"}, "over 2147483647"),
        ({"steps": True}, "is not a shape"),
        ({"steps": (1, 2)}, "is given 2 extents"),
        ({"step": "1..4"}, "a shape is given for 'step', which is not an input"),
        ({"steps": "1..4", "x": (1, "1..5", 6)}, "dimension 'steps' is given two extents"),
        ({"steps": "1..4", "x": (1, 3, 6)}, "dimension 'steps' is given two extents"),
        ({"x": (1, "1..5", "1..6")}, "does not fit input 'x'"),
    ],
)  # fmt: skip
def test_what_is_no_range_is_refused(shapes: Any, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        import_model(file_of(reshaped), shapes=shapes)
    assert what in caught.value.what


def test_a_bound_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        import_model(file_of(reshaped), shapes={"steps": "1..2000000000"})
    assert "over 2 GiB" in caught.value.what


def test_a_tflite_file_takes_no_range() -> None:
    with pytest.raises(UsageError) as caught:
        import_model(b"\x18\0\0\0TFL3", shapes={"x": (1, "1..4")})
    assert "for ONNX files only" in caught.value.what


def test_an_open_input_is_no_constant_and_no_state() -> None:
    data = file_of(lambda b, x: b.node("Relu", x))
    with pytest.raises(ModelError) as caught:
        import_model(data, shapes={"steps": "1..4"}, constants={"x": 0.5})
    assert "it is a constant, and its shape is open" in caught.value.what
    with pytest.raises(UsageError) as refused:
        import_model(data, shapes={"steps": "1..4"}, states={"x": "Relu_0"})
    assert "open extents" in refused.value.what


def merged(b: OnnxBuilder, x: str) -> str:
    return str(b.node("Reshape", b.node("Transpose", x, perm=[2, 1, 0]), ints(b, -1), name="merge"))


def picked(b: OnnxBuilder, x: str) -> str:
    return str(b.node("Range", b.constant(0, "int64"), extent(b, x, 1), b.constant(2, "int64"), name="even"))


def beyond(b: OnnxBuilder, x: str) -> str:
    return str(b.node("Slice", x, ints(b, 3), ints(b, 9), ints(b, 1), name="rest"))


def twice(b: OnnxBuilder, x: str) -> str:
    value = _tensor(np.array([1, 2], np.float32))
    return str(b.node("ConstantOfShape", extent(b, x, 1), value=value, name="fill"))


def several(b: OnnxBuilder, x: str) -> str:
    return str(b.node("Range", ints(b, 0, 1), extent(b, x, 1), ints(b, 1), name="count"))


def stepped(b: OnnxBuilder, x: str) -> str:
    return str(b.node("Slice", x, ints(b, 0), ints(b, 9), ints(b, 1), ints(b, 2), name="rest"))


def turned(b: OnnxBuilder, x: str) -> str:
    return str(b.node("ReverseSequence", x, ints(b, 1), name="turn", batch_axis=0, time_axis=1))


def recurrent(b: OnnxBuilder, x: str) -> str:
    """As many steps as a run says, in both directions."""
    weights = [b.constant(np.full(shape, 0.25), "float32") for shape in ((2, 4, 6), (2, 4, 1))]
    given = b.node("Transpose", x, perm=[1, 0, 2])
    return str(b.node("LSTM", given, *weights, name="cell", hidden_size=1, direction="bidirectional"))


def test_the_number_of_steps_of_a_recurrent_layer_is_open() -> None:
    check(recurrent)


def backwards(b: OnnxBuilder, x: str) -> str:
    """A quotient below 0, which is computed at run time."""
    less = b.node("Sub", ints(b, 0), extent(b, x, 1))
    return str(b.node("Mul", b.node("Div", less, ints(b, 1)), ints(b, 2)))


def test_a_quotient_that_is_no_extent_is_computed() -> None:
    check(backwards)


REFUSED = (
    (merged, "merge"),
    (picked, "even"),
    (beyond, "rest"),
    (twice, "fill"),
    (several, "count"),
    (stepped, "rest"),
    (turned, "turn"),
)


@pytest.mark.parametrize(("build", "layer"), REFUSED)
def test_what_no_open_extent_can_be_is_refused_by_its_layer(build: Build, layer: str) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(file_of(build), shapes={"steps": f"1..{LARGEST}"})
    assert repr(layer) in caught.value.what
