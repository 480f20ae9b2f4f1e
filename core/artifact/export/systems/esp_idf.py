"""A component for ESP-IDF: a CMakeLists.txt that registers it, its manifest, and an example that is a project.

As https://docs.espressif.com/projects/esp-idf/en/stable/esp32/api-guides/build-system.html and the reference of
``idf_component.yml`` describe components.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....contract.exporter import Exporter
from .package import VERSION, firmware, readme, write_files
from .program import PRINTF, program_text
from .zephyr import flag_lines

if TYPE_CHECKING:
    from ...artifact import Artifact

__all__ = ["EXPORTER"]

_MANIFEST = """\
version: "{version}"
description: The neural network {name}, compiled to C by UMA
dependencies:
  idf: ">=5.0"
"""

_PROJECT = """\
cmake_minimum_required(VERSION 3.16)
# The component is two folders above; in a project of yours it is in the folder components.
set(EXTRA_COMPONENT_DIRS ${CMAKE_CURRENT_LIST_DIR}/../..)
include($ENV{IDF_PATH}/tools/cmake/project.cmake)
project(run)
"""

_ENTRY = """\
void app_main(void)
{
    (void)run_model();
}
"""

_USE = """\
A component for ESP-IDF 5. Put this folder into the folder `components` of a project, or name it in the project's
`EXTRA_COMPONENT_DIRS`, and include `{name}.h`. `idf.py -C examples/run build` builds the example. The export was made
without the tools of ESP-IDF at hand.
"""


def export(artifact: Artifact, folder: Path) -> None:
    """Write the component.

    Raises:
        UsageError: the artifact is not a library of C for one machine.
    """
    record, parts = artifact.record, firmware(artifact)
    head = f"/* Runs the model {record.name} once, on zeros, and prints what it gives. */\n#include <stdio.h>\n"
    cmake = [
        "idf_component_register(",
        "  SRCS",
        *(f"    src/{source}" for source in parts.sources),
        "  INCLUDE_DIRS include",
        ")",
        *flag_lines({f"src/{source}": flags for source, flags in parts.flags.items()}),
    ]
    files: dict[str, str | bytes] = {
        "CMakeLists.txt": "".join(f"{line}\n" for line in cmake),
        "idf_component.yml": _MANIFEST.format(version=VERSION, name=record.name),
        "README.md": readme(artifact, "a component for ESP-IDF", _USE.format(name=record.name)),
        "examples/run/CMakeLists.txt": _PROJECT,
        "examples/run/main/CMakeLists.txt": "idf_component_register(SRCS main.c)\n",
        "examples/run/main/main.c": program_text(record, head, PRINTF, _ENTRY),
        **{f"include/{header}": content for header, content in parts.headers.items()},
        **{f"src/{source}": content for source, content in parts.sources.items()},
    }
    write_files(folder, files)


EXPORTER = Exporter("esp-idf", "a component for ESP-IDF", export)
