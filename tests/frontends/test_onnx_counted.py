"""Results of ONNX's operators that are as long as the data says, and what follows them, as onnxruntime has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

import uma
from uma.errors import ModelError
from uma.frontends import import_model
from uma.frontends.onnx.computed_dimensions import Counts
from uma.relay import TensorType, Var, call, parse_module, print_module
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise
from uma.tir.form.symbolic_dims import OpenExtentError

Feeds = dict[str, np.ndarray]


def ints(b: OnnxBuilder, *values: int) -> str:
    return str(b.constant(values, "int64"))


def agree(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def check(b: OnnxBuilder, outputs: Sequence[str], feeds: Sequence[Feeds]) -> None:
    """References and the loops that are compiled from them give what onnxruntime gives."""
    data = b.model(*outputs).SerializeToString()
    module = import_model(data).module
    canonical = canonicalise(module)
    assert parse_module(*print_module(canonical)) == canonical
    artifact = uma.build(module, "c")
    for given in feeds:
        expected = run_onnxruntime(data, given)
        agree(evaluate(module, given)[: len(outputs)], expected)
        agree(evaluate(canonical, given)[: len(outputs)], expected)
        agree(list(artifact.run(given).values()), expected)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


# --- a detector's end ------------------------------------------------------------------------------------------------


def detector(b: OnnxBuilder, boxes: int, classes: int) -> list[str]:
    """A head as SSD's: one convolution for boxes, one for scores, then what is left of them, gathered."""
    rng, side = np.random.default_rng(1), 4
    x = b.input("x", [1, 3, side, side])
    each = boxes // side**2

    def head(width: int) -> str:
        weight = b.constant((0.2 * rng.standard_normal((each * width, 3, 3, 3))).astype(np.float32))
        made = b.node("Conv", x, weight, pads=[1, 1, 1, 1])
        turned = b.node("Transpose", made, perm=[0, 2, 3, 1])
        return str(b.node("Sigmoid", b.node("Reshape", turned, ints(b, 1, boxes, width))))

    corners, scores = head(4), b.node("Transpose", head(classes), perm=[0, 2, 1])
    limits = b.constant([0.4], "float32"), b.constant([0.6], "float32")
    found = b.node("NonMaxSuppression", corners, scores, ints(b, 6), *limits)
    box = b.node("Squeeze", b.node("Slice", found, ints(b, 2), ints(b, 3), ints(b, 1)), ints(b, 1))
    of_class = b.node("Slice", found, ints(b, 1), ints(b, 3), ints(b, 1))
    score = b.node("GatherND", b.node("Squeeze", scores, ints(b, 0)), of_class)
    taken = b.node("Gather", b.node("Squeeze", corners, ints(b, 0)), box, axis=0)
    kind = b.node("Cast", b.node("Gather", found, ints(b, 1), axis=1), to=1)
    rows = b.node("Concat", taken, b.node("Unsqueeze", score, ints(b, 1)), kind, axis=1)
    weight = b.constant(rng.standard_normal((6, 2)).astype(np.float32))
    ones = b.node("ConstantOfShape", b.node("Shape", score))
    numbers = b.node("Range", b.constant(0, "int64"), b.node("Squeeze", b.node("Shape", score)), b.constant(1, "int64"))
    return [
        rows,
        b.node("Unsqueeze", rows, ints(b, 0)),
        b.node("Transpose", rows, perm=[1, 0]),
        b.node("Reshape", rows, ints(b, -1, 2, 3)),
        b.node("Softmax", rows, axis=1),
        b.node("MatMul", rows, weight),
        b.node("ReduceSum", rows, ints(b, 0), keepdims=0),
        b.node("Shape", rows),
        b.node("Add", ones, score),
        numbers,
    ]


def test_a_small_detector_is_as_in_onnxruntime() -> None:
    b = OnnxBuilder()
    outputs = detector(b, 32, 3)
    check(b, outputs, [{"x": random(1, 3, 4, 4, seed=seed) * scale} for seed, scale in ((0, 2), (1, 1), (2, -3))])


def test_layers_are_verified_where_nothing_is_found(tmp_path: Path) -> None:
    b = OnnxBuilder()
    places = b.node("NonZero", b.input("x", [2, 3]))
    path = tmp_path / "found.onnx"
    path.write_bytes(b.model(b.node("Neg", places), b.node("Shape", places)).SerializeToString())
    found = uma.verify(path, "c", {"x": np.zeros((2, 3), np.float32)})
    assert found.ok and len(found.kernels) > 2 and "sample 0" in found.samples


def suppressed(
    b: OnnxBuilder, shape: tuple[int, int, int], parameters: Sequence[Any], center: int = 0, fed: bool = False
) -> str:
    batch, classes, boxes = shape
    args = [b.input("boxes", [batch, boxes, 4]), b.input("scores", [batch, classes, boxes])]
    for name, value in zip(("most", "overlap", "score"), parameters, strict=False):
        dtype = "int64" if name == "most" else "float32"
        args.append("" if value is None else b.input(name, [1], dtype) if fed else b.constant([value], dtype))
    return str(b.node("NonMaxSuppression", *args, center_point_box=center))


@pytest.mark.parametrize(
    ("shape", "parameters", "center", "fed"),
    [
        ((1, 1, 8), (3, 0.5, 0.0), 0, False),
        ((2, 3, 12), (12, 0.3, 0.4), 0, True),
        ((1, 2, 10), (4, 0.5), 1, False),
        ((1, 1, 9), (30, None, 2.0), 1, False),
    ],
)
def test_boxes_are_as_in_onnxruntime(
    shape: tuple[int, int, int], parameters: tuple[Any, ...], center: int, fed: bool
) -> None:
    b = OnnxBuilder()
    made = suppressed(b, shape, parameters, center, fed)
    batch, classes, boxes = shape
    feeds = []
    for seed in range(4):
        # Of few different scores some are equal.
        feed = {
            "boxes": random(batch, boxes, 4, seed=seed),
            "scores": np.round(random(batch, classes, boxes, seed=seed), 1),
        }
        if fed:
            names = ("most", "int64"), ("overlap", "float32"), ("score", "float32")
            values = [(seed * 3, 0.3, 0.4), parameters][seed == 3]
            feed |= {name: np.array([value], dtype) for (name, dtype), value in zip(names, values, strict=True)}
        feeds.append(feed)
    check(b, [made], feeds)


def test_no_boxes_are_asked_for() -> None:
    b = OnnxBuilder()
    made = suppressed(b, (1, 1, 4), (0,))
    assert "has an extent that is not a positive integer" in import_fault(b, made)


def import_fault(b: OnnxBuilder, *outputs: str) -> str:
    with pytest.raises(ModelError) as refused:
        import_model(b.model(*outputs).SerializeToString())
    return str(refused.value.what)


# --- what is not zero ------------------------------------------------------------------------------------------------


def test_what_is_not_zero_and_what_is_not_of_that() -> None:
    b = OnnxBuilder()
    x = b.input("x", [4, 5])
    places = b.node("NonZero", b.node("Greater", x, b.constant(0, "float32")))
    some = b.node("GatherND", x, b.node("Transpose", places, perm=[1, 0]))
    again = b.node("NonZero", b.node("Greater", some, b.constant(0.5, "float32")))
    outputs = [places, some, b.node("Gather", some, b.node("Squeeze", again, ints(b, 0))), b.node("Shape", again)]
    feeds = [{"x": random(4, 5) * scale + offset} for scale, offset in ((1, -0.5), (1, -2), (0.1, 0.1), (0.1, 2))]
    check(b, outputs, feeds)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_a_condition_of_a_run_compresses(axis: int | None) -> None:
    b = OnnxBuilder()
    count = {None: 10, 0: 3, 1: 4}[axis]
    given = b.input("x", [3, 4]), b.input("take", [count], "bool")
    made = b.node("Compress", *given, **({} if axis is None else {"axis": axis}))
    takes = np.zeros(count, bool), np.ones(count, bool), np.arange(count) % 2 > 0
    check(b, [made], [{"x": random(3, 4), "take": take} for take in takes])


def test_a_scalar_and_what_is_known() -> None:
    b = OnnxBuilder()
    known = b.node("NonZero", b.constant([[1, 0], [0, 2]], "int64"))
    data = b.model(b.node("NonZero", b.input("x", [])), known).SerializeToString()
    module = import_model(data).module
    for value in (0, 1):
        given = {"x": np.array(value, np.float32)}
        agree(evaluate(module, given)[:2], run_onnxruntime(data, given))


def test_open_inputs_and_a_name_that_is_taken() -> None:
    b = OnnxBuilder()
    places = b.node("NonZero", b.input("x", ["rows", 3]), name="y")
    data = b.model(places, b.node("Shape", b.input(f"{places}_count", [2]))).SerializeToString()
    artifact = uma.build(import_model(data, shapes={"rows": "1..4"}).module, "c")
    for rows in (1, 3, 4):
        given = {"x": np.floor(random(rows, 3, seed=rows) * 2), f"{places}_count": np.zeros(2, np.float32)}
        agree(list(artifact.run(given).values()), run_onnxruntime(data, given))
    assert [row.holds for row in artifact.record.outputs] == [None, None, f"{places}_count_3"]


# --- what is refused -------------------------------------------------------------------------------------------------


def places_of(b: OnnxBuilder, width: int = 6) -> str:
    return str(b.node("Squeeze", b.node("NonZero", b.input("x", [width])), ints(b, 0)))


REFUSED: dict[str, Callable[[OnnxBuilder], str]] = {
    "it needs one of": lambda b: b.node("ReduceMax", places_of(b), name="last"),
    "is more than 0 depends on the extent": lambda b: b.node("Gather", places_of(b), ints(b, 0), name="last"),
    "is less than 2 depends on the extent": lambda b: b.node("Slice", places_of(b), ints(b, 0), ints(b, 2)),
    "is less than 1 depends on the extent": lambda b: b.node(
        "Expand", b.input("y", [1]), b.node("Shape", places_of(b)), name="last"
    ),
    "elements are needed where the extent is computed": lambda b: b.node(
        "ConstantOfShape", b.node("Mul", b.node("Shape", places_of(b)), ints(b, 2))
    ),
    "its iou_threshold is 2": lambda b: suppressed(b, (1, 1, 4), (3, 2.0)),
    "its center_point_box is 3": lambda b: suppressed(b, (1, 1, 4), (3,), 3),
    "do not fit scores": lambda b: b.node(
        "NonMaxSuppression", b.input("b", [1, 4, 4]), b.input("s", [1, 1, 5]), ints(b, 2)
    ),
    "its boxes are of shape (4, 4)": lambda b: b.node(
        "NonMaxSuppression", b.input("b", [4, 4]), b.input("s", [1, 1, 4]), ints(b, 2)
    ),
    "has 2 elements, not one": lambda b: b.node(
        "NonMaxSuppression", b.input("b", [1, 4, 4]), b.input("s", [1, 1, 4]), ints(b, 2, 3)
    ),
    "not one number of int64": lambda b: b.node(
        "NonMaxSuppression", b.input("b", [1, 4, 4]), b.input("s", [1, 1, 4]), b.input("m", [2], "int64")
    ),
    "its condition is float32": lambda b: b.node("Compress", b.input("x", [3]), b.input("y", [3])),
    "its condition has 4 elements": lambda b: b.node("Compress", b.input("x", [3]), b.input("y", [4], "bool")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_such_extent_is_refused(what: str) -> None:
    b = OnnxBuilder()
    assert what in import_fault(b, REFUSED[what](b))


def test_what_is_as_long_as_what_is_not_there_is_refused() -> None:
    counts = Counts(())
    count = Var("count", TensorType((1,), "int32"))
    extent = counts.extent(count, 0, 4, "y")
    assert counts.extent(count, 0, 4, "z") is not None
    made = call("broadcast_to", Var("x", TensorType((), "float32")), shape=(extent,))
    counts.require_founded([counts.cut(Var("y", TensorType((4,), "float32")), 0, extent)])
    with pytest.raises(OpenExtentError, match="and nothing that it is made of has"):
        counts.require_founded([made])


def test_nothing_as_long_as_the_data_says_leaves_a_loop() -> None:
    b = OnnxBuilder()
    x = b.input("x", [3])
    inner = onnx.helper.make_graph(
        [
            onnx.helper.make_node("NonZero", ["x"], ["places"]),
            onnx.helper.make_node("ReduceSum", ["places"], ["sum"], keepdims=0),
        ],
        "then",
        [],
        [onnx.helper.make_tensor_value_info("sum", onnx.TensorProto.INT64, [])],
    )
    made = b.node("If", b.input("c", [], "bool"), then_branch=inner, else_branch=inner)
    assert "how long its result is depends on data, within a branch or a loop" in import_fault(b, made), x


def test_the_batch_of_boxes_is_fixed() -> None:
    b = OnnxBuilder()
    made = b.node("NonMaxSuppression", b.input("b", ["n", 4, 4]), b.input("s", ["n", 1, 4]), ints(b, 2))
    with pytest.raises(ModelError) as refused:
        import_model(b.model(made).SerializeToString(), shapes={"n": "1..3"})
    assert "the batch and the classes" in refused.value.what
