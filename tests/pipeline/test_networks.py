"""Networks of the kinds that people bring, compiled for the plain host, compute what onnxruntime does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests._support.onnx_builder import run_onnxruntime
from tests.networks import NETWORKS
from tests.networks.transformers import KEPT, WORDS

import uma
from uma.artifact import Artifact
from uma.frontends import import_model
from uma.runtime.tensors import random_array

QUICK = ("bert", "crnn", "mobilenetv3")
"""One of each kind of layers; the soak has all of them, optimised as by default."""

TOLERANCE = 1e-5
"""Of the largest output."""


def random_inputs(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Normal floats; integers are words, or a mask of 0 and 1 where the network is told of no words."""
    rng = np.random.default_rng(seed)
    made = {}
    for index, value in enumerate(model.graph.input):
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            made[value.name] = rng.integers(0, 2 if index else 50, shape)
        else:
            made[value.name] = rng.standard_normal(shape).astype(np.float32)
    return made


def built(name: str, target: str) -> tuple[Artifact, bytes]:
    data = NETWORKS[name]().SerializeToString()
    return uma.build(import_model(data).module, target, name=name), data


def agrees(got: dict[str, np.ndarray], expected: list[np.ndarray]) -> None:
    for ours, theirs in zip(got.values(), expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * max(np.abs(theirs).max(), 1e-30))


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, "c -opt=1") for name in QUICK),
        *(pytest.param(name, "c", marks=pytest.mark.soak) for name in NETWORKS),
    ],
)
def test_a_network_computes_what_onnxruntime_does(name: str, target: str) -> None:
    artifact, data = built(name, target)
    with artifact.session() as session:
        for seed in range(3):
            inputs = random_inputs(onnx.load_from_string(data), seed)
            agrees(session.run(inputs), run_onnxruntime(data, inputs))


def test_a_decoder_writes_token_by_token() -> None:
    """Twenty tokens, each the likeliest after the one before; what is remembered is handed from call to call."""
    artifact, data = built("decoder", "c -opt=1")
    token, place, *kept = (value.name for value in onnx.load_from_string(data).graph.input)
    _, *remembered = (value.name for value in onnx.load_from_string(data).graph.output)
    shape = artifact.metadata["inputs"][2]["shape"]
    assert shape[2] == KEPT >= 20
    memory = {name: np.zeros(shape, np.float32) for name in kept}
    words, inputs = [7], {}
    for step in range(20):
        inputs = {token: np.array([[words[-1]]]), place: np.array([step]), **memory}
        got = artifact.run(inputs)
        agrees(got, run_onnxruntime(data, inputs))
        memory = {name: got[made] for name, made in zip(kept, remembered, strict=True)}
        words.append(int(next(iter(got.values())).argmax()))
    assert len(set(words)) > 2
    assert max(words) < WORDS


def test_a_network_is_the_same_bytes_each_time() -> None:
    for name in ("decoder", "unet"):
        assert NETWORKS[name]().SerializeToString() == NETWORKS[name]().SerializeToString()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("file", "shapes"),
    [
        ("bert_tiny_s128_fp32", {}),
        ("magika_v3_3", {"bytes": (1, 2048)}),
        ("ppocr_cls", {"x": (1, 3, 48, 192)}),
        ("tcresnet8_fp32", {}),
    ],
)
def test_models_of_others_compute_what_onnxruntime_does(
    models: Path, file: str, shapes: dict[str, tuple[int, ...]]
) -> None:
    path = models / "others" / f"{file}.onnx"
    artifact = uma.build(path, "c", shapes=shapes)
    inputs = {row["name"]: random_array(row["shape"], row["dtype"], 0) for row in artifact.metadata["inputs"]}
    agrees(artifact.run(inputs), run_onnxruntime(path.read_bytes(), inputs))
