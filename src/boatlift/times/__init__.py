"""Logical time: domains, frontiers, projections. Pure.

In reading order: `domain` (times and their order; epochs), `sequence`, `loop`; `frontier` (downward-closed sets),
`loop_frontier`; `times`, `time_set`, `loop_times`, `sequence_times` (sets of times that need not be downward closed);
`order` (arrival orders); `of_domain` (each of these for any domain); `written` (the form of times in records);
`projection` (φ, its laws), `epoch_projections`, `loop_projections`, `sequence_projections`; `laws` (the checker).
"""

from boatlift.times.domain import EPOCH, LAST, Domain, Epoch
from boatlift.times.epoch_projections import Coarse, EpochBoundaries, Fine, epochs_cut
from boatlift.times.frontier import AnyFrontier, EpochFrontier, Frontier, last_of
from boatlift.times.laws import check_projection
from boatlift.times.loop import Loop, LoopTime, end_of
from boatlift.times.loop_frontier import LoopFrontier
from boatlift.times.loop_projections import Enter, Feedback, Leave
from boatlift.times.loop_times import NO_ITERATION, LoopTimes, silence
from boatlift.times.of_domain import all_times, frontier_of, no_times
from boatlift.times.order import ArrivalOrder
from boatlift.times.projection import IDENTITY, Identity, Projection, Then
from boatlift.times.sequence import Sequence, SequenceTime
from boatlift.times.sequence_projections import FromSequence, ToSequence
from boatlift.times.sequence_times import SequenceTimes
from boatlift.times.time_set import TimeSet
from boatlift.times.times import MutableTimes, Times
from boatlift.times.written import (
    Maximal,
    Time,
    contains_event,
    domain_of,
    is_end,
    last_epoch,
    last_number,
    maximal_of,
    read_frontier,
)

__all__ = [
    "EPOCH",
    "IDENTITY",
    "LAST",
    "NO_ITERATION",
    "AnyFrontier",
    "ArrivalOrder",
    "Coarse",
    "Domain",
    "Enter",
    "Epoch",
    "EpochBoundaries",
    "EpochFrontier",
    "Feedback",
    "Fine",
    "FromSequence",
    "Frontier",
    "Identity",
    "Leave",
    "Loop",
    "LoopFrontier",
    "LoopTime",
    "LoopTimes",
    "Maximal",
    "MutableTimes",
    "Projection",
    "Sequence",
    "SequenceTime",
    "SequenceTimes",
    "Then",
    "Time",
    "TimeSet",
    "Times",
    "ToSequence",
    "all_times",
    "check_projection",
    "contains_event",
    "domain_of",
    "end_of",
    "epochs_cut",
    "frontier_of",
    "is_end",
    "last_epoch",
    "last_number",
    "last_of",
    "maximal_of",
    "no_times",
    "read_frontier",
    "silence",
]
