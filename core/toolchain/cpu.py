"""The instructions that a compiler was told to use, and whether this machine's CPU has them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ..errors import ToolchainError, UsageError
from ..support.compiler_flags import names_cpu
from ..support.machines import Machine, cpu_features
from .discovery import INSTALL_HINT, Compiler, find_compiler
from .subprocesses import run

__all__ = ["FEATURES", "compiler_features", "refuse_other_cpu"]

_PROBE_TIMEOUT_S = 20.0

_X86 = (
    "adx aes amx_bf16 amx_int8 amx_tile avx avx2 avx512bf16=avx512_bf16 "
    "avx512bitalg=avx512_bitalg avx512bw avx512cd avx512dq avx512f avx512fp16=avx512_fp16 avx512ifma avx512vbmi "
    "avx512vbmi2=avx512_vbmi2 avx512vl avx512vnni=avx512_vnni avx512vpopcntdq=avx512_vpopcntdq avxvnni=avx_vnni "
    "bmi=bmi1 bmi2 f16c fma fma4 gfni lzcnt=abm movbe pclmul=pclmulqdq popcnt sse3=pni sse4_1 sse4_2 sse4a ssse3 tbm "
    "vaes vpclmulqdq xop"
)
_ARM = (
    "aes atomics bf16 complex=fcma crc32 dotprod=asimddp fp16_vector_arithmetic=asimdhp jcvt=jscvt "
    "matmul_int8=i8mm qrdmx=asimdrdm sha3 sha512 sve sve2"
)


def _features(words: str, prefix: str, suffix: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in words.split())
    return {f"{prefix}{macro.upper()}{suffix}": shown or macro for macro, _, shown in pairs}


FEATURES: Mapping[str, str] = MappingProxyType({**_features(_X86, "__", "__"), **_features(_ARM, "__ARM_FEATURE_", "")})
"""Of what a compiler predefines where it may use certain instructions (gcc and clang: x86 options; Arm C Language
Extensions) to what Linux calls these in ``/proc/cpuinfo``."""


def refuse_other_cpu(compiler: Compiler, flags: Sequence[str], where: str) -> None:
    """See that this CPU has the instructions that `flags` let a compiler use. Where the system does not say what its
    CPU has, nothing is seen.

    Args:
        compiler: for this machine.
        flags: of a compilation.
        where: names the model in errors.

    Raises:
        UsageError: it has not: running what is compiled would end this process.
    """
    named = names_cpu(flags)
    features = cpu_features()
    if not named or not features:
        return
    missing = sorted(_used(compiler, flags) - features)
    if missing:
        raise UsageError(
            f"the model is compiled for a CPU ({' '.join(named)}) with instructions that this machine's has not: "
            f"{', '.join(missing[:8])}{' and more' if len(missing) > 8 else ''}",
            where=where,
            hint="build it with -mcpu=native, or for a CPU that this machine's can stand in for, to run it here",
        )


def compiler_features(name: str | None, machine: str | None, flags: Sequence[str]) -> frozenset[str]:
    """The instructions that a compiler may use, as Linux calls them in ``/proc/cpuinfo``: what it knows of a CPU that
    flags name. Nothing where it is not installed, or does not take the flags.

    Args:
        name: of the compiler, as `find_compiler` takes it.
        machine: what it is to compile for, as `Machine.parse` takes it; None for this one.
        flags: of a compilation.

    Raises:
        UsageError: a name is not acceptable.
    """
    try:
        return _used(find_compiler(name, None if machine is None else Machine.parse(machine)), flags)
    except ToolchainError:
        return frozenset()


def _used(compiler: Compiler, flags: Sequence[str]) -> frozenset[str]:
    macros = _predefined(compiler, tuple(flags))
    return frozenset(FEATURES[macro] for macro in macros if macro in FEATURES)


@functools.lru_cache(maxsize=64)
def _predefined(compiler: Compiler, flags: tuple[str, ...]) -> frozenset[str]:
    """The macros of a compiler; none where it does not take the flags, which its compilations say better."""
    command = (*compiler.command, *flags, "-w", "-dM", "-E", "-x", "c", "/dev/null")
    status, text = run(command, cwd=None, timeout_s=_PROBE_TIMEOUT_S, hint=INSTALL_HINT)
    return frozenset(re.findall(r"^#define (\w+)", text, re.MULTILINE)) if status == 0 else frozenset()
