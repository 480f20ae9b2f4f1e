"""What follows a layer of int8 element by element, done to a block of pixels where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uma.hookspecs import Fusion
from uma.tir import INDEX, Block, Buffer, Expr, For, Imm, Load, Stmt, Store, Var, rewrite, te, walk

from .dsp_layers import Layer, Refused

__all__ = ["Epilogue", "epilogue_of"]

_ALIGNMENT = 16


@dataclass(frozen=True)
class Epilogue:
    """What is computed from the results of a layer, which are rows of channels.

    Args:
        out: the result, as rows.
        value: of an element of it, in terms of ``results``, ``pixel`` and ``channel``.
        results: stands for the layer's results.
        pixel, channel: where it is.
        operands: the inputs of the function in order, None for the data of the layer.
        constants: what it reads besides, and what they hold.
    """

    out: Buffer
    value: Expr
    results: Buffer
    pixel: Var
    channel: Var
    operands: tuple[Buffer | None, ...]
    constants: tuple[Buffer, ...]
    held: tuple[te.Tensor, ...]

    def inputs(self, data: Buffer) -> list[Buffer]:
        """The inputs of the function."""
        return [data if one is None else one for one in self.operands]

    def stores(self, block: Buffer, first: Expr, count: int) -> Stmt:
        """The elements of ``count`` pixels from the first on, whose results are in ``block``."""
        p, n = Var(f"p{count}"), Var(f"n{count}")
        at: dict[Expr, Expr] = {self.pixel: first + p, self.channel: n}

        def rule(node: Expr) -> Expr | None:
            return block[p, n] if isinstance(node, Load) and node.buffer is self.results else at.get(node)

        value = rewrite(self.value, rule)
        body = Store(self.out, (first + p, n), value)
        return For(p, Imm(count, INDEX), For(n, Imm(self.out.shape[1], INDEX), body))


def epilogue_of(fusion: Fusion, layer: Layer, pixels: int) -> Epilogue | None:
    """What follows the layer that a fusion begins with; None for nothing.

    Raises:
        Refused: it is not one stage that reads the same element of all.
    """
    if layer.result is fusion.function.body:
        return None
    anchor = fusion.tensors.by_expr[layer.result][0]
    kernel = fusion.plain(keep=(anchor,))
    last = fusion.tensors.results[-1]
    stages = list(kernel.labels)
    whole = anchor in stages and last in stages and stages[stages.index(anchor) + 1 :] == [last]
    if len(fusion.tensors.results) != 1 or not whole or last.shape != anchor.shape or last.dtype != "int8":
        raise Refused("what follows it is not done element by element")
    label = kernel.labels[last]
    (block,) = (part for part in walk(kernel.func.body) if isinstance(part, Block) and part.label == label)
    stmt: Stmt = block.body
    axes = []
    while isinstance(stmt, For):
        axes.append(stmt.var)
        stmt = stmt.body
    assert isinstance(stmt, Store)  # of an expression, as all that is done element by element
    out = Buffer("out0", (pixels, layer.channels), last.dtype)
    pixel, channel = Var("pixel"), Var("channel")
    data = _data(fusion, layer)
    inputs = kernel.func.buffers("input")
    seen: list[Buffer | None] = [
        None
        if number == data
        else Buffer(f"x{number}", (pixels, layer.channels) if _is_like(one, last) else one.shape, one.dtype)
        for number, one in enumerate(inputs)
    ]
    constants: dict[Buffer, Buffer] = {}

    def is_here(node: Load) -> bool:
        at = zip(node.indices, (*axes[:-1], channel), last.shape, strict=True)
        return all(index is axis or (extent == 1 and isinstance(index, Imm)) for index, axis, extent in at)

    element = Load(Buffer("made", (pixels, layer.channels), "int8"), (pixel, channel))

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            if node.buffer is kernel.buffers[anchor]:
                return element if is_here(node) else None
            if node.buffer in inputs:
                to = seen[inputs.index(node.buffer)]
                like = node.buffer.shape == last.shape
                return None if to is None or not like or not is_here(node) else Load(to, (pixel, channel))
            number = len(constants) + 2
            new = Buffer(f"w{number}", node.buffer.shape, node.buffer.dtype, alignment=_ALIGNMENT)
            return Load(constants.setdefault(node.buffer, new), node.indices)
        return channel if node is axes[-1] else None

    value = rewrite(stmt.value, rule)
    reads = {part.buffer for part in walk(value) if isinstance(part, Load)}
    fine = {element.buffer, *constants.values(), *(one for one in seen if one is not None)}
    others = {part for part in walk(value) if isinstance(part, Var)} - {pixel, channel}
    if reads - fine or others:
        raise Refused("what follows it reads other elements than its own")
    order = kernel.func.buffers("constant")
    held = tuple(kernel.held[order.index(buffer)] for buffer in constants)
    return Epilogue(out, value, element.buffer, pixel, channel, tuple(seen), tuple(constants.values()), held)


def _data(fusion: Fusion, layer: Layer) -> int:
    """Which of the inputs of a kernel the data of the layer is."""
    inputs: Sequence[object] = [param for param in fusion.function.params if param not in fusion.known]
    return inputs.index(layer.call.args[0])


def _is_like(buffer: Buffer, result: te.Tensor) -> bool:
    return buffer.shape == result.shape
