"""What `boatlift status` says of a stream with a watermark."""

from __future__ import annotations

import pytest

from boatlift.operators.watermark.operator import EventTimeStatus


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (EventTimeStatus(step=0, bound=None, late=0), "no row with a time yet; 0 rows were late"),
        (EventTimeStatus(step=0, bound=7, late=1), "watermark 7: rows before it are late; 1 row was late"),
        (EventTimeStatus(step=0, bound=7, late=6018), "watermark 7: rows before it are late; 6,018 rows were late"),
        (
            EventTimeStatus(step=0, bound=7, late=0, idle=True),
            "watermark 7: rows before it are late; it is idle; 0 rows were late",
        ),
    ],
)
def test_the_watermark_is_named_and_late_rows_are_counted(status: EventTimeStatus, words: str) -> None:
    assert status.in_words(str) == words
