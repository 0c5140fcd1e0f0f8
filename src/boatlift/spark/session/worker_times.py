"""Times in Python workers: exact, in UTC, whatever the zone of the machine is.

PySpark converts times by the local zone of the worker. Even where that is UTC, Python cannot convert the first day that
it has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as all times here

Converter = Callable[[Any], Any]


def in_utc() -> None:
    """Let this process and its children have the zone UTC, and PySpark convert times exactly."""
    os.environ["TZ"] = "UTC"
    time.tzset()

    from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
    from pyspark.sql.types import TimestampType

    kind: Any = TimestampType
    kind.fromInternal = lambda _, value: _of_microseconds(value)
    kind.toInternal = lambda _, value: _microseconds(value)
    _convert(ArrowTableToRowsConversion, lambda _: _naive)
    _convert(LocalDataToArrowConversion, lambda plain: lambda value: plain(_aware(value)))


def _convert(conversion: Any, made: Callable[[Converter], Converter]) -> None:
    """Let a conversion of PySpark's have another converter of times, made of its own."""
    from pyspark.sql.types import TimestampType

    create = conversion._create_converter  # noqa: SLF001 - there is no public name

    def creating(kind: Any, *arguments: Any, **named: Any) -> Any:
        plain = create(kind, *arguments, **named)
        return made(plain) if isinstance(kind, TimestampType) else plain

    conversion._create_converter = staticmethod(creating)  # noqa: SLF001


def _of_microseconds(value: int | None) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(microseconds=value)


def _microseconds(value: datetime | None) -> int | None:
    return None if value is None else (_naive(value) - _EPOCH) // timedelta(microseconds=1)


def _naive(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
