"""The events of a run, taken from its reports: failures, replays that have ended, takeovers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from boatlift.dataflow.contracts.durations import Durations
from boatlift.errors import BoatliftError
from boatlift.runtime.host.progress import Progress
from boatlift.storage.records.journal import RunEvent

KEPT = 100
"""So many events are remembered, the newest ones."""

LONGEST = 2_000
"""A longer text is cut."""


@dataclass(slots=True)
class _Replay:
    began: int
    last: int  # the step with which it ends
    steps: int = 0  # that were executed again
    restarted: bool = False  # by a start, not by a failure of its own


class RunEvents:
    """Collects the events of one run, on the thread that reports.

    Args:
        clock: Milliseconds since 1970.

    Attributes:
        newest: The newest events, oldest first.
        recoveries: Cause (`start`, `takeover` or `failure`) to the durations of recoveries, each until all steps that
            were executed before are executed again: of a start or a takeover from `begins` on, of a unit that has
            failed from its failure on.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.newest: deque[RunEvent] = deque(maxlen=KEPT)
        self._fresh: deque[RunEvent] = deque(maxlen=KEPT)
        self._furthest: dict[str, int] = {}  # unit to the last step that it has executed
        self._failed: dict[str, int] = {}  # unit to the time of its failure
        self._replays: dict[str, _Replay] = {}
        self.recoveries: dict[str, Durations] = {"failure": Durations()}
        self._started = clock()
        self._cause = ""
        self._restarted: dict[str, int] = {}  # unit to the last step that it executes again because of the start

    def begins(self, cause: str) -> None:
        """Note why the run recovers: `start` or `takeover`; before the first step, and before `begun`."""
        self._cause, self.recoveries[cause] = cause, Durations()

    def begun(self) -> None:
        """Note that all replays of the start were reported, and that steps may follow."""
        self._end_start()

    def watched(self, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return a function that takes a report, and passes it on."""

        def watch(progress: Progress) -> None:
            name = progress.processor
            if progress.what == "step":
                if progress.time >= self._restarted.get(name, progress.time + 1):
                    del self._restarted[name]
                    self._end_start()
                if progress.replay:
                    self._repeated(progress)
                else:  # what failed before, or was executed again, is over
                    self._furthest[name] = progress.time
                    self._failed.pop(name, None)
                    self._replays.pop(name, None)
            elif progress.what in ("failure", "takeover"):
                now = self._clock()
                self._add(RunEvent(now, progress.what, name, progress.time, _cut(progress.said)))
                self._failed.setdefault(name, now)
                self._replays.pop(name, None)
            elif progress.what == "replay":
                self._replays[name] = _Replay(self._clock(), progress.time, restarted=True)
                self._restarted[name] = progress.time
                self._furthest[name] = progress.time
            report(progress)

        return watch

    def ended(self, dataflow: str, error: Exception) -> None:
        """Add the failure that ends the run."""
        self._add(failure_of(self._clock(), dataflow, error))

    @property
    def has_fresh(self) -> bool:
        """Whether there are events since the last call of `since_last`."""
        return bool(self._fresh)

    def since_last(self) -> tuple[RunEvent, ...]:
        """Return the events since the last call, as far as they are remembered; from one thread at a time."""
        taken: list[RunEvent] = []
        while self._fresh:  # another thread adds to it
            taken.append(self._fresh.popleft())
        return tuple(taken)

    def _end_start(self) -> None:
        if not self._restarted:
            self.recoveries[self._cause].add(max(0, self._clock() - self._started) / 1000)

    def _add(self, event: RunEvent) -> None:
        self.newest.append(event)
        self._fresh.append(event)

    def _repeated(self, step: Progress) -> None:
        name = step.processor
        replay = self._replays.get(name)
        if replay is None:
            began = self._failed.get(name, self._clock())
            replay = self._replays[name] = _Replay(began, self._furthest.get(name, step.time))
        replay.steps += 1
        if step.time < replay.last:
            return
        del self._replays[name]
        has_failed = self._failed.pop(name, None) is not None  # a unit behind it may only execute steps again
        self._furthest[name] = replay.last
        now = self._clock()
        if has_failed and not replay.restarted:
            self.recoveries["failure"].add(max(0, now - replay.began) / 1000)
        again = f"{replay.steps} {'step' if replay.steps == 1 else 'steps'}"
        said = f"executed {again} again, up to step {replay.last}"
        self._add(RunEvent(now, "replay", name, replay.last, said, replay.steps, float(max(0, now - replay.began))))


def failure_of(at: int, dataflow: str, error: Exception, after: str = "") -> RunEvent:
    """Return the failure that ends a run, or a start.

    Args:
        after: Follows the error.
    """
    said = str(error) if isinstance(error, BoatliftError) else f"{type(error).__name__}: {error}"
    return RunEvent(at, "failure", dataflow, -1, _cut(said) + after)


def _cut(text: str) -> str:
    """Return a text that can be written: not too long, and without halves of surrogate pairs."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return cut.encode(errors="backslashreplace").decode()
