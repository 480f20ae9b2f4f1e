"""Programs: what runs in which order over one table of buffers, and where each buffer is in memory."""

from .line_buffering import by_rows, chain_fault, formed, raised
from .memory_plan import Plan, live_ranges, plan
from .plan_verifier import verify_plan
from .program import Buffer, Call, Else, End, If, Loop, Program, Quantisation, Queue, Rows, Step, Wait
from .relocate import relocate
from .streamed_inputs import Stream, streamed, streams, with_copies
from .text import parse_program, print_program
from .verify import verify
from .wait_insertion import place_waits

__all__ = [
    "Buffer",
    "Call",
    "Else",
    "End",
    "If",
    "Loop",
    "Plan",
    "Program",
    "Quantisation",
    "Queue",
    "Rows",
    "Step",
    "Stream",
    "Wait",
    "by_rows",
    "chain_fault",
    "formed",
    "live_ranges",
    "parse_program",
    "place_waits",
    "plan",
    "print_program",
    "raised",
    "relocate",
    "streamed",
    "streams",
    "verify",
    "verify_plan",
    "with_copies",
]
