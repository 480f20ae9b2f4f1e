"""From relay to tensor expressions: what a function of ops computes, element by element."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..errors import InternalError, ModelError
from ..tir import te
from ..tir.form.nodes import Imm
from .expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from .op import Op
from .types import TensorType
from .visit import children, post_order

__all__ = ["TensorFunction", "copy_of", "tensor_function"]


@dataclass(frozen=True, eq=False)
class TensorFunction:
    """The tensor expressions of a function.

    Args:
        params: placeholders for its parameters, in order.
        results: what it gives, in order: each computed, and another one than the others. A result that is a parameter,
            or another result as well, is a copy.
        by_expr: the tensors of each expression of its body: one, or one for each field of a tuple.
    """

    params: tuple[te.Tensor, ...]
    results: tuple[te.Tensor, ...]
    by_expr: Mapping[Expr, tuple[te.Tensor, ...]]

    def kernel(self, constants: Collection[te.Tensor] = ()) -> te.Kernel:
        """The loops that the core makes of it, see `te.prim_func`.

        Args:
            constants: those of ``params`` whose contents never change; the others are inputs.
        """
        inputs, constant_params = self._parted(constants)
        return te.prim_func(inputs, self.results, constants=constant_params)

    def plain(self, constants: Collection[te.Tensor] = (), keep: Collection[te.Tensor] = ()) -> te.Kernel:
        """The same with one nest of loops per stage, see `te.plain`.

        Args:
            constants: as for `kernel`.
            keep: computed tensors that have a stage, however cheap they are; but those that are computed at build time.
        """
        inputs, constant_params = self._parted(constants)
        return te.plain(inputs, self.results, constant_params, keep)

    def replaced(self, function: Function, call: Call, tensor: te.Tensor) -> TensorFunction:
        """The same with another computation of what one call gives.

        Args:
            function: that this is of.
            call: of the body of ``function``; gives one tensor.
            tensor: of the type of the call.
        """
        substitutes: dict[Expr, tuple[te.Tensor, ...]] = {}
        changed: set[Expr] = {call}
        for expr in post_order(function.body):
            if expr not in changed and changed.isdisjoint(children(expr)):
                substitutes[expr] = self.by_expr[expr]
            else:
                changed.add(expr)
        substitutes[call] = (tensor,)
        return _tensor_function(function, self.params, substitutes)

    def _parted(self, constants: Collection[te.Tensor]) -> tuple[list[te.Tensor], list[te.Tensor]]:
        constant_set = set(constants)
        return [t for t in self.params if t not in constant_set], [t for t in self.params if t in constant_set]


def tensor_function(function: Function) -> TensorFunction:
    """What ``function`` computes, by what its ops declare. Functions that it calls are written in.

    Constants of one element become numbers in the expressions, larger ones `te.constant`.

    Raises:
        ModelError: an op has no loops, or the function calls one of a module by its name.
        InternalError: what an op declares does not have the type of its calls.
    """
    params = tuple(te.placeholder(param.shape, param.dtype, param.name) for param in function.params)
    return _tensor_function(function, params, {})


def _tensor_function(
    function: Function, params: tuple[te.Tensor, ...], substitutes: Mapping[Expr, tuple[te.Tensor, ...]]
) -> TensorFunction:
    tensors = _values(function, [(tensor,) for tensor in params], substitutes)
    results: list[te.Tensor] = []
    for tensor in tensors[function.body]:
        computed = not isinstance(tensor.definition, (te.Placeholder, te.Constant))
        results.append(tensor if computed and tensor not in results else copy_of(tensor))
    return TensorFunction(params, tuple(results), tensors)


def copy_of(tensor: te.Tensor) -> te.Tensor:
    """What holds the same in memory of its own."""
    return te.compute(tensor.shape, lambda *index: tensor[index], "copy")


def _values(
    function: Function,
    args: Sequence[tuple[te.Tensor, ...]],
    substitutes: Mapping[Expr, tuple[te.Tensor, ...]] = MappingProxyType({}),
) -> dict[Expr, tuple[te.Tensor, ...]]:
    values: dict[Expr, tuple[te.Tensor, ...]] = {**substitutes, **dict(zip(function.params, args, strict=True))}
    for expr in post_order(function.body):
        if expr in values:
            continue
        if isinstance(expr, Constant):
            values[expr] = (_constant(expr),)
        elif isinstance(expr, Tuple):
            values[expr] = tuple(tensor for field in expr.fields for tensor in values[field])
        elif isinstance(expr, TupleGetItem):
            values[expr] = (values[expr.tuple][expr.index],)
        elif isinstance(expr, Call) and isinstance(expr.op, Op):
            values[expr] = _computed(expr, expr.op, [values[arg][0] for arg in expr.args])
        elif isinstance(expr, Call) and isinstance(expr.op, Function):
            values[expr] = _values(expr.op, [values[arg] for arg in expr.args])[expr.op.body]
        else:
            raise ModelError("a kernel consists of calls of ops")
    return values


def _computed(call: Call, op: Op, args: list[te.Tensor]) -> tuple[te.Tensor, ...]:
    if op.compute is None:
        raise ModelError(f"{op.name} has no lowering for the host")
    result = op.compute(call.attrs, call.type, *args)
    tensors = result if isinstance(result, tuple) else (result,)
    expected = op.outputs(call.type)
    if [TensorType(t.shape, t.dtype) for t in tensors] != list(expected):
        types = ", ".join(f"{t.shape} {t.dtype}" for t in tensors)
        raise InternalError(f"compute of {op.name} gives {types}, not {', '.join(map(str, expected))}")
    return tensors


def _constant(constant: Constant) -> te.Tensor:
    """A constant of one element is part of the kernel's code, a larger one a parameter of it."""
    if constant.tensor.size > 1:
        return te.constant(constant.data, "constant")
    value = Imm(constant.data.reshape(()).item(), constant.dtype)
    return te.compute(constant.shape, lambda *_: value, "constant")
