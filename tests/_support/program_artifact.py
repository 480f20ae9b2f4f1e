"""Programs as artifacts, without a pipeline: the files of `emit_model`, and metadata as the pipeline makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uma.artifact.record import SCHEMA_VERSION
from uma.artifact.record_builder import buffer_records, call_records, device_record, tensor_records
from uma.codegen import emit_model
from uma.codegen.header import ports
from uma.contract.devices import Device
from uma.program import Program, plan
from uma.support.json_record import to_json


def metadata_of(
    program: Program, devices: Mapping[str, Device] | None = None
) -> tuple[dict[str, str | bytes], dict[str, Any]]:
    """Files and metadata of the artifact of a program, which a C compiler of this machine compiles."""
    memory, known = plan(program), devices or {}
    files = emit_model(program, memory, known)

    def tensors(role: Any) -> Any:
        buffers = program.role(role)
        return to_json(tensor_records(buffers, {port.buffer.name: port.identifier for port in ports(buffers)}))

    return dict(files.contents), {
        "schema_version": SCHEMA_VERSION,
        "name": program.name,
        "uma_version": "0.1.0",
        "plugins": {},
        "targets": ["c"],
        "notes": [],
        "inputs": tensors("input"),
        "outputs": tensors("output"),
        "arena_bytes": memory.arena_bytes,
        "constant_bytes": files.constant_bytes,
        "state": {"bytes": memory.state_bytes, "model": "0" * 64, "tensors": tensors("state")}
        if program.states
        else None,
        "buffers": to_json(buffer_records(program, memory)),
        "devices": [to_json(device_record(known[label], program, memory)) for label in program.devices],
        "calls": to_json(tuple(call_records(program, known, "c"))),
        "allowed": {"options": [], "differences": []},
        "rows": None,
        "strips": None,
        "compile": {
            "hosts": [
                {
                    "label": "c",
                    "compiler": None,
                    "flags": ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror"],
                    "machine": None,
                    "runner": None,
                    "clock_hz": None,
                    "sources": list(files.sources),
                    "objects": [],
                    "brought": [],
                    "features": [],
                }
            ],
            "libraries": [],
            "library_entry": files.entry,
            "profile": list(files.profile),
            "example": files.example,
        },
    }
