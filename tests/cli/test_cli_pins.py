"""``--pin``: which layers run on which target, of all commands that build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests._support.plugins import HOST, entry_of, taking, toy
from tests._support.small_models import Uma

from uma.plugins import PluginHost
from uma.relay.pattern import Clause, Failed

MODEL = """\
@function
def main(x: Tensor[(2, 4), int32]) -> Tensor[(2, 4), int32]:
    v0: ('conv1',) = nn.relu(x)
    v1: ('conv2',) = add(v0, const([1, 2, 3, 4], int32))
    v2: ('a=b',) = nn.relu(v1)
    return v2
"""

TARGETS = ("--target", "one: npu", "--target", "two: npu", "--target", "plain")
WIDE = Clause("wide", lambda m: m.root.shape[1] == 8 or Failed(m.root.shape[1]), "eight channels, not {value}")


@pytest.fixture
def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs an accelerator beside a plain host, and writes the model ``m.py``."""

    def installed(add_predicate: object = None) -> None:
        npu = toy("npu", patterns=lambda: [taking("npu", "nn.relu"), taking("npu", "add", predicate=add_predicate)])
        monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: [*npu, *entry_of(HOST)]))

    (folder / "m.py").write_text(MODEL)
    return installed


def test_explain_shows_where_things_are_and_why(uma: Uma, install: Callable[..., None]) -> None:
    install()
    done = uma("explain", "m.py", *TARGETS, "--pin", "conv*=two", "--pin", "conv1=plain", "--pin", "a=b=one")
    assert (done.code, done.err) == (0, "")
    assert (
        done.out
        == """\
m: 3 ops in 3 layers, 0 multiply-accumulates (MACs)
why layers are not on accelerators:
  layers  MACs  not  reason
       1     0  one  it is pinned to plain
       1     0  two  it is pinned to plain
       1     0  one  it is pinned to two
  00 relu 2x4 [conv1] -> plain, pinned to plain
      not one: it is pinned to plain
      not two: it is pinned to plain
  01 add 2x4 [conv2] -> two_0 as npu.add, pinned to two
      not one: it is pinned to two
  02 relu 2x4 [a=b] -> one_0 as npu.relu, pinned to one
  target  ops  MACs  share of MACs
  one       1     0           0.0%
  two       1     0           0.0%
  plain     1     0           0.0%
"""
    )
    record = uma("explain", "m.py", *TARGETS, "--pin", "conv2=two", "--json").json
    assert [(op["owner"], op["pin"]) for op in record["ops"]] == [("one", None), ("two", "two"), ("one", None)]


def test_every_command_that_builds_takes_them(uma: Uma, install: Callable[..., None], folder: Path) -> None:
    install()
    pins = ("--pin", "conv*=two", "--pin", "a=b=plain")
    assert uma("verify", "m.py", *TARGETS, *pins).code == 0
    assert uma("run", "m.py", *TARGETS, *pins).code == 0
    assert uma("build", "m.py", *TARGETS, *pins, "-o", "out", "--dump", "d").code == 0
    assert "nn.relu(x) @ 'two'" in (folder / "d" / "1-import.py").read_text()
    assert "Compiler='two'" in (folder / "d" / "3-partition.py").read_text()
    stopped = uma("build", "m.py", *TARGETS, *pins, "--stop-after", "partition")
    assert "@ 'plain'" in stopped.out and "Compiler='one'" not in stopped.out


def test_a_pin_that_cannot_be(uma: Uma, install: Callable[..., None], folder: Path) -> None:
    """One error with the layer, the label, and the clause with the value that fails it; nothing is written."""
    install([WIDE])
    for command in ("build", "explain", "run", "verify"):
        said = uma(command, "m.py", *TARGETS, "--pin", "conv*=two").error(4)
        assert said.splitlines() == [
            "conv2: add is pinned to 'two', which does not take it: npu.add: clause wide: eight channels, not 4",
            "  hint: pin them elsewhere, or leave the choice to the partitioner",
        ]
    assert not (folder / "build").exists()


def test_what_is_required_to_be_offloaded_and_pinned(uma: Uma, install: Callable[..., None]) -> None:
    install()
    assert uma("build", "m.py", *TARGETS, "--pin", "*=plain", "--require-offload", "0%", "-o", "out").code == 0
