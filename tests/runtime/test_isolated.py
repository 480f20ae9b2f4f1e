"""Models in a process of their own: what they are given and give, and what is wrong with the process, a library or a
device."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support import stream_device as lag
from tests._support.plugins import members_of, module_of
from tests._support.stream_plugin import plugin

import uma
from uma.artifact import Artifact
from uma.errors import DeviceError, InternalError, PluginError, ToolchainError
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import LoadedModel
from uma.relay import Var, call, const
from uma.relay.types import TensorType
from uma.runtime.model_process import Image, IsolatedModel, Isolation
from uma.toolchain.compile import CompileUnit, compile_shared
from uma.toolchain.discovery import find_compiler

X = Var("x", TensorType((2, 4), "int32"))
SUM = module_of(call("add", X, const(np.arange(4, dtype=np.int32))))


@pytest.fixture(scope="module")
def host() -> Artifact:
    return uma.build(SUM, "c -opt=1", name="sum")


@pytest.fixture
def isolation() -> Iterator[Isolation]:
    with Isolation(5.0) as made:
        yield made


def on_device(**changes: Any) -> Artifact:
    members = members_of(plugin(runtime=lag.runtime(**changes)))
    return build_loaded(LoadedModel(SUM, "sum"), members)


def image_of(artifact: Artifact, isolation: Isolation, **changes: Any) -> Image:
    return replace(artifact.isolated(isolation).image, **changes)


def test_a_model_gives_what_it_gives_here(host: Artifact, isolation: Isolation) -> None:
    model = host.isolated(isolation)
    for seed in range(3):
        model.inputs["x"][:] = np.random.default_rng(seed).integers(-100, 100, (2, 4))
        assert model.run() == []
        np.testing.assert_array_equal(model.outputs["output"], host.run(model.inputs["x"].copy())["output"])
    assert model.finish() is None


def test_two_models_in_one_process(host: Artifact, isolation: Isolation) -> None:
    models = [host.isolated(isolation), on_device().isolated(isolation)]
    for model in (*models, *models):
        model.inputs["x"][:] = 1
        assert model.run() == []
        assert model.outputs["output"].tolist() == [[1, 2, 3, 4]] * 2


@pytest.mark.parametrize(("executable", "what"), [("", "there is no Python"), ("/no/python", "cannot start a process")])
def test_no_python(
    host: Artifact, isolation: Isolation, executable: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = host.isolated(isolation)
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(ToolchainError, match=what):
        model.run()


def test_no_room(host: Artifact, isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ToolchainError, match="there is no room for what the model works on: No space left"):
        host.isolated(isolation)


def test_a_library_that_does_not_load(host: Artifact, isolation: Isolation, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.so"
    wrong.write_bytes(b"no library")
    with pytest.raises(ToolchainError, match="cannot load the compiled model"):
        IsolatedModel(isolation, image_of(host, isolation, library=wrong)).run()


def test_a_library_of_another_model(host: Artifact, isolation: Isolation) -> None:
    with pytest.raises(InternalError, match=r"the library's sizes are \[0, 0, 0\], not \[64, 0, 0\]"):
        IsolatedModel(isolation, image_of(host, isolation, arena_bytes=64)).run()


def test_a_fault_of_the_process_itself(host: Artifact, isolation: Isolation) -> None:
    model = host.isolated(isolation)
    model.run()
    with pytest.raises(InternalError, match="the process that runs models failed"):
        isolation._ask(model, {"do": "run"})
    with pytest.raises(InternalError, match=r"a run of model 'sum' failed with UMA_ERR_ARENA \(2\)"):
        model._check_status("a run", 2)


def changed(old: str, new: str) -> dict[str, str | bytes]:
    """The sources of the device's driver, with another piece."""
    assert old in lag.DRIVER
    return {**lag.runtime().sources, "lag_driver.c": lag.DRIVER.replace(old, new)}


class TestDevices:
    def test_one_that_cannot_be_opened(self, isolation: Isolation) -> None:
        with pytest.raises(DeviceError, match="could not be opened: fault 9, the device does not answer"):
            on_device(sources=changed("return device->n_parameters == 2 ? 0", "return device == NULL ? 0")).isolated(
                isolation
            ).run()

    def test_one_that_stops(self, isolation: Isolation) -> None:
        with pytest.raises(DeviceError, match="stopped in step 1: fault 9, the device does not answer"):
            on_device(mode="hang", argument=0).isolated(isolation).run()

    def test_one_that_counts_something_else(self, isolation: Isolation) -> None:
        artifact = on_device()
        image = image_of(artifact, isolation)
        [info] = image.devices
        wrong = replace(image, devices=[replace(info, counters=(*info.counters, "more"))])
        with pytest.raises(PluginError, match="has 1 counters, its plugin names 2"):
            IsolatedModel(isolation, wrong).run()

    def test_one_that_cannot_be_closed(self, isolation: Isolation) -> None:
        close = "lag_close(uma_device *device)\n{\n    (void)device;\n    return "
        sources = changed(f"{close}0;", f"{close}14;")
        model = on_device(sources=sources).isolated(isolation)
        model.run()
        with pytest.raises(DeviceError, match="could not be closed: fault 14"):
            model.finish()


PARENT = """
import sys
from pathlib import Path
from uma.runtime.model_process import Image, IsolatedModel, Isolation
isolation = Isolation()
model = IsolatedModel(isolation, Image(Path(sys.argv[1]), "m", [], [], [], [], [], [], 0, 0))
print(isolation._running().pid, flush=True)
model.run()
"""
LOOP = "const void *uma_model_entry(void);\nconst void *uma_model_entry(void) { for (;;) {} }\n"


def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """Even if that is killed, and has no time for anything, and what it runs has no end."""
    library = compile_shared([CompileUnit(find_compiler(), ["m.c"])], {"m.c": LOOP}, tmp_path / "m.so")
    with subprocess.Popen([sys.executable, "-c", PARENT, str(library)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        time.sleep(1)
        parent.kill()
    for _ in range(200):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if (
            Path(f"/proc/{child}/stat").exists()
            and Path(f"/proc/{child}/stat").read_text().rpartition(")")[2][1] == "Z"
        ):
            return  # it ended, and nobody has waited for it yet
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError(f"process {child} was still there")


def test_a_whole_run_may_take_as_long_as_its_steps(host: Artifact, isolation: Isolation) -> None:
    image = image_of(host, isolation)
    assert IsolatedModel(isolation, replace(image, layers=[()] * 7)).patience == 7
    assert IsolatedModel(isolation, replace(image, layers=[()] * 7, stepwise=True)).patience == 1
