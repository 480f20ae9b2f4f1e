"""`CompilationConfig`: hosts and accelerators of any targets, in their order of priority."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from tests._support.target_kinds import ALIASES, KINDS, Registry

from uma.errors import PluginError, UsageError
from uma.targets import Target, TargetKind, read_targets
from uma.targets.config import CompilationConfig, derivations
from uma.targets.parsing import COMPOSITE_KIND

REGISTRY = Registry()


def config(given: object) -> CompilationConfig:
    return CompilationConfig.resolve(given, REGISTRY)


@pytest.mark.parametrize(
    ("given", "hosts", "accelerators"),
    [
        ("c", "c", ""),
        (["npu", "c"], "c", "npu"),
        (["c", "npu"], "c", "npu"),
        ("c -accelerators=npu,arm_acl", "c", "npu; arm_acl"),
        ("composite -host=c -devices=npu,arm_acl", "c", "npu; arm_acl"),
        ("composite -host='c -accelerators=npu' -devices=arm_acl", "c", "arm_acl; npu"),
        ("composite -devices=npu,c", "c", "npu"),
        ("composite -host=llvm -devices=npu,c", "llvm; c", "npu"),
        ("composite -host=llvm -devices=npu,(composite -host=llvm -devices=arm_acl)", "llvm", "npu; arm_acl"),
        ("npu -host=c", "c", "npu"),
        (["npu -host=c", "arm_acl -host=c"], "c", "npu; arm_acl"),
        (["npu -host=c", "c"], "c", "npu"),
        (["llvm", "npu -host=c"], "c; llvm", "npu"),
        (["llvm -host=c", "npu"], "c; llvm", "npu"),
        ("lonely", "c -mcpu=generic", "lonely"),
        ("x: lonely; npu", "c -mcpu=generic", "x: lonely; npu"),
        (["lonely", "llvm"], "llvm", "lonely"),
        ("acl", "llvm", "arm_acl"),
        (["acl", "x: arm_acl"], "llvm", "arm_acl; x: arm_acl"),
        ("c -accelerators=[]", "c", ""),
        ("npu -tag=x; c -tag=y", "c -tag=y", "npu -tag=x"),
        ("c -accelerators=npu -tag=y", "c", "npu"),
        ("pair", "c", "one: npu; two: npu -array_dim=4"),
    ],
)
def test_hosts_and_accelerators(given: object, hosts: str, accelerators: str) -> None:
    found = config(given)
    assert "; ".join(map(str, found.hosts)) == hosts and "; ".join(map(str, found.accelerators)) == accelerators
    assert found.host is found.hosts[0] and found.targets == (*found.accelerators, *found.hosts)
    assert config(found) == config(found.canonical) == config(list(found.targets)) == found
    assert config(found).notes == config(found.canonical).notes == ()


def test_all_forms_of_one_machine_are_one() -> None:
    npu = "npu0: npu -array_dim=4"
    record = {"kind": "npu", "label": "npu0", "array_dim": 4}
    forms: list[Any] = [
        [npu, "arm_acl", "c"],
        f"c -accelerators='{npu}',arm_acl",
        f"composite -host=c -devices=({npu}),arm_acl",
        {"kind": "composite", "target_host": "c", "accelerators": [record, "arm_acl"]},
        [f"{npu} -host=c", "arm_acl"],
        {"npu0": "npu -array_dim=4", "arm_acl": "arm_acl", "c": "c"},
    ]
    texts = {str(config(form).canonical) for form in forms[:-1]}
    assert texts == {f"composite -devices='{npu}',arm_acl -host=c"}
    assert [target.name for target in config(forms[-1]).targets] == ["npu0", "arm_acl", "c"]


def test_what_was_decided_is_said() -> None:
    assert config("lonely").notes == ("no host was given: 'c -mcpu=generic' was added, the default host of 'lonely'",)
    assert config(["npu -host=c", "arm_acl -host=llvm"]).notes == (
        "the host 'llvm', which 'arm_acl -host=llvm' names, gives way to 'c'",
    )
    assert config(["npu -host=c", "llvm"]).notes == ("'c', which 'npu -host=c' names, goes before 'llvm' as the host",)
    assert config(["npu", "c"]).notes == config("acl").notes == ()


def test_what_follows_is_said() -> None:
    found = config(["npu", "low: c -mcpu=cortex-m0", "c -mcpu=cortex-m7f -mtriple=arm-none-eabi"])
    assert derivations(found.targets) == (
        "from 'low: c -mcpu=cortex-m0' follows -mtriple=arm-none-eabi",
        "from 'c -mcpu=cortex-m7f -mtriple=arm-none-eabi' follows -mcpu=cortex-m7 in place of cortex-m7f, "
        "-cflags=-mfpu=fpv5-sp-d16,-mfloat-abi=hard",
    )
    assert derivations(config(["npu", "c"]).targets) == ()


def test_every_interleaving_is_the_same() -> None:
    hosts, others = ["c", "llvm"], ["npu", "x: npu"]
    for order in itertools.permutations([*hosts, *others]):
        if order.index("c") < order.index("llvm") and order.index("npu") < order.index("x: npu"):
            assert config(list(order)) == config([*hosts, *others])
    assert config(["llvm", "c"]) != config(["c", "llvm"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("npu", "'npu' cannot run a whole model alone"),
        (["x: npu", "arm_acl"], "'x' and 'arm_acl' cannot run a whole model alone"),
        ("composite -devices=npu", "'npu' cannot run a whole model alone"),
        (["c", "c"], "two targets are called 'c': c and c"),
        (["c", "c -mcpu=a"], "two targets are called 'c': c and c -mcpu=a"),
        (["npu", "c -accelerators='npu -array_dim=4'"], "two targets are called 'npu'"),
        (["npu -host='c -mcpu=a'", "c"], "two targets are called 'c': c -mcpu=a and c"),
    ],
)
def test_targets_that_do_not_go_together(given: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        config(given)
    assert message in caught.value.what


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("npu", '"c -accelerators=npu"'),
        (["npu -note='a b'", "x: arm_acl"], "\"c -accelerators=(npu -note='a b'),'x: arm_acl'\""),
        ("npu -note='$x'", "'c -accelerators=(npu -note='\"'\"'$x'\"'\"')'"),
    ],
)
def test_an_accelerator_alone_is_refused_with_what_would_work(given: Any, remedy: str) -> None:
    import shlex

    with pytest.raises(UsageError) as caught:
        config(given)
    assert caught.value.hint == f"give a host besides: --target {remedy}"
    [text] = shlex.split(remedy)
    assert config(text).accelerators == read_targets(given, REGISTRY.lookup)


def column(at: int, text: str, path: str = "") -> str:
    """Where an error points in a text."""
    return f"column {at} of the target{', in ' + path if path else ''}\n    {text}\n    {' ' * (at - 1)}^"


NPUS = Target(KINDS[2], label="x")
DRIVEN = "c -accelerators='x: npu',(x: npu)"
ARM = {"kind": "arm_acl", "label": "x"}


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ("npu", column(1, "npu")),
        ("x: npu; y: npu", column(4, "x: npu; y: npu")),
        ("composite -devices=npu", column(20, "composite -devices=npu", "devices[0]")),
        (["npu"], column(1, "npu")),
        (["npu", "arm_acl"], column(1, "npu", "[0]")),
        ({"kind": "npu"}, None),
        ([{"kind": "npu"}, {"kind": "arm_acl"}], "[0]"),
        ([{"kind": "composite", "devices": [{"kind": "npu"}]}, "arm_acl"], "[0].devices[0]"),
        ({"x": "npu"}, column(1, "npu", "['x']")),
        ("c; c", column(4, "c; c")),
        (["c", "c"], column(1, "c", "[1]")),
        (["c", {"kind": "c", "mcpu": "a"}], "[1]"),
        (["x: npu", {"kind": "npu", "label": "x"}, "c"], "[1].label"),
        ("x: npu; x: arm_acl", column(9, "x: npu; x: arm_acl")),
        (DRIVEN, column(27, DRIVEN, "accelerators[1]")),
        (["c", "npu -host='c -mcpu=a'"], column(1, "c", "[0]")),
        ({"kind": "composite", "host": "c", "devices": [{"kind": "npu", "label": "x"}, ARM]}, "devices[1].label"),
        ({"kind": "composite", "host": "c", "devices": ["npu", {"kind": "npu"}]}, "devices[1]"),
        ({"kind": "llvm", "accelerators": [{"kind": "npu"}], "host": "c -accelerators=npu"},
         column(17, "c -accelerators=npu", "host.accelerators[0]")),
        ({"x": "npu", "y": {"kind": "c", "accelerators": [{"kind": "npu", "label": "x"}]}},
         "['y'].accelerators[0].label"),
        ({"y": "c -accelerators='x: npu'", "x": "npu"}, column(1, "npu", "['x']")),
        ({"y": "c", "x": "c -accelerators='y: npu'"}, column(18, "c -accelerators='y: npu'", "['x'].accelerators[0]")),
        (["c", NPUS, NPUS], "[2]"),
        (["c", NPUS, Target(COMPOSITE_KIND, {"devices": [NPUS, NPUS]})], "[2].devices[0]"),
        (["c", Target(COMPOSITE_KIND, {"devices": [NPUS, NPUS]})], "[1].devices[1]"),
        (["acl", "arm_acl"], column(1, "arm_acl", "[1]")),
        (["arm_acl", "acl"], "devices[0] of what 'acl' stands for"),
        (["one: npu", "pair"], column(1, "one: npu; two: npu -array_dim=4; c", "what 'pair' stands for")),
        ("c: lonely", column(1, "c: lonely")),
        ([], "the targets"),
        ({}, "the targets"),
        ("[]", column(1, "[]")),
    ],
)  # fmt: skip
def test_errors_say_where_the_target_was_given(given: Any, where: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        config(given)
    assert caught.value.where == where


def test_without_any_host() -> None:
    with pytest.raises(UsageError, match="no installed plugin brings one"):
        CompilationConfig.resolve("npu", Registry([KINDS[2]]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu", "its default host 'gpu' cannot be used: there is no target kind 'gpu'"),
        ("npu", "its default host 'npu' is not a host alone"),
        ("c -accelerators=npu", "is not a host alone"),
        ("acl", "its default host 'acl' is not a host alone"),
    ],
)
def test_a_default_host_that_is_none_is_the_plugins_fault(text: str, message: str) -> None:
    kind = TargetKind("odd", help="h", default_host=text)
    with pytest.raises(PluginError) as caught:
        CompilationConfig.resolve("odd", Registry([*KINDS, *ALIASES, kind]))
    assert message in caught.value.what


def test_attributes_without_an_effect_are_noted() -> None:
    found = config("npu -from_device=0; x: c -mattr=+neon,-fp -mfloat-abi=hard; llvm -mattr=+neon -mfloat-abi=soft")
    assert found.notes == (
        "-from_device of 'npu' has no effect: target kind 'npu' cannot read the attributes of its devices",
        "-mattr of 'x' has no effect: target kind 'c' does not read it",
        "-mfloat-abi of 'x' has no effect: target kind 'c' does not read it",
    )
    assert config(found).notes == found.notes


def test_the_least_specialised() -> None:
    found = config(["x: c -mcpu=a -mtriple=b", "c -mcpu=a", "one: npu", "two: npu", "cuda -arch=b", "d: cuda -keys=y"])
    assert str(found.least_specialised("cpu")) == str(found.default) == "c -mcpu=a"
    assert str(found.host) == "x: c -mcpu=a -mtriple=b"
    with pytest.raises(UsageError, match="no least specialised target of device type 'npu': 'one: npu', 'two: npu'"):
        found.least_specialised("npu")
    with pytest.raises(UsageError, match="'cuda -arch=b', 'd: cuda -keys=y'"):
        found.least_specialised("cuda")
    with pytest.raises(UsageError, match="there is no target of device type 'dsp'") as caught:
        found.least_specialised("dsp")
    assert caught.value.hint == "there are cpu, cuda, npu"
    other = config(["c -mcpu=b", "x: c -mcpu=a -mtriple=x", "npu -device_type=dsp"])
    assert str(other.default) == "c -mcpu=b" and str(other.least_specialised("dsp")) == "npu -device_type=dsp"


@pytest.mark.parametrize(
    ("given", "hosts", "accelerators"),
    [
        ("c -compiler=npu", "c", "npu"),
        ("c -mcpu=a -compiler=npu", "c -mcpu=a", "npu"),
        ("llvm -keys=a -compiler=arm_acl", "llvm -keys=a", "arm_acl"),
        ("cuda -arch=sm_80 -compiler=tensorrt -host=c", "c", "tensorrt -arch=sm_80; cuda -arch=sm_80"),
        ("cuda -keys=a -arch=sm_80 -compiler=tensorrt -host=c", "c", "tensorrt -arch=sm_80; cuda -arch=sm_80 -keys=a"),
        ("npu; cuda -compiler=cutlass; c", "c", "npu; cutlass; cuda"),
        # The name of the whole is that of X.
        ("x: c -compiler=npu", "c", "x: npu"),
        ({"x": "c -compiler=npu", "y": "c"}, "y: c", "x: npu"),
        ("x: c -compiler=npu; y: c -compiler=npu", "c", "x: npu; y: npu"),
        # H -compiler=X and H, and X, are one H and one X.
        ("c -compiler=npu; c", "c", "npu"),
        ("c -mcpu=a -compiler=npu; y: c -mcpu=a", "y: c -mcpu=a", "npu"),
        ("c -compiler=npu; npu", "c", "npu"),
        ("npu; c -compiler=npu", "c", "npu"),
        ("npu0: npu; c -compiler=npu", "c", "npu0: npu"),
        ("npu; x: c -compiler=npu", "c", "x: npu"),
        ("npu0: npu -array_dim=4; c -compiler=npu", "c", "npu0: npu -array_dim=4"),
        ("a: npu; b: npu; c -compiler=npu", "c", "a: npu; b: npu"),
        ("cuda -arch=sm_80 -compiler=tensorrt; tensorrt; c", "c", "tensorrt -arch=sm_80; cuda -arch=sm_80"),
        ("tensorrt -workspace=1; cuda -compiler=tensorrt; c", "c", "tensorrt -workspace=1; cuda"),
        ("tensorrt -workspace=1 -host=c; cuda -compiler=tensorrt", "c", "tensorrt -workspace=1; cuda"),
        # X stands before H, however they are given.
        ("cuda; npu; cuda -compiler=cutlass; cuda -compiler=tensorrt; c", "c", "cutlass; tensorrt; cuda; npu"),
        ("cuda; tensorrt; cuda -compiler=tensorrt; c", "c", "tensorrt; cuda"),
        ("cuda -compiler=cutlass; cuda -compiler=tensorrt; cuda; c", "c", "cutlass; tensorrt; cuda"),
        # What X leaves goes to the least specialised.
        ("c -mcpu=a -compiler=npu; c", "c", "npu"),
        ("c -mcpu=a -compiler=npu; c -compiler=arm_acl", "c", "npu; arm_acl"),
        ("c -mcpu=a -compiler=npu; y: c; x: c -mcpu=a", "y: c; x: c -mcpu=a", "npu"),
        ("y: llvm; c -compiler=npu", "c; y: llvm", "npu"),
        ("llvm -compiler=npu; c -compiler=arm_acl", "llvm; c", "npu; arm_acl"),
        ("cuda -arch=sm_80 -compiler=tensorrt; cuda; c", "c", "tensorrt -arch=sm_80; cuda"),
        # Within others.
        ("c -compiler=arm_acl -accelerators=npu", "c", "arm_acl; npu"),
        ("npu -host='c -compiler=arm_acl'", "c", "npu; arm_acl"),
        ("composite -host=(c -compiler=npu) -devices=(cuda -compiler=cutlass)", "c", "npu; cutlass; cuda"),
        ("lonely -compiler=npu", "c -mcpu=generic", "npu; lonely"),
        # A kind compiles for itself.
        ("c -compiler=c", "c", ""),
        ("x: npu -compiler=npu -host=c", "c", "x: npu"),
    ],
)  # fmt: skip
def test_who_compiles_for_a_target_stands_beside_it(given: object, hosts: str, accelerators: str) -> None:
    found = config(given)
    assert "; ".join(map(str, found.hosts)) == hosts and "; ".join(map(str, found.accelerators)) == accelerators
    assert found.default == found.host
    assert config(found) == config(found.canonical) == config(list(found.targets)) == found
    assert config(found).notes == config(found.canonical).notes == ()


def test_what_of_a_compiler_was_decided_is_said() -> None:
    assert config("c -compiler=npu").notes == config("c -compiler=npu; c").notes == ()
    assert config("c -mcpu=a -compiler=npu; c").notes == (
        "what 'c -mcpu=a -compiler=npu' leaves goes to 'c', which is less specialised",
    )
    assert config("cuda -arch=sm_80 -compiler=tensorrt; cuda; lonely").notes == (
        "what 'cuda -arch=sm_80 -compiler=tensorrt' leaves goes to 'cuda', which is less specialised",
        "no host was given: 'c -mcpu=generic' was added, the default host of 'lonely'",
    )
    assert config("llvm; c -compiler=npu").notes == (
        "'c', which 'c -compiler=npu' names, goes before 'llvm' as the host",
    )


@pytest.mark.parametrize(
    ("given", "message", "where"),
    [
        ("c -compiler=nothing", "there is no target kind 'nothing', which 'c -compiler=nothing' names as its compiler",
         column(1, "c -compiler=nothing")),
        ("x: npu; cuda -compiler=nothing; c", "there is no target kind 'nothing', which 'cuda -compiler=nothing' names",
         column(9, "x: npu; cuda -compiler=nothing; c")),
        ({"kind": "npu", "host": {"kind": "c", "compiler": "nothing"}}, "there is no target kind", "host.compiler"),
        ({"kind": "c", "compiler": "acl"}, "'acl', which 'c -compiler=acl' names as its compiler, stands for a whole",
         "compiler"),
        ({"kind": "c", "compiler": "llvm"}, "'llvm', which 'c -compiler=llvm' names as its compiler, runs whole models",
         "compiler"),
        ({"kind": "cuda", "arch": "sm_90", "compiler": "tensorrt", "host": "c"},
         "'sm_90' does not fit attribute 'arch'", "compiler"),
        ({"kind": "c", "compiler": "needy"}, "target kind 'needy' needs attribute 'at'", "compiler"),
        (["c -mcpu=a", "c -compiler=npu"], "two targets are called 'c': c and c -mcpu=a",
         column(1, "c -mcpu=a", "[0]")),
        (["cuda -arch=sm_80 -compiler=tensorrt", "cuda -arch=sm_75 -compiler=tensorrt", "c"],
         "two targets are called 'tensorrt'", column(1, "cuda -arch=sm_75 -compiler=tensorrt", "[1]")),
        ("npu -compiler=arm_acl", "'arm_acl' and 'npu' cannot run a whole model alone", None),
    ],
)  # fmt: skip
def test_compilers_that_cannot_be(given: Any, message: str, where: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        config(given)
    assert message in caught.value.what
    assert where is None or caught.value.where == where


def test_a_configuration_is_a_value() -> None:
    assert config("c") == config(["c"]) and hash(config("c")) == hash(config(["c"]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config("c").hosts = ()  # type: ignore[misc]  # frozen: the test is about that
