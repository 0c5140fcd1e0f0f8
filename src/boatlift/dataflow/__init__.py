"""A program as data: processors, edges, policies, and the contracts of connectors. Pure.

In reading order: `contracts/` (of sources and sinks), `rows` (append-only, changes or tables), `policies`, `operator`
(the base of all operators), `processors`, `units` (the processors of one Spark job), `plan` (a checked dataflow),
`identity` (the record of a program in the store). `columns` and `advice` are about names and errors.
"""

from boatlift.dataflow.contracts import (
    BAD_ROW,
    Committed,
    Delivery,
    DigestsOnRead,
    FrameOfTask,
    Json,
    Names,
    Outcome,
    ParameterizedRead,
    Reading,
    Receipt,
    Rescannable,
    Sink,
    SinkCapabilities,
    SinkContext,
    SortsOutBadRows,
    Source,
    SourceCapabilities,
    Staged,
    Stager,
    StoreBacked,
    Upserts,
    WaitingInput,
)
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.plan import Graph, Plan, plan
from boatlift.dataflow.policies import (
    Batch,
    Eager,
    Ephemeral,
    History,
    Keep,
    Lazy,
    Policy,
    SinceCheckpoint,
    batch_of,
)
from boatlift.dataflow.processors import SinkSpec
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.dataflow.units import OperatorTree, Unit
