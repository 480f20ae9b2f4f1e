"""Train the network, in float and then as UltraTrail computes, and write the model and the clips of the example.

    python -m keyword_spotter.making.train FOLDER [-o OUTPUT]

takes what `augment` made in FOLDER, and writes spotter.onnx, clips.npz, wavs/ and results.json into OUTPUT, which is
FOLDER where it is not given.
"""

from __future__ import annotations

import argparse
import json
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import NOISE, WORDS
from ..features import FRAMES, SAMPLE_RATE_HZ
from ..spotting import SHARPNESS
from .export import to_onnx
from .network import Array, Layer, Network

SEED = 0
BATCH = 128
FLOAT_STEPS, QUANTISED_STEPS = 3500, 1000
FLOAT_RATE, QUANTISED_RATE = 4e-3, 1e-3
WEIGHT_DECAY = 2e-3
LABEL_SMOOTHING = 0.05
SHIFT_FRAMES = 6
STORED_PER_VOICE = 20


class Adam:
    """AdamW (Loshchilov and Hutter, 2019) over the values of the layers, with a rate that falls as a cosine to 0."""

    def __init__(self, layers: list[Layer], rate: float, steps: int) -> None:
        self.layers, self.rate, self.steps, self.done = layers, rate, steps, 0
        self.moments = [{n: (np.zeros_like(v), np.zeros_like(v)) for n, v in layer.values.items()} for layer in layers]

    def step(self) -> None:
        """One step along the layers' gradients."""
        rate = self.rate * (0.5 + 0.5 * np.cos(np.pi * self.done / self.steps)) * min(1, (self.done + 1) / 100)
        self.done += 1
        for layer, moments in zip(self.layers, self.moments, strict=True):
            for name, (first, second) in moments.items():
                gradient, value = layer.gradients[name], layer.values[name]
                first += np.float32(0.1) * (gradient - first)
                second += np.float32(0.001) * (gradient * gradient - second)
                move = first / (1 - 0.9**self.done) / (np.sqrt(second / (1 - 0.999**self.done)) + 1e-8)
                if name == "weights":
                    move = move + WEIGHT_DECAY * value
                value -= (rate * move).astype(np.float32)
            layer.clamp()


def batches(
    features: NDArray[np.int8], labels: NDArray[np.uint8], draw: np.random.Generator
) -> tuple[Array, NDArray[np.uint8]]:
    """A random batch, each clip moved by up to SHIFT_FRAMES, its first or last frame repeated."""
    chosen = draw.integers(0, len(features), BATCH)
    shift = draw.integers(-SHIFT_FRAMES, SHIFT_FRAMES + 1, BATCH)
    frames = np.clip(np.arange(FRAMES) + shift[:, None], 0, FRAMES - 1)
    return features[chosen[:, None], frames].astype(np.float32) / np.float32(128), labels[chosen]


def loss_gradient(logits: Array, labels: NDArray[np.uint8]) -> tuple[float, Array]:
    """The mean cross entropy with smoothed labels, and its gradient by the logits."""
    sharp = np.float32(SHARPNESS * 128)
    shifted = (logits - logits.max(axis=1, keepdims=True)) * sharp
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    wanted = np.full_like(logits, LABEL_SMOOTHING / len(WORDS))
    wanted[np.arange(len(labels)), labels] += np.float32(1 - LABEL_SMOOTHING)
    return float(-(wanted * logs).sum(axis=1).mean()), (np.exp(logs) - wanted) * (sharp / np.float32(len(labels)))


def run(network: Network, data: dict[str, NDArray[Any]], rate: float, steps: int, draw: np.random.Generator) -> None:
    """So many steps of training."""
    optimiser = Adam(list(network.layers.values()), rate, steps)
    total, began = 0.0, time.perf_counter()
    for step in range(1, steps + 1):
        x, labels = batches(data["features"], data["labels"], draw)
        loss, gradient = loss_gradient(network.forward(x, training=True), labels)
        network.backward(gradient)
        optimiser.step()
        total += loss
        if step % 250 == 0:
            print(f"step {step} of {steps}: loss {total / 250:.3f}, {time.perf_counter() - began:.0f} s", flush=True)
            total = 0.0


def answers(network: Network, features: NDArray[np.int8]) -> NDArray[np.float32]:
    """The logits, float32 [clips, classes], for features int8 [clips, 40, 101]."""
    parts = np.array_split(features, max(1, len(features) // BATCH))
    maps = (part.transpose(0, 2, 1).astype(np.float32) / np.float32(128) for part in parts)
    return np.concatenate([network.forward(one) for one in maps])


def per_voice(values: NDArray[np.bool_], voices: NDArray[np.str_]) -> dict[str, NDArray[np.bool_]]:
    """`values` of all voices together, without the noise; of each voice; and of the noise."""
    return {"all voices": values[voices != NOISE]} | {str(v): values[voices == v] for v in np.unique(voices)}


def write_clips(test: dict[str, NDArray[Any]], folder: Path) -> None:
    """clips.npz: clips of each voice, at equal distances in its list; wavs/: one of them of each class."""
    rows = [np.flatnonzero(test["voices"] == v) for v in np.unique(test["voices"])]
    chosen = np.concatenate([one[np.linspace(0, len(one) - 1, STORED_PER_VOICE).astype(int)] for one in rows])
    np.savez_compressed(folder / "clips.npz", **{name: test[name][chosen] for name in ("features", "labels", "voices")})
    (folder / "wavs").mkdir(exist_ok=True)
    for number, word in enumerate(WORDS):
        spoken = chosen[test["labels"][chosen] == number]
        with wave.open(str(folder / "wavs" / f"{word}.wav"), "wb") as file:
            file.setparams((1, 2, SAMPLE_RATE_HZ, 0, "NONE", ""))
            file.writeframes(test["clips"][spoken[len(spoken) * number // len(WORDS)]].astype("<i2").tobytes())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="default: FOLDER")
    given = parser.parse_args()
    folder, output = given.folder, given.output or given.folder
    began = time.perf_counter()
    with np.load(folder / "training.npz") as file:
        data = dict(file)
    with np.load(folder / "test.npz") as file:
        test = dict(file)
    network, draw = Network(SEED), np.random.default_rng(SEED)
    tried: dict[str, dict[str, float]] = {}

    def evaluate(name: str) -> None:
        right = per_voice(answers(network, test["features"]).argmax(axis=1) == test["labels"], test["voices"])
        tried[name] = {voice: float(ones.mean()) for voice, ones in right.items()}
        print(f"{name}: {tried[name]['all voices']:.3f}", flush=True)

    run(network, data, FLOAT_RATE, FLOAT_STEPS, draw)
    evaluate("float")
    network.fold()
    evaluate("rounded")
    run(network, data, QUANTISED_RATE, QUANTISED_STEPS, draw)
    evaluate("quantised")
    output.mkdir(parents=True, exist_ok=True)
    (output / "spotter.onnx").write_bytes(to_onnx(network))
    write_clips(test, output)
    counts = {voice: len(ones) for voice, ones in per_voice(test["labels"] >= 0, test["voices"]).items()}
    about = {"seed": SEED, "clips": counts, "accuracy": tried}
    (output / "results.json").write_text(json.dumps(about, indent=2) + "\n")
    print(f"in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
