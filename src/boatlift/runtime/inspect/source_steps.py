"""The steps of sources that a step takes its rows from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from boatlift.dataflow import Plan
from boatlift.errors import DataError, InvalidError, UnavailableError
from boatlift.runtime.inspect.contents import store_at
from boatlift.storage.input_log import InputLog
from boatlift.storage.log import Log
from boatlift.storage.opening import StorePlace
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import units_in


class SourceStep(msgspec.Struct, frozen=True):
    """A step of a source."""

    source: str
    step: int
    position: Any


def is_of_a_query(planned: Plan, path: StorePlace, processor: str) -> bool:
    """Return whether a processor is a unit of a store but not of the plan, because a view's query is cut into units.

    Raises:
        DataError: the log cannot be read.
    """
    if processor in planned.units:
        return False
    try:
        log = Log.open(store_at(path), planned.dataflow)
    except (InvalidError, UnavailableError):  # a look at the step says so
        return False
    return processor in units_in(log.history.program)


def source_steps(planned: Plan, path: StorePlace, processor: str, time: int) -> Iterator[SourceStep]:
    """Return the steps of sources that a step of a unit takes its rows from, each once and proved unchanged.

    A source that keeps its rows in the store is attached to it, so that `Source.load` can read them.

    Args:
        processor, time: A step of a unit, or one of a source, which is returned alone.

    Raises:
        InvalidError: `[BAD_OPTION]` the step is not in the log, or the processor executes no steps.
        DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]` the rows have changed, or the log cannot be read.
    """
    if processor not in planned.units and processor not in planned.sources:
        raise InvalidError(
            "BAD_OPTION", f"{processor} executes no steps of its own: {_instead(planned, processor, time)}"
        )
    store = store_at(path)
    log = Log.open(store, planned.dataflow)
    for name, step in _steps_of_sources(planned, log.history, processor, time):
        recorded = log.history.live_records.determinants.get(name, {}).get(step)
        if recorded is None:
            raise InvalidError(
                "BAD_OPTION",
                f"step {step} of {name} is not in the log: the step has not come yet, or it is stable and its record "
                f"is deleted; `boatlift log` shows the steps that there are",
            )
        if recorded.outcome is None:
            continue  # the source had no input for a step that another source began
        if planned.keeps_no_rows(name):
            raise DataError(
                "INPUT_MISSING",
                f'the rows of {name} are recorded nowhere: its clients push them again, since it has ack="stable"',
            )
        source, position = planned.sources[name].source, recorded.outcome["position"]
        if (store_backed := source.capabilities.store_backed) is not None:
            store_backed.attach(InputLog(store, log.store_id, name))
        if (records := source.capabilities.records_input) is not None:
            records.attach(store, Path(tempfile.gettempdir()), name)
        source.verify(position)
        yield SourceStep(name, step, position)


def _instead(planned: Plan, processor: str, time: int) -> str:
    for name, unit in planned.units.items():
        if processor in {each.name for each in unit.operators} | {sink.name for sink in unit.sinks}:
            return f"write --step {name}:{time}"
    return f"name one of {', '.join((*planned.sources, *planned.units))}"


def _steps_of_sources(planned: Plan, history: LogHistory, processor: str, time: Any) -> Iterator[tuple[str, int]]:
    if processor in planned.sources:
        yield processor, time
        return
    unit = planned.units[processor]
    if not unit.chooses_inputs:
        messages = tuple((root, time) for root in unit.reads)
    elif override := history.decisions.get(("failed", processor, time)) or history.decisions.get(
        ("skipped", processor, time)
    ):
        messages = tuple((edge.partition("->")[0], at) for edge, at in override.messages)
    else:
        raise InvalidError(
            "BAD_OPTION",
            f"{processor} chooses which messages of {' and '.join(unit.reads)} a step takes, and the log shows it for "
            f"failed steps only; step {time} has not failed: look at the processors before {processor}",
        )
    seen = set()
    for sender, at in messages:
        for step in _steps_of_sources(planned, history, sender, at):
            if step not in seen:
                seen.add(step)
                yield step
