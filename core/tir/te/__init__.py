"""Tensor expressions: what a tensor holds, element by element, from which a kernel is made.

    x, w = placeholder((1, 8, 8, 3), "float32", "x"), placeholder((3, 3, 3, 16), "float32", "w")
    kh, kw, ci = reduce_axis(3, "kh"), reduce_axis(3, "kw"), reduce_axis(3, "ci")

    def element(n: Expr, h: Expr, w_: Expr, co: Expr) -> Reduction:
        inside = (h + kh >= 1) & (h + kh < 9) & (w_ + kw >= 1) & (w_ + kw < 9)
        return sum(x[n, h + kh - 1, w_ + kw - 1, ci] * w[kh, kw, ci, co], (kh, kw, ci), where=inside)

    y = compute((1, 8, 8, 16), element, "y")
    kernel = prim_func([x], [y], constants=[w])

A tensor is a buffer that knows its definition, so ``t[i, j]`` is an ordinary `Load`. Elements are defined, not
computed in an order: a float sum may be formed in any order, and the kernel that `prim_func` gives fixes one. What
that kernel looks like is told in `lower`. `plain` gives one nest of loops per stage, for schedules to begin with.
"""

from __future__ import annotations

from .lower import prim_func
from .stage_lowering import Kernel, plain
from .tensors import (
    PARAM_ALIGNMENT,
    Assemble,
    Compute,
    Constant,
    Fragment,
    IterVar,
    Placeholder,
    Reduce,
    Reduction,
    Reshape,
    Tensor,
    assemble,
    compute,
    constant,
    max,
    min,
    placeholder,
    prod,
    reduce_axis,
    reshape,
    sum,
)

__all__ = [
    "PARAM_ALIGNMENT",
    "Assemble",
    "Compute",
    "Constant",
    "Fragment",
    "IterVar",
    "Kernel",
    "Placeholder",
    "Reduce",
    "Reduction",
    "Reshape",
    "Tensor",
    "assemble",
    "compute",
    "constant",
    "max",
    "min",
    "placeholder",
    "plain",
    "prim_func",
    "prod",
    "reduce_axis",
    "reshape",
    "sum",
]
