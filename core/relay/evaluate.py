"""Running functions of the graph form with the numpy references of their ops: slow, exact, and the definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Union

from ..errors import InternalError, ModelError
from ..support.import_budget import affords, spend_operations
from ..tir.form.symbolic_dims import Extent
from .expr import Call, Constant, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, Var, effort_of, tensors_of
from .module import IRModule
from .op import Attrs, Op
from .types import Type
from .visit import children, post_order

if TYPE_CHECKING:
    import numpy as np

__all__ = ["evaluate", "evaluate_all", "fold"]

Value = Union["np.ndarray", tuple[Any, ...]]
"""An array, or a tuple of values."""


Apply = Callable[[Call, Attrs, Sequence[Value]], Value]
"""Gives the result of an op from a call of it, its attributes, in which dynamic dimensions have their values, and its
operands."""


def evaluate(
    model: IRModule | Function,
    inputs: Mapping[str, np.ndarray],
    extents: Mapping[str, int] = MappingProxyType({}),
    *,
    apply: Apply | None = None,
) -> tuple[np.ndarray, ...]:
    """The results of a model.

    Args:
        model: a module, of which ``main`` is run, or a function that calls no global one.
        inputs: an array for each parameter, by its name.
        extents: values of open extents that the model does not compute, by the names of their symbols.
        apply: computes each call of an op; by default the op's reference does.

    Returns:
        The fields of the result where it is a tuple, else the one array.

    Raises:
        ModelError: an input is missing, unknown, or of another shape or dtype; or a global function is called that
            is missing, not of the graph form, or under way already.
    """
    main, run = _prepare(model)
    run.extents.update(extents)
    run.apply = apply or _by_reference
    result = run.values(main, _arguments(main, inputs, extents), keep=False)[main.body]
    return result if isinstance(result, tuple) else (result,)


def fold(exprs: Sequence[Expr]) -> list[np.ndarray] | None:
    """Return what expressions without variables are worth, each a tensor; None if the import's budget has less left
    than it takes to evaluate them.

    Args:
        exprs: of constants and calls of ops.
    """
    whole = Tuple(exprs)
    efforts = [effort_of(expr) for expr in post_order(whole) if isinstance(expr, Call)]
    operations = sum(count for _, count in efforts)
    if not affords(max((count for count, _ in efforts), default=0), operations):
        return None
    spend_operations(operations)
    return list(evaluate(Function((), whole), {}))


def evaluate_all(model: IRModule | Function, inputs: Mapping[str, np.ndarray]) -> dict[Expr, Value]:
    """Every value of ``main``, constants included, by its expression: an array, or a tuple. Otherwise as `evaluate`."""
    main, run = _prepare(model)
    return run.values(main, _arguments(main, inputs), keep=True)


def _prepare(model: IRModule | Function) -> tuple[Function, _Run]:
    return (model.main, _Run(model)) if isinstance(model, IRModule) else (model, _Run(IRModule({})))


def _arguments(
    main: Function, inputs: Mapping[str, np.ndarray], extents: Mapping[str, int] = MappingProxyType({})
) -> list[Value]:
    names = [param.name for param in main.params]
    for name in inputs:
        if name not in names:
            raise ModelError(f"there is no input {name!r}", hint=f"the inputs are {', '.join(names) or 'none'}")
    arguments: list[Value] = []
    for param in main.params:
        if param.name not in inputs:
            raise ModelError(f"input {param.name!r} is missing")
        array = inputs[param.name]
        received = f"{tuple(array.shape)} {array.dtype.name}"
        shape = _with_values(param.shape, extents)
        if received != f"{shape} {param.dtype}":
            raise ModelError(f"input {param.name!r} is {received}, not {shape} {param.dtype}")
        arguments.append(array)
    return arguments


class _Run:
    def __init__(self, module: IRModule) -> None:
        self._module = module
        self._active: list[Function] = []
        self.extents: dict[str, int] = {}
        self.apply: Apply = _by_reference

    def values(self, function: Function, arguments: list[Value], keep: bool) -> dict[Expr, Value]:
        """Values of the expressions of ``function``: all of them, or the result only."""
        order = post_order(function.body)
        uses: dict[Expr, int] = {function.body: 1}
        for expr in order:
            for child in children(expr):
                uses[child] = uses.get(child, 0) + 1
        values: dict[Expr, Value] = dict(zip(function.params, arguments, strict=True))
        for expr in order:
            if not isinstance(expr, Var):
                values[expr] = self._value(expr, values)
            if not keep:
                for child in children(expr):
                    uses[child] -= 1
                    if not uses[child]:
                        del values[child]
        return values

    def _value(self, expr: Expr, values: Mapping[Expr, Value]) -> Value:
        if isinstance(expr, Constant):
            return expr.data
        operands = [values[child] for child in children(expr)]
        if isinstance(expr, Tuple):
            return tuple(operands)
        if isinstance(expr, TupleGetItem):
            field: Value = operands[0][expr.index]
            return field
        assert isinstance(expr, Call)
        if isinstance(expr.op, If):
            return self._call(expr.op.then if operands[0] else expr.op.otherwise, operands[1:])
        if isinstance(expr.op, Loop):
            return self._loop(expr.op, operands)
        if not isinstance(expr.op, Op):
            return self._call(expr.op, operands)
        result = self.apply(expr, self._valued(expr, operands), operands)
        _check(result, expr.type, expr.op.name, self.extents)
        return result

    def _valued(self, call: Call, operands: list[Value]) -> Attrs:
        """The attributes of a call of an op where extents that the model computes have their values."""
        if call.op_name == "take_first" and isinstance(call.attrs.extent, Extent):
            symbol = call.attrs.extent.symbols[0]
            self.extents[symbol.name] = min(max(int(operands[1][0]), symbol.low), symbol.high)
        if not self.extents:
            return call.attrs
        return Attrs(tuple((name, _with_values(value, self.extents)) for name, value in call.attrs.items))

    def _loop(self, loop: Loop, arguments: list[Value]) -> Value:
        carried, others = tuple(arguments[: loop.carried]), arguments[loop.carried :]
        while carried[0]:
            carried = tuple(self._call(loop.body, [*carried, *others]))
        return carried

    def _call(self, callee: Function | GlobalVar, arguments: list[Value]) -> Value:
        function = self._module.functions.get(callee) if isinstance(callee, GlobalVar) else callee
        if not isinstance(function, Function) or function in self._active:
            name = callee.name if isinstance(callee, GlobalVar) else "?"
            why = "calls itself" if isinstance(function, Function) else "is not a function of the graph form"
            raise ModelError(f"function {name!r} {why}")
        self._active.append(function)
        result = self.values(function, arguments, keep=False)[function.body]
        self._active.pop()
        return result


def _by_reference(expr: Call, attrs: Attrs, operands: Sequence[Value]) -> Value:
    assert isinstance(expr.op, Op)
    return expr.op.evaluate(attrs, *operands)


def _with_values(value: Any, extents: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple([_with_values(part, extents) for part in value])
    return value.with_values(extents) if isinstance(value, Extent) else value


def _check(result: Value, type_: Type, op: str, extents: Mapping[str, int]) -> None:
    """InternalError where a reference does not give what the type relation promises."""
    fields = result if isinstance(result, tuple) else (result,)
    types = [(tuple(field.shape), field.dtype.name) for field in fields]
    promised = [(_with_values(field.shape, extents), field.dtype) for field in tensors_of(type_)]
    if types != promised:
        listing = ", ".join(f"Tensor[{shape}, {dtype}]" for shape, dtype in types)
        raise InternalError(f"the reference of {op} gives {listing}, not {type_}")
