"""Tensor expressions made into one nest of loops per stage, which a schedule transforms.

Loop variables, buffers and labels are named by their order: equal computations give equal functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...errors import InternalError
from ..form.nodes import (
    Alloc,
    Block,
    Buffer,
    Expr,
    For,
    If,
    Load,
    Param,
    PrimFunc,
    Role,
    Stmt,
    Store,
    Update,
    Var,
    const,
    seq,
)
from ..form.symbolic_dims import Symbol, is_open, upper_bounds
from ..form.visit import rewrite
from ..proofs.alias import may_alias
from .folding import fold_constant_terms
from .layouts import seen_through
from .stage_planning import Nest, identity_of, knows, nests, plan_stages, still_read, symbols_in
from .symbolic_loops import bound_to
from .tensors import (
    PARAM_ALIGNMENT,
    Definition,
    IterVar,
    Placeholder,
    Reduce,
    Reshape,
    Tensor,
    is_computed,
    require,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Kernel", "check_roles", "plain", "stage_kernel"]

_PREFIXES: dict[Role, str] = {"input": "x", "output": "out", "constant": "w"}


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel, and what its constants are.

    Args:
        func: the loops. Equal computations give the same function, whatever their tensors are called and hold.
        held: what its parameters of role constant hold, in order: placeholders, what was made by `constant`, and
            tensors that are computed from these at build time.
        labels: of the plain form, the label of the block of each stage.
        buffers: of the plain form, where each tensor is: a parameter, or memory of a stage.
        symbols: of open extents: for each the last inputs of ``func`` have one more, an int32 of one element that holds
            its value.
    """

    func: PrimFunc
    held: tuple[Tensor, ...]
    labels: Mapping[Tensor, str] = field(default_factory=dict)
    buffers: Mapping[Tensor, Buffer] = field(default_factory=dict)
    symbols: tuple[Symbol, ...] = ()

    def bind(self, arrays: Mapping[Tensor, NDArray[Any]] = MappingProxyType({})) -> tuple[NDArray[Any], ...]:
        """What the parameters of role constant hold, in order.

        Args:
            arrays: the contents of the constants that are placeholders, of their shapes and dtypes.

        Raises:
            InternalError: the contents of a placeholder are missing, or are of another dtype or shape; or computing
                what is computed from them reads an element that does not exist, or shifts by less than 0 or too far.
        """
        from .evaluate import contents_of  # which imports numpy

        return contents_of(self.held, arrays)


def plain(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: Sequence[Tensor] = (),
    keep: Collection[Tensor] = (),
) -> Kernel:
    """The kernel that computes ``outputs`` in the plain form, which schedules begin with: one nest of loops per stage.

    The nest of a stage stands in a block, whose label is in ``labels`` of the kernel. Its loops are those over the axes
    of the tensor, in order, and then those of the reduction, if it is one; each axis has one, also where its extent is
    1. A reduction stores its identity before the loops of the reduction, and updates the element within them. Each
    piece of a tensor that is assembled has a nest, and a block, of its own within that of the stage. Stages that are no
    outputs are allocated around all nests.

    Cheap intermediate tensors are written into their consumers, and have no stage. Of a sum of integers the terms that
    are constants are one, computed at build time, unless that takes more elements than the largest of them.

    Args:
        inputs: as for `prim_func`.
        outputs: as for `prim_func`.
        constants: as for `prim_func`.
        keep: computed tensors that have a stage, however cheap they are; but those that are computed at build time.

    Returns:
        The function, with its parameters in the order of `prim_func`, but without workspaces.

    Raises:
        InternalError: as for `prim_func`; or what is to be kept is not computed.
    """
    check_roles(inputs, outputs, constants)
    for tensor in keep:
        require(is_computed(tensor), f"{tensor.name!r} is to be kept and is not computed")
    stages = plan_stages(outputs, constants, frozenset(keep))
    stages = fold_constant_terms(stages, knows(stages, constants))
    constants = still_read(stages, outputs, constants)
    return stage_kernel(stages, seen_through(stages, inputs), outputs, seen_through(stages, constants))


def check_roles(inputs: Sequence[Tensor], outputs: Sequence[Tensor], constants: Sequence[Tensor]) -> None:
    """Raise an `InternalError` unless parameters are placeholders, outputs are computed, and no tensor repeats."""
    seen: set[Tensor] = set()
    for tensor in (*inputs, *constants):
        require(isinstance(tensor.definition, Placeholder), f"parameter {tensor.name!r} is not a placeholder")
        require(tensor not in seen, f"parameter {tensor.name!r} is given twice")
        seen.add(tensor)
    for tensor in outputs:
        require(is_computed(tensor), f"output {tensor.name!r} is not computed")
        require(tensor not in seen, f"output {tensor.name!r} is given twice")
        seen.add(tensor)


def stage_kernel(
    stages: Mapping[Tensor, Definition],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: Sequence[Tensor],
) -> Kernel:
    """The kernel of some stages, each of which has one nest.

    Args:
        stages: what is computed, each after what it reads.
        inputs, outputs, constants: the parameters, as ``stages`` read them.

    Raises:
        InternalError: a placeholder that is read is not a parameter.
    """
    return _Plain(stages, inputs, outputs, constants).kernel()


class _Plain:
    def __init__(
        self,
        stages: Mapping[Tensor, Definition],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        constants: Sequence[Tensor],
    ) -> None:
        self.stages = stages
        self.counts: Counter[str] = Counter()
        self.params: dict[Role, list[Buffer]] = {"input": [], "output": [], "constant": []}
        self.buffers: dict[Tensor, Buffer] = {}
        self.labels: dict[Tensor, str] = {}
        self.held = list(constants)
        symbols = {symbol.name: symbol for definition in stages.values() for symbol in symbols_in(definition)}
        self.symbols: dict[Symbol, Var] = {symbols[name]: Var(self.name("n")) for name in sorted(symbols)}
        tensors_by_role: tuple[tuple[Role, Sequence[Tensor]], ...] = (
            ("input", inputs),
            ("output", outputs),
            ("constant", constants),
        )
        for role, tensors in tensors_by_role:
            for tensor in tensors:
                self.buffers[tensor] = self.param(role, tensor)

    def kernel(self) -> Kernel:
        inner = [tensor for tensor in self.stages if tensor not in self.buffers]
        for tensor in inner:
            # A vector that crosses a cache line costs two accesses.
            self.buffers[tensor] = Buffer(self.name("a"), upper_bounds(tensor.shape), tensor.dtype, "local", 64)
        body = seq(*(self.stage(tensor, definition) for tensor, definition in self.stages.items()))
        for tensor in reversed(inner):
            body = Alloc(self.buffers[tensor], body)
        for symbol, var in self.symbols.items():
            extent_input, body = bound_to(symbol, var, body)
            self.params["input"].append(extent_input)
        params = tuple(Param(buffer, role) for role, buffers in self.params.items() for buffer in buffers)
        partial = tuple(b.name for t, b in self.buffers.items() if b in self.params["output"] and is_open(t.shape))
        func = PrimFunc(params, body, may_alias(params, body), partial=partial)
        return Kernel(func, tuple(self.held), self.labels, self.buffers, tuple(self.symbols))

    # Names and memory

    def name(self, prefix: str) -> str:
        self.counts[prefix] += 1
        return f"{prefix}{self.counts[prefix] - 1}"

    def param(self, role: Role, tensor: Tensor) -> Buffer:
        alignment = PARAM_ALIGNMENT if role == "constant" else 0
        buffer = Buffer(self.name(_PREFIXES[role]), upper_bounds(tensor.shape), tensor.dtype, alignment=alignment)
        self.params[role].append(buffer)
        return buffer

    def buffer(self, tensor: Buffer) -> Buffer:
        assert isinstance(tensor, Tensor)
        buffer = self.buffers.get(tensor)
        if buffer is None:
            if isinstance(tensor.definition, (Placeholder, Reshape)):
                raise InternalError(f"{tensor.name!r} is read and is not a parameter", where="tensor expression")
            self.held.append(tensor)
            buffer = self.buffers[tensor] = self.param("constant", tensor)
        return buffer

    # Loops

    def stage(self, tensor: Tensor, definition: Definition) -> Stmt:
        stage_nests = nests(definition)
        label = self.labels[tensor] = self.name("reduce" if isinstance(definition, Reduce) else "compute")
        parts = [self.nest(tensor, definition, nest) for nest in stage_nests]
        if len(parts) > 1:
            parts = [Block(self.name("piece"), part) for part in parts]
        return Block(label, seq(*parts))

    def nest(self, tensor: Tensor, definition: Definition, nest: Nest) -> Stmt:
        buffer = self.buffers[tensor]
        at: dict[Var, Var] = {axis: Var(self.name("i")) for axis in nest.loops}
        place = tuple(
            self.value(const(offset), at) + at[axis] if offset else at[axis]
            for offset, axis in zip(nest.offsets, nest.axes, strict=True)
        )
        if not isinstance(definition, Reduce):
            return self.loops(nest.axes, at, Store(buffer, place, self.value(nest.exprs[0], at)))
        reduction = definition.reduction
        step: Stmt = Update(reduction.op, buffer, place, self.value(reduction.value, at))
        if reduction.where is not None:
            step = If(self.value(reduction.where, at), step)
        start = Store(buffer, place, identity_of(reduction.op, tensor.dtype))
        return self.loops(nest.axes, at, seq(start, self.loops(reduction.axes, at, step)))

    def value(self, expr: Expr, at: Mapping[Var, Var]) -> Expr:
        """``expr`` with axes and tensors replaced by what stands for them in the loops."""

        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Var):
                return self.symbols[node] if isinstance(node, Symbol) else at[node]
            return Load(self.buffer(node.buffer), node.indices) if isinstance(node, Load) else None

        return rewrite(expr, rule)

    def loops(self, axes: Sequence[IterVar], at: Mapping[Var, Var], body: Stmt) -> Stmt:
        for axis in reversed(axes):
            body = For(at[axis], self.value(const(axis.extent), at), body)
        return body
