"""Kafka's own console consumer: an independent, standard reader of a topic."""

from __future__ import annotations

import subprocess
from typing import Literal, NamedTuple

from boatlift.errors import UnavailableError
from boatlift.testing.kafka_java import KafkaJava

Isolation = Literal["read_committed", "read_uncommitted"]

# The separators of the consumer's output are control characters that no test has in its data: tabs and new lines may be
# data.
_ROW, _PART, _HEADER, _NULL = "\x1e", "\x1f", "\x1d", "\x1c"

_TIMEOUT = 120.0
"""Seconds for the consumer's start and end, beside its wait for rows."""


class ConsoleRow(NamedTuple):
    """One row of a topic.

    Attributes:
        partition: The partition of the topic.
        value: The value; None for a deletion.
        headers: Names and values, in their order; a name must not have a colon.
    """

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_by_console(
    java: KafkaJava, bootstrap: str, topic: str, isolation: Isolation, max_messages: int | None, timeout: float
) -> list[ConsoleRow]:
    """Return the rows of a topic from its beginning; see `KafkaBroker.console`."""
    properties = {
        "print.partition": "true",
        "print.headers": "true",
        "print.key": "true",
        "key.separator": _PART,
        "headers.separator": _HEADER,
        "line.separator": _ROW,
        "null.literal": _NULL,
    }
    # fmt: off
    command = java.command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--isolation-level", isolation,
        "--timeout-ms", str(int(timeout * 1000)),
        *([] if max_messages is None else ["--max-messages", str(max_messages)]),
        *(part for name, value in properties.items() for part in ("--formatter-property", f"{name}={value}")),
        options=["-XX:TieredStopAtLevel=1"],
    )
    # fmt: on
    try:
        answer = subprocess.run(command, capture_output=True, timeout=_TIMEOUT + timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError("BROKER_FAILED", f"the console consumer of {topic} did not end in time") from error
    # The exit status is always 0, but the sum is printed only at the end of a complete run.
    printed = answer.stderr.decode(errors="replace")
    if answer.returncode != 0 or "Processed a total of" not in printed:
        raise UnavailableError("BROKER_FAILED", f"the console consumer of {topic} failed: {printed[-2000:]}")
    return parse_rows(answer.stdout)


def parse_rows(printed: bytes) -> list[ConsoleRow]:
    """Return the rows in the output of the console consumer."""
    return [_parse_row(row) for row in printed.split(_ROW.encode())[:-1]]


def _parse_row(row: bytes) -> ConsoleRow:
    partition, headers, key, value = row.split(_PART.encode())
    return ConsoleRow(int(partition.removeprefix(b"Partition:")), _bytes(key), _bytes(value), _headers(headers))


def _headers(printed: bytes) -> tuple[tuple[str, bytes | None], ...]:
    if printed == b"NO_HEADERS":
        return ()
    named = (header.partition(b":") for header in printed.split(_HEADER.encode()))
    return tuple((name.decode(), _bytes(value)) for name, _, value in named)


def _bytes(printed: bytes) -> bytes | None:
    return None if printed == _NULL.encode() else printed
