"""Logical time: domains, frontiers, projections. Pure.

In reading order: `domains` (times and their order: epochs, loops, sequences); `time_sets` (sets of times that need not
be downward closed); `frontiers` (sets that are); `order` (arrival orders); `boundaries` (of coarse
epochs); `written` (the form of times in records);
`projections` (φ, its laws); `laws` (the checker).
"""

from boatlift.times.boundaries import Boundaries, Ends, EpochBoundaries, GatheredBoundaries
from boatlift.times.domains import EPOCH, LAST, Domain, Loop, LoopTime, Sequence, SequenceTime, end_of
from boatlift.times.frontiers import (
    AnyFrontier,
    EpochFrontier,
    Frontier,
    LoopFrontier,
    all_times,
    frontier_of,
    last_of,
    no_times,
)
from boatlift.times.laws import check_projection
from boatlift.times.order import ArrivalOrder
from boatlift.times.projections import (
    IDENTITY,
    Coarse,
    Enter,
    Feedback,
    Fine,
    FromSequence,
    Leave,
    Projection,
    Then,
    ToSequence,
    epochs_cut,
)
from boatlift.times.time_sets import NO_ITERATION, LoopTimes, MutableTimes, SequenceTimes, Times, TimeSet, silence
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
