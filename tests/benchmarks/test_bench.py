"""The benchmark: what it says of times, the layers that it draws, and that it measures; no test is about a time."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks import __main__ as bench
from benchmarks import call, cases, families, intervals, layers, nets, networks, report, sweep, worker
from benchmarks.contenders import OURS, PEERS, Prepared, contenders
from benchmarks.contenders.uma_c import Uma
from onnx import helper
from tests._support.onnx_builder import run_onnxruntime
from tests._support.tflite_builder import litert

ROOT = Path(__file__).parents[2]


class TestIntervals:
    def test_so_many_values_give_an_interval(self) -> None:
        """Tables of the sign test have these ranks for two sides and 5 %."""
        for n, rank in ((6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (50, 18), (100, 40)):
            assert intervals.interval([float(value) for value in range(1, n + 1)]) == (rank, n + 1 - rank)
        assert intervals.interval([1.0] * 5) is None

    def test_it_holds_the_median_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(3)
        found = [intervals.interval(rng.lognormal(0, 1, 40).tolist()) for _ in range(1000)]
        held = sum(ends is not None and ends[0] <= 1 <= ends[1] for ends in found)
        assert 0.95 <= held / 1000 < 0.99

    def test_ratios_are_of_pairs(self) -> None:
        """A slow moment hits both of a pair, and is not part of their ratio."""
        ours = [1.0, 10.0, 1.0, 2.0, 1.0, 5.0]
        found = intervals.ratio(ours, [2 * t for t in ours], "peer")
        assert found == intervals.Ratio("peer", 2.0, 2.0, 2.0, 2.0)
        assert intervals.ratio([4.0, 2.0], [2.0, 4.0], "peer") == intervals.Ratio("peer", 1.25, None, None, 1.0)


class TestRounds:
    def test_batches_take_turns(self) -> None:
        """So many calls that a batch takes its time; every round has one batch of each, in an order that changes."""
        now, done = 0.0, list[str]()

        def call(name: str, seconds: float) -> Any:
            def run() -> None:
                nonlocal now
                now += seconds
                done.append(name)

            return run

        calls = {"a": call("a", 0.25), "b": call("b", 1.0), "c": call("c", 0.125)}
        found = worker.timed_rounds(calls, worker.Limits(8, 0.5, 100.0), random.Random(1), lambda: now)
        assert found == {"a": [0.25e6] * 8, "b": [1e6] * 8, "c": [0.125e6] * 8}
        batches = [name for name, count in (("a", 2), ("b", 1), ("c", 4)) for _ in range(count)]
        rounds = [done[6 + 7 * turn : 13 + 7 * turn] for turn in range(8)]
        assert all(sorted(one) == batches for one in rounds)
        assert len({tuple(one) for one in rounds}) > 1
        slow = worker.timed_rounds(calls, worker.Limits(100, 0.5, 20.0), random.Random(1), lambda: now)
        assert len(slow["a"]) == 10
        assert len(worker.timed_rounds(calls, worker.Limits(100, 0.5, 0.0), random.Random(1), lambda: now)["b"]) == 6

    def test_uma_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What one does not take, or is not for, is left out, and the reason told."""

        class Failing:
            def version(self) -> str:
                return "1"

            def prepare(self, path: Path) -> Prepared | None:
                raise ValueError(f"no {path.name}\nand more")

        class Absent(Failing):
            def version(self) -> None:  # type: ignore[override]  # what is absent has no version
                return None

        class Other(Failing):
            def prepare(self, path: Path) -> Prepared | None:
                return None

        monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
        case = cases.sweep_cases([layers.Layer("dense", "int8", (16, 8), 3)], tmp_path)[0]
        known: Any = {
            "uma onnx": ("onnx", Uma()),
            "failing": ("onnx", Failing()),
            "absent": ("onnx", Absent()),
            "other": ("onnx", Other()),
            "elsewhere": ("tflite", Failing()),
        }
        files = {"onnx": str(case.files["onnx"])}
        found = worker.measured(case.name, files, known, worker.Limits(6, 0.0, 1.0), random.Random(0))
        assert found["errors"] == {"failing": "ValueError: no layer0.onnx"}
        assert list(found["times_us"]) == ["uma onnx"] and len(found["times_us"]["uma onnx"]) == 6
        assert found["facts"]["uma onnx"]["macs"] == case.macs == 3 * 16 * 8
        assert found["facts"]["uma onnx"]["io_bytes"] == 3 * 16 + 3 * 8


class TestLayers:
    def test_the_same_seed_gives_the_same_layers(self) -> None:
        drawn = list(layers.random_layers(200, 11))
        assert drawn == list(layers.random_layers(200, 11)) != list(layers.random_layers(200, 12))
        assert {(one.kind, one.dtype) for one in drawn} == {
            (kind, dtype)
            for kind in ("conv", "depthwise", "grouped", "dense", "matmul")
            for dtype in ("float32", "int8")
        }
        for one in layers.random_layers(2000, random.SystemRandom().randrange(2**31)):
            assert layers.MACS[0] <= one.macs <= layers.MACS[1]
            assert all(layers.CHANNELS[0] <= channels <= layers.CHANNELS[1] for channels in one.channels)

    @pytest.mark.parametrize(
        "layer",
        [
            layers.Layer("conv", "int8", (5, 7), 9, 1, 3, 2),
            layers.Layer("depthwise", "int8", (6, 6), 12, 1, 5, 1),
            layers.Layer("grouped", "int8", (10, 15), 9, 1, 3, 2, 5),
            layers.Layer("dense", "int8", (24, 10), 8),
            layers.Layer("matmul", "int8", (16, 12), 9, 2),
        ],
        ids=lambda layer: layer.kind,
    )
    def test_signed_and_unsigned_are_one(self, layer: layers.Layer, tmp_path: Path) -> None:
        """The unsigned form gives the same numbers, 128 higher; they use the range of a byte. Floats have none."""
        model, path = layer.model(), tmp_path / "layer.onnx"
        onnx.save(model, path)
        other = nets.unsigned(path)
        assert other is not None
        rng, given = np.random.default_rng(0), {}
        for value in model.graph.input:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            given[value.name] = rng.integers(-128, 128, shape).astype(np.int8)
        [signed] = run_onnxruntime(model.SerializeToString(), given)
        shifted = {name: (array.astype(np.int16) + 128).astype(np.uint8) for name, array in given.items()}
        [unsigned] = run_onnxruntime(other.SerializeToString(), shifted)
        np.testing.assert_array_equal(unsigned.astype(np.int16) - 128, signed)
        assert 15 < signed.std() < 80
        # As TFLite, channels last, it computes with other weights as much, and uses the range as well.
        last = [np.moveaxis(array, 1, -1) if layer.is_conv else array for array in given.values()]
        [lite] = litert(layer.tflite(), *last)
        assert lite.size == signed.size and 15 < lite.std() < 80
        onnx.save(replace(layer, dtype="float32").model(), path)
        assert nets.unsigned(path) is None

    def test_multiply_accumulates(self) -> None:
        counts = {
            layers.Layer("conv", "float32", (3, 8), 10, 1, 3, 2): 5 * 5 * 8 * 3 * 9,
            layers.Layer("depthwise", "int8", (8, 8), 10, 1, 5): 10 * 10 * 8 * 25,
            layers.Layer("grouped", "int8", (6, 8), 10, 1, 3, 1, 2): 10 * 10 * 8 * 3 * 9,
            layers.Layer("dense", "int8", (3, 8), 10): 10 * 3 * 8,
            layers.Layer("matmul", "int8", (3, 8), 10, 4): 4 * 10 * 3 * 8,
        }
        for layer, macs in counts.items():
            assert layer.macs == macs
            [made] = layer.model().graph.output
            shape = [dim.dim_value for dim in made.type.tensor_type.shape.dim]
            assert math.prod(shape) == macs // (9 * 3 if layer.kernel == 3 else 25 if layer.kernel == 5 else 3)

    def test_models_of_our_own(self) -> None:
        """The two small ones; onnx finds them right, and they have one output of the size that is theirs."""
        for name, shape in (("empty", [1, 16]), ("tcresnet8", [1, 12])):
            [made] = nets.NETS[name]().graph.output
            assert [dim.dim_value for dim in made.type.tensor_type.shape.dim] == shape


class TestFamilies:
    def test_each_has_a_name_and_a_type(self) -> None:
        names = [one.name for one in families.families()]
        assert len(set(names)) == len(names)
        assert all(len({"float32", "int8"} & set(name.split())) == 1 for name in names)
        for word in ("conv3d", "transposed", "grouped", "softmax", "cumsum", "LSTM", "GRU", "attention", "resize"):
            assert any(word in name for name in names)

    @pytest.mark.soak
    def test_onnx_finds_them_right(self) -> None:
        """And what goes in is of the type that the name says."""
        for family in families.families():
            graph = family.model().graph
            kinds = {helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type) for x in graph.input}
            assert kinds == {np.dtype("int8" if " int8 " in family.name else "float32")}
            assert len(graph.output) == 1

    def test_networks(self) -> None:
        """They have their outputs; the others take longer to make."""
        for name, shape in (("bert_tiny", [1, 128, 128]), ("ppocr", [1, 2])):
            [made] = networks.NETWORKS[name]().graph.output
            assert [dim.dim_value for dim in made.type.tensor_type.shape.dim] == shape
        assert set(networks.NETWORKS) <= set(cases.OWN) and "silero" in cases.REAL


def rows() -> list[report.Row]:
    """Of fake times: ahead, behind, alone, and not taken."""
    steady = [2.0, 2.1, 2.0, 2.2, 2.0, 2.1, 2.0]
    slow = [4 * t for t in steady]
    found = {
        "ahead": {"uma onnx": steady, "uma tflite": slow, "openvino": [3 * t for t in steady], "litert": [36.0] * 7},
        "behind": {"uma tflite": slow, "uma onnx": steady, "litert": steady, "onnxruntime": [5.0] * 3},
        "alone": {"uma onnx": steady},
        "refused": {"litert": steady},
    }
    made = [report.Row(name, times, macs=1000) for name, times in found.items()]
    made[-1].errors["uma tflite"] = "UmaError: no"
    return made


class TestReport:
    def test_a_line_for_each_model(self) -> None:
        """Each peer beside us as given the same file; ours is what is beside the best of them."""
        head, ahead, others, behind, alone, refused = report.model_table(rows())
        assert head.split()[:5] == ["ours", "us", "GOP/s", "best", "peer"]
        assert ahead.split()[:8] == ["ahead", "2.00", "1.0", "openvino", "6.00", "3.00", "3.00", "3.00"]
        assert ahead.endswith(" " + "#" * 10 + "|" + "#" * 19) and others.split() == ["litert", "4.50"]
        assert behind.split()[:8] == ["behind", "8.00", "0.2", "litert", "2.00", "0.25", "0.25", "0.25"]
        assert behind.endswith(" ##........|...................")
        assert alone.split() == ["alone", "2.00", "1.0", "no", "peer"]
        assert refused.split() == ["refused", "-", "UmaError:", "no"]

    def test_the_sweep(self) -> None:
        refused, summary, worst, head, *lines = report.sweep_table(rows())
        assert refused == "we do not take refused: UmaError: no"
        assert summary.endswith("of each: median 1.62, least 0.25, below 0.5: 1, at least 1: 1")
        assert worst == "the worst 2:" and head.split()[0] == "ours"
        assert [line.split()[0] for line in lines] == ["behind", "ahead", "litert"]
        assert list(report.sweep_table([])) == ["no layer has a peer's time"]

    def test_processes_add_up(self) -> None:
        """One that fails in a process has no pairs any more."""
        row, ours = report.Row("m"), "uma tflite"
        first = {"times_us": {ours: [1.0] * 6, "litert": [2.0] * 6}, "facts": {ours: {"macs": 7}}, "errors": {}}
        row.add(first)
        assert [one.peer for one in row.ratios()] == ["litert"] and row.macs == 7
        row.add({"times_us": {ours: [1.0] * 6}, "facts": {ours: {"macs": 8}}, "errors": {"litert": "E: gone"}})
        assert row.ratios() == [] and row.macs == 7
        told = json.loads(json.dumps(row.plain()))
        assert (told["errors"], told["summary"][ours]) == ({"litert": "E: gone"}, {"min_us": 1.0, "median_us": 1.0})
        assert len(told["times_us"][ours]) == 12


class TestCall:
    def test_what_is_called(self, tmp_path: Path) -> None:
        """The C function from C, and what calls it from Python, which takes longer than no time."""
        path = cases.own_cases([cases.EMPTY], tmp_path)[0].files["onnx"]
        found = call.call_times(path, worker.Limits(6, 0.0, 1.0), random.Random(0), tmp_path)
        assert {call.FUNCTION, "invoke", "session.run", "artifact.run"} <= set(found)
        assert all(len(times) == 6 and min(times) > 0 for times in found.values())

    def test_a_line_for_each_model(self) -> None:
        head, one, two = call.call_table({"a": {"invoke": [1.0, 2.0, 4.0]}, "b": {"peer": [8.0]}})
        assert head.split() == ["the", "call,", "us", "invoke", "peer", "(least,", "median)"]
        assert (one.split(), two.split()) == (["a", "1.00", "2.00", "-"], ["b", "-", "8.00", "8.00"])


class TestCommand:
    def test_a_sweep_of_some(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The families and models with one of the words in their names; every line, and all times as JSON."""
        asked = []

        def measure(given: Any, processes: int, *_: object) -> Iterator[report.Row]:
            for case in given:
                asked.append(case.name)
                yield report.Row(case.name, {"uma onnx": [1.0] * 6, "openvino": [3.0] * 6})

        monkeypatch.setenv("UMA_MODELS", str(tmp_path / "nowhere"))
        out = tmp_path / "new" / "sweep.json"
        assert sweep.main(["cumsum", "Bert", "silero", "--json", str(out)], measure) == 0
        assert asked == ["cumsum float32 128x256 axis 0", "cumsum float32 128x256 axis 1", "bert_tiny"]
        assert "3 layers beside the best peer of each: median 3.00" in capsys.readouterr().out
        assert [row["name"] for row in json.loads(out.read_text())["rows"]] == asked
        with pytest.raises(SystemExit):
            sweep.main(["no such op"], measure)
        assert "no layer and no model has no such op in its name" in capsys.readouterr().err

    def test_tables_and_json(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        facts = {"build_s": 0.5, "compile_s": 0.25, "code_bytes": 1000, "constant_bytes": 1, "arena_bytes": 2}
        asked = []

        def measure(given: list[cases.Case], processes: int, *_: object) -> Iterator[report.Row]:
            for case in given:
                asked.append((case.name, processes))
                times = {"uma tflite": [1.0] * 6, "litert": [2.0] * 6}
                yield report.Row(case.name, times, {"uma tflite": {**facts, "io_bytes": 3}}, {}, case.macs)

        monkeypatch.setattr(bench, "measure", measure)
        monkeypatch.setattr(bench, "call_times", lambda path, *_: {"invoke": [0.25, 0.5, 0.5]})
        monkeypatch.setattr(bench, "machine", lambda: {**dict.fromkeys(("cpu", "cores", "system", "python")), **about})
        about = {"compiler": "cc", "flags": ["-O3"], "versions": {"uma": "0.1.0", "litert": None}}
        monkeypatch.setenv("UMA_MODELS", str(tmp_path / "nowhere"))
        only = [text for name in ("kws_int8", "gemm64", "sweep") for text in ("--only", name)]
        out = tmp_path / "new" / "bench.json"
        how = ["--shapes", "12", "--kind", "grouped", "--kind", "conv", "--seed", "3", "--processes", "2"]
        assert bench.main([*only, *how, "--json", str(out)]) == 0
        drawn = [layer.name for layer in layers.random_layers(12, 3, ("grouped", "conv"))]
        assert asked == [(name, 2) for name in ("empty", "gemm64", *drawn)]
        text = capsys.readouterr().out
        assert "  litert: not installed, left out (pip install -r benchmarks/requirements.txt)" in text
        assert f"left out, not in {tmp_path / 'nowhere'}: kws_int8 (UMA_MODELS names another folder)" in text
        assert "an empty model: uma tflite 1.00 us, litert 2.00 us" in text and "12 layers beside the best peer" in text
        record = json.loads(out.read_text())
        assert (record["machine"], record["seed"]) == (bench.machine(), 3)
        assert [row["name"] for row in record["models"]] == ["gemm64"]
        assert [row["name"] for row in record["sweep"]] == drawn
        assert record["models"][0]["ratios"][0]["lower"] == 2.0
        assert record["calls_us"] == {"empty": {"invoke": [0.25, 0.5, 0.5]}} and record["families"] == []
        assert ["empty", "0.25", "0.50"] in [line.split() for line in text.splitlines()]

    def test_defaults(self, capsys: pytest.CaptureFixture[str]) -> None:
        whole, quick = bench.parsed([]), bench.parsed(["--quick"])
        assert (whole.shapes, len(whole.only)) == (200, len(cases.REAL) + len(cases.OWN) + 2)
        assert quick.shapes < 20 and set(quick.only) < set(whole.only)
        assert bench.parsed(["--seed", "0"]).seed == 0 and whole.seed != quick.seed
        with pytest.raises(SystemExit):
            bench.parsed(["--only", "resnet152"])
        assert "invalid choice: 'resnet152'" in capsys.readouterr().err

    def test_contenders_are_pinned(self) -> None:
        """What is compared is installed by make bench, in a version that is said."""
        assert {name: read for name, (read, _) in contenders().items()} == {
            **{name: read for read, name in OURS.items()},
            **PEERS,
        }
        pinned = (ROOT / "benchmarks" / "requirements.txt").read_text()
        assert {"ai-edge-litert==", "onnxruntime==", "openvino=="} <= {
            f"{line.split('==')[0]}==" for line in pinned.splitlines() if not line.startswith("#")
        }

    @pytest.mark.soak
    def test_it_runs(self, tmp_path: Path) -> None:
        """All that is installed, on two small models, in processes of their own."""
        command = [sys.executable, "-m", "benchmarks", "--only", "gemm64", "--only", "sweep", "--shapes", "2"]
        limits = ["--processes", "1", "--rounds", "6", "--seed", "1", "--json", str(tmp_path / "bench.json")]
        subprocess.run([*command, *limits], cwd=ROOT, check=True)
        record = json.loads((tmp_path / "bench.json").read_text())
        assert set(record["empty"]["times_us"]) >= {"uma onnx", "uma tflite", "litert", "onnxruntime"}
        for row in (*record["models"], *record["sweep"]):
            assert not row["errors"] and row["ratios"]
