"""Models through core, driver and simulator: on this machine, on an emulated Cortex-M55, and with a fault."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder, litert

import uma
from uma.cli import main
from uma.errors import DeviceError
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.reports.costs import region_costs
from uma_ethosu_like import lower
from uma_ethosu_like.device import FAULTS
from uma_ethosu_like.lower import extern_of
from uma_ethosu_like.payload import write_payload

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ethosu_like", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("ethosu", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("vela", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
    ]
)
CROSS = pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
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


def estimated_cycles(model: Path, target: str) -> float:
    """What the hook ``estimate_cost`` says of the regions of a model."""
    loaded = load_model(model)
    build = start_build(loaded, resolve_targets([target], PLUGINS))
    build.run(loaded.form)
    return sum(one.cost.cycles for one in region_costs(build) if one.cost is not None and one.cost.cycles is not None)


def check(tmp_path: Path, target: str, net: bytes) -> dict[str, int]:
    """The counters of a run, whose results are LiteRT's, and whose cycles are those that were estimated."""
    (tmp_path / "net.tflite").write_bytes(net)
    artifact = uma.build(tmp_path / "net.tflite", target, plugins=PLUGINS)
    assert {call.device for call in artifact.record.calls} == {"ethosu_like"}, "nothing is left to the host"
    with artifact.session() as session:
        for picture in pictures(2):
            (made,) = session.run({"picture": picture}).values()
            np.testing.assert_array_equal(made, litert(net, picture)[0], strict=True)
        counted: dict[str, int] = dict(session.counters()["ethosu_like"])
    assert counted["cycles"] == estimated_cycles(tmp_path / "net.tflite", target)
    return counted


@pytest.mark.soak
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


def test_a_stream_is_shown_with_the_names_of_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.tflite").write_bytes(small_net(1))
    assert main(["explain", str(tmp_path / "net.tflite"), "--target", "ethosu", "--stream"]) == 0
    _, first, second = re.split(r"\n    (?:t3|t4, scores):\n", capsys.readouterr().out)
    for layer in (first, second):
        assert re.search(r"^ +0x\w+  SET_OFM_DEPTH_M1 \d+$", layer, re.MULTILINE)
        assert len(re.findall(r"^ +0x\w+  OP_CONV$", layer, re.MULTILINE)) == 1
    assert "OP_STOP" in second and "OP_STOP" not in first


def test_with_registers_in_memory_there_is_the_driver_and_no_simulator(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(small_net(1))
    artifact = uma.build(tmp_path / "net.tflite", "ethosu_like -impl=mmio -base=0x48102000", plugins=PLUGINS)
    ours = {name for name in artifact.files if name.startswith("eu_")}
    assert ours == {"eu_driver.c", "eu_driver.h", "eu_machine.h", "eu_regs.h"}
    assert "uma_mmio.h" in artifact.files


# --- several models on one device ------------------------------------------------------------------------------------

IMAGE = """\
#include <stdio.h>
#include <string.h>
#include "one.h"
#include "two.h"
#include "cut.h"
#include "damaged.h"

#define CHECK(condition) if (!(condition)) { printf("line %%d, turn %%d\\n", __LINE__, turn); return 1; }
#define GOOD(name, wanted) \
    memset(scores, 0x55, sizeof scores); \
    CHECK(name##_run(&name, &(name##_inputs){picture}, &(name##_outputs){scores}) == UMA_OK) \
    CHECK(memcmp(scores, wanted, sizeof scores) == 0)
#define BAD(name, fault_code) \
    CHECK(name##_run(&name, &(name##_inputs){picture}, &(name##_outputs){scores}) == UMA_ERR_DEVICE) \
    CHECK(name.fault.device == 0 && name.fault.step == 1 && name.fault.code == fault_code) /* the step that waits */
#define INIT(name) \
    static UMA_ALIGNAS(64) unsigned char arena_##name[name##_ARENA_BYTES]; \
    static name##_context name; \
    CHECK(name##_init(&name, arena_##name, sizeof arena_##name, &(name##_devices){&npu}) == UMA_OK)

static UMA_ALIGNAS(64) unsigned char memory[one_DEVICE_ethosu_like_BUS_BYTES];
static UMA_ALIGNAS(16) const signed char picture[] = {%(picture)s}, first[] = {%(one)s}, second[] = {%(two)s};
static UMA_ALIGNAS(16) signed char scores[sizeof first];

int main(void)
{
    const uma_device_info *const info = &one_model()->devices[one_DEVICE_ethosu_like_INDEX];
    static uint64_t state[64];
    uma_device npu;
    int turn = -1;

    CHECK(sizeof state >= info->driver->state_bytes && uma_device_open(&npu, info, state, memory) == 0)
    INIT(one)
    INIT(two)
    INIT(cut)
    INIT(damaged)
    for (turn = 0; turn < 3; turn++) {
        GOOD(one, first)
        GOOD(two, second)
        BAD(cut, 7)
        GOOD(one, first)
        BAD(damaged, 13)
        BAD(cut, 7)
        GOOD(two, second)
    }
    CHECK(uma_device_close(&npu) == 0)
    return 0;
}
"""


def test_models_share_a_device_in_one_image(
    tmp_path: Path, compilers: tuple[str, ...], simulator_objects: list[Path]
) -> None:
    """Two run by turns. A stream that is cut short and one whose weights do not decompress are faults of their own."""
    picture, sources = pictures(1)[0], []
    nets = {"one": small_net(1), "two": small_net(2), "cut": small_net(1), "damaged": small_net(2)}
    changes: dict[str, tuple[str, Callable[..., object]]] = {
        "cut": ("write_payload", lambda words, macs: write_payload(words[:-1], macs)),
        "damaged": (
            "extern_of",
            lambda stream, *rest: extern_of(replace(stream, constants=bytearray(len(stream.constants))), *rest),
        ),
    }
    for name, net in nets.items():
        (tmp_path / f"{name}.tflite").write_bytes(net)
        with pytest.MonkeyPatch.context() as patch:
            if name in changes:
                patch.setattr(lower, *changes[name])
            artifact = uma.build(tmp_path / f"{name}.tflite", "ethosu", name=name, plugins=PLUGINS)
        for file, content in artifact.files.items():
            (tmp_path / file).write_bytes(content)
        sources += artifact.metadata["compile"]["hosts"][0]["sources"]
    given = {name: litert(nets[name], picture)[0] for name in ("one", "two")}
    arrays = {name: ", ".join(map(str, array.ravel())) for name, array in {**given, "picture": picture}.items()}
    assert arrays["one"] != arrays["two"]
    (tmp_path / "main.c").write_text(IMAGE % arrays)
    compiled = {one.stem for one in simulator_objects}
    rest = [one for one in dict.fromkeys(sources) if Path(one).stem not in compiled]
    assert len(rest) == len(dict.fromkeys(sources)) - len(compiled)
    options = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-I."]
    command = [compilers[0], *options, "main.c", *rest, *simulator_objects, "-o", "image", "-lm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([tmp_path / "image"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@CROSS
@pytest.mark.soak
def test_firmware_for_silicon_is_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(small_net(2))
    target = "c -mcpu=cortex-m55 -accelerators='ethosu_like -impl=mmio -base=0x48102000'"
    artifact = uma.build(tmp_path / "net.tflite", target, plugins=PLUGINS)
    for name, content in artifact.files.items():
        (tmp_path / name).write_bytes(content)
    sources = [*artifact.metadata["compile"]["hosts"][0]["sources"], artifact.metadata["compile"]["example"]]
    options = ["-mcpu=cortex-m55", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-I.", "-c"]
    done = subprocess.run(["arm-none-eabi-gcc", *options, *sources], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@CROSS
@pytest.mark.soak
def test_the_same_bytes_on_an_emulated_cortex_m55(tmp_path: Path) -> None:
    accelerated = "c -mcpu=cortex-m55 -runner=qemu-mps3-an547 -accelerators='ethosu_like -macs=64'"
    there = check(tmp_path, accelerated, small_net(2))
    assert there["macs"] > 0
