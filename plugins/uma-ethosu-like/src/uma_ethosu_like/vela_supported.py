"""What of our patterns is left to Vela: layers that it computes as the model says, to the bit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from uma.hookspecs import Pattern
from uma.relay import FixedPoint, quantised
from uma.relay.pattern import Clause, Failed, Match

from .layer import core_of, enlarged
from .plan import operand_names
from .scaling import sum_operand
from .supported import make_patterns

__all__ = ["fits_same", "make_vela_patterns", "softmax_scale", "steps"]

_MOST_STRIDE = 2
_MOST_RANK = 4
_MOST_SHIFT = 30
_FACTORS = (2, 4, 8)
_SOFTMAX_BITS = 26


def make_vela_patterns() -> list[Pattern]:
    """Ours, each with a condition more: those that Vela takes with what it computes alike, those that it does not with
    the reason.
    """
    patterns = []
    for pattern in make_patterns():
        name = pattern.name.removeprefix("ethosu_like.")
        patterns.append(replace(pattern, name=f"vela.{name}", predicate=[*_clauses(pattern), *_judged(name)]))
    return patterns


def _clauses(pattern: Pattern) -> Sequence[Clause]:
    assert isinstance(pattern.predicate, (list, tuple))
    return pattern.predicate


def _judged(name: str) -> Sequence[Clause]:
    kind = re.sub(r"\d+d?$", "", name)  # conv2d, concatenate3
    if kind in _NOT_EXACT:
        return [Clause("exact", lambda match: False, _NOT_EXACT[kind])]
    return [_int8(), *_CLAUSES[kind]]


_NOT_EXACT = {
    **dict.fromkeys(
        ("requantise", "clip", "abs", "leaky_relu", "sigmoid", "tanh"),
        "numbers of 16 bits are not written for Vela",
    ),
    "table": "Vela makes tables by itself, of which some differ from the model's; our own compiler looks them up",
    "mean": "Vela scales a mean by itself, not as the model does",
    "multiply": "Vela and TFLite are not of one mind about the scale of a product: float64 and float32",
    "global_max_pool": "a maximum over a whole picture is not written for Vela",
}
"""By pattern: why Vela does not get it."""


# --- clauses ---------------------------------------------------------------------------------------------------------


def _int8() -> Clause:
    def test(match: Match) -> Failed | bool:
        names = operand_names(tuple(match.captures))
        wide = [one.dtype for one in (match.root, *(match[name] for name in names)) if one.dtype != "int8"]
        return not wide or Failed(wide[0])

    return Clause("int8", test, "only int8 is written for Vela; here is {value}")


def _picture() -> list[Clause]:
    def batch(match: Match) -> Failed | bool:
        number = quantised.Window.from_match(match).batch
        return number == 1 or Failed(number)

    def strides(match: Match) -> Failed | bool:
        strides = steps(quantised.Window.from_match(match))
        return max(strides) <= _MOST_STRIDE or Failed(strides)

    return [
        Clause("batch", batch, "Vela takes one picture; here are {value}"),
        Clause(
            "vela_strides",
            strides,
            f"Vela keeps kernels apart whose strides are 1 or {_MOST_STRIDE}; these are {{value}}",
        ),
    ]


def _layer() -> list[Clause]:
    def rounding(match: Match) -> Failed | bool:
        rounding = match.call("scaled").attrs.scale.rounding
        return rounding == "double" or Failed(rounding)

    def multipliers(match: Match) -> Failed | bool:
        fixed: FixedPoint = match.call("scaled").attrs.scale
        wrong = [one for one in zip(fixed.multiplier, fixed.shift, strict=True) if not _normal(*one)]
        return not wrong or Failed(wrong[0])

    def zero_point(match: Match) -> Failed | bool:
        number = core_of(match).attrs.kernel_zero_point
        return number == 0 or Failed(number)

    return [
        *_picture(),
        Clause("weights", zero_point, "TFLite's weights of int8 have no zero point; these have {value}"),
        Clause("vela_rounding", rounding, "Vela scales sums by fixed points that round double; here: {value}"),
        Clause(
            "multipliers",
            multipliers,
            "TFLite has multipliers from 2**30 to below 2**31 and shifts from -31 to 30; here is {value}",
        ),
    ]


def _normal(multiplier: int, shift: int) -> bool:
    return 1 << 30 <= multiplier < 1 << 31 and -31 <= shift <= _MOST_SHIFT


def _pool() -> list[Clause]:
    def padding(match: Match) -> Failed | bool:
        w = quantised.Window.from_match(match)
        return not any(w.padding) or fits_same(w) or Failed(w.padding)

    return [*_picture(), Clause("padding", padding, "pools are padded as SAME or VALID of TFLite; here: {value}")]


def fits_same(w: quantised.Window) -> bool:
    """Whether a window is padded as ``SAME`` of TFLite: as many windows as steps, the odd row or column behind."""
    sizes = zip((w.height, w.width), w.kernel, steps(w), w.dilation, strict=True)
    totals = [max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n) for n, k, s, d in sizes]
    return w.padding == (*(n // 2 for n in totals), *(n - n // 2 for n in totals))


def steps(w: quantised.Window) -> tuple[int, int]:
    """The strides of a window; 1 where it spans all there is, and makes no step."""
    spans = [d * (k - 1) + 1 for k, d in zip(w.kernel, w.dilation, strict=True)]
    whole = [n == span and not any(w.padding) for n, span in zip((w.height, w.width), spans, strict=True)]
    rows, columns = (1 if all_of_it else s for s, all_of_it in zip(w.strides, whole, strict=True))
    return rows, columns


def _rank() -> Clause:
    def test(match: Match) -> Failed | bool:
        rank = max(len(one.shape) for one in (core_of(match), *core_of(match).args))
        return rank <= _MOST_RANK or Failed(rank)

    return Clause("rank", test, f"tensors have up to {_MOST_RANK} dimensions; here are {{value}}")


def _sum() -> list[Clause]:
    def scales(match: Match) -> Failed | bool:
        attrs = core_of(match).attrs
        scaled = attrs.lhs_scale if sum_operand(core_of(match)) == 1 else attrs.rhs_scale
        fixed = (scaled, attrs.output_scale)
        right = all(_normal(one.multiplier[0], one.shift[0]) for one in fixed)
        at_most_half = math.ldexp(scaled.multiplier[0], scaled.shift[0] - 31) <= 0.5
        return (right and at_most_half) or Failed(fixed)

    return [
        Clause("vela_scales", scales, "the operand of the smaller scale is scaled, by a half at most; here: {value}"),
    ]


def _resize() -> Clause:
    def test(match: Match) -> Failed | bool:
        factors = enlarged(core_of(match))
        return (factors is not None and factors[0] == factors[1] in _FACTORS) or Failed(factors)

    return Clause("factors", test, "Vela enlarges to 2, 4 or 8 times the rows and columns; here: {value}")


def softmax_scale(fixed: FixedPoint) -> float | None:
    """The scale of what a softmax is given, with which TFLite makes ``fixed``; None where no float32 is."""
    [multiplier], [shift] = fixed.multiplier, fixed.shift
    if multiplier % 128 or not _normal(multiplier, shift):
        return None
    return math.ldexp(multiplier, shift - 31 - _SOFTMAX_BITS)


def _softmax() -> Clause:
    def test(match: Match) -> Failed | bool:
        fixed = core_of(match).attrs.scale
        return softmax_scale(fixed) is not None or Failed(fixed)

    return Clause("vela_scale", test, "a softmax is scaled by a float32; this one by {value}")


_CLAUSES: dict[str, Sequence[Clause]] = {
    **dict.fromkeys(("conv", "depthwise", "dense"), _layer()),
    **dict.fromkeys(("max_pool", "average_pool"), _pool()),
    **{name: [*_sum(), _rank()] for name in ("add", "subtract")},
    **{name: [_rank()] for name in ("minimum", "maximum", "concatenate", "slice")},
    "resize": [_resize()],
    "softmax": [_softmax()],
}
"""By pattern: what has to hold besides. Strides and widths are those that Vela 5.2 was tried with."""
