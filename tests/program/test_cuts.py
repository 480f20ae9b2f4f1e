"""The search over cuts: against all cuts there are, and against what is known of chains."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from uma.program.chain_partition import CALL_INSTRUCTIONS, Cut, Cuts, Read, Tensor, Work
from uma.tir.form.rows import RowParam


def line(*layers: tuple[int, int, int, int, int]) -> Cuts:
    """Layers that read one after the other: each its height, row bytes, window, stride and rows before; the first is
    what the model is given."""
    tensors = [Tensor(0, layers[0][0])]
    works = []
    for number, (height, row_bytes, window, stride, before) in enumerate(layers[1:], 1):
        tensors.append(Tensor(height * row_bytes, height, number == len(layers) - 1))
        rows = RowParam("x", layers[number - 1][0], window, stride, before)
        works.append(Work((Read(number - 1, rows),), (number,), height))
    return Cuts(tensors, works)


def every_path(cuts: Cuts, first: int = 0) -> Iterator[list[tuple[int, int, bool]]]:
    if first == len(cuts.works):
        yield []
        return
    for last, by_rows in ((first, False), *((last, True) for last in cuts.ends[first])):
        yield from ([(first, last, by_rows), *rest] for rest in every_path(cuts, last + 1))


def by_brute_force(cuts: Cuts) -> list[tuple[int, int]]:
    """Peak and added work of the cuts that no other one beats, the cheapest first."""
    found = set()
    for path in every_path(cuts):
        pieces = [cuts.piece(*key) for key in path]
        found.add((sum(one.added for one in pieces), max(one.peak for one in pieces)))
    kept: list[tuple[int, int]] = []
    for added, peak in sorted(found):
        if not kept or peak < kept[-1][0]:
            kept.append((peak, added))
    return kept


def random_cuts(seed: int) -> Cuts:
    """Calls that read one or two tensors that were made before, some of which cannot be run by rows."""
    rng = random.Random(seed)
    tensors = [Tensor(rng.choice((0, 64)), 8)]
    works: list[Work] = []
    for _ in range(rng.randint(1, 8)):
        reads = []
        height = rng.choice((4, 6, 8))
        chosen = {len(tensors) - 1, rng.randrange(len(tensors))} if rng.random() < 0.4 else {len(tensors) - 1}
        for number in sorted(chosen):
            window = rng.choice((1, 2, 3))
            rows = RowParam("x", tensors[number].height, window, rng.choice((1, 2)), rng.randint(0, window - 1))
            reads.append(Read(number, rows if rng.random() < 0.9 else None))
        by_rows = rng.random() < 0.85
        tensors.append(Tensor(height * rng.choice((4, 8, 16)) if by_rows else 16, height, rng.random() < 0.1))
        overlaps = tuple(
            (len(tensors) - 1, read.tensor, rng.choice((0, 8))) for read in reads[:1] if rng.random() < 0.5
        )
        extent = height if rng.random() < 0.85 else 0
        space, row_space = rng.choice((0, 0, 12)), rng.choice((0, 0, 4))
        added = rng.choice((0, 0, 50, 700))
        made = (len(tensors) - 1,)
        works.append(Work(tuple(reads), made, extent, by_rows, space, row_space, added, overlaps))
    return Cuts(tensors, works)


@pytest.mark.parametrize("seed", range(60))
def test_the_frontier_is_that_of_all_cuts(seed: int) -> None:
    found = [(cut.peak, cut.added) for cut in random_cuts(seed).frontier()]
    assert found == by_brute_force(random_cuts(seed))


@pytest.mark.soak
def test_the_frontier_is_that_of_all_cuts_of_many() -> None:
    for seed in range(60, 3000):
        test_the_frontier_is_that_of_all_cuts(seed)


def test_a_frontier_begins_with_single_calls_and_falls() -> None:
    cuts = line((16, 16, 1, 1, 0), (16, 64, 3, 1, 1), (16, 64, 3, 1, 1), (8, 64, 3, 2, 0), (8, 16, 1, 1, 0))
    first, *others = cuts.frontier()
    assert first.chains == () and first.added == 0 and first.peak == 2 * 16 * 64
    peaks = [first.peak, *(cut.peak for cut in others)]
    assert peaks == sorted(set(peaks), reverse=True) and len(peaks) > 1
    added = [first.added, *(cut.added for cut in others)]
    assert added == sorted(set(added))


def test_line_buffers_hold_what_windows_still_need() -> None:
    cuts = line((16, 16, 1, 1, 0), (16, 64, 3, 1, 1), (16, 64, 3, 1, 1), (8, 64, 3, 2, 0), (8, 16, 1, 1, 0))
    # 3 rows for a window of 3, by whatever stride; 1 row of what is read as it is made.
    piece = cuts.piece(0, 3)
    assert piece.heights == ((1, 3), (2, 3), (3, 1))
    assert piece.peak == 8 * 16 + (3 + 3 + 1) * 64
    # Two rows are moved for each new one at stride 1, one for each two at stride 2. All rows are moved one by one.
    assert piece.moved_bytes == (13 * 2 + 7) * 64
    assert piece.added == piece.moved_bytes + (16 + 16 + 8 + 8) * CALL_INSTRUCTIONS


def test_a_tensor_that_is_read_around_a_window_lasts_until_it_was() -> None:
    # x -> a; a -> b by a window of 3 at stride 2; b -> c by one of 3; c with every second row of a.
    window, half = RowParam("x", 4, 3, 1, 1), RowParam("x", 8, 3, 2)
    tensors = [Tensor(0, 8), Tensor(64, 8), Tensor(32, 4), Tensor(32, 4, True)]
    works = [
        Work((Read(0, RowParam("x", 8)),), (1,), 8),
        Work((Read(1, half),), (2,), 4),
        Work((Read(2, window), Read(1, RowParam("x", 8, 1, 2))), (3,), 4),
    ]
    assert Cuts(tensors, works).piece(0, 2).heights == ((1, 5), (2, 3))


def test_what_is_used_behind_a_chain_is_whole() -> None:
    one = RowParam("x", 8)
    tensors = [Tensor(0, 8), Tensor(64, 8), Tensor(80, 8), Tensor(96, 8, True)]
    works = [
        Work((Read(0, one),), (1,), 8),
        Work((Read(1, one),), (2,), 8),
        Work((Read(2, one), Read(1, one)), (3,), 8),
    ]
    cuts = Cuts(tensors, works)
    assert cuts.piece(0, 1).peak == 64 + 80 and cuts.piece(0, 1).heights == ()
    assert cuts.piece(0, 2).peak == 96 + 8 + 10


@pytest.mark.parametrize(
    ("what", "ends"),
    {
        "a call without a form of one row": ((Work((Read(1, RowParam("x", 8)),), (2,)),), ()),
        "what reads whole": ((Work((Read(1),), (2,), 8),), ()),
        "what nobody reads": ((Work((Read(0, RowParam("x", 8)),), (2,), 8),), ()),
        "sums of rows": (
            (Work((Read(1, RowParam("x", 8)),), (2,), 8, False), Work((Read(2, RowParam("x", 1)),), (3,), 1)),
            (1,),
        ),
        "three": (
            (Work((Read(1, RowParam("x", 8)),), (2,), 8), Work((Read(2, RowParam("x", 8)),), (3,), 8)),
            (1, 2),
        ),
    }.values(),
)
def test_where_chains_end(what: tuple[Work, ...], ends: tuple[int, ...]) -> None:
    tensors = [Tensor(0, 8), Tensor(64, 8), Tensor(64, 8), Tensor(64, 8, True)]
    assert Cuts(tensors, (Work((Read(0, RowParam("x", 8)),), (1,), 8), *what)).ends[0] == ends


def test_of_cuts_that_add_the_same_the_lowest_is_taken() -> None:
    # Both pairs cost the same; the second brings more.
    one = RowParam("x", 8)
    tensors = [Tensor(0, 8), Tensor(64, 8), Tensor(640, 8), Tensor(64, 8, True)]
    works = [Work((Read(n, one),), (n + 1,), 8) for n in range(3)]
    whole, *others = Cuts(tensors, works).frontier()
    assert whole == Cut(704, 0, ())
    assert others[0].chains in (((0, 1),), ((1, 2),)) and others[-1].chains == ((0, 2),)


def test_a_call_alone_goes_by_rows_where_that_takes_less_to_work_in() -> None:
    one, tensors = RowParam("x", 8), [Tensor(0, 8), Tensor(64, 8, True)]
    work = Work((Read(0, one),), (1,), 8, True, 100, 4, 30)
    assert Cuts(tensors, [work]).frontier() == (Cut(164, 0, ()), Cut(68, 30, ((0, 0),)))


def test_a_model_of_many_layers_is_searched_in_little_time() -> None:
    layers = [(32, 64, 1, 1, 0)] + [(32, 64 + number % 3 * 64, 3, 1, 1) for number in range(60)]
    found = line(*layers).frontier()
    assert len(found) > 1
