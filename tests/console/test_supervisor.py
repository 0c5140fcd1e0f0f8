"""The beats of a supervised run."""

from __future__ import annotations

import os

import pytest

from boatlift.console.supervisor import BEATS, beating
from boatlift.runtime.host.progress import Progress


def test_a_beat_distinguishes_new_steps_replayed_steps_and_the_end_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Progress] = []
    assert beating(seen.append) == seen.append, "a run without a supervisor"
    reading, writing = os.pipe()
    monkeypatch.setenv(BEATS, str(writing))
    report = beating(seen.append)
    given = [
        Progress("beat", "flow", -1),
        Progress("step", "sums", 0, replay=True),
        Progress("step", "sums", 1),
        Progress("step", "sums", 2),
        Progress("beat", "flow", -1),
        Progress("over", "flow", -1),
    ]
    for each in given:
        report(each)
    os.close(writing)
    assert os.read(reading, 100) == b".+.|"
    os.close(reading)
    assert seen == given
    report(given[0])  # the supervisor is gone
    assert seen[-1] == given[0]
