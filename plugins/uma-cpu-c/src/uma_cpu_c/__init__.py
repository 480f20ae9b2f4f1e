"""The CPU of this machine, or one like it: target kind ``c``. It runs every op, as C99."""

from __future__ import annotations

import platform

from uma.hookspecs import Code, hookimpl
from uma.relay.pattern import Pattern
from uma.target import Attribute, Target, TargetKind

from .kernels import host_patterns

__all__ = ["KIND", "patterns", "register_target", "tir_to_runtime"]

KIND = TargetKind(
    "c",
    (
        Attribute(
            "mcpu",
            str,
            default="native",
            pattern=r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}",
            help="CPU to compile for, as the C compiler names it (x86-64-v3, cortex-a72), or native",
        ),
        Attribute(
            "cc",
            str,
            pattern=r"cc|ziglang|(?:gcc|clang)(?:-[1-9][0-9]?(?:\.[0-9]{1,2})?)?",
            help="C compiler: cc, gcc, clang, gcc-VERSION, clang-VERSION or ziglang; by default one that is found",
        ),
        Attribute("opt", ("0", "1", "2", "3", "s"), default="3", help="optimisation level; s is for size"),
    ),
    help="a CPU, through C99; runs every op",
    device_type="cpu",
    is_host=True,
)

# Only exact or permitted liberties: no -ffast-math.
_MATH_FLAGS = (
    # The loop form lets a compiler contract a * b + c: one rounding instead of two, and one instruction.
    "-ffp-contract=fast",
    # Neither errno nor the floating-point exception flags are ever read. Told so, compilers may vectorise sqrt and
    # rounding and turn branches into selects; no value changes.
    "-fno-math-errno",
    "-fno-trapping-math",
)

# gcc and clang name a CPU with -mcpu on Arm and POWER; on x86 that is a deprecated name for tuning alone.
_MARCH = ("x86_64", "amd64", "i386", "i486", "i586", "i686", "s390x")
_MCPU = ("aarch64", "arm64", "armv6l", "armv7l", "armv8l", "ppc64le")


@hookimpl
def register_target() -> list[TargetKind]:
    """The one kind, ``c``."""
    return [KIND]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    """What runs in one nest of loops, whatever the attributes of ``target``."""
    return host_patterns()


@hookimpl
def tir_to_runtime(target: Target) -> Code:
    """The core's C, with the flags for this CPU."""
    flags = (f"-O{target.get_attr('opt')}", *_cpu_flags(target.get_attr("mcpu"), platform.machine().lower()))
    return Code(cflags=flags + _MATH_FLAGS, cc=target.get_attr("cc"))


def _cpu_flags(mcpu: str, machine: str) -> tuple[str, ...]:
    if machine in _MARCH:
        return (f"-march={mcpu}",)
    # Elsewhere (RISC-V) compilers know CPUs by name but not their own: `native` then means their default.
    if machine in _MCPU or mcpu != "native":
        return (f"-mcpu={mcpu}",)
    return ()
