"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

Found = TypeVar("Found")


def until(holds: Callable[[], Found], seconds: float = 60) -> Found:
    """Asks again and again until something holds; gives it."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(0.005)
    return found
