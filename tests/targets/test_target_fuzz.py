"""Targets of all kinds keep what they hold in every form; what is malformed is one error with its place."""

from __future__ import annotations

import json
import pickle
import random
import string
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests._support.target_kinds import Registry, targets

from uma.errors import UsageError
from uma.targets import Target, parse_target, read_targets
from uma.targets.config import CompilationConfig
from uma.targets.parsing import COMPOSITE_KIND
from uma.targets.text import spell

REGISTRY = Registry()


def check_round_trips(target: Target) -> None:
    text = str(target)
    assert text.isprintable()
    for again in (
        parse_target(text, REGISTRY.lookup),
        Target.from_json(target.to_json(), REGISTRY.lookup),
        parse_target(json.dumps(target.to_json()), REGISTRY.lookup),
        pickle.loads(pickle.dumps(target)),
    ):
        assert again == target and hash(again) == hash(target)
        assert str(again) == text and again.to_json() == target.to_json()
        assert again.derived == target.derived


@given(targets())
@settings(max_examples=20)
def test_every_form_gives_the_target_back(target: Target) -> None:
    check_round_trips(target)


@pytest.mark.soak
@given(targets())
@settings(max_examples=10_000)
def test_every_form_gives_ten_thousand_targets_back(target: Target) -> None:
    check_round_trips(target)


def shuffled(value: Any, choice: random.Random) -> Any:
    """JSON with the keys of each object in another order."""
    if isinstance(value, dict):
        items = [(name, shuffled(item, choice)) for name, item in value.items()]
        choice.shuffle(items)
        return dict(items)
    return [shuffled(item, choice) for item in value] if isinstance(value, list) else value


@given(targets(), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_order_of_attributes_does_not_count(target: Target, choice: random.Random) -> None:
    record = shuffled(target.to_json(), choice)
    attrs = list(target.attrs.items())
    choice.shuffle(attrs)
    head = target.kind.name if target.label is None else f"{target.label}: {target.kind.name}"
    rest = [("host", target.host), ("tag", target.tag)]
    options = [f"-{name}={spell(value)}" for name, value in [*attrs, *rest] if value is not None]
    choice.shuffle(options)
    for again in (
        Target.from_json(record, REGISTRY.lookup),
        parse_target(json.dumps(record), REGISTRY.lookup),
        parse_target(" ".join([head, *options]), REGISTRY.lookup),
        Target(target.kind, dict(attrs), target.label, target.tag, target.host),
    ):
        assert again == target and str(again) == str(target) and again.derived == target.derived


@given(targets(1), targets(1))
@settings(max_examples=15)
def test_targets_are_equal_where_their_texts_are(one: Target, other: Target) -> None:
    assert (one == other) == (str(one) == str(other)) == (one.to_json() == other.to_json())


def config_of(given: object) -> CompilationConfig | None:
    try:
        return CompilationConfig.resolve(given, REGISTRY)
    except UsageError:
        return None


def check_canonical(bag: list[Target]) -> None:
    config = config_of(bag)
    event("no build" if config is None else f"{len(config.targets)} targets, {len(config.hosts)} of them hosts")
    if config is None:
        return
    assert config.hosts and all(target.kind.is_host for target in config.hosts)
    assert not any(target.kind.is_host for target in config.accelerators)
    names = [target.name for target in config.targets]
    assert len(set(names)) == len(names)
    for again in (config, list(config.targets), config.canonical, str(config.canonical), config.canonical.to_json()):
        assert CompilationConfig.resolve(again, REGISTRY) == config
        assert CompilationConfig.resolve(again, REGISTRY).canonical == config.canonical


BAGS = st.lists(targets(1), min_size=1, max_size=4)


@given(BAGS)
@settings(max_examples=15)
def test_canonicalising_twice_changes_nothing(bag: list[Target]) -> None:
    check_canonical(bag)


@pytest.mark.soak
@given(BAGS)
@settings(max_examples=3_000)
def test_canonicalising_thousands_of_bags_twice_changes_nothing(bag: list[Target]) -> None:
    check_canonical(bag)


def is_mixed(target: Target) -> bool:
    """Whether it brings accelerators though it is a host, or hosts though it is none: its place counts among both."""
    if target.kind is COMPOSITE_KIND:
        return any(one.kind.is_host for one in target.get_attr("devices") or ())
    brings = ("accelerators", "compiler")
    hosts = [one for one in (target, target.host) if one is not None]
    return target.kind.is_host and any(one.get_attr(name) for one in hosts for name in brings)


@given(st.lists(targets(1), min_size=1, max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_only_the_order_of_hosts_and_that_of_accelerators_count(bag: list[Target], choice: random.Random) -> None:
    hosts = [target for target in bag if target.kind.is_host and not is_mixed(target)]
    others = [target for target in bag if not target.kind.is_host and not is_mixed(target)]
    before = config_of([*hosts, *others])
    queues, mixed = [hosts, others], []
    while any(queues):
        mixed.append(choice.choice([queue for queue in queues if queue]).pop(0))
    assert config_of(mixed) == before


SEEDS = [
    "low_power_cpu: c -mcpu=cortex-m0; inference_cpu: c -mcpu=cortex-m7f",
    "c -accelerators='npu0: npu -array_dim=8 -gains=1,2.5,3',arm_acl",
    "npu -table={conv:3,'de nse':4} -note='it\\'s' -fallback=(npu -note='a b') -spad=256K",
    '{"kind": "composite", "host": {"kind": "c"}, "devices": [{"kind": "npu", "gains": [1.0, 2]}, "arm_acl"]}',
    '[{"kind": "npu", "label": "a", "table": {"conv": 3}}, "c"]',
]
JUNK = [
    *string.printable,
    "\0",
    "\x1b",
    "\x7f",
    "\u00e9",
    "\u2028",
    "\ud800",
    "$(reboot)",
    "';",
    "((",
    "[[",
    "{{",
    "'\\",
]


def malformed(choice: random.Random) -> str:
    """A text of a target with a few characters changed, lost or added."""
    text = choice.choice(SEEDS)
    for _ in range(choice.randint(1, 4)):
        at = choice.randrange(len(text) + 1)
        text = text[:at] + choice.choice(["", choice.choice(JUNK)]) + text[at + choice.randint(0, 3) :]
    return text


def test_a_thousand_malformed_texts_are_each_one_error_with_a_column() -> None:
    choice, refused = random.Random(6), 0
    for _ in range(100_000):
        text = malformed(choice)
        try:
            CompilationConfig.resolve(text, REGISTRY)
        except UsageError as error:
            refused += 1
            head, window, caret = (error.where or "").split("\n")
            assert head.startswith("column ") and window.isprintable() and caret.strip() == "^", (text, error.where)
            assert error.what.isprintable() and len(str(error)) < 2000
        if refused == 1_000:
            break
    assert refused == 1_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1_000_000,
        "c -accelerators=" + "(npu -fallback=" * 60_000,
        "c -accelerators=" + "(npu -fallback=" * 20,
        "npu -table={" + "a:1," * 200_000,
        "npu -gains=[" + "1," * 400_000,
        "npu -gains=" + "1," * 20_000 + "1",
        "[" * 1_000_000,
        "[" * 100,
        '{"kind":' * 50,
        '{"kind":' * 100_000,
        '{"kind": "npu", "array_dim": ' + "9" * 100_000 + "}",
        '{"kind": "c", "mcpu": "' + "x" * 900_000 + '"}',
        '["c",' + '"c",' * 300,
        "c;" * 20_000,
        "c: " * 20_000,
    ],
    ids=lambda text: f"{text[:16]!r}-{len(text)}",
)
def test_large_and_deep_junk_is_one_short_error(text: str) -> None:
    with pytest.raises(UsageError, match="column ") as caught:
        read_targets(text, REGISTRY.lookup)
    assert len(str(caught.value)) < 1000
