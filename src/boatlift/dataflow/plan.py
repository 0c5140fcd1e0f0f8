"""A plan: a dataflow, checked and divided into units."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from boatlift.dataflow.contracts import Delivery
from boatlift.dataflow.groups import Groups, refuse_other_times
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.order import with_gathering
from boatlift.dataflow.policies import History, Keep, Policy
from boatlift.dataflow.processors import Processor, SinkSpec, SourceSpec
from boatlift.dataflow.rows import Rows
from boatlift.dataflow.units import Unit, units_of
from boatlift.errors import InvalidError


class Graph(Protocol):
    """A named graph of processors, from which `plan` makes a plan."""

    @property
    def name(self) -> str:
        """The dataflow's name."""

    @property
    def processors(self) -> Mapping[str, Processor]:
        """All processors by name, each after those that it reads."""

    @property
    def unused(self) -> Collection[str]:
        """The processors of sources that nothing reads, which are left out of a plan."""

    @property
    def ticks(self) -> SourceSpec | None:
        """The source of ticks, if any, even if nothing reads it yet."""

    @property
    def keep(self) -> Keep | None:
        """Which restore points are kept; None for those alone that a user asks for."""

    @property
    def was(self) -> Mapping[str, str]:
        """The processors that had another name in an earlier version of the program, each with that name."""

    @property
    def determinants(self) -> Mapping[str, int]:
        """Processors to the number of standbys that must hold what they choose; under "" that of all others."""

    @property
    def groups(self) -> Groups:
        """The sinks that are shown together."""

    def check(self) -> None:
        """Refuse functions that cannot be executed as written.

        Raises:
            InvalidError: `[NOT_ON_A_STREAM]`.
        """


@dataclass(frozen=True, slots=True)
class Plan:
    """A dataflow, checked and divided into units."""

    dataflow: str
    processors: Mapping[str, Processor]
    sources: Mapping[str, SourceSpec]
    units: Mapping[str, Unit]  # the units, each after those that it reads
    sinks: Mapping[str, SinkSpec]
    rows: Mapping[str, Rows]
    ticks: SourceSpec | None = None  # the source of ticks, if any, even if nothing reads it
    keep: Keep | None = None  # no part of the program's identity
    was: Mapping[str, str] = field(default_factory=dict)  # processor to a former name; no part of the identity either
    determinants: Mapping[str, int] = field(default_factory=dict)  # as of the dataflow; no part of the identity either
    groups: Groups = ()  # the sinks that are shown together

    def unit_of_sink(self, sink: str) -> Unit:
        """Return the unit whose job stages a sink."""
        return next(unit for unit in self.units.values() if any(s.name == sink for s in unit.sinks))

    def depths(self) -> Mapping[str, int]:
        """Return sources, units and sinks whose facts count once so many standbys hold them, each with that number.

        A unit is as careful as the most careful of its operators.
        """
        given, default = self.determinants, self.determinants.get("", 0)
        found = {name: given.get(name, default) for name in (*self.sources, *self.sinks)}
        for name, unit in self.units.items():
            asked = [given.get(each.name, default) for each in unit.operators] or [default]
            found[name] = max(asked) if all(asked) else 0
        return {name: depth for name, depth in found.items() if depth}

    def rows_of(self, name: str) -> Rows:
        return self.rows[name.removesuffix(":rows")]

    def keeps_no_rows(self, source: str, policies: Mapping[str, Policy] = MappingProxyType({})) -> bool:
        """Return whether the rows of a source are kept nowhere, so that it cannot be read again.

        The client keeps them until their results are durable, and all units behind the source restart with it at one
        step. So the store keeps the rows after all if a unit reads them again (`History`), or if they wait for another
        processor: before a batch or a merge, before a union with another source, before sinks that are shown together
        with those of another source, and before a sink that may hold a step, or part of one, that the log does not
        know.

        Args:
            policies: Policies of some units that override their own.
        """
        backed = self.sources[source].source.capabilities.store_backed
        if backed is None or not backed.answers_when_stable:
            return False
        behind = [unit for unit in self.units.values() if source in self.sources_of(unit.name)]
        sinks = [sink.sink for unit in behind for sink in unit.sinks]
        return not (
            any(source in u.reads and isinstance(policies.get(u.name, u.policy), History) for u in behind)
            or any(unit.timing in (Timing.BATCH, Timing.GATHERED) for unit in behind)
            or any(
                len(unit.reads) > 1 and unit.timing is Timing.EPOCHS and len(self.sources_of(unit.name)) > 1
                for unit in behind
            )
            or any(source in sources and len(sources) > 1 for sources in map(self._sources_of_group, self.groups))
            or any(sink.capabilities.parts > 1 or sink.delivery is Delivery.AT_LEAST_ONCE for sink in sinks)
        )

    def sources_of(self, name: str) -> frozenset[str]:
        """Return the sources upstream of a unit; of a source itself."""
        if name in self.sources:
            return frozenset({name})
        return frozenset().union(*map(self.sources_of, self.units[name].reads))

    def _sources_of_group(self, group: Collection[str]) -> frozenset[str]:
        return frozenset().union(*(self.sources_of(self.unit_of_sink(sink).name) for sink in group))

    def read_whole(self, source: str) -> bool:
        """Return whether a unit reads all rows of a source again in each step."""
        return any(source in unit.reads and unit.rereads_source for unit in self.units.values())


def plan(dataflow: Graph) -> Plan:
    """Check a dataflow and divide it into units, without the sources that nothing reads.

    Raises:
        InvalidError: `[EMPTY_DATAFLOW]`, `[DUPLICATE_PLACE]`, `[BAD_LOOKUP]`, `[BAD_RECOMPUTATION]`, `[BAD_REDUCTION]`,
            `[BAD_UNION]`, `[NOT_DETERMINISTIC]`, `[NOT_ON_A_STREAM]`, `[OTHER_TIMES]`.
    """
    processors = {name: each for name, each in dataflow.processors.items() if name not in dataflow.unused}
    sources = {p.name: p for p in processors.values() if isinstance(p, SourceSpec)}
    sinks = {p.name: p for p in processors.values() if isinstance(p, SinkSpec)}
    if not sources or not (sinks or any(map(_can_be_asked, processors.values()))):
        missing = "sink" if dataflow.processors else "source"
        raise InvalidError("EMPTY_DATAFLOW", f"{dataflow.name} has no {missing}, so it would do nothing: add one")
    dataflow.check()
    owners: dict[str, str] = {}
    for name, processor in sinks.items():
        for place in processor.sink.capabilities.places:
            if (owner := owners.setdefault(place, name)) != name:
                raise InvalidError(
                    "DUPLICATE_PLACE",
                    f"the sinks {owner} and {name} both write to {place}: give each a place of its own",
                )
    if unknown := [name for name in dataflow.determinants if name and name not in processors]:
        raise InvalidError(
            "BAD_OPTION", f"determinants names {unknown[0]}, which is no source, stream or sink of {dataflow.name}"
        )
    divided = _divided(dataflow.name, processors, dataflow.ticks)
    refuse_other_times(dataflow.groups, divided.units)
    return replace(
        divided,
        keep=dataflow.keep,
        was={**_former_names(divided.processors, dataflow.was), **dataflow.was},
        determinants=dataflow.determinants,
        groups=dataflow.groups,
    )


def replanned(before: Plan, processors: Mapping[str, Processor]) -> Plan:
    """Return the plan of a dataflow with other operators.

    Raises:
        InvalidError: as `plan`.
    """
    return replace(
        _divided(before.dataflow, processors, before.ticks),
        keep=before.keep,
        was=before.was,
        determinants=before.determinants,
        groups=before.groups,
    )


def _divided(name: str, processors: Mapping[str, Processor], ticks: SourceSpec | None) -> Plan:
    sources = {p.name: p for p in processors.values() if isinstance(p, SourceSpec)}
    sinks = {p.name: p for p in processors.values() if isinstance(p, SinkSpec)}
    read = {each for processor in processors.values() for each in processor.reads}
    ends = {each for each, processor in processors.items() if each in sinks or _can_be_asked(processor)}
    unread = next((each for each in processors if each not in read and each not in ends), None)
    if unread is not None:
        raise InvalidError("EMPTY_DATAFLOW", f"nothing reads {unread}: give it a sink, or remove it")
    processors = _after_meetings(_with_partials(processors))
    processors = with_gathering(processors, _rows(processors))
    return Plan(name, processors, sources, units_of(processors), sinks, _rows(processors), ticks)


def _with_partials(processors: Mapping[str, Processor]) -> dict[str, Processor]:
    """Return the processors of a dataflow, with those that do a part of another's work before it."""
    before = [each.before(processors) for each in processors.values() if isinstance(each, Operator)]
    instead = {found[-1].name: found for found in before if found}
    made: dict[str, Processor] = {}
    for name, processor in processors.items():
        made |= {each.name: each for each in instead.get(name, (processor,))}
    return made


def _former_names(processors: Mapping[str, Processor], was: Mapping[str, str]) -> dict[str, str]:
    """Return the processors that have other names because the user has renamed others, with their former names."""
    operators = {name: each for name, each in processors.items() if isinstance(each, Operator)}
    return {name: former for name, each in operators.items() if (former := each.former_name(was))}


def _after_meetings(processors: Mapping[str, Processor]) -> dict[str, Processor]:
    """Return the processors of a dataflow, with others in the place of those whose inputs have different times."""
    made: dict[str, Processor] = {}
    rows = _rows(processors)
    for name, processor in processors.items():
        if isinstance(processor, SourceSpec | SinkSpec):
            made[name] = processor
            continue
        inputs = [rows[read] for read in processor.reads]
        made |= {each.name: each for each in processor.after_meeting(inputs, processors.keys() | made.keys())}
    return made


def _can_be_asked(processor: Processor) -> bool:
    return not isinstance(processor, SourceSpec | SinkSpec) and processor.keeps_rows


def _rows(processors: Mapping[str, Processor]) -> dict[str, Rows]:
    rows: dict[str, Rows] = {}
    for name, processor in processors.items():
        if isinstance(processor, SourceSpec):
            rows[name] = processor.rows
        elif not isinstance(processor, SinkSpec):
            rows[name] = processor.rows([rows[read] for read in processor.reads])
    return rows
