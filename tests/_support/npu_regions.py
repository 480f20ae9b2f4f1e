"""Regions of models as our NPU compiler plans them, and runs of their streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import uma_ethosu_like.lower
from uma.hookspecs import MatchedRegion
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Call, Constant, Expr, Function, IRModule
from uma.relay.evaluate import evaluate
from uma.reports.explain import explain
from uma_ethosu_like.commands import encode
from uma_ethosu_like.cost import stream_cycles
from uma_ethosu_like.machine import Machine
from uma_ethosu_like.plan import Plan
from uma_ethosu_like.stream import Stream

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ethosu_like", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("ethosu", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("vela", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
    ]
)


@dataclass(frozen=True)
class Planned:
    """A region with its plan and its streams, and what the host does in its model: ops, each with the clause that
    gives it to the host.
    """

    region: MatchedRegion
    plan: Plan
    left: tuple[str, ...] = ()
    streams: dict[Machine, Stream] = field(default_factory=dict)

    def stream(self, machine: Machine) -> Stream:
        """What it is for a machine; made once."""
        if machine not in self.streams:
            self.streams[machine] = self.plan.stream(machine)
        return self.streams[machine]

    def case(self, stream: Stream, machine: Machine, inputs: Sequence[np.ndarray]) -> dict[str, Any]:
        """A run with these inputs, as the test program takes it: constants are region 0, features 1, then arrays. What
        no one wrote is 0x55.
        """
        names = [f"input{n}" for n in range(len(inputs))] + [f"output{n}" for n in range(len(self.region.results))]
        bases = {"weights": 0, "features": 1, **{name: n for n, name in enumerate(names, start=2)}}
        regions = {0: bytes(stream.constants), 1: b"\x55" * stream.feature_bytes}
        regions |= {n: one.tobytes() for n, one in enumerate(inputs, start=2)}
        outputs = range(2 + len(inputs), 2 + len(names))
        regions |= {n: b"\x55" * one.type.nbytes for n, one in zip(outputs, self.region.results, strict=True)}
        words = encode(stream.commands)
        for one in stream.relocations:
            words[one.at // 4] += bases[one.symbol] << 16 if one.value == "base" else one.addend
        return {
            "macs": machine.macs,
            "words": words,
            "regions": regions,
            "writable": frozenset({1, *outputs}),
            "flash": frozenset({0}),
        }

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Random ones."""
        given = [(np.iinfo(one.dtype), one.shape) for one in self.region.function.params]
        return [rng.integers(info.min, info.max + 1, shape).astype(info.dtype) for info, shape in given]

    def expected(self, inputs: Sequence[np.ndarray]) -> list[bytes]:
        """What its ops mean."""
        values: dict[Expr, np.ndarray] = dict(zip(self.region.function.params, inputs, strict=True))

        def value(expr: Expr) -> np.ndarray:
            if isinstance(expr, Constant):
                return expr.data
            if expr not in values:
                assert isinstance(expr, Call) and expr.op_name == "reshape"
                values[expr] = value(expr.args[0]).reshape(expr.shape)
            return values[expr]

        for one in self.region.matches:
            names = [param.name for param in one.function.params]
            given = {name: value(arg) for name, arg in zip(names, one.value.args, strict=True)}
            [values[one.value]] = evaluate(one.function, given)
        return [value(result).tobytes() for result in self.region.results]


def planned(model: Any) -> list[Planned]:
    """The regions of a model that our compiler takes: a function of relay, or what `load_model` takes."""
    found: list[Planned] = []
    real = uma_ethosu_like.lower.plan_region

    def spy(region: MatchedRegion) -> Plan:
        found.append(Planned(region, real(region)))
        return found[-1].plan

    uma_ethosu_like.lower.plan_region = spy
    try:
        loaded = load_model(IRModule.from_functions({"main": model}) if isinstance(model, Function) else model)
        build = start_build(loaded, resolve_targets(["ethosu_like", "c"], PLUGINS))
        build.run(loaded.form)
    finally:
        uma_ethosu_like.lower.plan_region = real
    left = [op for op in explain(build).ops if op.owner != "ethosu_like"]
    reasons = tuple(sorted({" ".join([op.op, *{why.clause or why.kind for why in op.why}]) for op in left}))
    return [replace(one, left=reasons) for one in found]


def check(npu: Any, runs: Sequence[tuple[str, Planned, Machine, list[np.ndarray], list[bytes]]]) -> None:
    """Runs all in one program: results are as expected, and cycles as estimated."""
    streams = [one.stream(machine) for _, one, machine, _, _ in runs]
    cases = [
        npu.case(**one.case(stream, machine, inputs))
        for stream, (_, one, machine, inputs, _) in zip(streams, runs, strict=True)
    ]
    for run, case, stream, ended in zip(runs, cases, streams, npu.run(*cases), strict=True):
        name, one, machine, inputs, expected = run
        assert (name, ended.fault, ended.word) == (name, "none", len(case.words) - 1)
        made = [ended.regions[2 + len(inputs) + n] for n in range(len(one.region.results))]
        assert made == expected, name
        assert ended.cycles == stream_cycles(stream.works, machine), name
        assert stream.feature_bytes <= machine.arena_bytes
