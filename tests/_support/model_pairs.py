"""Pairs of models that must do the same, in one program that runs both."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests._support.c_programs import CSRC
from tests._support.model_c import STRICT, compile_c, write

from uma.codegen import ModelFiles

__all__ = ["compare"]

MAIN = """\
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
%(includes)s
#include "uma_device.h"

#define CHECK(condition) if (!(condition)) { printf("%%s: line %%d: %%s\\n", name, __LINE__, #condition); return 1; }

static void *memory(size_t bytes)
{
    static void *p;

    if (posix_memalign(&p, 4096, bytes + 1) != 0) abort();
    memset(p, 0, bytes + 1);
    return p;
}

/* The same run of both: outputs and states, of three runs one after the other. */
static int compare(const char *name, const uma_model *const models[2])
{
    uma_device *devices[2][4];
    void *arena[2], *state[2], *context[2], *outputs[2][8], *inputs[8];
    int32_t i, n, run;

    for (i = 0; i < models[0]->n_inputs; i++) inputs[i] = memory(models[0]->inputs[i].bytes);
    for (n = 0; n < 2; n++) {
        const uma_model *m = models[n];

        CHECK(m->state_bytes == models[0]->state_bytes)
        arena[n] = memory(m->arena_bytes);
        state[n] = memory(m->state_bytes);
        context[n] = memory(m->context_bytes);
        for (i = 0; i < m->n_outputs; i++) outputs[n][i] = memory(m->outputs[i].bytes);
        for (i = 0; i < m->n_devices; i++) {
            devices[n][i] = memory(sizeof **devices[n]);
            CHECK(m->open(devices[n][i], &m->devices[i], memory(m->devices[i].driver->state_bytes),
                          memory(m->devices[i].bus_bytes)) == 0)
        }
        CHECK(m->init(context[n], arena[n], m->arena_bytes, state[n], m->state_bytes, devices[n]) == UMA_OK)
    }
    for (run = 1; run <= 3; run++) {
        for (i = 0; i < models[0]->n_inputs; i++) {
            const uma_tensor_info *info = &models[0]->inputs[i];
            const int is_float = info->dtype[0] == 'f' && info->bytes %% 4 == 0, is_bool = info->dtype[0] == 'b';
            size_t at;

            for (at = 0; at < info->bytes; at++) {
                const size_t value = is_bool ? (at + (size_t)run) & 1u : (at * 37 + (size_t)run * 101) & 255;

                ((unsigned char *)inputs[i])[at] = (unsigned char)value;
            }
            for (at = 0; is_float && strcmp(info->dtype, "float32") == 0 && at < info->bytes / 4; at++) {
                ((float *)inputs[i])[at] = (float)(at * 3 + (size_t)run) / 7;
            }
            for (at = 0; is_float && strcmp(info->dtype, "float64") == 0 && at < info->bytes / 8; at++) {
                ((double *)inputs[i])[at] = (double)(at * 3 + (size_t)run) / 7;
            }
        }
        for (n = 0; n < 2; n++) {
            CHECK(models[n]->invoke(context[n], (const void *const *)inputs, outputs[n]) == UMA_OK)
        }
        for (i = 0; i < models[0]->n_outputs; i++) {
            CHECK(memcmp(outputs[0][i], outputs[1][i], models[0]->outputs[i].bytes) == 0)
        }
        CHECK(memcmp(state[0], state[1], models[0]->state_bytes) == 0)
    }
    for (n = 0; n < 2; n++) {
        for (i = 0; i < models[n]->n_devices; i++) CHECK(uma_device_close(devices[n][i]) == 0)
    }
    return 0;
}

int main(void)
{
%(calls)s
    return 0;
}
"""


def compare(
    folder: Path,
    pairs: Mapping[str, tuple[ModelFiles, ModelFiles]],
    compiler: str,
    flags: Sequence[str] = (*STRICT, "-O0"),
) -> None:
    """Links all models with a program that runs both of each pair, three times, and finds the same outputs and states.

    Args:
        folder: for the files.
        pairs: by a name for messages, models of different names.
        compiler, flags: what they are compiled with.
    """
    models = {_name(model): model for pair in pairs.values() for model in pair}
    write(folder, *models.values())
    calls = "\n".join(
        f"    {{\n        const uma_model *const models[2] = {{{_name(one)}_model(), {_name(other)}_model()}};\n"
        f'        if (compare("{name}", models) != 0) return 1;\n    }}'
        for name, (one, other) in pairs.items()
    )
    includes = "\n".join(f'#include "{name}.h"' for name in models)
    (folder / "compare.c").write_text(MAIN % {"includes": includes, "calls": calls})
    sources = dict.fromkeys(source for model in models.values() for source in model.sources)
    binary = compile_c(folder, [*sources, "compare.c"], [*flags, f"-I{CSRC}"], compiler)
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # what it allocates is for all of its life
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False, timeout=60, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


def _name(model: ModelFiles) -> str:
    return model.entry.removesuffix("_entry.c")
