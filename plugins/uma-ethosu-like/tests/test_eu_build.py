"""Models through core, driver and simulator: on this machine, on an emulated Cortex-M55, and with a fault."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma
from uma.errors import DeviceError
from uma.plugins import PluginEntry, PluginHost
from uma_ethosu_like import lower
from uma_ethosu_like.device import FAULTS
from uma_ethosu_like.payload import write_payload

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ethosu_like", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("ethosu", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
    ]
)
CROSS = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("arm-none-eabi-gcc", "qemu-system-arm")),
    reason="no compiler or no emulator for Arm",
)
SHAPE = (1, 7, 6, 5)


def small_net(seed: int) -> bytes:
    """A convolution and a fully connected layer, of random weights."""
    chance, net = np.random.default_rng(seed), TFLiteBuilder()
    data = net.input(SHAPE, "int8", scale=0.05, zero_point=-3, name="picture")
    weight = net.constant(
        chance.integers(-127, 128, (11, 3, 3, 5), np.int8), scale=[0.01 + 0.001 * n for n in range(11)], zero_point=0
    )
    bias = net.constant(
        chance.integers(-500, 500, 11, np.int32), scale=[0.05 * (0.01 + 0.001 * n) for n in range(11)], zero_point=0
    )
    convolved = net.tensor((1, 4, 3, 11), "int8", scale=0.11, zero_point=5)
    net.op("CONV_2D", [data, weight, bias], [convolved], padding=0, strideH=2, strideW=2, fusedActivationFunction=1)
    flat = net.tensor((1, 132), "int8", scale=0.11, zero_point=5)
    net.op("RESHAPE", [convolved, net.constant([1, 132], "int32")], [flat])
    dense = net.constant(chance.integers(-127, 128, (9, 132), np.int8), scale=0.007)
    result = net.tensor((1, 9), "int8", scale=0.3, zero_point=1, name="scores")
    net.op("FULLY_CONNECTED", [flat, dense, -1], [result])
    return net.finish(result)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled code is kept: the simulator's serves all tests."""
    return tmp_path_factory.mktemp("eu_build")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(cache))


def pictures(n: int) -> np.ndarray:
    return np.random.default_rng(9).integers(-128, 128, (n, *SHAPE), np.int8)


def check(tmp_path: Path, target: str, net: bytes) -> dict[str, int]:
    """The counters of a run, whose results are LiteRT's."""
    (tmp_path / "net.tflite").write_bytes(net)
    artifact = uma.build(tmp_path / "net.tflite", target, plugins=PLUGINS)
    assert {call.device for call in artifact.record.calls} == {"ethosu_like"}, "nothing is left to the host"
    with artifact.session() as session:
        for picture in pictures(2):
            (made,) = session.run({"picture": picture}).values()
            np.testing.assert_array_equal(made, litert(net, picture)[0], strict=True)
        counted: dict[str, int] = dict(session.counters()["ethosu_like"])
        return counted


def test_a_model_gives_what_litert_gives(tmp_path: Path) -> None:
    counters = check(tmp_path, "ethosu", small_net(1))
    assert counters["cycles"] > counters["mac_cycles"] == -(-counters["macs"] // 128) > 0
    assert counters["conv_cycles"] > 0 == counters["pool_cycles"]


@pytest.mark.soak
def test_a_fault_is_said_in_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.tflite").write_bytes(small_net(1))
    monkeypatch.setattr(lower, "write_payload", lambda words, macs: write_payload(words, 64))
    bad = uma.build(tmp_path / "net.tflite", "ethosu", plugins=PLUGINS)
    with bad.session() as session:
        for picture in pictures(2):
            with pytest.raises(DeviceError, match=re.escape(FAULTS[68])) as caught:
                session.run({"picture": picture})
            assert caught.value.code == 68 and caught.value.device == "ethosu_like"


@CROSS
@pytest.mark.soak
def test_the_same_bytes_on_an_emulated_cortex_m55(tmp_path: Path) -> None:
    accelerated = "c -mcpu=cortex-m55 -runner=qemu-mps3-an547 -accelerators='ethosu_like -macs=64'"
    there = check(tmp_path, accelerated, small_net(2))
    assert there["macs"] > 0
