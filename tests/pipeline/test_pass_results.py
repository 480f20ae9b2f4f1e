"""What passes make of a model: the same model, faster; with its layers; in dumps that can be built on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests._support.partitions import inputs_of
from tests._support.passes import Rewrite, by_host, each_loop, of_graph, of_loops, of_main, passing
from tests._support.plugins import HOST, checked, entry_of, members_of, module_of, taking
from tests._support.regions import CHAIN, X, inlined, steps
from tests._support.te_lowerings import lowered

from uma.contract.lowered import Strategy
from uma.contract.passes import PHASES, Pass, Phase, Scope
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.pipeline.driver import build_loaded
from uma.pipeline.dump import CONSTANTS_FILE, Dumper, print_form, read_dump
from uma.pipeline.loading import LoadedModel
from uma.pipeline.stages import PHASE_AFTER, STAGES, Build, Form
from uma.plugins import PluginHost
from uma.program import Program
from uma.relay import Call, Constant, Expr, Function, IRModule, Spans, Var, call, const, substitute
from uma.relay.evaluate import evaluate
from uma.relay.visit import children, post_order, users, with_children
from uma.tir.form import nodes as tir
from uma.tir.form.visit import map_expressions, walk
from uma.tir.form.visit import rewrite as rewrite_expr
from uma.tir.form.visit import substitute as substitute_expr
from uma.tir.rewrites.simplify import simplify

# --- a model, and an optimisation for each phase ---------------------------------------------------------------------

SCALED = call("multiply", X, const(4))
LESS = call("subtract", SCALED, X)
RELU = call("nn.relu", LESS)
SUM = call("add", RELU, const([1, -2, 3, 4]))
ONCE = call("multiply", SUM, const(1))
SQUARE = call("multiply", ONCE, ONCE)
LAYERS = {SCALED: ["a"], LESS: ["b"], RELU: ["c"], SUM: ["d"], ONCE: ["e"], SQUARE: ["f"]}
MODEL = module_of(SQUARE, {expr: list(names) for expr, names in LAYERS.items()})
"""The host scales and subtracts; the accelerator takes relu and sum; the host multiplies by one, and squares."""


def times_one(expr: Expr) -> Expr | None:
    """What is multiplied by one is left alone."""
    if isinstance(expr, Call) and expr.op_name == "multiply" and isinstance(expr.args[1], Constant):
        return expr.args[0] if (expr.args[1].data == 1).all() else None
    return None


def one_match(module: IRModule) -> IRModule:
    """All of a region is one match, which one kernel computes."""
    spans = Spans(dict(module.spans))
    functions = dict(module.functions)
    for var, region in module.functions.items():
        assert isinstance(region, Function)
        layers = [layer for expr in post_order(region.body) for layer in module.spans[expr]]
        call_of = Call(Function(region.params, inlined(region).body, {"Composite": "npu.all"}), region.params)
        spans.add(call_of, layers)
        functions[var] = Function(region.params, call_of, dict(region.attrs))
    return IRModule(functions, spans, module.signature)


def one_kernel(module: IRModule) -> IRModule:
    """A kernel of the host computes what only it needs of another one."""
    spans = Spans(dict(module.spans))
    uses = users(post_order(module.main.body))
    done: dict[Expr, Expr] = {}
    for expr in post_order(module.main.body):
        made = with_children(expr, [done[child] for child in children(expr)])
        first = made.args[0] if isinstance(made, Call) and isinstance(made.op, Function) else None
        if isinstance(first, Call) and isinstance(first.op, Function) and len(uses[children(expr)[0]]) == 1:
            assert isinstance(made, Call) and isinstance(made.op, Function)
            others = {Var(f"q{i}", arg.type): arg for i, arg in enumerate(made.args[1:])}
            given: dict[Expr, Expr] = dict(zip(made.op.params, (first.op.body, *others), strict=True))
            params = [*first.op.params, *others]
            body = substitute(made.op.body, given)
            made = Call(Function(params, body, {"Primitive": "1"}), [*first.args, *others.values()])
            spans.add(made, [*spans[first], *module.spans[expr]])
        spans.record_rewrite(expr, made)
        done[expr] = made
    return module.with_main(Function(module.main.params, done[module.main.body]), spans)


def interchanged(loop: tir.For) -> tir.Stmt:
    """The longer one of two loops is the outer one."""
    inner = loop.body
    if not isinstance(inner, tir.For) or count_of(inner) <= count_of(loop):
        return loop
    return tir.For(inner.var, inner.extent, tir.For(loop.var, loop.extent, inner.body, loop.kind), inner.kind)


def count_of(loop: tir.For) -> int:
    assert isinstance(loop.extent, tir.Imm)
    return int(loop.extent.value)


def unrolled(loop: tir.For) -> tir.Stmt:
    """Inner loops of four iterations have none."""
    is_inner = not any(isinstance(part, tir.For) for part in walk(loop.body))
    is_small = loop.extent is tir.const(4)
    return tir.For(loop.var, loop.extent, loop.body, "unrolled" if is_inner and is_small else loop.kind)


def shifted(func: tir.PrimFunc) -> tir.PrimFunc:
    """What is multiplied by four is shifted by two."""

    def rule(expr: tir.Expr) -> tir.Expr | None:
        if isinstance(expr, tir.Bin) and expr.op == "mul" and isinstance(expr.a, tir.Load) and expr.b is tir.const(4):
            return tir.Bin("shl", expr.a, tir.const(2))
        return None

    return tir.PrimFunc(func.params, map_expressions(func.body, lambda e: rewrite_expr(e, rule)), func.may_alias)


def collapsed(func: tir.PrimFunc) -> tir.PrimFunc:
    """Two loops are one."""

    def one(loop: tir.For) -> tir.Stmt:
        inner = loop.body
        if not isinstance(inner, tir.For):
            return loop
        count = count_of(inner)
        values = {loop.var: inner.var // count, inner.var: inner.var % count}
        body = map_expressions(inner.body, lambda e: substitute_expr(e, values))
        return tir.For(inner.var, tir.const(count_of(loop) * count), body)

    return simplify(each_loop(one)(func))


def nests(program: Program) -> dict[str, int]:
    """How many loops each function has."""
    functions = program.functions.items()
    return {name: sum(isinstance(part, tir.For) for part in walk(func.body)) for name, func in functions}


def products(program: Program) -> int:
    """How often a function multiplies by four what it has loaded."""
    exprs = (part for func in program.functions.values() for part in walk(func.body) if isinstance(part, tir.Bin))
    return sum(expr.op == "mul" and isinstance(expr.a, tir.Load) and expr.b is tir.const(4) for expr in exprs)


def extents(program: Program) -> list[int]:
    """Of the outermost loops, by function, in the order of the steps."""
    found: list[int] = []
    for step in program.steps:
        loops = [part for part in walk(program.functions[step.function].body) if isinstance(part, tir.For)]
        found.append(count_of(loops[0]))
    return found


Optimisation = tuple[Rewrite, bool, Scope, Callable[[Program], object], object, object]
"""The pass; whether it is the host's; its scope; what shows it, without the pass and with it."""

OPTIMISATIONS: dict[Phase, Optimisation] = {
    "PRE_PARTITIONING": (of_main(times_one), True, "module", lambda program: len(program.steps), 6, 5),
    "POST_PARTITIONING_0": (one_match, False, "regions", lambda program: len(program.steps), 6, 5),
    "POST_PARTITIONING_1": (one_kernel, True, "module", lambda program: len(program.steps), 6, 4),
    "TIR_0": (of_loops(each_loop(interchanged)), False, "regions", extents, [2] * 6, [2, 2, 4, 4, 2, 2]),
    "TIR_1": (of_loops(each_loop(unrolled)), True, "module", lambda program: set(nests(program).values()), {2}, {1}),
    "TIR_2": (of_loops(shifted), True, "module", products, 1, 0),
    "TIR_3": (of_loops(collapsed), False, "regions", extents, [2] * 6, [2, 2, 8, 8, 2, 2]),
}


def optimising(phases: Sequence[Phase]) -> BuildTargets:
    """The targets of a build with the optimisations of these phases, of the host and of an accelerator."""
    passes = {phase: Pass(phase, f"faster_{phase.lower()}", of[0], scope=of[2]) for phase, of in OPTIMISATIONS.items()}
    own = [passes[phase] for phase in phases if not OPTIMISATIONS[phase][1]]
    strategies = lambda: [Strategy("npu.all", lambda fusion, target: lowered(fusion.function))]  # noqa: E731 - as short as its use
    accelerator = passing("npu", *own, ops=("nn.relu", "add"), strategies=strategies)
    return by_host(*(passes[phase] for phase in phases if OPTIMISATIONS[phase][1]), others=(accelerator,))


@pytest.mark.parametrize("phase", PHASES)
def test_an_optimisation_at_each_phase(phase: Phase) -> None:
    _, _, _, shows, before, after = OPTIMISATIONS[phase]
    assert shows(checked(MODEL, optimising([]))[1]) == before
    _, program = checked(MODEL, optimising([phase]))
    assert shows(program) == after
    layers = [layer for step in program.steps for layer in step.layers]
    assert layers == sorted(layers) and set(layers) >= set("abcdf")


def test_all_of_them_at_once() -> None:
    members = optimising(PHASES)
    _, program = checked(MODEL, members)
    assert [layers for _, layers in steps(program)] == [("a", "b"), ("c", "d", "e"), ("f",)]
    assert (products(program), sorted(nests(program).values())) == (0, [1, 1, 1])
    artifact = build_loaded(LoadedModel(MODEL, "m"), members)
    inputs = inputs_of(MODEL.main)
    (expected,) = evaluate(MODEL, inputs)
    (got,) = artifact.run(inputs).values()
    np.testing.assert_array_equal(got, expected)


# --- layers ----------------------------------------------------------------------------------------------------------


def renamed(expr: Expr) -> Expr | None:
    """Every call another one."""
    return call("reshape", call("reshape", expr, newshape=(8,)), newshape=(2, 4)) if isinstance(expr, Call) else None


@pytest.mark.parametrize("phase", PHASES[3:6])
def test_a_pass_that_says_no_layers_of_what_it_makes_of_a_region(phase: Phase) -> None:
    """It is for all of the region's."""

    def forgetful(module: IRModule) -> IRModule:
        made = of_graph(renamed)(module)
        return IRModule(made.functions)

    made = Pass(phase, "forget", forgetful, scope="regions")
    _, program = checked(CHAIN, members_of(passing("npu", made, ops=("nn.relu", "add"))))
    assert [layers for _, layers in steps(program)] == [("first",), ("first", "second"), ("third",)]


def test_layers_of_what_is_gone_are_forgotten() -> None:
    forms: list[IRModule] = []

    def after(stage: str, form: Form, made_by: str | None = None) -> None:
        if made_by is not None and isinstance(form, IRModule):
            forms.append(form)

    made = Pass("PRE_PARTITIONING", "once", of_main(times_one))
    Build("m", members_of(passing("npu", made)), after).run(MODEL)
    assert ONCE not in forms[0].spans and SUM in forms[0].spans
    assert forms[0].spans[SUM] == ("d", "e")


# --- dumps -----------------------------------------------------------------------------------------------------------


def test_a_dump_after_every_pass(tmp_path: Path) -> None:
    members = optimising(PHASES)
    seen: list[tuple[str, Form]] = []
    dumper = Dumper(tmp_path)

    def after(stage: str, form: Form, made_by: str | None = None) -> None:
        seen.append((stage if made_by is None else f"{stage}.{made_by}", form))
        dumper(stage, form, made_by)

    program = Build("m", members, after).run(MODEL)
    own = {phase: "plain" if of[1] else "npu" for phase, of in OPTIMISATIONS.items()}
    passes = {stage: f"{stage}.{own[phase]}.faster_{phase.lower()}" for stage, phase in PHASE_AFTER.items()}
    expected = [name for stage in STAGES for name in ([passes[stage]] if stage in passes else []) + [stage]]
    assert [name for name, _ in seen] == expected
    names = {name: f"{STAGES.index(name.partition('.')[0]) + 1}-{name}.py" for name in expected}
    assert {path.name for path in tmp_path.iterdir()} - {CONSTANTS_FILE} == set(names.values())
    for name, form in seen:
        assert (tmp_path / names[name]).read_text(encoding="utf-8") == print_form(form)[0]
        assert Build("m", members).run(read_dump(tmp_path / names[name])) == program


def test_dumps_of_a_build(tmp_path: Path) -> None:
    build_loaded(LoadedModel(MODEL, "m"), optimising(["TIR_3"]), dump=tmp_path)
    assert (tmp_path / "8-flatten.npu.faster_tir_3.py").read_text() == (tmp_path / "8-flatten.py").read_text()


def test_what_is_left_between_loops_is_offered_to_nobody() -> None:
    """An accelerator and a host that take every reshape do not take those that flat buffers bring with them."""
    forms: list[Form] = []
    plugin = passing("npu", ops=("nn.relu", "add", "reshape"))
    host = entry_of(HOST, patterns=lambda: [taking("plain", "reshape", None)])
    entries = [*plugin, *host]
    members = resolve_targets(["npu", "plain"], PluginHost(lambda: entries))
    program = Build("m", members, lambda stage, form, made_by=None: forms.append(form)).run(MODEL)
    for form in forms:
        assert Build("m", members).run(form) == program


def test_passes_of_the_graph_form_have_no_business_with_loops() -> None:
    def never(module: IRModule) -> IRModule:
        return pytest.fail("it is past that")

    lowered_form = Build("m", members_of(passing("npu"))).run(MODEL, "lower")
    passes = [Pass(phase, "never", never) for phase in PHASES if not phase.startswith("TIR")]
    assert isinstance(Build("m", members_of(passing("npu", *passes))).run(lowered_form), Program)
