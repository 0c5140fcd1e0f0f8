"""Where each processor is: the state machine's own state, in three small parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from boatlift.runtime.events import StepResult
from boatlift.runtime.instructions import Run
from boatlift.storage.records import Input

__all__ = ["SinkProgress", "SourceProgress", "UnitProgress"]


@dataclass(slots=True)
class SourceProgress:
    """A source: the determinants made, the next time to close.

    Attributes:
        inputs: Made and not yet stable, by time.
        next: The next time to close.
        replay_until: The last time that was recorded before this process began.
        asked: Whether it has answered once: what it has then runs along with what is replayed.
    """

    inputs: dict[int, Input]
    next: int
    replay_until: int
    polling: bool = False
    idle: bool = False
    asked: bool = False

    def take(self, made: Input) -> None:
        """Notes a time that was closed."""
        self.inputs[made.time] = made
        self.next = made.time + 1
        self.polling, self.asked = False, True

    def give_nothing(self) -> None:
        """Notes that it has nothing new."""
        self.polling, self.idle, self.asked = False, True, True


@dataclass(slots=True)
class UnitProgress:
    """A unit: how far it is, what it runs, what it saves.

    Attributes:
        completed: The last time executed.
        saved: The last time whose checkpoint is durable.
        running: What the engine runs.
        prepared: What the engine was told to get ready for, to be run next.
        freed: The last time whose scratch files are dropped.
    """

    completed: int
    saved: int
    running: Run | None = None
    prepared: Run | None = None
    saving: int | None = None
    wants_save: bool = False
    freed: int = field(init=False)

    def __post_init__(self) -> None:
        self.freed = self.completed

    @property
    def ordered(self) -> int:
        """The last time executed or being executed."""
        return self.completed if self.running is None else self.running.last


@dataclass(slots=True)
class SinkProgress:
    """A sink: what was handed to it, what it holds.

    Attributes:
        placed: The last time handed over in this process.
        held: The last time it holds; on a replay ahead of `placed`.
        waiting: Results staged for it, by time.
    """

    placed: int
    held: int
    waiting: dict[int, StepResult] = field(default_factory=dict)
    committing: int | None = None
