"""Targets that are being written: what their last name or value can become."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.target_kinds import Registry, targets

from uma.errors import PluginError
from uma.targets import Alias, Target, TargetKind
from uma.targets.completion import continuations
from uma.targets.parsing import COMPOSITE_KIND
from uma.targets.text import spell
from uma.targets.values import MAX_TEXT_CHARS

REGISTRY = Registry()
NAMES = ("acl", "arm_acl", "c", "composite", "npu")


def kinds(name: str) -> TargetKind | Alias:
    if name == "broken":
        raise PluginError("it cannot be imported")
    return COMPOSITE_KIND if name == "composite" else REGISTRY.lookup(name)


def rests(text: str) -> list[str]:
    """What is added to a text, in its order."""
    found = continuations(text, kinds, lambda: NAMES)
    assert all(longer.startswith(text) for longer in found)
    return [longer[len(text) :] for longer in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [*NAMES]),
        ("a", ["cl", "rm_acl"]),
        ("c", ["", "omposite"]),
        ("npu0: n", ["pu"]),
        ("npu0: ", [*NAMES]),
        ("npu; c", ["", "omposite"]),
        ("npu -mode=fast;  ", [*NAMES]),
        ("c -m", ["cpu=", "triple=", "attr=", "float-abi=", "odel="]),
        ("c -mcpu=x -m", ["triple=", "attr=", "float-abi=", "odel="]),
        ("npu -dim=4 -a", []),  # a former name of array_dim, which is given with that
        ("npu -spad_bytes=4 -spa", []),
        ("npu -spa", ["d="]),
        ("npu -mod", ["e=", "es=", "el="]),
        ("npu -mode=", ["fast", "small"]),
        ("npu -mode=s", ["mall"]),
        ("npu -modes=fast,s", ["mall"]),
        ("npu -modes=[fast,", ["fast", "small"]),
        ("npu -dense=", ["true", "false"]),
        ("npu -array_dim=", ["8"]),
        ("npu -clock_hz=2", ["50000.0"]),
        ("c -mcpu=cortex-m", ["0", "4"]),
        ("npu -note=", []),
        ("npu -gains=1,", []),
        ("npu -note='a b' -array", ["_dim="]),
        ("npu -note='it\\'s' -table={a:1,'b c':2} -array", ["_dim="]),
        ("npu -fallback=", [*NAMES]),
        ("npu -fallback=n", ["pu"]),
        ("npu -parts={one:n", ["pu"]),
        ("npu -parts={one:npu,two:(npu -mode=", ["fast", "small"]),
        ("c -accelerators=npu,a", ["cl", "rm_acl"]),
        ("c -accelerators=(npu -mode=f", ["ast"]),
        ("c -accelerators=(npu -mode=fast),'npu0: npu -mode=f", ["ast"]),
        ("c -accelerators='npu -fallback=\\'npu -mode=f", ["ast"]),
        ("c -accelerators='npu -fallback=(npu -fallback=\\'npu -mod", ["e=", "es=", "el="]),
        ("c -accelerators=[npu,(arm_acl) -th", []),
        ("c -accelerators=(npu;", []),
        ("composite -h", ["ost="]),
        ("composite -target_host=", [*NAMES]),
        ("composite -target_host=c -h", []),
        ("acl -", []),
        ("broken -", []),
        ("broken -mode=", []),
        ("nothing -", []),
        ("c -accelerators=(broken -", []),
        ("broken -x=(npu -mode=f", ["ast"]),
        ("npu -nothing=", []),
        ("npu -mode='f", []),
        ("npu -mode=fast", [""]),
        ("npu -mode=fats", []),
        ("npu -gains=[1]", []),
        ("npu -gains=[]", []),
        ("npu -gains=[] -mode=f", ["ast"]),
        ("npu -gains=[1 -mode=f", []),
        ("c -accelerators=(npu)", []),
        ("c -accelerators='npu'", []),
        ("c mcpu", []),
        ("c -MCPU", []),
        ("c -mcpu?", []),
        ("c -mcpu=?", []),
        ("c)", []),
        ("npu -table={a", []),
        ("npu -parts={'a", []),
        ("npu -fallback='a\\", []),
        ('{"kind": "n', []),
        ("c -mcpu=" + "x" * MAX_TEXT_CHARS, []),
    ],
)
def test_what_can_follow(text: str, expected: list[str]) -> None:
    assert rests(text) == expected


def test_only_the_kind_that_is_meant_is_asked_for() -> None:
    asked: list[str] = []

    def asking(name: str) -> TargetKind | Alias:
        asked.append(name)
        return kinds(name)

    continuations("npu -mode=fast; c -accelerators=arm_acl,'npu -mo", asking, lambda: NAMES)
    assert set(asked) == {"c", "npu"}
    asked.clear()
    assert continuations("npu -mode=fast; c", asking, lambda: NAMES) == [
        "npu -mode=fast; c",
        "npu -mode=fast; composite",
    ]
    assert asked == []


@given(targets(1), st.data())
@settings(max_examples=30)
def test_every_attribute_of_a_target_is_found_from_its_beginning(target: Target, data: st.DataObject) -> None:
    """Alone, within another target, and behind others in a bag."""
    before = target.kind.name
    for name, value in target.attrs.items():
        whole = f"{before} -{name}="
        cut = whole[: data.draw(st.integers(len(before) + 2, len(whole) - 1))]
        escaped = re.sub(r"(['\\])", r"\\\1", cut)
        for begun, rest in (
            (cut, ""),
            (f"c -mcpu=x; x: {cut}", ""),
            (f"c -accelerators=npu,({cut}", ""),
            (f"c -accelerators='npu','{escaped}", ""),
        ):
            assert whole[len(cut) :] in rests(begun), (begun, rest)
        before = f"{before} -{name}={spell(value)}"


@given(targets(2), st.data())
@settings(max_examples=30)
def test_any_beginning_is_read(target: Target, data: st.DataObject) -> None:
    text = str(target)
    rests(text[: data.draw(st.integers(0, len(text)))])


@given(st.text("c npu-mode=fast'\\(){}[];:,{}", max_size=40))
def test_junk_is_read(text: str) -> None:
    rests(text)
