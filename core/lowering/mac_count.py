"""What the steps of a program do of the model: which op, and how many multiply-accumulates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..program import Program
from ..program.program import arguments
from ..relay.expr import Call, Expr, Function, GlobalVar, macs_of
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.types import TupleType, Type, tensor_type
from ..relay.visit import post_order
from .fuse import is_view

__all__ = ["StepsOf", "Work", "called_function", "work_of"]

BuffersOf = Callable[[Expr], "tuple[str, ...] | None"]
"""The buffers of a program that hold the value of an expression."""


class StepsOf:
    """Which steps of a program compute something.

    Args:
        program: a verified program.
    """

    def __init__(self, program: Program) -> None:
        self._inputs = {
            position: tuple(name for param, name in arguments(program, step) if param.role == "input")
            for position, step in program.calls
        }
        self._writers = {
            name: position
            for position, step in program.calls
            for param, name in arguments(program, step)
            if param.role == "output"
        }

    def __call__(self, results: Iterable[str], inputs: Iterable[str]) -> tuple[int, ...]:
        """The positions of the calls that compute the buffers ``results`` from the buffers ``inputs``."""
        available, steps = set(inputs), set[int]()
        wanted = [name for name in results if name not in available]
        while wanted:
            position = self._writers.get(wanted.pop())
            if position is not None and position not in steps:
                steps.add(position)
                wanted += [name for name in self._inputs[position] if name not in available]
        return tuple(sorted(steps))


def called_function(module: IRModule, call: Call) -> Function | None:
    """What a call of ``main`` of a fused module computes: a kernel, or a region; None for loops."""
    function = module.functions[call.op] if isinstance(call.op, GlobalVar) else call.op
    return function if isinstance(function, Function) else None


@dataclass(frozen=True)
class Work:
    """What a call does of the model.

    Args:
        op: the name of the op that most of it is.
        shape: of its first result, as the model has it.
        macs: the model's multiply-accumulates that it computes.
    """

    op: str
    shape: tuple[int, ...]
    macs: int


@dataclass(frozen=True)
class _Counted:
    """One op in a kernel or region."""

    call: Call
    work: Work

    @property
    def weight(self) -> tuple[int, bool]:
        """By which the op that most of the work is comes first."""
        assert isinstance(self.call.op, Op)
        return self.work.macs, self.call.op.kind in ("reduction", "opaque")


def work_of(module: IRModule, buffers_of: BuffersOf, program: Program) -> dict[int, Work]:
    """What the steps do of the model, by their positions; nothing of those that nobody knows that of.

    Where a region takes several steps, an op is counted for the first one that has one of its layers, else for the
    last one.

    Args:
        module: with kernels and regions, before it was lowered.
        buffers_of: where the program has the values of expressions of its ``main``.
        program: what became of it.
    """
    steps_of, counted_at = StepsOf(program), dict[int, list[_Counted]]()
    layers = {position: frozenset(step.layers) for position, step in program.calls}
    ops: dict[Function, list[_Counted]] = {}
    shapes: dict[int, tuple[int, ...]] = {}
    for expr in post_order(module.main.body):
        if not isinstance(expr, Call) or is_view(expr):
            continue
        function, results = called_function(module, expr), buffers_of(expr)
        if function is None or results is None:
            continue
        steps = steps_of(results, [name for arg in expr.args for name in buffers_of(arg) or ()])
        if len(steps) == 1:
            shapes[steps[0]] = _shape(expr.type)
        for counted in _ops(function, ops) if steps else ():
            own_layers = module.spans[counted.call]
            at = next((step for step in steps if not layers[step].isdisjoint(own_layers)), steps[-1])
            counted_at.setdefault(at if len(steps) > 1 else steps[0], []).append(counted)
    work = {}
    for position, counted_there in counted_at.items():
        most = max(counted_there, key=lambda one: one.weight)
        shape = shapes.get(position, most.work.shape)
        work[position] = Work(most.work.op, shape, sum(one.work.macs for one in counted_there))
    return work


def _ops(function: Function, counts: dict[Function, list[_Counted]]) -> list[_Counted]:
    """The calls of ops in a function, those of functions in it as often as these are called."""
    if function not in counts:
        ops: list[_Counted] = []
        for expr in post_order(function.body):
            if isinstance(expr, Call) and isinstance(expr.op, Function):
                ops += _ops(expr.op, counts)
            elif isinstance(expr, Call) and isinstance(expr.op, Op):
                ops.append(_Counted(expr, Work(expr.op.name, _shape(expr.type), macs_of(expr))))
        counts[function] = ops
    return counts[function]


def _shape(type_: Type) -> tuple[int, ...]:
    """Of the first tensor of a result."""
    return tensor_type(type_.fields[0] if isinstance(type_, TupleType) else type_).bound.shape
