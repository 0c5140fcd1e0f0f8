"""What a program is: processors, edges, policies, and the contracts of connectors. Pure."""

from boatlift.dataflow.builder import Dataflow, Grouped, Keyed, Stream
from boatlift.dataflow.contracts import (
    Committed,
    Delivery,
    Json,
    LoadsEverything,
    LoadsTogether,
    Outcome,
    Sink,
    SinkContext,
    Source,
    Staged,
    Stager,
)
from boatlift.dataflow.plan import Plan, Unit, plan
from boatlift.dataflow.policies import Batch, Eager, Ephemeral, History, Lazy, Policy
from boatlift.dataflow.processors import (
    Aggregate,
    Lookup,
    Processor,
    Recomputation,
    SinkProcessor,
    SourceProcessor,
    Table,
    Transform,
)

__all__ = [
    "Aggregate",
    "Batch",
    "Committed",
    "Dataflow",
    "Delivery",
    "Eager",
    "Ephemeral",
    "Grouped",
    "History",
    "Json",
    "Keyed",
    "Lazy",
    "LoadsEverything",
    "LoadsTogether",
    "Lookup",
    "Outcome",
    "Plan",
    "Policy",
    "Processor",
    "Recomputation",
    "Sink",
    "SinkContext",
    "SinkProcessor",
    "Source",
    "SourceProcessor",
    "Staged",
    "Stager",
    "Stream",
    "Table",
    "Transform",
    "Unit",
    "plan",
]
