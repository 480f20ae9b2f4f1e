"""One family of errors, one class per exit code of the command line.

Every error says *what* is wrong, *where*, and *how to mend it*. The command line prints ``str(error)`` and
exits with ``error.exit_code``; nothing else is ever shown to a user.
"""

from __future__ import annotations

import re

__all__ = [
    "DeviceError",
    "InternalError",
    "ModelError",
    "NoCompilerError",
    "PluginError",
    "RequirementError",
    "TextError",
    "ToolchainError",
    "UmaError",
    "UnknownKindError",
    "UsageError",
    "VerificationError",
]


class UmaError(Exception):
    """Base of everything that UMA raises on purpose.

    Args:
        what: one sentence that names the fault and the offending value.
        where: the place, in the user's words: a file, a layer, a target attribute.
        hint: what to change, when that is known.
    """

    exit_code = 1
    json_fields = ("what", "where", "hint")

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class InternalError(UmaError):
    """A fault of UMA itself: an invariant of one of its forms does not hold."""

    exit_code = 1


class UsageError(UmaError):
    """The call or the command line is wrong: unknown option, target, attribute, path."""

    exit_code = 2


class UnknownKindError(UsageError):
    """No installed plugin has a target kind of this name.

    Args:
        kind: the name.
        shown: the name as an error prints it.
        hint: what to change.
    """

    def __init__(self, kind: str, shown: str, *, hint: str) -> None:
        super().__init__(f"there is no target kind {shown}", hint=hint)
        self.kind = kind


class ModelError(UmaError):
    """The model or an input is wrong: malformed file, unsupported op, ill-typed call, bad shape or dtype."""

    exit_code = 3


class TextError(ModelError):
    """A text form does not parse.

    Args:
        what: the fault.
        source: the whole text.
        line: line number, counted from 1.
        column: column number, counted from 1.
        name: what the text is called, for example a file name.
        hint: what to change, when that is known.
    """

    def __init__(
        self, what: str, *, source: str, line: int, column: int, name: str = "<text>", hint: str | None = None
    ) -> None:
        super().__init__(what, where=f"{name}:{line}:{column}", hint=hint)
        self.line = line
        self.column = column
        # As Python counts lines; str.splitlines knows more separators.
        lines = re.split(r"\r\n|\r|\n", source)
        self.excerpt = lines[line - 1] if 0 < line <= len(lines) else ""

    def __str__(self) -> str:
        # A line of a hostile file may be a megabyte long: show a window around the column.
        first = max(0, self.column - 60)
        window = self.excerpt[first : first + 120]
        caret = " " * (self.column - 1 - first) + "^"
        head, *rest = super().__str__().split("\n")
        return "\n".join([f"{self.where}: {head}", f"  {window}", f"  {caret}", *rest[1:]])


class RequirementError(UmaError):
    """A stated requirement is not met, for example ``--require-offload``."""

    exit_code = 4


class PluginError(UmaError):
    """A plugin is missing, incompatible or at fault."""

    exit_code = 5


class DeviceError(PluginError):
    """A device stopped a run, or could not be opened or closed.

    Args:
        what, where, hint: as of `UmaError`.
        device: its label.
        layers: the model's layers that were being computed; empty where it was none.
        code: the fault code, as the device's driver gave it; not 0.
    """

    def __init__(
        self,
        what: str,
        *,
        device: str,
        layers: tuple[str, ...],
        code: int,
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.device = device
        self.layers = layers
        self.code = code


class ToolchainError(UmaError):
    """The C compiler is missing or failed."""

    exit_code = 6


class NoCompilerError(ToolchainError):
    """This machine has no C compiler, and nobody asked for a certain one."""


class VerificationError(UmaError):
    """A compiled model differs from its reference."""

    exit_code = 7
