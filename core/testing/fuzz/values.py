"""What attributes may be: of each op those values that are worth a try, the most ordinary first.

Sizes that matter to a machine (its array, its memories) come from its target's attributes and from what its
instructions work on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...lowering.build_targets import BuildTarget
from ...relay.op import ROUNDINGS, Attr, FixedPoint, FloatScale, Op
from ...relay.types import TensorType
from ...tir.form.dtype import DTYPES, bounds, is_integer

__all__ = ["SHIFTS", "Sizes", "attribute_values", "scale_makers", "sizes_of"]

SHIFTS = (0, -1, 1, -2, 2, 7, 8, -7, -8, -9, 15, -14, -15, -16, -17, -22, -23, -24, -30, 30, -31)
"""Of fixed points, small ones and those at limits of 8, 16, 24 and 32 bits."""

LARGE = (1025, 257, 256, 129, 128)
"""Extents beside what fields of 7, 8 and 10 bits hold."""

_MOST_ARRAY = 64
_ARRAYS = 3


@dataclass(frozen=True)
class Sizes:
    """What may matter to a machine.

    Args:
        arrays: extents that its instructions work on, or attributes of its target: small numbers, the most used first.
        memories: bytes that it has of something, ascending.
    """

    arrays: tuple[int, ...] = ()
    memories: tuple[int, ...] = ()

    @property
    def array(self) -> int:
        """The size of the array, or 4 where nothing is known of one: small layers are a little larger."""
        return min((size for size in self.arrays if size >= 4), default=4)

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents to try: 1, 2, each array's and one to each side, odd and prime ones."""
        near = [size + by for size in self.arrays for by in (0, 1, -1)]
        return tuple(dict.fromkeys(n for n in (1, 2, 3, *near, 5, 7, 13, 17, *LARGE) if n > 0))


def sizes_of(member: BuildTarget) -> Sizes:
    """Those of a target, from its attributes that are integers and from the machine of its driver."""
    numbers: list[int] = []
    for attribute in member.target.kind.attributes:
        value = member.target.get_attr(attribute.name)
        if type(value) is int and attribute.name not in ("base", "clock_hz"):
            numbers.append(value)
    memories = [number for number in numbers if number > _MOST_ARRAY]
    counted: dict[int, int] = {number: 8 for number in numbers if 1 < number <= _MOST_ARRAY}
    machine = None if member.runtime is None else member.runtime.machine
    if machine is not None:
        memories += [memory.nbytes for memory in machine.memories]
        for intrinsic in machine.intrinsics:
            for param in intrinsic.params:
                for extent in param.shape:
                    if type(extent) is int and 1 < extent <= _MOST_ARRAY:
                        counted[extent] = counted.get(extent, 0) + 1
    arrays = sorted(counted, key=lambda size: (-counted[size], size))[:_ARRAYS]
    return Sizes(tuple(arrays), tuple(sorted({size for size in memories if size <= 1 << 20})))


def _nearest(factor: float) -> tuple[int, int]:
    """Multiplier and shift of the fixed point nearest to ``factor``."""
    fraction, shift = math.frexp(factor)
    multiplier = round(fraction * 2**31)
    if multiplier == 2**31:
        multiplier, shift = 2**30, shift + 1
    return multiplier, min(30, max(-31, shift))


def scale_makers(
    factor: float, channels: int, shifts: Sequence[int] = SHIFTS
) -> list[tuple[str, Callable[[], FixedPoint | FloatScale]]]:
    """Scales around ``factor``, each with what it is, in words, and made when it is asked for: every rounding, one for
    all and one per channel, powers of two, for which halves are common, multipliers and shifts at their ends.

    Args:
        factor: what suits the numbers that are scaled.
        channels: how many there may be; 1 where there is one scale only.
        shifts: those to try whatever suits, where there is one scale only.
    """
    makers: list[tuple[str, Callable[[], FixedPoint | FloatScale]]] = []
    power = 2.0 ** round(math.log2(factor))
    (multiplier, shift), (power_multiplier, power_shift) = _nearest(factor), _nearest(power)

    def add(text: str, multipliers: tuple[int, ...], shifts: tuple[int, ...], rounding: str) -> None:
        makers.append((f"{text}rounding {rounding}", partial(FixedPoint, multipliers, shifts, rounding)))

    for rounding in ROUNDINGS:
        add("", (multiplier,), (shift,), rounding)
    for rounding in ROUNDINGS:
        add("a power of two, ", (power_multiplier,), (power_shift,), rounding)
    if channels > 1:
        scales = [_nearest(factor * (1 + 0.37 * ((3 * at) % 5)) / (1 << at % 3)) for at in range(channels)]
        many = tuple(one for one, _ in scales)
        # With one per channel, the shifts that are tried are theirs.
        shifts = tuple(one for _, one in scales)
        for rounding in ROUNDINGS:
            add("a scale per channel, ", many, shifts, rounding)
        floats = tuple(power / (1 << at % 3) for at in range(channels))
        makers.append(("a float scale per channel, powers of two", partial(FloatScale, floats)))
    makers.append(("a float scale, a power of two", partial(FloatScale, (power,))))
    makers.append(("a float scale", partial(FloatScale, (factor,))))
    for rounding in ROUNDINGS:
        for number in (2**30, 2**31 - 1, 2**30 + 1, 2**20 + 1, 0):
            add(f"multiplier {number}, ", (number,), (shift,), rounding)
        for number in shifts:
            add(f"shift {number}, ", (multiplier,), (number,), rounding)
    return makers


def _window(rank: int, least: int) -> list[tuple[int, ...]]:
    """For each dimension a number: all ``least``, all one more, each dimension alone."""
    windows = [(least,) * rank, (least + 1,) * rank]
    for at in range(rank if rank > 1 else 0):
        windows.append(tuple(least + (i == at) for i in range(rank)))
    windows.append((least + 2,) * rank)
    return list(dict.fromkeys(windows))


def _paddings(rank: int) -> list[tuple[int, ...]]:
    """None like another, on all sides alike, on none, on each side alone, larger than a kernel."""
    sides = 2 * rank
    paddings = [tuple((i + 1) % 3 for i in range(sides)), (1,) * sides, (0,) * sides]
    paddings += [tuple(int(i == at) for i in range(sides)) for at in range(sides)]
    paddings += [(2,) * sides, (3,) * sides, (7,) * sides]
    return list(dict.fromkeys(paddings))


def _zero_points(dtype: str) -> list[int]:
    if not is_integer(dtype):
        return [0]
    low, high = bounds(dtype)
    if (low, high) == bounds("int16"):
        return [0]
    middle = 0 if low < 0 else 128
    return list(dict.fromkeys((middle + 5, 0, middle, middle - 3, low, high, low + 1, middle + 1)))


def _axes(rank: int) -> list[tuple[int, ...]]:
    inner = tuple(range(1, rank - 1))
    candidates = [
        inner or (rank - 1,),
        (rank - 1,),
        *((at,) for at in range(rank)),
        tuple(range(1, rank)),
        tuple(range(rank)),
    ]
    return [axes for axes in dict.fromkeys(candidates) if axes]


def _spatial(op: Op) -> int:
    """Dimensions of an op's window, by its name."""
    return next((rank for rank in (1, 2, 3) if f"{rank}d" in op.name), 2)


def attribute_values(op: Op, attr: Attr, types: Sequence[TensorType]) -> list[Any]:
    """Values of an attribute that is not a scale, the most ordinary first; empty where nothing is known of it.

    Args:
        op: the op.
        attr: its attribute.
        types: of its operands.
    """
    name, kind = attr.name, attr.type.name
    rank, dtype, shape = len(types[0].shape), types[0].dtype, types[0].shape
    window = _spatial(op)
    if name == "strides" and op.name != "strided_slice":
        return list(_window(window, 1))
    if name == "padding":
        return list(_paddings(window))
    if name == "dilation":
        return list(_window(window, 1))
    if name == "groups":
        channels = shape[-1]
        return list(dict.fromkeys((1, channels, *(n for n in (2, 3, 4) if channels % n == 0))))
    if name == "pool_size":
        space = tuple(shape[1:-1])
        return list(dict.fromkeys(((2,) * window, (3,) * window, *_window(window, 1), space)))
    if name.endswith("zero_point"):
        operand = types[1] if name.startswith(("kernel", "rhs")) and len(types) > 1 else types[0]
        wide = name == "output_zero_point" or (name == "input_zero_point" and operand.dtype in ("int32", "int64"))
        return list(_zero_points("int8" if wide and operand.dtype not in ("uint8", "int16") else operand.dtype))
    if kind == "dtype" or name == "dtype":
        return list(dict.fromkeys(("int8", "uint8", "int16", "int32", "float32", *DTYPES)))
    if name in ("a_min", "a_max"):
        low = name == "a_min"
        if is_integer(dtype) and bounds(dtype)[1] < 2**15:
            ends = bounds(dtype)
            return (
                [-20.0, 0.0, float(ends[0]), 5.0, -1.0, -1000.0]
                if low
                else [90.0, 6.0, float(ends[1]), 5.0, 0.0, 1000.0]
            )
        return [-0.5, 0.0, -3.0, float("-inf")] if low else [6.0, 0.75, 1.0, float("inf")]
    if name == "axis" and kind == "ints":
        return list(_axes(rank))
    if name == "axis":
        return [-1, *range(rank)]
    if kind == "bool":
        return [False, True]
    if " | " in kind and kind != "FixedPoint or FloatScale":
        return list(kind.split(" | "))
    special = _special(op, name, shape)
    if special is not None:
        return special
    if name == "epsilon":
        return [1e-5, 1e-3]
    if name == "output_scale" and dtype == "int16":
        return [2.0**-15]  # the only one that TFLite has
    if kind in ("float", "float, or floats"):
        scales: list[Any] = [1 / 128, 0.05, 0.1, 1 / 256, 0.5]
        return [*scales, tuple(scales[at % 3] for at in range(shape[-1]))] if kind != "float" and shape else scales
    if kind == "int":
        return [1, 2, 0, 3]
    return []


def _special(op: Op, name: str, shape: tuple[int, ...]) -> list[Any] | None:
    """Of ops that move elements; None for others."""
    rank = len(shape)
    if op.name == "reshape":
        size = math.prod(shape)
        shapes = [shape, (shape[0], size // shape[0]), (1, size), (size,), (*shape, 1)]
        return list(dict.fromkeys(shapes))
    if op.name == "transpose":
        orders = list(itertools.islice(itertools.permutations(range(rank)), 24))
        return [orders[-1], *orders]
    if op.name == "layout_transform":
        letters = "NHWC" if rank == 4 else "NDHWC"[:rank]
        layouts = ["".join(order) for order in itertools.islice(itertools.permutations(letters), 24)]
        return [letters] if name == "src_layout" else [layouts[-1], *layouts]
    if op.name == "squeeze":
        return [tuple(at for at, extent in enumerate(shape) if extent == 1)]
    if op.name == "nn.pad" and name == "pad_width":
        return [(0,) * 2 + (1,) * (2 * rank - 4) + (0,) * 2, (1, 0) * rank, (0, 1) * rank, (0,) * (2 * rank)]
    if op.name == "nn.pad":
        return [0.0, 1.0, -3.0]
    if op.name == "strided_slice":
        begin = tuple(int(extent > 1) for extent in shape)
        return {
            "begin": [(0,) * rank, begin],
            "end": [(*shape[:-2], max(1, shape[-2] - 1), shape[-1]) if rank > 1 else shape, shape],
            "strides": [(1,) * rank, *(tuple(1 + (i == at) for i in range(rank)) for at in range(rank))],
        }.get(name)
    if op.name == "nn.resize_nearest":
        extent = shape[1 if name == "rows" else 2] if rank > 2 else 1
        return [tuple(sorted([*range(extent)] * times)) for times in (2, 1, 3)] + [tuple(range(extent))[::-1]]
    if op.name == "broadcast_to":
        return [shape, (2, *shape)]
    if op.name == "split" and name == "indices":
        return [(max(1, shape[-1] // 2),), (1,)]
    if name == "left_shift":
        return [20, 15, 0, 8, 19, 21]
    return None
