"""From a lowered module to the list of calls."""

from __future__ import annotations

from ..errors import InternalError
from ..program import Buffer, Call, Program, Quantisation
from ..program.program import Role
from ..relay import expr as relay
from ..relay.module import IRModule, Signature, TensorInfo
from ..relay.types import TensorType, TupleType
from ..relay.visit import post_order
from ..tir import te
from ..tir.nodes import PrimFunc
from .fuse import is_view

__all__ = ["sequence", "sequence_tracing"]

ALIGNMENT = 16
"""Of every buffer in the arena and every constant, in bytes: the widest load of the machines that have few."""


def sequence(module: IRModule, name: str) -> Program:
    """The calls of ``main`` in the order in which they run.

    A view (reshape, squeeze) is the same buffer as its argument. An output that would be the memory of an input, a
    constant or another output is made by a copy.

    Args:
        module: lowered: ``main`` calls PrimFuncs only.
        name: of the model, an ASCII identifier.
    """
    return _Sequencer(module, name).run()


def sequence_tracing(module: IRModule, name: str) -> tuple[Program, dict[relay.Expr, tuple[str, ...]]]:
    """As `sequence`; also the names of the buffers that hold the value of each expression of ``main``."""
    sequencer = _Sequencer(module, name)
    return sequencer.run(), sequencer.where


class _Sequencer:
    def __init__(self, module: IRModule, name: str) -> None:
        self.module = module
        self.main = module.main
        self.name = name
        self.signature = module.signature or Signature.of(self.main)
        self.buffers: dict[str, Buffer] = {}
        self.steps: list[Call] = []
        self.functions: dict[str, PrimFunc] = {}
        self.where: dict[relay.Expr, tuple[str, ...]] = {}

    def run(self) -> Program:
        for param, info in zip(self.main.params, self.signature.inputs, strict=True):
            self.where[param] = (self._add(f"in_{param.name}", "input", param.tensor, info=info),)
        order = post_order(self.main.body)
        for expr in order:
            if expr not in self.where:
                self.where[expr] = self._place(expr)
        self._name_outputs(order)
        return Program(self.name, tuple(self.buffers.values()), tuple(self.steps), self.functions)

    def _place(self, expr: relay.Expr) -> tuple[str, ...]:
        """The buffers that hold the value of ``expr``, after the step that computes it, if it takes one."""
        if isinstance(expr, relay.Constant):
            return (self._add(f"c{len(self.buffers)}", "constant", expr.tensor, data=expr.data.tobytes()),)
        if isinstance(expr, relay.Tuple):
            return tuple(name for field in expr.fields for name in self.where[field])
        if isinstance(expr, relay.TupleGetItem):
            return (self.where[expr.tuple][expr.index],)
        if is_view(expr) and isinstance(expr, relay.Call):
            return self.where[expr.args[0]]
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
            function = self.module.functions[expr.op]
            if isinstance(function, PrimFunc):
                args = [self.where[arg][0] for arg in expr.args]
                return self._step(expr.op.name, function, args, self.module.spans[expr])
        raise InternalError(f"{expr!r} was not lowered", where=", ".join(self.module.spans[expr]) or None)

    def _step(self, name: str, function: PrimFunc, args: list[str], layers: tuple[str, ...]) -> tuple[str, ...]:
        self.functions[name] = function
        taken = len(function.buffers("input"))
        made = tuple(
            self._add(f"t{len(self.buffers)}", "intermediate", TensorType(b.shape, b.dtype))
            for b in function.buffers("output")
        )
        spaces = tuple(
            self._add(f"t{len(self.buffers)}", "workspace", TensorType(b.shape, b.dtype))
            for b in function.buffers("workspace")
        )
        self.steps.append(Call(name, (*args[:taken], *made, *args[taken:], *spaces), layers))
        return made

    def _name_outputs(self, order: list[relay.Expr]) -> None:
        """Turn the buffers of the results into outputs, in the model's order."""
        results = self.where[self.main.body]
        outputs: dict[str, Buffer] = {}
        for position, (name, info) in enumerate(zip(results, self.signature.outputs, strict=True)):
            source = self.buffers.get(name)
            if source is None or source.role != "intermediate":
                name = self._copy(outputs.get(name) or self.buffers[name])
            outputs[f"out_{position}"] = self._output(name, f"out_{position}", info, position)
        self.buffers.update(outputs)

    def _output(self, name: str, new: str, info: TensorInfo, position: int) -> Buffer:
        old = self.buffers.pop(name)
        self.steps = [Call(s.function, tuple(new if a == name else a for a in s.args), s.layers) for s in self.steps]
        for expr, names in self.where.items():
            if name in names:
                self.where[expr] = tuple(new if n == name else n for n in names)
        type_ = self._result_type(position)
        return Buffer(new, "output", type_.shape, old.dtype, tensor=info.name, quantisation=_quantisation(info))

    def _result_type(self, position: int) -> TensorType:
        body = self.main.body.type
        field = body.fields[position] if isinstance(body, TupleType) else body
        assert isinstance(field, TensorType)
        return field

    def _copy(self, source: Buffer) -> str:
        """A step that copies ``source``; gives the name of the copy."""
        data = te.placeholder(source.shape, source.dtype, "data")
        constant = source.role == "constant"
        kernel = te.prim_func(
            [] if constant else [data],
            [te.compute(source.shape, lambda *i: data[i], "copy")],
            constants=[data] if constant else [],
        )
        name = next((n for n, f in self.functions.items() if f is kernel.func), f"copy{len(self.functions)}")
        return self._step(name, kernel.func, [source.name], ())[0]

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
            alignment=0 if role == "input" else ALIGNMENT,
            data=data,
            tensor=info.name if info else None,
            quantisation=_quantisation(info) if info else None,
        )
        return name


def _quantisation(info: TensorInfo) -> Quantisation | None:
    return None if info.scale is None else Quantisation(info.scale, info.zero_point or 0)
