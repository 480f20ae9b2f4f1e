"""What one kernel computes: the patterns of the kind ``c``.

A CPU runs every op, so the patterns do not say what it can do but what pays: what follows a convolution, a product, a
pool or a sum element by element is done while the element is at hand, and a tree of elementwise calls is one loop.
What no pattern takes is a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uma.relay import Op, registered_ops
from uma.relay.pattern import Pattern, Term, any_, any_of, op, tree, wildcard

__all__ = ["MOST_CALLS", "host_patterns"]

MOST_CALLS = 32
"""Most calls of one kernel: a longer one gains nothing, and C compilers take long over it."""


def host_patterns() -> list[Pattern]:
    """The patterns, made from what the ops declare of themselves.

    Folds come first because of what makes values wider, such as a dequantisation between a product and a fold: what is
    kept between the two is the narrower if the fold takes it. All else there is left to the product.
    """
    ops = registered_ops().values()
    elementwise = [one for one in ops if one.kind in ("elementwise", "broadcast")]
    # These read each element many times: what comes before them is better computed once.
    products = [one for one in ops if one.kind == "reduction" and one.macs is not None]
    # These read it once, or, where windows overlap, a few times.
    folds = [one for one in ops if one.kind == "opaque" or (one.kind == "reduction" and one.macs is None)]
    either = _any_call([*folds, *products], _anything)

    def grown(most: int, start: Term | None = None, others: Term | None = either) -> Term:
        return tree(
            lambda value: _any_call(elementwise, lambda: value), _anything(), start=start, others=others, most=most
        )

    before = grown(MOST_CALLS // 2).private()
    fold = _any_call(folds, lambda: any_of(before, _anything()))
    product = _any_call(products, _anything)
    return [
        Pattern("c.fold", any_of(grown(MOST_CALLS // 2 - 1, fold), fold)),
        Pattern("c.product", any_of(grown(MOST_CALLS - 1, product), product)),
        Pattern("c.elementwise", grown(MOST_CALLS, others=None)),
    ]


def _anything() -> Term:
    return wildcard(any_)


def _any_call(ops: Iterable[Op], operand: Callable[[], Term]) -> Term:
    """A call of one of ``ops`` with any attributes: the ops' own loops, which these patterns become, know them all."""
    return any_of(
        *(op(one.name)(*(operand() for _ in one.inputs), **{attr.name: any_ for attr in one.attrs}) for one in ops)
    )
