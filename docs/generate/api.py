"""The public Python modules."""

from __future__ import annotations

import importlib

from .docstrings import Docstring, first_sentence, inline, text
from .markdown import code, heading, table
from .members import doc_of, reference, render, summary
from .names import Names

__all__ = ["pages"]


def pages(names: Names) -> dict[str, str]:
    """Return ``api/index``, ``api/names``, and a page for each module."""
    made = {f"api/{module}": _page(module, names) for module in names.modules}
    made["api/names"] = _all_names(names)
    docs = {module: Docstring.of(importlib.import_module(module)) for module in names.modules}
    rows = [(f"[{code(module)}]({module}.md)", inline(doc.summary, names.link)) for module, doc in docs.items()]
    made["api/index"] = "\n".join(
        [
            heading(1, "Python modules"),
            "What the modules of `uma` list in their `__all__`: this is the public face, and plugins use nothing else. "
            "Applications need `uma` and `uma.errors`, plugins `uma.hookspecs`, `uma.targets`, `uma.relay`, "
            "`uma.relay.pattern` and `uma.tir`. The others are the compiler's own parts, for those who work on it.\n",
            "[Every public name](names.md) is listed on one page.\n",
            table(("module", "what is in it"), rows),
        ]
    )
    return made


def _all_names(names: Names) -> str:
    """Return the page that lists every name of every public ``__all__`` with the first sentence of its docstring."""
    parts = [heading(1, "Public names"), "Every name that a public module lists in its `__all__`, by module.\n"]
    for module in names.modules:
        rows = [(reference(home, names), first_sentence(summary(home, names))) for home in names.of(module)]
        parts += [heading(2, f"[{code(module)}]({module}.md)"), table(("name", "summary"), rows)]
    return "\n".join(parts)


def _page(module: str, names: Names) -> str:
    homes = names.of(module)
    here = [home for home in homes if home.page == f"api/{module}" and home.module == module]
    rows = [(reference(home, names), summary(home, names)) for home in homes]
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
