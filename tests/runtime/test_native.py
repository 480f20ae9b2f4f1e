"""Calling compiled models through cffi, against small hand-written models that follow uma_runtime.h."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import threading
import time
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import uma.runtime
from uma.errors import InternalError, ModelError, ToolchainError, UsageError
from uma.runtime.native import NativeModel, Session, SessionState, TensorInfo
from uma.toolchain.compile import CompileUnit, compile_shared
from uma.toolchain.discovery import find_compiler

RUNTIME_H = (Path(uma.runtime.__file__).parent / "csrc" / "uma_runtime.h").read_text()

# y = 2 * x + (number of runs so far), z = sum of q; the arena is checked and used. The number is in the context, or in
# a state.
DEFAULTS = {
    "abi": "UMA_ABI_VERSION",
    "name": '"demo"',
    "arena": "64",
    "inputs": 'INFO("x:0", "float32", 2, x_shape, 24), INFO("q", "int8", 1, q_shape, 4)',
    "n_inputs": "2",
    "outputs": 'INFO("y", "float32", 2, x_shape, 24), INFO("z", "int32", 0, 0, 4)',
    "n_outputs": "2",
    "states": "{0}",
    "n_states": "0",
    "state_bytes": "0",
    "reset": "",
    "init": "",
    "invoke": "",
    "bound": "",
}
MODEL = """
#include "uma_runtime.h"
#define INFO(name, dtype, rank, shape, bytes) {name, dtype, rank, shape, bytes, 0.0f, 0}
typedef struct { float *arena; int32_t own; int32_t *runs; } context_type;
static const int32_t x_shape[] = {2, 3}, q_shape[] = {4}, bad_shape[] = {-1};
static uma_status reset(void *context) {
    %(reset)s
    *((context_type *)context)->runs = 0;
    return UMA_OK;
}
static uma_status init(void *context, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
                       struct uma_device *const *devices) {
    context_type *c = (context_type *)context;
    (void)bad_shape;
    if (devices) return UMA_ERR_ARGUMENT;
    %(init)s
    if (context == 0 || arena == 0) return UMA_ERR_ARGUMENT;
    if (arena_bytes < 64 || (uintptr_t)arena %% 32) return UMA_ERR_ARENA;
    c->arena = (float *)arena;
    if (state_bytes > 0 && (state_bytes < 8 || (uintptr_t)state %% 16)) return UMA_ERR_STATE;
    c->runs = state_bytes > 0 ? (int32_t *)state + 1 : &c->own;
    *c->runs = 0;
    return UMA_OK;
}
#define x ((const float *)inputs[0])
#define q ((const int8_t *)inputs[1])
#define y ((float *)outputs[0])
#define z ((int32_t *)outputs[1])
static uma_status invoke(void *context, const void *const *inputs, void *const *outputs) {
    context_type *c = (context_type *)context;
    int i;
    %(invoke)s
    for (i = 0; i < 6; i++) c->arena[i] = 2 * x[i];
    for (i = 0; i < 6; i++) y[i] = c->arena[i] + (float)*c->runs;
    for (*z = 0, i = 0; i < 4; i++) *z += q[i];
    ++*c->runs;
    return UMA_OK;
}
static const uma_tensor_info in[] = {%(inputs)s}, out[] = {%(outputs)s}, states[] = {%(states)s};
static const size_t state_offsets[] = {4};
static const uma_model model = {%(abi)s, %(name)s, %(arena)s, 32, %(state_bytes)s, 16, sizeof(context_type),
    %(n_inputs)s, %(n_outputs)s, %(n_states)s, 0, in, out, states, state_offsets, 0, init, reset, invoke, 0, 0};
const uma_model *uma_model_entry(void);
const uma_model *uma_model_entry(void) { return &model; }
%(bound)s
"""
Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    def build(**changes: str) -> Path:
        files = {"m.c": MODEL % (DEFAULTS | changes), "uma_runtime.h": RUNTIME_H}
        output = tmp_path_factory.mktemp("model") / "m.so"
        return compile_shared([CompileUnit(find_compiler(), ["m.c"], ["-O1", "-std=c99"])], files, output)

    return build


@pytest.fixture(scope="module")
def model(build: Build) -> NativeModel:
    return NativeModel(build(), name="demo")


@pytest.fixture(scope="module")
def single(build: Build) -> NativeModel:
    """One input, which is its output."""
    return NativeModel(build(n_inputs="1", n_outputs="1", invoke="for (i = 0; i < 6; i++) y[i] = x[i]; return UMA_OK;"))


@pytest.fixture
def session(model: NativeModel) -> Session:
    return Session(model)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
Q = np.array([1, -2, 3, 100], np.int8)


class TestModel:
    def test_describes_itself(self, model: NativeModel) -> None:
        assert (model.name, model.arena_bytes) == ("demo", 64)
        assert model.inputs == (TensorInfo("x:0", "float32", (2, 3)), TensorInfo("q", "int8", (4,)))
        assert model.outputs == (TensorInfo("y", "float32", (2, 3)), TensorInfo("z", "int32", ()))
        assert [info.nbytes for info in model.outputs] == [24, 4]
        assert [str(info) for info in model.outputs] == ["float32[2, 3]", "int32[]"]

    def test_names_of_the_artifact_are_used(self, build: Build) -> None:
        long = "layer/" * 100
        inputs = [TensorInfo(long, "float32", (2, 3)), TensorInfo("Q", "int8", (4,))]
        model = NativeModel(build(), inputs=inputs)
        assert set(Session(model).run({long: X, "Q": Q})) == {"y", "z"}

    def test_other_tensors_than_the_artifact_says(self, build: Build) -> None:
        with pytest.raises(ModelError, match=r"has the inputs \(float32\[2, 3\], int8\[4\]\), expected \(int8\[4\]\)"):
            NativeModel(build(), inputs=[TensorInfo("q", "int8", (4,))])
        with pytest.raises(ModelError, match=r"has the outputs .* expected \(\)"):
            NativeModel(build(), outputs=[])

    def test_other_name(self, build: Build) -> None:
        with pytest.raises(ModelError, match="holds the model 'demo', expected 'other'"):
            NativeModel(build(), name="other")

    def test_other_abi(self, build: Build) -> None:
        with pytest.raises(ModelError, match="version 999 of the ABI, this UMA reads version") as error:
            NativeModel(build(abi="999"))
        assert "hint: build the model again" in str(error.value)

    @pytest.mark.parametrize(
        "row",
        [
            'INFO("x", "complex64", 2, x_shape, 24)',
            'INFO("x", "float32", 1, bad_shape, 4)',
            'INFO("x", "float32", 2, x_shape, 25)',
        ],
    )
    def test_unusable_tensor(self, build: Build, row: str) -> None:
        with pytest.raises(ModelError, match=r"the output 'x' cannot be .* of \d+ bytes"):
            NativeModel(build(outputs=row, n_outputs="1"))

    def test_two_tensors_of_one_name(self, build: Build) -> None:
        row = 'INFO("x", "int8", 1, q_shape, 4)'
        with pytest.raises(ModelError, match="two inputs have one name: 'x', 'x'"):
            NativeModel(build(inputs=f"{row}, {row}"))

    def test_name_that_is_not_text(self, build: Build) -> None:
        with pytest.raises(ModelError, match="a name in the library is not UTF-8"):
            NativeModel(build(name=r'"\377"'))

    def test_not_a_library(self, tmp_path: Path) -> None:
        (tmp_path / "m.so").write_bytes(b"not ELF")
        for name in ("m.so", "none.so"):
            with pytest.raises(ToolchainError, match="cannot load the compiled model") as error:
                NativeModel(tmp_path / name)
            assert error.value.where == str(tmp_path / name)

    def test_library_without_a_model(self, tmp_path: Path) -> None:
        path = compile_shared([CompileUnit(find_compiler(), ["m.c"])], {"m.c": "int x;\n"}, tmp_path / "m.so")
        with pytest.raises(ToolchainError, match=r"cannot load the compiled model: .*uma_model_entry"):
            NativeModel(path)


class TestRun:
    def test_results(self, session: Session) -> None:
        result = session.run({"x:0": X, "q": Q})
        assert list(result) == ["y", "z"]
        np.testing.assert_array_equal(result["y"], 2 * X)
        np.testing.assert_array_equal(result["z"], np.array(102, np.int32), strict=True)

    def test_results_are_the_callers(self, session: Session) -> None:
        first = session.run({"x:0": X, "q": Q})
        second = session.run({"x:0": X, "q": Q})
        np.testing.assert_array_equal(first["y"], 2 * X)
        np.testing.assert_array_equal(second["y"], 2 * X + 1)

    def test_sessions_are_independent(self, model: NativeModel) -> None:
        one, two = Session(model), Session(model)
        one.run({"x:0": X, "q": Q})
        np.testing.assert_array_equal(two.run({"x:0": X, "q": Q})["y"], 2 * X)

    @given(hnp.arrays(np.float32, (2, 3), elements=st.floats(width=32)))
    def test_nan_and_infinity_pass(self, single: NativeModel, x: np.ndarray[Any, Any]) -> None:
        assert Session(single).run(x)["y"].tobytes() == x.tobytes()

    @pytest.mark.parametrize("layout", [X, X.T.copy().T, np.repeat(X, 2, 1)[:, ::2], X[::-1].copy()[::-1]])
    def test_any_layout(self, single: NativeModel, layout: np.ndarray[Any, Any]) -> None:
        np.testing.assert_array_equal(Session(single).run(layout)["y"], X)
        read_only = layout.copy()
        read_only.flags.writeable = False
        np.testing.assert_array_equal(Session(single).run({"x:0": read_only})["y"], X)

    def test_of_a_kind_of_their_own(self, session: Session) -> None:
        """Mappings and arrays that are not numpy's and Python's own."""

        class Kind(np.ndarray[Any, Any]):
            pass

        given = UserDict({"x:0": X.view(Kind), "q": Q})
        for inputs in (given, dict(given), MappingProxyType(given)):
            made = session.run(inputs)["y"]
            assert type(made) is np.ndarray and made[0, 0] == session.outputs["y"][0, 0]
        with pytest.raises(ModelError, match="there is no input 'r'"):
            session.run(UserDict({**given, "r": Q}))

    def test_dlpack(self, single: NativeModel) -> None:
        class Foreign:
            def __dlpack__(self, **options: Any) -> Any:
                return X.__dlpack__(**options)

            def __dlpack_device__(self) -> Any:
                return X.__dlpack_device__()

        np.testing.assert_array_equal(Session(single).run(Foreign())["y"], X)

    def test_dlpack_of_another_device(self, single: NativeModel) -> None:
        class Gpu:
            def __dlpack__(self, **options: Any) -> Any:
                raise BufferError("cannot be exported to the CPU")

            def __dlpack_device__(self) -> Any:
                return (2, 0)

        with pytest.raises(ModelError, match="input 'x:0' cannot be read through DLPack"):
            Session(single).run(Gpu())

    def test_without_inputs(self, build: Build) -> None:
        model = NativeModel(build(n_inputs="0", n_outputs="1", invoke="y[0] = 7; return UMA_OK;"))
        assert Session(model).run()["y"][0, 0] == 7
        assert Session(model).run({})["y"][0, 0] == 7
        with pytest.raises(ModelError, match="one value was given for 0 inputs, expected none"):
            Session(model).run(X)

    def test_without_arena(self, build: Build) -> None:
        model = NativeModel(build(arena="0", init="c->arena = 0; return UMA_OK;", invoke="*z = 3; return UMA_OK;"))
        assert Session(model).run({"x:0": X, "q": Q})["z"] == 3


class TestWrongInputs:
    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            (X, "one value was given for 2 inputs, expected 'x:0': float32[2, 3], 'q': int8[4]"),
            (None, "the inputs 'x:0', 'q' are missing, expected 'x:0': float32[2, 3], 'q': int8[4]"),
            ({"x:0": X}, "the input 'q' is missing"),
            ({"x:0": X, "q": Q, "r": Q}, "there is no input 'r', expected 'x:0'"),
            ({"x:0": X, "q": Q.astype(np.uint8)}, "input 'q' is uint8[4], expected int8[4]"),
            ({"x:0": X.astype(np.float64), "q": Q}, "input 'x:0' is float64[2, 3], expected float32[2, 3]"),
            ({"x:0": X.astype(">f4"), "q": Q}, "input 'x:0' is >f4[2, 3], expected float32[2, 3]"),
            ({"x:0": X.reshape(3, 2), "q": Q}, "input 'x:0' is float32[3, 2], expected float32[2, 3]"),
            ({"x:0": X[None], "q": Q}, "input 'x:0' is float32[1, 2, 3], expected float32[2, 3]"),
            ({"x:0": X, "q": np.int8(1)}, "input 'q' is int8[], expected int8[4]"),
            ({"x:0": X, "q": Q[:0]}, "input 'q' is int8[0], expected int8[4]"),
            ({"x:0": X.tolist(), "q": Q}, "input 'x:0' is a list, expected an array float32[2, 3]"),
            ({"x:0": None, "q": Q}, "input 'x:0' is a NoneType, expected an array float32[2, 3]"),
        ],
    )
    def test_says_expected_and_got(self, session: Session, inputs: Any, message: str) -> None:
        with pytest.raises(ModelError) as error:
            session.run(inputs)
        assert message in error.value.what
        assert error.value.where == "inputs of model demo"
        session.run({"x:0": X, "q": Q})


class TestInvoke:
    def test_bound_buffers(self, session: Session) -> None:
        session.inputs["x:0"][...] = X
        session.inputs["q"][...] = Q
        session.invoke()
        np.testing.assert_array_equal(session.outputs["y"], 2 * X)
        session.inputs["x:0"][0, 0] = 50
        session.invoke()
        assert session.outputs["y"][0, 0] == 101

    def test_buffers_are_aligned_and_fixed(self, session: Session) -> None:
        for array in (*session.inputs.values(), *session.outputs.values()):
            assert array.ctypes.data % 64 == 0
            assert array.flags.c_contiguous
        with pytest.raises(TypeError):
            session.inputs["x:0"] = X  # type: ignore[index]  # read-only: the test is about that

    def test_one_call_is_cheap(self, single: NativeModel, monkeypatch: pytest.MonkeyPatch) -> None:
        """Once a run was short, a call enters one function of Python, which calls one of C."""
        monkeypatch.setattr("uma.runtime.native._SHORT_S", math.inf)
        invoke = Session(single).invoke
        invoke()
        events: list[str] = []
        sys.setprofile(lambda frame, event, arg: events.append(event))
        try:
            for _ in range(10):
                invoke()
        finally:
            sys.setprofile(None)
        assert events.count("call") == 10 and events.count("c_call") <= 21  # with that of `setprofile`

    def test_a_library_may_bind_what_it_takes(self, build: Build) -> None:
        """As those that UMA makes do: then that is what is called."""
        bound = "uma_status uma_model_invoke(void *const *bound);"
        body = "return invoke(bound[0], (const void *const *)bound[1], (void *const *)bound[2]) + 77;"
        with_it = Session(NativeModel(build(bound=f"{bound} {bound[:-1]} {{ {body} }}")))
        with_it.inputs["x:0"][...] = X
        with pytest.raises(InternalError, match=r"an unknown status \(77\)"):
            with_it.invoke()
        np.testing.assert_array_equal(with_it.outputs["y"], 2 * X)


STATEFUL = {"n_states": "1", "states": 'INFO("runs/so far", "int32", 0, 0, 4)', "state_bytes": "8"}


@pytest.fixture(scope="module")
def counting(build: Build) -> NativeModel:
    return NativeModel(build(**STATEFUL), model_digest="ab" * 32)


class TestState:
    """A model that keeps the number of its runs."""

    def runs(self, session: Session) -> int:
        """The number of runs before this one, as the model tells it."""
        return int(session.run({"x:0": 0 * X, "q": Q})["y"][0, 0])

    def test_is_described(self, counting: NativeModel, model: NativeModel) -> None:
        assert counting.states == (TensorInfo("runs/so far", "int32", ()),)
        assert model.states == () and model.model_digest is None

    def test_other_states_than_the_artifact_says(self, build: Build) -> None:
        path = build(**STATEFUL)
        with pytest.raises(ModelError, match=r"the library has the states \(int32\[\]\), expected \(float32\[\]\)"):
            NativeModel(path, states=[TensorInfo("runs", "float32", ())])
        assert NativeModel(path, states=[TensorInfo("a longer name", "int32", ())]).states[0].name == "a longer name"

    def test_goes_on_until_it_is_reset(self, counting: NativeModel) -> None:
        one, two = Session(counting), Session(counting)
        assert [self.runs(one) for _ in range(3)] == [0, 1, 2]
        assert self.runs(two) == 0
        one.reset()
        assert [self.runs(one), self.runs(two), self.runs(one)] == [0, 1, 1]

    def test_is_saved_and_restored(self, counting: NativeModel) -> None:
        session = Session(counting)
        assert session.save().arrays["runs/so far"] == 0
        self.runs(session)
        self.runs(session)
        state = session.save()
        assert state.model == "ab" * 32
        assert [self.runs(session) for _ in range(3)] == [2, 3, 4]
        assert state.arrays["runs/so far"] == 2, "the copy is the caller's own"
        session.restore(state)
        assert self.runs(session) == 2
        assert self.runs(Session(counting)) == 0

    @pytest.mark.parametrize(
        ("model", "arrays", "what"),
        [
            ("cd" * 32, {"runs/so far": np.array(5, np.int32)}, "the state is that of another model"),
            (None, {"runs": np.array(5, np.int32)}, "the state does not fit: the model keeps 'runs/so far': int32"),
            (None, {"runs/so far": np.array(5, np.int64)}, "the state does not fit"),
            (None, {"runs/so far": np.array(5, ">i4")}, "the state does not fit"),
            (None, {"runs/so far": np.array([5], np.int32)}, "the state does not fit"),
            (None, {}, "the state does not fit"),
        ],
    )
    def test_of_another_model_changes_nothing(
        self, counting: NativeModel, model: str | None, arrays: dict[str, np.ndarray[Any, Any]], what: str
    ) -> None:
        session = Session(counting)
        self.runs(session)
        with pytest.raises(ModelError, match=what) as caught:
            session.restore(SessionState(model, arrays))
        assert caught.value.where == "model demo"
        assert self.runs(session) == 1

    def test_of_a_model_without_a_digest(self, build: Build, counting: NativeModel) -> None:
        plain = Session(NativeModel(build(**STATEFUL)))
        plain.restore(SessionState("cd" * 32, {"runs/so far": np.array(5, np.int32)}))
        assert self.runs(plain) == 5
        session = Session(counting)
        session.restore(plain.save())
        assert self.runs(session) == 6

    def test_of_a_model_that_keeps_nothing(self, session: Session) -> None:
        session.run({"x:0": X, "q": Q})
        session.reset()
        assert not session.save().arrays
        session.restore(session.save())
        with pytest.raises(ModelError, match="the state does not fit: the model keeps nothing"):
            session.restore(SessionState(None, {"x": X}))

    def test_a_reset_that_fails(self, build: Build) -> None:
        session = Session(NativeModel(build(**STATEFUL, reset="return UMA_ERR_STATE;")))
        with pytest.raises(InternalError, match=r"a reset of model 'demo' failed with UMA_ERR_STATE \(5\)"):
            session.reset()

    def test_of_a_closed_session(self, counting: NativeModel) -> None:
        session = Session(counting)
        state = session.save()
        session.close()
        for use in (session.reset, session.save, lambda: session.restore(state)):
            with pytest.raises(UsageError, match="the session was closed"):
                use()


class TestStatus:
    @pytest.mark.parametrize(
        ("code", "message"),
        [
            ("UMA_ERR_ARENA", r"UMA_ERR_ARENA \(2\)"),
            ("UMA_ERR_ABI", r"UMA_ERR_ABI \(3\)"),
            ("77", r"an unknown status \(77\)"),
        ],
    )
    def test_is_named(self, build: Build, code: str, message: str) -> None:
        model = NativeModel(build(init=f"(void)c; return {code};"))
        with pytest.raises(InternalError, match=f"initialisation of model 'demo' failed with {message}"):
            Session(model)
        failing = Session(NativeModel(build(invoke=f"return {code};")))
        with pytest.raises(InternalError, match=f"a run of model 'demo' failed with {message}"):
            failing.run({"x:0": X, "q": Q})
        with pytest.raises(InternalError, match=message):
            failing.invoke()


class TestLifetime:
    def test_model_lives_as_long_as_a_session(self, build: Build) -> None:
        model = NativeModel(build())
        session = Session(model)
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is not None
        assert session.run({"x:0": X, "q": Q})["z"] == 102
        outputs = session.outputs["y"]
        del session
        gc.collect()
        assert gone() is None
        np.testing.assert_array_equal(outputs, 2 * X)

    def test_many_sessions(self, model: NativeModel) -> None:
        sessions = [Session(model) for _ in range(100)]
        gc.collect()
        for session in sessions:
            assert session.run({"x:0": X, "q": Q})["z"] == 102


class TestThreads:
    @pytest.fixture
    def slow(self, build: Build) -> Iterator[Session]:
        """A session whose runs set z to -1 and then wait until input q is not zero."""
        session = Session(NativeModel(build(invoke="*z = -1; while (*(const volatile int8_t *)q == 0) {}")))
        yield session
        session.inputs["q"][...] = 1

    def test_one_session_in_two_threads_is_noticed(self, slow: Session) -> None:
        thread = threading.Thread(target=slow.run, args=({"x:0": X, "q": 0 * Q},))
        thread.start()
        while slow.outputs["z"] != -1:
            time.sleep(0.001)
        with pytest.raises(UsageError, match="used by two threads at once") as error:
            slow.run({"x:0": X, "q": Q})
        assert "a session of its own" in str(error.value)
        for use in (slow.reset, slow.save, lambda: slow.restore(SessionState(None, {}))):
            with pytest.raises(UsageError, match="used by two threads at once"):
                use()
        slow.inputs["q"][...] = 1
        thread.join()
        assert slow.run({"x:0": X, "q": Q})["z"] == 102

    def test_sessions_of_one_model_run_in_parallel(self, model: NativeModel) -> None:
        results: list[bool] = []

        def work(seed: int) -> None:
            session = Session(model)
            x = np.full((2, 3), seed, np.float32)
            for run in range(200):
                results.append(bool((session.run({"x:0": x, "q": Q})["y"] == 2 * x + run).all()))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 800


class Handled(Exception):
    """What the handler of a signal raises."""


class TestInterruptedStep:
    """A run that is stuck in native code, which asks nobody whether it should end."""

    STUCK = "while (((volatile const int8_t *)q)[3] == 0) ;"

    @pytest.fixture
    def session(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
        def handle(number: int, frame: object) -> None:
            raise Handled

        monkeypatch.setattr("uma.support.interruptible._GRACE_S", 0.01)
        before = signal.signal(signal.SIGUSR1, handle)
        session = Session(NativeModel(build(invoke=self.STUCK)))
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(Handled):
            session.invoke()
        yield session
        session.inputs["q"][3] = 1  # whatever happened, it ends
        timer.join()
        signal.signal(signal.SIGUSR1, before)

    def test_until_it_has_ended_nothing_else_runs(self, session: Session) -> None:
        for use in (session.invoke, session.reset, session.save):
            with pytest.raises(UsageError, match="the run that was interrupted is still in one of its steps"):
                use()
        session.inputs["q"][3] = 1
        self.wait(session)
        assert session.outputs["z"] == 1

    def test_a_session_that_is_closed_or_dropped_meanwhile(self, session: Session) -> None:
        session.close()
        with pytest.raises(UsageError, match="the run that was interrupted is still in one of its steps"):
            session.invoke()
        arena = weakref.ref(session._memory[0].base)
        flags, memory = session.inputs["q"], weakref.ref(session)
        del session
        gc.collect()
        assert arena() is not None and memory() is not None  # the native code works on them
        flags[3] = 1

    def test_a_run_in_another_thread_is_made_there(self, build: Build) -> None:
        session, found = Session(NativeModel(build())), list[int]()
        thread = threading.Thread(target=lambda: (session.invoke(), found.append(threading.active_count())))
        thread.start()
        thread.join()
        assert found and session._invoke is session._native  # short: from now on it is called directly

    @staticmethod
    def wait(session: Session) -> None:
        end = time.monotonic() + 10
        while True:
            try:
                session.invoke()
                return
            except UsageError:
                assert time.monotonic() < end
                time.sleep(0.001)
