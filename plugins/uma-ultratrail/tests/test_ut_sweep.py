"""Random networks on machines of several sizes and widths: all that fits is taken, what does not says why, and the
results are those of integers in numpy either way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.conv_nets import Layer, Net, PoolForm, random_net, reference, side_by_side

from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import finish_build, start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.reports.explain import explain

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ultra_trail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
        PluginEntry("ultratrail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
    ]
)
BIAS_BITS = 6

MACHINES = [*itertools.product((4, 8, 16), (2, 4, 6, 8), (8,)), (8, 6, 4), (4, 4, 6)]
"""Array, bits of weights, bits of features."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UMA_CACHE_DIR", str(tmp_path_factory.mktemp("cache") / "uma"))
        yield


@dataclass(frozen=True)
class Case:
    """A network, and the layers that are not taken with what is said of them."""

    net: Net
    refused: dict[str, str]


def beyond(net: Net, rng: np.random.Generator, dim: int) -> Case:
    """``net`` with one layer more, which is just beyond, at, or just below a limit of the machine."""
    last = len(net.layers) - 1
    channels, frames = net.shape(last)
    half = 1 << (net.weight_bits - 1)

    def weights(out: int = 3, taps: int = 1, most: int = 1) -> np.ndarray:
        return rng.integers(-most, most, (out, channels, taps))

    def single(value: int) -> np.ndarray:
        made = weights()
        made.flat[rng.integers(made.size)] = value
        return made

    bias_half = 1 << (net.bias_bits - 1)
    most_channels = 15 * dim
    ways: list[Callable[[], tuple[Layer, str]]] = [
        lambda: (Layer("end", last, single(half - 1)), ""),
        lambda: (Layer("end", last, single(-half)), ""),
        lambda: (Layer("end", last, weights(most_channels + 1)), f"a map has at most {most_channels} channels"),
        lambda: (Layer("end", last, weights(most_channels)), ""),
        lambda: (Layer("end", last, weights(), stride=8), "a stride is at most 7" if frames > 7 else ""),
        lambda: (Layer("end", last, weights(), stride=7), ""),
        lambda: (Layer("end", last, weights(), np.full(3, bias_half)), f"biases of {net.bias_bits} bits are"),
        lambda: (Layer("end", last, weights(), np.full(3, bias_half - 1)), ""),
        lambda: (Layer("end", last, weights(taps=3), pad=2), "padding is none, or (taps - 1) / 2"),
        lambda: (Layer("end", last, weights(taps=15), pad=7), ""),
        lambda: (Layer("end", last, weights(taps=16), pad=15), "a kernel has at most 15 taps"),
    ]
    if net.weight_bits < 8:  # the model's integers have 8
        ways.append(lambda: (Layer("end", last, single(half)), f"weights of {net.weight_bits} bits are"))
    if frames > 2:
        exact = (frames - 1).bit_length()
        short = "an average pool is the sum of at most 2**p frames"
        ways += [
            lambda: (Layer("end", last, weights(), pool=exact), ""),
            lambda: (Layer("end", last, weights(), pool=exact - 1), short),
        ]
    layer, said = ways[int(rng.integers(len(ways)))]()
    grown = replace(net, layers=(*net.layers, layer), outputs=(*net.outputs, last + 1))
    return Case(grown, {"end": said} if said else {})


def cases(seed: int, count: int, deepest: int, dim: int, weight_bits: int, feature_bits: int) -> list[Case]:
    made = []
    for number in range(count):
        rng = np.random.default_rng((seed, number, dim, weight_bits, feature_bits))
        depth = int(rng.integers(1, deepest + 1)) if number else 40
        net = random_net(
            int(rng.integers(1 << 31)), depth, array_dim=dim, weight_bits=weight_bits, feature_bits=feature_bits
        )
        net = replace(net, bias_bits=BIAS_BITS, layers=tuple(_with_few_bias_bits(layer) for layer in net.layers))
        made.append(beyond(net, rng, dim) if rng.random() < 0.6 else Case(net, {}))
    return made


def _with_few_bias_bits(layer: Layer) -> Layer:
    half = 1 << (BIAS_BITS - 1)
    return layer if layer.bias is None else replace(layer, bias=np.clip(layer.bias, -half, half - 1))


def check(found: list[Case], dim: int, weight_bits: int, feature_bits: int, folder: Path) -> None:
    target = (
        f"ultra_trail -array_dim={dim} -weight_bits={weight_bits} -feature_bits={feature_bits} -bias_bits={BIAS_BITS} "
        "-fmem_words=2048 -wmem_words=4000 -bmem_words=256"
    )
    members = resolve_targets(target, PLUGINS)
    pools: list[PoolForm] = ["sum" if number % 2 else "average" for number in range(len(found))]
    path = folder / "nets.onnx"
    path.write_bytes(side_by_side([case.net for case in found], pools))
    loaded = load_model(path, members)
    build = start_build(loaded, members)
    build.run(loaded.form)
    said = {op.layers[0]: op for op in explain(build).ops if op.op == "qnn.conv1d"}
    for number, case in enumerate(found):
        for layer in case.net.layers:
            op, wanted = said[f"{layer.name}{number}"], case.refused.get(layer.name)
            assert (op.owner is None) == (wanted is not None), (op.layers, [why.sentence for why in op.why])
            assert wanted is None or wanted in op.why[0].sentence
    frames = [case.net.inputs(3, number) for number, case in enumerate(found)]
    expected = [reference(case.net, data[:, 0]) for case, data in zip(found, frames, strict=True)]
    with finish_build(build, loaded).session() as session:
        for at in range(3):
            made = iter(session.run({f"x{number}": data[at] for number, data in enumerate(frames)}).values())
            for outputs in expected:
                for output in outputs:
                    np.testing.assert_array_equal(next(made)[0], output[at])


@pytest.mark.few(1)
@pytest.mark.parametrize("dim, weight_bits, feature_bits", MACHINES[::3])
def test_random_networks_are_exact(dim: int, weight_bits: int, feature_bits: int, tmp_path: Path) -> None:
    found = cases(0, 8, 5, dim, weight_bits, feature_bits)
    check(found, dim, weight_bits, feature_bits, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("dim, weight_bits, feature_bits", MACHINES)
def test_two_thousand_are(dim: int, weight_bits: int, feature_bits: int, seed: int, tmp_path: Path) -> None:
    found = cases(seed, 13, 40, dim, weight_bits, feature_bits)
    check(found, dim, weight_bits, feature_bits, tmp_path)
