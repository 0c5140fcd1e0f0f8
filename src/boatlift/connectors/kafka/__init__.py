"""Kafka: topics as sources and sinks. Exactly once from offsets to transactions."""

from boatlift.connectors.kafka.sink import sink
from boatlift.connectors.kafka.source import source

__all__ = ["sink", "source"]


def __dir__() -> list[str]:
    """Return the public names alone: the modules beside them are attributes too."""
    return [*__all__]
