"""Attribute ids with the same hashes in each compilation, so that Catalyst always makes the same plan of a query.

Some of Catalyst's rules keep expressions in hash tables. The hash of an attribute is the hash of its id, which comes
from a counter of the JVM. So the order of several `count(DISTINCT …)` in an optimised plan depends on the session's
history, and another order is another form of the state. Therefore each compilation uses a block of ids with the same
hashes in the same order. No id is used twice: some attributes are made once per JVM, within the first block that needs
them, and are part of later plans.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from pyspark.sql import SparkSession

from boatlift.errors import InternalError

_IDS = 16
"""A block has 2^16 ids whose hashes do not depend on the block; a larger plan gets other ids for the rest."""

_MOST_BLOCKS = 1 << 31 - _IDS

_BLOCKS = "boatlift.blocks.of.ids"
"""The JVM property that counts its blocks; a JVM may serve several processes in turn."""

_UNLIMITED = str((1 << 31) - 1)
_OPERANDS = "spark.sql.analyzer.canonicalization.multiCommutativeOpMemoryOptThreshold"
"""From this number of operands on, Catalyst compares a sum or an AND by an object whose hash differs by process."""

_counting = threading.Lock()


@contextmanager
def same_ids(spark: SparkSession) -> Iterator[None]:
    """Give the attributes that are made in this block unique ids with the same hashes each time."""
    jvm: Any = cast("Any", spark)._jvm
    counter = _Counter(jvm)
    with _counting:
        block = int(jvm.java.lang.Integer.getInteger(_BLOCKS, 0))
        if block == _MOST_BLOCKS:
            raise InternalError("INTERNAL", f"this JVM has compiled {block} views, and has no ids for more: restart it")
        jvm.java.lang.System.setProperty(_BLOCKS, str(block + 1))
        operands = str(spark.conf.get(_OPERANDS))
        spark.conf.set(_OPERANDS, _UNLIMITED)
        before = counter.swapped(_first(block))
        try:
            yield
        finally:
            counter.swapped(before)
            spark.conf.set(_OPERANDS, operands)


def _first(block: int) -> int:
    """Return the first id of a block.

    Java's hash of a number is the exclusive or of its two halves. Both halves contain the number of the block, which
    cancels out. These ids are above all ids that a session reaches by counting.
    """
    number = block << _IDS
    return (number | 1 << 8) << 32 | number


class _Counter:
    """The counter of ids, which is private in Catalyst; Py4J would convert its `AtomicLong` to a plain number."""

    def __init__(self, jvm: Any) -> None:
        name = "org.apache.spark.sql.catalyst.expressions.NamedExpression$"
        field = jvm.java.lang.Class.forName(name).getDeclaredField("curId")
        field.setAccessible(True)
        handles = jvm.java.lang.invoke.MethodHandles
        number = jvm.java.lang.Long.TYPE
        kind = jvm.java.lang.invoke.MethodType.methodType(number, number)
        swap = handles.publicLookup().findVirtual(field.getType(), "getAndSet", kind)
        self._swap = handles.collectArguments(swap, 0, handles.publicLookup().unreflectGetter(field))

    def swapped(self, value: int) -> int:
        """Set the next id; return the previous next id. This is atomic, so other threads lose no id."""
        return int(self._swap.invokeWithArguments([value]))
