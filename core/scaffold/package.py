"""Chooses the files of a new package, fills them in, and writes them: all of them, or none."""

from __future__ import annotations

import secrets
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from ..errors import UsageError
from ..hookspecs import PLUGIN_API_VERSION
from ..version import __version__
from .names import Names

__all__ = ["DTYPES", "LOWERINGS", "NewPackage", "new_package"]

LOWERINGS = ("loops", "stream", "library")
"""How an accelerator's layers become C."""

DTYPES = ("int8", "float32")
"""Of what it computes."""

_TEMPLATE = Path(__file__).with_name("template")


@dataclass(frozen=True)
class _Form:
    """What one lowering of one dtype is written from.

    Args:
        folders: of ``template/``; of files of one name that of the last one counts.
        what: the accelerator in a few words.
        needs: distributions besides the core and the host.
    """

    folders: tuple[str, ...]
    what: str
    needs: tuple[str, ...] = ()


_FORMS: Mapping[tuple[str, str], _Form] = {
    ("loops", "int8"): _Form(
        ("common", "loops-int8"), "an int8 multiply-accumulate array with a simulator in C", ("numpy>=1.26",)
    ),
    ("stream", "int8"): _Form(
        ("common", "stream-int8"), "executes commands from memory, for int8 layers", ("numpy>=1.26",)
    ),
    ("loops", "float32"): _Form(
        ("common", "float32", "loops-float32"),
        "a float32 multiply-accumulate array with a simulator in C",
        ("numpy>=1.26",),
    ),
    ("stream", "float32"): _Form(
        ("common", "float32", "stream-float32"), "executes commands from memory, for float32 layers", ("numpy>=1.26",)
    ),
    ("library", "float32"): _Form(
        ("common", "float32", "library-float32"), "float32 layers by calls of a library in C", ("numpy>=1.26",)
    ),
    ("library", "int8"): _Form(("common", "library-int8"), "int8 layers by calls of a library in C", ("numpy>=1.26",)),
}


@dataclass(frozen=True)
class NewPackage:
    """A package that is not written yet.

    Args:
        names: what its parts are called.
        files: their content, by path from the package's folder.
    """

    names: Names
    files: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write it: whole, or not at all.

        Args:
            folder: its own. There is none yet, or it is empty.

        Raises:
            UsageError: there is something in the folder, or it cannot be written.
        """
        where = str(folder)
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise UsageError("what is there is no folder", where=where, hint="remove it, or name another with -o")
        if folder.is_dir() and any(folder.iterdir()):
            hint = "nothing is overwritten: name another folder with -o, or another plugin"
            raise UsageError("the folder is not empty", where=where, hint=hint)
        staged = folder.parent / f".uma-{secrets.token_hex(8)}"
        try:
            for path, text in self.files.items():
                (staged / path).parent.mkdir(parents=True, exist_ok=True)
                (staged / path).write_text(text, encoding="utf-8", newline="\n")
            staged.rename(folder)  # in the place of an empty one, too
        except OSError as error:
            raise UsageError(f"cannot write the package: {error.strerror}", where=where) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def new_package(
    names: Names, lowering: str, dtype: str, *, host: str, host_distribution: tuple[str, str]
) -> NewPackage:
    """The package of an accelerator to begin with.

    Args:
        names: what its parts are called.
        lowering: one of `LOWERINGS`.
        dtype: of what it computes, one of `DTYPES`.
        host: the kind of the host that it stands beside where the user names none.
        host_distribution: which distribution serves that, and in which version.

    Raises:
        UsageError: there is no such form.
    """
    form = _FORMS.get((lowering, dtype))
    if form is None:
        there = ", ".join(f"--lowering {one} --dtype {number_type}" for one, number_type in _FORMS)
        raise UsageError(f"there is no template for --lowering {lowering} --dtype {dtype}", hint=f"there is {there}")
    core = ("uma-core", __version__)
    needs = [*(f"{name}{_compatible(version)}" for name, version in (core, host_distribution)), *form.needs]
    values = {
        "API": ", ".join(map(str, PLUGIN_API_VERSION)),
        "API_TEXT": ".".join(map(str, PLUGIN_API_VERSION)),
        "CORE": _compatible(__version__),
        "DEPENDENCIES": ", ".join(f'"{need}"' for need in needs),
        "DEVICE_TYPE": "cpu" if lowering == "library" else "npu",
        "DESCRIPTION": f"For UMA: target kind `my_npu`, {form.what}",
        "HOST": host,
        "ID": f"0x{zlib.crc32(names.kind.encode()):08X}u",
    }
    files: dict[str, str] = {}
    for folder in form.folders:
        root = _TEMPLATE / folder
        for source in sorted(root.rglob("*.in")):
            text = source.read_text(encoding="utf-8")
            for name, value in values.items():
                text = text.replace(f"@{name}@", value)
            files[_path_of(source.relative_to(root), names)] = names.put(text)
    return NewPackage(names, dict(sorted(files.items())))


def _path_of(source: Path, names: Names) -> str:
    """Where a file of a template belongs: ``package/`` is the package's folder, ``dot-`` begins hidden names."""
    parts = [f".{part[4:]}" if part.startswith("dot-") else part for part in source.parts]
    parts[-1] = parts[-1].removesuffix(".in")
    if parts[0] == "package":
        parts[:1] = ["src", names.package]
    return names.put("/".join(parts))


def _compatible(version: str) -> str:
    """What a distribution asks for that was written against a version: before 1.0 a minor version may break."""
    major, minor = (*Version(version).release, 0)[:2]
    return f">={major}.{minor},<{f'0.{minor + 1}' if major == 0 else major + 1}"
