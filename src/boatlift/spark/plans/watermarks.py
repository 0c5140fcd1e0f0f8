"""Spark's watermark methods in users' functions. Spark ignores watermarks in a query that is no stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NoReturn

from pyspark.sql import DataFrame

from boatlift.errors import InvalidError

_INSTEAD: Mapping[str, str] = {
    "withWatermark": "stream.with_watermark('NAME', 'COLUMN', '10 minutes')",
    "dropDuplicatesWithinWatermark": "stream.drop_duplicates('NAME', ['k'], within='10 minutes')",
}
_one_at_a_time = threading.RLock()

WatermarkCall = Callable[..., DataFrame]
"""Takes the name of a method, its frame and its arguments; returns the result of the call."""


@contextmanager
def taking_watermarks(rows: DataFrame, call: WatermarkCall) -> Iterator[None]:
    """Redirect `withWatermark` and `dropDuplicatesWithinWatermark` of DataFrames to a function.

    Args:
        rows: A frame of the class that the user's function works with.
    """
    kind = next(each for each in type(rows).__mro__ if "withWatermark" in vars(each))

    def taking(method: str) -> Any:
        def take(frame: DataFrame, *arguments: Any, **named: Any) -> DataFrame:
            return call(method, frame, *arguments, **named)

        return take

    with _one_at_a_time:
        methods = {method: vars(kind)[method] for method in _INSTEAD}
        try:
            for method in methods:
                setattr(kind, method, taking(method))
            yield
        finally:
            for method, own in methods.items():
                setattr(kind, method, own)


def refusing_watermarks(rows: DataFrame, name: str) -> AbstractContextManager[None]:
    """Return a context in which these methods raise; `rows` as for `taking_watermarks`."""
    return taking_watermarks(rows, partial(_refuse, name))


def refuse_watermark_of_sql(name: str) -> NoReturn:
    """Refuse a query whose text has WATERMARK.

    Raises:
        InvalidError: `[NOT_ON_A_STREAM]`.
    """
    raise InvalidError(
        "NOT_ON_A_STREAM",
        f"{name} says WATERMARK in SQL, which does nothing in the query of a step: say it of the stream, with "
        f"{_INSTEAD['withWatermark']}",
    )


def _refuse(name: str, method: str, *_: Any, **__: Any) -> NoReturn:
    raise InvalidError(
        "NOT_ON_A_STREAM",
        f"{name} calls {method}, which does nothing in the query of a step: say it of the stream, with "
        f"{_INSTEAD[method]}",
    )
