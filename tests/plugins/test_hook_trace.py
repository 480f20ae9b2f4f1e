"""The trace of hook calls."""

from __future__ import annotations

import re

import pytest
from tests._support.plugins import accelerator, entry_of

from uma.errors import PluginError
from uma.hookspecs import Cost, Pattern, Refuse
from uma.plugins import PluginHost
from uma.plugins.hook_trace import tracing_hooks
from uma.relay.pattern import op, wildcard
from uma.targets import Target


def patterns(target: Target) -> list[Pattern]:
    return [Pattern(f"npu.{name}", op("nn.relu")(wildcard("int8"))) for name in "abcd"]


def estimate_cost(region: object) -> Cost:
    if isinstance(region, str):
        raise Refuse("too large")
    return Cost(cycles=10)


def traced(*calls: tuple[str, dict[str, object]]) -> list[str]:
    """The lines of some hook calls, without their times."""
    [entry] = entry_of(accelerator("npu"), patterns=patterns, estimate_cost=estimate_cost, runtime=lambda target: 3)
    lines: list[str] = []

    def report(call: str) -> None:
        line, _, ms = call.rpartition(", ")
        assert re.fullmatch(r"[0-9]+\.[0-9]{2} ms", ms)
        lines.append(line)

    with tracing_hooks(report):
        plugin = PluginHost(lambda: [entry]).plugin_for("npu")
        for hook, arguments in calls:
            plugin.call(hook, **arguments)
    return lines


def test_a_call_has_its_plugin_arguments_and_result() -> None:
    target = Target(accelerator("npu"), {})
    region = {"function": object(), "region": None, "target": target}
    assert traced(("patterns", {"target": target}), ("strategies", {"target": target}), ("estimate_cost", region)) == [
        "uma-npu 1.0: register_target() -> [TargetKind npu]",
        "uma-npu 1.0: patterns(target=npu) -> [Pattern npu.a, Pattern npu.b, Pattern npu.c, ... 4 items]",
        "uma-npu 1.0: estimate_cost(function=object, region=None, target=npu) -> Cost(cycles=10)",
    ]


@pytest.mark.parametrize(
    ("hook", "region", "raised", "result"),
    [
        ("estimate_cost", "all", Refuse, "raised uma.contract.lowered.Refuse: too large"),
        ("runtime", None, PluginError, "3"),
    ],
)
def test_a_call_that_fails_is_reported(hook: str, region: str | None, raised: type[Exception], result: str) -> None:
    arguments: dict[str, object] = {"target": Target(accelerator("npu"), {})}
    if region is not None:
        arguments |= {"function": None, "region": region}
    [entry] = entry_of(accelerator("npu"), estimate_cost=estimate_cost, runtime=lambda target: 3)
    plugin = PluginHost(lambda: [entry]).plugin_for("npu")
    calls: list[str] = []
    with tracing_hooks(calls.append), pytest.raises(raised):
        plugin.call(hook, **arguments)
    assert len(calls) == 1 and f" -> {result}, " in calls[0]
    plugin.call("patterns", **arguments)
    assert len(calls) == 1, "tracing has ended"
