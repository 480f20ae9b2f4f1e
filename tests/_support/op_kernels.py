"""Calls of ops compiled as builds for this machine are, beside their references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests._support.c_programs import NATIVE, STRICT, Run, run_compiled
from tests._support.te_strategies import Computation

from uma.relay.expr import Call
from uma.relay.op import Op
from uma.tir import te
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll


def kernel_of(made: Call, arrays: Sequence[np.ndarray]) -> Run:
    """The kernel of a call: its first argument is an input, all others are constants."""
    assert isinstance(made.op, Op)
    if made.op.loops is not None:
        func = made.op.loops(made.attrs, made.type, *(arg.tensor for arg in made.args))
        buffers = [param.buffer for param in func.params]
        given = zip(buffers, arrays, strict=False)  # outputs are behind
        return Run(unroll(simplify(func)), {buffer.name: array.reshape(buffer.shape) for buffer, array in given})
    assert made.op.compute is not None
    tensors = [te.placeholder(a.shape, a.dtype.name, f"x{i}") for i, a in enumerate(arrays)]
    outputs = made.op.compute(made.attrs, made.type, *tensors)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    computation = Computation(tensors[:1], tensors[1:], outputs, dict(zip(tensors, arrays, strict=True)))
    kernel = computation.kernel()
    return Run(unroll(simplify(kernel.func)), computation.arguments(kernel))


def check(
    calls: Sequence[tuple[Call, Sequence[np.ndarray]]],
    compilers: Sequence[str],
    folder: Path,
    flags: Sequence[str] = (),
) -> None:
    """Compile all calls in one program by each compiler, with ``flags`` besides those of builds, and compare what they
    compute with the references.
    """
    runs = [kernel_of(made, arrays) for made, arrays in calls]
    for compiler in compilers:
        found = run_compiled(runs, compiler, (*STRICT, *NATIVE, *flags), folder)
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
