"""Damaged models: what the driver and the machine notice, and what the user is told."""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests._support.conv_nets import INPUT, Layer, Net, to_onnx

import uma
from uma.artifact import Artifact
from uma.errors import DeviceError
from uma.plugins import PluginEntry, PluginHost
from uma_ultratrail.image import MAGIC

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ultra_trail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
        PluginEntry("ultratrail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
    ]
)
X = np.full((1, 8, 20), 127, np.int8)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UMA_CACHE_DIR", str(tmp_path_factory.mktemp("cache") / "uma"))
        yield


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A layer of one tap, from 8 to 16 channels, and one of three, for an accumulator that is just enough."""
    rng = np.random.default_rng(9)
    first = Layer("first", INPUT, rng.integers(-3, 4, (16, 8, 1)), relu=True)
    second = Layer("second", 0, rng.integers(-3, 4, (8, 16, 3)), pad=1)
    path = tmp_path_factory.mktemp("model") / "two.onnx"
    path.write_bytes(to_onnx(Net(8, 20, (first, second), (1,))))
    return uma.build(path, "ultra_trail -accumulator_bits=16", plugins=PLUGINS)


def damaged(artifact: Artifact, damage: Callable[[bytearray, int], None]) -> Artifact:
    """The artifact with another network: ``damage`` is given the weights of the model, and where the network begins."""
    name = f"{artifact.name}_weights.bin"
    content = bytearray(artifact.files[name])
    at = content.index(struct.pack("<I", MAGIC))
    damage(content, at)
    return Artifact({**artifact.files, name: bytes(content)}, artifact.record)


def stopped(artifact: Artifact) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        artifact.run({"x": X})
    return caught.value


@pytest.mark.few(1)
@pytest.mark.parametrize("behind", [8, 20, 40, 100, 300])
def test_a_damaged_network_is_noticed(artifact: Artifact, behind: int) -> None:
    def flip(content: bytearray, at: int) -> None:
        content[at + behind] ^= 0x10

    error = stopped(damaged(artifact, flip))
    assert (error.device, error.code) == ("ultra_trail", 20)
    assert "the network is damaged" in error.what and "cycle" not in error.what
    assert {"first", "second"} <= set(error.layers)


def test_a_sum_that_overflows_is_found_in_its_layer_and_cycle(artifact: Artifact) -> None:
    """All weights at their largest, and a check sum that says that they are meant so."""

    def enlarge(content: bytearray, at: int) -> None:
        counts, n_weights, n_biases = struct.unpack_from("<3I", content, at + 8)
        weights = at + 20 + 4 * (counts >> 8 & 0xFF) + 4 * (counts >> 16) + 8 * (counts & 0xFF)
        ones = sum(31 << 6 * lane for lane in range(64))
        content[weights : weights + n_weights] = ones.to_bytes(48, "little") * (n_weights // 48)
        end = weights + n_weights + n_biases
        struct.pack_into("<I", content, at + 4, binascii.crc32(content[at + 8 : end + (at - end) % 4]))

    error = stopped(damaged(artifact, enlarge))
    # 46 cycles of the first layer, one to configure; the third product of the second one, the first of them in the
    # padding, is accumulated two cycles after it was asked for.
    assert error.what.endswith("fault 4, a sum left the accumulator's bits, in cycle 52")
    assert (error.code, error.layers) == (4, ("second",))
    assert error.where is not None and error.where.endswith("layer second")


def test_the_next_run_is_as_if_nothing_had_been(artifact: Artifact, tmp_path: Path) -> None:
    expected = artifact.run({"x": X})
    stopped(damaged(artifact, lambda content, at: content.__setitem__(at + 100, content[at + 100] ^ 1)))
    assert all((artifact.run({"x": X})[name] == one).all() for name, one in expected.items())
