"""Which op of a model takes what from which, and what each is given and gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...relay.expr import Call, Constant, Control, Expr, Function, GlobalVar, If, Var
from ...relay.module import IRModule
from ...relay.op import Op
from ...relay.types import TensorType, TupleType, Type
from ...relay.visit import callees, children, post_order

__all__ = ["OpFlow", "op_flows"]


@dataclass(frozen=True)
class OpFlow:
    """An op among others.

    Args:
        inputs: the positions of the ops whose values it takes, in order.
        constant_bytes: of the constants that it takes.
        output: the type of what it gives; of several tensors the first's.
        output_bytes: of all that it gives.
    """

    inputs: tuple[int, ...]
    constant_bytes: int
    output: TensorType
    output_bytes: int


def op_flows(module: IRModule) -> tuple[OpFlow, ...]:
    """The ops that ``main`` computes, also those in functions that it calls, in the order of `Placement.records`."""
    flows: list[OpFlow] = []
    stack = [_Frame(module.main, {})]
    while stack:
        frame = stack[-1]
        expr = next(frame.rest, None)
        if expr is None:
            stack.pop()
            if frame.outer is not None and frame.call is not None:
                earlier = frame.outer.sources[frame.call] if isinstance(frame.call.op, Control) else ()
                frame.outer.sources[frame.call] = tuple(sorted({*earlier, *frame.sources[frame.function.body]}))
            continue
        sources = sorted({source for child in children(expr) for source in frame.sources[child]})
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            frame.sources[expr] = (len(flows),)
            tensors = _tensors(expr.type)
            constants = {child for child in expr.args if isinstance(child, Constant)}
            constant_bytes = sum(child.tensor.nbytes for child in constants)
            flows.append(OpFlow(tuple(sources), constant_bytes, tensors[0], sum(one.nbytes for one in tensors)))
        elif isinstance(expr, Call) and isinstance(expr.op, Control):
            operands = expr.args[1:] if isinstance(expr.op, If) else expr.args
            frame.sources[expr] = frame.sources[expr.args[0]]
            for var in callees(expr):
                body = module.functions[var]
                assert isinstance(body, Function)  # `verify` sees to it
                args = {param: frame.sources[arg] for param, arg in zip(body.params, operands, strict=True)}
                stack.append(_Frame(body, args, expr, frame))
        elif isinstance(expr, Call):
            called = module.functions.get(expr.op) if isinstance(expr.op, GlobalVar) else expr.op
            frame.sources[expr] = tuple(sources)
            if isinstance(called, Function):
                args = {param: frame.sources[arg] for param, arg in zip(called.params, expr.args, strict=True)}
                stack.append(_Frame(called, args, expr, frame))
        elif not isinstance(expr, Var) or expr not in frame.sources:
            frame.sources[expr] = tuple(sources)
    return tuple(flows)


class _Frame:
    """A function whose ops are looked at.

    Args:
        function: the function.
        sources: the ops that its parameters come from.
        call: of it, or of what may run it; None of ``main``.
        outer: of the function that has this call.
    """

    def __init__(
        self,
        function: Function,
        sources: Mapping[Var, tuple[int, ...]],
        call: Call | None = None,
        outer: _Frame | None = None,
    ) -> None:
        self.function, self.call, self.outer = function, call, outer
        self.sources: dict[Expr, tuple[int, ...]] = dict(sources.items())
        self.rest: Iterator[Expr] = iter(post_order(function.body))


def _tensors(type_: Type) -> tuple[TensorType, ...]:
    return type_.fields if isinstance(type_, TupleType) else (type_,) if isinstance(type_, TensorType) else ()
