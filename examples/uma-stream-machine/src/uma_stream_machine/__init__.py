"""A second accelerator to copy: target kind ``stream_machine``, which executes commands from memory.

Read README.md, the machine's data sheet, then `commands` (the table of commands), `packing` (the format of weights),
`supported` (what it takes), `layer` (a match as commands), `stream` (loads and waits), `lower` (a region as one
stream), `cost`, `reference` (what commands mean) and ``csrc`` (driver and simulator).
"""

from __future__ import annotations

from uma.hookspecs import (
    BitField,
    Claims,
    Cost,
    Implementation,
    LaunchQueue,
    MatchedRegion,
    Pattern,
    Routine,
    Runtime,
    c_sources,
    hookimpl,
)
from uma.relay import GlobalVar, IRModule
from uma.targets import Attribute, FixedPointForm, Limits, QuantisedForm, Target, TargetKind

__all__ = [
    "COUNTERS",
    "FAULTS",
    "KIND",
    "claims",
    "estimate_cost",
    "patterns",
    "register_target",
    "relay_to_runtime",
    "runtime",
]

UMA_PLUGIN_API = (0, 7)

KIND = TargetKind(
    "stream_machine",
    (
        Attribute(
            "weight_bytes",
            int,
            default=65536,
            low=512,
            high=1 << 20,
            unit="bytes",
            help="size of the memory for packed weights; one half is loaded while the other is in use",
        ),
        Attribute("impl", ("sim", "mmio"), default="sim", help="the simulator, or registers in memory"),
        Attribute("base", int, low=0, help="address of the first register, for impl=mmio"),
    ),
    help="an int8 accelerator that executes commands from memory, the second one to copy",
    device_type="npu",
    # A stream may use 16 regions of memory, two of which are its constants and its intermediate results.
    limits=Limits(operands=14),
    quantised=QuantisedForm(scales="power-of-two"),
    # Of its roundings that which is nearest to floats; what it adds and averages is as in TFLite.
    fixed_point=FixedPointForm("even", additions=True, averages=True),
)

FAULTS = {
    1: "it was given a command that it does not know, or an operand that the command does not take",
    2: "its stream has no end",
    3: "a command uses memory outside of the regions that it was given",
    4: "a command writes into memory that may only be read",
    5: "an address is outside of the weight memory",
    6: "weights were read that its stream did not load",
    7: "the weight memory does not hold the weights of the command",
    8: "two engines use the same memory, and no wait stands between them",
    9: "a command writes over what it reads",
    10: "a register was written while a stream ran",
    11: "a register was used that there is not",
    16: "no stream machine answers",
    17: "the weight memory is smaller than the model was compiled for",
    18: "a stream does not end",
    19: "the simulator was given too little memory",
    20: "a stream needs more memory regions than there are, or one of more than 4 GiB",
}
"""What the fault codes of ``csrc/stm_regs.h`` mean."""

COUNTERS = ("cycles", "dma_cycles", "compute_cycles", "bytes_read", "bytes_written", "macs", "commands")

_SIMULATOR_BYTES = 32768  # its registers, and the commands that are on their way


@hookimpl
def register_target() -> list[TargetKind]:
    """The one kind, ``stream_machine``."""
    return [KIND]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    """Layers up to int8, pools, additions."""
    from .supported import make_patterns

    return make_patterns(_chunk_bytes(target))


@hookimpl
def relay_to_runtime(region: MatchedRegion, target: Target) -> tuple[IRModule, GlobalVar]:
    """The region as one stream of commands."""
    from .lower import Region

    return Region(region, _chunk_bytes(target)).lowered()


@hookimpl
def estimate_cost(region: MatchedRegion, target: Target) -> Cost:
    """What the region's stream costs: the cycles are those that the simulator counts."""
    from .cost import bytes_moved, stream_cycles
    from .lower import Region

    commands = Region(region, _chunk_bytes(target)).stream.commands
    return Cost(cycles=stream_cycles(commands), bytes_moved=bytes_moved(commands))


@hookimpl
def runtime(target: Target) -> Runtime:
    """The driver, the simulator behind the same registers, and how streams are started and waited for."""
    from .commands import describe
    from .lower import QUEUE_NAME, ROUTINE

    weight_bytes = target.get_attr("weight_bytes")
    simulator = Implementation(
        "stm_sim_bus",
        c_sources(__package__, "stm_sim.c", "stm_sim.h", "stm_units.c"),
        _SIMULATOR_BYTES + 2 * weight_bytes,
    )
    start = Routine(
        ROUTINE,
        "stm_start({device}, {stream}, {stream_bytes}, {bases}, {n_bases})",
        fields=(BitField("address", 32), BitField("base", 8, word_bytes=1)),
        describe=describe,
    )
    return Runtime(
        driver="stm_driver",
        header="stm_driver.h",
        sources=c_sources(__package__, "stm_driver.h", "stm_driver.c", "stm_regs.h", "stm_commands.h"),
        implementations={"sim": simulator, "mmio": Implementation("uma_mmio_bus")},
        parameters=(weight_bytes,),
        faults=FAULTS,
        counters=COUNTERS,
        routines=(start,),
        launch_queues=(LaunchQueue(QUEUE_NAME, 1, "stm_wait({device}, {pending})"),),
    )


def _chunk_bytes(target: Target) -> int:
    """Half of the weight memory, as far as weights can lie there."""
    from .commands import WEIGHT_UNIT

    half: int = target.get_attr("weight_bytes") // 2
    return half // WEIGHT_UNIT * WEIGHT_UNIT


@hookimpl
def claims() -> Claims:
    """Estimates are the simulator's cycles; a fraction of the weight memory is checked as well."""
    unreached = {
        9: "streams that are made here read nothing that they write over; the package's tests write one that does",
        20: "the limits of the kind keep regions to fewer inputs and outputs; a larger region is refused before",
    }
    return Claims(targets=("stream_machine -weight_bytes=4096",), cycles=0.0, faults=unreached)
