"""What a CPU can, told from its name: the instructions that loops for it may count on."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping

from uma.errors import UsageError
from uma.targets import Target
from uma.toolchain import compiler_features, cpu_features

from .cpus import cpu_flags, machine_of

__all__ = ["cpu_of", "features_of", "read_cpu"]

_FLOATS = frozenset({"float32", "float64"})
_V3 = _FLOATS | {"avx2", "fma"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_VNNI = _V4 | {"avx512_vnni"}
_ICELAKE = _VNNI | {"avx512_vbmi2"}
_AVX_VNNI = _V3 | {"avx_vnni"}
_NEON = _FLOATS | {"asimd", "fma"}
_DOTPROD = _NEON | {"asimddp"}
_USED = _ICELAKE | _AVX_VNNI | _DOTPROD

_X86_LEVELS: Mapping[frozenset[str], str] = {
    _FLOATS: "generic x86-64 x86-64-v2",
    _V3: "x86-64-v3 haswell broadwell skylake znver1 znver2 znver3",
    _V4: "x86-64-v4 skylake-avx512 cannonlake",
    _VNNI: "cascadelake cooperlake",
    _ICELAKE: "icelake-client icelake-server tigerlake rocketlake sapphirerapids emeraldrapids graniterapids znver4",
    _ICELAKE | _AVX_VNNI: "znver5",
    _AVX_VNNI: "alderlake raptorlake meteorlake arrowlake arrowlake-s lunarlake sierraforest grandridge gracemont",
}
_X86_NAMES: Mapping[str, frozenset[str]] = {
    name: level for level, names in _X86_LEVELS.items() for name in names.split()
}
"""What CPUs of x86-64 can, by the names that gcc and clang give them."""

_X86 = ("x86_64", "amd64")

_X86_EDITIONS = {
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
"""What each edition of x86-64 adds (x86-64 psABI, section 3.1.1), as Linux calls it."""

_EXTRAS = {"avx512_vnni": "avx512vnni", "avx512_vbmi2": "avx512vbmi2", "avx_vnni": "avxvnni", "asimddp": "dotprod"}
"""What loops count on beside that, as Linux calls it, and as the attribute ``mattr`` does."""

_ARM_DOTPROD = re.compile(
    r"cortex-(a55|a65|a65ae|a75|a76|a76ae|a77|a78|a78ae|a78c|a[57][12][05]|x[1-4]c?)|neoverse-.*|apple-m[1-9]|ampere1.*"
    r"|.*\+dotprod"
)
_ARM_PLAIN = re.compile(r"generic|cortex-a(34|35|53|57|72|73)")
_ARM_THUMB1 = ("cortex-m0", "cortex-m0plus", "cortex-m1", "cortex-m23")
_ARM_DSP = re.compile(r"cortex-m(4|7|33|35p|52|55|85)")
_ARM_MVE = re.compile(r"cortex-m(52|55|85)")
_ARM_32_FMA = re.compile(r"cortex-a(5|7|12|15|17|32|35|53|55|57|72|73|75|76)")


def features_of(target: Target) -> frozenset[str]:
    """What loops for ``target`` may count on, as Linux calls it in ``/proc/cpuinfo`` (``avx2``, ``avx512_vnni``,
    ``asimddp``), and what `uma.targets.TargetKind` says of ``fma``, ``float32``, ``float64``
    and ``small_stack``.

    Of a CPU of x86-64 or AArch64 that is not known here by its name, the compiler says what it can, once in a process.
    Where that does not know it either, it can what all of its architecture can.
    """
    mcpu, triple = str(target.get_attr("mcpu")), target.get_attr("mtriple")
    machine = platform.machine().lower() if triple is None else str(triple).partition("-")[0]
    has_extensions = machine in _X86 and bool(target.get_attr("mattr"))
    if triple is None and mcpu == "native" and not has_extensions:
        return _base(machine) | (_of_this_machine() & _USED)
    if machine in (*_X86, "aarch64", "arm64"):
        features = _X86_NAMES.get(mcpu) if machine in _X86 else _of_arm_64(mcpu)
        says_more = has_extensions or any(flag.startswith("-march=") for flag in target.get_attr("cflags") or ())
        return _compiled(target, machine) if features is None or says_more else features
    if machine.startswith("arm"):
        return _of_arm_32(mcpu, target)
    if machine.startswith("riscv"):
        return _of_riscv(machine, str(triple), target)
    return _base(machine)


def cpu_of(target: Target) -> str:
    """The name of the CPU of ``target``; of this machine's, where what it can tells it from all others, that name."""
    mcpu = str(target.get_attr("mcpu"))
    if target.get_attr("mtriple") is not None or mcpu != "native":
        return mcpu
    features = cpu_features()
    # Compilers older than this CPU call it by its predecessor's name. Its maker's alone have sse4a.
    return "znver4" if {"sse4a", "avx512_vnni"} <= features and "avx_vnni" not in features else mcpu


def read_cpu(target: Target, number: int) -> dict[str, object]:
    """The attributes ``mcpu`` and ``mattr`` for this machine's CPU: an edition of the architecture, and the extensions
    beside it that loops count on. Every compiler knows these names, and code for them also runs on other such CPUs.

    Args:
        target: with the attributes that were given.
        number: 0.

    Raises:
        UsageError: there is no such CPU, what was given names one, or the architecture has no editions.
    """
    machine = platform.machine().lower()
    if number:
        raise UsageError(f"there is no CPU {number}: this machine's CPU is number 0", hint="-from_device=0")
    if attrs := [name for name in ("mcpu", "mattr", "mtriple") if name in target.attrs]:
        text = f"-from_device=0 is this machine's CPU, and -{attrs[0]} says what the CPU is as well"
        raise UsageError(text, hint=f"leave out -from_device or -{attrs[0]}")
    features = _of_this_machine()
    extras = [f"+{name}" for feature, name in _EXTRAS.items() if feature in features]
    extensions = {"mattr": extras} if extras else {}
    if machine in ("aarch64", "arm64"):
        return {"mcpu": "generic", **extensions}
    if machine not in _X86:
        text = f"-from_device=0 has no effect on {machine}: only CPUs of x86-64 and AArch64 are read"
        raise UsageError(text, hint="name the CPU with -mcpu")
    edition = "x86-64"
    for name, adds in _X86_EDITIONS.items():
        if not features.issuperset(adds.split()):
            break
        edition = name
    return {"mcpu": edition, **extensions}


def _base(machine: str) -> frozenset[str]:
    """What all CPUs of an architecture with an operating system can."""
    if machine in ("aarch64", "arm64"):
        return _NEON
    if machine in ("ppc64le", "powerpc64le", "riscv64", "loongarch64", "s390x"):
        return _FLOATS | {"fma"}
    # 32-bit x86 computes floats more precisely than it stores them.
    return _FLOATS if machine in ("x86_64", "amd64") else frozenset()


def _compiled(target: Target, machine: str) -> frozenset[str]:
    """What the compiler knows of the CPU."""
    flags = (*cpu_flags(target), *(target.get_attr("cflags") or ()))
    return _base(machine) | (compiler_features(target.get_attr("cc"), machine_of(target), flags) & _USED)


def _of_arm_64(mcpu: str) -> frozenset[str] | None:
    return _DOTPROD if _ARM_DOTPROD.fullmatch(mcpu) else _NEON if _ARM_PLAIN.fullmatch(mcpu) else None


def _of_this_machine() -> frozenset[str]:
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return _DOTPROD  # every Mac of this architecture
    return cpu_features()


def _of_arm_32(mcpu: str, target: Target) -> frozenset[str]:
    if not mcpu.startswith("cortex-m"):
        return _FLOATS | {"fma"} if _ARM_32_FMA.fullmatch(mcpu) else frozenset()
    flags = target.get_attr("cflags") or ()
    integers = _of_cortex_m(mcpu)
    if "-mfloat-abi=soft" in flags or not any(flag.startswith("-mfloat-abi=") for flag in flags):
        return integers
    has_doubles = any(re.fullmatch(r"-mfpu=fpv5-d16", flag) for flag in flags)
    return integers | {"float32", "fma", *(("float64",) if has_doubles else ())}


def _of_cortex_m(mcpu: str) -> frozenset[str]:
    """What a microcontroller's CPU can with integers: the instructions of Armv6-M and Armv8-M Baseline (``thumb1``) or
    all of Thumb (``thumb2``), the DSP extension (``dsp``), vectors (``mve``)."""
    name, *extensions = mcpu.split("+")
    if name in _ARM_THUMB1:
        return frozenset({"thumb1", "small_stack"})
    features = {
        "thumb2",
        "small_stack",
        *(("dsp",) if _ARM_DSP.fullmatch(name) else ()),
        *(("mve",) if _ARM_MVE.fullmatch(name) else ()),
    }
    return frozenset(features - {"dsp", "mve"} if "nodsp" in extensions else features - {ext[2:] for ext in extensions})


def _of_riscv(machine: str, triple: str, target: Target) -> frozenset[str]:
    march = [flag.partition("=")[2] for flag in target.get_attr("cflags") or () if flag.startswith("-march=")]
    if not march:
        return _base(machine) if "linux" in triple else _of_riscv_integers(machine)
    letters = re.split(r"[_]|(?<=.)z", march[-1].removeprefix(machine.replace("iscv", "v")), maxsplit=1)[0]
    integers = _of_riscv_integers(machine)
    if "g" in letters or "d" in letters:
        return integers | _FLOATS | {"fma"}
    return integers | {"float32", "fma"} if "f" in letters else integers


def _of_riscv_integers(machine: str) -> frozenset[str]:
    """``riscv`` of the small ones, with 32 bits."""
    return frozenset({"riscv", "small_stack"}) if machine == "riscv32" else frozenset()
