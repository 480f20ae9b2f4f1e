"""The three sentences that a report begins with: what runs where, what does not fit, what to try."""

from __future__ import annotations

from collections.abc import Sequence

from ...support.formatting import format_percent
from ...targets.values import shorten
from .records import LayerRow, MemoryRow, ReportRecord

__all__ = ["bytes_told", "host_memory", "summary"]

_NAME_CHARS = 60


def summary(report: ReportRecord) -> tuple[str, ...]:
    """The three sentences.

    Args:
        report: all else of it.
    """
    return _where(report), _what_stays(report), _what_to_try(report)


def bytes_told(nbytes: int) -> str:
    """``55,296 bytes (54.0 KiB)``."""
    if nbytes < 1024:
        return f"{nbytes:,} bytes"
    value, unit = (nbytes / 1024, "KiB") if nbytes < 1024**2 else (nbytes / 1024**2, "MiB")
    return f"{nbytes:,} bytes ({value:.1f} {unit})"


def host_memory(report: ReportRecord) -> MemoryRow | None:
    """The largest memory of the arena; None where the model works in none."""
    pools = [memory for memory in report.memories if "." not in memory.pool]
    return max(pools, key=lambda memory: memory.bytes, default=None)


def _where(report: ReportRecord) -> str:
    hosts = [target.label for target in report.targets if target.is_host]
    accelerators = [target.label for target in report.targets if not target.is_host]
    counted = _counted(report)
    kind = _count(len(counted), "call" if report.of_artifact else "layer")
    if not accelerators:
        return f"{_join(hosts)} runs all {kind}, with {_macs(report.macs)}; there is no accelerator among the targets."
    offloaded = [layer for layer in counted if not set(hosts) & set(layer.targets)]
    if not offloaded:
        none = f"{_join(accelerators)} {'runs' if len(accelerators) == 1 else 'run'} none of the {kind}"
        return f"{none}; {_join(hosts)} runs all, with {_macs(report.macs)}."
    cycles = [
        f"{target.label} {'counted' if target.counted else 'is to take'} {target.cycles:,.0f} cycles"
        for target in report.targets
        if target.cycles
    ]
    macs = f", {format_percent(report.offloaded)} of the {_macs(report.macs)}" if report.macs else ""
    rest = f"; {_join(hosts)} runs the rest" if len(offloaded) < len(counted) else ""
    in_cycles = f" ({', '.join(cycles)})" if cycles else ""
    who = f"{_join(accelerators)} {'runs' if len(accelerators) == 1 else 'run'}"
    return f"{who} {len(offloaded)} of {kind}{macs}{in_cycles}{rest}."


def _what_stays(report: ReportRecord) -> str:
    hosts = {target.label for target in report.targets if target.is_host}
    stays = [layer for layer in _counted(report) if hosts & set(layer.targets)]
    if all(target.is_host for target in report.targets):
        return _takes(report)
    if not stays:
        return f"Nothing is left to the host; {_takes(report)[0].lower()}{_takes(report)[1:]}"
    # A layer has several ops: some of them may be elsewhere.
    macs = sum(target.macs for target in report.targets if target.is_host)
    whole = [layer for layer in stays if hosts.issuperset(layer.targets)]
    noun = "call" if report.of_artifact else "layer"
    parts = [_count(len(whole), noun)] if whole else []
    if len(whole) < len(stays):
        parts.append(f"a part of {_count(len(stays) - len(whole), noun)}")
    does = "do not" if len(parts) > 1 or len(whole) > 1 else "does not"
    sentence = _join(parts)
    head = f"{sentence[0].upper()}{sentence[1:]}{f' with {_macs(macs)}' if macs else ''} {does} fit"
    if report.of_artifact:
        return f"{head}; an artifact does not keep why: a report of the model's file says it."
    if not report.reasons:
        return f"{head}: no pattern of an accelerator is about them."
    first = report.reasons[0]
    others = "" if len(report.reasons) == 1 else f" ({len(report.reasons) - 1:,} more below)"
    amount = f"of {_count(first.layers, 'layer')}" if first.macs == 0 else f"of {_macs(first.macs)}"
    return f"{head}; {amount} {first.target} says: {_clause(first.reason)}{others}."


def _takes(report: ReportRecord) -> str:
    ram, rom = bytes_told(report.ram_bytes), bytes_told(report.rom_bytes)
    stack = "" if report.footprint.stack_bytes is not None else " without the stack"
    code = "" if report.footprint.code_bytes is not None else " without the code"
    return f"It takes {rom} of ROM{code} and {ram} of RAM{stack}."


def _what_to_try(report: ReportRecord) -> str:
    if report.reasons and report.reasons[0].macs * 20 >= report.macs:
        top = report.reasons[0]
        part = f"{format_percent(top.macs / report.macs)} of the work" if report.macs else _count(top.layers, "layer")
        return f"Try first to lift that reason, in the model or by the target's attributes: it holds {part} back."
    memory = host_memory(report)
    if memory is not None and memory.peak_bytes * 4 >= report.ram_bytes:
        has: dict[str, int] = {}
        for one in memory.placed:
            if one.at_peak:
                has[one.layer] = has.get(one.layer, 0) + one.bytes
        layer = max(has, key=lambda layer: has[layer])
        part = f"{has[layer]:,} of the {memory.peak_bytes:,} bytes in use there"
        text = f"{part} are written by {shorten(layer, _NAME_CHARS)}"
        return f"To save RAM, begin at step {memory.peak_step}, where it is fullest: {text}."
    if report.layers:
        largest = max(report.layers, key=lambda layer: layer.weight_bytes)
        if largest.weight_bytes:
            text = f"its constants are {bytes_told(largest.weight_bytes)}"
            return f"To save ROM, begin with {_quoted(', '.join(largest.names) or largest.name)}: {text}."
    return "There is nothing that stands out."


def _counted(report: ReportRecord) -> Sequence[LayerRow]:
    return [layer for layer in report.layers if not layer.free]


def _clause(reason: str) -> str:
    return shorten(reason.rstrip("."), 240)


def _quoted(name: str) -> str:
    return f"“{shorten(name, _NAME_CHARS)}”"


def _join(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _macs(macs: int) -> str:
    return _count(macs, "multiply-accumulate")
