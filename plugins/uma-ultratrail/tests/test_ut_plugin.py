"""The plugin as users meet it: its kind, alias and attributes; and its page, which is made from its clauses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from uma.errors import UsageError
from uma.lowering.build_targets import resolve_targets
from uma.plugins import PluginEntry, PluginHost
from uma_ultratrail.machine import ATTRIBUTES, Machine
from uma_ultratrail.registers import FIELDS
from uma_ultratrail.supported import make_patterns

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- clauses: made by test_ut_plugin.py -->", "<!-- end of clauses -->"


@pytest.fixture
def host() -> PluginHost:
    return PluginHost(
        lambda: [
            PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
            PluginEntry("ultra_trail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
            PluginEntry("ultratrail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
        ]
    )


@pytest.mark.parametrize("name", ["ultra_trail", "ultratrail"])
def test_the_name_is_enough(host: PluginHost, name: str) -> None:
    members = resolve_targets(name, host)
    assert [member.label for member in members.all] == ["ultra_trail", "c"]
    machine = Machine.from_target(members["ultra_trail"].target)
    assert machine == Machine() and (machine.array_dim, machine.layers, machine.clock_hz) == (8, 16, 250e3)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("-array_dim=0", "array_dim"),
        ("-weight_bits=9", "weight_bits"),
        ("-clock_hz=0", "clock_hz"),
        ("-layers=17", "layers"),
        ("-impl=fpga", "impl"),
        ("-array=8", "did you mean 'array_dim'"),
        ("-accumulator_bits=13", "an accumulator of 13 bits does not hold the product"),
        ("-weight_bits=2 -feature_bits=4 -bias_bits=8", "a bias of 8 bits is finer than the product"),
    ],
)
def test_what_it_cannot_be_is_refused(host: PluginHost, text: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        resolve_targets(f"ultra_trail {text}", host)


def clauses() -> str:
    """The clauses of the machine as published: what has to hold, without the number of a layer that fails it."""
    lines = ["| clause | what has to hold, and what to do where it does not |", "| --- | --- |"]
    for clause in make_patterns(Machine())[0].predicate:
        text = re.sub(r"\{value\}", "...", clause.reason)
        lines.append(f"| `{clause.name}` | {text[0].upper()}{text[1:]} |")
    return "\n".join(lines)


def test_the_page_has_the_clauses(request: pytest.FixtureRequest) -> None:
    """``pytest --update-golden`` writes them."""
    page = README.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    found, _, after = rest.partition(END)
    if request.config.getoption("--update-golden"):
        README.write_text(f"{before}{BEGIN}\n{clauses()}\n{END}{after}", encoding="utf-8")
        return
    assert found.strip() == clauses(), "if the new clauses are right: pytest --update-golden, then read `git diff`"


def test_the_page_names_every_attribute_and_field() -> None:
    page = README.read_text(encoding="utf-8")
    names = [attribute.name for attribute in ATTRIBUTES] + [field.name for field in FIELDS]
    assert not [name for name in names if f"`{name}`" not in page]
    for field in FIELDS:
        assert re.search(rf"^\| `{field.name}` \| {field.bits} \|", page, re.MULTILINE), field.name
