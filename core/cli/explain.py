"""``uma explain``: where each op of a model goes, and why not elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import add_model_arguments, add_output_arguments, shapes
from .output import Output

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "explain",
        help="tell where each op goes, and why",
        description="Tell for every op of a model which target runs it; and of those that stay on the host, what kept "
        "them from each accelerator: the closest pattern, and the condition that failed.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="a TFLite or ONNX file, or a stage's text (.py)")
    add_model_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    from ..pipeline.driver import load_model, start_build
    from ..pipeline.explain import explain
    from ..pipeline.members import resolve_targets
    from ..plugins import default_host

    members = resolve_targets(args.target, default_host())
    out.step("import")
    loaded = load_model(args.model, name=args.name, shapes=shapes(args))
    build = start_build(loaded, members, "lower", progress=out.step)
    build.run(loaded.form, "lower")
    found = explain(build)
    out.line(f"{found.name}: {len(found.ops)} ops, {found.macs:,} multiply-accumulates (MACs)")
    for line in found.lines():
        out.line(f"  {line}")
    rows = [(s.label, str(s.ops), str(s.macs), f"{s.macs / (found.macs or 1):.1%}") for s in found.shares()]
    out.columns(("target", "ops", "MACs", "share of MACs"), rows)
    out.notes(loaded.notes)
    out.result({**found.record(), "notes": list(loaded.notes)})
    return 0
