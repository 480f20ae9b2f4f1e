"""Transpositions block by block: the same bits as numpy moves, for elements of 1, 2, 4 and 8 bytes."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, SETS, features, same, target_for
from tests._support.random_layers import reference

import uma
from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.relay import Call, Expr, Function, IRModule, TensorType, Tuple, Var, call, const
from uma_cpu_c.transposes import merged, transposed
from uma_cpu_c.vector_units import VectorModel

CASES = [
    *(((16, 40), (1, 0), dtype) for dtype in ("int8", "int16", "float16", "float32", "int32", "float64", "int64")),
    *(((71, 18), (1, 0), dtype) for dtype in ("uint8", "uint16", "float32", "uint64")),
    ((150, 67), (1, 0), "bool"),
    ((2, 9, 4, 5), (0, 2, 3, 1), "float32"),
    ((1, 16, 7, 7), (0, 2, 3, 1), "int8"),
    ((2, 3, 3, 33), (0, 3, 1, 2), "int16"),
    ((5, 6, 7), (2, 1, 0), "float32"),
    ((4, 2, 3, 5), (3, 1, 0, 2), "int64"),
]
"""Shape, axes, dtype: of blocks of each width, with and without a rest, of several matrices."""


def moved(cases: list[tuple[tuple[int, ...], tuple[int, ...], str]]) -> tuple[IRModule, dict[str, np.ndarray]]:
    """A model of transpositions, and random bits for its inputs."""
    rng = np.random.default_rng(3)
    inputs = [Var(f"x{number}", TensorType(shape, dtype)) for number, (shape, _, dtype) in enumerate(cases)]
    made: list[Expr] = [call("transpose", x, axes=axes) for x, (_, axes, _) in zip(inputs, cases, strict=True)]
    values = {}
    for x in inputs:
        bits = rng.integers(0, 2 if x.dtype == "bool" else 256, x.tensor.nbytes, np.uint8)
        values[x.name] = bits.view(x.dtype).reshape(x.shape)
    return IRModule.from_functions({"main": Function(tuple(inputs), Tuple(made))}), values


def check(target: str) -> str:
    module, values = moved(CASES)
    artifact = uma.build(module, target, name="layers", plugins=PLUGINS)
    found = artifact.run(values).values()
    for result, value, (_, axes, _) in zip(found, values.values(), CASES, strict=True):
        assert result.tobytes() == value.transpose(axes).tobytes()
    return artifact.files["layers.c"].decode()


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_all_widths(cc: str) -> None:
    text = check(f"c -cc={cc} -opt=2")
    if "avx2" in features():
        assert all(f"uma_transpose_{bits}(" in text for bits in (8, 16, 32, 64))


@pytest.mark.soak
@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("name", SETS)
def test_every_instruction_set(name: str, cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(target_for(name, cc, monkeypatch))


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_what_is_transposed_may_be_computed_first(cc: str) -> None:
    """Part by part, with constants of its own and for elements of another width."""
    rng = np.random.default_rng(5)
    x = Var("x", TensorType((2, 6, 17, 20), "float32"))
    bias = const(rng.standard_normal(20).astype(np.float32))
    quantised = call(
        "qnn.quantize", call("add", x, bias), scale=(0.05,), zero_point=(3,), dtype="int8", rounding="even"
    )
    several = call("nn.relu", call("multiply", x, x))
    made = [
        call("transpose", quantised, axes=(0, 3, 1, 2)),
        call("transpose", several, axes=(0, 3, 1, 2)),
        call("transpose", call("nn.relu", x), axes=(2, 3, 0, 1)),
        call("transpose", call("cast", x, dtype="int16"), axes=(3, 1, 0, 2)),
    ]
    module = IRModule.from_functions({"main": Function((x,), Tuple(made))})
    values = {"x": 9 * rng.standard_normal(x.shape).astype(np.float32)}
    artifact = uma.build(module, f"c -cc={cc} -opt=2", name="layers", plugins=PLUGINS)
    same(artifact.run(values), reference(module, values))
    if "avx2" in features():
        assert all(f"uma_transpose_{bits}(" in artifact.files["layers.c"].decode() for bits in (8, 16, 32))


def test_dimensions_that_stay_together_are_one() -> None:
    assert merged((2, 8, 4, 4), (0, 2, 3, 1)) == ((2, 8, 16), (0, 2, 1))
    assert merged((1, 8, 4, 4), (0, 2, 3, 1)) == ((8, 16), (1, 0))
    assert merged((3, 1, 5), (2, 1, 0)) == ((3, 5), (1, 0))
    assert merged((3, 1, 5), (1, 0, 2)) == ((15,), (0,))
    assert merged((1, 1), (1, 0)) == ((), ())


def test_what_is_no_transposition_of_blocks() -> None:
    def answer(shape: tuple[int, ...], *axes: int, is_alone: bool = True) -> ScheduledKernel | Declined | None:
        x = Var("x", TensorType(shape, "int8"))
        made: Call = call("transpose", x if is_alone else call("nn.relu", x), axes=axes)
        return transposed(Fusion(Function((x,), made)), VectorModel(32, 16, 2, 2, 4))

    assert isinstance(answer((16, 16), 1, 0), ScheduledKernel)
    assert isinstance(answer((16, 3, 16), 2, 1, 0, is_alone=False), ScheduledKernel)
    assert answer((16, 16), 1, 0, is_alone=False) is None  # it would be the whole of it that is computed first
    assert answer((16, 3, 16), 1, 0, 2) is None
    assert answer((16, 1, 1), 1, 0, 2) is None
    few = "no blocks that are transposed in registers: its matrices have 15 columns of int8, fewer than 16"
    assert answer((16, 15), 1, 0) == Declined(few)
    assert answer((16, 2, 15), 2, 1, 0, is_alone=False) == Declined(few)
    assert answer((16, 3), 1, 0) is None and answer((3, 2, 16), 2, 1, 0, is_alone=False) is None
