"""How the loops of a target become machine code."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..errors import PluginError, UsageError
from ..support.compiler_flags import FILE_NAME
from ..support.machines import Machine, find_runner
from ..targets.kind import shown
from .drivers import Library

__all__ = ["TargetCode"]

_COMPILER = re.compile(r"[a-z][a-z0-9_.+-]{0,63}")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
_FILES = (("sources", str, (".c", ".h", ".S")), ("objects", bytes, (".o",)), ("headers", str, (".h",)))
"""Fields of `TargetCode` that hold files by name: the type of the contents, and the endings of the names."""


@dataclass(frozen=True)
class TargetCode:
    """How the loops of a target become machine code.

    Without ``symbols`` the C is the core's own, printed from the functions of the module, and what the fields do not
    say is the core's choice as well: ``TargetCode()`` means the same as no answer at all.

    With ``symbols`` the plugin brings the functions, all of them: in sources, which the core compiles with these flags;
    in objects that it has made; or in libraries. Each has the signature of the function that the core would print, as
    the header ``PREFIX_functions.h`` declares it, which the core writes beside the sources. What the core proves of
    loops it cannot prove of what a plugin made of them; ``uma verify`` runs both and compares.

    Args:
        cflags: flags for the C compiler, one argument each, in order. Only flags on the core's published list are
            accepted; none goes through a shell.
        cc: the C compiler by its known name (``gcc``, ``clang``, ``arm-none-eabi-gcc``), never a path; ``None`` leaves
            it to the core.
        symbols: name of each function of the module to the C symbol under which the plugin brings it. Symbols begin
            with the ``prefix`` that the hook was given.
        sources: name to text: C (``.c``) and assembly (``.S``), which are compiled, and headers (``.h``). The names
            begin with the prefix.
        objects: name (``.o``) to content, for the machine that the host is. The names begin with the prefix.
        libraries: what it is linked with.
        headers: name (``.h``) to text: what `Intrinsic.include` names, for the C that the core prints. Names and macros
            begin with something of the plugin's own. For hosts alone: those of an accelerator are among the files of
            its driver.
        machine: the machine that the code is for, as `uma.toolchain.Machine.parse` takes it: ``aarch64-linux-gnu``, and
            ``arm-none-eabi cortex-m0`` where there is no operating system; ``None`` for this one. Hosts of one machine
            run in one process or image, others do not. For hosts alone: the loops of an accelerator run on its host.
        runner: the emulator that runs the code here, one of `uma.toolchain.RUNNERS`; only with ``machine``. For hosts
            alone.
        clock_hz: cycles of the machine's CPU in a second, by which cycles that are estimated of code in an emulator are
            seconds; only with ``machine``. For hosts alone.

    Raises:
        PluginError: a field is malformed.
    """

    cflags: tuple[str, ...] = ()
    cc: str | None = None
    machine: str | None = None
    runner: str | None = None
    symbols: Mapping[str, str] = field(default_factory=dict, hash=False)
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    objects: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    libraries: tuple[Library, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    clock_hz: float | None = None

    def __post_init__(self) -> None:
        self._check_compiler()
        self._check_machine()
        self._check_functions()

    def _check_compiler(self) -> None:
        cflags: object = self.cflags
        if not isinstance(cflags, (tuple, list)):
            raise PluginError("TargetCode.cflags must be a tuple of strings", hint='write ("-O3",), not "-O3"')
        for flag in cflags:
            if not (isinstance(flag, str) and flag.startswith("-") and flag.isprintable()):
                raise PluginError(
                    f"TargetCode.cflags: {shown(flag)} is not a compiler flag", hint='flags look like "-O3"'
                )
        object.__setattr__(self, "cflags", tuple(cflags))
        cc: object = self.cc
        if cc is not None and not (isinstance(cc, str) and _COMPILER.fullmatch(cc)):
            raise PluginError(f"TargetCode.cc: {shown(cc)} is not a name of a compiler", hint='names look like "gcc"')

    def _check_machine(self) -> None:
        for name in ("machine", "runner"):
            value: object = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise PluginError(f"TargetCode.{name} is {shown(value)}, not a text")
        clock_hz: object = self.clock_hz
        if clock_hz is not None:
            if isinstance(clock_hz, bool) or not isinstance(clock_hz, (int, float)) or not 1 <= clock_hz < math.inf:
                raise PluginError(f"TargetCode.clock_hz is {shown(clock_hz)}, not a number of at least 1")
            if self.machine is None:
                raise PluginError("TargetCode.clock_hz is for another machine, and none is named")
        try:
            machine = None if self.machine is None else Machine.parse(self.machine)
            if self.runner is not None:
                find_runner(self.runner, machine)
        except UsageError as error:
            raise PluginError(f"TargetCode: {error.what}", hint=error.hint) from error

    def _check_functions(self) -> None:
        self._check_texts("symbols", self.symbols, str)
        for name, symbol in self.symbols.items():
            if not _SYMBOL.fullmatch(symbol):
                raise PluginError(f"TargetCode.symbols: {shown(symbol)}, of {name!r}, is not a symbol of C")
        if twice := _twice(self.symbols):
            raise PluginError(f"TargetCode.symbols has {twice!r} twice", hint="each function has a symbol of its own")
        for attribute, content, _ in _FILES:
            self._check_texts(attribute, getattr(self, attribute), content)
        for attribute, _, endings in _FILES:
            for name in getattr(self, attribute):
                if not (FILE_NAME.fullmatch(name) and name.endswith(endings)):
                    hint = f"names end in {', '.join(endings)}"
                    raise PluginError(f"TargetCode: {shown(name)} is not a name for a file here", hint=hint)
        libraries: object = self.libraries
        if not (isinstance(libraries, (tuple, list)) and all(isinstance(one, Library) for one in libraries)):
            raise PluginError("TargetCode.libraries must be a tuple of Library")
        object.__setattr__(self, "libraries", tuple(libraries))
        if not self.symbols and (self.sources or self.objects or self.libraries):
            raise PluginError(
                "TargetCode brings files or libraries, and no functions",
                hint="symbols names what is in them, function by function",
            )

    def _check_texts(self, field: str, texts: object, content: type[str] | type[bytes]) -> None:
        """PluginError where a field is not a mapping of names to texts, or bytes; else it is frozen."""
        if not isinstance(texts, Mapping) or not all(
            isinstance(name, str) and isinstance(value, content) for name, value in texts.items()
        ):
            raise PluginError(f"TargetCode.{field} must be a dict from str to {content.__name__}")
        object.__setattr__(self, field, MappingProxyType(dict(texts)))

    @property
    def is_own(self) -> bool:
        """Whether the plugin brings the functions itself."""
        return bool(self.symbols)


def _twice(symbols: Mapping[str, str]) -> str | None:
    listed = list(symbols.values())
    return next((symbol for symbol in listed if listed.count(symbol) > 1), None)
