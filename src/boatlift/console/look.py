"""`boatlift look`: the rows that a step takes from its sources."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from boatlift.dataflow import Dataflow, plan
from boatlift.errors import InvalidError
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log

__all__ = ["show_rows"]


def show_rows(
    spark: SparkSession, flow: Dataflow, store: Path, processor: str, time: int, *, at_most: int, as_json: bool
) -> None:
    """Shows them, read again from where the log says that they are.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no such step, or it takes nothing from a source.
        DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]` they are not what they were.
    """
    planned = plan(flow)
    if processor not in planned.units:
        raise InvalidError("BAD_OPTION", f"{processor} executes no steps: look at one of {', '.join(planned.units)}")
    unit = planned.units[processor]
    sources = [root for root in unit.roots if root in planned.sources]
    if len(sources) < len(unit.roots) or unit.takes_by_choice:
        raise InvalidError(
            "BAD_OPTION",
            f"{processor} takes from {' and '.join(unit.reads)}, not from sources step by step: look at those before it",
        )
    chosen = Log.open(LocalStore.open(store, create=False), flow.name).history.standing.chosen
    for name in sources:
        fact = chosen.get(name, {}).get(time)
        if fact is None:
            raise InvalidError(
                "BAD_OPTION",
                f"step {time} of {name} is not in the log: it has not come yet, or nobody can need it any more",
            )
        source, position = planned.sources[name].source, fact.outcome["position"]
        source.verify(position)
        frame = source.load(spark, position)
        if as_json:
            whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            for (row,) in frame.limit(at_most).select(whole).collect():
                print(row)
        else:
            print(f"{name}, step {time}:")
            frame.show(at_most, truncate=False)
