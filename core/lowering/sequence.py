"""From a lowered module to the list of calls."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..errors import InternalError, ModelError
from ..program import Buffer, Call, Else, End, If, Loop, Program, Quantisation, Queue, Step, place_waits
from ..program.control_flow import condition_uses, has_control
from ..program.program import CALLER_POOL, Role, arguments, drives_device
from ..program.step_scheduling import reordered
from ..relay import expr as relay
from ..relay.extern import Extern, Kernel
from ..relay.module import IRModule, Signature, TensorInfo
from ..relay.tensors import copy_of
from ..relay.types import FuncType, TensorType, TupleType, tensor_type
from ..relay.visit import post_order
from ..tir import te
from ..tir.form.dtype import itemsize
from ..tir.form.nodes import Buffer as TirBuffer
from ..tir.form.nodes import PrimFunc
from ..tir.proofs.overlap import with_overlaps
from .copy_coalescing import coalesce_copies, renamed_step
from .fuse import is_view
from .graph_queries import unique_name
from .region_lowering import label_of
from .state_update import can_update_in_place, evaluation_order, parallel_copies

__all__ = ["Traced", "sequence", "sequence_tracing", "traced_sequence"]


def sequence(module: IRModule, name: str) -> Program:
    """The calls of ``main``, and of the regions that it calls, and waits between: in the order in which they begin, or
    in another one in which less memory is needed (`reordered`).

    A view (reshape, squeeze) is the same buffer as its argument. An output that would be the memory of an input, a
    state, a constant or another output is made by a copy. The new value of a state is written over the old one by the
    step that computes it, where nobody needs the old one any more, else by a copy at the end.

    Args:
        module: lowered: ``main`` calls loops and regions, regions call loops and externs.
        name: of the model, an ASCII identifier.

    Raises:
        ModelError: loops are given a computed value where they take a constant; something drives a device outside of a
            region, so that nobody knows which; or is started on a queue that its device does not have.
        InternalError: something is not lowered.
    """
    return sequence_tracing(module, name)[0]


def sequence_tracing(
    module: IRModule, name: str, reuse: bool = True, depths: Mapping[tuple[str, str], int] = MappingProxyType({})
) -> tuple[Program, dict[relay.Expr, tuple[str, ...]]]:
    """As `sequence`; also the names of the buffers that hold the value of each expression of ``main``.

    Args:
        module, name: as for `sequence`.
        reuse: False keeps the old values of states until the end, so that all values can be inspected after a run.
        depths: how many launches each queue takes before one is waited for, by label of the device and name.
    """
    traced = traced_sequence(module, name, reuse, depths)
    return traced.program, traced.where


Where = dict[relay.Expr, tuple[str, ...]]
"""The buffers that hold the value of each expression."""


@dataclass(frozen=True)
class Traced:
    """A program, and where it has the values of the module that it was made from.

    Args:
        program: it.
        where: of ``main``.
        sites: for each place where control flow runs a function the function's name, and where its values are.
    """

    program: Program
    where: Where
    sites: tuple[tuple[str, Where], ...]


def traced_sequence(
    module: IRModule,
    name: str,
    reuse: bool = True,
    depths: Mapping[tuple[str, str], int] = MappingProxyType({}),
    pool: str = CALLER_POOL,
    reorder: bool = True,
) -> Traced:
    """As `sequence_tracing`; also where the values of branches and of loops' bodies are.

    Args:
        module, name, depths: as for `sequence_tracing`.
        reuse: False also has each branch and each turn work on copies of what it is given, so that all that the last
            turn was given and gave can be inspected after a run.
        pool: where inputs and outputs are: the caller's arrays, or a pool of the host. There they can be aligned as
            functions want them, and are not copied for that.
        reorder: whether calls may change places for less memory.
    """
    sequencer = _Sequencer(module, name, reuse, depths, pool, reorder)
    program = sequencer.run()
    return Traced(program, sequencer.where, tuple(sequencer.sites))


class _Sequencer:
    def __init__(
        self,
        module: IRModule,
        name: str,
        reuse: bool,
        depths: Mapping[tuple[str, str], int],
        pool: str,
        reorder: bool,
    ) -> None:
        self.module = module
        self.reorder = reorder
        self.depths = depths
        self.pool = pool
        self.reuse = reuse
        self.main = module.main
        self.name = name
        self.signature = module.signature or Signature.from_function(self.main)
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[relay.Constant, str] = {}
        self.steps: list[Step] = []
        self.functions: dict[str, Kernel] = {}
        self.where: Where = {}
        self.sites: list[tuple[str, Where]] = []
        self.copying: set[str] = set()
        self.numbers = itertools.count()

    def run(self) -> Program:
        for param, info in zip(self.signature.of_inputs(self.main.params), self.signature.inputs, strict=True):
            self.where[param] = (self._add(f"in_{param.name}", "input", param.tensor, info=info),)
        for state in self.signature.states:
            param, info = self.main.params[state.input], TensorInfo(state.name)
            buffer = self._add(f"state_{param.name}", "state", param.tensor, state.initial, info)
            self.where[param] = (buffer,)
        for expr in evaluation_order(self.main, self.signature):
            if expr not in self.where:
                self.where[expr] = self._place(expr, self.where, None, ())
        self._name_outputs()
        self._keep_states()
        if self.reuse and has_control(self._program()):
            self._coalesce()
        if self.sites:
            self._drop_unused()
        self.functions = {name: _annotate_overlaps(function) for name, function in self.functions.items()}
        self._align_placed()
        return self._with_waits(self._program())

    def _walk(
        self, function: relay.Function, where: Where, label: str | None, layers: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The buffers that hold the result of ``function``, after its steps.

        Args:
            function: a region.
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
        if isinstance(expr, relay.Call):
            return self._call(expr, where, label, layers)
        raise self._not_lowered(expr)

    def _not_lowered(self, expr: relay.Expr) -> InternalError:
        return InternalError(f"{expr!r} was not lowered", where=", ".join(self.module.spans[expr]) or None)

    def _call(self, expr: relay.Call, where: Where, label: str | None, layers: tuple[str, ...]) -> tuple[str, ...]:
        """The buffers that hold the results of a call, after its steps."""
        layers_here = self.module.spans[expr]
        if isinstance(expr.op, relay.If):
            return self._branch(expr.op, [where[arg][0] for arg in expr.args], layers_here)
        if isinstance(expr.op, relay.Loop):
            return self._loop(expr.op, [where[arg][0] for arg in expr.args], layers_here)
        if isinstance(expr.op, relay.GlobalVar):
            function = self.module.functions[expr.op]
            if not isinstance(function, relay.Function):
                args = [where[arg][0] for arg in expr.args]
                # Regions of the model's own that compute the same share their expressions, and so the layers of these.
                # What a pass makes of a region and says no layers of is for all of the region's.
                here = tuple(layer for layer in layers_here if layer in layers)
                return self._step(expr.op.name, function, args, here or layers_here or layers, label, expr.pin)
            inner = label_of(function)
            if inner is not None and label is None:
                params = zip(function.params, expr.args, strict=True)
                return self._walk(function, {param: where[arg] for param, arg in params}, inner, layers_here)
        raise self._not_lowered(expr)

    def _branch(self, branch: relay.If, args: Sequence[str], layers: tuple[str, ...]) -> tuple[str, ...]:
        """The buffers of what one of two functions gives, after the steps of both."""
        assert isinstance(branch.then.type, FuncType)
        then_type = branch.then.type.result
        types = then_type.fields if isinstance(then_type, TupleType) else (tensor_type(then_type),)
        results = tuple(self._add(self._fresh("t"), "intermediate", type_) for type_ in types)
        self.steps.append(If(args[0], layers))
        for position, var in enumerate((branch.then, branch.otherwise)):
            if position:
                self.steps.append(Else())
            for value, result in zip(self._body(var, args[1:]), results, strict=True):
                self._copy_to(value, result)
        self.steps.append(End())
        return results

    def _loop(self, loop: relay.Loop, args: Sequence[str], layers: tuple[str, ...]) -> tuple[str, ...]:
        """The buffers of what a loop carries, after its steps."""
        assert isinstance(loop.body.type, FuncType)
        carried = []
        for arg, type_ in zip(args[: loop.carried], loop.body.type.params, strict=False):  # the others stay as they are
            carried.append(self._add(self._fresh("t"), "intermediate", tensor_type(type_)))
            self._copy_to(arg, carried[-1])
        self.steps.append(Loop(carried[0], layers))
        values = self._body(loop.body, [*carried, *args[loop.carried :]])
        aside: dict[str, str] = {}
        for target, source in parallel_copies({to: v for to, v in zip(carried, values, strict=True) if to != v}):
            if target is None:
                aside[source] = self._copy(self.buffers[source])
            else:
                self._copy_to(aside.get(source, source), target)
        self.steps.append(End())
        return tuple(carried)

    def _body(self, var: relay.GlobalVar, args: Sequence[str]) -> tuple[str, ...]:
        """The buffers of what a function that control flow runs gives, after its steps."""
        function = self.module.functions[var]
        assert isinstance(function, relay.Function)  # `verify` sees to it
        operands = args if self.reuse else [self._copy(self.buffers[arg]) for arg in args]
        where: Where = {param: (arg,) for param, arg in zip(function.params, operands, strict=True)}
        self.sites.append((var.name, where))
        return self._walk(function, where, None, ())

    def _copy_to(self, source: str, target: str) -> None:
        """A step that copies ``source`` to a buffer that there is."""
        copy = self._copy(self.buffers[source])
        self.steps[-1] = renamed_step(self.steps[-1], {copy: target})
        alignment = max(self.buffers[target].alignment, self.buffers[copy].alignment)
        self.buffers[target] = replace(self.buffers[target], alignment=alignment)
        del self.buffers[copy]

    def _drop_unused(self) -> None:
        """Take out constants that only functions were given which do not use them."""
        program = self._program()
        used = {name for _, step in program.calls for name in step.args}
        used.update(name for _, name in condition_uses(program.steps))
        kept = {name: buffer for name, buffer in self.buffers.items() if buffer.role != "constant" or name in used}
        self.buffers = kept

    def _coalesce(self) -> None:
        """Take out copies of what nobody needs any more: it is written where the copy would be."""
        merged, self.steps = coalesce_copies(self._program(), self.copying, self._needing_alignment())
        for name, into in merged.items():
            alignment = max(self.buffers[into].alignment, self.buffers.pop(name).alignment)
            if not self.buffers[into].is_given:
                self.buffers[into] = replace(self.buffers[into], alignment=alignment)
        called = {step.function for step in self.steps if isinstance(step, Call)}
        self.functions = {name: function for name, function in self.functions.items() if name in called}
        self._rename_values(merged)

    def _step(
        self,
        name: str,
        function: Kernel,
        args: list[str],
        layers: tuple[str, ...],
        label: str | None,
        host: str | None = None,
    ) -> tuple[str, ...]:
        self.functions[name] = function
        inputs = function.buffers("input")
        for operand in args[len(inputs) :]:
            if self.buffers[operand].role != "constant":
                text = f"{name!r} is given a value that is computed where it takes a constant"
                raise ModelError(text, where=", ".join(layers) or None)
        device = label if drives_device(function) else None
        if drives_device(function) and label is None:
            text = f"{name!r} drives a device, and is called outside of a region, so that nobody knows which"
            raise ModelError(text, where=", ".join(layers) or None, hint="call it in a function with Compiler=LABEL")
        if device is None and label is not None:
            host = label  # loops of an accelerator that its host runs; it may say how they are compiled
        queue, constants = None, args[len(inputs) :]
        if isinstance(function, Extern):
            queue = function.queue
            if queue is not None and (device or "", queue) not in self.depths:
                text = f"{name!r} is started on queue {queue!r}, which device {device!r} does not have"
                raise ModelError(text, where=", ".join(layers) or None)
            types = [(TensorType((len(blob.data),), "uint8"), blob.data) for blob in function.blobs]
            constants = [self._add(self._fresh("c"), "constant", type_, data) for type_, data in types]
        read = [self._aligned(one, b) for one, b in zip(args[: len(inputs)], inputs, strict=True)]
        constants = [self._aligned(one, b) for one, b in zip(constants, function.buffers("constant"), strict=True)]
        written = tuple(
            self._aligned(self._add(self._fresh("t"), "intermediate", TensorType(b.shape, b.dtype)), b)
            for b in function.buffers("output")
        )
        spaces = tuple(self._space(buffer, function, label) for buffer in function.buffers("workspace"))
        self.steps.append(Call(name, (*read, *written, *constants, *spaces), layers, device, queue, host))
        return written

    def _aligned(self, name: str, asked: TirBuffer) -> str:
        """The buffer, or a copy of it, where a function can take it as ``asked``."""
        buffer = self.buffers[name]
        if buffer.alignment >= asked.alignment:
            return name
        if buffer.is_given:  # memory of the caller is aligned to its elements
            return self._aligned(self._copy(buffer), asked)
        self.buffers[name] = replace(buffer, alignment=asked.alignment)
        return name

    def _space(self, buffer: TirBuffer, function: Kernel, label: str | None) -> str:
        """Memory for a workspace: in the arena, or in a memory of the device that it is meant for."""
        name = self._aligned(self._add(self._fresh("t"), "workspace", TensorType(buffer.shape, buffer.dtype)), buffer)
        for memory in function.memories:
            if memory.name == buffer.scope:
                alignment = max(buffer.alignment, memory.alignment)
                self.buffers[name] = replace(self.buffers[name], pool=f"{label}.{memory.name}", alignment=alignment)
        return name

    def _name_outputs(self) -> None:
        """Turn the buffers of the results into outputs, in the model's order."""
        renamed: dict[str, str] = {}
        results = self.signature.of_outputs(self.where[self.main.body])
        needing = self._needing_alignment()
        for position, name in enumerate(results):
            if self.buffers[name].role != "intermediate" or name in renamed or name in needing:
                name = self._copy(self.buffers[name])
            renamed[name] = f"out_{position}"
        type_ = self.main.body.type
        types = self.signature.of_outputs(type_.fields if isinstance(type_, TupleType) else (self.main.body.tensor,))
        for new, info, result in zip(renamed.values(), self.signature.outputs, types, strict=True):
            self._add(new, "output", result, info=info)
        self._rename(renamed)

    def _keep_states(self) -> None:
        """Have the new values of states written."""
        results = self.where[self.main.body]
        values = {self.where[self.main.params[s.input]][0]: results[s.output] for s in self.signature.states}
        values = {state: value for state, value in values.items() if state != value}
        updates = list(values.values())
        for state, value in values.items():
            free = self.buffers[value].role == "intermediate" and updates.count(value) == 1 and state not in updates
            if self.reuse and free and can_update_in_place(self._program(), state, value):
                self._rename({value: state})
        aside: dict[str, str] = {}
        for target, source in parallel_copies({state: v for state, v in values.items() if v in self.buffers}):
            copy = self._copy(self.buffers[aside.get(source, source)])
            if target is None:
                aside[source] = copy
            else:
                # Not what `where` has: a copy is not a value of main.
                self.steps[-1] = renamed_step(self.steps[-1], {copy: target})
                del self.buffers[copy]

    def _needing_alignment(self) -> set[str]:
        """The buffers that a step needs to be aligned to more than their elements, which an array of the caller need
        not be."""
        if self.pool != CALLER_POOL:
            return set()
        program = self._program()
        passed = [pair for _, step in program.calls for pair in arguments(program, step)]
        return {name for param, name in passed if param.buffer.alignment > itemsize(param.buffer.dtype)}

    def _align_placed(self) -> None:
        """Align inputs and outputs in the arena as steps ask, and no more: firmware counts these bytes."""
        program = self._program()
        asked = {buffer.name: itemsize(buffer.dtype) for buffer in program.placed}
        for _, step in program.calls:
            for param, name in arguments(program, step):
                if name in asked:
                    asked[name] = max(asked[name], param.buffer.alignment)
        self.buffers |= {name: replace(self.buffers[name], alignment=asked[name]) for name in asked}

    def _with_waits(self, program: Program) -> Program:
        """``program`` in the order that takes least memory, with the queues that it uses, and waits for what is started
        on them."""
        if self.reuse and self.reorder:
            program = reordered(program)
        used = dict.fromkeys((call.device, call.queue) for _, call in program.calls if call.device and call.queue)
        queues = tuple(Queue(device, queue, self.depths[device, queue]) for device, queue in used)
        return replace(program, steps=place_waits(program.steps, self.functions, self.depths), queues=queues)

    def _program(self) -> Program:
        buffers, steps = tuple(self.buffers.values()), tuple(self.steps)
        return Program(self.name, buffers, steps, self.functions, model=self.signature.model)

    def _rename(self, renamed: dict[str, str]) -> None:
        """Put other buffers, which there are, in the place of intermediates."""
        for name, new in renamed.items():
            old = self.buffers.pop(name)
            if not self.buffers[new].is_given:
                alignment = max(old.alignment, self.buffers[new].alignment)
                self.buffers[new] = replace(self.buffers[new], alignment=alignment)
        self.steps = [renamed_step(step, renamed) for step in self.steps]
        self._rename_values(renamed)

    def _rename_values(self, renamed: Mapping[str, str]) -> None:
        self.where = {expr: _renamed(names, renamed) for expr, names in self.where.items()}
        for _, where in self.sites:
            where.update({expr: _renamed(names, renamed) for expr, names in where.items()})

    def _copy(self, source: Buffer) -> str:
        """A step that copies ``source``; gives the name of the copy."""
        data = te.placeholder(source.shape, source.dtype, "data")
        constant = source.role == "constant"
        kernel = te.prim_func([] if constant else [data], [copy_of(data)], constants=[data] if constant else [])
        copies = (name for name, function in self.functions.items() if function is kernel.func)
        name = next(copies, None) or unique_name("copy", set(self.functions))
        self.copying.add(name)
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
            pool=self.pool if role in ("input", "output") else "",
            data=data,
            tensor=info.name if info else None,
            quantisation=_quantisation(info) if info else None,
            extents=info.shape if info else None,
        )
        return name


def _annotate_overlaps(function: Kernel) -> Kernel:
    """A function, which nothing rewrites any more, with its overlaps."""
    return with_overlaps(function) if isinstance(function, PrimFunc) else function


def _renamed(names: tuple[str, ...], renamed: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(renamed.get(name, name) for name in names)


def _quantisation(info: TensorInfo) -> Quantisation | None:
    return None if info.scale is None else Quantisation(info.scale, info.zero_point or 0)
