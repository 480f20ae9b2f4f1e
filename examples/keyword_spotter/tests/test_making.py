"""The making of the model: gradients, the exported file, speech that is none."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from keyword_spotter.making.export import to_onnx
from keyword_spotter.making.network import Network
from keyword_spotter.making.speech import PAUSE_SAMPLES, Voice, pieces, spoken
from keyword_spotter.making.train import answers, loss_gradient


@pytest.mark.soak
def test_gradients_are_those_of_differences() -> None:
    """Of one value of each array of each layer, in float64."""
    network, draw = Network(0), np.random.default_rng(1)
    for layer in network.layers.values():
        layer.values = {name: values.astype(np.float64) for name, values in layer.values.items()}
    maps, labels = draw.normal(0, 0.3, (2, 101, 40)), draw.integers(0, 12, 2)

    def loss() -> float:
        return loss_gradient(network.forward(maps, training=True), labels)[0]

    network.backward(loss_gradient(network.forward(maps, training=True), labels)[1])
    found = {name: dict(layer.gradients) for name, layer in network.layers.items()}
    step = 1e-7  # so small that hardly a ReLU has its kink within it
    for name, layer in network.layers.items():
        for which, values in layer.values.items():
            at = int(draw.integers(values.size))
            kept = values.flat[at]
            values.flat[at] = kept + step
            above = loss()
            values.flat[at] = kept - step
            below = loss()
            values.flat[at] = kept
            wanted = (above - below) / (2 * step)
            assert found[name][which].flat[at] == pytest.approx(wanted, rel=1e-3, abs=1e-6), (name, which)


def test_the_file_computes_what_was_trained() -> None:
    """A folded network of random numbers on random features: every logit, ties and clamps included."""
    network, draw = Network(0), np.random.default_rng(3)
    for layer in network.layers.values():
        layer.mean = draw.normal(0, 0.1, layer.mean.shape).astype(np.float32)
        layer.variance = draw.uniform(0.1, 0.4, layer.variance.shape).astype(np.float32)
    network.fold()
    for layer in network.layers.values():
        layer.values["bias"] = draw.normal(0, 0.2, layer.values["bias"].shape).astype(np.float32)
    taken = draw.integers(-128, 128, (8, 40, 101)).astype(np.int8)
    session = onnxruntime.InferenceSession(to_onnx(network))
    found = np.concatenate([session.run(None, {"features": one[None]})[0] for one in taken])
    np.testing.assert_array_equal(found, answers(network, taken) * 128)
    assert len(np.unique(found)) > 20


def test_words_are_cut_at_pauses() -> None:
    pause, word = np.zeros(PAUSE_SAMPLES + 1, np.float32), np.ones(2_000, np.float32)
    found = pieces(np.concatenate([pause, word, pause, word / 2, pause]))
    assert len(found) == 2 and all(one.max() == 0.5 and 2_000 <= len(one) < 3_000 for one in found)


def test_a_voice_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "silent.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2_000))
    program = tmp_path / "usr" / "bin" / "flite"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\n/bin/cp "{tmp_path}/silent.wav" "$4"\n')
    program.chmod(0o755)
    voice = Voice("nobody", "flite", ("-voice", "nobody"), test=False)
    with pytest.raises(RuntimeError, match=r"nobody \(-voice nobody\) speaks 2 words in \[\] s"):
        spoken(tmp_path, voice, ["one", "two"], tmp_path)
