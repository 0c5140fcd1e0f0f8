"""Which owner a topic belongs to, by its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.connectors.kafka.ledger import FORMAT, Claimed
from boatlift.connectors.kit import StepLedger, fenced
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import DataError


def decisions_of(context: SinkContext, topic: str) -> StepLedger:
    """Return the decisions of an owner about the steps of a topic."""
    return StepLedger(context, f"topic {topic}", "topic", "restore the topic")


def refuse_another(claim: Claimed, context: SinkContext, topic: tuple[str, str], shape: Mapping[str, Any]) -> None:
    """Raise if the claim on a topic does not let an owner write.

    Args:
        claim: The newest claim.
        context: The owner that wants to write.
        topic: The topic's name and id.
        shape: How messages are to be made of rows.

    Raises:
        DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_DAMAGED]`, `[NEWER_FORMAT]`.
        FencedError: the claim is a newer owner's.
    """
    name, topic_id = topic
    ledger = decisions_of(context, name)
    if claim.format > FORMAT:
        raise DataError(
            "NEWER_FORMAT",
            f"the ledger of topic {name} has format {claim.format}, this version writes {FORMAT}: upgrade Boatlift",
        )
    refuse_stranger(claim, ledger)
    if claim.topic[0] != name:
        raise ledger.foreign(f"has the ledger of topic {claim.topic[0]}")
    different = [
        f"{option} {claim.shape.get(option)!r}, not {now!r}"
        for option, now in shape.items()
        if claim.shape.get(option) != now
    ]
    if different:
        raise ledger.foreign(f"was written with {'; '.join(different)}")
    ledger.refuse_other_store(claim.store)
    if claim.topic[1] != topic_id:
        raise DataError(
            "SINK_DAMAGED",
            f"topic {name} was deleted and made again after steps were written to it: begin with a new store and "
            "another topic",
        )
    ledger.refuse_newer_owner(claim.token)


def refuse_stranger(claim: Claimed, ledger: StepLedger) -> None:
    """Raise if the claim on a topic is another sink's.

    Raises:
        DataError: `[SINK_OF_ANOTHER_DATAFLOW]`.
    """
    if (claim.dataflow, claim.sink) != (ledger.context.dataflow, ledger.context.sink):
        raise ledger.foreign(f"belongs to sink {claim.sink!r} of dataflow {claim.dataflow!r}")


def refuse_newer(topic: str, token: int, claim: Claimed) -> None:
    """Raise if a newer owner has claimed a topic, for tasks, which know of their owner only the token.

    Raises:
        FencedError: `[FENCED]`.
    """
    if claim.token > token:
        raise fenced(f"topic {topic}", claim.token, token)
