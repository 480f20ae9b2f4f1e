"""What the plugin is: its kind, what its patterns take, which library it finds, what it tells."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import module_of

import uma
import uma_onednn.library
from uma.errors import DeviceError, ToolchainError, UsageError
from uma.hookspecs import Library, Runtime
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import LoadedModel
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Expr, FixedPoint, IRModule, TensorType, Var, call, const
from uma.relay.pattern import Match, Mismatch, match
from uma.reports.explain import explain
from uma.toolchain import find_library
from uma_onednn import FAULTS, KIND
from uma_onednn.exact import LARGEST_EXACT, largest_sum
from uma_onednn.match_reader import KEEPS_NO_NAN, operation_of
from uma_onednn.supported import make_patterns

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("onednn", "uma_onednn", "uma-onednn", "0.1.0"),
    ]
)
PATTERNS = {pattern.name: pattern for pattern in make_patterns(int8=True, keep_nan=False)}


def var(name: str, *shape: int, dtype: str = "float32") -> Var:
    return Var(name, TensorType(shape, dtype))


def ones(*shape: int, dtype: type = np.float32) -> Expr:
    return const(np.ones(shape, dtype))


CONV = call("nn.conv2d", var("x", 1, 8, 8, 4), ones(3, 3, 4, 6))


def reason(pattern: str, expr: Expr) -> str:
    found = match(PATTERNS[f"onednn.{pattern}"], expr)
    assert isinstance(found, Mismatch)
    return found.failure.reason


def taken(pattern: str, expr: Expr) -> Match:
    found = match(PATTERNS[f"onednn.{pattern}"], expr)
    assert isinstance(found, Match), found
    return found


def test_it_is_an_accelerator_on_the_processor() -> None:
    kind = PLUGINS.kind("onednn")
    assert kind is KIND and (kind.device_type, kind.is_host) == ("cpu", False)
    target = PLUGINS.target("onednn")
    assert (target.get_attr("impl"), target.get_attr("launch_ns"), target.get_attr("nan")) == ("library", 0, "any")


@pytest.mark.parametrize("text", ["-impl=sim", "-gflops=0", "-nan=never", "-int8=2"])
def test_what_it_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=text[1 : text.index("=")]):
        PLUGINS.target(f"onednn {text}")


class TestPatterns:
    @pytest.mark.parametrize("bias", [ones(6), ones(1, 6), ones(1, 1, 1, 6)])
    def test_a_bias_per_channel(self, bias: Expr) -> None:
        assert operation_of(taken("conv2d", call("add", CONV, bias))).bias is not None

    def test_other_biases_are_residuals_or_none(self) -> None:
        whole = taken("conv2d", call("add", CONV, ones(1, 6, 6, 6)))
        assert "other" in whole.captures and "bias" not in whole.captures
        for bias in (ones(1), ones(6, 1, 1)):
            assert "there is no" not in reason("conv2d", call("add", CONV, bias))

    def test_the_reasons(self) -> None:
        small = call("nn.conv2d", var("x", 1, 8, 8, 4), var("w", 3, 3, 4, 6))
        assert "constant" in reason("conv2d", small)
        wide = call("nn.conv2d", var("x", 1, 8, 8, 4, dtype="float64"), const(np.ones((3, 3, 4, 6))))
        assert "float64" in reason("conv2d", wide)
        deep = call("matmul", var("a", 2, 1, 2, 1, 3, 4), var("b", 1, 2, 1, 2, 4, 5))
        assert reason("matmul", deep) == (
            "clause few_batch_dimensions: a product has 3 dimensions besides its rows and columns at most; this has 4"
        )
        turned = call("transpose", var("a", 4, 5, 6), axes=(2, 0, 1))
        assert "transposed" not in {*taken("matmul", call("matmul", turned, var("b", 5, 2))).captures}
        assert reason("global_max_pool", call("nn.global_max_pool", var("x", 1, 2, 2, 2, 2, 3))) == (
            "clause few_dimensions: the space has at most 3 dimensions; this has 4"
        )
        broad = call("add", var("a", 4, 1, 3), var("b", 1, 5, 3))
        assert "(4, 1, 3) and (1, 5, 3)" in reason("add", broad)

    def test_all_that_follows_is_one_match(self) -> None:
        value = call("clip", call("add", call("add", CONV, ones(6)), var("y", 1, 6, 6, 6)), a_min=0.0, a_max=6.0)
        found = taken("conv2d", value)
        assert len(found.nodes) == 4
        first, second = operation_of(found).posts
        assert (first.alg, second.alg, second.beta) == (0x1FFF0, 0x2E, 6.0)

    def test_what_makes_numbers_of_nan_is_left_out(self) -> None:
        kept = {pattern.name.partition(".")[2] for pattern in make_patterns(int8=False, keep_nan=True)}
        named = {name.replace("nn.", "") for name in KEEPS_NO_NAN}
        assert not kept & named and {"tanh", "conv2d", "add"} <= kept and not any("int8" in name for name in kept)
        (conv,) = (p for p in make_patterns(int8=False, keep_nan=True) if p.name == "onednn.conv2d")
        assert isinstance(match(conv, call("nn.relu", CONV)), Mismatch)
        assert isinstance(match(conv, call("tanh", CONV)), Match)


class TestExactSums:
    @pytest.mark.parametrize("zero", [0, -128, 127, 9])
    @pytest.mark.parametrize("seed", range(3))
    def test_the_bound_holds_for_every_way_to_sum(self, zero: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        weights = rng.integers(-128, 128, (3, 10)).astype(np.int8)
        product = call("qnn.dense", var("x", 1, 10, dtype="int8"), const(weights), input_zero_point=zero)
        bound = largest_sum(taken("int8_dense", product))
        reached = 0
        for low in (-128, -128 - zero, 0, -zero):
            for pick in (weights > 0, weights < 0):  # the data that makes the sum of each unit as large as can be
                extremes = np.where(pick, low + 255, low)
                for size in range(1, 11):
                    sums = (extremes * weights.astype(np.int64))[:, :size].sum(axis=1)
                    assert np.abs(sums).max() <= bound
                    reached = max(reached, int(np.abs(sums).max()))
        assert reached >= bound / 2  # and it is not much too large

    def test_larger_ones_stay_on_the_host(self) -> None:
        depth = LARGEST_EXACT // (255 * 127)
        for extent, fits in ((depth, True), (depth + 1, False)):
            weight = const(np.full((1, extent), 127, np.int8))
            found = match(PATTERNS["onednn.int8_dense"], call("qnn.dense", var("x", 1, extent, dtype="int8"), weight))
            assert isinstance(found, Match) is fits
            if isinstance(found, Mismatch):
                assert found.failure.reason == (
                    "clause exact_sums: sums pass through float32, which holds whole numbers up to 16777216; of these "
                    f"weights they may be {255 * 127 * extent}"
                )

    def test_requantisation_stays_on_the_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uma_onednn.library, "find_library", lambda library: None)  # none, whichever is here
        sums = call("qnn.dense", var("x", 2, 8, dtype="int8"), const(np.ones((4, 8), np.int8)), input_zero_point=3)
        scaled = call("qnn.requantize", sums, scale=FixedPoint((2**30,), (-7,), "double"), axis=-1, dtype="int8")
        members = resolve_targets("c -compiler=onednn", PLUGINS)
        build = start_build(LoadedModel(module_of(scaled), "layer"), members)
        build.run(module_of(scaled), "lower")
        owners = {op.op: op.owner for op in explain(build).ops}
        assert owners == {"qnn.dense": "onednn", "qnn.requantize": None}


class TestLibrary:
    def test_an_old_one_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def find(library: Library) -> Path | None:
            return Path("/usr/lib/libdnnl.so") if library.symbols == ("dnnl_version",) else None

        monkeypatch.setattr(uma_onednn.library, "find_library", find)
        with pytest.raises(ToolchainError, match=r"libdnnl\.so is oneDNN of a version before 3") as error:
            PLUGINS.plugin_for("onednn").call("runtime", target=PLUGINS.target("onednn"))
        assert "pip install onednn-cpu-gomp" in (error.value.hint or "")

    @pytest.mark.usefixtures("compilers")
    def test_an_old_one_by_what_it_has(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilers: tuple[str, ...]
    ) -> None:
        source = tmp_path / "old.c"
        source.write_text("const void *dnnl_version(void) { return 0; }\n")
        command = [compilers[0], "-shared", "-fPIC", str(source), "-o", str(tmp_path / "libdnnl.so")]
        subprocess.run(command, check=True)
        monkeypatch.setenv("UMA_LIBRARY_PATH", str(tmp_path))
        with pytest.raises(ToolchainError, match="version before 3"):
            uma_onednn.library.check_library()

    def test_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uma_onednn.library, "find_library", lambda library: None)
        made = PLUGINS.plugin_for("onednn").call("runtime", target=PLUGINS.target("onednn"))
        assert isinstance(made, Runtime) and made.libraries[0].package == "onednn-cpu-gomp"
        monkeypatch.delenv("UMA_LIBRARY_PATH", raising=False)
        if find_library(made.libraries[0]) is not None:
            return
        with pytest.raises(ToolchainError, match="library 'dnnl' is missing") as error:
            uma.build(module_of(CONV), "c -compiler=onednn", plugins=PLUGINS)
        assert "UMA_LIBRARY_PATH" in (error.value.hint or "")


def test_faults_say_what_happened(fake_dnnl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_LIBRARY_PATH", str(fake_dnnl))
    x = var("x", 1, 4, 4, 8, dtype="int8")
    module: IRModule = module_of(call("qnn.conv2d", x, const(np.ones((1, 1, 8, 8), np.int8)), input_zero_point=-3))
    artifact = uma.build(module, "c -compiler=onednn", plugins=PLUGINS)
    given = np.zeros((1, 4, 4, 8), np.int8)
    with artifact.session() as session:
        session.run({"x": given})
    for name, value, code in (
        ("FAKE_DNNL_ISA", "39", 66),  # AVX-512 alone
        ("FAKE_DNNL_VERSION", "4", 64),
        ("FAKE_DNNL_FAILS", "dnnl_primitive_execute", 5),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(DeviceError, match=f"fault {code}") as error, artifact.session() as session:
                session.run({"x": given})
        assert FAULTS[code] in str(error.value)
