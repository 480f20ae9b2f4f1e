"""An accelerator to copy: target kind ``matrix_unit``, an int8 matrix unit with its simulator and driver in C.

Read README.md, the machine's data sheet, then `machine` (memories and instructions), `supported` (what it takes),
`tiling`, `layer` and `lower` (plain loops and their schedule), `cost`, and ``csrc`` (driver and simulator).
"""

from __future__ import annotations

import re

from uma.hookspecs import (
    Claims,
    Cost,
    Implementation,
    Library,
    MatchedRegion,
    Pattern,
    Register,
    Runtime,
    c_sources,
    hookimpl,
)
from uma.targets import Attribute, FixedPointForm, QuantisedForm, Target, TargetKind

__all__ = ["FAULTS", "KIND", "claims", "estimate_cost", "patterns", "register_target", "runtime"]

UMA_PLUGIN_API = (0, 7)

KIND = TargetKind(
    "matrix_unit",
    (
        Attribute(
            "activation_bytes",
            int,
            default=32768,
            low=256,
            high=1 << 20,
            unit="bytes",
            help="size of the activation scratchpad, for inputs and results",
        ),
        Attribute(
            "weight_bytes",
            int,
            default=32768,
            low=256,
            high=1 << 20,
            unit="bytes",
            help="size of the weight scratchpad",
        ),
        Attribute(
            "accumulator_bytes",
            int,
            default=16384,
            low=256,
            high=1 << 20,
            unit="bytes",
            help="size of the accumulators, 32 bytes for each pixel",
        ),
        Attribute(
            "impl", ("sim", "rtl", "mmio"), default="sim", help="the simulator, the logic, or registers in memory"
        ),
        Attribute("base", int, low=0, help="address of the first register, for impl=mmio"),
    ),
    help="an int8 matrix unit of 8x8, the accelerator to copy",
    device_type="npu",
    quantised=QuantisedForm(scales="power-of-two"),
    # Of its roundings that which is nearest to floats.
    fixed_point=FixedPointForm("even"),
)

FAULTS = {
    1: "it was given a command that it does not know, or an operand that the command does not take",
    2: "an address is outside of the activation scratchpad",
    3: "an address is outside of the weight scratchpad",
    4: "an address is outside of the accumulators",
    5: "activations were read that were never loaded",
    6: "weights were read that were never loaded",
    7: "accumulators were read that were never set",
    8: "weights are not aligned to 8 bytes, or accumulators not to 32",
    9: "a register was written while a command ran",
    10: "a register was used that there is not",
    11: "a command used what a started transfer had not ended with",
    16: "no matrix unit answers",
    17: "a memory is smaller than the model was compiled for",
    18: "a command does not end",
    19: "the simulator was given too little memory",
}
"""What the fault codes of ``csrc/mxu_regs.h`` mean."""

COUNTERS = ("cycles", "bytes_in", "bytes_out", "macs", "commands")

_OFFSET = re.compile(r"^#define MXU_(\w+) 0x([0-9A-F]{2})u", re.MULTILINE)

_SIMULATOR_BYTES = 2048  # its registers, and the transfers in its queue


@hookimpl
def register_target() -> list[TargetKind]:
    """The one kind, ``matrix_unit``."""
    return [KIND]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    """Dense layers and convolutions, with all that follows up to int8, residuals included."""
    from .machine import Machine
    from .supported import make_patterns

    return make_patterns(Machine.from_target(target))


@hookimpl
def estimate_cost(region: MatchedRegion, target: Target) -> Cost | None:
    """Cycles and bytes, by following the commands."""
    from .cost import cost_of
    from .machine import Machine

    machine = Machine.from_target(target).tir
    ways = [(match, match.pattern.lower) for match in region.matches]
    return Cost.total([cost_of(lower(match, target).func, machine) for match, lower in ways if lower is not None])


@hookimpl
def runtime(target: Target) -> Runtime:
    """The driver, and the simulator behind the same registers."""
    from .machine import Machine

    machine = Machine.from_target(target)
    sizes = (machine.activation_bytes, machine.weight_bytes, machine.accumulator_bytes)
    simulator = Implementation("mxu_sim_bus", c_sources(__package__, "mxu_sim.c"), _SIMULATOR_BYTES + 2 * sum(sizes))
    logic = Implementation("mxu_rtl_bus", c_sources(__package__, "mxu_rtl.h", "mxu_rtl.c"), driver="mxu_rtl_driver")
    libraries: tuple[Library, ...] = ()
    if target.get_attr("impl") == "rtl":
        from .rtl import library

        libraries = (library(sizes),)
    return Runtime(
        driver="mxu_driver",
        header="mxu_driver.h",
        sources=c_sources(__package__, "mxu_driver.h", "mxu_driver.c", "mxu_regs.h"),
        implementations={"sim": simulator, "rtl": logic, "mmio": Implementation("uma_mmio_bus")},
        parameters=sizes,
        faults=FAULTS,
        counters=COUNTERS,
        machine=machine.tir,
        libraries=libraries,
        registers=_registers(),
    )


@hookimpl
def claims() -> Claims:
    """Estimates are the simulator's cycles; scratchpads a fraction of the default ones are checked as well."""
    small = "matrix_unit -activation_bytes=4096 -weight_bytes=4096 -accumulator_bytes=2048"
    return Claims(targets=(small,), cycles=0.0)


def _registers() -> tuple[Register, ...]:
    """Those of ``csrc/mxu_regs.h``, the counters and the halves of an address one by one."""
    (text,) = c_sources(__package__, "mxu_regs.h").values()
    offsets = {name: int(offset, 16) for name, offset in _OFFSET.findall(text)}
    counters, host = offsets.pop("COUNTERS"), offsets.pop("HOST")
    for end in ("OPERANDS", "OPERANDS_END"):
        del offsets[end]
    registers = [Register(at, name, "status" if name == "STATUS" else "value") for name, at in offsets.items()]
    for half, name in enumerate(("LOW", "HIGH")):
        registers.append(Register(host + 4 * half, f"HOST_{name}"))
        registers += [
            Register(counters + 8 * n + 4 * half, f"{counter.upper()}_{name}", "count")
            for n, counter in enumerate(COUNTERS)
        ]
    return tuple(sorted(registers, key=lambda one: one.offset))
