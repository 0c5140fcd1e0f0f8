"""`boatlift explain`: what a failure of some processors would cost, and why not less; from the store alone.

What those that live have in memory is not in the store. It is taken to be what they have said that they did, and all that they sent and
nobody has made durable use of yet, as a running process keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from boatlift.console.outlook import executed_again, known_from
from boatlift.console.tables import console, table
from boatlift.errors import DataError, InvalidError
from boatlift.recovery import Kind, Monitor, ProcessorPlan
from boatlift.recovery.constraints import told
from boatlift.runtime.machine import Program
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.records.facts import last_number, maximal_of
from boatlift.storage.records.history import LogHistory
from boatlift.times import Frontier

__all__ = ["explanation_of", "show_explanation"]

MOST_MESSAGES = 1_000_000
"""A process has no more messages in memory than these and as many as there are facts that stand."""


def show_explanation(path: Path, failed: Iterable[str], *, as_json: bool) -> None:
    """Tells what a failure would cost.

    Args:
        path: The store.
        failed: Who fails; nobody named: all of them.
        as_json: As JSON.
    """
    explained = explanation_of(Log.open(LocalStore.open(path, create=False), None), frozenset(failed))
    if as_json:
        print(json.dumps(explained, indent=2))
        return
    who = "everything" if set(explained["failed"]) == explained["processors"].keys() else ", ".join(explained["failed"])
    print(f"If {who} failed now, as far as the log knows:\n")
    _show_costs(explained["processors"])
    print("\nWhere each is rolled back to, and why no less:")
    for about in explained["processors"].values():
        print(f"  {about['does']}")
    for line in explained["queues"]:
        print(f"  {line}")


def _show_costs(processors: Mapping[str, Mapping[str, Any]]) -> None:
    costs = {name: about for name, about in processors.items() if about["steps"]}
    if not costs:
        print("Nothing is executed again.")
        return
    headings = (
        "processor",
        "rolled back to",
        "steps executed again",
        "of these replayed as they were",
        "rows",
        "seconds",
    )
    shown = table(*headings, title="The cost of the rollback, by what the steps took before")
    for name, about in costs.items():
        numbers = (f"{about[key]:,}" for key in ("steps", "repeated", "rows"))
        shown.add_row(name, about["rolled_back_to"], *numbers, f"{about['seconds']:.1f}")
    console().print(shown)


def explanation_of(log: Log, failed: AbstractSet[str]) -> dict[str, Any]:
    """Gives all that `boatlift explain` tells, as JSON.

    Raises:
        InvalidError: `[BAD_OPTION]` somebody is named who is not there.
    """
    history = log.history
    program, monitor = known_from(history)
    names = program.graph.vertices.keys()
    if not failed <= names:
        raise InvalidError(
            "BAD_OPTION",
            f"nobody here is called {', '.join(sorted(failed - names))}: there are {', '.join(sorted(names))}",
        )
    _let_live(program, history, monitor)
    plan = monitor.plan(failed or names)
    return {
        "failed": sorted(failed or names),
        "processors": {name: _about(history, part) for name, part in plan.processors.items()},
        "queues": plan.describe_queues(),
    }


def _let_live(program: Program, history: LogHistory, monitor: Monitor) -> None:
    """Tell the monitor what a running process would have in memory.

    Raises:
        DataError: `[CORRUPT]` that is more than any process has.
    """
    most = MOST_MESSAGES + sum(1 for _ in history.live_records.facts())
    for name, vertex in program.graph.vertices.items():
        if vertex.kind is Kind.SINK:
            continue
        source, order = vertex.kind is Kind.SOURCE, program.orders.get(name)
        done = history.last_closed(name) if source else history.last_executed(name)
        if order is not None:  # of what came after the last state the order may not be known
            done = min(done, len(order) - 1)
        monitor.completed(name, Frontier.up_to(done) if order is None else order.prefix(done + 1))
        for edge in program.graph.outputs[name]:
            collected = history.live_records.collected
            passed = max(
                last_number(collected.messages.get(edge.name, ())), last_number(collected.choices.get(name, ()))
            )
            begin = passed + 1 if order is None else max(passed + 1, order.start)
            if done - begin > most:
                raise DataError(
                    "CORRUPT",
                    f"the log says that {name} has sent {done - begin} messages that no processor has taken: {RESTORE}",
                )
            for number in range(begin, done + 1):
                monitor.sent(edge.name, number if order is None else order.at(number))


def _about(history: LogHistory, part: ProcessorPlan) -> dict[str, Any]:
    fixed = last_number(maximal_of(part.fixed))
    again = executed_again(history, part)
    return {
        "does": str(part),
        "stays": part.stays,
        "rolled_back_to": _rolled_back_to(part),
        "restored_to": maximal_of(part.restore),
        "repeats_up_to": maximal_of(part.fixed),
        "steps": len(again),
        "repeated": sum(isinstance(result.time, int) and result.time <= fixed for result in again),
        "rows": sum(result.rows for result in again),
        "seconds": round(sum(result.milliseconds for result in again) / 1000, 3),
        "why_not_less": None if part.why is None else str(part.why),
    }


def _rolled_back_to(part: ProcessorPlan) -> str:
    if part.stays:
        return "stays"
    if not part.restore:
        return "the start"
    return f"its checkpoint of {told(part.restore)}" if part.checkpoint is not None else told(part.restore)
