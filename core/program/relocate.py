"""What belongs into the holes of blobs now that everything has a place."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import PluginError
from ..relay.extern import BitField, Blob, Relocation
from .constants import relocated_buffers
from .memory_plan import Plan
from .program import Call, Program, arguments

__all__ = ["ARENA_BASE", "CONSTANTS_BASE", "base_buffers", "relocate"]

CONSTANTS_BASE = 0
ARENA_BASE = 1
"""Positions in the table of bases that a routine is given. The arrays of the caller and the states follow."""


def base_buffers(program: Program, step: Call) -> tuple[str, ...]:
    """The arrays of the caller and the states that a call is given, each once: its bases from the second on."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    apart = (name for name in step.args if buffers[name].is_given or buffers[name].role == "state")
    return tuple(dict.fromkeys(apart))


def relocate(program: Program, plan: Plan, fields: Mapping[str, Mapping[str, BitField]]) -> dict[str, bytes]:
    """The bytes of every blob with relocations, by the name of its buffer.

    Args:
        program: a program that `verify` accepts.
        plan: where its buffers are.
        fields: for each function that is an extern the fields that its routine declares, by name.

    Raises:
        PluginError: a field cannot hold what belongs into it; it names the blob, the field, the symbol and the value.
    """
    patched: dict[str, bytes] = {}
    for name, (step, blob) in relocated_buffers(program).items():
        data = bytearray(blob.data)
        places = _places(program, plan, step)
        for relocation in blob.relocations:
            field = fields[step.function][relocation.field]
            base, offset = places[relocation.symbol]
            value = base if relocation.value == "base" else offset + relocation.addend
            problem = field.problem(value)
            if problem is not None:
                raise _misfit(step, blob, relocation, problem)
            end = relocation.at + field.word_bytes
            word = field.put(int.from_bytes(data[relocation.at : end], "little"), value)
            data[relocation.at : end] = word.to_bytes(field.word_bytes, "little")
        patched[name] = bytes(data)
    return patched


def _places(program: Program, plan: Plan, step: Call) -> dict[str, tuple[int, int]]:
    """Base and offset of each symbol of a call; what is in a memory of the device has no base."""
    roles = {buffer.name: buffer.role for buffer in program.buffers}
    others = base_buffers(program, step)
    places: dict[str, tuple[int, int]] = {}
    for param, name in arguments(program, step):
        if name in others:
            places[param.buffer.name] = ARENA_BASE + 1 + others.index(name), 0
        elif roles[name] == "constant":
            places[param.buffer.name] = CONSTANTS_BASE, plan.constants[name]
        else:
            places[param.buffer.name] = ARENA_BASE, plan.offsets[name]
    return places


def _misfit(step: Call, blob: Blob, relocation: Relocation, problem: str) -> PluginError:
    what = "number of the base" if relocation.value == "base" else "offset"
    about = f"the {what} of {relocation.symbol!r}{f' + {relocation.addend}' if relocation.addend else ''}"
    return PluginError(
        f"{about} does not fit field {relocation.field!r} at byte {relocation.at} of blob {blob.name!r}: {problem}",
        where=", ".join([f"extern {step.function!r} for {step.device!r}", *step.layers]),
        hint="the plugin needs a wider field, a smaller unit or more alignment, or must refuse the layer",
    )
