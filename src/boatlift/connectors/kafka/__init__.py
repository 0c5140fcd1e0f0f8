"""Kafka: topics as sources and sinks. Exactly once from offsets to transactions.

The source: `source`, `offsets` (positions and cursors), `topics` (requests to the cluster), `reading` and `fetching`
(in tasks), `value_format`, `background`. The sink: `sink`, `encoding` (rows to messages), `writer` (one
transaction), `ledger` (the record of steps), `reading_back` and `decoding` (messages to rows). Both: `access`.
"""

from boatlift.connectors.kafka.sink import sink
from boatlift.connectors.kafka.source import source

__all__ = ["sink", "source"]


def __dir__() -> list[str]:
    """Return the public names alone: the modules beside them are attributes too."""
    return [*__all__]
