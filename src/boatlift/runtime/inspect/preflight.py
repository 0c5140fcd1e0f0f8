"""The checks of a run that need neither a Spark session nor a running process."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from boatlift.dataflow import Plan
from boatlift.errors import InvalidError
from boatlift.runtime.host.overrides import done_by, refuse_set_aside, refuse_skip
from boatlift.runtime.host.places import check_places
from boatlift.runtime.host.processes import Life, life_of
from boatlift.runtime.inspect.opening import store_at
from boatlift.storage.log import Log
from boatlift.storage.records.division import units_in

__all__ = ["check_store"]


def check_store(
    planned: Plan,
    path: Path,
    skip: Collection[tuple[str, int | str]],
    set_aside: Collection[str] = (),
    *,
    take_over: bool = False,
) -> None:
    """Raise what a run of a program on a store would raise, as far as program and store tell it.

    Args:
        planned: The program.
        path: The store's folder; it need not exist.
        skip: The steps and rows that the user asks to skip.
        set_aside: The sources whose bad rows the user asks to set aside.
        take_over: Whether the store may have an owner that lives on this host.

    Raises:
        InvalidError: `[BAD_OPTION]` a step cannot be skipped, or rows cannot be set aside; `[STORE_IN_USE]`.
        DataError: the log cannot be read, or belongs to another dataflow.
        UnavailableError: `[STORE_FAILED]` the folder cannot be read.
        BoatliftError: a source or a sink has no place; see `check_places`.
    """
    try:
        log = Log.open(store_at(path), planned.dataflow)
        history = log.history
    except InvalidError as error:
        if error.condition != "STORE_NOT_FOUND":
            raise
        log, history = None, None
    if log is not None and not take_over:
        _refuse_living_owner(log)
    check_places(planned, "" if log is None else log.store_id, history)
    for source in {*set_aside, *(name for name, what in skip if isinstance(what, str))}:
        refuse_set_aside(planned, source)
    asked = {(name, what) for name, what in skip if isinstance(what, int)}
    if history is None:
        units = set[str]()
    else:
        asked, units = asked - history.decided("skipped"), set(units_in(history.program))
    for unit, time in asked:
        if unit in {*planned.units, *planned.sinks} or unit not in units:  # else Spark has to read a view's query first
            refuse_skip(planned, unit, time, -1 if history is None else done_by(planned, unit, history))


def _refuse_living_owner(log: Log) -> None:
    owner = log.last_claim()
    if owner is not None and not log.history.stopped and life_of(owner) is Life.RUNNING:
        since = datetime.fromtimestamp(owner.at / 1000, UTC)
        raise InvalidError(
            "STORE_IN_USE",
            f"process {owner.pid} of this host has run {log.dataflow} on this store since {since:%Y-%m-%d %H:%M:%S} "
            f"UTC: stop it (kill -TERM {owner.pid}), or take the store over from it with --take-over",
        )
