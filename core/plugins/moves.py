"""The names that plugin API 0.7 changed, and which of them the sources of a plugin for an earlier version use."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .entry import PluginEntry

__all__ = ["RENAMES", "Rename", "declared_in_sources", "used_renames"]


class Rename(NamedTuple):
    """One row of the page "Moving to plugin API 0.7".

    Args:
        old: the name up to 0.6, below ``uma``, with as much of its path as identifies it.
        new: the name from 0.7 on; empty for a name that is internal now.
        purpose: the object, or the reason for the new name.
    """

    old: str
    new: str
    purpose: str

    def __str__(self) -> str:
        return f"{self.old} is {f'now {self.new}' if self.new else 'internal now'}"


RENAMES = (
    Rename("uma.target", "uma.targets", "tools hide folders called `target` as build output"),
    Rename("uma.machines", "uma.toolchain", "machines, their CPUs and emulators"),
    Rename("uma.compilers", "uma.toolchain", "flags of known C compilers"),
    Rename("uma.plain_files", "uma.toolchain", "writing files whole"),
    Rename("uma.runtime.find_library", "uma.toolchain.find_library", "finds a library of the system"),
    Rename("uma.runtime.compiler_features", "uma.toolchain.compiler_features", "the features of a compiler's CPU"),
    Rename("uma.lowering.members", "uma.lowering.build_targets", "the targets of a build"),
    Rename("hookspecs.TakenMatch", "RegionMatch", "a match inside a region"),
    Rename("hookspecs.Unmatched", "UnmatchedCall", "a call in a region that no pattern matches"),
    Rename("hookspecs.Lowered", "LoweredKernel", "the loops of one kernel and their constants"),
    Rename("hookspecs.Scheduled", "ScheduledKernel", "a kernel with a schedule applied"),
    Rename("hookspecs.Code", "TargetCode", "flags, sources or objects for the loops of one target"),
    Rename("hookspecs.Parts", "PartCounters", "counters per part of a call"),
    Rename("hookspecs.Field", "BitField", "the bits of a command word that a relocation fills"),
    Rename("relay.Field", "BitField", "the same record, imported from `uma.relay`"),
    Rename("hookspecs.BREAKS", "LAST_BREAKING_VERSION", "the last version with a break"),
    Rename("IRModule.of", "IRModule.from_functions", "a constructor names its source"),
    Rename("Signature.of", "Signature.from_function", "a constructor names its source"),
    Rename("CompilationConfig.of", "CompilationConfig.resolve", "it chooses the host and checks the targets"),
    Rename("quantised.Window.of", "Window.from_match", "a constructor names its source"),
    Rename("quantised.Layer.of", "Layer.from_match", "a constructor names its source"),
    Rename("quantised.Residual.of", "Residual.from_match", "a constructor names its source"),
    Rename("relay.Spans.moved", "Spans.record_rewrite", "records that a new expression replaces an old one"),
    Rename("relay.Rewriter.moved", "Rewriter.record_rewrite", "records that a new expression replaces an old one"),
    Rename("relay.without_views", "strip_views", "removes reshapes and the like"),
    Rename("relay.with_attention", "", "replaces the parts of attention by calls of `nn.attention`"),
    Rename("relay.WithAttention", "", "its result"),
    Rename("pattern.closest", "closest_pattern", "the pattern that came closest to an expression"),
    Rename("pattern.item", "tuple_item", "one result of an op with several"),
    Rename("quantised.layer", "layer_pattern", "builds a pattern"),
    Rename("quantised.requantised", "requantise_pattern", "builds a pattern"),
    Rename("quantised.clamped", "clamp_pattern", "builds a pattern"),
    Rename("quantised.computed", "no_constant_operands", "builds a clause"),
    Rename("quantised.rounds", "rounding_in", "builds a clause"),
    Rename("quantised.powers_of_two", "power_of_two_scales", "builds a clause"),
    Rename("quantised.exact_sums", "sums_exact_in_float32", "builds a clause"),
    Rename("quantised.scaled", "scale_expr", "the arithmetic of a fixed-point scale as an expression"),
    Rename("quantised.scaled_text", "scale_text", "the same as text"),
    Rename("quantised.with_requantisation", "insert_requantisation", "completes the text of an instruction"),
    Rename("quantised.limits_of", "output_range", "the least and greatest result of a clamp"),
    Rename("quantised.kind_of", "op_kind", "`conv`, `depthwise` or `dense`"),
    Rename("quantised.largest_sum", "max_abs_sum", "a bound of every sum"),
    Rename("quantised.in_lanes", "group_by_lanes", "orders constants for a row of multipliers"),
    Rename("tir.Executed", "ExecCommand", "a result of `count_commands`"),
    Rename("tir.Copied", "CopyCommand", "a result of `count_commands`"),
    Rename("tir.mapped", "map_fields", "rebuilds a statement"),
    Rename("tir.bodies", "child_statements", "the statements inside a statement"),
    Rename("tir.Bounds.of", "Bounds.interval", "the proven interval of an expression"),
    Rename("tir.Bounds.around", "Bounds.at_entry", "the bounds at the entry of a function"),
    Rename("tir.Bounds.inside", "Bounds.children", "the inner statements and their bounds"),
    Rename("tiling.Staged", "StagedBuffer", "a buffer with a copy in a faster memory"),
    Rename("tiling.Fill", "PaddingFill", "the fill of padding"),
    Rename("tiling.Misfit", "TilingFailure", "the reason why no tile fits"),
    Rename("tiling.CutLoops", "TiledLoops", "the loops of a tiled block"),
    Rename("tiling.cut_results", "tile_spatial_loops", "tiles the loops over results"),
    Rename("tiling.cut_sums", "tile_reduction_loops", "tiles the loops of sums"),
    Rename("tiling.stage", "tile_and_stage", "tiles a block and inserts its copies"),
    Rename("tiling.largest_operands", "max_operand_extents", "the largest operands of an instruction"),
    Rename("tiling.try_all_tiles", "search_exhaustively", "the search without pruning"),
    Rename("partition.Choice", "Selection", "candidates selected together"),
    Rename("partition.Note", "Obstacle", "the reason against a candidate"),
    Rename("partition.Withdrawn", "RefusedMatch", "a match that its lowering refused"),
    Rename("partition.Consent", "RoundingOptIn", "the permission for different rounding"),
    Rename("partition.Consented", "OptInMatch", "a match under that permission"),
    Rename("partition.Planned", "SavedPlan", "a partitioner that replays a plan"),
    Rename("program.check_plan", "verify_plan", "verifies a memory plan"),
    Rename("artifact.WayTime", "ControlFlowTime", "the time of branches and loops"),
    Rename("machines.alike", "same_triple", "compares two machines"),
    Rename("PluginHost.named", "PluginHost.lookup", "returns a kind or alias"),
    Rename("hookspecs.RegionMatch.found", "RegionMatch.model_match", "the same match in the whole model"),
    Rename("relay.rewrite.moved", "rewrite.observer", "an argument that is called for each replaced expression"),
    Rename("relay.TensorFunction.of", "TensorFunction.by_expr", "the tensors of each expression"),
    Rename("pattern.Match.moved", "Match.with_replacements", "the same match of other expressions"),
    Rename("pattern.Failure.found", "Failure.actual", "the value that a condition rejects"),
    Rename("pattern.tuple_item.of", "tuple_item.value", "the argument for the pattern of the tuple"),
    Rename("te.Piece", "Fragment", "a part of an assembled tensor"),
    Rename("tiling.Instruction.within", "Instruction.whole_axes", "axes that one execution computes as a whole"),
    Rename("partition.Candidate.given", "Candidate.owner_match", "the match as its owner takes it"),
    Rename("partition.Candidate.given_nodes", "Candidate.owner_nodes", "the nodes as its owner takes them"),
    Rename("partition.Problem.found", "Problem.all_candidates", "every candidate of a placement so far"),
    Rename("partition.Selection.of", "Selection.candidate_by_node", "the selected candidate that has a node"),
    Rename("collage.CostTable.of", "CostTable.from_json", "a constructor names its source"),
    Rename("collage.Decision.found", "Decision.result", "the result of the search"),
    Rename("collage.Price", "CostEstimate", "the cost of a region or kernel"),
    Rename("members.Member", "BuildTarget", "one target of a build"),
    Rename("members.Members", "BuildTargets", "the targets of a build"),
    Rename("LoadedPlugin.named", "LoadedPlugin.index_by_name", "checks names and indexes by them"),
)
"""Every name that a plugin, script or partitioner may have imported and that 0.7 renamed."""


def declared_in_sources(entry: PluginEntry, attribute: str) -> object:
    """Return the literal that the sources of a plugin assign to ``attribute``; None without one.

    The plugin is not imported: it may fail on a name that is gone.
    """
    for tree in _sources(entry):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and any(ast.unparse(name) == attribute for name in node.targets):
                try:
                    return ast.literal_eval(node.value)
                except ValueError:
                    return None
    return None


def used_renames(entry: PluginEntry) -> tuple[Rename, ...]:
    """Return the rows of `RENAMES` whose old names the sources of a plugin import or read from a module.

    Methods of values are not recognised, because the type of a value is not known.
    """
    uses = {f".{use}." for tree in _sources(entry) for use in _uses(tree)}
    return tuple(row for row in RENAMES if any(f".{row.old}." in use for use in uses))


def _sources(entry: PluginEntry) -> Iterator[ast.Module]:
    """The modules of the plugin's package, the one of the entry point first."""
    module = entry.value.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))] or [Path(spec.origin or "")]
    for path in files:
        try:
            yield ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # the import reports it


def _uses(tree: ast.Module) -> Iterator[str]:
    """The dotted names of `uma` that a module imports, or reads from what it imported."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [
                (alias.asname, alias.name if alias.asname else alias.name.partition(".")[0]) for alias in node.names
            ]
            names |= {name or path: path for name, path in paths}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    names = {name: path for name, path in names.items() if path.partition(".")[0] == "uma"}
    yield from names.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, dot, rest = ast.unparse(node).partition(".")
            if root in names:
                yield names[root] + dot + rest
