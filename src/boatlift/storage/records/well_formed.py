"""The validity of a record beyond its types; readers and commands rely on it and check no further.

A checksum proves that the bytes are as written, but not that Boatlift wrote them. So a record must be one that Boatlift
can write: plain JSON values of a bounded depth, times of a domain, complete runs, and names that a program can have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec

from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    GarbageCollection,
    LoggedInput,
    LoggedMessage,
    LoopEnd,
    StepDigest,
    Truncation,
    payloads_of,
)
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import (
    Claim,
    Cursor,
    Evolved,
    KeptPoint,
    Membership,
    Override,
    PointsDropped,
    Record,
    RestorePoint,
    SinkCommit,
    Snapshot,
    TakenNames,
    units_in,
)
from boatlift.times import Domain, Maximal, Sequence, Time, domain_of, is_end

MOST_NESTED = 100
"""The deepest nesting of a value: far below the limit of Python's encoders, far above what a program needs."""

_PLAIN = frozenset((str, int, float, bool, type(None)))
_FACTS_NAME = re.compile(r"facts/[0-9]{12}-[0-9]{12}")
_NAMES_NAME = re.compile(r"names/[0-9]{12}-[0-9]{12}")
_DIGEST = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z0-9_.:>-]{1,300}")


def fault_of(record: Record) -> str | None:
    """Return the fault of a record; None if it has none."""
    return next(_faults(record), None)


def fault_of_names(names: TakenNames) -> str | None:
    """Return the fault of a source's names; None if they have none."""
    for each in names.objects:
        if _NAMES_NAME.fullmatch(each.name) is None or _DIGEST.fullmatch(each.digest) is None:
            return f"{each.name[:300]!r} with digest {each.digest[:300]!r} is no object of names"
    heights = [each.height for each in names.objects]
    return None if heights == sorted(heights, reverse=True) else f"{heights} are no heights of objects of names"


def fault_of_value(value: Any, depth: int = 0) -> str | None:
    """Return the fault of a value that must be plain JSON; None if it has none."""
    kind = type(value)
    if kind in _PLAIN:
        return None
    if depth == MOST_NESTED:
        return f"a value nests deeper than {MOST_NESTED}"
    if kind is dict:
        if not all(type(key) is str for key in value):
            return "a map has keys that are no text"
        inner: Iterable[Any] = value.values()
    elif kind is list:
        inner = value
    else:
        return f"a value is of type {kind.__name__}"
    for each in inner:
        if type(each) not in _PLAIN and (fault := fault_of_value(each, depth + 1)) is not None:
            return fault
    return None


def _faults(record: Record) -> Iterator[str]:
    match record:
        case Claim(program=program, environment=environment, sinks=sinks):
            yield from _of_values([program, environment, sinks])
            yield from _of_units(program)
        case SinkCommit(sink=sink):
            yield from _of_names([sink])
        case Cursor(source=source, cursor=cursor):
            yield from _of_names([source])
            yield from _of_values([cursor])
        case Override(who=who, messages=messages):
            yield from _of_names([who, *(edge for edge, _ in messages)])
            yield from _of_times(time for _, time in messages)
        case Snapshot():
            yield from _of_snapshot(record)
        case Evolved():
            yield from _of_evolved(record)
        case RestorePoint(name=name):
            yield from _of_names([name])
        case PointsDropped(names=names):
            yield from _of_names(names)
        case Membership(lives=lives):
            yield from _of_names(lives)
        case Determinant() | LoopEnd() | LoggedMessage() | StepDigest() | Checkpoint() | LoggedInput():
            yield from _of_fact(record)
        case Truncation(processors, messages):
            yield from _of_frontiers({**processors, **messages})
        case GarbageCollection(states, choices, messages):
            yield from _of_frontiers({**states, **choices, **messages})


def _of_units(program: Mapping[str, Any]) -> Iterator[str]:
    try:
        units_in(program)
    except msgspec.ValidationError as error:
        yield f"units of a program are none ({error})"


def _of_snapshot(record: Snapshot) -> Iterator[str]:
    yield from _of_units(record.program)
    lives = () if record.members is None else record.members.lives
    yield from _of_names([*record.cursors, *record.committed, *record.names, *lives])
    yield from _of_values([record.program, record.environment, *(cursor for _, cursor in record.cursors.values())])
    for part in (*record.decided, *record.facts):
        yield from _faults(part)
    for named in record.standing:
        if _FACTS_NAME.fullmatch(named.name) is None or _DIGEST.fullmatch(named.digest) is None:
            yield f"{named.name[:300]!r} with digest {named.digest[:300]!r} is no object of facts"
        ends = [-1, *(end for each in named.gone for end in each)]
        if any(end <= before for before, end in pairwise(ends)) or ends[-1] > named.count:
            yield f"{named.gone!r} are no places of {named.count} facts"
    yield from filter(None, map(fault_of_names, record.names.values()))
    yield from _of_names([*record.numbers, *record.tainted, *record.given, *record.places, *record.places.values()])
    yield from _of_names(record.work)
    yield from _of_payloads(each.difference for each in record.numbers.values() if each.difference is not None)
    for point in record.points:
        yield from _of_point(point)


def _of_point(point: KeptPoint) -> Iterator[str]:
    yield from _of_units(point.program)
    named = (point.name, *point.cursors, *point.committed, *point.names, *point.numbers, *point.tainted)
    yield from _of_names(named)
    yield from _of_values([point.program, point.environment, *(cursor for _, cursor in point.cursors.values())])
    for part in (*point.decided, *point.facts):
        yield from _faults(part)
    yield from _of_payloads(each.difference for each in point.numbers.values() if each.difference is not None)


def _of_evolved(record: Evolved) -> Iterator[str]:
    yield from _of_units(record.program)
    yield from _of_values([record.program, *(cursor for _, cursor in record.cursors.values())])
    named = (*record.forgotten, *record.edges, *record.renamed, *record.renamed.values())
    yield from _of_names([*named, *record.cursors, *record.committed, *record.sinks, *record.tainted])
    for fact in record.facts:
        yield from _faults(fact)
    yield from _of_payloads(each.difference for each in record.sinks.values() if each.difference is not None)
    yield from _of_names([*record.names, *record.was, *record.was.values(), *([record.back] if record.back else [])])
    yield from filter(None, map(fault_of_names, record.names.values()))


def _of_fact(fact: Determinant | LoopEnd | LoggedMessage | StepDigest | Checkpoint | LoggedInput) -> Iterator[str]:
    yield from _of_names([fact.edge if isinstance(fact, LoggedMessage) else fact.processor])
    match fact:
        case Determinant(time=time, taken=taken, outcome=outcome):
            ends = taken if isinstance(taken, tuple) else ()
            yield from _of_times([time, *([taken] if isinstance(taken, int) else []), *(e for _, e in ends if e != -1)])
            yield from _of_names([taken] if isinstance(taken, str) else [edge for edge, _ in ends])
            yield from _of_values([outcome])
        case LoopEnd(time=time, upto=upto):
            yield from _of_times([time] if upto is None else [time, upto])
        case LoggedMessage(time=time) | StepDigest(time=time):
            yield from _of_times([time])
        case Checkpoint(frontier=frontier):
            yield from _of_frontier(frontier, ends=False)
        case LoggedInput(time=time, frontier=frontier, messages=messages, outcome=outcome):
            yield from _of_times([time, *(at for _, at, _ in messages)])
            yield from _of_names(edge for edge, _, _ in messages)
            yield from _of_frontier(frontier, ends=False)
            yield from _of_values([outcome])
    yield from _of_payloads(payloads_of(fact))


def _of_payloads(payloads: Iterable[Any]) -> Iterator[str]:
    for payload in payloads:
        if (fault := fault_of_value(payload)) is not None:
            yield fault
            continue
        try:
            for _ in runs_of(payload):
                pass
        except (msgspec.ValidationError, TypeError) as error:
            yield f"a run cannot be read: {error}"


def _of_values(values: Iterable[Any]) -> Iterator[str]:
    yield from filter(None, map(fault_of_value, values))


def _of_names(names: Iterable[str]) -> Iterator[str]:
    yield from (f"{name[:300]!r} is no name" for name in names if not _is_name(name))


@lru_cache(4096)
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _of_times(times: Iterable[Time]) -> Iterator[str]:
    yield from (f"{time!r} is no time" for time in times if _domain_of(time) is None or is_end(time))


def _of_frontiers(frontiers: dict[str, Maximal]) -> Iterator[str]:
    yield from _of_names(frontiers)
    for frontier in frontiers.values():
        yield from _of_frontier(frontier, ends=True)


def _of_frontier(frontier: Maximal, *, ends: bool) -> Iterator[str]:
    """Yield the fault of a frontier, if any; `ends` permits all epochs, or all deliveries of an edge."""
    domains = {_domain_of(time) for time in frontier}
    if None in domains or len(domains) > 1 or (not ends and any(map(is_end, frontier))):
        yield f"{frontier!r} is no frontier"


def _domain_of(time: Time) -> Domain[Any] | None:
    domain = domain_of(time)
    if isinstance(domain, Sequence) and isinstance(time, tuple) and not _is_name(str(time[0])):
        return None
    return domain
