"""``uma build``: from a model file to an artifact."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
import time
from contextlib import nullcontext
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NoCompilerError, UsageError
from ..option_values import LIMITS, read_limit
from ..options import flags
from ..support.counters import Counters, counting, timed
from ..support.json_record import to_json
from .declined_strategies import say_declined
from .output import Output
from .partition_options import add_measure_argument, say_cautions, say_trials
from .shared_options import add_model_arguments, add_output_arguments, argument_type, read_model
from .summary import memory_map, say_footprint, say_map, say_shares, shares_record

if TYPE_CHECKING:
    from ..artifact import Artifact
    from ..pipeline.loading import LoadedModel
    from ..pipeline.stages import Build

__all__ = ["add"]

_LIMITS = {
    "max-rom": "bytes of ROM: weights and code",
    "max-cycles": "cycles of each accelerator, as its simulator counts, else as its plugin estimates",
}
_PERCENTAGE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?) ?(%?)")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "build",
        help="compile a model",
        description="Compile a model to C, and see that the C compiler takes it, where there is one.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="a TFLite or ONNX file, or a stage's text (.py)")
    groups = add_model_arguments(parser, "build")
    placement, output = groups["placement"], groups["output"]
    add_measure_argument(placement)
    output.add_argument("-o", "--output", metavar="OUT", type=Path, help="folder of the artifact (default: build/NAME)")
    placement.add_argument(
        "--require-offload",
        metavar="PERCENT",
        type=_share,
        help="fail unless accelerators have this much of the multiply-accumulates, for example 95%%; of the ops, in a "
        "model without any",
    )
    for name, what in _LIMITS.items():
        groups["memory"].add_argument(
            f"--{name}",
            metavar="AMOUNT",
            type=argument_type(functools.partial(read_limit, name=name)),
            help=f"fail if the model takes more {what}; for example 64K",
        )
    output.add_argument(
        "--no-compile",
        action="store_true",
        help="write the C, and do not see that the C compiler takes it; so it is where there is none",
    )
    output.add_argument("--stop-after", metavar="STAGE", help="stop there, and print the text unless it is dumped")
    output.add_argument(
        "--stats",
        action="store_true",
        help="print the time of each stage and pass, and how often each rewrite rule was tried and applied",
    )
    output.add_argument(
        "--trace-hooks",
        action="store_true",
        help="print each call of a plugin's hook on stderr: plugin, hook, arguments and result in short, milliseconds",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run, command="build")


def _share(text: str) -> float:
    """Return ``95%`` or ``95`` as 0.95."""
    number = _PERCENTAGE.fullmatch(text)
    share = Decimal(number[1]) / 100 if number else Decimal(-1)  # exact: 99.9 / 100 is more than 0.999 in binary
    if not 0 <= share <= 1:
        from ..targets.kind import shown

        raise argparse.ArgumentTypeError(f"{shown(text)} is not a percentage; write it like 95%")
    if number and not number[2] and 0 < share <= Decimal("0.01"):
        hundredfold = f"{Decimal(number[1]).scaleb(2).normalize():f}"
        raise argparse.ArgumentTypeError(f"{text} can mean {text}% or {hundredfold}%; write the percent sign")
    return float(share)


@dataclass(frozen=True)
class _Sizes:
    """What compiling tells: bytes of code and of the stack; None where it does not, or why nothing was compiled."""

    code_bytes: int | None = None
    stack_bytes: int | None = None
    uncompiled: str = "nothing was compiled"


@timed("step", "compile")
def _compiled(artifact: Artifact, args: argparse.Namespace, out: Output) -> _Sizes:

    if args.no_compile:
        return _Sizes()
    out.step("compile")
    try:
        code_bytes = artifact.code_bytes  # a model that does not compile is not saved
        return _Sizes(code_bytes, artifact.stack_bytes)
    except NoCompilerError as error:
        return _Sizes(uncompiled=f"nothing was compiled, as {error.what}: {error.hint}")


def _explain_command(args: argparse.Namespace) -> str:
    """What tells of the same model and targets where its ops go, and why not elsewhere."""
    words = ["uma", "explain", str(args.model)]
    chosen = [(argument, flag) for name, argument, flag in flags("explain") if name not in ("name", "max_ram")]
    arguments = [argument for argument, flag in chosen if flag.repeated]
    arguments += ["disable_plugin", *(argument for argument, flag in chosen if not flag.repeated)]
    for argument in ("target", *arguments, "costs", "plan"):
        values = getattr(args, argument)
        for value in values if isinstance(values, list) else [] if values is None else [values]:
            words += [f"--{argument.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..plugins.hook_trace import tracing_hooks

    trace = tracing_hooks(lambda line: out.complain(f"hook: {line}")) if args.trace_hooks else nullcontext()
    with trace, counting() if args.stats else nullcontext() as counters:
        return _build(args, out, counters)


def _print_stats(counters: Counters, out: Output) -> None:
    times = [(time.kind, time.name, str(time.runs), f"{time.seconds:.4f}") for time in counters.times]
    out.columns(("kind", "name", "runs", "seconds"), times)
    rules = [(rule.kind, rule.name, str(rule.tried), str(rule.applied), rule.source) for rule in counters.rules]
    out.columns(("kind", "rule", "tried", "applied", "source"), rules)


def _stats_record(counters: Counters | None) -> dict[str, Any]:
    """Return the field ``stats`` of the JSON object, or no field without counters."""
    return {} if counters is None else {"stats": {"times": counters.times, "rules": counters.rules}}


def _build(args: argparse.Namespace, out: Output, counters: Counters | None) -> int:
    from ..artifact.footprint import footprint
    from ..lowering.graph_queries import has_loops
    from ..pipeline.driver import finish_build, lower_loaded, start_build
    from ..pipeline.dump import print_form
    from ..pipeline.stages import STAGES
    from ..reports.costs import region_costs
    from ..reports.explain import end_of_proofs, explain, require_offload
    from ..reports.limits import Cycles, accelerator_cycles, project_limits, require_limits
    from ..targets.config import derivations
    from ..tuning import fit_stack
    from ..tuning.plan_selection import select_plan

    asked_limits = {name: getattr(args, name.replace("-", "_")) for name in LIMITS}
    flags = {name: limit for name, limit in asked_limits.items() if limit is not None}
    limits = {} if args.stop_after is not None else {**project_limits(), **flags}
    if args.stop_after is not None:
        if flags:
            raise UsageError(f"--{min(flags)} is for whole builds", hint="leave out --stop-after")
        if args.stop_after not in STAGES:
            raise UsageError(f"there is no stage {args.stop_after!r}", hint=f"stages: {', '.join(STAGES)}")
        if args.require_offload is not None:
            raise UsageError("--require-offload is for whole builds", hint="leave out --stop-after")
        if args.output is not None:
            raise UsageError("--stop-after makes no artifact", hint="leave out --output; --dump DIR keeps the texts")
    start = time.perf_counter()
    with timed("step", "read"):
        members, loaded = read_model(args, out)
    if args.stop_after is not None:
        form = lower_loaded(loaded, members, args.stop_after, dump=args.dump, progress=out.step)
        say_cautions(members, out)
        out.notes(loaded.notes, loaded.simplified)
        if args.dump is None:
            text = print_form(form)[0]
            out.line(text.rstrip("\n"))
            out.result({"stage": args.stop_after, "text": text, **_stats_record(counters)})
        else:
            out.line(f"{loaded.name}: the stages up to {args.stop_after} are in {args.dump}")
            out.result({"stage": args.stop_after, "folder": str(args.dump), **_stats_record(counters)})
        if counters is not None:
            _print_stats(counters, out)
        return 0

    limit = limits.get("max-ram")

    def taken(artifact: Artifact) -> int:
        return footprint(artifact.record, None, _compiled(artifact, args, out).stack_bytes).ram_bytes

    asked = members
    contest = select_plan(loaded, members, taken, out.step)

    def built(loaded: LoadedModel) -> tuple[Build, Artifact, _Sizes]:
        build = start_build(loaded, contest.members, dump=args.dump, progress=out.step)
        artifact = finish_build(build, loaded, out.step)
        return build, artifact, _compiled(artifact, args, out)

    result, loaded = fit_stack(loaded, limit, built, lambda one: (one[1].record, one[2].stack_bytes))
    build, artifact, sizes = result
    if args.require_offload is not None:
        require_offload(explain(build), args.require_offload)
    is_lowered = build.placement is None or has_loops(build.placement.source)
    shares = shares_record(None if is_lowered else explain(build, reasons=False), _explain_command(args))
    code_bytes = sizes.code_bytes
    memory = footprint(artifact.record, code_bytes, sizes.stack_bytes)
    cycles: tuple[Cycles, ...] = ()
    if "max-cycles" in limits:
        out.step("count")
        costs = () if is_lowered else region_costs(build)
        cycles = accelerator_cycles(artifact, costs, code_bytes is not None)
    require_limits(artifact.record, memory, limits, cycles)
    out.step("save")
    wanted = args.output or Path("build") / artifact.name
    with timed("step", "save"):
        folder = artifact.save(wanted, objects=code_bytes is not None)
    seconds = time.perf_counter() - start

    record = artifact.record
    out.line(f"{artifact.name}: built for {', '.join(record.targets)} in {seconds:.2f} s")
    out.table(
        {
            "calls": f"{len(record.calls)}, of {len({call.kernel for call in record.calls})} kernels",
            **say_footprint(memory),
            **({"note": sizes.uncompiled} if code_bytes is None else {}),
            "in": str(wanted),
        }
    )
    said = {*asked.notes, *derivations(member.target for member in asked.all)}
    for note in record.notes if not out.quiet else ():
        if note not in said:
            out.complain(f"note: {note}")
    say_trials(contest, out)
    cautions = say_cautions(asked, out)
    if shares:
        out.line("accelerators have:")
        say_shares(shares, out)
    for line in end_of_proofs({host.label: host.brought for host in record.compile.hosts}):
        out.line(line)
    if out.verbose:
        say_map(memory_map(record), out)
    say_declined(build.facts.declined, out)
    out.notes(loaded.notes, loaded.simplified)
    if counters is not None:
        _print_stats(counters, out)
    out.result(
        {
            "name": artifact.name,
            "targets": record.targets,
            "folder": str(folder),
            "seconds": seconds,
            **to_json(memory),
            "accelerators": shares,
            "cautions": cautions,
            "plans": contest.trials,
            "taken": contest.choice,
            "memory_map": memory_map(record),
            "inputs": record.inputs,
            "outputs": record.outputs,
            "calls": record.calls,
            "notes": loaded.notes,
            "simplified": loaded.simplified,
            **_stats_record(counters),
        }
    )
    return 0
