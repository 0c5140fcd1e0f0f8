"""`bl.evolution`: what becomes of a store when its program changes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boatlift.api.by_value import pickle_by_value
from boatlift.api.dataflow import Dataflow
from boatlift.connectors.kit import checked_options
from boatlift.dataflow import plan as planned
from boatlift.runtime.host.transition import transition_to
from boatlift.runtime.transition import Transition
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ChangeReport(msgspec.Struct, frozen=True):
    """What becomes of one processor.

    Attributes:
        change: `unchanged`, `changed`, `downstream of a change`, `added` or `removed`.
        differences: What differs, in words; of a processor downstream the processors before it.
        mode: How the change is brought about, such as `fill`; empty if nothing is to be done.
    """

    kind: str
    change: str
    differences: tuple[str, ...]
    mode: str


class EvolutionReport(msgspec.Struct, frozen=True):
    """The plan of a transition.

    Attributes:
        id: The consent to this plan, and no other: `bl.run(…, evolve=id)`.
        processors: Those of the new program, senders first, then those that are removed.
        at: Source to the last step before the transition.
        computed: The units that are executed once over all their input so far.
        obstacles: Processor to what keeps the plan from being carried out, and what to choose.
    """

    id: str
    processors: dict[str, ChangeReport]
    at: dict[str, int]
    computed: tuple[str, ...]
    obstacles: dict[str, str]

    @property
    def is_changed(self) -> bool:
        """Whether the program is another one than the store's."""
        return any(each.change != "unchanged" for each in self.processors.values())


@checked_options("bl.evolution")
def evolution(
    flow: Dataflow, store: str | Path, *, change: Mapping[str, str] | None = None, spark: SparkSession | None = None
) -> EvolutionReport:
    """Return what would become of a store's states and sinks if a dataflow ran on it; nothing is changed.

    Args:
        flow: The dataflow, changed or not.
        store: The folder of the store.
        change: Processor to the way in which its change is brought about: `fill` (computed from the whole past, the
            default), `carry` (the state as it is, the new code from now on), `same` (the new code gives the same rows),
            `now` (begin without the past); of a sink `fill` (what differs), `new_rows` (of that, what comes) or `now`.
            `all` names every processor.
        spark: The session; if not given, the active one, or a new local one.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`; `[BAD_OPTION]` a mode that there is not.
        BoatliftError: An error of the program, as `bl.run` raises it.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> bl.run(flow, "store", available_now=True)
        >>> flights.sink("another", bl.parquet("another"))
        >>> bl.evolution(flow, "store").processors["another"].change
        'added'
    """
    divided = planned(flow)  # refuses a wrong program before a JVM starts
    log = Log.open(LocalStore.open(Path(store), create=False), divided.dataflow)
    from boatlift.api.registry import ON_SPARK
    from boatlift.api.running import session_of
    from boatlift.spark.engine import SparkEngine

    session = session_of(flow, spark)
    pickle_by_value(flow)
    engine = SparkEngine(session, divided, ON_SPARK, long_running=False)
    try:
        return report_of(transition_to(log.history, engine, change or {}))
    finally:
        engine.close()


def report_of(transition: Transition) -> EvolutionReport:
    """Return a transition as data."""
    return EvolutionReport(
        transition.comparison.id,
        {
            name: ChangeReport(
                each.kind, each.change.value, each.differences, "" if each.mode is None else each.mode.value
            )
            for name, each in transition.comparison.processors.items()
        },
        {name: cut for name, cut in transition.cuts.items() if name not in transition.begins},
        tuple(transition.computed),
        {each.name: each.error.message for each in reversed(transition.obstacles)},
    )
