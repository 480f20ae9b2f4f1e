"""What the commands say of accelerators: where ops go, what must go there, what is wrong there, what it took."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests._support import fake_device
from tests._support.plugins import HOST, accelerator, entry_of, host_kind, taking, toy
from tests._support.small_models import Uma
from tests._support.stream_plugin import lowering, plugin
from tests._support.te_lowerings import as_declared, kernel_of, lowered

from uma.artifact import CallTime, PartCounts, Profile
from uma.cli.output import Output
from uma.cli.profile import _show_parts
from uma.codegen.kernel import kernel_source
from uma.hookspecs import Clock, Cost, Declined, LoweredKernel, Pattern, Refuse, Strategy, TargetCode
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Call, Function, IRModule
from uma.relay.pattern import Clause, Failed, Match, op, wildcard
from uma.reports.costs import RegionCost, counted_by_region, counted_cycles
from uma.runtime.tensors import random_array
from uma.targets import Limits, Target
from uma.tir import te
from uma.tir.form import nodes as tir

MODEL = """\
@function
def main(x: Tensor[(2, 4), int8], y: Tensor[(2, 3), int32]) -> Tensor[(2, 3), int32]:
    v0: ('fc1',) = qnn.dense(x, const([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], (3, 4), int8))
    v1: ('fc1/add',) = add(v0, y)
    v2: ('fc1/relu',) = nn.relu(v1)
    v3: ('fc2',) = qnn.dense(x, const([1, 1, 1, 1], (1, 4), int8))
    v4: ('out',) = multiply(v2, v3)
    return v4
"""
"""24 multiply-accumulates in ``fc1``, 8 in ``fc2``."""

TARGETS = ("--target", "npu", "--target", "dsp", "--target", "plain")
NARROW = Clause("narrow", lambda m: m.root.shape[1] == 1 or Failed(m.root.shape[1]), "one channel, not {value}")

Install = Callable[..., None]


@pytest.fixture
def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs accelerators beside a plain host, and writes the model ``m.py``."""

    def installed(*plugins: Sequence[PluginEntry]) -> None:
        host = PluginHost(lambda: [entry for plugin in (*plugins, entry_of(HOST)) for entry in plugin])
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)

    (folder / "m.py").write_text(MODEL)
    return installed


def npu(*others: str, lower: Callable[[Function], LoweredKernel] = lowered) -> list[PluginEntry]:
    """Takes narrow dense layers, and other ops."""
    patterns = [taking("npu", "qnn.dense", lower, [NARROW]), *(taking("npu", name, lower) for name in others)]
    return toy("npu", patterns=lambda: patterns)


class TestExplain:
    def test_text(self, uma: Uma, install: Install) -> None:
        install(npu("nn.relu"), toy("dsp", "nn.relu", "add"))
        done = uma("explain", "m.py", *TARGETS)
        assert (done.code, done.err) == (0, "")
        assert (
            done.out
            == """\
m: 5 ops in 5 layers, 32 multiply-accumulates (MACs)
why layers are not on accelerators:
  layers  MACs  not  reason
       1    24  npu  npu.dense: clause narrow: one channel, not 3
       1    24  dsp  no pattern takes qnn.dense
       1     0  npu  no pattern takes add
       1     0  npu  no pattern takes multiply
       1     0  dsp  no pattern takes multiply
  00 dense 4->3 [fc1], 24 MACs -> plain
      not npu: npu.dense: clause narrow: one channel, not 3
      not dsp: no pattern takes qnn.dense
  01 add 2x3 [fc1/add] -> dsp_0 as dsp.add
      not npu: no pattern takes add
  02 relu 2x3 [fc1/relu] -> npu_0 as npu.relu
  03 dense 4->1 [fc2], 8 MACs -> npu_1 as npu.dense
  04 multiply 2x3 [out] -> plain
      not npu: no pattern takes multiply
      not dsp: no pattern takes multiply
  target  ops  MACs  share of MACs
  npu       2     8          25.0%
  dsp       1     0           0.0%
  plain     2    24          75.0%
"""
        )

    def test_where_guarantees_end(self, uma: Uma, install: Install) -> None:
        """A plugin that makes machine code itself is named by explain and build, in words and in JSON."""

        def compile_loops(module: IRModule, target: Target, prefix: str) -> TargetCode:
            symbols = {var.name: f"{prefix}_{var.name}" for var in module.functions}
            text = "\n".join(kernel_source(symbols[v.name], f, is_static=False) for v, f in module.functions.items())
            text = f'#include "{prefix}_functions.h"\n#include "uma_math.h"\n\n{text}'
            return TargetCode(symbols=symbols, sources={f"{prefix}.c": text})

        install(toy("npu", "nn.relu", tir_to_runtime=compile_loops))
        line = "npu: its plugin makes 1 kernel itself (relu); what is proven of its loops ends there: `uma verify`"
        for command in ("explain", "build"):
            done = uma(command, "m.py", "--target", "npu", "--target", "plain")
            assert (done.code, done.err) == (0, "") and line in done.out, done
        assert uma("explain", "m.py", "--target", "npu", "--target", "plain", "--json").json["brought"] == {
            "npu": ["relu"]
        }
        assert uma("verify", "m.py", "--target", "npu", "--target", "plain", "-q").code == 0

    def test_what_strategies_declined(self, uma: Uma, install: Install) -> None:
        """Told where one asks for more, and in JSON."""
        why = "six elements are not a multiple of four"
        strategies = [Strategy("add", lambda fusion, target: Declined(why))]
        install(entry_of(host_kind("mine"), strategies=lambda: strategies))
        said = f"layers that hosts compute by lesser loops, and why:\n  fc1/add: mine, strategy 'add': {why}\n"
        for command in (["explain"], ["build", "--no-compile"]):
            done = uma(*command, "m.py", "--target", "mine", "-v")
            assert done.code == 0 and said in done.out, done
            quiet = uma(*command, "m.py", "--target", "mine")
            assert quiet.code == 0 and why not in quiet.out + quiet.err
        record = {"layers": ["fc1/add"], "target": "mine", "by": "strategy 'add'", "reason": why}
        assert uma("explain", "m.py", "--target", "mine", "--json").json["declined"] == [record]

    def test_regions_that_a_limit_keeps_apart(self, uma: Uma, install: Install, folder: Path) -> None:
        """The first five pairs, or all of them with -v."""
        limited = accelerator("npu", limits=Limits(operands=3))
        install(entry_of(limited, patterns=lambda: [taking("npu", "add")]))
        names = [f"s{number}" for number in range(9)]
        lines = [f"    v{n}: ('sum{n}',) = add({f'v{n - 1}' if n else 's0'}, s{n + 1})" for n in range(8)]
        params = ", ".join(f"{name}: Tensor[(2,), int8]" for name in names)
        results = ", ".join(["Tensor[(2,), int8]"] * 8)
        values = ", ".join(f"v{n}" for n in range(8))
        text = f"@function\ndef main({params}) -> Tuple[{results}]:\n" + "\n".join(lines) + f"\n    return ({values})\n"
        (folder / "states.py").write_text(text)
        targets = ("--target", "npu", "--target", "plain")
        cut = "are two regions: one would have 5 inputs and outputs, and a region of npu at most 3\n"
        for more, count in (((), 5), (("-v",), 7)):
            done = uma("explain", "states.py", *targets, *more)
            assert done.code == 0 and done.out.count(cut) == count, done
            assert ("and 2 more pairs of regions; -v shows them\n" in done.out) == (not more)

    def test_json(self, uma: Uma, install: Install) -> None:
        install(npu("nn.relu"), toy("dsp", "add"))
        done = uma("explain", "m.py", *TARGETS, "--json")
        assert (done.code, done.err) == (0, "")
        record = done.json
        keys = [
            "schema_version",
            "name",
            "host",
            "offloaded",
            "targets",
            "regions",
            "forms",
            "reasons",
            "layers",
            "ops",
            "declined",
            "brought",
            "notes",
            "simplified",
            "allowed",
        ]
        assert list(record) == keys
        assert (record["name"], record["host"], record["offloaded"], record["notes"]) == ("m", "plain", 0.25, [])
        assert record["targets"] == [
            {"target": "npu", "ops": 2, "macs": 8, "cost": None},
            {"target": "dsp", "ops": 1, "macs": 0, "cost": None},
            {"target": "plain", "ops": 2, "macs": 24, "cost": None},
        ]
        fc1, fc2 = (next(op for op in record["ops"] if op["layers"] == [layer]) for layer in ("fc1", "fc2"))
        assert (fc2["owner"], fc2["region"], fc2["pattern"], fc2["macs"]) == ("npu", "npu_1", "npu.dense", 8)
        assert fc1 == {
            "op": "qnn.dense",
            "layers": ["fc1"],
            "macs": 24,
            "owner": "plain",
            "pattern": None,
            "region": None,
            "pin": None,
            "free": False,
            "why": [
                {
                    "owner": "npu",
                    "pattern": "npu.dense",
                    "kind": "clause",
                    "clause": "narrow",
                    "reason": "clause narrow: one channel, not 3",
                    "value": "3",
                },
                {
                    "owner": "dsp",
                    "pattern": None,
                    "kind": "none",
                    "clause": None,
                    "reason": "no pattern takes qnn.dense",
                    "value": None,
                },
            ],
        }

    def test_the_order_of_targets_is_their_priority(self, uma: Uma, install: Install) -> None:
        install(toy("npu", "nn.relu"), toy("dsp", "nn.relu"))

        def owner(*labels: str) -> str:
            given = [part for label in labels for part in ("--target", label)]
            ops = uma("explain", "m.py", *given, "--json").json["ops"]
            return next(op["owner"] for op in ops if op["op"] == "nn.relu")

        assert owner("npu", "dsp", "plain") == owner("plain", "npu", "dsp") == "npu"
        assert owner("dsp", "npu", "plain") == owner("dsp", "plain", "npu") == "dsp"

    def test_what_is_refused_when_it_is_lowered_is_told(self, uma: Uma, install: Install) -> None:
        def lower(function: Function) -> LoweredKernel:
            raise Refuse("the driver is too old")

        install(npu(lower=lower))
        done = uma("explain", "m.py", "--target", "npu", "--target", "plain")
        assert "  03 dense 4->1 [fc2], 8 MACs -> plain\n      not npu: npu.dense: the driver is too old\n" in done.out

    def test_makes_no_files(self, uma: Uma, install: Install, folder: Path) -> None:
        install(npu())
        before = sorted(os.listdir(folder))
        uma("explain", "m.py", "--target", "npu", "--target", "plain")
        assert sorted(os.listdir(folder)) == before

    def test_a_host_alone(self, uma: Uma, install: Install) -> None:
        install()
        done = uma("explain", "m.py", "--target", "plain")
        assert "not " not in done.out
        assert done.out.splitlines()[-1].split() == ["plain", "5", "32", "100.0%"]

    def test_loops_have_no_ops(self, uma: Uma, install: Install) -> None:
        install()
        uma("build", "m.py", "--target", "plain", "--stop-after", "lower", "--dump", "d")
        said = uma("explain", "d/5-lower.py", "--target", "plain").error(2)
        assert "a form that was lowered already has no ops to explain" in said

    def test_a_layer_is_grouped_and_its_reasons_are_counted(self, uma: Uma, install: Install, folder: Path) -> None:
        install(npu("nn.relu"))
        (folder / "m.py").write_text(
            """\
@function
def main(x: Tensor[(1, 6, 6, 2), int8]) -> Tensor[(8,), int8]:
    v0: ('stem',) = qnn.conv2d(x, const([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], (2, 2, 2, 2), int8), \
strides=(4, 4))
    v1: ('stem', 'act') = nn.relu(v0)
    v2: ('stem', 'act') = qnn.requantize(v1, scale=FixedPoint((1073741824,), (-5,), 'up'), dtype='int8')
    v3: ('flat',) = reshape(v2, newshape=(8,))
    return v3
"""
        )
        two = ("explain", "m.py", "--target", "npu", "--target", "plain")
        assert (
            uma(*two).out
            == """\
m: 4 ops, 1 of them free, in 2 layers, 64 multiply-accumulates (MACs)
why layers are not on accelerators:
  layers  MACs  not  reason
       1    64  npu  no pattern takes qnn.conv2d
       1     0  npu  no pattern takes qnn.requantize
  00 conv2d 2x2 2->2 s4 [stem, act], 64 MACs: conv2d, requantize -> plain
      not npu (conv2d): no pattern takes qnn.conv2d
      not npu (requantize): no pattern takes qnn.requantize
  00 conv2d 2x2 2->2 s4 [stem, act]: relu -> npu_0 as npu.relu
  01 reshape 8 [flat]: free
  target  ops  MACs  share of MACs
  npu       1     0           0.0%
  plain     2    64         100.0%
"""
        )
        record = uma(*two, "--json").json
        assert [(one["reason"], one["layers"], one["ops"], one["macs"]) for one in record["reasons"]] == [
            ("no pattern takes qnn.conv2d", 1, 1, 64),
            ("no pattern takes qnn.requantize", 1, 1, 0),
        ]
        assert [(one["name"], one["layers"], one["ops"]) for one in record["layers"]] == [
            ("00 conv2d 2x2 2->2 s4", ["stem", "act"], [0, 1, 2]),
            ("01 reshape 8", ["flat"], [3]),
        ]
        assert [op["free"] for op in record["ops"]] == [False, False, False, True]
        # All of it, op by op, with the whole names.
        assert "  flat: reshape -> plain, free\n" in uma(*two, "-v").out

    def test_a_reason_with_several_values_is_counted_once(self, uma: Uma, install: Install, folder: Path) -> None:
        install(npu())
        (folder / "m.py").write_text(
            """\
@function
def main(x: Tensor[(2, 4), int8]) -> Tuple[Tensor[(2, 3), int32], Tensor[(2, 2), int32]]:
    v0: ('a',) = qnn.dense(x, const([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], (3, 4), int8))
    v1: ('b',) = qnn.dense(x, const([1, 2, 3, 4, 5, 6, 7, 8], (2, 4), int8))
    return (v0, v1)
"""
        )
        lines = uma("explain", "m.py", "--target", "npu", "--target", "plain").out.splitlines()
        assert lines[3] == "       2    40  npu  npu.dense: clause narrow: one channel, not 3 (and with other values)"


class TestShares:
    """What ``uma build`` ends with."""

    def test_text_and_json(self, uma: Uma, install: Install) -> None:
        install(npu("nn.relu"), toy("dsp", "tanh"))
        build = ("build", "m.py", *TARGETS, "--pin", "out=plain", "-o", "an out")
        told = uma(*build).out.splitlines()
        why = "uma explain m.py --target npu --target dsp --target plain --pin out=plain"
        assert told[told.index("accelerators have:") + 1 :] == [
            "  npu  40.0% of the ops, 25.0% of the multiply-accumulates",
            "  dsp  0.0% of the ops, 0.0% of the multiply-accumulates",
            f"  why not more: {why}",
        ]
        assert uma(*build, "--json").json["accelerators"] == [
            {"target": "npu", "ops": 2, "ops_share": 0.4, "macs": 8, "macs_share": 0.25, "why": why},
            {"target": "dsp", "ops": 0, "ops_share": 0.0, "macs": 0, "macs_share": 0.0, "why": why},
        ]
        assert uma(*why.split()[1:]).code == 0

    def test_without_multiply_accumulates_and_of_all(self, uma: Uma, install: Install, folder: Path) -> None:
        install(npu("nn.relu"))
        (folder / "m.py").write_text(
            "@function\ndef main(x: Tensor[(2, 4), int8]) -> Tensor[(2, 4), int8]:\n    return nn.relu(x)\n"
        )
        build = ("build", "m.py", "--target", "npu", "--target", "plain", "-o", "out")
        told = uma(*build, "--require-offload", "100%").out.splitlines()
        assert told[-2:] == ["accelerators have:", "  npu  100.0% of the ops"]

    def test_of_loops_nothing_is_known(self, uma: Uma, install: Install) -> None:
        install(npu())
        uma("build", "m.py", *TARGETS[:2], *TARGETS[4:], "--stop-after", "sequence", "--dump", "d")
        again = ("build", "d/9-sequence.py", *TARGETS[:2], *TARGETS[4:], "-o", "out")
        assert "accelerators have" not in uma(*again).out
        assert uma(*again, "--json").json["accelerators"] is None


class TestRequiredOffload:
    @pytest.mark.parametrize("share", ["25%", "24.99%", "0%", "025%"])
    def test_that_is_met(self, uma: Uma, install: Install, share: str, folder: Path) -> None:
        install(npu())
        done = uma("build", "m.py", "--target", "npu", "--target", "plain", "--require-offload", share, "-o", "out")
        assert (done.code, done.err) == (0, "")
        assert (folder / "out" / "metadata.json").exists()

    def test_that_is_not_met_gives_the_reasons_of_explain(self, uma: Uma, install: Install, folder: Path) -> None:
        install(npu("nn.relu"), toy("dsp", "add"))
        reasons = [line for line in uma("explain", "m.py", *TARGETS).out.splitlines() if line.startswith("      not")]
        assert len(reasons) == 5
        before = sorted(os.listdir(folder))
        said = uma("build", "m.py", *TARGETS, "--require-offload", "95%", "-o", "out/deep").error(4).splitlines()
        assert said == [
            "accelerators have 25.0% of the multiply-accumulates, 95% are required",
            "    00 dense 4->3 [fc1], 24 MACs -> plain",
            *(f"  {reason}" for reason in reasons[:2]),
            "  where: m",
            "  hint: uma explain shows every op; change the model or the requirement",
        ]
        assert sorted(os.listdir(folder)) == before

    def test_that_is_not_met_leaves_an_artifact_as_it_is(self, uma: Uma, install: Install, folder: Path) -> None:
        install(npu())
        build = ["build", "m.py", "--target", "npu", "--target", "plain", "-o", "out"]
        assert uma(*build).code == 0
        before = {path.name: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
        record = uma(*build, "--name", "other", "--require-offload", "100%", "--json").json
        assert record["error"]["exit_code"] == 4
        assert record["error"]["what"].startswith("accelerators have 25.0% of the multiply-accumulates, 100% are req")
        assert {path.name: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()} == before

    @pytest.mark.parametrize(
        "text", ["abc", "120%", "100.1%", "-1", "-1%", "", "%", " 5%", "1e1%", "nan%", "\u0665%", "5%%"]
    )
    def test_that_is_no_percentage(self, uma: Uma, install: Install, text: str, folder: Path) -> None:
        install()
        before = sorted(os.listdir(folder))
        said = uma("build", "m.py", "--target", "plain", f"--require-offload={text}").error(2)
        assert f"argument --require-offload: {text!r} is not a percentage; write it like 95%" in said
        assert sorted(os.listdir(folder)) == before

    def test_without_its_sign(self, uma: Uma, install: Install) -> None:
        install(npu())
        build = ["build", "m.py", "--target", "npu", "--target", "plain", "-o", "out", "--require-offload"]
        assert uma(*build, "25").code == 0
        assert "have 25.0% of the multiply-accumulates, 95% are required" in uma(*build, "95").error(4)
        assert "1 can mean 1% or 100%; write the percent sign" in uma(*build, "1").error(2)
        assert "argument --require-offload: 0.95 can mean 0.95% or 95%; write the per" in uma(*build, "0.95").error(2)

    def test_of_a_part_of_a_build(self, uma: Uma, install: Install) -> None:
        install()
        part = ["build", "m.py", "--target", "plain", "--stop-after", "fuse", "--require-offload", "5%"]
        assert "--require-offload is for whole builds" in uma(*part).error(2)

    def test_of_loops(self, uma: Uma, install: Install, folder: Path) -> None:
        install()
        uma("build", "m.py", "--target", "plain", "--stop-after", "lower", "--dump", "d")
        before = sorted(os.listdir(folder))
        said = uma("build", "d/5-lower.py", "--target", "plain", "--require-offload", "5%").error(2)
        assert "has no ops to explain" in said
        assert sorted(os.listdir(folder)) == before


def wrong_at(*place: int) -> Callable[[Function], LoweredKernel]:
    """A lowering that computes an ``add`` wrongly by 1 at one place."""

    def compute(call: Call, args: Sequence[te.Tensor]) -> te.Tensor | tuple[te.Tensor, ...]:
        made = as_declared(call, args)
        if call.op_name != "add":
            return made
        assert isinstance(made, te.Tensor)

        def element(*index: tir.Expr) -> tir.Expr:
            here: tir.Expr = tir.const(1, "bool")
            for i, at in zip(index, place, strict=True):
                here = tir.Bin("and", here, tir.Bin("eq", i, tir.const(at)))
            return tir.Select(here, made[index] + 1, made[index])

        return te.compute(made.shape, element, "wrong")

    def lower(function: Function) -> LoweredKernel:
        kernel = kernel_of(function, compute)
        return LoweredKernel(kernel.func, kernel.bind())

    return lower


def joined(lower: Callable[[Function], LoweredKernel]) -> list[PluginEntry]:
    """Takes an addition, and a relu behind it, as one."""
    term = op("nn.relu")(op("add")(wildcard("int32"), wildcard("int32")))
    return toy("npu", patterns=lambda: [Pattern("npu.sum", term, lower=lambda match, target: lower(match.function))])


class TestVerify:
    VERIFY = ("verify", "m.py", "--target", "npu", "--target", "plain", "--input", "y=random:3")

    def test_what_is_right(self, uma: Uma, install: Install, folder: Path) -> None:
        install(joined(lowered))
        done = uma(*self.VERIFY, "--dump", "sides", "-v")
        assert done.code == 0
        assert done.out.splitlines()[:5] == [
            "  fc1: equal",
            "  fc1/add, fc1/relu: equal",
            "  fc2: equal",
            "  out: equal",
            "m: 4 results of kernels compared with their references over 8 samples: all agree",
        ]
        assert not (folder / "sides").exists()
        kernels = uma(*self.VERIFY, "--json").json["kernels"]
        assert [(row["kernel"], row["target"]) for row in kernels if row["target"]] == [("npu_0", "npu")]

    def test_a_fault_in_a_region(self, uma: Uma, install: Install) -> None:
        install(joined(wrong_at(1, 2)))
        done = uma(*self.VERIFY)
        assert done.code == 7
        head, where, hint = done.err.splitlines()
        found = re.fullmatch(
            r"uma: error: layer fc1/add, fc1/relu differs from its reference: 1 of 6 elements differ, "
            r"the first at \[1, 2\]: (\d+) instead of (\d+); at most by 1",
            head,
        )
        assert found is not None, head
        assert int(found[1]) == int(found[2]) + 1
        assert where == "  where: region npu_0 of npu, result 2 of 4, sample 'as given'"
        assert hint == "  hint: --dump DIR writes what it was given, what it gave, and what it should have given"
        assert (
            done.out.splitlines()[0]
            == "m: 4 results of kernels compared with their references over 8 samples: 1 differ"
        )

    def test_a_fault_in_a_region_as_json(self, uma: Uma, install: Install) -> None:
        install(joined(wrong_at(0, 1)))
        done = uma(*self.VERIFY, "--json")
        record = done.json
        assert (done.code, record["equal"]) == (7, False)
        (wrong,) = (row for row in record["kernels"] if not row["ok"])
        assert (wrong["kernel"], wrong["target"], wrong["layers"]) == ("npu_0", "npu", ["fc1/add", "fc1/relu"])
        assert (wrong["differing"], wrong["size"], wrong["largest"], wrong["first"]) == (1, 6, 1.0, [0, 1])
        assert wrong["got"] == wrong["expected"] + 1
        assert {row["against"]: row["ok"] for row in record["outputs"]} == {
            "inspected": True,
            "references": False,
            "first run": True,
        }

    def test_both_sides_of_a_fault_are_dumped(self, uma: Uma, install: Install, folder: Path) -> None:
        install(joined(wrong_at(1, 2)))
        done = uma(*self.VERIFY, "--dump", "new/sides")
        assert done.code == 7 and "hint" not in done.err
        path = "new/sides/0-npu_0.npz"
        assert f"both sides of npu_0 are in {path}" in done.out.splitlines()
        assert os.listdir(folder / "new" / "sides") == ["0-npu_0.npz"]
        with np.load(folder / path) as sides:
            assert sorted(sides.files) == ["expected", "got", "input0", "input1"]
            expected = np.maximum(sides["input0"] + sides["input1"], 0)
            np.testing.assert_array_equal(sides["expected"], expected)
            np.testing.assert_array_equal(np.argwhere(sides["got"] != expected), [[1, 2]])
            assert sides["got"][1, 2] == expected[1, 2] + 1
            y = random_array((2, 3), "int32", 3)
            assert any(np.array_equal(sides[name], y) for name in ("input0", "input1"))

    def test_a_folder_that_cannot_be_made(self, uma: Uma, install: Install) -> None:
        install(joined(wrong_at(0, 0)))
        done = uma(*self.VERIFY, "--dump", "m.py/sides")
        assert done.code == 2
        assert "cannot make the folder: Not a directory\n  where: m.py/sides" in done.err


DOUBLED = """\
@function
def main(x: Tensor[(4,), int32]) -> Tensor[(4,), int32]:
    v0: ('rise',) = nn.relu(x)
    v1: ('double',) = add(v0, v0)
    return v1
"""


class TestProfile:
    def test_the_device_of_each_call_and_what_it_counted(self, uma: Uma, install: Install, folder: Path) -> None:
        def double(match: Match, target: object) -> LoweredKernel:
            return LoweredKernel(fake_device.doubling(4))

        value = wildcard("int32")
        fake = entry_of(
            accelerator("fake"),
            patterns=lambda: [Pattern("fake.double", op("add")(value, value), lower=double)],
            runtime=lambda: fake_device.runtime(),
        )
        install(fake)
        (folder / "d.py").write_text(DOUBLED)
        run = ("run", "d.py", "--target", "fake", "--target", "plain", "--profile", "--repeat", "3")
        record = uma(*run, "--json", "--trace", "t.json").json
        assert [(row["layers"], row["device"]) for row in record["profile"]] == [(["rise"], None), (["double"], "fake")]
        events = json.loads((folder / "t.json").read_text())["traceEvents"]
        assert [event["name"] for event in events if event["ph"] == "X"] == ["rise", "double"]
        done = uma(*run, "--trace", "no/t.json")
        assert done.code == 2
        assert "cannot write the trace: No such file or directory\n  where: no/t.json" in done.err
        on_host, simulated = record["profile"]
        assert on_host["median_us"] > 0 and on_host["simulator_us"] is None
        assert simulated["median_us"] is None and simulated["simulator_us"] > 0
        # A load, a sum and a store in each run; the first is not measured.
        counted = {"operations": 3, "bytes_moved": 32, "runs": 4}
        assert record["counters"] == {"fake": counted}
        done = uma(*run)
        assert done.code == 0
        lines = done.out.splitlines()
        assert lines[1].split() == ["layer", "kernel", "on", "us", "share", "MACs", "GOP/s", "of", "peak", "bytes"]
        assert [(line.split()[0], line.split()[2]) for line in lines[2:4]] == [("rise", "plain"), ("double", "fake")]
        assert lines[2].split()[4:] == ["100.0%", "-", "-", "-", "32"] and lines[3].split()[3:5] == ["-", "-"]
        assert lines[4].split()[0] == "all"
        assert re.fullmatch(r"fake is simulated: the \d+\.\d\d us of its calls are the simulator's, not .*", lines[5])
        assert lines[6].startswith("peak of plain, on one core: ") and lines[7].startswith("timed by ")
        assert lines[8] == "fake counted in one run:"
        assert [line.split() for line in lines[9:]] == [[name, str(value)] for name, value in counted.items()]

        done = uma("run", "d.py", "--target", "fake", "--target", "plain", "--repeat", "2")
        last = done.out.splitlines()[-1]
        assert re.fullmatch(r"median of 2 runs: \d+\.\d us, with a simulator on this machine for fake", last)

    def test_a_false_estimate_is_seen(self, uma: Uma, install: Install, folder: Path) -> None:
        def double(match: Match, target: object) -> LoweredKernel:
            return LoweredKernel(fake_device.doubling(4))

        value, clock = wildcard("int32"), Clock(2e3, "bytes_moved", "operations")
        fake = entry_of(
            accelerator("fake"),
            patterns=lambda: [Pattern("fake.double", op("add")(value, value), lower=double)],
            runtime=lambda: fake_device.runtime(clock=clock),
            estimate_cost=lambda: Cost(cycles=1000),
        )
        install(fake)
        (folder / "d.py").write_text(DOUBLED)
        model = ("d.py", "--target", "fake", "--target", "plain")
        done = uma("run", *model, "--profile", "--repeat", "1")
        assert done.out.splitlines()[-1] == "fake: estimated 1,000 cycles, counted 32"
        record = uma("run", *model, "--profile", "--repeat", "1", "--json").json
        assert record["estimates"] == {"fake": {"cycles": 1000, "counted_cycles": 32}}
        lines = uma("explain", *model, "--count").out.splitlines()
        at = lines.index("estimates of what one run of each region takes:")
        assert [line.split() for line in lines[at + 1 : at + 3]] == [
            ["region", "target", "cycles", "cycles", "counted"],
            ["fake_0", "fake", "1000", "32"],
        ]
        [region] = uma("explain", *model, "--count", "--json").json["regions"]
        assert (region["cost"]["cycles"], region["counted_cycles"]) == (1000, 32)
        assert "counted" not in uma("explain", *model).out

    def test_what_is_not_told_apart_is_not_counted(self) -> None:
        """Two regions that share a layer, and a device that counts no cycles."""
        calls = (
            CallTime("a", ("one",), 1.0, "c", "npu", {"cycles": 5}),
            CallTime("b", ("two",), 1.0, "c", "npu", {"cycles": 7}),
            CallTime("c", ("three",), 1.0, "c", "dsp", {"runs": 1}),
            CallTime("d", ("four",), 1.0, "c", "npu", {"cycles": 9}),
        )
        profile = Profile(calls, {}, {"npu": {"cycles": 21}, "dsp": {"runs": 1}})
        regions = [
            RegionCost(name, label, layers, None)
            for name, label, layers in (
                ("npu_0", "npu", ("one", "two")),
                ("npu_1", "npu", ("two",)),
                ("npu_2", "npu", ("four",)),
                ("dsp_0", "dsp", ("three",)),
            )
        ]
        counted = {"npu_0": None, "npu_1": None, "npu_2": 9, "dsp_0": None}
        assert counted_by_region(regions, profile) == counted
        assert (counted_cycles(profile, "npu"), counted_cycles(profile, "dsp")) == (21, None)

    def test_time_at_the_devices_clock(self, uma: Uma, install: Install, folder: Path) -> None:
        def double(match: Match, target: object) -> LoweredKernel:
            return LoweredKernel(fake_device.doubling(4))

        value, clock = wildcard("int32"), Clock(2e3, "bytes_moved", "operations")
        fake = entry_of(
            accelerator("fake"),
            patterns=lambda: [Pattern("fake.double", op("add")(value, value), lower=double)],
            runtime=lambda: fake_device.runtime(clock=clock),
        )
        install(fake)
        (folder / "d.py").write_text(DOUBLED)
        run = ("run", "d.py", "--target", "fake", "--target", "plain", "--profile", "--repeat", "1")
        assert uma(*run, "--json").json["clocks"] == {"fake": {"hz": 2e3, "seconds": 0.016, "utilisation": 3 / 32}}
        lines = uma(*run).out.splitlines()
        assert [line.split() for line in lines[9:]] == [
            ["operations", "3", "(9.3%", "of", "bytes_moved)"],
            ["bytes_moved", "32", "(16.000", "ms", "at", "2000", "Hz)"],
            ["runs", "2"],
        ]


def test_parts_have_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    """With time and utilisation, as far as what is counted of them tells."""
    parts = [PartCounts("one", {"cycles": 1500, "busy": 750}), PartCounts("x" * 40, {"cycles": 0, "busy": 0})]
    head = ["layer", "cycles", "busy"]
    for clock, names in (
        (Clock(1e3, "cycles", "busy"), [*head, "ms", "utilisation"]),
        (Clock(1e3, "cycles"), [*head, "ms"]),
        (Clock(1e3, "ticks"), head),
        (None, head),
    ):
        _show_parts(parts, clock, Output(sys.stdout))
        first, one, long = (line.split() for line in capsys.readouterr().out.splitlines())
        assert first == names
        assert one == ["one", "1500", "750", "1500.000", "50.0%"][: len(names)]
        assert len(long[0]) == 32 and long[1:] == ["0", "0", "0.000"][: len(names) - 1]


class TestStream:
    def test_text(self, uma: Uma, install: Install) -> None:
        """What the accelerator is fed stands below what goes where."""
        install(plugin(lowering("a")))
        done = uma("explain", "m.py", "--target", "npu", "--target", "plain", "--stream")
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[lines.index("step 1, fc1/add -> npu, queue a: start") :] == [
            "step 1, fc1/add -> npu, queue a: start",
            "    commands, 28 bytes",
            "    fc1/add: y:",
            "        0x000000  1:32[6] = 1:0[6] + 2:0[6]",
        ]

    def test_json(self, uma: Uma, install: Install) -> None:
        install(plugin(lowering("a")))
        [stream] = uma("explain", "m.py", "--target", "npu", "--target", "plain", "--stream", "--json").json["streams"]
        assert stream == {
            "step": 1,
            "function": "add0",
            "target": "npu",
            "routine": "start",
            "queue": "a",
            "layers": ["fc1/add"],
            "blob": "commands",
            "bytes": 28,
            "ports": {},
            "rows": [{"at": 0, "text": "1:32[6] = 1:0[6] + 2:0[6]", "layer": "fc1/add: y"}],
        }

    def test_a_model_without_streams(self, uma: Uma, install: Install) -> None:
        install()
        given = ("explain", "m.py", "--target", "plain")
        assert uma(*given, "--stream").out == uma(*given).out
        assert uma(*given, "--stream", "--json").json["streams"] == []
