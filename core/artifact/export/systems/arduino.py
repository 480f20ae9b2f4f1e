"""A library for Arduino: what its IDE and ``arduino-cli`` install from a folder or a ``.zip``.

The layout is that of the library specification, revision 2.2
(https://arduino.github.io/arduino-cli/latest/library-specification/).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....contract.exporter import Exporter
from .package import VERSION, firmware, readme, write_files
from .program import Say, program_text

if TYPE_CHECKING:
    from ...artifact import Artifact

__all__ = ["ARDUINO_ENTRY", "ARDUINO_SAY", "EXPORTER"]

ARDUINO_SAY = Say(
    "Serial.print(value);", 'Serial.print(" ");\nSerial.print(value);', 'Serial.print(" ");\nSerial.print(value, 6);'
)
"""By the serial port of Arduino's core."""

ARDUINO_ENTRY = """\
void setup()
{
    Serial.begin(115200);
    while (!Serial) {
    }
    run_model();
}

void loop()
{
}
"""

_USE = """\
A library for Arduino. Install it from this folder, zipped (*Sketch*, *Include Library*, *Add .ZIP Library...*, or
`arduino-cli lib install --zip-path FILE`), and open *File*, *Examples*, *{title}*, *run*.
"""


def export(artifact: Artifact, folder: Path) -> None:
    """Write the library.

    Raises:
        UsageError: the artifact is not a library of C for one machine.
    """
    record, parts = artifact.record, firmware(artifact)
    title = record.name.strip("_")[:63] or "model"
    properties = {
        "name": title,
        "version": VERSION,
        "author": "UMA",
        "maintainer": "UMA",
        "sentence": f"The neural network {title}, compiled to C.",
        "paragraph": f"Takes {record.arena_bytes} bytes of working memory and {record.constant_bytes} of weights.",
        "category": "Data Processing",
        "url": "",
        "architectures": "*",
        "includes": f"{record.name}.h",
    }
    head = f"/* Runs the model {title} once, on zeros, and prints what it gives. */"
    sources = {name: _as_meant(parts.flags[name]) + content for name, content in parts.sources.items()}
    files: dict[str, str | bytes] = {
        "library.properties": "".join(f"{key}={value}\n" for key, value in properties.items()),
        "README.md": readme(artifact, "a library for Arduino", _USE.format(title=title)),
        "examples/run/run.ino": program_text(record, head, ARDUINO_SAY, ARDUINO_ENTRY),
        **{f"src/{name}": content for name, content in (sources | parts.headers).items()},
    }
    write_files(folder, files)


def _as_meant(flags: Sequence[str]) -> bytes:
    """What a source begins with, as a library cannot give flags to the compiler."""
    lines = [
        f"#define {flag[2:].replace('=', ' ', 1)}{'' if '=' in flag else ' 1'}" for flag in flags if flag[1] == "D"
    ]
    meant = [flag[1:] for flag in flags if flag[1] == "f"]
    if meant:
        lines += ["#if defined(__GNUC__) && !defined(__clang__)"]
        lines += [f'#pragma GCC optimize("-{flag}")' for flag in meant]
        lines += ["#endif"]
    if "fp-contract=off" in "".join(meant):
        lines += ["#if defined(__clang__)", "#pragma STDC FP_CONTRACT OFF", "#endif"]
    return "".join(f"{line}\n" for line in lines).encode()


EXPORTER = Exporter("arduino", "a library for Arduino's IDE and arduino-cli", export)
