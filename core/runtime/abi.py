"""The C ABI of compiled models as cffi sees it: the types of ``csrc/uma_runtime.h``, ``csrc/uma_device.h`` and
``csrc/uma_trace.h``.

cffi is used in ABI mode. Measured (Python 3.11, cffi 2.1): a call costs 0.25 us against 0.10 us in API mode, but API
mode needs Python's headers and 0.4 s of compiler for each Python, and no model is so small that 0.15 us decide.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import cffi
import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from . import CSRC

__all__ = ["Abi", "Array", "abi", "aligned", "declarations", "text"]

Array: TypeAlias = npt.NDArray[Any]

_TYPE = re.compile(
    r"^typedef [^;{]*;|^typedef struct \w+ \{.*?^\} \w+;|^struct \w+ \{.*?^\};", re.MULTILINE | re.DOTALL
)
_ENTRIES = """
const uma_model *uma_model_entry(void);
uma_status uma_model_invoke(void *const *bound);
const uint64_t *uma_profile_ticks(size_t *steps);
const uint64_t *uma_profile_counts(size_t *counts);
const uint64_t *uma_profile_turns(size_t *steps);
const char *uma_profile_counter(uint64_t *now, uint64_t *hz, uint64_t *cost);
extern int (*uma_interrupt)(void);
void uma_trace_begin(uma_trace *trace, const char *model);
void uma_trace_layer(uma_trace *trace, int32_t step, const char *layer);
const uma_device_info *uma_trace_device(uma_trace *trace, uma_traced *traced, const uma_device_info *info,
                                        void *memory);
void uma_trace_mark(uma_trace *trace, const char *what);
void uma_trace_step(uma_trace *trace, int32_t step);
void uma_trace_fault(uma_trace *trace, const uma_fault *fault);
void uma_trace_end(uma_trace *trace);
const uma_device_info *uma_replayed_info(void);
int32_t uma_replayed_open(uma_device *device, void *state, void *memory);
void uma_tell_steps(void (*tell)(void *, int32_t), void *whom);
const unsigned char *uma_traced_weights(void);
typedef struct uma_pool uma_pool;
uma_pool *uma_pool_make(int32_t threads);
void uma_pool_run(void *pool, uma_body body, const void *args, int32_t n);
void uma_pool_end(uma_pool *pool);
"""


@dataclass(frozen=True)
class Abi:
    """The ABI as its headers declare it.

    Args:
        ffi: knows the types, and the functions through which a library is entered.
        version: ``UMA_ABI_VERSION``.
        statuses: names of what is not ``UMA_OK``, by value.
    """

    ffi: Any
    version: int
    statuses: dict[int, str]


def declarations() -> str:
    """The types, and the functions through which a library is entered, as cffi reads them."""
    return "\n".join([*(declaration for header in _headers() for declaration in _TYPE.findall(header)), _ENTRIES])


def _headers() -> list[str]:
    return [(CSRC / name).read_text(encoding="utf-8") for name in ("uma_runtime.h", "uma_device.h", "uma_trace.h")]


@functools.cache
def abi() -> Abi:
    """The ABI of this version of UMA."""
    headers = _headers()
    defines = dict(re.findall(r"^#define (UMA_ABI_VERSION|UMA_ERR_\w+) (\d+)", headers[0], re.MULTILINE))
    version = int(defines.pop("UMA_ABI_VERSION"))
    ffi = cffi.FFI()
    ffi.cdef(declarations())
    return Abi(ffi, version, {int(value): name for name, value in defines.items()})


def text(pointer: Any, where: str) -> str:
    """The string at ``pointer``; ModelError where it is not UTF-8."""
    raw = abi().ffi.string(pointer)
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"a name in the library is not UTF-8: {raw[:40]!r}", where=where) from error


def aligned(nbytes: int, alignment: int) -> Array:
    """Zeroed memory of `nbytes` bytes (at least one) whose address is a multiple of `alignment`."""
    memory = np.zeros(max(nbytes, 1) + alignment - 1, np.uint8)
    offset = -memory.ctypes.data % alignment
    return memory[offset : offset + max(nbytes, 1)]
