"""A CPU, this machine's or another one's, through C: target kind ``c``. It runs every op, as C99."""

from __future__ import annotations

from pathlib import Path

from uma.hookspecs import Pass, Pattern, Strategy, TargetCode, hookimpl
from uma.targets import Attribute, ListOf, Target, TargetKind
from uma.toolchain import KNOWN_COMPILERS, RUNNERS

from .cpus import KNOWN_CPUS, canonicalise, cpu_flags, machine_of
from .features import features_of, read_cpu
from .scalar_products import core_of
from .strategies import passes_of, patterns_of, strategies_of

__all__ = ["KIND", "passes", "patterns", "register_target", "strategies", "tir_to_runtime"]

UMA_PLUGIN_API = (0, 7)

_MOST_THREADS = 256

_CSRC = Path(__file__).parent / "csrc"

KIND = TargetKind(
    "c",
    (
        Attribute(
            "mcpu",
            str,
            default="native",
            pattern=r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}",
            help="CPU to compile for, as the C compiler names it (x86-64-v3, cortex-a72), native, or one of a "
            "microcontroller (cortex-m0, cortex-m4f), which gives triple, compiler and flags",
            known=KNOWN_CPUS,
        ),
        Attribute(
            "mtriple",
            str,
            pattern=r"[a-z][a-z0-9_]{0,15}(-[a-z0-9_]{1,15}){1,3}",
            help="machine to compile for, where it is not this one: aarch64-linux-gnu, riscv64-unknown-elf",
        ),
        Attribute(
            "cc",
            str,
            pattern=KNOWN_COMPILERS.pattern,
            help="C compiler: cc, gcc, clang, gcc-VERSION, clang-VERSION, ziglang or TRIPLE-gcc; by default one that "
            "is found, for another machine TRIPLE-gcc",
        ),
        Attribute("opt", ("0", "1", "2", "3", "s"), default="3", help="optimisation level; s is for size"),
        Attribute("cflags", ListOf(str), help="more flags of the C compiler, of those that docs/cross.md lists"),
        Attribute(
            "mattr",
            ListOf(str),
            pattern=r"[+-][a-z0-9][a-z0-9.]{0,31}",
            help="extensions of the CPU that the compiler and the loops may use (+NAME) or not (-NAME): +avx512vnni, "
            "+dotprod, -mve",
        ),
        Attribute(
            "mfloat-abi",
            ("soft", "softfp", "hard"),
            help="where functions pass floats, on 32-bit Arm; by default as mcpu says",
        ),
        Attribute("runner", tuple(RUNNERS), help="emulator that runs here what is compiled for another machine"),
        Attribute(
            "clock_hz",
            float,
            default=100e6,
            low=1e3,
            high=1e11,
            unit="Hz",
            help="clock of another machine's CPU, by which cycles that are estimated in its emulator are seconds; the "
            "default is a round number",
        ),
        Attribute(
            "threads",
            int,
            default=1,
            low=1,
            high=_MOST_THREADS,
            help="for how many threads a model's loops are marked, where that is predicted to pay: whoever runs it "
            "brings so many, or fewer; for the first host, and with -executor=aot",
        ),
    ),
    help="a CPU, through C99; runs every op",
    device_type="cpu",
    is_host=True,
    canonicalise=canonicalise,
    features=features_of,
    from_device=read_cpu,
)

# Only exact or permitted liberties: no -ffast-math.
_MATH_FLAGS = (
    # Where one rounding of a * b + c is meant, loops say fma: every compiler gives the same bits.
    "-ffp-contract=off",
    # Neither errno nor the floating-point exception flags are ever read. Told so, compilers may vectorise sqrt and
    # rounding and turn branches into selects; no value changes.
    "-fno-math-errno",
    "-fno-trapping-math",
)


def _optimised(target: Target) -> tuple[str, ...]:
    """What -opt is to the compiler. On a core without vectors, compilers that are told to save space keep sums in
    memory, which takes twice the instructions and saves little: it is the loops that are small then. Unrolled loops are
    what is left to gain there.
    """
    level = str(target.get_attr("opt"))
    if core_of(features_of(target)) is None:
        return (f"-O{level}",)
    return {"s": ("-O2",), "3": ("-O3", "-funroll-loops")}.get(level, (f"-O{level}",))


@hookimpl
def register_target() -> list[TargetKind]:
    """The one kind, ``c``."""
    return [KIND]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    """What is computed together beyond what the core puts together, where there are strategies for it."""
    return patterns_of(target)


@hookimpl
def passes(target: Target) -> list[Pass]:
    """What brings constants into another form, for CPUs with vectors."""
    return passes_of(target)


@hookimpl
def strategies(target: Target) -> list[Strategy]:
    """Register tiles, for CPUs with vectors."""
    return strategies_of(target)


@hookimpl
def tir_to_runtime(target: Target) -> TargetCode:
    """The core's C, with the flags for the CPU and the headers of `strategies`."""
    flags = (*_optimised(target), *cpu_flags(target))
    return TargetCode(
        # What was given comes last: it goes before what is added here.
        cflags=(*flags, *_MATH_FLAGS, *(target.get_attr("cflags") or ())),
        cc=target.get_attr("cc"),
        machine=machine_of(target),
        runner=target.get_attr("runner"),
        clock_hz=None if machine_of(target) is None else target.get_attr("clock_hz"),
        headers={file.name: file.read_text(encoding="utf-8") for file in sorted(_CSRC.glob("*.h"))},
    )
