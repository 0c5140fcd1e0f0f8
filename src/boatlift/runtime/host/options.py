"""What a user chooses for one run of a dataflow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from boatlift.errors import InvalidError
from boatlift.runtime.host.progress import Progress

__all__ = ["BYTES_IN_FLIGHT", "RunOptions"]

BYTES_IN_FLIGHT = 16 * 2**30
"""The bound on data in flight, if a user says no other."""


def _silent(progress: Progress) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of one run; none of them belongs to the program.

    Attributes:
        available_now: Finish once every source has nothing new.
        accept_released: Let stand what sinks hold of a step that a replay now computes differently (`[DIVERGED]`), on
            the record. Later steps are computed from the replay.
        skip: Steps that yield nothing, whatever they take, each with its unit; steps that an at-least-once sink is not
            handed, each with the sink; the places of bad rows that are set aside, each with the source. The log records
            all of them.
        set_aside: Sources whose bad rows are kept in the store, each with its place and the reason, while the steps
            that take them go on without them. The log records that, for this run and all later ones.
        bytes_in_flight: A source is asked for no further step while so many bytes of rows wait behind it in scratch,
            for whichever reader, unless the open epoch of a batch cannot end without it.
        on_progress: Called with each `Progress`, on the host's own thread.
        long_running: Whether small steps that come quickly may share a Spark job that lives.
    """

    available_now: bool = False
    accept_released: bool = False
    skip: Collection[tuple[str, int | str]] = ()
    set_aside: Collection[str] = ()
    bytes_in_flight: int = BYTES_IN_FLIGHT
    on_progress: Callable[[Progress], None] = _silent
    long_running: bool = True

    def __post_init__(self) -> None:
        given: object = self.bytes_in_flight
        if isinstance(given, bool) or not (isinstance(given, int) and given >= 1):
            raise InvalidError("BAD_OPTION", f"bytes_in_flight={given!r}: it must be a number of bytes, at least 1")
