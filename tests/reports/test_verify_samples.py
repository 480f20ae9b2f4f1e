"""What `uma verify` feeds a model: the ends of its ranges, whole data sets, labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import members_of, module_of, taking, toy
from tests._support.small_models import Uma
from tests._support.te_lowerings import lowered
from tests._support.tflite_builder import TFLiteBuilder

from uma.artifact import QuantizationRecord, TensorRecord
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import LoadedModel
from uma.relay import Function, Var, call
from uma.relay.text import print_module
from uma.relay.types import TensorType
from uma.runtime.tensors import random_array
from uma.verification.models import verify
from uma.verification.samples import SAMPLES, Sample, filled

ROW = TensorRecord("x", "x", (1, 4), "int8", QuantizationRecord(0.5, -3))
ROWS = {"w": TensorRecord("w", "w", (2, 3), "float32", None), "x": ROW}


@pytest.fixture
def uma(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    monkeypatch.chdir(tmp_path)
    x = Var("x", TensorType((2, 4), "float32"))
    (tmp_path / "m.py").write_text(print_module(module_of(call("nn.relu", x)))[0])
    lite = TFLiteBuilder()
    logits = lite.input((1, 4), name="x")
    y = lite.tensor((1, 4), name="y")
    lite.op("LOGISTIC", [logits], [y])
    (tmp_path / "m.tflite").write_bytes(lite.finish(y))
    return Uma(capsys)


class TestGenerated:
    def test_kinds(self) -> None:
        made = list(filled([], [ROW]))
        assert [sample.name for sample in made] == [
            *("random 0", "all lowest", "all highest", "zero points"),
            *("alternating", "ends at random", "random 6", "random 7"),
        ]
        values = [sample.inputs["x"].tolist() for sample in made]
        assert values[1:5] == [[[-128] * 4], [[127] * 4], [[-3] * 4], [[-128, 127, -128, 127]]]
        assert set(values[5][0]) <= {-128, 127}
        assert values[0] != values[6] != values[7] != values[0]
        np.testing.assert_array_equal(made[0].inputs["x"], random_array((1, 4), "int8", 0))

    @pytest.mark.parametrize(
        ("dtype", "ends"),
        [
            ("float32", (-1, 1)),
            ("uint8", (0, 255)),
            ("int16", (-(2**15), 2**15 - 1)),
            ("int64", (0, 255)),
            ("bool", (0, 1)),
        ],
    )
    def test_ends(self, dtype: str, ends: tuple[int, int]) -> None:
        made = list(filled([], [replace(ROW, dtype=dtype, quantization=None)]))
        assert tuple(sample.inputs["x"][0, 0].item() for sample in made[1:3]) == ends
        assert not made[3].inputs["x"].any()
        assert all(sample.inputs["x"].dtype == dtype for sample in made)

    def test_given_ones_come_first(self) -> None:
        given = [Sample("mine", {"w": np.zeros((2, 3), np.float32)})]
        made = list(filled(given, [*ROWS.values()], 3))
        assert [sample.name for sample in made] == ["mine", "all lowest", "all highest"]
        assert not made[0].inputs["w"].any() and made[0].inputs["x"].any()
        assert len(list(filled(given * 20, [*ROWS.values()]))) == 20
        assert len(list(filled(given * 20, [*ROWS.values()], 2))) == 2

    def test_a_model_without_inputs_is_run_once(self) -> None:
        assert len(list(filled([], []))) == 1


def clamped(function: Function) -> object:
    """What is lowered never gives more than 126."""
    limit = call("clip", function.body, a_min=-128.0, a_max=126.0)
    return lowered(Function(function.params, limit))


def test_a_relu_that_clamps_at_126_is_found() -> None:
    """One random sample agreed."""
    x = Var("x", TensorType((1, 4), "int8"))
    module = module_of(call("nn.relu", x))
    members = members_of(toy("npu", patterns=lambda: [taking("npu", "nn.relu", clamped)]))
    loaded = LoadedModel(module, "m")
    found = verify(loaded, build_loaded(loaded, members), members, list(filled([], [ROW])))
    [check] = found.kernels
    assert (check.sample, check.difference.got, check.difference.expected) == ("all highest", 126, 127)
    assert check.compared > SAMPLES and 1 <= check.differing < SAMPLES


class TestDataSets:
    def test_the_first_axis_is_longer(self, uma: Uma) -> None:
        for shape in ((20, 4), (10, 2, 4)):
            np.savez("set.npz", x=np.ones(shape, np.float32))
            record = uma("verify", "m.py", "--target", "c", "--inputs", "set.npz", "--json").json
            assert record["samples"] == [f"sample {number}" for number in range(10)]
            assert record["kernels"][0]["compared"] > 10 and record["accuracy"] == []
        done = uma("verify", "m.py", "--target", "c", "--inputs", "set.npz", "--samples", "3")
        assert "compared with their references over 3 samples: all agree" in done.out

    def test_labels(self, uma: Uma) -> None:
        scores = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
        labels = scores.argmax(axis=1)
        labels[:3] = (labels[:3] + 1) % 4
        np.savez("set.npz", x=scores, labels=labels)
        done = uma("verify", "m.tflite", "--target", "c", "--inputs", "set.npz")
        assert (done.code, done.err) == (0, "")
        assert "output y is right for 7 of 10 labels, 70.00%\n" in done.out
        np.savez("set.npz", **{"x": scores, "labels:y": labels})
        record = uma("verify", "m.tflite", "--target", "c", "--inputs", "set.npz", "--json").json
        assert record["accuracy"] == [{"output": "y", "correct": 7, "total": 10}]

    def test_several_rows_in_one_sample(self, uma: Uma) -> None:
        x = np.eye(4, dtype=np.float32)
        np.savez("set.npz", x=x, labels=np.array([[0, 1], [2, 0]]))
        record = uma("verify", "m.py", "--target", "c", "--inputs", "set.npz", "--json").json
        assert record["accuracy"] == [{"output": "output", "correct": 3, "total": 4}]

    @pytest.mark.parametrize(
        ("arrays", "said"),
        [
            ({"x": np.ones((3, 4), np.float32)}, "'x' has the shape [3, 4], and the model's input [2, 4]"),
            ({"x": np.ones((0, 4), np.float32)}, "give one sample, or several as [n, 2, 4], or [n * 2, 4]"),
            ({"x": np.ones((4, 4), np.float32), "labels": np.ones(3, int)}, "is int64[3], for 2 samples of 2 rows"),
            ({"x": np.ones((4, 4), np.float32), "labels": np.ones(4)}, "labels are integers"),
            ({"x": np.ones((2, 4), np.float32), "labels": np.array([0, 4])}, "has a class that is none of 0 .. 3"),
            ({"labels:z": np.ones(4, int)}, "the model has no output 'z' for labels"),
            ({"z": np.ones(4, int)}, "the model has no input 'z'"),
        ],
    )  # fmt: skip
    def test_what_does_not_fit(self, uma: Uma, arrays: dict[str, np.ndarray], said: str) -> None:
        np.savez("set.npz", **arrays)
        assert said in uma("verify", "m.py", "--target", "c", "--inputs", "set.npz").error(3)

    def test_inputs_that_differ_in_number(self, uma: Uma, tmp_path: Path) -> None:
        x, y = (Var(name, TensorType((4,), "float32")) for name in "xy")
        both = module_of(call("add", x, y))
        (tmp_path / "two.py").write_text(print_module(both)[0])
        np.savez("set.npz", x=np.ones((3, 4), np.float32), y=np.ones((2, 4), np.float32))
        said = uma("verify", "two.py", "--target", "c", "--inputs", "set.npz").error(3)
        assert "'y' holds 2 samples, and 'x' holds 3" in said
        np.savez("set.npz", x=np.ones((3, 4), np.float32), y=np.ones(4, np.float32))
        assert uma("verify", "two.py", "--target", "c", "--inputs", "set.npz", "-q").code == 0

    def test_labels_of_what_has_no_classes(self, uma: Uma, tmp_path: Path) -> None:
        x = Var("x", TensorType((4, 1), "float32"))
        (tmp_path / "one.py").write_text(print_module(module_of(call("nn.relu", x)))[0])
        np.savez("set.npz", labels=np.zeros(4, int))
        assert "has no classes to label" in uma("verify", "one.py", "--target", "c", "--inputs", "set.npz").error(3)

    def test_labels_without_the_name_of_an_output(self, uma: Uma, tmp_path: Path) -> None:
        text = """\
@function
def main(x: Tensor[(4,), int8]) -> Tuple[Tensor[(4,), int8], Tensor[(4,), int8]]:
    return (nn.relu(x), add(x, x))
"""
        (tmp_path / "two.py").write_text(text)
        np.savez("set.npz", labels=np.zeros(1, int))
        said = uma("verify", "two.py", "--target", "c", "--inputs", "set.npz").error(3)
        assert "the model has several outputs, and labels for none by name" in said and "labels:output" in said

    def test_no_samples(self, uma: Uma) -> None:
        assert "0 samples cannot be compared" in uma("verify", "m.py", "--target", "c", "--samples", "0").error(2)


def test_sums_that_cancel_have_no_digits_to_compare(uma: Uma, tmp_path: Path) -> None:
    """A mean is taken away from equal numbers: what is left is rounding, and no fault."""
    text = """\
@function
def main(x: Tensor[(1, 2, 8), float32]) -> Tensor[(1, 2, 8), float32]:
    v0: ('mean',) = mean(x, axis=(2,), keepdims=True)
    v1: ('center',) = subtract(x, v0)
    return multiply(v1, const(1000.0, float32))
"""
    (tmp_path / "norm.py").write_text(text)
    np.save("x.npy", np.full((1, 2, 8), 0.1, np.float32))
    done = uma("verify", "norm.py", "--target", "c -opt=3", "--input", "x=@x.npy")
    assert (done.code, done.err) == (0, "")
