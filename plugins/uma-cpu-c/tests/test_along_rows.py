"""What is computed along rows, in vectors: the same bits as from the default lowering; and what is left to that."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, SETS, features, target_for
from tests._support.random_layers import reference

import uma
from uma.hookspecs import Declined, Fusion
from uma.relay import Expr, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.toolchain import cpu_features
from uma_cpu_c.row_kernels import along_rows, by_elements
from uma_cpu_c.vector_units import VectorModel

UNIT = VectorModel(64, 32, 2, 2, 4)


def softmax(x: Expr) -> Expr:
    return call("nn.softmax", x)


def attention(x: Expr) -> Expr:
    """With a prologue that two stages read: scaled, and a mask added."""
    mask = np.where(np.arange(x.shape[-1]) % 7 == 3, -np.inf, 0).astype(np.float32)
    return call("nn.softmax", call("add", call("multiply", x, const(np.float32(0.125))), const(mask)))


def log_softmax(x: Expr) -> Expr:
    return call("negative", call("nn.log_softmax", x))


def layer_norm(x: Expr) -> Expr:
    gamma, beta = np.random.default_rng(5).uniform(-1, 1, (2, x.shape[-1])).astype(np.float32)
    made = call("nn.layer_norm", call("add", x, x), axis=(-1,), epsilon=1e-5)
    return call("nn.gelu", call("add", call("multiply", made, const(gamma)), const(beta)))


def rms_norm(x: Expr) -> Expr:
    return call("nn.rms_norm", x, axis=(-1,), epsilon=1e-6)


def waves(x: Expr) -> Expr:
    """Elementwise throughout, with an operand that is the same in all rows; some of the angles are large."""
    pitch = np.linspace(0, 9000, x.shape[-1], dtype=np.float32)
    return call("add", call("sin", call("multiply", x, const(pitch))), call("cos", x))


def angles(x: Expr) -> Expr:
    """The same without such an operand: the tensor is one row."""
    return call("multiply", call("sin", x), x)


KINDS: dict[str, Callable[[Expr], Expr]] = {
    made.__name__: made for made in (attention, waves, angles, softmax, log_softmax, layer_norm, rms_norm)
}
SHAPES = ((3, 64), (1, 1000), (2, 3, 197), (5, 127), (2, 1, 2, 100), (7, 4099), (2, 65), (96,))


def module_of(kind: str, *shapes: tuple[int, ...]) -> IRModule:
    params = [Var(f"x{number}", TensorType(shape, "float32")) for number, shape in enumerate(shapes)]
    return IRModule.from_functions({"main": Function(params, Tuple([KINDS[kind](param) for param in params]))})


def check(kind: str, target: str, shapes: tuple[tuple[int, ...], ...]) -> str:
    """The same bits as without strategies, and about what the references give; the C."""
    made = module_of(kind, *shapes)
    rng = np.random.default_rng(7)
    values = {f"x{n}": (rng.standard_normal(shape) * 4).astype(np.float32) for n, shape in enumerate(shapes)}
    artifact = uma.build(made, target, name="rows", plugins=PLUGINS)
    got = artifact.run(values)
    plain = uma.build(made, target.replace("-opt=2", "-opt=1"), name="rows", plugins=PLUGINS).run(values)
    for one, other, wanted in zip(got.values(), plain.values(), reference(made, values), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, wanted, rtol=2e-5, atol=2e-6)
    return artifact.files["rows.c"].decode()


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_they_give_the_same_bits(kind: str) -> None:
    text = check(kind, "c -opt=2", SHAPES[2:4])
    if "avx2" in features():
        assert ("uma_sin_f32x" if kind in ("waves", "angles") else "_parts_") in text


@pytest.mark.parametrize("function", ["nn.gelu", "tanh"])
def test_functions_are_done_to_tiles_in_vectors(function: str) -> None:
    """In a loop over the sums of a tile, which is written once."""
    x, weight = Var("x", TensorType((16, 24), "float32")), np.random.default_rng(3).uniform(-1, 1, (40, 24))
    made = call(function, call("nn.dense", x, const(weight.astype(np.float32))))
    module = IRModule.from_functions({"main": Function((x,), Tuple([made]))})
    artifact = uma.build(module, "c -opt=2", name="rows", plugins=PLUGINS)
    values = {"x": np.random.default_rng(4).uniform(-1, 1, (16, 24)).astype(np.float32)}
    (got,), (wanted,) = artifact.run(values).values(), reference(module, values)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    if "avx2" in features():
        text = artifact.files["rows.c"].decode()
        assert 1 <= len(re.findall(r"UMA_CALL\(f32, [0-9]+, uma_(erf|tanh)_f32x", text)) <= 3


@pytest.mark.parametrize("target", ["c -opt=2 -mcpu=x86-64-v3", "c -opt=2 -mcpu=icelake-server"])
def test_tensors_whose_rows_fill_no_vectors_are_one_row(target: str) -> None:
    """Of a vector that goes over the end of a row, it would have to be proven that its elements are side by side."""
    rng = np.random.default_rng(9)
    inputs, made = [], []
    for number, shape in enumerate(((1, 16, 24), (16, 20), (3, 7, 20), (2, 3, 7, 7), (5, 127))):
        x, y = (Var(f"{name}{number}", TensorType(shape, "float32")) for name in "xy")
        inputs += [x, y]
        made.append(call("multiply", call("clip", y, a_min=-1.0, a_max=1.0), call("sigmoid", x)))
        made.append(call("divide", call("exp", call("negative", x)), const(np.full((1,) * len(shape), 3, np.float32))))
        bits = call(
            "qnn.quantize", call("sin", y), scale=(0.01,), zero_point=(0,), axis=-1, rounding="even", dtype="int8"
        )
        made.append(call("qnn.dequantize", bits, scale=(0.01,), zero_point=(0,), axis=-1))
    module = IRModule.from_functions({"main": Function(inputs, Tuple(made))})
    artifact = uma.build(module, target, name="rows", plugins=PLUGINS)
    text = artifact.files["rows.c"].decode()
    assert "uma_sin_f32x" in text and "uma_exp_f32x" in text
    if not features(target) - cpu_features() - {"float32", "float64"}:
        values = {var.name: rng.standard_normal(var.shape).astype(np.float32) for var in inputs}
        for one, wanted in zip(artifact.run(values).values(), reference(module, values), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.soak
@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", KINDS)
def test_by_each_instruction_set(kind: str, name: str, cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(kind, target_for(name, cc, monkeypatch), SHAPES)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda x: call("nn.softmax", x, axis=0), "it works along other axes than the last"),
        (lambda x: call("nn.layer_norm", x, axis=(0, 1)), "it works along other axes than the last"),
        (lambda x: call("nn.softmax", call("reshape", x, newshape=(256, 32))), "elements: they have less than 64"),
    ],
)
def test_what_is_declined(made: Callable[[Expr], Expr], reason: str) -> None:
    x = Var("x", TensorType((64, 128), "float32"))
    found = along_rows(Fusion(Function((x,), made(x))), UNIT)
    assert isinstance(found, Declined) and reason in found.reason


def test_other_floats_are_left_to_the_default() -> None:
    x = Var("x", TensorType((64, 128), "float64"))
    assert along_rows(Fusion(Function((x,), softmax(x))), UNIT) is None
    assert by_elements(Fusion(Function((x,), call("sin", x))), UNIT) is None
    assert by_elements(Fusion(Function((y := Var("y", TensorType((5, 3), "float32")),), call("sin", y))), UNIT) is None
