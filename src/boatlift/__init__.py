"""Boatlift: exactly-once, rollback-recoverable streaming dataflows on Apache Spark.

import boatlift as bl
from pyspark.sql import functions as F

spark = bl.session()
flow = bl.Dataflow("flights")
flights = flow.source("flights", bl.files("data/*.csv", schema="origin STRING, arr_delay INT"))
delays = flights.group_by("origin").agg("delays", F.avg("arr_delay").alias("delay"), policy=bl.Lazy(every=20))
delays.sink("answers", bl.sqlite("answers.db", table="delays", key=["origin"]))
bl.run(flow, store="store", available_now=True)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from boatlift._version import __version__ as __version__
from boatlift.dataflow import Batch, Delivery, Eager, Ephemeral, History, Keep, Lazy, Receipt, SinceCheckpoint
from boatlift.errors import (
    BoatliftError,
    DataError,
    DivergedError,
    FencedError,
    InternalError,
    InvalidError,
    UnavailableError,
    UserCodeError,
)
from boatlift.processes.on_demand import begin_when_needed as _begin_when_needed

if TYPE_CHECKING:
    from boatlift.api.background import Running, start
    from boatlift.api.dataflow import Dataflow
    from boatlift.api.evolution import evolution, rewind
    from boatlift.api.reports import plan, status
    from boatlift.api.running import run, store
    from boatlift.api.streams import Stream
    from boatlift.connectors import (
        delta,
        files,
        foreach,
        generator,
        http_post,
        kafka,
        mysql,
        parquet,
        postgres,
        push,
        sqlite,
        stdout,
    )
    from boatlift.operators.custom.operator import StatefulOperator
    from boatlift.operators.process.batch import KeyedBatch, Processed, Timers
    from boatlift.operators.window.operator import window
    from boatlift.processes.session import session
    from boatlift.runtime.host.progress import Progress
    from boatlift.spark.plans.step_functions import call, now, rand, uuid

_begin_when_needed()

__all__ = [
    "Batch",
    "BoatliftError",
    "DataError",
    "Dataflow",
    "Delivery",
    "DivergedError",
    "Eager",
    "Ephemeral",
    "FencedError",
    "History",
    "InternalError",
    "InvalidError",
    "Keep",
    "KeyedBatch",
    "Lazy",
    "Processed",
    "Progress",
    "Receipt",
    "Running",
    "SinceCheckpoint",
    "StatefulOperator",
    "Stream",
    "Timers",
    "UnavailableError",
    "UserCodeError",
    "call",
    "delta",
    "evolution",
    "files",
    "foreach",
    "generator",
    "http_post",
    "kafka",
    "mysql",
    "now",
    "parquet",
    "plan",
    "postgres",
    "push",
    "rand",
    "reply",
    "rewind",
    "run",
    "seen",
    "session",
    "sql",
    "sqlite",
    "start",
    "status",
    "stdout",
    "store",
    "uuid",
    "window",
]

# Names whose modules need Spark or Arrow are imported at first use, so that `import boatlift` and the command line are
# quick.
_CONNECTORS = (
    "delta",
    "files",
    "foreach",
    "generator",
    "http_post",
    "kafka",
    "mysql",
    "parquet",
    "postgres",
    "push",
    "reply",
    "sqlite",
    "stdout",
)
_LATER = {
    name: module
    for module, names in {
        "boatlift.api.asked": ("sql",),
        "boatlift.api.dataflow": ("Dataflow",),
        "boatlift.api.evolution": ("evolution", "rewind"),
        "boatlift.api.reports": ("plan", "seen", "status"),
        "boatlift.api.background": ("Running", "start"),
        "boatlift.api.running": ("run", "store"),
        "boatlift.api.streams": ("Stream",),
        "boatlift.connectors": _CONNECTORS,
        "boatlift.operators.custom.operator": ("StatefulOperator",),
        "boatlift.operators.process.batch": ("KeyedBatch", "Processed", "Timers"),
        "boatlift.operators.window.operator": ("window",),
        "boatlift.runtime.host.progress": ("Progress",),
        "boatlift.spark.plans.step_functions": ("call", "now", "rand", "uuid"),
        "boatlift.processes.session": ("session",),
    }.items()
    for name in names
}

_COMMANDS_ALONE = frozenset(
    {
        "bad-rows",
        "checkpoints",
        "crash",
        "explain",
        "gc",
        "handover",
        "keep",
        "log",
        "look",
        "reset",
        "simulate",
        "verify",
    }
)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    command = name.replace("_", "-")
    hint = f": the command boatlift {command} does it" if command in _COMMANDS_ALONE else ""
    raise AttributeError(f"module 'boatlift' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    """Return the public names, so that completion offers the lazy ones, and nothing that is merely imported here."""
    return [*__all__, "__version__"]
