"""From a lowered module to the list of calls."""

from __future__ import annotations

import itertools
from dataclasses import replace

from ..errors import InternalError, ModelError
from ..program import Buffer, Call, Program, Quantisation
from ..program.program import Role
from ..relay import expr as relay
from ..relay.module import IRModule, Signature, TensorInfo
from ..relay.types import TensorType, TupleType
from ..relay.visit import post_order
from ..tir import te
from ..tir.nodes import Buffer as TirBuffer
from ..tir.nodes import PrimFunc
from ..tir.visit import uses_device
from .fuse import is_view
from .graph import unique_name
from .lower import copy_of
from .regions import label_of

__all__ = ["sequence", "sequence_tracing"]


def sequence(module: IRModule, name: str) -> Program:
    """The calls of ``main``, and of the regions that it calls, in the order in which they run.

    A view (reshape, squeeze) is the same buffer as its argument. An output that would be the memory of an input, a
    constant or another output is made by a copy.

    Args:
        module: lowered: ``main`` calls loops and regions, regions call loops.
        name: of the model, an ASCII identifier.

    Raises:
        ModelError: a PrimFunc is given a computed value where it takes a constant, or drives a device outside of a
            region, so that nobody knows which.
        InternalError: something is not lowered.
    """
    return sequence_tracing(module, name)[0]


def sequence_tracing(module: IRModule, name: str) -> tuple[Program, dict[relay.Expr, tuple[str, ...]]]:
    """As `sequence`; also the names of the buffers that hold the value of each expression of ``main``."""
    sequencer = _Sequencer(module, name)
    return sequencer.run(), sequencer.where


Where = dict[relay.Expr, tuple[str, ...]]
"""The buffers that hold the value of each expression."""


class _Sequencer:
    def __init__(self, module: IRModule, name: str) -> None:
        self.module = module
        self.main = module.main
        self.name = name
        self.signature = module.signature or Signature.of(self.main)
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[relay.Constant, str] = {}
        self.steps: list[Call] = []
        self.functions: dict[str, PrimFunc] = {}
        self.where: Where = {}
        self.numbers = itertools.count()

    def run(self) -> Program:
        for param, info in zip(self.main.params, self.signature.inputs, strict=True):
            self.where[param] = (self._add(f"in_{param.name}", "input", param.tensor, info=info),)
        self._walk(self.main, self.where, None, ())
        self._name_outputs()
        return Program(self.name, tuple(self.buffers.values()), tuple(self.steps), self.functions)

    def _walk(
        self, function: relay.Function, where: Where, label: str | None, layers: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The buffers that hold the result of ``function``, after its steps.

        Args:
            function: ``main``, or a region.
            where: has the buffers of its parameters.
            label: of the region's target.
            layers: of the call of the region.
        """
        for expr in post_order(function.body):
            if expr not in where:
                where[expr] = self._place(expr, where, label, layers)
        return where[function.body]

    def _place(self, expr: relay.Expr, where: Where, label: str | None, layers: tuple[str, ...]) -> tuple[str, ...]:
        """The buffers that hold the value of ``expr``, after the step that computes it, if it takes one."""
        if isinstance(expr, relay.Constant):
            if expr not in self.constants:
                data = expr.data.tobytes()
                self.constants[expr] = self._add(self._fresh("c"), "constant", expr.tensor, data=data)
            return (self.constants[expr],)
        if isinstance(expr, relay.Tuple):
            return tuple(name for field in expr.fields for name in where[field])
        if isinstance(expr, relay.TupleGetItem):
            return (where[expr.tuple][expr.index],)
        if is_view(expr) and isinstance(expr, relay.Call):
            return where[expr.args[0]]
        own = self.module.spans[expr]
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
            function = self.module.functions[expr.op]
            if isinstance(function, PrimFunc):
                args = [where[arg][0] for arg in expr.args]
                # Regions of the model's own that compute the same share their expressions, and so the layers of these.
                # What a pass makes of a region and says no layers of is for all of the region's.
                here = tuple(layer for layer in own if layer in layers)
                return self._step(expr.op.name, function, args, here or own or layers, label)
            inner = label_of(function)
            if inner is not None and label is None:
                params = zip(function.params, expr.args, strict=True)
                return self._walk(function, {param: where[arg] for param, arg in params}, inner, own)
        raise InternalError(f"{expr!r} was not lowered", where=", ".join(own) or None)

    def _step(
        self, name: str, function: PrimFunc, args: list[str], layers: tuple[str, ...], label: str | None
    ) -> tuple[str, ...]:
        self.functions[name] = function
        taken = len(function.buffers("input"))
        for given in args[taken:]:
            if self.buffers[given].role != "constant":
                what = f"{name!r} is given a value that is computed where it takes a constant"
                raise ModelError(what, where=", ".join(layers) or None)
        device = label if uses_device(function) else None
        if uses_device(function) and label is None:
            what = f"{name!r} drives a device, and is called outside of a region, so that nobody knows which"
            raise ModelError(what, where=", ".join(layers) or None, hint="call it in a function with Compiler=LABEL")
        made = tuple(
            self._add(self._fresh("t"), "intermediate", TensorType(b.shape, b.dtype))
            for b in function.buffers("output")
        )
        spaces = tuple(self._space(buffer, function, label) for buffer in function.buffers("workspace"))
        self.steps.append(Call(name, (*args[:taken], *made, *args[taken:], *spaces), layers, device))
        return made

    def _space(self, buffer: TirBuffer, function: PrimFunc, label: str | None) -> str:
        """Memory for a workspace: in the arena, or in a memory of the device that it is meant for."""
        name = self._add(self._fresh("t"), "workspace", TensorType(buffer.shape, buffer.dtype))
        for memory in function.memories:
            if memory.name == buffer.scope:
                alignment = max(buffer.alignment, memory.alignment)
                self.buffers[name] = replace(self.buffers[name], pool=f"{label}.{memory.name}", alignment=alignment)
        return name

    def _name_outputs(self) -> None:
        """Turn the buffers of the results into outputs, in the model's order."""
        renamed: dict[str, str] = {}
        for position, name in enumerate(self.where[self.main.body]):
            if self.buffers[name].role != "intermediate" or name in renamed:
                name = self._copy(self.buffers[name])
            renamed[name] = f"out_{position}"
        type_ = self.main.body.type
        types = type_.fields if isinstance(type_, TupleType) else (self.main.body.tensor,)
        for (name, new), info, result in zip(renamed.items(), self.signature.outputs, types, strict=True):
            del self.buffers[name]
            self._add(new, "output", result, info=info)
        self.steps = [replace(step, args=tuple(renamed.get(a, a) for a in step.args)) for step in self.steps]
        self.where = {expr: tuple(renamed.get(n, n) for n in names) for expr, names in self.where.items()}

    def _copy(self, source: Buffer) -> str:
        """A step that copies ``source``; gives the name of the copy."""
        data = te.placeholder(source.shape, source.dtype, "data")
        constant = source.role == "constant"
        kernel = te.prim_func([] if constant else [data], [copy_of(data)], constants=[data] if constant else [])
        known = (name for name, function in self.functions.items() if function is kernel.func)
        name = next(known, None) or unique_name("copy", set(self.functions))
        return self._step(name, kernel.func, [source.name], (), None)[0]

    def _fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self.numbers)}"

    def _add(
        self,
        name: str,
        role: Role,
        type_: TensorType,
        data: bytes | None = None,
        info: TensorInfo | None = None,
    ) -> str:
        self.buffers[name] = Buffer(
            name,
            role,
            type_.shape,
            type_.dtype,
            alignment=0 if role in ("input", "output") else te.PARAM_ALIGNMENT,
            data=data,
            tensor=info.name if info else None,
            quantisation=_quantisation(info) if info else None,
        )
        return name


def _quantisation(info: TensorInfo) -> Quantisation | None:
    return None if info.scale is None else Quantisation(info.scale, info.zero_point or 0)
