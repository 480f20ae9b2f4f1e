"""Idioms that files spell out, put back together: one call for what a few compute by a definition.

Only floats, and only where the constants are the definition's, to one rounding. What is replaced and what replaces it
are one function then; the order in which it is computed may be another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ...tir.form.dtype import is_float
from ..expr import Call, Constant, Expr, call, const
from ..module import Spans
from ..ops.common import normalise_axis
from ..types import TensorType
from ..visit import children, post_order, with_children, with_pin
from .layout_propagation import reshape

__all__ = ["match_idiom"]

_MOST_FACTORS = 8
"""Of one product: a definition has no more."""

_CUBIC = 0.044715
"""Of gelu's approximation (Hendrycks and Gimpel, 2016)."""


def match_idiom(expr: Call, spans: Spans) -> Expr | None:
    """What ``expr`` is by a definition, where it is the last call of an idiom, or says with constants what an op says
    without; None for any other.

    It belongs to the layers of all the calls that it replaces; where these are pinned to two targets they stay.
    """
    for rule in _SHORTER.get(expr.op_name or "", ()):
        replacement = rule(expr)
        if replacement is not None and replacement.type is expr.type:
            return _in_place(replacement, [expr], expr.args, spans)
    if not isinstance(expr.type, TensorType) or not is_float(expr.dtype):
        return None
    for idiom in _IDIOMS.get(expr.op_name or "", ()):
        idiom_call = idiom(expr)
        if idiom_call is None or idiom_call.type is not expr.type:
            continue
        replaced = [e for e in _calls(expr, idiom_call.args[:1]) if e is not idiom_call.args[0]]
        if len({e.pin for e in replaced} - {None}) <= 1:
            return _in_place(idiom_call, replaced, idiom_call.args[:1], spans)
    return None


def _calls(expr: Expr, sources: Sequence[Expr]) -> list[Call]:
    """The calls by which ``expr`` is computed of some expressions."""
    return [e for e in post_order(expr, known=sources.__contains__) if isinstance(e, Call)]


def _in_place(replacement: Expr, replaced: Sequence[Call], sources: Sequence[Expr], spans: Spans) -> Expr:
    """``replacement`` of some expressions, with the pin and the layers of what it replaces."""
    pin = next((e.pin for e in replaced if e.pin is not None), None)
    done: dict[Expr, Expr] = {}
    for e in _calls(replacement, sources):
        done[e] = with_pin(with_children(e, [done.get(child, child) for child in children(e)]), pin)
        for old in replaced:
            spans.record_rewrite(old, done[e])
    if replacement in sources:
        spans.record_rewrite(replaced[0], replacement)
    return done.get(replacement, replacement)


# --- what expressions are --------------------------------------------------------------------------------------------


def _is(expr: Expr, *names: str) -> bool:
    return isinstance(expr, Call) and expr.op_name in names


def _number(expr: Expr) -> float | None:
    """The one number that a constant is."""
    return float(expr.data.item()) if isinstance(expr, Constant) and expr.data.size == 1 else None


def _near(number: float | None, wanted: float, dtype: str) -> bool:
    """Whether a number is the one of a definition, to one rounding."""
    return number is not None and abs(number - wanted) <= abs(wanted) * 2.0 ** (-23 if dtype == "float32" else -52)


def _beside(expr: Expr, op: str, wanted: float) -> Expr | None:
    """What the number ``wanted`` is added to, or multiplied with, by a commutative ``op``; None for anything else."""
    if isinstance(expr, Call) and expr.op_name == op:
        for one, other in _orders(expr):
            if _near(_number(other), wanted, expr.dtype):
                return one
    return None


def _orders(expr: Call) -> Iterator[tuple[Expr, Expr]]:
    a, b = expr.args
    yield a, b
    yield b, a


def _factors(expr: Expr, stop: Expr | None = None) -> tuple[float, list[Expr]]:
    """A product: the number, and all else that is multiplied. ``stop`` is not taken apart."""
    number = 1.0
    rest: list[Expr] = []
    stack = [expr]
    while stack:
        e = stack.pop()
        number_here = _number(e)
        if number_here is not None:
            number *= number_here
        elif e is stop or len(rest) + len(stack) > _MOST_FACTORS:
            rest.append(e)
        elif isinstance(e, Call) and e.op_name == "multiply":
            stack += e.args
        elif isinstance(e, Call) and e.op_name == "divide" and _number(e.args[1]):
            number /= _number(e.args[1]) or 1.0
            stack.append(e.args[0])
        else:
            rest.append(e)
    return number, rest


def _is_product(expr: Expr, number: float, *operands: Expr) -> bool:
    """Whether ``expr`` is ``number`` times ``operands``."""
    factor, rest = _factors(expr, operands[0])
    return _near(factor, number, expr.dtype) and Counter(rest) == Counter(operands)


# --- idioms ----------------------------------------------------------------------------------------------------------


def _gelu(expr: Call) -> Call | None:
    """x / 2 * (1 + erf(x / sqrt(2))), or with tanh."""
    for ramp in _factors(expr)[1]:
        inner = _beside(ramp, "add", 1.0)
        if not isinstance(inner, Call) or inner.op_name not in ("erf", "tanh"):
            continue
        approximate = "none" if inner.op_name == "erf" else "tanh"
        for data in (_scaled if inner.op_name == "erf" else _cubic)(inner.args[0]):
            if _is_product(expr, 0.5, data, ramp):
                return call("nn.gelu", data, approximate=approximate)
    return None


def _scaled(expr: Expr) -> Iterator[Expr]:
    """What may be divided by sqrt(2)."""
    if isinstance(expr, Call) and expr.op_name in ("multiply", "divide"):
        yield from (data for data in expr.args if _is_product(expr, math.sqrt(0.5), data))


def _cubic(expr: Expr) -> Iterator[Expr]:
    """What x may be where ``expr`` is sqrt(2 / pi) * (x + 0.044715 * x**3)."""
    factor = math.sqrt(2 / math.pi)
    for total in _factors(expr)[1]:
        if not isinstance(total, Call) or total.op_name != "add":
            continue
        for data, cube in _orders(total):
            if _is_product(cube, _CUBIC, data, data, data) and _is_product(expr, factor, total):
                yield data
        square = _beside(total, "add", 1.0)
        if square is not None:
            for data in dict.fromkeys(_factors(square)[1]):
                if _is_product(square, _CUBIC, data, data) and _is_product(expr, factor, data, total):
                    yield data


def _hard_swish(expr: Call) -> Call | None:
    """x * min(max(x + 3, 0), 6) / 6, or x * min(max(x / 6 + 1 / 2, 0), 1)."""
    for ramp in _factors(expr)[1]:
        if not isinstance(ramp, Call) or ramp.op_name != "clip" or ramp.attrs.a_min != 0:
            continue
        if ramp.attrs.a_max == 6:
            data = _beside(ramp.args[0], "add", 3.0)
            if data is not None and _is_product(expr, 1 / 6, data, ramp):
                return call("nn.hard_swish", data)
        elif ramp.attrs.a_max == 1:
            sixth = _beside(ramp.args[0], "add", 0.5)
            for data in sixth.args if isinstance(sixth, Call) and _is(sixth, "multiply", "divide") else ():
                if sixth is not None and _is_product(sixth, 1 / 6, data) and _is_product(expr, 1.0, data, ramp):
                    return call("nn.hard_swish", data)
    return None


def _leaky(data: Expr, below: Expr) -> Call | None:
    """Of what is multiplied by a number where it is negative."""
    if isinstance(below, Call) and below.op_name == "multiply":
        for one, other in _orders(below):
            alpha = _number(other)
            if one is data and alpha is not None and math.isfinite(alpha):
                return call("nn.leaky_relu", data, alpha=alpha)
    return None


def _leaky_maximum(expr: Call) -> Call | None:
    """max(x, alpha * x), alpha between 0 and 1."""
    for data, below in _orders(expr):
        leaky = _leaky(data, below)
        if leaky is not None and 0 < leaky.attrs.alpha <= 1:
            return leaky
    return None


def _leaky_choice(expr: Call) -> Call | None:
    """x where x > 0, else alpha * x."""
    condition, a, b = expr.args
    if not isinstance(condition, Call) or _number(condition.args[-1]) != 0:
        return None
    if condition.op_name in ("greater", "greater_equal") and condition.args[0] is a:
        leaky = _leaky(a, b)
        # Of 0 and of NaN, alpha times it is the same.
        return leaky if leaky is not None and leaky.attrs.alpha > 0 else None
    return _leaky(b, a) if condition.op_name == "less" and condition.args[0] is b else None


def _leaky_sum(expr: Call) -> Call | None:
    """max(x, 0) + alpha * min(x, 0)."""
    for above, below in _orders(expr):
        if not isinstance(above, Call) or above.op_name != "nn.relu" or not _is(below, "multiply"):
            continue
        data = above.args[0]
        negative = next((e for e in _factors(below)[1] if _is(e, "minimum")), None)
        if isinstance(negative, Call) and _beside(negative, "minimum", 0.0) is data:
            leaky = _leaky(negative, below)
            return None if leaky is None else call("nn.leaky_relu", data, **dict(leaky.attrs.items))
    return None


def _layer_norm(expr: Call) -> Call | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))**2) + epsilon)."""
    for centred, root in _orders(expr) if expr.op_name == "multiply" else (expr.args,):
        variance = _under_root(root, inverse=expr.op_name == "multiply")
        if variance is None or not isinstance(centred, Call) or centred.op_name != "subtract":
            continue
        data, mean = centred.args
        for spread, epsilon in _orders(variance):
            added, square = _number(epsilon), _mean_of(spread)
            if added is None or square is None or not 0 <= added < math.inf or not _is_square(square, centred):
                continue
            if _mean_of(mean) is not data or not isinstance(mean, Call) or not isinstance(spread, Call):
                continue
            if mean.attrs is spread.attrs:
                return call("nn.layer_norm", data, axis=mean.attrs.axis, epsilon=added)
    return None


def _rms_norm(expr: Call) -> Call | None:
    """x / sqrt(mean(x**2) + epsilon)."""
    for data, root in _orders(expr) if expr.op_name == "multiply" else (expr.args,):
        total = _under_root(root, inverse=expr.op_name == "multiply")
        if total is None:
            continue
        for mean, epsilon in _orders(total):
            added, square = _number(epsilon), _mean_of(mean)
            if added is None or square is None or not 0 <= added < math.inf or not _is_square(square, data):
                continue
            if isinstance(mean, Call):
                return call("nn.rms_norm", data, axis=mean.attrs.axis, epsilon=added)
    return None


def _under_root(expr: Expr, inverse: bool) -> Call | None:
    """The sum whose square root ``expr`` is, or 1 over it where it is ``inverse``."""
    if not isinstance(expr, Call):
        return None
    if inverse and expr.op_name == "divide" and _number(expr.args[0]) == 1:
        return _under_root(expr.args[1], inverse=False)
    total = expr.args[0] if expr.op_name == ("rsqrt" if inverse else "sqrt") else None
    return total if isinstance(total, Call) and total.op_name == "add" else None


def _mean_of(expr: Expr) -> Expr | None:
    return expr.args[0] if isinstance(expr, Call) and expr.op_name == "mean" and expr.attrs.keepdims else None


def _is_square(expr: Expr, base: Expr) -> bool:
    return isinstance(expr, Call) and expr.op_name == "multiply" and expr.args == (base, base)


# --- what constants say ----------------------------------------------------------------------------------------------


def _quotient(expr: Call) -> Expr | None:
    """A division by powers of two is the product with their inverses."""
    import numpy as np

    data, divisor = expr.args
    if not isinstance(divisor, Constant) or not is_float(expr.dtype):
        return None
    with np.errstate(all="ignore"):
        inverse = (1 / divisor.data).astype(divisor.dtype)
    normal = np.finfo(divisor.dtype).tiny
    exact = (np.frexp(divisor.data)[0] == np.copysign(0.5, divisor.data)) & (np.abs(inverse) >= normal)
    return call("multiply", data, const(inverse)) if (exact & np.isfinite(inverse)).all() else None


def _small_power(expr: Call) -> Expr | None:
    """Squares and cubes are products."""
    data, exponent = expr.args[0], _number(expr.args[1])
    if exponent == 1:
        return data
    square = call("multiply", data, data)
    return square if exponent == 2 else call("multiply", square, data) if exponent == 3 else None


def _repetition(expr: Call) -> Expr | None:
    """A product with ones changes the shape alone."""
    for data, ones in _orders(expr):
        if isinstance(ones, Constant) and expr.type is not data.type and bool((ones.data == 1).all()):
            return call("broadcast_to", data, shape=expr.shape)
    return None


def _run(expr: Call) -> Expr | None:
    """Constant indices of one step are a slice."""
    data, indices = expr.args
    if not isinstance(indices, Constant):
        return None
    axis = normalise_axis(expr.attrs.axis, len(data.shape))
    extent, places = data.shape[axis], indices.data.reshape(-1).tolist()
    places = [place + extent if place < 0 else place for place in places]
    step = places[1] - places[0] if len(places) > 1 else 1
    if not step or places != list(range(places[0], places[-1] + (1 if step > 0 else -1), step)):
        return None
    if not 0 <= min(places) <= max(places) < extent:
        return None
    begin, end, strides = [0] * len(data.shape), list(data.shape), [1] * len(data.shape)
    # A slice ends right behind its last element.
    begin[axis], end[axis], strides[axis] = places[0], places[-1] + (1 if step > 0 else -1), step
    return reshape(call("strided_slice", data, begin=begin, end=end, strides=strides), expr.shape)


_SHORTER: dict[str, tuple[Callable[[Call], Expr | None], ...]] = {
    "divide": (_quotient,),
    "multiply": (_repetition,),
    "power": (_small_power,),
    "take": (_run,),
}
"""What says with constants what another op says without."""

_IDIOMS: dict[str, tuple[Callable[[Call], Call | None], ...]] = {
    "multiply": (_layer_norm, _rms_norm, _gelu, _hard_swish),
    "divide": (_layer_norm, _rms_norm, _gelu, _hard_swish),
    "maximum": (_leaky_maximum,),
    "where": (_leaky_choice,),
    "add": (_leaky_sum,),
}
"""By the op that comes last."""
