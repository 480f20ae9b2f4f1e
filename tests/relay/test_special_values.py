"""What ops declare of NaN, infinities and -0 (`Specials`) is what their references and their loops compute."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests._support.op_cases import CASES, on
from tests._support.op_kernels import check as check_compiled
from tests._support.relay_strategies import Choice, random_array
from tests.relay.test_ops_compute import check

from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Function
from uma.relay.module import IRModule
from uma.relay.op import Op, Specials, get_op, registered_ops
from uma.relay.transform import canonicalise
from uma.tir.form.dtype import INTEGERS, is_float

SPECIAL = (np.nan, np.nan, np.inf, -np.inf, -0.0)
CALLS = 20 if os.environ.get("UMA_SOAK") else 1
SEEDS = 300
"""Random calls of an op, among which are some of floats, if it takes any."""


class Seeded(Choice):
    """The same choices for the same seed, by numpy."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def of(self, *options):  # type: ignore[no-untyped-def]
        return options[self._rng.integers(len(options))]

    def number(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high, endpoint=True))

    def order(self, count: int) -> tuple[int, ...]:
        return tuple(map(int, self._rng.permutation(count)))

    def array(self, shape, dtype):  # type: ignore[no-untyped-def]
        return random_array(shape, dtype, self.number(0, 2**16))


def float_calls(name: str, seeds: int) -> Iterator[tuple[int, Call]]:
    """Calls of the op with an operand of floats, and their seeds, among so many."""
    made = ((seed, CASES[name](Seeded(seed), name)) for seed in range(seeds))
    return ((seed, one) for seed, one in made if any(is_float(arg.tensor.dtype) for arg in one.args))


def with_specials(made: Call, seed: int, values: tuple[float, ...] = SPECIAL) -> list[np.ndarray]:
    """Operands some of whose floats are special: all operands of what goes element by element, else the first one.

    (A weight of inf times the 0 of padding is left to each implementation.)
    """
    assert isinstance(made.op, Op)
    rng = np.random.default_rng(seed)
    arrays = [random_array(arg.tensor.shape, arg.tensor.dtype, seed + i) for i, arg in enumerate(made.args)]
    everywhere = made.op.kind in ("elementwise", "broadcast") or made.op_name == "scatter"
    floats = [array for array in arrays if array.dtype.kind == "f"]
    if made.op_name == "nn.non_max_suppression":
        floats = [arrays[1]]  # the scores
    for array in floats if everywhere else floats[:1]:
        chosen = rng.random(array.shape) < 0.3
        array[chosen] = rng.choice(values, int(chosen.sum()))
    return arrays


def results(made: Call, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    assert isinstance(made.op, Op)
    found = made.op.evaluate(made.attrs, *arrays)
    return found if isinstance(found, tuple) else (found,)


def check_kept(made: Call, arrays: list[np.ndarray]) -> None:
    assert isinstance(made.op, Op)
    if made.op.kind in ("elementwise", "broadcast") and made.op_name != "power":
        (found,) = results(made, arrays)
        is_nan = np.zeros(found.shape, bool)
        for array in arrays:
            is_nan |= np.isnan(array)
        assert np.isnan(found)[is_nan].all()
    else:
        first = np.full(arrays[0].shape, np.nan, arrays[0].dtype)
        found = results(made, [first, *arrays[1:]])[0]
        # (Sums of no elements, of steps behind the end, and exclusive ones are numbers.)
        assert not found.size or not first.size or made.op_name != "matmul" or np.isnan(found).all()


def check_ignored(made: Call, arrays: list[np.ndarray]) -> None:
    (found,) = results(made, arrays)
    lowest = np.inf if str(made.op_name).endswith("min") else -np.inf
    (without,) = results(made, [np.where(np.isnan(arrays[0]), lowest, arrays[0]).astype(arrays[0].dtype)])
    if found.dtype.kind == "f":
        assert not np.isnan(found).any()
        np.testing.assert_array_equal(found, without)
        return
    axis, data = made.attrs.axis, arrays[0]
    places = found if made.attrs.keepdims else np.expand_dims(found, axis)
    at_places = np.take_along_axis(data, places.astype(np.int64), axis)
    fold = np.fmin if lowest > 0 else np.fmax
    np.testing.assert_array_equal(at_places, fold.reduce(data, axis, keepdims=True))


def check_unequal(made: Call, arrays: list[np.ndarray]) -> None:
    if made.op_name != "nonzero":
        (found,) = results(made, arrays)
        is_nan = np.broadcast_to(np.isnan(arrays[0]) | np.isnan(arrays[1]), found.shape)
        assert (found[is_nan] == (made.op_name == "not_equal")).all()


def check_largest(made: Call, arrays: list[np.ndarray]) -> None:
    """No element comes twice, and they are in order."""
    values, places = results(made, arrays)
    np.testing.assert_array_equal(np.take_along_axis(arrays[0], places.astype(np.int64), made.attrs.axis), values)
    sorted_places = np.sort(places, made.attrs.axis)
    assert (np.diff(sorted_places, axis=made.attrs.axis) > 0).all()
    ranks = np.where(np.isnan(values), 2, np.clip(values, -9, 9) / 9)
    steps = np.diff(ranks, axis=made.attrs.axis)
    assert (steps <= 0).all() if made.attrs.largest else (steps >= 0).all()


RULES: dict[str, Callable[[Call, list[np.ndarray]], None]] = {
    "kept": check_kept,
    "ignored": check_ignored,
    "unequal": check_unequal,
    "largest": check_largest,
    "moved": lambda made, arrays: None,
    "smallest": lambda made, arrays: None,
    "replaced": lambda made, arrays: None,
}
"""What a rule says of a reference; of all of them the loops compute the same."""


@pytest.mark.parametrize("name", list(registered_ops()))
def test_loops_and_references_follow_the_declaration(name: str) -> None:
    specials = get_op(name).specials
    if specials is None:
        assert next(float_calls(name, 30), None) is None, "an op of floats declares no Specials"
        return
    calls = list(itertools.islice(float_calls(name, SEEDS), CALLS))
    assert calls, "no case of the op is of floats"
    for seed, made in calls:
        arrays = with_specials(made, seed)
        check(made, arrays, [False] * len(arrays))
        nan_only = with_specials(made, seed, (np.nan,))
        RULES[specials.nan](made, nan_only)


@pytest.mark.soak
@pytest.mark.parametrize("name", list(registered_ops()))
def test_the_canonical_form_computes_the_same_of_special_values(name: str) -> None:
    for seed, made in itertools.islice(float_calls(name, SEEDS), 60):
        if len(set(made.args)) == len(made.args):
            before = IRModule.from_functions({"main": Function(made.args, made)})
            given = dict(zip([param.name for param in before.main.params], with_specials(made, seed), strict=True))
            for found, expected in zip(evaluate(canonicalise(before), given), evaluate(before, given), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["nn.rnn", "nn.gru", "nn.lstm"])
def test_a_clip_in_a_recurrent_layer_keeps_nan(name: str) -> None:
    for seed, made in itertools.islice(float_calls(name, SEEDS), 4 * CALLS):
        if np.isfinite(made.attrs.clip) or np.isfinite(dict(made.attrs.items).get("cell_clip", np.inf)):
            arrays = with_specials(made, seed, (np.nan,))
            arrays[0][...] = np.nan
            check(made, arrays, [False] * len(arrays))


def test_a_box_whose_score_is_nan_is_taken_last() -> None:
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]], np.float32)
    scores = np.array([[[np.nan, 0.5, 0.75]]], np.float32)
    for threshold, order in ((np.nan, [2, 1, 0]), (0.0, [2, 1])):
        arrays = [boxes, scores, np.array([3]), np.array([0.5], np.float32), np.array([threshold], np.float32)]
        types = [(array.shape, array.dtype.name) for array in arrays]
        made = on("nn.non_max_suppression", *types, limit=3)
        check(made, arrays, [False] * len(arrays))
        places, (count,) = results(made, arrays)
        assert places[:count, 2].tolist() == order


@pytest.mark.soak
def test_integers_of_special_values_are_defined_behaviour(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """C has no conversion of a float beyond an integer type; its sanitizer is not part of ``undefined``."""
    ends = [2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 127.5, -128.5, 255.9, 3e38, -3e38]
    data = np.array([*SPECIAL, *ends, 0.5, -1], np.float32)
    calls = [
        (on("cast", (data.shape, source), dtype=dtype), [data.astype(source)])
        for source, dtype in itertools.product(("float32", "float64"), (*INTEGERS, "bool"))
    ]
    calls += [
        (on("qnn.quantize", (data.shape, "float32"), scale=0.5, zero_point=3, dtype=dtype, rounding="even"), [data])
        for dtype in ("int8", "uint8", "int16", "int32")
    ]
    check_compiled(
        calls, compilers, tmp_path, ["-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    )


def test_injective_ops_move_nan_without_saying_so() -> None:
    assert get_op("reshape").specials == Specials("moved")
    assert get_op("bitwise_and").specials is None
