"""Whole graphs of random ops around layers that the patterns take: chains, diamonds, residuals, several outputs, ops of
the host between, with the host and with another accelerator; beside the references, and as one artifact."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import DeviceError, UmaError
from ...lowering.build_targets import BuildTargets, resolve_targets
from ...pipeline.driver import build_loaded
from ...pipeline.loading import LoadedModel
from ...relay.evaluate import evaluate
from ...relay.expr import Expr, Tuple, Var, call
from ...relay.types import TensorType
from ...relay.visit import post_order, substitute
from ...targets import TargetKind
from ...tir.form.dtype import is_integer
from ..deadline import OUT_OF_TIME, Deadline
from ..record import CheckResult
from ..subject import Subject
from .acceptance import acceptance_of
from .inputs import feeds
from .layer import Layer, module_of, with_body, work_of
from .layer_images import images_of
from .layer_rebuild import Changes, fitted, leaves_of, rebuilt
from .layers import STEP_LIMIT_S, findings_of
from .seeds import generate_layers
from .triage import Judge, LayerFailure, difference, fault_of_unbuilt
from .values import sizes_of

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.model_process import Isolation

__all__ = ["check_graphs", "random_graph"]

_GRAPHS, _MOST_STEPS = 8, 7
_TOGETHER = 4
"""Graphs of one image."""

_MOST_WORK = 400_000
_OWN_SHARE = 0.6
"""Of the steps of a graph that are layers of the target."""


def check_graphs(subject: Subject, progress: Callable[[str], None]) -> CheckResult:
    """Try to break whole graphs in which a target has some of the layers.

    Args:
        subject: the target.
        progress: told of each part of the work that begins.

    Raises:
        ToolchainError: nothing can be compiled on this machine.
        PluginError: the plugin gives no patterns.
    """
    import numpy as np

    from ...runtime.model_process import Isolation

    start, rng, notes = time.perf_counter(), np.random.default_rng([subject.seed, 1]), list[str]()
    faults, match_count = list[LayerFailure](), 0
    deadline = Deadline(subject.seconds)
    title = "random graphs around the layers, with the host and with others"
    with subject.members.known_ops(), Isolation(STEP_LIMIT_S) as isolation:
        acceptance, sizes = acceptance_of(subject), sizes_of(subject.member)
        progress("layers for graphs")
        layers: list[Layer] = []
        for pattern in subject.member.patterns:
            if deadline.is_over:
                break
            some, _ = generate_layers(pattern, subject.target, acceptance, sizes, rng, most=2)
            layers += [layer for layer in some if work_of(layer) <= _MOST_WORK]
        if not layers:
            return CheckResult("graphs", title, unchecked="no layer was found that a pattern takes")
        graphs = [random_graph(layers, rng) for _ in range(_GRAPHS)]
        graphs = [graph for graph in graphs if graph.function.params]
        for members, beside in _companies(subject, layers):
            for at in range(0, len(graphs), _TOGETHER):
                if deadline.is_over:
                    notes.append(f"{OUT_OF_TIME}{len(graphs) - at} graphs were not run {beside}")
                    break
                progress(f"run graphs {at + 1} to {min(at + _TOGETHER, len(graphs))} {beside}")
                failures, count = _run(subject, graphs[at : at + _TOGETHER], members, isolation, notes, beside)
                faults, match_count = faults + failures, match_count + count
        findings = findings_of(subject, None, faults, isolation, progress, notes, "graphs", deadline)
    unchecked = "" if match_count or findings else "no part of a graph ran on the target"
    seconds = time.perf_counter() - start
    return CheckResult("graphs", title, tuple(findings), tuple(notes), "", seconds, unchecked=unchecked)


def random_graph(layers: Sequence[Layer], rng: np.random.Generator) -> Layer:
    """A graph of some layers, and of ops element by element between them; each step is given what steps before it gave
    where that fits, and some of what is used inside is given out as well.

    Args:
        layers: to take from; each takes inputs of other shapes where its op does.
        rng: decides.
    """
    pool: list[Expr] = []
    inputs = 0

    def fresh(type_: TensorType) -> Expr:
        nonlocal inputs
        inputs += 1
        return Var(f"g{inputs - 1}", type_)

    for _ in range(int(rng.integers(3, _MOST_STEPS + 1))):
        if pool and rng.random() > _OWN_SHARE:
            pool.append(_host_step(pool, rng))
            continue
        layer = layers[int(rng.integers(len(layers)))]
        body = layer.function.body
        if pool and rng.random() < 0.8:
            body = _fed(body, pool[-1 if rng.random() < 0.7 else int(rng.integers(len(pool)))])
        replaced: dict[Expr, Expr] = {}
        for var in with_body(body).params:
            fitting = [one for one in pool if one.type is var.type]
            assert isinstance(var.type, TensorType)
            replaced[var] = fitting[-1 - int(rng.integers(min(2, len(fitting))))] if fitting else fresh(var.type)
        fed = substitute(body, replaced)
        pool += list(fed.fields) if isinstance(fed, Tuple) else [fed]
    used = {arg for one in pool for arg in post_order(one) if arg is not one}
    results = [one for one in pool if one not in used and not isinstance(one, Var)]
    inside = [one for one in pool if one in used and rng.random() < 0.2]
    results = list(dict.fromkeys([*results, *inside]))
    return Layer(with_body(Tuple(results) if len(results) > 1 else results[0]), "", "graph")


def _fed(body: Expr, tensor: Expr) -> Expr:
    """A layer whose data have the shape of a tensor, where that can be."""
    for place, leaf in leaves_of(body).items():
        fits = isinstance(leaf, Var) and leaf.dtype == tensor.dtype and len(leaf.shape) == len(tensor.shape)
        if fits and leaf.shape != tensor.shape:
            changed = rebuilt(body, Changes(leaves={place: fitted(leaf, tensor.shape)}))
            if changed is not None and work_of(Layer(with_body(changed), "")) <= _MOST_WORK:
                return changed
        if fits:
            break
    return body


def _host_step(pool: Sequence[Expr], rng: np.random.Generator) -> Expr:
    """An op that leaves the shape, or moves elements: of one tensor or of two of one type."""
    one = pool[int(rng.integers(len(pool)))]
    others = [other for other in pool if other.type is one.type and other is not one]
    if others and one.dtype != "bool" and rng.random() < 0.5:
        return call("maximum" if rng.random() < 0.5 else "minimum", one, others[int(rng.integers(len(others)))])
    if one.dtype == "bool":
        return call("logical_not", one)
    which = int(rng.integers(3))
    if which == 0 and len(one.shape) > 1:
        axes = (*range(len(one.shape) - 2), len(one.shape) - 1, len(one.shape) - 2)
        return call("transpose", call("transpose", call("nn.relu", one), axes=axes), axes=axes)
    if which == 1 and len(one.shape) > 2:
        flat = call("reshape", one, newshape=(one.shape[0], one.tensor.size // one.shape[0]))
        return call("reshape", call("maximum", flat, flat) if rng.random() < 0.3 else flat, newshape=one.shape)
    return (
        call("clip", one, a_min=-100.0, a_max=100.0)
        if not is_integer(one.dtype) or rng.random() < 0.5
        else call("nn.relu", one)
    )


def _companies(subject: Subject, layers: Sequence[Layer]) -> list[tuple[BuildTargets, str]]:
    """What to build for: the target with its host, and with one more accelerator that takes ops of the layers."""
    companies = [(subject.members, "with the host")]
    ops = {expr.op_name for layer in layers for expr in post_order(layer.function.body) if hasattr(expr, "op_name")}
    for name, kind in subject.plugins.kinds().items():
        if not isinstance(kind, TargetKind) or kind.is_host or name in (subject.kind.name, "composite"):
            continue
        if not kind.device_type or name not in subject.plugins.plugin_for(name).kinds:
            continue
        try:
            members = resolve_targets([subject.target, subject.plugins.target(name), subject.host], subject.plugins)
            patterns = members.accelerators[-1].patterns
        except UmaError:
            continue
        if any(pattern.keys & ops for pattern in patterns):
            companies.append((members, f"with {name} as well"))
            break
    return companies


def _run(
    subject: Subject,
    graphs: Sequence[Layer],
    members: BuildTargets,
    isolation: Isolation,
    notes: list[str],
    beside: str,
) -> tuple[list[LayerFailure], int]:
    """What is wrong with graphs, step by step and as one artifact; and how many matches the target has of them."""
    import numpy as np

    images, unbuilt = images_of(graphs, members, isolation, len(graphs))
    alone = members is subject.members
    if unbuilt and not alone:
        notes.append(f"{len(unbuilt)} graphs could not be built {beside}: {unbuilt[0].error.what}")
    faults = [fault_of_unbuilt(one) for one in unbuilt] if alone else []
    pattern_names = {pattern.name for pattern in subject.member.patterns}
    all_count = count = 0
    for image in images:
        judge = Judge(image, np.random.default_rng(subject.seed), tolerance=subject.claims.tolerance)
        all_count += sum(len(names) for names in image.patterns)
        count += sum(name in pattern_names for names in image.patterns for name in names)
        failures = judge.run(contexts=False, loops=False)
        if failures and not alone:
            # Whether it is this plugin or the other one that is wrong, what is the plugin's alone has told.
            notes += [f"{beside}, a graph is computed wrongly: {fault.what}" for fault in failures[:1]]
        faults += failures if alone else [fault for fault in failures if fault.part == "driver"]
        if not failures:
            faults += _whole(subject, image.layers, members, isolation)
    notes.append(f"{len(graphs)} graphs {beside}: {all_count} matches on accelerators")
    return faults, count


def _whole(
    subject: Subject, graphs: Sequence[Layer], members: BuildTargets, isolation: Isolation
) -> list[LayerFailure]:
    """Graphs that are right step by step, as the artifact that a user has: with memory that is used again."""
    import numpy as np

    try:
        artifact = build_loaded(LoadedModel(module_of(graphs), "graphs"), members)
        runs = artifact.isolated(isolation)
    except UmaError as error:
        return [
            LayerFailure(
                graphs[0], "driver", "no artifact", f"no artifact can be had of {len(graphs)} graphs: {error.what}"
            )
        ]
    fed = [list(feeds(graph.function, np.random.default_rng(subject.seed), 2)) for graph in graphs]
    names = iter(artifact.record.outputs)
    outputs = [[next(names).name for _ in graph.results] for graph in graphs]
    faults: dict[int, LayerFailure] = {}
    for sample in range(len(fed[0])):
        for number, graph in enumerate(graphs):
            for at, param in enumerate(graph.function.params):
                np.copyto(runs.inputs[f"x{number}_{at}"], fed[number][sample][1][param.name])
        try:
            outcome = runs.run()
        except DeviceError as error:
            message = f"the artifact of all graphs stops: {error.what}"
            return [LayerFailure(graphs[0], "driver", "fault in the artifact", message, *fed[0][sample])]
        if not isinstance(outcome, list):
            message = f"the artifact of all graphs {outcome.reason}"
            return [LayerFailure(graphs[0], "driver", "the artifact stops", message, *fed[0][sample])]
        for number, graph in enumerate(graphs):
            word, arrays = fed[number][sample]
            expected = evaluate(graph.function, dict(arrays))
            pairs = zip(outputs[number], expected, strict=True)
            got = tuple(runs.outputs[name].copy().reshape(one.shape) for name, one in pairs)
            differs = difference(graph, got, expected, arrays, subject.claims.tolerance)
            if differs:
                message = f"a graph is right step by step, and otherwise where memory is used again: {differs}"
                fault = LayerFailure(
                    graph, "driver", "other with memory used again", message, word, arrays, expected, got
                )
                faults.setdefault(number, fault)
    return list(faults.values())
