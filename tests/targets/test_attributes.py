"""Lists, maps, units, former names and nested targets as attributes; and what follows from attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests._support.target_kinds import KINDS, Registry

from uma.errors import PluginError, UsageError
from uma.targets import Alias, Attribute, ListOf, MapOf, Target, TargetKind, parse_target
from uma.targets.parsing import COMPOSITE_KIND
from uma.targets.values import MAX_ITEMS, FrozenMap

C, LLVM, NPU = KINDS[:3]


def parse(text: str) -> Target:
    return parse_target(text, Registry().lookup)


@pytest.mark.parametrize(
    ("type_", "more", "message"),
    [
        (ListOf(list), {}, "its type must be"),  # type: ignore[arg-type]  # a list is not a type of elements
        (MapOf(("x", "x")), {}, "a choice is listed twice"),
        (ListOf(int), {"pattern": "x"}, "only str has a pattern"),
        (ListOf(str), {"low": 1}, "only numbers have bounds"),
        (ListOf(int), {"default": [1, "x"]}, "its default a value of type list does not fit"),
        (MapOf(int), {"default": {"": 1}}, "its default a value of type dict does not fit"),
        (int, {"unit": "metres"}, "its unit 'metres' is none of bytes, Hz"),
        (str, {"unit": "bytes"}, "only numbers have a unit"),
        (int, {"also": "x"}, "'also' is a tuple of names"),
        (int, {"known": ("x",)}, "'known' is a tuple of texts that it accepts"),
        (str, {"known": ["x"]}, "'known' is a tuple of texts that it accepts"),
        (str, {"known": ("x", "Y"), "pattern": "[a-z]"}, "'known' is a tuple of texts that it accepts"),
        ((), {}, "it needs at least one choice"),
        ((1, "x"), {}, "its choices must be strings, printable and not too long, or whole numbers"),
        ((True,), {}, "or whole numbers"),
        ((2**63,), {}, "or whole numbers"),
        ((4, 8), {"default": 5}, "its default 5 does not fit"),
        ((4, 8), {"low": 1}, "only numbers have bounds"),
        (float, {"multiple_of": 2}, "only whole numbers are multiples"),
        (int, {"multiple_of": 0}, "it is a multiple of 0, which is not a positive whole number"),
        (int, {"multiple_of": True}, "it is a multiple of True, which"),
        (int, {"multiple_of": 64, "default": 100}, "its default 100 does not fit"),
        (int, {"deprecated": ("X",)}, "'deprecated' is a tuple of names"),
    ],
)
def test_a_contradictory_attribute(type_: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError) as caught:
        Attribute("a", type_, help="h", **more)
    assert message in caught.value.what


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attributes": (Attribute("kind", str, help="h"),)}, "cannot be called 'kind'"),
        ({"attributes": (Attribute("a", str, also=("label",), help="h"),)}, "cannot be called 'label'"),
        ({"attributes": (Attribute("a", str, also=("b",), help="h"), Attribute("b", str, help="h"))}, "declared twice"),
        ({"attributes": (Attribute("keys", str, help="h"),)}, "attribute 'keys' has another type"),
        ({"attributes": (Attribute("accelerators", str, help="h"),), "is_host": True}, "has another type"),
        ({"default_host": "c", "is_host": True}, "a host has no default host"),
        ({"features": lambda target: frozenset()}, "features are of hosts, and it is none"),
    ],
)
def test_a_contradictory_kind(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError) as caught:
        TargetKind("k", **{"help": "h", **fields})
    assert message in caught.value.what


@pytest.mark.parametrize(
    ("name", "expands_to", "help_text", "message"),
    [("A", "c", "h", "its name"), ("a", "c", " ", "help text"), ("a", 3, "h", "it cannot expand to 3")],
)
def test_a_contradictory_alias(name: str, expands_to: Any, help_text: str, message: str) -> None:
    with pytest.raises(PluginError) as caught:
        Alias(name, expands_to, help=help_text)
    assert message in caught.value.what


@pytest.mark.parametrize(
    ("type_", "unit", "text", "value"),
    [
        (int, "bytes", "256K", 256 * 1024),
        (int, "bytes", "4M", 4 << 20),
        (int, "bytes", "1G", 1 << 30),
        (int, "bytes", "0x40000000", 0x40000000),
        (int, "Hz", "48k", 48_000),
        (float, "Hz", "2.5M", 2_500_000.0),
        (float, "bytes", "0.5K", 512.0),
        (int, "bytes", "512", 512),
    ],
)
def test_numbers_may_have_a_unit(type_: Any, unit: Any, text: str, value: float) -> None:
    parsed = Attribute("a", type_, unit=unit, help="h").parse(text)
    assert parsed == value and type(parsed) is type_


@pytest.mark.parametrize(
    ("unit", "text"), [(None, "1K"), ("bytes", "1k"), ("Hz", "1K"), ("bytes", "0x1K"), ("bytes", "K"), ("bytes", "1KB"),
                       ("bytes", "9999999999G")]
)  # fmt: skip
def test_what_is_no_unit(unit: Any, text: str) -> None:
    with pytest.raises(UsageError, match="does not fit attribute 'a'"):
        Attribute("a", int, unit=unit, help="h").parse(text)


MACS = Attribute("macs", (32, 64, 0x10000), unit="bytes", help="h")
BANKS = Attribute("banks", ListOf(int), multiple_of=64, low=0, unit="bytes", help="h")


@pytest.mark.parametrize(
    ("attribute", "text", "value"),
    [(MACS, "64", 64), (MACS, "0x20", 32), (MACS, "64K", 65536), (BANKS, "1K", 1024), (BANKS, "0", 0)],
)
def test_numbers_of_a_choice_and_multiples(attribute: Attribute, text: str, value: int) -> None:
    parsed = attribute.parse(text)
    assert parsed == value and type(parsed) is int


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        (MACS, 33, "33 does not fit attribute 'macs'"),
        (MACS, 64.0, "64.0 does not fit attribute 'macs'"),
        (MACS, "64", "'64' does not fit attribute 'macs'"),
        (Attribute("on", (0, 1), help="h"), True, "True does not fit attribute 'on'"),
        (BANKS, [64, 65], "65 does not fit attribute 'banks[1]'"),
        (BANKS, [-64], "-64 does not fit attribute 'banks[0]'"),
    ],
)
def test_numbers_outside_of_a_choice_or_no_multiples(attribute: Attribute, value: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        attribute.check(value)
    assert caught.value.what == message and (caught.value.hint or "").startswith("it takes")


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        (NPU.attribute("gains"), "a list, each item a number"),
        (NPU.attribute("modes"), "a list, each item one of fast, small"),
        (NPU.attribute("table"), "a map, each value a whole number"),
        (NPU.attribute("fallback"), "a target"),
        (NPU.attribute("spad"), "a whole number of bytes, at least 0"),
        (Attribute("a", int, high=4, unit="Hz", help="h"), "a whole number of Hz, at most 4"),
        (Attribute("a", int, low=1, high=4, unit="bytes", help="h"), "a whole number of bytes from 1 to 4"),
        (Attribute("a", int, multiple_of=4, help="h"), "a whole number, a multiple of 4"),
        (Attribute("a", int, low=8, high=32, multiple_of=8, help="h"), "a whole number from 8 to 32, a multiple of 8"),
        (Attribute("a", (32, 64), help="h"), "one of 32, 64"),
        (Attribute("a", ListOf((32, 64)), help="h"), "a list, each item one of 32, 64"),
    ],
)
def test_what_an_attribute_takes_in_words(attribute: Attribute, words: str) -> None:
    assert attribute.allowed() == words


@pytest.mark.parametrize(
    ("text", "name", "value", "canonical"),
    [
        ("npu -gains=1,2.5", "gains", (1.0, 2.5), "npu -gains=1.0,2.5"),
        ("npu -gains=[1,2.5]", "gains", (1.0, 2.5), "npu -gains=1.0,2.5"),
        ("npu -gains=1", "gains", (1.0,), "npu -gains=1.0"),
        ("npu -gains=[]", "gains", (), "npu -gains=[]"),
        ("c -cflags='a b',-mthumb,-mfloat-abi=hard", "cflags", ("a b", "-mthumb", "-mfloat-abi=hard"), None),
        ("c -cflags=''", "cflags", ("",), None),
        ("npu -table={relu:2,'a b':0x10}", "table", {"relu": 2, "a b": 16}, "npu -table={'a b':16,relu:2}"),
        ("npu -table={}", "table", {}, None),
        ("npu -fallback=npu", "fallback", Target(NPU), None),
        ("npu -fallback='npu -array_dim=4'", "fallback", Target(NPU, {"array_dim": 4}), None),
        ("npu -fallback=(x: npu)", "fallback", Target(NPU, label="x"), "npu -fallback='x: npu'"),
        ("npu -fallback=(npu -note='a b')", "fallback", Target(NPU, {"note": "a b"}), None),
        (r"npu -fallback='npu -note=\'a\''", "fallback", Target(NPU, {"note": "a"}), "npu -fallback='npu -note=a'"),
        ("npu -parts={one:npu}", "parts", {"one": Target(NPU)}, None),
    ],
)  # fmt: skip
def test_lists_maps_and_targets(text: str, name: str, value: object, canonical: str | None) -> None:
    target = parse(text)
    assert target.get_attr(name) == value
    assert str(target) == (canonical or text)
    assert parse(str(target)) == Target.from_json(target.to_json(), Registry().lookup) == target


def test_defaults_of_lists_are_tuples_and_maps_do_not_change() -> None:
    assert parse("llvm").get_attr("keys") == ("cpu",) and parse("c").get_attr("cflags") == ()
    table = parse("npu -table={a:1}").get_attr("table")
    assert table == {"a": 1} and repr(table) == "{'a': 1}" and hash(table) == hash(FrozenMap({"a": 1}))
    with pytest.raises(TypeError):
        table["b"] = 2


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"gains": "12"}, "'12' does not fit attribute 'gains'"),
        ({"gains": [1, "2"]}, "'2' does not fit attribute 'gains[1]'"),
        ({"gains": [0] * (MAX_ITEMS + 1)}, "a value of type list does not fit attribute 'gains'"),
        ({"table": {"a": 1.5}}, "1.5 does not fit attribute 'table.a'"),
        ({"table": {"a\n": 1}}, r"'a\n' is not a key of attribute 'table'"),
        ({"table": {3: 1}}, "3 is not a key of attribute 'table'"),
        ({"table": [1]}, "a value of type list does not fit attribute 'table'"),
        ({"fallback": "npu"}, "'npu' does not fit attribute 'fallback'"),
        ({"array_dim": 4, "dim": 4}, "attribute 'array_dim' is given twice"),
        ({"tag": "A B"}, "'A B' does not fit attribute 'tag'"),
    ],
)
def test_objects_that_do_not_fit(attrs: Mapping[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Target(NPU, attrs)
    assert message == caught.value.what and caught.value.where == "target kind 'npu'"


@pytest.mark.parametrize(
    ("kind", "attrs", "where", "message"),
    [
        (NPU, {"host": Target(NPU)}, "host", "'npu' cannot be the host of 'npu': it runs no whole model"),
        (C, {"host": Target(C)}, "host", "'c' is the host of itself"),
        (NPU, {"host": Target(C, host=Target(LLVM))}, "host", "the host of 'npu' has a host itself"),
        (NPU, {"compiler": "lambda"}, "compiler", "'lambda' is not a label"),
    ],
)
def test_what_is_wrong_with_one_attribute_says_with_which(
    kind: TargetKind, attrs: Mapping[str, object], where: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Target(kind, attrs)
    assert message == caught.value.what and caught.value.where == where


def test_other_names_are_taken_and_former_ones_with_a_warning() -> None:
    assert str(parse("npu -spad_bytes=1K")) == "npu -spad=1024"
    with pytest.warns(FutureWarning, match="attribute 'dim' of target kind 'npu' is now called 'array_dim'"):
        target = parse("npu -dim=4")
    assert str(target) == "npu -array_dim=4" and target.get_attr("dim") == 4
    with pytest.raises(UsageError, match="attribute 'array_dim' is given twice"):
        parse("npu -dim=4 -array_dim=4")


def test_what_every_kind_has() -> None:
    assert [a.name for a in C.common] == [
        *("keys", "device_type", "compiler", "accelerators", "executor", "clock_hz", "launch_ns", "mattr"),
        *("mfloat-abi", "device", "model", "libs", "from_device", "host", "tag"),
    ]
    assert [a.name for a in NPU.common] == [
        *("keys", "device_type", "compiler", "impl", "base", "launch_ns"),
        *("device", "model", "libs", "from_device", "host", "tag"),
    ]
    assert [a.name for a in LLVM.common] == [
        *("device_type", "compiler", "executor", "clock_hz", "launch_ns", "device", "model", "from_device"),
        *("host", "tag"),
    ]
    assert [a.name for a in COMPOSITE_KIND.common] == ["tag"]
    own = TargetKind("own", (Attribute("impl", ("a", "b"), default="b", help="h"),), help="h")
    assert Target(own).get_attr("impl") == "b" and Target(NPU).get_attr("impl") == "sim"
    assert (Target(NPU).get_attr("launch_ns"), Target(C).get_attr("launch_ns")) == (2000, 0)
    assert Target(NPU).device_type == "npu" and parse("npu -device_type=dsp").device_type == "dsp"
    assert parse("composite -host=c").device_type == "composite"


def test_a_device_is_the_first_key() -> None:
    target = parse("npu -device=mali -keys=gpu,mali")
    assert target.get_attr("keys") == ("mali", "gpu") and target.attrs["keys"] == ("gpu", "mali")
    assert parse("llvm -device=arm_cpu").get_attr("keys") == ("arm_cpu", "cpu")
    assert parse("npu").get_attr("keys") is None
    # A kind may mean something else by it.
    own = Attribute("device", int, help="number")
    assert Target(TargetKind("own", (own,), help="h"), {"device": 2}).get_attr("keys") is None


@pytest.mark.parametrize("name", ["device", "model", "libs", "from_device", "mattr", "mfloat-abi"])
def test_attributes_of_one_target_are_not_those_of_a_composite(name: str) -> None:
    value = {"mfloat-abi": "hard", "mattr": "+a", "from_device": "0"}.get(name, "a")
    with pytest.raises(UsageError, match=f"attribute '{name}' is of one target, and a composite is several") as caught:
        parse(f"composite -host=c -devices=npu -{name}={value}")
    assert f"give -{name} to its host" in str(caught.value.hint)
    assert parse(f"c -{name}={value}").attrs


@pytest.mark.parametrize(("name", "text"), [("mattr", "neon"), ("mfloat-abi", "medium"), ("from_device", "-1")])
def test_values_that_do_not_fit(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"does not fit attribute '{name}'"):
        parse(f"c -{name}={text}")


def read_device(target: Target, number: int) -> dict[str, object]:
    if number > 1:
        raise UsageError(f"there is no device {number}")
    return {"lanes": 4 + number, "mode": "fast"}


READS = TargetKind(
    "reads",
    (Attribute("lanes", int, default=1, high=8, help="h"), Attribute("mode", ("fast", "small"), help="h")),
    help="h",
    from_device=read_device,
)


def test_attributes_of_a_device_are_copied() -> None:
    target = Target(READS, {"from_device": 1})
    assert str(target) == "reads -lanes=5 -mode=fast" and target == Target(READS, {"lanes": 5, "mode": "fast"})
    assert str(Target(READS, {"from_device": 0, "mode": "small"})) == "reads -lanes=4 -mode=small"
    with pytest.raises(UsageError, match="there is no device 2") as caught:
        Target(READS, {"from_device": 2})
    assert caught.value.where == "from_device"


@pytest.mark.parametrize(
    ("gives", "error", "message"),
    [
        ({"lanes": 9}, UsageError, "9 does not fit attribute 'lanes'"),
        ({"rows": 9}, UsageError, "has no attribute 'rows'"),
        (3, PluginError, "target kind 'reads': reading a device failed: TypeError"),
    ],
)
def test_devices_that_are_read_wrongly(gives: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        Target(replace(READS, from_device=lambda target, number: gives), {"from_device": 0})
    assert message in str(caught.value)


def test_names() -> None:
    assert [parse(text).name for text in ("npu", "npu -compiler=x", "y: npu -compiler=x")] == ["npu", "x", "y"]


# What follows


def test_what_follows_is_looked_up_and_not_stored() -> None:
    target = parse("c -mcpu=cortex-m7f -mtriple=armv7em-none-eabi")
    assert str(target) == "c -mcpu=cortex-m7f -mtriple=armv7em-none-eabi"
    assert dict(target.derived) == {"mcpu": "cortex-m7", "cflags": ("-mfpu=fpv5-sp-d16", "-mfloat-abi=hard")}
    assert target.get_attr("mcpu") == "cortex-m7" and target.attrs["mcpu"] == "cortex-m7f"
    assert target.get_attr("mtriple") == "armv7em-none-eabi"
    assert parse("c").derived == {} and parse("c -mcpu=cortex-m0").derived == {"mtriple": "arm-none-eabi"}


@pytest.mark.parametrize(
    ("gives", "error", "message"),
    [
        ({"x": 1}, UsageError, "has no attribute 'x'"),
        ({"dim": "1"}, UsageError, "'1' does not fit attribute 'dim'"),
        (3, PluginError, "target kind 'k': its canonicaliser failed: TypeError"),
        (KeyError("mcpu"), PluginError, "target kind 'k': its canonicaliser failed: KeyError: 'mcpu'"),
        (SystemExit(0), PluginError, "target kind 'k': its canonicaliser failed: SystemExit: 0"),
        (UsageError("there is no CPU 'x'"), UsageError, "there is no CPU 'x'"),
        (PluginError("the table is broken"), PluginError, "the table is broken"),
    ],
)
def test_canonicalisers_that_fail(gives: Any, error: type[Exception], message: str) -> None:
    def canonicalise(target: Target) -> Any:
        if isinstance(gives, BaseException):
            raise gives
        return gives

    kind = TargetKind("k", (Attribute("dim", int, help="h"),), help="h", canonicalise=canonicalise)
    with pytest.raises(error) as caught:
        Target(kind)
    assert message in str(caught.value)
