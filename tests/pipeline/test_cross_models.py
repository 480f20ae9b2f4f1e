"""Models for other machines: objects, and the same bytes from emulators as from here."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests._support.tools import skip_without

from uma.artifact import load
from uma.errors import RequirementError, ToolchainError, UsageError
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.relay import (
    FixedPoint,
    Function,
    IRModule,
    Signature,
    Spans,
    StateInfo,
    TensorInfo,
    TensorType,
    Tuple,
    Var,
    call,
    const,
)
from uma.runtime import emulator
from uma.runtime.emulator import EmulatedModel
from uma.runtime.emulator_image import make_image
from uma.support.machines import RUNNERS, Machine
from uma.toolchain.compile import CompileUnit
from uma.toolchain.discovery import find_compiler
from uma.toolchain.elf import check_machine
from uma.tuning import build
from uma.verification.models import verify

MODULES = {"c": "uma_cpu_c", "matrix_unit": "uma_matrix_unit", "stream_machine": "uma_stream_machine"}

pytestmark = pytest.mark.skipif(
    any(find_spec(module) is None for module in MODULES.values()), reason="the plugins are not installed"
)

WARNINGS = "-Wall,-Wextra,-Werror,-pedantic"

TARGETS = {
    "qemu-microbit": "c -mcpu=cortex-m0 -opt=s",
    "qemu-mps2-an385": "c -mcpu=cortex-m3",
    "qemu-mps2-an386": "c -mcpu=cortex-m4f",
    "qemu-mps2-an500": "c -mcpu=cortex-m7f",
    "qemu-mps3-an547": "c -mcpu=cortex-m55",
    "qemu-virt": "c -mtriple=riscv64-unknown-elf -mcpu=generic",
    "qemu-aarch64": "c -mtriple=aarch64-linux-gnu",
    "qemu-arm": "c -mtriple=arm-linux-gnueabihf",
    "qemu-riscv64": "c -mtriple=riscv64-linux-gnu",
}
"""What each emulator runs."""

RISC_V = ("-march=rv64imac", "-mabi=lp64", "-mcmodel=medany")
"""What the linker script of the emulated RISC-V needs; its floats are in no registers."""


@pytest.fixture(scope="module")
def plugins() -> PluginHost:
    entries = [PluginEntry(kind, module, f"example-{kind}", "0.1.0") for kind, module in MODULES.items()]
    return PluginHost(lambda: entries)


def needs(*tools: str) -> None:
    skip_without(*tools)


def needs_arm() -> None:
    needs("arm-none-eabi-gcc", "qemu-system-arm")


def small() -> IRModule:
    """An int8 convolution, the sums of which are kept and added up from run to run."""
    rng = np.random.default_rng(0)
    x, h = Var("x", TensorType((1, 6, 6, 3), "int8")), Var("h", TensorType((1, 6, 6, 5), "int32"))
    weights = const(rng.integers(-128, 128, (3, 3, 3, 5), np.int8))
    sums = call("qnn.conv2d", x, weights, padding=(1, 1, 1, 1), input_zero_point=3)
    kept = call("add", sums, h)
    y = call("qnn.requantize", kept, scale=FixedPoint((1518500250,) * 5, (-9,) * 5, "double"), axis=-1, dtype="int8")
    initial = np.arange(180, dtype="<i4").tobytes()
    signature = Signature((TensorInfo("x"),), (TensorInfo("y"),), (StateInfo("sums", 1, 1, initial),))
    spans = Spans({sums: ["conv"], kept: ["sum"], y: ["scale"]})
    return IRModule.from_functions({"main": Function((x, h), Tuple((y, kept)))}, spans, signature)


def test_every_emulator_has_a_target_here() -> None:
    assert list(TARGETS) == list(RUNNERS)


def frames(count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(-128, 128, (1, 6, 6, 3), np.int8) for _ in range(count)]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TARGETS)
def test_a_small_model_on_every_emulator(name: str, plugins: PluginHost) -> None:
    target = plugins.target(TARGETS[name])
    needs(RUNNERS[name].program, target.get_attr("cc"))
    here = build(small(), "c", plugins=plugins).session()
    flags = f"{WARNINGS},{','.join(RISC_V)}" if name == "qemu-virt" else WARNINGS
    artifact = build(small(), f"{target} -runner={name} -cflags={flags}", plugins=plugins)
    assert artifact.emulator == name
    with artifact.session() as there:
        for x in frames():
            np.testing.assert_array_equal(there.run(x)["y"], here.run(x)["y"], strict=True)
        np.testing.assert_array_equal(there.save().arrays["sums"], here.save().arrays["sums"])
        there.reset()
        here.reset()
        np.testing.assert_array_equal(there.run(x)["y"], here.run(x)["y"])
        there.restore(here.save())
        np.testing.assert_array_equal(there.run(x)["y"], here.run(x)["y"])


@pytest.mark.few(1)
@pytest.mark.parametrize("accelerators", ["[]", "matrix_unit", "stream_machine"])
def test_kws_on_an_emulated_microcontroller(accelerators: str, models: Path, plugins: PluginHost) -> None:
    """The simulators of accelerators are compiled into the program. Nothing of it makes the compiler warn."""
    needs_arm()
    path = models / "mlperf-tiny" / "kws_ref_model.tflite"
    target = f"c -mcpu=cortex-m4f -runner=qemu-mps2-an386 -cflags={WARNINGS} -accelerators={accelerators}"
    artifact, here = build(path, target, plugins=plugins), build(path, "c", plugins=plugins)
    [row] = artifact.metadata["inputs"]
    rng = np.random.default_rng(0)
    with artifact.session() as session:
        for _ in range(2):
            x = rng.integers(-128, 128, row["shape"], np.int8)
            (made,) = session.run(x).values()
            (expected,) = here.run(x).values()
            np.testing.assert_array_equal(made, expected, strict=True)
        counters = session.counters()
    assert bool(counters) == (accelerators != "[]")
    assert all(counted["macs"] > 0 for counted in counters.values())


def test_verify_runs_there_too(plugins: PluginHost) -> None:
    needs_arm()
    members = resolve_targets("c -mcpu=cortex-m3 -runner=qemu-mps2-an385", plugins)
    loaded = load_model(small())
    found = verify(loaded, build_loaded(loaded, members), members, {"x": frames(1)[0]})
    assert found.frames == 3 and found.kernels
    assert all(check.difference.ok for check in (*found.kernels, *found.outputs))


def test_the_founding_documents_pair(tmp_path: Path, plugins: PluginHost) -> None:
    """Two CPUs without an operating system are two machines: objects for each, and no emulator runs both."""
    needs("arm-none-eabi-gcc", "make")
    targets = {"inference_cpu": "c -mcpu=cortex-m7f -runner=qemu-mps2-an500", "low_power_cpu": "c -mcpu=cortex-m0"}
    artifact = build(small(), targets, name="net", pins={"scale": "low_power_cpu"}, plugins=plugins)
    hosts = artifact.metadata["compile"]["hosts"]
    assert [(host["label"], host["machine"], host["sources"]) for host in hosts] == [
        ("inference_cpu", "arm-none-eabi cortex-m7f", ["net.c", "net_weights.S"]),
        ("low_power_cpu", "arm-none-eabi cortex-m0", ["net_on_low_power_cpu.c"]),
    ]
    assert {call["host"] for call in artifact.metadata["calls"]} == {"inference_cpu", "low_power_cpu"}
    objects = artifact.objects()
    assert list(objects) == [
        "inference_cpu/net.c.o", "inference_cpu/net_weights.S.o", "low_power_cpu/net_on_low_power_cpu.c.o",
    ]  # fmt: skip
    for name, content in objects.items():
        check_machine(content, Machine.parse("arm-none-eabi cortex-m0"), name)
    with pytest.raises(UsageError, match="for several machines, 'inference_cpu' and 'low_power_cpu': no one process"):
        artifact.run(frames(1)[0])
    folder = artifact.save(tmp_path / "net")
    subprocess.run(["make", "-s"], cwd=folder, check=True, timeout=120)
    built = {path.name for path in folder.glob("*.a")}
    assert built == {"libnet.a", "libnet_on_low_power_cpu.a"} and not (folder / "net_example").exists()
    symbols = subprocess.run(["arm-none-eabi-nm", "libnet.a"], cwd=folder, capture_output=True, text=True, check=True)
    assert " U net_call_low_power_cpu\n" in symbols.stdout
    subprocess.run(["make", "-s", "clean"], cwd=folder, check=True, timeout=60)
    assert load(folder).objects() == objects


def test_two_sets_of_flags_for_one_other_machine(plugins: PluginHost) -> None:
    needs_arm()
    targets = ["c -mcpu=cortex-m3 -runner=qemu-mps2-an385", "small: c -mcpu=cortex-m3 -opt=s"]
    artifact = build(small(), targets, pins={"scale": "small"}, plugins=plugins)
    assert [host["label"] for host in artifact.metadata["compile"]["hosts"]] == ["c", "small"]
    expected = build(small(), "c", plugins=plugins).run(frames(1)[0])
    np.testing.assert_array_equal(artifact.run(frames(1)[0])["y"], expected["y"])


def test_this_machine_and_another(plugins: PluginHost) -> None:
    """A coprocessor: all that is compiled is there as objects, and no one process runs it."""
    needs("arm-none-eabi-gcc")
    targets = ["c", "small: c -mcpu=cortex-m0"]
    artifact = build(small(), targets, name="net", pins={"scale": "small"}, plugins=plugins)
    assert list(artifact.objects()) == ["c/net.c.o", "c/net_weights.S.o", "small/net_on_small.c.o"]
    assert artifact.code_bytes > 0 and artifact.emulator is None
    with pytest.raises(UsageError, match="for several machines, 'c' and 'small'"):
        artifact.run(frames(1)[0])


def test_objects_beside_the_sources(tmp_path: Path, plugins: PluginHost) -> None:
    needs("arm-none-eabi-gcc")
    artifact = build(small(), "c -mcpu=cortex-m0 -opt=s", name="net", plugins=plugins)
    for _ in range(2):  # over its own older one, too
        folder = artifact.save(tmp_path / "net", objects=True)
        found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        assert [name for name in found if name.startswith("objects/")] == [
            "objects/c/net.c.o", "objects/c/net_weights.S.o", "objects/digests.json",
        ]  # fmt: skip
        assert load(folder).metadata == artifact.metadata
    assert 0 < artifact.code_bytes < 20_000
    for name in ("objects/c/net.c.o", "objects/digests.json", "objects/mine.txt"):
        artifact.save(tmp_path / "net", objects=True)
        (folder / name).write_text("mine")
        with pytest.raises(UsageError, match="it has files of another origin, 'objects'"):
            artifact.save(tmp_path / "net", objects=True)
        shutil.rmtree(folder)
    artifact.save(folder)
    (folder / "objects").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="it has files of another origin, 'objects'"):
        artifact.save(folder)


def test_a_model_for_this_machine_has_no_objects(tmp_path: Path, plugins: PluginHost) -> None:
    artifact = build(small(), "c", plugins=plugins)
    assert artifact.objects() == {} and artifact.emulator is None
    assert not (artifact.save(tmp_path / "net", objects=True) / "objects").exists()


def test_it_does_not_run_here(plugins: PluginHost) -> None:
    artifact = build(small(), "c -mcpu=cortex-m4f", name="net", plugins=plugins)
    for act in (artifact.session, artifact.run, artifact.reset):
        with pytest.raises(UsageError, match="for arm-none-eabi cortex-m4f, which this machine is not") as error:
            act()
        assert "build it with -runner=qemu-mps2-an386 or -runner=qemu-mps2-an500" in str(error.value)
    with pytest.raises(UsageError, match="compiled for x86_64-linux-musl") as error:
        build(small(), "c -mtriple=x86_64-linux-musl", plugins=plugins).session()
    assert error.value.hint == "compile what Artifact.save writes for that machine"
    with pytest.raises(UsageError, match="which this machine is not: it does not run here"):
        artifact.profile(frames(1)[0])


def test_the_stack_of_each_kernel(plugins: PluginHost) -> None:
    """Each is within that of the run, and a run takes what is said, but for what is around it."""
    needs_arm()
    artifact = build(small(), "c -mcpu=cortex-m4 -opt=2 -runner=qemu-mps2-an386", plugins=plugins)
    whole, kernels = artifact.stack_bytes, artifact.kernel_stack_bytes
    assert whole is not None and kernels and {*kernels} <= {call.kernel for call in artifact.record.calls}
    assert all(0 <= each < whole for each in kernels.values())
    profile = artifact.profile(frames(1)[0])
    assert [call.stack_bytes for call in profile.calls] == [kernels.get(call.kernel) for call in profile.calls]
    assert profile.counts is not None and profile.counts.stack_bytes is not None
    assert whole - 32 <= profile.counts.stack_bytes <= whole + 64
    assert build(small(), "c", plugins=plugins).kernel_stack_bytes == {}


def test_a_triple_that_is_this_machines(plugins: PluginHost) -> None:
    triple = sysconfig.get_config_var("MULTIARCH")
    if not triple:
        pytest.skip("this Python does not say what machine it is for")
    needs(f"{triple}-gcc")
    artifact = build(small(), f"c -mtriple={triple}", plugins=plugins)
    assert artifact.objects() == {} and artifact.emulator is None
    expected = build(small(), "c", plugins=plugins).run(frames(1)[0])
    np.testing.assert_array_equal(artifact.run(frames(1)[0])["y"], expected["y"])


def test_registers_are_not_to_be_had(models: Path, plugins: PluginHost) -> None:
    target = "c -mcpu=cortex-m3 -runner=qemu-mps2-an385 -accelerators='matrix_unit -impl=mmio -base=0x40000000'"
    artifact = build(models / "mlperf-tiny" / "kws_ref_model.tflite", target, plugins=plugins)
    with pytest.raises(UsageError, match=r"device 'matrix_unit' .* is at address 0x40000000 of another machine"):
        artifact.session()


def test_a_missing_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plugins: PluginHost) -> None:
    artifact = build(small(), "c -mcpu=cortex-m4f -runner=qemu-mps2-an386", plugins=plugins)
    monkeypatch.setenv("PATH", str(tmp_path))
    for act in (artifact.objects, artifact.run):
        with pytest.raises(ToolchainError, match="'arm-none-eabi-gcc' for arm-none-eabi is not installed"):
            act()


def test_too_little_memory(plugins: PluginHost) -> None:
    needs_arm()
    x = Var("x", TensorType((1, 64, 64, 4), "int8"))
    main = Function((x,), call("nn.max_pool2d", x, pool_size=(2, 2), strides=(1, 1)))
    artifact = build(
        IRModule.from_functions({"main": main}), "c -mcpu=cortex-m0 -runner=qemu-microbit", plugins=plugins
    )
    with pytest.raises(
        RequirementError, match=r"needs 3\d,\d\d\d bytes of RAM .*, and qemu-microbit has 1\d,\d\d\d left"
    ):
        artifact.run(np.zeros(x.shape, np.int8))


RUNAWAY = """\
#include "uma_runtime.h"
const uma_model *uma_model_entry(void);
static int sum(volatile int *from, int depth)
{
    volatile int own[256] = {0};
    return depth == 0 ? from[0] : sum(own, depth - 1) + from[1];
}
static uma_status init(void *context, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
                       struct uma_device *const *devices)
{
    (void)context, (void)arena, (void)arena_bytes, (void)state, (void)state_bytes, (void)devices;
    return UMA_OK;
}
static uma_status invoke(void *context, const void *const *inputs, void *const *outputs)
{
    volatile int zeros[2] = {0};
    (void)context, (void)inputs, (void)outputs;
    return sum(zeros, DEPTH);
}
static const uma_model runaway = {
    UMA_ABI_VERSION, "runaway", 0, 1, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, init, 0, invoke, 0, 0, 1, 0
};
const uma_model *uma_model_entry(void) { return &runaway; }
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("runner", "machine", "flags"),
    [
        ("qemu-mps2-an385", "arm-none-eabi cortex-m3", ("-mcpu=cortex-m3", "-mthumb")),
        ("qemu-mps3-an547", "arm-none-eabi cortex-m55", ("-mcpu=cortex-m55", "-mthumb")),
        ("qemu-virt", "riscv64-unknown-elf generic", RISC_V),
    ],
)
def test_a_stack_that_is_too_small_stops_the_run(runner: str, machine: str, flags: tuple[str, ...]) -> None:
    """It grows into nothing, and not into what the model works on."""
    needs(f"{machine.partition(' ')[0]}-gcc", RUNNERS[runner].program)
    compiler = find_compiler(None, Machine.parse(machine))
    header = (Path(emulator.__file__).parent / "csrc" / "uma_runtime.h").read_bytes()
    part = CompileUnit(compiler, ["m.c"], [*flags, "-O1", "-std=c99"])
    for depth, fits in ((40, True), (62, False), (70, False), (400, False)):
        files = {"m.c": RUNAWAY.replace("DEPTH", str(depth)).encode(), "uma_runtime.h": header}
        image = make_image([part], files, RUNNERS[runner], where="model runaway")
        session = EmulatedModel(image, RUNNERS[runner], "runaway", (), (), (), (), (), (), 0).session()
        if fits:
            assert session.run() == {}
            continue
        with pytest.raises(ToolchainError, match=f"a fault stopped the CPU of {runner}") as error:
            session.run()
        assert "its stack has 65,536 bytes" in str(error.value)
