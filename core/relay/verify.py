"""What holds of every module. Runs between passes, so that the culprit is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InternalError
from ..tir.form.dtype import bounds, is_integer
from ..tir.form.nodes import PrimFunc
from ..tir.form.symbolic_dims import Symbol, format_extents, symbols_of, upper_bounds
from ..tir.form.verify import verify as verify_prim_func
from .computed_dimensions import cut_of, cut_symbols, unfounded
from .expr import Call, Constant, Control, Function, GlobalVar, Var, tensors_of
from .module import IRModule, Signature, StateInfo, TensorInfo, func_type
from .types import TensorType, TupleType, Type
from .visit import callees, global_callees, nested_functions, post_order

__all__ = ["Violation", "faults", "verify"]


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong with a module.

    Args:
        what: a sentence.
        function: in which function of the module; None where it is the signature.
        layers: of the expression that is wrong.
    """

    what: str
    function: str | None = None
    layers: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return ", ".join([self.function or "signature", *self.layers])


def verify(module: IRModule) -> None:
    """Check what the constructors of expressions cannot see.

    - Every function has the type of its `GlobalVar`, and names are unique.
    - Functions are closed, nested ones too.
    - A called `GlobalVar` is a function of the module; functions do not call each other in a circle. What control flow
      runs is of the graph form, without attributes.
    - The signature, if there is one, has a tensor or a state for each parameter and result of ``main``; what it says
      of quantisation their types can hold, and the two of a state are of one type, as its initial value is.
    - PrimFuncs hold what `uma.tir.form.verify` asks for.

    Raises:
        InternalError: one of these does not hold; it names the function and the layers.
    """
    for fault in faults(module):
        raise InternalError(fault.what, where=fault.where)
    for var, function in module.functions.items():
        if isinstance(function, PrimFunc):
            try:
                verify_prim_func(function)
            except InternalError as error:
                raise InternalError(error.what, where=f"{var.name}, {error.where}") from error


def faults(module: IRModule) -> Iterator[Violation]:
    """Everything that is wrong with the graph form in ``module``; nothing for a good one."""
    names: set[str] = set()
    for var, function in module.functions.items():
        if var.name in names:
            yield Violation("two functions share a name", var.name)
        names.add(var.name)
        if var.type is not func_type(function):
            yield Violation(f"the function has type {func_type(function)}, its name {var.type}", var.name)
        if isinstance(function, Function):
            for part in nested_functions(function):
                yield from _function_faults(module, part, var.name)
    circle = _circle(module)
    if circle:
        yield Violation(f"functions call each other in a circle: {', '.join(v.name for v in circle)}", circle[0].name)
    main = next((function for var, function in module.functions.items() if var.name == "main"), None)
    if isinstance(main, Function):
        yield from _symbol_faults(main, module.signature)
        yield from _cut_faults(module, main)
    if module.signature is not None:
        if isinstance(main, Function):
            yield from _signature_faults(main, module.signature)
        else:
            yield Violation("there is a signature, and no main in the graph form that it could be of")


def _function_faults(module: IRModule, function: Function, name: str) -> Iterator[Violation]:
    defined = set(function.params)
    for expr in post_order(function.body):
        text = None
        if isinstance(expr, Var) and expr not in defined:
            text = f"{expr.name!r} is not a parameter of the function that mentions it"
        elif isinstance(expr, Constant) and (expr.data.shape != expr.shape or expr.data.flags.writeable):
            text = f"a constant of type {expr.type} holds an array of shape {expr.data.shape}, or one that can change"
        elif isinstance(expr, Call) and (missing := _missing(module, expr)) is not None:
            text = missing
        elif isinstance(expr, Call) and expr.pin is not None and (owner := _owner(module, expr)) is not None:
            text = f"the call of a function for {owner!r} is pinned to {expr.pin!r}"
        if text is not None:
            yield Violation(text, name, module.spans[expr])


def _missing(module: IRModule, call: Call) -> str | None:
    """What is wrong with the functions that ``call`` runs: one the module does not have, or is not a graph to be run by
    control flow."""
    for var in callees(call):
        if var not in module.functions:
            return f"call of {var.name!r}, which the module does not have"
        function = module.functions[var]
        if isinstance(call.op, Control) and (not isinstance(function, Function) or function.attrs):
            return f"{type(call.op).__name__} of {var.name!r}, which is not a plain function of the graph form"
    return None


def _owner(module: IRModule, call: Call) -> str | None:
    """The label of the target that the called function is for; None of an op, and of what is for no target."""
    called = module.functions[call.op] if isinstance(call.op, GlobalVar) else call.op
    return called.attr("Compiler") if isinstance(called, Function) else None


def _callees(module: IRModule, var: GlobalVar) -> list[GlobalVar]:
    """The functions of the module that the one called ``var`` calls."""
    function = module.functions[var]
    called = global_callees(function) if isinstance(function, Function) else []
    return [callee for callee in called if callee in module.functions]


def _circle(module: IRModule) -> list[GlobalVar]:
    """Functions that call each other in a circle, each the next one; empty where there is no circle."""
    done: set[GlobalVar] = set()
    for start in module.functions:
        # Callees that are still to be visited, for each function on the way from start to here.
        path: dict[GlobalVar, list[GlobalVar]] = {} if start in done else {start: _callees(module, start)}
        while path:
            here, rest = next(reversed(path.items()))
            if not rest:
                del path[here]
                done.add(here)
                continue
            callee = rest.pop()
            if callee in path:
                way = list(path)
                return way[way.index(callee) :]
            if callee not in done:
                path[callee] = _callees(module, callee)
    return []


def _signature_faults(main: Function, signature: Signature) -> Iterator[Violation]:
    results: tuple[Type, ...] = main.body.type.fields if isinstance(main.body.type, TupleType) else (main.body.type,)
    params = tuple(param.type for param in main.params)
    yield from _state_faults(signature.states, params, results)
    for side_name, infos in (("inputs", signature.inputs), ("outputs", signature.outputs)):
        names = [info.name for info in infos]
        if len(set(names)) < len(names):
            yield Violation(f"two {side_name} are called {max(names, key=names.count)!r}")
    sides = (
        ("input", signature.inputs, signature.of_inputs(params)),
        ("output", signature.outputs, signature.of_outputs(results)),
    )
    for side, tensors, types in sides:
        if len(tensors) != len(types):
            states = f" besides {len(signature.states)} states" if signature.states else ""
            yield Violation(f"the signature names {len(tensors)} {side}s, main has {len(types)}{states}")
            continue
        for info, type_ in zip(tensors, types, strict=True):
            for side_name in _quantisation_faults(info, type_):
                yield Violation(f"{side} {info.name!r} {side_name}")
            if info.shape is not None and (
                not isinstance(type_, TensorType) or upper_bounds(info.shape) != type_.shape
            ):
                yield Violation(f"{side} {info.name!r} has shape ({format_extents(info.shape)}) and is {type_}")


def _symbol_faults(main: Function, signature: Signature | None) -> Iterator[Violation]:
    """What is wrong with open extents: each is the value of a parameter, or of a result of its name."""
    params = {param.name: param.type for param in main.params}
    results = tensors_of(main.body.type)
    inputs, outputs = ((), ()) if signature is None else (signature.inputs, signature.outputs)
    symbols: dict[str, Symbol] = {}
    holders: dict[str, Type] = {}
    if signature is not None and len(outputs) == len(signature.of_outputs(results)):
        holders = {i.name: type_ for i, type_ in zip(outputs, signature.of_outputs(results), strict=True)}
    tensors = [tensor for param in main.params for tensor in tensors_of(param.type)]
    sides = ((tensors, inputs, dict[str, Type]()), (results, outputs, holders))
    for types, infos, held in sides:
        shapes = [*(type_.shape for type_ in types), *(info.shape for info in infos if info.shape is not None)]
        for symbol in (symbol for shape in shapes for symbol in symbols_of(shape)):
            if symbols.setdefault(symbol.name, symbol) is not symbol:
                yield Violation(f"the extent {symbol} is {symbols[symbol.name]} elsewhere")
            if TensorType((1,), "int32") not in (params.get(symbol.name), held.get(symbol.name)):
                where = " or result" if held else ""
                yield Violation(f"there is no parameter{where} {symbol.name!r} of int32 (1,) for the extent {symbol}")


def _cut_faults(module: IRModule, main: Function) -> Iterator[Violation]:
    """What is wrong with the extents that ``main`` computes."""
    order = post_order(main.body)
    computed = cut_symbols(order)
    if not computed:
        return
    params = {param.name for param in main.params}
    for expr in order:
        cut = cut_of(expr)
        if cut is not None and cut[0].name in params:
            yield Violation(f"the extent {cut[0]} is a parameter and is computed", "main", module.spans[expr])
        elif cut is not None and cut != computed[cut[0].name]:
            yield Violation(f"the extent {cut[0]} is computed twice", "main", module.spans[expr])
        for symbol in unfounded(expr, computed):
            message = f"nothing that it is made of has the extent {symbol}, which is computed"
            yield Violation(message, "main", module.spans[expr])


def _state_faults(
    states: tuple[StateInfo, ...], params: tuple[Type, ...], results: tuple[Type, ...]
) -> Iterator[Violation]:
    names: set[str] = set()
    used: set[tuple[str, int]] = set()
    for state in states:
        if state.name in names:
            yield Violation(f"two states are called {state.name!r}")
        names.add(state.name)
        places = (("parameter", state.input, params), ("result", state.output, results))
        types: list[Type] = []
        for side, position, every in places:
            if not 0 <= position < len(every):
                yield Violation(f"state {state.name!r} is {side} {position} of main, which has {len(every)}")
                continue
            if (side, position) in used:
                yield Violation(f"{side} {position} of main is two states")
            used.add((side, position))
            types.append(every[position])
        if len(types) < 2:
            continue
        before, after = types
        if before is not after or not isinstance(before, TensorType):
            yield Violation(f"state {state.name!r} takes {before} and gives {after}")
        elif len(state.initial) != before.nbytes:
            yield Violation(f"state {state.name!r} of {before.nbytes} bytes begins with {len(state.initial)}")


def _quantisation_faults(info: TensorInfo, type_: Type) -> Iterator[str]:
    if info.scale is None or info.zero_point is None:
        return
    if not isinstance(type_, TensorType) or not is_integer(type_.dtype):
        yield f"is quantised, but is {type_}"
        return
    if not (math.isfinite(info.scale) and info.scale > 0):
        yield f"has scale {info.scale}, which is not positive and finite"
    low, high = bounds(type_.dtype)
    if not max(low, -(2**31)) <= info.zero_point <= min(high, 2**31 - 1):
        yield f"of {type_.dtype} cannot hold its zero point {info.zero_point}"
