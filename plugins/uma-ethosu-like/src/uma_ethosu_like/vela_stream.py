"""A region as Vela compiles it: its stream, between copies of inputs and outputs.

Vela has inputs and outputs in its arena, where they share places with other maps. So the stream first copies inputs
there from where the model has them, and in the end outputs from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from uma.errors import ToolchainError
from uma.hookspecs import Cost, MatchedRegion, Refuse, Relocation
from uma.relay import Expr, GlobalVar, IRModule, strip_views

from .blocks import Block
from .commands import OPERATIONS, WORD_BYTES, Command, command, decode, encode
from .cost import choose_block
from .hazards import SymbolicAddress
from .layer import core_of, flat
from .lower import extern_of
from .machine import Machine
from .network_file import Job, Region, Tensor
from .operations import FeatureMap, Operation, Step, Storage
from .payload import Payload
from .plan import ALIGNMENT, FEATURES
from .scaling import IDENTITY
from .simulate import simulate
from .stream import CONSTANTS, Stream, write_stream
from .tflite_region import TFLITE_NAMES, region_model
from .vela import Compiled, LeftToCPU, compile_model

__all__ = ["estimate_with_vela", "lower_with_vela"]


@dataclass(frozen=True)
class _Made:
    """A region's stream, with what it takes to simulate it.

    Args:
        stream: as our own compiler gives it.
        sizes: bytes of its inputs, and of its outputs.
    """

    stream: Stream
    sizes: tuple[tuple[int, ...], tuple[int, ...]]

    def job(self, macs: int) -> Job:
        """Constants are region 0, the arena 1, then inputs and outputs."""
        names = [f"input{n}" for n in range(len(self.sizes[0]))] + [f"output{n}" for n in range(len(self.sizes[1]))]
        bases = {CONSTANTS: 0, FEATURES: 1, **{name: n for n, name in enumerate(names, start=2)}}
        words = encode(self.stream.commands)
        for one in self.stream.relocations:
            words[one.at // WORD_BYTES] += bases[one.symbol] << 16 if one.value == "base" else one.addend
        regions = {0: Region(len(self.stream.constants), bytes(self.stream.constants))}
        regions[1] = Region(self.stream.feature_bytes)
        # The driver has inputs in SRAM, as outputs.
        for number, nbytes in enumerate((*self.sizes[0], *self.sizes[1]), start=2):
            regions[number] = Region(nbytes)
        return Job(Payload(macs, tuple(words)), regions)


@lru_cache(maxsize=64)
def _compiled(model: bytes, macs: int, arena_cache_bytes: int | None, where: str) -> Compiled:
    """What Vela makes of a file: a region is compiled, and its cost estimated."""
    return compile_model(model, macs, arena_cache_bytes=arena_cache_bytes, where=where)


def _compile(region: MatchedRegion, machine: Machine) -> _Made:
    model, inputs, outputs = region_model(region)
    try:
        job = _compiled(model, machine.macs, machine.arena_cache_bytes, f"region {region.name!r}").job
    except LeftToCPU as error:
        names = set(error.operators)
        refused = [one for one in region.matches if names & {*TFLITE_NAMES[core_of(one).op_name or ""]}]
        reason = f"Vela leaves {', '.join(error.operators)} of TFLite to a CPU"
        raise Refuse(reason, at=refused[-1].value if refused else None) from error
    arena = [number for number, one in sorted(job.regions.items()) if one.data is None]
    starts, nbytes = {}, 0
    for number in arena:
        starts[number] = nbytes
        nbytes += -(-job.regions[number].nbytes // ALIGNMENT) * ALIGNMENT
    if nbytes > machine.arena_bytes:
        raise Refuse(f"Vela takes {nbytes} bytes for feature maps, and the arena cache has {machine.arena_bytes}")
    stream = Stream(feature_bytes=nbytes)
    for number, one in job.regions.items():
        if one.data is not None:
            stream.constants += one.data
            starts[number] = -1
    params = region.function.params
    pairs = (*_pairs(inputs, job.inputs), *_pairs(outputs, job.outputs))
    places = {expr: SymbolicAddress(FEATURES, starts[one.region] + one.offset) for expr, one in pairs}
    ins = [(SymbolicAddress(f"input{params.index(one)}", 0), places[one], one) for one in inputs]
    outs = []
    for number, result in enumerate(map(strip_views, region.results)):
        source = places[result] if result in outputs else SymbolicAddress(f"input{params.index(result)}", 0)
        outs.append((source, SymbolicAddress(f"output{number}", 0), result))
    layers = dict.fromkeys(name for one in region.matches for name in one.layers)
    stream.marks.append((0, ", ".join(layers) or region.name))
    _append(stream, _copies(ins, machine), stop=False)
    _append(stream, [command("OP_KERNEL_WAIT", outstanding=0)], stop=False)
    _append(stream, _relocated(job, starts), stop=False)
    _append(stream, [command("OP_DMA_WAIT", outstanding=0), command("OP_KERNEL_WAIT", outstanding=0)], stop=False)
    _append(stream, _copies(outs, machine), stop=True)
    return _Made(stream, (tuple(map(_nbytes, params)), tuple(map(_nbytes, region.results))))


def _pairs(exprs: Sequence[Expr], tensors: Sequence[Tensor]) -> Iterable[tuple[Expr, Tensor]]:
    """What of the region is which tensor of the job."""
    if [_nbytes(one) for one in exprs] != [one.nbytes for one in tensors]:
        raise ToolchainError("Vela gave back other inputs or outputs than it was given")
    return zip(exprs, tensors, strict=True)


def _nbytes(expr: Expr) -> int:
    return math.prod(expr.shape)


def _append(stream: Stream, part: Stream | Sequence[Command], stop: bool) -> None:
    """Puts commands behind those that there are, without their end unless it is that of all."""
    commands = part.commands if isinstance(part, Stream) else part
    relocations = part.relocations if isinstance(part, Stream) else ()
    at = WORD_BYTES * sum(one.type.words for one in stream.commands)
    stream.relocations += [replace(one, at=one.at + at) for one in relocations]
    stream.commands += [one for one in commands if stop or one.type.name != "OP_STOP"]


def _copies(moves: Sequence[tuple[SymbolicAddress, SymbolicAddress, Expr]], machine: Machine) -> Stream:
    """Copies arrays from a place to another, by the array."""
    steps: list[tuple[Step, Block]] = []
    places: dict[Storage, SymbolicAddress] = {}
    for number, (source, target, expr) in enumerate(moves):
        shape, nbytes = flat(_nbytes(expr)), _nbytes(expr)
        before, after = Storage(f"from{number}", nbytes), Storage(f"to{number}", nbytes)
        places |= {before: source, after: target}
        ofm, ifm = FeatureMap.whole(after, shape), FeatureMap.whole(before, shape)
        step = Operation("average_pool", ofm, ifm, scale=IDENTITY).whole
        steps.append((step, choose_block(step, machine)[0]))
    return write_stream(steps, machine.configuration, places)


_REGION_OF = {
    **{f"{name}_BASE{tile}": f"{name}_REGION" for name in ("IFM", "IFM2", "OFM") for tile in range(4)},
    **{f"{name}_BASE": f"{name}_REGION" for name in ("WEIGHT", "SCALE")},
    **{f"DMA0_{side}": f"DMA0_{side}_REGION" for side in ("SRC", "DST")},
}
"""By the register of an address: that of its region."""


def _relocated(job: Job, starts: Mapping[int, int]) -> Stream:
    """Vela's stream with relocations: addresses and regions are set before the operation that reads both, where they
    are not what they were.

    Args:
        job: of Vela.
        starts: where in the workspace a region begins; -1 is that of constants.
    """
    stream, at = Stream(), 0
    held: dict[str, Command] = {}
    written: dict[str, tuple[object, ...]] = {}  # by register: the symbol and the offset in it, or the symbol

    def append(one: Command, *relocations: Relocation) -> None:
        nonlocal at
        stream.commands.append(one)
        stream.relocations.extend(relocations)
        at += WORD_BYTES * one.type.words

    def write(register: str) -> None:
        address, region = held[register], held[_REGION_OF[register]]
        kept = "region" if "mode" in region.values else "value"
        start = None if region.values.get("mode") else starts[region[kept]]  # None: the shared memory
        symbol = CONSTANTS if start == -1 else FEATURES
        key = (None, address["value"]) if start is None else (symbol, address["value"] + max(start, 0))
        if written.get(_REGION_OF[register]) != (key[0],):
            written[_REGION_OF[register]] = (key[0],)
            if start is None:
                append(region)
            else:
                empty = replace(region, values={**region.values, kept: 0})
                append(empty, Relocation(at, "region", symbol, value="base"))
        if written.get(register) != key:
            written[register] = key
            if start is None:
                append(address)
            else:
                empty = replace(address, values={**address.values, "value": 0})
                append(empty, Relocation(at + WORD_BYTES, "address", *key))

    kinds = {f"OP_{kind.upper()}": kind for kind in OPERATIONS} | {"OP_DMA_START": "dma"}
    for _, one in decode(job.payload.words):
        name = one.type.name.removeprefix("SET_")
        if name in _REGION_OF or name in _REGION_OF.values():
            held[name] = one
            continue
        for register, region in _REGION_OF.items():
            if {register, region} <= held.keys() and kinds.get(one.type.name) in held[register].type.read_by:
                write(register)
        append(one)
    return stream


# --- hooks -----------------------------------------------------------------------------------------------------------


def lower_with_vela(region: MatchedRegion, machine: Machine) -> tuple[IRModule, GlobalVar]:
    """The region as a module of one `Extern`, compiled by Vela.

    Raises:
        Refuse: it cannot be written as TFLite, or Vela leaves some of it to a CPU.
        UsageError: Vela is not installed.
        ToolchainError: Vela failed.
    """
    compiled = _compile(region, machine)
    extern = extern_of(compiled.stream, region.function.params, region.results, machine.macs)
    module = IRModule.from_functions({"stream": extern})
    return module, module.global_var("stream")


def estimate_with_vela(region: MatchedRegion, machine: Machine) -> Cost:
    """What the simulator counts for one run."""
    cycles = simulate(_compile(region, machine).job(machine.macs), {}, machine).cycles
    return Cost(cycles=cycles, seconds=cycles / machine.clock_hz)
