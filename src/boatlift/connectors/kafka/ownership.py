"""Whose a topic is, as its ledger says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.connectors.kafka.ledger import FORMAT, Claimed
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import DataError, FencedError

__all__ = ["foreign", "refuse_another", "refuse_newer"]


def refuse_another(claim: Claimed, context: SinkContext, topic: tuple[str, str], shape: Mapping[str, Any]) -> None:
    """Refuses whoever a claim does not let write.

    Args:
        claim: The newest.
        context: Who wants to write.
        topic: Where, by name and id.
        shape: What messages are to be made of rows.

    Raises:
        DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_DAMAGED]`, `[NEWER_FORMAT]`.
        FencedError: the claim is a newer owner's.
    """
    name, topic_id = topic
    if claim.format > FORMAT:
        raise DataError(
            "NEWER_FORMAT",
            f"the ledger of topic {name} has format {claim.format}, this version writes {FORMAT}: upgrade Boatlift",
        )
    if (claim.dataflow, claim.sink) != (context.dataflow, context.sink):
        raise foreign(name, f"belongs to sink {claim.sink!r} of dataflow {claim.dataflow!r}")
    if claim.topic[0] != name:
        raise foreign(name, f"has the ledger of topic {claim.topic[0]}")
    different = [
        f"{what} {claim.shape.get(what)!r}, not {now!r}" for what, now in shape.items() if claim.shape.get(what) != now
    ]
    if different:
        raise foreign(name, f"was written with {'; '.join(different)}")
    if claim.store != context.store:
        raise DataError(
            "SINK_OF_ANOTHER_STORE",
            f"topic {name} was written by another store of dataflow {context.dataflow}, with id {claim.store} as `boatlift status` shows it: run "
            f"with that store, or give the sink a topic of its own",
        )
    if claim.topic[1] != topic_id:
        raise DataError(
            "SINK_DAMAGED",
            f"topic {name} was deleted and made again after steps were written to it: begin with a new store and another topic",
        )
    refuse_newer(name, context.token, claim)


def refuse_newer(topic: str, token: int, claim: Claimed) -> None:
    """Refuses an owner if a newer one has claimed a topic.

    Raises:
        FencedError: `[FENCED]`.
    """
    if claim.token > token:
        raise FencedError(
            "FENCED", f"owner {claim.token} has taken over topic {topic}, and this is owner {token}: stop it"
        )


def foreign(topic: str, why: str) -> DataError:
    """Says that a topic is not this sink's."""
    return DataError("SINK_OF_ANOTHER_DATAFLOW", f"topic {topic} {why}: give the sink a topic of its own")
