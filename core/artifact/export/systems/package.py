"""What every build system is given of an artifact: files by name, the flags that C needs, sizes, a README."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import UsageError
from ....support.c_text import weights_array
from ...footprint import Footprint
from ...record import ArtifactRecord, HostRecord
from ..makefile import included_files

if TYPE_CHECKING:
    from ...artifact import Artifact

__all__ = [
    "VERSION",
    "Firmware",
    "firmware",
    "headers",
    "meant_flags",
    "needs_hand",
    "one_machine",
    "readme",
    "write_files",
]

_UNCOMPILED = "Code and stack are as the compiler makes them."
_COMPILED = "Code and stack are those of the compiler and the flags of the build; other ones make other sizes."

VERSION = "1.0.0"
"""Of what is exported: a number that its owner raises. Nothing here knows what was handed on before."""


@dataclass(frozen=True)
class Firmware:
    """What a tool for firmware compiles: C, and nothing that a plugin or another machine made.

    Args:
        sources: name to content, the weights among them.
        headers: name to content.
        flags: what each source needs of its compiler besides C99.
    """

    sources: dict[str, bytes]
    headers: dict[str, bytes]
    flags: dict[str, Sequence[str]]


def one_machine(artifact: Artifact) -> None:
    """Check that one library is all of a model.

    Raises:
        UsageError: several machines run it.
    """
    if apart := artifact.record.compile.remote_hosts:
        raise UsageError(
            f"the model is for several machines, {artifact.record.compile.hosts[0].label!r} and {apart[0].label!r}: "
            "it is no one library",
            where=artifact.name,
            hint="take the artifact itself: its Makefile and its CMakeLists.txt build the library of each machine",
        )


def needs_hand(artifact: Artifact) -> str | None:
    """Why no program in C can run the model without more being known; None where one can."""
    if "uma_uio.h" in artifact.files:
        return "a device of it is reached through files of Linux"
    weights = f"{artifact.name}_weights"
    if f"{weights}.bin" in artifact.files and f"{weights}.S" not in artifact.files:
        return "its weights are a file, which the program loads"
    return None


def firmware(artifact: Artifact) -> Firmware:
    """The files of an artifact for a tool that compiles C for one machine, the weights as an array.

    Raises:
        UsageError: that is not all of the model.
    """
    one_machine(artifact)
    record, how = artifact.record, artifact.record.compile
    reason = needs_hand(artifact)
    if reason is None and (brought := [name for host in how.hosts for name in host.objects]):
        reason = f"a plugin made {brought[0]!r} of it, which is not a source"
    if reason is None and (names := [row.name for row in how.libraries if row.name != "m"]):
        reason = f"it calls the library {names[0]!r}, which a package of sources does not have"
    if reason is not None:
        raise UsageError(
            f"the model cannot be a package of C: {reason}",
            where=artifact.name,
            hint="--format cmake takes it as it is; or build it so that it is C alone",
        )
    sources: dict[str, bytes] = {}
    flags: dict[str, Sequence[str]] = {}
    for host in how.hosts:
        for name in host.sources:
            file, content = name, artifact.files[name]
            if name == f"{record.name}_weights.S":
                file = f"{record.name}_weights.c"
                content = _array_from_assembly(record.name, content, artifact.files[f"{record.name}_weights.bin"])
            sources[file], flags[file] = content, meant_flags(host)
    return Firmware(sources, headers(artifact), flags)


def _array_from_assembly(name: str, assembly: bytes, data: bytes) -> bytes:
    """``NAME_weights.c`` of the same constants.

    Args:
        name: of the model.
        assembly: ``NAME_weights.S``, as a build writes it.
        data: what that includes.

    Raises:
        UsageError: it was not made so, and says no alignment.
    """
    alignment = re.search(rb"^ +\.balign ([1-9][0-9]{0,8})$", assembly, re.MULTILINE)
    if alignment is None:
        raise UsageError(f"{name}_weights.S does not say how the weights are aligned", hint="build the model again")
    return weights_array(name, data, int(alignment[1])).encode()


def headers(artifact: Artifact) -> dict[str, bytes]:
    """The headers, by name, but for that of the clock, which only the model that times its calls includes."""
    names = (name for name in included_files(artifact.record) if name.endswith(".h") and name != "uma_ticks.h")
    return {name: artifact.files[name] for name in names}


def meant_flags(host: HostRecord) -> list[str]:
    """The flags of a host that say what its C means. CPU, optimisation and warnings are the project's business."""
    return [flag for flag in host.flags if flag.startswith(("-f", "-D"))]


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files, by their paths below ``folder``."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def readme(artifact: Artifact, title: str, use: str) -> str:
    """``README.md``: how it is used, what the model takes, and what it was made by.

    Args:
        artifact: it.
        title: what it is, in a few words.
        use: Markdown, how it is used.
    """
    record, memory = artifact.record, artifact.known_footprint()
    origins = [f"uma-core {record.uma_version}", *(f"{name} {version}" for name, version in record.plugins.items())]
    targets = "\n".join(map(_line, record.targets))
    return f"""\
# {record.name}: {title}

{use.strip()}

## What it takes

| memory | bytes |
| --- | ---: |
{"".join(f"| {section} | {size:,} |{chr(10)}" for section, size in _sizes(memory))}
{_UNCOMPILED if memory.code_bytes is None else _COMPILED}
`{record.name}.h` has the other sizes as macros, and says how a model is run.

| tensor | dtype | shape | scale | zero point |
| --- | --- | --- | ---: | ---: |
{"".join(f"| {row} |{chr(10)}" for row in _tensors(record))}
A quantised tensor holds integers: real value = scale * (integer - zero point).

## What it was made by

{", ".join(origins)}, for the targets

```
{targets}
```
"""


def _sizes(memory: Footprint) -> Iterator[tuple[str, int]]:
    yield "ROM: weights", memory.constant_bytes
    if memory.code_bytes is not None:
        yield "ROM: code", memory.code_bytes
    yield "RAM: arena", memory.arena_bytes
    if memory.state_bytes:
        yield "RAM: state", memory.state_bytes
    yield "RAM: inputs", memory.input_bytes
    yield "RAM: outputs", memory.output_bytes
    if memory.stack_bytes is not None:
        yield "RAM: stack", memory.stack_bytes


def _tensors(record: ArtifactRecord) -> Iterator[str]:
    for role, rows in (("input", record.inputs), ("output", record.outputs)):
        for row in rows:
            shape, quantised = ", ".join(map(str, row.shape)) or "a scalar", row.quantization
            how = "- | -" if quantised is None else f"{quantised.scale:.9g} | {quantised.zero_point}"
            yield f"{role} `{row.identifier}` | {row.dtype} | {shape} | {how}"


def _line(text: str) -> str:
    """A text of the artifact as one line within a block of Markdown, whatever it holds."""
    return "".join(character if character.isprintable() and character != "`" else "?" for character in text)
