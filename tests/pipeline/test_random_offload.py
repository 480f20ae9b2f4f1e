"""Random models for one to three random accelerators, with limits and refusals, through the whole pipeline.

Whatever goes where, the program computes what the references of the model's ops do; every op is owned once, every
region is convex, what was refused and nothing else is given back, and explain says so.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests._support.offload import Case, check, dense_cases, varied_cases


@given(dense_cases())
@settings(max_examples=15)
def test_graphs_with_much_sharing(case: Case) -> None:
    check(case)


@given(varied_cases())
@settings(max_examples=15)
def test_graphs_of_all_ops(case: Case) -> None:
    check(case)


@given(dense_cases() | varied_cases())
@settings(max_examples=3)
def test_compiled(case: Case) -> None:
    check(replace(case, module=replace(case.module, signature=None)), compiled=True)


@pytest.mark.soak
@given(dense_cases())
@settings(max_examples=5_000)
def test_many_graphs_with_much_sharing(case: Case) -> None:
    check(case)


@pytest.mark.soak
@given(varied_cases())
@settings(max_examples=5_000)
def test_many_graphs_of_all_ops(case: Case) -> None:
    check(case)
