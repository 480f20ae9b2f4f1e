"""Builds for tests: on the installed host, and with plugins made of a few functions, which are installed nowhere."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from uma.hookspecs import Pattern, hookimpl
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.lowering.fuse import fuse
from uma.pipeline.stages import STAGES, Build, Form, Observer
from uma.plugins import PluginEntry, PluginHost, default_host
from uma.program import Program
from uma.relay import Expr, Function, IRModule, Spans, free_vars
from uma.relay.evaluate import evaluate
from uma.relay.op import get_op
from uma.relay.pattern import any_, op, wildcard
from uma.targets import Alias, Attribute, Limits, TargetKind

from .partitions import inputs_of
from .programs import interpret_program
from .te_lowerings import lowered

__all__ = [
    "HOST",
    "accelerator",
    "built",
    "checked",
    "entry_of",
    "fused",
    "host_kind",
    "installed_host",
    "members_of",
    "module_of",
    "run",
    "taking",
    "toy",
]

_numbers = itertools.count()


def host_kind(name: str, *attributes: Attribute) -> TargetKind:
    """A host for which every op is a kernel of its own."""
    return TargetKind(name, attributes, help="a plain host", is_host=True, limits=Limits(calls=1))


HOST = host_kind("plain")


@functools.cache
def installed_host() -> BuildTargets:
    """The targets of a build for ``c`` alone."""
    return resolve_targets("c", default_host())


def run(form: Form, name: str = "m", until: str = STAGES[-1], after: Observer | None = None) -> Form:
    """``form`` after a stage of a build for ``c``."""
    return Build(name, installed_host(), after).run(form, until)


def fused(module: IRModule) -> IRModule:
    """``module`` with the kernels of the host ``c``."""
    return fuse(module, [installed_host().host.owner])


def entry_of(*kinds: TargetKind | Alias, version: str = "1.0", **hooks: Callable[..., Any]) -> list[PluginEntry]:
    """The entries of a plugin that serves ``kinds`` and implements ``hooks``, distribution ``uma-KIND``."""
    name = f"uma_test_plugin_{next(_numbers)}"
    module = ModuleType(name)
    for hook, function in {"register_target": lambda: list(kinds), **hooks}.items():
        setattr(module, hook, hookimpl(function))
    sys.modules[name] = module  # where importing it finds it; each has a name of its own
    return [PluginEntry(kind.name, name, f"uma-{kinds[0].name}", version) for kind in kinds]


def accelerator(name: str = "npu", *attributes: Attribute, **given: Any) -> TargetKind:
    """A target kind that is not a host."""
    return TargetKind(name, attributes, help="an accelerator", device_type="npu", **given)


def taking(label: str, name: str, lower: Callable[[Function], Any] | None = lowered, predicate: Any = None) -> Pattern:
    """A pattern ``LABEL.OP`` of every call of an op; by default it is lowered as the op is declared."""
    declared = get_op(name)
    attrs = {attr.name: any_ for attr in declared.attrs}
    term = op(name)(*(wildcard(any_) for _ in declared.inputs), **attrs)
    adapted = None if lower is None else lambda match, target: lower(match.function)
    return Pattern(f"{label}.{name.rpartition('.')[2]}", term, predicate, adapted)


def toy(label: str = "npu", *ops: str, **hooks: Callable[..., Any]) -> list[PluginEntry]:
    """The entries of an accelerator whose loops run on the host: it takes all calls of these ops, as declared.

    Args:
        label: its kind.
        ops: names; none where the hook ``patterns`` is given.
        hooks: what else it implements.
    """
    given: dict[str, Callable[..., Any]] = {"patterns": lambda: [taking(label, name) for name in ops]} if ops else {}
    return entry_of(accelerator(label), **{**given, **hooks})


def members_of(*plugins: Sequence[PluginEntry], targets: Sequence[str] | None = None) -> BuildTargets:
    """The targets of a build on these plugins and a plain host; by default each kind once, in order."""
    entries = [entry for plugin in plugins for entry in plugin]
    host = PluginHost(lambda: [*entries, *entry_of(HOST)])
    return resolve_targets([*(targets or [entry.kind for entry in entries]), "plain"], host)


def module_of(body: Expr, layers: dict[Expr, Sequence[str]] | None = None) -> IRModule:
    """A model that computes ``body``."""
    return IRModule.from_functions({"main": Function(free_vars(body), body)}, Spans(layers))


def checked(module: IRModule, members: BuildTargets) -> tuple[Build, Program]:
    """A build that was run, and its program, which gives what the references of the model's ops give."""
    build = Build("m", members)
    program = build.run(module)
    assert isinstance(program, Program)
    inputs = inputs_of(module.main)
    got = interpret_program(program, {f"in_{name}": array.ravel() for name, array in inputs.items()})
    for number, expected in enumerate(evaluate(module, inputs)):
        np.testing.assert_array_equal(got[f"out_{number}"].reshape(expected.shape), expected)
    return build, program


def built(module: IRModule, members: BuildTargets, until: str = "sequence") -> Build:
    """A build of the model ``m`` that was run."""
    build = Build("m", members)
    build.run(module, until)
    return build
