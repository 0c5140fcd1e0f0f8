"""What the rows of each processor are: new rows, changes of rows, or a whole table every time; and who can take which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from boatlift.dataflow.processors import (
    Aggregate,
    Lookup,
    Processor,
    Recomputation,
    SinkProcessor,
    SourceProcessor,
    Transform,
    Union,
    upstreams_of,
)
from boatlift.errors import InvalidError

__all__ = ["Streams", "streams_of"]


@dataclass(frozen=True, slots=True)
class Streams:
    """By processor.

    Attributes:
        changes: Whether its rows carry a weight: some take others back.
        whole: Whether each message is a table that takes the place of the one before.
        fresh: Whether its rows are a source's, through nothing but transforms that repeat.
        even: Whether its times are those of sources.
    """

    changes: dict[str, bool] = field(default_factory=dict)
    whole: dict[str, bool] = field(default_factory=dict)
    fresh: dict[str, bool] = field(default_factory=dict)
    even: dict[str, bool] = field(default_factory=dict)


def streams_of(processors: Mapping[str, Processor]) -> Streams:
    """Finds out what everybody's rows are.

    Raises:
        InvalidError: `[AGGREGATE_OVER_CHANGES]`, `[BAD_LOOKUP]`, `[BAD_RECOMPUTATION]`, `[BAD_UNION]`, `[NOT_DETERMINISTIC]`.
    """
    streams = Streams()
    for name, processor in processors.items():
        _check(processor, streams, processors)
        upstream = None if isinstance(processor, SourceProcessor) else processor.upstream
        passes = isinstance(processor, Transform | SinkProcessor)
        streams.even[name] = upstream is None or (not _has_times_of_its_own(processor) and streams.even[upstream])
        streams.changes[name] = isinstance(processor, Aggregate) or (passes and streams.changes[upstream or ""])
        table = isinstance(processor, Recomputation) and processor.function is not None
        streams.whole[name] = table or (passes and streams.whole[upstream or ""])
        streams.fresh[name] = upstream is None or (
            isinstance(processor, Transform) and processor.repeats and streams.fresh[upstream]
        )
    return streams


def _check(processor: Processor, streams: Streams, processors: Mapping[str, Processor]) -> None:
    match processor:
        case Transform(name, upstream) | Aggregate(name, upstream) if streams.whole[upstream]:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{name} takes from {upstream}, which gives a whole table every time: put what {name} does into the function of "
                f"{upstream}; a sink can take the table, and a lookup",
            )
        case Transform(name, upstream) if streams.changes[upstream] and not processor.repeats:
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{name} is not deterministic, and takes changes of rows from {upstream}: a row would be taken back with another value than "
                "it had: do it before the aggregate",
            )
        case Aggregate(name, upstream) if streams.changes[upstream]:
            raise InvalidError(
                "AGGREGATE_OVER_CHANGES",
                f"{name} aggregates {upstream}, which gives changes of rows, not only new ones: "
                f"aggregate the stream that {upstream} is made from",
            )
        case Union():
            _check_union(processor, streams)
        case Lookup():
            _check_lookup(processor, streams, processors)
        case Recomputation(name, upstream, everything=True) if not streams.fresh[upstream]:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{name} is recomputed from everything that {upstream} gave, which is neither a source nor deterministic transforms of "
                "one, so that it cannot be read again: recompute from one of these, or use over='batch'",
            )
        case Recomputation(name, upstream) if streams.changes[upstream] or streams.whole[upstream]:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{name} takes from {upstream}, whose rows are not all new, so that it could not tell which of two rows holds: "
                "take from what that is made from",
            )
        case _:
            pass


def _has_times_of_its_own(processor: Processor) -> bool:
    return isinstance(processor, Lookup | Recomputation) or (isinstance(processor, Union) and processor.as_they_come)


def _check_union(union: Union, streams: Streams) -> None:
    for read in upstreams_of(union):
        if streams.changes[read] or streams.whole[read]:
            raise InvalidError(
                "BAD_UNION",
                f"{union.name} takes from {read}, whose rows are not all new, so that it could not tell which of two rows holds: "
                "unite what it is made from",
            )
        if not (union.as_they_come or streams.even[read]):
            raise InvalidError(
                "BAD_UNION",
                f"{union.name} takes from {read}, which is behind a lookup, a merge or a batch and has times of its own: unite before that, "
                "or merge",
            )


def _check_lookup(lookup: Lookup, streams: Streams, processors: Mapping[str, Processor]) -> None:
    name, upstream = lookup.name, lookup.upstream
    if streams.changes[upstream] or streams.whole[upstream]:
        raise InvalidError(
            "BAD_LOOKUP",
            f"{name} looks up for {upstream}, whose rows are not all new: what was looked up for a row could not be taken back "
            "as it was; look up for the rows of a source, or of transforms of one",
        )
    for table in lookup.tables:
        there = processors[table.upstream]
        if isinstance(there, Aggregate) and not set(there.keys) <= set(table.keys):
            raise InvalidError(
                "BAD_LOOKUP",
                f"{name} looks up {table.upstream} by {', '.join(table.keys)}, which has rows for each {', '.join(there.keys)}: look up "
                "by all of these, or aggregate by fewer",
            )
        if isinstance(there, Transform) and streams.changes[table.upstream]:
            raise InvalidError(
                "BAD_LOOKUP",
                f"{name} looks up {table.upstream}, which may have made two rows of a key, or one of two: look up the aggregate before "
                f"it, and do what {table.upstream} does with what {name} gives",
            )
        if not (streams.changes[table.upstream] or streams.whole[table.upstream]):
            raise InvalidError(
                "BAD_LOOKUP",
                f"{name} looks up {table.upstream}, which gives new rows and never says which of them holds now: aggregate it "
                f"by {', '.join(table.keys)}",
            )
