"""The CMakeLists.txt of an artifact: what its Makefile has, for projects that are built with CMake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...support.compiler_flags import native_flags
from ..record import ArtifactRecord, HostRecord
from .makefile import is_complete

__all__ = ["SourceLayout", "cmake_text", "languages", "library_lines"]


@dataclass(frozen=True)
class SourceLayout:
    """Where the files of an artifact are, for CMake.

    Args:
        folder: of sources and what these include that is not a header; empty or with a slash at its end.
        includes: what ``target_include_directories`` is told of the headers.
    """

    folder: str
    includes: str


_BESIDE = SourceLayout("", "PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}")


def cmake_text(record: ArtifactRecord) -> str:
    """The text of the CMakeLists.txt.

    It builds a static library, with the flags of the metadata but for those that name the CPU of the machine that
    compiles, where the compiler is gcc or clang; and, if it is the top of what is built, the example program. With
    ``-DNAME_HOST=LABEL`` it builds the library of another host, which is another machine.

    Args:
        record: of the artifact.
    """
    how, name = record.compile, record.name
    first, remote = how.hosts[0], how.remote_hosts
    lines = [
        "# Builds the model as a static library. In a project: add_subdirectory(FOLDER), then",
        f"# target_link_libraries(PROGRAM {name}). Alone it builds the example program as well, in a folder outside of",
        "# this one: cmake -S FOLDER -B BUILD. Another machine: -DCMAKE_TOOLCHAIN_FILE=..., as for any project.",
        "cmake_minimum_required(VERSION 3.13)",
        f"project({name} LANGUAGES {languages(record)})",
        "",
    ]
    if remote:
        labels = ", ".join(host.label for host in (first, *remote))
        lines.append(f'set({name}_HOST {first.label} CACHE STRING "What to build for: {labels}")')
        lines += [f"if({name}_HOST STREQUAL {first.label})", ""]
    lines += library_lines(record)
    if is_complete(record):
        lines += [
            "if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)",
            f"  add_executable({name}_example {how.example})",
            f"  target_link_libraries({name}_example PRIVATE {name})",
            "endif()",
        ]
    for host in remote:
        library = _target(record, f"{name}_on_{host.label}", "STATIC", host, host.objects, _BESIDE)
        lines += ["", f"elseif({name}_HOST STREQUAL {host.label})", "", *library]
    if remote:
        lines += ["", "else()", f'  message(FATAL_ERROR "{name}_HOST is not a host of the model")', "endif()"]
    return "".join(f"{line}\n" for line in lines)


def languages(record: ArtifactRecord) -> str:
    """What CMake must be able to compile."""
    assembled = any(source.endswith(".S") for host in record.compile.hosts for source in host.sources)
    return "C ASM" if assembled else "C"


def library_lines(record: ArtifactRecord, place: SourceLayout = _BESIDE) -> list[str]:
    """The library of all that runs on the machine of the first host.

    Args:
        record: of the artifact.
        place: where its files are.
    """
    how, name = record.compile, record.name
    first, *others = how.hosts
    near = [host for host in others if host not in how.remote_hosts]
    compiled = [host for host in near if host.sources]
    lines = []
    for host in compiled:
        lines += _target(record, f"{name}_on_{host.label}", "OBJECT", host, [], place)
    objects = [f"$<TARGET_OBJECTS:{name}_on_{host.label}>" for host in compiled]
    objects += [brought for host in (first, *near) for brought in host.objects]
    lines += _target(record, name, "STATIC", first, objects, place)
    libraries = " ".join(dict.fromkeys(f"-l{row.name}" for row in how.libraries))
    if libraries:
        lines.append(f"target_link_libraries({name} PUBLIC {libraries})")
    # By its flag, as a model may be called m, and would be what it links to.
    return [*lines, "if(UNIX)", f"  target_link_libraries({name} PUBLIC -lm)", "endif()"]


def _target(
    record: ArtifactRecord, target: str, kind: str, host: HostRecord, objects: Sequence[str], place: SourceLayout
) -> list[str]:
    """What compiles the sources of a host."""
    placed = [f"{place.folder}{name}" if name in record.files else name for name in (*host.sources, *objects)]
    lines = [
        f"add_library({target} {kind} {' '.join(placed)})",
        f"target_include_directories({target} {place.includes})",
        f"set_target_properties({target} PROPERTIES C_STANDARD 99)",
    ]
    if flags := _flags(host):
        lines += ["if(NOT MSVC)", f"  target_compile_options({target} PRIVATE {' '.join(flags)})", "endif()"]
    for brought in (one for one in objects if one in record.files):
        lines.append(
            f"set_source_files_properties({place.folder}{brought} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED FALSE)"
        )
    for source in host.sources:
        if source.endswith(".S"):
            # Flags for C mean nothing to an assembler, which clang says of each of them.
            quiet = f"set_source_files_properties({place.folder}{source} PROPERTIES "
            quiet += "COMPILE_OPTIONS -Wno-unused-command-line-argument"
            data = f"{source.removesuffix('.S')}.bin"
            if data in record.files:
                lines += [quiet, f"  OBJECT_DEPENDS ${{CMAKE_CURRENT_SOURCE_DIR}}/{place.folder}{data})"]
            else:
                lines.append(f"{quiet})")
    return lines


def _flags(host: HostRecord) -> list[str]:
    """The flags of a host, but for those that name the CPU that compiles; C99 is said in CMake's own way."""
    native = native_flags(host.flags)
    return [flag for flag in host.flags if flag not in native and not flag.startswith("-std=")]
