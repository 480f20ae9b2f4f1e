"""What the parts of a plugin are called: one word of the author's, and the rule that makes the rest of it."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec

from ..errors import UsageError

__all__ = ["LONGEST", "RULE", "Names"]

LONGEST = 20
"""Letters of the longest name: more, and lines of the files that are written would be too long."""

RULE = (
    "a name is that of a vendor or chip: lower-case letters, digits and single - or _ between them, from a letter on, "
    f"2 to {LONGEST} in all, such as acme_npu. NAME makes the distribution uma-NAME (with -), the package uma_NAME "
    "(with _), the target kind NAME, and what C names begin with: NAME_, and in macros NAME_ in capitals"
)

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")

_C = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
alignas alignof and asm bitand bitor bool catch class compl complex constexpr decltype delete explicit export false
friend imaginary main mutable namespace new noexcept noreturn not nullptr operator or private protected public
template this throw true try typeid typename using virtual wchar_t xor stdint string memory device
"""
"""Words of C99, then those of C11, of C++, and of the headers that the files include."""


@dataclass(frozen=True)
class Names:
    """What the parts of a plugin are called.

    Args:
        kind: the target kind, what the C names begin with, and in capitals what the C macros begin with.
    """

    kind: str

    @staticmethod
    def from_text(text: str, *, kinds: Collection[str] = (), commands: Collection[str] = ()) -> Names:
        """Those that follow from what an author writes: a name, with or without ``uma-`` before it.

        Args:
            text: the name.
            kinds: that there are already.
            commands: of the command line: ``uma KIND`` is to call the plugin's own.

        Raises:
            UsageError: it is not a name, or one that is taken; the hint says which names work.
        """
        name = re.sub(r"^uma[-_]", "", text)
        if not _NAME.fullmatch(name) or not 2 <= len(name) <= LONGEST:
            raise _refused(text, "is not a name of a plugin", _close_to(name))
        kind = name.replace("-", "_")
        names = Names(kind)
        if keyword.iskeyword(kind) or keyword.issoftkeyword(kind) or hasattr(builtins, kind):
            raise _refused(text, "is a word of Python", f"{kind}_npu")
        if kind in _C.split():
            raise _refused(text, "is a word of C", f"{kind}_npu")
        if kind == "uma" or kind in commands or kind.replace("_", "-") in commands:
            raise _refused(text, "is a command of uma", f"{kind}_npu")
        if kind in ("core", "composite", "my_npu"):
            raise _refused(text, "is UMA's own", f"{kind}_npu" if kind != "my_npu" else "acme_npu")
        if kind in kinds:
            raise _refused(text, "is a target kind of an installed plugin already", f"{kind}_2")
        if find_spec(names.package) is not None:
            raise _refused(text, f"is taken: there is a package {names.package} already", f"{kind}_2")
        return names

    @property
    def distribution(self) -> str:
        """What pip installs."""
        return f"uma-{self.dashed}"

    @property
    def package(self) -> str:
        """What Python imports."""
        return f"uma_{self.kind}"

    @property
    def dashed(self) -> str:
        """The kind as distributions write it."""
        return self.kind.replace("_", "-")

    def put(self, text: str) -> str:
        """A text about ``my_npu`` as one about this."""
        text = text.replace("my-npu", self.dashed).replace("MY_NPU", self.kind.upper())
        return text.replace("my_npu", self.kind)


def _refused(text: str, why: str, better: str) -> UsageError:
    return UsageError(f"{text!r:.80} {why}", hint=f"{better} would do; {RULE}")


def _close_to(name: str) -> str:
    """A name like that which is one."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower())
    close = "_".join(words).lstrip("0123456789_")[:LONGEST].rstrip("_")
    return close if len(close) > 1 else f"{close or 'acme'}_npu"
