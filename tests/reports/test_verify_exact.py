"""Where another runtime differs from a quantised model by a step, verification says whose value is exact."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime
from tests._support.plugins import module_of
from tests._support.small_models import Uma

from uma import api
from uma.frontends.onnx import from_onnx
from uma.relay import Call, Function, IRModule, TensorType, Var, call
from uma.verification.exact_outputs import ExactOutput, compare_exactly, exact_outputs
from uma.verification.reference_runtimes import Oracle

SHAPE = (1, 10, 8, 8)


@pytest.fixture
def uma(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    monkeypatch.chdir(tmp_path)
    return Uma(capsys)


def product(scales: tuple[float, float, float], floats: bool = False) -> bytes:
    """Of ``x`` and ``y`` int8 [1, 10, 8, 8]: both dequantised, multiplied, and quantised again."""
    b = OnnxBuilder()
    sides = [
        b.dequantize(b.input(n, SHAPE, "int8"), s, z, "int8") for n, s, z in zip("xy", scales, (3, -5), strict=False)
    ]
    z = b.quantize(b.node("Mul", *sides), scales[2], 1, "int8")
    return b.build(b.dequantize(z, scales[2], 1, "int8") if floats else z)


SCALES = (0.5, 0.0625, 0.375)
"""Products are ties where the product of the integers is 6 more than a multiple of 12."""


def fed(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-128, 128, SHAPE, np.int8) for name in "xy"}


def exact_fractions(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """What the product should be, by rationals: before it is rounded, zero point included."""
    scale = Fraction(SCALES[0]) * Fraction(SCALES[1]) / Fraction(SCALES[2])
    pairs = zip(arrays["x"].ravel().tolist(), arrays["y"].ravel().tolist(), strict=True)
    values = [(a - 3) * (b + 5) * scale + 1 for a, b in pairs]
    return np.array([round(value - 1) + 1 for value in values]).clip(-128, 127).reshape(SHAPE)


def test_the_exact_values_are_those_of_rationals() -> None:
    arrays, literal = fed(), from_onnx(product(SCALES)).literal
    assert literal is not None
    outputs = exact_outputs(literal, arrays)
    assert outputs is not None
    assert np.array_equal(outputs[0].value, exact_fractions(arrays)) and outputs[0].steps is not None
    assert (outputs[0].steps % 1 == 0.5).any()


VERIFY = ("verify", "m.onnx", "--target", "c", "--inputs", "in.npz", "--samples", "1", "--against", "onnxruntime")


def other_runtime(*off: tuple[int, int], floats: bool = False) -> Callable[..., Oracle]:
    """Stands for onnxruntime: it gives exact values, but some elements are off by so many steps."""

    def make(*_: object) -> Oracle:
        def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
            result = exact_fractions(dict(zip("xy", inputs, strict=True))).astype(np.int8)
            for position, steps in off:
                result.flat[position] += steps
            return [((result - np.float32(1)) * np.float32(SCALES[2])) if floats else result]

        return run

    return make


@pytest.fixture
def net(uma: Uma) -> int:
    """Writes the model and its inputs; gives the position of a tie that becomes the lower number."""
    Path("m.onnx").write_bytes(product(SCALES))
    Path("floats.onnx").write_bytes(product(SCALES, floats=True))
    np.savez("in.npz", **fed())
    literal = from_onnx(product(SCALES)).literal
    assert literal is not None
    (output,) = exact_outputs(literal, fed()) or ()
    steps = output.steps
    assert steps is not None
    value = output.value.reshape(SHAPE)
    return int(np.flatnonzero((steps % 1 == 0.5) & (value < steps) & (abs(steps) < 100))[0])


def test_another_runtime_that_is_off_by_a_step_is_no_fault_of_ours(
    uma: Uma, net: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(api.ORACLES, "onnxruntime", other_runtime((net, 1)))
    done = uma(*VERIFY)
    assert (done.code, done.err) == (0, "")
    index = [int(i) for i in np.unravel_index(net, SHAPE)]
    (line,) = [line for line in done.out.splitlines() if "against onnxruntime" in line]
    assert f"1 of 640 elements differ, the first at {index}" in line
    assert re.search(
        r"; the exact value at .* is -?\d+\.5, a tie, which becomes -?\d+: UMA's value is exact, onnx", line
    )
    (row,) = [row for row in uma(*VERIFY, "--json").json["outputs"] if row["against"] == "onnxruntime"]
    assert (row["ok"], row["differing"]) == (False, 1)
    assert (row["exact"]["index"], row["exact"]["uma_off"], row["exact"]["other_off"]) == (index, 0, 1)
    assert row["exact"]["value"] % 1 == 0.5 and row["exact"]["rounded"] == row["got"]


def test_floats_behind_a_quantisation(uma: Uma, net: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(api.ORACLES, "onnxruntime", other_runtime((net, 1), (net, 1), floats=True))
    done = uma("verify", "floats.onnx", *VERIFY[2:])
    assert (done.code, done.err) == (0, "")
    assert "1 of 640 elements differ" in done.out and ".5 steps, a tie, which becomes " in done.out
    assert "UMA's value is exact, onnxruntime's is off" in done.out


def test_what_is_our_fault(uma: Uma, net: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other runtime is right by the exact values, which are made up here."""

    def made_up(literal: IRModule, inputs: Mapping[str, np.ndarray]) -> list[ExactOutput]:
        values = exact_fractions(fed()).astype(np.float64)
        values.flat[net] += 1
        return [ExactOutput(values, values)]

    monkeypatch.setattr("uma.verification.models.exact_outputs", made_up)
    monkeypatch.setitem(api.ORACLES, "onnxruntime", other_runtime((net, 1)))
    done = uma(*VERIFY)
    assert done.code == 7
    assert "differs from onnxruntime: 1 of 640 elements differ" in done.err
    assert "onnxruntime's value is exact, UMA's is off; every kernel by itself agrees with its reference" in done.err


def test_a_difference_of_which_nothing_is_known(uma: Uma, net: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uma.verification.models.exact_outputs", lambda literal, inputs: None)
    monkeypatch.setitem(api.ORACLES, "onnxruntime", other_runtime((net, 1)))
    done = uma(*VERIFY)
    assert done.code == 7 and "exact value" not in done.err


def test_the_real_onnxruntime(uma: Uma) -> None:
    """Whatever it gives, it is named where it is off, and there is no error where we are exact."""
    data = product(SCALES)
    Path("m.onnx").write_bytes(data)
    np.savez("in.npz", **fed())
    (theirs,) = run_onnxruntime(data, fed())
    off = int((theirs != exact_fractions(fed())).sum())
    done = uma(*VERIFY)
    assert done.code == 0
    assert ("onnxruntime's is off" in done.out) == bool(off)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([17, 5], [18, 5], "17.5, a tie, which becomes 18: onnxruntime's value is exact, UMA's is off"),
        ([18, 6], [17, 5], "17.5, a tie, which becomes 18: of 2, UMA's value is exact in 1, onnxruntime's in 1"),
        ([18, 5], [17, 6], "17.5, a tie, which becomes 18: UMA's value is exact in all 2, onnxruntime's is off"),
        ([18, 6], [18, 7], "5.25, which becomes 5: of 1, UMA's value is exact in 0, onnxruntime's in 0"),
    ],
)
def test_verdicts(ours: list[int], theirs: list[int], said: str) -> None:
    exact = ExactOutput(np.array([18, 5]), np.array([17.5, 5.25]))
    found = compare_exactly(np.array(ours, np.int8), np.array(theirs, np.int8), exact, 0.0)
    assert found is not None and found.describe("onnxruntime").partition(" is ")[2] == said
    assert compare_exactly(np.array(ours, np.int8), np.array(ours, np.int8), exact, 0.0) is None


def test_what_is_not_evaluated_exactly() -> None:
    x = Var("x", TensorType((2,), "float32"))
    inner = Function([x], call("add", x, x))
    assert exact_outputs(module_of(Call(inner, [x])), {"x": np.zeros(2, np.float32)}) is None


def test_views_and_channels_keep_what_was_rounded() -> None:
    b = OnnxBuilder()
    x = b.input("x", [2, 3])
    scales = [0.5, 0.25, 0.125]
    y = b.node("QuantizeLinear", x, b.constant(scales, "float32"), b.constant([0, 1, 2], "int8"), axis=1)
    z = b.node("Transpose", b.node("DequantizeLinear", y, "c0", "c1", axis=1), perm=[1, 0])
    literal = from_onnx(b.build(z)).literal
    assert literal is not None
    (output,) = exact_outputs(literal, {"x": np.full((2, 3), 0.3125, np.float32)}) or ()
    assert output.value.tolist() == [[0.5] * 2, [0.25] * 2, [0.25] * 2]
    assert output.steps is not None and output.steps.tolist() == [[0.625] * 2, [2.25] * 2, [4.5] * 2]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["others/silero_vad_static.onnx", "mlperf-tiny-onnx/ad_int8.onnx"])
def test_real_models_pass_against_onnxruntime(uma: Uma, models: Path, name: str) -> None:
    """Of ad_int8, one element of 640 is near a tie, which onnxruntime decides wrongly; silero's output is 0.002."""
    done = uma("verify", str(models / name), "--target", "c", "--against", "onnxruntime", "-q")
    assert (done.code, done.err) == (0, "")
