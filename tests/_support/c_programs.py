"""Kernels compiled and run: many in one C program of its own, which can be built with sanitizers."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uma.codegen.functions import function_texts
from uma.codegen.kernel import headers, kernel_source
from uma.codegen.ranges import Ranges, has_ranges
from uma.support.c_text import C_TYPES
from uma.tir.form.nodes import PrimFunc, RowForm
from uma.tir.form.visit import uses_device

CSRC = Path(__file__).resolve().parents[2] / "core" / "runtime" / "csrc"

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
"""What all generated C must stand; floats as the interpreter computes them."""

UNSIMPLIFIED = ("-Wno-unknown-warning-option", "-Wno-tautological-compare", "-Wno-bool-compare")
"""What compilers say of comparisons that the simplifier, which every build runs, decides."""

NATIVE = ("-O3", f"-m{'arch' if platform.machine() in ('x86_64', 'AMD64') else 'cpu'}=native")
"""How a build for this machine is compiled: with all that its vector unit can do."""

# Inlining all kernels into one main, checks included, takes clang minutes.
SANITIZED = (*STRICT, "-O1", "-g", "-fno-inline", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class Run:
    """A call of a kernel.

    Args:
        func: the kernel.
        arrays: its inputs and constants, by name.
        in_place: pairs (output, input) that share their memory in this call.
    """

    func: PrimFunc
    arrays: Mapping[str, np.ndarray]
    in_place: tuple[tuple[str, str], ...] = ()


def run_compiled(
    runs: Sequence[Run], compiler: str, flags: Sequence[str], folder: Path, device: str = ""
) -> list[dict[str, np.ndarray]]:
    """The outputs of each run, by name; ``device`` is C for what kernels of an accelerator use.

    Raises:
        AssertionError: the compiler or the program complains; the message says what and where the program is.
    """
    source, binary = folder / "program.c", folder / "program"
    source.write_text(program_text(runs, device))
    command = [compiler, *flags, "-I", str(CSRC), str(source), "-o", str(binary), "-lm"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"{' '.join(command)}\n{built.stderr}"
    done = subprocess.run([str(binary)], capture_output=True, check=False)
    assert done.returncode == 0, f"{binary} stopped with code {done.returncode}: {done.stderr.decode(errors='replace')}"
    return outputs_of(runs, done.stdout)


def outputs_of(runs: Sequence[Run], written: bytes) -> list[dict[str, np.ndarray]]:
    """The outputs of each run, by name, from what a program of `program_text` has written."""
    results = []
    position = 0
    for run in runs:
        outputs = {}
        for buffer in run.func.buffers("output"):
            data = written[position : position + buffer.nbytes]
            position += buffer.nbytes
            outputs[buffer.name] = np.frombuffer(data, dtype=buffer.dtype).reshape(buffer.shape)
        results.append(outputs)
    assert position == len(written)
    return results


def program_text(runs: Sequence[Run], device: str = "") -> str:
    """A C program that makes all calls and writes all outputs, in order, to its standard output. It ends with the fault
    code of the first kernel of an accelerator that gives one. What runs by rows is given just those rows each time that
    it says that it touches, and workspaces that it does not keep are filled with nonsense."""
    needed = dict.fromkeys(["uma_math.h", *(header for run in runs for header in headers(run.func))])
    parts = [
        "#define _POSIX_C_SOURCE 200809L",
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n",
        "\n".join(f'#include "{name}"' for name in needed) + "\n",
        device,
        # Each buffer by itself and of exact size, so that a sanitizer sees the first byte beyond it.
        "static void *memory(size_t alignment, size_t bytes, const void *contents)\n{",
        "    static void *p; /* gcc 12 takes an automatic one for what the result points to */",
        "    if (posix_memalign(&p, alignment < 16 ? 16 : alignment, bytes) != 0) {\n        abort();\n    }",
        "    if (contents != NULL) {\n        memcpy(p, contents, bytes);\n    }\n    return p;\n}\n",
    ]
    if any(has_ranges(run.func) for run in runs):
        parts += ['#define UMA_DEBUG\n#include "uma_parallel.h"\n', _IN_PARTS]
    parts += function_texts(run.func for run in runs)
    main = []
    faults = "threads.faults" if any(has_ranges(run.func) for run in runs) else "0"
    for number, run in enumerate(runs):
        ranges = Ranges(lambda i, number=number: f"range{number}_{i}") if has_ranges(run.func) else None  # type: ignore[misc]  # mypy infers no lambda with a default
        source = kernel_source(f"kernel{number}", run.func, ranges=ranges)
        parts += [*([] if ranges is None else ranges.sources), source]
        shared = dict(run.in_place)
        names = {}
        frees = []
        main.append("    {")
        addresses = dict.fromkeys((memory.name for memory in run.func.memories), 0)
        for position, param in enumerate(run.func.params):
            buffer = param.buffer
            names[buffer.name] = shared_name = f"p{position}"
            if buffer.scope in addresses:
                address = -(-addresses[buffer.scope] // buffer.alignment) * buffer.alignment
                addresses[buffer.scope] = address + buffer.nbytes
                main.append(f"        uint32_t {shared_name} = {address};")
                continue
            contents = "NULL"
            if buffer.name in run.arrays:
                contents = f"d{number}_{position}"
                data = np.ascontiguousarray(run.arrays[buffer.name]).tobytes()
                parts.append(f"static const unsigned char {contents}[] = {{{','.join(map(str, data))}}};")
            if buffer.name in shared:
                made = names[shared[buffer.name]]
            else:
                made = f"memory({buffer.alignment}, {buffer.nbytes}, {contents})"
                frees.append(f"        free({shared_name});")
            main.append(f"        {C_TYPES[buffer.dtype]} *{shared_name} = {made};")
        if uses_device(run.func):
            main.append("        static uma_device device;\n        int32_t status;")
            main.append(f"        status = kernel{number}({', '.join(['&device', *names.values()])});")
            main.append("        if (status != 0) {\n            return status;\n        }")
        elif run.func.rows is not None:
            main += _row_by_row(run.func, run.func.rows, number, names)
        else:
            threads = [] if ranges is None else ["&threads"]
            main.append(f"        kernel{number}({', '.join([*threads, *names.values()])});")
        for buffer in run.func.buffers("output"):
            main.append(f"        fwrite({names[buffer.name]}, 1, {buffer.nbytes}, stdout);")
        main += [*frees, "    }"]
    return "\n".join([*parts, "", "int main(void)\n{", *main, f"    return {faults};\n}}", ""])


_IN_PARTS = """\
/* Runs a loop in three parts, the last one first. */
static void in_parts(void *user, uma_body body, const void *args, int32_t n)
{
    const int32_t a = n / 3, b = n - n / 3;

    (void)user;
    if (b < n) body(args, b, n);
    if (a > 0) body(args, 0, a);
    body(args, a, b);
}

static uma_threads threads = {in_parts, NULL, 0};
"""


def _row_by_row(func: PrimFunc, rows: RowForm, number: int, names: Mapping[str, str]) -> Iterator[str]:
    given, ends = dict(names), list[str]()
    yield f"        for (int32_t row = 0; row < {rows.extent}; ++row) {{"
    for param in func.params:
        buffer, row, name = param.buffer, rows.of(param.buffer.name), names[param.buffer.name]
        if row is None:
            if param.role == "workspace" and buffer.name not in rows.kept:
                yield f"            memset({name}, 0xa5, {buffer.nbytes});"
            continue
        unit, size = buffer.size // row.height, buffer.nbytes // buffer.size
        begins = ", ".join(str(row.touched(r).start * unit) for r in range(rows.extent))
        counts = ", ".join(str(len(row.touched(r)) * unit) for r in range(rows.extent))
        yield f"            static const int32_t b_{name}[] = {{{begins}}}, n_{name}[] = {{{counts}}};"
        yield f"            size_t s_{name} = (size_t)n_{name}[row] * {size};"
        held = f"memory({buffer.alignment}, s_{name}, {name} + b_{name}[row])"
        yield f"            {C_TYPES[buffer.dtype]} *r_{name} = {held};"
        given[buffer.name] = f"r_{name}"
        if param.role == "output":
            yield f"            memset(r_{name}, 0xa5, s_{name});"
            ends.append(f"            memcpy({name} + b_{name}[row], r_{name}, s_{name});")
        ends.append(f"            free(r_{name});")
    firsts = [f"b_{names[row.name]}[row]" for row in rows.params]
    yield f"            kernel{number}({', '.join([*given.values(), 'row', *firsts])});"
    yield from ends
    yield "        }"
