"""The contract between UMA and its plugins: every hook that a plugin may implement, and the records that hooks give.

A plugin is a module, or a class that UMA instantiates, whose functions carry the marker `hookimpl`. Entry points of
the group ``uma.plugins`` make it known, one for each target kind that it serves::

    [project.entry-points."uma.plugins"]
    my_device = "my_plugin"

A plugin is imported when one of its kinds is asked for, not before. A hook is called with keywords and may leave out
arguments that it does not need. While it runs, its target is `Target.current()`, except in `register_target`, which
says what targets there are. What a hook returns is checked against the annotation of its specification.

The contract has a version of its own, `PLUGIN_API_VERSION`, and a plugin says for which one it was written::

    UMA_PLUGIN_API = (0, 7)

- Before 1.0 a minor version may break with what was before, and says so: `LAST_BREAKING_VERSION` is the last that
  did. A plugin for an earlier one is refused; the error lists the renamed names that its sources use.
- Any other minor version only adds: hooks, arguments of hooks, fields of records, with defaults that mean what was
  before. It may deprecate hooks and arguments. A plugin for an earlier minor version goes on working. What is
  deprecated works in the next minor version as well, with a `DeprecationWarning` that names the plugin, the hook, and
  what to do instead. From 1.0 on nothing goes but with a new major version.
- A plugin for another major version is refused. One for a later minor version is tried, with a warning; hooks that it
  can do without are marked ``@hookimpl(optionalhook=True)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from .contract.claims import Claims
from .contract.code import TargetCode
from .contract.cost import Cost
from .contract.drivers import (
    DRIVER_FAULTS,
    Clock,
    Implementation,
    LaunchQueue,
    Library,
    PartCounters,
    Register,
    Routine,
    Runtime,
)
from .contract.exporter import Exporter
from .contract.fusion import Fusion
from .contract.lowered import Declined, LoweredKernel, Refuse, ScheduledKernel, Strategy
from .contract.passes import Pass, Tolerance
from .contract.region import MatchedRegion, RegionMatch, UnmatchedCall
from .contract.sources import c_sources
from .relay import Function, GlobalVar, IRModule
from .relay.channels import ChannelBounds
from .relay.custom_ops import CustomLayer, CustomOp, CustomTensor
from .relay.extern import BitField, Blob, Extern, Relocation
from .relay.pattern import Clause, Failed, Pattern
from .targets import Alias, Target, TargetKind

__all__ = [
    "DRIVER_FAULTS",
    "LAST_BREAKING_VERSION",
    "PLUGIN_API_VERSION",
    "BitField",
    "Blob",
    "ChannelBounds",
    "Claims",
    "Clause",
    "Clock",
    "Cost",
    "CustomLayer",
    "CustomOp",
    "CustomTensor",
    "Declined",
    "Exporter",
    "Extern",
    "Failed",
    "Fusion",
    "Implementation",
    "LaunchQueue",
    "Library",
    "LoweredKernel",
    "MatchedRegion",
    "PartCounters",
    "Pass",
    "Pattern",
    "Refuse",
    "RegionMatch",
    "Register",
    "Relocation",
    "Routine",
    "Runtime",
    "ScheduledKernel",
    "Strategy",
    "TargetCode",
    "Tolerance",
    "UnmatchedCall",
    "c_sources",
    "claims",
    "command",
    "estimate_cost",
    "exporters",
    "hookimpl",
    "ops",
    "passes",
    "patterns",
    "register_target",
    "relay_to_runtime",
    "relay_to_tir",
    "runtime",
    "strategies",
    "tir_to_runtime",
]

PLUGIN_API_VERSION = (0, 7)
"""Major and minor version of this contract."""

LAST_BREAKING_VERSION = (0, 7)
"""The last version that broke with those before it: plugins for an earlier one are refused."""

PROJECT = "uma"
"""The name that ties `hookimpl` to these specifications."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook of its name."""

_hookspec = pluggy.HookspecMarker(PROJECT)


@_hookspec(firstresult=True)
def register_target() -> Sequence[TargetKind | Alias]:  # type: ignore[empty-body]  # a specification has no body
    """Declare the target kinds that this plugin serves and its aliases, exactly those that its entry points name.

    Called once, after the plugin was imported.

    Returns:
        A list or tuple of kinds, and of aliases, which are names that stand for whole targets.

    Example::

        from collections.abc import Sequence

        from uma.hookspecs import hookimpl
        from uma.targets import Attribute, TargetKind

        @hookimpl
        def register_target() -> Sequence[TargetKind]:
            array_dim = Attribute("array_dim", int, default=8, low=1, high=64, help="rows and columns of the array")
            clock_hz = Attribute("clock_hz", float, default=250e3, low=1.0, help="clock in Hz")
            return [TargetKind("my_device", (array_dim, clock_hz), help="a systolic array", device_type="npu")]
    """


@_hookspec(firstresult=True)
def ops() -> Sequence[CustomOp] | None:
    """Declare operators of the plugin's own, and how layers of model files become calls of them.

    Called once, when a build first needs to know. The ops are known to the builds that have a target of this plugin:
    to their importers, their text forms, and the plugin's hooks.

    Returns:
        A list or tuple. Names of ops begin with one of the plugin's kinds: ``my_device.mfcc``.

    Example::

        from typing import Any

        import numpy.typing as npt

        from uma.hookspecs import CustomLayer, CustomOp, hookimpl
        from uma.relay import Attrs, Call, Op, TensorType, call
        from uma.targets import TargetKind
        from uma.tir import te

        def same(attrs: Attrs, data: TensorType) -> TensorType:
            return data

        def cubed(attrs: Attrs, data: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return data**3

        def cube(attrs: Attrs, out: TensorType, x: te.Tensor) -> te.Tensor:
            return te.compute(out.shape, lambda *i: x[i] * x[i] * x[i], "cube")

        CUBE = Op(
            "my_device.cube",
            "The third power of every element. ``data``: any shape, float32.",
            ("data",),
            infer=same,
            reference=cubed,
            compute=cube,
            kind="elementwise",
        )

        def import_cube(layer: CustomLayer) -> Call:
            return call("my_device.cube", layer.operand(0))

        @hookimpl
        def register_target() -> list[TargetKind]:
            return [TargetKind("my_device", help="cubes", device_type="npu")]

        @hookimpl
        def ops() -> list[CustomOp]:
            return [CustomOp(CUBE, tflite={"AcmeCube": import_cube}, onnx={"com.acme::Cube": import_cube})]
    """


@_hookspec(firstresult=True)
def patterns(target: Target) -> Sequence[Pattern] | None:
    """Say what the target takes: patterns over canonical relay, each with the conditions that must hold.

    For an accelerator, what they cover becomes regions, which go to the hooks that lower them. A host needs none: what
    is left to it is grouped into kernels by what ops declare. What its patterns cover becomes one kernel before that.
    Called once per build and target.

    Args:
        target: the target, with the attributes that the user gave.

    Returns:
        A list or tuple in the order of priority: larger ones first. None, or an empty one, takes nothing.

    Example::

        from uma.hookspecs import Clause, Pattern, hookimpl
        from uma.relay.pattern import constant, op, optional, wildcard
        from uma.targets import Attribute, Target, TargetKind

        @hookimpl
        def register_target() -> list[TargetKind]:
            lanes = Attribute("lanes", int, default=8, low=1, high=64, help="elements per cycle")
            return [TargetKind("my_device", (lanes,), help="adds vectors", device_type="npu")]

        @hookimpl
        def patterns(target: Target) -> list[Pattern]:
            lanes = target.get_attr("lanes")
            total = op("add")(wildcard("float32").named("x"), constant("float32"))
            fits = Clause("whole_vectors", lambda m: m.root.shape[-1] % lanes == 0, f"rows come in {lanes}s")
            return [Pattern("my_device.add_relu", optional(total, lambda t: op("nn.relu")(t)), [fits])]
    """


@_hookspec(firstresult=True)
def passes(target: Target) -> Sequence[Pass] | None:
    """Name rewrites of the module at the phases of the build. Called once per build and target.

    Passes of one phase run in an order in which every ``before`` and ``after`` holds, else by the targets' kinds, else
    as listed. The module is verified after each, and what must hold at the phase is checked. Where a build goes on
    from a dump, passes may meet what they have made: they leave it as it is.

    Args:
        target: the target, with the attributes that the user gave.

    Returns:
        A list or tuple of passes.

    Example::

        from uma.hookspecs import Pass, hookimpl
        from uma.relay import Call, Expr, IRModule, Rewriter
        from uma.targets import TargetKind

        def relu_once(module: IRModule) -> IRModule:
            def rule(expr: Expr) -> Expr | None:
                if not isinstance(expr, Call) or expr.op_name != "nn.relu":
                    return None
                [inner] = expr.args
                return inner if isinstance(inner, Call) and inner.op_name == "nn.relu" else None

            return Rewriter(module).rewrite(rule)

        @hookimpl
        def register_target() -> list[TargetKind]:
            return [TargetKind("my_device", help="a device", device_type="npu")]

        @hookimpl
        def passes() -> list[Pass]:
            return [Pass("PRE_PARTITIONING", "relu_once", relu_once)]
    """


@_hookspec(firstresult=True)
def relay_to_tir(
    module: IRModule, function: Function, region: MatchedRegion, target: Target
) -> tuple[IRModule, GlobalVar] | None:
    """Turn a region into loops, as a whole. Called for every region of the target that ``relay_to_runtime`` leaves.

    Args:
        module: all of the model, read-only; the region is one of its functions.
        function: the region: calls of functions with the attribute ``Composite``, each what one pattern took.
        region: the same as was found: its matches in order, with their captures, layers, and where operands live.
        target: the target.

    Returns:
        A module of functions of loops, and its entry: a function of the same type as ``function``, which is either a
        PrimFunc or calls them. The core merges the module into its own and renames what has to be. None leaves each
        match to its pattern's ``lower``, and to `strategies`.

    Raises:
        Refuse: the hardware cannot do it, or not a part of it.

    Example::

        from uma.hookspecs import MatchedRegion, Pattern, Refuse, hookimpl
        from uma.relay import GlobalVar, IRModule
        from uma.relay.pattern import op, wildcard
        from uma.targets import TargetKind
        from uma.tir import maximum, te

        @hookimpl
        def register_target() -> list[TargetKind]:
            return [TargetKind("my_device", help="rectifies", device_type="npu")]

        @hookimpl
        def patterns() -> list[Pattern]:
            return [Pattern("my_device.relu", op("nn.relu")(wildcard("float32").named("x")))]

        @hookimpl
        def relay_to_tir(region: MatchedRegion) -> tuple[IRModule, GlobalVar] | None:
            if len(region.matches) != 1:
                return None  # the core asks for each of them
            [match] = region.matches
            shape = match["x"].shape
            if len(shape) > 4:
                raise Refuse(f"at most 4 dimensions, these are {len(shape)}", at=match.value)
            x = te.placeholder(shape, "float32", "x")
            kernel = te.prim_func([x], [te.compute(shape, lambda *i: maximum(x[i], 0.0), "relu")])
            module = IRModule.from_functions({"relu": kernel.func})
            return module, module.global_var("relu")
    """


@_hookspec(firstresult=True)
def relay_to_runtime(
    module: IRModule, function: Function, region: MatchedRegion, target: Target
) -> tuple[IRModule, GlobalVar] | None:
    """Turn a region into calls of what the target's `Runtime` has: command streams for a device, library functions.

    Called for every region of the target, before ``relay_to_tir``.

    Args:
        module: all of the model, read-only; the region is one of its functions.
        function: the region: calls of functions with the attribute ``Composite``, each what one pattern took.
        region: the same as was found: its matches in order, with their captures, layers, and where operands live.
        target: the target.

    Returns:
        A module and its entry: a function of the same type as ``function``, which is either an `Extern` or calls
        externs, and loops with their constants. The core merges the module into its own and renames what has to be.
        None leaves the region to ``relay_to_tir``.

    Raises:
        Refuse: the target cannot do it, or not a part of it.

    Example::

        from uma.hookspecs import Extern, MatchedRegion, Pattern, Refuse, Routine, Runtime, hookimpl
        from uma.relay import GlobalVar, IRModule
        from uma.relay.pattern import op, wildcard
        from uma.targets import TargetKind
        from uma.tir import Buffer, Param

        HEADER = '''
        #include <stdint.h>
        void my_relu(const float *x, float *y, int64_t count);
        '''
        SOURCE = '''
        #include "my_library.h"
        void my_relu(const float *x, float *y, int64_t count)
        {
            while (count-- > 0) y[count] = x[count] > 0.0f ? x[count] : 0.0f;
        }
        '''

        @hookimpl
        def register_target() -> list[TargetKind]:
            return [TargetKind("my_library", help="rectifies", device_type="cpu")]

        @hookimpl
        def patterns() -> list[Pattern]:
            return [Pattern("my_library.relu", op("nn.relu")(wildcard("float32").named("x")))]

        @hookimpl
        def relay_to_runtime(region: MatchedRegion) -> tuple[IRModule, GlobalVar] | None:
            if len(region.matches) != 1:
                return None
            [match] = region.matches
            x, y = (Buffer(name, match["x"].shape, "float32") for name in ("x", "y"))
            if len(x.shape) > 4:
                raise Refuse(f"at most 4 dimensions, these are {len(x.shape)}", at=match.value)
            params = (Param(x, "input"), Param(y, "output"))
            module = IRModule.from_functions({"relu": Extern(params, routine="relu", scalars={"count": x.size})})
            return module, module.global_var("relu")

        @hookimpl
        def runtime() -> Runtime:
            return Runtime(
                header="my_library.h",
                sources={"my_library.h": HEADER, "my_library.c": SOURCE},
                routines=(Routine("relu", "my_relu({x}, {y}, {count})"),),
            )
    """


@_hookspec(firstresult=True)
def strategies(target: Target) -> Sequence[Strategy] | None:
    """Say how the target computes what its patterns take, or kernels around an op. Called once per build and target.

    Asked where ``relay_to_runtime``, ``relay_to_tir`` and the pattern's ``lower`` give nothing: first those of the
    pattern's name, then those of the op that is the anchor, whatever comes before and after it in the kernel; of a
    kernel that is elementwise throughout, and no pattern's, those of any of its ops. A host's strategies go before the
    loops that the core makes.

    Args:
        target: the target, with the attributes that the user gave.

    Returns:
        A list or tuple; of several with one name the first that gives loops counts.

    Example::

        from uma.hookspecs import Fusion, LoweredKernel, Pattern, Strategy, hookimpl
        from uma.relay.pattern import op, wildcard
        from uma.targets import Target, TargetKind

        @hookimpl
        def register_target() -> list[TargetKind]:
            return [TargetKind("my_device", help="rectifies", device_type="npu")]

        @hookimpl
        def patterns() -> list[Pattern]:
            return [Pattern("my_device.relu", op("nn.relu")(wildcard("float32")))]

        def plain(fusion: Fusion, target: Target) -> LoweredKernel:
            kernel = fusion.tensors.kernel()  # the loops that the core would make
            return LoweredKernel(kernel.func, kernel.bind())

        @hookimpl
        def strategies() -> list[Strategy]:
            return [Strategy("my_device.relu", plain)]
    """


@_hookspec(firstresult=True)
def runtime(target: Target) -> Runtime | None:
    """Give the driver of the device, or what calls a library, in C.

    Called once per build and target that has something to do.

    Args:
        target: the target, with the attributes that the user gave.

    Returns:
        The driver, or None where the target's loops need none: they run on the host.

    Example::

        from uma.hookspecs import Implementation, Runtime, hookimpl
        from uma.targets import Attribute, Target, TargetKind

        DRIVER_H = '''
        #include "uma_device.h"
        extern const uma_driver my_driver;
        int32_t my_start(uma_device *device, uint32_t address);
        '''
        DRIVER_C = '''
        #include "my_driver.h"
        int32_t my_start(uma_device *device, uint32_t address)
        {
            device->bus.write32(device->bus.self, 0, address);
            return (int32_t)device->bus.read32(device->bus.self, 4);
        }
        '''

        @hookimpl
        def register_target() -> list[TargetKind]:
            impl = Attribute("impl", ("mmio",), default="mmio", help="how the device is reached")
            base = Attribute("base", int, default=0x40000000, help="address of its registers")
            return [TargetKind("my_device", (impl, base), help="a device", device_type="npu")]

        @hookimpl
        def runtime(target: Target) -> Runtime:
            return Runtime(
                driver="my_driver",
                header="my_driver.h",
                sources={"my_driver.h": DRIVER_H, "my_driver.c": DRIVER_C},
                implementations={"mmio": Implementation(bus="uma_mmio_bus")},
                faults={1: "the device was given an address that it cannot reach"},
            )
    """


@_hookspec(firstresult=True)
def tir_to_runtime(module: IRModule, target: Target, prefix: str) -> TargetCode | None:
    """Say how the loops of a target become machine code, or make it.

    Called once per build, after the last pass: of each accelerator that has loops of its own, which run on its host,
    whether they drive the device or not; and of each host that runs something.

    Args:
        module: every function is a ``PrimFunc``; read-only. A host has what it runs, without the loops of accelerators
            that gave a `TargetCode` themselves.
        target: the target, with the attributes that the user gave.
        prefix: what symbols and files begin with that the plugin brings, so that models, and targets of one kind,
            share an image: the name of the model, ``_on_``, and the label of the target.

    Returns:
        A `TargetCode`: flags for the core's C, or functions that the plugin brings itself. ``None`` leaves both to the
        core: the loops of an accelerator are then compiled as those of its host are.

    Example::

        from uma.hookspecs import TargetCode, hookimpl
        from uma.targets import Attribute, Target, TargetKind

        @hookimpl
        def register_target() -> list[TargetKind]:
            opt = Attribute("opt", ("1", "2", "3"), default="2", help="optimisation level")
            return [TargetKind("my_host", (opt,), help="a host", is_host=True)]

        @hookimpl
        def tir_to_runtime(target: Target) -> TargetCode:
            return TargetCode(cflags=(f"-O{target.get_attr('opt')}",), cc="gcc")
    """


@_hookspec(firstresult=True)
def estimate_cost(function: Function, region: MatchedRegion, target: Target) -> Cost | None:
    """Tell what a region costs. Called for every region of the target, when somebody wants to know: ``uma explain``.

    Args:
        function: the region: calls of functions with the attribute ``Composite``, each what one pattern took.
        region: the same as was found: its matches in order, with their captures, layers, and where operands live.
        target: the target.

    Returns:
        What it takes to run the region once, or None where that is not known.

    Example::

        from uma.hookspecs import Cost, MatchedRegion, Pattern, hookimpl
        from uma.relay.pattern import op, wildcard
        from uma.targets import Attribute, Target, TargetKind

        @hookimpl
        def register_target() -> list[TargetKind]:
            lanes = Attribute("lanes", int, default=8, low=1, high=64, help="elements per cycle")
            return [TargetKind("my_device", (lanes,), help="rectifies", device_type="npu")]

        @hookimpl
        def patterns() -> list[Pattern]:
            return [Pattern("my_device.relu", op("nn.relu")(wildcard("int8").named("x")))]

        @hookimpl
        def estimate_cost(region: MatchedRegion, target: Target) -> Cost:
            sizes = [match["x"].tensor.size for match in region.matches]
            return Cost(cycles=sum(-(-size // target.get_attr("lanes")) for size in sizes), bytes_moved=2 * sum(sizes))
    """


@_hookspec(firstresult=True)
def exporters() -> Sequence[Exporter] | None:
    """Name forms in which artifacts can be handed on, for ``uma export`` and `Artifact.export`.

    Called when a user names a format that begins with one of the plugin's kinds, or asks which there are for an
    artifact that the plugin took part in.

    Returns:
        A list or tuple. Names begin with one of the plugin's kinds: ``my_device.payload``.

    Example::

        from pathlib import Path

        from uma import Artifact
        from uma.hookspecs import Exporter, hookimpl
        from uma.targets import TargetKind

        def export_weights(artifact: Artifact, folder: Path) -> None:
            for name, content in artifact.files.items():
                if name.endswith(".bin"):
                    (folder / name).write_bytes(content)

        @hookimpl
        def register_target() -> list[TargetKind]:
            return [TargetKind("my_device", help="a device", device_type="npu")]

        @hookimpl
        def exporters() -> list[Exporter]:
            return [Exporter("my_device.weights", "the constants, for the device's flash", export_weights)]
    """


@_hookspec(firstresult=True)
def command(name: str, arguments: Sequence[str]) -> int | None:
    """Do what ``uma KIND ARGUMENTS...`` asks for, a command of the plugin's own.

    Standard output is the command's; what it raises of `uma.errors` is reported as of any command. The commands of the
    core go before kinds of their names.

    Args:
        name: of the kind or alias by which it was called.
        arguments: what follows it, ``--help`` included.

    Returns:
        The exit status, from 0 to 125; None is 0. `SystemExit`, with which argparse ends, is taken for it too.

    Example::

        import argparse
        from collections.abc import Sequence
        from pathlib import Path

        from uma.hookspecs import hookimpl
        from uma.targets import TargetKind

        @hookimpl
        def register_target() -> list[TargetKind]:
            return [TargetKind("my_device", help="a device", device_type="npu")]

        @hookimpl
        def command(name: str, arguments: Sequence[str]) -> None:
            parser = argparse.ArgumentParser(f"uma {name}", description="Count the words of a command stream.")
            parser.add_argument("stream", type=Path)
            print(parser.parse_args(arguments).stream.stat().st_size // 4)
    """


@_hookspec(firstresult=True)
def claims(target: Target) -> Claims | None:
    """Say what conformance is claimed: what ``uma check`` and `uma.testing` hold an accelerator to, and print.

    Called by them alone. No build looks at it.

    Args:
        target: the target, with the attributes that the user gave.

    Returns:
        The claims; None claims what `Claims` says by default: exact results, and nothing of cycles.

    Example::

        from uma.hookspecs import Claims, Cost, MatchedRegion, Pattern, hookimpl
        from uma.relay.pattern import op, wildcard
        from uma.targets import Attribute, Target, TargetKind

        @hookimpl
        def register_target() -> list[TargetKind]:
            lanes = Attribute("lanes", int, default=8, low=1, high=64, help="elements per cycle")
            return [TargetKind("my_device", (lanes,), help="rectifies", device_type="npu")]

        @hookimpl
        def patterns() -> list[Pattern]:
            return [Pattern("my_device.relu", op("nn.relu")(wildcard("int8").named("x")))]

        @hookimpl
        def estimate_cost(region: MatchedRegion, target: Target) -> Cost:
            return Cost(cycles=sum(-(-match["x"].tensor.size // target.get_attr("lanes")) for match in region.matches))

        @hookimpl
        def claims(target: Target) -> Claims:
            return Claims(targets=("my_device -lanes=1", "my_device -lanes=64"), cycles=0.1)
    """
