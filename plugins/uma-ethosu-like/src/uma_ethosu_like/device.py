"""The device as the core sees it: driver, simulator, what their codes and counters mean, and the one routine."""

from __future__ import annotations

from importlib.resources import files

from uma.hookspecs import BitField, Clock, Implementation, LaunchQueue, Routine, Runtime

from .commands import describe
from .cost import memories
from .lower import QUEUE_NAME, ROUTINE
from .machine import Machine
from .payload import STREAM_OFFSET, read_payload

__all__ = ["COUNTERS", "FAULTS", "FIELDS", "SIMULATOR_BYTES", "UNREACHED", "describe_payload", "make_runtime"]

FIELDS = (BitField("address", 32), BitField("region", 3, lsb=16))
"""What relocations of a stream fill in: the second word of a command that sets an offset, and the number of a region in
the word of one that sets that.
"""

FAULTS = {
    1: "the simulator is of no machine that there is",
    2: "the stream has a command that the machine does not know",
    3: "a command of the stream has bits that must be 0",
    4: "a command of the stream sets what the machine does not take",
    5: "an operation reads a register that the stream never set",
    6: "the stream ends within a command",
    7: "the stream has no end",
    8: "an operation uses bytes outside of its region",
    9: "an operation writes into a region that may only be read",
    10: "an address or a stride is not a multiple of what it has to be",
    11: "sizes of an operation do not belong together",
    12: "a block does not fit the shared memory, or is not made of micro-blocks",
    13: "weights do not decompress, or are not as many as the operation takes",
    14: "an operation uses a look-up table that was not loaded",
    15: "an operation touches what a kernel uses that is not waited for",
    16: "an operation touches what a copy uses that is not waited for",
    17: "the stream asks for what the simulator does not do",
    18: "the stream does more than the limit of the simulator",
    64: "no such machine answers",
    65: "the machine has another configuration than the model was compiled for",
    66: "the payload is malformed",
    67: "the payload is of a newer version than the machine or its driver",
    68: "the stream is for a machine of another configuration",
    69: "the stream needs more than 8 regions of memory, or one of more than 4 GiB",
    70: "the stream does not begin at a multiple of 16 bytes, or, on silicon, a region of memory",
    71: "the stream does not end",
    72: "the machine does not come out of its reset",
    73: "the machine says that an access to memory failed",
    74: "the machine says that the stream has a command that it does not know",
    75: "the machine says that weights do not decompress",
    76: "the machine says that a bit of its memory flipped",
    77: "the machine stopped before the end of the stream",
    78: "the simulator was given too little memory",
}
"""What the fault codes mean: those of the simulator (``csrc/eu_sim.h``), then those of the driver
(``csrc/eu_regs.h``).
"""

_BY_HAND = "few words of a stream that are changed give it; the package's tests write the stream that does"

UNREACHED = {
    1: "a payload for another machine is refused by the driver before",
    **dict.fromkeys((4, 6, 10, 12, 14, 15, 16, 17, 18), _BY_HAND),
    69: "the limits of the kind keep regions to fewer inputs and outputs, and a larger one is refused when it is built",
    70: "the stream of a model is aligned; regions matter on silicon alone",
    **dict.fromkeys((73, 74, 75, 76), "silicon says it, which the simulator never does"),
}
"""Faults that changed accesses to registers and memory do not bring about, each with the reason."""

COUNTERS = (
    "cycles",
    "mac_cycles",
    "conv_cycles",
    "depthwise_cycles",
    "pool_cycles",
    "elementwise_cycles",
    "dma_cycles",
    "operations",
    "macs",
    "dma_bytes",
)
"""What is counted from one activation, that is one run of the model, to the next. Cycles of kinds of operations
overlap, so that their sum is more than ``cycles``. Of silicon only the first two are known.
"""

SIMULATOR_BYTES = 1 << 18
"""Memory of the simulator: state, blocks, tables."""

_DRIVER = ("eu_driver.h", "eu_driver.c", "eu_regs.h", "eu_machine.h")


def make_runtime(machine: Machine) -> Runtime:
    """The driver, the simulator behind the same registers, and the routine that runs a payload."""
    folder = files(__package__) / "csrc"
    sources = {one.name: one.read_text(encoding="utf-8") for one in folder.iterdir() if one.name.endswith((".c", ".h"))}
    driver = {name: sources.pop(name) for name in _DRIVER}
    return Runtime(
        driver="eu_driver",
        header="eu_driver.h",
        sources=driver,
        implementations={
            "sim": Implementation("eu_sim_bus", dict(sorted(sources.items())), SIMULATOR_BYTES),
            "mmio": Implementation("uma_mmio_bus"),
        },
        parameters=(
            machine.macs,
            *(number for one in memories(machine) for number in (one.per_16_cycles, one.latency)),
        ),
        faults=FAULTS,
        counters=COUNTERS,
        clock=Clock(machine.clock_hz, "cycles", "mac_cycles"),
        routines=(
            Routine(
                ROUTINE,
                "eu_start({device}, {stream}, {stream_bytes}, {bases}, {n_bases})",
                FIELDS,
                (),
                describe_payload,
            ),
        ),
        launch_queues=(LaunchQueue(QUEUE_NAME, 1, "eu_wait({device}, {pending})"),),
    )


def describe_payload(data: bytes) -> list[tuple[int, str]]:
    """A payload as rows of byte offset and text, for ``uma explain --stream``.

    Raises:
        ModelError, PluginError: it is none, or its stream is none.
    """
    return [(STREAM_OFFSET + at, text) for at, text in describe(read_payload(data).words)]
