"""The C files that a plugin's package holds."""

from __future__ import annotations

from ..errors import PluginError

__all__ = ["c_sources"]


def c_sources(package: str | None, *names: str, folder: str = "csrc") -> dict[str, str]:
    """C files of a package by name, as `Runtime`, `Implementation` and `TargetCode` take them.

    Args:
        package: of the plugin, imported: ``__package__``, in its ``__init__``.
        names: of files in it.
        folder: the one below the package that has them.

    Raises:
        PluginError: the file is missing, usually in the wheel, or it is not text; or the module is
            in no package.
    """
    from importlib.resources import files

    if package is None:
        raise PluginError(f"c_sources is asked for {', '.join(names)} of no package", hint="call it in a package")
    sources: dict[str, str] = {}
    for name in names:
        try:
            sources[name] = (files(package) / folder / name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            hint = "do the settings of the wheel take it along? see [tool.hatch.build.targets.wheel] of pyproject.toml"
            what = f"package {package!r} has no C file {folder}/{name}: {getattr(error, 'strerror', None) or error}"
            raise PluginError(what, hint=hint) from error
    return sources
