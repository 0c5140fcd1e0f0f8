"""The contracts of sources and sinks.

Read `source` and `sink` first, then `capabilities` (optional abilities), `joint` (sinks in one transaction), `pushed`
(sources to which clients push rows) and `twins` (stand-ins for crash tests). `docs/connectors.md` is the guide for
authors; `tests/connectors/` checks the laws for every connector.
"""

from boatlift.dataflow.contracts.capabilities import (
    BAD_ROW,
    CoalescesBacklog,
    CrashPoints,
    DigestsOnRead,
    FrameOfTask,
    KeepsNote,
    LeavesOutColumns,
    NamesInput,
    ParameterizedRead,
    Reading,
    ReadsBack,
    ReadsManySteps,
    Rescannable,
    SinkCapabilities,
    SortsOutBadRows,
    SourceCapabilities,
    Upserts,
    WaitingInput,
)
from boatlift.dataflow.contracts.joint import SharesTransaction, StepWrite, commit_together
from boatlift.dataflow.contracts.pushed import Pushable, Receipt, StoreBacked
from boatlift.dataflow.contracts.shown import RowReader, ShownRows, SinkPlace, place_in
from boatlift.dataflow.contracts.sink import Committed, Outcome, Sink, SinkContext, Staged, Stager
from boatlift.dataflow.contracts.source import Source
from boatlift.dataflow.contracts.twins import BoundedInput, HeldRow, SinkTwin
from boatlift.dataflow.contracts.values import Delivery, Json, Names
