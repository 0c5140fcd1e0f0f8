"""When an owner is taken for dead. Pure: times are arguments, in seconds of one steady clock."""

from __future__ import annotations

from collections import deque
from enum import Enum

BEAT_SECONDS = 0.1  # from one beat of the owner to the next

SILENT_SECONDS = 0.3  # an owner elsewhere without a beat for so long is suspected
SILENT_HERE_SECONDS = 1.0  # an owner on this host, of which the system says that it is running
STOPPED_HERE_SECONDS = 0.1  # an owner on this host that a signal has stopped
HUNG_SECONDS = 15.0  # an owner that beats, and whose event loop has not turned for so long
UNREACHED_SECONDS = 10.0  # an owner that was never heard, cannot be reached, and writes nothing
GAPS = 5  # the least silence is so many times the 99th percentile of the gaps between beats
REMEMBERED = 600  # the gaps of the last minute


class ProcessState(Enum):
    """What the system says of the owner's process; `UNKNOWN` for one on another host."""

    RUNNING = "running"
    STOPPED = "stopped"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Detector:
    """Suspects the owner of a dataflow.

    Laws:
        * A process of this host that has ended is suspected at once, and no other one without silence, a lost
          connection, or an event loop that stands still.
        * An owner that was heard of since the limit, by a beat or by an object of the log, is not suspected for its
          silence; only for an event loop that has not turned for `HUNG_SECONDS`.
        * The time in which the observer itself did not look counts for nothing.
        * An owner that was never heard is suspected for the end of its process alone; or if it cannot be reached, and
          writes nothing for `UNREACHED_SECONDS`.
    """

    def __init__(self, now: float) -> None:
        self._heard = self._looked = now
        self._beaten = self._refused = self._unreached = False
        self._stopped: float | None = None
        self._still = 0.0
        self._gaps: deque[float] = deque(maxlen=REMEMBERED)

    def heard_beat(self, now: float, still: float = 0.0) -> None:
        if self._beaten:
            self._gaps.append(now - self._heard)
        self._heard, self._beaten, self._still = max(now, self._heard), True, still
        self._refused = self._unreached = False

    def woke(self, now: float) -> None:
        """The observer is about to read what has come, and may have slept."""
        slept = now - self._looked
        if slept > SILENT_SECONDS / 2:  # what was sent meanwhile is read first
            self._heard += slept
            self._stopped = None
        self._looked = now

    def looked(self, now: float) -> None:
        """The observer is done with other work: it has not slept."""
        self._looked = now

    def grew(self, now: float) -> None:
        """The owner has written an object of the log."""
        self._heard = now

    def unreached(self, *, refused: bool) -> None:
        """The owner cannot be reached.

        Args:
            refused: Nobody listens at its address.
        """
        self._unreached, self._refused = True, refused

    def limit(self, process: ProcessState) -> float:
        """Return the silence in seconds after which the owner is suspected."""
        least = SILENT_SECONDS if process is ProcessState.UNKNOWN else SILENT_HERE_SECONDS
        if not self._gaps:
            return least
        return max(least, GAPS * sorted(self._gaps)[len(self._gaps) * 99 // 100])

    def suspicion(self, now: float, process: ProcessState) -> str:
        """Return why the owner is suspected; empty if it is not."""
        self.woke(now)
        if process is ProcessState.ENDED:
            return "its process has ended"
        if process is ProcessState.STOPPED:
            self._stopped = now if self._stopped is None else self._stopped
            return "its process is stopped" if now - self._stopped >= STOPPED_HERE_SECONDS else ""
        self._stopped = None
        if self._refused and self._beaten:
            return "nobody listens at its address any more"
        if self._still >= HUNG_SECONDS:
            return f"its event loop has not turned for {self._still:.0f} s"
        silence = now - self._heard
        if self._unreached and silence >= UNREACHED_SECONDS:
            return f"it cannot be reached, and has written nothing for {silence:.0f} s"
        if self._beaten and silence >= self.limit(process):
            return f"it has been silent for {1000 * silence:.0f} ms"
        return ""
