"""A Spark session that starts when code first asks Spark for one.

Most modules of dataflows need a session while they are imported: Spark's `F.count(…)` asks the active context for its
JVM. Other modules, and those that raise before that, need not wait for a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["session_on_demand"]

_ACTIVE = "_active_spark_context"
"""The attribute that PySpark reads the context from: in functions, builders of sessions, `getActiveSession`."""


class _OnDemand:
    """A placeholder of the active context; a look-up starts the session."""

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin

    def __get__(self, instance: object, owner: Any) -> Any:
        setattr(owner, _ACTIVE, None)
        self._begin()
        return getattr(owner, _ACTIVE)


@contextmanager
def session_on_demand(begin: Callable[[], object]) -> Iterator[None]:
    """Start a session as soon as code in this block asks Spark for one, if the process has none.

    Args:
        begin: Starts the session.
    """
    from pyspark import SparkContext

    if vars(SparkContext)[_ACTIVE] is not None:
        yield
        return
    waiting = _OnDemand(begin)
    setattr(SparkContext, _ACTIVE, waiting)
    try:
        yield
    finally:
        if vars(SparkContext)[_ACTIVE] is waiting:
            setattr(SparkContext, _ACTIVE, None)
