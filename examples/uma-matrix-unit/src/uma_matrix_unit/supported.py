"""What the machine takes: a product with constant weights, perhaps a bias, a residual, a requantisation, perhaps a
clip.

Patterns are closed: what is not named here must do nothing. So there is one group, no dilation, no zero point of the
weights, and none of the accumulators. Clauses say the rest.
"""

from __future__ import annotations

from typing import Any

from uma.hookspecs import Clause, Failed, Lowered, Pattern
from uma.relay import FixedPoint, FloatScale
from uma.relay.pattern import Match, Term, any_, any_of, constant, op, optional, wildcard
from uma.target import Target

from .layer import factor_of, largest_sum, layer_of, power_of_two, residual_taps, scale_of, shape_of
from .lower import lower
from .machine import LANES, MAX_TAPS, RECORD_BYTES, ROUNDINGS, Machine
from .tiling import choose_tiling, window_bytes

__all__ = ["make_patterns"]


def make_patterns(machine: Machine) -> list[Pattern]:
    """The patterns, each with its clauses and its lowering."""
    clauses = [
        Clause(
            "bias_per_channel", _bias_per_channel, "a bias has one number per output channel; this has shape {value}"
        ),
        Clause(
            "scale_per_channel", _scale_per_channel, "scales go along the output channels; these go along axis {value}"
        ),
        Clause("rounding", _rounding, f"fixed-point scales round {', '.join(ROUNDINGS)}; this one rounds {{value}}"),
        Clause("powers_of_two", _powers_of_two, "float scales are powers of two, 2**-32 to 2**29; {value} is not one"),
        Clause("exact_sums", _exact_sums, "float scales are for sums of up to 2**24; these may reach {value}"),
        Clause(
            "window_fits",
            lambda found: _window_fits(found, machine),
            f"the input under one pixel and {LANES} channels of its output share the {machine.activation_bytes} bytes "
            "of the activation scratchpad; they take {value}",
        ),
    ]
    most = min(MAX_TAPS, (machine.weight_bytes - RECORD_BYTES - LANES) // (LANES * LANES))
    clauses[1:1] = [
        Clause(
            "residual_shape",
            _residual_shape,
            "a residual has the shape of the sums, and one factor; this has shape {value}",
        ),
        Clause(
            "residual_factor",
            lambda found: _residual_factor(found, most),
            f"a residual is multiplied by at most {127 * most}, for which the weight scratchpad has room; this one by "
            "{value}",
        ),
    ]
    windows = Clause(
        "windows_meet_the_data", _windows_meet_the_data, "padding is less than the window's taps; this is {value}"
    )
    few = Clause("few_dimensions", _few_dimensions, "the data has at most 4 dimensions; this has {value}")
    return [
        _pattern("matrix_unit.conv2d", _layer("qnn.conv2d", strides=any_, padding=any_), [windows, *clauses], machine),
        _pattern("matrix_unit.conv1d", _layer("qnn.conv1d", strides=any_, padding=any_), [windows, *clauses], machine),
        _pattern("matrix_unit.dense", _layer("qnn.dense"), [few, *clauses], machine),
    ]


def _layer(product_op: str, **opened: Any) -> Term:
    data, weight = wildcard("int8").named("data"), constant("int8").named("weight")
    product = op(product_op)(data, weight, input_zero_point=any_, **opened).named("product")
    biased = optional(product, lambda sums: op("add")(sums, constant("int32").named("bias")))
    wide = op("cast")(wildcard("int8").named("residual"), dtype="int32")
    residual = any_of(op("multiply")(wide, constant("int32").named("factor")), wide)
    summed = optional(biased, lambda sums: op("add")(sums, residual))
    scaled = op("qnn.requantize")(summed, scale=any_, output_zero_point=any_, dtype="int8", axis=any_).named("scaled")
    clip = op("clip")(scaled, a_min=any_, a_max=any_).named("clip")
    return any_of(clip, op("nn.relu")(scaled).named("relu"), scaled)


def _pattern(name: str, term: Term, clauses: list[Clause], machine: Machine) -> Pattern:
    def lower_match(match: Match, target: Target) -> Lowered:
        layer = layer_of(match)
        tiling = choose_tiling(layer.shape, machine)
        assert tiling is not None  # window_fits
        named = {match["data"]: "data"}
        if "residual" in match:
            named.setdefault(match["residual"], "residual")  # it may be the data once more
        return lower(layer, tiling, machine, match["data"].shape, match.root.shape, [named[p] for p in match.inputs])

    return Pattern(name, term, clauses, lower_match)


def _few_dimensions(found: Match) -> Failed | bool:
    rank = len(found["data"].shape)
    return rank <= 4 or Failed(rank)


def _windows_meet_the_data(found: Match) -> Failed | bool:
    shape = shape_of(found)
    inside = all(pixels < taps for pixels, taps in zip(shape.padding, shape.kernel * 2, strict=True))
    return inside or Failed(shape.padding)


def _bias_per_channel(found: Match) -> Failed | bool:
    bias, product = found.get("bias"), found["product"]
    if bias is None:
        return True
    size = bias.tensor.size
    one_each = size == 1 or (size,) == bias.shape[-1:] == product.shape[-1:]
    return (one_each and found["scaled"].shape == product.shape) or Failed(bias.shape)


def _residual_shape(found: Match) -> Failed | bool:
    residual, factor = found.get("residual"), found.get("factor")
    if residual is None:
        return True
    if factor is not None and factor.tensor.size != 1:
        return Failed(factor.shape)
    return residual.shape == found["product"].shape == found["scaled"].shape or Failed(residual.shape)


def _residual_factor(found: Match, most: int) -> Failed | bool:
    if found.get("residual") is None:
        return True
    taps = residual_taps(factor_of(found))
    return (taps is not None and taps <= most) or Failed(factor_of(found))


def _scale_per_channel(found: Match) -> Failed | bool:
    scale, axis = scale_of(found)
    return len(scale) == 1 or axis in (-1, len(found["scaled"].shape) - 1) or Failed(axis)


def _rounding(found: Match) -> Failed | bool:
    scale, _ = scale_of(found)
    return isinstance(scale, FloatScale) or scale.rounding in ROUNDINGS or Failed(scale.rounding)


def _powers_of_two(found: Match) -> Failed | bool:
    scale, _ = scale_of(found)
    others = [s for s in scale.scale if power_of_two(s) is None] if isinstance(scale, FloatScale) else []
    return Failed(others[0]) if others else True


def _exact_sums(found: Match) -> Failed | bool:
    # The product with a power of two is exact, and rounded half to even; so is an int32 as a float32 up to here.
    scale, _ = scale_of(found)
    return isinstance(scale, FixedPoint) or largest_sum(found) <= 2**24 or Failed(largest_sum(found))


def _window_fits(found: Match, machine: Machine) -> Failed | bool:
    shape = shape_of(found)
    return choose_tiling(shape, machine) is not None or Failed(window_bytes(shape, 1, 1, 1))
