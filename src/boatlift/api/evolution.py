"""`bl.evolution` and `bl.rewind`: what becomes of a store when its program changes or it goes back, and going back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from boatlift.api.by_value import pickle_by_value
from boatlift.api.dataflow import Dataflow
from boatlift.connectors.kit import checked_options
from boatlift.dataflow import plan as planned
from boatlift.errors import InvalidError
from boatlift.runtime.host.consent import transition_to
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.points import BEGINNING, point_named
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.transition import Transition
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LogReader
from boatlift.storage.opening import StorePlace, open_store
from boatlift.storage.records.history import LogHistory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DEFAULTS = RunOptions()


class ChangeReport(msgspec.Struct, frozen=True):
    """What becomes of one processor.

    Attributes:
        change: `unchanged`, `changed`, `downstream of a change`, `added` or `removed`.
        differences: What differs, in words; of a processor downstream the processors before it.
        mode: How the change is brought about, such as `fill`; empty if nothing is to be done.
        was: Its former name, if it has another one since (`bl.Dataflow(…, was=…)`); else empty.
    """

    kind: str
    change: str
    differences: tuple[str, ...]
    mode: str
    was: str = ""


class EvolutionReport(msgspec.Struct, frozen=True):
    """The plan of a transition.

    Attributes:
        id: The consent to this plan, and no other: `bl.run(…, evolve=id)`.
        processors: Those of the new program, senders first, then those that are removed.
        at: Source to the last step before the transition.
        computed: The units that are executed over all their input so far.
        stepwise: Whether they execute it step by step, as `replay` asks, and not once.
        reads: Source that is read again for that to its bytes so far, as far as it can say.
        from_states: Units whose rows so far are in their states, and are not computed.
        rows: Unit that is computed to the rows that its steps have taken until the last clean stop, as far as known.
        seconds: What these rows take at the rate of each unit's quickest step so far; 0 if no unit has a rate.
        obstacles: Processor to what keeps the plan from being carried out, and what to choose.
        back: The restore point that the dataflow goes back to, or `beginning`; empty if it goes back to none.
        undone: Source to the number of its steps that are undone, and taken again, as far as the store knows them.
        from_copy: Whether the sinks come to a store that is restored from an older copy.
    """

    id: str
    processors: dict[str, ChangeReport]
    at: dict[str, int]
    computed: tuple[str, ...]
    obstacles: dict[str, str]
    back: str = ""
    stepwise: bool = False
    reads: dict[str, int] = {}
    from_states: tuple[str, ...] = ()
    rows: dict[str, int] = {}
    seconds: float = 0.0
    undone: dict[str, int] = {}
    from_copy: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether the program is another one than the store's."""
        return any(each.change != "unchanged" or each.was for each in self.processors.values())


@checked_options("bl.evolution")
def evolution(
    flow: Dataflow,
    store: StorePlace,
    *,
    change: Mapping[str, str] | None = None,
    to: str | None = None,
    from_copy: bool = False,
    spark: SparkSession | None = None,
) -> EvolutionReport:
    """Return what would become of a store's states and sinks if a dataflow ran on it; nothing is changed.

    Args:
        flow: The dataflow, changed or not.
        store: The folder of the store.
        change: Processor to the way in which its change is brought about: `fill` (computed from the whole past at once,
            the default), `replay` (computed from it step by step, in order), `carry` (the state as it is, the new code
            from now on), `same` (the new code gives the same rows), `now` (begin without the past); of a sink `fill`
            (what differs), `new_rows` (of that, what comes) or `now`. `all` names every processor.
        to: If it goes back first, as `rewind` does: a restore point, or the last one before a time in UTC or before a
            step, as `flights:4711`; or `beginning`.
        from_copy: Whether the store is restored from an older copy, as for `rewind`.
        spark: The session; if not given, the active one, or a new local one.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`; `[BAD_OPTION]` a mode that there is not; `[NO_RESTORE_POINT]`.
        BoatliftError: An error of the program, as `bl.run` raises it.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> bl.run(flow, "store", available_now=True)
        >>> flights.sink("another", bl.parquet("another"))
        >>> bl.evolution(flow, "store").processors["another"].change
        'added'
    """
    divided = planned(flow)  # refuses a wrong program before a JVM starts
    log = Log.open(open_store(store, create=False), divided.dataflow)
    from boatlift.api.registry import ON_SPARK
    from boatlift.api.running import session_of
    from boatlift.spark.engine import SparkEngine

    session = session_of(flow, spark)
    pickle_by_value(flow)
    engine = SparkEngine(session, divided, ON_SPARK, long_running=False)
    try:
        back = None if to is None else point_named(log.history, to)
        transition = transition_to(log, engine, change or {}, back, from_copy=from_copy)
        return report_of(transition, log.history)
    finally:
        engine.close()


@checked_options("bl.rewind")
def rewind(
    flow: Dataflow,
    store: StorePlace,
    *,
    evolve: str,
    to: str | None = None,
    from_copy: bool = False,
    change: Mapping[str, str] | None = None,
    take_over: bool = False,
    spark: SparkSession | None = None,
    on_progress: Callable[[Progress], None] = _DEFAULTS.on_progress,
) -> None:
    """Take a dataflow back to a restore point with its sinks; the next run takes the input after it again.

    Each sink gets what differs between what it holds and what it held there, as one more step. The dataflow may be a
    mended one: what has changed is then computed from the past up to the point.

    Args:
        flow: The dataflow, changed or not.
        store: The folder of the store, whose run has ended.
        evolve: The id of the plan, as `bl.evolution(flow, store, to=…)` or `boatlift rewind` shows it.
        to: As for `evolution`.
        from_copy: The store is restored from an older copy, and its sinks have gone on since: they come to it. Without
            `to` it stays where the copy is, whose last run had stopped cleanly.
        change, take_over, spark, on_progress: As for `run`.

    Raises:
        InvalidError: `[NO_RESTORE_POINT]`; `[PLAN_CHANGED]` the plan is another one; `[BAD_OPTION]` neither `to` nor
            `from_copy`.
        DataError: `[REWIND_INPUT_GONE]` input after the point cannot be taken again; `[SINK_GAP]` the place of a sink
            is an older copy, too.
        BoatliftError: As `run`. Until the way back is recorded, the store goes on as it was.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> bl.run(flow, "store", available_now=True)
        >>> plan = bl.evolution(flow, "store", to="beginning")
        >>> bl.rewind(flow, "store", to="beginning", evolve=plan.id)
    """
    from boatlift.api.running import run_with

    if not evolve:
        raise InvalidError("BAD_OPTION", "evolve is empty: give the id of bl.evolution(flow, store, to=…)")
    if to is None and not from_copy:
        raise InvalidError("BAD_OPTION", "say where it goes back to (to), or that the store is a copy (from_copy)")
    log = LogReader(open_store(store, create=False), flow.name)
    log.load()
    options = RunOptions(
        evolve=evolve,
        change=change or {},
        take_over=take_over,
        on_progress=on_progress,
        rewind=None if to is None else point_named(log.history, to),
        from_copy=from_copy,
        pause=tuple(planned(flow).sources),
    )
    run_with(flow, store, options, spark)


def report_of(transition: Transition, history: LogHistory) -> EvolutionReport:
    """Return a transition as data.

    Args:
        history: The log.
    """
    steps = {name: cut for name, cut in transition.cuts.items() if name not in transition.begins}
    former = {**transition.was, **transition.comparison.sources}
    return EvolutionReport(
        transition.id,
        {
            name: ChangeReport(
                each.kind, each.change.value, each.differences, "" if each.mode is None else each.mode.value, each.was
            )
            for name, each in transition.comparison.processors.items()
        },
        steps,
        tuple(transition.computed),
        {each.name: each.error.message for each in reversed(transition.obstacles)},
        "" if transition.back is None else transition.back or BEGINNING,
        transition.stepwise,
        dict(transition.reads),
        tuple(transition.kept),
        {name: each.rows for name, each in transition.work.items() if each.rows},
        sum(each.rows / each.rate for each in transition.work.values() if each.rate),
        {}
        if transition.back is None
        else {name: history.last_closed(former.get(name, name)) - cut for name, cut in steps.items()},
        transition.from_copy,
    )
