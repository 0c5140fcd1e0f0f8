"""The slots of a Spark context that jobs hold for long, so that none of them starves another job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from pyspark import SparkContext

_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def slot_count(context: SparkContext) -> int:
    """Return how many tasks of one job run at once for certain, and may connect to the driver.

    It is 1 if executors come and go, and if Spark encrypts what it sends over a network: a door of the driver does not.
    """
    java, conf = context._jsc.sc(), context.getConf()
    encrypted = not str(conf.get("spark.master")).startswith("local") and any(
        conf.get(each) == "true" for each in _ENCRYPTED
    )
    if encrypted or conf.get("spark.dynamicAllocation.enabled") == "true":
        return 1
    return max(1, int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())))


class Slots:
    """The slots that jobs of one context hold for many steps.

    Laws:
        * As many slots are held by no such job as a holder asks to be left.
        * While a job needs all slots, no such job begins, and those that there were have ended.
    """

    _of: ClassVar[dict[str, Slots]] = {}
    _making = threading.Lock()

    @classmethod
    def of(cls, context: SparkContext) -> Slots:
        """Return the slots of a context."""
        with cls._making:
            return cls._of.setdefault(context.applicationId, cls())

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: dict[object, Callable[[], None]] = {}
        self._needed_by = 0

    def take(self, slots: int, left: int, holder: object, end: Callable[[], None]) -> bool:
        """Take a slot, if more than enough are left; return whether it was taken.

        Args:
            left: How many have to be left to others.
            end: Makes the holder's job end soon; returns at once.
        """
        with self._changed:
            if self._needed_by or len(self._holders) + left >= slots:
                return False
            self._holders[holder] = end
            return True

    def give_back(self, holder: object) -> None:
        """Give a slot back."""
        with self._changed:
            self._holders.pop(holder, None)
            self._changed.notify_all()

    @contextmanager
    def all_needed(self) -> Iterator[None]:
        """Have all slots free until the end of the block, for a job whose tasks run all at once or not at all."""
        with self._changed:
            self._needed_by += 1
            for end in self._holders.values():
                end()
            self._changed.wait_for(lambda: not self._holders)
        try:
            yield
        finally:
            with self._changed:
                self._needed_by -= 1
