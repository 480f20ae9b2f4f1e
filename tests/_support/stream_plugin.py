"""A plugin for the device of `stream_device`: takes additions of int32, and starts each on a queue."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tests._support import stream_device as lag
from tests._support.plugins import accelerator, entry_of, taking

from uma.hookspecs import Blob, Extern, Runtime
from uma.plugins import PluginEntry
from uma.relay import Call, Constant, Expr, Function, GlobalVar, IRModule, Spans
from uma.relay.module import func_type
from uma.relay.visit import children, post_order, with_children
from uma.tir import Buffer, Param

__all__ = ["addition", "lowering", "operands", "plugin"]

Hook = Callable[..., "tuple[IRModule, GlobalVar] | None"]


def operands(call: Call) -> list[Expr]:
    """What an addition adds: of a match, arguments of its call and constants of its body."""
    if not isinstance(call.op, Function):
        return list(call.args)
    assert isinstance(call.op.body, Call)
    given: dict[Expr, Expr] = dict(zip(call.op.params, call.args, strict=True))
    return [given.get(arg, arg) for arg in call.op.body.args]


def addition(call: Call, queue: str | None, layers: Sequence[str], alignment: int = 0) -> Extern:
    """An addition as commands; constant operands are weights."""
    sources, params, weights = [], [], []
    for name, arg in zip("ab", operands(call), strict=True):
        sources.append(lag.Source(name, arg.tensor.size))
        if isinstance(arg, Constant):
            weights.append(Blob(name, arg.data.tobytes(), 4))
        else:
            params.append(Param(Buffer(name, arg.shape, "int32", alignment=alignment), "input"))
    params.append(Param(Buffer("y", call.shape, "int32", alignment=alignment), "output"))
    stream = lag.commands([("y", call.tensor.size, sources)], layer=f"{', '.join(layers)}: ")
    scalars = {} if queue is None else {"queue": "ab".index(queue)}
    return Extern(tuple(params), "run" if queue is None else "start", scalars, (stream, *weights), queue=queue)


def lowering(queues: Sequence[str | None], alignment: int = 0) -> Hook:
    """A hook that makes an extern of each addition of a region, on these queues in turn."""

    def relay_to_runtime(module: IRModule, function: Function) -> tuple[IRModule, GlobalVar]:
        turn = itertools.cycle(queues)
        functions: dict[GlobalVar, Any] = {}
        spans = Spans()
        done: dict[Expr, Expr] = {param: param for param in function.params}
        for expr in post_order(function.body):
            if expr in done:
                continue
            if isinstance(expr, Call):
                extern = addition(expr, next(turn), module.spans[expr], alignment)
                var = GlobalVar(f"add{len(functions)}", func_type(extern))
                functions[var] = extern
                given = [arg for arg in operands(expr) if not isinstance(arg, Constant)]
                done[expr] = Call(var, [done[arg] for arg in given])
                spans.add(done[expr], module.spans[expr])
            else:
                done[expr] = with_children(expr, [done[child] for child in children(expr)])
        entry = Function(function.params, done[function.body])
        var = GlobalVar("entry", func_type(entry))
        return IRModule({**functions, var: entry}, spans), var

    return relay_to_runtime


def plugin(
    hook: Hook | None = None, runtime: Runtime | None = None, label: str = "npu", *, silent: bool = False, **hooks: Any
) -> list[PluginEntry]:
    """The entries of the plugin.

    Args:
        hook: ``relay_to_runtime``; by default both queues in turn.
        runtime: what it gives from that hook; by default a device that does nothing until it is waited for.
        label: its kind.
        silent: whether it gives nothing from hook ``runtime``.
        hooks: what else it implements.
    """
    given = {
        "patterns": lambda: [taking(label, "add", lower=None)],
        "relay_to_runtime": hook or lowering("ab"),
        "runtime": lambda: None if silent else runtime or lag.runtime(),
    }
    return entry_of(accelerator(label), **{**given, **hooks})
