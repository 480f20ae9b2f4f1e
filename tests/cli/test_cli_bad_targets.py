"""Targets that are wrong: one error with exit code 2 and the column, on the command line and in Python alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests._support.plugins import HOST, accelerator, entry_of
from tests._support.small_models import Uma

import uma as uma_package
from uma.errors import UsageError
from uma.plugins import PluginHost
from uma.targets import Alias, Attribute, ListOf, MapOf, Target

NPU = accelerator(
    "npu",
    Attribute("dim", int, low=1, high=64, help="rows"),
    Attribute("clock", float, help="clock"),
    Attribute("dense", bool, help="no zeros are skipped"),
    Attribute("mode", ("fast", "small"), help="mode"),
    Attribute("note", str, known=("mk2-large",), help="text"),
    Attribute("gains", ListOf(float), help="gains"),
    Attribute("table", MapOf(int), help="cycles by op"),
    Attribute("parts", ListOf(Target), help="what it is made of"),
)
ROUND = Alias("round", "plain -accelerators=about", help="in a circle")
ABOUT = Alias("about", "composite -host=round", help="in a circle")

BAD = [
    # Unknown kinds and attributes.
    ("npuu", 1, "there is no target kind 'npuu'"),
    ("npu -note='mk2 large", 11, "quote"),
    ("plain -accelerators=npu,nup", 25, "there is no target kind 'nup'"),
    ('{"kind": "npuu"}', 10, "there is no target kind 'npuu'"),
    ("plain -acelerators=npu", 7, "did you mean 'accelerators'?"),
    ("plain -accelerators='npu -dimm=4'", 26, "did you mean 'dim'?"),
    ('{"kind": "npu", "dimm": 4}', 17, "did you mean 'dim'?"),
    ("plain npu", 7, "'npu' is not an attribute"),
    # Wrong types and values.
    ("npu -dim=four", 10, "'four' does not fit attribute 'dim'"),
    ("npu -dim=4.5", 10, "'4.5' does not fit attribute 'dim'"),
    ("npu -dim=65", 10, "65 does not fit attribute 'dim'"),
    ('{"kind": "npu", "dim": true}', 24, "True does not fit attribute 'dim'"),
    ("npu -clock=inf", 12, "'inf' does not fit attribute 'clock'"),
    ("npu -dense=1", 12, "'1' does not fit attribute 'dense'"),
    ("npu -mode=fats", 11, "did you mean 'fast'?"),
    ("npu -note=a,b", 11, "takes one value, not a list"),
    ("npu -gains=1,two", 14, "'two' does not fit attribute 'gains'"),
    ("npu -table={a:b}", 15, "'b' does not fit attribute 'table'"),
    ("npu -table=4", 12, "'4' does not fit attribute 'table'"),
    ("npu -parts=4", 12, "'4' is not a target kind"),
    ("npu -dim=", 10, "the attribute has no value"),
    # Duplicates.
    ("npu -dim=4 -dim=4", 12, "attribute 'dim' is given twice"),
    ("npu -table={a:1,a:2}", 17, "key 'a' of attribute 'table' is given twice"),
    ('{"kind": "npu", "kind": "npu"}', 17, "'kind' is given twice"),
    # Cycles, and accelerators as hosts.
    ("plain -host=plain", 13, "'plain' is the host of itself"),
    ("plain -host='plain -keys=a -host=plain'", 13, "has a host itself"),
    ("round", 17, "round -> about -> round: a name stands for itself"),
    ("npu -host=npu", 11, "'npu' cannot be the host of 'npu'"),
    ("composite -host=npu -devices=plain", 17, "'npu' cannot be the host of 'composite'"),
    ("npu", 1, "'npu' cannot run a whole model alone"),
    ("composite -devices=npu,(b: npu)", 20, "'npu' and 'b' cannot run a whole model alone"),
    # Empty bags.
    ("", 1, "a target begins with its kind"),
    (" ", 2, "a target begins with its kind"),
    (";", 1, "a target begins with its kind"),
    ("[]", 1, "there is no target"),
    ("{}", 1, "there is no target"),
    ("composite", 1, "a composite has neither a host nor devices"),
    # Two labels alike, and labels that are none.
    ("a: npu; a: npu; plain", 9, "two targets are called 'a'"),
    ("npu; npu -dim=4; plain", 6, "two targets are called 'npu'"),
    ("plain -accelerators='a: npu','a: npu'", 31, "two targets are called 'a'"),
    ('[{"kind": "npu", "label": "a"}, {"kind": "plain", "label": "a"}]', 27, "two targets are called 'a'"),
    ('{"a": "npu", "a": "plain"}', 2, "two targets are called 'a'"),
    ("1a: plain", 1, "'1a' is not a label"),
    ("a-b: plain", 1, "'a-b' is not a label"),
    ("\N{LATIN SMALL LETTER E WITH ACUTE}: plain", 1, "is not a label"),
    (f"{'a' * 65}: plain", 1, "is not a label"),
    ("int: plain", 1, "'int' is not a label"),
    ("restrict: plain", 1, "'restrict' is not a label"),
    ('{"int": "plain"}', 2, "'int' is not a label"),
    ('{"kind": "plain", "label": "while"}', 28, "'while' is not a label"),
    ("plain -compiler=for", 17, "'for' is not a label"),
    ("plain -compiler=tensorrt", 1, "'tensorrt', which 'plain -compiler=tensorrt' names as its compiler"),
    ("a: npu; plain -compiler=plane", 9, "'plane', which 'plain -compiler=plane' names as its compiler"),
    ("npu -compiler=nothing", 1, "'nothing', which 'npu -compiler=nothing' names as its compiler"),
    # Large and deep.
    ("c" * 1_000_000, 65537, "more than 65536 characters"),
    ("plain -keys=" + "a" * 1_000_000, 65537, "more than 65536 characters"),
    ('{"kind": "npu", "note": "' + "a" * 1_000_000 + '"}', 25, "does not fit attribute 'note'"),
    ("npu -parts=(" * 10 + "npu" + ")" * 10, 97, "nested more than 8 deep"),
    ('{"kind": "npu", "parts": [' * 10 + "]}" * 10, 209, "nested more than 8 deep"),
    ("[" * 100, 34, "nested more than 32 deep"),
    # Characters that mean something to a terminal or a shell.
    ("npu -note=\x1b[2J", 11, r"'\x1b' cannot stand here"),
    ("npu -note='\x1b[2J'", 11, "does not fit attribute 'note'"),
    ("plain\x00", 1, r"'plain\x00' is not a target kind"),
    ("npu\u202e", 1, "is not a target kind"),
    ("npu -note=$(reboot)", 11, "'$' cannot stand here"),
    ("npu -note=`reboot`", 11, "'`' cannot stand here"),
    ("npu -keys='$(reboot)'", 11, "'$(reboot)' does not fit attribute 'keys'"),
    ("$(reboot): plain", 9, "')' cannot stand here"),
    ("npu -note=a;b", 12, "';' cannot stand here"),
    ("npu -dim=4; reboot", 13, "there is no target kind 'reboot'"),
]  # fmt: skip
IDS = [f"{text[:40]!r}-{len(text)}" for text, _, _ in BAD]


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """The targets that there are: a host, an accelerator, and names in a circle."""
    host = PluginHost(lambda: [*entry_of(HOST), *entry_of(NPU), *entry_of(ROUND), *entry_of(ABOUT)])
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    return host


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("text", "column", "what"), BAD, ids=IDS)
class TestBadTargets:
    def test_on_the_command_line(self, uma: Uma, plugins: PluginHost, text: str, column: int, what: str) -> None:
        for command in (("build", "net.py"), ("explain", "net.py"), ("run", "net.py"), ("verify", "net.py")):
            said = uma(*command, "--target", text).error(2)
            assert what in said and len(said) < 1_000
            head, window, caret = said[said.index("  where: ") + 9 :].splitlines()[:3]
            assert head.split(",")[0] == f"column {column} of the target"
            if " stands for" not in head:  # where it does, the text is that of the name
                shown = text[column - 1 : column]
                assert window[caret.index("^") :][:1] == (shown if shown.isprintable() else "\N{REPLACEMENT CHARACTER}")

    def test_in_python(self, folder: Path, plugins: PluginHost, text: str, column: int, what: str) -> None:
        with pytest.raises(UsageError) as caught:
            uma_package.build("net.py", text, plugins=plugins)
        assert what in str(caught.value)
        assert str(caught.value.where).startswith(f"column {column} of the target")


def test_a_value_of_an_attribute_in_place_of_a_kind(uma: Uma, plugins: PluginHost) -> None:
    said = uma("targets", "--explain", "mk2_large").error(2)
    assert said.startswith("there is no target kind 'mk2_large'") and "did you mean 'npu -note=mk2-large'?" in said


def test_what_is_repeated_is_counted(uma: Uma, plugins: PluginHost) -> None:
    said = uma("build", "net.py", "--target", "plain", "--target", "plain -dim=4").error(2)
    assert "  where: column 7 of the target, in [1]\n    plain -dim=4\n          ^\n" in said
    said = uma("build", "net.py", "--target", "a: npu", "--target", "a: plain").error(2)
    assert said.splitlines()[:4] == [
        "two targets are called 'a': a: plain and a: npu",
        "  where: column 1 of the target, in [0]",
        "    a: npu",
        "    ^",
    ]


def test_a_file_has_lines_and_columns(uma: Uma, plugins: PluginHost, folder: Path) -> None:
    board = {"kind": "plain", "accelerators": [{"kind": "npu", "label": "a"}, {"kind": "npu", "label": "a"}]}
    (folder / "board.json").write_text(json.dumps(board, indent=1))
    said = uma("targets", "--explain", "board.json").error(2)
    assert said.splitlines()[1:4] == [
        "  where: column 13 of line 10 of the target, in accelerators[1].label",
        '       "label": "a"',
        "                ^",
    ]


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ([], "the targets"),
        ({}, "the targets"),
        ({"kind": "plain", "accelerators": [{"kind": "npu"}, {"kind": "npu"}]}, "accelerators[1]"),
        ([{"kind": "npu", "label": "a"}, {"kind": "plain", "label": "a"}], "[0].label"),
        ({"kind": "plain", "accelerators": [{"kind": "npu", "label": "int"}]}, "accelerators[0].label"),
        ({"kind": "composite", "host": {"kind": "npu"}, "devices": [{"kind": "npu"}]}, "host"),
        ({"kind": "composite", "devices": [{"kind": "npu"}]}, "devices[0]"),
        ([{"kind": "plain"}, {"kind": "npu", "parts": [{"kind": "npu", "gains": [1, "x"]}]}], "[1].parts[0].gains[1]"),
    ],
)
def test_objects_have_paths(folder: Path, plugins: PluginHost, given: list[object], where: str) -> None:
    with pytest.raises(UsageError) as caught:
        uma_package.build("net.py", given, plugins=plugins)  # type: ignore[arg-type]  # of these some are not targets
    assert caught.value.where == where
