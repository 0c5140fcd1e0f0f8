"""The events of a run, taken from its reports: failures that are retried, replays that have ended, takeovers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from boatlift.runtime.host.progress import Progress
from boatlift.storage.records.journal import RunEvent

KEPT = 100
"""So many events are remembered, the newest ones."""

LONGEST = 2_000
"""A longer text is cut."""


class RunEvents:
    """Collects the events of one run, on the thread that reports.

    Args:
        clock: Milliseconds since 1970.

    Attributes:
        newest: The newest events, oldest first.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.newest: deque[RunEvent] = deque(maxlen=KEPT)
        self._fresh: deque[RunEvent] = deque(maxlen=KEPT)
        self._replays: dict[str, tuple[int, Progress]] = {}

    def watched(self, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return a function that takes a report, and passes it on."""

        def watch(progress: Progress) -> None:
            if progress.what == "step":
                if self._replays:
                    self._stepped(progress)
            elif progress.what in ("failure", "takeover"):
                self._add(
                    RunEvent(self._clock(), progress.what, progress.processor, progress.time, _cut(progress.said))
                )
            elif progress.what == "replay":
                self._replays[progress.processor] = self._clock(), progress
            report(progress)

        return watch

    def since_last(self) -> tuple[RunEvent, ...]:
        """Return the events since the last call, as far as they are remembered; from one thread at a time."""
        taken: list[RunEvent] = []
        while self._fresh:  # another thread adds to it
            taken.append(self._fresh.popleft())
        return tuple(taken)

    def _add(self, event: RunEvent) -> None:
        self.newest.append(event)
        self._fresh.append(event)

    def _stepped(self, step: Progress) -> None:
        began, replay = self._replays.get(step.processor, (0, None))
        if replay is None or step.time < replay.time:
            return
        del self._replays[step.processor]
        now = self._clock()
        again = f"{replay.behind} {'step' if replay.behind == 1 else 'steps'}"
        said = f"executed {again} again, up to step {replay.time}"
        self._add(RunEvent(now, "replay", step.processor, replay.time, said, replay.behind, float(now - began)))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
