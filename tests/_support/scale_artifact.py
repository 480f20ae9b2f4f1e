"""An artifact of four products, written by hand: its files, and what its metadata says of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np

import uma.runtime
from uma.artifact import Artifact, ArtifactRecord
from uma.support import json_record

RUNTIME_H = (Path(uma.runtime.__file__).parent / "csrc" / "uma_runtime.h").read_text()

SCALE_H = """#include "uma_runtime.h"
const uma_model *scale_model(void);
"""
SCALE_C = """#include "scale.h"
__asm__(".section .rodata\\n.balign 16\\nscale_weights: .incbin \\"scale_weights.bin\\"\\n.text");
extern const int8_t scale_weights[];
static const int32_t shape[] = {4};
static const uma_tensor_info in = {"x:0", "int8", 1, shape, 4, 0.5f, 3}, out = {"y:0", "int32", 1, shape, 16, 0.0f, 0};
static uma_status init(void *context, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
                       struct uma_device *const *devices) {
    (void)state, (void)state_bytes, (void)devices;
    *(int32_t **)context = (int32_t *)arena;
    return arena_bytes < 16 ? UMA_ERR_ARENA : UMA_OK;
}
static uma_status invoke(void *context, const void *const *inputs, void *const *outputs) {
    int32_t *arena = *(int32_t **)context;
    int i;
    for (i = 0; i < 4; i++) arena[i] = ((const int8_t *)inputs[0])[i] * scale_weights[i];
    for (i = 0; i < 4; i++) ((int32_t *)outputs[0])[i] = arena[i];
    return UMA_OK;
}
static const uma_model model = {
    UMA_ABI_VERSION, "scale", 16, 16, 0, 1, sizeof(int32_t *), 1, 1, 0, 0, &in, &out, 0, 0, 0, init, 0, invoke, 0, 0,
    1, 0
};
const uma_model *scale_model(void) { return &model; }
"""
ENTRY_C = """#include "scale.h"
const uma_model *uma_model_entry(void);
const uma_model *uma_model_entry(void) { return scale_model(); }
"""
PROFILE_C = """#include "scale_entry.c"
#include "scale.c"
const uint64_t *uma_profile_ticks(size_t *steps);
const char *uma_profile_counter(uint64_t *now, uint64_t *hz, uint64_t *cost);
static uint64_t ticks[STEPS];
const uint64_t *uma_profile_ticks(size_t *steps) {
    int i;
    for (i = 0; i < STEPS; i++) ticks[i] += 1000 * (i + 1);
    *steps = STEPS;
    return ticks;
}
const char *uma_profile_counter(uint64_t *now, uint64_t *hz, uint64_t *cost) {
    *now = 0, *hz = 1000000000, *cost = 7;
    return "a counter of the test";
}
"""
MAIN_C = """#include "scale.h"
#include <stdio.h>
int main(void) {
    int32_t arena[4], y[4], i;
    void *context;
    const int8_t x[4] = {1, 1, 1, 1};
    const void *inputs[] = {x};
    void *outputs[] = {y};
    const uma_model *model = scale_model();
    if (model->init(&context, arena, sizeof arena, 0, 0, 0) || model->invoke(&context, inputs, outputs)) return 1;
    for (i = 0; i < 4; i++) printf("%d ", (int)y[i]);
    return 0;
}
"""
FILES: dict[str, str | bytes] = {
    "scale.c": SCALE_C,
    "scale.h": SCALE_H,
    "scale_entry.c": ENTRY_C,
    "scale_profile.c": PROFILE_C.replace("STEPS", "1"),
    "uma_runtime.h": RUNTIME_H,
    "scale_weights.bin": bytes([1, 2, 3, 4]),
    "main.c": MAIN_C,
}
PLACED: dict[str, Any] = {"shape": [4], "first_step": 0, "last_step": 0}
METADATA: dict[str, Any] = {
    "schema_version": 12,
    "name": "scale",
    "uma_version": "0.1.0",
    "plugins": {"some-plugin": "0.1.0"},
    "targets": ["c -opt=3"],
    "notes": ["no host was given"],
    "inputs": [
        {
            "name": "x:0",
            "identifier": "x_0",
            "shape": [4],
            "dtype": "int8",
            "quantization": {"scale": 0.5, "zero_point": 3},
            "extents": None,
            "holds": None,
            "rows": None,
        }
    ],
    "outputs": [
        {
            "name": "y:0",
            "identifier": "y_0",
            "shape": [4],
            "dtype": "int32",
            "quantization": None,
            "extents": None,
            "holds": None,
            "rows": None,
        }
    ],
    "arena_bytes": 16,
    "constant_bytes": 4,
    "state": None,
    "buffers": [
        {**PLACED, "name": "x", "role": "input", "dtype": "int8", "pool": None, "offset": None, "bytes": 4},
        {**PLACED, "name": "t0", "role": "intermediate", "dtype": "int32", "pool": "ram", "offset": 0, "bytes": 16},
        {**PLACED, "name": "c0", "role": "constant", "dtype": "int8", "pool": "weights", "offset": 0, "bytes": 4},
        {**PLACED, "name": "y", "role": "output", "dtype": "int32", "pool": None, "offset": None, "bytes": 16},
    ],
    "devices": [],
    "allowed": {"options": [], "differences": []},
    "rows": None,
    "strips": None,
    "calls": [
        {
            "kernel": "scale_mul_0",
            "layers": ["block/mul", "Größe\n"],
            "host": "c",
            "device": None,
            "parts": [],
            "way": None,
            "arguments": ["x", "y", "c0", "t0"],
            "op": "multiply",
            "shape": [4],
            "macs": 0,
            "constant_bytes": 4,
            "queue": None,
            "finished_step": 0,
        }
    ],
    "compile": {
        "hosts": [
            {
                "label": "c",
                "compiler": None,
                "flags": ["-O3", "-march=native", "-std=c99", "-Wall", "-Wextra", "-Werror"],
                "machine": None,
                "runner": None,
                "clock_hz": None,
                "sources": ["scale.c"],
                "objects": [],
                "brought": [],
                "features": [],
            }
        ],
        "libraries": [{"name": "m", "package": None, "symbols": ["cos"]}],
        "library_entry": "scale_entry.c",
        "profile": ["scale_profile.c"],
        "example": "main.c",
    },
}
STATE: dict[str, Any] = {"bytes": 16, "model": "0" * 64, "tensors": METADATA["outputs"]}
X = np.array([1, -2, 3, 100], np.int8)
Y = np.array([1, -4, 9, 400], np.int32)


def changed(path: str, value: Any) -> dict[str, Any]:
    """METADATA with one entry replaced, by its path: ``inputs.0.name``."""
    record: Any = copy.deepcopy(METADATA)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place = record
    for step in steps:
        place = place[step]
    place[last] = value
    return dict(record)


def artifact_of(files: dict[str, str | bytes], metadata: dict[str, Any]) -> Artifact:
    """The artifact of files and what ``metadata.json`` says of them, but for ``files``."""
    return Artifact(files, json_record.from_json(ArtifactRecord, {**metadata, "files": {}}))
