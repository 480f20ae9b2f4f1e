"""The plugin as a package: what it takes, which library it chooses, what it tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import built, module_of

import uma
import uma_blas.library
from uma.errors import ModelError, ToolchainError, UsageError
from uma.hookspecs import Runtime
from uma.lowering.build_targets import resolve_targets
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, TensorType, Var, call, const
from uma.relay.pattern import Match, Mismatch, match
from uma.reports.explain import explain
from uma.toolchain import find_library
from uma_blas import KIND
from uma_blas.library import ALTERNATIVES, library_of
from uma_blas.supported import PATTERNS

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("blas", "uma_blas", "uma-blas", "0.1.0"),
    ]
)
PATTERN = {pattern.name: pattern for pattern in PATTERNS}["blas.matmul"]


def var(name: str, *shape: int, dtype: str = "float32") -> Var:
    return Var(name, TensorType(shape, dtype))


def ones(*shape: int) -> Expr:
    return const(np.ones(shape, np.float32))


PRODUCT = call("matmul", var("a", 2, 5, 7), var("b", 7, 4))


def test_it_is_an_accelerator_on_the_processor() -> None:
    kind = PLUGINS.kind("blas")
    assert kind is KIND and (kind.device_type, kind.is_host) == ("cpu", False)


@pytest.mark.parametrize("text", ["-library=mkl", "-gflops=0"])
def test_what_it_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=text[1 : text.index("=")]):
        PLUGINS.target(f"blas {text}")


@pytest.mark.parametrize("bias", [ones(4), ones(1, 4), ones(1, 1, 4)])
def test_biases_that_are_taken(bias: Expr) -> None:
    assert isinstance(match(PATTERN, call("add", PRODUCT, bias)), Match)


@pytest.mark.parametrize("bias", [ones(1), ones(5, 1), ones(5, 4), ones(1, 1, 1, 4)])
def test_biases_that_are_not(bias: Expr) -> None:
    found = match(PATTERN, call("add", PRODUCT, bias))
    assert isinstance(found, Mismatch)
    shape = bias.shape
    assert found.failure.reason == (
        f"clause bias_per_column: a bias has one number per column of the result; this has shape {shape}"
    )


def test_batches_of_too_many_steps() -> None:
    found = match(PATTERN, call("matmul", var("a", 2, 1, 2, 1, 2, 3), var("b", 1, 2, 1, 2, 3, 2)))
    assert isinstance(found, Mismatch)
    assert found.failure.reason == (
        "clause few_batch_dimensions: the batch is gone through in 3 loops at most; this one takes 4"
    )


def test_other_types_stay_on_the_host() -> None:
    found = match(PATTERN, call("matmul", var("a", 2, 3, dtype="float64"), var("b", 3, 2, dtype="float64")))
    assert isinstance(found, Mismatch) and "dtype is float64" in found.failure.reason


def taken(body: Expr) -> dict[str, str | None]:
    """Of each op the target that has it, with the BLAS that is chosen."""
    build = built(module_of(body), resolve_targets(["blas", "c"], PLUGINS))
    return {op.op: op.owner for op in explain(build).ops}


@pytest.mark.usefixtures("checked")
def test_what_is_used_elsewhere_is_computed_there() -> None:
    x = var("x", 5, 5)
    turned = call("transpose", x, axes=(1, 0))
    assert taken(call("matmul", turned, x)) == {"transpose": "blas", "matmul": "blas"}
    both = call("multiply", call("matmul", turned, x), turned)
    assert taken(both) == {"transpose": None, "matmul": "blas", "multiply": None}
    scattered = call("matmul", call("transpose", var("y", 5, 5, 5), axes=(2, 0, 1)), x)
    assert taken(scattered) == {"transpose": None, "matmul": "blas"}
    twice = call("matmul", var("z", 1, 5), x)
    assert taken(call("add", twice, twice)) == {"matmul": "blas", "add": None}


@pytest.mark.usefixtures("checked")
def test_a_region_that_the_model_made_is_not_for_it() -> None:
    x = var("x", 5, 5)
    region = Function([x], call("nn.relu", x), {"Compiler": "blas", "global_symbol": "mine"})
    mine = GlobalVar("mine", region.type)
    module = IRModule.from_functions({"main": Function([x], Call(mine, [x])), "mine": region})
    with pytest.raises(ModelError, match=r"'mine' on its target, which refuses it: nn\.relu stands for itself"):
        uma.build(module, ["blas", "c"], plugins=PLUGINS)


class TestLibrary:
    def test_the_first_that_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        there = {"blas", "cblas"}
        monkeypatch.setattr(
            uma_blas.library, "find_library", lambda library: Path("/x") if library.name in there else None
        )
        assert library_of("auto").name == "blas"
        there.add("openblas")
        assert library_of("auto").name == "openblas"
        there.clear()
        assert library_of("auto") == ALTERNATIVES["scipy_openblas"]  # which pip installs
        assert library_of("cblas").name == "cblas"

    def test_its_names(self) -> None:
        made = PLUGINS.plugin_for("blas").call("runtime", target=PLUGINS.target("blas -library=scipy_openblas"))
        assert isinstance(made, Runtime)
        assert made.libraries == (ALTERNATIVES["scipy_openblas"],)
        assert made.sources["uma_blas_library.h"] == "#define UMA_BLAS_SGEMM scipy_cblas_sgemm\n"

    @pytest.mark.usefixtures("compilers")
    def test_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("UMA_LIBRARY_PATH", raising=False)
        missing = [library for library in ALTERNATIVES.values() if find_library(library) is None]
        if not missing:
            pytest.skip("this machine has every BLAS")
        target = f"blas -library={missing[0].name}"
        with pytest.raises(ToolchainError, match=f"library '{missing[0].name}' is missing") as error:
            uma.build(module_of(PRODUCT), [target, "c"], plugins=PLUGINS)
        assert error.value.where == "target 'blas'" and "UMA_LIBRARY_PATH" in (error.value.hint or "")
