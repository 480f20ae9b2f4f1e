"""Texts, JSON, dicts and objects: what they mean, and errors that name column, path, value and what is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests._support.target_kinds import KINDS, Registry

from uma.errors import UsageError
from uma.targets import Target, parse_target, read_target, read_targets
from uma.targets.text import MAX_JSON_CHARS
from uma.targets.values import MAX_DEPTH, MAX_TEXT_CHARS

KINDS_OF = Registry().lookup
C, NPU = KINDS[0], KINDS[2]

RICH = Target(
    NPU,
    {"array_dim": 4, "note": "it's", "gains": [1.0], "table": {"a": 1}, "parts": {"b": Target(NPU, label="c")}},
    label="npu0",
    tag="my-board",
    host=Target(C, {"mcpu": "cortex-m4"}, label="cpu"),
)


def test_json_holds_all() -> None:
    assert RICH.to_json() == {
        "kind": "npu",
        "label": "npu0",
        "array_dim": 4,
        "note": "it's",
        "gains": [1.0],
        "table": {"a": 1},
        "parts": {"b": {"kind": "npu", "label": "c"}},
        "host": {"kind": "c", "label": "cpu", "mcpu": "cortex-m4"},
        "tag": "my-board",
    }
    assert Target.from_json(RICH.to_json(), KINDS_OF) == RICH
    text = "npu0: npu -array_dim=4 -note='it\\'s' -gains=1.0 -table={a:1} -parts={b:'c: npu'} -host='cpu: c "
    assert str(RICH) == text + "-mcpu=cortex-m4' -tag=my-board"


@pytest.mark.parametrize("changed", [{"label": "npu1"}, {"tag": "other"}, {"host": Target(C)}, {"attrs": {"note": ""}}])
def test_all_of_it_counts_for_equality(changed: dict[str, Any]) -> None:
    assert Target(RICH, **changed) != RICH and Target(RICH) == RICH


def test_targets_from_other_forms_with_the_installed_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uma.plugins.default_host", lambda: Registry())
    assert Target("npu0: npu -array_dim=4") == Target({"kind": "npu", "label": "npu0", "array_dim": 4})
    assert Target("npu", {"array_dim": 4}, label="npu0") == Target('{"kind": "npu", "label": "npu0", "array_dim": 4}')
    assert Target("npu -array_dim=2", {"array_dim": 4}) == Target(NPU, {"array_dim": 4})
    with Target("npu -array_dim=4"):
        assert Target.current().get_attr("array_dim") == 4


def test_nested_targets_may_be_of_any_form() -> None:
    given = {"kind": "composite", "host": "c", "devices": ["a: npu", {"kind": "npu"}, Target(NPU), "acl"]}
    devices = read_target(given, KINDS_OF).get_attr("devices")
    assert [str(device).partition(" -host")[0] for device in devices] == [
        "a: npu",
        "npu",
        "npu",
        "composite -devices=arm_acl",
    ]


@pytest.mark.parametrize(
    ("text", "column", "path", "message"),
    [
        ("1x: npu", 1, None, "'1x' is not a label"),
        (": npu", 1, None, "'' is not a label"),
        ("a-b: npu", 1, None, "'a-b' is not a label"),
        ("int: npu", 1, None, "'int' is not a label"),
        ("_Bool: npu", 1, None, "'_Bool' is not a label"),
        ("lambda: npu", 1, None, "'lambda' is not a label"),
        ("c -accelerators='int: npu'", 18, "accelerators[0]", "'int' is not a label"),
        ("npu -compiler=int", 15, None, "'int' is not a label"),
        ("a:npu", 1, None, "'a:npu' is not a target kind"),
        ("a: ", 4, None, "a target begins with its kind"),
        ("c; npu", 4, None, "these are several targets"),
        ("c;npu", 1, None, "'c;npu' is not a target kind"),
        ("c -accelerators=nup", 17, "accelerators[0]", "there is no target kind 'nup'"),
        ("c -accelerators=npu,'npu -array_dim=99'", 37, "accelerators[1].array_dim", "99 does not fit"),
        ("c -accelerators=npu,'npu -arraydim=9'", 26, "accelerators[1]", "has no attribute 'arraydim'"),
        ("c -accelerators=(npu -array_dim=99)", 33, "accelerators[0].array_dim", "99 does not fit"),
        ("npu -fallback='npu -note=\\'\\\\\\'\\' -dim=q'", 40, "fallback.array_dim", "'q' does not fit"),
        ("npu -gains=1,x", 14, "gains[1]", "'x' does not fit attribute 'gains'"),
        ("npu -gains=1,", 14, None, "the attribute has no value"),
        ("npu -gains=[1", 14, None, "the text ends too early"),
        ("npu -gains=[1]]", 15, None, "']' cannot stand here"),
        ("npu -table=5", 12, None, "'5' does not fit attribute 'table'"),
        ("npu -table={a}", 14, None, "'}' cannot stand here"),
        ("npu -table={a:1,a:2}", 17, None, "key 'a' of attribute 'table' is given twice"),
        ("npu -table={a:x}", 15, "table.a", "'x' does not fit attribute 'table'"),
        ("npu -note={a:x}", 11, None, "does not fit attribute 'note'"),
        ("npu -fallback={a:x}", 15, None, "a target in JSON has no kind"),
        ("npu -fallback=(npu", 19, None, "the text ends too early"),
        ("npu -fallback=(c; npu)", 17, None, "';' cannot stand here"),
        ("npu -fallback='c; npu'", 19, None, "these are several targets"),
        ("npu -spad=1 -spad_bytes=2", 13, None, "attribute 'spad' is given twice"),
        ("npu -host=npu", 11, None, "cannot be the host"),
        ("c -host='c'", 9, None, "'c' is the host of itself"),
        ("c -host='llvm -host=c'", 9, None, "the host of 'c' has a host itself"),
        ("npu -host=(composite -host=c)", 11, None, "cannot be the host"),
        ("x: composite -host=c", 4, None, "which is several targets"),
        ("x: acl", 1, None, "which is several targets"),
        ("composite", 1, None, "a composite has neither a host nor devices"),
        ("acl -threads=1", 5, None, "'acl' stands for a whole target, and takes no attributes"),
        ("pair", 1, None, "'pair' stands for several targets"),
        ("wrong", 3, "what 'wrong' stands for", "has no attribute 'mcpuu'"),
        ("round", 17, "host of what 'about' stands for of what 'round' stands for", "a name stands for itself"),
        ("\x1b: npu", 1, None, r"'\x1b' is not a label"),
        ("npu -note='$(reboot)' -mode=$(reboot)", 29, None, "'$' cannot stand here"),
        ('{"kind": "npu", "array_dim": 99}', 30, None, "99 does not fit attribute 'array_dim'"),
        ('{"kind": "npu", "array_dim": "4"}', 30, None, "'4' does not fit attribute 'array_dim'"),
        ('{"kind": "npu", "note": ["x"]}', 25, None, "attribute 'note' takes one value, not a list"),
        ('{"kind": "npu", "arraydim": 9}', 17, None, "has no attribute 'arraydim'"),
        ('{"kind": "npu", "kind": "npu"}', 17, None, "'kind' is given twice"),
        ('{"kind": 3}', 10, None, "3 is not a target kind"),
        ('{"kind": "npu", "label": "1"}', 26, None, "'1' is not a label"),
        ('{"kind": "c", "accelerators": [{"kind": "npu", "label": "int"}]}', 57, "accelerators[0].label", "'int' is"),
        ('{"array_dim": 4}', 1, None, "a target in JSON has no kind"),
        ('["npu"]', 1, None, "a list is not a target"),
        ('{"kind": "composite", "devices": [{"kind": "npu", "gains": [1, "x"]}]}', 64, "devices[0].gains[1]", "'x'"),
        ('{"kind": "composite", "devices": ["npu -dim=x"]}', 10, "devices[0].array_dim", "'x' does not fit"),
        ('{"kind": "npu",}', 16, None, "a key in double quotes is missing"),
        ('{"kind" "npu"}', 9, None, "a colon is missing"),
        ('{"kind": "npu"', 15, None, "a comma or } is missing"),
        ('{"kind": npu}', 10, None, "this is not JSON: Expecting value"),
        ('{"kind": "npu"} x', 17, None, "more after the end"),
        ('{"kind": "npu", "array_dim": NaN}', 30, None, "nan does not fit"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_errors_name_column_and_path(text: str, column: int, path: str | None, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text, KINDS_OF)
    assert message in caught.value.what
    head, _, caret = str(caught.value.where).split("\n")
    assert head == f"column {column} of the target" + (f", in {path}" if path else "")
    assert caret.index("^") == 4 + min(column - 1, 60)


def test_a_text_of_several_lines_is_shown_by_the_line() -> None:
    text = '{\n  "kind": "npu",\n  "array_dim": 99,\n  "note": ""\n}\n'
    with pytest.raises(UsageError) as caught:
        parse_target(text, KINDS_OF)
    assert str(caught.value.where).split("\n") == [
        "column 16 of line 3 of the target",
        '      "array_dim": 99,',
        "                   ^",
    ]
    with pytest.raises(UsageError, match="column 12 of line 2 of the target, in \\[1\\]"):
        read_targets(["c", "npu\n-array_dim=99"], KINDS_OF)


@pytest.mark.parametrize(
    ("given", "where", "message"),
    [
        (
            {"kind": "composite", "devices": ["npu", {"kind": "npu", "array_dim": 99}]},
            "devices[1].array_dim",
            "99 does",
        ),
        (
            {"kind": "composite", "devices": ["npu", {"kind": "npu", "arraydim": 9}]},
            "devices[1]",
            "did you mean 'array_",
        ),
        (
            {"kind": "composite", "devices": [{"kind": "npu", "gains": [1, None]}]},
            "devices[0].gains[1]",
            "does not fit",
        ),
        ({"kind": "npu", "mode": "fats"}, "mode", "did you mean 'fast'? it takes one of fast, small"),
        ({"kind": "npu", 3: 4}, "target kind 'npu'", "3 is not an attribute"),
        ({"kind": "npu", "fallback": 3}, "fallback", "3 is not a target"),
        ({"kind": "npu", "fallback": ["npu"]}, "fallback", "a list is not a target"),
        (
            {"kind": "c", "accelerators": [{"kind": "npu", "label": "int"}]},
            "accelerators[0].label",
            "'int' is not a label",
        ),
        ({"kind": "npu", "label": "1"}, "label", "'1' is not a label"),
        ({"kind": "c", "accelerators": [{"kind": "npu", "host": "npu"}]}, "accelerators[0].host", "cannot be the host"),
        (None, None, "a value of type NoneType is not a target"),
    ],
)
def test_errors_in_objects_name_the_path(given: Any, where: str | None, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_target(given, KINDS_OF)
    assert message in str(caught.value)
    assert caught.value.where == where or (caught.value.where is None and where == "target kind 'npu'")


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("c", ["c"]),
        ("c;", ["c"]),
        ("a: npu; b: npu;\n c", ["a: npu", "b: npu", "c"]),
        (["a: npu; b: npu", "c"], ["a: npu", "b: npu", "c"]),
        ({"a": "npu", "b": {"kind": "npu", "label": "b"}}, ["a: npu", "b: npu"]),
        ('{"a": "npu", "b": {"kind": "npu"}}', ["a: npu", "b: npu"]),
        ('["a: npu", {"kind": "c"}]', ["a: npu", "c"]),
        (({"a": "npu"}, Target(C)), ["a: npu", "c"]),
        (['{"kind": "npu"}', "c"], ["npu", "c"]),
        ("pair", ["one: npu", "two: npu -array_dim=4", "c"]),
        (["pair", "x: arm_acl"], ["one: npu", "two: npu -array_dim=4", "c", "x: arm_acl"]),
    ],
)
def test_a_bag_in_every_form(given: object, texts: list[str]) -> None:
    assert [str(target) for target in read_targets(given, KINDS_OF)] == texts


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "there is no target"),
        ({}, "there is no target"),
        ("[]", "there is no target"),
        ("", "a target begins with its kind"),
        ([["c"]], "a list of targets holds a list"),
        ({"1": "c"}, "'1' is not a label"),
        ({"a": "b: c"}, "the target of label 'a' has the label 'b'"),
        ({"a": "acl"}, "which is several targets"),
        ({"a": "pair"}, "'pair' stands for several targets"),
        ("p: pair", "'pair' stands for several targets, which one label cannot name"),
        ("c; c", "two targets are called 'c': c and c"),
        ("x: npu; x: arm_acl", "two targets are called 'x'"),
        ("npu; npu: arm_acl", "two targets are called 'npu'"),
        ({3}, "a value of type set is not a target"),
    ],
)
def test_bags_that_are_none(given: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_targets(given, KINDS_OF)
    assert message in caught.value.what


def test_a_second_target_of_a_name_is_pointed_at() -> None:
    with pytest.raises(UsageError) as caught:
        read_targets("a: npu; b: npu; a: c", KINDS_OF)
    assert str(caught.value.where).startswith("column 17 of the target")
    assert caught.value.hint == "give one of them another label: 'a_1: c'"


def test_depth_and_size_are_bounded() -> None:
    target = Target(NPU)
    for _ in range(MAX_DEPTH - 1):
        target = Target(NPU, {"fallback": target, "note": "it's"})
    assert parse_target(str(target), KINDS_OF) == target
    with pytest.raises(UsageError, match="targets are nested more than 8 deep"):
        Target(NPU, {"fallback": target})
    cyclic: dict[str, Any] = {"kind": "npu"}
    cyclic["fallback"] = cyclic
    with pytest.raises(UsageError, match="targets are nested more than 8 deep") as caught:
        read_target(cyclic, KINDS_OF)
    assert caught.value.where == ".".join(["fallback"] * MAX_DEPTH)
    with pytest.raises(UsageError, match=f"more than {MAX_TEXT_CHARS} characters"):
        Target(C, {"cflags": ["x" * 1000] * 100})
    with pytest.raises(UsageError, match=f"a target in JSON has more than {MAX_JSON_CHARS} characters") as caught:
        parse_target(json.dumps({"kind": "npu", "note": "x" * MAX_JSON_CHARS}), KINDS_OF)
    assert str(caught.value.where).startswith(f"column {MAX_JSON_CHARS + 1} of the target")
