"""Time per inference beside onnxruntime and LiteRT, in one process and one run, on one thread.

Every round measures every contender once, so that what the machine does meanwhile hits all of them; ratios are taken
round by round. What is compared are medians. Models: the folder of the environment variable UMA_MODELS, else
``../shared/models`` beside the checkout. Peers that are not installed are left out, and said.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import uma
from uma.toolchain.discovery import find_compiler

ROOT = Path(__file__).resolve().parent.parent

MODELS = {
    "ad_fp32": ("mlperf-tiny/ad01_fp32.tflite", "mlperf-tiny-onnx/ad_fp32.onnx"),
    "ad_int8": ("mlperf-tiny/ad01_int8.tflite", "mlperf-tiny-onnx/ad_int8.onnx"),
    "kws_fp32": ("mlperf-tiny/kws_ref_model_float32.tflite", "mlperf-tiny-onnx/kws_fp32.onnx"),
    "kws_int8": ("mlperf-tiny/kws_ref_model.tflite", "mlperf-tiny-onnx/kws_int8.onnx"),
    "resnet8_fp32": ("mlperf-tiny/pretrainedResnet.tflite", "mlperf-tiny-onnx/resnet8_fp32.onnx"),
    "resnet8_int8": ("mlperf-tiny/pretrainedResnet_quant.tflite", "mlperf-tiny-onnx/resnet8_int8.onnx"),
    "vww_fp32": ("mlperf-tiny/vww_96_float.tflite", "mlperf-tiny-onnx/vww_fp32.onnx"),
    "vww_int8": ("mlperf-tiny/vww_96_int8.tflite", "mlperf-tiny-onnx/vww_int8.onnx"),
}

TFLM_ACTIVATIONS_BYTES = {"ad_int8": 768, "kws_int8": 16_000, "resnet8_int8": 49_152, "vww_int8": 73_728}
"""Activations of TFLite Micro's arena, inputs and outputs included, for comparison with ours, which hold neither."""


@dataclass
class Row:
    """What was measured of one model."""

    model: str
    build_s: float = 0.0
    arena_bytes: int = 0
    io_bytes: int = 0
    constant_bytes: int = 0
    code_bytes: int = 0
    rounds_us: dict[str, list[float]] = field(default_factory=dict)

    def median_us(self, contender: str) -> float:
        return statistics.median(self.rounds_us[contender])

    def ratio(self, ours: str, peer: str) -> float:
        """Median of the rounds' ratios; above 1 the peer is faster."""
        return statistics.median(a / b for a, b in zip(self.rounds_us[ours], self.rounds_us[peer], strict=True))


def litert(path: Path) -> Callable[[], object] | None:
    """LiteRT with its default delegate (XNNPACK); None where it is not installed."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return None
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], sample(detail["shape"], np.dtype(detail["dtype"])))
    return lambda: interpreter.invoke()


def onnxruntime(path: Path) -> Callable[[], object] | None:
    """onnxruntime on the CPU, default optimisation, tensors bound; None where it is not installed."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for tensor in session.get_inputs():
        dtype = np.dtype({"tensor(float)": "float32", "tensor(int8)": "int8", "tensor(uint8)": "uint8"}[tensor.type])
        binding.bind_cpu_input(tensor.name, sample(tensor.shape, dtype))
    for tensor in session.get_outputs():
        binding.bind_output(tensor.name)
    return lambda: session.run_with_iobinding(binding)


def sample(shape: object, dtype: np.dtype) -> np.ndarray:
    """A seeded input."""
    rng = np.random.default_rng(0)
    extents = [int(extent) for extent in np.atleast_1d(np.asarray(shape))]
    if dtype.kind == "f":
        return rng.uniform(-1, 1, extents).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, extents, dtype=dtype, endpoint=True)


def ours(path: Path, row: Row) -> Callable[[], object]:
    """A session of the model compiled for ``c``; notes build time and sizes in ``row``."""
    with tempfile.TemporaryDirectory() as fresh:
        # A cache of its own: the build time is that of a first build, C compiler included.
        os.environ["UMA_CACHE_DIR"] = fresh
        start = time.perf_counter()
        artifact = uma.build(path, "c")
        session = artifact.session()
        row.build_s = max(row.build_s, time.perf_counter() - start)
        row.code_bytes = artifact.code_bytes
    row.arena_bytes = max(row.arena_bytes, artifact.arena_bytes)
    row.constant_bytes = artifact.constant_bytes
    row.io_bytes = sum(a.nbytes for a in (*session.inputs.values(), *session.outputs.values()))
    for array in session.inputs.values():
        array[...] = sample(array.shape, array.dtype)
    return session.invoke


def measure(call: Callable[[], object], seconds: float) -> float:
    """Median time of a call in microseconds, over about ``seconds``."""
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    per_batch = max(1, int(seconds / 20 / once))
    batches = []
    end = time.perf_counter() + seconds
    while len(batches) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(per_batch):
            call()
        batches.append((time.perf_counter() - start) / per_batch * 1e6)
    return statistics.median(batches)


def compare(name: str, tflite: Path, onnx: Path, rounds: int, seconds: float) -> Row:
    """Measure one model with all contenders."""
    row = Row(name)
    contenders: dict[str, Callable[[], object] | None] = {
        "uma tflite": ours(tflite, row),
        "litert": litert(tflite),
        "uma onnx": ours(onnx, row),
        "onnxruntime": onnxruntime(onnx),
    }
    for call in contenders.values():
        if call is not None:
            measure(call, seconds / 4)
    for _ in range(rounds):
        for contender, call in contenders.items():
            if call is not None:
                row.rounds_us.setdefault(contender, []).append(measure(call, seconds))
    return row


def table(rows: list[Row]) -> Iterator[str]:
    """The results as Markdown."""
    yield "| model | uma tflite us | litert us | uma / litert | uma onnx us | onnxruntime us | uma / onnxruntime |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        cells = [row.model]
        for mine, peer in (("uma tflite", "litert"), ("uma onnx", "onnxruntime")):
            cells.append(f"{row.median_us(mine):.1f}")
            known = peer in row.rounds_us
            cells += [f"{row.median_us(peer):.1f}", f"{row.ratio(mine, peer):.2f}"] if known else ["-", "-"]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "| model | build s | arena bytes | with inputs and outputs | TFLite Micro | weights bytes | code bytes |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        tflm = TFLM_ACTIVATIONS_BYTES.get(row.model)
        yield (
            f"| {row.model} | {row.build_s:.2f} | {row.arena_bytes:,} | {row.arena_bytes + row.io_bytes:,} "
            f"| {f'{tflm:,}' if tflm else '-'} | {row.constant_bytes:,} | {row.code_bytes:,} |"
        )


def help_seconds(runs: int = 9) -> float:
    """Median time of ``uma --help`` as a whole process."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "uma", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS), help="which models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="per contender and round")
    parser.add_argument("--json", type=Path, help="write all rounds to this file")
    args = parser.parse_args()
    folder = Path(os.environ.get("UMA_MODELS") or ROOT.parent / "shared" / "models")
    if not folder.is_dir():
        print(f"no models in {folder}: set UMA_MODELS to the folder that holds them", file=sys.stderr)
        return 2
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    compiler = find_compiler().version.splitlines()[0]
    flags = uma.build(folder / MODELS["ad_int8"][0], "c").metadata["compile"]["hosts"][0]["flags"]
    print(f"{platform.machine()}, Python {platform.python_version()}, {compiler}, {' '.join(flags)}")
    print(f"one thread, {args.rounds} rounds of {args.seconds} s each, medians; above 1 the peer is faster\n")
    rows = [compare(n, *(folder / path for path in MODELS[n]), args.rounds, args.seconds) for n in args.models]
    print("\n".join(table(rows)))
    print(f"\numa --help: {help_seconds():.3f} s")
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
