"""The decisions that all sinks make alike."""

from __future__ import annotations

import pytest

from boatlift.connectors.kit.step_ledger import Decision, StepLedger
from boatlift.dataflow.contracts import Committed, Outcome
from boatlift.errors import DataError, DivergedError, FencedError
from connectors.conformance import context

LEDGER = StepLedger(context(token=5), "table t of x.db", "table", "restore the database")
HELD = Committed(3, 10, "a")


@pytest.mark.parametrize(
    ("step", "newest", "decision"),
    [(0, -1, Decision.APPEND), (4, 3, Decision.APPEND), (3, 3, Decision.COMPARE), (0, 3, Decision.COMPARE)],
)
def test_the_next_step_is_appended_and_an_earlier_one_compared(step: int, newest: int, decision: Decision) -> None:
    assert LEDGER.decide(step, newest) is decision


@pytest.mark.parametrize(("step", "newest"), [(1, -1), (5, 3)])
def test_a_step_beyond_the_next_is_a_gap(step: int, newest: int) -> None:
    with pytest.raises(DataError, match=rf"\[SINK_GAP\] .* up to {newest}, .* step {step}: restore the database"):
        LEDGER.decide(step, newest)


def test_the_same_step_is_dropped_and_nothing_is_looked_up() -> None:
    def difference() -> str:
        raise AssertionError("there is none to look for")

    assert LEDGER.compare(HELD, HELD, difference) is Outcome.DROPPED


@pytest.mark.parametrize("now", [Committed(3, 11, "a"), Committed(3, 10, "b")])
def test_another_step_diverges_and_says_where(now: Committed) -> None:
    with pytest.raises(DivergedError, match=r"step 3 with 10 rows and digest a, .*: row 7 differs; something before"):
        LEDGER.compare(now, HELD, lambda: "row 7 differs")
    with pytest.raises(DivergedError, match=r"digest (a|b): something before this sink"):
        LEDGER.compare(now, HELD, str)


def test_a_step_that_differs_is_an_error_also_if_the_row_cannot_be_found() -> None:
    def difference() -> str:
        raise OSError("the disk is gone")

    with pytest.raises(DivergedError, match=r"which row differs cannot be told \(the disk is gone\)"):
        LEDGER.compare(Committed(3, 10, "b"), HELD, difference)


def test_a_newer_owner_fences_and_an_older_one_does_not() -> None:
    for token in (0, 5):
        LEDGER.refuse_newer_owner(token)
    with pytest.raises(FencedError, match=r"owner 6 has taken over table t of x.db, and this is owner 5"):
        LEDGER.refuse_newer_owner(6)


def test_another_store_is_refused() -> None:
    LEDGER.refuse_other_store(LEDGER.context.store)
    with pytest.raises(
        DataError, match=r"\[SINK_OF_ANOTHER_STORE\] .* with id other .* give the sink a table of its own"
    ):
        LEDGER.refuse_other_store("other")
