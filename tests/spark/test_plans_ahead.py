"""A plan that was made ahead for what did not come is over before another is made."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.jobs.planner import PlansAhead
from support.waiting import until


def take(number: int, payload: Any) -> StepInput:
    return StepInput(number, (Message("rows->unit", number, payload),))


class Plan:
    discarded = False

    def discard(self) -> None:
        self.discarded = True


def test_it_is_waited_for_and_dropped() -> None:
    """Else its tasks' notes of what was read could be looked for where nobody left any."""
    begun, go, plan = threading.Event(), threading.Event(), Plan()
    events: list[str] = []

    def make() -> Plan:
        begun.set()
        assert go.wait(30)
        events.append("made")
        return plan

    with ThreadPoolExecutor(2) as threads:
        background: Any = threads
        ahead = PlansAhead(background)
        made: Any = make
        ahead.make((take(3, "old"),), made)
        assert begun.wait(30)
        found = threads.submit(lambda: (ahead.take((take(3, "new"),)), events.append("asked"))[0])
        until(lambda: not ahead._ahead)
        assert not found.done()
        go.set()
        assert found.result(30) is None
    assert events == ["made", "asked"]
    assert plan.discarded
