"""What the machine takes: layers with constant weights, perhaps with a residual, pools, and additions.

Patterns are closed: what is not named here must do nothing. So there is no dilation, no zero point of the weights, and
none of the accumulators. Clauses say the rest.
"""

from __future__ import annotations

from typing import Any

from uma.hookspecs import Clause, Failed, Pattern
from uma.relay import Constant, FixedPoint, FloatScale
from uma.relay.pattern import Match, Term, any_, any_of, chain, constant, op, optional, where, wildcard

from .commands import BY_NAME, RESIDUAL_FACTOR, ROUNDINGS
from .layer import block_need, core_of, factor_of, largest_sum, power_of_two, scale_of, sizes_of

__all__ = ["make_patterns"]


def make_patterns(chunk_bytes: int) -> list[Pattern]:
    """The patterns with their clauses.

    Args:
        chunk_bytes: what a block of weights may take: half of the weight memory, for others are loaded meanwhile.
    """
    computed = Clause("computed", _computed, "operands are computed; {value} is constant")
    layer = [
        computed,
        Clause(
            "bias_per_channel", _bias_per_channel, "a bias has one number per output channel; this has shape {value}"
        ),
        Clause(
            "residual_shape",
            _residual_shape,
            "a residual has the shape of the sums, one factor and one zero point; this has shape {value}",
        ),
        Clause(
            "residual_factor",
            _residual_factor,
            f"a residual is multiplied by -{RESIDUAL_FACTOR} to {RESIDUAL_FACTOR}; this one by {{value}}",
        ),
        Clause(
            "scale_per_channel", _scale_per_channel, "scales go along the output channels; these go along axis {value}"
        ),
        Clause("rounding", _rounding, f"fixed-point scales round {', '.join(ROUNDINGS)}; this one rounds {{value}}"),
        Clause("powers_of_two", _powers_of_two, "float scales are powers of two, 2**-32 to 2**29; {value} is not one"),
        Clause("exact_sums", _exact_sums, "float scales are for sums of up to 2**24; these may reach {value}"),
        Clause(
            "block_fits",
            lambda found: (need := block_need(found)) <= chunk_bytes or Failed(need),
            f"8 output channels have {chunk_bytes} bytes for their weights, half of the memory; these take {{value}}",
        ),
    ]
    single = Clause("one_filter", _one_filter, "groups, channels and filters are as many; these are {value}")
    depthwise = [single, *_fits("depthwise")]
    shapes = Clause("same_shapes", _same_shapes, "both operands have one shape; the right one has {value}")
    rounds = Clause("rounds_double", _rounds_double, "additions round double; this one rounds {value}")
    windows = {"strides": any_, "padding": any_}
    grouped = {"groups": where(lambda n: n > 1, "several groups"), **windows}
    return [
        Pattern("stream_machine.conv2d", _layer("qnn.conv2d", **windows), [*_fits("conv"), *layer]),
        Pattern("stream_machine.conv1d", _layer("qnn.conv1d", **windows), [*_fits("conv"), *layer]),
        Pattern("stream_machine.depthwise2d", _layer("qnn.conv2d", **grouped), [*depthwise, *layer]),
        Pattern("stream_machine.depthwise1d", _layer("qnn.conv1d", **grouped), [*depthwise, *layer]),
        Pattern("stream_machine.dense", _dense(), [*_fits("dense"), *layer]),
        Pattern("stream_machine.add", _clamped(_add()), [computed, shapes, rounds, *_fits("add")]),
        *(
            Pattern(f"stream_machine.{name}{rank}d", _clamped(_pool(f"{op_name}{rank}d")), [computed, *_fits(name)])
            for name, op_name in (("max_pool", "nn.max_pool"), ("average_pool", "qnn.avg_pool"))
            for rank in (2, 1)
        ),
    ]


def _clamped(value: Term) -> Term:
    clip = op("clip")(value, a_min=any_, a_max=any_).named("clip")
    return any_of(clip, op("nn.relu")(value).named("relu"), value)


def _dense() -> Term:
    # What is flattened before stays in place; taken along, it does not part the region in two.
    flattened = chain(wildcard("int8").named("data"), lambda v: op("reshape")(v, newshape=any_), least=0, most=4)
    return _requantised(op("qnn.dense")(flattened, constant("int8").named("weight"), input_zero_point=any_))


def _layer(product_op: str, **opened: Any) -> Term:
    data, weight = wildcard("int8").named("data"), constant("int8").named("weight")
    return _requantised(op(product_op)(data, weight, input_zero_point=any_, **opened))


def _requantised(core: Term) -> Term:
    product = core.named("core")
    biased = optional(product, lambda sums: op("add")(sums, constant("int32").named("bias")))
    zero_point = constant("int32").named("residual_zero_point")
    cast = op("cast")(wildcard("int8").named("residual"), dtype="int32")
    wide = optional(cast, lambda numbers: op("subtract")(numbers, zero_point))
    residual = any_of(op("multiply")(wide, constant("int32").named("factor")), wide)
    summed = optional(biased, lambda sums: op("add")(sums, residual))
    scaled = op("qnn.requantize")(summed, scale=any_, output_zero_point=any_, dtype="int8", axis=any_).named("scaled")
    return _clamped(scaled)


def _pool(name: str) -> Term:
    data = wildcard("int8").named("data")
    return op(name)(data, pool_size=any_, strides=any_, padding=any_).named("core")


def _add() -> Term:
    left, right = wildcard("int8").named("left"), wildcard("int8").named("right")
    names = ("lhs_scale", "rhs_scale", "output_scale", "left_shift")
    zero_points = ("lhs_zero_point", "rhs_zero_point", "output_zero_point")
    return op("qnn.add")(left, right, **dict.fromkeys((*names, *zero_points), any_)).named("core")


def _computed(found: Match) -> Failed | bool:
    given = {name: found.captures.get(name) for name in ("data", "residual", "left", "right")}
    names = [name for name, held in given.items() if held and isinstance(held[0], Constant)]
    return not names or Failed(names[0])


_SIZES = ("kernel", "stride", "pad", "in_height", "in_width", "out_", "channels", "rows", "depth", "count")


def _fits(kind: str) -> list[Clause]:
    """That all sizes fit their fields: a clause for all fields with the same limit, from the table of commands."""
    names: dict[int, list[str]] = {}
    for field in BY_NAME[kind].fields:
        if field.name.startswith(_SIZES) and not field.name.endswith("_pixel"):
            names.setdefault(field.most, []).append(field.name)

    def clause(most: int, limited: list[str]) -> Clause:
        def test(found: Match) -> Failed | bool:
            sizes = sizes_of(found)
            return next((Failed(sizes[name]) for name in limited if sizes[name] > most), True)

        return Clause(f"at_most_{most}", test, f"{', '.join(limited)}: at most {most}; {{value}} is more")

    return [clause(most, limited) for most, limited in names.items()]


def _bias_per_channel(found: Match) -> Failed | bool:
    bias, core = found.get("bias"), core_of(found)
    if bias is None:
        return True
    size = bias.tensor.size
    one_each = size == 1 or (size,) == bias.shape[-1:] == core.shape[-1:]
    return (one_each and found["scaled"].shape == core.shape) or Failed(bias.shape)


def _residual_shape(found: Match) -> Failed | bool:
    residual = found.get("residual")
    if residual is None:
        return True
    for one in (found.get("factor"), found.get("residual_zero_point")):
        if one is not None and one.tensor.size != 1:
            return Failed(one.shape)
    return residual.shape == core_of(found).shape == found["scaled"].shape or Failed(residual.shape)


def _residual_factor(found: Match) -> Failed | bool:
    if found.get("residual") is None:
        return True
    return abs(factor_of(found)) <= RESIDUAL_FACTOR or Failed(factor_of(found))


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


def _one_filter(found: Match) -> Failed | bool:
    core = core_of(found)
    counts = (core.attrs.groups, core.args[0].shape[-1], core.shape[-1])
    return len(set(counts)) == 1 or Failed(counts)


def _same_shapes(found: Match) -> Failed | bool:
    left, right = (arg.shape for arg in core_of(found).args)
    return left == right or Failed(right)


def _rounds_double(found: Match) -> Failed | bool:
    attrs = core_of(found).attrs
    others = [s.rounding for s in (attrs.lhs_scale, attrs.rhs_scale, attrs.output_scale) if s.rounding != "double"]
    return Failed(others[0]) if others else True
