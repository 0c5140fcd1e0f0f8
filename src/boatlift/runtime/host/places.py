"""The places of sources and sinks, looked at before a run has any effect."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from boatlift.dataflow import Plan, SinkContext
from boatlift.errors import BoatliftError, UnavailableError
from boatlift.storage.records.history import LogHistory

__all__ = ["check_places"]


def check_places(planned: Plan, store: str, history: LogHistory | None) -> None:
    """Raise if a place can never serve its source or its sink; one error names all such places.

    A source that has taken input already is not looked at: its place was there, and may come back.

    Args:
        planned: The program.
        store: The id of the store; "" if it is not made yet.
        history: What the store has recorded; None if it is not made yet.

    Raises:
        BoatliftError: `[NO_INPUT]`, `[NO_TOPIC]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_OF_ANOTHER_DATAFLOW]`, or another
            error that waiting does not mend.
    """
    looks: list[Callable[[], None]] = []
    for name, source in planned.sources.items():
        look = source.source.capabilities.preflight
        if look is not None and (history is None or history.last_closed(name) < 0):
            looks.append(look)
    for name, sink in planned.sinks.items():
        check = sink.sink.capabilities.preflight
        if check is not None:
            context = SinkContext(planned.dataflow, name, store, 0, pa.schema([]), changes=False)
            looks.append(partial(check, context))
    if not looks:
        return
    faults: list[BoatliftError] = []
    with ThreadPoolExecutor(len(looks)) as pool:
        for looked in [pool.submit(look) for look in looks]:
            try:
                looked.result()
            except UnavailableError:
                pass  # the run waits for the place, or says that it cannot be reached
            except BoatliftError as error:
                faults.append(error)
    if faults:
        first, *others = faults
        told = (each.message if each.condition == first.condition else str(each) for each in others)
        raise type(first)(first.condition, "; ".join([first.message, *told])) from first
