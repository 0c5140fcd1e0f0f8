"""Options of policies: ends of epochs, periods, intervals."""

from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow.processors import describe_policy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": "3"}, "epochs must be a number"),
        ({"seconds": "60"}, "seconds must be a number"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"rows": 1.5}, "rows must be a number"),
        ({"rows": True}, "rows must be a number"),
        ({"seconds": -1}, "seconds must be a number, 0 or more"),
        ({"event_time": "at"}, "give event_time and every together"),
        ({"every": "1 day"}, "give event_time and every together"),
        ({"event_time": "at", "every": "daily"}, "write a number and a unit of .*, as in '15 minutes'"),
        ({"event_time": "at", "every": 60}, "every must be text"),
        ({"when": " "}, "when must be text"),
        ({"when": object()}, "when must be text"),
        ({"event_time": "at", "every": "0 days"}, "write a number and a unit of .*, as in '15 minutes'"),
    ],
)
def test_ends_of_epochs_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] Batch\(.*: .*{said}"):
        bl.Batch(**options)


@pytest.mark.parametrize(
    ("every", "seconds"), [("1 second", 1), ("15 minutes", 900), ("2 Hours", 7200), ("1 week", 604800)]
)
def test_a_period_is_written_as_for_windows(every: str, seconds: int) -> None:
    assert bl.Batch(event_time="at", every=every).period == seconds * 10**6


@pytest.mark.parametrize("every", ["20", 2.5, True])
def test_an_interval_that_is_no_number_of_steps_is_refused(every: Any) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] Lazy\(every=.*\): every must be a number of steps"):
        bl.Lazy(every=every)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"when": "sometimes"}, "when must be a function of a step's number"),
        ({"log_messages": ["totals"]}, "write names of readers, each with True or False"),
        ({"log_messages": {"totals": 1}}, "write names of readers, each with True or False"),
    ],
)
def test_local_policies_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] Lazy\(.*: .*{said}"):
        bl.Lazy(**options)


def test_a_policy_is_described_with_the_name_of_its_function() -> None:
    def after_a_million(step: Any, since: bl.SinceCheckpoint) -> bool:
        return since.rows >= 1_000_000

    assert describe_policy(bl.Lazy(None, when=after_a_million)) == "Lazy(every=None, when=after_a_million)"
    assert describe_policy(bl.Lazy(log_messages={"totals": True})) == "Lazy(every=20, log_messages={'totals': True})"
