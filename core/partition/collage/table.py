"""Tables of costs, as files: what somebody measured elsewhere, or keeps so that a placement repeats.

    {
      "schema_version": 1,
      "targets": {
        "npu": {"launch_ns": 50000, "link": {"ns": 20000, "bytes_per_s": 50e6}},
        "c": {"factor": 1500}
      },
      "costs": {"npu: nn.dense@0 add@1": {"cycles": 4200}, "c: nn.softmax@2": {"ns": 81000}}
    }

``targets`` says of a label's target how long a launch takes, how its memory is reached where it has one of its own,
how many cycles it has in a second, and by what to multiply what is measured here: 1500 for a host that is so much
slower. Its ``source`` is ``estimated`` or ``measured``, where its regions' costs are not to come from its plugin, or,
if that tells none, from running them. ``costs`` has what parts cost without their launch, by the names that ``uma
plan`` writes. In both, the attribute ``model`` of a target may be written in place of its label. All of it may be left
out, and what is not told comes from the other sources.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...errors import UsageError
from ...support.regular_files import open_plain, unreadable
from ...targets.values import shown, suggest
from ..cost_provider import Link, whole_ns

__all__ = ["CostTable", "TargetCosts"]

SCHEMA_VERSION = 1
_MOST_BYTES = 64 << 20
_SOURCES = ("measured", "estimated")

_T = TypeVar("_T")


@dataclass(frozen=True)
class TargetCosts:
    """What a table says of one target; None for what it leaves to others.

    Args:
        launch_ns: of starting something on it once.
        clock_hz: its cycles in a second.
        link: how its memory is reached; None where it works in that of the hosts.
        factor: what is measured here is multiplied by it.
        source: who tells what its regions cost, ``measured`` or ``estimated``; None for its plugin where that does.
    """

    launch_ns: int | None = None
    clock_hz: float | None = None
    link: Link | None = None
    factor: float | None = None
    source: str | None = None


@dataclass(frozen=True)
class CostTable:
    """A table.

    Args:
        targets: what it says of targets, by label.
        ns: of parts by their names, in nanoseconds.
        cycles: likewise, in cycles of the target's clock.
    """

    targets: Mapping[str, TargetCosts] = field(default_factory=dict)
    ns: Mapping[str, int] = field(default_factory=dict)
    cycles: Mapping[str, float] = field(default_factory=dict)

    def by_label(self, models: Mapping[str, str]) -> CostTable:
        """The same table with the names of models replaced by the labels of the targets of that model. What it states
        for a label itself stays.

        Args:
            models: the model of each target that has one, by label.
        """
        labels: dict[str, list[str]] = {}
        for label, model in models.items():
            labels.setdefault(model, []).append(label)

        def rename(costs: Mapping[str, _T]) -> dict[str, _T]:
            renamed = {}
            for name, cost in costs.items():
                model, colon, part = name.partition(": ")
                renamed.update({f"{label}{colon}{part}": cost for label in labels.get(model, ())})
            kept = {name for name in costs if (head := name.partition(": ")[0]) not in labels or head in models}
            return renamed | {name: cost for name, cost in costs.items() if name in kept}

        return CostTable(rename(self.targets), rename(self.ns), rename(self.cycles)) if labels else self

    @staticmethod
    def read(path: str | os.PathLike[str]) -> CostTable:
        """The table in a file.

        Raises:
            UsageError: it cannot be read, or is none; names the file, and what in it is wrong.
        """
        try:
            return CostTable.from_json(read_json(path, "the table of costs"))
        except UsageError as error:
            raise UsageError(error.what, where=error.where or os.fspath(path), hint=error.hint) from error

    @staticmethod
    def from_json(record: object) -> CostTable:
        """The table that a JSON object is.

        Raises:
            UsageError: it is none.
        """
        table = _object(record, "a table of costs", ("schema_version", "targets", "costs"))
        if table.get("schema_version") != SCHEMA_VERSION:
            text = f"the table of costs does not say that its schema_version is {SCHEMA_VERSION}"
            raise UsageError(text, hint='begin it with {"schema_version": 1')
        targets = {label: _target(one, label) for label, one in _object(table.get("targets", {}), "targets").items()}
        ns: dict[str, int] = {}
        cycles: dict[str, float] = {}
        for name, value in _object(table.get("costs", {}), "costs").items():
            cost = _object(value, f"the cost of {shown(name)}", ("ns", "cycles", "source"))
            if ("ns" in cost) == ("cycles" in cost):
                text = "two costs" if "ns" in cost else "no cost"
                raise UsageError(f"the table has {text} of {shown(name)}", hint="give ns, or give cycles")
            if "ns" in cost:
                ns[name] = whole_ns(cost["ns"], shown(name))
            else:
                cycles[name] = _number(cost["cycles"], f"the cycles of {shown(name)}", least=0.0)
        return CostTable(targets, ns, cycles)


def read_json(path: str | os.PathLike[str], subject: str) -> object:
    """What a JSON file holds, of which no object has a key twice.

    Raises:
        UsageError: it cannot be read, is too large or no JSON.
    """
    try:
        with open_plain(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, subject) from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{subject} is larger than {_MOST_BYTES >> 20} MiB", where=os.fspath(path))

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(items)
        if len(record) < len(items):
            twice = next(key for number, (key, _) in enumerate(items) if key in dict(items[:number]))
            raise UsageError(f"{subject} has {shown(twice)} twice in one object", where=os.fspath(path))
        return record

    try:
        return json.loads(content, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{subject} is not JSON: {error}", where=os.fspath(path)) from error


def _target(record: object, label: str) -> TargetCosts:
    one = _object(record, f"target {shown(label)}", ("launch_ns", "clock_hz", "link", "factor", "source"))
    link = None
    if "link" in one:
        link_record = _object(one["link"], f"the link of {shown(label)}", ("ns", "bytes_per_s"))
        if "bytes_per_s" not in link_record:
            raise UsageError(f"the link of {shown(label)} has no bytes_per_s")
        rate = _number(link_record["bytes_per_s"], f"bytes_per_s of {shown(label)}", least=1.0)
        link = Link(whole_ns(link_record.get("ns", 0), f"a copy to {shown(label)}"), rate)
    source = one.get("source")
    if source not in (None, *_SOURCES):
        raise UsageError(f"the source of {shown(label)} is {shown(source)}", hint=f"there are {', '.join(_SOURCES)}")
    return TargetCosts(
        whole_ns(one["launch_ns"], f"a launch of {shown(label)}") if "launch_ns" in one else None,
        _number(one["clock_hz"], f"clock_hz of {shown(label)}", least=1.0) if "clock_hz" in one else None,
        link,
        _number(one["factor"], f"the factor of {shown(label)}", least=1e-9) if "factor" in one else None,
        source,
    )


def _number(value: object, subject: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 1e18:
        raise UsageError(f"{subject} is {shown(value)}, not a number from {least:g} on")
    return float(value)


def _object(value: object, subject: str, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{subject} is {shown(value)}, not a JSON object", hint="docs/placement.md shows the form")
    for key in value:
        if keys is not None and key not in keys:
            hint = f"{suggest(key, keys)}there are {', '.join(keys)}"
            raise UsageError(f"{subject} has {shown(key)}, which is nothing", hint=hint)
    return value
