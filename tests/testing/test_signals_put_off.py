"""A signal that comes while a process is started is put off until the process is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from boatlift.testing.crash_runs import _uninterrupted


@pytest.fixture(autouse=True)
def _heeds_interrupts() -> Iterator[None]:
    """A shell starts what runs in the background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_waits_for_the_end_of_the_block() -> None:
    before = signal.getsignal(signal.SIGINT)
    come_so_far: list[str] = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the place where it is raised matters
        with _uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            come_so_far.append("to the end")
        come_so_far.append("behind it")
    assert come_so_far == ["to the end"]
    assert signal.getsignal(signal.SIGINT) is before
