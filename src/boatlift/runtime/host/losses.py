"""Messages whose runs are no longer where they were: their senders have failed."""

from __future__ import annotations

from collections.abc import Iterable

from boatlift.recovery import RecoveryGraph
from boatlift.runtime.engine import Engine
from boatlift.runtime.machine.instructions import Message
from boatlift.storage.records.payloads import runs_of

__all__ = ["senders_of_lost"]


def senders_of_lost(messages: Iterable[Message], engine: Engine, graph: RecoveryGraph) -> set[str]:
    """Return the senders of the messages of which a run is gone."""
    return {
        graph.edges[message.edge].source
        for message in messages
        if not all(engine.path(run).exists() for run in runs_of(message.content))
    }
