"""Target kind ``mac_array``: an int8 multiply-accumulate array of 8 lanes, its simulator and its driver.

Read README.md, the machine's data sheet, then `machine` (memories and instructions), `supported` (what it takes),
`lower` (how a layer is cut, and what becomes of it), `cost`, and ``csrc`` (driver and simulator).
"""

from __future__ import annotations

from uma.hookspecs import (
    DRIVER_FAULTS,
    Claims,
    Clock,
    Cost,
    Implementation,
    MatchedRegion,
    Pattern,
    Runtime,
    c_sources,
    hookimpl,
)
from uma.targets import Attribute, FixedPointForm, QuantisedForm, Target, TargetKind

__all__ = ["COUNTERS", "FAULTS", "KIND", "claims", "estimate_cost", "patterns", "register_target", "runtime"]

UMA_PLUGIN_API = (0, 7)


def _memory(name: str, default: int, contents: str) -> Attribute:
    return Attribute(name, int, default=default, low=256, high=1 << 20, unit="bytes", help=f"size of {contents}")


KIND = TargetKind(
    "mac_array",
    (
        _memory("activation_bytes", 8192, "the memory for inputs and results"),
        _memory("weight_bytes", 8192, "the memory for weights"),
        _memory("accumulator_bytes", 4096, "the accumulators, 32 bytes for each pixel"),
        Attribute("impl", ("sim", "mmio", "uio"), default="sim", help="the simulator, registers in memory, or Linux's"),
        Attribute("base", int, low=0, help="address of the first register, for impl=mmio"),
        Attribute("clock_hz", float, default=100e6, low=1.0, unit="Hz", help="clock of the array"),
        Attribute("launch_ns", int, default=1000, low=0, high=10**12, help="nanoseconds that starting a region takes"),
    ),
    help="an int8 multiply-accumulate array of 8 lanes",
    device_type="npu",
    default_host="c",
    quantised=QuantisedForm(scales="power-of-two"),
    # Of its roundings that which is nearest to floats.
    fixed_point=FixedPointForm("even"),
)

FAULTS = {
    **DRIVER_FAULTS,
    1: "it was given a command that it does not know, or an operand that the command does not take",
    2: "an address is outside of the memory for activations",
    3: "an address is outside of the memory for weights",
    4: "an address is outside of the accumulators",
    5: "activations were read that were never written",
    6: "weights were read that were never loaded",
    7: "accumulators were read that were never set",
    8: "weights are not aligned to 8 bytes, or accumulators not to 32",
    9: "a register was written while a command ran",
    10: "a register was used that there is not",
}
"""What the fault codes of ``csrc/mac_array_regs.h``, and those of drivers, mean."""

COUNTERS = ("cycles", "bytes_in", "bytes_out", "macs", "commands")

_SIMULATOR_BYTES = 512
"""What the simulator takes besides its memories: its registers."""


@hookimpl
def register_target() -> list[TargetKind]:
    """The one kind, ``mac_array``."""
    return [KIND]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    """Dense layers and convolutions, with all that follows up to int8."""
    from .machine import machine_of
    from .supported import make_patterns

    return make_patterns(machine_of(target))


@hookimpl
def estimate_cost(region: MatchedRegion, target: Target) -> Cost | None:
    """Cycles and bytes, by following the commands."""
    from .cost import cost_of
    from .lower import lower
    from .machine import machine_of

    machine = machine_of(target)
    return Cost.total([cost_of(lower(match, machine).func) for match in region.matches])


@hookimpl
def runtime(target: Target) -> Runtime:
    """The driver, and what may be behind its registers."""
    from .machine import machine_of

    machine = machine_of(target)
    sizes = tuple(memory.nbytes for memory in machine.memories)
    driver = ("mac_array_driver.h", "mac_array_driver.c", "mac_array_regs.h")
    simulator = c_sources(__package__, "mac_array_sim.c")
    return Runtime(
        driver="mac_array_driver",
        header="mac_array_driver.h",
        sources=c_sources(__package__, *driver),
        implementations={
            "sim": Implementation("mac_array_sim_bus", simulator, _SIMULATOR_BYTES + 2 * sum(sizes)),
            "mmio": Implementation("uma_mmio_bus"),
            "uio": Implementation("uma_uio_bus"),
        },
        parameters=sizes,
        faults=FAULTS,
        counters=COUNTERS,
        clock=Clock(target.get_attr("clock_hz"), "cycles"),
        machine=machine,
    )


@hookimpl
def claims() -> Claims:
    """Results are exact, and so are the estimated cycles."""
    return Claims(cycles=0.0)
