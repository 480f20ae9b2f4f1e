"""The report: what it says of a build and of an artifact, in every form that it is written in."""

from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.plugins import built, members_of, module_of, toy
from tests._support.reports import HOSTILE, Page, report_of

from uma.artifact import Artifact
from uma.errors import UsageError
from uma.pipeline.driver import finish_build
from uma.pipeline.loading import LoadedModel
from uma.relay import TensorType, Var, call, const
from uma.reports.explain import explain
from uma.reports.report import FORMATS, Measured, Report, make_report
from uma.reports.report.as_csv import as_csv
from uma.reports.report.as_json import as_json
from uma.reports.report.as_markdown import as_markdown
from uma.reports.report.builder import titled_by_model
from uma.reports.report.charts import axis
from uma.reports.report.dataflow import op_flows
from uma.reports.report.lanes import lanes
from uma.reports.report.page import as_page
from uma.reports.report.summary import summary
from uma.support.html import element, html_of, printable
from uma.support.json_record import from_json

X = Var("x", TensorType((3, 5), "int8"))
WIDE = call("qnn.dense", X, const(np.ones((4, 5), np.int8)))
NARROW = call("qnn.dense", X, const(np.full((2, 5), 3, np.int8)))
RELU = call("nn.relu", WIDE)
BOTH = call("concatenate", RELU, NARROW, axis=1)
MODEL = module_of(BOTH, {WIDE: ["wide"], NARROW: [HOSTILE[0]], RELU: ["wide", "relu"], BOTH: ["both"]})


@pytest.fixture(scope="module")
def made() -> tuple[Report, Artifact]:
    """Of a model that two targets share; and what it became."""
    build = built(MODEL, members_of(toy("npu", "nn.relu"), toy("dsp", "add")))
    artifact = finish_build(build, LoadedModel(MODEL, "m"))
    return make_report(artifact, Measured(), build, explain(build, costs=True)), artifact


class TestRecords:
    def test_layers(self, made: tuple[Report, Artifact]) -> None:
        report, _ = made
        assert [(row.names, row.targets, row.inputs) for row in report.layers] == [
            (("wide", "relu"), ("plain", "npu"), ()),
            ((HOSTILE[0],), ("plain",), ()),
            (("both",), ("plain",), (0, 1)),
        ]
        wide, narrow, both = report.layers
        assert (wide.macs, wide.weight_bytes, wide.shape, wide.dtype, wide.output_bytes) == (
            60,
            20,
            (3, 4),
            "int32",
            48,
        )
        assert (narrow.macs, narrow.weight_bytes, both.macs, both.weight_bytes) == (30, 10, 0, 0)
        assert {why.target for why in narrow.why} == {"npu", "dsp"}

    def test_totals(self, made: tuple[Report, Artifact]) -> None:
        report, artifact = made
        assert (report.macs, report.offloaded, report.of_artifact) == (90, 0.0, False)
        assert [(row.label, row.is_host, row.macs) for row in report.targets] == [
            ("npu", False, 0),
            ("dsp", False, 0),
            ("plain", True, 90),
        ]
        assert report.ram_bytes == report.footprint.ram_bytes
        assert [row.kernel for row in report.steps] == [call.kernel for call in artifact.record.calls]
        assert sum(memory.bytes for memory in report.memories) <= artifact.arena_bytes
        for memory in report.memories:
            alive = [one for one in memory.placed if one.at_peak]
            assert all(one.first_step <= memory.peak_step <= one.last_step for one in alive) and alive
            assert all(one.layer == report.steps[one.first_step].title for one in memory.placed)

    def test_a_step_is_titled_by_the_layer_that_costs_most(self, made: tuple[Report, Artifact]) -> None:
        report, artifact = made
        names = {name: row.name for row in report.layers for name in row.names}
        for step in report.steps:
            assert step.title in {names[name] for name in step.layers}
        both, small = report_of(8).layers[6:]  # of 7,000 and of 1,000 multiply-accumulates
        step = dataclasses.replace(report_of(8).steps[7], layers=(*small.names, *both.names, "not of a layer"))
        titled = titled_by_model([step, dataclasses.replace(step, layers=())], [both, small])
        assert [one.title for one in titled] == ["0006 conv2d 3x3 8->8 s1 and 1 more", step.title]
        titles = [step.title for step in make_report(artifact, Measured()).steps]
        assert titles == [row.name for row in make_report(artifact, Measured()).layers]

    def test_of_an_artifact(self, made: tuple[Report, Artifact]) -> None:
        artifact = made[1]
        report = make_report(artifact, Measured(100, 200))
        assert report.of_artifact and report.reasons == () and report.footprint.stack_bytes == 200
        assert report.macs == 90 and len(report.layers) == len(artifact.record.calls)
        last = report.layers[-1]
        assert last.names == ("both",) and len(last.inputs) == 2
        assert "does not keep why" in Page(as_page(report)).text

    def test_flows_of_a_partitioned_module(self) -> None:
        build = built(MODEL, members_of(toy("npu", "nn.relu")))
        assert build.placement is not None
        for module in (build.placement.source, build.placement.module):
            flows = op_flows(module)
            assert [flow.inputs for flow in flows] == [(), (0,), (), (1, 2)]
            assert [flow.constant_bytes for flow in flows] == [20, 0, 10, 0]


class TestSummary:
    def test_of_a_host_alone(self) -> None:
        report = report_of(8)
        alone = dataclasses.replace(
            report,
            targets=report.targets[1:],
            reasons=(),
            layers=tuple(dataclasses.replace(row, targets=("c",)) for row in report.layers),
        )
        where, what, attempt = summary(alone)
        assert (
            where == "c runs all 8 layers, with 29,000 multiply-accumulates; there is no accelerator among the targets."
        )
        assert what == "It takes 9,000 bytes (8.8 KiB) of ROM without the code and 1,462 bytes (1.4 KiB) of RAM."
        assert attempt.startswith("To save RAM, begin at step 0, where it is fullest: ")

    def test_of_what_stays(self) -> None:
        report = report_of(8)
        where, what, attempt = summary(report)
        assert where == (
            "npu runs 6 of 8 layers, 82.7% of the 29,000 multiply-accumulates (npu counted 12,345 cycles); c runs the "
            "rest."
        )
        assert what == (
            "2 layers with 5,000 multiply-accumulates do not fit; of 5,000 multiply-accumulates npu says: conv2d: "
            "layer 3 has 9 channels, at most 8 fit."
        )
        assert attempt == (
            "Try first to lift that reason, in the model or by the target's attributes: it holds 17.2% of the work "
            "back."
        )

    def test_of_all_taken_and_nothing_in_memory(self) -> None:
        report = dataclasses.replace(report_of(3), reasons=(), memories=())
        where, what, attempt = summary(report)
        assert where.startswith("npu runs 3 of 3 layers") and "rest" not in where
        assert what.startswith("Nothing is left to the host; it takes ")
        assert attempt == "To save ROM, begin with “layer 2, layer 2/bias”: its constants are 578 bytes."

    def test_of_a_part_of_a_layer(self) -> None:
        report = report_of(8)
        mixed = dataclasses.replace(report.layers[0], targets=("npu", "c"))
        targets = tuple(dataclasses.replace(row, macs=0) if row.is_host else row for row in report.targets)
        some = dataclasses.replace(report, layers=(mixed, *report.layers[1:]), targets=targets)
        assert summary(some)[1].startswith("2 layers and a part of 1 layer do not fit; of ")
        others = (layer for layer in some.layers if layer.targets != ("c",))
        alone = dataclasses.replace(some, layers=tuple(others))
        assert summary(alone)[1].startswith("A part of 1 layer does not fit; of ")

    def test_of_nothing(self) -> None:
        report = dataclasses.replace(report_of(0), reasons=(), memories=())
        assert summary(report)[2] == "There is nothing that stands out."

    def test_of_an_artifact(self) -> None:
        what = summary(dataclasses.replace(report_of(8), of_artifact=True, reasons=()))[1]
        assert what.startswith("2 calls with 5,000 multiply-accumulates do not fit; an artifact does not keep why")

    def test_of_accelerators_that_take_nothing(self) -> None:
        report = report_of(8)
        layers = tuple(dataclasses.replace(row, targets=("c",)) for row in report.layers)
        where = summary(dataclasses.replace(report, layers=layers))[0]
        assert where == "npu runs none of the 8 layers; c runs all, with 29,000 multiply-accumulates."

    def test_of_no_reason(self) -> None:
        assert "no pattern of an accelerator is about them" in summary(dataclasses.replace(report_of(8), reasons=()))[1]


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    count = draw(st.integers(0, 14))
    return [sorted(draw(st.sets(st.integers(0, row - 1), max_size=3))) if row else [] for row in range(count)]


@given(graphs())
def test_lanes_lead_from_each_layer_to_those_that_take_its_value(graph: list[list[int]]) -> None:
    """Whoever follows the lines downwards comes from a layer to exactly the layers that take its value."""
    rows = lanes(graph)
    found: list[set[int]] = [set() for _ in graph]
    holds: dict[int, int] = {}  # lane -> the layer whose value comes in at the upper edge
    for at, row in enumerate(rows):
        assert set(row.above) <= set(holds) and set(row.passing) <= set(holds)
        assert set(row.above) | set(row.passing) == set(holds) and row.lane not in row.passing
        found[at] = {holds[lane] for lane in row.above}
        holds = {lane: holds[lane] for lane in row.passing}
        if row.below is not None:
            assert row.below == row.lane
            holds[row.below] = at
    assert not holds and found == [set(sources) for sources in graph]


class TestPage:
    def test_needs_nothing_else(self) -> None:
        page = Page(as_page(report_of(12)))
        for tag, name, value in page.attributes:
            assert name not in ("src", "srcset", "action", "data", "poster", "ping")
            assert not name.startswith("on")
            assert name != "href" or (tag == "a" and value[1:] in page.ids and value.startswith("#"))
            assert "url(" not in value and "://" not in value
        assert "url(" not in "".join(page.styles) and "@import" not in "".join(page.styles)
        assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
        (script,) = page.scripts
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policies = [value for tag, name, value in page.attributes if tag == "meta" and "default-src" in value]
        assert len(policies) == 1
        assert "default-src 'none'" in policies[0] and f"script-src 'sha256-{digest}'" in policies[0]
        assert len(set(page.ids)) == len(page.ids)

    def test_shows_everything(self) -> None:
        report = report_of(12)
        page = Page(as_page(report))
        for sentence in report.summary:
            assert sentence in page.text
        for row in report.layers:
            assert row.name in page.text and f"layer-{row.number}" in page.ids
            assert all(why.reason in page.text for why in row.why)
        for step in report.steps:
            assert step.kernel in page.text and f"step-{step.number}" in page.ids
        boxes = [value for tag, name, value in page.attributes if name == "class" and value.startswith("buf ")]
        assert len(boxes) == 12 and sum("peak" in value.split() for value in boxes) == 2
        assert "Peak at step 0" in page.text and "some-plugin 0.1.0" in page.text
        choices = ("multiply-accumulates", "weight bytes", "output bytes", "microseconds", "cycles")
        assert all(choice in page.text for choice in choices)
        assert page.tags["input"] == len(choices) + 2

    def test_names_are_text(self) -> None:
        plain, hostile = Page(as_page(report_of(20))), Page(as_page(report_of(20, HOSTILE)))
        assert hostile.tags == plain.tags
        assert len(hostile.scripts) == 1 and hostile.scripts == plain.scripts
        assert {(tag, name) for tag, name, _ in hostile.attributes} == {
            (tag, name) for tag, name, _ in plain.attributes
        }
        for name in HOSTILE:
            assert printable(name) in hostile.text
        assert not any(char in hostile.text for char in "\0\a\x1b\u202e\u2066\ud800")
        as_page(report_of(20, HOSTILE)).encode("utf-8")

    @pytest.mark.soak
    def test_five_thousand_layers(self) -> None:
        text = as_page(report_of(5000))
        assert len(text.encode()) < 9_000_000
        page = Page(text)
        assert page.ids.count("layer-4999") == 1
        assert sum(tag == "svg" and value == "bars" for tag, name, value in page.attributes) == 5
        assert page.tags["path"] < 10_000  # bars of one colour are one shape

    @pytest.mark.parametrize(("columns", "named"), [(1, ["step 0"]), (3, ["step 0", "1", "2"]), (81, None)])
    def test_an_axis_names_columns_where_they_are(self, columns: int, named: list[str] | None) -> None:
        marks = list(axis([str(at) for at in range(columns)], "step "))
        assert [mark.text for mark in marks] == (named or ["step 0", *map(str, range(10, 81, 10))])
        for mark in marks:
            column = int((mark.text or "").removeprefix("step "))
            assert (mark.get("style") or "").startswith(f"left:{100 * (column + 0.5) / columns:.2f}%;")

    def test_of_a_model_without_layers(self) -> None:
        page = Page(as_page(dataclasses.replace(report_of(0), memories=())))
        assert "works in no memory" in page.text

    def test_text_before_and_behind_elements(self) -> None:
        made = element("p", {"class": None, "id": 5}, "a<", "b", element("br"), "c", "&", None, 7)
        assert html_of(made) == '<p id="5">a&lt;b<br>c&amp;7</p>'


class TestOtherForms:
    def test_json_is_the_records(self) -> None:
        report = report_of(20, HOSTILE)
        again = from_json(Report, json.loads(as_json(report).encode("utf-8", "surrogatepass")))
        assert again == report

    def test_csv_has_every_record(self) -> None:
        report = report_of(20, HOSTILE)
        text = as_csv(report)
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        kinds = [row["record"] for row in rows]
        assert [kinds.count(kind) for kind in ("model", "layer", "step", "target", "memory", "buffer")] == [
            1,
            20,
            20,
            2,
            1,
            20,
        ]
        layers = [row for row in rows if row["record"] == "layer"]
        assert [int(row["macs"]) for row in layers] == [row.macs for row in report.layers]
        assert rows[0]["ram_bytes"] == "1462" and rows[0]["code_bytes"] == ""
        for row in rows:
            for cell in row.values():
                assert not cell.startswith(("=", "@", "+")) and (not cell.startswith("-") or float(cell) < 0)

    def test_markdown_is_text(self) -> None:
        report = report_of(20, HOSTILE)
        text = as_markdown(report)
        assert "<" not in text.replace("\\<", "") and "](" not in text.replace("\\]\\(", "")
        wide = 0
        for line in text.splitlines():
            count = line.replace("\\\\", "").replace("\\|", "").count("|")
            assert not count or not wide or count == wide
            wide = count


class TestWriting:
    @pytest.mark.parametrize("suffix", FORMATS)
    def test_forms(self, suffix: str, tmp_path: Path) -> None:
        path = tmp_path / f"report{suffix.upper()}"
        report_of(4).save(path)
        first = path.read_bytes()
        report_of(4).save(path)
        assert path.read_bytes() == first and os.listdir(tmp_path) == [path.name]

    def test_where_it_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "folder.html").mkdir()
        os.mkfifo(tmp_path / "pipe.html")
        for name, what in {
            "report.pdf": r"a report cannot be a file '\.pdf'",
            "report": "a report cannot be a file without a suffix",
            "folder.html": "there is a folder of that name",
            "missing/report.html": "there is no folder for the report",
            "pipe.html": "cannot write the report: the path is not a plain file",
        }.items():
            with pytest.raises(UsageError, match=what):
                report_of(1).save(tmp_path / name)
        assert sorted(os.listdir(tmp_path)) == ["folder.html", "pipe.html"]
