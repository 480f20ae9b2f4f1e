"""The machine as a target and as a device: widths that fit each other, and tables that say the same in C."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import uma_ultratrail
from uma.errors import UsageError
from uma.hookspecs import Clock, PartCounters
from uma.targets import Target, TargetKind
from uma_ultratrail.device import COUNTERS, FAULTS, LAYER_COUNTERS, make_runtime
from uma_ultratrail.image import MAGIC
from uma_ultratrail.machine import ATTRIBUTES, Machine, check_target

CSRC = Path(uma_ultratrail.__file__).parent / "csrc"
REGISTERS = (CSRC / "ut_regs.h").read_text()
KIND = TargetKind("ultra_trail", ATTRIBUTES, help="the machine alone", canonicalise=check_target)


def test_the_machine_as_published() -> None:
    machine = Machine.from_target(Target(KIND, {}))
    assert machine == Machine()
    assert (machine.array_dim, machine.weight_bits, machine.feature_bits, machine.bias_bits) == (8, 6, 8, 8)
    assert (machine.accumulator_bits, machine.clock_hz, machine.layers) == (20, 250e3, 16)
    assert machine.max_channels == 120
    assert (machine.weight_scale, machine.feature_scale, machine.bias_scale) == (2**-5, 2**-7, 2**-7)
    assert (machine.bias_shift, machine.feature_shift) == (5, 5)
    assert (machine.weight_range, machine.feature_range, machine.bias_range) == ((-32, 31), (-128, 127), (-128, 127))
    assert machine.accumulator_range == (-(2**19), 2**19 - 1)
    assert (machine.weight_word_bytes, machine.bias_word_bytes) == (48, 8)
    assert (machine.blocks(12), machine.map_words(101, 40)) == (2, 505)


def test_attributes_are_those_of_the_machine() -> None:
    target = Target(KIND, {"array_dim": 4, "weight_bits": 4, "bias_bits": 6, "clock_hz": 1e6, "wmem_words": 9})
    assert Machine.from_target(target) == Machine(4, 4, bias_bits=6, clock_hz=1e6, wmem_words=9)


@pytest.mark.parametrize(
    ("changes", "reason", "hint"),
    [
        ({"accumulator_bits": 13}, "13 bits does not hold the product of a weight of 6 bits", "accumulator_bits=14"),
        ({"weight_bits": 8, "accumulator_bits": 15}, "which takes 16", "accumulator_bits=16 or more"),
        ({"bias_bits": 14}, "a bias of 14 bits is finer than the product", "bias_bits=13 or less"),
        ({"weight_bits": 2, "feature_bits": 4}, "a bias of 8 bits is finer", "bias_bits=5 or less"),
    ],
)
def test_widths_that_contradict_each_other(changes: dict[str, int], reason: str, hint: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        Target(KIND, changes)
    assert hint in str(caught.value) and "ultra_trail" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["array_dim", "weight_bits", "feature_bits", "bias_bits", "accumulator_bits", "clock_hz", "layers", "fmem_words",
     "wmem_words", "bmem_words"],
)  # fmt: skip
def test_attributes_out_of_range(name: str) -> None:
    bounds = {attribute.name: (attribute.low, attribute.high) for attribute in ATTRIBUTES}
    low, high = bounds[name]
    assert low is not None and high is not None
    for value in (low - 1, high + 1):
        with pytest.raises(UsageError, match=name):
            Target(KIND, {name: value})


def test_every_fault_code_has_a_meaning() -> None:
    codes = {int(code) for code in re.findall(r"#define UT_FAULT_\w+ (\d+)\b", REGISTERS)}
    assert codes == set(FAULTS)


def test_the_data_sheet_names_every_register_fault_and_counter() -> None:
    sheet = (Path(__file__).parent.parent / "README.md").read_text()
    places = re.findall(r"#define UT_(\w+) (0x[0-9A-F]{2,3})u\b", REGISTERS)
    missing = [name for name, offset in places if not re.search(rf"\| {offset}[^|]* \| `{name}` \|", sheet)]
    missing += [f"fault {code}" for code, meaning in FAULTS.items() if f"\n| {code} | {meaning} |" not in sheet]
    missing += [name for name in COUNTERS if f"`{name}`" not in sheet]
    assert len(places) == 13 and not missing


def test_every_counter_has_a_name() -> None:
    numbered = re.search(r"enum \{\n    UT_CYCLES,.*?UT_N_COUNTERS\n", REGISTERS, re.DOTALL)
    assert numbered is not None
    names = [name.lower() for name in re.findall(r"\bUT_(\w+),", numbered[0]) if not name.startswith("N_")]
    assert names == [
        "cycles",
        "array_cycles",
        "feature_reads",
        "feature_writes",
        "weight_reads",
        "bias_reads",
        "starts",
    ]
    assert COUNTERS == (*LAYER_COUNTERS, "port_words", "starts")
    runtime = make_runtime(Machine(clock_hz=1e6))
    assert runtime.parts == PartCounters(16, LAYER_COUNTERS, locates_faults=True)
    assert runtime.clock == Clock(1e6, "cycles", "array_cycles")


def test_parameters_are_those_of_the_header() -> None:
    enum = re.search(r"enum \{\n    UT_ARRAY_DIM,.*?\}", REGISTERS, re.DOTALL)
    assert enum is not None
    names = [name.lower() for name in re.findall(r"UT_(\w+)", enum[0])]
    machine = Machine(2, 3, 4, 5, 17, 1e6, 6, 7, 8, 9)
    assert make_runtime(machine).parameters == tuple(getattr(machine, name) for name in names)


def test_the_magic_number_is_the_driver_s() -> None:
    assert f"{MAGIC:#010X}u".replace("0X", "0x") in (CSRC / "ut_driver.c").read_text()


def test_hardware_needs_no_simulator() -> None:
    runtime = make_runtime(Machine())
    assert runtime.implementations["mmio"].bus == "uma_mmio_bus" and not runtime.implementations["mmio"].sources
    assert sorted(runtime.sources) == ["ut_driver.c", "ut_driver.h", "ut_regs.h"]
    files = {*runtime.sources, *runtime.implementations["sim"].sources}
    assert files == {path.name for path in CSRC.iterdir()}
