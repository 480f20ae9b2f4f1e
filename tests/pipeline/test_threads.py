"""Models that several threads run: the same bits, from Python and from C; what goes wrong is told."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests._support.c_programs import Run, run_compiled
from tests._support.control_flow import inputs_of, random_module
from tests._support.model_c import COMPILERS, SANITIZED, STRICT
from tests._support.op_cases import CASES
from tests._support.op_kernels import kernel_of
from tests._support.real_models import FILES
from tests._support.relay_strategies import Choice
from tests._support.thread_nets import every_loop, picture, picture_net
from tests.networks import NETWORKS
from tests.pipeline.test_generated_c import PLUGINS

import uma
from uma.artifact import Artifact
from uma.artifact.random_inputs import random_inputs
from uma.cli import main
from uma.errors import ToolchainError, UsageError
from uma.runtime import helper_library, threads
from uma.runtime.threads import threads_of
from uma.tir import interpret
from uma.tir.schedule.parallelisation import in_threads, is_parallel

X = picture()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(picture_net(), path)
    return path


@pytest.fixture(scope="module")
def three(net: Path) -> Artifact:
    """For three threads."""
    return uma.build(net, "c -threads=3", name="net")


@pytest.fixture(scope="module")
def plain(net: Path) -> Artifact:
    """For one thread."""
    return uma.build(net, "c", name="net")


def loops(artifact: Artifact) -> int:
    """How many loops threads run."""
    return artifact.source(f"{artifact.name}.c").count("UMA_PARALLEL_FOR(threads, ")


def bits(outputs: dict[str, np.ndarray]) -> bytes:
    return b"".join(array.tobytes() for array in outputs.values())


def test_the_same_bits_with_any_number_of_threads(plain: Artifact, three: Artifact) -> None:
    expected = bits(plain.run(X))
    assert loops(three) >= 4
    for count in (1, 2, 3):
        with three.session(threads=count) as session:
            for _ in range(5):
                assert bits(session.run(X)) == expected, count
    assert bits(three.run(X)) == expected
    profile = three.profile(X, 2, threads=2)
    assert bits(dict(profile.outputs)) == expected and len(profile.calls) == len(three.record.calls)


@pytest.mark.soak
def test_the_same_bits_of_int8(tmp_path: Path) -> None:
    onnx.save(picture_net(quantised=True), tmp_path / "net.onnx")
    two = uma.build(tmp_path / "net.onnx", "c -threads=2")
    assert loops(two) >= 3
    assert bits(two.session(threads=2).run(X)) == bits(uma.build(tmp_path / "net.onnx", "c").run(X))


def test_one_thread_has_the_c_that_it_had(net: Path, plain: Artifact, three: Artifact) -> None:
    one = uma.build(net, "c -threads=1", name="net")
    assert {n: c for n, c in one.files.items() if n != "metadata.json"} == plain.files
    assert "uma_parallel.h" not in plain.files and "uma_threads" not in plain.source("net.h")
    assert "uma_threads threads;" in three.source("net.h") and "#define net_THREADS 3\n" in three.source("net.h")
    table = uma.build(net, "c -threads=3 -executor=graph", name="net")
    assert "uma_parallel.h" not in table.files and bits(table.run(X)) == bits(three.run(X))


def test_short_loops_are_left_to_one_thread(tmp_path: Path) -> None:
    from tests._support.float_nets import conv_net

    onnx.save(conv_net(), tmp_path / "net.onnx")
    small = uma.build(tmp_path / "net.onnx", "c -threads=2", name="small")
    assert loops(small) == 0 and small.session(threads=2).threads == 1
    with every_loop():
        assert loops(uma.build(tmp_path / "net.onnx", "c -threads=2", name="small")) > 0


def test_open_extents(tmp_path: Path) -> None:
    from tests._support.float_nets import conv_net, samples

    onnx.save(conv_net(batch="n"), tmp_path / "net.onnx")
    shapes = {"x": ("1..5", 3, 8, 8)}
    with every_loop():
        two = uma.build(tmp_path / "net.onnx", "c -threads=2", shapes=shapes)
    one = uma.build(tmp_path / "net.onnx", "c", shapes=shapes)
    assert loops(two) > 0
    session = two.session(threads=2)
    for count in (1, 4, 5):
        x = samples(count, 3, 8, 8)
        assert bits(session.run(x)) == bits(one.run(x))


def test_sessions_in_several_threads_of_python(three: Artifact) -> None:
    inputs = [picture(seed) for seed in range(3)]
    expected = [bits(three.session(threads=1).run(x)) for x in inputs]
    wrong: list[int] = []

    def work(seed: int) -> None:
        with three.session(threads=2) as session:
            wrong.extend(seed for _ in range(40) if bits(session.run(inputs[seed])) != expected[seed])

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_forks(three: Artifact) -> None:
    session = three.session(threads=3)
    expected = bits(session.run(X))
    child = os.fork()
    if child == 0:
        try:
            right = bits(session.run(X)) == expected  # alone
            session.close()
            with three.session(threads=2) as own:
                right = right and bits(own.run(X)) == expected
            os._exit(0 if right else 2)
        finally:
            os._exit(1)
    for _ in range(20):
        assert bits(session.run(X)) == expected
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not tell threads")
def test_threads_end_with_their_session(three: Artifact) -> None:
    def alive() -> int:
        return len(os.listdir("/proc/self/task"))

    def becomes(count: int) -> bool:
        """A thread that has made a call for the main one is counted until the system has removed it."""
        until = time.monotonic() + 10
        while alive() != count and time.monotonic() < until:
            time.sleep(0.001)
        return alive() == count

    three.session(threads=3).close()
    time.sleep(0.05)
    before = alive()
    with three.session(threads=3) as session:
        session.run(X)
        assert becomes(before + 2) and session.threads == 3
    assert becomes(before)
    session = three.session(threads=2)
    session.run(X)
    assert becomes(before + 1)
    del session
    assert becomes(before)


def test_what_cannot_be_asked_for(net: Path, plain: Artifact, three: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (0, -1, True, 1.5, "2"):
        with pytest.raises(UsageError, match="is not a number of threads"):
            three.session(threads=wrong)  # type: ignore[arg-type]  # neither numbers of threads nor all of them numbers
    with pytest.raises(UsageError, match="built for 3 threads, and cannot be run by 4") as error:
        three.session(threads=4)
    assert "-threads=4" in str(error.value)
    with pytest.raises(UsageError, match="built for one thread"):
        plain.session(threads=2)
    for wrong in ("0", "1000000", "two"):
        with pytest.raises(UsageError, match="threads"):
            uma.build(net, f"c -threads={wrong}")

    class Poor:
        """A system that gives no threads."""

        uma_pool_run = uma_pool_end = None

        def uma_pool_make(self, count: int) -> object:
            return threads.abi().ffi.NULL

    monkeypatch.setattr(threads, "part_of_runtime", lambda *_: Poor())
    with pytest.raises(UsageError, match="the system gives this process no 2 threads"):
        three.session(threads=2)


def test_the_first_host_says_for_how_many(net: Path) -> None:
    with pytest.raises(UsageError, match="has the attribute 'threads', but 'one' runs the model's steps"):
        uma.build(net, {"one": "c", "other": "c -threads=2"})


PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include "net.h"

/* As firmware brings one: the loop is cut in three, and the last part is run first. */
static void in_parts(void *user, uma_body body, const void *args, int32_t n)
{
    const int32_t a = n / 3, b = n - n / 3;

    ++*(int *)user;
    if (b < n) body(args, b, n);
    if (a > 0) body(args, 0, a);
    if (a < b) body(args, a, b);
}
static void twice(void *user, uma_body body, const void *args, int32_t n)
{
    (void)user;
    body(args, 0, n);
    body(args, n - 1, n);
}
static void not_at_all(void *user, uma_body body, const void *args, int32_t n)
{
    (void)user;
    body(args, 0, n - 1);
}
static void one_for_another(void *user, uma_body body, const void *args, int32_t n)
{
    (void)user;
    body(args, 0, n - 1);
    body(args, 0, n > 1);
}
static void beyond(void *user, uma_body body, const void *args, int32_t n)
{
    (void)user;
    body(args, 0, n);
    body(args, n, n + 1);
}

UMA_ALIGNAS(net_ARENA_ALIGNMENT) static unsigned char arena[net_ARENA_BYTES];
static float x[net_INPUT_x_ELEMENTS], y[net_OUTPUT_y_ELEMENTS], expected[net_OUTPUT_y_ELEMENTS];

#define CHECK(what) do { if (!(what)) { printf("%s\n", #what); return 1; } } while (0)

int main(void)
{
    static void (*const wrong[])(void *, uma_body, const void *, int32_t) =
#ifdef UMA_DEBUG
        {twice, not_at_all, one_for_another, beyond};
#else
        {NULL};
#endif
    net_context context;
    const net_inputs inputs = {x};
    const net_outputs outputs = {y}, first = {expected};
    uma_threads *threads;
    int count = 0;
    size_t i;

    (void)twice, (void)not_at_all, (void)one_for_another, (void)beyond;
    for (i = 0; i < net_INPUT_x_ELEMENTS; i++) x[i] = (float)(i % 97) / 97.0f - 0.5f;
    CHECK(net_init(&context, arena, sizeof arena) == UMA_OK);
    CHECK(context.threads.parallel_for == NULL);
    CHECK(net_run(&context, &inputs, &first) == UMA_OK);
    threads = net_model()->threads(&context);
    CHECK(threads == &context.threads && net_model()->n_threads == net_THREADS && net_THREADS == 3);
    threads->parallel_for = in_parts;
    threads->user = &count;
    CHECK(net_run(&context, &inputs, &outputs) == UMA_OK && count > 3);
    CHECK(memcmp(y, expected, sizeof y) == 0);
    for (i = 0; wrong[0] != NULL && i < sizeof wrong / sizeof *wrong; i++) {
        threads->parallel_for = wrong[i];
        CHECK(net_run(&context, &inputs, &outputs) == UMA_ERR_THREADS && threads->faults > 3);
    }
    threads->parallel_for = NULL;
    CHECK(net_run(&context, &inputs, &outputs) == UMA_OK && threads->faults == 0);
    CHECK(memcmp(y, expected, sizeof y) == 0);
    return 0;
}
"""


def compiled(artifact: Artifact, folder: Path, main: str, sources: Sequence[str], compiler: str, *flags: str) -> Path:
    artifact.save(folder)
    (folder / "own.c").write_text(main)
    how = artifact.metadata["compile"]["hosts"][0]
    cpu = [flag for flag in how["flags"] if flag.startswith("-m")]
    files = [str(folder / name) for name in (*how["sources"], *sources, "own.c")]
    command = [compiler, *cpu, *flags, f"-I{folder}", *files, "-o", str(folder / "program"), "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return folder / "program"


@pytest.mark.parametrize("flags", [("-O1", "-DUMA_DEBUG"), ("-O1",)])
def test_a_program_with_a_hook_of_its_own(three: Artifact, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """One that runs each iteration once gives the same bits; others are noticed where it is compiled for that."""
    program = compiled(three, tmp_path / "net", PROGRAM, [], "gcc", *STRICT, *flags)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


POOL = r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include "net.h"
#include "uma_pool.h"

#define RUNS 60

static float x[net_INPUT_x_ELEMENTS], expected[net_OUTPUT_y_ELEMENTS];
static uma_pool *pool;

typedef struct one {
    UMA_ALIGNAS(64) unsigned char arena[net_ARENA_BYTES];
    float y[net_OUTPUT_y_ELEMENTS];
    int wrong;
} one;

static one all[3];

static void *work(void *given)
{
    one *own = given;
    net_context context;
    const net_inputs inputs = {x};
    net_outputs outputs;
    int i;

    outputs.y = own->y;
    if (net_init(&context, own->arena, sizeof own->arena) != UMA_OK) own->wrong = 1;
    context.threads.parallel_for = uma_pool_run;
    context.threads.user = pool;
    for (i = 0; i < RUNS; i++) {
        if (net_run(&context, &inputs, &outputs) != UMA_OK) own->wrong = 1;
        if (memcmp(own->y, expected, sizeof expected) != 0) own->wrong = 1;
        if (i % 20 == 0) usleep(200); /* the threads go to sleep */
    }
    return NULL;
}

int main(void)
{
    net_context context;
    const net_inputs inputs = {x};
    const net_outputs outputs = {expected};
    pthread_t threads[2];
    size_t i;
    pid_t child;
    int status = 1;

    for (i = 0; i < net_INPUT_x_ELEMENTS; i++) x[i] = (float)(i % 97) / 97.0f - 0.5f;
    if (net_init(&context, all[0].arena, sizeof all[0].arena) != UMA_OK) return 1;
    if (net_run(&context, &inputs, &outputs) != UMA_OK) return 1;
    if (uma_pool_make(0) != NULL || uma_pool_make(257) != NULL) return 2;
    for (i = 0; i < 20; i++) { /* nobody has to be awake when they are ended */
        pool = uma_pool_make((int32_t)i % 4 + 1);
        if (pool == NULL) return 3;
        context.threads.parallel_for = uma_pool_run;
        context.threads.user = pool;
        if (i % 2 && net_run(&context, &inputs, &outputs) != UMA_OK) return 4;
        uma_pool_end(pool);
    }
    uma_pool_end(NULL);
    pool = uma_pool_make(3);
    work(&all[0]);
    for (i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &all[i + 1]); /* one pool for two contexts */
    for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    child = fork();
    if (child == 0) {
        work(&all[0]);
        uma_pool_end(pool);
        _exit(all[0].wrong);
    }
    waitpid(child, &status, 0);
    uma_pool_end(pool);
    for (i = 0; i < 3; i++) status |= all[i].wrong;
    printf("%d\n", status);
    return status != 0;
}
"""


@pytest.mark.soak
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("checked", ["thread", "address,undefined"])
def test_the_pool_under_sanitizers(net: Path, tmp_path: Path, compiler: str, checked: str) -> None:
    artifact = uma.build(net, "c -threads=3", name="net")
    flags = ("-std=gnu99", *STRICT[1:], "-O1", "-g", f"-fsanitize={checked}", "-fno-sanitize-recover=all", "-pthread")
    program = compiled(artifact, tmp_path / "net", POOL, ["uma_pool.c"], compiler, *flags)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("quantised", [False, True])
def test_the_c_of_ranges_stands_compilers_and_sanitizers(tmp_path: Path, compiler: str, quantised: bool) -> None:
    onnx.save(picture_net(quantised), tmp_path / "net.onnx")
    for cpu in ("native", "x86-64"):
        artifact = uma.build(tmp_path / "net.onnx", f"c -threads=3 -mcpu={cpu}", name="net")
        program = compiled(artifact, tmp_path / cpu, PROGRAM, [], compiler, *SANITIZED, "-DUMA_DEBUG")
        done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_emulator_has_one_thread() -> None:
    assert threads_of(None, 1, "model m", "qemu") == threads_of(1, 1, "model m", "qemu") == 1
    with pytest.raises(UsageError, match="runs in qemu, which has one thread and not 2"):
        threads_of(2, 1, "model m", "qemu")


def test_the_pool_must_load(three: Artifact, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(self: object, key: str, build: object) -> Path:
        (tmp_path / "broken.so").write_text("")
        return tmp_path / "broken.so"

    session = three.session(threads=1)
    helper_library.part_of_runtime.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(helper_library.Cache, "library", broken)
        with pytest.raises(ToolchainError, match="cannot load the threads that run models"):
            threads.Pool(2)
    assert bits(session.run(X)) == bits(three.session(threads=2).run(X))


def test_the_command(three: Artifact, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    three.save(tmp_path / "net")
    assert main(["run", str(tmp_path / "net"), "--threads", "2", "-q"]) == 0
    assert main(["run", str(tmp_path / "net"), "--threads", "4", "-q"]) == 2
    assert "was built for 3 threads, and cannot be run by 4" in capfd.readouterr().err


def kernels(data: st.DataObject) -> list[Run]:
    """Of every op, with all loops that may be marked."""
    choice = Choice(data.draw)
    made = [make(choice, name) for name, make in CASES.items()]
    runs = [kernel_of(one, [choice.array(arg.shape, arg.dtype) for arg in one.args]) for one in made]
    with every_loop():
        return [Run(in_threads(run.func, 3), run.arrays, run.in_place) for run in runs]


@pytest.mark.soak
@settings(max_examples=6, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_ranges_of_every_op_compute_what_the_interpreter_does(tmp_path: Path, data: st.DataObject) -> None:
    runs = kernels(data)
    assert any(is_parallel(run.func) for run in runs)
    for compiler in COMPILERS:
        found = run_compiled(runs, compiler, (*STRICT, "-O2"), tmp_path)
        for run, got in zip(runs, found, strict=True):
            for name, wanted in interpret(run.func, run.arrays).items():
                if wanted.dtype.kind == "f":  # functions of the C library
                    np.testing.assert_allclose(got[name], wanted, 1e-5, 1e-5)
                else:
                    np.testing.assert_array_equal(got[name], wanted)


@pytest.mark.soak
@pytest.mark.parametrize("name", FILES)
def test_the_same_bits_of_real_models(name: str, models: Path) -> None:
    check_models(models / FILES[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bits_of_networks(name: str, tmp_path: Path) -> None:
    onnx.save(NETWORKS[name](), tmp_path / "net.onnx")
    check_models(tmp_path / "net.onnx")


def check_models(path: Path) -> None:
    """Loops that pay, and all loops, by one to three threads."""
    one = uma.build(path, "c")
    with every_loop():
        all_loops = uma.build(path, "c -threads=3")
    inputs = random_inputs(one.record.inputs)
    expected = bits(one.session().run(inputs))
    for artifact in (uma.build(path, "c -threads=3"), all_loops):
        for count in (1, 2, 3):
            with artifact.session(threads=count) as session:
                assert bits(session.run(inputs)) == expected, (str(path), count)
    assert loops(all_loops) > 0


@pytest.mark.soak
@pytest.mark.parametrize("accelerator", ["matrix_unit", "stream_machine"])
def test_the_same_bits_beside_a_device(accelerator: str, tmp_path: Path) -> None:
    onnx.save(picture_net(quantised=True), tmp_path / "net.onnx")
    expected = bits(uma.build(tmp_path / "net.onnx", f"{accelerator} -host='c'", plugins=PLUGINS).run(X))
    with every_loop():
        two = uma.build(tmp_path / "net.onnx", f"{accelerator} -host='c -threads=2'", plugins=PLUGINS)
    assert loops(two) > 0 and two.record.devices
    for trace in (None, tmp_path / "net.trace"):
        with two.session(threads=2, trace=trace) as session:
            assert bits(session.run(X)) == expected and bits(session.run(X)) == expected
    assert bits(dict(two.profile(X, 2).outputs)) == expected


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_the_same_bits_of_branches_and_loops(seed: int) -> None:
    module = random_module(seed)
    with every_loop():
        three = uma.build(module, "c -threads=3")
    inputs = inputs_of(module, seed)
    assert loops(three) > 0
    assert bits(three.session(threads=3).run(inputs)) == bits(uma.build(module, "c").run(inputs))


@pytest.mark.soak
def test_layers_that_run_by_rows_are_run_by_one_thread(models: Path) -> None:
    path = models / FILES["kws_int8_tflite"]
    plain = uma.build(path, "c")
    limit = plain.arena_bytes * 3 // 4
    with every_loop():
        two = uma.build(path, "c -threads=2", max_ram=limit)
    assert two.record.rows is not None and two.arena_bytes <= limit and loops(two) > 0
    inputs = random_inputs(plain.record.inputs)
    assert bits(two.session(threads=2).run(inputs)) == bits(plain.run(inputs))
