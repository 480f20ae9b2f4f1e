"""What the commands do and print, for people and as JSON."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import HOST, accelerator, entry_of
from tests._support.records import without_work
from tests._support.small_models import NET, Uma

import uma as uma_package
from uma.cli import main
from uma.pipeline import STAGES
from uma.plugins import PluginEntry, PluginHost
from uma.runtime.tensors import random_array
from uma.targets import Alias, Attribute, FixedPointForm, ListOf, MapOf, QuantisedForm, Target, read_target


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert re.findall(r"^    ([\w-]+) +\S", text, re.MULTILINE) == [
        *(
            "build",
            "run",
            "verify",
            "explain",
            "plan",
            "report",
            "quantize",
            "export",
            "trace",
            "targets",
            "plugins",
            "new-plugin",
            "check",
            "doctor",
        )
    ]
    codes = {cls.exit_code for cls in vars(uma_package.errors).values() if isinstance(cls, type)}
    assert {int(code) for code in re.findall(r"\b(\d) [a-z]", text)} == codes | {0}


@pytest.mark.parametrize("command", ["build", "run", "verify", "explain", "plan", "export", "targets"])
def test_every_command_has_help_and_the_common_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    for option in ("--json", "-q, --quiet", "-v, --verbose"):
        assert option in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"uma {uma_package.__version__}\n"


class TestBuild:
    def test_text(self, uma: Uma, folder: Path) -> None:
        done = uma("build", "net.py", "--target", "c", "-o", "out")
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert re.fullmatch(r"net: built for c in \d+\.\d\d s", lines[0])
        assert [line.split()[0] for line in lines[1:]] == ["calls", "ROM", "RAM", "in"]
        assert lines[1].split(None, 1)[1] == "3, of 3 kernels"
        assert lines[-1].split() == ["in", "out"]
        made = uma_package.load("out")
        assert made.name == "net"
        rom, ram = (re.fullmatch(r"  R[OA]M +([\d,]+) bytes: (.*)", line) for line in lines[2:4])
        assert rom is not None and ram is not None
        parts = [dict(part.rsplit(" ", 1) for part in found[2].split(", ")) for found in (rom, ram)]
        sizes = [{name: int(size.replace(",", "")) for name, size in one.items()} for one in parts]
        assert sizes[0] == {"weights": made.constant_bytes, "code": made.code_bytes}
        stack = made.stack_bytes
        assert sizes[1] == {"arena": made.arena_bytes, "inputs": 8 * 8 * 2 * 4, "outputs": 8, "stack": stack}
        assert [int(found[1].replace(",", "")) for found in (rom, ram)] == [sum(one.values()) for one in sizes]
        assert sorted(os.listdir(folder)) == ["net.py", "out", "pair.py"]

    def test_attributes_without_an_effect(self, uma: Uma) -> None:
        """What the build finds out is said once, as what is known before it."""
        done = uma("build", "net.py", "--target", "c -libs=[] -device=mali", "--no-compile")
        note = "note: -libs of 'c' has no effect: nothing that runs for it is linked with a library\n"
        assert (done.code, done.err) == (0, note)
        assert uma("build", "net.py", "--target", "c -libs=[]", "--no-compile", "-q").err == ""

    def test_json(self, uma: Uma, folder: Path) -> None:
        done = uma("build", "net.py", "--target", "c -opt=1", "--name", "mine", "--json")
        record, artifact = done.json, uma_package.load("build/mine")
        assert done.err == ""
        assert record["name"] == artifact.name == "mine"
        assert record["folder"] == str(folder / "build" / "mine")
        assert record["targets"] == ["c -opt=1"]
        assert record["arena_bytes"] == artifact.arena_bytes
        assert record["constant_bytes"] == artifact.constant_bytes
        assert record["code_bytes"] == artifact.code_bytes > 0
        assert record["stack_bytes"] == artifact.stack_bytes > 0
        assert record["rom_bytes"] == artifact.code_bytes + artifact.constant_bytes
        ram = ("arena", "state", "input", "output", "stack")
        assert record["ram_bytes"] == sum(record[f"{part}_bytes"] for part in ram)
        assert record["accelerators"] == []
        for row in record["memory_map"]:
            assert row["offset"] + row["bytes"] <= artifact.arena_bytes
            assert 0 <= row["first_step"] <= row["last_step"] < len(record["calls"])
        assert record["calls"] == artifact.metadata["calls"]
        assert [row["name"] for row in record["inputs"] + record["outputs"]] == ["image:0", "scores"]
        assert record["seconds"] > 0 and record["notes"] == []

    def test_quiet(self, uma: Uma) -> None:
        done = uma("build", "net.py", "--target", "c", "-q")
        assert (done.code, done.out, done.err) == (0, "", "")

    def test_verbose_tells_every_stage(self, uma: Uma) -> None:
        done = uma("build", "net.py", "--target", "c", "-v")
        stages = [*STAGES, "plan", "generate"]
        assert [line.partition(":")[0] for line in done.err.splitlines()] == [*stages, "compile", "save"]
        below = done.out.split("memory map:\n")[1].splitlines()
        rows = [line.split() for line in takewhile(lambda line: line.startswith(" "), below)]
        assert rows[0] == ["memory", "buffer", "role", "offset", "bytes", "first", "step", "last", "step"]
        record = uma("build", "net.py", "--target", "c", "--json").json["memory_map"]
        assert rows[1:] == [[str(value) for value in row.values()] for row in record] and record

    def test_stages_are_printed_or_dumped_and_read_again(self, uma: Uma, folder: Path) -> None:
        uma("build", "net.py", "--target", "c", "-o", "plain", "--dump", "dump")
        dumps = sorted(path.name for path in (folder / "dump").glob("*.py"))
        assert [name.partition("-")[2] for name in dumps] == [f"{stage}.py" for stage in STAGES]
        for position, stage in enumerate(STAGES):
            done = uma("build", "net.py", "--target", "c", "--stop-after", stage)
            assert done.out == (folder / "dump" / dumps[position]).read_text()
            again = uma("build", f"dump/{dumps[position]}", "--target", "c", "--name", "net", "-o", f"again{position}")
            assert again.code == 0
            made = folder / f"again{position}"
            for file in filter(Path.is_file, (folder / "plain").iterdir()):
                if file.name != "metadata.json" or position < STAGES.index("lower"):
                    assert (made / file.name).read_bytes() == file.read_bytes()
            again, first = (json.loads((at / "metadata.json").read_text()) for at in (made, folder / "plain"))
            assert without_work(again) == without_work(first)

    def test_stop_after_with_dump_and_json(self, uma: Uma, folder: Path) -> None:
        done = uma("build", "net.py", "--target", "c", "--stop-after", "fuse", "--dump", "d", "--json")
        assert done.json == {"schema_version": 4, "stage": "fuse", "folder": "d"}
        assert sorted(os.listdir(folder / "d")) == ["1-import.py", "2-canonicalise.py", "3-partition.py", "4-fuse.py"]
        assert uma("build", "net.py", "--target", "c", "--stop-after", "import", "--json").json["text"] == NET
        said = uma("build", "net.py", "--target", "c", "--stop-after", "fuse", "--dump", "d").out
        assert said == "net: the stages up to fuse are in d\n"


class TestRun:
    def test_text(self, uma: Uma) -> None:
        done = uma("run", "net.py", "--target", "c")
        assert re.fullmatch(r"scores: float32\[1, 2\] 0\.\d+ 0\.\d+\n", done.out)

    def test_artifact_and_model_give_the_same(self, uma: Uma) -> None:
        uma("build", "pair.py", "--target", "c", "-o", "out")
        expected = uma("run", "pair.py", "--target", "c", "--json").json
        assert uma("run", "out", "--json").json == expected

    def test_inputs_outputs_and_their_names(self, uma: Uma, folder: Path) -> None:
        a, b = np.array([1, 2, 3, 4], np.int8), np.array([10, 20, 30, -40], np.int8)
        np.savez(folder / "in.npz", a=a, b=b)
        done = uma("run", "pair.py", "--target", "c", "--inputs", "in.npz", "--outputs", "out.npz", "--json")
        values = {name: row["values"] for name, row in done.json["outputs"].items()}
        assert values == {"sum": [11, 22, 33, -36], "a again": [1, 2, 3, 4], "file": [11, 22, 33, -36]}
        with np.load(folder / "out.npz") as saved:
            assert {name: saved[name].tolist() for name in saved.files} == values
            assert saved["sum"].dtype == np.int8
        first = (folder / "out.npz").read_bytes()
        uma("run", "pair.py", "--target", "c", "--inputs", "in.npz", "--outputs", "out.npz")
        assert (folder / "out.npz").read_bytes() == first

    def test_single_inputs_go_before_a_file_of_all(self, uma: Uma, folder: Path) -> None:
        np.savez(folder / "in.npz", a=np.zeros(4, np.int8), b=np.ones(4, np.int8))
        np.save(folder / "x=1.npy", np.array([5, 6, 7, 8], np.int8))
        done = uma("run", "pair.py", "--target", "c", "--inputs", "in.npz", "--input", "a=@x=1.npy", "--json")
        assert done.json["outputs"]["sum"]["values"] == [6, 7, 8, 9]

    def test_random_inputs_have_seeds(self, uma: Uma) -> None:
        def run(*options: str) -> list[int]:
            outputs = uma("run", "pair.py", "--target", "c", "--json", *options).json["outputs"]
            return [*outputs["sum"]["values"], *outputs["a again"]["values"]]

        assert run() == run("--input", "a=random:0", "--input", "b=random:1")
        assert run() != run("--input", "b=random:2")
        assert run("--input", "a=random:9")[4:] == random_array((4,), "int8", 9).tolist()

    def test_repeat(self, uma: Uma) -> None:
        done = uma("run", "net.py", "--target", "c", "--repeat", "3")
        assert re.search(r"^median of 3 runs: \d+\.\d us$", done.out, re.MULTILINE)
        record = uma("run", "net.py", "--target", "c", "--repeat", "3", "--json").json
        assert record["runs"] == 3 and record["median_us"] > 0
        assert "median_us" not in uma("run", "net.py", "--target", "c", "--json").json

    def test_profile(self, uma: Uma) -> None:
        plain = uma("run", "net.py", "--target", "c", "--json").json
        record = uma("run", "net.py", "--target", "c", "--profile", "--repeat", "5", "--json").json
        assert record["outputs"] == plain["outputs"]
        assert record["runs"] == 5 and record["counters"] == {}
        assert [row["device"] for row in record["profile"]] == [None] * 3
        layers = [layer for row in record["profile"] for layer in row["layers"]]
        assert layers == ["block/relu", "block/relu;twice", "block/pool", "block/scale", "head/mean", "head/softmax"]
        text = uma("run", "net.py", "--target", "c", "--profile").out.splitlines()
        assert text[1].split() == ["layer", "kernel", "on", "us", "share", "MACs", "GOP/s", "of", "peak", "bytes"]
        assert [line.split()[-8:-6] for line in text[2:5]] == [
            [row["kernel"], row["host"]] for row in record["profile"]
        ]
        assert text[5].split()[0] == "all" and text[5].split()[2] == "100.0%"
        assert text[6].startswith("peak of c, on one core: ")
        assert re.fullmatch(r"timed by .*: \d+ MHz; each call has one reading in it, \d+\.\d ns", text[7])

    def test_a_profile_has_work_beside_time(
        self, uma: Uma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path
    ) -> None:
        """Of floats and of bytes, each beside its own peak; which may be unknown."""
        head = "@function\ndef main(x: Tensor[(4, 8), float32]) -> Tensor[(4, 16), float32]:\n"
        (folder / "d.py").write_text(
            f"{head}    v0 = nn.dense(x, const({[1.0] * 128}, (16, 8), float32))\n    return v0\n"
        )
        command = ("run", "d.py", "--target", "c", "--profile", "--repeat", "3")
        record = uma(*command, "--json").json
        [row] = record["profile"]
        assert (row["macs"], row["bytes"], row["constant_bytes"]) == (512, 4 * (32 + 64 + 128), 4 * 128)
        assert row["gops"] == pytest.approx(2 * 512 / (row["median_us"] * 1e3))
        assert row["share_of_peak"] == pytest.approx(row["gops"] / record["peaks"]["c"]["float32_gops"])
        assert record["ticks"]["hz"] > 0 and record["ticks"]["cost_ns"] >= 0
        monkeypatch.setattr("uma.runtime.peaks._SOURCE", tmp_path / "broken.c")
        (tmp_path / "broken.c").write_text("#error no\n")
        done = uma(*command)
        assert done.code == 0 and "512" in done.out
        assert "uma: warning: the peak of this machine is not known: " in done.err

    def test_json_has_no_numbers_that_json_does_not_know(self, uma: Uma, folder: Path) -> None:
        body = "    v0 = add(x, const(1.0, float32))\n    return v0\n"
        (folder / "m.py").write_text(f"@function\ndef main(x: Tensor[(4,), float32]) -> Tensor[(4,), float32]:\n{body}")
        np.save(folder / "x.npy", np.array([np.nan, np.inf, -np.inf, 1], np.float32))
        record = uma("run", "m.py", "--target", "c", "--input", "x=@x.npy", "--json").json
        assert record["outputs"]["output"]["values"] == ["nan", "inf", "-inf", 2.0]


class TestVerify:
    def test_text(self, uma: Uma) -> None:
        done = uma("verify", "net.py", "--target", "c")
        assert done.code == 0 and done.err == ""
        lines = done.out.splitlines()
        assert lines[0] == "net: 3 results of kernels compared with their references over 8 samples: all agree"
        assert lines[1] == "output scores against the same kernels without reuse of memory: equal"
        assert re.match("output scores against the references of the whole model: (equal|within)", lines[2])

    def test_verbose_tells_every_layer(self, uma: Uma) -> None:
        done = uma("verify", "pair.py", "--target", "c", "-v")
        assert [line.strip() for line in done.out.splitlines()[:3]] == ["add: equal", "copy: equal", "copy: equal"]

    def test_json(self, uma: Uma) -> None:
        record = uma("verify", "net.py", "--target", "c", "--json").json
        assert record["equal"] is True
        assert [row["kernel"] for row in record["kernels"]][1:] == ["global_avg_pool", "softmax"]
        assert [(row["name"], row["against"]) for row in record["outputs"]] == [
            ("scores", "inspected"),
            ("scores", "references"),
            ("scores", "first run"),
        ]
        assert record["samples"][:3] == ["random 0", "all lowest", "all highest"] and len(record["samples"]) == 8
        assert all(row["compared"] > 8 and row["differing_samples"] == 0 for row in record["kernels"])
        assert all(row["ok"] and row["first"] is None for row in record["kernels"] + record["outputs"])


class TestTargets:
    def test_list(self, uma: Uma) -> None:
        assert "c: a CPU, through C99; runs every op (cpu, host)\n" in uma("targets").out
        kinds = uma("targets", "--json").json["kinds"]
        assert [kind["is_host"] for kind in kinds if kind["name"] == "c"] == [True]
        assert uma("targets").out.endswith("composite: a host and its devices (composite)\n")
        assert [kind["name"] for kind in kinds][-1] == "composite"

    def test_one_kind(self, uma: Uma) -> None:
        text = uma("targets", "c").out
        assert text.splitlines()[0] == "c: a CPU, through C99; runs every op"
        assert re.search(r"^  -opt +.*one of 0, 1, 2, 3, s; default 3$", text, re.MULTILINE)
        attributes = uma("targets", "c", "--json").json["kind"]["attributes"]
        assert {row["name"]: row["default"] for row in attributes} == {
            "mcpu": "native",
            "mtriple": None,
            "cc": None,
            "opt": "3",
            "cflags": None,
            "mattr": None,
            "mfloat-abi": None,
            "runner": None,
            "clock_hz": 100e6,
            "threads": 1,
        }

    def test_the_kind_of_the_core(self, uma: Uma) -> None:
        assert uma("targets", "composite").out.splitlines() == [
            "composite: a host and its devices",
            "  -devices  what works for the host, by priority; a list, each item a target; also accelerators",
            "  -host     runs what the devices leave; a target; also target_host",
            "and as every target has:",
            "  -tag  its given name; text that matches [a-z][a-z0-9_.-]{0,63}(/[a-z0-9][a-z0-9_.-]{0,63})?",
        ]
        record = uma("targets", "composite", "--json").json["kind"]
        assert [(row["name"], row["type"], row["holds"]) for row in record["attributes"]] == [
            ("devices", "target", "list"),
            ("host", "target", "one"),
        ]

    def test_all_of_a_declaration_as_json(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        odd = accelerator(
            "odd",
            Attribute("mode", ("fast", "small"), default="fast", help="mode"),
            Attribute("spad", int, unit="bytes", low=1, high=4096, also=("spad_bytes",), help="scratchpad"),
            Attribute("gains", ListOf(float), default=[1, 2.5], help="gains"),
            Attribute("table", MapOf(str), default={"a": "b"}, pattern="[a-c]", help="names"),
            Attribute("dense", bool, required=True, deprecated=("full",), help="no zeros are skipped"),
            Attribute("next", Target, help="what follows"),
            default_host="plain",
            canonicalise=lambda target: {},
        )
        host = PluginHost(lambda: [*entry_of(HOST), *entry_of(odd)])
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)
        record = uma("targets", "odd", "--json").json["kind"]
        assert (record["default_host"], record["derives"]) == ("plain", True)
        nothing = ("choices", "low", "high", "multiple_of", "unit", "pattern", "default")
        usual: dict[str, object] = dict.fromkeys(nothing)
        usual = {**usual, "type": "str", "holds": "one", "required": False}
        usual |= {"known": [], "also": [], "deprecated": []}
        changes: list[dict[str, object]] = [
            {"name": "mode", "type": "choice", "choices": ["fast", "small"], "default": "fast"},
            {"name": "spad", "type": "int", "unit": "bytes", "low": 1, "high": 4096, "also": ["spad_bytes"]},
            {"name": "gains", "type": "float", "holds": "list", "default": [1.0, 2.5]},
            {"name": "table", "holds": "map", "pattern": "[a-c]", "default": {"a": "b"}},
            {"name": "dense", "type": "bool", "required": True, "deprecated": ["full"]},
            {"name": "next", "type": "target"},
        ]
        for row, change in zip(record["attributes"], changes, strict=True):
            assert row.pop("help") and row.pop("allowed")
            assert row == {**usual, **change}
        assert uma("targets", "odd").out.splitlines()[-2:] == [
            "where no host is given, plain is added",
            "some attributes follow from others: uma targets --explain STRING shows what follows",
        ]

    def test_explain(self, uma: Uma) -> None:
        lines = uma("targets", "--explain", "c  -opt=2 -mcpu='x86-64-v3'").out.splitlines()
        assert lines[0] == "c -mcpu=x86-64-v3 -opt=2"
        rest = dict(line.split(None, 1) for line in lines[1:])
        assert rest.pop("-mcpu") == "x86-64-v3 (given)" and rest.pop("-opt") == "2 (given)"
        assert rest.pop("-clock_hz") == "100000000.0 (default)" and rest.pop("-threads") == "1 (default)"
        assert rest == dict.fromkeys(["-mtriple", "-cc", "-cflags", "-mattr", "-mfloat-abi", "-runner"], "not given")
        record = uma("targets", "--explain", "c", "--json").json
        assert record["target"] == record["kind"] == "c"
        assert {"name": "opt", "value": "3", "given": False, "origin": "default"} in record["attributes"]

    def test_forms(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        bits = Attribute("bits", int, default=6, help="bits")
        kinds = [
            accelerator("npu", quantised=QuantisedForm("power-of-two", symmetric=True, weight_scale=0.5)),
            accelerator("dsp", fixed_point=FixedPointForm("up", 16, (-8, 0), additions=True, averages=True)),
            accelerator(
                "apu",
                bits,
                quantised=lambda target: QuantisedForm(per_channel=False, weight_bits=target.get_attr("bits")),
                fixed_point=lambda target: None if target.get_attr("bits") == 6 else FixedPointForm("even"),
            ),
        ]
        entries = [*entry_of(HOST), *(entry for kind in kinds for entry in entry_of(kind))]
        monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))
        made, offered = "uma quantize makes models for it with", "with --allow rounding=fixed-point it is offered"
        said = f"{made} scales that are powers of two, zero points of 0, a scale for each channel of weights, "
        said += "8 bits of activations, 8 of weights, 32 of biases, the scale 0.5 for weights"
        assert uma("targets", "npu").out.splitlines()[-1] == said
        fixed = "multipliers of 16 bits, shifts of -8 to 0, rounding up, additions, averages"
        assert uma("targets", "dsp").out.splitlines()[-1] == f"{offered} {fixed}"
        follows = "what its attributes decide: uma targets --explain STRING shows it"
        assert uma("targets", "apu").out.splitlines()[-2:] == [f"{made} {follows}", f"{offered} {follows}"]
        lines = uma("targets", "--explain", "plain -accelerators='apu -bits=4'").out.splitlines()
        assert lines[-2:] == [
            f"apu: {made} any scales, any zero points, one scale for all weights, 8 bits of activations, 4 of weights, "
            "32 of biases",
            f"apu: {offered} multipliers of 31 bits, shifts of -31 to 30, rounding even",
        ]
        assert f"apu: {offered} nothing" in uma("targets", "--explain", "plain -accelerators=apu").out
        records = {kind["name"]: kind for kind in uma("targets", "--json").json["kinds"]}
        assert (records["npu"]["quantised"]["weight_scale"], records["npu"]["fixed_point"]) == (0.5, None)
        assert (records["dsp"]["quantised"], records["dsp"]["fixed_point"]["shifts"]) == (None, [-8, 0])
        assert (records["apu"]["quantised"], records["apu"]["fixed_point"]) == ("by attributes", "by attributes")
        row = uma("targets", "--explain", "plain -accelerators=apu", "--json").json["targets"][1]
        assert (row["quantised"]["weight_bits"], row["fixed_point"]) == (6, None)

    def test_an_accelerator_that_runs_on_another_target(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        gpu = replace(accelerator("gpu"), device_type="cuda")
        library = replace(accelerator("library", needs_device=True), device_type="cuda")
        entries = [*entry_of(HOST), *entry_of(gpu), *entry_of(library)]
        monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))
        line = "it runs on a device: the build must have another target of device type cuda"
        assert line in uma("targets", "library").out.splitlines()
        lines = uma("targets", "--explain", "library; gpu; plain").out.splitlines()
        assert "├─ accelerator library: an accelerator, runs on gpu" in lines
        done = uma("targets", "--explain", "library; plain")
        assert done.code == 2 and "'library' needs a device of type 'cuda': no target of this build is one" in done.err

    def test_explain_a_composite(self, uma: Uma, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        host = PluginHost(lambda: entries)
        dim = Attribute("dim", int, default=8, deprecated=("rows",), help="rows")
        alias = Alias("duo", "plain -accelerators=npu,'b: npu'", help="two of them")
        given = accelerator("npu", dim, default_host="plain"), alias
        entries = [*entry_of(HOST), *entry_of(*given)]
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)
        assert uma("targets", "--explain", "duo").out.splitlines() == [
            "composite -devices=npu,'b: npu' -host=plain",
            "├─ host plain: a plain host",
            "├─ accelerator npu: an accelerator",
            "│    -dim  8 (default)",
            "└─ accelerator b: an accelerator",
            "     -dim  8 (default)",
        ]
        record = uma("targets", "--explain", "npu -dim=4", "--json").json
        assert [(row["role"], row["name"]) for row in record["targets"]] == [("host", "plain"), ("accelerator", "npu")]
        assert record["notes"] == ["no host was given: 'plain' was added, the default host of 'npu -dim=4'"]
        assert read_target(record["json"], host.lookup) == host.target(record["target"])
        assert "duo: two of them (stands for plain -accelerators=npu,'b: npu')" in uma("targets").out
        assert uma("targets", "duo").out.endswith("stands for plain -accelerators=npu,'b: npu'\n")
        assert "formerly rows\n" in uma("targets", "npu").out
        assert [row["name"] for row in uma("targets", "--json").json["aliases"]] == ["duo"]
        done = uma("build", "net.py", "--target", "npu -rows=4", "--stop-after", "import")
        assert done.err.splitlines() == [
            "uma: warning: attribute 'rows' of target kind 'npu' is now called 'dim'",
            "note: no host was given: 'plain' was added, the default host of 'npu -dim=4'",
        ]

    def test_notes_on_targets_are_said_and_kept(self, uma: Uma, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        size = Attribute("dim", int, default=8, help="rows")
        given = accelerator(
            "npu", size, default_host="plain", canonicalise=lambda t: {"dim": t.get_attr("dim") // 8 * 8}
        )
        host = PluginHost(lambda: [*entry_of(HOST), *entry_of(given)])
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)
        added = "no host was given: 'plain' was added, the default host of 'npu -dim=20'"
        follows = "from 'npu -dim=20' follows -dim=16 in place of 20"
        build = ("build", "net.py", "--target", "npu -dim=20", "-o", "out")
        assert uma(*build).err == f"note: {added}\n"
        said = uma(*build, "-v").err
        assert f"note: {added}\nnote: {follows}\n" in said
        assert uma(*build, "-q").err == ""
        saved, made = uma_package.load("out"), uma_package.build("net.py", "npu -dim=20", plugins=host)
        assert saved.metadata["notes"] == made.metadata["notes"] == [added, follows]
        assert saved.metadata == made.metadata and saved.files == made.files
        assert uma_package.build("net.py", "npu -dim=16; plain", plugins=host).metadata["notes"] == []

    def test_a_target_from_a_file_and_from_the_project(self, uma: Uma, folder: Path) -> None:
        (folder / "small.json").write_text('{"kind": "c", "opt": "s"}')
        (folder / "pyproject.toml").write_text("[tool.uma.targets]\nfast = 'c -opt=3'\nc = 'c'")
        assert uma("targets", "--explain", "small.json").out.startswith("c -opt=s\n")
        assert uma("targets", "--explain", "fast").out.startswith("c -opt=3 -tag=fast\n")
        lines = uma("targets").out.splitlines()
        assert "fast: of pyproject.toml (stands for c -opt=3)" in lines
        assert "c: of pyproject.toml (stands for c; but a plugin has this name, and goes before it)" in lines
        assert uma("targets", "fast").out.splitlines() == ["fast: of pyproject.toml", "  stands for c -opt=3"]
        record = uma("targets", "--json").json
        assert [(row["name"], row["expands_to"], row["hidden"]) for row in record["tags"]] == [
            ("fast", "c -opt=3", False),
            ("c", "c", True),
        ]
        (folder / "text.json").write_text("c -opt=s")
        assert "holds no JSON object" in uma("targets", "--explain", "text.json").error(2)
        (folder / "bytes.json").write_bytes(b"\xff")
        assert "is not UTF-8 text" in uma("targets", "--explain", "bytes.json").error(2)
        assert "does not exist" in uma("targets", "--explain", "none.json").error(2)
        (folder / "pyproject.toml").write_text("[tool.uma]\ntargets = 5\n")
        where = f"where: {folder / 'pyproject.toml'}, in [tool.uma.targets]\n"
        assert where in uma("targets", "--explain", "fast").error(2)

    @pytest.mark.filterwarnings("default")
    def test_which_project_file_is_in_force(self, uma: Uma, folder: Path) -> None:
        path = folder / "pyproject.toml"
        asked = ("targets", "--explain", "c")
        assert "project file" not in uma(*asked, "-v").err
        path.write_text("[tool.uma.targets]\nfast = 'c -opt=3'")
        assert uma(*asked, "-v").err.startswith(f"note: the project file {path} is in force\n")
        assert "project file" not in uma(*asked).err
        path.chmod(0o666)
        done = uma("targets", "--explain", "fast")
        assert done.code == 2 and "there is no target kind 'fast'" in done.err
        warning = f"uma: warning: the settings for UMA in {path} are ignored, because every user can write it"
        assert done.err.startswith(warning) and done.err.count(warning) == 1
        path.write_text("[project]")
        path.chmod(0o644)
        assert "project file" not in uma(*asked, "-v").err  # it has no settings for UMA
        path.write_text("[tool.uma]\nnone = 3")
        assert "project file" not in uma(*asked, "-v").err

    def test_a_broken_plugin_and_none_at_all(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        entries = [
            PluginEntry("bad", "uma_no_such_module", "uma-bad", "1.0"),
            PluginEntry("c", "uma_cpu_c", "x", "1.0"),
        ]
        host = PluginHost(lambda: entries)
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)
        lines = uma("targets").out.splitlines()
        assert lines[0].startswith("bad: cannot be used: plugin uma-bad 1.0 cannot be imported")
        assert lines[1].startswith("c: ")
        record = uma("targets", "--json").json
        assert [row["name"] for row in record["kinds"]] == ["c", "composite"]
        assert [row["name"] for row in record["unusable"]] == ["bad"]
        assert "plugin uma-bad 1.0 cannot be imported" in uma("targets", "bad").error(5)
        assert uma("run", "net.py", "--target", "bad").code == 5
        entries.clear()
        host = PluginHost(list)
        assert uma("targets").out.splitlines() == [
            "no target kinds are installed; a plugin brings them: pip install PLUGIN",
            "composite: a host and its devices (composite)",
        ]


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("int8", -128, 127), ("uint16", 0, 65535), ("int32", 0, 255), ("bool", 0, 1)]
)
def test_random_integers_have_all_values_of_their_range(dtype: str, low: int, high: int) -> None:
    array = random_array((10**6,), dtype, 0)
    assert array.dtype == dtype
    assert (array.min(), array.max()) == (low, high)


def test_random_floats() -> None:
    array = random_array((2, 1000), "float32", 0)
    assert array.dtype == np.float32 and array.shape == (2, 1000)
    assert -1 <= array.min() < -0.9 and 0.9 < array.max() < 1


def test_a_thread_that_is_not_the_first_can_run_commands(uma: Uma) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(uma("targets").code))
    thread.start()
    thread.join()
    assert codes == [0]


def test_signals_are_handled_as_before_when_a_command_is_done(uma: Uma) -> None:
    before = signal.getsignal(signal.SIGTERM)
    uma("targets")
    assert signal.getsignal(signal.SIGTERM) is before
