"""Policies: what a processor makes durable, and when; so, what a crash may cost it (design, section 2).

A policy never changes a result. It can be changed between two runs of one program, with two exceptions. `History` of a
processor that reads a source whose rows are kept nowhere (`bl.push(…, ack="stable")`) stays. `Eager` or `History` of a
transform within a chain divides the program into other units, which needs a clean stop before (`runtime/evolution.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from boatlift.dataflow.period import HOW_TO_WRITE, microseconds_in
from boatlift.errors import InvalidError

__all__ = ["Batch", "Eager", "Ephemeral", "History", "InFlight", "Lazy", "Policy", "batch_of"]

InFlight = Literal["behind"] | bool
"""The checkpoints that keep data in flight: those that a reader lags behind, all, or none."""


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """Keeps nothing between times and makes nothing durable: re-executed from upstream after a failure."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Keeps nothing between its coarse epochs, and makes what it sends durable when one is over: a firewall.

    An epoch ends, with all steps that are there by then, once all of the conditions below hold, or once no input will
    come any more. Its end is a determinant. If a condition asks rows, the epoch ends with the step that fulfils it,
    though more steps may be there.

    Args:
        epochs: The epoch covers at least so many steps of the input. None: one.
        seconds: The epoch lasts at least so long, by the clock, from its first step on.
        event_time: A column of dates or timestamps: the epoch's rows reach beyond the period in which its first step
            ends.
        every: The length of such a period, as in `"1 day"`; periods begin where those of Spark's `window` do.
        when: An SQL condition over all rows of a step, as in `"count_if(kind = 'close') > 0"`: it is true for one step.
        rows: A bound: whatever the other conditions say, the epoch ends with the step that brings it to so many rows.
            Rows of a step that nobody has counted yet are counted for that, in a small job of their own. None: none.
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
                "column, and how long a period of it is",
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
        """The length of `every` in microseconds; 0 if it is no period."""
        return microseconds_in(self.every or "")

    @property
    def asks_rows(self) -> bool:
        """True if the end of an epoch depends on the rows of its steps."""
        return self.judges_rows or self.rows is not None

    @property
    def judges_rows(self) -> bool:
        """True if it depends on what is in the rows, beyond their number."""
        return self.event_time is not None or self.when is not None

    @property
    def is_bound_alone(self) -> bool:
        """True if nothing but the number of rows ends an epoch."""
        return self.rows is not None and self == Batch(rows=self.rows)


@dataclass(frozen=True, slots=True)
class Lazy:
    """Keeps state and makes it durable at intervals, incrementally.

    Without `every` and `seconds` there is no checkpoint at all: determinants alone are durable (input logging), and a
    replay begins at the start.

    Args:
        every: A checkpoint after every so many steps, at least 1. Small: quick recovery; large: cheap steps. None: not
            by steps.
        seconds: A checkpoint so many seconds after the first step that is in none, by the clock of the steps, also if
            no further step comes. None: not by the clock.
        in_flight: The messages that a checkpoint keeps beside the state: those sent and not yet in the durable state of
            their reader (FLIP-76). After a failure of everything the processor then goes on from that checkpoint, and
            the messages are put back before new ones; without them it goes back as far as its slowest reader needs.
            `"behind"`: the messages of a reader that lags by more than `every` steps, its own or those of the reader,
            whichever is more; in steady running with like intervals there are none. A reader of which nothing becomes
            durable does not count. True: the messages of every reader. False: none.
    """

    every: int | None = 20
    seconds: float | None = None
    in_flight: InFlight = "behind"

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise InvalidError("BAD_OPTION", f"Lazy(every={self.every}): every must be at least 1 step")
        fits = isinstance(self.seconds, int | float) and 0 < self.seconds < float("inf")
        if self.seconds is not None and not fits:
            raise InvalidError(
                "BAD_OPTION", f"Lazy(seconds={self.seconds!r}): seconds must be a number above 0, or None"
            )
        if not (isinstance(self.in_flight, bool) or self.in_flight == "behind"):
            raise InvalidError(
                "BAD_OPTION", f'Lazy(in_flight={self.in_flight!r}): in_flight must be "behind", True or False'
            )


@dataclass(frozen=True, slots=True)
class Eager:
    """Keeps state; makes state and messages durable at every step, for results that must never be computed again."""


@dataclass(frozen=True, slots=True)
class History:
    """Keeps inputs; a replay of them takes the processor back to any frontier. For any deterministic processor.

    Every row that the processor takes is durable, or can be read again from its source, but nothing that it makes of
    them. A processor with state keeps its inputs for as long as the dataflow lasts, because its state is made of all of
    them. A processor without state keeps an input until no recovery can ask for what comes of it.

    Args:
        batch: Of a processor with epochs of its own (`gather`, `recompute`): the end of an epoch. Its result is then
            not durable, and the end of the epoch alone is. None for every other processor.
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


def batch_of(policy: Policy) -> Batch | None:
    """Return what ends the epochs of a batch that has this policy; None if it is no policy of a batch."""
    return policy.batch if isinstance(policy, History) else policy if isinstance(policy, Batch) else None
