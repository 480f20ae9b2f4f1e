"""Whether the record of an artifact is sound. All of what is read from a file is read as hostile."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import ModelError, UsageError
from ..program.program import ROWS_POOL
from ..support import json_record, json_schema
from ..support.compiler_flags import KNOWN_COMPILERS, refused_file_names, refused_flags
from ..support.machines import find_runner
from ..tir.form.symbolic_dims import Extent, Symbol, parse_extents, symbols_of, upper_bounds
from .execution_counts import is_nested
from .record import METADATA_FILE, SCHEMA_VERSION, ArtifactRecord, BufferRecord, DeviceRecord, HostRecord

__all__ = ["first_error", "parse_record", "schema"]


@functools.cache
def _schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:uma:artifact:{SCHEMA_VERSION}",
        "title": "metadata.json of a UMA artifact",
        **json_record.json_schema_of(ArtifactRecord),
    }


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``metadata.json``, as a copy that is the caller's own."""
    copy: dict[str, Any] = json.loads(json.dumps(_schema()))
    return copy


def first_error(plain: Any) -> str | None:
    """Why this, which JSON can say, is not the metadata of an artifact, in one line; None if it is."""
    if reason := json_schema.first_error(plain, _schema()):
        return reason
    return next(_problems(json_record.from_json(ArtifactRecord, plain)), None)


def parse_record(raw: bytes, where: Path) -> ArtifactRecord:
    """The record that ``metadata.json`` holds.

    Raises:
        ModelError: it is not JSON, that of another version, or not sound.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            raise ValueError("an object has one name twice")
        return record

    try:
        plain = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the metadata is not JSON: {error}", where=str(where)) from error
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if type(version) is int and 0 < version != SCHEMA_VERSION:
        newer = version > SCHEMA_VERSION
        raise ModelError(
            f"the artifact was made by {'a newer' if newer else 'an older'} version of UMA",
            where=str(where),
            hint="upgrade uma-core, or build the model again with uma build"
            if newer
            else "build the model again with uma build",
        )
    if reason := first_error(plain):
        raise ModelError(f"the artifact is not sound: {reason}", where=str(where), hint="build the model again")
    return json_record.from_json(ArtifactRecord, plain)


def _problems(record: ArtifactRecord) -> Iterator[str]:
    """What no schema says: what must agree with what."""
    for host in record.compile.hosts:
        yield from _host_problems(host)
    yield from _file_problems(record)
    for role, rows in (("inputs", record.inputs), ("outputs", record.outputs), ("states", record.states)):
        for field in ("name", "identifier"):
            if _twice(getattr(row, field) for row in rows):
                yield f"{role} have one {field} twice"
    yield from _open_problems(record)
    for noun, holders in (("hosts", record.compile.hosts), ("devices", record.devices)):
        if _twice(holder.label for holder in holders):
            yield f"{noun} have one label twice"
    for device in record.devices:
        yield from _device_problems(device)
    yield from _call_problems(record)
    yield from _buffer_problems(record)


def _call_problems(record: ArtifactRecord) -> Iterator[str]:
    hosts = [host.label for host in record.compile.hosts]
    labels = [device.label for device in record.devices]
    for position, call in enumerate(record.calls):
        if not position <= call.finished_step < len(record.calls):
            yield f"call {position} has finished in step {call.finished_step} of {len(record.calls)}"
        if call.host not in hosts:
            yield f"a call is for the host {call.host!r}, which is not among the hosts"
        if call.device is not None and call.device not in labels:
            yield f"a call is for the device {call.device!r}, which is not among the devices"
    if not is_nested(record.calls):
        yield "branches and loops among the calls do not begin and end as they should"
    if idle := set(labels).difference(call.device for call in record.calls if call.device is not None):
        yield f"no call is for the device {min(idle)!r}"


def _open_problems(record: ArtifactRecord) -> Iterator[str]:
    """What is wrong with open extents."""
    symbols: dict[str, Symbol] = {}
    for row in (*record.inputs, *record.outputs, *record.states):
        if row.extents is None:
            continue
        try:
            extents = parse_extents(row.extents)
        except ModelError as error:
            yield f"{row.name!r}: {error.what}"
            continue
        if upper_bounds(extents) != row.shape:
            yield f"{row.name!r} has shape {list(row.shape)} and the extents {row.extents}"
        if row in record.inputs and any(isinstance(e, Extent) and str(e) != str(e.symbols[0]) for e in extents):
            yield f"the extents of input {row.name!r} are computed: {row.extents}"
        for symbol in symbols_of(extents):
            if symbols.setdefault(symbol.name, symbol) is not symbol:
                yield f"extent {symbol.name!r} has other bounds in {row.name!r}"
    yield from _held_problems(record, symbols)


def _held_problems(record: ArtifactRecord, symbols: Iterable[str]) -> Iterator[str]:
    """What is wrong with the inputs and outputs that hold open extents."""
    held = [row.holds for row in (*record.inputs, *record.outputs) if row.holds is not None]
    if sorted(held) != sorted(symbols):
        yield f"inputs and outputs hold the extents {sorted(held)}, and there are {sorted(symbols)}"
    computed = {row.holds for row in record.outputs}
    for row in record.inputs:
        if row.extents is not None and any(f"{name}[" in row.extents for name in computed if name):
            yield f"input {row.name!r} has an extent that an output holds: {row.extents}"
    for role, rows in (("input", record.inputs), ("output", record.outputs)):
        for row in rows:
            if row.holds is not None and (row.dtype, row.shape) != ("int32", (1,)):
                yield f"{role} {row.name!r}, which holds an extent, is {row.dtype} {list(row.shape)}"


def _host_problems(host: HostRecord) -> Iterator[str]:
    try:
        machine = host.own_machine
        if host.runner is not None:
            find_runner(host.runner, machine)
    except UsageError as error:
        yield f"host {host.label!r}: {error.what}"
    if host.compiler is not None and not KNOWN_COMPILERS.fullmatch(host.compiler):
        yield f"host {host.label!r} has the compiler {host.compiler!r}, which is not a known name of one"
    if refused := refused_flags(host.flags):
        yield f"host {host.label!r} has the flag {refused[0]!r}, which is not allowed"


def _file_problems(record: ArtifactRecord) -> Iterator[str]:
    how, files = record.compile, record.files
    if bad := refused_file_names([METADATA_FILE, *{**files, "CMakeLists.txt": None, "Makefile": None}]):
        yield f"files has {bad[0]!r}, a name that is not allowed or there twice"
    for host in how.hosts:
        if not host.sources and (host is how.hosts[0] or not host.objects):
            yield f"host {host.label!r} has no sources"
    plain = [*(name for host in how.hosts for name in (*host.sources, *host.objects)), how.library_entry, how.example]
    for name in (*plain, *how.profile):
        if name not in files:
            yield f"compile names {name!r}, which is not among the files"
    if _twice(plain) or _twice(how.profile):
        yield "compile names one file twice"


def _device_problems(device: DeviceRecord) -> Iterator[str]:
    named: dict[str, Sequence[object]] = {
        "counter": device.counters,
        "counter of parts": () if device.parts is None else device.parts.counters,
        "fault code": [fault.code for fault in device.faults],
        "memory": [memory.name for memory in device.memories],
    }
    for noun, names in named.items():
        if _twice(names):
            yield f"device {device.label!r} has one {noun} twice"
    clock = device.clock
    if clock is not None and not (clock.hz > 0 and {clock.cycles, clock.busy} <= {*device.counters, None}):
        yield f"device {device.label!r} has a clock that stands still, or of counters that it has not"


def _buffer_problems(record: ArtifactRecord) -> Iterator[str]:
    names = {buffer.name for buffer in record.buffers}
    if len(names) != len(record.buffers):
        yield "buffers have one name twice"
    for call in record.calls:
        if strange := [name for name in call.arguments if name not in names]:
            yield f"a call is given {strange[0]!r}, which is not among the buffers"
    by_rows = sum(buffer.pool == ROWS_POOL and buffer.role == "input" for buffer in record.buffers)
    rows = [row.rows for row in (*record.inputs, *record.outputs, *record.states) if row.rows is not None]
    if {len(rows), sum(row.rows is not None for row in record.inputs)} != {by_rows}:
        yield f"{by_rows} inputs are given row by row, and {len(rows)} inputs, outputs and states have rows"
    last = max(len(record.calls) - 1, 0)
    for buffer in record.buffers:
        if not buffer.first_step <= buffer.last_step <= last:
            yield f"buffer {buffer.name!r} is held from step {buffer.first_step} to step {buffer.last_step}"
        if (buffer.pool in (None, ROWS_POOL)) != (buffer.offset is None):
            yield f"buffer {buffer.name!r} has only one of pool and offset"
        elif buffer.offset is not None and buffer.offset + buffer.bytes > (room := _room(record, buffer)):
            yield f"buffer {buffer.name!r} reaches beyond its memory {buffer.pool!r}, which has {room} bytes"


def _room(record: ArtifactRecord, buffer: BufferRecord) -> int:
    """How large the memory is that a buffer is in."""
    if buffer.role == "constant":
        return record.constant_bytes
    if buffer.role == "state":
        return 0 if record.state is None else record.state.bytes
    label, _, name = (buffer.pool or "").rpartition(".")
    if not label:
        return record.arena_bytes
    used = (m.used_bytes for d in record.devices if d.label == label for m in d.memories if m.name == name)
    return next(used, 0)


def _twice(values: Iterable[object]) -> bool:
    """Whether one of these is there twice."""
    listed = list(values)
    return len(set(listed)) != len(listed)
