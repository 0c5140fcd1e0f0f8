"""The progress of a running dataflow, as a side collects it, with times."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Seen", "Watch"]


class Seen(NamedTuple):
    """One `boatlift.Progress`, and when it came (monotonic seconds)."""

    at: float
    progress: Any


class Watch:
    """A collector of a dataflow's progress (its `on_progress`), by kind and processor.

    Attributes:
        running: The dataflow (`boatlift.Running`), once it was started.
    """

    def __init__(self) -> None:
        self.running: Any = None
        self._seen: dict[tuple[str, str], list[Seen]] = defaultdict(list)
        self._changed = threading.Condition()

    def __call__(self, progress: Any) -> None:
        """Add one piece of progress."""
        with self._changed:
            self._seen[progress.what, progress.processor].append(Seen(time.monotonic(), progress))
            self._changed.notify_all()

    def of(self, what: str, processor: str) -> list[Seen]:
        """Return all progress of a kind (`step`, `commit`, `checkpoint`, `failure`), in order."""
        return self._seen[what, processor]

    def last(self, what: str, processor: str) -> int:
        """Return the time of the last of a kind, -1 if there is none."""
        seen = self._seen[what, processor]
        return seen[-1].progress.time if seen else -1

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until a condition holds.

        Raises:
            RuntimeError: The dataflow ended before.
        """
        with self._changed:
            while not done():
                self._changed.wait(0.1)
                if not self.running.is_active:
                    self.running.wait()
                    raise RuntimeError("the dataflow ended and was not stopped")
