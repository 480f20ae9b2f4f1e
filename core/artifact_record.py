"""The record that ``metadata.json`` holds: its form, and whether one is sound. All of it is read as hostile."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import json_schema
from .compilers import KNOWN_COMPILERS, refused_file_names, refused_flags
from .errors import ModelError, UsageError
from .machines import Machine, find_runner

__all__ = ["METADATA_FILE", "SCHEMA_VERSION", "machine_of", "parse_record", "problem"]

METADATA_FILE = "metadata.json"
"""The one file of a saved artifact that describes all others."""

SCHEMA_VERSION = 4
"""Of the metadata; its form is in ``artifact_schema.json``."""


@functools.cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("artifact_schema.json").read_text(encoding="utf-8"))
    return schema


def problem(record: Any) -> str | None:
    """Why `record` is not the metadata of an artifact, in one line; None if it is."""
    if reason := json_schema.problem(record, _schema()):
        return reason
    how, files = record["compile"], record["files"]
    for host in how["hosts"]:
        try:
            machine = machine_of(host)
            if host["runner"] is not None:
                find_runner(host["runner"], machine)
        except UsageError as error:
            return f"host {host['label']!r}: {error.what}"
        if host["compiler"] is not None and not KNOWN_COMPILERS.fullmatch(host["compiler"]):
            return f"host {host['label']!r} has the compiler {host['compiler']!r}, which is no known name of one"
        if refused := refused_flags(host["flags"]):
            return f"host {host['label']!r} has the flag {refused[0]!r}, which is not allowed"
    if bad := refused_file_names([METADATA_FILE, *{**files, "CMakeLists.txt": None, "Makefile": None}]):
        return f"files has {bad[0]!r}, a name that is not allowed or there twice"
    sources = [name for host in how["hosts"] for name in host["sources"]]
    plain, timed = [*sources, how["library_entry"], how["example"]], how["profile"]
    if missing := [name for name in (*plain, *timed) if name not in files]:
        return f"compile names {missing[0]!r}, which is not among the files"
    if any(len(set(names)) != len(names) for names in (plain, timed)):
        return "compile names one file twice"
    states = [] if record["state"] is None else record["state"]["tensors"]
    for role, rows in (("inputs", record["inputs"]), ("outputs", record["outputs"]), ("states", states)):
        for field in ("name", "identifier"):
            values = [row[field] for row in rows]
            if len(set(values)) != len(values):
                return f"{role} have one {field} twice"
    hosts = [host["label"] for host in how["hosts"]]
    if len(set(hosts)) != len(hosts):
        return "hosts have one label twice"
    if strange := [call["host"] for call in record["calls"] if call["host"] not in hosts]:
        return f"a call is for the host {strange[0]!r}, which is not among the hosts"
    return _device_problem(record["devices"], record["calls"])


def machine_of(host: Mapping[str, Any]) -> Machine | None:
    """The machine that the record of a host names; None where it names none."""
    return None if host["machine"] is None else Machine.parse(host["machine"])


def _device_problem(devices: list[dict[str, Any]], calls: list[dict[str, Any]]) -> str | None:
    labels = [device["label"] for device in devices]
    if len(set(labels)) != len(labels):
        return "devices have one label twice"
    for device in devices:
        codes = [fault["code"] for fault in device["faults"]]
        memories = [memory["name"] for memory in device["memories"]]
        parts, clock = device["parts"] or {"counters": []}, device["clock"]
        for what, names in (
            ("counter", device["counters"]),
            ("counter of parts", parts["counters"]),
            ("fault code", codes),
            ("memory", memories),
        ):
            if len(set(names)) != len(names):
                return f"device {device['label']!r} has one {what} twice"
        if clock is not None and not (
            clock["hz"] > 0 and {clock["cycles"], clock["busy"]} <= {*device["counters"], None}
        ):
            return f"device {device['label']!r} has a clock that stands still, or of counters that it has not"
    for call in calls:
        if call["device"] is not None and call["device"] not in labels:
            return f"a call is for the device {call['device']!r}, which is not among the devices"
    if idle := [label for label in labels if all(call["device"] != label for call in calls)]:
        return f"no call is for the device {idle[0]!r}"
    return None


def parse_record(raw: bytes, where: Path) -> Any:
    """The content of ``metadata.json``, of which only its version was looked at.

    Raises:
        ModelError: it is no JSON, or that of a newer version.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("an object has one name twice")
        return made

    try:
        record = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the metadata is not JSON: {error}", where=str(where)) from error
    version = record.get("schema_version") if isinstance(record, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ModelError(
            "the artifact was made by a newer version of UMA",
            where=str(where),
            hint="upgrade uma-core, or build the model again",
        )
    return record
