"""What a cluster refuses, as errors that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from boatlift.connectors.kafka.offsets import Range

__all__ = ["of_asking", "of_reading"]


def of_reading(error: KafkaError | None, source: str, each: Range) -> BoatliftError:
    """Gives what an error that came while a range was read means."""
    from confluent_kafka import KafkaError

    where = f"topic {each.topic}, partition {each.partition}"
    if error is not None and error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        return DataError(
            "INPUT_MISSING",
            f"offsets {each.start} to {each.end - 1} of {where} are not there any more, and a recorded step needs them: keep topics longer than "
            f"a recovery may need",
        )
    return of_asking(error, f"{where} of {source}")


def of_asking(error: KafkaError | None, what: str) -> BoatliftError:
    """Gives what an error that came while a cluster was asked means."""
    from confluent_kafka import KafkaError

    if error is None:
        return UnavailableError("INPUT_UNAVAILABLE", f"{what} does not answer: run again when it does")
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
        return InvalidError("NO_INPUT", f"{what} is not there: make it, or correct its name")
    return UnavailableError("INPUT_UNAVAILABLE", f"{what} cannot be reached ({said}): run again when it can")
