"""The public Python modules."""

from __future__ import annotations

import importlib

from .docstrings import Docstring, inline, text
from .markdown import code, heading, table
from .members import doc_of, reference, render, summary
from .names import Names

__all__ = ["pages"]


def pages(names: Names) -> dict[str, str]:
    """``api/index``, and a page for each module."""
    made = {f"api/{module}": _page(module, names) for module in names.modules}
    docs = {module: Docstring.of(importlib.import_module(module)) for module in names.modules}
    rows = [(f"[{code(module)}]({module}.md)", inline(doc.summary, names.link)) for module, doc in docs.items()]
    made["api/index"] = "\n".join(
        [
            heading(1, "Python modules"),
            "What the modules of `uma` list in their `__all__`: this is the public face, and plugins use nothing else. "
            "Applications need `uma` and `uma.errors`, plugins `uma.hookspecs`, `uma.target`, `uma.relay`, "
            "`uma.relay.pattern` and `uma.tir`. The others are the compiler's own parts, for those who work on it.\n",
            table(("module", "what is in it"), rows),
        ]
    )
    return made


def _page(module: str, names: Names) -> str:
    found = names.of(module)
    here = [home for home in found if home.page == f"api/{module}" and home.module == module]
    rows = [(reference(home, names), summary(home, names)) for home in found]
    doc = Docstring.parsed(doc_of(module))
    return "\n".join(
        [
            heading(1, code(module)),
            text(doc.summary, lambda name: names.link(name, module)),
            text(doc.body, lambda name: names.link(name, module)),
            table(("name", "what it is"), rows),
            *(render(home, names) for home in here),
        ]
    )
