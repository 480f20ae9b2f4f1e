"""Target kinds, targets and their text form: `parse(str(target)) == target`, and errors that name the column."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.errors import PluginError, UsageError
from uma.targets import Attribute, AttributeType, Target, TargetKind, Value, parse_target
from uma.targets.values import MAX_VALUE_CHARS, shown, suggest

CPU = TargetKind(
    "c",
    (
        Attribute("mcpu", str, default="native", pattern=r"[a-z0-9.+-]+", help="CPU"),
        Attribute("opt", ("0", "1", "2", "3", "s"), default="3", help="optimisation level"),
        Attribute("note", str, help="free text"),
        Attribute("dim", int, default=8, low=1, high=64, help="rows"),
        Attribute("seed", int, help="any number"),
        Attribute("clock_hz", float, default=250_000, low=1, help="clock in Hz"),
        Attribute("gain", float, help="any number"),
        Attribute("fast", bool, default=False, help="go faster"),
    ),
    help="a CPU",
    is_host=True,
)
NEEDY = TargetKind("needy", (Attribute("base", int, required=True, help="address"),), help="needs an address")


def kinds(name: str) -> TargetKind:
    for kind in (CPU, NEEDY):
        if kind.name == name:
            return kind
    raise UsageError(f"there is no target kind {name!r}")


def parse(text: str) -> Target:
    return parse_target(text, kinds)


# Declarations


@pytest.mark.parametrize(
    ("name", "type_", "more", "message"),
    [
        ("Mcpu", str, {}, "'Mcpu': its name must match"),
        ("", str, {}, "its name must match"),
        ("a" * 65, str, {}, "at most 64"),
        ("a", list, {}, "its type must be"),
        ("a", (), {}, "at least one choice"),
        ("a", ("x", 1), {}, "choices must be strings"),
        ("a", ("x", "\n"), {}, "choices must be strings"),
        ("a", ("x", "x"), {}, "listed twice"),
        ("a", str, {"help": " "}, "needs a help text"),
        ("a", str, {"low": 1}, "only numbers have bounds"),
        ("a", bool, {"high": 1}, "only numbers have bounds"),
        ("a", int, {"low": 2, "high": 1}, "leave nothing"),
        ("a", int, {"pattern": "x"}, "only str has a pattern"),
        ("a", str, {"pattern": "("}, "not a regular expression"),
        ("a", int, {"default": 1, "required": True}, "what is required has no default"),
        ("a", int, {"default": "1"}, "its default '1' does not fit"),
        ("a", int, {"default": True}, "its default True does not fit"),
        ("a", int, {"default": 9, "high": 8}, "its default 9 does not fit"),
        ("a", str, {"default": "y", "pattern": "x"}, "its default 'y' does not fit"),
        ("a", ("x",), {"default": "y"}, "its default 'y' does not fit"),
    ],
)
def test_a_contradictory_attribute_is_the_plugins_fault(
    name: str, type_: Any, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(PluginError, match=r"^attribute") as caught:
        Attribute(name, type_, **{"help": "h", **more})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "my-kind"}, "target kind 'my-kind': its name must match"),
        ({"name": "inline"}, "target kind 'inline': its name must be no keyword of C or Python"),
        ({"device_type": "NPU"}, "device type 'NPU'"),
        ({"help": ""}, "needs a help text"),
        ({"needs_device": "cuda"}, "needs_device must be True or False"),
        ({"needs_device": True, "is_host": True}, "a host needs no other device"),
        ({"attributes": (Attribute("a", int, help="h"), Attribute("a", str, help="h"))}, "'a' is declared twice"),
    ],
)
def test_a_contradictory_kind_is_the_plugins_fault(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError) as caught:
        TargetKind(**{"name": "k", "help": "h", **fields})
    assert message in str(caught.value)


def test_declarations_are_frozen_values() -> None:
    listed: Any = [Attribute("a", int, help="h")]
    kind = TargetKind("k", listed, help="h")
    assert kind.attributes == (Attribute("a", int, help="h"),)
    assert hash(kind) == hash(TargetKind("k", (Attribute("a", int, help="h"),), help="h"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind.name = "other"  # type: ignore[misc]  # frozen: the test is about that
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind.attributes[0].default = 1  # type: ignore[misc]  # frozen, too
    assert type(CPU.attribute("clock_hz").default) is float


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        (CPU.attribute("opt"), "one of 0, 1, 2, 3, s"),
        (CPU.attribute("fast"), "true or false"),
        (CPU.attribute("note"), "printable text"),
        (CPU.attribute("mcpu"), "text that matches [a-z0-9.+-]+"),
        (CPU.attribute("dim"), "a whole number from 1 to 64"),
        (CPU.attribute("seed"), "a whole number"),
        (CPU.attribute("clock_hz"), "a number of at least 1"),
        (Attribute("a", int, low=0, help="h"), "a whole number of at least 0"),
        (Attribute("a", float, high=0.5, help="h"), "a number of at most 0.5"),
    ],
)
def test_what_an_attribute_takes_in_words(attribute: Attribute, words: str) -> None:
    assert attribute.allowed() == words


# Values


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (int, "8", 8),
        (int, "-8", -8),
        (int, "+8", 8),
        (int, "007", 7),
        (int, "0x40000000", 1 << 30),
        (int, "0XfF", 255),
        (int, "9223372036854775807", 2**63 - 1),
        (float, "250e3", 250_000.0),
        (float, ".5", 0.5),
        (float, "1.", 1.0),
        (float, "-0.0", 0.0),
        (bool, "true", True),
        (bool, "false", False),
        (str, "12", "12"),
        (("1", "2"), "2", "2"),
    ],
)
def test_text_becomes_a_value_of_the_declared_type(type_: AttributeType, text: str, value: Value) -> None:
    parsed = Attribute("a", type_, help="h").parse(text)
    assert (parsed, type(parsed), repr(parsed)) == (value, type(value), repr(value))


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (int, "8.0"),
        (int, "0x"),
        (int, "0x1_0"),
        (int, "0x80000000000000000"),
        (int, "256K"),
        (int, "1_000"),
        (int, "\u0668"),  # a digit, for str.isdigit
        (int, "9223372036854775808"),
        pytest.param(int, "9" * 1_000_000, id="int-megabyte"),
        (float, "nan"),
        (float, "inf"),
        (float, "1e999"),
        (float, "1_0.0"),
        pytest.param(float, "9" * 1_000_000, id="float-megabyte"),
        (float, ""),
        (bool, "1"),
        (bool, "True"),
        (("1", "2"), "3"),
        (str, "a\nb"),
        (str, "\x1b[31m"),
        (str, "\ud800"),
        pytest.param(str, "x" * (MAX_VALUE_CHARS + 1), id="str-too-long"),
    ],
)
def test_text_that_does_not_fit_is_refused(type_: AttributeType, text: str) -> None:
    with pytest.raises(UsageError, match="does not fit attribute 'a'") as caught:
        Attribute("a", type_, help="HELP").parse(text)
    assert len(str(caught.value)) < 300
    assert caught.value.what.isprintable()
    assert str(caught.value).endswith(": HELP")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dim", True),
        ("dim", 8.0),
        ("dim", 65),
        ("dim", 0),
        ("dim", None),
        pytest.param("seed", 10**5000, id="seed-huge"),
        pytest.param("gain", 10**5000, id="gain-huge"),
        ("gain", float("nan")),
        ("gain", float("-inf")),
        ("clock_hz", 0.5),
        ("fast", 1),
        ("mcpu", b"native"),
        ("opt", 3),
        ("note", ["x"]),
    ],
)
def test_objects_that_do_not_fit_are_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"does not fit attribute '{name}'") as caught:
        Target(CPU, {name: value})
    assert caught.value.where == "target kind 'c'"


def test_messages_show_values_safely() -> None:
    assert shown("a\x1b'b") == r'''"a\x1b'b"'''
    assert len(shown("x" * 1_000_000)) < 70
    assert shown(10**5000) == "a value of type int"
    assert shown([1]) == "a value of type list"
    assert shown(2.5) == "2.5"
    assert suggest("mcp", ["mcpu", "opt"]) == "did you mean 'mcpu'? "
    assert suggest("zzz", ["mcpu"]) == suggest("mcpu" * 1000, ["mcpu"]) == ""


# Targets


def test_only_what_was_given_is_stored_and_defaults_are_looked_up() -> None:
    target = Target(CPU, {"opt": "2"})
    assert dict(target.attrs) == {"opt": "2"}
    assert target.get_attr("opt") == "2"
    assert target.get_attr("mcpu") == "native"
    assert target.get_attr("note") is None
    assert target != Target(CPU, {"opt": "2", "mcpu": "native"})


def test_an_unknown_attribute_is_an_error_with_the_nearest_name() -> None:
    for attempt in (lambda: Target(CPU, {"mcpuu": "x"}), lambda: Target(CPU).get_attr("mcpuu")):
        with pytest.raises(UsageError, match="target kind 'c' has no attribute 'mcpuu'") as caught:
            attempt()
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("did you mean 'mcpu'? it has mcpu, opt, note")
    with pytest.raises(UsageError) as caught:
        TargetKind("bare", help="h").attribute("x")
    assert caught.value.hint == "it has none of its own"


def test_a_required_attribute_must_be_given() -> None:
    with pytest.raises(UsageError, match="target kind 'needy' needs attribute 'base'") as caught:
        Target(NEEDY)
    assert caught.value.hint == "add -base=...: a whole number"
    assert Target(NEEDY, {"base": 4096}).get_attr("base") == 4096


def test_a_target_is_a_value() -> None:
    one, other = Target(CPU, {"opt": "2", "mcpu": "m4"}), Target(CPU, {"mcpu": "m4", "opt": "2"})
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other, Target(CPU)}) == 2
    assert one != Target(CPU)
    assert one != "c -mcpu=m4 -opt=2"
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.kind = NEEDY  # type: ignore[misc]  # frozen: the test is about that
    with pytest.raises(TypeError):
        one.attrs["opt"] = "3"  # type: ignore[index]  # read-only, too


def test_a_target_keeps_nothing_of_the_callers_mapping() -> None:
    attrs = {"opt": "2"}
    target = Target(CPU, attrs)
    attrs["opt"] = "3"
    assert target.get_attr("opt") == "2"


# The text form


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("c", "c"),
        ("  c\t-opt=2\n", "c -opt=2"),
        ("c -opt=2 -mcpu=cortex-m4", "c -mcpu=cortex-m4 -opt=2"),
        ("c -opt='2' -dim='8'", "c -opt=2 -dim=8"),
        ("c -clock_hz=250e3 -fast=true", "c -clock_hz=250000.0 -fast=true"),
        ("c -gain=1e30 -seed=-1", "c -seed=-1 -gain=1e+30"),
        ("c -note=''", "c -note=''"),
        (r"c -note='it\'s a \\ b'", r"c -note='it\'s a \\ b'"),
        ("c -note='a, b; c: {d}'", "c -note='a, b; c: {d}'"),
        ("c -note='-opt=2'", "c -note=-opt=2"),
        ("c -note='\u00e4'", "c -note='\u00e4'"),
    ],
)
def test_the_text_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)
    assert repr(parse(text)) == f"<Target {canonical}>"


def attribute_values(attribute: Attribute) -> st.SearchStrategy[Value]:
    if isinstance(attribute.type, tuple):
        return st.sampled_from(attribute.type)
    if attribute.pattern is not None:
        return st.from_regex(attribute.pattern, fullmatch=True).filter(lambda text: len(text) <= MAX_VALUE_CHARS)
    if attribute.type is str:
        return st.one_of(st.text(), st.text("'\\ -=a")).filter(str.isprintable)
    if attribute.type is bool:
        return st.booleans()
    if attribute.type is int:
        low, high = (-(2**63), 2**63 - 1) if attribute.low is None else (attribute.low, attribute.high)
        return st.integers(low, high)  # type: ignore[arg-type]  # bounds of whole numbers are whole
    return st.floats(attribute.low, allow_nan=False, allow_infinity=False)


TARGETS = st.fixed_dictionaries(
    {}, optional={attribute.name: attribute_values(attribute) for attribute in CPU.attributes}
).map(lambda attrs: Target(CPU, attrs))


@given(TARGETS)
def test_parse_gives_back_what_str_wrote(target: Target) -> None:
    again = parse(str(target))
    assert again == target
    assert hash(again) == hash(target)
    assert str(again) == str(target)


@given(TARGETS, TARGETS)
def test_targets_are_equal_where_their_texts_are(one: Target, other: Target) -> None:
    assert (one == other) == (str(one) == str(other))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "a target begins with its kind"),
        ("   ", 4, "a target begins with its kind"),
        ("-opt=2", 1, "a target begins with its kind"),
        ("C", 1, "'C' is not a target kind"),
        ("c;rm", 1, "'c;rm' is not a target kind"),
        ("c\x00", 1, r"'c\x00' is not a target kind"),
        ("c\u00a0-opt=2", 1, r"'c\xa0-opt=2' is not a target kind"),
        (" d -opt=2", 2, "there is no target kind 'd'"),
        ("c opt=2", 3, "'opt=2' is not an attribute"),
        ("c --opt=2", 3, "'--opt=2' is not an attribute"),
        ("c -opt 2", 3, "'-opt' is not an attribute"),
        ("c -opt = 2", 3, "'-opt' is not an attribute"),
        ("c -optt=2", 3, "has no attribute 'optt'"),
        ("c -opt=2  -opt=3", 11, "attribute 'opt' is given twice"),
        ("c -opt=", 8, "the attribute has no value"),
        ("c -opt= -dim=3", 8, "the attribute has no value"),
        ("c -opt=7", 8, "'7' does not fit attribute 'opt'"),
        ("c -dim=65", 8, "65 does not fit attribute 'dim'"),
        ("c -dim=x", 8, "'x' does not fit attribute 'dim'"),
        ("c -mcpu='$(reboot)'", 9, "'$(reboot)' does not fit attribute 'mcpu'"),
        ("c -mcpu=$(reboot)", 9, "'$' cannot stand here"),
        ("c -mcpu=a;b", 10, "';' cannot stand here"),
        ("c -mcpu=a,b", 9, "attribute 'mcpu' takes one value, not a list"),
        ("c -note='a'b", 12, "'b' cannot stand here"),
        ("c -note='a''b'", 12, '"\'" cannot stand here'),
        ("c -note='a", 9, "the quoted value does not end"),
        (r"c -note='a\n'", 9, "stray backslash"),
        ("c -note='a\x1bb'", 9, r"'a\x1bb' does not fit attribute 'note'"),
        ("needy", 1, "needs attribute 'base'"),
        ("c -opt=2 -dim=3 \x07", 17, r"'\x07' is not an attribute"),
    ],
)
def test_errors_name_the_column(text: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert message in caught.value.what
    assert caught.value.where is not None
    head, window, caret = caught.value.where.split("\n")
    assert head == f"column {column} of the target"
    assert caret.index("^") == 4 + column - 1
    assert window.isprintable()
    assert len(window) == 4 + len(text)


def test_an_error_reads_well() -> None:
    with pytest.raises(UsageError) as caught:
        parse("c -mcpuu=native -opt=2")
    assert str(caught.value) == "\n".join(
        [
            "target kind 'c' has no attribute 'mcpuu'",
            "  where: column 3 of the target",
            "    c -mcpuu=native -opt=2",
            "      ^",
            "  hint: did you mean 'mcpu'? it has mcpu, opt, note, dim, seed, clock_hz, gain, fast",
        ]
    )


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        " " * 1_000_000,
        "c" + " " * 1_000_000 + "-",
        "c -" + "o" * 1_000_000 + "=2",
        "c -opt=" + "2" * 1_000_000,
        "c -note='" + "x" * 1_000_000 + "'",
        "c -note='" + "x" * 1_000_000,
        "c -note='" + "\\\\" * 500_000,
        "c -note='" + "\\" * 1_000_001 + "'",
        "c " + "{" * 1_000_000,
        "c " + "-opt=2 " * 150_000,
        "\x00" * 1_000_000,
    ],
    ids=lambda text: f"{text[:12]!r}",
)
def test_a_megabyte_of_junk_gives_one_short_error(text: str) -> None:
    with pytest.raises(UsageError, match="column ") as caught:
        parse(text)
    assert len(str(caught.value)) < 700


@given(st.text(st.sampled_from("c -='\\opt2dimxé\n\0;"), max_size=40))
def test_any_text_is_a_target_or_one_error_with_a_column(text: str) -> None:
    try:
        target = parse("c " + text)
    except UsageError as error:
        assert (error.where or "").startswith("column ")
    else:
        assert parse(str(target)) == target


# The current target


def test_there_is_no_current_target_by_default() -> None:
    with pytest.raises(UsageError, match="there is no current target"):
        Target.current()


def test_targets_nest_and_one_may_be_entered_twice() -> None:
    one, two = Target(CPU), Target(CPU, {"opt": "2"})
    with one as entered:
        assert entered is Target.current() is one
        with two, one:
            assert Target.current() is one
        assert Target.current() is one
    with pytest.raises(UsageError):
        Target.current()


def test_an_exception_leaves_the_target() -> None:
    with pytest.raises(ZeroDivisionError), Target(CPU):
        raise ZeroDivisionError
    with pytest.raises(UsageError):
        Target.current()


def test_each_thread_has_its_own_current_target() -> None:
    seen: list[object] = []

    def work() -> None:
        try:
            Target.current()
        except UsageError:
            seen.append("none")
        with Target(CPU, {"opt": "1"}):
            seen.append(Target.current().get_attr("opt"))

    with Target(CPU, {"opt": "2"}):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert Target.current().get_attr("opt") == "2"
    assert seen == ["none", "1"]
