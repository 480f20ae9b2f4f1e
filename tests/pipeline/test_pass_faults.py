"""What plugins' passes may not give, and whose fault it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from tests._support import fake_device
from tests._support.offload import Case, Offload, dense_cases, varied_cases
from tests._support.passes import Rewrite, each_loop, of_graph, of_loops, of_main, passing
from tests._support.plugins import built, members_of
from tests._support.regions import CHAIN, MANY, RELU, T, X, Y
from tests._support.te_lowerings import kernel_of

from uma.contract.passes import PHASES, Pass, Phase, Scope
from uma.errors import ModelError, PluginError, RequirementError, UsageError
from uma.lowering.build_targets import BuildTargets
from uma.pipeline.phases import phase_faults
from uma.pipeline.stages import PHASE_AFTER, Build, Form
from uma.program import Program
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Spans, Tuple, Var, call, const
from uma.relay.module import func_type
from uma.relay.types import FuncType
from uma.tir import te
from uma.tir.form import nodes as tir

AFTER_PRE = PHASES[1:]
TIR = tuple(phase for phase in PHASES if phase.startswith("TIR"))


def same(module: IRModule) -> IRModule:
    return module


def fault(members: BuildTargets, module: IRModule = CHAIN) -> PluginError:
    with pytest.raises(PluginError) as caught:
        built(module, members)
    assert "plugin API" in str(caught.value.where)
    return caught.value


# --- what a pass may not give ----------------------------------------------------------------------------------------

HELPER = Function([Y], call("nn.relu", Y))
HELPER_VAR = GlobalVar("helper", func_type(HELPER))


def with_function(name: str, function: Function, then: Rewrite) -> Rewrite:
    """What ``then`` gives, with another function."""

    def fn(module: IRModule) -> IRModule:
        made = then(module)
        return IRModule({**made.functions, GlobalVar(name, func_type(function)): function}, made.spans)

    return fn


def if_op(name: str, change: Callable[[Call], Expr]) -> Callable[[Expr], Expr | None]:
    return lambda e: change(e) if isinstance(e, Call) and e.op_name == name else None


def if_called(name: str, change: Callable[[Call], Expr]) -> Callable[[Expr], Expr | None]:
    return lambda e: change(e) if isinstance(e, Call) and isinstance(e.op, GlobalVar) and e.op.name == name else None


def with_attrs(**attrs: str) -> Rewrite:
    """Regions get other attributes."""

    def fn(module: IRModule) -> IRModule:
        functions = {
            var: Function(f.params, f.body, attrs) if isinstance(f, Function) and var.name != "main" else f
            for var, f in module.functions.items()
        }
        return IRModule(functions, module.spans, module.signature)

    return fn


def as_loops(module: IRModule) -> IRModule:
    """The region is loops at once."""
    made = kernel_of(Function([Y], call("nn.relu", Y))).func
    return IRModule({**module.functions, module.global_var("npu_0"): made}, module.spans, module.signature)


def writes_its_input(func: tir.PrimFunc) -> tir.PrimFunc:
    taken = func.params[0].buffer
    here = tuple(tir.const(0) for _ in taken.shape)
    return tir.PrimFunc(func.params, tir.seq(func.body, tir.Store(taken, here, tir.const(1))), func.may_alias)


def reshaped(func: tir.PrimFunc) -> tir.PrimFunc:
    """With memory of two dimensions besides."""
    return tir.PrimFunc(
        func.params, tir.Alloc(tir.Buffer("t", (2, 4), "int32", scope="local"), func.body), func.may_alias
    )


def with_registers(func: tir.PrimFunc) -> tir.PrimFunc:
    """With registers that a loop chooses among."""
    i, r = tir.Var("m"), tir.Buffer("r", (4,), "int32", scope="register")
    body = tir.Alloc(r, tir.For(i, tir.const(4), tir.Store(r, (i,), tir.const(0))))
    return tir.PrimFunc(func.params, tir.seq(func.body, body), func.may_alias)


def with_scratch(func: tir.PrimFunc) -> tir.PrimFunc:
    """With memory in the scratchpad besides."""
    body = tir.Alloc(tir.Buffer("t", (8,), "int32", scope="spad"), func.body)
    return tir.PrimFunc(func.params, body, func.may_alias, (fake_device.SPAD,))


def computed_constant(module: IRModule) -> IRModule:
    """The addition of a constant adds what other loops give."""
    x, zeros = te.placeholder((2, 4), "int32", "x"), te.compute((4,), lambda i: tir.const(0), "zeros")
    func = te.prim_func([x], [zeros]).func
    var = GlobalVar("zeros", func_type(func))
    made = of_main(if_called("add", lambda e: Call(e.op, [e.args[0], Call(var, [e.args[0]])])))(module)
    return IRModule({**made.functions, var: func}, made.spans)


def driving(name: str) -> Rewrite:
    """The loops of that name double what they are given, on the device."""

    def fn(module: IRModule) -> IRModule:
        return IRModule({**module.functions, module.global_var(name): DOUBLED}, module.spans, module.signature)

    return fn


def _doubled() -> tir.PrimFunc:
    """Twice a row of what has the shape of `T`, in the scratchpad of `fake_device`."""
    x, y = tir.Buffer("x", (2, 4), "int32"), tir.Buffer("y", (2, 4), "int32")
    a, s = (tir.Buffer(name, (4,), "int32", scope="spad") for name in ("a", "s"))
    i, four = tir.Var("i"), (tir.const(4),)
    part = {b: tir.View(b, (tir.const(0),), (tir.Axis(0),)) for b in (a, s)}
    row = {b: tir.View(b, (i, tir.const(0)), (tir.Axis(1),)) for b in (x, y)}
    steps = tir.seq(
        tir.Copy(part[a], row[x], four),
        tir.Exec(fake_device.ADD, (part[s], part[a], part[a]), four),
        tir.Copy(row[y], part[s], four),
    )
    body = tir.Alloc(a, tir.Alloc(s, tir.For(i, tir.const(2), steps)))
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output")), body, memories=(fake_device.SPAD,))


DOUBLED = _doubled()


def with_main(main: Any) -> Rewrite:
    """Another model."""

    def fn(module: IRModule) -> IRModule:
        others = {var: function for var, function in module.functions.items() if var.name != "main"}
        return IRModule({GlobalVar("main", func_type(main)): main, **others}, module.spans, module.signature)

    return fn


def junk(result: object) -> Callable[[IRModule], Any]:
    return lambda module: result


def raising(error: BaseException) -> Rewrite:
    def fn(module: IRModule) -> IRModule:
        raise error

    return fn


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


NO_MODULE: dict[str, tuple[Callable[[IRModule], Any], str]] = {
    "nothing": (junk(None), "gave NoneType instead of an IRModule"),
    "a function": (lambda module: next(iter(module.functions.values())), "gave Function instead of an IRModule"),
    "the class": (junk(IRModule), "gave type instead of an IRModule"),
    "what cannot be printed": (junk(Unprintable()), "gave Unprintable instead of an IRModule"),
    "an exception": (raising(KeyError("w")), "failed in pass odd of PHASE: KeyError: 'w'"),
    "the end of the world": (raising(SystemExit(2)), "failed in pass odd of PHASE: SystemExit: 2"),
    "an error of the core's": (raising(ModelError("no")), "failed in pass odd of PHASE: uma.errors.ModelError: no"),
    "an argument too many": (lambda module, target: module, "failed in pass odd of PHASE: TypeError: "),  # type: ignore[dict-item,misc]  # a pass takes a module alone
    "a module of junk": (lambda module: IRModule({1: 2}), "failed in pass odd of PHASE: uma.errors.ModelError: "),  # type: ignore[dict-item]  # neither a name nor a function
}


@pytest.mark.parametrize("case", list(NO_MODULE))
@pytest.mark.parametrize(
    ("phase", "scope"), [("PRE_PARTITIONING", "module"), ("TIR_2", "module"), ("TIR_3", "regions")]
)
def test_what_is_no_module(phase: Phase, scope: Scope, case: str) -> None:
    fn, what = NO_MODULE[case]
    error = fault(members_of(passing("npu", Pass(phase, "odd", fn, scope=scope))))
    if "instead of" in what:
        assert error.what == f"plugin uma-npu 1.0 has pass 'odd' of {phase}, which {what}"
    else:
        assert error.what.startswith(f"plugin uma-npu 1.0 {what.replace('PHASE', phase)}")


def test_what_a_pass_raises_on_purpose() -> None:
    wrong = Pass("TIR_1", "odd", raising(UsageError("there is no licence", hint="buy one")))
    with pytest.raises(UsageError, match="there is no licence") as caught:
        built(CHAIN, members_of(passing("npu", wrong)))
    assert (caught.value.where, caught.value.hint) == ("pass odd of TIR_1 of plugin uma-npu 1.0", "buy one")
    wrong = Pass("TIR_1", "odd", raising(PluginError("it is broken")))
    with pytest.raises(PluginError, match="it is broken") as broken:
        built(CHAIN, members_of(passing("npu", wrong)))
    assert broken.value.what == "plugin uma-npu 1.0 failed in pass odd of TIR_1: it is broken"
    with pytest.raises(KeyboardInterrupt):
        built(CHAIN, members_of(passing("npu", Pass("TIR_1", "odd", raising(KeyboardInterrupt())))))


@pytest.mark.parametrize("layers", ["third", [3], [b"third"]])
def test_layers_that_are_no_names(layers: Any) -> None:
    odd = Pass("PRE_PARTITIONING", "odd", lambda module: IRModule(module.functions, Spans({module.main.body: layers})))
    with pytest.raises(PluginError, match="the layers of an expression must be a list of names") as caught:
        built(CHAIN, members_of(passing("npu", odd)))
    assert caught.value.what.startswith("plugin uma-npu 1.0 failed in pass odd of PRE_PARTITIONING: ")


Z = Var("z", T)

CHANGED = "changed what the model takes or gives"

FACES: dict[str, tuple[Rewrite, str]] = {
    "another name": (with_main(Function([Z], call("nn.relu", Z))), CHANGED),
    "another input": (with_main(Function([X, Z], RELU)), CHANGED),
    "another type": (of_main(lambda e: call("cast", e, dtype="int8") if e is MANY else None), "changed what the model"),
    "another result": (
        of_main(lambda e: Tuple([e, e]) if e is MANY else None),
        "changed what the model takes or gives",
    ),
    "no main": (junk(IRModule({})), "gave what must not be at this phase: the module has no function 'main'"),
    "loops": (
        with_main(kernel_of(Function([X], RELU)).func),
        "gave what must not be at this phase: main is not a function",
    ),
}


@pytest.mark.parametrize("case", list(FACES))
def test_what_the_model_takes_and_gives_is_not_a_passes_to_change(case: str) -> None:
    fn, what = FACES[case]
    error = fault(members_of(passing("npu", Pass("PRE_PARTITIONING", "odd", fn))))
    assert error.what.startswith(f"plugin uma-npu 1.0 has pass 'odd' of PRE_PARTITIONING, which {what}")


UNKNOWN = GlobalVar("unknown", FuncType((T,), T))
CAST = call("cast", X, dtype="float32")
GPU = Function([X], CAST, {"Compiler": "gpu"})
NPU = Function([X], CAST, {"Compiler": "npu"})
CLIP = if_op("nn.relu", lambda e: call("clip", e.args[0], a_min=0))
CALL_HELPER = of_main(if_op("add", lambda e: Call(HELPER_VAR, [e])))
NO_OWNER = "the region has lost its owner 'npu' (npu_0)"

BAD: dict[str, tuple[tuple[Phase, ...], Rewrite, str]] = {
    "an unknown function": (
        PHASES,
        of_main(lambda e: Call(UNKNOWN, [e]) if e is X else None),
        "call of 'unknown', which the module does not have (main)",
    ),
    "what is not canonical": (PHASES[:1], of_main(CLIP), "clip is not in canonical form (main, first)"),
    "what is not canonical any more": (
        PHASES[:2],
        of_main(if_op("multiply", lambda e: call("reshape", call("reshape", e, newshape=(8,)), newshape=(2, 4)))),
        "reshape is not in canonical form (main, third)",
    ),
    "what is a constant": (
        PHASES[:2],
        of_main(if_op("add", lambda e: call("add", e.args[0], call("multiply", e.args[1], const(2))))),
        "multiply is not in canonical form (main, second)",
    ),
    "a function of nobody": (
        PHASES[:2],
        with_function("helper", HELPER, CALL_HELPER),
        "'helper' is called, a function of the graph form for no target (main)",
    ),
    "a function for somebody else": (
        PHASES,
        with_function("other", GPU, same),
        "a function is for 'gpu', which is not an accelerator of this build (other)",
    ),
    "a function within for somebody else": (
        PHASES[:3],
        of_main(lambda e: call("cast", Call(GPU, [e]), dtype="int32") if e is X else None),
        "a function is for 'gpu', which is not an accelerator of this build (main)",
    ),
    "a region within": (
        PHASES[1:3],
        of_main(lambda e: call("cast", Call(NPU, [e]), dtype="int32") if e is X else None),
        "a function for 'npu' is none of the module, so that nobody lowers it (main)",
    ),
    "a region that calls a function": (
        PHASES[1:3],
        with_function("helper", HELPER, of_graph(lambda e: Call(HELPER_VAR, [e]) if e.type is T else None, "npu_0")),
        "'helper' is called, a function of the graph form for no target (npu_0)",
    ),
    "a region that calls a region": (
        PHASES[1:],
        with_function(
            "other",
            Function([X], X, {"Compiler": "npu"}),
            of_graph(lambda e: Call(GlobalVar("other", HELPER_VAR.type), [e]) if isinstance(e, Var) else None, "npu_0"),  # type: ignore[arg-type]  # the type of a function
        ),
        "a region calls the region 'other' (npu_0)",
    ),
    "a region of nobody": (PHASES[1:], with_attrs(), NO_OWNER),
    "a region of somebody else": (PHASES[1:], with_attrs(Compiler="dsp"), NO_OWNER),
    "a region that is loops": (PHASES[1:], as_loops, NO_OWNER),
    "an op of the host's that is in no kernel": (
        PHASES[2:3],
        of_main(lambda e: call("add", e, X) if e is X else None),
        "add belongs to no kernel of the host and to no region (main)",
    ),
    "an op in main": (
        TIR,
        of_main(if_called("multiply", lambda e: call("multiply", e.args[0], e.args[0]))),
        "multiply is called, and no loops are (main, third)",
    ),
    "a kernel in main": (
        TIR[:3],
        of_main(if_called("multiply", lambda e: Call(HELPER, e.args))),
        "a function is called, and no loops are (main, third)",
    ),
    "an op in a region": (
        TIR,
        of_graph(if_called("relu", lambda e: call("nn.relu", *e.args)), "npu_0"),
        "nn.relu is called, and no loops are (npu_0, first)",
    ),
    "a function in main": (
        TIR[:3],
        with_function("helper", HELPER, of_main(if_called("multiply", lambda e: Call(HELPER_VAR, e.args)))),
        "'helper' is called, a function of the graph form for no target (main)",
    ),
    "a computed constant": (
        TIR[:3],
        computed_constant,
        "'add' is given a value that is computed where it takes a constant (main, second)",
    ),
    "a device of nobody": (
        TIR[:3],
        driving("multiply"),
        "'multiply' drives a device, and is called outside of a region (main, third)",
    ),
    "a device without a driver": (
        TIR[:3],
        driving("relu"),
        "'relu' uses a device, for which hook runtime gives no driver (npu_0, first)",
    ),
    "loops that write into their input": (TIR, of_loops(writes_its_input), "malformed loops: input 'x0' is written"),
    "loops to unroll": (
        TIR[2:],
        of_loops(each_loop(lambda loop: tir.For(loop.var, loop.extent, loop.body, "unrolled"))),
        "there are loops to unroll left (relu)",
    ),
    "registers that a loop chooses among": (
        TIR[2:],
        of_loops(with_registers),
        "'r' is in registers, and the index by 'm' is not constant (r[m] = 0); a register is chosen when the C is "
        "written: unroll the loop over 'm' (relu)",
    ),
    "buffers of several dimensions": (
        TIR[3:],
        of_loops(reshaped),
        "there are buffers of several dimensions left (relu)",
    ),
    "memory of the accelerator's that nobody plans": (
        TIR[3:],
        of_loops(with_scratch),
        "there are buffers in an accelerator's memory that are not workspaces left (relu)",
    ),
}


@pytest.mark.parametrize(("case", "phase"), [(case, phase) for case, (phases, _, _) in BAD.items() for phase in phases])
def test_what_must_not_be_at_a_phase(case: str, phase: Phase) -> None:
    _, fn, what = BAD[case]
    plugins = [passing("npu", Pass(phase, "odd", fn)), passing("dsp", ops=("tanh",))]
    error = fault(members_of(*plugins))
    start = f"plugin uma-npu 1.0 has pass 'odd' of {phase}, which gave what must not be at this phase: "
    assert error.what.startswith(start)
    assert error.what.removeprefix(start).startswith(what)


@pytest.mark.parametrize(
    ("missing", "what"), [("memories", "the memory 'spad'"), ("intrinsics", "the intrinsic 'add'"), (None, "")]
)
def test_a_device_that_is_driven_as_its_plugin_does_not_say(missing: str | None, what: str) -> None:
    machine = replace(fake_device.runtime().machine, **({"intrinsics": (), missing: ()} if missing else {}))
    made = Pass("TIR_0", "odd", driving("relu"), scope="regions")
    members = members_of(passing("npu", made, runtime=lambda: fake_device.runtime(machine=machine)))
    if missing is None:
        assert [step.device for step in built_program(CHAIN, members).steps] == ["npu", None, None]
    else:
        error = fault(members)
        assert error.what.endswith(f"'relu' uses {what}, which its Runtime does not declare (npu_0, first)")


def built_program(module: IRModule, members: BuildTargets) -> Program:
    program = Build("m", members).run(module)
    assert isinstance(program, Program)
    return program


def test_what_regions_may_not_lose() -> None:
    """Also where a pass sees nothing else."""
    for fn in (with_attrs(), with_attrs(Compiler="dsp"), as_loops):
        members = members_of(passing("npu", Pass("TIR_0", "odd", fn, scope="regions")), passing("dsp", ops=("tanh",)))
        assert fault(members).what.endswith(NO_OWNER)


# --- whose fault it is -----------------------------------------------------------------------------------------------


def test_the_culprit_is_the_first_that_did_it() -> None:
    bad = of_loops(writes_its_input)
    ran: list[str] = []

    def good(module: IRModule) -> IRModule:
        ran.append("good")
        return module

    passes = [Pass("TIR_1", "good", good), Pass("TIR_1", "bad", bad), Pass("TIR_1", "late", raising(ValueError()))]
    assert "pass 'bad' of TIR_1" in fault(members_of(passing("npu", *passes))).what
    assert ran == ["good"]


@pytest.mark.parametrize("is_inline", [True, False])
def test_what_the_model_has_done_is_not_a_passes_fault(is_inline: bool) -> None:
    var = GlobalVar("mine", func_type(GPU))
    main = Function([X], Call(GPU if is_inline else var, [X]))
    functions: dict[GlobalVar, Any] = {GlobalVar("main", func_type(main)): main}
    module = IRModule(functions if is_inline else {**functions, var: GPU})
    members = members_of(passing("npu", Pass("PRE_PARTITIONING", "same", same)))
    with pytest.raises(ModelError, match="a function for 'gpu', which is not an accelerator of this build"):
        built(module, members)


def test_a_function_that_the_model_calls_by_its_name_is_not_a_passes_fault() -> None:
    main = Function([X], Call(HELPER_VAR, [X]))
    module = IRModule({GlobalVar("main", func_type(main)): main, HELPER_VAR: HELPER})
    members = members_of(passing("npu", *(Pass(phase, "same", same) for phase in PHASES)))
    with pytest.raises(ModelError, match="main calls 'helper', a function of the graph form, by its name"):
        built(module, members)


class Watched(Offload):
    """A build whose every stage gives what must hold at the phase that follows."""

    def _after(self, stage: str, form: Form, made_by: str | None = None) -> None:
        super()._after(stage, form, made_by)
        if stage in PHASE_AFTER and isinstance(form, IRModule):
            assert list(phase_faults(form, self.members, PHASE_AFTER[stage])) == []


@settings(max_examples=12)
@given(dense_cases() | varied_cases())
def test_a_pass_that_changes_nothing_is_never_at_fault(case: Case) -> None:
    with suppress(RequirementError):  # of a pin that cannot be met, by which nothing is placed
        Watched(case).run()
