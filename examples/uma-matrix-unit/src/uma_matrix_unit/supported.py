"""What the machine takes: a product with constant weights, perhaps a bias, a residual, a requantisation, perhaps a
clip.

Patterns are closed: what is not named here must do nothing. So there is one group, no dilation, no zero point of the
weights, and none of the accumulators. Clauses say the rest.
"""

from __future__ import annotations

from uma.hookspecs import Clause, Failed, LoweredKernel, Pattern
from uma.relay import quantised
from uma.relay.pattern import Match, Term, any_
from uma.targets import Target

from .layer import factor_of, layer_of, residual_taps, shape_of
from .lower import lower
from .machine import LANES, MAX_TAPS, RECORD_BYTES, ROUNDINGS, Machine
from .tiling import choose_tiling, fits, window_bytes

__all__ = ["make_patterns"]


def make_patterns(machine: Machine) -> list[Pattern]:
    """The patterns, each with its clauses and its lowering."""
    most = min(MAX_TAPS, (machine.weight_bytes - RECORD_BYTES - LANES) // (LANES * LANES))
    clauses = [
        quantised.bias_per_channel(),
        quantised.residual_shape(),
        Clause(
            "residual_factor",
            lambda match: _residual_factor(match, most),
            f"a residual is multiplied by at most {127 * most}, for which the weight scratchpad has room; this one by "
            "{value}",
        ),
        quantised.scale_per_channel(),
        quantised.rounding_in(ROUNDINGS),
        quantised.power_of_two_scales(),
        quantised.sums_exact_in_float32(),
        Clause(
            "window_fits",
            lambda match: _window_fits(match, machine),
            f"the input under one pixel and {LANES} channels of its output share the {machine.activation_bytes} bytes "
            "of the activation scratchpad; they take {value}",
        ),
    ]
    windows = Clause(
        "windows_meet_the_data", _windows_meet_the_data, "padding is less than the window's taps; this is {value}"
    )
    few = Clause("few_dimensions", _few_dimensions, "the data has at most 4 dimensions; this has {value}")
    conv2d, conv1d = (
        quantised.layer_pattern(name, residual="plain", strides=any_, padding=any_)
        for name in ("qnn.conv2d", "qnn.conv1d")
    )
    return [
        _pattern("matrix_unit.conv2d", conv2d, [windows, *clauses], machine),
        _pattern("matrix_unit.conv1d", conv1d, [windows, *clauses], machine),
        _pattern("matrix_unit.dense", quantised.layer_pattern("qnn.dense", residual="plain"), [few, *clauses], machine),
    ]


def _pattern(name: str, term: Term, clauses: list[Clause], machine: Machine) -> Pattern:
    def lower_match(match: Match, target: Target) -> LoweredKernel:
        layer = layer_of(match)
        tiling = choose_tiling(layer.shape, machine)
        assert tiling is not None  # window_fits
        named = {match["data"]: "data"}
        if "residual" in match:
            named.setdefault(match["residual"], "residual")  # it may be the data once more
        return lower(layer, tiling, machine, match.root.shape, [named[p] for p in match.inputs])

    return Pattern(name, term, clauses, lower_match)


def _few_dimensions(match: Match) -> Failed | bool:
    rank = len(match["data"].shape)
    return rank <= 4 or Failed(rank)


def _windows_meet_the_data(match: Match) -> Failed | bool:
    shape = shape_of(match)
    inside = all(pixels < taps for pixels, taps in zip(shape.padding, shape.kernel * 2, strict=True))
    return inside or Failed(shape.padding)


def _residual_factor(match: Match, most: int) -> Failed | bool:
    factor = factor_of(match)
    if factor is None:
        return True
    taps = residual_taps(factor)
    return (taps is not None and taps <= most) or Failed(factor)


def _window_fits(match: Match, machine: Machine) -> Failed | bool:
    shape = shape_of(match)
    return fits(shape, machine) or Failed(window_bytes(shape))
