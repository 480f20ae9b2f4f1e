"""Every example of the founding documents on targets, under the number of its document."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from tests._support.plugins import HOST, built, entry_of, module_of, taking
from tests._support.regions import CHAIN, RELU
from tests._support.target_kinds import ALIASES, KINDS, Registry

from uma.errors import UsageError
from uma.lowering.build_targets import resolve_targets
from uma.plugins import PluginHost
from uma.targets import Alias, Attribute, ListOf, Target, TargetKind, parse_target
from uma.targets.config import CompilationConfig, refines
from uma.targets.parsing import COMPOSITE_KIND

REGISTRY = Registry()


def parse(text: str) -> Target:
    return parse_target(text, REGISTRY.lookup)


def config(given: object) -> CompilationConfig:
    return CompilationConfig.resolve(given, REGISTRY)


def test_000_a_backend_registers_attributes_and_a_string_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = tuple(Attribute(f"ultra_trail_attr_{n}", str, help="an attribute") for n in (1, 2))
    entries = entry_of(TargetKind("ultra_trail", attributes, help="an accelerator", device_type="npu"))
    host = PluginHost(lambda: entries)
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    ut_target = Target("ultra_trail -ultra_trail_attr_1=attr1 -ultra_trail_attr_2=attr2")
    assert ut_target.get_attr("ultra_trail_attr_1") == "attr1"
    assert ut_target.get_attr("ultra_trail_attr_2") == "attr2"


def test_000_attributes_have_types_not_only_strings() -> None:
    target = parse("npu -array_dim=16 -clock_hz=250k -dense=true -gains=1,0.5")
    assert [target.get_attr(name) for name in ("array_dim", "clock_hz", "dense", "gains")] == [
        16,
        250e3,
        True,
        (1, 0.5),
    ]


def test_000_every_kind_has_the_attributes_that_the_registration_lists() -> None:
    target = parse("arm_acl -keys=arm,cpu -tag=mine -host='c -mcpu=cortex-a72'")
    assert target.get_attr("keys") == ("arm", "cpu") and target.tag == target.get_attr("tag") == "mine"
    assert target.host is target.get_attr("host") and target.host == parse("c -mcpu=cortex-a72")


WITH_ACL = parse("composite -host=llvm -devices=arm_acl")


def test_001_first_proposal_accelerators_of_a_host() -> None:
    llvm = REGISTRY.lookup("llvm")
    assert isinstance(llvm, TargetKind)
    assert [attribute.name for attribute in llvm.attributes] == [
        "keys", "accelerators", "libs", "mcpu", "mattr", "mtriple", "mfloat-abi",
    ]  # fmt: skip
    target = parse("llvm -mcpu=cortex-a72 -mattr=+neon,+fp -mfloat-abi=hard -libs=blas -accelerators=arm_acl,npu")
    assert target.get_attr("keys") == ("cpu",) and target.get_attr("mfloat-abi") == "hard"
    assert config(target).accelerators == (parse("arm_acl"), parse("npu"))
    assert config("llvm -accelerators=arm_acl").canonical == WITH_ACL


def test_001_second_proposal_a_composite() -> None:
    spelled = {"kind": "composite", "target_host": {"kind": "llvm"}, "accelerators": [{"kind": "arm_acl"}]}
    assert parse("composite -target_host=llvm -accelerators=arm_acl") == WITH_ACL
    assert Target.from_json(spelled, REGISTRY.lookup) == WITH_ACL
    assert config(spelled) == config("llvm -accelerators=arm_acl")


def test_001_an_accelerator_is_not_used_alone() -> None:
    with pytest.raises(Exception, match="'arm_acl' cannot run a whole model alone") as caught:
        config("arm_acl -threads=2")
    assert "--target \"c -accelerators='arm_acl -threads=2'\"" in str(caught.value)


def test_001_an_alias_replaces_a_composite() -> None:
    assert config("acl") == config(WITH_ACL) and config("acl").canonical == WITH_ACL
    assert parse("acl") == WITH_ACL.with_name(None, "acl")


def test_001_a_plugin_brings_the_alias_beside_its_kind() -> None:
    record = {"kind": "composite", "target_host": {"kind": "plain"}, "accelerators": [{"kind": "arm_acl"}]}
    kind, alias = TargetKind("arm_acl", help="a library"), Alias("acl", record, help="arm_acl on a plain host")
    entries = [*entry_of(kind, alias, patterns=lambda target: [taking("arm_acl", "nn.relu")]), *entry_of(HOST)]
    members = resolve_targets("acl", PluginHost(lambda: entries))
    assert [member.label for member in members.all] == ["arm_acl", "plain"]
    built(module_of(RELU), members)


def test_002_the_current_target_is_that_of_the_hook() -> None:
    """`Target.current().get_attr("foo")` works wherever code of the plugin runs."""
    seen: list[object] = []

    def noting(gives: Any) -> Any:
        def hook(target: Target) -> Any:
            seen.append((Target.current().get_attr("foo"), target is Target.current()))
            return gives

        return hook

    kind = TargetKind("my_backend", (Attribute("foo", int, default=1, help="foo"),), help="h", device_type="npu")
    hooks = {
        "patterns": noting([taking("my_backend", "nn.relu")]),
        "passes": noting([]),
        "strategies": noting([]),
        "runtime": noting(None),
    }
    entries = [*entry_of(kind, **hooks), *entry_of(HOST)]
    built(CHAIN, resolve_targets(["my_backend -foo=7", "plain"], PluginHost(lambda: entries)))
    assert seen and set(seen) == {(7, True)}


def test_002_a_target_without_attributes_is_enough() -> None:
    assert Target(KINDS[4]) == parse("arm_acl") and Target(KINDS[4]).get_attr("threads") is None


def test_003_two_cpus_have_labels() -> None:
    found = config("low_power_cpu: c -mcpu=cortex-m0; inference_cpu: c -mcpu=cortex-m7f")
    assert [(host.label, host.name, host.attrs["mcpu"]) for host in found.hosts] == [
        ("low_power_cpu", "low_power_cpu", "cortex-m0"),
        ("inference_cpu", "inference_cpu", "cortex-m7f"),
    ]
    assert found.hosts[1].get_attr("mcpu") == "cortex-m7" and found.hosts[1].get_attr("mtriple") == "arm-none-eabi"


TENSORRT, CUTLASS, PLAIN = (
    parse(text)
    for text in ("cuda -arch=sm_80 -compiler=tensorrt", "cuda -arch=sm_80 -compiler=cutlass", "cuda -arch=sm_80")
)


def test_004_a_compiler_refines_a_target() -> None:
    assert refines(TENSORRT, PLAIN) and refines(CUTLASS, PLAIN) and refines(PLAIN, PLAIN)
    assert not (refines(PLAIN, CUTLASS) or refines(TENSORRT, CUTLASS) or refines(CUTLASS, TENSORRT))
    assert [target.name for target in (TENSORRT, CUTLASS, PLAIN)] == ["tensorrt", "cutlass", "cuda"]


@pytest.mark.parametrize(
    "bag", [[TENSORRT, CUTLASS, PLAIN, "c"], [PLAIN, "c", CUTLASS, TENSORRT], ["c", CUTLASS, PLAIN, TENSORRT]]
)
def test_004_the_least_specialised_target_of_a_device_type(bag: list[Target | str]) -> None:
    assert config(bag).least_specialised("cuda") == PLAIN
    assert config(bag).least_specialised("cpu") == config(bag).default == parse("c")
    assert [str(target) for target in config(bag).accelerators][-1] == "cuda -arch=sm_80"
    assert {str(target) for target in config(bag).accelerators[:-1]} == {"tensorrt -arch=sm_80", "cutlass -arch=sm_80"}


_ARCH = Attribute("arch", str, help="architecture")
ON_CUDA = [TargetKind(name, (_ARCH,), help="h", device_type="cuda") for name in ("cuda", "tensorrt", "cutlass")]
"""The same with all of them of the device type ``cuda``."""


@pytest.mark.parametrize("order", list(itertools.permutations((TENSORRT, CUTLASS, PLAIN))))
@pytest.mark.parametrize("needs_device", [False, True])
def test_004_compilers_of_the_same_device_type(order: list[Target], needs_device: bool) -> None:
    kinds = [ON_CUDA[0], *(replace(kind, needs_device=needs_device) for kind in ON_CUDA[1:])]
    registry = Registry([*kinds, *(kind for kind in KINDS if kind.name == "c")])
    found = CompilationConfig.resolve("; ".join(map(str, (*order, "c"))), registry)
    least = found.least_specialised("cuda")
    assert str(least) == "cuda -arch=sm_80" and sorted(found.compilers) == [("cutlass", "cuda"), ("tensorrt", "cuda")]
    again = CompilationConfig.resolve(found, registry)
    assert again == found and again.least_specialised("cuda") == least and again.compilers == found.compilers
    for one in found.accelerators:
        assert found.device(one) == (least if needs_device else one)


def test_004_a_compiler_that_is_labelled_or_given_as_well() -> None:
    registry = Registry([*ON_CUDA, *(kind for kind in KINDS if kind.name == "c")])
    for text, pairs in (
        ("trt: cuda -compiler=tensorrt; gpu: cuda; c", [("trt", "gpu")]),
        ("tensorrt -arch=a; cuda -compiler=tensorrt; c", [("tensorrt", "cuda")]),
        ("trt: tensorrt; cuda -compiler=tensorrt; c", [("trt", "cuda")]),
        ("c -compiler=tensorrt", [("tensorrt", "c")]),
    ):
        assert list(CompilationConfig.resolve(text, registry).compilers) == pairs
    # Only what compiles for a device of the type refines one.
    found = CompilationConfig.resolve("cuda; c -compiler=tensorrt", registry)
    with pytest.raises(UsageError, match="no least specialised target of device type 'cuda': 'cuda', 'tensorrt'"):
        found.least_specialised("cuda")


def test_004_it_makes_no_sense_to_try_tensorrt_on_a_target_that_is_not_cuda() -> None:
    kinds = [ON_CUDA[0], replace(ON_CUDA[1], needs_device=True), *KINDS[:3]]
    registry = Registry(kinds)
    assert CompilationConfig.resolve("tensorrt; cuda; c", registry).device(Target(kinds[1])) == Target(ON_CUDA[0])
    for text, why in (
        ("tensorrt; c", "no target of this build is one"),
        ("one: tensorrt; two: tensorrt; c", "no target of this build is one"),
        ("c -compiler=tensorrt", "no target of this build is one"),
        ("tensorrt; a: cuda; b: cuda; c", "there is no least specialised target of device type 'cuda'"),
    ):
        with pytest.raises(UsageError, match="needs a device of type 'cuda'") as caught:
            CompilationConfig.resolve(text, registry)
        assert why in caught.value.what and "add a target of device type 'cuda'" in str(caught.value.hint)
        assert str(caught.value.where).startswith("column ")
    # The attribute device_type says it of one target.
    with pytest.raises(UsageError, match="needs a device of type 'gpu': no target of this build is one"):
        CompilationConfig.resolve("tensorrt -device_type=gpu; cuda; c", registry)
    # A library that is called on the CPU of the first host.
    library = TargetKind("library", help="h", needs_device=True)
    found = CompilationConfig.resolve("library; x: c -mcpu=a; y: c -mcpu=b", Registry([*kinds, library]))
    assert found.device(found.accelerators[0]).name == "x"


def test_004_a_bag_is_one_target_a_list_or_a_dict() -> None:
    assert config("c").targets == config(["c"]).targets == (parse("c"),)
    listed = config([TENSORRT, CUTLASS, PLAIN, "c"])
    assert [target.name for target in listed.targets] == ["tensorrt", "cutlass", "cuda", "c"]
    labelled = config({"trt": str(TENSORRT), "gpu": PLAIN, "cpu": {"kind": "c"}})
    assert [str(target) for target in labelled.targets] == [
        "trt: tensorrt -arch=sm_80", f"gpu: {PLAIN}", "cpu: c",
    ]  # fmt: skip
    assert config("; ".join(map(str, (TENSORRT, CUTLASS, PLAIN, parse("c"))))) == listed


def test_the_composite_kind_takes_both_spellings_in_one_declaration() -> None:
    assert COMPOSITE_KIND.attribute("accelerators").name == "devices"
    assert COMPOSITE_KIND.attribute("target_host").name == "host"
    assert ListOf(Target) == COMPOSITE_KIND.attribute("devices").type and ALIASES[0].name == "acl"
