"""Target kinds of every sort, for tests: hosts, accelerators and aliases, which no plugin serves."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from uma.errors import UsageError
from uma.targets import Alias, Attribute, ListOf, MapOf, Target, TargetKind
from uma.targets.parsing import COMPOSITE_KIND
from uma.targets.values import MAX_VALUE_CHARS, is_label

__all__ = ["ALIASES", "KINDS", "Registry", "targets"]


def _follow(target: Target) -> Mapping[str, object]:
    """What a ``-mcpu`` says: ``cortex-m7f`` is a cortex-m7 with an FPU."""
    mcpu = target.get_attr("mcpu")
    if not mcpu.startswith("cortex-m"):
        return {}
    derived: dict[str, object] = {"mtriple": target.get_attr("mtriple") or "arm-none-eabi"}
    if mcpu.endswith("f"):
        derived |= {"mcpu": mcpu.removesuffix("f"), "cflags": ["-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"]}
    return derived


C = TargetKind(
    "c",
    (
        Attribute("mcpu", str, default="native", pattern=r"[a-z0-9.+-]+", known=("cortex-m0", "cortex-m4"), help="CPU"),
        Attribute("mtriple", str, pattern=r"[a-z0-9-]+", help="machine"),
        Attribute("cflags", ListOf(str), default=[], help="flags"),
    ),
    help="a CPU",
    is_host=True,
    canonicalise=_follow,
)
LLVM = TargetKind(
    "llvm",
    (
        Attribute("keys", ListOf(str), default=["cpu"], help="keys"),
        Attribute("accelerators", ListOf(Target), help="accelerator targets in order"),
        Attribute("libs", ListOf(str), help="libraries"),
        Attribute("mcpu", str, help="CPU"),
        Attribute("mattr", ListOf(str), help="features"),
        Attribute("mtriple", str, help="machine"),
        Attribute("mfloat-abi", str, help="ABI of floats"),
    ),
    help="a CPU, through LLVM",
    is_host=True,
)
NPU = TargetKind(
    "npu",
    (
        Attribute("array_dim", int, default=8, low=1, high=64, help="rows", deprecated=("dim",)),
        Attribute("spad", int, default=2048, low=0, unit="bytes", help="scratchpad", also=("spad_bytes",)),
        Attribute("clock_hz", float, default=250e3, low=1.0, unit="Hz", help="clock"),
        Attribute("mode", ("fast", "small"), default="fast", help="mode"),
        Attribute("dense", bool, help="no zeros are skipped"),
        Attribute("note", str, help="free text"),
        Attribute("gains", ListOf(float), help="gains"),
        Attribute("modes", ListOf(("fast", "small")), help="modes that it can change to"),
        Attribute("table", MapOf(int), help="cycles by op"),
        Attribute("names", MapOf(str), help="what things are called"),
        Attribute("fallback", Target, help="what takes over"),
        Attribute("parts", MapOf(Target), help="what it is made of"),
    ),
    help="an accelerator",
    device_type="npu",
)
LONELY = TargetKind("lonely", help="an accelerator with a host", device_type="npu", default_host="c -mcpu=generic")
ACL = TargetKind("arm_acl", (Attribute("threads", int, help="threads"),), help="a library", device_type="cpu")
CUDA = TargetKind("cuda", (Attribute("arch", str, help="architecture"),), help="a GPU", device_type="cuda")
NEEDY = TargetKind("needy", (Attribute("at", int, required=True, help="address"),), help="h", device_type="npu")
_ARCH = Attribute("arch", ("sm_75", "sm_80"), help="architecture")
TENSORRT = TargetKind("tensorrt", (_ARCH, Attribute("workspace", int, help="bytes")), help="a library", device_type="l")
CUTLASS = TargetKind("cutlass", (_ARCH,), help="a library", device_type="l")

KINDS = (C, LLVM, NPU, LONELY, ACL, CUDA, NEEDY, TENSORRT, CUTLASS)
ALIASES = (
    Alias(
        "acl", {"kind": "composite", "target_host": {"kind": "llvm"}, "accelerators": [{"kind": "arm_acl"}]}, help="h"
    ),
    Alias("pair", "one: npu; two: npu -array_dim=4; c", help="two of them"),
    Alias("round", "c -accelerators=about", help="in a circle"),
    Alias("about", "composite -host=round", help="in a circle"),
    Alias("wrong", "c -mcpuu=x", help="misspelled"),
)


class Registry:
    """Gives kinds and aliases, as a `PluginHost` does."""

    def __init__(self, kinds: Sequence[TargetKind | Alias] = (*KINDS, *ALIASES)) -> None:
        self._named = {kind.name: kind for kind in kinds}

    def lookup(self, name: str) -> TargetKind | Alias:
        if name not in self._named:
            raise UsageError(f"there is no target kind {name!r}")
        return self._named[name]

    def hosts(self) -> list[TargetKind]:
        return [kind for kind in self._named.values() if isinstance(kind, TargetKind) and kind.is_host]


_PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
_TEXTS = st.one_of(st.text(_PRINTABLE, max_size=12), st.text("'\\ -=,;:(){}[]a", max_size=8))
_LABELS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(is_label)


def _values(attribute: Attribute, nested: st.SearchStrategy[Target]) -> st.SearchStrategy[object]:
    item = attribute.type.item if isinstance(attribute.type, (ListOf, MapOf)) else attribute.type
    items: st.SearchStrategy[object]
    if isinstance(item, tuple):
        items = st.sampled_from(item)
    elif attribute.holds_targets:
        items = nested
    elif item is bool:
        items = st.booleans()
    elif item is int:
        low = -(2**63) if attribute.low is None else int(attribute.low)
        items = st.integers(low, 2**63 - 1 if attribute.high is None else int(attribute.high))
    elif item is float:
        items = st.floats(attribute.low, allow_nan=False, allow_infinity=False)
    elif attribute.pattern is not None:
        items = st.from_regex(attribute.pattern, fullmatch=True).filter(lambda text: len(text) <= MAX_VALUE_CHARS)
        if attribute.name == "compiler":
            items = st.sampled_from(["npu", "arm_acl", "tensorrt", "lonely"]) | items.filter(is_label)
    else:
        items = _TEXTS
    if isinstance(attribute.type, ListOf):
        return st.lists(items, max_size=3)
    return st.dictionaries(_TEXTS.filter(bool), items, max_size=3) if isinstance(attribute.type, MapOf) else items


def _of_kind(
    kind: TargetKind, nested: st.SearchStrategy[Target], hosts: Sequence[st.SearchStrategy[Target]]
) -> st.SearchStrategy[Target]:
    attributes = [attribute for attribute in (*kind.attributes, *kind.common) if attribute.name not in ("host", "tag")]
    attrs = {attribute.name: _values(attribute, nested) for attribute in attributes}
    if kind is COMPOSITE_KIND:  # it needs something within it
        attrs["devices"] = st.lists(nested, min_size=1, max_size=3)
    required = {name: attrs.pop(name) for name in list(attrs) if kind.attribute(name).required or name == "devices"}
    labels = st.none() if kind is COMPOSITE_KIND else st.none() | _LABELS
    tags = st.sampled_from(["acl", "my-board", "st/nucleo-f746"])
    return st.builds(
        lambda attrs, label, tag, host: Target(kind, attrs, label, tag, host),
        st.fixed_dictionaries(required, optional=attrs),
        labels,
        st.none() | tags,
        st.one_of(st.none(), *hosts),
    )


@functools.cache
def _hosts() -> dict[str, st.SearchStrategy[Target]]:
    """Hosts of every kind that have no host."""
    nested = st.builds(Target, st.sampled_from([NPU, ACL]))
    return {kind.name: _of_kind(kind, nested, ()) for kind in KINDS if kind.is_host}


@functools.cache
def _any(depth: int) -> st.SearchStrategy[Target]:
    if depth == 0:
        return st.builds(Target, st.sampled_from([C, LLVM, NPU, ACL]))
    nested = targets(depth - 1)
    # No target is the host of itself.
    hosts = {kind.name: [host for name, host in _hosts().items() if name != kind.name] for kind in KINDS}
    hosts[COMPOSITE_KIND.name] = list(_hosts().values())
    return st.one_of(*(_of_kind(kind, nested, hosts[kind.name]) for kind in (*KINDS, COMPOSITE_KIND)))


def targets(depth: int = 2) -> st.SearchStrategy[Target]:
    """Targets of all kinds, with others within them, ``depth`` of them at most."""
    return st.deferred(lambda: _any(depth))  # which keeps what a failure prints short
