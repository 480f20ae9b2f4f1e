"""What a target's plugin gives for one match, or one op, asked in order: the pattern's ``lower``, its strategies."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..contract.fusion import Fusion
from ..contract.lowered import Declined, LoweredKernel, Refuse, ScheduledKernel
from ..errors import InternalError, PluginError
from ..relay.expr import Constant, Expr, Function, Var, const, is_open
from ..relay.extern import Extern
from ..relay.module import func_type
from ..relay.op import Op
from ..relay.pattern import Match
from ..relay.transform.layout_propagation import reshape
from ..relay.types import TensorType, TupleType, Type, tensor_type
from ..targets.kind import shown
from ..tir import te
from ..tir.form.nodes import Param, PrimFunc
from ..tir.form.symbolic_dims import OpenExtentError, Symbol, symbols_of
from ..tir.form.verify import verify
from ..tir.proofs.lanes import register_faults
from ..tir.proofs.obligations import unproven
from ..tir.schedule import ScheduleError
from ..tir.te.finalisation import finalise_kernel
from .build_targets import BuildTarget
from .declined_strategies import Decline, decline_fault
from .error_attribution import add_location
from .graph_queries import parts_of
from .loops import emission_fault, for_cpu
from .region_matches import match_alone

if TYPE_CHECKING:
    import numpy as np

__all__ = ["LoweredLoops", "bind_constants", "declared_loops", "extern_of", "lower_match", "refusal_fault"]


@dataclass(frozen=True)
class LoweredLoops:
    """Loops for a function, and what they are called with.

    Args:
        func: the loops. An input of theirs has as many elements as the operand that it takes, if not its shape.
        operands: which parameters of the function they are given, in order.
        symbols: the open extents that they are given behind these.
        constants: what they are given besides, in order.
        instructions: about how many they run, where whoever made them says so.
    """

    func: PrimFunc
    operands: tuple[Var, ...]
    constants: tuple[np.ndarray, ...]
    symbols: tuple[Symbol, ...] = ()
    instructions: int | None = None

    def arguments(self, bindings: Mapping[Var, Expr], extents: Mapping[str, Expr] = MappingProxyType({})) -> list[Expr]:
        """Return the arguments of a call of the loops, for values of the function's parameters and of open extents."""
        operands = [*(bindings[param] for param in self.operands), *(extents[symbol.name] for symbol in self.symbols)]
        pairs = zip(operands, self.func.buffers("input"), strict=True)
        return [*(reshape(operand, buffer.shape) for operand, buffer in pairs), *map(const, self.constants)]


def bind_constants(kernel: te.Kernel, fusion: Fusion) -> LoweredLoops:
    """A kernel of the tensor expressions of ``fusion``, of which the parameters that are known are constants.

    Raises:
        InternalError: the kernel has other constants.
    """
    constants: dict[te.Tensor, np.ndarray] = {}
    if fusion.known:
        pairs = zip(fusion.function.params, fusion.tensors.params, strict=True)
        constants = {tensor: fusion.known[param].data for param, tensor in pairs if param in fusion.known}
    operands = tuple(param for param in fusion.function.params if param not in fusion.known)
    return LoweredLoops(kernel.func, operands, kernel.bind(constants), kernel.symbols)


def declared_loops(fusion: Fusion) -> LoweredLoops | None:
    """The loops that the one op of a fusion declares; None where it declares tensor expressions, or has several.

    An op may declare both: then its loops are for fixed extents.
    """
    call = fusion.calls[0] if len(fusion.calls) == 1 else None
    if call is None or not isinstance(call.op, Op) or call.op.loops is None or fusion.function.body is not call:
        return None
    symbols = symbols_of(dim for arg in call.args for dim in arg.tensor.shape)
    if symbols and not call.op.open_loops:
        if call.op.compute is not None:
            return None
        raise OpenExtentError(f"{call.op.name} takes no open extents yet")
    func = call.op.loops(call.attrs, call.type, *(arg.tensor for arg in call.args))
    count = len(call.args)
    inputs: list[Param] = []
    constants: list[Param] = []
    operands: list[Var] = []
    arrays: list[np.ndarray] = []
    for param, arg in zip(func.params[:count], call.args, strict=True):
        # (A constant of one element is in the function.)
        held = fusion.known.get(arg) if isinstance(arg, Var) else arg
        if isinstance(held, Constant):
            constants.append(Param(param.buffer, "constant"))
            arrays.append(held.data)
        else:
            assert isinstance(arg, Var)
            inputs.append(param)
            operands.append(arg)
    rest = func.params[count:]
    before = [param for param in rest if param.role in ("input", "output")]
    behind = [param for param in rest if param.role not in ("input", "output")]
    reordered = replace(func, params=(*inputs, *before, *constants, *behind))
    return LoweredLoops(reordered, tuple(operands), tuple(arrays), symbols)


def lower_match(
    member: BuildTarget,
    fusion: Fusion,
    layers: tuple[str, ...],
    match: Match | None = None,
    *,
    sees_through: bool = False,
    noted: list[Decline] | None = None,
) -> LoweredLoops | None:
    """The loops that a target's plugin gives for one match, or one op; None where it gives none, and where extents are
    open, which plugins are not asked about.

    If a schedule of a host's plugin is not legal, or its loops are not safe or have no C, a `RuntimeWarning` names the
    plugin, and the next strategy is asked. For an accelerator, which has no other loops, this is a `PluginError`.

    Args:
        member: the target.
        fusion: just that; where a pattern took it, the attribute ``Composite`` of its function is the pattern's name.
        layers: of the model, for errors.
        match: what the function is a match of; by default that is looked for.
        sees_through: whether results may have another shape of as many elements.
        noted: gets what those said that were asked first, and declined.

    Raises:
        Refuse: the plugin refuses.
        PluginError: the plugin is at fault; names hook, pattern and layers.
    """
    if any(map(is_open, fusion.calls)):
        return None
    for label, lower in _lowerings(member, fusion, layers, match):
        try:
            loops = _offered(member, label, lower, fusion, layers, sees_through)
        except _Unusable as unusable:
            # A host's kernel has other loops, so that the build goes on without these.
            if not member.target.kind.is_host:
                raise unusable.fault from unusable.fault.__cause__
            loops = Declined(unusable.reason)
            warnings.warn(f"{unusable.fault}\n  other loops are used instead", RuntimeWarning, stacklevel=2)
        if isinstance(loops, LoweredLoops):
            return loops
        if loops is not None and noted is not None:
            noted.append(Decline(layers, member.label, label, loops.reason))
    return None


class _Unusable(Exception):
    """A plugin's loops are not legal, not safe, or cannot be printed as C.

    Args:
        fault: the error that names the plugin.
        reason: one sentence for the user of the model.
    """

    def __init__(self, fault: PluginError, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault
        self.reason = reason


def _offered(
    member: BuildTarget,
    label: str,
    lower: Callable[[], object],
    fusion: Fusion,
    layers: tuple[str, ...],
    sees_through: bool,
) -> LoweredLoops | Declined | None:
    """Return the loops that ``lower``, which errors name ``label``, gives for ``fusion``, checked; or that it has none.

    Raises:
        _Unusable: the schedule is not legal, or the loops are not safe, or cannot be printed as C.
        Refuse, PluginError: as `lower_match`.
    """
    try:
        result = _run_strategy(member, label, lower, fusion.function, layers)
    except PluginError as error:
        if isinstance(error.__cause__, ScheduleError):
            raise _Unusable(error, f"its schedule fails: {error.__cause__.what}") from error
        raise
    if result is None:
        return None
    if isinstance(result, Declined):
        wrong = decline_fault(result)
        if wrong is not None:
            raise add_location(member.plugin.fault(f"{wrong} in {label}"), *layers)
        return result
    loops = _checked(result, fusion, sees_through)
    if isinstance(loops, str):
        raise add_location(member.plugin.fault(f"gave {loops} from {label}"), *layers)
    gap = unproven(loops.func) or next(register_faults(loops.func, early=True), None)
    if gap is not None:
        unsafe = member.plugin.fault(f"gave loops that are not safe from {label}: {gap}")
        unsafe.hint = gap.hint
        add_location(unsafe, *layers)
        if isinstance(result, LoweredKernel):  # written by the plugin's author, not by a schedule
            raise unsafe
        raise _Unusable(unsafe, f"its loops are not safe: {gap}")
    fault = emission_fault(for_cpu(loops.func, member)) if member.target.kind.is_host else None
    if fault is not None:
        unwritten = member.plugin.fault(f"gave loops that have no C from {label}: {fault}")
        raise _Unusable(add_location(unwritten, *layers), f"its loops have no C: {fault}")
    return loops


def extern_of(member: BuildTarget, function: Function, layers: tuple[str, ...], match: Match) -> Extern | None:
    """What the pattern of a match makes of it as a whole; None where it has nothing for that.

    Args:
        member: the target, an accelerator.
        function: computes the match.
        layers: of the model, for errors.
        match: of the pattern.

    Raises:
        Refuse: the plugin refuses.
        PluginError: the plugin is at fault; names hook, pattern and layers.
    """
    composite = function.attr("Composite")
    pattern = None if composite is None else member.patterns.get(composite)
    if pattern is None or pattern.extern is None:
        return None
    label = f"extern of pattern {composite!r}"
    result = _run_strategy(member, label, partial(pattern.extern, match, member.target), function, layers)
    if result is None or (isinstance(result, Extern) and func_type(result) is function.type):
        return result
    wrong = f"{type(result).__name__} instead of Extern"
    if isinstance(result, Extern):
        wrong = f"an extern of type {func_type(result)}, not {function.type},"
    raise add_location(member.plugin.fault(f"gave {wrong} from {label}"), *layers)


def _run_strategy(
    member: BuildTarget, label: str, lower: Callable[[], object], function: Function, layers: tuple[str, ...]
) -> object:
    """What a plugin gives for a function."""
    try:
        return member.plugin.run(label, lower, member.target, may_refuse=True)
    except PluginError as error:
        add_location(error, *layers)
        raise
    except Refuse as refusal:
        wrong = refusal_fault(refusal, function)
        if wrong is not None:
            raise add_location(member.plugin.fault(f"{wrong} in {label}"), *layers) from refusal
        raise


def _lowerings(
    member: BuildTarget, fusion: Fusion, layers: tuple[str, ...], match: Match | None
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What a plugin may have for a function, with a name for errors: by its pattern, then by anchor or ops."""
    composite = fusion.function.attr("Composite")
    pattern = None if composite is None else member.patterns.get(composite)
    if pattern is not None and pattern.lower is not None:
        match = match or match_alone(member, pattern, fusion.function, layers)
        if match is not None:
            yield f"lower of pattern {composite!r}", partial(pattern.lower, match, member.target)
    for name in (composite, *_asked_for(fusion)):
        for strategy in member.strategies.get(name, ()) if name is not None else ():
            yield f"strategy {name!r}", partial(strategy.lower, fusion, member.target)


def _asked_for(fusion: Fusion) -> tuple[str | None, ...]:
    """The ops whose strategies may have loops for a fusion: its anchor, or all where it is elementwise throughout and
    no pattern's."""
    if fusion.anchor is not None:
        return (fusion.anchor.op_name,)
    if fusion.function.attr("Composite") is not None:
        return ()
    elementwise = all(isinstance(one.op, Op) and one.op.kind in ("elementwise", "broadcast") for one in fusion.calls)
    return tuple(dict.fromkeys(one.op_name for one in fusion.calls)) if elementwise else ()


def refusal_fault(refusal: Refuse, function: Function) -> str | None:
    """What is wrong with the refusal of ``function`` or a part of it, None for a good one."""
    reason: object = refusal.reason
    if not isinstance(reason, str) or not reason.strip():
        return "refused without a reason"
    at: object = refusal.at
    if at is not None and not (isinstance(at, Expr) and at in parts_of(function)):
        return f"refused {shown(at)}, which is nothing that the function it was given computes,"
    return None


def _checked(result: object, fusion: Fusion, sees_through: bool) -> LoweredLoops | str:
    """The loops that a plugin gave for a function; or what is wrong with them. Where whoever calls the loops
    ``sees_through`` it, results may have another shape of as many elements.
    """
    if not isinstance(result, (LoweredKernel, ScheduledKernel)):
        return f"{type(result).__name__} instead of LoweredKernel or ScheduledKernel"
    try:
        if isinstance(result, LoweredKernel):
            verify(result.func)
            loops = LoweredLoops(result.func, fusion.function.params, result.constants)
        else:
            verify(result.kernel.func)
            loops = bind_constants(replace(result.kernel, func=finalise_kernel(result.kernel.func)), fusion)
            loops = replace(loops, instructions=result.instructions)
    except InternalError as error:
        return f"loops that are not sound: {error.what} ({error.where})"
    body = fusion.function.body.type
    results: tuple[Type, ...] = body.fields if isinstance(body, TupleType) else (body,)
    sides = (
        ("inputs", loops.func.buffers("input"), [tensor_type(param.type) for param in loops.operands]),
        ("outputs", loops.func.buffers("output"), [tensor_type(field) for field in results]),
        ("constants", loops.func.buffers("constant"), [TensorType(c.shape, c.dtype.name) for c in loops.constants]),
    )
    for side, buffers, types in sides:
        actual = [TensorType(buffer.shape, buffer.dtype) for buffer in buffers]
        viewed = (side == "inputs" or (side == "outputs" and sees_through)) and _sizes(actual) == _sizes(types)
        if actual != types and not viewed:
            return f"loops with {side} ({', '.join(map(str, actual))}), not ({', '.join(map(str, types))})"
    return loops


def _sizes(types: Sequence[TensorType]) -> list[tuple[str, int]]:
    return [(one.dtype, one.size) for one in types]
