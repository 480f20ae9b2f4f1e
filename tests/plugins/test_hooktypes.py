"""The records of the contract: checked when they are made, frozen afterwards."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from uma.errors import PluginError
from uma.hookspecs import (
    BitField,
    Clock,
    Cost,
    Exporter,
    Implementation,
    LaunchQueue,
    Library,
    LoweredKernel,
    PartCounters,
    Pass,
    Refuse,
    Register,
    Routine,
    Runtime,
    Strategy,
    TargetCode,
)
from uma.relay import IRModule
from uma.support.json_record import to_json
from uma.tir import Machine, PrimFunc, te


def same(module: IRModule) -> IRModule:
    return module


SIM = Implementation("my_sim_bus")
SOURCES = {"my_driver.h": "", "my_driver.c": ""}
START = Routine("start", "f({device})")
QUEUE = LaunchQueue("commands", 2, "w({device}, {pending})")
DRIVERLESS: dict[str, Any] = {
    "driver": None,
    "header": None,
    "sources": {},
    "implementations": {},
    "parameters": (),
    "faults": {},
    "counters": (),
    "parts": None,
    "clock": None,
}
GOOD: dict[type, dict[str, Any]] = {
    TargetCode: {},
    Pass: {"phase": "TIR_0", "name": "tidy", "fn": same},
    Cost: {"cycles": 12.5, "bytes_moved": 3, "energy_j": 0.0, "busy": {"dma": 0.25, "host": 1}},
    Exporter: {"name": "my_device.flash-image", "help": "what is flashed", "export": lambda artifact, folder: None},
    Library: {"name": "stdc++", "package": "a.wheel_of-it", "symbols": ("f", "g")},
    Strategy: {"name": "nn.relu", "lower": lambda function, target: None},
    Implementation: {"bus": "my_sim_bus"},
    Routine: {"name": "start", "call": "f({device}, {x}, {bases})", "fields": (BitField("a", 8),), "ports": ("axi",)},
    LaunchQueue: {"name": "commands", "depth": 2, "wait": "w({device}, {pending})", "poll": "p({device}, {pending})"},
    PartCounters: {"count": 16, "counters": ("cycles", "reads")},
    Register: {"offset": 0x18, "name": "STATUS", "reads": "status"},
    Clock: {"hz": 250e3, "cycles": "cycles", "busy": "array_cycles"},
    Runtime: {
        "driver": "my_driver",
        "header": "my_driver.h",
        "sources": SOURCES,
        "implementations": {"sim": SIM},
        "parameters": (8, -1),
        "faults": {3: "the address is not in a scratchpad"},
        "counters": ("cycles",),
    },
}


@pytest.mark.parametrize("record", list(GOOD), ids=lambda record: record.__name__)
def test_a_record_holds_what_it_was_given_and_cannot_be_changed(record: type) -> None:
    made = record(**GOOD[record])
    for name, value in GOOD[record].items():
        assert getattr(made, name) == value
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, value)


@pytest.mark.parametrize(
    ("record", "fields", "message"),
    [
        (Cost, {"cycles": None}, "Cost has neither cycles nor seconds"),
        (Cost, {"cycles": -1}, "Cost.cycles is -1, not a number from 0 on"),
        (Cost, {"cycles": float("nan")}, "Cost.cycles is nan, not a number from 0 on"),
        (Cost, {"seconds": float("inf")}, "Cost.seconds is inf, not a number from 0 on"),
        (Cost, {"seconds": True}, "Cost.seconds is True, not a number from 0 on"),
        (Cost, {"cycles": 1, "bytes_moved": 2.0}, "Cost.bytes_moved is 2.0, not a whole number from 0 on"),
        (Cost, {"cycles": 1, "energy_j": "2"}, "Cost.energy_j is '2', not a number from 0 on"),
        (Cost, {"cycles": 1, "busy": 0.5}, "Cost.busy is 0.5"),
        (Cost, {"cycles": 1, "busy": {1: 0.5}}, "Cost.busy: 1 is in use for 0.5 of the time"),
        *(
            (Cost, {"cycles": 1, "busy": {"dma": share}}, f"Cost.busy: 'dma' is in use for {share} of the time")
            for share in (-0.1, 1.5, True, float("nan"))
        ),
        *(
            (Exporter, {"name": name}, "cannot name an exporter")
            for name in ("", "My", "a.b.c", "a.", ".a", "a b", "../a", "a\n", 3)
        ),
        *((Exporter, {"help": text}, "not a line of text") for text in ("", " ", "a\nb", None)),
        (Exporter, {"export": "it"}, "export of exporter 'my_device.flash-image' is 'it', not a function of artifact"),
        *(
            (Library, {"name": name}, "cannot name a library")
            for name in ("", "-x", "../x", "/x", "a b", "a;b", "$(x)", "a\n", ":x.a", "a,b", "ä", 3)
        ),
        *(
            (Library, {"name": "x", "package": name}, "library 'x' comes with")
            for name in ("", "-x", "a b", "a/b", "x-", "a==1", "a[b]", "a\n", "git+x", 3)
        ),
        (Library, {"name": "x", "symbols": "abc"}, "symbols of library 'x' are 'abc'"),
        (Library, {"name": "x", "symbols": ("f;",)}, "a symbol of library 'x' is 'f;', not an identifier of C"),
        (Library, {"make": "make"}, "make of library 'stdc++' is 'make', not a function of a path"),
        *((Register, {"offset": n}, "offset of register 'STATUS' is") for n in (-4, 2, 2**32, 4.0)),
        (Register, {"name": "a b"}, "Register.name is 'a b', not an identifier of C"),
        (Register, {"reads": "time"}, "reads of register 'STATUS' is 'time'"),
        (Runtime, {"registers": (Register(0, "A"), Register(0, "B"))}, "Runtime.registers has two of one offset"),
        (Runtime, {"registers": (Register(0, "A"), Register(4, "A"))}, "Runtime.registers has two of one name"),
        (
            Runtime,
            DRIVERLESS | {"registers": (Register(0, "A"),)},
            "Runtime.registers is for a device, and there is no",
        ),
        (TargetCode, {"cflags": "-O3"}, "TargetCode.cflags must be a tuple of strings"),
        (TargetCode, {"cflags": None}, "TargetCode.cflags must be a tuple of strings"),
        (TargetCode, {"cflags": (3,)}, "TargetCode.cflags: 3 is not a compiler flag"),
        (TargetCode, {"cflags": ("-O3", "main.c")}, "TargetCode.cflags: 'main.c' is not a compiler flag"),
        (TargetCode, {"cflags": ("-O3\n",)}, r"TargetCode.cflags: '-O3\n' is not a compiler flag"),
        (TargetCode, {"machine": 3}, "TargetCode.machine is 3, not a text"),
        (TargetCode, {"machine": "/bin/sh"}, "TargetCode: '/bin/sh' names no machine"),
        (
            TargetCode,
            {"machine": "s390x-linux-gnu"},
            "TargetCode: 's390x-linux-gnu' is a machine that stores the highest byte",
        ),
        (TargetCode, {"clock_hz": 80e6}, "TargetCode.clock_hz is for another machine, and none is named"),
        *(
            (
                TargetCode,
                {"machine": "aarch64-linux-gnu", "clock_hz": hz},
                f"TargetCode.clock_hz is {hz}, not a number of at least 1",
            )
            for hz in (0.5, True, float("nan"), float("inf"))
        ),
        (TargetCode, {"runner": "qemu-arm"}, "TargetCode: 'qemu-arm' is for another machine, and none is named"),
        (
            TargetCode,
            {"machine": "aarch64-linux-gnu", "runner": "qemu-arm"},
            "TargetCode: qemu-arm runs what is compiled for arm",
        ),
        (TargetCode, {"cc": "/usr/bin/gcc"}, "TargetCode.cc: '/usr/bin/gcc' is not a name of a compiler"),
        (TargetCode, {"cc": "-gcc"}, "TargetCode.cc: '-gcc' is not a name of a compiler"),
        (TargetCode, {"cc": 12}, "TargetCode.cc: 12 is not a name of a compiler"),
        (TargetCode, {"cc": "gcc -O3"}, "TargetCode.cc: 'gcc -O3' is not a name of a compiler"),
        (Pass, {"name": "Tidy"}, "'Tidy' cannot name a pass"),
        (Pass, {"name": None}, "cannot name a pass"),
        (Pass, {"phase": "TIR_4"}, "pass 'tidy' is for phase 'TIR_4', which there is not"),
        (Pass, {"scope": "function"}, "pass 'tidy' has scope 'function'"),
        (Pass, {"phase": "PRE_PARTITIONING", "scope": "regions"}, "is for regions, before there are any"),
        (Pass, {"fn": "tidy"}, "fn of pass 'tidy' is 'tidy', not a function"),
        (Pass, {"before": "other"}, "before of pass 'tidy' is 'other'"),
        (Pass, {"after": ("a.b.c",)}, "after of pass 'tidy' is a value of type tuple"),
        (Strategy, {"name": ""}, "'' names no op and no pattern"),
        (Strategy, {"lower": None}, "lower of strategy 'nn.relu' is"),
        (Implementation, {"bus": "my bus"}, "Implementation.bus is 'my bus', not an identifier of C"),
        (Implementation, {"sources": {"../x.c": ""}}, "Implementation.sources: '../x.c' cannot name a C file"),
        (Implementation, {"sources": {"x.py": ""}}, "Implementation.sources: 'x.py' cannot name a C file"),
        (Implementation, {"sources": {"x.c": b""}}, "Implementation.sources: x.c is a value of type bytes, not text"),
        (Implementation, {"sources": ["x.c"]}, "Implementation.sources is a value of type list"),
        (Implementation, {"state_bytes": -1}, "Implementation.state_bytes is -1"),
        (Implementation, {"is_real": 1}, "Implementation.is_real is 1"),
        (Implementation, {"is_real": True, "state_bytes": 64}, "state_bytes is memory of a stand-in, and is_real is"),
        (Runtime, {"driver": ""}, "Runtime.driver is '', not an identifier of C"),
        (Runtime, {"sources": {}}, "Runtime.header is 'my_driver.h', not a header among the sources"),
        (Runtime, {"header": "my_driver.c"}, "Runtime.header is 'my_driver.c', not a header"),
        (Runtime, {"implementations": {}}, "Runtime.implementations must have at least one"),
        (Runtime, {"implementations": {"sim": "my_sim"}}, "Runtime.implementations: 'sim' is 'my_sim'"),
        (Runtime, {"parameters": (1.5,)}, "Runtime.parameters: 1.5 is not a 64-bit integer"),
        (Runtime, {"parameters": (2**63,)}, "is not a 64-bit integer"),
        (Runtime, {"faults": {0: "fine"}}, "Runtime.faults: 0 is not a fault code"),
        (Runtime, {"faults": {1: None}}, "Runtime.faults: 1 is not a fault code"),
        (Runtime, {"machine": ()}, "Runtime.machine is a value of type tuple, not a record Machine"),
        (Runtime, DRIVERLESS | {"machine": Machine()}, "Runtime.machine is for a device, and there is no driver"),
        (Runtime, {"counters": ("cycles per run",)}, "Runtime.counters is 'cycles per run'"),
        *((PartCounters, {"count": n}, f"PartCounters.count is {n!r}") for n in (0, 4097, 2.0)),
        (PartCounters, {"counters": "cycles"}, "PartCounters.counters is 'cycles'"),
        (PartCounters, {"counters": ()}, "PartCounters.counters is "),
        (PartCounters, {"counters": ("a b",)}, "PartCounters.counters is 'a b', not an identifier of C"),
        (PartCounters, {"locates_faults": 1}, "PartCounters.locates_faults is 1"),
        *((Clock, {"hz": hz}, "Clock.hz is ") for hz in (0, -1.0, float("inf"), float("nan"), "1", True)),
        (Clock, {"cycles": "a b"}, "a counter of Clock is 'a b', not an identifier of C"),
        (Clock, {"busy": ""}, "a counter of Clock is '', not an identifier of C"),
        (Runtime, {"parts": (4, ("cycles",))}, "Runtime.parts is a value of type tuple, not a record PartCounters"),
        (Runtime, {"clock": 250e3}, "Runtime.clock is 250000.0, not a record Clock"),
        (
            Runtime,
            {"clock": Clock(1.0, "cycles", "busy")},
            "Runtime.clock is of counter 'busy', which Runtime.counters does not have",
        ),
        (Runtime, {"implementations": ["sim"]}, "Runtime.implementations is a value of type list"),
        (Runtime, {"libraries": "m"}, "Runtime.libraries is 'm', not a tuple of Library"),
        (Runtime, {"routines": (START, START)}, "Runtime.routines has two of one name"),
        (
            Runtime,
            {"launch_queues": (1,)},
            "Runtime.launch_queues is a value of type tuple, not a tuple of LaunchQueue",
        ),
        (Runtime, {"routines": (Routine("f", "f({x})"),)}, "routine 'f' is not given the device"),
        (Runtime, {"driver": None}, "Runtime.implementations is for a device, and there is no driver"),
        (Runtime, DRIVERLESS | {"faults": {1: "x"}}, "Runtime.faults is for a device, and there is no driver"),
        (Runtime, DRIVERLESS | {"launch_queues": (QUEUE,)}, "Runtime.launch_queues is for a device, and there is no"),
        (Runtime, DRIVERLESS | {"routines": (START,)}, "routine 'start' drives a device, and there is no driver"),
        (Runtime, DRIVERLESS | {"header": "x.h"}, "Runtime.header is 'x.h', not a header among the sources"),
        (Routine, {"name": "a b"}, "Routine.name is 'a b', not an identifier of C"),
        (Routine, {"call": None}, "call of routine 'start': a value of type NoneType"),
        (Routine, {"call": "f({device}); g()"}, "call of routine 'start': ';' cannot stand in an expression of C"),
        (Routine, {"call": "f({device}"}, "call of routine 'start': it is not one expression: mind brackets"),
        (Routine, {"fields": "ab"}, "fields of routine 'start' are 'ab', not a tuple of BitField"),
        (Routine, {"fields": (BitField("a", 8), BitField("a", 9))}, "routine 'start' has two fields of one name"),
        (Routine, {"call": "f({bases})"}, "routine 'start' takes bases and no device"),
        (Routine, {"call": "f({n_bases})"}, "routine 'start' takes bases and no device"),
        (Routine, {"ports": ("a-b",)}, "a port of routine 'start' is 'a-b', not an identifier of C"),
        (Routine, {"describe": "x"}, "describe of routine 'start' is 'x', not a function of bytes"),
        (LaunchQueue, {"name": ""}, "LaunchQueue.name is '', not an identifier of C"),
        (LaunchQueue, {"depth": 0}, "depth of queue 'commands' is 0"),
        (LaunchQueue, {"depth": True}, "depth of queue 'commands' is True"),
        (LaunchQueue, {"wait": None}, "wait of queue 'commands': a value of type NoneType"),
        (LaunchQueue, {"poll": None}, "poll of queue 'commands': a value of type NoneType"),
        (LaunchQueue, {"poll": "p({device})"}, "poll of queue 'commands': {pending} is not mentioned"),
        (LaunchQueue, {"wait": "w({device})"}, "wait of queue 'commands': {pending} is not mentioned"),
        (LaunchQueue, {"wait": "w({device}, {pending}, {x})"}, "wait of queue 'commands': unknown placeholder {x}"),
    ],
)
def test_a_malformed_record_is_the_plugins_fault(record: type, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError) as caught:
        record(**{**GOOD[record], **fields})
    assert message in str(caught.value)


def scaled() -> te.Kernel:
    x = te.placeholder((4,), "float32", "x")
    table = te.constant(np.arange(4, dtype=np.float32), "table")
    return te.prim_func([x], [te.compute((4,), lambda i: x[i] * table[i], "scaled")])


def test_lowered_pairs_loops_with_their_constants() -> None:
    kernel = scaled()
    made = LoweredKernel(kernel.func, kernel.bind())
    assert isinstance(made.func, PrimFunc)
    assert [c.tolist() for c in made.constants] == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("func", "constants", "message"),
    [
        ("scaled", (), "LoweredKernel.func is 'scaled', not a PrimFunc"),
        (scaled().func, (), "LoweredKernel.constants are (), the function takes (float32[4])"),
        (scaled().func, (np.zeros(4),), "LoweredKernel.constants are (float64[4]), the function takes (float32[4])"),
        (scaled().func, ([0, 0, 0, 0],), "LoweredKernel.constants are (list[]), the function takes (float32[4])"),
    ],
)
def test_lowered_that_does_not_fit_is_the_plugins_fault(func: Any, constants: Any, message: str) -> None:
    with pytest.raises(PluginError) as caught:
        LoweredKernel(func, constants)
    assert message in str(caught.value)


def test_a_refusal_carries_its_reason() -> None:
    refusal = Refuse("rows come in eights; these are 5")
    assert (str(refusal), refusal.reason, refusal.at) == (refusal.reason, refusal.reason, None)


def test_a_total_knows_what_all_parts_know() -> None:
    one, two = Cost(cycles=3, bytes_moved=10), Cost(cycles=4.5, seconds=0.5, bytes_moved=1)
    assert Cost.total([one, two]) == Cost(cycles=7.5, bytes_moved=11)
    assert Cost.total([two]) == two
    assert Cost.total([one, Cost(seconds=1.0)]) is None
    assert Cost.total([]) is None
    busy = Cost(cycles=3, busy={"dma": 0.5})
    assert Cost.total([busy, one]) == Cost(cycles=6)
    assert hash(busy) == hash(Cost(cycles=3)) and busy != Cost(cycles=3)
    assert to_json(busy) == {"cycles": 3, "seconds": None, "bytes_moved": None, "energy_j": None}


def test_a_runtime_without_a_driver_is_one_of_a_library() -> None:
    made = Runtime(routines=(Routine("f", "f({x})"),), libraries=(Library("m"),))
    assert made.driver is None and made.routine("f") is made.routines[0]
    assert made.routine("g") is None and made.launch_queue("f") is None
