"""A plan that was made ahead for what did not come is over before another is made."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark import engine as spark_engine
from boatlift.spark.engine import SparkEngine
from support.waiting import until


def take(number: int, content: Any) -> StepInput:
    return StepInput(number, (Message("rows->unit", number, content),))


class Plan:
    discarded = False

    def discard(self) -> None:
        self.discarded = True


def test_it_is_waited_for_and_dropped() -> None:
    """Else its tasks' notes of what was read could be looked for where nobody left any."""
    begun, go, plan = threading.Event(), threading.Event(), Plan()
    engine: Any = SparkEngine.__new__(SparkEngine)
    events: list[str] = []

    def make() -> Plan:
        begun.set()
        assert go.wait(30)
        events.append("made")
        return plan

    with ThreadPoolExecutor(2) as threads:
        made: Any = threads.submit(make)
        engine._ahead = [spark_engine._Ahead("unit", (take(3, "old"),), made)]
        assert begun.wait(30)
        found = threads.submit(lambda: (engine._prepared("unit", (take(3, "new"),)), events.append("asked"))[0])
        until(lambda: not engine._ahead)
        assert not found.done()
        go.set()
        assert found.result(30) is None
    assert events == ["made", "asked"]
    assert plan.discarded
