"""A plugin that was written for plugin API 0.5, with every hook and every argument of it. It is never changed again.

Two kinds: ``frozen_npu``, an accelerator whose loops run on the host, and ``frozen_host``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from uma import Artifact
from uma.hookspecs import (
    Clause,
    Code,
    Cost,
    CustomLayer,
    CustomOp,
    Exporter,
    Failed,
    Fusion,
    Lowered,
    MatchedRegion,
    Pass,
    Pattern,
    Refuse,
    Runtime,
    Strategy,
    hookimpl,
)
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Op, Spans, call, rewrite
from uma.relay.pattern import Match, op, wildcard
from uma.targets import Attribute, Target, TargetKind
from uma.tir import maximum, te

UMA_PLUGIN_API = (0, 5)

NPU = TargetKind(
    "frozen_npu",
    (Attribute("rank", int, default=4, low=1, high=8, help="most dimensions of a tensor"),),
    help="rectifies",
    device_type="npu",
)
HOST = TargetKind("frozen_host", help="leaves everything to the core", is_host=True)

CUBE = Op(
    "frozen_npu.cube",
    "The third power of every element. ``data``: any shape, float32.",
    ("data",),
    infer=lambda attrs, data: data,
    reference=lambda attrs, data: data**3,
    compute=lambda attrs, out, x: te.compute(out.shape, lambda *i: x[i] * x[i] * x[i], "cube"),
    kind="elementwise",
)


def import_cube(layer: CustomLayer) -> Call:
    """One layer of a model file."""
    [value] = [given.value for given in layer.inputs if given is not None and given.value is not None]
    return call("frozen_npu.cube", value)


def relu(shape: tuple[int, ...]) -> te.Kernel:
    """The loops of a relu."""
    x = te.placeholder(shape, "float32", "x")
    return te.prim_func([x], [te.compute(shape, lambda *i: maximum(x[i], 0.0), "relu")])


def relu_once(module: IRModule) -> IRModule:
    """A pass."""

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and expr.op_name == "nn.relu":
            inner = expr.args[0]
            return inner if isinstance(inner, Call) and inner.op_name == "nn.relu" else None
        return None

    main, spans = module.main, Spans(dict(module.spans))
    return module.with_main(Function(main.params, rewrite(main.body, rule, spans.moved)), spans)


@hookimpl
def register_target() -> list[TargetKind]:
    return [NPU, HOST]


@hookimpl
def ops() -> list[CustomOp]:
    return [CustomOp(CUBE, tflite={"FrozenCube": import_cube}, onnx={"com.frozen::Cube": import_cube})]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    if target.kind.is_host:
        return []

    def few_dimensions(match: Match) -> bool | Failed:
        rank = len(match.root.shape)
        return rank <= target.get_attr("rank") or Failed(rank)

    few = Clause("few_dimensions", few_dimensions, "tensors have few dimensions; this one has {value}")
    return [Pattern("frozen_npu.relu", op("nn.relu")(wildcard("float32").named("x")), [few], lower_relu)]


def lower_relu(match: Match, target: Target) -> Lowered | None:
    """Large ones; the others are left to the strategy."""
    return Lowered(relu(match["x"].shape).func) if match["x"].tensor.size > target.get_attr("rank") else None


@hookimpl
def passes(target: Target) -> list[Pass]:
    return [] if target.kind.is_host else [Pass("PRE_PARTITIONING", "relu_once", relu_once)]


@hookimpl
def relay_to_runtime(
    module: IRModule, function: Function, region: MatchedRegion, target: Target
) -> tuple[IRModule, GlobalVar] | None:
    return None


@hookimpl
def relay_to_tir(
    module: IRModule, function: Function, region: MatchedRegion, target: Target
) -> tuple[IRModule, GlobalVar] | None:
    if len(region.matches) > 1:
        return None
    [match] = region.matches
    if len(match["x"].shape) > 3:
        raise Refuse(f"{len(match['x'].shape)} dimensions", at=match.value)
    assert match.operand("x") is function.params[0] and match.layers == ()
    made = IRModule.of({"relu": relu(match["x"].shape).func})
    return made, made.global_var("relu")


@hookimpl
def strategies(target: Target) -> list[Strategy]:
    def lower(fusion: Fusion, target: Target) -> Lowered:
        return Lowered(relu(fusion.function.params[0].shape).func)

    return [] if target.kind.is_host else [Strategy("frozen_npu.relu", lower)]


@hookimpl
def runtime(target: Target) -> Runtime | None:
    return None


@hookimpl
def tir_to_runtime(module: IRModule, target: Target, prefix: str) -> Code:
    return Code(cflags=("-O1",))


@hookimpl
def estimate_cost(function: Function, region: MatchedRegion, target: Target) -> Cost:
    return Cost(cycles=10.0 * len(region.matches))


def export_names(artifact: Artifact, folder: Path) -> None:
    """An exporter."""
    folder.joinpath("names.txt").write_text("\n".join(artifact.files))


@hookimpl
def exporters() -> list[Exporter]:
    return [Exporter("frozen_npu.names", "the names of the files", export_names)]


@hookimpl
def command(name: str, arguments: Sequence[str]) -> int:
    print(name, *arguments)
    return len(arguments)
