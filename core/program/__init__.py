"""Programs: what runs in which order over one table of buffers, and where each buffer is in memory."""

from .check import check_plan
from .plan import Plan, live_ranges, plan
from .program import Buffer, Call, Program, Quantisation, verify

__all__ = ["Buffer", "Call", "Plan", "Program", "Quantisation", "check_plan", "live_ranges", "plan", "verify"]
