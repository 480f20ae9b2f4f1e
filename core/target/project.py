"""Targets that a project names for itself: ``[tool.uma.targets]`` of the nearest pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import UsageError
from .kind import Alias
from .values import is_attribute_name, shown

__all__ = ["project_targets"]

_MAX_BYTES = 1 << 20


def project_targets(folder: Path | None = None) -> dict[str, Alias]:
    """The named targets of the project that ``folder`` (default: the current one) is in, in the order of the file.

    Raises:
        UsageError: the file cannot be read, is no TOML, or a name or target in it is malformed.
    """
    start = folder or Path.cwd()
    path = next((p for at in (start, *start.parents) if (p := at / "pyproject.toml").is_file()), None)
    if path is None:
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UsageError(f"{path} has more than {_MAX_BYTES} bytes")
        table: object = tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # what is wrong with TOML or with UTF-8 is a ValueError
        raise UsageError(f"{path} is no TOML: {error}") from error
    for name in ("tool", "uma", "targets"):
        table = table.get(name, {}) if isinstance(table, dict) else table
    place = f"in [tool.uma.targets] of {path}"
    if not isinstance(table, dict):
        raise UsageError(f"{place}: {shown(table)} is no table of targets", hint='write name = "c -opt=2"')
    found = {}
    for name, target in table.items():
        if not is_attribute_name(name):
            raise UsageError(f"{place}: {shown(name)} is no name of a target", hint="write it like my-board")
        if not isinstance(target, (str, dict, list)):
            raise UsageError(f"{place}: {name} is {shown(target)}, no target", hint="a text, a table or a list")
        found[name] = Alias(name, target, help=f"of {path.name}")
    return found
