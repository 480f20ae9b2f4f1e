"""Every operator as C, compiled as builds for this machine are, against its reference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests._support.c_programs import NATIVE, STRICT, run_compiled
from tests._support.op_cases import CASES, on
from tests._support.op_kernels import check, kernel_of
from tests._support.relay_strategies import Choice, random_array

from uma.relay.expr import Call
from uma.relay.op import Op

NAN = float("nan")


@settings(
    max_examples=max(1, settings.default.max_examples // 25),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking whole C programs takes minutes
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_what_is_compiled_computes_what_the_reference_does(
    tmp_path: Path, compilers: tuple[str, ...], data: st.DataObject
) -> None:
    choice = Choice(data.draw)
    made = [make(choice, name) for name, make in CASES.items()]
    check([(m, [choice.array(a.shape, a.dtype) for a in m.args]) for m in made], compilers, tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["int8", "int32", "float32"])
def test_windows_that_begin_in_the_padding(tmp_path: Path, compilers: tuple[str, ...], dtype: str) -> None:
    # By gcc 12, two taps that are both in the padding or both not, and side by side, were read as one.
    quantised = dtype.startswith("int")
    calls: list[tuple[Call, Sequence[np.ndarray]]] = []
    for channels, (before, stride) in itertools.product((1, 2, 4, 8), ((2, 2), (2, 1), (4, 4))):
        shape = (1, 14, channels)
        data = random_array(shape, dtype, len(calls))
        window = {"strides": (stride,), "padding": (before, 0)}
        calls.append((on("nn.max_pool1d", (shape, dtype), pool_size=(before + 1,), **window), [data]))
        pool = "qnn.avg_pool1d" if quantised else "nn.avg_pool1d"
        if dtype != "int32":
            calls.append((on(pool, (shape, dtype), pool_size=(before + 1,), **window), [data]))
            conv = "qnn.conv1d" if quantised else "nn.conv1d"
            for depth, outputs, groups in ((channels, 8, 1), (1, channels, channels)):
                weight = random_array((before + 1, depth, outputs), dtype, len(calls))
                made = on(conv, (shape, dtype), (weight.shape, dtype), groups=groups, **window)
                calls.append((made, [data, weight]))
    check(calls, compilers, tmp_path)


def test_the_mean_of_a_large_picture_keeps_its_digits(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    # Of numbers that are all alike, every addition of one long sum is rounded the same way.
    made = on("nn.global_avg_pool", ((1, 96, 97, 3), "float32"))
    check([(made, [np.full((1, 96, 97, 3), 6.3503346, np.float32)])], compilers, tmp_path)


def test_nan_goes_through_a_minimum_and_a_maximum(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    x, y = np.array([NAN, 1, NAN, 2, -0.0], np.float32), np.array([1, NAN, NAN, 3, 5], np.float32)
    types = ((5,), "float32"), ((5,), "float32")
    check([(on(name, *types), [x, y]) for name in ("minimum", "maximum")], compilers, tmp_path)


FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor", "ceil", "round")
FUNCTIONS += ("expm1", "log1p", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "sign")
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, 88.0, -88.0, 104.0, 1e-30, 1e-40, 1e30, np.inf, -np.inf, NAN]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_are_within_4_units_of_the_last_place(tmp_path: Path, compilers: tuple[str, ...], dtype: str) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-12, 12, 2001), np.geomspace(1e-6, 80, 500)]).astype(dtype)
    a, b = (np.array(v, dtype) for v in zip(*itertools.product(SPECIAL, [*SPECIAL, 3.0, -7.0]), strict=True))
    calls = [(on(name, (x.shape, dtype)), [x]) for name in FUNCTIONS]
    pairs = ("divide", "power", "trunc_mod", "floor_mod")
    calls += [(on(name, (a.shape, dtype), (b.shape, dtype)), [a, b]) for name in pairs]
    runs = [kernel_of(made, arrays) for made, arrays in calls]
    for compiler in compilers:
        found = run_compiled(runs, compiler, (*STRICT, *NATIVE), tmp_path)
        for (made, arrays), got in zip(calls, found, strict=True):
            assert isinstance(made.op, Op)
            with np.errstate(all="ignore"):
                wanted = np.asarray(made.op.reference(made.attrs, *arrays))
            (result,) = got.values()
            unlike = ~((result == wanted) | (np.isnan(result) & np.isnan(wanted)))
            if made.op_name in ("sqrt", "floor", "ceil", "round", "divide"):
                assert not unlike.any(), made.op_name
            elif unlike.any():
                np.testing.assert_array_max_ulp(result[unlike], wanted[unlike], 4, dtype=np.dtype(dtype).type)
