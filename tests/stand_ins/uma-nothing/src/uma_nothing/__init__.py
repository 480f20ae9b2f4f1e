"""Target kind ``nothing``: an accelerator that takes no op. The smallest plugin that has every hook."""

from collections.abc import Sequence

from uma import hookimpl
from uma.hookspecs import Cost, CustomOp, Exporter, MatchedRegion, Pass, Pattern, Runtime, Strategy, TargetCode
from uma.relay import Function, GlobalVar, IRModule
from uma.targets import Target, TargetKind

UMA_PLUGIN_API = (0, 7)


@hookimpl
def register_target() -> list[TargetKind]:
    return [TargetKind("nothing", help="an accelerator that takes no op", device_type="npu")]


@hookimpl
def ops() -> list[CustomOp]:
    return []


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    return []


@hookimpl
def passes(target: Target) -> list[Pass]:
    return []


@hookimpl
def strategies(target: Target) -> list[Strategy]:
    return []


@hookimpl
def relay_to_runtime(region: MatchedRegion, target: Target) -> tuple[IRModule, GlobalVar] | None:
    return None


@hookimpl
def relay_to_tir(region: MatchedRegion, target: Target) -> tuple[IRModule, GlobalVar] | None:
    return None


@hookimpl
def runtime(target: Target) -> Runtime | None:
    return None


@hookimpl
def estimate_cost(function: Function, region: MatchedRegion, target: Target) -> Cost | None:
    return None


@hookimpl
def tir_to_runtime(module: IRModule, target: Target, prefix: str) -> TargetCode | None:
    return None


@hookimpl
def exporters() -> list[Exporter]:
    return []


@hookimpl
def command(name: str, arguments: Sequence[str]) -> None: ...
