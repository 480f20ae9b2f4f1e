"""The contract between UMA and its plugins: every hook that a plugin may implement, and the records that hooks give.

A plugin is a module, or a class that UMA instantiates, whose functions carry the marker `hookimpl`. Entry points of
the group ``uma.plugins`` make it known, one for each target kind that it serves::

    [project.entry-points."uma.plugins"]
    my_device = "my_plugin"

A plugin is imported when one of its kinds is asked for, not before. A hook is called with keywords and may leave out
arguments that it does not need. While it runs, its target is `Target.current()`, except in `register_target`, which
says what targets there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pluggy

from .errors import PluginError
from .target import Target, TargetKind
from .target.kind import shown

if TYPE_CHECKING:
    from .relay import IRModule

__all__ = ["PLUGIN_API_VERSION", "Code", "hookimpl", "register_target", "tir_to_runtime"]

PLUGIN_API_VERSION = (0, 1)
"""Major and minor version of this contract. While the major is 0, a new minor may change anything."""

PROJECT = "uma"
"""The name that ties `hookimpl` to these specifications."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook of its name."""

_hookspec = pluggy.HookspecMarker(PROJECT)

_COMPILER = re.compile(r"[a-z][a-z0-9_.+-]{0,63}")


@dataclass(frozen=True)
class Code:
    """How the functions of one target become machine code.

    The C is the core's own, printed from the functions of the module. What the fields do not say is the core's choice
    as well, so ``Code()`` means the same as no answer at all.

    Args:
        cflags: flags for the C compiler, one argument each, in order. Only flags on the core's published list are
            accepted; none goes through a shell.
        cc: the C compiler by its known name (``gcc``, ``clang``), never a path; ``None`` leaves it to the core.

    Raises:
        PluginError: a field is malformed.
    """

    cflags: tuple[str, ...] = ()
    cc: str | None = None

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


@_hookspec(firstresult=True)
def register_target() -> Sequence[TargetKind]:  # type: ignore[empty-body]  # a specification has no body
    """Declare the target kinds that this plugin serves, exactly those that its entry points name.

    Called once, after the plugin was imported.

    Returns:
        A list or tuple of kinds.

    Example::

        from collections.abc import Sequence

        from uma.hookspecs import hookimpl
        from uma.target import Attribute, TargetKind

        @hookimpl
        def register_target() -> Sequence[TargetKind]:
            array_dim = Attribute("array_dim", int, default=8, low=1, high=64, help="rows and columns of the array")
            clock_hz = Attribute("clock_hz", float, default=250e3, low=1.0, help="clock in Hz")
            return [TargetKind("my_device", (array_dim, clock_hz), help="a systolic array", device_type="npu")]
    """


@_hookspec(firstresult=True)
def tir_to_runtime(module: IRModule, target: Target) -> Code | None:
    """Say how the loops of one target become machine code.

    Called once per build and target, with everything that was lowered for that target, after the last pass.

    Args:
        module: every function is a ``PrimFunc`` that runs on ``target``; read-only.
        target: the target, with the attributes that the user gave.

    Returns:
        A `Code`, or ``None`` for the core's C, compiled as the core sees fit.

    Example::

        from uma.hookspecs import Code, hookimpl
        from uma.target import Attribute, Target, TargetKind

        @hookimpl
        def register_target() -> list[TargetKind]:
            opt = Attribute("opt", ("1", "2", "3"), default="2", help="optimisation level")
            return [TargetKind("my_host", (opt,), help="a host", is_host=True)]

        @hookimpl
        def tir_to_runtime(target: Target) -> Code:
            return Code(cflags=(f"-O{target.get_attr('opt')}",), cc="gcc")
    """


RESULTS: Mapping[str, type[Any] | tuple[type[Any], ...]] = {
    "register_target": (list, tuple),
    "tir_to_runtime": Code,
}
"""What each hook may give besides ``None``. Checked after every call: pluggy does not look at results."""
