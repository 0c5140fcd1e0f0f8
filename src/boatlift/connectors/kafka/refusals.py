"""Errors of a cluster, as errors that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from boatlift.connectors.kafka.offsets import Range


def of_reading(error: KafkaError | None, source: str, each: Range) -> BoatliftError:
    """Return the error for a failed read of a range."""
    from confluent_kafka import KafkaError

    where = f"topic {each.topic}, partition {each.partition}"
    if error is not None and error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        return DataError(
            "INPUT_MISSING",
            f"offsets {each.start} to {each.end - 1} of {where} are gone, and a recorded step needs them: keep topics "
            "longer than a recovery may need",
        )
    return of_asking(error, f"{where} of {source}")


def of_asking(error: KafkaError | None, what: str, *, sink: bool = False) -> BoatliftError:
    """Return the error for a failed request to a cluster.

    Args:
        error: The cluster's error; None: no answer came.
        what: The object of the request, for the message.
        sink: Whether the request was a sink's, not a source's.
    """
    from confluent_kafka import KafkaError

    if error is None:
        return _unavailable(f"{what} does not answer: run again when it does", sink=sink)
    code, said = error.code(), error.str()
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL):
        return InvalidError(
            "NOT_ADMITTED", f"{what} does not let this client in ({said}): correct the security options"
        )
    if code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return InvalidError("NOT_PERMITTED", f"{what} may not be used by this client ({said}): have it allowed")
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        message = f"{what} is not there: make it, or correct its name"
        return InvalidError("NO_TOPIC" if sink else "NO_INPUT", message)
    return _unavailable(f"{what} cannot be reached ({said}): run again when it can", sink=sink)


def _unavailable(message: str, *, sink: bool) -> UnavailableError:
    return UnavailableError("SINK_FAILED" if sink else "INPUT_UNAVAILABLE", message)


def is_of_fencing(error: KafkaError) -> bool:
    """Return whether an error says that another producer has taken the transactional id over."""
    from confluent_kafka import KafkaError

    fenced = (KafkaError._FENCED, KafkaError._FATAL, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    return error.code() in fenced
