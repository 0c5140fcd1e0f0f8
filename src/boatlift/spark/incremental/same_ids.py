"""The ids of attributes, counted anew for each query, so that Catalyst makes the same plan of it each time.

Catalyst numbers attributes by a counter of the JVM, and some of its rules keep expressions in hash tables by these
numbers: the order of several `count(DISTINCT …)` in an optimised plan depends on what the session did before. Another
order is another plan, and another form of the state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from pyspark.sql import SparkSession

__all__ = ["same_ids"]

_FIRST = 1 << 40
"""No session comes so far by itself, so that static tables of a query have other ids."""

_counting = threading.Lock()


@contextmanager
def same_ids(spark: SparkSession) -> Iterator[None]:
    """Let the attributes that are made in this block have the same ids each time.

    Attributes of two such blocks may have equal ids: they must not meet in one plan.
    """
    counter = _Counter(cast("Any", spark)._jvm)
    with _counting:
        before = counter.get()
        counter.set(_FIRST)
        try:
            yield
        finally:
            counter.set(before)


class _Counter:
    """The counter of ids: Catalyst keeps it private, and Py4J hands out an `AtomicLong` as a plain number."""

    def __init__(self, jvm: Any) -> None:
        name = "org.apache.spark.sql.catalyst.expressions.NamedExpression$"
        field = jvm.java.lang.Class.forName(name).getDeclaredField("curId")
        field.setAccessible(True)
        handles = jvm.java.lang.invoke.MethodHandles
        number, nothing = jvm.java.lang.Long.TYPE, jvm.java.lang.Void.TYPE
        kind = jvm.java.lang.invoke.MethodType.methodType(nothing, number)
        setter = handles.publicLookup().findVirtual(field.getType(), "set", kind)
        self._field = field
        self._set = handles.collectArguments(setter, 0, handles.publicLookup().unreflectGetter(field))

    def get(self) -> int:
        return int(self._field.get(None))

    def set(self, value: int) -> None:
        self._set.invokeWithArguments([value])
