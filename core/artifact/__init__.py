"""What a build returns: a compiled model that describes itself, runs, and is saved and loaded."""

from ..runtime.peaks import Peaks
from .artifact import Artifact, load
from .execution_counts import ControlFlowTime
from .footprint import Footprint, MemoryPeak, memory_peaks
from .profile import CallTime, PartCounts, Profile, RunCounts, Ticks
from .record import (
    ArtifactRecord,
    BufferRecord,
    CallRecord,
    ClockRecord,
    CompileRecord,
    DeviceRecord,
    FaultRecord,
    FileRecord,
    HostRecord,
    LibraryRecord,
    MemoryRecord,
    PartsRecord,
    QuantizationRecord,
    StateRecord,
    TensorRecord,
)
from .record_verifier import schema

__all__ = [
    "Artifact",
    "ArtifactRecord",
    "BufferRecord",
    "CallRecord",
    "CallTime",
    "ClockRecord",
    "CompileRecord",
    "ControlFlowTime",
    "DeviceRecord",
    "FaultRecord",
    "FileRecord",
    "Footprint",
    "HostRecord",
    "LibraryRecord",
    "MemoryPeak",
    "MemoryRecord",
    "PartCounts",
    "PartsRecord",
    "Peaks",
    "Profile",
    "QuantizationRecord",
    "RunCounts",
    "StateRecord",
    "TensorRecord",
    "Ticks",
    "load",
    "memory_peaks",
    "schema",
]
