"""From processors to units: which of them run together as one Spark job.

A chain of ephemeral transforms is fused into the job of its consumer. Where a processor has several consumers that
need jobs of their own, or where changes go on to a transform, its output is materialised once, as runs. Sinks are
staged inside the job that makes their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boatlift.dataflow.builder import Dataflow
from boatlift.dataflow.policies import Ephemeral, Policy
from boatlift.dataflow.processors import Aggregate, Processor, SinkProcessor, SourceProcessor, Transform, upstream_of
from boatlift.errors import InvalidError

__all__ = ["Plan", "Unit", "plan"]


@dataclass(frozen=True, slots=True)
class Unit:
    """What is executed as a whole at a step: one Spark job, but for large steps, whose rows another one divides before.

    Attributes:
        name: Its last processor; the unit goes by that name.
        root: Where its rows come from: a source, or a unit whose output is materialised.
        chain: The transforms between root and end, in order.
        aggregate: The stateful processor at its end, if there is one.
        sinks: Sinks that are staged in its job.
        materialised: Whether other units read its output.
        changes_in, changes_out: Whether its rows carry a weight, on the way in and out.
    """

    name: str
    root: str
    chain: tuple[Transform, ...]
    aggregate: Aggregate | None
    sinks: tuple[SinkProcessor, ...]
    materialised: bool
    changes_in: bool
    changes_out: bool

    @property
    def policy(self) -> Policy:
        """What is made durable of it: as its last processor says."""
        if self.aggregate is not None:
            return self.aggregate.policy
        return self.chain[-1].policy if self.chain else Ephemeral()


@dataclass(frozen=True, slots=True)
class Plan:
    """A dataflow, checked and divided into units, each after the one it reads from."""

    dataflow: str
    processors: Mapping[str, Processor]
    sources: Mapping[str, SourceProcessor]
    units: Mapping[str, Unit]
    sinks: Mapping[str, SinkProcessor]

    def unit_of_sink(self, sink: str) -> Unit:
        """Gives the unit whose job stages a sink."""
        return next(unit for unit in self.units.values() if any(s.name == sink for s in unit.sinks))

    def source_of(self, unit: str) -> str:
        """Names the source whose times a unit follows."""
        root = self.units[unit].root
        return root if root in self.sources else self.source_of(root)


def plan(dataflow: Dataflow) -> Plan:
    """Checks a dataflow and divides it into units.

    Raises:
        InvalidError: `[EMPTY_DATAFLOW]`, `[AGGREGATE_OVER_CHANGES]`.
    """
    processors = dataflow.processors
    readers: dict[str, list[Processor]] = {name: [] for name in processors}
    for processor in processors.values():
        upstream = upstream_of(processor)
        if upstream is not None:
            readers[upstream].append(processor)
    sources = {p.name: p for p in processors.values() if isinstance(p, SourceProcessor)}
    sinks = {p.name: p for p in processors.values() if isinstance(p, SinkProcessor)}
    if not sources or not sinks:
        missing = "source" if not sources else "sink"
        raise InvalidError("EMPTY_DATAFLOW", f"{dataflow.name} has no {missing}, so it would do nothing: add one")
    for name, consumers in readers.items():
        if not consumers and name not in sinks:
            raise InvalidError("EMPTY_DATAFLOW", f"nothing reads {name}: give it a sink, or remove it")
    changes = _carries_changes(processors)
    units: dict[str, Unit] = {}
    for name, processor in processors.items():
        if name in sinks or not _ends_a_unit(processor, readers[name]):
            continue
        chain: list[Transform] = []
        aggregate = processor if isinstance(processor, Aggregate) else None
        at = upstream_of(processor) if aggregate else name
        assert at is not None, "an aggregate reads something"
        while at not in units and isinstance(here := processors[at], Transform):
            chain.insert(0, here)
            at = here.upstream
        unit = f"{name}:rows" if name in sources else name  # a source whose rows are staged as they are
        units[unit] = Unit(
            unit,
            at,
            tuple(chain),
            aggregate,
            tuple(r for r in readers[name] if isinstance(r, SinkProcessor)),
            any(not isinstance(r, SinkProcessor) for r in readers[name]),
            changes[at],
            changes[name],
        )
    return Plan(dataflow.name, processors, sources, units, sinks)


def _carries_changes(processors: Mapping[str, Processor]) -> dict[str, bool]:
    changes: dict[str, bool] = {}
    for name, processor in processors.items():
        upstream = upstream_of(processor)
        if isinstance(processor, Aggregate):
            if changes[processor.upstream]:
                raise InvalidError(
                    "AGGREGATE_OVER_CHANGES",
                    f"{name} aggregates {upstream}, which gives changes of rows, not only new ones: "
                    f"aggregate the stream that {upstream} is made from",
                )
            changes[name] = True
        else:
            changes[name] = upstream is not None and changes[upstream]
    return changes


def _ends_a_unit(processor: Processor, readers: list[Processor]) -> bool:
    if isinstance(processor, Aggregate) or (
        isinstance(processor, Transform) and not isinstance(processor.policy, Ephemeral)
    ):
        return True
    jobs = sum(not isinstance(reader, SinkProcessor) for reader in readers)
    if isinstance(processor, SourceProcessor):
        # A source can be read again by each of its readers, so it is never materialised, only staged.
        return jobs < len(readers)
    return jobs != 1 or jobs < len(readers)
