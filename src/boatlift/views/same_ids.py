"""The ids of attributes, counted anew for each query, so that Catalyst makes the same plan of it each time.

Some of Catalyst's rules keep expressions in hash tables, and the hash of an attribute is that of its id, which a
counter of the JVM gives: the order of several `count(DISTINCT …)` in an optimised plan depends on what the session did
before. Another order is another form of the state. So the ids of each block have the same hashes, one after the other.
But no id is given twice: some attributes are made once in a JVM, within whichever block comes first, and are part of
later plans.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from pyspark.sql import SparkSession

from boatlift.errors import InternalError

_IDS = 16
"""A block has 2^16 ids whose hashes do not depend on the block; a plan with more has other ids for the rest."""

_MOST_BLOCKS = 1 << 31 - _IDS

_BLOCKS = "boatlift.blocks.of.ids"
"""The property of the JVM that counts its blocks: a JVM may serve several processes, one after the other."""

_UNLIMITED = str((1 << 31) - 1)
_OPERANDS = "spark.sql.analyzer.canonicalization.multiCommutativeOpMemoryOptThreshold"
"""From so many operands on Catalyst compares a sum or an AND by an object whose hash is another in each process."""

_counting = threading.Lock()


@contextmanager
def same_ids(spark: SparkSession) -> Iterator[None]:
    """Let the attributes that are made in this block have the same hashes each time, and ids that no other has."""
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

    Java's hash of a number is the exclusive or of its two halves. Both halves have the number of the block, so it drops
    out. The ids are above all that a session comes to by itself.
    """
    number = block << _IDS
    return (number | 1 << 8) << 32 | number


class _Counter:
    """The counter of ids: Catalyst keeps it private, and Py4J hands out an `AtomicLong` as a plain number."""

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
        """Let the next id be a value; return what it would have been. No id that other threads take is lost."""
        return int(self._swap.invokeWithArguments([value]))
