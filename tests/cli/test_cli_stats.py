"""`uma build --stats` and `--trace-hooks`: times of stages and passes, counts of rewrite rules, hook calls."""

from __future__ import annotations

from pathlib import Path

from tests._support.small_models import NET, Uma

from uma.pipeline.stages import STAGES
from uma.relay import Expr, TensorType, call, rewrite
from uma.relay import Var as RelayVar
from uma.relay.pattern import Pattern, match, op, wildcard
from uma.support.counters import active_counters, counting
from uma.tir import Bin, Imm, Var
from uma.tir.rewrites.simplify import simplify_expr


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_stats_list_every_stage_and_rule_and_change_no_file(uma: Uma, folder: Path) -> None:
    (folder / "net.py").write_text(NET)
    build = ("build", "net.py", "--target", "c", "--no-compile", "--json")
    assert "stats" not in uma(*build, "-o", "plain").json
    stats = uma(*build, "-o", "counted", "--stats").json["stats"]
    assert files_in(folder / "plain") == files_in(folder / "counted")
    stages = [row["name"] for row in stats["times"] if row["kind"] == "stage"]
    assert stages == list(STAGES)
    steps = [row["name"] for row in stats["times"] if row["kind"] == "step"]
    assert steps == ["read", "plan", "generate", "compile", "save"]
    assert all(row["runs"] >= 1 and row["seconds"] >= 0 for row in stats["times"])
    assert {row["kind"] for row in stats["rules"]} >= {"loops", "identity", "canonical", "relay"}
    assert all(row["tried"] >= row["applied"] >= 0 < row["tried"] for row in stats["rules"])
    assert any(row["applied"] for row in stats["rules"] if row["kind"] == "loops")
    rows = uma(*build[:-1], "--stats").out.splitlines()
    assert any(row.split()[:2] == ["stage", "fuse"] for row in rows)
    assert any(row.split()[:2] == ["loops", "_fold"] and "uma.tir.rewrites.rules:" in row for row in rows)


def test_stats_end_with_the_last_stage(uma: Uma, folder: Path) -> None:
    (folder / "net.py").write_text(NET)
    build = ("build", "net.py", "--target", "c", "--stop-after", "fuse", "--stats")
    times = uma(*build, "--json").json["stats"]["times"]
    assert [row["name"] for row in times if row["kind"] == "stage"] == list(STAGES[: STAGES.index("fuse") + 1])
    assert any(row.split()[:2] == ["stage", "fuse"] for row in uma(*build, "--dump", "stages").out.splitlines())


def test_a_rule_is_counted_where_it_was_tried_and_where_it_applied() -> None:
    x = Var("x")
    with counting() as counters:
        assert simplify_expr(Bin("add", x, Imm(0, "int32")), {}) is x
    assert active_counters() is None
    counts = {rule.name: (rule.tried, rule.applied) for rule in counters.rules if rule.kind != "pattern"}
    assert counts["add(x, 0) -> x"] == (1, 1)
    assert counts["_identity"] == (1, 1)


def test_a_pattern_and_a_relay_rule_are_counted() -> None:
    data = RelayVar("data", TensorType((4,), "float32"))
    relu, tanh = call("nn.relu", data), call("tanh", data)
    pattern = Pattern("relu", op("nn.relu")(wildcard("float32")))

    def to_tanh(expr: Expr) -> Expr | None:
        return tanh if expr is relu else None

    with counting() as counters:
        match(pattern, relu)
        match(pattern, tanh)
        assert rewrite(relu, to_tanh) is tanh
    assert [(rule.kind, rule.tried, rule.applied) for rule in counters.rules] == [("pattern", 2, 1), ("relay", 2, 1)]
    assert counters.rules[1].source.startswith(f"{__name__}:")


def test_trace_hooks_prints_each_call_and_changes_no_file(uma: Uma, folder: Path) -> None:
    (folder / "net.py").write_text(NET)
    build = ("build", "net.py", "--target", "c", "--no-compile", "--json")
    assert "hook: " not in uma(*build, "-o", "plain").err
    traced = uma(*build, "-o", "traced", "--trace-hooks")
    assert traced.json["name"] == "net"
    lines = [line for line in traced.err.splitlines() if line.startswith("hook: uma-cpu-c ")]
    assert any(
        " tir_to_runtime(module=IRModule, target=c, prefix='net_on_c') -> TargetCode, " in line for line in lines
    )
    assert files_in(folder / "plain") == files_in(folder / "traced")
