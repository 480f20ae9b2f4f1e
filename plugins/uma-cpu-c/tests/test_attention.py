"""Attention in one kernel: equal to its pieces' references, by gcc and clang, with every instruction set that runs
here; and left in pieces where that is not a gain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, SETS, check, same, target_for
from tests._support.random_layers import Layers, reference

import uma
from uma.relay import Call, Expr, IRModule, call, const
from uma.tir import PrimFunc

V3 = "c -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"


def attention(
    made: Layers, outer: Sequence[int], extents: tuple[int, int, int, int], mask: Sequence[int] | None
) -> Expr:
    """Of so many queries, keys, depth and width, in the pieces in which files have it."""
    m, n, d, c = extents
    q, k, v = (made.input((*outer, *shape), "float32") for shape in ((m, d), (n, d), (n, c)))
    axes = (*range(len(outer)), len(outer) + 1, len(outer))
    scores = call("multiply", call("matmul", q, call("transpose", k, axes=axes)), const(np.float32(d**-0.5)))
    if mask is not None:
        scores = call("add", scores, made.input(tuple(mask), "float32"))
    return call("matmul", call("nn.softmax", scores), v)


def kernels(module: IRModule, target: str) -> list[str]:
    """What the functions of loops are called."""
    loops = uma.build(module, target, plugins=PLUGINS, stop_after="lower")
    assert isinstance(loops, IRModule)
    return [var.name for var, function in loops.functions.items() if isinstance(function, PrimFunc)]


CASES: list[tuple[Sequence[int], tuple[int, int, int, int], Sequence[int] | None]] = [
    ((2,), (16, 64, 16, 32), None),
    ((1, 2), (20, 77, 12, 20), (77,)),
    ((), (11, 68, 5, 12), (11, 68)),
    ((2, 3), (24, 70, 8, 36), (2, 1, 24, 70)),
    ((1, 1), (9, 100, 24, 4), (1, 1, 1, 100)),
    ((3,), (8, 65, 16, 8), (1,)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_attention_is_one_kernel(case: int) -> None:
    made = Layers(case)
    made.outputs.append(attention(made, *CASES[case]))
    values = made.values()
    assert kernels(made.module, V3) == ["attention"]
    check(made.module, values, reference(made.module, values), "c -opt=2")


@pytest.mark.soak
@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("name", [name for name in SETS if name != "x86-64"])
def test_random_attention(name: str, cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty in one model."""
    target, made = target_for(name, cc, monkeypatch), Layers(20)
    for _ in range(20):
        outer = made.pick((), (1,), (3,), (2, 2))
        m, n, d, c = (int(made.rng.integers(low, high)) for low, high in ((8, 40), (64, 150), (1, 80), (1, 20)))
        c *= 4
        masks = (None, (n,), (m, 1), (m, n), (*outer, m, n), (*(1 for _ in outer), 1, n))
        made.outputs.append(attention(made, outer, (m, n, d, c), masks[made.rng.integers(len(masks))]))
    values = made.values()
    same(uma.build(made.module, target, plugins=PLUGINS).run(values), reference(made.module, values))
    assert len(kernels(made.module, target)) >= 20


def test_large_scores_and_what_is_masked_out() -> None:
    """The greatest score is subtracted before powers are taken; a score of minus infinity counts for nothing."""
    made = Layers(5)
    made.outputs.append(attention(made, (2,), (8, 80, 8, 8), (8, 80)))
    q, k, v, mask = made.values().values()
    mask[:] = 0.0
    mask[:, 69:] = -np.inf
    values = dict(zip(made.values(), (q * 1000, k * 1000, v, mask), strict=True))
    found = uma.build(made.module, "c -opt=2", plugins=PLUGINS).run(values)
    few = Layers(5)
    few.outputs.append(attention(few, (2,), (8, 69, 8, 8), (8, 69)))
    fewer = dict(zip(few.values(), (q * 1000, k[:, :69] * 1000, v[:, :69], mask[:, :69]), strict=True))
    same(found, reference(few.module, fewer))


@pytest.mark.parametrize(
    ("outer", "extents", "target"),
    [
        ((2,), (1, 64, 16, 16), V3),  # keys are read once: there is nothing to gain
        ((2,), (16, 64, 16, 33), V3),  # values that are not vectors
        ((2,), (521, 512, 16, 16), V3),  # a prime number of queries, whose scores the cache does not hold
        ((2,), (16, 63, 16, 32), V3),  # few keys
        ((2,), (16, 64, 16, 32), f"{V3} -opt=s"),
        ((2,), (16, 64, 16, 32), "c -mtriple=x86_64-linux-gnu"),
    ],
)
def test_where_it_stays_in_pieces(outer: Sequence[int], extents: tuple[int, int, int, int], target: str) -> None:
    made = Layers(1)
    made.outputs.append(attention(made, outer, extents, None))
    assert "attention" not in kernels(made.module, target)


def test_bits_do_not_depend_on_the_vectors() -> None:
    made = Layers(3)
    made.outputs.append(attention(made, (2,), (19, 75, 12, 20), (75,)))
    values, found = made.values(), []
    for mcpu in ("x86-64-v3", "x86-64-v4"):
        target = f"c -mtriple=x86_64-linux-gnu -mcpu={mcpu}"
        loops = uma.build(made.module, target, plugins=PLUGINS, stop_after="flatten")
        assert isinstance(loops, IRModule)
        found.append(next(iter(uma.build(loops, "c -opt=2", plugins=PLUGINS).run(values).values())))
    np.testing.assert_array_equal(found[0], found[1])


def test_keys_and_masks_that_are_constants() -> None:
    """They are brought into order at build time."""
    made = Layers(1)
    q, v = made.input((2, 12, 8), "float32"), made.input((2, 70, 8), "float32")
    keys, mask = const(made.numbers((2, 8, 70), "float32")), const(made.numbers((12, 70), "float32"))
    made.outputs.append(call("matmul", call("nn.softmax", call("add", call("matmul", q, keys), mask)), v))
    values = made.values()
    assert kernels(made.module, V3) == ["attention"]
    check(made.module, values, reference(made.module, values), "c -opt=2")


def test_pieces_that_are_used_elsewhere_stay_pieces() -> None:
    made = Layers(1)
    made.outputs.append(attention(made, (2,), (16, 64, 16, 32), None))
    whole = made.outputs[0]
    assert isinstance(whole, Call)
    made.outputs.append(call("nn.relu", whole.args[0]))
    assert "attention" not in kernels(made.module, V3)


def test_scores_of_all_queries_are_in_memory_at_no_time() -> None:
    made = Layers(1)
    made.outputs.append(attention(made, (4,), (512, 512, 32, 32), None))
    artifact = uma.build(made.module, V3, plugins=PLUGINS)
    assert artifact.arena_bytes < 4 * 512 * 512 * 4
