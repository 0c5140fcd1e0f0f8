"""Which failures are worth another try."""

from __future__ import annotations

import pytest

from boatlift.conditions import CONDITIONS, Retry
from boatlift.errors import BoatliftError, DataError, UnavailableError, UserCodeError
from boatlift.runtime.host.failures import Retries

RAISED = "a function of clean raised at step 3 of sums: ValueError: invalid literal"


def attempts() -> Retries:
    return Retries(3, 0.1)


def failures(tried: Retries, errors: list[BoatliftError], *, deterministic: bool = True) -> list[float | None]:
    return [tried.failed("sums", 3, error, deterministic=deterministic) for error in errors]


def test_deterministic_code_that_raises_the_same_again_is_not_tried_a_third_time() -> None:
    assert failures(attempts(), [UserCodeError("USER_CODE", RAISED)] * 2) == [0.1, None]


def test_another_error_or_another_step_is_no_repetition() -> None:
    errors: list[BoatliftError] = [UserCodeError("USER_CODE", RAISED), UserCodeError("USER_CODE", f"{RAISED}: other")]
    tried = attempts()
    assert failures(tried, errors) == [0.1, 0.2]
    assert tried.failed("sums", 4, errors[1], deterministic=True) == 0.4


def test_what_may_be_otherwise_another_time_is_tried_so_often_as_anything_else() -> None:
    assert failures(attempts(), [UserCodeError("USER_CODE", RAISED)] * 4, deterministic=False) == [0.1, 0.2, 0.4, None]
    assert failures(attempts(), [UnavailableError("STEP_FAILED", "a task was lost")] * 4) == [0.1, 0.2, 0.4, None]


@pytest.mark.parametrize(
    "error",
    [
        DataError("BAD_ROW", "no number"),
        UnavailableError("JVM_DIED", "killed"),
        UnavailableError("SINK_LOCKED", "held"),
    ],
)
def test_what_lasts_is_not_tried_again(error: BoatliftError) -> None:
    assert failures(attempts(), [error]) == [None]


def test_what_spark_has_tried_often_enough_is_not_tried_again() -> None:
    assert failures(attempts(), [UserCodeError("USER_CODE", RAISED, lasting=True)]) == [None]


def test_every_error_that_may_pass_says_whether_a_step_is_tried_again() -> None:
    """The table decides; a new condition of these classes cannot forget it."""
    undecided = [
        name
        for name, known in CONDITIONS.items()
        if known.error in ("UnavailableError", "UserCodeError") and known.retry is Retry.NONE
    ]
    assert not undecided
    assert {name for name, known in CONDITIONS.items() if known.retry is Retry.STOP} == {
        "BAD_ROW",
        "JVM_DIED",
        "LOOP_TOO_LONG",
        "MEMORY_FULL",
        "NEGATIVE_WEIGHT",
        "PLAN_REFUSED",
        "QUERY_TIMEOUT",
        "RUN_DIED",
        "SINK_LOCKED",
        "SINK_REFUSED",
    }
