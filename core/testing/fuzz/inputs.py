"""What layers are fed: the ends of types, zero points, numbers beside these, every value, and random ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...relay.expr import Function, Var
from ...tir.form.dtype import bounds, is_integer
from .layer import calls_in

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ends_of", "feeds", "random_array", "zero_points"]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random elements: of a type of at most 16 bits any, of a wider one small ones, of floats about 1."""
    import numpy as np

    if dtype == "bool":
        return rng.random(shape) < 0.5
    if is_integer(dtype):
        low, high = bounds(dtype)
        low, high = max(low, -3000), min(high, 3000)
        numbers = rng.integers(low, high + 1, shape)
        return np.asarray(numbers).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def zero_points(function: Function) -> dict[str, int]:
    """For each input what stands for zero where an op takes it; 0 where none says."""
    names = {0: ("input_zero_point", "lhs_zero_point", "zero_point"), 1: ("kernel_zero_point", "rhs_zero_point")}
    zeros: dict[str, int] = {}
    for call in calls_in(function.body):
        for at, arg in enumerate(call.args):
            attrs = dict(call.attrs.items)
            value = next((attrs[name] for name in names.get(at, ()) if name in attrs), 0)
            if isinstance(arg, Var) and arg.name not in zeros and isinstance(value, int):
                zeros[arg.name] = value
    return zeros


def ends_of(dtype: str) -> tuple[float, float]:
    """The least and the largest number that an input of a dtype is fed, other than random ones."""
    if dtype == "bool":
        return 0, 1
    if is_integer(dtype):
        low, high = bounds(dtype)
        return (low, high) if high < 2**15 else (-1000 if low < 0 else 0, 1000)
    return -1.0, 1.0


def feeds(function: Function, rng: np.random.Generator, count: int) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """Inputs for a function, each with what it is in words; the ones that differ most from each other first.

    Args:
        function: the function.
        rng: decides what is random.
        count: of random ones.
    """
    import numpy as np

    zeros = zero_points(function)

    def every(make: str, number: int = 0) -> Mapping[str, np.ndarray]:
        arrays = {}
        for at, var in enumerate(function.params):
            low, high = ends_of(var.dtype)
            shape, places = var.shape, np.arange(var.tensor.size).reshape(var.shape)
            zero = min(max(zeros.get(var.name, 0), low), high)
            if make == "random":
                values: np.ndarray = random_array(rng, shape, var.dtype)
            elif make == "all":
                values = (
                    low + (places * 37 + 11 * at) % 256 if high > 1 and is_integer(var.dtype) else np.sin(places + at)
                )
            elif make == "near":
                near = rng.integers(-3, 4, shape) if is_integer(var.dtype) else rng.standard_normal(shape) / 16
                values = np.clip(zero + near, low, high)
            elif make == "alternating":
                values = np.where((places + at + number) % 2 == 0, low, high)
            else:
                values = np.full(shape, {"lowest": low, "highest": high, "zero": zero}[make])
            arrays[var.name] = np.asarray(values).astype(var.dtype).reshape(shape)
        return arrays

    yield "every value", every("all")
    yield "numbers near the zero point", every("near")
    yield "lowest numbers", every("lowest")
    yield "highest numbers", every("highest")
    yield "zero points", every("zero")
    yield "ends in turns", every("alternating")
    for number in range(count):
        yield f"random numbers {number + 1}", every("random", number)
