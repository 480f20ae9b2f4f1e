"""The shapes of parameters, and the order of a constant's dimensions: whoever binds them can bring them into any.

A sum of products of small integers is fastest as a dot product of two runs that lie side by side: processors have
instructions for that, and C compilers find them. So where the data of such a sum lies side by side along an axis, its
weights are laid out along that axis too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ...errors import InternalError
from ..form.dtype import bits, is_integer
from ..form.nodes import Bin, Buffer, Expr, Load
from ..form.visit import rewrite
from ..proofs.affine import flat_index
from .stage_planning import loads, map_definition, nests
from .tensors import Definition, IterVar, Reduce, Reshape, Tensor, compute, is_computed

__all__ = ["lay_out_constants", "seen_through"]

_SHORTEST_RUN = 16
"""Elements: fewer do not fill a vector of 128 bits."""

Order = tuple[int, ...]


def seen_through(stages: Mapping[Tensor, Definition], params: Sequence[Tensor]) -> list[Tensor]:
    """``params``, each replaced by the view through which ``stages`` read it, if they do.

    Raises:
        InternalError: one is read under two shapes.
    """
    views: dict[Tensor, Tensor] = {}
    for definition in stages.values():
        for load in loads([expr for body in nests(definition) for expr in body.exprs]):
            tensor = load.buffer
            if isinstance(tensor, Tensor):
                base = tensor.definition.base if isinstance(tensor.definition, Reshape) else tensor
                if views.setdefault(base, tensor) is not tensor:
                    raise InternalError(f"{base.name!r} is read under two shapes", where="tensor expression")
    return [views.get(tensor, tensor) for tensor in params]


def lay_out_constants(
    stages: Mapping[Tensor, Definition], constants: Sequence[Tensor]
) -> tuple[dict[Tensor, Definition], list[Tensor]]:
    """Choose an order of dimensions for each of ``constants``.

    Args:
        stages: what is computed, from `stages.plan_stages`.
        constants: placeholders that ``stages`` read.

    Returns:
        The stages reading the constants as they are laid out; and these, computed from the others.
    """
    changed = dict(stages)
    laid_out: list[Tensor] = []
    for tensor in constants:
        order = _order(changed, tensor, constants)
        if order == tuple(range(len(order))):
            laid_out.append(tensor)
            continue
        transposed = _transposed(tensor, order)
        laid_out.append(transposed)

        def rule(node: Expr, old: Tensor = tensor, new: Tensor = transposed, order: Order = order) -> Expr | None:
            if isinstance(node, Load) and node.buffer is old:
                return Load(new, tuple(node.indices[d] for d in order))
            return None

        changed = {t: map_definition(d, partial(rewrite, rule=rule)) for t, d in changed.items()}
    return changed, laid_out


def _transposed(tensor: Tensor, order: Order) -> Tensor:
    """``tensor`` of which dimension ``order[d]`` comes as dimension d."""

    def element(*index: Expr) -> Expr:
        return Load(tensor, tuple(index[order.index(d)] for d in range(len(order))))

    return compute([tensor.shape[d] for d in order], element, tensor.name)


def _order(stages: Mapping[Tensor, Definition], tensor: Tensor, constants: Sequence[Tensor]) -> Order:
    same = tuple(range(len(tensor.shape)))
    users = [
        (definition, load)
        for definition in stages.values()
        for body in nests(definition)
        for load in loads(body.exprs)
        if load.buffer is tensor
    ]
    if len(users) != 1 or not (is_integer(tensor.dtype) and bits(tensor.dtype) <= 16):
        return same
    definition, load = users[0]
    if not isinstance(definition, Reduce) or not _is_dot(definition):
        return same
    run = _run(definition, stages, constants)
    if run is None or load.indices.count(run) != 1:
        return same
    position = load.indices.index(run)
    return (*same[:position], *same[position + 1 :], position)


def _is_dot(definition: Reduce) -> bool:
    value = definition.reduction.value
    return definition.reduction.op == "add" and is_integer(value.dtype) and isinstance(value, Bin) and value.op == "mul"


def _run(definition: Reduce, stages: Mapping[Tensor, Definition], constants: Sequence[Tensor]) -> IterVar | None:
    """The longest axis of the sum along which the data lies side by side."""

    def is_data(buffer: Buffer) -> bool:
        return buffer not in constants and (buffer in stages or not is_computed(buffer))

    data = [load for load in loads([definition.reduction.value]) if is_data(load.buffer)]

    def fits(axis: IterVar) -> bool:
        strides = {flat_index(load.buffer, load.indices).stride(axis) for load in data}
        return strides == {1} and axis.most >= _SHORTEST_RUN

    return max(filter(fits, definition.reduction.axes), key=lambda axis: axis.most, default=None)
