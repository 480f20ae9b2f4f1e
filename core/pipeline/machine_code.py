"""How the loops of each target become machine code: what `tir_to_runtime` says of them, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..codegen.units import PluginFunctions, prefix_of
from ..errors import ModelError
from ..hookspecs import TargetCode
from ..lowering.build_targets import BuildTarget, BuildTargets
from ..program import Call, Program
from ..relay.module import IRModule
from ..support.compiler_flags import KNOWN_COMPILERS, refused_flags
from ..support.machines import Machine, this_machine
from ..tir.form.nodes import PrimFunc
from ..toolchain.elf import is_object_for

__all__ = ["MachineCode", "machine_code"]


@dataclass(frozen=True)
class MachineCode:
    """What targets say of their loops.

    Args:
        program: the program, in which a step says whose loops it runs where they are compiled apart from the model.
        codes: of each target that something is compiled for, by label: the first host, which is always there, the other
            hosts that run something, and the accelerators that say how theirs is compiled.
        apart: the labels of those accelerators.
    """

    program: Program
    codes: Mapping[str, TargetCode]
    apart: tuple[str, ...]

    @property
    def brought(self) -> dict[str, tuple[str, ...]]:
        """The functions that plugins make themselves, by the label of the target."""
        return {label: tuple(code.symbols) for label, code in self.codes.items() if code.is_own}

    @property
    def headers(self) -> dict[str, str]:
        """The headers that hosts bring for their intrinsics, by name."""
        return {name: text for code in self.codes.values() for name, text in code.headers.items()}

    def plugin_functions(self, first: str) -> dict[str | None, PluginFunctions]:
        """What plugins bring themselves, by label; None for the host ``first``."""
        return {
            None if label == first else label: PluginFunctions(prefix_of(self.program.name, label), code)
            for label, code in self.codes.items()
            if code.is_own
        }


def machine_code(program: Program, members: BuildTargets) -> MachineCode:
    """Ask each target that has loops in ``program``.

    Raises:
        ModelError: a step is for a host that is none of the build.
        PluginError: a plugin wants what is not allowed, leaves a function out, or brings an object for another machine.
    """
    host_label = members.host.label  # the text of a program may be built for hosts in another order
    supplied: dict[str, TargetCode] = {}
    for member in members.accelerators:
        label = member.label

        def is_of(step: Call, label: str = label) -> bool:
            return label in (step.host, step.device)

        if functions := _functions(program, is_of):
            code = _compile_loops(member, program, functions)
            if code is not None and code != TargetCode():
                supplied[label] = code
    kept = {*supplied, *(host.label for host in members.hosts if host is not members.host)}
    _check_labels(program, members)
    steps = [replace(s, host=None) if isinstance(s, Call) and s.host not in kept else s for s in program.steps]
    program = replace(program, steps=tuple(steps))
    codes: dict[str, TargetCode] = {}
    for host in _running_hosts(program, members):

        def runs(step: Call, label: str = host.label) -> bool:
            return (step.host or host_label) == label and step.device not in supplied

        codes[host.label] = _compile_loops(host, program, _functions(program, runs)) or TargetCode()
    first = codes[host_label]
    for label, code in supplied.items():
        # What an accelerator leaves open is as its host has it.
        codes[label] = replace(
            code,
            cflags=code.cflags or first.cflags,
            cc=code.cc or first.cc,
            machine=first.machine,
            runner=first.runner,
            clock_hz=first.clock_hz,
        )
    for label, code in codes.items():
        _check_objects(code, members[label])
    _check_headers(codes, members)
    return MachineCode(program, codes, tuple(supplied))


def _functions(program: Program, runs: Callable[[Call], bool]) -> dict[str, PrimFunc]:
    """The loops of some steps, by name, in the program's order."""
    called = {step.function for _, step in program.calls if runs(step)}
    return {n: func for n, func in program.functions.items() if n in called and isinstance(func, PrimFunc)}


def _compile_loops(member: BuildTarget, program: Program, functions: Mapping[str, PrimFunc]) -> TargetCode | None:
    """Return the code that the plugin of a target makes of its loops; None if it leaves them to the host."""
    prefix = prefix_of(program.name, member.label)
    module = IRModule.from_functions(functions)
    code: TargetCode | None = member.plugin.call("tir_to_runtime", module=module, target=member.target, prefix=prefix)
    if code is None:
        return None
    entry = member.plugin.entry
    remedy = f"tell its authors, or look for a newer version: pip install --upgrade {entry.distribution}"
    if refused := refused_flags(code.cflags):
        raise entry.fault(f"wants the compiler flag {refused[0]!r}, which is not allowed", remedy)
    if code.cc is not None and not KNOWN_COMPILERS.fullmatch(code.cc):
        raise entry.fault(f"wants the compiler {code.cc!r}, which is not a known one", remedy)
    if not member.target.kind.is_host and (code.machine, code.runner, code.clock_hz) != (None,) * 3:
        raise member.plugin.fault("says of an accelerator's loops what machine runs them: that is the host's to say")
    if not member.target.kind.is_host and code.headers:
        header = next(iter(code.headers))
        raise member.plugin.fault(
            f"brings the header {header!r} for the host's intrinsics: an accelerator's are among Runtime.sources"
        )
    if code.is_own:
        _check_own(code, member, functions, prefix)
    return code


def _check_own(code: TargetCode, member: BuildTarget, functions: Mapping[str, PrimFunc], prefix: str) -> None:
    """PluginError where functions that a plugin brings are not those that it was given, or could meet others."""
    fault = member.plugin.fault
    if missing := [name for name in functions if name not in code.symbols]:
        raise fault(
            f"brings functions, and leaves {missing[0]!r} out: TargetCode.symbols names every function of the module"
        )
    if strange := [name for name in code.symbols if name not in functions]:
        raise fault(f"brings {strange[0]!r}, which is not a function of the module that it was given")
    for what, names in (("symbol", code.symbols.values()), ("file", (*code.sources, *code.objects))):
        if foreign := [name for name in names if not name.startswith(prefix)]:
            raise fault(f"brings the {what} {foreign[0]!r}, which does not begin with {prefix!r}, its prefix")


def _check_headers(codes: Mapping[str, TargetCode], members: BuildTargets) -> None:
    """PluginError where two hosts bring different headers of one name."""
    headers: dict[str, tuple[str, str]] = {}
    for label, code in codes.items():
        for name, text in code.headers.items():
            other, known = headers.setdefault(name, (label, text))
            if known != text:
                raise members[label].plugin.fault(f"brings a header {name!r} that is not the one of target {other!r}")


def _check_objects(code: TargetCode, member: BuildTarget) -> None:
    """PluginError where an object is not for the machine that a target's loops run on."""
    machine = this_machine() if code.machine is None else Machine.parse(code.machine)
    for name, content in code.objects.items():
        if machine is not None and not is_object_for(content, machine):
            raise member.plugin.fault(f"brings the object {name!r}, which is none for {machine}")


def _check_labels(program: Program, members: BuildTargets) -> None:
    for label in dict.fromkeys(step.host for _, step in program.calls if step.host is not None):
        if members.get(label) is None:
            hint = f"hosts: {', '.join(host.label for host in members.hosts)}"
            raise ModelError(f"the program runs on {label!r}, which is not a host of this build", hint=hint)


def _running_hosts(program: Program, members: BuildTargets) -> list[BuildTarget]:
    """The first host, and those that steps are for."""
    labels = {step.host for _, step in program.calls}
    return [members.host, *(host for host in members.hosts[1:] if host.label in labels)]
