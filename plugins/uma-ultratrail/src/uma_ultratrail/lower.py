"""A region as starts of the machine: one where it fits, else several, with maps in the caller's memory between them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from uma.hookspecs import Extern, MatchedRegion, Refuse, RegionMatch
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Spans, TupleGetItem, strip_views, substitute
from uma.tir import Buffer, Param

from .device import ROUTINE
from .image import Image, Transfer
from .layer import Ranges, convolution_of
from .machine import Machine
from .network import Node, Start, plan_starts
from .packing import bias_words, weight_words
from .registers import Layer

__all__ = ["lower", "planned"]


def planned(region: MatchedRegion, machine: Machine, spans: Spans | None = None) -> list[Start]:
    """The starts of a region.

    Args:
        region: the region.
        machine: what it is for.
        spans: the layers of the model that it is in, for names of layers.

    Raises:
        Refuse: there is something in it that is not a match, or a map is reshaped on its way.
    """
    ranges: Ranges = {}
    nodes = [_node(match, machine, ranges, spans or Spans()) for match in region.matches]
    return plan_starts(nodes, [strip_views(result) for result in region.results], machine)


def lower(region: MatchedRegion, machine: Machine, spans: Spans) -> tuple[IRModule, GlobalVar]:
    """The region as a module of an `Extern` for each start, and an entry that calls them. For arguments and errors see
    `planned`.
    """
    functions: dict[str, Function | Extern] = {}
    layers = Spans()
    values: dict[Expr, Expr] = {param: param for param in region.function.params}
    for number, start in enumerate(planned(region, machine, spans)):
        run, name = _Lowered.from_start(start, machine), f"network{number}"
        functions[name] = run.extern
        call = Call(
            IRModule.from_functions({name: run.extern}).global_var(name), [values[tensor] for tensor in run.inputs]
        )
        layers.add(call, (layer for node in start.nodes for layer in node.layers))
        several = len(run.outputs) > 1
        values.update((tensor, TupleGetItem(call, n) if several else call) for n, tensor in enumerate(run.outputs))
    functions["entry"] = Function(region.function.params, substitute(region.function.body, values))
    made_module = IRModule.from_functions(functions, spans=layers)
    return made_module, made_module.global_var("entry")


def _node(match: RegionMatch, machine: Machine, ranges: Ranges, spans: Spans) -> Node:
    """One match of a region; proofs add to what is known in ``ranges``."""
    maps = [match.operand(name) if name in match else None for name in ("data", "residual")]
    for one in maps:
        if one is not None and strip_views(one) is not one:
            raise Refuse("maps stay as they are from layer to layer; here one is reshaped", at=one)
    data, residual = maps
    assert data is not None  # every pattern has it
    layers = match.layers or (match.pattern.name,)
    title = ", ".join(spans[match.call("core")] or layers)
    return Node(convolution_of(match.model_match, machine, ranges), data, residual, match.value, title, layers)


@dataclass(frozen=True, eq=False)
class _Lowered:
    """A start as an `Extern`, and the maps that are its inputs and outputs, in order."""

    extern: Extern
    inputs: tuple[Expr, ...]
    outputs: tuple[Expr, ...]

    @staticmethod
    def from_start(start: Start, machine: Machine) -> _Lowered:
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
        frames_out=shape.conv_frames,
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
