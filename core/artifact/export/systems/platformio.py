"""A library for PlatformIO: ``library.json``, ``include``, ``src``, and an example that is a project.

The fields are those of https://docs.platformio.org/en/latest/manifests/library-json/.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ....contract.exporter import Exporter
from ....errors import UsageError
from .arduino import ARDUINO_ENTRY, ARDUINO_SAY
from .package import VERSION, firmware, readme, write_files
from .program import PRINTF, Say, program_text

if TYPE_CHECKING:
    from ...artifact import Artifact

__all__ = ["EXPORTER"]

_HEAD = """\
/* Runs the model {name} once, on zeros, and prints what it gives: within Arduino's core, or as a program of its own. */
#ifdef ARDUINO
#include <Arduino.h>
#else
#include <stdio.h>
#endif
"""

_INI = """\
; The library is two folders above. For a board: platform, board and framework in the place of the line below.
[env:native]
platform = native
lib_deps = symlink://../..
"""

_USE = """\
A library for PlatformIO: in a project's `platformio.ini` write `lib_deps = symlink://` and the path of this folder, and
include `{name}.h`. `examples/run` is a project: `pio run -d examples/run -t exec`.
"""


def export(artifact: Artifact, folder: Path) -> None:
    """Write the library.

    Raises:
        UsageError: the artifact is not a library of C for one machine, all of which is compiled in one way.
    """
    record, parts = artifact.record, firmware(artifact)
    flags = [list(one) for one in parts.flags.values()]
    if any(one != flags[0] for one in flags):
        raise UsageError(
            "the model cannot be a library for PlatformIO: its sources are compiled with different flags",
            where=artifact.name,
            hint="give all targets of the build the same flags, or take --format cmake",
        )
    name = "-".join(word for word in record.name.split("_") if word)[:50].strip("-") or "model"
    manifest = {
        "name": name,
        "version": VERSION,
        "description": f"The neural network {record.name}, compiled to C by UMA."[:255],
        "keywords": ["neural network"],
        "frameworks": "*",
        "platforms": "*",
        "headers": f"{record.name}.h",
        "build": {"flags": flags[0]},
        "examples": [{"name": "run", "base": "examples/run", "files": ["platformio.ini", "src/main.cpp"]}],
    }
    both = {
        field: f"#ifdef ARDUINO\n{getattr(ARDUINO_SAY, field)}\n#else\n{getattr(PRINTF, field)}\n#endif"
        for field in ("text", "integer", "real")
    }
    entry = f"#ifdef ARDUINO\n{ARDUINO_ENTRY}#else\nint main(void)\n{{\n    return run_model();\n}}\n#endif"
    files: dict[str, str | bytes] = {
        "library.json": json.dumps(manifest, indent=2) + "\n",
        "README.md": readme(artifact, "a library for PlatformIO", _USE.format(name=record.name)),
        "examples/run/platformio.ini": _INI,
        "examples/run/src/main.cpp": program_text(record, _HEAD.format(name=record.name), Say(**both), entry),
        **{f"include/{header}": content for header, content in parts.headers.items()},
        **{f"src/{source}": content for source, content in parts.sources.items()},
    }
    write_files(folder, files)


EXPORTER = Exporter("platformio", "a library for PlatformIO", export)
