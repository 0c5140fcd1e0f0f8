"""What a program is: processors, edges, policies, and the contracts of connectors. Pure."""

from boatlift.dataflow.builder import Dataflow, Grouped, Stream
from boatlift.dataflow.contracts import (
    Committed,
    Delivery,
    Json,
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
from boatlift.dataflow.processors import Aggregate, Processor, SinkProcessor, SourceProcessor, Transform

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
    "Lazy",
    "LoadsTogether",
    "Outcome",
    "Plan",
    "Policy",
    "Processor",
    "Sink",
    "SinkContext",
    "SinkProcessor",
    "Source",
    "SourceProcessor",
    "Staged",
    "Stager",
    "Stream",
    "Transform",
    "Unit",
    "plan",
]
