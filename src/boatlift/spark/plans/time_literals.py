"""Dates and times of Python in the plan that a user's function builds: the same literals on every machine.

PySpark hands them over as `java.sql.Timestamp` and `java.sql.Date`: a time without a zone is then local to the machine,
and what lies before 1582 is moved by days.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any

_EXACT: ContextVar[bool] = ContextVar("boatlift_exact_times", default=False)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@contextmanager
def exact_times() -> Iterator[None]:
    """Let dates and times become literals exactly in this block; a time without a zone is in UTC."""
    _register()
    token = _EXACT.set(True)
    try:
        yield
    finally:
        _EXACT.reset(token)


@cache
def _register() -> None:
    import pyspark.sql.types  # noqa: F401 - its converters are registered first
    from py4j.protocol import register_input_converter

    register_input_converter(_Times(), prepend=True)


class _Times:
    """A converter of Py4J."""

    def can_convert(self, value: object) -> bool:
        from pyspark.sql.utils import is_timestamp_ntz_preferred

        if not _EXACT.get() or not isinstance(value, date):
            return False
        naive = isinstance(value, datetime) and value.tzinfo is None
        return not (naive and is_timestamp_ntz_preferred())

    def convert(self, value: date, client: Any) -> Any:
        from py4j.java_gateway import JavaClass

        if not isinstance(value, datetime):
            return JavaClass("java.time.LocalDate", client).of(value.year, value.month, value.day)
        since = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
        seconds = since // timedelta(seconds=1)
        return JavaClass("java.time.Instant", client).ofEpochSecond(seconds, since.microseconds * 1000)
