"""ONNX's backend tests, built for the host, compiled and run: ``make conformance``, or ``python tests/conformance.py
[--json FILE] [PART OF A NAME...]``.

Prints how many cases pass, which operators are refused and why, and what is wrong: 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests._support.onnx_suite import OUT_OF_SCOPE, Outcomes, load, run


def shown(outcomes: Outcomes) -> str:
    """The summary."""
    many = len(outcomes.passed) + len(outcomes.refused) + len(outcomes.faults)
    lines = [f"{len(outcomes.passed)} of {many} cases pass, {len(outcomes.faults)} are wrong"]
    reasons = Counter(outcomes.refused.values())
    outside = {reason: count for reason, count in reasons.items() if reason.startswith(OUT_OF_SCOPE)}
    lines.append(f"{sum(outside.values())} are out of scope, {len(outcomes.refused) - sum(outside.values())} refused:")
    by_reason: dict[str, list[str]] = {}
    for name, reason in outcomes.refused.items():
        # Of layers that are named differently the operator counts.
        by_reason.setdefault(reason[reason.find("(") :] if reason.startswith("'") else reason, []).append(name)
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"  {len(names):4} {reason}" if len(names) > 1 else f"     1 {reason} [{names[0]}]")
    lines += [f"WRONG {name}: {fault}" for name, fault in outcomes.faults.items()]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Runs the suite, or those of its cases that have a part in their names."""
    parser = argparse.ArgumentParser(description="ONNX's backend tests")
    parser.add_argument("part", nargs="*", help="run the cases that have this in their names")
    parser.add_argument("--json", type=Path, help="write the outcomes of all cases")
    given = parser.parse_args(arguments)
    cases = [case for case in load() if not given.part or any(part in case.name for part in given.part)]
    outcomes = run(cases)
    print(shown(outcomes))
    if given.json:
        given.json.write_text(json.dumps(vars(outcomes), indent=1))
    return bool(outcomes.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
