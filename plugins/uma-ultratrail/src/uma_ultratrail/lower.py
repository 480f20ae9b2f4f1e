"""A region as starts of the machine: one where it fits, else several, with maps in the caller's memory between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from uma.hookspecs import Extern, Pattern, Refuse
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Spans, Tuple, TupleGetItem, post_order, value_range
from uma.relay.pattern import Match, match
from uma.tir import Buffer, Param

from .device import ROUTINE
from .image import Image, Transfer
from .layer import convolution_of, core_of
from .machine import Machine
from .network import Node, Start, plan_starts
from .packing import bias_words, weight_words
from .ranges import Ranges, given_to
from .registers import Layer
from .supported import TERMS, make_patterns

__all__ = ["lower", "planned"]


def planned(function: Function, machine: Machine) -> list[Start]:
    """The starts of a region whose matches the machine's patterns took: nothing is proven again.

    Raises:
        Refuse: a match is none of the machine's.
    """
    patterns = [Pattern(name, term) for name, term in TERMS.items()]
    nodes = [_node(expr, patterns, machine, {}, Spans()) for expr in _calls(function)]
    return plan_starts(nodes, _results(function), machine)


def lower(function: Function, machine: Machine, module: IRModule) -> tuple[IRModule, GlobalVar]:
    """The region as a module of an `Extern` for each start, and an entry that calls them.

    Args:
        function: the region.
        machine: what it is for.
        module: the model that it is in.

    Raises:
        Refuse: a match is none of the machine's, or it is not proven that its numbers have their bits: the model itself
            asked for it.
    """
    try:
        nodes = _proven(function, machine, {}, module.spans)
    except Refuse:
        # The rest of the model may say more of the inputs. That is looked for where it is needed only.
        nodes = _proven(function, machine, given_to(function, module), module.spans)
    functions: dict[str, Function | Extern] = {}
    layers = Spans()
    known: dict[Expr, Expr] = {param: param for param in function.params}
    for number, start in enumerate(plan_starts(nodes, _results(function), machine)):
        made, name = _Lowered.of(start, machine), f"network{number}"
        functions[name] = made.extern
        call = Call(IRModule.of({name: made.extern}).global_var(name), [known[tensor] for tensor in made.inputs])
        layers.add(call, (layer for node in start.nodes for layer in node.layers))
        several = len(made.outputs) > 1
        known.update((tensor, TupleGetItem(call, n) if several else call) for n, tensor in enumerate(made.outputs))
    results = [known[result] for result in _results(function)]
    functions["entry"] = Function(function.params, Tuple(results) if isinstance(function.body, Tuple) else results[0])
    made_module = IRModule.of(functions, spans=layers)
    return made_module, made_module.global_var("entry")


def _calls(function: Function) -> list[Call]:
    return [expr for expr in post_order(function.body) if isinstance(expr, Call)]


def _results(function: Function) -> Sequence[Expr]:
    return function.body.fields if isinstance(function.body, Tuple) else (function.body,)


def _proven(function: Function, machine: Machine, ranges: Ranges, spans: Spans) -> list[Node]:
    """The matches of a region, each of which fits the machine whatever the values in ``ranges``."""
    known, nodes = dict(ranges), []
    for expr in _calls(function):
        composite = expr.op
        if not isinstance(composite, Function):
            raise Refuse("UltraTrail takes layers as its patterns match them, and no single ops", at=expr)
        # Parameters of equal matches are the same, and may stand for other values here.
        inside: Ranges = {}
        inside.update(
            (param, known[arg]) for param, arg in zip(composite.params, expr.args, strict=True) if arg in known
        )
        nodes.append(_node(expr, make_patterns(machine, inside), machine, inside, spans))
        known[expr] = value_range(composite.body, inside)
    return nodes


def _node(expr: Call, patterns: Sequence[Pattern], machine: Machine, inside: Ranges, spans: Spans) -> Node:
    """One match of a region."""
    composite = expr.op
    assert isinstance(composite, Function)
    name = composite.attr("Composite") or ""
    pattern = next((pattern for pattern in patterns if pattern.name == name), None)
    if pattern is None:
        raise Refuse(f"{name!r} is no pattern of UltraTrail", at=expr)
    found = match(pattern, composite.body)
    if not isinstance(found, Match):
        raise Refuse(found.failure.reason, at=expr)
    given: dict[Expr, Expr] = dict(zip(composite.params, expr.args, strict=True))
    layers = spans[expr] or (name,)
    title = ", ".join(spans[core_of(found)] or layers)
    residual = None if found.get("residual") is None else given[found["residual"]]
    return Node(convolution_of(found, machine, inside), given[found["data"]], residual, expr, title, layers)


@dataclass(frozen=True, eq=False)
class _Lowered:
    """A start as an `Extern`, and the maps that are its inputs and outputs, in order."""

    extern: Extern
    inputs: tuple[Expr, ...]
    outputs: tuple[Expr, ...]

    @staticmethod
    def of(start: Start, machine: Machine) -> _Lowered:
        inputs = {tensor: f"input{n}" for n, tensor in enumerate(dict.fromkeys(t for t, _ in start.loads))}
        outputs = {tensor: f"output{n}" for n, (tensor, _) in enumerate(start.stores)}
        params = (
            *(Param(Buffer(symbol, tensor.shape, "int8"), "input") for tensor, symbol in inputs.items()),
            *(Param(Buffer(symbol, tensor.shape, "int8"), "output") for tensor, symbol in outputs.items()),
        )
        # All is loaded before anything is stored.
        may_alias = tuple(itertools.product(outputs.values(), inputs.values()))
        layers = start.nodes
        image = Image(
            [(_register(start, n, machine), node.name) for n, node in enumerate(layers)],
            b"".join(weight_words(node.layer.weights, machine) for node in layers),
            b"".join(bias_words(node.layer.bias, machine) for node in layers if node.layer.bias is not None),
            [_transfer(inputs[tensor], tensor, memory) for tensor, memory in start.loads],
            [_transfer(outputs[tensor], tensor, memory) for tensor, memory in start.stores],
        )
        extern = Extern(params, ROUTINE, blobs=(image.blob(),), may_alias=may_alias)
        return _Lowered(extern, tuple(inputs), tuple(outputs))


def _transfer(symbol: str, tensor: Expr, memory: int) -> Transfer:
    return Transfer(symbol, memory, math.prod(tensor.shape[:-1]), tensor.shape[-1])


def _register(start: Start, number: int, machine: Machine) -> Layer:
    node = start.nodes[number]
    layer, shape = node.layer, node.layer.shape
    source, destination = start.memories(number)
    return Layer(
        source=source,
        destination=destination,
        residual=node.residual is not None,
        frames_in=shape.frames,
        blocks_in=machine.blocks(shape.channels),
        frames_out=shape.made,
        blocks_out=machine.blocks(shape.out_channels),
        taps=shape.taps,
        stride=shape.stride,
        pool_exp=layer.pool or 0,
        pad=shape.before > 0,
        relu=layer.relu,
        bias=layer.bias is not None,
        avg=layer.pool is not None,
        last=number == len(start.nodes) - 1,
    )
