"""What is this accelerator's own: what it takes, how layers are cut, what its data sheet says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uma
from uma.hookspecs import c_sources
from uma.relay import Expr, FixedPoint, Function, IRModule, TensorType, Var, call, const
from uma.relay.pattern import Match, Mismatch, match
from uma.targets import Target
from uma_mac_array import COUNTERS, FAULTS, KIND
from uma_mac_array.machine import machine_of
from uma_mac_array.supported import make_patterns

PATTERNS = {one.name: one for one in make_patterns(machine_of(Target(KIND)))}
REGISTERS = c_sources("uma_mac_array", "mac_array_regs.h")["mac_array_regs.h"]
SMALL = "mac_array -activation_bytes=512 -weight_bytes=768 -accumulator_bytes=256"
"""Memories in which hardly a layer fits whole."""


def conv(data: tuple[int, ...], weight: tuple[int, ...], *, rounding: str = "double", **attrs: Any) -> Expr:
    """A convolution with bias, requantised."""
    rng = np.random.default_rng(0)
    x, w = Var("x", TensorType(data, "int8")), const(rng.integers(-128, 128, weight).astype(np.int8))
    sums = call("add", call("qnn.conv2d", x, w, **attrs), const(rng.integers(-999, 999, weight[-1]).astype(np.int32)))
    scale = FixedPoint((2**30,) * weight[-1], (-6,) * weight[-1], rounding)
    return call("qnn.requantize", sums, scale=scale, output_zero_point=3, dtype="int8")


@pytest.mark.parametrize("rounding", ["double", "up", "even"])
def test_it_takes_convolutions(rounding: str) -> None:
    body = conv((1, 6, 6, 4), (3, 3, 4, 8), rounding=rounding, padding=(1, 1, 2, 2), strides=(2, 1))
    assert isinstance(match(PATTERNS["mac_array.conv2d"], body), Match)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (conv((1, 6, 6, 4), (3, 3, 4, 8), rounding="away"), "clause rounding: "),
        (conv((1, 6, 6, 4), (3, 3, 4, 8), dilation=(2, 1)), "dilation"),
        (conv((1, 6, 6, 4), (3, 3, 2, 8), groups=2), "groups"),
        (conv((1, 6, 6, 4), (3, 3, 4, 8), padding=(3, 0, 0, 0)), "clause padding: "),
        (conv((1, 20, 3, 1), (17, 1, 1, 1)), "clause kernel_rows: "),
        (conv((1, 9, 9, 4000), (9, 1, 4000, 1)), "clause fits: "),
    ],
)
def test_it_leaves_to_the_host(body: Expr, why: str) -> None:
    found = match(PATTERNS["mac_array.conv2d"], body)
    assert isinstance(found, Mismatch) and why in found.failure.reason


@pytest.mark.parametrize("target", ["mac_array", SMALL])
def test_layers_that_are_cut_are_exact_and_cost_what_was_estimated(target: str) -> None:
    body = conv((2, 9, 7, 5), (3, 2, 5, 17), strides=(2, 1), padding=(1, 0, 2, 1), input_zero_point=-100)
    x = Var("x", TensorType((2, 9, 7, 5), "int8"))
    module = IRModule.from_functions({"main": Function([x], body)})
    given = np.random.default_rng(1).integers(-128, 128, x.tensor.shape).astype(np.int8)
    (expected,) = uma.build(module, "c").run(given).values()
    with uma.build(module, [target, "c"]).session() as session:
        (made,) = session.run(given).values()
        counted = session.counters()["mac_array"]
    np.testing.assert_array_equal(made, expected)
    assert counted["macs"] > 0 and counted["commands"] > 0


def test_padding_of_more_rows_than_one_fill_takes() -> None:
    x = Var("x", TensorType((1, 1100, 1, 1), "int8"))
    body = conv(x.tensor.shape, (1, 3, 1, 1), padding=(0, 1, 0, 2))
    module = IRModule.from_functions({"main": Function([x], body)})
    data = np.random.default_rng(2).integers(-128, 128, x.tensor.shape).astype(np.int8)
    (expected,) = uma.build(module, "c").run(data).values()
    (result,) = uma.build(module, ["mac_array", "c"]).run(data).values()
    np.testing.assert_array_equal(result, expected)


def test_every_fault_code_has_a_meaning_and_a_row_in_the_data_sheet() -> None:
    codes = {int(code) for code in re.findall(r"#define MAC_ARRAY_FAULT_\w+ (\d+)\b", REGISTERS)}
    assert codes == {code for code in FAULTS if code < 16}
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert [code for code in FAULTS if f"\n| {code} |" not in text] == []


def test_every_counter_has_a_name() -> None:
    count = re.search(r"#define MAC_ARRAY_N_COUNTERS (\d+) /\* (.*) \*/", REGISTERS)
    assert count is not None and (int(count[1]), tuple(count[2].split(", "))) == (len(COUNTERS), COUNTERS)
