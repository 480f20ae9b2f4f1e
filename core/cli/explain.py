"""``uma explain``: where each op of a model goes, and why not elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..support.formatting import format_percent
from ..support.json_record import to_json
from ..targets.values import shorten
from .declined_strategies import say_declined
from .numerics_output import say_allowed
from .output import Output
from .partition_options import known_costs, say_cautions
from .plan import say_plan
from .shared_options import add_model_or_artifact, add_output_arguments, read_kept

if TYPE_CHECKING:
    from ..contract.cost import Cost
    from ..reports.memory import MemoryFound
    from ..tuning.cheaper_placement import Otherwise

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "explain",
        help="tell where each op goes, and why",
        description="Tell for every op of a model which target runs it; and of those that stay on the host, what kept "
        "them from each accelerator: the closest pattern, and the condition that failed.",
        allow_abbrev=False,
    )
    add_model_or_artifact(parser, "explain")
    parser.add_argument(
        "--stream",
        action="store_true",
        help="also show what accelerators are fed: the commands of each launch, as they stand in memory",
    )
    parser.add_argument(
        "--count",
        action="store_true",
        help="also run the model once, on random inputs, and show the cycles that devices count beside the estimates. "
        "This compiles and executes its code",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="also show what sets the peak of memory, and the ways to run layers row by row for less of it: RAM, "
        "and instructions that are added",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run, command="explain")


_MOST_CUTS = 5
"""How many pairs of regions that a limit keeps apart are shown without ``-v``."""

_COLUMNS = {
    "cycles": ("cycles", ".0f"),
    "seconds": ("seconds", ".3g"),
    "bytes_moved": ("bytes moved", "d"),
    "energy_j": ("joules", ".3g"),
}
"""What the fields of a cost are called in a table, and how they are written."""


def _cost_columns(costs: Sequence[Cost | None]) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns in which any of some costs has a number, and these columns of each; not known is "-"."""
    shown = [name for name in _COLUMNS if any(cost is not None and getattr(cost, name) is not None for cost in costs)]
    rows = []
    for cost in costs:
        values = {name: getattr(cost, name) if cost is not None else None for name in shown}
        rows.append(["-" if value is None else format(value, _COLUMNS[name][1]) for name, value in values.items()])
    return [_COLUMNS[name][0] for name in shown], rows


def _say_memory(memory: MemoryFound, out: Output) -> None:
    from ..reports.memory import ends_by_reason, point_cells

    for line in memory.lines():
        out.line(line)
    if memory.rows is None:
        return
    out.line("ways to run layers row by row, by bytes of RAM without the stack:")
    out.columns(("RAM", "arena", "added", "layers by rows", ""), point_cells(memory.rows))
    if ends := ends_by_reason(memory.rows):
        out.line("what is not run row by row:")
        out.columns(("layers", "reason"), [(shorten(", ".join(names) or "-", 60), why) for why, names in ends.items()])


def _say_otherwise(otherwise: Otherwise, out: Output) -> None:
    for sentence in otherwise.unknown:
        out.complain(f"uma: warning: {sentence}")
    if not otherwise.parts:
        return
    less, before = otherwise.eager_ns - otherwise.ns, otherwise.eager_ns
    out.line(f"by costs that are known another placement takes {less / 1e3:.2f} us less, of {before / 1e3:.2f} us:")
    rows = [
        (
            part.target,
            shorten(", ".join(part.layers) or part.name, 60),
            f"{part.ns / 1e3:.2f}",
            part.source,
            " and ".join(part.instead),
        )
        for part in otherwise.parts
    ]
    out.columns(("target", "part", "us", "by", "instead of"), rows)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..reports.explain import end_of_proofs, explain_loaded

    known = known_costs(args)
    _, kept = read_kept(args, out, "explaining")
    members, loaded = kept.members, kept.loaded
    report = explain_loaded(
        loaded,
        members,
        count=args.count,
        stream=args.stream,
        brought=out.verbose,
        memory=args.memory,
        known=known,
        progress=out.step,
    )
    counted = report.counted_cycles
    free = f", {len(report.ops) - len(report.counted)} of them free," if len(report.counted) < len(report.ops) else ""
    size = f"{len(report.ops)} ops{free} in {len(report.layers)} layers, {report.macs:,} multiply-accumulates (MACs)"
    out.line(f"{report.name}: {size}")
    if counts := report.reasons():
        out.line("why layers are not on accelerators:")
        listed = [(str(one.layers), str(one.macs), one.first.owner, one.sentence) for one in counts]
        out.columns(("layers", "MACs", "not", "reason"), listed)
    for line in report.lines() if out.verbose else report.layer_lines():
        out.line(f"  {line}")
    for line in report.cuts if out.verbose else report.cuts[:_MOST_CUTS]:
        out.line(line)
    if len(report.cuts) > _MOST_CUTS and not out.verbose:
        out.line(f"and {len(report.cuts) - _MOST_CUTS} more pairs of regions; -v shows them")
    if out.verbose and report.forms:
        shown = ", ".join(f"{count} in {form}" for form, count in report.forms.items())
        out.line(f"channels that hosts requantise, by what they compute in: {shown}")
    say_declined(report.declined, out)
    regions = [(one.region, one.label, one.cost) for one in report.costs]
    if any(cost is not None for _, _, cost in regions) or counted:
        out.line("estimates of what one run of each region takes:")
        head, cells = _cost_columns([cost for _, _, cost in regions])
        if counted:
            head = [*head, "cycles counted"]
            numbers = ["-" if counted[region] is None else str(counted[region]) for region, _, _ in regions]
            cells = [[*row, one] for row, one in zip(cells, numbers, strict=True)]
        out.columns(("region", "target", *head), [(*row[:2], *c) for row, c in zip(regions, cells, strict=True)])
    if report.placed is not None:
        out.line("what the placement costs, and what each part won by:")
        say_plan(report.placed, out)
        say_cautions(members, out)
    if report.otherwise is not None:
        _say_otherwise(report.otherwise, out)
    shares = report.shares()
    head, cells = _cost_columns([share.cost for share in shares])
    rows = [(s.label, str(s.ops), str(s.macs), format_percent(s.macs / (report.macs or 1))) for s in shares]
    out.columns(
        ("target", "ops", "MACs", "share of MACs", *head), [(*row, *c) for row, c in zip(rows, cells, strict=True)]
    )
    say_allowed(report, out)
    for line in end_of_proofs(report.brought):
        out.line(line)
    if report.memory is not None:
        _say_memory(report.memory, out)
    for stream in report.streams or ():
        for line in stream.lines():
            out.line(line)
    out.notes(report.notes, report.simplified)
    out.result(to_json(report))
    return 0
