"""From processors to units: which of them run together as one Spark job.

A chain of ephemeral transforms is fused into the job of its consumer. Where a processor has several consumers that
need jobs of their own, or where changes go on to a transform, its output is materialised once, as runs. Sinks are
staged inside the job that makes their rows. What is recomputed from everything reads its source for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boatlift.dataflow.builder import Dataflow
from boatlift.dataflow.captured import refuse_captured_streams
from boatlift.dataflow.policies import Ephemeral, History, Policy
from boatlift.dataflow.processors import (
    Aggregate,
    Lookup,
    Processor,
    Recomputation,
    SinkProcessor,
    SourceProcessor,
    Table,
    Transform,
    Union,
    upstreams_of,
)
from boatlift.dataflow.streams import Streams, streams_of
from boatlift.errors import InvalidError

__all__ = ["Plan", "Unit", "plan"]


@dataclass(frozen=True, slots=True)
class Unit:
    """What is executed as a whole at a step: one Spark job, but for large steps, whose rows another one divides before.

    Attributes:
        name: Its last processor; the unit goes by that name.
        roots: Where its rows come from: a source, or a unit whose output is materialised; several, if it unites them.
        union: How it unites them.
        chain: The transforms between roots and lookup or end, in order.
        end: What makes it more than transforms, if anything does: keyed state, a lookup, a recomputation.
        after: The transforms behind a lookup, in order.
        sinks: Sinks that are staged in its job.
        materialised: Whether other units read its output.
        changes_in, changes_out: Whether its rows carry a weight, on the way in and out.
    """

    name: str
    roots: tuple[str, ...]
    union: Union | None
    chain: tuple[Transform, ...]
    end: Aggregate | Lookup | Recomputation | None
    after: tuple[Transform, ...]
    sinks: tuple[SinkProcessor, ...]
    materialised: bool
    changes_in: bool
    changes_out: bool

    @property
    def policy(self) -> Policy:
        """What is made durable of it: as the processor says that keeps something, or the last."""
        if self.end is not None:
            return self.end.policy
        last = self.chain[-1] if self.chain else self.union
        return Ephemeral() if last is None else last.policy

    @property
    def repeats(self) -> bool:
        """Whether executing it again, with the same choices, gives the same."""
        return all(transform.repeats for transform in (*self.chain, *self.after))

    @property
    def deterministic(self) -> bool:
        """Whether code that raises at a step would raise again: a batch may do what it likes, and the outside may answer another time."""
        return self.repeats and (self.recomputation is None or self.recomputation.function is None)

    @property
    def in_turn(self) -> bool:
        """Whether it takes its inputs as they come."""
        return self.lookup is not None or (self.union is not None and self.union.as_they_come)

    @property
    def takes_by_choice(self) -> bool:
        """Whether what it takes at a step is a choice of its own, recorded once the step is done: what came first, or where an epoch ends."""
        return self.in_turn or self.recomputation is not None

    @property
    def aggregate(self) -> Aggregate | None:
        """The keyed state at its end."""
        return self.end if isinstance(self.end, Aggregate) else None

    @property
    def lookup(self) -> Lookup | None:
        """The lookup between its transforms."""
        return self.end if isinstance(self.end, Lookup) else None

    @property
    def recomputation(self) -> Recomputation | None:
        """The batch at its end."""
        return self.end if isinstance(self.end, Recomputation) else None

    @property
    def tables(self) -> tuple[Table, ...]:
        """What its lookup keeps; `upstream` names the units."""
        return self.lookup.tables if self.lookup is not None else ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Names all that it takes from: its roots first, then its tables."""
        return (*self.roots, *(table.upstream for table in self.tables))


@dataclass(frozen=True, slots=True)
class Plan:
    """A dataflow, checked and divided into units, each after those it reads from."""

    dataflow: str
    processors: Mapping[str, Processor]
    sources: Mapping[str, SourceProcessor]
    units: Mapping[str, Unit]
    sinks: Mapping[str, SinkProcessor]

    def unit_of_sink(self, sink: str) -> Unit:
        """Gives the unit whose job stages a sink."""
        return next(unit for unit in self.units.values() if any(s.name == sink for s in unit.sinks))

    def forgets(self, source: str) -> bool:
        """Whether nobody keeps a source's rows, so that it cannot give again what it gave: who hands them over does, until they are stable.

        They are kept where somebody reads them again; and where they would have to wait for somebody else: all that comes of such a source restarts with it, at
        one step, so behind it there is no batch, no other source whose steps are united with its own, and no sink that may have a part of a step.
        """
        backed = self.sources[source].source.capabilities.store_backed
        if backed is None or not backed.answers_when_stable:
            return False
        behind = [unit for unit in self.units.values() if source in self.sources_of(unit.name)]
        sinks = [sink.sink for unit in behind for sink in unit.sinks]
        return not (
            any(source in unit.reads and isinstance(unit.policy, History) for unit in behind)
            or any(unit.recomputation is not None for unit in behind)
            or any(len(u.reads) > 1 and not u.in_turn and len(self.sources_of(u.name)) > 1 for u in behind)
            or any(sink.capabilities.parts > 1 for sink in sinks)
        )

    def sources_of(self, name: str) -> frozenset[str]:
        """Names the sources that all that comes to a unit comes from."""
        if name in self.sources:
            return frozenset({name})
        return frozenset().union(*map(self.sources_of, self.units[name].reads))

    def read_whole(self, source: str) -> bool:
        """Whether something reads everything that a source ever gave, again and again."""
        return any(source in u.roots and u.recomputation and u.recomputation.everything for u in self.units.values())


def plan(dataflow: Dataflow) -> Plan:
    """Checks a dataflow and divides it into units.

    Raises:
        InvalidError: `[EMPTY_DATAFLOW]`, `[AGGREGATE_OVER_CHANGES]`, `[BAD_LOOKUP]`, `[BAD_RECOMPUTATION]`, `[BAD_UNION]`,
            `[NOT_DETERMINISTIC]`, `[NOT_ON_A_STREAM]`.
    """
    processors = dataflow.processors
    readers: dict[str, list[Processor]] = {name: [] for name in processors}
    for processor in processors.values():
        for upstream in upstreams_of(processor):
            readers[upstream].append(processor)
    sources = {p.name: p for p in processors.values() if isinstance(p, SourceProcessor)}
    sinks = {p.name: p for p in processors.values() if isinstance(p, SinkProcessor)}
    if not sources or not sinks:
        missing = "source" if not sources else "sink"
        raise InvalidError("EMPTY_DATAFLOW", f"{dataflow.name} has no {missing}, so it would do nothing: add one")
    refuse_captured_streams(dataflow)
    for name, consumers in readers.items():
        if not consumers and name not in sinks:
            raise InvalidError("EMPTY_DATAFLOW", f"nothing reads {name}: give it a sink, or remove it")
    making = _Units(processors, readers, streams_of(processors))
    for name in processors:
        making.add(name)
    return Plan(dataflow.name, processors, sources, making.units, sinks)


class _Units:
    def __init__(
        self, processors: Mapping[str, Processor], readers: Mapping[str, list[Processor]], streams: Streams
    ) -> None:
        self._processors, self._readers, self._streams = processors, readers, streams
        # Lookups, and unions, with the transforms behind them, that go on in the job of who comes next.
        self._looking: set[str] = set()
        self._uniting: set[str] = set()
        self.units: dict[str, Unit] = {}

    def add(self, name: str) -> None:
        """Makes the unit that a processor is the end of, if it is."""
        processor = self._processors[name]
        if isinstance(processor, SinkProcessor) or not self._ends_a_unit(processor):
            return
        readers = self._readers[name]
        after: list[Transform] = []
        chain: list[Transform] = []
        at, end = name, None
        if isinstance(processor, Transform) and processor.upstream in self._looking:
            at = self._follow(at, after)
        if isinstance(here := self._processors[at], Aggregate | Lookup | Recomputation):
            end, at = here, here.upstream
        whole = isinstance(end, Recomputation) and end.everything
        root = self._follow(at, chain, through=whole)
        there = self._processors[root]
        union = there if isinstance(there, Union) and root not in self.units else None
        roots = (root,) if union is None else upstreams_of(union)
        unit = f"{name}:rows" if isinstance(processor, SourceProcessor) else name  # a source staged as it is
        self.units[unit] = Unit(
            unit,
            roots,
            union,
            tuple(chain),
            end,
            tuple(after),
            tuple(r for r in readers if isinstance(r, SinkProcessor)),
            not isinstance(processor, SourceProcessor)
            and any(not isinstance(r, SinkProcessor) and not _reads_for_itself(r) for r in readers),
            self._streams.changes[roots[0]],
            self._streams.changes[name],
        )

    def _follow(self, at: str, chain: list[Transform], *, through: bool = False) -> str:
        """Goes up through transforms to where rows come from: what is no transform, or is a unit, unless one goes through that too."""
        while (through or at not in self.units) and isinstance(here := self._processors[at], Transform):
            chain.insert(0, here)
            at = here.upstream
        return at

    def _ends_a_unit(self, processor: Processor) -> bool:
        readers = self._readers[processor.name]
        jobs = [r for r in readers if not isinstance(r, SinkProcessor) and not _reads_for_itself(r)]
        staged = any(isinstance(r, SinkProcessor) for r in readers)
        goes_on = jobs[0] if len(jobs) == 1 and not staged else None
        if isinstance(processor, SourceProcessor):
            # A source can be read again by each of its readers, so it is never materialised, only staged.
            return staged
        if isinstance(processor, Aggregate | Recomputation):
            return True
        if isinstance(processor, Lookup) or (isinstance(processor, Transform) and processor.upstream in self._looking):
            # Only what is cheap is done in its job: who comes after has times of its own.
            if isinstance(goes_on, Transform) and isinstance(goes_on.policy, Ephemeral):
                self._looking.add(processor.name)
                return False
            return True
        if isinstance(processor, Transform | Union) and not isinstance(processor.policy, Ephemeral):
            return True
        if isinstance(processor, Union) or (isinstance(processor, Transform) and processor.upstream in self._uniting):
            # The order of a merge is recorded; what cannot be repeated is not: they are two.
            if isinstance(goes_on, Transform | Aggregate) and (
                not self._in_turn(processor) or (isinstance(goes_on, Transform) and goes_on.repeats)
            ):
                self._uniting.add(processor.name)
                return False
            return True
        return staged or len(jobs) > 1 or any(isinstance(job, Union) for job in jobs)

    def _in_turn(self, processor: Processor) -> bool:
        """Tells whether one that unites streams, or comes after that in its job, takes them as they come."""
        while isinstance(processor, Transform):
            processor = self._processors[processor.upstream]
        return isinstance(processor, Union) and processor.as_they_come


def _reads_for_itself(reader: Processor) -> bool:
    return isinstance(reader, Recomputation) and reader.everything
