"""Target kind ``ethosu_like``: an NPU that runs command streams of Arm's Ethos-U55, with a simulator.

README.md says what of the machine is public, and what is assumed. `machine` and `commands` are its data sheet in
Python: configurations and memories, and the table of commands (in C by `headers`); `payload` is what a driver is
given, `job` reads models from files.

Our compiler: `supported` and `clauses` say what it takes, `layer` is a match as `operations` on whole feature maps,
`scaling` what the model's scales are for the machine, `softmax` a sequence of them, `plan` a region as operations
with a place for every map, `stripes` parts them where maps do not fit, `layouts` puts maps in bricks of channels,
`blocks` how the shared memory is divided for each, `cost` the cycles by which all of this is chosen, `filters` encodes
weights, `hazards` tells which waits are needed, `stream` writes registers, copies and waits, `lower` makes an extern of
it, `device` is what the driver in ``csrc`` is given.

Vela as the compiler: `vela_supported` says what is left to it, `tflite_region` writes a region as a file, by
`tflite_writer` and with scales of `scales`, `vela` runs it, `vela_stream` makes an extern of what it gives.

`simulate` runs a file's stream without a model around it, `compare` holds our streams beside those of `vela`; both for
`own`, the command ``uma ethosu``.
"""

from __future__ import annotations

from collections.abc import Sequence

from uma.hookspecs import Claims, Cost, MatchedRegion, Pattern, Runtime, hookimpl
from uma.relay import GlobalVar, IRModule
from uma.targets import Alias, FixedPointForm, Limits, Target, TargetKind

from .machine import ATTRIBUTES, MAX_OPERANDS, Machine, check_target

__all__ = [
    "ALIAS",
    "KIND",
    "UMA_PLUGIN_API",
    "VELA",
    "claims",
    "command",
    "estimate_cost",
    "patterns",
    "register_target",
    "relay_to_runtime",
    "runtime",
]

UMA_PLUGIN_API = (0, 7)

KIND = TargetKind(
    "ethosu_like",
    ATTRIBUTES,
    help="an NPU that runs command streams of Ethos-U55, of 32 to 256 multipliers",
    device_type="npu",
    limits=Limits(operands=MAX_OPERANDS),
    default_host="c",
    canonicalise=check_target,
    fixed_point=FixedPointForm("up", additions=True, averages=True),
)

VELA = TargetKind(
    "vela",
    ATTRIBUTES,
    help="the same machine with Vela, Arm's compiler; beside ours by ethosu_like -compiler=vela",
    device_type="npu",
    limits=Limits(operands=MAX_OPERANDS),
    default_host="c",
    canonicalise=check_target,
    # TFLite's, which is all that its files can say.
    fixed_point=FixedPointForm("double", additions=True, averages=True),
)

ALIAS = Alias("ethosu", "ethosu_like", help="ethosu_like, beside a host")


@hookimpl
def register_target() -> Sequence[TargetKind | Alias]:
    """The kind by both compilers, and its short name."""
    return [KIND, VELA, ALIAS]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    """Int8 layers, pools, operations element by element, tables, and what only moves elements."""
    from .supported import make_patterns
    from .vela_supported import make_vela_patterns

    return make_vela_patterns() if target.kind is VELA else make_patterns()


@hookimpl
def relay_to_runtime(region: MatchedRegion, target: Target) -> tuple[IRModule, GlobalVar]:
    """The region as one stream of commands."""
    from .lower import lower
    from .vela_stream import lower_with_vela

    if target.kind is VELA:
        return lower_with_vela(region, Machine.from_target(target))
    return lower(region, Machine.from_target(target))


@hookimpl
def estimate_cost(region: MatchedRegion, target: Target) -> Cost:
    """Cycles of the region's stream by the simulator's model, seconds at the clock, bytes that it reads and writes."""
    from .cost import bytes_moved, stream_cycles
    from .plan import plan_region
    from .vela_stream import estimate_with_vela

    machine = Machine.from_target(target)
    if target.kind is VELA:
        return estimate_with_vela(region, machine)
    works = plan_region(region).stream(machine).works
    cycles = stream_cycles(works, machine)
    return Cost(cycles=cycles, seconds=cycles / machine.clock_hz, bytes_moved=bytes_moved(works))


@hookimpl
def runtime(target: Target) -> Runtime:
    """The driver, the simulator behind the same registers, and how streams are started and waited for."""
    from .device import make_runtime

    return make_runtime(Machine.from_target(target))


@hookimpl
def claims(target: Target) -> Claims:
    """Estimates are the simulator's cycles. What Vela compiles is claimed of the same machine."""
    from .device import UNREACHED
    from .samples import samples

    targets = () if target.kind is VELA else ("ethosu_like -macs=32",)
    return Claims(targets=targets, cycles=0.0, faults=UNREACHED, samples=samples)


@hookimpl
def command(name: str, arguments: Sequence[str]) -> int:
    """``uma ethosu run FILE``, ``show``, ``compile`` and ``compare``."""
    from .cli import main

    return main(name, arguments)
