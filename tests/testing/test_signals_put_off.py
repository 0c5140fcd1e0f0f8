"""A signal that comes while a process is started is put off until the process is known."""

from __future__ import annotations

import os
import signal

import pytest

from boatlift.testing.crash_runs import _uninterrupted


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    before = signal.signal(number, _interrupt)
    come_so_far: list[str] = []
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the place where it is raised matters
            with _uninterrupted():
                os.kill(os.getpid(), number)
                come_so_far.append("to the end")
            come_so_far.append("behind it")
        assert come_so_far == ["to the end"]
        assert signal.getsignal(number) is _interrupt
    finally:
        signal.signal(number, before)
