"""What a call costs: the C function, `Session.invoke`, `Session.run`, `Artifact.run`, and onnxruntime's ``run``."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import cffi

import uma
from uma.runtime.abi import Array, abi
from uma.runtime.native import Session
from uma.toolchain.compile import CompileUnit, compile_shared
from uma.toolchain.discovery import find_compiler

from .contenders import sample
from .contenders.uma_c import TARGET
from .worker import Limits, timed_rounds

__all__ = ["FUNCTION", "call_table", "call_times"]

FUNCTION = "the C function"

_CALLS = 200
"""Of the C function, from C, for each that is counted: so the call from Python to C is not part of it."""

_LOOP = f"""\
#include <stdlib.h>
#include "uma_runtime.h"

static void *memory(size_t bytes)
{{
    void *found = NULL;
    return posix_memalign(&found, 256, bytes + 1) ? NULL : found;
}}

void *made(const uma_model *model);
void *made(const uma_model *model)
{{
    void *context = memory(model->context_bytes), *arena = memory(model->arena_bytes);
    void *state = memory(model->state_bytes);

    if (context == NULL || arena == NULL || state == NULL) return NULL;
    return model->init(context, arena, model->arena_bytes, state, model->state_bytes, NULL) ? NULL : context;
}}

int called(const uma_model *model, void *context, const void *const *inputs, void *const *outputs);
int called(const uma_model *model, void *context, const void *const *inputs, void *const *outputs)
{{
    int i, status = 0;

    for (i = 0; i < {_CALLS}; ++i) status |= model->invoke(context, inputs, outputs);
    return status;
}}
"""
_DECLARED = "void *made(void *); int called(void *, void *, void **, void **);"


def call_times(path: Path, limits: Limits, rng: random.Random, folder: Path) -> dict[str, list[float]]:
    """Microseconds of a call in each round, by what is called.

    Args:
        path: an ONNX model without devices.
        limits: how long is measured.
        rng: draws the order in each round.
        folder: for what is compiled.
    """
    artifact = uma.build(path, TARGET)
    session = artifact.session()
    assert isinstance(session, Session)
    given = {name: sample(array.shape, array.dtype) for name, array in session.inputs.items()}
    for name, array in given.items():
        session.inputs[name][...] = array
    calls: dict[str, Callable[[], object]] = {
        FUNCTION: _from_c(session, folder),
        "invoke": session.invoke,
        "session.run": lambda: session.run(given),
        "artifact.run": lambda: artifact.run(given),
    }
    try:
        calls["onnxruntime's run"] = _onnxruntime(path, given)
    except ImportError:
        pass
    found = timed_rounds(calls, limits, rng)
    return {**found, FUNCTION: [us / _CALLS for us in found[FUNCTION]]}


def _from_c(session: Session, folder: Path) -> Callable[[], object]:
    header = Path(uma.runtime.__file__).with_name("csrc") / "uma_runtime.h"
    files = {"loop.c": _LOOP, "uma_runtime.h": header.read_text(encoding="utf-8")}
    part = CompileUnit(find_compiler(), ["loop.c"], ["-O2", "-D_POSIX_C_SOURCE=200112L"])
    ffi = cffi.FFI()
    ffi.cdef(_DECLARED)
    loop = ffi.dlopen(str(compile_shared([part], files, folder / "loop.so")))
    entry = abi().ffi.dlopen(str(session.model.path)).uma_model_entry
    model = ffi.cast("void *", int(abi().ffi.cast("uintptr_t", entry())))

    def table(arrays: Mapping[str, Array]) -> object:
        return ffi.new("void *[]", [ffi.cast("void *", array.ctypes.data) for array in arrays.values()])

    context, inputs, outputs = loop.made(model), table(session.inputs), table(session.outputs)
    if context == ffi.NULL or loop.called(model, context, inputs, outputs):
        raise RuntimeError(f"{session.model.name} does not run from C")
    return lambda: loop.called(model, context, inputs, outputs)


def _onnxruntime(path: Path, given: Mapping[str, Array]) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = [tensor.name for tensor in peer.get_outputs()]
    fed = dict(zip((tensor.name for tensor in peer.get_inputs()), given.values(), strict=True))
    return lambda: peer.run(wanted, fed)


def call_table(found: Mapping[str, Mapping[str, list[float]]]) -> Iterator[str]:
    """A line for each model: minimum and median of each call.

    Args:
        found: by model, what `call_times` gives.
    """
    names = list(dict.fromkeys(name for times in found.values() for name in times))
    yield f"  the call, us     {' '.join(f'{name:>18}' for name in names)}   (least, median)"
    for model, times in found.items():
        cells = (
            f"{min(times[name]):8.2f} {statistics.median(times[name]):9.2f}" if name in times else "-" for name in names
        )
        yield f"  {model:<16} {' '.join(f'{cell:>18}' for cell in cells)}"
