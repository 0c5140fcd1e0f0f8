"""`boatlift look`: the rows that a step takes from its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from boatlift.dataflow import Dataflow, Plan, plan
from boatlift.errors import DataError, InvalidError
from boatlift.storage.input_log import InputLog
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory

__all__ = ["show_rows"]


def show_rows(
    begin: Callable[[], SparkSession],
    flow: Dataflow,
    store: Path,
    processor: str,
    time: int,
    *,
    at_most: int,
    as_json: bool,
) -> None:
    """Shows them, read again from where the log says that they are.

    Args:
        begin: Gives the session, once all is known that can be known without one.
        flow, store: The dataflow and its store.
        processor, time: Which step.
        at_most: So many rows.
        as_json: One object a line.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no such step, or it takes nothing from a source.
        DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]` they are not what they were.
    """
    planned = plan(flow)
    if processor not in planned.units:
        raise InvalidError("BAD_OPTION", f"{processor} executes no steps: look at one of {', '.join(planned.units)}")
    opened = LocalStore.open(store, create=False)
    log = Log.open(opened, flow.name)
    history = log.history
    for name, at in _steps_of_sources(planned, history, processor, time):
        fact = history.standing.chosen.get(name, {}).get(at)
        if fact is None:
            raise InvalidError(
                "BAD_OPTION",
                f"step {at} of {name} is not in the log: it has not come yet, or nobody can need it any more",
            )
        if planned.forgets(name):
            raise DataError("INPUT_MISSING", f"nobody keeps what is pushed to {name}, which answers once it is stable")
        source, position = planned.sources[name].source, fact.outcome["position"]
        if (backed := source.capabilities.store_backed) is not None:
            backed.attach(InputLog(opened, log.store_id, name))
        source.verify(position)
        frame = source.load(begin(), position)
        if as_json:
            whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            for (row,) in frame.limit(at_most).select(whole).collect():
                print(row)
        else:
            print(f"{name}, step {at}:")
            frame.show(at_most, truncate=False)


def _steps_of_sources(planned: Plan, history: LogHistory, processor: str, time: Any) -> Iterator[tuple[str, int]]:
    """Gives the sources and their steps that a step is made of, each once."""
    if processor in planned.sources:
        yield processor, time
        return
    unit = planned.units[processor]
    if not unit.takes_by_choice:
        messages = tuple((root, time) for root in unit.roots)
    elif failed := history.decisions.get(("failed", processor, time)) or history.decisions.get(
        ("skipped", processor, time)
    ):
        messages = tuple((edge.partition("->")[0], at) for edge, at in failed.messages)
    else:
        raise InvalidError(
            "BAD_OPTION",
            f"{processor} takes from {' and '.join(unit.reads)} by its own choice, and step {time} of it has not failed: look at those "
            f"before it",
        )
    seen = set()
    for sender, at in messages:
        for step in _steps_of_sources(planned, history, sender, at):
            if step not in seen:
                seen.add(step)
                yield step
