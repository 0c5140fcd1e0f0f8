"""The driver's lists of runs: merged in the background, and never changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from boatlift.errors import UnavailableError
from boatlift.state.table import StateTable
from boatlift.storage.records.records import RunRef


def run(time: int, *, first: int | None = None) -> RunRef:
    first = time if first is None else first
    return RunRef(f"runs/{first}-{time}.arrow", first, time, 1, 0, 100, 3, "")


class Merger:
    """Merges runs into one that covers their times, when it is let."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.merged: list[tuple[list[str], bool]] = []

    def __call__(self, runs: Sequence[RunRef], /, *, oldest: bool) -> list[RunRef]:
        assert self.go_on.wait(10)
        self.merged.append((sorted(each.name for each in runs), oldest))
        return [run(max(each.last for each in runs), first=min(each.first for each in runs))]


STATE = [run(time) for time in range(5)]


def merged() -> StateTable:
    merger = Merger()
    table = StateTable(merger)
    table.grown(STATE)
    assert table.holds() >= {each.name for each in STATE[:4]}, "what is being merged is held"
    assert table.resolve(STATE) == STATE, "nothing is merged yet"
    merger.go_on.set()
    table.close()
    return table


def covered(state: Sequence[RunRef]) -> list[int]:
    return sorted(time for each in state for time in range(each.first, each.last + 1))


def test_merged_runs_take_the_place_of_what_they_merge_when_a_step_takes_the_state_up() -> None:
    after = merged().resolve(STATE)
    assert len(after) < len(STATE)
    assert covered(after) == covered(STATE)


def test_also_in_a_state_that_has_grown_meanwhile() -> None:
    after = merged().resolve([*STATE, run(5)])
    assert run(5) in after
    assert covered(after) == list(range(6))


def test_a_processor_that_goes_back_takes_up_its_messages() -> None:
    """A merge that covers more times than are to be kept stands for nothing in an older state."""
    assert merged().resolve(STATE[:2]) == STATE[:2]


def test_what_was_merged_is_held_as_long_as_a_state_may_take_it_up() -> None:
    table = merged()
    (made,) = (each for each in table.resolve(STATE) if each not in STATE)
    assert made.name in table.holds()
    table.forget({STATE[0].name})
    assert made.name in table.holds()
    table.forget({made.name})
    assert made.name not in table.holds(), "a state that has the run holds it"


def test_what_is_saved_is_not_merged_with_what_is_not() -> None:
    merger = Merger()
    merger.go_on.set()
    table = StateTable(merger)
    table.saved(STATE[:4])
    table.grown([run(time) for time in range(12)])
    table.close()
    for each in table.resolve([run(time) for time in range(12)]):
        assert not each.first <= 3 < each.last


def test_a_merge_that_failed_is_reported_before_the_next_step_and_not_within_one() -> None:
    """What a step made is kept by then: an error would let it be made, and kept, once more."""

    def fails(runs: Sequence[RunRef], /, *, oldest: bool) -> list[RunRef]:
        raise UnavailableError("STORE_FAILED", "the disk is full")

    table = StateTable(fails)
    table.grown(STATE)
    table.close()
    table.grown(STATE)
    with pytest.raises(UnavailableError, match="the disk is full"):
        table.resolve(STATE)


def test_a_merge_knows_whether_an_older_run_may_have_its_keys() -> None:
    """A merge may leave out what ends older rows only where there are none, whatever tasks wrote them."""
    for older, expected in (
        ([], True),
        ([run(0)], False),
        ([replace(run(0), modulus=2, residue=1)], False),
        ([replace(run(0), modulus=2, residue=0)], True),
    ):
        merger = Merger()
        merger.go_on.set()
        table = StateTable(merger)
        table.saved([run(0)])
        shared = [replace(run(time), modulus=4, residue=3) for time in range(1, 7)]
        table.grown([*older, *shared])
        table.close()
        ((names, oldest),) = [each for each in merger.merged if shared[0].name in each[0]]
        assert oldest is expected, (older, names)
