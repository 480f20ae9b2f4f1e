"""Writes a stream: the registers of each step, those only that change, and what keeps steps from getting in their way.

`hazards` says which waits are needed. A copy is started ahead of the step that needs it, while the one before works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uma.hookspecs import Relocation

from .blocks import Block
from .commands import WORD_BYTES, Command, command
from .cost import CopyWork, Event, Wait, Work
from .filters import Filters
from .hazards import TABLES, Copy, Flight, Kernel, Span, SymbolicAddress
from .machine import Configuration
from .operations import DTYPE_BYTES, ELEMENTWISE, LIMITS, Curve, FeatureMap, Kind, Step, Storage
from .weights import Encoded

__all__ = ["CONSTANTS", "Stream", "SymbolicAddress", "write_stream"]

CONSTANTS = "weights"
"""The blob of what is constant."""

_ALIGNMENT = 16
_TABLES = 8
_TABLE_BYTES = 256
_POOL_MODES: dict[Kind, int] = {"max_pool": 0, "average_pool": 1, "reduce_sum": 2}
_GLOBAL: tuple[Kind, ...] = ("average_pool", "reduce_sum", "add", "sub", "mul", "lrelu", "abs")
_ROUND_MODES = {"tfl": 0, "truncate": 1, "natural": 2}
_INTERNAL, _EXTERNAL = 1, 0
_CLIP_INT8 = 3
_TABLE_FUNCTION = 16
_FUNCTIONS: dict[Curve | None, int] = {None: 0, "tanh": 3, "sigmoid": 4}


@dataclass
class Stream:
    """A stream, as far as it is written.

    Args:
        commands: in order; addresses are offsets in what they are relocated to.
        relocations: where addresses and regions belong.
        marks: (byte offset, layer): from there on commands are for that layer.
        constants: weights, biases, tables and constant tensors, one behind the other.
        works: its steps, copies and waits, for their cost.
        feature_bytes: of the workspace that it needs.
    """

    commands: list[Command] = field(default_factory=list)
    relocations: list[Relocation] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    works: list[Event] = field(default_factory=list)
    feature_bytes: int = 0

    def keep(self, data: bytes) -> SymbolicAddress:
        """Adds a constant."""
        self.constants += bytes(-len(self.constants) % _ALIGNMENT)
        start = len(self.constants)
        self.constants += data
        return SymbolicAddress(CONSTANTS, start)


class _Writer:
    def __init__(
        self,
        machine: Configuration,
        places: Mapping[Storage, SymbolicAddress],
        filters: Filters,
        buffers: Mapping[Encoded, Storage],
    ) -> None:
        self.stream = Stream()
        self.machine = machine
        self.places = dict(places)
        self.filters = filters
        self.buffers = buffers
        self.at = 0
        self.registers: dict[str, object] = {}
        self.constants: dict[Encoded, SymbolicAddress] = {}
        self.tables: dict[bytes, int] = {}
        self.kept: dict[bytes, SymbolicAddress] = {}
        self.flight = Flight(machine)

    # --- registers ---------------------------------------------------------------------------------------------------

    def append(self, one: Command) -> None:
        self.stream.commands.append(one)
        self.at += one.type.words * WORD_BYTES

    def set(self, register: str, /, *value: int, **values: int) -> None:
        """Sets a register, unless it has that value."""
        key = (*value, *values.items())
        if self.registers.get(register) != key:
            self.registers[register] = key
            self.append(command(f"SET_{register}", *value, **values))

    def address(self, register: str, place: SymbolicAddress, addend: int = 0) -> None:
        """Sets the register of an address within a region."""
        key = SymbolicAddress(place.symbol, place.offset + addend)
        if self.registers.get(register) != key:
            self.registers[register] = key
            where = self.at + WORD_BYTES
            self.stream.relocations.append(Relocation(where, "address", key.symbol, key.offset))
            self.append(command(f"SET_{register}", 0))

    def region(self, register: str, symbol: str, **values: int) -> None:
        """Sets the register of a region."""
        if self.registers.get(register) != symbol:
            self.registers[register] = symbol
            self.stream.relocations.append(Relocation(self.at, "region", symbol, value="base"))
            self.append(command(f"SET_{register}", **values) if values else command(f"SET_{register}", 0))

    # --- feature maps ------------------------------------------------------------------------------------------------

    def place(self, storage: Storage) -> SymbolicAddress:
        """Where it lies. What is constant is kept with the weights."""
        if storage not in self.places:
            assert storage.data is not None
            self.places[storage] = self.stream.keep(storage.data)
        return self.places[storage]

    def map(self, name: str, one: FeatureMap) -> None:
        """The registers that all feature maps have. Tile 2 is what of a ring begins anew."""
        place, (rows, columns, _), (by_row, by_column, by_brick) = self.place(one.storage), one.shape, one.strides
        turn = one.rows_before_turn
        self.region(f"{name}_REGION", place.symbol)
        self.address(f"{name}_BASE0", place, one.offset + one.first * by_row)
        if turn < rows:
            self.address(f"{name}_BASE2", place, one.offset)
        for tile in range(1, 4):
            if f"{name}_BASE{tile}" not in self.registers:
                self.set(f"{name}_BASE{tile}", 0)
        self.set(f"{name}_HEIGHT0_M1", turn - 1)
        self.set(f"{name}_HEIGHT1_M1", rows - 1)
        self.set(f"{name}_WIDTH0_M1", columns - 1)
        self.set(f"{name}_STRIDE_C", by_brick)
        self.set(f"{name}_STRIDE_Y", by_row)
        self.set(f"{name}_STRIDE_X", by_column)
        self.set(f"{name}_ZERO_POINT", one.zero_point)

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self, step: Step, block: Block) -> None:
        """One step: its registers, and the command that starts it."""
        one = step.operation
        name = ", ".join(one.layers)
        if name and (not self.stream.marks or self.stream.marks[-1][1] != name):
            self.stream.marks.append((self.at, name))
        table = None if one.table is None else self.table(one.table)
        function = _FUNCTIONS[one.curve] if table is None else _TABLE_FUNCTION + table.start // _TABLE_BYTES
        self.bring(self.filters.encoded(step, block))
        self.inputs(step)
        self.output(step)
        if one.kind not in ELEMENTWISE:
            self.window(step, block)
        constants = self.filter(step, block)
        # Of 32 bits a table takes those of an int8.
        narrow = one.table is not None and one.ofm.dtype == "int32"
        self.set("ACTIVATION", function=function, clip_range=_CLIP_INT8 if narrow else 0)
        least, most = LIMITS["int16" if one.ofm.dtype == "int16" else "int8"]
        self.set("ACTIVATION_MIN", max(one.low, least))
        self.set("ACTIVATION_MAX", min(one.high, most))
        self.scales(step)
        self.block(step, block)
        self.start(Kernel(step, block, self.place, constants, table))
        weight_bytes, record_bytes = (span.end - span.start for span in constants) if constants else (0, 0)
        brought = bool(constants) and constants[0].symbol != CONSTANTS
        self.stream.works.append(Work(step, block, weight_bytes, record_bytes, brought))

    def inputs(self, step: Step) -> None:
        one, ifm, second = step.operation, step.ifm, step.ifm2
        self.map("IFM", ifm)
        self.set("IFM_DEPTH_M1", ifm.shape[2] - 1)
        self.set("IFM_PRECISION", **_precision(ifm), scale_mode=one.operand, round_mode=0)
        self.set("IFM_UPSCALE", 0)
        if second is None:
            return
        flags = dict.fromkeys(("height", "width", "depth"), 0)
        if isinstance(second, FeatureMap):
            self.map("IFM2", second)
            repeated = (a != b for a, b in zip(ifm.shape, second.shape, strict=True))
            flags = dict(zip(flags, map(int, repeated), strict=True))
            self.set("IFM2_PRECISION", **_precision(second))
        else:
            self.set("IFM2_PRECISION", **_precision(ifm))
            self.set("IFM2_ZERO_POINT", 0)
            self.set("IFM2_SCALAR", second)
        scalar = int(not isinstance(second, FeatureMap))
        self.set("IFM2_BROADCAST", **flags, reversed=int(one.reversed), scalar=scalar)

    def output(self, step: Step) -> None:
        one, ofm = step.operation, step.ofm
        self.map("OFM", ofm)
        rows, columns, channels = ofm.shape
        self.set("OFM_HEIGHT_M1", rows - 1)
        self.set("OFM_WIDTH_M1", columns - 1)
        self.set("OFM_DEPTH_M1", channels - 1)
        # A mean of a padded part is over what lies inside of each window: the machine counts, and takes no scale.
        scaled = int(one.scale is not None and one.kind in _GLOBAL and not any(step.padding))
        self.set("OFM_PRECISION", **_precision(ofm), scale_mode=scaled, round_mode=_ROUND_MODES[one.rounding])

    def window(self, step: Step, block: Block) -> None:
        window = step.operation.window
        for side, rows in zip(("TOP", "LEFT", "BOTTOM", "RIGHT"), step.padding, strict=True):
            self.set(f"IFM_PAD_{side}", rows)
        self.set("KERNEL_HEIGHT_M1", window.span[0] - 1)
        self.set("KERNEL_WIDTH_M1", window.span[1] - 1)
        self.set(
            "KERNEL_STRIDE",
            stride_x_m1=window.strides[1] - 1,
            stride_y_m1=window.strides[0] - 1,
            weight_order=int(block.part_kernel),
            dilation_x_m1=window.dilation[1] - 1,
            dilation_y_m1=window.dilation[0] - 1,
            decomposition=0,
        )

    def filter(self, step: Step, block: Block) -> tuple[Span, ...]:
        """Registers of weights and records, and where both are."""
        encoded = self.filters.encoded(step, block)
        if encoded is None:
            return ()
        place = self.constants[encoded]
        for name, (start, length) in (("WEIGHT", encoded.weights), ("SCALE", encoded.records)):
            self.region(f"{name}_REGION", place.symbol)
            self.address(f"{name}_BASE", place, start)
            self.set(f"{name}_LENGTH", length)
        first = place.offset
        return tuple(Span(place.symbol, first + at, first + at + n) for at, n in (encoded.weights, encoded.records))

    def scales(self, step: Step) -> None:
        one = step.operation
        if one.kind in ("add", "sub"):
            self.set("OPA_SCALE", value=one.operand_scale.multiplier, shift=one.operand_scale.shift)
            self.set("OPB_SCALE", 0 if one.operand else 1)
        if one.scale is not None:
            self.set("OFM_SCALE", value=one.scale.multiplier, shift=one.scale.shift)

    def block(self, step: Step, block: Block) -> None:
        for axis, extent in zip(("HEIGHT", "WIDTH", "DEPTH"), block.shape, strict=True):
            self.set(f"OFM_BLK_{axis}_M1", extent - 1)
        self.set("IFM_IB_END", block.ifm_end)
        self.set("AB_START", block.accumulator_start)
        if isinstance(step.ifm2, FeatureMap):
            self.set("IFM2_IB_START", block.ifm2_start)
        self.set("ACC_FORMAT", 0)

    def start(self, kernel: Kernel) -> None:
        """The waits that a kernel needs, and the command that starts it."""
        one = kernel.step.operation
        waits, dependency = self.flight.start_kernel(kernel)
        if waits:
            self.append(command("OP_DMA_WAIT", outstanding=0))
            self.stream.works.append(Wait())
        self.set("BLOCKDEP", dependency)
        if self.machine.reserved_banks == 0 and one.table is None:
            self.tables.clear()
        if one.kind in _POOL_MODES:
            self.append(command("OP_POOL", mode=_POOL_MODES[one.kind]))
        elif one.kind in ELEMENTWISE:
            self.append(command("OP_ELEMENTWISE", mode=ELEMENTWISE.index(one.kind)))
        else:
            self.append(command(f"OP_{one.kind.upper()}"))

    # --- copies ------------------------------------------------------------------------------------------------------

    def bring(self, filters: Encoded | None) -> None:
        """Keeps a filter, and copies it to its buffer if it has one."""
        if filters is None or filters in self.constants:
            return
        place = self.stream.keep(filters.data)
        if filters in self.buffers:
            buffer = self.places[self.buffers[filters]]
            self.copy(place, buffer, len(filters.data))
            place = buffer
        self.constants[filters] = place

    def table(self, data: bytes) -> Span:
        """Where in the shared memory a table is, to which it is copied unless it is there."""
        slots = len(data) // _TABLE_BYTES
        if data not in self.tables:
            # A table lies at a multiple of its size; the first that is free, or else over the first.
            used_slots = {slot + n for other, slot in self.tables.items() for n in range(len(other) // _TABLE_BYTES)}
            free = (slot for slot in range(0, _TABLES, slots) if used_slots.isdisjoint(range(slot, slot + slots)))
            slot = next(free, 0)
            self.tables = {
                other: at
                for other, at in self.tables.items()
                if at >= slot + slots or at + len(other) // _TABLE_BYTES <= slot
            }
            self.tables[data] = slot
            if data not in self.kept:
                self.kept[data] = self.stream.keep(data)
            self.copy(self.kept[data], SymbolicAddress(TABLES, slot * _TABLE_BYTES), len(data))
        start = self.tables[data] * _TABLE_BYTES
        return Span(TABLES, start, start + len(data))

    def copy(self, source: SymbolicAddress, target: SymbolicAddress, nbytes: int) -> None:
        """Starts a copy, once kernels are over that it would disturb."""
        self.region("DMA0_SRC_REGION", source.symbol, region=0, mode=_EXTERNAL, stride_mode=0)
        self.address("DMA0_SRC", source)
        if target.symbol == TABLES:
            self.set("DMA0_DST_REGION", region=0, mode=_INTERNAL, stride_mode=0)
            self.set("DMA0_DST", self.machine.lut_address + target.offset)
        else:
            self.region("DMA0_DST_REGION", target.symbol, region=0, mode=_EXTERNAL, stride_mode=0)
            self.address("DMA0_DST", target)
        self.set("DMA0_LEN", nbytes)
        spans = (Span(place.symbol, place.offset, place.offset + nbytes) for place in (source, target))
        outstanding = self.flight.start_copy(Copy(*spans))
        if outstanding is not None:
            self.append(command("OP_KERNEL_WAIT", outstanding=outstanding))
            self.stream.works.append(Wait(outstanding))
        self.append(command("OP_DMA_START"))
        self.stream.works.append(CopyWork(nbytes))


def _precision(one: FeatureMap) -> dict[str, int]:
    size = DTYPE_BYTES[one.dtype]
    return {
        "type": int(not one.dtype.startswith("u")),
        "precision": size.bit_length() - 1,
        "format": int(one.layout == "nhcwb16"),
    }


def write_stream(
    steps: Sequence[tuple[Step, Block]],
    machine: Configuration,
    places: Mapping[Storage, SymbolicAddress],
    filters: Filters | None = None,
    buffers: Mapping[Encoded, Storage] | None = None,
) -> Stream:
    """The stream that does ``steps``, in order.

    Args:
        steps: each with the block that it is made by.
        machine: whose stream it is.
        places: where what is not constant lies.
        filters: encodes them.
        buffers: filters that are brought where, before the first step that needs them.
    """
    writer = _Writer(machine, places, Filters(machine) if filters is None else filters, buffers or {})
    for step, block in steps:
        writer.step(step, block)
    writer.append(command("OP_STOP", mask=0xFFFF))
    return writer.stream
