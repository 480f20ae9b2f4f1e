"""What is filled into blobs once everything has a place."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support import stream_device as lag
from tests._support.programs import kernel
from tests._support.stream_programs import FIELDS_OF

from uma.codegen.weights import assemble
from uma.errors import InternalError, PluginError
from uma.program import Buffer, Call, Plan, Program, plan, relocate, verify, verify_plan
from uma.program.constants import lay_out
from uma.program.relocate import base_buffers
from uma.relay import BitField, Blob, Extern, Relocation
from uma.tir import Buffer as TirBuffer
from uma.tir import Memory, Param

SPAD = Memory("spad", 256, 8, "f({device}, {to}, {from}, {row_bytes})")


def one_call(extern: Extern, roles: dict[str, str] | None = None) -> Program:
    """A program of one call; inputs are inputs, outputs outputs, unless `roles` says otherwise."""
    found: list[Buffer] = []
    data = {blob.name: blob.data for blob in extern.blobs}
    for param in extern.parameters:
        buffer = param.buffer
        role = (roles or {}).get(buffer.name, param.role)
        pool = "" if buffer.scope == "global" else f"npu.{buffer.scope}"
        alignment = 0 if role in ("input", "output") else max(buffer.alignment, 8 if pool else 0)
        found.append(
            Buffer(buffer.name, role, buffer.shape, buffer.dtype, alignment, pool, data.get(buffer.name))  # type: ignore[arg-type]  # a role, as it is spelt
        )
    step = Call("f", tuple(buffer.name for buffer in found), ("layer",), "npu")
    return Program("p", tuple(found), (step,), {"f": extern})


def param(name: str, role: str, count: int = 4, scope: str = "global") -> Param:
    return Param(TirBuffer(name, (count,), "int32", scope), role)  # type: ignore[arg-type]  # one of three roles


class TestBases:
    def test_the_arrays_of_the_caller_are_numbered_in_order_of_use(self) -> None:
        extern = lag.extern(kernel([4, 4], 4, constant=2, workspace=3), None, [bytes(8)])
        program = one_call(extern)
        verify(program)
        assert base_buffers(program, program.calls[0][1]) == ("x0", "x1", "y")
        memory = plan(program)
        patched = relocate(program, memory, {"f": FIELDS_OF})
        fill, add = lag.decode(patched["commands"])
        assert fill == lag.Command(0, (1, memory.offsets["t"]), 3, ())
        assert add.to == (4, 0)
        assert add.sources == ((0, memory.constants["w"], 2), (2, 0, 4), (3, 0, 4))

    def test_those_in_the_arena_are_of_its_base(self) -> None:
        extern = lag.extern(kernel([4, 4], 4, constant=2, workspace=3), None, [bytes(8)])
        program = one_call(extern)
        program = replace(
            program, buffers=tuple(replace(b, pool="ram") if b.name in ("x1", "y") else b for b in program.buffers)
        )
        verify(program)
        assert base_buffers(program, program.calls[0][1]) == ("x0",)
        memory = plan(program)
        _, add = lag.decode(relocate(program, memory, {"f": FIELDS_OF})["commands"])
        assert add.to == (1, memory.offsets["y"])
        assert add.sources == ((0, memory.constants["w"], 2), (2, 0, 4), (1, memory.offsets["x1"], 4))

    def test_an_array_that_is_passed_twice_is_one_base(self) -> None:
        program = one_call(lag.extern(kernel([4, 4], 4), None))
        [(_, step)] = program.calls
        step = replace(step, args=("x0", "x0", "y", "commands"))
        program = replace(program, steps=(step,), buffers=tuple(b for b in program.buffers if b.name != "x1"))
        verify(program)
        [command] = lag.decode(relocate(program, plan(program), {"f": FIELDS_OF})["commands"])
        assert (command.to, command.sources) == ((3, 0), ((2, 0, 4), (2, 0, 4)))

    def test_states_are_bases_of_their_own(self) -> None:
        program = one_call(lag.extern(kernel([4, 4], 4), None), {"x1": "state"})
        buffers = [replace(b, data=bytes(16)) if b.role == "state" else b for b in program.buffers]
        program = replace(program, buffers=tuple(buffers))
        verify(program)
        [command] = lag.decode(relocate(program, plan(program), {"f": FIELDS_OF})["commands"])
        assert command.sources == ((2, 0, 4), (3, 0, 4))

    def test_in_a_memory_of_the_device_it_is_the_address_there(self) -> None:
        params = (param("x", "input"), param("y", "output"), *(param(n, "workspace", 3, "spad") for n in "st"))
        blob = Blob("c", bytes(12), relocations=(Relocation(0, "f", "s"), Relocation(4, "f", "t", 12)))
        program = one_call(Extern(params, "run", blobs=(blob,), memories=(SPAD,)))
        verify(program)
        memory = plan(program)
        [data] = relocate(program, memory, {"f": {"f": BitField("f", 32)}}).values()
        assert struct.unpack("<2I", data[:8]) == (memory.offsets["s"], memory.offsets["t"] + 12)
        assert {memory.offsets["s"], memory.offsets["t"]} == {0, 16}


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 200))
def test_the_same_stream_at_other_addresses(t: int, u: int, w: int) -> None:
    """Decoded, it says what was meant, wherever things are; nothing but the addresses differs."""
    extern = lag.extern(kernel([4, 4], 4, constant=2, workspace=3), None, [bytes(range(8))])
    program = one_call(extern, {"x1": "intermediate"})  # not verified: nobody writes it
    first = plan(program)
    memory = replace(
        first,
        offsets={"x1": 4 * t, "t": 4 * u},
        constants={**first.constants, "w": 4 * w},
        constant_bytes=2000,
        pool_bytes={"ram": 4000},
    )
    fill, add = lag.decode(relocate(program, memory, {"f": FIELDS_OF})["commands"])
    assert (fill.to, fill.count, fill.sources) == ((1, 4 * u), 3, ())
    assert add.to == (3, 0)
    assert add.sources == ((0, 4 * w, 2), (2, 0, 4), (1, 4 * t, 4))


def test_the_bits_around_a_field_stay() -> None:
    blob = Blob("c", b"\xff" * 6, relocations=(Relocation(1, "f", "x", value="base"), Relocation(3, "g", "y", 12)))
    program = one_call(Extern((param("x", "input"), param("y", "output")), "run", blobs=(blob,)))
    fields = {"f": BitField("f", 5, lsb=3, word_bytes=1), "g": BitField("g", 4, lsb=10, word_bytes=3, unit=4)}
    data = relocate(program, plan(program), {"f": fields})["c"]
    assert data == bytes([0xFF, 2 << 3 | 7, 0xFF, 0xFF, 0b11001111, 0xFF])


MISFITS = {
    "too large": (
        Relocation(0, "f", "y", 16),
        BitField("f", 4),
        "the offset of 'y' + 16 does not fit field 'f' at byte 0 of blob 'c': 16 is more than 15",
    ),
    "signed": (
        Relocation(0, "f", "y", 8),
        BitField("f", 4, signed=True),
        "the offset of 'y' + 8 does not fit field 'f' at byte 0 of blob 'c': 8 is more than 7",
    ),
    "unit": (
        Relocation(4, "f", "y", 2),
        BitField("f", 8, unit=4),
        "the offset of 'y' + 2 does not fit field 'f' at byte 4 of blob 'c': 2 is not a multiple of 4",
    ),
    "base": (
        Relocation(0, "f", "y", value="base"),
        BitField("f", 1),
        "the number of the base of 'y' does not fit field 'f' at byte 0 of blob 'c': 3 is more than 1",
    ),
}


@pytest.mark.parametrize("relocation, field, what", MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit_names_everything(relocation: Relocation, field: BitField, what: str) -> None:
    blob = Blob("c", bytes(8), relocations=(relocation,))
    program = one_call(Extern((param("x", "input"), param("y", "output")), "run", blobs=(blob,)))
    with pytest.raises(PluginError) as caught:
        relocate(program, plan(program), {"f": {"f": field}})
    assert caught.value.what == what
    assert caught.value.where == "extern 'f' for 'npu', layer"


class TestConstants:
    """Their places are part of the plan: relocations name them."""

    A = Buffer("a", "constant", (3,), "uint8", data=b"abc")
    B = Buffer("b", "constant", (4,), "uint8", 32, data=b"wxyz")
    C = Buffer("c", "constant", (3,), "uint8", data=b"abc")

    def program(self, *constants: Buffer) -> Program:
        return Program("p", constants, (), {})

    def test_equal_ones_share_their_bytes(self) -> None:
        assert lay_out(self.program(self.A, self.B, self.C)) == ({"a": 0, "c": 0, "b": 32}, 36)

    def test_those_with_relocations_share_with_nobody(self) -> None:
        blob = Blob("c", bytes(8), 4, (Relocation(0, "f", "y"),))
        extern = Extern((param("x", "input"), param("y", "output")), "run", blobs=(blob,))
        first = one_call(extern)
        twin = Buffer("d", "constant", (8,), "uint8", 4, data=bytes(8))
        program = replace(first, buffers=(*first.buffers, twin))
        assert lay_out(program) == ({"c": 0, "d": 16}, 24)
        weights = assemble(program, plan(program), {"c": b"\1" * 8})
        assert weights.data == b"\1" * 8 + bytes(16)
        with pytest.raises(InternalError, match="constant 'd' overlaps 'c'"):
            verify_plan(program, replace(plan(program), constants={"c": 0, "d": 0}))

    @pytest.mark.parametrize(
        ("constants", "nbytes", "what"),
        [
            ({"a": 0, "b": 32}, 35, r"constant 'b' is at 32, in 35 bytes aligned to 32"),
            ({"a": 0, "b": 8}, 36, r"constant 'b' is at 8, in 36 bytes aligned to 32"),
            ({"a": 0}, 36, r"constant 'b' is at -1"),
            ({"a": 34, "b": 32}, 64, r"constant 'a' overlaps 'b'"),
            ({"a": 0, "b": 0}, 36, r"constant 'b' overlaps 'a'"),
        ],
    )
    def test_places_are_checked(self, constants: dict[str, int], nbytes: int, what: str) -> None:
        program = self.program(self.A, self.B)
        with pytest.raises(InternalError, match=what):
            verify_plan(program, Plan({}, {}, {}, constants, nbytes))
