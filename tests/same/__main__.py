"""Compare what this work tree generates with what a commit does: ``make same``, or ``python -m tests.same COMMIT``.

Exit codes: 0 if every difference is allowed, 1 if not, or if a build took too long, 2 if nothing could be compared.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.same import allowed, builds, corpus, environments
from tests.same.configurations import CONFIGURATIONS
from tests.same.errors import SameError
from tests.same.report import Report

ROOT = Path(__file__).resolve().parents[2]

SAMPLE = 0.04
"""The share of the random models that a sample has."""

SAMPLE_FILES = ("kws_ref_model.tflite", "kws_int8.onnx", "tcresnet8_fp32.onnx", "net-gru.onnx", "fixed-tc_resnet8.onnx")
"""The files of its other models."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.same", description=__doc__.splitlines()[0])
    parser.add_argument("base", metavar="COMMIT", help="what to compare with")
    parser.add_argument("--seed", type=int, help="of the random models (default: a new one, which is printed)")
    parser.add_argument("--sample", action="store_true", help="a few models only, which takes some minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes (default: of cores)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "build" / "same",
        help="where environments, models and results are kept (default: build/same)",
    )
    return parser


def list_sources(seed: int, sample: bool) -> list[corpus.Source]:
    """Return the models of the corpus, or of the sample."""
    fixed = [*corpus.read_models(corpus.model_folder(ROOT)), *corpus.make_networks()]
    if sample:
        fixed = [source for source in fixed if Path(source.name).name in SAMPLE_FILES]
    return [*fixed, *corpus.draw_models(seed, SAMPLE if sample else 1.0)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return its exit code."""
    args = _parser().parse_args(argv)
    seed = secrets.randbelow(1000) if args.seed is None else args.seed
    try:
        rows, commit = allowed.read(), environments.find_commit(ROOT, args.base)
        models = list_sources(seed, args.sample)
        print(f"{len(models)} models, seed {seed}: SEED={seed} makes the same ones", flush=True)
        args.folder.mkdir(parents=True, exist_ok=True)
        folder, listed = corpus.write(args.folder / "corpus", models)
        sides = [environments.base_side(args.folder, ROOT, commit), environments.work_side(args.folder, ROOT)]
        store, planned = builds.Store(args.folder), builds.plan(listed, CONFIGURATIONS)
        before, after = (builds.run(side, planned, store, folder, args.jobs) for side in sides)
        report = Report(planned, before, after, rows, store.text)
    except SameError as error:
        print(f"same: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"same: interrupted: with SEED={seed} it goes on where it stopped", file=sys.stderr)
        return 130
    text = "\n".join(report.lines())
    (args.folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if report.is_complete and not report.unexplained else 1


if __name__ == "__main__":
    sys.exit(main())
