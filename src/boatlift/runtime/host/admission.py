"""Checks before a run has any effect: the store and its owner, the places of sources and sinks, the environment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import sleep
from typing import Any

import pyarrow as pa

from boatlift.dataflow import Plan, SinkContext
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError
from boatlift.runtime.host.overrides import last_done, refuse_set_aside, refuse_skip, source_named
from boatlift.runtime.host.ownership import refuse_running_owner
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.storage.log import Log
from boatlift.storage.opening import StorePlace, open_store
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Admitted, Record, units_in

STORE_SECONDS = 1.0  # from one look for a store that a standby waits for to the next


def check_owner(path: StorePlace) -> None:
    """Raise if the owner of a store runs on this host; there may be no store yet.

    Raises:
        InvalidError: `[STORE_IN_USE]`.
        DataError: the log cannot be read.
        UnavailableError: `[STORE_FAILED]` the folder cannot be read.
    """
    try:
        log = Log.open(open_store(path, create=False), None)
    except InvalidError as error:
        if error.condition != "STORE_NOT_FOUND":
            raise
    else:
        refuse_running_owner(log)


def refuse_missing_store(path: StorePlace) -> None:
    """Raise if there is no store.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`.
    """
    open_store(path, create=False)


def wait_for_store(path: StorePlace, tell: Callable[[str], None], is_over: Callable[[], bool]) -> bool:
    """Wait until there is a store that a standby could follow; return False if it was asked to stop before.

    Args:
        tell: Receives in words what is waited for.
        is_over: Returns whether the standby was asked to stop.

    Raises:
        BoatliftError: there can be no store, or nobody may read it.
    """
    told = ""
    while not is_over():
        try:
            open_store(path, create=False)
        except (InvalidError, UnavailableError) as error:
            if error.condition not in ("STORE_NOT_FOUND", "STORE_FAILED"):
                raise
            if told != error.message:
                tell(f"waits for a store: {error.message}")
            told = error.message
        else:
            return True
        sleep(STORE_SECONDS)
    return False


def check_store(
    planned: Plan,
    path: StorePlace,
    skip: Collection[tuple[str, int | str]],
    set_aside: Collection[str] = (),
    pause: Collection[str] = (),
) -> None:
    """Raise the errors that a run of a program on a store would raise, without a Spark session or a running process.

    Raises:
        InvalidError: `[BAD_OPTION]` a step cannot be skipped, rows cannot be set aside, or there is no such
            source.
        DataError: the log cannot be read, or belongs to another dataflow.
        UnavailableError: `[STORE_FAILED]` the folder cannot be read.
        BoatliftError: a source or a sink has no place; see `check_places`.
    """
    for name in pause:
        source_named(planned, name)
    try:
        log = Log.open(open_store(path, create=False), planned.dataflow)
        history = log.history
    except InvalidError as error:
        if error.condition != "STORE_NOT_FOUND":
            raise
        log, history = None, None
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
            refuse_skip(planned, unit, time, -1 if history is None else last_done(planned, unit, history))


def check_places(planned: Plan, store: str, history: LogHistory | None) -> None:
    """Raise if a place can never serve its source or its sink; one error names all such places.

    A source that has taken input already is not checked: its place was there, and may come back. The id `store` is ""
    before the first run.

    Raises:
        BoatliftError: `[NO_INPUT]`, `[NO_TOPIC]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_OF_ANOTHER_DATAFLOW]`, or another
            error that no retry can repair.
    """
    checks: list[Callable[[], None]] = []
    known = LogHistory() if history is None else history
    here = {*known.program}
    former = {name: was for name, was in planned.was.items() if here.isdisjoint({f"source {name}", f"sink {name}"})}
    for name, source in planned.sources.items():
        check_source = source.source.capabilities.preflight
        if check_source is not None and known.last_closed(former.get(name, name)) < 0:
            checks.append(check_source)
    for name, sink in planned.sinks.items():
        check_sink = sink.sink.capabilities.preflight
        if check_sink is not None:
            was = former.get(name, name) if f"sink {former.get(name)}" in known.program else name
            place = known.places.get(was, was)
            context = SinkContext(planned.dataflow, place, store, 0, pa.schema([]), changes=False)
            checks.append(partial(check_sink, context))
    if not checks:
        return
    faults: list[BoatliftError] = []
    with ThreadPoolExecutor(len(checks)) as pool:
        for checked in [pool.submit(check) for check in checks]:
            try:
                checked.result()
            except UnavailableError:
                pass  # the run retries, and reports that the place cannot be reached
            except BoatliftError as error:
                faults.append(error)
    if faults:
        first, *others = faults
        messages = (each.message if each.condition == first.condition else str(each) for each in others)
        refused = type(first)(first.condition, "; ".join([first.message, *messages]))
        if renamed := dict(_perhaps_renamed(planned, known, refused.message)):
            refused.remedy = f"if it has another name since, say so: bl.Dataflow(…, was={renamed})"
        raise refused from first


def _perhaps_renamed(planned: Plan, known: LogHistory, message: str) -> Iterator[tuple[str, str]]:
    """Yield sinks that come, each with a sink that goes and has its place by the message of an error."""
    came = [name for name in planned.sinks if f"sink {name}" not in known.program]
    went = [entry.removeprefix("sink ") for entry in known.program if entry.startswith("sink ")]
    for old in (each for each in went if each not in planned.sinks and repr(known.places.get(each, each)) in message):
        keys = {tuple(planned.sinks[new].sink.key or ()): new for new in came}
        if (new := keys.get(tuple(known.program[f"sink {old}"]["key"]))) is not None:
            yield new, old


def admit(progress: MachineProgress, history: LogHistory, now: Mapping[str, Any], *, shown_ahead: bool) -> list[Record]:
    """Accept this process's environment, unless it has changed and steps must be replayed.

    Steps are replayed under the versions and settings under which they were executed, or not at all. After a clean
    stop, recorded input beyond a checkpoint was never executed. But a unit that keeps no state, or logs only its
    inputs, executes its steps again even then.

    Args:
        shown_ahead: Whether receivers may have rows of steps that the log lacks: these are executed again, too.

    Returns:
        The records that must be durable before the run has any effect.

    Raises:
        DataError: `[ENVIRONMENT_CHANGED]`.
    """
    changed = sorted(key for key in {*history.environment, *now} if history.environment.get(key) != now.get(key))
    if not changed:
        return []
    again = progress.repeating()
    if again or shown_ahead or (not history.resumed and progress.has_recorded_input()):
        first = (
            f"run {' and '.join(again)} once under the recorded environment by `Lazy(every=1)`, which keeps its "
            f"state, to a clean stop"
            if again and history.resumed
            else "run once under the recorded environment with --available-now"
        )
        raise DataError(
            "ENVIRONMENT_CHANGED",
            f"recorded steps{' of ' + ', '.join(again) if again else ''} must be replayed, but "
            + ", ".join(f"{key} was {history.environment.get(key)} and is {now.get(key)}" for key in changed)
            + f": {first}, then change it",
        )
    return [Admitted()]
