"""A package for CMake: a library to be built, installed and found by ``find_package``, and programs that use it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....contract.exporter import Exporter
from ..cmake import SourceLayout, languages, library_lines
from ..makefile import included_files
from .package import VERSION, headers, needs_hand, one_machine, readme, write_files
from .program import PRINTF, program_text

if TYPE_CHECKING:
    from ...artifact import Artifact

__all__ = ["EXPORTER"]

_INSTALL = """\

include(CMakePackageConfigHelpers)
set(config ${{CMAKE_INSTALL_LIBDIR}}/cmake/{name})
set(version ${{CMAKE_CURRENT_BINARY_DIR}}/{name}ConfigVersion.cmake)
add_library({name}::{name} ALIAS {name})
install(TARGETS {name} EXPORT {name} ARCHIVE DESTINATION ${{CMAKE_INSTALL_LIBDIR}})
install(DIRECTORY include/{name} DESTINATION ${{CMAKE_INSTALL_INCLUDEDIR}})
install(EXPORT {name} NAMESPACE {name}:: FILE {name}Config.cmake DESTINATION ${{config}})
write_basic_package_version_file(${{version}} COMPATIBILITY SameMajorVersion)
install(FILES ${{version}} DESTINATION ${{config}})
"""

_USE = """\
A package for CMake, of a static library. Build and install it:

```sh
cmake -S . -B build -DCMAKE_INSTALL_PREFIX=PREFIX
cmake --build build --target install
```

In a project with `CMAKE_PREFIX_PATH=PREFIX`, in C or C++: `find_package({name} CONFIG REQUIRED)` and
`target_link_libraries(PROGRAM {name}::{name})`. Or without installing it: `add_subdirectory(FOLDER)`, and the same
target. For another machine add `-DCMAKE_TOOLCHAIN_FILE=...`, as for any project. `examples` is a project that finds it.
"""


def export(artifact: Artifact, folder: Path) -> None:
    """Write the package.

    Raises:
        UsageError: several machines run the model.
    """
    one_machine(artifact)
    record = artifact.record
    how, name = record.compile, record.name
    include = f"include/{name}"
    headed = (
        f"{scope}_INTERFACE:{path}>"
        for scope, path in (
            ("$<BUILD", f"${{CMAKE_CURRENT_SOURCE_DIR}}/{include}"),
            ("$<INSTALL", f"${{CMAKE_INSTALL_INCLUDEDIR}}/{name}"),
        )
    )
    place = SourceLayout("src/", f"PUBLIC {' '.join(headed)} PRIVATE src")
    text = [
        "cmake_minimum_required(VERSION 3.15)",
        f"project({name} VERSION {VERSION} LANGUAGES {languages(record)})",
        "include(GNUInstallDirs)",
        "",
        *library_lines(record, place),
    ]
    programs = {"main.c": artifact.files[how.example]}
    if needs_hand(artifact) is None:
        head = f"// Runs the model {name} once, on zeros, and prints what it gives.\n#include <stdio.h>\n"
        programs["main.cpp"] = program_text(record, head, PRINTF, "int main()\n{\n    return run_model();\n}").encode()
    examples = [
        "cmake_minimum_required(VERSION 3.15)",
        f"project({name}_examples LANGUAGES C{' CXX' * ('main.cpp' in programs)})",
        "set(CMAKE_CXX_STANDARD 11)",
        f"find_package({name} CONFIG REQUIRED)",
    ]
    for source in programs:
        program = f"{name}_{source.partition('.')[2]}"
        examples += [f"add_executable({program} {source})", f"target_link_libraries({program} PRIVATE {name}::{name})"]
    public = headers(artifact)
    sources = [one for host in how.hosts for one in (*host.sources, *host.objects)]
    sources += [one for one in included_files(record) if not one.endswith(".h")]
    write_files(
        folder,
        {
            "CMakeLists.txt": "".join(f"{line}\n" for line in text) + _INSTALL.format(name=name),
            "README.md": readme(artifact, "a package for CMake", _USE.format(name=name)),
            "examples/CMakeLists.txt": "".join(f"{line}\n" for line in examples),
            **{f"examples/{one}": content for one, content in programs.items()},
            **{f"{include}/{one}": content for one, content in public.items()},
            **{f"src/{one}": artifact.files[one] for one in sources},
        },
    )


EXPORTER = Exporter("cmake", "a package for CMake: find_package, in C and C++", export)
