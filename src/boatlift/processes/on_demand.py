"""A Spark session that starts when code first needs one.

Most modules of dataflows need a session while they are imported: Spark's `F.count(…)` asks the active context for its
JVM. Other modules, and those that raise earlier, do not wait for a session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from boatlift.processes.jvm import raising_jvm_died

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_CONTEXT = "pyspark.core.context"

_ACTIVE = "_active_spark_context"
"""The attribute from which PySpark's functions, session builders and `getActiveSession` read the context."""

_NEED_ONE = ("pyspark.sql.functions", "pyspark.sql.utils", "pyspark.sql.internal")
"""The modules of PySpark that cannot do without a context."""


class _OnDemand:
    """A placeholder for the active context; a look-up starts the session."""

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin

    def __get__(self, instance: object, owner: Any) -> Any:
        setattr(owner, _ACTIVE, None)
        self._begin()
        return getattr(owner, _ACTIVE)


class _WhenNeeded:
    """A placeholder for the active context that starts a session when a function of Spark needs one.

    Other code of PySpark, which asks whether there is a context, gets None; so do tasks, which have none.
    """

    def __get__(self, instance: object, owner: Any) -> Any:
        asking = sys._getframe(1).f_globals["__name__"]  # noqa: SLF001 - the only way to identify the caller
        if not asking.startswith(_NEED_ONE):
            return None
        from pyspark import TaskContext

        if TaskContext.get() is not None:
            return None
        from boatlift.processes.session import session

        setattr(owner, _ACTIVE, None)
        session()
        return getattr(owner, _ACTIVE)


class _WhenImported(MetaPathFinder):
    """Installs the placeholder as soon as PySpark is imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        if name != _OF_CONTEXT:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                setattr(module.SparkContext, _ACTIVE, _WhenNeeded())

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def begun_session() -> SparkSession | None:
    """Return the active session of this process; None if there is none. No session is started."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if not isinstance(vars(SparkContext)[_ACTIVE], SparkContext):
        return None
    with raising_jvm_died():
        return SparkSession.getActiveSession()


def begin_when_needed() -> None:
    """Start `bl.session()` from now on when a function of Spark, such as `F.count(…)`, is called without a session.

    So modules can call such functions while they are imported. A session that the user makes earlier is used. PySpark
    need not be imported yet, and is not imported here.
    """
    if (loaded := sys.modules.get(_OF_CONTEXT)) is None:
        if not any(isinstance(each, _WhenImported) for each in sys.meta_path):
            sys.meta_path.insert(0, _WhenImported())
    elif vars(loaded.SparkContext)[_ACTIVE] is None:
        setattr(loaded.SparkContext, _ACTIVE, _WhenNeeded())


@contextmanager
def session_on_demand(begin: Callable[[], object]) -> Iterator[None]:
    """Start a session as soon as code in this block needs one, if the process has none."""
    from pyspark import SparkContext

    if not isinstance(vars(SparkContext)[_ACTIVE], _WhenNeeded | None):
        yield
        return
    waiting = _OnDemand(begin)
    setattr(SparkContext, _ACTIVE, waiting)
    try:
        yield
    finally:
        if vars(SparkContext)[_ACTIVE] is waiting:
            setattr(SparkContext, _ACTIVE, None)
