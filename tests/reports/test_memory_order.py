"""What explain says of the order of steps."""

from __future__ import annotations

from dataclasses import replace

from tests.program.test_step_order import two_branches

from uma.artifact.footprint import Footprint
from uma.program.step_scheduling import order_peak, reordered
from uma.reports.memory import MemoryFound
from uma.support.json_record import to_json


def test_the_order_and_what_no_order_is_below() -> None:
    program = two_branches()
    size = Footprint(0, 0, 804, 0, 0, 0, 0)
    found = MemoryFound(size, (), (), None, order_peak(program))
    assert list(found.lines())[-1] == (
        "  in this order of steps 804 bytes are needed at once; no order needs less than 408"
    )
    assert to_json(found)["order"] == {"bytes": 804, "bound": 408}
    packed = MemoryFound(replace(size, arena_bytes=801), (), (), None, order_peak(program))
    assert "804 bytes, each buffer rounded up, are needed at once" in list(packed.lines())[-1]
    best = MemoryFound(size, (), (), None, order_peak(reordered(program)))
    assert list(best.lines())[-1] == "  in this order of steps 408 bytes are needed at once; no order needs less"
    assert to_json(MemoryFound(size, (), (), None))["order"] is None
