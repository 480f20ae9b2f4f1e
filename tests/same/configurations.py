"""The configurations that every model is built for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["CONFIGURATIONS", "Configuration"]


@dataclass(frozen=True)
class Configuration:
    """One way to build models.

    Args:
        name: for reports and for `allowed.toml`.
        targets: the values of ``--target``, accelerators first.
        options: further words of the command.
        limits_ram: whether ``--max-ram`` is less than the model takes without it.
        is_dynamic: whether dimensions that the file leaves open stay open; models without any are left out.
        models: patterns of the names of the models that are built; all by default.
    """

    name: str
    targets: tuple[str, ...]
    options: tuple[str, ...] = ()
    limits_ram: bool = False
    is_dynamic: bool = False
    models: Collection[str] = ("*",)

    def accepts(self, model: str) -> bool:
        """Whether a model of this name is built."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)


_INTEGERS = ("*int8*", "*quant*", "*/kws_ref_model", "*/okay_nabu", "qdq-*", "fixed-*", "npu-*", "tflite-*")
"""Models that accelerators for integers may take."""

_X86, _V3 = "c -mcpu=x86-64", "c -mcpu=x86-64-v3"

CONFIGURATIONS = (
    Configuration("x86-64", (_X86,)),
    Configuration("x86-64-v3", (_V3,)),
    Configuration("avx512-vnni", ("c -mcpu=icelake-server",)),
    Configuration("aarch64", ("c -mtriple=aarch64-linux-gnu -mcpu=cortex-a76",)),
    Configuration("cortex-m0", ("c -mcpu=cortex-m0",), ("--weights", "array")),
    Configuration("cortex-m4f", ("c -mcpu=cortex-m4f",)),
    Configuration("cortex-m7", ("c -mcpu=cortex-m7",), ("--io", "arena")),
    Configuration("cortex-m55", ("c -mcpu=cortex-m55",)),
    Configuration("riscv64", ("c -mtriple=riscv64-unknown-elf -mcpu=rv64gc",)),
    Configuration("threads", (f"{_V3} -threads=2",)),
    Configuration("graph", (f"{_X86} -executor=graph",), ("--weights", "file")),
    Configuration("max-ram", (_X86,), limits_ram=True),
    Configuration("dynamic", (_X86,), is_dynamic=True),
    Configuration("ultra-trail", ("ultra_trail", "c -mcpu=cortex-m4f"), models=(*_INTEGERS, "*/tcresnet8_fp32")),
    Configuration("matrix-stream", ("matrix_unit", "stream_machine", _X86), models=_INTEGERS),
    Configuration("ethos-u", ("ethosu_like", "c -mcpu=cortex-m55"), ("--requantize", "fixed-point"), models=_INTEGERS),
)
"""All of them."""
