"""Lowering the regions of accelerators: offered to their owners' hooks, checked, and merged into the module.

A lowered region stays a function of its own, with the attribute ``Compiler``; its body calls loops and externs.
So every form from here on says what runs for which target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..contract.fusion import Fusion
from ..contract.lowered import Refuse
from ..contract.region import RegionMatch, UnmatchedCall
from ..errors import InternalError, ModelError, PluginError
from ..partition import Refusal
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple
from ..relay.extern import Extern, Kernel
from ..relay.module import AnyFunction, IRModule, Spans, func_type
from ..relay.op import Op
from ..relay.rewriter import Rewriter
from ..relay.verify import verify
from ..relay.visit import children, post_order, with_children
from ..tir.form.nodes import PrimFunc
from ..tir.proofs.obligations import unproven
from .build_targets import BuildTarget, BuildTargets
from .declined_strategies import Decline
from .error_attribution import add_location
from .fuse import is_view
from .graph_queries import as_function, unique_name
from .region_matches import Matches
from .strategy_dispatch import LoweredLoops, extern_of, lower_match, refusal_fault

__all__ = ["RegionLowering", "label_of", "layers_of", "regions_of"]


def label_of(function: AnyFunction) -> str | None:
    """The label of the target that a region is for; None of every other function."""
    return function.attr("Compiler") if isinstance(function, Function) else None


def regions_of(module: IRModule) -> Iterator[tuple[GlobalVar, Function]]:
    """The regions of a module, in its order."""
    for var, function in module.functions.items():
        if isinstance(function, Function) and label_of(function) is not None:
            yield var, function


@dataclass(frozen=True)
class _Body:
    """What a region becomes: an expression of its parameters, the functions that it calls, and the layers of its
    calls."""

    body: Expr
    kernels: tuple[tuple[GlobalVar, Kernel], ...]
    spans: Spans


class RegionLowering:
    """Lowers the regions of modules that follow one another as refusals come in: what stays is not asked for again.

    Args:
        members: the targets of the build.
    """

    def __init__(self, members: BuildTargets) -> None:
        self._members = members
        self._done: dict[tuple[str | None, Function], _Body | list[Refuse]] = {}
        self._lowered: _Lowered = {}

    def __call__(self, module: IRModule, matches: Matches) -> tuple[IRModule, list[Refusal]]:
        """``module`` with every region lowered, and the refusals. Where there is one, the module is as it was.

        Args:
            module: with regions.
            matches: what these are made of.

        Raises:
            ModelError: a region calls a function of the module that is not a loops.
            PluginError: a hook is at fault; names plugin, hook, pattern and layers.
        """
        view = module.read_only()
        refusals: list[Refusal] = []
        lowered: list[tuple[GlobalVar, Function, _Body]] = []
        for var, function in regions_of(module):
            if _is_lowered(module, function):
                continue
            # The number in a region's name changes with those before it.
            key = label_of(function), Function(function.params, function.body)
            if key not in self._done:
                self._done[key] = self._lower(view, var, function, matches)
            result = self._done[key]
            if isinstance(result, _Body):
                lowered.append((var, function, result))
            else:
                refusals.extend(Refusal(var.name, refuse.at, refuse.reason) for refuse in result)
        return (module, refusals) if refusals else (_merged(module, lowered), [])

    def _lower(self, module: IRModule, var: GlobalVar, function: Function, matches: Matches) -> _Body | list[Refuse]:
        region = _Region(module, self._members[label_of(function) or ""], var, matches, self._lowered)
        result = region.lowered()
        if isinstance(result, _Body):
            region.check_devices(result)
        return result


_Lowered = dict[tuple[object, ...], "LoweredLoops | Extern | Refuse"]
"""What plugins gave for matches, by label, composite function and captures."""


class _Region:
    """One region on its way to loops."""

    def __init__(
        self, module: IRModule, member: BuildTarget, var: GlobalVar, matches: Matches, lowered: _Lowered
    ) -> None:
        self.module = module
        self.member = member
        self.var = var
        self.matched = matches.region(module, var)
        self.function = self.matched.function
        self.done = lowered
        self.layers = layers_of(module, self.function)

    def lowered(self) -> _Body | list[Refuse]:
        """The region lowered, or what its target refuses of it."""
        plugin, function = self.member.plugin, self.function
        arguments = {"module": self.module, "function": function, "region": self.matched, "target": self.member.target}
        for hook in ("relay_to_runtime", "relay_to_tir"):
            try:
                result = plugin.call(hook, **arguments)
            except PluginError as error:
                add_location(error, *self.layers, f"region {self.var.name!r}")
                raise
            except Refuse as refusal:
                wrong = refusal_fault(refusal, function)
                if wrong is not None:
                    raise self.fault(wrong, f"hook {hook}") from refusal
                whole = refusal.at is function or (refusal.at is function.body and isinstance(function.body, Tuple))
                return [Refuse(refusal.reason, None if whole else refusal.at)]
            if result is not None:
                return self.adopted(result, hook)
        return self.by_matches()

    def fault(self, text: str, place: str, layers: tuple[str, ...] | None = None) -> PluginError:
        error = self.member.plugin.fault(f"{text} in {place}, for region {self.var.name!r}")
        return add_location(error, *(self.layers if layers is None else layers))

    def check_devices(self, body: _Body) -> None:
        """What is for a target uses what its plugin declares: memories, queues, intrinsics, routines."""
        for var, func in body.kernels:
            used = self.member.undeclared(func)
            if used is not None:
                kind = "an extern" if isinstance(func, Extern) else "loops"
                uses = "uses" if isinstance(func, Extern) else "use"
                raise self.fault(f"gave {kind} {var.name!r} that {uses} {used},", "a lowering")

    def by_matches(self) -> _Body | list[Refuse]:
        """Every match by itself."""
        kernels: dict[Kernel, GlobalVar] = {}
        used_names: set[str] = set()
        spans = Spans()
        refused: list[Refuse] = []
        done: dict[Expr, Expr] = {param: param for param in self.function.params}
        matches: dict[Expr, RegionMatch | UnmatchedCall] = {one.value: one for one in self.matched.calls}
        for expr in post_order(self.function.body):
            if expr in done:
                continue
            rebuilt = with_children(expr, [done[child] for child in children(expr)])
            if isinstance(rebuilt, Call) and expr in matches:
                lowered, name = self.match_lowered(matches[expr])
                if isinstance(lowered, Refuse):
                    # All of this match, and no other: what was refused of it may be part of another as well.
                    refused.append(Refuse(lowered.reason, expr))
                    done[expr] = expr
                    continue
                args: Sequence[Expr] = rebuilt.args
                if not isinstance(rebuilt.op, Function):
                    args = tuple(dict.fromkeys(args))
                if isinstance(lowered, Extern):
                    kernel: Kernel = lowered
                else:
                    kernel, args = lowered.func, lowered.arguments(dict(zip(lowered.operands, args, strict=True)))
                if kernel not in kernels:
                    kernels[kernel] = GlobalVar(unique_name(name, used_names), func_type(kernel))
                call = Call(kernels[kernel], args)
                spans.add(call, self.module.spans[expr])
                rebuilt = Tuple([call]) if call.type is not expr.type else call
            done[expr] = rebuilt
        named = tuple((var, kernel) for kernel, var in kernels.items())
        return refused or _Body(done[self.function.body], named, spans)

    def match_lowered(self, one: RegionMatch | UnmatchedCall) -> tuple[LoweredLoops | Extern | Refuse, str]:
        """What the plugin gives for one match, or one op, and a name for it."""
        call, layers = one.value, self.module.spans[one.value]
        if isinstance(call.op, GlobalVar):
            raise ModelError(
                f"region {self.var.name!r} calls {call.op.name!r}, a function of the module",
                where=", ".join(layers) or None,
                hint="write its body where it is called",
            )
        function = call.op if isinstance(call.op, Function) else as_function(call)
        name = function.attr("Composite") or call.op_name or "function"
        match = one if isinstance(one, RegionMatch) else None
        key = self.member.label, function, tuple(match.captures.items()) if match else ()
        if key not in self.done:
            declined: list[Decline] = []
            try:
                lowered: LoweredLoops | Extern | Refuse | None = None
                if match is not None:
                    lowered = extern_of(self.member, function, layers, match)
                if lowered is None:
                    lowered = lower_match(self.member, Fusion(function), layers, match, noted=declined)
            except Refuse as refusal:
                lowered = refusal
            if lowered is None and isinstance(one, UnmatchedCall) and call.op is function:
                lowered = Refuse(one.reason)
            if lowered is None:
                said = "; ".join(f"{one.by} declined: {one.reason}" for one in declined)
                hooks = f"any hook nor by its pattern{said and f' ({said})'}"
                raise self.fault(f"took {name!r} and lowers it by nothing: neither", hooks, layers)
            self.done[key] = lowered
        return self.done[key], name.rpartition(".")[2]

    def adopted(self, result: object, hook: str) -> _Body:
        """What a hook gave for the whole region, checked, as its body."""
        place = f"hook {hook}"
        if not isinstance(result, tuple) or len(result) != 2:
            raise self.fault("gave no pair of a module and its entry", place)
        module, entry = result
        if not isinstance(module, IRModule) or not isinstance(entry, GlobalVar):
            raise self.fault("gave no pair of an IRModule and a GlobalVar", place)
        if entry not in module.functions:
            raise self.fault(f"gave the entry {entry.name!r}, which its module does not have", place)
        try:
            verify(module)
        except InternalError as error:
            raise self.fault(f"gave a module that is not sound: {error.what} ({error.where}),", place) from error
        for var, function in module.functions.items():
            violation = unproven(function) if isinstance(function, PrimFunc) else None
            if violation is not None:
                unsafe = self.fault(f"gave loops {var.name!r} that are not safe: {violation},", place)
                unsafe.hint = violation.hint
                raise unsafe
        if hook == "relay_to_tir" and any(isinstance(function, Extern) for function in module.functions.values()):
            raise self.fault("gave an extern, which hook relay_to_runtime may give,", place)
        if entry.type is not self.function.type:
            raise self.fault(
                f"gave the entry {entry.name!r} of type {entry.type}, not {self.function.type} (inputs in order, then "
                "results; constants are given by an entry function that calls the loops),",
                place,
            )
        function = module.functions[entry]
        if not isinstance(function, Function):
            call = Call(entry, self.function.params)
            return _Body(call, ((entry, function),), Spans({call: self.layers}))
        return self.adopted_function(module, function, place)

    def adopted_function(self, module: IRModule, function: Function, place: str) -> _Body:
        kernels: dict[GlobalVar, Kernel] = {}
        spans = Spans()
        done: dict[Expr, Expr] = dict(zip(function.params, self.function.params, strict=True))
        for expr in post_order(function.body):
            if expr in done:
                continue
            done[expr] = with_children(expr, [done[child] for child in children(expr)])
            if not isinstance(expr, Call) or is_view(expr):
                continue
            called = module.functions[expr.op] if isinstance(expr.op, GlobalVar) else None
            if called is None or isinstance(called, Function) or not isinstance(expr.op, GlobalVar):
                name = expr.op.name if isinstance(expr.op, (GlobalVar, Op)) else "a function"
                raise self.fault(f"gave an entry that calls {name}, which is not lowered,", place)
            constants = called.buffers("constant") if isinstance(called, PrimFunc) else ()
            for buffer, arg in zip(constants, expr.args[len(called.buffers("input")) :], strict=True):
                if not isinstance(arg, Constant):
                    text = f"gave an entry in which constant {buffer.name!r} of {expr.op.name!r} is computed,"
                    raise self.fault(text, place)
            kernels[expr.op] = called
            spans.add(done[expr], module.spans[expr] or self.layers)
        return _Body(done[function.body], tuple(kernels.items()), spans)


def _merged(module: IRModule, lowered: list[tuple[GlobalVar, Function, _Body]]) -> IRModule:
    """``module`` with regions replaced by what they became; loops that are equal are one function, and externs that are
    equal and for one target."""
    rewriter = Rewriter(module)
    functions = dict(module.functions)
    merged: dict[tuple[Kernel, str | None], GlobalVar] = {
        (function, None): var for var, function in functions.items() if isinstance(function, PrimFunc)
    }
    used_names = {var.name for var in functions}
    for var, function, region in lowered:
        renamed: dict[GlobalVar, GlobalVar] = {}
        for old, func in region.kernels:
            key = func, label_of(function) if isinstance(func, Extern) else None
            if key not in merged:
                merged[key] = GlobalVar(unique_name(old.name, used_names), func_type(func))
                functions[merged[key]] = func
            renamed[old] = merged[key]
        done: dict[Expr, Expr] = {}
        for expr in post_order(region.body):
            done[expr] = with_children(expr, [done[child] for child in children(expr)])
            if isinstance(expr, Call) and isinstance(expr.op, GlobalVar):
                done[expr] = Call(renamed[expr.op], [done[arg] for arg in expr.args])
            rewriter.spans.add(done[expr], region.spans[expr])
        functions[var] = rewriter.function(function, done[region.body])
    return rewriter.module_of(functions)


def _is_lowered(module: IRModule, function: Function) -> bool:
    """Whether nothing is left to lower: a region that only renames its inputs computes nothing either."""
    calls = (expr for expr in post_order(function.body) if isinstance(expr, Call) and not is_view(expr))
    return all(
        isinstance(call.op, GlobalVar) and isinstance(module.functions[call.op], (PrimFunc, Extern)) for call in calls
    )


def layers_of(module: IRModule, function: Function) -> tuple[str, ...]:
    """The layers of everything that a function computes."""
    return tuple(dict.fromkeys(layer for expr in post_order(function.body) for layer in module.spans[expr]))
