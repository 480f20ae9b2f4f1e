"""A module for Zephyr: ``zephyr/module.yml`` with a CMakeLists.txt and a Kconfig, and a sample.

As https://docs.zephyrproject.org/latest/develop/modules.html describes modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....contract.exporter import Exporter
from .package import firmware, readme, write_files
from .program import PRINTF, program_text

if TYPE_CHECKING:
    from ...artifact import Artifact

__all__ = ["EXPORTER", "flag_lines"]

_MODULE = """\
name: uma_{name}
build:
  cmake: zephyr
  kconfig: zephyr/Kconfig
samples:
  - samples
"""

_KCONFIG = """\
config {option}
\tbool "The neural network {name}"
\tdepends on !BIG_ENDIAN
\tselect REQUIRES_FULL_LIBC
\thelp
\t  Compiles the model {name}, which UMA made. It works in {arena} bytes
\t  of the caller, and has {weights} bytes of weights.
"""

_SAMPLE = """\
cmake_minimum_required(VERSION 3.20)
# The module is two folders above; west finds those of its manifest by itself.
list(APPEND ZEPHYR_EXTRA_MODULES ${CMAKE_CURRENT_SOURCE_DIR}/../..)
find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})
project(run LANGUAGES C)
target_sources(app PRIVATE src/main.c)
"""

_CONFIG = """\
CONFIG_{option}=y
CONFIG_REQUIRES_FLOAT_PRINTF=y
CONFIG_MAIN_STACK_SIZE=8192
"""

_SAMPLE_YAML = """\
sample:
  name: {name}
  description: Runs the model {name} once
common:
  tags: {name}
tests:
  sample.{name}:
    harness: console
    harness_config:
      type: one_line
      regex:
        - "{output}:"
"""

_USE = """\
A module for Zephyr. Name it in your manifest, or in the application's CMakeLists.txt, before `find_package(Zephyr)`:
`list(APPEND ZEPHYR_EXTRA_MODULES FOLDER)`. In `prj.conf` it is `CONFIG_{option}=y`; then include `{name}.h`.
`west build -b BOARD samples/run` builds the sample. The export was made without Zephyr's tools at hand.
"""


def export(artifact: Artifact, folder: Path) -> None:
    """Write the module.

    Raises:
        UsageError: the artifact is not a library of C for one machine.
    """
    record, parts = artifact.record, firmware(artifact)
    name, option = record.name, f"UMA_{record.name.upper()}"
    head = f"/* Runs the model {name} once, on zeros, and prints what it gives. */\n#include <stdio.h>\n"
    cmake = [
        f"if(CONFIG_{option})",
        "  zephyr_include_directories(${CMAKE_CURRENT_SOURCE_DIR}/../src)",
        f"  zephyr_library_named(uma_{name})",
        "  zephyr_library_sources(",
        *(f"    {_place(source)}" for source in parts.sources),
        "  )",
        *(f"  {line}" for line in flag_lines({_place(one): flags for one, flags in parts.flags.items()})),
        "endif()",
    ]
    sizes = {"arena": record.arena_bytes, "weights": record.constant_bytes}
    output = record.outputs[0].identifier if record.outputs else name
    files: dict[str, str | bytes] = {
        "zephyr/module.yml": _MODULE.format(name=name),
        "zephyr/Kconfig": _KCONFIG.format(name=name, option=option, **sizes),
        "zephyr/CMakeLists.txt": "".join(f"{line}\n" for line in cmake),
        "README.md": readme(artifact, "a module for Zephyr", _USE.format(name=name, option=option)),
        "samples/run/CMakeLists.txt": _SAMPLE,
        "samples/run/prj.conf": _CONFIG.format(option=option),
        "samples/run/sample.yaml": _SAMPLE_YAML.format(name=name, output=output),
        "samples/run/src/main.c": program_text(record, head, PRINTF, "int main(void)\n{\n    return run_model();\n}"),
        **{f"src/{one}": content for one, content in (parts.sources | parts.headers).items()},
    }
    write_files(folder, files)


def _place(source: str) -> str:
    return f"${{CMAKE_CURRENT_SOURCE_DIR}}/../src/{source}"


def flag_lines(flags: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Commands of CMake that give each source its flags.

    Args:
        flags: of each source, by its path.
    """
    for path, options in flags.items():
        if options:
            yield f'set_source_files_properties({path} PROPERTIES COMPILE_OPTIONS "{";".join(options)}")'


EXPORTER = Exporter("zephyr", "a module for Zephyr", export)
