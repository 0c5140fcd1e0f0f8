"""`boatlift explain`: what a failure of some processors would cost, and why not less; from the store alone.

What those that live have in memory is not in the store. It is taken to be what they have said that they did, and all that they sent and
nobody has made durable use of yet, as a running process keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from boatlift.engine.identity import recorded_program
from boatlift.errors import DataError, InvalidError
from boatlift.recovery import Kind, Monitor, ProcessorPlan
from boatlift.runtime.regimes import Program, monitor_of
from boatlift.storage.facts import last_number, maximal_of
from boatlift.storage.history import History
from boatlift.storage.local import LocalStore
from boatlift.storage.log import RESTORE, Log
from boatlift.storage.standing import Standing
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
    told = explanation_of(Log.open(LocalStore.open(path, create=False), None), frozenset(failed))
    if as_json:
        print(json.dumps(told, indent=2))
        return
    who = "everything" if set(told["failed"]) == told["processors"].keys() else ", ".join(told["failed"])
    print(f"If {who} failed now:\n")
    for about in told["processors"].values():
        print(f"  {about['does']}")
    for line in told["queues"]:
        print(f"  {line}")
    costs = {name: about for name, about in told["processors"].items() if about["steps"]}
    if not costs:
        print("\nNothing is executed again.")
        return
    table = Table(title="\nExecuted again, at what it took before", title_justify="left")
    for heading in ("processor", "steps", "of them repeated as they were", "rows", "seconds"):
        table.add_column(heading)
    for name, about in costs.items():
        numbers = (f"{about[key]:,}" for key in ("steps", "repeated", "rows"))
        table.add_row(name, *numbers, f"{about['seconds']:.1f}")
    Console().print(table)


def explanation_of(log: Log, failed: AbstractSet[str]) -> dict[str, Any]:
    """Gives all that `boatlift explain` tells, as JSON.

    Raises:
        InvalidError: `[BAD_OPTION]` somebody is named who is not there.
    """
    history = log.history
    program = recorded_program(history.program)
    names = program.graph.vertices.keys()
    if not failed <= names:
        raise InvalidError(
            "BAD_OPTION",
            f"nobody here is called {', '.join(sorted(failed - names))}: there are {', '.join(sorted(names))}",
        )
    held = {sink: Frontier.up_to(time) for sink, time in history.committed.items()}
    monitor = monitor_of(program, Standing.of(history.standing.facts()), held)
    _let_live(program, history, monitor)
    plan = monitor.plan(failed or names)
    return {
        "failed": sorted(failed or names),
        "processors": {name: _about(history, part) for name, part in plan.processors.items()},
        "queues": plan.describe_queues(),
    }


def _let_live(program: Program, history: History, monitor: Monitor) -> None:
    """Tell the monitor what a running process would have in memory.

    Raises:
        DataError: `[CORRUPT]` that is more than any process has.
    """
    most = MOST_MESSAGES + sum(1 for _ in history.standing.facts())
    for name, vertex in program.graph.vertices.items():
        if vertex.kind is Kind.SINK:
            continue
        source, order = vertex.kind is Kind.SOURCE, program.orders.get(name)
        done = history.last_closed(name) if source else history.last_executed(name)
        if order is not None:  # of what came after the last state the order may not be known
            done = min(done, len(order) - 1)
        monitor.completed(name, Frontier.up_to(done) if order is None else order.prefix(done + 1))
        for edge in program.graph.outputs[name]:
            collected = history.standing.collected
            passed = max(
                last_number(collected.messages.get(edge.name, ())), last_number(collected.choices.get(name, ()))
            )
            begin = passed + 1 if order is None else max(passed + 1, order.start)
            if done - begin > most:
                raise DataError(
                    "CORRUPT",
                    f"the log says that {name} has sent {done - begin} messages that nobody has taken: {RESTORE}",
                )
            for number in range(begin, done + 1):
                monitor.sent(edge.name, number if order is None else order.at(number))


def _about(history: History, part: ProcessorPlan) -> dict[str, Any]:
    begin, fixed = last_number(maximal_of(part.restore)), last_number(maximal_of(part.fixed))
    results = history.standing.results.get(part.name, {})
    executed = part.kind in (Kind.STATELESS, Kind.STATEFUL) and not part.stays
    again = [result for time, result in results.items() if isinstance(time, int) and time > begin] if executed else []
    return {
        "does": str(part),
        "stays": part.stays,
        "restored_to": maximal_of(part.restore),
        "repeats_up_to": maximal_of(part.fixed),
        "steps": len(again),
        "repeated": sum(isinstance(result.time, int) and result.time <= fixed for result in again),
        "rows": sum(result.rows for result in again),
        "seconds": round(sum(result.milliseconds for result in again) / 1000, 3),
        "why_not_less": None if part.why is None else str(part.why),
    }
