"""Kernels that are fused from any operators: all pairs and many triples of them build for every kind of CPU, no
strategy fails on one, and the results are those of the operators' references.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, target_for
from tests._support.onnx_builder import OnnxBuilder
from tests._support.op_chains import FORMATS, Chain, model_of, pairs, suffix_of, triples
from tests._support.programs import interpret_program

from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.pipeline.driver import build_loaded, lower_loaded
from uma.pipeline.loading import LoadedModel, load_model
from uma.program import Program
from uma.relay import IRModule
from uma.relay.evaluate import evaluate

CPUS = {
    "x86-64": "c -mcpu=x86-64",
    "x86-64-v3": "c -mcpu=x86-64-v3",
    "x86-64-v4": "c -mcpu=x86-64-v4",
    "AArch64": "c -mtriple=aarch64-linux-gnu -mcpu=cortex-a53",
    "Cortex-M4F": "c -mcpu=cortex-m4f",
}

FAILED = [
    *(Chain("tflite int8", (curve, "AVERAGE_POOL_2D"), 16) for curve in ("TANH", "LOGISTIC", "HARD_SWISH")),
    *(Chain("tflite int8", ("HARD_SWISH", "AVERAGE_POOL_2D:3x3"), channels) for channels in (17, 64)),
    Chain("tflite int8", ("TANH", "to:float32", "SOFTMAX"), 64),
    Chain("tflite int8", ("to:float32", "SOFTMAX", "to:int8", "TANH"), 65),
    *(Chain("onnx int8", ("MaxPool:3x3",), channels) for channels in (16, 33)),
    *(
        Chain("onnx float32", (op, cast), 64, is_image=False)
        for op, cast in zip(
            ("MatMul", "Gemm", "Softmax", "LogSoftmax", "LayerNormalization"),
            ("to:int64", "to:float64", "to:int64", "to:float64", "to:int64"),
            strict=True,
        )
    ),
]
"""Chains that could not be built, but for x86-64 without vectors and Cortex-M."""


@cache
def members_of(cpu: str) -> BuildTargets:
    return resolve_targets(CPUS[cpu], PLUGINS)


def loaded(chains: Sequence[Chain], folder: Path) -> LoadedModel:
    """A model that computes chains of one importer side by side."""
    path = folder / f"m{suffix_of(chains[0])}"
    path.write_bytes(model_of(chains))
    return load_model(path)


def check_builds(chains: Sequence[Chain], cpus: Sequence[str], folder: Path) -> None:
    """Chains build without a word: where a strategy fails, there is a warning, which is an error here."""
    for chain in chains:
        model = loaded([chain], folder)
        for cpu in cpus:
            try:
                build_loaded(model, members_of(cpu))
            except Exception as error:
                raise AssertionError(f"{chain}, for {cpu}: {error}") from error


def values_for(module: IRModule, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = {}
    for param in module.main.params:
        shape, dtype = param.tensor.shape, param.dtype
        if dtype == "float32":
            values[param.name] = rng.normal(size=shape).astype(dtype)
        else:
            values[param.name] = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return values


ROUNDING = {"to:float16", "to:int32", "to:int64", "to:bool", "Floor", "ArgMax", "ARG_MAX"}
"""Operators whose result may jump where the last bit of a float differs."""


def same(chains: Sequence[Chain], found: Sequence[np.ndarray], module: IRModule, values: dict[str, np.ndarray]) -> None:
    """Integers are equal to the bit, floats to 1e-4; of floats that are rounded to fewer values one in a hundred may be
    rounded to another one.
    """
    for chain, output, right in zip(chains, found, evaluate(module, values), strict=True):
        assert right.size and output.dtype == right.dtype
        tolerance = 1e-4 if right.dtype.kind == "f" else 0
        differ = ~np.isclose(output.reshape(right.shape), right, rtol=tolerance, atol=tolerance, equal_nan=True)
        is_rounded = chain.format == "onnx int8" or not ROUNDING.isdisjoint(chain.ops)
        most = max(1, right.size // 100) if is_rounded else 0
        places = np.argwhere(differ)[:3].tolist()
        assert np.count_nonzero(differ) <= most, f"{chain}: {np.count_nonzero(differ)} of {right.size} differ: {places}"


def check_runs(chains: Sequence[Chain], target: str, folder: Path) -> None:
    """What chains compute, compiled, is what their operators' references do."""
    model = loaded(chains, folder)
    assert isinstance(model.form, IRModule)
    values = values_for(model.form, chains[0].seed)
    artifact = build_loaded(model, resolve_targets(target, PLUGINS))
    same(chains, list(artifact.run(values).values()), model.form, values)


def check_interpreted(chains: Sequence[Chain], cpu: str, folder: Path) -> None:
    """What the loops of chains compute, interpreted, is what their operators' references do."""
    for chain in chains:
        model = loaded([chain], folder)
        assert isinstance(model.form, IRModule)
        values = values_for(model.form, chain.seed)
        program = lower_loaded(model, members_of(cpu), "sequence")
        assert isinstance(program, Program)
        given = zip(program.inputs, values.values(), strict=True)
        found = interpret_program(program, {buffer.name: value.ravel() for buffer, value in given})
        same([chain], list(found.values()), model.form, values)


@pytest.mark.parametrize("cpu", ["x86-64-v3", pytest.param("x86-64-v4", marks=pytest.mark.soak), "AArch64"])
@pytest.mark.parametrize("format", ["tflite int8", "onnx int8", "onnx float32"])
def test_chains_that_failed_build(format: str, cpu: str, tmp_path: Path) -> None:
    chains = [chain for chain in FAILED if chain.format == format]
    check_builds(chains if cpu == "x86-64-v3" else chains[:1], [cpu], tmp_path)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "AArch64"])
@pytest.mark.few(1)
def test_a_loss_of_many_classes_builds(cpu: str, tmp_path: Path) -> None:
    b = OnnxBuilder()
    scores, labels = b.input("scores", (4, 64)), b.input("labels", (4,), "int64")
    (tmp_path / "m.onnx").write_bytes(b.build(b.node("SoftmaxCrossEntropyLoss", scores, labels)))
    build_loaded(load_model(tmp_path / "m.onnx"), members_of(cpu))


@pytest.mark.parametrize("format", FORMATS)
def test_some_pairs_build_for_every_cpu(format: str, tmp_path: Path) -> None:
    check_builds(list(triples(format, 1, 45)), list(CPUS), tmp_path)


def test_chains_compute_what_their_operators_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_for("avx2", "gcc", monkeypatch)
    check_runs([chain for chain in FAILED if chain.format == "tflite int8"], target, tmp_path)


PARTS = 16
"""Of the pairs of one format: so that tests take a minute at most."""


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("format", FORMATS)
def test_all_pairs_build(format: str, part: int, tmp_path: Path) -> None:
    """For the CPU that has most of the strategies; every other one for one of the other CPUs as well."""
    others = [cpu for cpu in CPUS if cpu != "x86-64-v3"]
    for number, chain in enumerate(islice(pairs(format), part, None, PARTS)):
        also = [others[number // 2 % len(others)]] if number % 2 else []
        check_builds([chain], ["x86-64-v3", *also], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("format", FORMATS)
def test_many_triples_build(format: str, seed: int, tmp_path: Path) -> None:
    cpus = list(CPUS)
    for number, chain in enumerate(triples(format, 100, seed)):
        check_builds([chain], [cpus[number % len(cpus)]], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["x86-64", "avx2", "avx512_vnni", "asimd"])
@pytest.mark.parametrize("format", FORMATS)
def test_many_chains_compute_what_their_operators_do(
    format: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains = [*islice(pairs(format), 0, None, 150), *triples(format, 10, 99)]
    check_runs(chains, target_for(name, "gcc", monkeypatch), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("format", FORMATS)
def test_loops_for_a_microcontroller_compute_what_operators_do(format: str, tmp_path: Path) -> None:
    check_interpreted(list(islice(pairs(format), 0, None, 150)), "Cortex-M4F", tmp_path)
