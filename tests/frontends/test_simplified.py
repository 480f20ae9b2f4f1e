"""What the front-ends fold and drop, and that they say it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.tflite_builder import TFLiteBuilder

from uma.cli import main
from uma.frontends import import_model
from uma.frontends.import_summary import Simplified


def onnx_model() -> bytes:
    """With a shape that is computed, a dropout of training, a loss, and leftovers."""
    b = OnnxBuilder(17)
    x = b.input("x", [2, 3, 4])
    b.input("mask", [2])
    b.constant(np.zeros(3), "float32", name="old")
    b.constant(np.ones(12), "float32", name="of_the_loss")
    half = b.constant(0.5, "float32")
    kept = b.node("Dropout", x, half, outputs=["kept", "dropped"], name="drop")[0]
    same = b.node("Identity", kept, name="same")
    first = b.node("Gather", b.node("Shape", same), b.constant([0]))
    shape = b.node("Concat", first, b.constant([-1]), axis=0)
    flat = b.node("Reshape", same, shape, name="flat")
    b.node("Mul", flat, "of_the_loss", name="loss")
    b.node("Relu", flat, outputs=["y"], name="relu")
    return b.build("y")


SENTENCES = (
    "3 operators are computed at import, from constants and shapes: 1 Concat, 1 Gather, 1 Shape",
    "2 operators are left out, for what it is given is what it gives: 'drop' (Dropout), 'same' (Identity)",
    "1 operator is left out, for no output depends on it: 'loss' (Mul)",
    "1 result is left out, for nothing uses it: 'dropped' of 'drop' (Dropout)",
    "2 constants are left out, for no output depends on it: 'old', 'of_the_loss'",
    "1 input is kept, though no output depends on it: 'mask'",
)


def test_onnx() -> None:
    model = import_model(onnx_model())
    assert model.simplified == SENTENCES
    assert model.notes == ()


def test_tflite() -> None:
    b = TFLiteBuilder()
    x = b.input([2, 3, 4])
    b.input([2], name="mask")
    shape, half = b.tensor([3], "int32"), b.tensor([1], "int32")
    b.op("SHAPE", [x], [shape])
    b.op("SLICE", [shape, b.constant([0], "int32"), b.constant([1], "int32")], [half])
    flat, dead, same, y = (b.tensor([2, 12], name=name) for name in ("flat", "dead", "same", "y"))
    b.op("RESHAPE", [x, b.constant([2, 12], "int32")], [flat])
    b.op("NEG", [flat], [dead])
    b.op("ADD_N", [flat], [same])
    b.op("RELU", [same], [y])
    assert import_model(b.finish(y)).simplified == (
        "1 operator is left out, for what it is given is what it gives: 'same' (ADD_N)",
        "3 operators are left out, for no output depends on it: 't2' (SHAPE), 't3' (SLICE), 'dead' (NEG)",
        "2 constants are left out, for no output depends on it: 't4', 't5'",
        "1 input is kept, though no output depends on it: 'mask'",
    )


def test_a_tflite_shape_that_is_folded() -> None:
    b = TFLiteBuilder()
    x, shape, y = b.input([2, 3]), b.tensor([2], "int32"), b.tensor([3, 2])
    twisted = b.tensor([2], "int32")
    b.op("SHAPE", [x], [shape])
    b.op("GATHER", [shape, b.constant([1, 0], "int32")], [twisted], axis=0)
    b.op("RESHAPE", [x, twisted], [y])
    assert import_model(b.finish(y)).simplified == (
        "2 operators are computed at import, from constants and shapes: 1 GATHER, 1 SHAPE",
    )


def test_a_model_that_is_taken_as_it_is() -> None:
    b = OnnxBuilder()
    b.node("Relu", b.input("x", [2]), outputs=["y"])
    assert import_model(b.build("y")).simplified == ()


def test_long_lists_are_cut_and_names_are_clean() -> None:
    found = Simplified(inputs=[f"in{n}" for n in range(7)], constants=["a\nb", "x" * 99])
    constants, inputs = found.sentences()
    assert inputs.endswith(": 'in0', 'in1', 'in2', 'in3', 'in4' and 2 more")
    assert constants.endswith(f": 'a\N{REPLACEMENT CHARACTER}b', '{'x' * 57}...'")


def test_it_is_told_with_v_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx_model())
    for command in (("build", "--no-compile", "-o", str(tmp_path / "out")), ("explain",)):
        given = [command[0], str(tmp_path / "m.onnx"), "--target", "c", *command[1:]]
        assert main(given) == 0
        assert "on how the model was read" not in capsys.readouterr().out
        assert main([*given, "-v"]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert [line.removeprefix("note: ") for line in lines if line.startswith("note: ")] == list(SENTENCES)
