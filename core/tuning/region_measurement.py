"""Regions that are built alone, as whole models, and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ModelError, UmaError
from ..lowering.build_targets import BuildTargets
from ..partition import Candidate, Problem, RoundingOptIn
from ..partition.decision_check import Regions
from ..relay.expr import Expr
from ..relay.module import IRModule
from .measurement import Measurement, artifact_of, as_this_machine, measure_artifact, real_devices

__all__ = ["RegionRefused", "WholeModelPartitioner", "measure_region"]


class RegionRefused(UmaError):
    """A region is refused by its owner."""


@dataclass(frozen=True)
class WholeModelPartitioner:
    """Partitioner of a model that is one region.

    Args:
        wanted: the matches that it is, each as the name of its pattern and what it computes.
    """

    wanted: Sequence[tuple[str, frozenset[Expr]]]

    def __call__(self, problem: Problem) -> Regions:
        """The region; see `uma.partition.Partitioner`.

        Raises:
            RegionRefused: it was refused.
            ModelError: it is none of this model.
        """
        if problem.withdrawn:
            raise RegionRefused("a region is refused")
        numbers = {one: number for number, one in enumerate(self.wanted)}
        candidates: dict[int, Candidate] = {}
        for owner in problem.owners:
            for candidate in problem.candidates(owner):
                key = candidate.match.pattern.name, frozenset(candidate.nodes)
                if key in numbers:
                    candidates.setdefault(numbers[key], candidate)
        if len(candidates) < len(self.wanted):
            raise ModelError("alone it has another form, which its patterns do not match")
        return [tuple(candidates[number] for number in range(len(self.wanted)))]


def measure_region(module: IRModule, members: BuildTargets, consent: RoundingOptIn | None) -> Measurement:
    """What a model takes that is one region; with this machine as its host, where the host that is meant cannot be run.

    Args:
        module: canonical relay.
        members: one host, the region's owner, and `WholeModelPartitioner`.
        consent: as of the build that it is a part of.

    Raises:
        RegionRefused: its owner refuses it.
        UmaError: as for `measure_artifact`, or it cannot be built.
    """
    artifact = artifact_of(module, members, consent)
    if not artifact.is_native and artifact.emulator is None:
        hosts = tuple(as_this_machine(host) for host in members.hosts)
        artifact = artifact_of(module, BuildTargets(hosts, members.accelerators, partition=members.partition), consent)
    return measure_artifact(artifact, [label for member in members.accelerators for label in real_devices(member)])
