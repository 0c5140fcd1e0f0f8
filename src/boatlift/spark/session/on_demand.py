"""A Spark session that starts when code first asks Spark for one, and an error where nothing starts it.

Most modules of dataflows need a session while they are imported: Spark's `F.count(…)` asks the active context for its
JVM. Other modules, and those that raise before that, need not wait for a session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from boatlift.errors import InvalidError
from boatlift.spark.session.jvm import raising_jvm_died

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["begun_session", "explain_missing_session", "session_on_demand"]

_ACTIVE = "_active_spark_context"
"""The attribute that PySpark reads the context from: in functions, builders of sessions, `getActiveSession`."""

_NEED_ONE = ("pyspark.sql.functions", "pyspark.sql.utils", "pyspark.sql.internal")
"""The modules of PySpark that ask for the context because they cannot do without."""


class _OnDemand:
    """A placeholder of the active context; a look-up starts the session."""

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin

    def __get__(self, instance: object, owner: Any) -> Any:
        setattr(owner, _ACTIVE, None)
        self._begin()
        return getattr(owner, _ACTIVE)


class _Explained:
    """A placeholder of the active context that is not there: what cannot do without it is told what to write.

    PySpark's own code, which asks whether there is one, gets None.
    """

    def __get__(self, instance: object, owner: Any) -> None:
        asking = sys._getframe(1).f_globals["__name__"]  # noqa: SLF001 - the only way to tell who asks
        if asking.startswith(_NEED_ONE):
            raise InvalidError(
                "NO_SESSION",
                "Spark's functions, such as F.count(…), need a session, and this process has none: write "
                "spark = bl.session() before them, and before the import of a module that calls them as it is imported",
            )


def begun_session() -> SparkSession | None:
    """Return the active session of this process; None if there is none. No session is started to find out."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if not isinstance(vars(SparkContext)[_ACTIVE], SparkContext):
        return None
    with raising_jvm_died():
        return SparkSession.getActiveSession()


def explain_missing_session() -> None:
    """From now on, if Spark's functions are called before there is a session, raise `[NO_SESSION]`.

    Nothing is changed in a process that has a session.
    """
    from pyspark import SparkContext

    if vars(SparkContext)[_ACTIVE] is None:
        setattr(SparkContext, _ACTIVE, _Explained())


@contextmanager
def session_on_demand(begin: Callable[[], object]) -> Iterator[None]:
    """Start a session as soon as code in this block asks Spark for one, if the process has none.

    Args:
        begin: Starts the session.
    """
    from pyspark import SparkContext

    if not isinstance(vars(SparkContext)[_ACTIVE], _Explained | None):
        yield
        return
    waiting = _OnDemand(begin)
    setattr(SparkContext, _ACTIVE, waiting)
    try:
        yield
    finally:
        if vars(SparkContext)[_ACTIVE] is waiting:
            setattr(SparkContext, _ACTIVE, None)
