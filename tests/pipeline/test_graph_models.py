"""Whole models with ``-executor=graph`` on their host: what they compute and keep, their profile, stack and
verification."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.real_models import FILES
from tests.pipeline.test_generated_c import OWN, PLUGINS, REAL, SHAPES, SLOW

import uma
from uma.artifact import Artifact, load
from uma.errors import UsageError
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import load_model
from uma.runtime.tensors import random_array
from uma.verification.models import verify

ALL = {
    **{name: (name, target) for name, (_, _, target) in OWN.items()},
    **{name: (file, "c") for name, file in FILES.items()},
    **REAL,
    **SLOW,
}
"""Every model of the tests: its file among the real models, or its name among our own, and its target."""


def on_graph(target: str) -> str:
    """The target, its host with the table."""
    *accelerators, last = target.split("; ")
    if last.split()[0] == "c":
        return "; ".join((*accelerators, last.replace("c", "c -executor=graph", 1)))
    return f"{target} -host='c -executor=graph'"


def path_of(name: str, models: Path, folder: Path) -> Path:
    if name in OWN:
        suffix, content, _ = OWN[name]
        (folder / f"{name}{suffix}").write_bytes(content())
        return folder / f"{name}{suffix}"
    path = models / ALL[name][0]
    if not path.is_file():
        pytest.skip(f"no {path.name} among the real models")
    return path


def both(name: str, models: Path, folder: Path) -> tuple[Artifact, Artifact]:
    """The model under either executor."""
    path, target = path_of(name, models, folder), ALL[name][1]
    shapes = SHAPES.get(name)
    one, other = (uma.build(path, to, name="net", shapes=shapes, plugins=PLUGINS) for to in (target, on_graph(target)))
    return one, other


def assert_equal(aot: Artifact, graph: Artifact, runs: int) -> None:
    """Outputs and states of several runs, one after the other."""
    one, other = aot.session(), graph.session()
    for run in range(runs):
        for seed, tensor in enumerate(aot.record.inputs):
            array = random_array(tensor.shape, tensor.dtype, 100 * run + seed)
            np.copyto(one.inputs[tensor.name], array)
            np.copyto(other.inputs[tensor.name], array)
        one.invoke()
        other.invoke()
        for name, array in one.outputs.items():
            assert array.tobytes() == other.outputs[name].tobytes(), name
    kept, same = one.save().arrays, other.save().arrays
    assert {name: array.tobytes() for name, array in kept.items()} == {n: a.tobytes() for n, a in same.items()}


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_the_same_bytes_on_every_model(name: str, models: Path, tmp_path: Path) -> None:
    assert_equal(*both(name, models, tmp_path), runs=3)


def test_runs_profile_and_stack(models: Path, tmp_path: Path) -> None:
    """On a device with queues, after saving and loading."""
    aot, graph = both("residual_on_stream_machine", models, tmp_path)
    graph = load(graph.save(tmp_path / "net"))
    assert_equal(aot, graph, runs=1)
    assert graph.record.calls == aot.record.calls and graph.record.buffers == aot.record.buffers
    tensor = aot.record.inputs[0]
    profile = graph.profile(random_array(tensor.shape, tensor.dtype, 0), repeat=1)
    assert [(call.kernel, call.device) for call in profile.calls] == [(c.kernel, c.device) for c in aot.record.calls]
    assert all(call.median_ns > 0 for call in profile.calls)
    # The interpreter's own frame, and that of what it is called by, are all that is more.
    assert aot.stack_bytes is not None and graph.stack_bytes is not None
    assert aot.stack_bytes // 2 < graph.stack_bytes < aot.stack_bytes + 1024


def test_steps_are_verified(models: Path, tmp_path: Path) -> None:
    members = resolve_targets(on_graph("c"), PLUGINS)
    loaded = load_model(path_of("small", models, tmp_path), members)
    artifact = build_loaded(loaded, members)
    found = verify(loaded, artifact, members, {"image:0": random_array((1, 8, 8, 2), "float32", 0)})
    assert len(found.kernels) == 3 and all(check.difference.ok for check in found.kernels)


def test_a_host_that_runs_no_steps_has_nothing_to_say(models: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="host 'small' has the attribute 'executor', but 'big' runs the model's steps"):
        uma.build(path_of("small", models, tmp_path), {"big": "c", "small": "c -executor=graph"}, plugins=PLUGINS)
