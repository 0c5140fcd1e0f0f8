"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until", "within"]

Found = TypeVar("Found")


def until(holds: Callable[[], Found], seconds: float = 240) -> Found:
    """Asks again and again until something holds; gives it."""
    found = within(seconds, holds)
    assert found, f"waited {seconds} s in vain"
    return found


def within(seconds: float, holds: Callable[[], Found]) -> Found:
    """Asks again and again until something holds, for so many seconds at most; gives the last answer."""
    deadline = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return found
