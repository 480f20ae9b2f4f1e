"""The C libraries that models are linked with: finding them on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..contract.drivers import Library
from ..errors import PluginError, ToolchainError, UmaError
from ..support.machines import Machine
from .cache import Cache, default_folder, locked
from .compile import try_link
from .discovery import Compiler, find_compiler

__all__ = ["find_library", "require_library"]

_SUFFIXES = (".so", ".dylib", ".a")

_MADE = "libraries"
"""The folder in the cache that has what plugins made."""


def find_library(library: Library, compiler: Compiler | None = None) -> Path | None:
    """The file with which programs are linked that use ``library``; None where none has all its symbols.

    The folders of ``UMA_LIBRARY_PATH`` come first, in order, then those of the distribution that may bring it, then
    libraries that plugins made on this machine, then what the compiler searches by itself. A program that uses the
    library is linked to see that it can be.

    Args:
        library: what to find.
        compiler: by default the one that `find_compiler` gives.

    Raises:
        ToolchainError: there is no compiler, or it hung.
    """
    result = _search(library, compiler or find_compiler())
    return result if isinstance(result, Path) else None


def require_library(
    library: Library, compiler: Compiler, where: str, flags: Sequence[str] = (), machine: Machine | None = None
) -> Path:
    """As `find_library`, for a build that cannot do without: it is made where it is missing, if its plugin can.

    Args:
        library: what to find.
        compiler: what will link it.
        where: who needs it, for the error.
        flags: what the code is compiled with that uses it.
        machine: what that is for; None for this machine.

    Raises:
        ToolchainError: it is missing, cannot be made, or cannot be linked; names library, distribution and remedy.
        PluginError: the plugin is at fault that makes it.
    """
    # Start-up code is the firmware's, and what it needs besides.
    bare = ["-nostartfiles"] if machine is not None and machine.is_bare else []
    result = _search(library, compiler, [*flags, *bare])
    if not isinstance(result, Path) and library.make is not None:
        _make(library, library.make, where)
        result = _search(library, compiler, [*flags, *bare])
    if isinstance(result, Path):
        return result
    remedies = [f"pip install {library.package}"] if library.package else []
    remedies += ["install it with its development files", "name the folder that has it in UMA_LIBRARY_PATH"]
    raise ToolchainError(
        f"the C library {library.name!r} is missing or cannot be used\n{result}",
        where=where,
        hint="; or ".join(remedies),
    )


def _search(library: Library, compiler: Compiler, flags: Sequence[str] = ()) -> Path | str:
    """The file; or what the linker says instead."""
    declared = "".join(f"void {symbol}(void);\n" for symbol in library.symbols)
    used = ", ".join(["0", *library.symbols])
    # Not static: what nobody can see, a compiler may leave out.
    program = f"{declared}void (*const uma_used[])(void) = {{{used}}};\nint main(void) {{ return 0; }}\n"
    folders = [f"-L{folder}" for folder in _folders(library)]
    links, text = try_link(compiler, program, [*flags, *folders, f"-l{library.name}"])
    lines = text.splitlines()
    if not links:
        said = [line.strip()[:200] for line in lines if ": " in line]
        return "\n".join(f"    {line}" for line in said[:10])
    for line in lines:
        # Older linkers print "-lNAME (FILE)".
        file = Path(line.strip() if line.startswith(os.sep) else line.partition("(")[2].rpartition(")")[0])
        if file.is_absolute() and file.name.startswith(f"lib{library.name}."):
            return file.parent.resolve() / file.name
    return f"    {compiler.name} links it, and does not say which file it takes"


def _make(library: Library, make: Callable[[Path], None], where: str) -> None:
    """Have a plugin write a library, whole or not at all. Its folder stays if that fails, for the next attempt."""
    folder = _made_folder()
    name = f"lib{library.name}{'.dylib' if sys.platform == 'darwin' else '.so'}"
    partial = folder / f".partial-{library.name}"
    try:
        before = _stamp(folder / name)
        with locked(folder.with_name(f".{_MADE}-{library.name}.lock")):
            if _stamp(folder / name) != before:
                return  # another process has made it meanwhile
            partial.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                make(partial / name)
            except UmaError:
                raise
            except Exception as error:
                what = f"the C library {library.name!r} was not made: {type(error).__name__}: {error}"
                raise PluginError(what, where=where) from error
            if not (partial / name).is_file():
                raise PluginError(f"the C library {library.name!r} was not written where it should be", where=where)
            os.replace(partial / name, folder / name)
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise ToolchainError(
            f"cannot keep the C library {library.name!r}: {error.strerror}",
            where=str(folder),
            hint="make room there, or choose another folder with UMA_CACHE_DIR",
        ) from error


def _stamp(file: Path) -> tuple[int, int] | None:
    """Tells a file from one that replaces it; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _made_folder() -> Path:
    """Where libraries are that plugins made."""
    return Cache().folder / _MADE


def _folders(library: Library) -> Iterator[Path]:
    """Where to look before the compiler does."""
    for name in os.environ.get("UMA_LIBRARY_PATH", "").split(os.pathsep):
        if name:
            yield Path(name).absolute()
    yield from _packaged(library)
    if (default_folder() / _MADE).is_dir():  # a cache is made where there is use for it
        yield _made_folder()


def _packaged(library: Library) -> Iterator[Path]:
    """Folders of the distribution that may bring it."""
    if library.package is None:
        return
    from ..support import package_metadata  # takes 30 ms, and few models need it

    try:
        files = package_metadata.files(library.package) or []
    except package_metadata.PackageNotFoundError:
        return
    names = {f"lib{library.name}{suffix}" for suffix in _SUFFIXES}
    yield from dict.fromkeys(Path(str(file.locate())).absolute().parent for file in files if file.name in names)
