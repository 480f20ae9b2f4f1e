"""What the machine takes: layers with constant weights, perhaps with a residual, pools, and additions.

Patterns are closed: what is not named here must do nothing. So there is no dilation, no zero point of the weights, and
none of the accumulators. Clauses say the rest.
"""

from __future__ import annotations

from typing import Any

from uma.hookspecs import Clause, Failed, Pattern
from uma.relay import quantised
from uma.relay.pattern import Match, Term, any_, op, where, wildcard

from .commands import BY_NAME, RESIDUAL_FACTOR, ROUNDINGS
from .layer import block_need, core_of, sizes_of

__all__ = ["make_patterns"]


def make_patterns(chunk_bytes: int) -> list[Pattern]:
    """The patterns with their clauses.

    Args:
        chunk_bytes: what a block of weights may take: half of the weight memory, for others are loaded meanwhile.
    """
    computed = quantised.no_constant_operands()
    layer = [
        computed,
        quantised.bias_per_channel(),
        quantised.residual_shape(),
        Clause(
            "residual_factor",
            _residual_factor,
            f"a residual is multiplied by -{RESIDUAL_FACTOR} to {RESIDUAL_FACTOR}; this one by {{value}}",
        ),
        quantised.scale_per_channel(),
        quantised.rounding_in(ROUNDINGS),
        quantised.power_of_two_scales(),
        quantised.sums_exact_in_float32(),
        Clause(
            "block_fits",
            lambda match: (need := block_need(match)) <= chunk_bytes or Failed(need),
            f"8 output channels have {chunk_bytes} bytes for their weights, half of the memory; these take {{value}}",
        ),
    ]
    single = Clause("one_filter", _one_filter, "groups, channels and filters are as many; these are {value}")
    depthwise = [single, *_fits("depthwise")]
    shapes = Clause("same_shapes", _same_shapes, "both operands have one shape; the right one has {value}")
    rounds = Clause("rounds_double", _rounds_double, "additions round double; this one rounds {value}")
    windows: dict[str, Any] = {"strides": any_, "padding": any_}
    grouped: dict[str, Any] = {"groups": where(lambda n: n > 1, "several groups"), **windows}
    return [
        Pattern("stream_machine.conv2d", quantised.layer_pattern("qnn.conv2d", **windows), [*_fits("conv"), *layer]),
        Pattern("stream_machine.conv1d", quantised.layer_pattern("qnn.conv1d", **windows), [*_fits("conv"), *layer]),
        Pattern("stream_machine.depthwise2d", quantised.layer_pattern("qnn.conv2d", **grouped), [*depthwise, *layer]),
        Pattern("stream_machine.depthwise1d", quantised.layer_pattern("qnn.conv1d", **grouped), [*depthwise, *layer]),
        Pattern(
            "stream_machine.dense", quantised.layer_pattern("qnn.dense", flattened=True), [*_fits("dense"), *layer]
        ),
        Pattern("stream_machine.add", quantised.clamp_pattern(_add()), [computed, shapes, rounds, *_fits("add")]),
        *(
            Pattern(f"stream_machine.{name}{rank}d", _pool(f"{op_name}{rank}d"), [computed, *_fits(name)])
            for name, op_name in (("max_pool", "nn.max_pool"), ("average_pool", "qnn.avg_pool"))
            for rank in (2, 1)
        ),
    ]


def _pool(name: str) -> Term:
    data = wildcard("int8").named("data")
    return quantised.clamp_pattern(op(name)(data, pool_size=any_, strides=any_, padding=any_).named("core"))


def _add() -> Term:
    left, right = wildcard("int8").named("left"), wildcard("int8").named("right")
    names = ("lhs_scale", "rhs_scale", "output_scale", "left_shift")
    zero_points = ("lhs_zero_point", "rhs_zero_point", "output_zero_point")
    return op("qnn.add")(left, right, **dict.fromkeys((*names, *zero_points), any_)).named("core")


_SIZES = ("kernel", "stride", "pad", "in_height", "in_width", "out_", "channels", "rows", "depth", "count")


def _fits(kind: str) -> list[Clause]:
    """That all sizes fit their fields: a clause for all fields with the same limit, from the table of commands."""
    names: dict[int, list[str]] = {}
    for field in BY_NAME[kind].fields:
        if field.name.startswith(_SIZES) and not field.name.endswith("_pixel"):
            names.setdefault(field.most, []).append(field.name)

    def clause(most: int, limited: list[str]) -> Clause:
        def test(match: Match) -> Failed | bool:
            sizes = sizes_of(match)
            return next((Failed(sizes[name]) for name in limited if sizes[name] > most), True)

        return Clause(f"at_most_{most}", test, f"{', '.join(limited)}: at most {most}; {{value}} is more")

    return [clause(most, limited) for most, limited in names.items()]


def _residual_factor(match: Match) -> Failed | bool:
    residual = quantised.Residual.from_match(match)
    return residual is None or abs(residual.factor) <= RESIDUAL_FACTOR or Failed(residual.factor)


def _one_filter(match: Match) -> Failed | bool:
    core = core_of(match)
    counts = (core.attrs.groups, core.args[0].shape[-1], core.shape[-1])
    return len(set(counts)) == 1 or Failed(counts)


def _same_shapes(match: Match) -> Failed | bool:
    left, right = (arg.shape for arg in core_of(match).args)
    return left == right or Failed(right)


def _rounds_double(match: Match) -> Failed | bool:
    attrs = core_of(match).attrs
    others = [s.rounding for s in (attrs.lhs_scale, attrs.rhs_scale, attrs.output_scale) if s.rounding != "double"]
    return Failed(others[0]) if others else True
