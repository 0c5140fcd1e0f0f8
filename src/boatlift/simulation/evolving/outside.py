"""What outlives the processes of a life: the rows of sources, the places of sinks, and the disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from boatlift.errors import DivergedError, FencedError
from boatlift.simulation.disk import Disk
from boatlift.simulation.evolving.operators import Row, RowWeights, total
from boatlift.storage.log_reader import LOG
from boatlift.storage.records.codec import decode_group
from boatlift.storage.records.records import Record

MOST_ROWS = 4  # of a step of a source


def in_steps(rows: Sequence[Row], end: int) -> list[RowWeights]:
    """Divide the first rows of a source into steps anew."""
    return [dict.fromkeys(rows[at : min(end, at + MOST_ROWS)], 1) for at in range(0, end, MOST_ROWS)]


class Judge(Protocol):
    """Compares what becomes durable and visible with what it must be."""

    def note(self, record: Record) -> None:
        """A record is durable in the log."""

    def knows(self, sink: str) -> bool:
        """Return whether the newest program has a sink."""

    def shown(self, sink: str, step: int, content: RowWeights) -> None:
        """A sink shows its content after a step, by its own number."""

    def delivered(self, sink: str, step: int, rows: RowWeights) -> None:
        """A sink without a ledger was delivered a step."""


class WatchedDisk(Disk):
    """A disk that tells a judge each record of the log once it is durable, whether its writer learns of that or not."""

    judge: Judge

    def create(self, name: str, content: bytes | Path) -> None:
        die, self.die = self.die, self._told(name, content)
        try:
            super().create(name, content)
        finally:
            self.die = die

    def _told(self, name: str, content: bytes | Path) -> Callable[[], None]:
        die = self.die

        def told() -> None:
            if name in self.objects and name.startswith(LOG):
                assert isinstance(content, bytes)
                for record in decode_group(content, name)[1]:
                    self.judge.note(record)
            die()

        return told


@dataclass(slots=True)
class LedgerPlace:
    """The place of a sink, with its ledger: the rows of each of its own steps.

    Attributes:
        token: Of the newest owner that has opened it.
        owners: The token of the owner that gave, or emptied, each step.
    """

    token: int = 0
    steps: list[RowWeights] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)

    def content(self, upto: int | None = None) -> RowWeights:
        """Return the sum of its steps, up to one of them or to the newest."""
        return total(*(self.steps if upto is None else self.steps[: upto + 1]))


class Outside:
    """Sources, and the places of sinks, all by the names that they had first.

    Attributes:
        rows: Source to all its rows so far.
        places: Sink to its place; a place stays when its sink goes.
        die: Called before and after each effect; raises `CrashError` if the process crashes there.
    """

    def __init__(self, judge: Judge, die: Callable[[], None]) -> None:
        self._judge, self.die = judge, die
        self.rows: dict[str, list[Row]] = {}
        self.places: dict[str, LedgerPlace] = {}

    def steps(self, sink: str) -> list[RowWeights]:
        """Return the steps that the place of a sink holds."""
        return self.places[sink].steps if sink in self.places else []

    def open(self, sink: str, token: int) -> int:
        """Take a sink over, and return the number of its newest step; -1 for none.

        Raises:
            FencedError: a newer owner has taken it over.
        """
        place = self.places.setdefault(sink, LedgerPlace())
        self._fence(sink, token)
        self.die()
        place.token = token
        self.die()
        return len(place.steps) - 1

    def commit(self, sink: str, token: int, step: int, rows: RowWeights) -> None:
        """Make a step visible; one that the sink holds is compared and dropped.

        Raises:
            AssertionError: the step leaves a gap, or the content is wrong.
            DivergedError: the sink holds another step.
            FencedError: a newer owner has taken it over.
        """
        place = self.places[sink]
        self._fence(sink, token)
        assert step <= len(place.steps), f"{sink} is handed its step {step}, and holds {len(place.steps)} steps"
        if step < len(place.steps):
            if place.steps[step] != rows:
                raise DivergedError("DIVERGED", f"{sink} holds another step {step}")
            return
        self.die()
        place.steps.append(dict(rows))
        place.owners.append(token)
        self._judge.shown(sink, step, place.content())
        self.die()

    def take_back(self, sink: str, token: int, step: int) -> None:
        """Empty the steps of a sink after one, the newest first.

        Raises:
            FencedError: a newer owner has taken it over.
        """
        place = self.places[sink]
        for number in range(len(place.steps) - 1, step, -1):
            self._fence(sink, token)
            self.die()
            if place.steps[number]:
                place.steps[number], place.owners[number] = {}, token
            self.die()

    def newest_owner(self, sink: str, step: int) -> int:
        """Return the token of the newest owner of the steps up to one, as far back as they have no rows."""
        place, newest = self.places[sink], 0
        for number in range(step, -1, -1):
            newest = max(newest, place.owners[number])
            if place.steps[number]:
                break
        return newest

    def deliver(self, sink: str, token: int, step: int, rows: RowWeights) -> None:
        """Deliver a step to a receiver that keeps no ledger and fences no owner; an older one may deliver anything."""
        self.die()
        if token >= max(place.token for name, place in self.places.items() if self._judge.knows(name)):
            self._judge.delivered(sink, step, rows)
        self.die()

    def _fence(self, sink: str, token: int) -> None:
        if token < self.places[sink].token:
            error = FencedError("FENCED", f"{sink} has a newer owner")
            error.newest = self.places[sink].token
            raise error
