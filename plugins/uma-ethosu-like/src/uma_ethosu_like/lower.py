"""A region as an `Extern`: one stream of commands, one blob of what is constant, memory for feature maps."""

from __future__ import annotations

from dataclasses import replace

from uma.hookspecs import Blob, Extern, MatchedRegion
from uma.relay import Expr, GlobalVar, IRModule
from uma.tir import Buffer, Param

from .commands import encode
from .machine import Machine
from .payload import STREAM_OFFSET, write_payload
from .plan import ALIGNMENT, FEATURES, plan_region
from .stream import CONSTANTS, Stream

__all__ = ["QUEUE_NAME", "ROUTINE", "STREAM", "extern_of", "lower"]

ROUTINE, QUEUE_NAME = "eu_start", "npu"
"""What an `Extern` of this target calls, and where it is launched."""

STREAM = "stream"
"""The blob of commands, a payload."""


def lower(region: MatchedRegion, machine: Machine) -> tuple[IRModule, GlobalVar]:
    """The region as a module of one `Extern`.

    Raises:
        Refuse: see `plan_region`.
    """
    plan = plan_region(region)
    stream, params = plan.stream(machine), region.function.params
    extern = extern_of(stream, params, region.results, machine.macs)
    module = IRModule.from_functions({"stream": extern})
    return module, module.global_var("stream")


def extern_of(stream: Stream, params: tuple[Expr, ...], results: tuple[Expr, ...], macs: int) -> Extern:
    """A stream with its relocations and constants, whose symbols are ``input0`` ..., ``output0`` ..., `FEATURES`, for
    the machine with so many multipliers.
    """
    params_out = [
        *(Param(Buffer(f"input{n}", p.shape, p.dtype), "input") for n, p in enumerate(params)),
        *(Param(Buffer(f"output{n}", e.shape, e.dtype), "output") for n, e in enumerate(results)),
    ]
    if stream.feature_bytes:
        params_out.append(Param(Buffer(FEATURES, (stream.feature_bytes,), "uint8", alignment=ALIGNMENT), "workspace"))
    relocations = tuple(replace(one, at=one.at + STREAM_OFFSET) for one in stream.relocations)
    marks = tuple((at + STREAM_OFFSET, layer) for at, layer in stream.marks)
    blobs = [Blob(STREAM, write_payload(encode(stream.commands), macs), ALIGNMENT, relocations, marks)]
    if stream.constants:
        blobs.append(Blob(CONSTANTS, bytes(stream.constants), ALIGNMENT))
    return Extern(tuple(params_out), ROUTINE, blobs=tuple(blobs), queue=QUEUE_NAME)
