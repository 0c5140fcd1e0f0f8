"""The open epoch of a batch: what is known of the messages that wait for its end."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.dataflow import Batch
from boatlift.runtime.machine.events import RowProbe

__all__ = ["OpenEpoch"]


@dataclass(slots=True)
class OpenEpoch:
    """Counts, clocks and probes of messages, taken in one after the other.

    Attributes:
        steps: The number of messages.
        began, until: The earliest and the latest clock of a message, in milliseconds; None and 0 if no message has a
            clock.
        first: The last period of event time that the rows of the first message with any period reach; None if no
            message has one.
        last: The last period that any rows reach.
        ends: Whether the policy's condition holds for a message.
        rows: The number of rows.
    """

    steps: int = 0
    began: int | None = None
    until: int = 0
    first: int | None = None
    last: int | None = None
    ends: bool = False
    rows: int = 0

    def note(self, clock: int | None, probe: RowProbe | None = None) -> None:
        """Take in the next message.

        Args:
            clock: Its clock, in milliseconds.
            probe: The result of its probe, if the policy probes rows.
        """
        self.steps += 1
        if clock is not None:
            self.began = clock if self.began is None else min(clock, self.began)
            self.until = max(clock, self.until)
        if probe is not None:
            self._note_rows(probe)

    def _note_rows(self, probe: RowProbe) -> None:
        self.ends = self.ends or probe.ends
        self.rows += probe.rows
        if probe.period is not None:
            self.first = probe.period if self.first is None else self.first
            self.last = probe.period if self.last is None else max(probe.period, self.last)

    def is_full(self, policy: Batch) -> bool:
        """Return whether the epoch has as many rows as the policy lets it have."""
        return policy.rows is not None and self.rows >= policy.rows

    def satisfies(self, policy: Batch, *, lasted: bool) -> bool:
        """Return whether the epoch may end.

        The epoch then is full; or it has as many steps, over as long a time, as the policy wants, and the rows allow
        its end.

        Args:
            policy: The batch's policy.
            lasted: The clock says that the epoch has lasted long enough, though no message says so.
        """
        if self.is_full(policy) or policy.is_bound_alone:
            return self.is_full(policy)
        milliseconds = 0 if self.began is None else self.until - self.began
        return (
            self.steps >= (policy.epochs or 1)
            and (lasted or milliseconds >= 1000 * policy.seconds)
            and (policy.event_time is None or (self.first is not None and (self.last or 0) > self.first))
            and (policy.when is None or self.ends)
        )
