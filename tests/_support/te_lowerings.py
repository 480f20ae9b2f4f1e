"""What an accelerator's plugin may give for a match, made of the ops' own tensor expressions: loops that the host runs.

Written without the core's own lowering, so that the tests have two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uma.hookspecs import LoweredKernel
from uma.relay import Call, Constant, Expr, Function, Tuple, TupleGetItem, post_order
from uma.relay.op import Op
from uma.tir import te
from uma.tir.form.nodes import Imm

__all__ = ["Compute", "as_declared", "kernel_of", "lowered"]

Compute = Callable[[Call, Sequence[te.Tensor]], "te.Tensor | tuple[te.Tensor, ...]"]
"""Gives what a call of an op holds, from what its operands hold."""


def as_declared(call: Call, args: Sequence[te.Tensor]) -> te.Tensor | tuple[te.Tensor, ...]:
    """What the op's declaration says."""
    assert isinstance(call.op, Op) and call.op.compute is not None
    return call.op.compute(call.attrs, call.type, *args)


def kernel_of(function: Function, compute: Compute = as_declared) -> te.Kernel:
    """One kernel that computes a function of ops; its parameters are the inputs, its constants are inside."""
    params = [te.placeholder(param.shape, param.dtype, param.name) for param in function.params]
    values: dict[Expr, tuple[te.Tensor, ...]] = {
        param: (tensor,) for param, tensor in zip(function.params, params, strict=True)
    }
    for expr in post_order(function.body):
        if expr not in values:
            values[expr] = _value(expr, values, compute)
    outputs: list[te.Tensor] = []
    for tensor in values[function.body]:
        # A result that is an input, or another result as well, is a copy of it.
        plain = isinstance(tensor.definition, (te.Placeholder, te.Constant)) or tensor in outputs
        outputs.append(_copy(tensor) if plain else tensor)
    return te.prim_func(params, outputs)


def lowered(function: Function, compute: Compute = as_declared) -> LoweredKernel:
    """The same as what a pattern's ``lower`` gives."""
    kernel = kernel_of(function, compute)
    return LoweredKernel(kernel.func, kernel.bind())


def _value(expr: Expr, values: dict[Expr, tuple[te.Tensor, ...]], compute: Compute) -> tuple[te.Tensor, ...]:
    if isinstance(expr, Constant):
        if expr.tensor.size > 1:
            return (te.constant(expr.data, "constant"),)
        number = Imm(expr.data.reshape(()).item(), expr.dtype)
        return (te.compute(expr.shape, lambda *_: number, "constant"),)
    if isinstance(expr, Tuple):
        return tuple(tensor for field in expr.fields for tensor in values[field])
    if isinstance(expr, TupleGetItem):
        return (values[expr.tuple][expr.index],)
    assert isinstance(expr, Call)
    made = compute(expr, [values[arg][0] for arg in expr.args])
    return made if isinstance(made, tuple) else (made,)


def _copy(tensor: te.Tensor) -> te.Tensor:
    return te.compute(tensor.shape, lambda *index: tensor[index], "copy")
