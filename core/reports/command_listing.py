"""What the blobs of a model say once they are patched, in the words of the plugins that made them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..contract.devices import fields_of, targets
from ..contract.drivers import Routine
from ..lowering.build_targets import BuildTarget, BuildTargets
from ..pipeline.driver import devices_of
from ..program import Plan, Program, relocate
from ..relay.extern import Blob, Extern
from ..targets.kind import shown

__all__ = ["Row", "Stream", "streams"]


@dataclass(frozen=True)
class Row:
    """A line of a description.

    Args:
        at: byte offset in the blob.
        text: what stands there.
        layer: the model's layer that it is for, None where that is not known.
    """

    at: int
    text: str
    layer: str | None


@dataclass(frozen=True)
class Stream:
    """One blob of one call.

    Args:
        step: position of the call among the steps of the program.
        function: its name.
        target: label of the target that it is for.
        routine: what it calls.
        queue: on which it is started, None where it has finished when the call returns.
        layers: the model's layers that the call computes.
        blob: name of the blob.
        nbytes: its size.
        ports: by which the device reaches what the call is given: name -> port.
        rows: what it says; empty where its plugin does not tell.
    """

    step: int
    function: str
    target: str
    routine: str
    queue: str | None
    layers: tuple[str, ...]
    blob: str
    nbytes: int
    ports: dict[str, str]
    rows: tuple[Row, ...]

    def lines(self) -> Iterator[str]:
        """For people."""
        queue = f", queue {self.queue}" if self.queue is not None else ""
        yield f"step {self.step}, {', '.join(self.layers) or '(no layer)'} -> {self.target}{queue}: {self.routine}"
        if self.ports:
            yield f"    ports: {', '.join(f'{name} by {port}' for name, port in self.ports.items())}"
        yield f"    {self.blob}, {self.nbytes:,} bytes"
        layer = None
        for row in self.rows:
            if row.layer is not None and row.layer != layer:
                yield f"    {row.layer}:"
            layer = row.layer
            yield f"        {row.at:#08x}  {row.text}"

    json_fields: ClassVar = (
        "step",
        "function",
        "target",
        "routine",
        "queue",
        "layers",
        "blob",
        "bytes=nbytes",
        "ports",
        "rows",
    )


def streams(program: Program, memory: Plan, members: BuildTargets) -> tuple[Stream, ...]:
    """All blobs of a program, in the order of its calls.

    Args:
        program: a program that `verify` accepts.
        memory: where its buffers are.
        members: the targets that it was built for.

    Raises:
        ModelError: an extern is not of a target of the build, or uses what that does not declare.
        PluginError: what belongs into a field does not fit it, or a description fails.
    """
    used = {device.label: device for device in targets(program, devices_of(program, members))}
    patched = relocate(program, memory, fields_of(program, used))
    listing: list[Stream] = []
    for position, call in program.calls:
        extern = program.functions[call.function]
        if not isinstance(extern, Extern):
            continue
        assert call.device is not None  # every extern is for a target
        member, routine = members[call.device], used[call.device].routine(extern)
        names = [param.buffer.name for param in extern.parameters]
        for blob in extern.blobs:
            data = patched.get(call.args[names.index(blob.name)], blob.data)
            listing.append(
                Stream(
                    position,
                    call.function,
                    member.label,
                    extern.routine,
                    call.queue,
                    call.layers,
                    blob.name,
                    len(data),
                    dict(extern.ports),
                    tuple(_rows(member, routine, blob, data)),
                )
            )
    return tuple(listing)


def _rows(member: BuildTarget, routine: Routine, blob: Blob, data: bytes) -> Iterator[Row]:
    describe = routine.describe
    if describe is None or not (blob.relocations or blob.marks):
        return
    action = f"describe of routine {routine.name!r}"
    rows: object = member.plugin.run(action, lambda: list(describe(data)), member.target)
    assert isinstance(rows, list)
    for row in rows:
        whole = isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], str)
        if not whole or type(row[0]) is not int or not 0 <= row[0] < len(data):
            raise member.plugin.fault(f"gave {shown(row)} from {action}, not (byte offset in the blob, text)")
        yield Row(row[0], row[1], blob.layer_at(row[0]))
