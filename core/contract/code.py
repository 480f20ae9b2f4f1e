"""How the functions of a host become machine code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import PluginError, UsageError
from ..machines import Machine, find_runner
from ..target.kind import shown

__all__ = ["Code"]

_COMPILER = re.compile(r"[a-z][a-z0-9_.+-]{0,63}")


@dataclass(frozen=True)
class Code:
    """How the functions of a host become machine code.

    The C is the core's own, printed from the functions of the module. What the fields do not say is the core's choice
    as well, so ``Code()`` means the same as no answer at all.

    Args:
        cflags: flags for the C compiler, one argument each, in order. Only flags on the core's published list are
            accepted; none goes through a shell.
        cc: the C compiler by its known name (``gcc``, ``clang``, ``arm-none-eabi-gcc``), never a path; ``None`` leaves
            it to the core.
        machine: the machine that the code is for, as `uma.machines.Machine.parse` takes it: ``aarch64-linux-gnu``, and
            ``arm-none-eabi cortex-m0`` where there is no operating system; ``None`` for this one. Hosts of one machine
            run in one process or image, others do not.
        runner: the emulator that runs the code here, one of `uma.machines.RUNNERS`; only with ``machine``.

    Raises:
        PluginError: a field is malformed.
    """

    cflags: tuple[str, ...] = ()
    cc: str | None = None
    machine: str | None = None
    runner: str | None = None

    def __post_init__(self) -> None:
        cflags: object = self.cflags
        if not isinstance(cflags, (tuple, list)):
            raise PluginError("Code.cflags must be a tuple of strings", hint='write ("-O3",), not "-O3"')
        for flag in cflags:
            if not (isinstance(flag, str) and flag.startswith("-") and flag.isprintable()):
                raise PluginError(f"Code.cflags: {shown(flag)} is no compiler flag", hint='flags look like "-O3"')
        object.__setattr__(self, "cflags", tuple(cflags))
        cc: object = self.cc
        if cc is not None and not (isinstance(cc, str) and _COMPILER.fullmatch(cc)):
            raise PluginError(f"Code.cc: {shown(cc)} is no name of a compiler", hint='names look like "gcc"')
        for name in ("machine", "runner"):
            value: object = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise PluginError(f"Code.{name} is {shown(value)}, not a text")
        try:
            machine = None if self.machine is None else Machine.parse(self.machine)
            if self.runner is not None:
                find_runner(self.runner, machine)
        except UsageError as error:
            raise PluginError(f"Code: {error.what}", hint=error.hint) from error
