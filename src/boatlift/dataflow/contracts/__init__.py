"""What a source and a sink promise: the contracts that every connector keeps.

Read `source` and `sink` first, then `capabilities`: abilities that only some connectors have. `pushed` is about sources
whose rows a client hands over. `docs/connectors.md` is the guide for authors, and `tests/connectors/` holds each
connector to the laws that stand here.
"""

from boatlift.dataflow.contracts.capabilities import (
    BAD_ROW,
    AnnouncesInput,
    CoalescesBacklog,
    CrashPoints,
    DigestsOnRead,
    FrameOfTask,
    NamesInput,
    ParameterizedRead,
    Reading,
    ReadsManySteps,
    Rescannable,
    SinkCapabilities,
    SortsOutBadRows,
    SourceCapabilities,
    Upserts,
    WaitingInput,
)
from boatlift.dataflow.contracts.names import Names
from boatlift.dataflow.contracts.pushed import Pushable, Receipt, StoreBacked
from boatlift.dataflow.contracts.sink import Committed, Outcome, Sink, SinkContext, Staged, Stager
from boatlift.dataflow.contracts.source import Source
from boatlift.dataflow.contracts.values import Delivery, Json

__all__ = [
    "BAD_ROW",
    "AnnouncesInput",
    "CoalescesBacklog",
    "Committed",
    "CrashPoints",
    "Delivery",
    "DigestsOnRead",
    "FrameOfTask",
    "Json",
    "Names",
    "NamesInput",
    "Outcome",
    "ParameterizedRead",
    "Pushable",
    "Reading",
    "ReadsManySteps",
    "Receipt",
    "Rescannable",
    "Sink",
    "SinkCapabilities",
    "SinkContext",
    "SortsOutBadRows",
    "Source",
    "SourceCapabilities",
    "Staged",
    "Stager",
    "StoreBacked",
    "Upserts",
    "WaitingInput",
]
