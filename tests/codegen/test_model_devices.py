"""The C of models that run on devices: programs of their own, by two compilers, with sanitizers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support import fake_device as fake
from tests._support.c_programs import CSRC
from tests._support.programs import kernel

from uma.artifact import ClockRecord, PartsRecord
from uma.artifact.record_builder import device_record
from uma.codegen import ModelFiles, emit_model
from uma.contract.devices import Device
from uma.contract.drivers import Clock, Implementation, PartCounters
from uma.errors import InternalError, PluginError, UsageError
from uma.program import Program, plan
from uma.support.json_record import to_json
from uma.targets import Attribute, Target, TargetKind

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-D_POSIX_C_SOURCE=200112L")
SANITIZED = (*STRICT, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread")

MAIN = """\
#include <pthread.h>
#include <stdio.h>
#include "fake_driver.h"
#include "fake_machine.h"
%(includes)s
#define CHECK(condition) \\
    if (!(condition)) { printf("line %%d: %%s\\nlog: %%s\\n", __LINE__, #condition, fake_log); return 1; }
#define LOG(text) CHECK(strcmp(fake_log, text) == 0) fake_log[0] = 0;
UMA_ALIGNAS(64) static unsigned char arena[2][1024], memory[2][512], state[2][64];
static uma_device device[2];
static int32_t x[4] = {1, -2, 3, 1 << 30}, y[4];
%(before)s
int main(void)
{
%(body)s
    (void)arena; (void)memory; (void)state; (void)device; (void)x; (void)y;
    return 0;
}
"""


def emit(program: Program, devices: Mapping[str, Device]) -> ModelFiles:
    return emit_model(program, plan(program), devices)


def compile_c(folder: Path, models: Sequence[ModelFiles], sources: Sequence[str], compiler: str) -> Path:
    """Writes the models and links their sources, each once, with others of the folder."""
    for model in models:
        for name, content in model.contents.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    own = dict.fromkeys(source for model in models for source in model.sources)
    paths = [str(folder / source) for source in (*own, *sources)]
    command = [compiler, *SANITIZED, f"-I{folder}", *paths, "-o", str(folder / "program"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return folder / "program"


def run_c(folder: Path, models: Sequence[ModelFiles], body: str, compiler: str, before: str = "") -> None:
    """Links the models with a main of which ``body`` is the inside; it gives 0 where all is as it should be."""
    headers = [model.entry.replace("_entry.c", ".h") for model in models]
    includes = "\n".join(f'#include "{name}"' for name in headers)
    (folder / "main.c").write_text(MAIN % {"includes": includes, "before": before, "body": body})
    done = subprocess.run(
        [str(compile_c(folder, models, ["main.c"], compiler))], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


OPEN_NPU = "CHECK(uma_device_open(&device[0], &net_model()->devices[net_DEVICE_npu_INDEX], state[0], memory[0]) == 0)"


def test_one_device(compilers: tuple[str, ...], tmp_path: Path) -> None:
    program = fake.chain("npu", None, "npu", host=kernel([4], 4))
    body = f"""
    const net_devices devices = {{&device[0]}};
    const net_inputs in = {{x}};
    const net_outputs out = {{y}};
    net_context context;
    int i;
    {OPEN_NPU}
    CHECK(net_model()->n_devices == 1 && strcmp(net_model()->devices[0].label, "npu") == 0)
    CHECK(net_DEVICE_npu_BUS_BYTES == 512 && net_model()->devices[0].bus_bytes == 512)
    CHECK(net_init(&context, arena[0], sizeof arena[0], &devices) == UMA_OK)
    CHECK(net_run(&context, &in, &out) == UMA_OK)
    for (i = 0; i < 4; i++) CHECK((uint32_t)y[i] == 4 * (uint32_t)x[i])
    CHECK(fake_driver.counter(&device[0], 0) == 6 && fake_driver.counter(&device[0], 1) == 64)
    CHECK(net_run(&context, &in, &out) == UMA_OK)
    CHECK(fake_driver.counter(&device[0], 0) == 6 && fake_driver.counter(&device[0], 2) == 2)
    CHECK(device[0].driver->close(&device[0]) == 0)
    LOG("npu.open npu.activate npu.deactivate npu.activate npu.deactivate npu.close ")
    """
    for compiler in compilers:
        run_c(tmp_path, [emit(program, fake.devices(npu=fake.runtime()))], body, compiler)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("first", "second", "fault", "log"),
    [
        (("step", 0), None, (0, 1, fake.TRAP), "a.activate b.activate b.deactivate a.deactivate "),
        (None, ("step", 0), (1, 2, fake.TRAP), "a.activate b.activate b.deactivate a.deactivate "),
        (("activate", 11), None, (0, -1, 11), "a.activate "),
        (None, ("activate", 12), (1, -1, 12), "a.activate b.activate a.deactivate "),
        (("deactivate", 13), None, (0, -2, 13), "a.activate b.activate b.deactivate a.deactivate "),
        (None, ("deactivate", 14), (1, -2, 14), "a.activate b.activate b.deactivate a.deactivate "),
        (("deactivate", 13), ("deactivate", 14), (1, -2, 14), "a.activate b.activate b.deactivate a.deactivate "),
        (("deactivate", -5), ("step", 0), (1, 2, fake.TRAP), "a.activate b.activate b.deactivate a.deactivate "),
        (("deactivate", -5), ("activate", 12), (1, -1, 12), "a.activate b.activate a.deactivate "),
    ],
)
def test_what_was_activated_is_deactivated(
    first: tuple[str, int] | None,
    second: tuple[str, int] | None,
    fault: tuple[int, int, int],
    log: str,
    compilers: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """Two devices of one kind; the first fault of a run is the one that is told."""
    program = fake.chain(None, "a", "b", host=kernel([4], 4))
    devices = fake.devices(a=fake.runtime(*first or ()), b=fake.runtime(*second or ()))
    body = f"""
    const uma_device_info *info = net_model()->devices;
    const net_devices devices = {{&device[0], &device[1]}};
    const net_inputs in = {{x}};
    const net_outputs out = {{y}};
    net_context context;
    CHECK(uma_device_open(&device[0], &info[net_DEVICE_a_INDEX], state[0], memory[0]) == 0)
    CHECK(uma_device_open(&device[1], &info[net_DEVICE_b_INDEX], state[1], memory[1]) == 0)
    LOG("a.open b.open ")
    CHECK(net_init(&context, arena[0], sizeof arena[0], &devices) == UMA_OK)
    CHECK(context.fault.code == 0)
    CHECK(net_run(&context, &in, &out) == UMA_ERR_DEVICE)
    LOG("{log}")
    CHECK(context.fault.device == {fault[0]} && context.fault.step == {fault[1]} && context.fault.code == {fault[2]})
    CHECK(memcmp(net_model()->fault(&context), &context.fault, sizeof context.fault) == 0)
    """
    run_c(tmp_path, [emit(program, devices)], body, compilers[-1])


def test_two_models_and_two_contexts_share_a_device(compilers: tuple[str, ...], tmp_path: Path) -> None:
    models = [
        emit(fake.chain(*["npu"] * steps, name=name), fake.devices(npu=fake.runtime()))
        for name, steps in (("net", 1), ("other", 2))
    ]
    body = f"""
    const net_devices net_on = {{&device[0]}};
    const other_devices other_on = {{&device[0]}};
    const net_inputs in = {{x}};
    const net_outputs out = {{y}};
    const other_inputs other_in = {{x}};
    const other_outputs other_out = {{y}};
    net_context a, b;
    other_context c;
    {OPEN_NPU}
    CHECK(net_init(&a, NULL, 0, &net_on) == UMA_OK && net_init(&b, NULL, 0, &net_on) == UMA_OK)
    CHECK(other_init(&c, arena[0], sizeof arena[0], &other_on) == UMA_OK)
    CHECK(net_run(&a, &in, &out) == UMA_OK && y[1] == -4)
    CHECK(other_run(&c, &other_in, &other_out) == UMA_OK && y[1] == -8)
    CHECK(net_run(&b, &in, &out) == UMA_OK && y[1] == -4)
    CHECK(device[0].driver->counter(&device[0], 2) == 3)
    """
    for compiler in compilers:
        run_c(tmp_path, models, body, compiler)


def test_wrong_devices_give_a_status(compilers: tuple[str, ...], tmp_path: Path) -> None:
    body = f"""
    static const int64_t others[2] = {{0, 4}};
    uma_driver driver = fake_driver;
    net_devices devices = {{NULL}};
    net_context context;
    uma_device *table[1];
    const uma_model *model = net_model();
    table[0] = &device[0];
    {OPEN_NPU}
    CHECK(net_init(&context, NULL, 0, NULL) == UMA_ERR_ARGUMENT)
    CHECK(net_init(&context, NULL, 0, &devices) == UMA_ERR_ARGUMENT)
    CHECK(model->init(&context, NULL, 0, NULL, 0, NULL) == UMA_ERR_ARGUMENT)
    CHECK(model->init(&context, NULL, 0, NULL, 0, table) == UMA_OK && context.devices.npu == &device[0])
    device[0].driver = &driver;
    CHECK(model->init(&context, NULL, 0, NULL, 0, table) == UMA_ERR_ARGUMENT)
    device[0].driver = &fake_driver;
    device[0].parameters = others;
    CHECK(model->init(&context, NULL, 0, NULL, 0, table) == UMA_ERR_ARGUMENT)
    device[0].n_parameters = 1;
    CHECK(model->init(&context, NULL, 0, NULL, 0, table) == UMA_ERR_ARGUMENT)
    """
    run_c(tmp_path, [emit(fake.chain("npu"), fake.devices(npu=fake.runtime("never", 3)))], body, compilers[0])


SERVER = """
static fake_machine hardware;
static volatile int running = 1;

static void *serve(void *unused)
{
    while (running) fake_machine_step(&hardware);
    return unused;
}
"""


def test_registers_in_memory(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """The same driver on the memory-mapped bus; a thread is the hardware behind the registers."""
    device = Device("npu", "fake", "mmio", fake.runtime(), base=0x4000_0000_1000)
    model = emit(fake.chain("npu", "npu"), {"npu": device})
    assert "fake_machine.c" not in model.contents
    machine = replace(
        model,
        contents={**model.contents, **fake.SIM.sources},
        sources=(*model.sources, "fake_machine.c"),
    )
    body = """
    uma_device_info info = net_model()->devices[0];
    const net_devices devices = {&device[0]};
    const net_inputs in = {x};
    const net_outputs out = {y};
    net_context context;
    pthread_t thread;
    int32_t opened, ran;
    CHECK(info.base == 0x400000001000 && info.bus_bytes == 0)
    info.base = (uint64_t)(uintptr_t)&hardware;
    CHECK(uma_device_open(&device[0], &info, state[0], NULL) == FAKE_NOT_FAKE)
    fake_machine_start(&hardware);
    pthread_create(&thread, NULL, serve, NULL);
    opened = uma_device_open(&device[0], &info, state[0], NULL);
    ran = net_init(&context, arena[0], sizeof arena[0], &devices);
    if (ran == UMA_OK) ran = net_run(&context, &in, &out);
    running = 0;
    pthread_join(thread, NULL);
    CHECK(opened == 0 && ran == UMA_OK && y[0] == 4 && y[1] == -8 && y[2] == 12)
    CHECK(device[0].bus.wait == NULL && device[0].bus.clean == NULL && device[0].bus.invalidate == NULL)
    """
    for compiler in compilers:
        run_c(tmp_path, [machine], body, compiler, SERVER)


LINUX = """
#include "uma_uio.h"
/* The other side of the two files: what it has at 0x1f000000 is the buffer. */
static fake_machine *hardware;
static unsigned char *shared;
static volatile int running = 1;

void *hardware_address(uint64_t address);
void *hardware_address(uint64_t address)
{
    return address < 0x1f000000 ? NULL : shared + (size_t)(address - 0x1f000000);
}

static void *serve(void *unused)
{
    while (running) fake_machine_step(hardware);
    return unused;
}
"""


def test_registers_and_buffer_are_files(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """The bus for Linux; a thread that has mapped the same two files is the hardware."""
    linux = fake.runtime(implementations={"uio": Implementation("uma_uio_bus")})
    model = emit(fake.chain("npu", "npu"), {"npu": Device("npu", "fake", "uio", linux)})
    host = "void *host = (void *)(uintptr_t)("
    assert host in fake.MACHINE
    machine = fake.MACHINE.replace(host, "void *host = hardware_address(")
    sources = {"fake_machine.c": f"#include <stdint.h>\nvoid *hardware_address(uint64_t address);\n{machine}"}
    made = replace(
        model,
        contents={**model.contents, "fake_machine.h": fake.MACHINE_H, **sources},
        sources=(*model.sources, "fake_machine.c"),
    )
    for name, size in (("registers", 4096), ("buffer", 8192)):
        (tmp_path / name).write_bytes(bytes(size))
    files = f'"{tmp_path}/registers", 4096, "{tmp_path}/buffer", 8192, 0x1f000000, NULL, NULL'
    body = f"""
    uma_uio uio = {{{files}}}, absent = {{"/nowhere/uio0", 4096, NULL, 0, 0, NULL, NULL}}, empty;
    const uma_device_info *info = net_model()->devices;
    const net_devices devices = {{&device[0]}};
    net_inputs in = {{x}};
    net_outputs out = {{y}};
    net_context context;
    pthread_t thread;
    int32_t opened, ran, outside, i;
    memset(&empty, 0, sizeof empty);
    CHECK(info->bus_bytes == sizeof(uma_uio) && net_DEVICE_npu_BUS_BYTES == sizeof(uma_uio))
    CHECK(uma_device_open(&device[0], info, state[0], &empty) == UMA_FAULT_UNMAPPED)
    CHECK(uma_device_open(&device[0], info, state[0], &absent) == UMA_FAULT_UNMAPPED)
    CHECK(uma_uio_map(&uio) == 0)
    hardware = (fake_machine *)(void *)uma_uio_file("{tmp_path}/registers", 4096);
    shared = uma_uio_file("{tmp_path}/buffer", 8192);
    CHECK(hardware != NULL && shared != NULL && shared != uio.mapped_buffer)
    CHECK(uma_device_open(&device[0], info, state[0], &uio) == FAKE_NOT_FAKE)
    fake_machine_start(hardware);
    pthread_create(&thread, NULL, serve, NULL);
    opened = uma_device_open(&device[0], info, state[0], &uio);
    ran = net_init(&context, uio.mapped_buffer, 1024, &devices);
    outside = net_run(&context, &in, &out);
    in.x = (int32_t *)(void *)(uio.mapped_buffer + 1024);
    out.y = (int32_t *)(void *)(uio.mapped_buffer + 2048);
    for (i = 0; i < 4; i++) ((int32_t *)(void *)(uio.mapped_buffer + 1024))[i] = i - 1;
    if (ran == UMA_OK) ran = net_run(&context, &in, &out);
    running = 0;
    pthread_join(thread, NULL);
    CHECK(opened == 0 && outside == UMA_ERR_DEVICE && ran == UMA_OK)
    CHECK(context.fault.code == 0 || context.fault.code == UMA_FAULT_UNREACHABLE)
    for (i = 0; i < 4; i++) CHECK(out.y[i] == 4 * (i - 1))
    uma_uio_unmap(&uio);
    CHECK(uio.mapped_buffer == NULL && uio.mapped_registers == NULL)
    """
    for compiler in compilers:
        for name in ("registers", "buffer"):
            (tmp_path / name).write_bytes(bytes((tmp_path / name).stat().st_size))
        run_c(tmp_path, [made], body, compiler, LINUX)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("failing", "status", "said"),
    [
        (None, 0, ""),
        (("step", 0), 1, "device b stopped step 1 with fault 7\nnet failed with status 4\n"),
        (("open", 5), 1, "opening device b failed with fault 5\n"),
        (("bus", 6), 1, "opening device b failed with fault 6\n"),
        (("close", 8), 1, "closing device b failed with fault 8\n"),
    ],
)
def test_the_example_program_opens_and_closes_devices(
    failing: tuple[str, int] | None, status: int, said: str, compilers: tuple[str, ...], tmp_path: Path
) -> None:
    devices = fake.devices(a=fake.runtime(), b=fake.runtime(*failing or ()))
    model = emit(fake.chain("a", "b"), devices)
    binary = compile_c(tmp_path, [model], [model.example], compilers[-1])
    (tmp_path / "x").write_bytes(np.arange(4, dtype=np.int32).tobytes())
    done = subprocess.run([str(binary), "x", "y"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, said)
    if failing is None:
        assert done.stdout.splitlines() == ["net: 16 bytes of arena", "y: int32, 4 elements: 0 4 8 12"]
        np.testing.assert_array_equal(np.fromfile(tmp_path / "y", np.int32), [0, 4, 8, 12])


def test_profile_and_library_hold_the_driver(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    model = emit(fake.chain("npu"), fake.devices(npu=fake.runtime()))
    assert model.sources == ("net.c", "fake_driver.c", "fake_machine.c")
    assert model.profile == ("net_profile.c", "fake_driver.c", "fake_machine.c")
    assert {"uma_device.h", "uma_mmio.h", "fake_driver.h", "fake_machine.h"} < set(model.contents)
    assert "uma_sim.h" not in model.contents


def test_what_simulators_share_is_there_where_one_includes_it() -> None:
    including = fake.runtime().implementations["sim"]
    sources = {name: f'#include "uma_sim.h"\n{text}' for name, text in including.sources.items()}
    runtime = replace(fake.runtime(), implementations={"sim": replace(including, sources=sources)})
    contents = emit(fake.chain("npu"), fake.devices(npu=runtime)).contents
    assert {"uma_sim.h", "uma_fixed.h"} < set(contents)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_headers_are_read_by_cpp(compiler: str, tmp_path: Path) -> None:
    model = emit(fake.chain("npu"), fake.devices(npu=fake.runtime()))
    for name, content in model.contents.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "main.cpp").write_text(
        '#include "net.h"\n#include "fake_driver.h"\n#include "uma_mmio.h"\n#include "uma_sim.h"\n'
        "int main() {\n    net_context context;\n    uma_device device;\n    const net_devices devices = {&device};\n"
        "    int32_t status = uma_device_open(&device, net_model()->devices, NULL, NULL);\n"
        "    status |= uma_mmio_bus(&device, NULL, 0);\n"
        "    return status | net_init(&context, NULL, 0, &devices);\n}\n"
    )
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c"]
    folders = ["-I", str(tmp_path), "-I", str(CSRC)]
    command = [compiler, *flags, *folders, str(tmp_path / "main.cpp"), "-o", str(tmp_path / "main.o")]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("standard", ["c11", "gnu17"])
def test_newer_standards(standard: str, tmp_path: Path) -> None:
    model = emit(fake.chain("npu", "npu"), {"npu": Device("npu", "fake", "mmio", fake.runtime(), base=4)})
    for name, content in model.contents.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for source in (*model.sources, model.example):
        command = ["gcc", *STRICT, "-Wconversion", f"-std={standard}", "-c", source, "-o", f"{source}.o"]
        subprocess.run(command if source.startswith("net") else [w for w in command if w != "-Wconversion"],
                       cwd=tmp_path, check=True)  # fmt: skip


@pytest.mark.parametrize("opt", ["-O0", "-O2", "-O3", "-Os"])
def test_a_device_without_state_is_opened_with_null(opt: str, tmp_path: Path, compilers: tuple[str, ...]) -> None:
    # gcc 12 found that null is cleared, for all it knew of the driver.
    source = tmp_path / "open.c"
    source.write_text(
        '#include "uma_device.h"\nextern const uma_device_info info;\nint32_t start(uma_device *device);\n'
        "int32_t start(uma_device *device)\n{\n    return uma_device_open(device, &info, NULL, NULL);\n}\n"
    )
    for compiler in compilers:
        command = [compiler, *STRICT, opt, f"-I{CSRC}", "-c", str(source), "-o", str(tmp_path / "open.o")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_label_may_be_a_word_of_c(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    model = emit(fake.chain("int", "devices"), fake.devices(int=fake.runtime(), devices=fake.runtime()))
    assert "#define net_DEVICE_m_int_INDEX 0" in str(model.contents["net.h"])
    compile_c(tmp_path, [model], [model.example], compilers[0])


def test_what_the_metadata_say() -> None:
    program = fake.chain("npu", "npu", count=8)
    device = Device("npu", "fake", "mmio", fake.runtime("never", -3), base=4096)
    assert to_json(device_record(device, program, plan(program))) == {
        "label": "npu",
        "kind": "fake",
        "impl": "mmio",
        "simulated": False,
        "base": 4096,
        "parameters": [0, -3],
        "counters": ["operations", "bytes_moved", "runs"],
        "parts": None,
        "clock": None,
        "faults": [
            {"code": 3, "meaning": "this is not a fake device"},
            {"code": 7, "meaning": "an address outside of the scratchpad"},
        ],
        "memories": [{"name": "spad", "bytes": 256, "used_bytes": 64}],
    }


def test_parts_and_clock_are_in_the_metadata() -> None:
    program = fake.chain("npu")
    parts, clock = PartCounters(2, ("bytes_moved",)), Clock(1e6, "operations")
    made = fake.devices(npu=fake.runtime(counters=("operations",), parts=parts, clock=clock))["npu"]
    record = device_record(made, program, plan(program))
    assert record.parts == PartsRecord(2, ("bytes_moved",), False)
    assert record.clock == ClockRecord(1e6, "operations", None)


class TestDevice:
    def target(self, **attrs: object) -> Target:
        impl = Attribute("impl", str, default="sim", help="how it is reached")
        base = Attribute("base", int, help="address")
        return Target(TargetKind("fake", (impl, base), help="a fake", device_type="npu"), attrs)

    def test_as_the_target_says(self) -> None:
        made = fake.runtime()
        assert Device.from_target("npu", self.target(), made) == Device("npu", "fake", "sim", made)
        given = self.target(impl="mmio", base=64)
        assert Device.from_target("npu", given, made) == Device("npu", "fake", "mmio", made, 64)
        bare = Target(TargetKind("fake", help="a fake", device_type="npu"))
        assert Device.from_target("npu", bare, made) == Device("npu", "fake", "sim", made)

    @pytest.mark.parametrize(
        ("attrs", "what"),
        [
            ({"impl": "simm"}, "there is no implementation 'simm'"),
            ({"impl": "mmio"}, "implementation 'mmio' has no base"),
            ({"impl": "mmio", "base": 0}, "implementation 'mmio' cannot have its registers at 0"),
            ({"impl": "mmio", "base": -4}, "implementation 'mmio' cannot have its registers at -4"),
            ({"impl": "mmio", "base": 6}, "implementation 'mmio' cannot have its registers at 6"),
            ({"base": 64}, "base was given, but implementation 'sim' is not at an address of memory"),
        ],
    )
    def test_wrong_attributes(self, attrs: dict[str, object], what: str) -> None:
        with pytest.raises(UsageError) as caught:
            Device.from_target("npu", self.target(**attrs), fake.runtime())
        assert caught.value.what == what
        assert caught.value.where == "device 'npu', target kind 'fake'"
        assert caught.value.hint

    def test_registers_need_no_memory(self) -> None:
        wrong = {"mmio": Implementation("uma_mmio_bus", state_bytes=4)}
        with pytest.raises(PluginError, match="implementation 'mmio' asks for memory"):
            Device("npu", "fake", "mmio", fake.runtime(implementations=wrong), base=4)
        wrong = {"uio": Implementation("uma_uio_bus", state_bytes=4)}
        with pytest.raises(PluginError, match="implementation 'uio' asks for memory, but uma_uio_bus has its own"):
            Device("npu", "fake", "uio", fake.runtime(implementations=wrong))

    def test_two_drivers_of_one_kind_are_not_in_one_image(self) -> None:
        runtime = fake.direct_runtime()
        both = {"a": Device("a", "fake", "sim", runtime), "b": Device("b", "fake", "direct", runtime)}
        with pytest.raises(UsageError) as caught:
            emit(fake.chain("a", "b"), both)
        drivers = "impl=sim of 'a' and impl=direct of 'b' have drivers of their own"
        assert caught.value.what == f"{drivers}, which cannot be in one image"
        assert (caught.value.where, caught.value.hint) == ("target kind 'fake'", "choose one implementation for both")

    def test_driver_and_implementation_contradict_each_other(self) -> None:
        wrong = {"sim": Implementation("bus", {"fake_driver.c": "int x;"})}
        with pytest.raises(PluginError, match=r"have different files with the name 'fake_driver\.c'"):
            Device("npu", "fake", "sim", fake.runtime(implementations=wrong))


class TestFiles:
    def refused(self, *, model: str = "net", **extra: str) -> PluginError:
        sources = {"fake_driver.h": fake.HEADER, **{name.replace("__", "."): text for name, text in extra.items()}}
        with pytest.raises(PluginError) as caught:
            emit(fake.chain("npu", name=model), fake.devices(npu=fake.runtime(sources=sources)))
        assert caught.value.where == "device 'npu', target kind 'fake'"
        assert caught.value.hint is not None and "begin with" in caught.value.hint
        return caught.value

    def test_names_of_generated_files(self) -> None:
        error = self.refused(net__c="")
        assert error.what == "the plugin's file 'net.c' has the name of a file 'net.c' that the core writes"
        assert "'NET_Main.c' has the name of a file 'net_main.c'" in self.refused(NET_Main__c="").what
        assert "'uma_math.h'" in self.refused(uma_math__h="").what
        assert "'uma_device.h'" in self.refused(uma_device__h="").what

    def test_two_kinds_with_one_name(self) -> None:
        other = replace(fake.devices(b=fake.runtime())["b"], kind="other")
        sources = {**other.runtime.sources, "fake_driver.c": "/* other */"}
        other = replace(other, runtime=fake.runtime(sources=sources))
        with pytest.raises(PluginError) as caught:
            emit(fake.chain("a", "b"), {**fake.devices(a=fake.runtime()), "b": other})
        assert caught.value.what == (
            "the plugin's file 'fake_driver.c' has the name of a file 'fake_driver.c' "
            "that target kind 'fake' brings for device 'a'"
        )

    def test_a_device_that_nobody_describes(self) -> None:
        with pytest.raises(InternalError, match="for a device 'npu', which nobody describes"):
            emit(fake.chain("npu"), fake.devices(other=fake.runtime()))

    def test_a_device_that_nothing_runs_on(self) -> None:
        devices = fake.devices(npu=fake.runtime(), idle=fake.runtime())
        assert emit(fake.chain("npu"), devices) == emit(fake.chain("npu"), fake.devices(npu=fake.runtime()))
