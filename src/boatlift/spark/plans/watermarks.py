"""Refusing Spark's watermarks: Spark leaves them out of a query that is no stream, so that they would do nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark.sql import DataFrame

from boatlift.errors import InvalidError

__all__ = ["refusing_watermarks"]

_INSTEAD: Mapping[str, str] = {
    "withWatermark": "stream.lateness('NAME', 'COLUMN', '10 minutes')",
    "dropDuplicatesWithinWatermark": "stream.drop_duplicates('NAME', ['k'], within='10 minutes')",
}
_one_at_a_time = threading.RLock()


@contextmanager
def refusing_watermarks(rows: DataFrame, name: str) -> Iterator[None]:
    """Let the watermarks of DataFrames raise while a function of the user is called for the first time.

    Args:
        rows: A frame of the class that the function works with.
        name: The processor, for errors.
    """
    kind = next(each for each in type(rows).__mro__ if "withWatermark" in vars(each))

    def refusing(method: str) -> Any:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise InvalidError(
                "NOT_ON_A_STREAM",
                f"{name} calls {method}, which does nothing in the query of a step: say it of the stream, with "
                f"{_INSTEAD[method]}",
            )

        return refuse

    with _one_at_a_time:
        methods = {method: vars(kind)[method] for method in _INSTEAD}
        try:
            for method in methods:
                setattr(kind, method, refusing(method))
            yield
        finally:
            for method, own in methods.items():
                setattr(kind, method, own)
