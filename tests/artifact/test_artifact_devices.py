"""Artifacts of models that run on devices: what the metadata say, and that running, timing and saving work."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support import fake_device as fake
from tests._support.program_artifact import metadata_of
from tests._support.programs import kernel
from tests._support.scale_artifact import artifact_of

from uma.artifact import Artifact, PartCounts, load
from uma.artifact.folder import file_table
from uma.artifact.record import METADATA_FILE
from uma.artifact.record_verifier import first_error
from uma.contract.devices import Device
from uma.contract.drivers import Clock, PartCounters
from uma.errors import DeviceError, ModelError, PluginError, UsageError
from uma.program import Buffer, Call
from uma.support.json_record import to_json

pytestmark = pytest.mark.usefixtures("cache_folder")
X = np.array([1, -2, 3, 2**30], np.int32)

PROGRAM = fake.chain("a", None, "b", host=kernel([4], 4))
PARTS = {"count": 1, "counters": ["n"], "locates_faults": False}
FILES, METADATA = metadata_of(PROGRAM, fake.devices(a=fake.runtime(), b=fake.runtime()))


def failing(phase: str, code: int) -> Artifact:
    return artifact_of(*metadata_of(PROGRAM, fake.devices(a=fake.runtime(), b=fake.runtime(phase, code))))


def changed(**values: Any) -> dict[str, Any]:
    return {**METADATA, **values}


def device(**values: Any) -> dict[str, Any]:
    return {**METADATA["devices"][0], **values}


def test_it_runs_and_says_where() -> None:
    artifact = artifact_of(FILES, METADATA)
    np.testing.assert_array_equal(artifact.run(X)["y"], 4 * X)
    assert [row["label"] for row in artifact.metadata["devices"]] == ["a", "b"]
    assert [call["device"] for call in artifact.metadata["calls"]] == ["a", None, "b"]
    assert artifact.arena_bytes == 32


def test_sessions_count() -> None:
    with artifact_of(FILES, METADATA).session() as session:
        session.run(X)
        assert session.counters()["b"] == {"operations": 3, "bytes_moved": 32, "runs": 1}


def test_the_profile_says_which_device_and_what_it_counted() -> None:
    artifact = artifact_of(FILES, METADATA)
    artifact.run(X)
    profile = artifact.profile(X, repeat=4)
    assert [(call.kernel, call.device) for call in profile.calls] == [("double", "a"), ("host", None), ("double", "b")]
    assert all(call.median_ns > 0 for call in profile.calls)
    assert [call.is_simulated for call in profile.calls] == [True, False, True]
    counted = {"operations": 3, "bytes_moved": 32, "runs": 5}
    assert profile.counters == {"a": counted, "b": counted}
    in_a_step = {"operations": 3, "bytes_moved": 32, "runs": 5}
    assert [dict(call.counted) for call in profile.calls] == [in_a_step, {}, in_a_step]
    assert profile.clocks == {} and not any(call.parts for call in profile.calls)
    np.testing.assert_array_equal(profile.outputs["y"], 4 * X)
    np.testing.assert_array_equal(artifact.run(X)["y"], 4 * X)


def test_a_step_has_counted_what_came_since_the_one_before() -> None:
    """Also where a device has several; the counters of parts are apart, and a clock says what cycles are."""
    clock = Clock(2e3, "operations", "operations")
    runtime = fake.runtime(counters=("operations", "bytes_moved"), parts=PartCounters(1, ("runs",)), clock=clock)
    files, metadata = metadata_of(fake.chain("a", "a"), fake.devices(a=runtime))
    metadata["calls"][1]["parts"] = ["second", "a mark more than the driver counts"]
    profile = artifact_of(files, metadata).profile(X, repeat=2)
    assert [dict(call.counted) for call in profile.calls] == [{"operations": 3, "bytes_moved": 32}] * 2
    assert profile.counters == {"a": {"operations": 6, "bytes_moved": 64}}
    # The fake counts its runs when it is activated: the first step has seen that.
    assert [call.parts for call in profile.calls] == [(), (PartCounts("second", {"runs": 0}),)]
    assert profile.clocks == {"a": clock}
    assert (clock.seconds(profile.counters["a"]), clock.utilisation(profile.counters["a"])) == (3e-3, 1.0)


def test_a_library_that_counts_other_things() -> None:
    files, metadata = metadata_of(PROGRAM, fake.devices(a=fake.runtime(), b=fake.runtime()))
    source = str(files["net_profile.c"])
    other = {**files, "net_profile.c": source.replace("*counts = 6;", "*counts = 5;")}
    with pytest.raises(ModelError, match="the model counts 5 things in its steps, its metadata says 6"):
        artifact_of(other, metadata).profile(X)


def test_a_fault_names_device_layer_and_meaning() -> None:
    artifact = failing("step", 0)
    for run in (artifact.run, artifact.profile, artifact.run):
        with pytest.raises(DeviceError) as caught:
            run(X)
        assert (caught.value.device, caught.value.layers, caught.value.code) == ("b", ("layer/2",), 7)
        assert "fault 7, an address outside of the scratchpad" in caught.value.what


def test_a_device_that_says_where_a_fault_was() -> None:
    """The fake has moved 16 bytes by then, in its first run: that is part 16 and cycle 1."""
    runtime = fake.runtime("step", 0, counters=(), parts=PartCounters(1, ("operations",), locates_faults=True))
    files, metadata = metadata_of(fake.chain("a"), fake.devices(a=runtime))
    for parts, layers, place in (([f"part{n}" for n in range(17)], ("part16",), ", in cycle 1"), (["one"], None, "")):
        metadata["calls"][0]["parts"] = parts
        with pytest.raises(DeviceError) as caught:
            artifact_of(files, metadata).run(X)
        assert caught.value.layers == (layers or tuple(metadata["calls"][0]["layers"]))
        assert caught.value.what.endswith("fault 7, an address outside of the scratchpad" + place)
        assert (caught.value.where or "").endswith(caught.value.layers[0])


def test_what_is_at_an_address_of_another_machine_is_only_saved(tmp_path: Path) -> None:
    program = fake.chain("npu", "npu")
    artifact = artifact_of(*metadata_of(program, {"npu": Device("npu", "fake", "mmio", fake.runtime(), base=0x4000)}))
    for run in (artifact.run, artifact.profile, lambda _: load(tmp_path / "net").session()):
        artifact.save(tmp_path / "net")
        with pytest.raises(UsageError, match=r"device 'npu' \(fake, mmio\) is at address 0x4000 of another machine"):
            run(X)


def test_an_artifact_that_was_saved_says_the_same(tmp_path: Path) -> None:
    artifact = failing("step", 0)
    again = load(artifact.save(tmp_path / "net"))
    assert again.metadata == artifact.metadata
    with pytest.raises(DeviceError, match=r"device 'b' \(fake, sim\) stopped in step 2: fault 7, an address outside"):
        again.run(X)


def test_a_profile_leaves_the_state_of_runs_alone() -> None:
    """Although it takes the devices from them."""
    program = fake.chain("a")
    state = Buffer("h", "state", (4,), "int32", data=bytes(16))
    add = Call("add", ("x", "h", "h"))
    functions = {**program.functions, "add": kernel([4, 4], 4, in_place=True)}
    program = replace(program, buffers=(state, *program.buffers), steps=(*program.steps, add), functions=functions)
    artifact = artifact_of(*metadata_of(program, fake.devices(a=fake.runtime())))
    for _ in range(2):
        artifact.run(X)
    artifact.profile(X, repeat=3)
    assert artifact._session is not None
    np.testing.assert_array_equal(artifact._session.save().arrays["h"], 2 * X)
    failing = artifact_of(*metadata_of(program, fake.devices(a=fake.runtime("step", 0))))
    with pytest.raises(DeviceError):
        failing.run(X)
    with pytest.raises(UsageError, match="saving the state needs a state that was not left half-way"):
        failing.profile(X)
    failing.reset()
    with pytest.raises(DeviceError):
        failing.profile(X)
    np.testing.assert_array_equal(failing._session.save().arrays["h"], 0 * X)  # type: ignore[union-attr]  # it has run


def test_the_makefile_builds_the_driver(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    folder = artifact_of(FILES, METADATA).save(tmp_path / "net")
    flags = "-std=c99 -O1 -Wall -Wextra -Werror"
    subprocess.run([make, "-s", f"CFLAGS={flags}"], cwd=folder, check=True, timeout=60)
    (folder / "x").write_bytes(X.tobytes())
    subprocess.run([folder / "net_example", "x", "y"], cwd=folder, check=True, timeout=60, capture_output=True)
    np.testing.assert_array_equal(np.fromfile(folder / "y", np.int32), 4 * X)


def test_a_driver_that_counts_something_else() -> None:
    runtime = fake.runtime(counters=("operations",))
    artifact = artifact_of(*metadata_of(fake.chain("a"), fake.devices(a=runtime)))
    with pytest.raises(PluginError, match="has 3 counters, its plugin names 1"):
        artifact.run(X)


def test_sources_of_other_devices() -> None:
    _, other = metadata_of(PROGRAM, fake.devices(a=fake.runtime(), b=fake.runtime()))
    other["devices"] = other["devices"][::-1]
    with pytest.raises(ModelError, match=r"the library has the devices \(a, b\), expected \(b, a\)"):
        artifact_of(FILES, other).run(X)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (changed(devices=[device(), device()]), "devices have one label twice"),
        (changed(devices=[device()]), "a call is for the device 'b', which is not among the devices"),
        (changed(devices=[*METADATA["devices"], device(label="c")]), "no call is for the device 'c'"),
        (changed(devices=[device(counters=["n", "n"])]), "device 'a' has one counter twice"),
        (changed(devices=[device(faults=[{"code": 1, "meaning": ""}] * 2)]), "device 'a' has one fault code twice"),
        (changed(devices=[device(memories=METADATA["devices"][0]["memories"] * 2)]), "device 'a' has one memory twice"),
        (changed(devices=[device(label="a b")]), "devices[0].label is 'a b', which does not match"),
        (changed(devices=[device(impl="../sim")]), "devices[0].impl is '../sim', which does not match"),
        (changed(devices=[device(base=0)]), "devices[0].base is 0, expected at least 1"),
        (changed(devices=[device(base=True)]), "devices[0].base is True, expected integer or null"),
        (changed(devices=[device(base=1 << 64)]), "devices[0].base is a number of more than 64 bits"),
        (changed(devices=[device(parameters=[1.5])]), "devices[0].parameters[0] is 1.5, expected integer"),
        (changed(devices=[device(counters=["a\nb"])]), "devices[0].counters[0] is 'a\\nb', which does not match"),
        (changed(devices=[device(faults=[{"code": 1}])]), "devices[0].faults[0] lacks 'meaning'"),
        (changed(devices=[device(more=1)]), "devices[0] has an unknown entry 'more'"),
        (changed(devices={}), "devices is an object, expected array"),
        (changed(calls=[{**METADATA["calls"][0], "device": 1}]), "calls[0].device is 1, expected string or null"),
        (changed(calls=[{"kernel": "k", "layers": [], "host": "c"}]), "calls[0] lacks 'device'"),
        (changed(devices=[device(parts={**PARTS, "locates_faults": 1})]), "parts.locates_faults is 1"),
        (changed(devices=[device(parts={**PARTS, "count": 0})]), "parts.count is 0, expected at least 1"),
        (changed(devices=[device(parts={**PARTS, "counters": []})]), "parts.counters has 0 items"),
        (
            changed(devices=[device(parts={**PARTS, "counters": ["n", "n"]})]),
            "device 'a' has one counter of parts twice",
        ),
        (
            changed(devices=[device(clock={"hz": 0, "cycles": "runs", "busy": None})]),
            "device 'a' has a clock that stands still, or of counters that it has not",
        ),
        (
            changed(devices=[device(clock={"hz": 1.5, "cycles": "runs", "busy": "ticks"})]),
            "device 'a' has a clock that stands still, or of counters that it has not",
        ),
        ({key: value for key, value in METADATA.items() if key != "devices"}, "the top level lacks 'devices'"),
    ],
)
def test_metadata_that_is_not_sound(record: dict[str, Any], reason: str) -> None:
    found = first_error({**record, "files": to_json(file_table(dict.fromkeys(FILES, b"")))})
    assert found is not None and reason in found


def test_what_is_loaded_is_checked_too(tmp_path: Path) -> None:
    folder = artifact_of(FILES, METADATA).save(tmp_path / "net")
    path = folder / METADATA_FILE
    path.write_text(path.read_text().replace('"label": "b"', '"label": "c"'))
    with pytest.raises(ModelError, match="a call is for the device 'b', which is not among the devices"):
        load(folder)
