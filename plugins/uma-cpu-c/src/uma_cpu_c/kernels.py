"""What one kernel computes: the patterns of the kind ``c``.

A CPU runs every op, so the patterns do not say what it can do but what pays: what is done element by element before or
after something else is done while the element is at hand. What no pattern takes is a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uma.relay import Op, registered_ops
from uma.relay.pattern import Pattern, Term, any_, any_of, op, tree, wildcard

__all__ = ["MOST_CALLS", "host_patterns"]

MOST_CALLS = 32
"""Most calls of one kernel: a longer one gains nothing, and C compilers take long over it."""

_MOVES = ("layout_transform", "nn.pad", "strided_slice", "transpose")


def host_patterns() -> list[Pattern]:
    """The patterns, made from what the ops declare of themselves.

    - ``c.fold``: a pool, a sum or a softmax, with what is done to its elements before and after;
    - ``c.move``: a transposition, padding or slice, likewise;
    - ``c.product``: a convolution or matrix product with what follows. It reads each element many times: what comes
      before it is better computed once;
    - ``c.elementwise``: what is left of calls that work element by element.

    Where such calls lie between two others, the later one takes what makes the values wider, such as a dequantisation,
    and the earlier one the rest: what is kept in memory between the two kernels is as small as can be.
    """
    ops = registered_ops().values()
    elementwise = [one for one in ops if one.kind in ("elementwise", "broadcast")]
    products = [one for one in ops if one.kind == "reduction" and one.macs is not None]
    folds = [one for one in ops if one.kind == "opaque" or (one.kind == "reduction" and one.macs is None)]
    moves = [one for one in ops if one.name in _MOVES]
    starts = _any_call([*folds, *moves, *products], _anything)

    def grown(most: int, start: Term | None = None, others: Term | None = starts) -> Term:
        return tree(
            lambda value: _any_call(elementwise, lambda: value), _anything(), start=start, others=others, most=most
        )

    def followed(start: Term, most: int) -> Term:
        return any_of(grown(most, start), start)

    before = grown(MOST_CALLS // 2).private()
    fold, move = (_any_call(some, lambda: any_of(before, _anything())) for some in (folds, moves))
    return [
        Pattern("c.fold", followed(fold, MOST_CALLS // 2 - 1)),
        Pattern("c.move", followed(move, MOST_CALLS // 2 - 1)),
        Pattern("c.product", followed(_any_call(products, _anything), MOST_CALLS - 1)),
        Pattern("c.elementwise", grown(MOST_CALLS, others=None)),
    ]


def _anything() -> Term:
    return wildcard(any_)


def _any_call(ops: Iterable[Op], operand: Callable[[], Term]) -> Term:
    """A call of one of ``ops`` with any attributes: the ops' own loops, which these patterns become, know them all."""
    return any_of(
        *(op(one.name)(*(operand() for _ in one.inputs), **{attr.name: any_ for attr in one.attrs}) for one in ops)
    )
