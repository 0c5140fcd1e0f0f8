"""A Spark session that begins when code first asks Spark for one.

Most modules of dataflows need a session while they are imported: Spark's `F.count(…)` asks the active context for its JVM. Those that do not, or that
raise before, need not wait for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["session_on_demand"]

_ACTIVE = "_active_spark_context"
"""Where PySpark looks for its context, whatever asks for it: functions, builders of sessions, `getActiveSession`."""


class _OnDemand:
    """Stands where the active context will be, and begins the session when that is looked up."""

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin

    def __get__(self, instance: object, owner: Any) -> Any:
        setattr(owner, _ACTIVE, None)
        self._begin()
        return getattr(owner, _ACTIVE)


@contextmanager
def session_on_demand(begin: Callable[[], object]) -> Iterator[None]:
    """Begin the session of this process as soon as code asks for it meanwhile, if there is none.

    Args:
        begin: Makes it.
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
