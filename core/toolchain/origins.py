"""The plugins behind the C of a model, so that the error of a compiler or linker names the plugin at fault."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ..errors import PluginError, ToolchainError
from ..plugins.entry import PluginEntry
from .compile import CompilationError
from .elf import definitions
from .subprocesses import excerpt

__all__ = ["NO_ORIGINS", "Origins", "PluginCodeError", "enclosing_function", "words_of"]

_PLACE = re.compile(r"^(?:\./)?([\w.+-]+):(\d+)(?::\d+)?: ", re.MULTILINE)
_ERROR = re.compile(r"^(?:\./)?[\w.+-]+:\d+(?::\d+)?: (?:fatal )?error: ", re.MULTILINE)
_MISSING_FILE = re.compile(r"(?:'[^']+' file not found|: No such file or directory)\s*$")
_UNDEFINED = re.compile(
    r"undefined reference to [`']([^'@]+)'"  # GNU ld
    r"|(?:undefined symbol|Symbol not found): '?(\w+)"  # lld, dlopen, dyld
    r"|symbol not found in flat namespace '(\w+)'"  # dyld
    r'|^\s*"(\w+)", referenced from:',  # ld64
    re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_PLACEHOLDER = re.compile(r"\{\w+\}")
_HEAD = re.compile(r"(?!#|return\b|typedef\b)[A-Za-z_][\w\s*]*?\b(\w+)\s*\(")
_KERNEL = re.compile(r"_k\d*_")
"""Before the name of a kernel in that of its function, see `codegen.units`."""
_MACRO = re.compile(r"\s*#\s*define\s+(\w+)")


class PluginCodeError(PluginError):
    """C of a plugin does not compile, link or load."""


@dataclass(frozen=True)
class Origins:
    """What plugins bring of the C of one model.

    Args:
        files: the plugin of each file that it brings, by the file's name.
        functions: the plugin whose C text is in a kernel, and what that text is of, by the kernel's name.
        symbols: the plugin whose C text names a word of C, and what that text is of, by the word.
    """

    files: Mapping[str, PluginEntry] = field(default_factory=dict)
    functions: Mapping[str, tuple[PluginEntry, str]] = field(default_factory=dict)
    symbols: Mapping[str, tuple[PluginEntry, str]] = field(default_factory=dict)

    def fault(self, error: ToolchainError, files: Mapping[str, bytes]) -> PluginCodeError | None:
        """Return the error that names the plugin at fault, its file and its function; None where no plugin is.

        A fault of the machine, such as a full disk or a missing C library, is none of a plugin, even in its file.

        Args:
            error: of a compiler, a linker, or of loading the library.
            files: of the model, by name.
        """
        if error.hint is not None and isinstance(error, CompilationError):
            return None
        output = error.output if isinstance(error, CompilationError) else error.what
        return self._uncompiled(error, output, files) or self._undefined(output, files)

    def _uncompiled(self, error: ToolchainError, output: str, files: Mapping[str, bytes]) -> PluginCodeError | None:
        """Look at the first error of a compiler that has a place: there, and where a macro of that place is defined."""
        first = _ERROR.search(output)
        if first is None:
            return None
        later = _ERROR.search(output, first.end())
        block = output[first.start() : None if later is None else later.start()]
        places = [(match[1], int(match[2])) for match in _PLACE.finditer(block)]
        line = block.splitlines()[0]
        for name, number in places:
            if name in self.files:
                if _MISSING_FILE.search(line) and "<" in _line(files, name, number):
                    return None
                return _not_compiled(self.files[name], error, output, _where(files, name, number), "")
        for name, number in places:
            function = enclosing_function(_text(files, name), number)
            kernels = [(function or "")[match.end() :] for match in _KERNEL.finditer(function or "")]
            for entry, text in (self.functions[kernel] for kernel in kernels if kernel in self.functions):
                return _not_compiled(entry, error, output, _where(files, name, number), text)
        return None

    def _undefined(self, output: str, files: Mapping[str, bytes]) -> PluginCodeError | None:
        """Look for the plugin that names, or uses, a symbol that is defined nowhere."""
        for match in _UNDEFINED.finditer(output):
            symbol = next(filter(None, match.groups()))
            for name in (symbol, symbol.removeprefix("_")):  # Mach-O has an underscore before each name of C
                mentions = list(_mentions(name, self.files, files))
                if name in self.symbols:
                    entry, text = self.symbols[name]
                    return _not_defined(entry, name, [text, *mentions[:1]])
                if mentions:
                    return _not_defined(self.files[mentions[0].partition(":")[0]], name, mentions[:1])
        return None


NO_ORIGINS = Origins()


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the words of C in texts with placeholders such as ``{device}``."""
    return frozenset(word for text in texts for word in _WORD.findall(_PLACEHOLDER.sub(" ", text)))


def enclosing_function(text: str, number: int) -> str | None:
    """Return the name of the C function or macro that a line is in; None outside any.

    It is found by layout: a definition begins in the first column, and its last line is a closing brace there.

    Args:
        text: of the file.
        number: of the line, from 1.
    """
    lines = text.splitlines()[:number]
    for above in range(len(lines) - 1, -1, -1):
        if above < len(lines) - 1 and not lines[above].endswith("\\"):
            break
        if (macro := _MACRO.match(lines[above])) is not None:
            return macro[1]
    for above in range(len(lines) - 1, -1, -1):
        line = lines[above]
        if line.startswith("}") and above < len(lines) - 1:
            return None
        head = _HEAD.match(line)
        if head is not None and not line.rstrip().endswith(";"):
            return head[1]
    return None


def _not_compiled(entry: PluginEntry, error: ToolchainError, output: str, place: str, text: str) -> PluginCodeError:
    lines = excerpt(output) or error.what
    fault = entry.fault(f"has C that does not compile: {place}\n{lines}", entry.report)
    where = ", ".join(filter(None, [text, fault.where, error.where]))
    return PluginCodeError(fault.what, where=where, hint=fault.hint)


def _not_defined(entry: PluginEntry, symbol: str, places: list[str]) -> PluginCodeError:
    fault = entry.fault(f"names the symbol {symbol!r}, which no file defines", entry.report)
    where = ", ".join(filter(None, [*places, fault.where]))
    return PluginCodeError(fault.what, where=where, hint=fault.hint)


def _where(files: Mapping[str, bytes], name: str, number: int) -> str:
    function = enclosing_function(_text(files, name), number)
    return f"{name}:{number}" + (f" in {function}" if function else "")


def _mentions(symbol: str, owned: Iterable[str], files: Mapping[str, bytes]) -> Iterator[str]:
    """The places of plugins' files that name a symbol: those in functions first."""
    word = re.compile(rf"\b{re.escape(symbol)}\b")
    outside = []
    for name in sorted(owned):
        if name.endswith(".o"):
            with suppress(ToolchainError):  # it is not ELF
                if any(one.name == symbol and not one.is_defined for one in definitions(files.get(name, b""))):
                    outside.append(name)
            continue
        for number, line in enumerate(_text(files, name).splitlines(), 1):
            if word.search(line):
                place = _where(files, name, number)
                if " in " in place and not place.endswith(f" in {symbol}"):
                    yield place
                else:
                    outside.append(place)
    yield from outside


def _text(files: Mapping[str, bytes], name: str) -> str:
    return files.get(name, b"").decode("utf-8", "replace")


def _line(files: Mapping[str, bytes], name: str, number: int) -> str:
    lines = _text(files, name).splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""
