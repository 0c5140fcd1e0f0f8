"""Policies: what a processor makes durable and when, and so the cost of a crash (design, section 2).

A policy never changes a result, and may differ between two runs of one program, with two exceptions. `History` after
`bl.push(…, ack="stable")`, whose rows are kept nowhere else, cannot be removed. `Eager` or `History` for a transform
within a chain divides the program into other units, which needs a clean shutdown before (`runtime/evolution.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from boatlift.errors import InvalidError

HeldState = Literal["in place", "in memory"]

InFlight = Literal["behind"] | bool  # which checkpoints include messages in flight: with a lagging reader, all, or none


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """No state and nothing durable: after a failure, steps are executed again from upstream."""


@dataclass(frozen=True, slots=True)
class Batch:
    """No state between coarse epochs. The output of an epoch is durable when the epoch ends, so no failure crosses it.

    An epoch ends, with all steps available by then, once all conditions below hold, or once the input has ended. Its
    end is a determinant. If a condition examines rows, the epoch ends with the step that fulfils it, even if more steps
    are available.

    Args:
        epochs: Minimum number of input steps; None for one.
        seconds: Minimum duration, by the clock, from the epoch's first step on.
        event_time: A column of dates or timestamps: the epoch's rows reach beyond the period in which its first step
            ends.
        every: The length of such a period, as in `"1 day"`; periods are aligned as those of Spark's `window`.
        when: An SQL condition over all rows of a step, as in `"count_if(kind = 'close') > 0"`, true for some step.
        rows: Maximum number of rows: the epoch ends with the step that reaches it, whatever the other conditions. A
            small job counts the rows of a step if they are not counted yet. None for no maximum.
    """

    epochs: int | None = None
    seconds: float = 0.0
    event_time: str | None = None
    every: str | None = None
    when: str | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            self._check_kind(name, getattr(self, name))
        if self.epochs is not None and self.epochs < 1:
            raise InvalidError("BAD_OPTION", f"Batch(epochs={self.epochs}): epochs must be at least 1")
        if self.rows is not None and self.rows < 1:
            raise InvalidError("BAD_OPTION", f"Batch(rows={self.rows}): rows must be at least 1")
        if not 0 <= self.seconds < float("inf"):
            raise InvalidError("BAD_OPTION", f"Batch(seconds={self.seconds}): seconds must be a number, 0 or more")
        if (self.event_time is None) != (self.every is None):
            raise InvalidError(
                "BAD_OPTION",
                f"Batch(event_time={self.event_time!r}, every={self.every!r}): give event_time and every together: a "
                "column, and the length of a period",
            )
        if self.every is not None and not self.period:
            raise InvalidError("BAD_OPTION", f"Batch(every={self.every!r}): {HOW_TO_WRITE}")

    @staticmethod
    def _check_kind(name: str, given: object) -> None:
        if name in ("epochs", "rows", "seconds"):
            fits = isinstance(given, int | float if name == "seconds" else int) and not isinstance(given, bool)
        else:
            fits = isinstance(given, str) and bool(given.strip())
        if not (fits or (given is None and name != "seconds")):
            wanted = "a number" if name in ("epochs", "rows", "seconds") else "text"
            raise InvalidError("BAD_OPTION", f"Batch({name}={given!r}): {name} must be {wanted}")

    @property
    def period(self) -> int:
        """`every` in microseconds; 0 if it is no duration."""
        return microseconds_in(self.every or "")

    @property
    def asks_rows(self) -> bool:
        """Whether the end of an epoch depends on the rows of its steps."""
        return self.judges_rows or self.rows is not None

    @property
    def judges_rows(self) -> bool:
        """Whether the end of an epoch depends on values in the rows, not only on their number."""
        return self.event_time is not None or self.when is not None

    @property
    def is_bound_alone(self) -> bool:
        return self.rows is not None and self == Batch(rows=self.rows)


@dataclass(frozen=True, slots=True)
class SinceCheckpoint:
    """What a processor has done since its last checkpoint, for `Lazy(when=…)`.

    Attributes:
        steps: Its steps, at least 1.
        rows: The rows that they took.
        bytes: The bytes by which they made the files of the state grow.
        seconds: The time from the first of them to the last, by the recorded clock of their sources; after a checkpoint
            by the clock no earlier than this checkpoint was due.
    """

    steps: int
    rows: int
    bytes: int
    seconds: float


CheckpointRule = Callable[[Any, SinceCheckpoint], bool]
"""Whether a checkpoint is made after the step with this number."""


@dataclass(frozen=True, slots=True)
class Lazy:
    """State with incremental checkpoints at intervals.

    Without `every`, `seconds` and `when` there are no checkpoints: only determinants are durable (input logging), and a
    replay begins at the start.

    Args:
        every: Steps from one checkpoint to the next, at least 1: few for quick recovery, many for cheap steps. None for
            no checkpoints by steps.
        seconds: Seconds from the first step after a checkpoint to the next checkpoint, by the clock of the steps, also
            without further steps. None for no checkpoints by the clock.
        in_flight: Which checkpoints include messages that are not yet in the durable state of their reader (FLIP-76).
            After a failure of everything the processor continues from a checkpoint with them, and sends them again
            before new ones; without them it goes back as far as its slowest reader needs. `"behind"`: messages for a
            reader that lags by more than the larger `every` of the two, which is rare if both are alike; a reader
            without durable state does not count. True: messages for every reader. False: none.
        when: A function of a step's number and of a `SinceCheckpoint`, called after each step that `every` gives no
            checkpoint: True for one. It changes only what is kept, so it is recorded nowhere, and may look at anything
            (Falkirk Wheel §4.1). If it raises, the run stops with `[WHEN_FAILED]`.
        log_messages: The names of processors and sinks that read this one, each with True: every message to them is
            durable as it is sent, so that no failure of theirs rolls this processor back (Falkirk Wheel §4.1).
        state: `"in place"`: the state is used and updated on disk, and may be larger than memory (persistent state).
            `"in memory"`: it is in the memory of the driver's computer, and a start loads it from the last checkpoint
            (checkpoint and restore). It may change at any start.

    Examples:
        >>> large = bl.Lazy(every=None, when=lambda step, since: since.rows >= 1_000_000)
        >>> large.when(7, bl.SinceCheckpoint(steps=3, rows=2_000_000, bytes=80_000_000, seconds=1.5))
        True
    """

    every: int | None = 20
    seconds: float | None = None
    in_flight: InFlight = "behind"
    when: CheckpointRule | None = None
    log_messages: Mapping[str, bool] = field(default_factory=dict, hash=False)
    state: HeldState = "in place"

    def __post_init__(self) -> None:
        steps: object = self.every
        if steps is not None and (isinstance(steps, bool) or not (isinstance(steps, int) and steps >= 1)):
            raise InvalidError("BAD_OPTION", f"Lazy(every={steps!r}): every must be a number of steps, at least 1")
        fits = isinstance(self.seconds, int | float) and 0 < self.seconds < float("inf")
        if self.seconds is not None and not fits:
            raise InvalidError(
                "BAD_OPTION", f"Lazy(seconds={self.seconds!r}): seconds must be a number above 0, or None"
            )
        if not (isinstance(self.in_flight, bool) or self.in_flight == "behind"):
            raise InvalidError(
                "BAD_OPTION", f'Lazy(in_flight={self.in_flight!r}): in_flight must be "behind", True or False'
            )
        if not (self.when is None or callable(self.when)):
            raise InvalidError(
                "BAD_OPTION",
                f"Lazy(when={self.when!r}): when must be a function of a step's number and what was done since the "
                "last checkpoint, as in lambda step, since: since.rows > 1_000_000",
            )
        self._check_logged(self.log_messages)
        if self.state not in ("in place", "in memory"):
            raise InvalidError("BAD_OPTION", f'Lazy(state={self.state!r}): state must be "in place" or "in memory"')

    @staticmethod
    def _check_logged(given: object) -> None:
        if not isinstance(given, Mapping) or not all(
            isinstance(name, str) and isinstance(logged, bool) for name, logged in given.items()
        ):
            raise InvalidError(
                "BAD_OPTION",
                f"Lazy(log_messages={given!r}): write names of readers, each with True or False, as in "
                "{'totals': True}",
            )

    @property
    def has_checkpoints(self) -> bool:
        """Whether the state becomes durable at all; if not, the policy is input logging."""
        return not (self.every is None and self.seconds is None and self.when is None)

    @property
    def approach(self) -> str:
        """The approach to fault tolerance, by its name in Feldera's design.

        Examples:
            >>> bl.Lazy(None).approach, bl.Lazy(20, state="in memory").approach, bl.Lazy(20).approach
            ('input logging', 'checkpoint and restore', 'persistent state')
        """
        if not self.has_checkpoints:
            return "input logging"
        return "checkpoint and restore" if self.state == "in memory" else "persistent state"

    @property
    def logged_readers(self) -> frozenset[str]:
        """The readers whose messages all become durable."""
        return frozenset(name for name, logged in self.log_messages.items() if logged)


CHECKPOINTED = Lazy(every=20, seconds=60)
"""The policy of a state if none is given (Feldera, fault tolerance: a checkpoint every 60 s by default)."""


@dataclass(frozen=True, slots=True)
class Eager:
    """State, with state and messages durable at every step, for results that must never be computed again."""


@dataclass(frozen=True, slots=True)
class History:
    """Logged input, whose replay restores any frontier. For any deterministic processor.

    Every input row is durable, or can be read again from its source; no output is. A processor with state keeps its
    input for the life of the dataflow, a processor without state until no recovery needs it.

    Args:
        batch: The end of an epoch, for a processor with coarse epochs (`gather`, `recompute`): then only the end of the
            epoch is durable, not its result. None for every other processor.
    """

    batch: Batch | None = None

    def __post_init__(self) -> None:
        if not (self.batch is None or isinstance(self.batch, Batch)):
            raise InvalidError(
                "BAD_OPTION",
                f"History({self.batch!r}): give it nothing, or for a batch the end of an epoch, as in "
                "History(Batch(seconds=60))",
            )


Policy = Ephemeral | Batch | Lazy | Eager | History


def holds_in_memory(policy: Policy) -> bool:
    """Return whether a state is in memory only, between its checkpoints."""
    return isinstance(policy, Lazy) and policy.state == "in memory"


def batch_of(policy: Policy) -> Batch | None:
    """Return the conditions that end the epochs of a batch with this policy; None if it is no policy of a batch."""
    return policy.batch if isinstance(policy, History) else policy if isinstance(policy, Batch) else None


_MICROSECONDS = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}
_MICROSECONDS["week"] = 7 * _MICROSECONDS["day"]
_PERIOD = re.compile(rf"(?P<count>[1-9]\d*) (?P<unit>{'|'.join(_MICROSECONDS)})s?")
_NONE = re.compile(rf"0 ({'|'.join(_MICROSECONDS)})s?")

HOW_TO_WRITE = f"write a number and a unit of {', '.join(_MICROSECONDS)}, as in '15 minutes'"


def microseconds_in(text: str) -> int:
    """Return a duration in microseconds; 0 if the text is none."""
    found = _PERIOD.fullmatch(text.strip().lower())
    return int(found["count"]) * _MICROSECONDS[found["unit"]] if found else 0


@dataclass(frozen=True, slots=True)
class Keep:
    """Which restore points a running dataflow keeps: moments to which `boatlift rewind` takes it back with its sinks.

    A point costs the states of that moment, as far as later ones do not share them; at each point input waits until the
    steps under way have ended.

    Args:
        period: How long a point is kept, such as `"7 days"`.
        every: The time from one point to the next, such as `"1 hour"`; none is taken while nothing happens.

    Examples:
        >>> bl.Dataflow("flights", keep=bl.Keep("7 days", every="1 hour")).keep.every
        '1 hour'
    """

    period: str
    every: str

    def __post_init__(self) -> None:
        seconds_in(self.period, "Keep")
        seconds_in(self.every, "every")


def seconds_in(text: object, option: str) -> float:
    """Return a duration in seconds.

    Raises:
        InvalidError: `[BAD_OPTION]` the text is no duration.
    """
    microseconds = microseconds_in(text) if isinstance(text, str) else 0
    if not microseconds:
        raise InvalidError("BAD_OPTION", f"{option}={text!r}: {HOW_TO_WRITE}")
    return microseconds / 10**6


def lateness_in(text: object, option: str) -> int:
    """Return a duration in milliseconds, which may be zero (`"0 seconds"`); see `seconds_in`."""
    if isinstance(text, str) and _NONE.fullmatch(text.strip().lower()):
        return 0
    return round(seconds_in(text, option) * 1000)


def depth_of(determinants: object) -> int:
    """Return the number of standbys that must hold what was chosen to make it count; 0 if the store alone counts.

    Args:
        determinants: `"store"`, or `"peers:d"`.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if determinants == "store":
        return 0
    found = re.fullmatch(r"peers:([1-9][0-9]?)", determinants) if isinstance(determinants, str) else None
    if found is None:
        raise InvalidError(
            "BAD_OPTION",
            f"determinants={determinants!r}: write 'store', or 'peers:1' for one standby that holds them (up to 99)",
        )
    return int(found[1])
