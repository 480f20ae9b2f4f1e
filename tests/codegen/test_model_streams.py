"""The C of models whose device is fed commands and left to run: by two compilers, with sanitizers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support import stream_device as lag
from tests._support.programs import kernel
from tests._support.stream_programs import offloaded, waits, without

from uma.codegen import ModelFiles, emit_model
from uma.contract.devices import Device
from uma.errors import InternalError, ModelError, PluginError
from uma.hookspecs import BitField, LaunchQueue, Routine, Runtime
from uma.program import Buffer, Call, Program, plan, verify, verify_plan
from uma.relay import Blob, Extern, Relocation
from uma.tir import Buffer as TirBuffer
from uma.tir import Param

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZED = (*STRICT, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

MAIN = """\
#include <stdio.h>
%(includes)s
#define CHECK(condition) if (!(condition)) { printf("line %%d: %%s\\n", __LINE__, #condition); return 1; }
UMA_ALIGNAS(64) static unsigned char arena[2][1024], memory[2][4096];
#ifdef UMA_DEVICE_H
static uma_device device[1];
#endif
static int32_t x[4] = {1, -2, 3, 1 << 30}, y[4], z[4];
int main(void)
{
%(body)s
    (void)arena; (void)memory; (void)x; (void)y; (void)z;
    return 0;
}
"""

OPEN = "CHECK(uma_device_open(&device[0], net_model()->devices, NULL, memory[0]) == 0)"
RUN = """\
    const net_devices devices = {&device[0]};
    const net_inputs in = {x};
    const net_outputs out = {y};
    net_context context;
    uma_status status;
    %s
    CHECK(net_init(&context, arena[0], sizeof arena[0], &devices) == UMA_OK)
    memset(y, 0x5a, sizeof y);
    status = net_run(&context, &in, &out);
"""
"""Opens the device and runs the model ``net`` from x to y."""


def sums(*places: tuple[str, str | None] | None, name: str = "net") -> Program:
    """t0 = x + w; t1 = x + x; y = t0 + t1 + w, where w is (5, 6): on these places."""
    once, twice = kernel([4], 4, constant=2), kernel([4, 4], 4)
    last = kernel([4, 4], 4, constant=2, workspace=3)
    data = np.array([5, 6], np.int32).tobytes()
    buffers = (
        Buffer("x", "input", (4,), "int32", tensor="x"),
        *(Buffer(t, "intermediate", (4,), "int32") for t in ("t0", "t1")),
        Buffer("y", "output", (4,), "int32", tensor="y"),
        Buffer("w", "constant", (2,), "int32", data=data),
        Buffer("s", "workspace", (3,), "int32"),
    )
    steps = (
        Call("once", ("x", "t0", "w"), ("first",)),
        Call("twice", ("x", "x", "t1"), ("second",)),
        Call("last", ("t0", "t1", "y", "w", "s"), ("third",)),
    )
    host = Program(name, buffers, steps, {"once": once, "twice": twice, "last": last})
    verify(host)
    return offloaded(host, places)


QUEUES = (("npu", "a"), ("npu", "b"), ("npu", "a"))
RIGHT = "for (i = 0; i < 4; i++) CHECK((uint32_t)y[i] == 3 * (uint32_t)x[i] + (uint32_t)(i % 2 ? 12 : 10))"


def emit(program: Program, devices: Mapping[str, Device]) -> ModelFiles:
    return emit_model(program, plan(program), devices)


def run_c(folder: Path, models: list[ModelFiles], body: str, compiler: str) -> None:
    """Links the models with a main of which ``body`` is the inside; it gives 0 where all is as it should be."""
    for model in models:
        for name, content in model.contents.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    includes = "\n".join(f'#include "{model.entry.replace("_entry.c", ".h")}"' for model in models)
    (folder / "main.c").write_text(MAIN % {"includes": includes, "body": body})
    sources = dict.fromkeys(source for model in models for source in model.sources)
    command = [compiler, *SANITIZED, f"-I{folder}", *(str(folder / name) for name in (*sources, "main.c"))]
    built = subprocess.run([*command, "-o", str(folder / "p"), "-lm"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(folder / "p")], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", [("lazy", 0), ("eager", 0), ("random", 1), ("random", 7), ("late", 500)])
def test_whatever_the_pace_of_the_device(mode: tuple[str, int], compilers: tuple[str, ...], tmp_path: Path) -> None:
    model = emit(sums(*QUEUES), lag.devices(npu=lag.runtime(*mode)))
    body = f"""{RUN % OPEN}
    int i;
    CHECK(status == UMA_OK)
    {RIGHT}
    CHECK(device[0].driver->counter(&device[0], 0) == 3)
    CHECK(net_run(&context, &in, &out) == UMA_OK && device[0].driver->close(&device[0]) == 0)
    """
    for compiler in compilers if mode[0] == "lazy" else compilers[:1]:
        run_c(tmp_path, [model], body, compiler)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "places",
    [
        (("npu", None), ("npu", None), ("npu", None)),
        (("npu", "a"), None, None),
        (None, ("npu", "b"), ("npu", None)),
        (("npu", "a"), ("npu", "a"), ("npu", "a")),
    ],
)
def test_host_and_device_together(places: Any, compilers: tuple[str, ...], tmp_path: Path) -> None:
    model = emit(sums(*places), lag.devices(npu=lag.runtime()))
    body = f"{RUN % OPEN}\n    int i;\n    CHECK(status == UMA_OK)\n    {RIGHT}\n"
    run_c(tmp_path, [model], body, compilers[0])


def test_every_missing_wait_is_found() -> None:
    """Planted one at a time: by the check that every build makes, before there is any C."""
    program = sums(*QUEUES)
    memory = plan(program)
    found = []
    for position in waits(program):
        broken = without(program, position)
        with pytest.raises(InternalError) as caught:
            verify_plan(broken, memory)
        found.append(f"{caught.value.what} ({caught.value.where})")
    assert found == [
        "reads 't1', which step 1 (e1_npu) on queue 'b' of 'npu' may still write: a wait is missing "
        "(program 'net', step 2 (e2_npu))",
        "queue 'a' of 'npu' is never waited for after step 3 (e2_npu) (program 'net', step 3 (e2_npu))",
    ]


def test_without_the_check_the_device_shows_it(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """What is not waited for has not happened: the checker is not the only one who would know."""
    program = sums(*QUEUES)
    for position in waits(program):
        model = emit(without(program, position), lag.devices(npu=lag.runtime()))
        body = f"""{RUN % OPEN}
    int i, wrong = 0;
    for (i = 0; i < 4; i++) wrong += (uint32_t)y[i] != 3 * (uint32_t)x[i] + (uint32_t)(i % 2 ? 12 : 10);
    CHECK(status == UMA_OK && wrong > 0)
    """
        run_c(tmp_path, [model], body, compilers[0])


@pytest.mark.parametrize(
    ("mode", "step", "code"),
    [
        (("hang", 0), 2, lag.NO_ANSWER),
        (("hang", 2), 4, lag.NO_ANSWER),
        (("fault", 2), 4, lag.BROKEN),
    ],
)
def test_a_device_that_hangs_or_breaks(
    mode: tuple[str, int], step: int, code: int, compilers: tuple[str, ...], tmp_path: Path
) -> None:
    """The run ends with the step that waited, each time anew, and the device can be closed."""
    program = sums(("npu", "a"), ("npu", "b"), ("npu", "a"))
    assert len(program.steps) == 5 and waits(program) == [2, 4]
    model = emit(program, lag.devices(npu=lag.runtime(*mode)))
    body = f"""{RUN % OPEN}
    CHECK(status == UMA_ERR_DEVICE && context.fault.step == {step} && context.fault.code == {code})
    CHECK(context.fault.device == 0)
    CHECK(net_run(&context, &in, &out) == UMA_ERR_DEVICE)
    CHECK(device[0].driver->close(&device[0]) == 0)
    """
    run_c(tmp_path, [model], body, compilers[0])


def test_a_fault_in_the_middle_leaves_the_context_usable(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """The device breaks in its second launch of the first run only."""
    machine = lag.MACHINE.replace("self->done >= parameters[1] && at > 0", "++broken == 2")
    machine = machine.replace("static void run(", "static int broken;\n\nstatic void run(")
    made = lag.runtime("fault", 1)
    sim = replace(made.implementations["sim"], sources={"lag_machine.c": machine})
    model = emit(sums(*QUEUES), lag.devices(npu=replace(made, implementations={"sim": sim})))
    body = f"""{RUN % OPEN}
    int i;
    CHECK(status == UMA_ERR_DEVICE && context.fault.code == {lag.BROKEN})
    CHECK(net_run(&context, &in, &out) == UMA_OK)
    {RIGHT}
    """
    run_c(tmp_path, [model], body, compilers[0])


def test_two_models_on_one_device(compilers: tuple[str, ...], tmp_path: Path) -> None:
    made = lag.devices(npu=lag.runtime())
    first = emit(sums(*QUEUES), made)
    second = emit(sums(("npu", "b"), ("npu", "b"), None, name="other"), made)
    body = f"""{RUN % OPEN}
    const other_devices others = {{&device[0]}};
    const other_inputs other_in = {{x}};
    const other_outputs other_out = {{z}};
    other_context another;
    int i, round;
    CHECK(status == UMA_OK)
    CHECK(other_init(&another, arena[1], sizeof arena[1], &others) == UMA_OK)
    for (round = 0; round < 3; round++) {{
        memset(y, 0, sizeof y);
        memset(z, 0, sizeof z);
        CHECK(other_run(&another, &other_in, &other_out) == UMA_OK)
        CHECK(net_run(&context, &in, &out) == UMA_OK)
        {RIGHT}
        CHECK(memcmp(y, z, sizeof y) == 0)
    }}
    """
    for compiler in compilers:
        run_c(tmp_path, [first, second], body, compiler)


def test_a_command_out_of_its_regions_is_trapped_by_the_device(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """The simulator decodes what memory holds: a stream that is wrong is stopped, not believed."""
    stream = lag.commands([("y", 5, [lag.Source("x", 4)])])
    params = tuple(Param(TirBuffer(name, (4,), "int32"), role) for name, role in (("x", "input"), ("y", "output")))
    program = _one_call(Extern(params, "run", blobs=(stream,)))
    body = f"{RUN % OPEN}\n    CHECK(status == UMA_ERR_DEVICE && context.fault.code == {lag.OUTSIDE})\n"
    body = body.replace("arena[0], sizeof arena[0]", "NULL, 0")
    run_c(tmp_path, [emit(program, lag.devices(npu=lag.runtime()))], body, compilers[0])


def _one_call(extern: Extern) -> Program:
    """``y`` from ``x`` by one extern."""
    blobs = [
        Buffer(blob.name, "constant", (len(blob.data),), "uint8", blob.alignment, data=blob.data)
        for blob in extern.blobs
    ]
    buffers = (
        Buffer("x", "input", (4,), "int32", tensor="x"),
        Buffer("y", "output", (4,), "int32", tensor="y"),
        *blobs,
    )
    step = Call("f", ("x", "y", *(blob.name for blob in blobs)), ("layer",), "npu", extern.queue)
    program = Program("net", buffers, (step,), {"f": extern})
    verify(program)
    return program


PARAMS = tuple(Param(TirBuffer(name, (4,), "int32"), role) for name, role in (("x", "input"), ("y", "output")))
LIBRARY = {
    "my_library.h": "#include <stddef.h>\n#include <stdint.h>\n"
    "void my_sum(const int32_t *x, int32_t *y, double factor, int64_t shift, const void *w, size_t bytes);\n",
    "my_library.c": '#include "my_library.h"\n\n'
    "void my_sum(const int32_t *x, int32_t *y, double factor, int64_t shift, const void *w, size_t bytes)\n{\n"
    "    int i;\n\n    for (i = 0; i < 4; i++) {\n"
    "        y[i] = (int32_t)(x[i] * factor + (double)shift / 65536 / 65536 + (double)bytes + *(const char *)w);\n"
    "    }\n}\n",
}


def test_a_library_has_no_device(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """A routine without ``{device}`` is a plain call: the model has no devices, and no header of them."""
    routine = Routine("sum", "my_sum({x}, {y}, {factor}, {shift}, {w}, {w_bytes})")
    made = Runtime(header="my_library.h", sources=LIBRARY, routines=(routine,))
    extern = Extern(PARAMS, "sum", {"factor": -0.5, "shift": -(2**33)}, (Blob("w", b"\x07\x01\x01"),))
    model = emit(_one_call(extern), {"npu": Device("npu", "blas", "sim", made)})
    assert not any("uma_device" in name for name in model.contents)
    assert "my_library.c" in model.sources
    body = """
    const net_inputs in = {x};
    const net_outputs out = {y};
    net_context context;
    int i;
    x[3] = 8;
    CHECK(net_model()->n_devices == 0)
    CHECK(net_init(&context, NULL, 0) == UMA_OK && net_run(&context, &in, &out) == UMA_OK)
    for (i = 0; i < 4; i++) CHECK(y[i] == (int32_t)(x[i] * -0.5 - 2 + 3 + 7))
    """
    for compiler in compilers:
        run_c(tmp_path, [model], body, compiler)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (-3, "(-3)"),
        (-(2**31), "(-2147483647 - 1)"),
        (2**31, "INT64_C(2147483648)"),
        (-(2**40), "(-INT64_C(1099511627776))"),
        (-(2**63), "(-INT64_C(9223372036854775807) - 1)"),
        (0.5, "0.5"),
        (-1e-9, "(-1e-09)"),
    ],
)
def test_scalars_in_c(value: int | float, text: str) -> None:
    made = Runtime(header="l.h", sources={"l.h": ""}, routines=(Routine("f", "f({x}, {y}, {n})"),))
    model = emit(_one_call(Extern(PARAMS, "f", {"n": value})), {"npu": Device("npu", "l", "sim", made)})
    assert f"f(uma_x_, uma_y_, {text})" in str(model.contents["net.c"])


HOSTILE: dict[str, tuple[Extern, Runtime, str]] = {
    "routine": (
        Extern(PARAMS, "system"),
        lag.runtime(),
        "uses the routine 'system', which the driver of 'npu' does not declare",
    ),
    "placeholder": (
        Extern(PARAMS, "start", {"queue": 0}),
        lag.runtime(),
        "uses nothing for placeholder {commands} of routine 'start'",
    ),
    "field": (
        Extern(PARAMS, "run", blobs=(Blob("commands", bytes(8), relocations=(Relocation(0, "x", "y"),)),)),
        lag.runtime(),
        "in a field 'x' that routine 'run' does not declare (it has dst_base, base, offset)",
    ),
    "past the end": (
        Extern(PARAMS, "run", blobs=(Blob("commands", bytes(8), relocations=(Relocation(5, "offset", "y"),)),)),
        lag.runtime(),
        "whose field 'offset' goes past its end at byte 8",
    ),
    "overlap": (
        Extern(
            PARAMS,
            "run",
            blobs=(
                Blob("commands", bytes(8), relocations=(Relocation(0, "offset", "y"), Relocation(2, "offset", "x"))),
            ),
        ),
        lag.runtime(),
        "two relocations of the same bits near byte 2 of blob 'commands'",
    ),
    "port": (
        Extern(PARAMS, "f", ports={"x": "axi", "y": "apb"}),
        lag.runtime(routines=(Routine("f", "f({device}, {x}, {y})", ports=("axi",)),)),
        "port 'apb' for 'y' of routine 'f', which has axi",
    ),
    "no port": (
        Extern(PARAMS, "f", ports={"x": "axi"}),
        lag.runtime(routines=(Routine("f", "f({device}, {x}, {y})", ports=("axi",)),)),
        "no port for 'y' of routine 'f', which has axi",
    ),
    "no ports": (
        Extern(PARAMS, "f", ports={"x": "axi"}),
        lag.runtime(routines=(Routine("f", "f({device}, {x}, {y})"),)),
        "port 'axi' for 'x' of routine 'f', which has none",
    ),
}


@pytest.mark.parametrize("extern, made, what", HOSTILE.values(), ids=HOSTILE)
def test_what_the_driver_does_not_declare_gets_into_no_c(extern: Extern, made: Runtime, what: str) -> None:
    program = _one_call(extern)
    with pytest.raises(ModelError) as caught:
        emit(program, lag.devices(npu=made))
    assert what in caught.value.what
    assert caught.value.where == "layer"


def test_queues_are_the_drivers() -> None:
    program = sums(*QUEUES)
    for queues, what in (
        (lag.QUEUES[:1], "uses the launch queue 'b', which the driver of 'npu' does not declare"),
        (
            (LaunchQueue("a", 1, lag.QUEUES[0].wait), lag.QUEUES[1]),
            "queue 'a' takes 2 launches, and that of the driver of 'npu' 1",
        ),
    ):
        with pytest.raises(ModelError) as caught:
            emit(program, lag.devices(npu=lag.runtime(launch_queues=queues)))
        assert what in caught.value.what


def test_a_field_that_is_too_small_is_found_when_the_model_is_written() -> None:
    narrow = (*lag.FIELDS[:2], BitField("offset", 3, unit=4))
    made = lag.runtime(routines=(replace(lag.START, fields=narrow), lag.RUN))
    program = sums(*QUEUES)
    with pytest.raises(PluginError) as caught:
        emit(program, lag.devices(npu=made))
    assert "does not fit field 'offset' at byte" in caught.value.what
    assert "extern 'e0_npu' for 'npu', first" in str(caught.value.where)
