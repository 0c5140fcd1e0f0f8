"""The end of a process at a certain moment, as far as its dataflow can tell."""

from __future__ import annotations

from collections.abc import Callable

from boatlift.runtime.host.progress import Progress


class DiesError(BaseException):
    """Nobody catches it: what was not durable by then is gone."""


def dying_at(what: str, processor: str, nth: int = 1, *, time: int | None = None) -> Callable[[Progress], None]:
    """Return a watcher that dies at the nth progress of a processor; of one time, if one is given."""
    seen = 0

    def watch(progress: Progress) -> None:
        nonlocal seen
        seen += (progress.what, progress.processor) == (what, processor) and time in (None, progress.time)
        if seen == nth:
            raise DiesError

    return watch
