"""The options of a build, from the fields of `uma.options.BuildOptions`."""

from __future__ import annotations

import dataclasses

from uma.options import BuildOptions
from uma.support.project_file import SETTINGS

from .docstrings import Docstring, inline
from .markdown import code, heading, table

__all__ = ["page"]


def page() -> str:
    """Return the page ``options``."""
    meanings = Docstring.of(BuildOptions).entries("Args")
    rows = []
    for field in dataclasses.fields(BuildOptions):
        flag, name, commands = field.metadata["flag"], field.name.replace("_", "-"), field.metadata["commands"]
        value = "" if flag is None else " " + (flag.metavar or "|".join(flag.choices))
        rows.append(
            (
                code(field.name),
                "" if flag is None else code(f"--{flag.spelling or name}{value}"),
                code(name) if name in SETTINGS else "",
                ", ".join(map(code, commands)),
                inline(meanings[field.name], lambda name: None),
            )
        )
    about = (
        "Each option is a keyword of the functions of Python and a flag of the commands in which it has an effect; in "
        "others it is an error. Some may be set for a project, in `[tool.uma]` of its `pyproject.toml`.\n"
    )
    head = ("Python", "command line", "`[tool.uma]`", "commands", "meaning")
    return "\n".join([heading(1, "Options of a build"), about, table(head, rows)])
