"""Requantisation of the MLPerf Tiny models in floats, beside what integers give: of every accumulator there may be."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests._support.c_programs import NATIVE, STRICT
from tests._support.real_models import FILES, INT8

from uma.lowering.build_targets import resolve_targets
from uma.pipeline.loading import load_model
from uma.pipeline.stages import Build
from uma.plugins import default_host
from uma.relay.expr import Call
from uma.relay.fixed_point import scale_array
from uma.relay.float_requantisation import FloatForm
from uma.relay.module import IRModule
from uma.relay.op import FixedPoint, FloatScale
from uma.relay.requantisation_proof import Requantisation, proven
from uma.relay.transform import float_requantisation
from uma.relay.transform.zero_point_folding import zero_points_to_biases

Pairs = list[tuple[Requantisation, FloatForm]]

NAMES = [f"{name}_int8_{suffix}" for suffix in ("tflite", "onnx") for name in INT8]
FLOATS = frozenset({"float32", "float64"})

PROGRAM = r"""
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

/* What FixedPoint and FloatScale say, word by word. */
static inline int64_t nearest(int64_t value, int bits, int rounding)
{
    int64_t below = bits == 0 ? value : value >> bits, rest = value - below * ((int64_t)1 << bits);
    int64_t half = bits == 0 ? 1 : (int64_t)1 << (bits - 1);
    int up = rounding == 'u' ? 1 : rounding == 'e' ? (int)(below & 1) : below >= 0;

    return below + (rest > half || (rest == half && up));
}

static inline int64_t asked(int64_t x, int64_t multiplier, int shift, float scale, int rounding)
{
    if (rounding == 'f') return (int64_t)rintf((float)(int32_t)x * scale);
    if (rounding == 'd') {
        int32_t left = (int32_t)(uint32_t)((uint64_t)x << (shift > 0 ? shift : 0));
        return nearest(nearest(left * multiplier, 31, 'u'), shift < 0 ? -shift : 0, 'a');
    }
    return nearest(x * multiplier, 31 - shift, rounding);
}

static inline int64_t clip(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* x is what is scaled, x + by what the form is given. */
#define DEFINE(name, type, rint_, fma_)                                                                                \
    static uint64_t name(int64_t least, int64_t most, int64_t by, int64_t multiplier, int shift, float scale,          \
                         int rounding, int64_t zero, int64_t low, int64_t high, double factor, double above,           \
                         double below, int fused)                                                                      \
    {                                                                                                                  \
        const type m = (type)factor, c = (type)above, d = (type)below;                                                 \
        uint64_t wrong = 0;                                                                                            \
        for (int64_t x = least; x <= most; x++) {                                                                      \
            type real = (type)(int32_t)(x + by), offset = x + by < 0 ? d : c;                                          \
            type sum = fused ? fma_(real, m, offset) : real * m + offset;                                              \
            int64_t wanted = clip(asked(x, multiplier, shift, scale, rounding) + zero, low, high);                     \
            wrong += clip((int64_t)rint_(sum), low, high) != wanted;                                                   \
        }                                                                                                              \
        return wrong;                                                                                                  \
    }

DEFINE(single, float, rintf, fmaf)
DEFINE(twice, double, rint, fma)

int main(void)
{
    long long least, most, by, multiplier, zero, low, high;
    int is_double, shift, fused;
    char rounding;
    float scale;
    double factor, above, below;
    uint64_t count = 0, wrong = 0;

    while (scanf("%d %lld %lld %lld %lld %d %a %c %lld %lld %lld %la %la %la %d", &is_double, &least, &most, &by,
                 &multiplier, &shift, &scale, &rounding, &zero, &low, &high, &factor, &above, &below, &fused) == 15) {
        count += (uint64_t)(most - least + 1);
#define ONE(name, rounding)                                                                                            \
    wrong += name(least, most, by, multiplier, shift, scale, rounding, zero, low, high, factor, above, below, fused)
#define EACH(name)                                                                                                     \
    do {                                                                                                               \
        if (rounding == 'd') ONE(name, 'd');                                                                           \
        else if (rounding == 'u') ONE(name, 'u');                                                                      \
        else if (rounding == 'f') ONE(name, 'f');                                                                      \
        else ONE(name, rounding);                                                                                      \
    } while (0)
        if (is_double) EACH(twice);
        else EACH(single);
    }
    printf("%" PRIu64 " %" PRIu64 "\n", count, wrong);
    return 0;
}
"""


@pytest.fixture
def forms(models: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, frozenset[str]], Pairs]:
    """Gives the float forms of a model, for a CPU that can some things, with what they stand for."""

    def found(name: str, features: frozenset[str]) -> Pairs:
        pairs: Pairs = []

        def noted(asked: Requantisation, form: FloatForm) -> np.ndarray | None:
            pairs.append((asked, form))
            return proven(asked, form)

        members = resolve_targets("c", default_host())
        form = load_model(models / FILES[name], members).form
        assert isinstance(form, IRModule)
        placed = Build("m", members).run(form, "partition")
        assert isinstance(placed, IRModule)
        can: Callable[[Call], frozenset[str]] = lambda call: features  # noqa: E731 - as short as its use
        made = float_requantisation.requantise_in_floats(zero_points_to_biases(placed), can)
        monkeypatch.setattr(float_requantisation, "proven", noted)
        assert not any(check.wrong for check in float_requantisation.check_forms(made))
        return pairs

    return found


def channels(pairs: Pairs) -> Iterator[str]:
    """What the program reads, a line for each channel."""
    for asked, form in pairs:
        scale = asked.scale
        for channel, (least, most) in enumerate(zip(asked.least.tolist(), asked.greatest.tolist(), strict=True)):
            at = channel if len(scale) > 1 else 0
            by = form.shift[channel if len(form.shift) > 1 else 0]
            if isinstance(scale, FixedPoint):
                point = f"{scale.multiplier[at]} {scale.shift[at]} 0 {scale.rounding[0]}"
            else:
                point = f"0 0 {scale.scale[at].hex()} f"
            below = form.offset_below or form.offset
            numbers = " ".join(of[channel].hex() for of in (form.multiplier, form.offset, below))
            limits = f"{asked.zero_point} {asked.low} {asked.high}"
            precise = int(form.dtype == "float64")
            yield f"{precise} {least - by} {most - by} {by} {point} {limits} {numbers} {int(form.fused)}"


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_every_accumulator_of_every_channel(
    name: str,
    forms: Callable[[str, frozenset[str]], Pairs],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    (tmp_path / "all.c").write_text(PROGRAM)
    flags = [*STRICT, *NATIVE, "-fno-math-errno", "-fno-trapping-math"]
    subprocess.run(["cc", *flags, "all.c", "-o", "all", "-lm"], cwd=tmp_path, check=True)
    lines = [line for fma in ({"fma"}, set()) for line in channels(forms(name, FLOATS | fma))]
    done = subprocess.run([tmp_path / "all"], input="\n".join(lines), capture_output=True, text=True, check=True)
    count, wrong = map(int, done.stdout.split())
    record_property("measured", f"{name}: {wrong} wrong of {count:.3g} accumulators of {len(lines)} channels")
    assert count > 1e7
    assert wrong == 0


@pytest.mark.parametrize("name", ["kws_int8_tflite", "ad_int8_onnx"])
def test_accumulators_at_random(name: str, forms: Callable[[str, frozenset[str]], Pairs]) -> None:
    rng = np.random.default_rng(0)
    for features in (FLOATS, FLOATS | {"fma"}):
        pairs = forms(name, features)
        assert len(pairs) == 10
        assert all(isinstance(asked.scale, (FixedPoint, FloatScale)) for asked, _ in pairs)
        for asked, form in pairs:
            x = rng.integers(asked.least[:, None], asked.greatest[:, None], (asked.least.size, 500), endpoint=True)
            expected = scale_array(x - asked.shift.reshape(-1, 1), asked.scale, 0) + asked.zero_point
            np.testing.assert_array_equal(form.apply(x, 0), expected.clip(asked.low, asked.high))
