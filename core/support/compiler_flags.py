"""What may be said to C compilers: the names by which one is asked for, and the flags and file names that reach it.

Targets, plugins and the metadata of artifacts say these things, so they are read as hostile: whatever is not on a list
here does not get into a command line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ALLOWED_FLAGS",
    "FILE_NAME",
    "KNOWN_COMPILERS",
    "X86_EXTENSIONS",
    "FlagRule",
    "names_cpu",
    "native_flags",
    "refused_file_names",
    "refused_flags",
]

KNOWN_COMPILERS = re.compile(
    r"(?:cc|ziglang|clang(?:-[1-9][0-9]?(?:\.[0-9]{1,2})?)?"
    r"|(?:[a-z][a-z0-9_]{0,15}(?:-[a-z0-9_]{1,15}){1,3}-)?gcc(?:-[1-9][0-9]?(?:\.[0-9]{1,2})?)?)",
    re.ASCII,
)
"""The names by which a target may ask for a compiler; the whole name must match. ``gcc`` for another machine has the
triple of that machine before it: ``arm-none-eabi-gcc``."""


@dataclass(frozen=True)
class FlagRule:
    """Flags that may reach a compiler.

    Args:
        shown: how they are written, for people.
        pattern: what the whole of one matches.
        about: what they are for.
    """

    shown: str
    pattern: re.Pattern[str]
    about: str


def _rule(shown: str, pattern: str, about: str) -> FlagRule:
    return FlagRule(shown, re.compile(pattern, re.ASCII), about)


_SWITCHES = (
    "builtin", "common", "data-sections", "function-sections", "math-errno", "omit-frame-pointer", "plt",
    "rounding-math", "semantic-interposition", "strict-aliasing", "trapping-math", "tree-slp-vectorize",
    "tree-vectorize", "unroll-loops", "wrapv",
)  # fmt: skip

X86_EXTENSIONS = (
    "adx", "aes", "avx", "avx2", "avx512bf16", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512f",
    "avx512fp16", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "avx512vpopcntdq", "avxvnni",
    "bmi", "bmi2", "f16c", "fma", "gfni", "lzcnt", "movbe", "pclmul", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3",
    "vaes", "vpclmulqdq",
)  # fmt: skip
"""The extensions of x86 that a target may switch on or off, as gcc and clang call them."""

_X86_EXTENSION = "|".join(map(re.escape, X86_EXTENSIONS))

# What a macro of this name would break: keywords, what the generated code has from the standard headers, the compiler's
# own macros, and those of UMA.
_TAKEN = "|".join(
    (
        "auto|bool|break|case|char|const|continue|default|do|double|else|enum|extern|false|float|for|goto|if|inline|int",
        "long|register|restrict|return|short|signed|sizeof|static|struct|switch|true|typedef|union|unsigned|void|volatile",
        "while|asm|typeof|main|defined|NULL|EOF|offsetof|(?:u?int(?:_least|_fast)?(?:8|16|32|64|ptr|max)|size|ptrdiff)_t",
        "u?int(?:8|16|32|64|ptr|max)_t|U?INT(?:8|16|32|64|PTR|MAX)_(?:MAX|MIN|C)|SIZE_MAX|INFINITY|NAN|HUGE_VALF?",
        "mem(?:cpy|set|move|cmp)|(?:sqrt|exp2?|expm1|log|log1p|pow|floor|ceil|fabs|l?l?round|trunc|l?l?rint|nearbyint)f?",
        "(?:a?sinh?|a?cosh?|a?tanh?|fmod|erf|fmin|fmax|copysign|ldexp|frexp|fma)f?|isnan|isinf|isfinite|signbit|calloc|free",
        "f?printf|perror|fopen|fclose|fread|fwrite|fgetc|stdin|stdout|stderr",
        "_[A-Z][a-z].*|__.*|uma_.*|UMA_(?:OK|ERR_.*|ABI_VERSION|ALIGNAS|HIDDEN|NOINLINE|RUN_BEGINS|STEP_ENDS|PARALLEL_FOR)",
    )
)

ALLOWED_FLAGS = (
    _rule("-O, -O0 to -O3, -Os, -Oz, -Og", r"-O[0-3szg]?", "optimisation"),
    _rule("-march=, -mcpu=, -mtune=", r"-m(?:arch|cpu|tune)=[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}", "the CPU"),
    _rule("-mthumb, -marm", r"-m(?:thumb|arm)", "which instructions, on Arm"),
    _rule("-mfpu=", r"-mfpu=[a-z][a-z0-9-]{0,31}", "which floating-point unit, on Arm"),
    _rule("-mfloat-abi=", r"-mfloat-abi=(?:soft|softfp|hard)", "where floats are passed, on Arm"),
    _rule("-mabi=", r"-mabi=(?:ilp32[efd]?|lp64[efdqs]?)", "how functions are called, on RISC-V and LoongArch"),
    _rule("-mcmodel=", r"-mcmodel=[a-z]{1,16}", "how far addresses reach"),
    _rule("-misa-spec=", r"-misa-spec=(?:2\.2|20190608|20191213)", "which edition of the instructions, on RISC-V"),
    _rule(
        "-munaligned-access, -mstrict-align, and with -mno-",
        r"-m(?:no-)?(?:unaligned-access|strict-align)",
        "whether the CPU may load what is not aligned",
    ),
    _rule("-mprefer-vector-width=", r"-mprefer-vector-width=(?:none|128|256|512)", "how wide vectors are, on x86"),
    _rule(
        ", ".join(f"-m{name}" for name in X86_EXTENSIONS) + ", and with -mno-",
        rf"-m(?:no-)?(?:{_X86_EXTENSION})",
        "an extension of the CPU, on x86",
    ),
    _rule("-std=", r"-std=(?:c|gnu)(?:99|11|17)", "edition of C: c99, gnu99 and so on to 17"),
    _rule("-ffp-contract=", r"-ffp-contract=(?:off|on|fast)", "whether a * b + c is rounded once"),
    _rule(
        ", ".join(f"-f{name}" for name in _SWITCHES) + ", and with -fno-",
        rf"-f(?:no-)?(?:{'|'.join(_SWITCHES)})",
        "what the optimiser may do and assume",
    ),
    _rule("-pedantic, -W...", r"-pedantic|-W[a-z][a-z0-9+-]*(?:=[a-z0-9+-]+)?", "warnings"),
    _rule(
        "-DNAME, -DNAME=WORD",
        rf"-D(?!(?:{_TAKEN})(?:=|$))[A-Za-z_][A-Za-z0-9_]{{0,99}}(?:=[A-Za-z0-9_]{{0,100}})?",
        "a macro of your own: not a word of C, of its standard headers or of the compiler",
    ),
    _rule("-g, -g0 to -g3", r"-g[0-3]?", "what debuggers read"),
)
"""Flags that may reach a compiler, from a target, a plugin or an artifact's metadata; one of them must match wholly.

None of them makes a compiler load, run, read or write a file. ``-Ofast`` and ``-ffast-math`` are absent because
linking with them sets the flush-to-zero mode of the whole process.
"""

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}", re.ASCII)
"""Names of generated files: one path component that no tool takes for an option."""

_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native")
_CPU = re.compile(rf"-m(?:arch|cpu)=(?!native$|generic$).*|-m(?:{_X86_EXTENSION})")


def refused_flags(flags: Sequence[str]) -> list[str]:
    """Those of `flags` that no rule of `ALLOWED_FLAGS` is for, in order."""
    return [flag for flag in flags if not any(rule.pattern.fullmatch(flag) for rule in ALLOWED_FLAGS)]


def refused_file_names(names: Sequence[str]) -> list[str]:
    """Those of `names` that do not match `FILE_NAME`, or that a file system without letter case would confuse."""
    seen: set[str] = set()
    refused = []
    for name in names:
        if not FILE_NAME.fullmatch(name) or name.lower() in seen:
            refused.append(name)
        seen.add(name.lower())
    return refused


def native_flags(flags: Sequence[str]) -> list[str]:
    """Those of `flags` whose meaning depends on the CPU that the compiler runs on."""
    return [flag for flag in flags if _NATIVE.fullmatch(flag)]


def names_cpu(flags: Sequence[str]) -> list[str]:
    """Those of `flags` that name a CPU which may be another than that of the machine that the compiler runs on."""
    return [flag for flag in flags if _CPU.fullmatch(flag)]
