"""The stages of the build: one form in, one form out, each sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests._support.plugins import installed_host, run
from tests._support.relay_strategies import modules

from uma.errors import InternalError
from uma.lowering.loops import simplify_all
from uma.lowering.region_lowering import RegionLowering
from uma.options import BuildOptions
from uma.pipeline import stages
from uma.pipeline.dump import print_form
from uma.pipeline.facts import Facts
from uma.pipeline.loading import load_model
from uma.pipeline.stages import STAGES, Build, Context, Form, run_stage
from uma.program import Program
from uma.program.text import parse_program
from uma.relay.expr import Call, Function, GlobalVar, TupleGetItem, Var, call
from uma.relay.module import IRModule, Spans
from uma.relay.pattern import PatternTable
from uma.relay.text import parse_module
from uma.relay.types import FuncType, TensorType
from uma.tir.form.nodes import PrimFunc

T = TensorType((2, 3), "float32")
X = Var("x", T)
RELU = call("nn.relu", X)
MODULE = IRModule.from_functions({"main": Function([X], call("reshape", call("clip", X, a_min=0), newshape=(6,)))})


def trace(form: Form, until: str = STAGES[-1]) -> dict[str, Form]:
    """The result of every stage."""
    seen: dict[str, Form] = {}

    def after(stage: str, made: Form, made_by: str | None = None) -> None:
        assert made_by is None, "c has no passes"
        seen[stage] = made

    last = run(form, "m", until, after)
    assert not seen or list(seen.values())[-1] is last
    return seen


def test_the_stages_in_their_order() -> None:
    relay, loops = ("import", "canonicalise", "partition", "fuse"), ("lower", "simplify", "unroll", "flatten")
    assert STAGES == (*relay, *loops, "sequence")
    assert list(trace(MODULE)) == list(STAGES)


def test_each_stage_does_its_own() -> None:
    forms = trace(MODULE)
    assert forms["import"] is MODULE
    program = forms.pop("sequence")
    assert isinstance(program, Program)
    mains = {stage: form.main for stage, form in forms.items() if isinstance(form, IRModule)}
    assert mains["canonicalise"].body is call("reshape", RELU, newshape=(6,))
    called = {stage: main.body.args[0] for stage, main in mains.items() if isinstance(main.body, Call)}
    kinds = {stage: type(inner.op) for stage, inner in called.items() if isinstance(inner, Call)}
    assert kinds["fuse"] is Function
    assert kinds["lower"] is kinds["simplify"] is kinds["unroll"] is GlobalVar
    assert isinstance(mains["flatten"].body, Call) and isinstance(mains["flatten"].body.op, GlobalVar)
    assert program.name == "m"


def test_stages_are_functions() -> None:
    """Run by hand they give what a build gives, and the same again for the same input."""
    members, form, facts = installed_host(), MODULE, Facts()
    context = Context("m", members, BuildOptions(), None, True, RegionLowering(members))
    runs: list[tuple[str, IRModule, Context, Form]] = []
    for stage in STAGES:
        assert isinstance(form, IRModule)
        before, given = form, replace(context, facts=facts)
        form, facts = run_stage(stage, before, given)
        runs.append((stage, before, given, form))
    build = Build("m", members)
    assert form == build.run(MODULE) == build.run(MODULE)
    assert facts.placement is not None and facts.fused is runs[3][3]
    for stage, before, given, after in reversed(runs):
        assert print_form(run_stage(stage, before, given)[0]) == print_form(after)


@pytest.mark.parametrize("until", STAGES)
def test_a_build_may_stop_anywhere(until: str) -> None:
    assert list(trace(MODULE, until)) == list(STAGES[: STAGES.index(until) + 1])


@settings(max_examples=settings.default.max_examples // 2)
@given(modules(max_steps=8))
def test_every_form_can_be_taken_up_again(module: IRModule) -> None:
    forms = trace(module)
    for form in forms.values():
        assert run(form, "m") == forms["sequence"]


def texts(form: Form) -> dict[str, str]:
    """The text of every stage."""
    return {stage: print_form(made)[0] for stage, made in trace(form).items()}


def check_texts(module: IRModule, stages: Sequence[str] = STAGES) -> None:
    """The text of every stage is read as what it was printed from, and is printed again by what reads it: at once, and
    at the end of its stage and of all later ones in a build that goes on from it."""
    forms = trace(module)
    printed = {stage: print_form(form) for stage, form in forms.items()}
    for stage in stages:
        text, constants = printed[stage]
        form: Form
        if isinstance(forms[stage], Program):
            form = parse_program(text, {digest: array.tobytes() for digest, array in constants.items()})
        else:
            form = parse_module(text, constants)
        assert form == forms[stage], stage
        assert print_form(form)[0] == text, stage
        for later, again in texts(form).items():
            if STAGES.index(later) >= STAGES.index(stage):
                assert again == printed[later][0], f"from {stage} at {later}"


@settings(max_examples=settings.default.max_examples // 12)
@given(modules(max_steps=6))
def test_every_text_prints_itself_again(module: IRModule) -> None:
    check_texts(module)


def test_the_text_of_several_results_of_several_dimensions_prints_itself_again() -> None:
    """Which loops of one dimension give through reshapes: these are what is there, not a tuple of them."""
    x = Var("x", TensorType((2, 3, 4), "float32"))
    halves = call("split", x, indices=(2,), axis=2)
    body = call("subtract", TupleGetItem(halves, 0), TupleGetItem(halves, 1))
    check_texts(
        IRModule.from_functions({"main": Function([x], body)}, Spans({halves: ["halves"], body: ["difference"]}))
    )


QUICK = ("mlperf-tiny/ad01_int8.tflite", "others/okay_nabu.tflite")
MODELS = (
    *(f"mlperf-tiny/{name}_int8.tflite" for name in ("vww_96",)),
    *(f"mlperf-tiny/{name}.tflite" for name in ("ad01_fp32", "kws_ref_model", "kws_ref_model_float32")),
    *(f"mlperf-tiny/{name}.tflite" for name in ("pretrainedResnet", "pretrainedResnet_quant", "vww_96_float")),
    *(f"mlperf-tiny-onnx/{name}_{kind}.onnx" for name in ("ad", "kws", "resnet8", "vww") for kind in ("fp32", "int8")
      if (name, kind) != ("vww", "fp32")),
    "others/tcresnet8_fp32.onnx",
)  # fmt: skip


@pytest.mark.parametrize("path", [*QUICK, *(pytest.param(path, marks=pytest.mark.soak) for path in MODELS)])
@pytest.mark.soak
def test_the_texts_of_a_model_print_themselves_again(path: str, models: Path) -> None:
    loaded = load_model(models / path)
    assert isinstance(loaded.form, IRModule)
    check_texts(loaded.form, STAGES if path in MODELS else ("canonicalise", "flatten", "sequence"))


def test_a_program_stays_what_it_is() -> None:
    program = run(MODULE, "m")
    assert run(program, "other", "import") is program
    assert trace(program) == {}


def test_all_loops_are_simplified() -> None:
    lowered = run(MODULE, "m", "lower")
    assert isinstance(lowered, IRModule)
    simple = simplify_all(lowered)
    assert simplify_all(simple) == simple
    assert simple.main is lowered.main
    assert all(isinstance(f, (Function, PrimFunc)) for f in simple.functions.values())


def test_a_module_that_is_unsound_is_found_at_its_first_stage() -> None:
    body = Call(GlobalVar("g", FuncType((T,), T)), [X])
    module = IRModule.from_functions({"main": Function([X], body)}, Spans({body: ("layer",)}))
    with pytest.raises(InternalError, match="call of 'g', which the module does not have") as caught:
        run(module, "m")
    assert caught.value.where == "stage 'import', main, layer"


def test_a_fault_names_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(module: IRModule, patterns: PatternTable) -> IRModule:
        return IRModule.from_functions({"main": Function([], RELU)})

    def worse(module: IRModule, patterns: PatternTable) -> IRModule:
        raise InternalError("it cannot be", hint="give up")

    monkeypatch.setattr(stages, "fuse", wrong)
    with pytest.raises(InternalError, match="'x' is not a parameter of the function that mentions it") as caught:
        run(MODULE, "m")
    assert caught.value.where == "stage 'fuse', main"
    monkeypatch.setattr(stages, "fuse", worse)
    with pytest.raises(InternalError, match="it cannot be") as caught:
        run(MODULE, "m")
    assert (caught.value.where, caught.value.hint) == ("stage 'fuse'", "give up")


def test_an_unsound_program_names_its_stage() -> None:
    with pytest.raises(InternalError, match="'not a name' is not a name for a program") as caught:
        run(MODULE, "not a name")
    assert caught.value.where == "stage 'sequence', program 'not a name'"
