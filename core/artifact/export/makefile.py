"""The Makefile of an artifact: libraries of what its hosts run, and the example program."""

from __future__ import annotations

from collections.abc import Sequence

from ...support.compiler_flags import native_flags
from ..record import ArtifactRecord, HostRecord

__all__ = ["included_files", "is_complete", "makefile_products", "makefile_text"]


def makefile_text(record: ArtifactRecord) -> str:
    """The text of the Makefile.

    It builds a static library, with the flags of the metadata but for those that name the CPU of the machine that
    compiles, and the example program, where an image of it needs nothing besides; and a library for each host that is
    another machine than the first.

    Args:
        record: of the artifact, with its files.
    """
    how, name = record.compile, record.name
    first, *others = how.hosts
    libraries = _libraries(record)
    program, example = f"{name}_example", how.example
    compiled = [*(source for host in how.hosts for source in host.sources), example]
    linked = " ".join(f"-l{row}" for row in (*dict.fromkeys(row.name for row in how.libraries), "m"))
    products = [*libraries]
    if is_complete(record):
        products.append(program)
    settings = [(f"{source}.o", line) for host in others for source in host.sources for line in _settings(host)]
    settings += [(f"lib{name}_on_{host.label}.a", line) for host in how.remote_hosts for line in _settings(host)]
    lines = [
        "# Builds the model and its example program. For another machine: make CC=... CFLAGS=... LDFLAGS=...",
        *_settings(first),
        f"LDLIBS = {linked}",
        f"INCLUDED = {' '.join(included_files(record))}",
        "",
        f"all: {' '.join(products)}",
        "",
        *(line for library, names in libraries.items() for line in _archive(library, names)),
        f"{program}: {example}.o lib{name}.a",
        f"\t$(CC) $(LDFLAGS) -o $@ {example}.o lib{name}.a $(LDLIBS)",
        "",
        *(line for source in compiled for line in _object(source)),
        *(f"{target}: {line}" for target, line in settings),
        "clean:",
        f"\trm -f {' '.join(makefile_products(record))}",
        "",
        ".PHONY: all clean",
    ]
    return "".join(f"{line}\n" for line in lines)


def is_complete(record: ArtifactRecord) -> bool:
    """Whether a program of the model needs nothing besides: start-up code, and what has another machine run something,
    is the firmware's."""
    machine = record.compile.hosts[0].own_machine
    return not record.compile.remote_hosts and (machine is None or not machine.is_bare)


def included_files(record: ArtifactRecord) -> list[str]:
    """The files that sources include: headers, and the weights as bytes."""
    how = record.compile
    sources = [name for host in how.hosts for name in (*host.sources, *host.objects)]
    apart = {*sources, *how.profile, how.example, how.library_entry, "CMakeLists.txt", "Makefile"}
    return sorted(set(record.files) - apart)


def makefile_products(record: ArtifactRecord) -> list[str]:
    """The names of the files that the Makefile makes."""
    libraries = _libraries(record)
    brought = {name for host in record.compile.hosts for name in host.objects}
    objects = [name for names in libraries.values() for name in names if name not in brought]
    objects.append(f"{record.compile.example}.o")
    return [*libraries, f"{record.name}_example", *objects]


def _libraries(record: ArtifactRecord) -> dict[str, list[str]]:
    """Each library, and the objects that it consists of."""
    how, name = record.compile, record.name
    near = [host for host in how.hosts if host not in how.remote_hosts]
    return {f"lib{name}.a": _objects(near)} | {
        f"lib{name}_on_{host.label}.a": _objects([host]) for host in how.remote_hosts
    }


def _objects(hosts: Sequence[HostRecord]) -> list[str]:
    return [*(f"{s}.o" for host in hosts for s in host.sources), *(name for host in hosts for name in host.objects)]


def _archive(library: str, objects: Sequence[str]) -> list[str]:
    return [f"{library}: {' '.join(objects)}", f"\t$(AR) rcs $@ {' '.join(objects)}", ""]


def _object(source: str) -> list[str]:
    # Flags for C mean nothing to an assembler, which clang says of each of them.
    quiet = " -Wno-unused-command-line-argument" if source.endswith(".S") else ""
    return [f"{source}.o: {source} $(INCLUDED)", f"\t$(CC) $(CPPFLAGS) $(CFLAGS){quiet} -c {source} -o $@", ""]


def _settings(host: HostRecord) -> list[str]:
    """The lines that choose the tools of a host, where there are any to choose, and the flags."""
    name, machine, target_flag = host.compiler, host.own_machine, ""
    if machine is not None:
        name = name or f"{machine.triple}-gcc"
        target_flag = f" --target={machine.triple}" if name.startswith("clang") else ""
    lines = [f"CC = {name}{target_flag}"] if name not in (None, "ziglang") else []
    if name is not None and (prefix := name.rpartition("-gcc")[0]):
        lines.append(f"AR = {prefix}-ar")
    native = native_flags(host.flags)
    return [*lines, f"CFLAGS = {' '.join(flag for flag in host.flags if flag not in native)}"]
