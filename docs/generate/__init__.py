"""Makes the documentation's site from the pages of docs/ and from the code.

What can be looked up (hooks, records, operators, targets, commands, messages, declarations of C, names of Python) is
said once, where it is declared, and collected here. It is made anew by ``make docs``, and by the tests, which see that
nothing is missing. Kept in the repository, for those who read it there, are the drawings and the tables of supported
operators and platforms: ``python -m docs.generate --committed`` writes them, and a test compares them.
"""

from __future__ import annotations

from . import api, cli, contract, errors, headers, ops, options, plugins, record
from .markdown import heading
from .names import Names

__all__ = ["reference"]

_CHAPTERS = (
    ("ops", "every operator: operands, attributes, what it computes"),
    ("plugins/index", "what each plugin takes, with the conditions; its passes, devices, faults"),
    ("targets", "target kinds and their attributes"),
    ("cli", "commands and options"),
    ("options", "the options of a build: in Python, on the command line, in a project"),
    ("errors", "the classes of errors and their exit codes"),
    ("messages", "what errors say, and what to do"),
    ("c", "the C interface of artifacts, devices and drivers"),
    ("metadata", "the fields of an artifact's `metadata.json`"),
    ("hooks", "what a plugin may implement, each with an example that works"),
    ("records", "what hooks take and give"),
    ("phases", "where passes run, and what holds there"),
    ("api/index", "the public modules of Python"),
)


def reference() -> dict[str, str]:
    """The pages of the reference as Markdown, by their paths below ``reference/`` without suffix."""
    names = Names()
    made = {"ops": ops.page(names), "cli": cli.page(), "options": options.page()}
    made |= {"c": headers.page(), "metadata": record.page()}
    for part in (contract, plugins, errors, api):
        made |= part.pages(names)
    about = "The reference is made from the code: it says what this version of UMA does.\n"
    lines = [f"- [{_title(made[page])}]({page}.md): {what}" for page, what in _CHAPTERS]
    made["index"] = "\n".join([heading(1, "Reference"), about, *lines, ""])
    return made


def _title(page: str) -> str:
    return next(line for line in page.splitlines() if line.startswith("# ")).removeprefix("# ")
