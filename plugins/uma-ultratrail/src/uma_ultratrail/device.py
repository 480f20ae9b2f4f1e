"""The device as the core sees it: driver, simulators, what their codes and counters mean, and the one routine."""

from __future__ import annotations

from importlib.resources import files

from uma.hookspecs import Clock, Implementation, PartCounters, Routine, Runtime

from .image import FIELDS, describe
from .machine import FEATURE_MEMORIES, MAX_LAYERS, Machine

__all__ = ["COUNTERS", "FAULTS", "LAYER_COUNTERS", "ROUTINE", "UNREACHED", "make_runtime"]

ROUTINE = "ut_run"
"""What an `Extern` of this target calls."""

FAULTS = {
    1: "the register of a layer is illegal, or none is marked as the last",
    2: "an address is outside of a memory",
    3: "two accesses to one port of a memory in one cycle",
    4: "a sum left the accumulator's bits",
    5: "a word was read that nobody wrote",
    6: "a register of the device was written while it ran",
    7: "a register of the device was used that there is not, or a value written that it does not take",
    8: "the stepped and the functional simulator disagree",
    16: "no UltraTrail answers",
    17: "the device is another one than the model was compiled for",
    18: "the device does not come to an end",
    19: "the simulator was given too little memory",
    20: "the network is damaged: its check sum is another",
    21: "the network is malformed, or touches memory that it was not given",
    22: "a feature of the input does not fit the machine's bits",
}
"""What the fault codes of ``csrc/ut_regs.h`` mean."""

UNREACHED = {
    3: "the schedule of the steps allows none; the package's tests break it",
    4: "whether sums fit is proven when a layer is taken",
    8: "the two simulators would have to differ, which the package's tests look for",
    22: "with 8 bits of features, the default, every int8 fits",
}
"""Faults that changed accesses to registers and memory do not bring about, each with the reason."""

LAYER_COUNTERS = ("cycles", "array_cycles", "feature_reads", "feature_writes", "weight_reads", "bias_reads")
"""What is counted of each layer, and of all together."""

COUNTERS = (*LAYER_COUNTERS, "port_words", "starts")
"""What is counted from one activation, that is one run of the model, to the next."""

_SIMULATOR_BYTES = 32768  # registers, counters, pipeline, sums


def make_runtime(machine: Machine) -> Runtime:
    """The driver, the simulators behind the same registers, and the routine that runs a network."""
    simulator = _sources("ut_sim.c", "ut_sim.h", "ut_fields.h", "ut_functional.c", "ut_stepped.c")
    nbytes = _simulator_bytes(machine)
    return Runtime(
        driver="ut_driver",
        header="ut_driver.h",
        sources=_sources("ut_driver.h", "ut_driver.c", "ut_regs.h"),
        implementations={
            "sim": Implementation("ut_sim_bus", simulator, nbytes),
            "functional": Implementation("ut_functional_bus", simulator, nbytes),
            "mmio": Implementation("uma_mmio_bus"),
        },
        parameters=(
            machine.array_dim,
            machine.weight_bits,
            machine.feature_bits,
            machine.bias_bits,
            machine.accumulator_bits,
            machine.layers,
            machine.fmem_words,
            machine.wmem_words,
            machine.bmem_words,
        ),
        faults=FAULTS,
        counters=COUNTERS,
        parts=PartCounters(MAX_LAYERS, LAYER_COUNTERS, locates_faults=True),
        clock=Clock(machine.clock_hz, "cycles", "array_cycles"),
        routines=(
            Routine(ROUTINE, "ut_run({device}, {network}, {network_bytes}, {bases}, {n_bases})", FIELDS, (), describe),
        ),
    )


def _simulator_bytes(machine: Machine) -> int:
    """Memories; for each word a byte that says whether it was written; and the feature memories once more."""
    features = FEATURE_MEMORIES * machine.fmem_words * (machine.array_dim + 1)
    weights = machine.wmem_words * (machine.weight_word_bytes + 1)
    biases = machine.bmem_words * (machine.bias_word_bytes + 1)
    return _SIMULATOR_BYTES + 2 * features + weights + biases


def _sources(*names: str) -> dict[str, str]:
    folder = files(__package__) / "csrc"
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}
