"""What the journal of a store keeps: sums of a run at some moments, and what happened to it in between."""

from __future__ import annotations

from typing import Annotated

import msgspec

from boatlift.storage.records.records import Milliseconds

_Count = Annotated[int, msgspec.Meta(ge=0)]


class RunEvent(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened to a run, which its log does not tell.

    Attributes:
        kind: `failure` (the one that ended the run has no step), `replay` (it has come to its end) or `takeover`.
        who: The unit, the sink, or the dataflow.
        step: -1 for none.
        said: In words; of a failure its error, with its condition first.
        steps, milliseconds: Of a replay: the steps that were executed again, and the time since it began.
    """

    at: Milliseconds
    kind: str
    who: str
    step: int
    said: str
    steps: _Count = 0
    milliseconds: float = 0.0


class RunSample(msgspec.Struct, frozen=True, array_like=True):
    """The sums of a run at a moment: of two samples, the difference is what was done between them.

    Attributes:
        began: When the sums were 0; different for each run.
        taken: Rows that came from sources for the first time.
        shown: Rows that became visible in sinks.
        latencies: How many steps became visible within each of the bounds of histograms, from the moment at which a
            source took their input; then, how many later than all.
        steps, replayed: Steps of all units, and those of them that were executed before a failure.
        waiting, fullest: The steps that wait at the fullest input of all units, and that unit.
        waiting_bytes: The bytes of the rows that wait at all units.
    """

    at: Milliseconds
    began: Milliseconds
    taken: _Count = 0
    shown: _Count = 0
    latencies: tuple[_Count, ...] = ()
    steps: _Count = 0
    replayed: _Count = 0
    waiting: _Count = 0
    fullest: str = ""
    waiting_bytes: _Count = 0


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """A sample, and the events since the entry before."""

    sample: RunSample
    events: tuple[RunEvent, ...] = ()
