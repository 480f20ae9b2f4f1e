"""From what a target says of a CPU to its machine, its C compiler and the flags of that."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence

from uma.errors import UsageError
from uma.targets import Target
from uma.toolchain import X86_EXTENSIONS, Machine, find_runner, refused_flags, same_triple

__all__ = ["CORTEX_M", "KNOWN_CPUS", "canonicalise", "cpu_flags", "machine_of"]

_SOFT = ("-mthumb", "-mfloat-abi=soft")
_FPV4 = ("-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
_HARD = ("-mthumb", "-mfloat-abi=hard")
_FPV5 = ("-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard")

CORTEX_M: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cortex-m0": ("cortex-m0", _SOFT),
    "cortex-m0plus": ("cortex-m0plus", _SOFT),
    "cortex-m1": ("cortex-m1", _SOFT),
    "cortex-m3": ("cortex-m3", _SOFT),
    "cortex-m4": ("cortex-m4", _SOFT),
    "cortex-m4f": ("cortex-m4", _FPV4),
    "cortex-m7": ("cortex-m7", _SOFT),
    "cortex-m7f": ("cortex-m7", _FPV5),
    "cortex-m23": ("cortex-m23", _SOFT),
    "cortex-m33": ("cortex-m33", _SOFT),
    "cortex-m33f": ("cortex-m33", _FPV5),
    "cortex-m55": ("cortex-m55", _HARD),
    "cortex-m55+nomve": ("cortex-m55+nomve", ("-mthumb", "-mfpu=fpv5-d16", "-mfloat-abi=hard")),
    "cortex-m85": ("cortex-m85", _HARD),
    "cortex-m85+nomve": ("cortex-m85+nomve", ("-mthumb", "-mfpu=fpv5-d16", "-mfloat-abi=hard")),
}
"""What compilers call a microcontroller's CPU, and its flags. An ``f`` at the end, which compilers do not know, says
that it has a floating-point unit."""

KNOWN_CPUS = (
    *("native", "x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1"),
    *CORTEX_M,
)
"""CPUs that shells complete and errors suggest; compilers know more."""

_CHIPS = tuple(
    (re.compile(pattern, re.IGNORECASE), core)
    for pattern, core in (
        (r"stm32[cfglu]0.*|rp2040|(at)?samd(2[01]|1[01]).*|(at)?sam[lc]21.*|lpc8.*|mkl.*", "cortex-m0plus"),
        (r"stm32(f[12]|l1).*|(at)?sam3.*|lpc1[378].*|gd32f1.*", "cortex-m3"),
        (r"nrf51.*", "cortex-m0"),
        (r"nrf528(05|10|11).*|stm32wl.*", "cortex-m4"),
        (r"stm32(f[34]|g4|l4|wb[0-9]).*|nrf52.*|(at)?sam[de]5[134].*|(at)?sam4.*", "cortex-m4f"),
        (r"tm4c.*|msp432.*|mk64.*|k64f|apollo[23].*|cy8c6.*|max32[56].*|max78.*|gd32f[34].*", "cortex-m4f"),
        (r"efr32[bfm]g1.*|cc13[125].*|cc26[45].*", "cortex-m4f"),
        (r"stm32[fh]7.*|(i?mx|mimx)rt1[01].*|(at)?sam([esv]7).*", "cortex-m7f"),
        (r"stm32(h5|l5|u[35]|wba).*|nrf(53|54|91).*|rp2350|lpc55.*|(i?mx|mimx)rt[56].*|efr32[bfm]g2.*", "cortex-m33f"),
        (r"stm32n6.*|apollo5.*|ae[13]01.*|ensemble.*", "cortex-m55"),
        (r"ra8.*", "cortex-m85"),
    )
)
"""The core of a microcontroller by its vendor's name of the chip, first match; from the vendors' product tables."""

_CORTEX_M_TRIPLE = "arm-none-eabi"
_GENERIC = "generic"
"""The CPU of another machine of which nothing is said."""

# gcc and clang name a CPU with -mcpu on Arm and POWER; on x86 that is a deprecated name for tuning alone.
_MARCH = ("x86_64", "amd64", "i386", "i486", "i586", "i686", "s390x")
_MCPU = ("aarch64", "arm64", "armv6l", "armv7l", "armv8l", "ppc64le")


def canonicalise(target: Target) -> dict[str, object]:
    """What follows for another machine: its triple, its compiler, the CPU as compilers call it, and flags.

    Raises:
        UsageError: what was given contradicts itself, a flag is not allowed, or ``-mcpu`` names a chip or
            an unknown microcontroller.
    """
    attrs = target.attrs
    cflags = _texts(attrs.get("cflags"))
    mcpu, cc, runner = (None if attrs.get(name) is None else str(attrs[name]) for name in ("mcpu", "cc", "runner"))
    if mcpu is not None and (core := next((core for chip, core in _CHIPS if chip.fullmatch(mcpu)), None)):
        raise UsageError(f"-mcpu={mcpu} names a chip, not a CPU; its core is {core}", hint=f"write -mcpu={core}")
    triple = _triple(target)
    if triple is None and mcpu is not None and mcpu.startswith("cortex-m"):
        raise UsageError(f"-mcpu={mcpu} is not a known microcontroller", hint=f"known are {', '.join(CORTEX_M)}")
    _check_flags(cflags, _texts(attrs.get("mattr")), names_cpu=triple is None or mcpu not in (None, _GENERIC))
    _check_abi(cflags, platform.machine() if triple is None else triple)
    if triple is not None and mcpu == "native":
        raise UsageError(f"-mcpu=native is this machine's CPU, and -mtriple={triple} is another machine")
    extended, flags = _extended(target, mcpu, triple)
    flags = tuple(flag for flag in flags if flag not in cflags)
    for flag in cflags:
        if (said := next((one for one in flags if _option(one) == _option(flag)), None)) is not None:
            raise UsageError(f"the flag {flag!r} of -cflags contradicts {said}", hint="leave out one of them")
    cflags = (*flags, *cflags)
    if triple is None:
        if runner is not None:
            find_runner(runner, None)
        return {**({"mcpu": extended} if extended != mcpu else {}), **({"cflags": cflags} if flags else {})}
    machine = _machine(triple, mcpu)
    if runner is not None:
        find_runner(runner, machine)
    if cc is None:
        cc = f"{triple}-gcc"
    elif cc == "ziglang" and machine.is_bare:
        raise UsageError(f"-cc=ziglang has no C library for {triple}", hint=f"-cc={triple}-gcc")
    elif cc == "cc" or cc.startswith("gcc"):
        hint = f"-cc={triple}-gcc, or clang or ziglang, which compile for any"
        raise UsageError(f"-cc={cc} compiles for this machine, and -mtriple={triple} is another one", hint=hint)
    name, flags = _named(extended)
    derived: dict[str, object] = {"mcpu": name, "mtriple": triple, "cc": cc}
    if joined := _joined(flags, cflags, mcpu):
        derived["cflags"] = joined
    return derived


def _named(mcpu: str | None) -> tuple[str, tuple[str, ...]]:
    """What compilers call a CPU, perhaps with extensions behind its name, and its flags."""
    if mcpu is None or mcpu in CORTEX_M:
        return CORTEX_M.get(mcpu or "", (_GENERIC, ()))
    base, plus, extensions = mcpu.partition("+")
    name, flags = CORTEX_M.get(base, (base, ()))
    return f"{name}{plus}{extensions}", flags


def _extended(target: Target, mcpu: str | None, triple: str | None) -> tuple[str | None, tuple[str, ...]]:
    """What ``mattr`` and ``mfloat-abi`` are to compilers: the name of the CPU with extensions, and flags.

    Raises:
        UsageError: one of them has no effect on this architecture, or an extension is not known.
    """
    machine = (platform.machine() if triple is None else triple.partition("-")[0]).lower()
    mattr, abi = _texts(target.attrs.get("mattr")), target.attrs.get("mfloat-abi")
    flags: tuple[str, ...] = ()
    if abi is not None:
        if not machine.startswith("arm") or machine == "arm64":
            text = f"-mfloat-abi={abi} has no effect: {machine} passes floats in one way"
            raise UsageError(text, hint="leave it out; it is for 32-bit Arm")
        flags += (f"-mfloat-abi={abi}",)
    if not mattr:
        return mcpu, flags
    is_x86 = machine in ("x86_64", "amd64") or re.fullmatch("i[3-6]86", machine) is not None
    extensions_known: Sequence[str] | None = X86_EXTENSIONS if is_x86 else None
    if machine.startswith(("arm", "aarch64")):
        is_small = (mcpu or "").startswith("cortex-m")
        extensions_known = _M_EXTENSIONS if is_small else _A64_EXTENSIONS if "64" in machine else _A32_EXTENSIONS
    if extensions_known is None:
        text = f"-mattr has no effect for {machine}: its compilers do not take extensions one by one"
        raise UsageError(text, hint="give the whole architecture, for example -cflags=-march=rv64imafdc")
    for one in mattr:
        if one[1:] not in extensions_known:
            text = f"{one!r} of -mattr is not an extension of {mcpu or machine} that is known"
            raise UsageError(text, hint=f"there are {', '.join(extensions_known)}")
    if is_x86:
        return mcpu, (*flags, *(f"-m{'' if one[0] == '+' else 'no-'}{one[1:]}" for one in mattr))
    if triple is None and mcpu in (None, "native"):
        text = "-mattr adds to the name of a CPU, and -mcpu=native has none"
        raise UsageError(text, hint="name the CPU, for example -mcpu=cortex-a72, or give -from_device=0")
    words = (mcpu or _GENERIC).split("+")
    extensions = (f"{'' if one[0] == '+' else 'no'}{one[1:]}" for one in mattr)
    return "+".join([*words, *(one for one in extensions if one not in words[1:])]), flags


_M_EXTENSIONS = ("dsp", "mve")
_A32_EXTENSIONS = ("crc", "crypto", "dotprod", "fp", "fp16", "simd")
_A64_EXTENSIONS = (
    "aes", "bf16", "crc", "crypto", "dotprod", "fp16", "i8mm", "lse", "rcpc", "rdma", "sha2", "sha3", "sm4", "sve",
    "sve2",
)  # fmt: skip
"""The extensions of Arm that ``mattr`` may switch on or off, as gcc and clang call them behind the name of a CPU."""


def machine_of(target: Target) -> str | None:
    """The machine as `uma.hookspecs.TargetCode` has it; None for this one."""
    triple = target.get_attr("mtriple")
    if triple is None:
        return None
    mcpu = target.attrs.get("mcpu")
    # A CPU with a floating-point unit calls functions in another way than one without.
    return str(_machine(triple, None if mcpu is None else str(mcpu)))


def cpu_flags(target: Target) -> tuple[str, ...]:
    """The flags that name the CPU, for the compiler of the target's machine."""
    mcpu, triple = str(target.get_attr("mcpu")), target.get_attr("mtriple")
    machine = platform.machine().lower() if triple is None else triple.partition("-")[0]
    if triple is not None and mcpu == _GENERIC:
        return ()
    if target.get_attr("cc") == "ziglang":
        mcpu = mcpu.replace("-", "_")  # as zig spells them all: x86_64_v3, cortex_a72
    if machine in _MARCH:
        return (f"-march={mcpu}",)
    # Elsewhere (RISC-V) compilers know CPUs by name but not their own: `native` then means their default.
    if machine in _MCPU or mcpu != "native":
        return (f"-mcpu={mcpu}",)
    return ()


def _machine(triple: str, mcpu: str | None) -> Machine:
    bare = Machine(triple).is_bare
    if bare and mcpu is None:
        raise UsageError(f"-mtriple={triple} has no operating system: its CPU must be said", hint="add -mcpu=...")
    return Machine.parse(f"{triple} {mcpu}" if bare else triple)


def _triple(target: Target) -> str | None:
    """The triple of the machine, which every attribute that says something of it agrees with; None for this machine."""
    attrs = target.attrs
    said: dict[str, str] = {}
    if "mtriple" in attrs:
        said[f"-mtriple={attrs['mtriple']}"] = str(attrs["mtriple"])
    if "cc" in attrs and (prefix := str(attrs["cc"]).rpartition("-gcc")[0]):
        said[f"-cc={attrs['cc']}"] = prefix
    if attrs.get("mcpu") in CORTEX_M:
        said[f"-mcpu={attrs['mcpu']}"] = _CORTEX_M_TRIPLE
    for text, triple in said.items():
        first, chosen = next(iter(said.items()))
        if not same_triple(triple, chosen):
            raise UsageError(f"{text} is for {triple}, and {first} for {chosen}", hint=f"leave out {text} or {first}")
    return next(iter(said.values()), None)


def _check_flags(cflags: Sequence[str], mattr: Sequence[str], names_cpu: bool) -> None:
    """UsageError where a flag is not allowed, or is about what another attribute says, unless ``mattr`` says it too."""
    if refused := refused_flags(cflags):
        text = f"the flag {refused[0][:60]!r} of -cflags may not reach a compiler"
        raise UsageError(text, hint="docs/cross.md lists those that may")
    for flag in cflags:
        if flag.startswith("-std="):
            raise UsageError(f"the flag {flag!r} of -cflags contradicts the code, which is C99", hint="leave it out")
        other = "opt" if flag.startswith("-O") else None
        if _option(flag) == "-mcpu" or (names_cpu and _option(flag) == "-march"):
            other = "mcpu"
        if (extension := flag.removeprefix("-m")) in X86_EXTENSIONS and f"+{extension}" not in mattr:
            other = "mattr"
        if other is not None:
            raise UsageError(
                f"the flag {flag!r} of -cflags is what the attribute {other!r} says", hint=f"give -{other}"
            )


def _check_abi(cflags: Sequence[str], machine: str) -> None:
    """UsageError where a flag says how functions are called on a machine where there is no choice."""
    for flag in cflags:
        if _option(flag) == "-mabi" and not machine.startswith(("riscv", "loongarch")):
            text = f"the flag {flag!r} of -cflags is for RISC-V and LoongArch, not for {machine}"
            raise UsageError(text, hint="leave it out: the triple says how functions are called")


def _joined(flags: Sequence[str], cflags: Sequence[str], mcpu: str | None) -> list[str]:
    """The flags of a CPU, then those that were given, which take the place of what nobody asked for."""
    by_option = {_option(flag): flag for flag in cflags}
    for flag in flags:
        if by_option.get(_option(flag), flag) != flag and flag != "-mfloat-abi=soft":
            raise UsageError(f"the flag {by_option[_option(flag)]!r} contradicts -mcpu={mcpu}, which is {flag}")
    return [*(flag for flag in flags if _option(flag) not in by_option), *cflags]


def _option(flag: str) -> str:
    """What a flag is about: of two flags that are about one thing the last counts."""
    return "-mthumb" if flag == "-marm" else flag.partition("=")[0]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple) else ()
