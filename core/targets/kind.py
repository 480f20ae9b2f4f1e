"""Target kinds and the attributes that they declare.

A plugin declares its attributes once; parsing, checking, defaults, error messages and the tables of ``uma targets``
all come from the declaration. A wrong declaration is the plugin's fault (`PluginError`), a wrong value the user's
(`UsageError`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar

from ..errors import PluginError, UsageError
from .attribute import Attribute
from .values import AttributeType, ListOf, NestedTarget, Value, is_attribute_name, is_keyword, is_name, shown, suggest

if TYPE_CHECKING:
    from ..support.rounding import FixedPointForm
    from .limits import Limits
    from .quantised import QuantisedForm
    from .target import Target

__all__ = ["COMPOSITE", "Alias", "Attribute", "AttributeType", "TargetKind", "Value", "is_name", "shown", "suggest"]

COMPOSITE = "composite"
"""The name of the kind that is the core's own: a host and devices."""

_RESERVED = ("kind", "label")
"""Keys of the JSON form that are not attributes."""

_FREE = ("impl", "base", "device", "model", "libs", "from_device", "mattr", "mfloat-abi")
"""Common attributes that a kind may declare as it likes; of the others it may change all but the type."""

UNREAD = ("mattr", "mfloat-abi")
"""Common attributes that have an effect only if the kind declares them itself."""


@dataclass(frozen=True)
class TargetKind:
    """A kind of hardware: its name and what can be said about one.

    Args:
        name: ``[a-z][a-z0-9_]*``; the name of the entry point that serves it.
        attributes: its own, in the order in which targets are printed; besides them it has those of `common`. Where a
            host has an int ``threads``, loops are marked for so many threads.
        help: one line for users.
        device_type: the class of hardware, for example ``cpu``.
        is_host: whether it runs every op, and so can be the one that takes what others leave.
        limits: how large the regions of an accelerator, or the kernels of a host, may be, or what says so of a target;
            None for what `Limits` says.
        default_host: the text of the host that is added for an accelerator which is given without one.
        canonicalise: gives the attributes that follow from those that were given, and those that go before what was
            given: ``mtriple``, ``mcpu=cortex-m7`` for ``-mcpu=cortex-m7f``. It is a function of the target alone.
        features: gives of a host's target what its CPU can, which loops for it may count on; None for nothing. The core
            knows ``fma`` (a * b + c rounded once is an instruction, of the floats that the CPU has), ``float32`` and
            ``float64`` (the CPU computes with these), and ``small_stack`` (arrays on the stack are aligned as their
            elements, not to a cache line); other names are the kind's own.
        quantised: how models are quantised for an accelerator, or for a host without accelerators, or a function from a
            target to that; None for the default values of `QuantisedForm`.
        fixed_point: the arithmetic by which an accelerator scales sums, or what says so of a target: with
            ``--allow rounding=fixed-point`` it is offered layers with float scales in it. None for an accelerator that
            is to be offered what the model says and nothing else.
        needs_device: whether an accelerator runs on a device that another target of the build is. The build must then
            have a target of its ``device_type``: a library for ``cuda`` needs a ``cuda`` device.
        from_device: returns the attributes of device number N of this machine, for ``-from_device=N``. It receives a
            target with the attributes that were given, which override what it returns, and N. It raises UsageError
            where there is no such device. None for a kind that cannot read its devices.

    Raises:
        PluginError: the declaration contradicts itself.
    """

    name: str
    attributes: tuple[Attribute, ...] = ()
    _: KW_ONLY
    help: str
    device_type: str = "cpu"
    is_host: bool = False
    limits: Limits | Callable[[Target], Limits] | None = None
    default_host: str | None = None
    canonicalise: Callable[[Target], Mapping[str, object]] | None = None
    features: Callable[[Target], frozenset[str]] | None = None
    quantised: QuantisedForm | Callable[[Target], QuantisedForm] | None = None
    fixed_point: FixedPointForm | Callable[[Target], FixedPointForm | None] | None = None
    needs_device: bool = False
    from_device: Callable[[Target, int], Mapping[str, object]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        self._require(is_name(self.name), "its name must match [a-z][a-z0-9_]* and have at most 64 characters")
        self._require(not is_keyword(self.name), "its name must be no keyword of C or Python: it names targets")
        self._require(is_name(self.device_type), f"device type {shown(self.device_type)} must be a name as well")
        self._require(bool(self.help.strip()), "it needs a help text")
        self._require(not (self.is_host and self.default_host), "a host has no default host")
        self._require(self.is_host or self.features is None, "features are of hosts, and it is none")
        self._require(not (self.is_host and self.fixed_point), "a host computes what the model says: no fixed_point")
        self._require(self.needs_device in (False, True), "needs_device must be True or False")
        self._require(not (self.is_host and self.needs_device), "a host needs no other device")
        names = [name for attribute in self.attributes for name in attribute.names]
        for name in names:
            self._require(names.count(name) == 1, f"attribute {name!r} is declared twice")
            self._require(name not in _RESERVED, f"an attribute cannot be called {name!r}")
        common = {attribute.name: attribute for attribute in _common(self.name == COMPOSITE, self.is_host)}
        for attribute in self.attributes:
            if attribute.name in common and attribute.name not in _FREE:
                fits = attribute.has_same_type(common[attribute.name])
                self._require(fits, f"attribute {attribute.name!r} has another type")

    def __repr__(self) -> str:
        return f"<TargetKind {self.name}: {'host' if self.is_host else 'accelerator'}>"

    def _repr_html_(self) -> str:
        """A row for each attribute of its own."""
        from ..support.html import html_of, table

        rows = [
            (one.name, "" if one.default is None else str(one.default), "required" if one.required else "", one.help)
            for one in self.attributes
        ]
        caption = f"Target kind {self.name}: {self.help}"
        return html_of(table(caption, ("attribute", "default", "", "meaning"), rows))

    def _require(self, condition: bool, text: str) -> None:
        if not condition:
            raise PluginError(f"target kind {shown(self.name)}: {text}")

    @cached_property
    def common(self) -> tuple[Attribute, ...]:
        """The attributes that it has besides its own, as every host or accelerator has."""
        declared = {name for attribute in self.attributes for name in attribute.names}
        return tuple(
            attribute for attribute in _common(self.name == COMPOSITE, self.is_host) if attribute.name not in declared
        )

    def is_common(self, name: str) -> bool:
        """Whether it has an attribute ``name`` with the meaning that the core gives it."""
        return any(attribute.name == name for attribute in self.common)

    def has(self, name: str) -> bool:
        """Whether there is an attribute ``name``, own or common, by this or a former name."""
        return name in self._by_name

    def attribute(self, name: str) -> Attribute:
        """The declaration of ``name``, which may be a former name of the attribute, or another that it has.

        Raises:
            UsageError: the kind has no such attribute; the nearest name and all names are in the hint.
        """
        key: object = name
        if isinstance(key, str) and name in self._by_name:
            return self._by_name[name]
        if self.name == COMPOSITE and name in {attribute.name for attribute in _common(False, True)}:
            text = f"attribute {name!r} is of one target, and a composite is several"
            raise UsageError(text, hint=f"give -{name} to its host, or to one of its devices")
        names = ", ".join(attribute.name for attribute in self.attributes)
        raise UsageError(
            f"target kind {self.name!r} has no attribute {shown(name)}",
            hint=suggest(str(name), self._by_name) + (f"it has {names}" if names else "it has none of its own"),
        )

    @cached_property
    def _by_name(self) -> dict[str, Attribute]:
        return {name: attribute for attribute in (*self.attributes, *self.common) for name in attribute.names}


@dataclass(frozen=True)
class Alias:
    """A name that stands for a whole target: ``acl`` for an accelerator with the host that it is usually given.

    Args:
        name: ``[a-z][a-z0-9_-]*``; of a plugin, an entry point beside its kinds.
        expands_to: what `read_targets` takes: a text, a dict, or a list of these for a name that stands for several.
        help: one line for users.

    Raises:
        PluginError: the declaration contradicts itself.
    """

    name: str
    expands_to: str | Mapping[str, object] | Sequence[str | Mapping[str, object]]
    _: KW_ONLY
    help: str

    json_fields: ClassVar = ("name", "help", "expands_to")

    def __post_init__(self) -> None:
        self._require(is_attribute_name(self.name), "its name must match [a-z][a-z0-9_-]*")
        self._require(bool(self.help.strip()), "it needs a help text")
        expansion: object = self.expands_to
        self._require(isinstance(expansion, (str, Mapping, list, tuple)), f"it cannot expand to {shown(expansion)}")

    def _require(self, condition: bool, text: str) -> None:
        if not condition:
            raise PluginError(f"alias {shown(self.name)}: {text}")


@cache
def _common(is_composite: bool, is_host: bool) -> tuple[Attribute, ...]:
    name = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"
    keys = Attribute("keys", ListOf(str), pattern=name, help="what strategies may look for, most special first")
    device_type = Attribute(
        "device_type", str, pattern=r"[a-z][a-z0-9_]{0,63}", help="class of hardware, where it is not that of the kind"
    )
    compiler = Attribute(
        "compiler", str, pattern=r"[A-Za-z_][A-Za-z0-9_]{0,63}", help="who compiles for it: refines the target"
    )
    accelerators = Attribute(
        "accelerators", ListOf(NestedTarget), help="accelerators that this host drives, by priority"
    )
    executor = Attribute(
        "executor",
        ("aot", "graph"),
        default="aot",
        help="what runs a model's steps: C printed ahead of time for each; or a table that an interpreter in C runs, "
        "over kernels that several models of one image share",
    )
    impl = Attribute("impl", str, default="sim", pattern=name, help="which of its implementations reaches the device")
    base = Attribute("base", int, low=0, help="address of the first register, for an implementation in memory")
    clock_hz = Attribute(
        "clock_hz", float, default=100e6, low=1.0, unit="Hz", help="clock, by which its cycles are time"
    )
    launch_ns = Attribute(
        "launch_ns",
        int,
        default=2000,
        low=0,
        high=10**12,
        help="nanoseconds that starting a region takes its host, and noticing that it has ended",
    )
    call_ns = Attribute(
        "launch_ns", int, default=0, low=0, high=10**12, help="nanoseconds that calling a kernel takes beside its work"
    )
    device = Attribute("device", str, pattern=name, help="family of the device: strategies see it as the first of keys")
    model = Attribute(
        "model",
        str,
        pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
        help="exact model of the hardware: tables of costs may name the target by it",
    )
    libs = Attribute(
        "libs",
        ListOf(str),
        pattern=r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}",
        help="the only libraries that may be linked for it; by default all that its plugin asks for",
    )
    from_device = Attribute(
        "from_device", int, low=0, help="number of a device of this machine whose attributes are copied"
    )
    mattr = Attribute(
        "mattr",
        ListOf(str),
        pattern=r"[+-][A-Za-z0-9_][A-Za-z0-9_.]{0,31}",
        help="extensions of the CPU: +NAME or -NAME",
    )
    float_abi = Attribute("mfloat-abi", ("soft", "softfp", "hard"), help="where functions pass floats, on 32-bit Arm")
    host = Attribute("host", NestedTarget, help="what runs the rest of the model")
    tag = Attribute("tag", str, pattern=r"[a-z][a-z0-9_.-]{0,63}(/[a-z0-9][a-z0-9_.-]{0,63})?", help="its given name")
    if is_composite:
        return host, tag
    attributes: tuple[Attribute, ...] = (impl, base, clock_hz, launch_ns)
    if is_host:
        attributes = (accelerators, executor, clock_hz, call_ns, mattr, float_abi)
    return (keys, device_type, compiler, *attributes, device, model, libs, from_device, host, tag)
