"""Groups of sinks whose steps become visible in one act: which sinks can, and which have the same steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boatlift.dataflow.operator import Timing
from boatlift.dataflow.processors import Processor, SinkSpec
from boatlift.dataflow.units import Unit
from boatlift.errors import InvalidError

Groups = tuple[tuple[str, ...], ...]
"""The sinks of each group, in order of their names: so owners of different programs lock them in one order."""


def grown(groups: Groups, names: Sequence[str], processors: Mapping[str, Processor]) -> Groups:
    """Return groups with one more.

    Raises:
        InvalidError: `[BAD_OPTION]` a name is no sink's, or is there twice; the sinks have no transaction in common.
    """
    sinks = {name: each for name in names if isinstance(each := processors.get(name), SinkSpec)}
    if missing := [name for name in names if name not in sinks]:
        there = ", ".join(name for name, each in processors.items() if isinstance(each, SinkSpec)) or "none yet"
        raise InvalidError("BAD_OPTION", f"{missing[0]} is no sink: add sinks first, and name them; there are {there}")
    if len(sinks) < 2 or len(sinks) < len(names):
        raise InvalidError("BAD_OPTION", f"together({', '.join(map(repr, names))}): name two or more different sinks")
    for group in groups:
        if both := sorted(sinks.keys() & set(group)):
            raise InvalidError(
                "BAD_OPTION",
                f"{both[0]} is shown together with others already ({', '.join(group)}): name all of them in one call",
            )
    places: dict[str, str] = {}
    for name, spec in sinks.items():
        shares = spec.sink.capabilities.shares_transaction
        if shares is None:
            raise InvalidError(
                "BAD_OPTION",
                f"{name} ({spec.sink.describe()['kind']}) shares no transaction with other sinks: tables of one SQLite "
                "file (bl.sqlite), or of one database of PostgreSQL (bl.postgres) or MariaDB (bl.mysql), or topics of "
                "one Kafka cluster (bl.kafka.sink with one writer), can be shown together; write the rows of "
                f"{name} to such a place, too, or leave it out",
            )
        places.setdefault(shares.shared_place, name)
    if len(places) > 1:
        (one, first), (other, second), *_ = places.items()
        raise InvalidError(
            "BAD_OPTION",
            f"{first} is in {one}, and {second} in {other}, which share no transaction: give both in one place, "
            "which both name alike, or leave one out",
        )
    return (*groups, tuple(sorted(sinks)))


def refuse_other_times(groups: Groups, units: Mapping[str, Unit]) -> None:
    """Refuse groups of sinks that do not have the same steps.

    Raises:
        InvalidError: `[OTHER_TIMES]`.
    """
    unit_of = {sink.name: name for name, unit in units.items() for sink in unit.sinks}
    for first, *others in groups:
        own = _own_times(unit_of[first], units)
        for other in others:
            if (theirs := _own_times(unit_of[other], units)) != own:
                raise InvalidError(
                    "OTHER_TIMES",
                    f"{first} has the steps of {_said(own)}, and {other} those of {_said(theirs)}: one step of the one "
                    "is none of the other. Show sinks together that are behind the same batch, lookup or merge, or "
                    "behind none",
                )


def _own_times(name: str, units: Mapping[str, Unit], *, of_sink: bool = True) -> frozenset[str]:
    """Return what has the times that a sink counts; nothing if these are the times of sources.

    What is behind a batch sees times of the batch's input, and none before an epoch has ended; a sink directly behind
    it counts its epochs.
    """
    unit = units.get(name)
    if unit is None:
        return frozenset()
    if unit.timing is not Timing.EPOCHS:
        return frozenset({f"epochs of {name}" if of_sink and unit.timing is Timing.BATCH else name})
    return frozenset().union(*(_own_times(read, units, of_sink=False) for read in unit.reads))


def _said(own: frozenset[str]) -> str:
    return ", ".join(sorted(own)) or "the sources"
