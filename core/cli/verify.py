"""``uma verify``: the compiled model against references, layer by layer."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, VerificationError
from ..support.json_record import to_json
from ..targets.values import shorten
from .numerics_output import describe_check, say_checks
from .output import Output
from .partition_options import say_cautions
from .shared_options import (
    add_input_arguments,
    add_model_or_artifact,
    add_output_arguments,
    given_inputs,
    read_kept,
    states,
)

if TYPE_CHECKING:
    from ..artifact import Artifact
    from ..lowering.build_targets import BuildTargets
    from ..pipeline.loading import LoadedModel
    from ..verification.known_deviations import KnownDeviation
    from ..verification.results import KernelCheck, OutputCheck, Overrun, StepStop, Verification

__all__ = ["add"]

_SIDES = "what it was given, what it gave, and what it should have given"

_AGAINST = {
    "inspected": "the same kernels without reuse of memory",
    "references": "the references of the whole model",
    "consented": "the references of the whole model, with what was consented to",
    "canonical": "the references of the model as it was read, by those of its canonical form",
    "first run": "the first run, which had the same inputs",
    "litert": "LiteRT",
    "onnxruntime": "onnxruntime",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "verify",
        help="compare a compiled model with references",
        description="Compare every kernel of the compiled model with the numpy references of its ops, and name the "
        "first layer that differs. Integers must be equal. Floats may be off by rounding: by 8 * sqrt(n) * u of the "
        "tensor's range over the samples, behind n rounded operations of unit roundoff u.",
        allow_abbrev=False,
    )
    add_model_or_artifact(parser, "verify")
    add_input_arguments(parser)
    parser.add_argument(
        "--samples",
        metavar="N",
        type=int,
        help="how many samples to feed: those that --inputs gives, which may be many along their first axis, then "
        "generated ones: random, all lowest, all highest, zero points, alternating ends (default: all that are given, "
        "and at least 8; in an emulator 3)",
    )
    parser.add_argument(
        "--step-limit",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="how long one step may take before it counts as hanging (default: 60)",
    )
    parser.add_argument(
        "--against",
        choices=("builtin", "litert", "onnxruntime"),
        default="builtin",
        help="compare the model's outputs with another runtime's as well (default: builtin, the references alone)",
    )
    parser.add_argument(
        "--dump",
        metavar="DIR",
        type=Path,
        help=f"of every kernel or region that differs, write {_SIDES}",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=_run, command="verify")


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..api import check_options, verify_loaded
    from ..verification.rounding_error import FORMULA
    from ..verification.samples import LABELS

    check_options(args.samples, args.step_limit)
    artifact, kept = read_kept(args, out, "verifying")
    members, loaded = kept.members, kept.loaded
    if artifact is not None and args.against != "builtin":
        raise UsageError(f"{args.against} reads model files alone", hint="verify the model file")
    if artifact is None:
        artifact, loaded = _built(loaded, members, out)
        say_cautions(members, out)
    verification = verify_loaded(
        loaded,
        artifact,
        members,
        given_inputs(args, artifact.record.inputs, LABELS),
        file=args.model,
        states=states(args),
        samples=args.samples,
        against=args.against,
        step_limit_s=args.step_limit,
        where=str(args.inputs or "--input"),
        progress=out.step,
    )

    out.notes(loaded.notes, loaded.simplified)
    wrong = [check for check in verification.kernels if not check.difference.ok]
    if out.verbose:
        for kernel in verification.kernels:
            out.line(f"  {shorten(_layers(kernel), 60)}: {kernel.difference}")
        for skipped in verification.skipped:
            out.line(f"  {shorten(', '.join(skipped.layers) or '(no layer)', 60)}: not compared")
    verdict = f"{len(wrong)} differ" if wrong else "all agree"
    out.line(
        f"{artifact.name}: {len(verification.kernels)} results of kernels compared with their references over "
        f"{verification.frames} {_runs(verification)}: {verdict}"
    )
    if verification.parts or verification.parts_skipped:
        bad = sum(not part.difference.ok for part in verification.parts)
        regions = len(
            {part.kernel for part in (*verification.parts,)} | {part.region for part in verification.parts_skipped}
        )
        out.line(
            f"{len(verification.parts)} results of matches of {regions} merged region{'s' if regions > 1 else ''}, "
            f"each lowered by itself: {f'{bad} differ' if bad else 'all agree'}"
        )
    for reason, count in Counter(skipped.reason for skipped in verification.parts_skipped).items():
        out.line(f"{count} match{'es' if count > 1 else ''} of merged regions could not be taken alone: {reason}")
    reasons = Counter(skipped.reason for skipped in verification.skipped)
    for reason, count in reasons.items():
        out.line(f"{count} kernel{'s' if count > 1 else ''} could not be compared: {reason}")
    for overrun in verification.overruns:
        out.line(f"{_step(overrun)} writes where it may not: {overrun.what}")
    for stop in verification.stops:
        out.line(f"{_step(stop)} {stop.reason.splitlines()[0]}")
    checks = _summary(verification.outputs)
    for check in checks:
        if check.role == "output" or not check.ok:
            against = _AGAINST[check.against]
            whose = "" if check.exact is None else f"; {check.exact.describe(against)}"
            out.line(f"{check.role} {shorten(check.name, 60)} against {against}: {check.difference}{whose}")
    good = Counter(check.against for check in checks if check.role == "state" and check.difference.ok)
    for against, count in good.items():
        out.line(f"{count} state{'s' if count > 1 else ''} against {_AGAINST[against]}: all agree")
    say_checks(verification, out)
    compared = [check.difference for check in (*verification.kernels, *verification.parts)]
    compared += [check.difference for check in verification.outputs]
    if any(difference.tolerance and difference.largest for difference in compared):
        out.line(f"floats may be off by {FORMULA}: n rounded operations of unit roundoff u in sequence")
    for accuracy in verification.accuracy:
        out.line(f"output {shorten(accuracy.output, 60)} is right for {accuracy}")
    if proven := sum(
        form.channels for form in verification.forms if form.form not in ("integer", "short") and not form.wrong
    ):
        out.line(f"{proven} channels are requantised in floats: proven to give what is asked for")
    if args.dump is not None:
        for position, kernel in enumerate(wrong):
            out.line(f"both sides of {kernel.kernel} are in {_dump(args.dump, position, kernel)}")
    deviations = _deviations(verification, args.model, args.against)
    for deviation in deviations:
        out.line(f"known deviation in {deviation}")
    error = _error(verification, members, bool(loaded.notes), args.dump is not None, deviations)
    out.result(
        {
            "name": artifact.name,
            "equal": error is None,
            "samples": list(verification.samples),
            "float_tolerance": FORMULA,
            "kernels": verification.kernels,
            "parts": [{"region": part.kernel, **_without_kernel(to_json(part))} for part in verification.parts],
            "parts_skipped": verification.parts_skipped,
            "skipped": verification.skipped,
            "outputs": checks,
            "forms": verification.forms,
            "allowed": verification.allowed,
            "drifts": verification.drifts,
            "overruns": verification.overruns,
            "stops": verification.stops,
            "accuracy": verification.accuracy,
        }
    )
    if error is not None:
        raise error
    return 0


def _built(loaded: LoadedModel, members: BuildTargets, out: Output) -> tuple[Artifact, LoadedModel]:
    """Return the artifact that `uma build` makes, and the model with its limit on RAM less the stack."""
    from ..artifact.footprint import footprint
    from ..pipeline.memory_limit import require_ram
    from ..tuning import build_best, fit_stack

    limit = loaded.options.max_ram
    artifact, loaded = fit_stack(
        loaded,
        limit,
        lambda model: build_best(model, members, progress=out.step),
        lambda built: (built.record, built.stack_bytes),
    )
    if limit is not None:
        require_ram(artifact.record, footprint(artifact.record, None, artifact.stack_bytes), limit)
    return artifact, loaded


def _dump(folder: Path, position: int, check: KernelCheck) -> Path:
    """Write both sides of a difference as ``DIR/N-KERNEL.npz``; gives its path."""
    from ..runtime.files import save_arrays

    assert check.sides is not None
    arrays = {f"input{i}": array for i, array in enumerate(check.sides.inputs)}
    path = folder / f"{position}-{check.kernel}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder: {error.strerror}", where=str(folder)) from error
    save_arrays(path, {**arrays, "got": check.sides.got, "expected": check.sides.expected}, "the difference")
    return path


def _summary(outputs: Iterable[OutputCheck]) -> list[OutputCheck]:
    """One check of each output and state against each that it is compared with: where it differs first, else the
    last."""
    checks: dict[tuple[str, str, str], OutputCheck] = {}
    for check in outputs:
        key = check.role, check.name, check.against
        if key not in checks or (checks[key].ok and (checks[key].difference.ok or not check.ok)):
            checks[key] = check
    return list(checks.values())


def _deviations(verification: Verification, file: Path, against: str) -> tuple[KnownDeviation, ...]:
    """The known deviations of another runtime, where an output differs from its."""
    from ..verification.known_deviations import find_deviations

    differs = any(check.against == against and not check.difference.ok for check in verification.outputs)
    return find_deviations(file, against) if differs else ()


def _error(
    verification: Verification, members: BuildTargets, noted: bool, dumped: bool, deviations: Sequence[KnownDeviation]
) -> VerificationError | None:
    """What is wrong first: a write beside the buffers, which may be why others differ; a crash; a difference.

    Args:
        verification: what was compared, and what could not be.
        members: what the model was built for.
        noted: whether reading the model gave something to note.
        dumped: whether both sides of what differs were written.
        deviations: of the other runtime, known ones.
    """
    for overrun in verification.overruns:
        what = f"{_step(overrun)} writes where it may not: {overrun.what}"
        return VerificationError(what, where=f"sample {overrun.sample!r}", hint=_owner(overrun, members))
    for stop in verification.stops:
        what = f"{_step(stop)} {stop.reason}"
        return VerificationError(what, where=f"sample {stop.sample!r}", hint=_owner(stop, members))
    for form in verification.forms:
        if form.wrong:
            share = f"the {form.form} form of {form.wrong} of its {form.channels} channels"
            attr, how = ("narrow", "in few operations") if form.form == "short" else ("form", "in floats")
            what = f"layer {shorten(', '.join(form.layers), 200)} is requantised {how} without proof: {share}"
            return VerificationError(what, hint=f"without the attribute `{attr}` it is requantised in integers")
    for one in verification.allowed:
        if not one.ok:
            allowed = one.bound
            region = f"region {one.region}" if one.region else f"the {allowed.what}"
            subject, place = f"pass {allowed.opt_in} of {allowed.how}", region
            if one.layers:
                subject, place = describe_check(one), f"a match of {region}"
            what = f"{subject}, of plugin {allowed.plugin}, is off by {one.largest}, where it may be {allowed.bound}"
            remedy = f"results do not differ without --allow {allowed.opt_in}; report this to the plugin's author"
            return VerificationError(what, where=f"{place}, sample {one.sample!r}", hint=remedy)
    wrong = [check for check in verification.kernels if not check.difference.ok]
    parts = [part for part in verification.parts if not part.difference.ok]
    for part in parts:
        if not wrong or part.kernel == wrong[0].kernel:
            what = f"layer {shorten(_layers(part), 200)} differs from its reference: {part.difference}"
            place = f"a match of region {part.kernel} of {part.target}, lowered by itself, sample {part.sample!r}"
            whole = "differs too" if wrong else "agrees"
            return VerificationError(what, where=place, hint=f"the region as a whole {whole}")
    for position, kernel in enumerate(verification.kernels):
        if not kernel.difference.ok:
            what = f"layer {shorten(_layers(kernel), 200)} differs from its reference: {kernel.difference}"
            is_host = kernel.target is None
            share = f"kernel {kernel.kernel}" if is_host else f"region {kernel.kernel} of {kernel.target}"
            hint = None if dumped else f"--dump DIR writes {_SIDES}"
            if any(part.kernel == kernel.kernel for part in verification.parts):
                hint = "each of its matches that is taken alone agrees: it is how they are merged"
            place = f"{share}, result {position + 1} of {len(verification.kernels)}, sample {kernel.sample!r}"
            return VerificationError(what, where=place, hint=hint)
    for output in verification.outputs:
        if not output.ok:
            what = f"{output.role} {output.name} differs from {_AGAINST[output.against]}: {output.difference}"
            every = "every kernel that could be compared" if verification.skipped else "every kernel by itself"
            hint = f"{every} agrees with its reference"
            if output.exact is not None:
                hint = f"{output.exact.describe(_AGAINST[output.against])}; {hint}"
            if noted:
                hint += "; a note on how the model was read may tell why: -v"
            if deviations and output.against == deviations[0].rule.runtime:
                hint += f"; {_AGAINST[output.against]} is known to deviate in {'; in '.join(map(str, deviations))}"
            samples = (*verification.samples, f"{verification.samples[0]}, once more")
            where = f"sample {samples[output.frame]!r}, {output.frame + 1} of {len(samples)} runs"
            return VerificationError(what, where=where, hint=hint)
    return None


def _step(stop: Overrun | StepStop) -> str:
    """A step, for people."""
    on = "" if stop.target is None else f" on {stop.target}"
    if stop.step is None or stop.step < 0:
        return f"the model{on}"
    layers = f"layer {shorten(', '.join(stop.layers), 200)}" if stop.layers else stop.kernel
    return f"{layers}{on} (step {stop.step}, {stop.kernel})"


def _owner(stop: Overrun | StepStop, members: BuildTargets) -> str | None:
    """Whose code a step runs."""
    member = None if stop.target is None else members.get(stop.target)
    if member is None:
        return None
    entry = member.plugin.entry
    runs = "its loops" if member.runtime is None else "its loops, its driver, or a library or simulator behind it"
    return f"a step for {stop.target!r} runs what plugin {entry.distribution} {entry.version} brings: {runs}"


def _without_kernel(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name != "kernel"}


def _runs(verification: Verification) -> str:
    """What its runs are called."""
    return ("frame" if verification.streaming else "sample") + ("s" if verification.frames > 1 else "")


def _layers(check: KernelCheck) -> str:
    return ", ".join(check.layers) or check.kernel
