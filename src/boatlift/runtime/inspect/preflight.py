"""The checks of a run that need neither a Spark session nor a running process."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from boatlift.dataflow import Plan
from boatlift.errors import InvalidError
from boatlift.runtime.host.overrides import done_by, refuse_skip
from boatlift.runtime.inspect.opening import store_at
from boatlift.storage.log import Log
from boatlift.storage.records.division import units_in

__all__ = ["check_store"]


def check_store(planned: Plan, path: Path, skip: Collection[tuple[str, int]]) -> None:
    """Raise what a run of a program on a store would raise, as far as program and store tell it.

    Args:
        planned: The program.
        path: The store's folder; it need not exist.
        skip: The steps that the user asks to skip.

    Raises:
        InvalidError: `[BAD_OPTION]` a step cannot be skipped.
        DataError: the log cannot be read, or belongs to another dataflow.
        UnavailableError: `[STORE_FAILED]` the folder cannot be read.
    """
    try:
        history = Log.open(store_at(path), planned.dataflow).history
    except InvalidError as error:
        if error.condition != "STORE_NOT_FOUND":
            raise
        history = None
    if history is None:
        asked, units = set(skip), set[str]()
    else:
        asked, units = set(skip) - history.decided("skipped"), set(units_in(history.program))
    for unit, time in asked:
        if unit in {*planned.units, *planned.sinks} or unit not in units:  # else Spark has to read a view's query first
            refuse_skip(planned, unit, time, -1 if history is None else done_by(planned, unit, history))
