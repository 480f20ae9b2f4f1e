"""Every product that is taken is what numpy gives: as numbers, and compiled, with either BLAS."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uma
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Expr, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.relay.pattern import Match, match
from uma_blas.product import MAX_BATCH_DIMENSIONS, Product
from uma_blas.supported import PATTERNS, product_in

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("blas", "uma_blas", "uma-blas", "0.1.0"),
    ]
)


@dataclass(frozen=True)
class Case:
    """A product.

    Args:
        op: its name.
        a, b: shapes of the operands as they are stored.
        axes_a, axes_b: how they are transposed.
        bias: whether one is added.
        constant: which of ``a`` and ``b`` are constant.
    """

    op: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    axes_a: tuple[int, ...] | None = None
    axes_b: tuple[int, ...] | None = None
    bias: bool = False
    constant: str = ""

    def value(self, name: str) -> np.ndarray:
        shape: tuple[int, ...] = getattr(self, name)
        rng = np.random.default_rng([ord(name), *shape])
        return rng.uniform(-1, 1, shape).astype(np.float32)

    def expr(self, prefix: str = "") -> tuple[Expr, list[Var]]:
        """It, and its inputs, called ``a`` and ``b`` after a prefix."""
        sides: list[Expr] = []
        for name, axes in (("a", self.axes_a), ("b", self.axes_b)):
            var = Var(prefix + name, TensorType(getattr(self, name), "float32"))
            side: Expr = const(self.value(name)) if name in self.constant else var
            sides.append(side if axes is None else call("transpose", side, axes=axes))
        made: Expr = call(self.op, *sides)
        if self.bias:
            made = call("add", made, const(np.arange(made.shape[-1], dtype=np.float32)))
        inputs = [Var(prefix + n, TensorType(getattr(self, n), "float32")) for n in "ab" if n not in self.constant]
        return made, inputs

    def expected(self) -> np.ndarray:
        a, b = (
            self.value(name).astype(np.float64).transpose(axes or range(len(getattr(self, name))))
            for name, axes in (("a", self.axes_a), ("b", self.axes_b))
        )
        made: np.ndarray = a @ (b.T if self.op == "nn.dense" else b)
        return made + (np.arange(made.shape[-1]) if self.bias else 0)


def stored(draw: st.DrawFn, view: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """A shape and a permutation that BLAS can read, which give ``view``; or the view as it is."""
    if len(view) < 2 or draw(st.booleans()):
        return view, None
    last = draw(st.sampled_from([len(view) - 2, len(view) - 1]))
    others = draw(st.permutations([dim for dim in range(len(view)) if dim != last]))
    order = [*others, last]  # the view's dimensions as they are stored
    return tuple(view[dim] for dim in order), tuple(order.index(dim) for dim in range(len(view)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small products of all kinds, with odd sizes."""
    size = st.sampled_from([1, 2, 3, 5, 8, 13])
    m, n, k = draw(size), draw(size), draw(size)
    bias = draw(st.booleans())
    if draw(st.booleans()):
        batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
        views = ((*batch, m, k) if batch or draw(st.booleans()) else (k,)), (n, k)
        op = "nn.dense"
    else:
        batch = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
        op = "matmul"

        def side(*matrix: int) -> tuple[int, ...]:
            own = tuple(extent if draw(st.booleans()) else 1 for extent in batch)
            return (*own[draw(st.integers(0, len(own))) :], *matrix)

        views = side(m, k), side(k, n)
    (a, axes_a), (b, axes_b) = (stored(draw, view) for view in views)
    return Case(op, a, b, axes_a, axes_b, bias, draw(st.sampled_from(["", "b"])) if axes_b is None else "")


def matched(case: Case) -> Match | None:
    found = [made for pattern in PATTERNS if isinstance(made := match(pattern, case.expr()[0]), Match)]
    assert len(found) < 2
    return found[0] if found else None


def computed(product: Product, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What ``uma_blas_matmul`` does with these numbers."""
    results = []
    for index in itertools.product(*(range(count) for count, _, _ in product.batch)):
        starts = [sum(i * dim[side] for i, dim in zip(index, product.batch, strict=True)) for side in (1, 2)]
        matrices = []
        for array, start, trans, ld, rows, columns in (
            (a, starts[0], product.trans_a, product.lda, product.m, product.k),
            (b, starts[1], product.trans_b, product.ldb, product.k, product.n),
        ):
            assert ld >= (rows if trans else columns)
            at = np.add.outer(np.arange(rows) * (1 if trans else ld), np.arange(columns) * (ld if trans else 1))
            matrices.append(array.ravel()[start + at])  # IndexError where that is outside
        results.append(matrices[0].astype(np.float64) @ matrices[1])
    return np.stack(results)


@given(cases())
@settings(max_examples=100)
def test_the_numbers_are_those_of_the_product(case: Case) -> None:
    found = matched(case)
    assert found is not None
    product = product_in(found)
    assert len(product.batch) == MAX_BATCH_DIMENSIONS
    made = computed(product, case.value("a"), case.value("b"))
    expected = case.expected()
    if case.bias:
        expected = expected - np.arange(expected.shape[-1])
    np.testing.assert_allclose(made.reshape(expected.shape), expected, rtol=0, atol=1e-12)
    assert product.macs == expected.size * product.k


def check(drawn: list[Case], target: str) -> None:
    """All of them as outputs of one model, every multiplication by BLAS."""
    exprs, inputs, given_ = [], [], {}
    for number, case in enumerate(drawn):
        expr, own = case.expr(f"x{number}_")
        exprs.append(expr)
        inputs += own
        given_ |= {var.name: case.value(var.name[-1]) for var in own}
    artifact = uma.build(
        IRModule.from_functions({"main": Function(inputs, Tuple(exprs))}),
        [target, "c"],
        name="products",
        plugins=PLUGINS,
    )
    with artifact.session() as session:
        for case, made in zip(drawn, session.run(given_).values(), strict=True):
            expected = case.expected()
            np.testing.assert_allclose(made, expected, rtol=0, atol=1e-5 * np.abs(expected).max(), err_msg=str(case))
    calls = [call_["kernel"] for call_ in artifact.metadata["calls"]]
    assert sum(name.startswith("matmul") for name in calls) == len(drawn)


@pytest.mark.few(1)
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(cases(), min_size=12, max_size=12))
def test_compiled_products_are_those_of_numpy(target: str, drawn: list[Case]) -> None:
    check(drawn, target)


SWAPS = [None, (0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0)]
"""Of three dimensions all permutations that BLAS can read; (2, 0, 1) and (2, 1, 0) leave neither rows nor columns."""


def stored_as(view: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    return view if axes is None else tuple(view[axes.index(dim)] for dim in range(len(view)))


@pytest.mark.few(1)
def test_every_transposition_of_either_side(target: str) -> None:
    view_a, view_b = (3, 5, 7), (3, 7, 4)
    check(
        [
            Case("matmul", stored_as(view_a, a), stored_as(view_b, b), a, b, bias)
            for a, b in itertools.product(SWAPS, SWAPS)
            for bias in (False, True)
        ],
        target,
    )


@pytest.mark.few(1)
def test_every_broadcast_of_the_batch(target: str) -> None:
    batches = [(), (1,), (3,), (1, 1), (1, 3), (2, 1), (2, 3)]
    check(
        [Case("matmul", (*a, 5, 7), (*b, 7, 4), bias=True) for a, b in itertools.product(batches, batches)],
        target,
    )


def test_constants_on_either_side(target: str) -> None:
    check([Case("matmul", (2, 5, 7), (7, 4), constant=side, bias=True) for side in ("a", "b")], target)


@pytest.mark.few(1)
def test_the_same_value_on_both_sides(target: str) -> None:
    x = Var("x", TensorType((6, 6), "float32"))
    turned = call("transpose", x, axes=(1, 0))
    pairs = [(x, x), (x, turned), (turned, x), (turned, turned)]
    for left, right in pairs:
        module = IRModule.from_functions({"main": Function([x], call("matmul", left, right))})
        artifact = uma.build(module, [target, "c"], name="square", plugins=PLUGINS)
        value = np.random.default_rng(0).uniform(-1, 1, (6, 6)).astype(np.float32)
        sides = [value if side is x else value.T for side in (left, right)]
        (made,) = artifact.run(value).values()
        np.testing.assert_allclose(made, sides[0] @ sides[1], rtol=0, atol=1e-5)


@pytest.mark.few(1)
def test_products_keep_nan_and_infinities(target: str) -> None:
    """Also where the other factor is 0, which some libraries skip."""
    nan, inf = np.nan, np.inf
    a, b = (Var(name, TensorType(shape, "float32")) for name, shape in (("a", (6, 9)), ("b", (9, 20))))
    module = IRModule.from_functions({"main": Function([a, b], call("matmul", a, b))})
    left, right = (np.ones(var.shape, np.float32) for var in (a, b))
    for row, value in enumerate((nan, inf, -inf)):
        left[row, row] = value
    left[4, :] = 0
    right[:, 3] = 0
    right[2, 5], right[2, 6] = nan, -inf
    artifact = uma.build(module, [target, "c"], name="special", plugins=PLUGINS)
    found = artifact.run({"a": left, "b": right})
    with np.errstate(invalid="ignore"):
        wanted = left.astype(np.float64) @ right.astype(np.float64)
    np.testing.assert_array_equal(next(iter(found.values())), wanted)
