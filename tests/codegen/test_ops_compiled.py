"""Every operator as C, compiled as builds for this machine are, against its reference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests._support.c_programs import NATIVE, STRICT, Run, run_compiled
from tests._support.op_cases import CASES, on
from tests._support.relay_strategies import Choice, random_array
from tests._support.te_strategies import Computation

from uma.relay.expr import Call
from uma.relay.op import Op
from uma.tir import te
from uma.tir.simplify import simplify
from uma.tir.unroll import unroll

NAN = float("nan")


def kernel_of(made: Call, arrays: Sequence[np.ndarray]) -> Run:
    """The kernel of a call: its first argument is an input, all others are constants."""
    assert isinstance(made.op, Op) and made.op.compute is not None
    tensors = [te.placeholder(a.shape, a.dtype.name, f"x{i}") for i, a in enumerate(arrays)]
    outputs = made.op.compute(made.attrs, made.type, *tensors)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    computation = Computation(tensors[:1], tensors[1:], outputs, dict(zip(tensors, arrays, strict=True)))
    kernel = computation.kernel()
    return Run(unroll(simplify(kernel.func)), computation.arguments(kernel))


def check(calls: Sequence[tuple[Call, Sequence[np.ndarray]]], compilers: Sequence[str], folder: Path) -> None:
    """Compile all calls in one program by each compiler, and compare what they compute with the references."""
    runs = [kernel_of(made, arrays) for made, arrays in calls]
    for compiler in compilers:
        found = run_compiled(runs, compiler, (*STRICT, *NATIVE), folder)
        for (made, arrays), got in zip(calls, found, strict=True):
            assert isinstance(made.op, Op)
            with np.errstate(all="ignore"):
                wanted = made.op.reference(made.attrs, *arrays)
            fields = wanted if isinstance(wanted, tuple) else (wanted,)
            for result, field in zip(got.values(), fields, strict=True):
                message = f"{made.op_name} {[str(a.type) for a in made.args]} {made.attrs.items} by {compiler}"
                if field.dtype.kind != "f":
                    np.testing.assert_array_equal(result.reshape(field.shape), field, message)
                    continue
                largest = float(np.abs(field[np.isfinite(field)]).max(initial=1.0))
                np.testing.assert_allclose(result.reshape(field.shape), field, 1e-5, 1e-5 * largest, err_msg=message)


@settings(
    max_examples=max(1, settings.default.max_examples // 50),
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


def test_nan_goes_through_a_minimum_and_a_maximum(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    x, y = np.array([NAN, 1, NAN, 2, -0.0], np.float32), np.array([1, NAN, NAN, 3, 5], np.float32)
    types = ((5,), "float32"), ((5,), "float32")
    check([(on(name, *types), [x, y]) for name in ("minimum", "maximum")], compilers, tmp_path)
