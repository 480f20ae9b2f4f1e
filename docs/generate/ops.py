"""The operators of relay."""

from __future__ import annotations

import re
from typing import Any

from uma.relay import Attr, Op, registered_ops
from uma.relay.op import MISSING

from .docstrings import Docstring, inline, text
from .markdown import code, escaped, heading, link, table
from .names import Names, module_source

__all__ = ["first_sentence", "page", "section"]

_FAMILIES = (
    ("Tensors", lambda name: "." not in name),
    ("Neural networks, floating point", lambda name: name.startswith("nn.")),
    ("Quantised", lambda name: name.startswith("qnn.")),
)


def page(names: Names) -> str:
    """``ops``."""
    ops = registered_ops()
    _, kinds = module_source("uma.relay.op")["Kind"]
    parts = [
        heading(1, "Operators"),
        "Every operator of the graph form. A plugin may bring others; these are on [its page](plugins/index.md).\n",
        "Attributes are keywords. The *neutral value* of one does nothing and is the default; a pattern that does not "
        "name the attribute takes no other. One without a neutral value must be named by every pattern. What is "
        "quantised stands for `scale * (stored - zero_point)`; how a scale is applied and rounded is data: see "
        f"{names.link('FixedPoint')} and {names.link('FloatScale')}.\n",
        text(kinds, names.link),
    ]
    for title, has in _FAMILIES:
        found = [op for op in ops.values() if has(op.name)]
        rows = [(link(code(op.name), _anchor(op.name)), inline(first_sentence(op.doc), names.link)) for op in found]
        parts += [heading(2, title), table(("op", "what it computes"), rows)]
        parts += [section(op, names) for op in found]
    return "\n".join(parts)


def _anchor(name: str) -> str:
    return f"op-{name}"


def first_sentence(doc: str) -> str:
    """What an op computes, from its documentation."""
    return re.split(r"(?<!\.)\. (?=[A-Z])|; ", doc)[0].rstrip(".")


def section(op: Op, names: Names, level: int = 3) -> str:
    """All that there is to say of an op."""
    relation = Docstring.of(op.infer)
    said = [f"*kind* {code(op.kind)}"]
    if op.commutative:
        said.append("the operands may change places")
    if op.macs is not None:
        said.append("multiply-accumulates are counted")
    if op.value_range is not None:
        said.append("integer bounds are derived")
    inputs = ", ".join("any number of tensors" if name == "*data" else code(name) for name in op.inputs)
    return "\n".join(
        [
            heading(level, code(op.name), _anchor(op.name)),
            text(op.doc, names.link),
            f"- *operands* {inputs}",
            *([f"- *type* {inline(' '.join(relation.summary.split()), names.link)}"] if relation.summary else []),
            f"- {'; '.join(said)}\n",
            table(("attribute", "type", "neutral", "default", "meaning"), [_row(attr, names) for attr in op.attrs]),
        ]
    )


def _row(attr: Attr, names: Names) -> tuple[str, ...]:
    def shown(value: Any) -> str:
        return "" if value is MISSING else code(repr(value))

    needed = "must be given" if attr.default is MISSING else shown(attr.default)
    meaning = inline(attr.doc, names.link)
    return code(attr.name), escaped(attr.type.name), shown(attr.neutral) or "none", needed, meaning
