"""What tests of schedules share: functions in text form, and what two of them compute, compared."""

from __future__ import annotations

from textwrap import dedent

import numpy as np

from uma.tir import Machine, PrimFunc, interpret, parse_func
from uma.tir.proofs.obligations import unproven


def parsed(text: str, machine: Machine | None = None, **numbers: int) -> PrimFunc:
    """The function of a text without its decorator."""
    return parse_func("@prim_func\n" + dedent(text).strip() + "\n", machine=machine, numbers=numbers)[1]


def given(func: PrimFunc, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays for the inputs and constants of a function."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for buffer in (*func.buffers("input"), *func.buffers("constant")):
        if buffer.dtype.startswith("float"):
            arrays[buffer.name] = rng.integers(-64, 64, buffer.shape).astype(buffer.dtype) / 8
        else:
            low, high = (-100, 100) if buffer.dtype != "uint8" else (0, 255)
            arrays[buffer.name] = rng.integers(low, high, buffer.shape).astype(buffer.dtype)
    return arrays


def agree(before: PrimFunc, after: PrimFunc, exact: bool = True, seed: int = 0) -> None:
    """Fails unless both give the same outputs, and the second never leaves a buffer."""
    arrays = given(before, seed)
    want, got = interpret(before, arrays), interpret(after, arrays)
    for name, array in want.items():
        same = (array == got[name]).all() if exact else np.allclose(array, got[name], rtol=1e-5)
        assert same, f"{name} differs"
    found = unproven(after)
    assert found is None, str(found)


MATMUL = parsed("""
    def f(x: In[int8, (7, 5)], y: Out[int8, (7, 16)], w: Const[int8, (5, 16)], b: Const[int32, (16,)]):
        t = alloc(int32, (7, 16))
        with block("sum"):
            for i in range(7):
                for o in range(16):
                    t[i, o] = 0
                    for k in range(5):
                        t[i, o] += int32(x[i, k]) * int32(w[k, o])
        with block("out"):
            for p in range(7):
                for q in range(16):
                    y[p, q] = int8(min(max((t[p, q] + b[q]) >> 4, -128), 127))
""")
