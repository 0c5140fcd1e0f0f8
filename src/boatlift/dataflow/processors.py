"""Processors: the vertices of a dataflow, the units of policy and rollback.

An edge is a processor's `upstream`, by name, or one of a union's `others`, or that of a lookup's table. Functions, columns and connectors are
opaque here: what they mean is the engine's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from boatlift.dataflow.contracts import Sink, Source
from boatlift.dataflow.policies import Batch, Ephemeral, Policy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "Aggregate",
    "Lookup",
    "Processor",
    "Recomputation",
    "SinkProcessor",
    "SourceProcessor",
    "Table",
    "Transform",
    "Union",
    "describe_policy",
    "upstreams_of",
]


@dataclass(frozen=True, slots=True)
class SourceProcessor:
    """Takes rows from outside; each of its times is a recorded position."""

    name: str
    source: Source

    @property
    def policy(self) -> Policy:
        """A source keeps nothing: its determinants are in the log."""
        return Ephemeral()


@dataclass(frozen=True, slots=True)
class Transform:
    """A row-wise function `DataFrame -> DataFrame`.

    Attributes:
        deterministic: True if the user vouches for the Python functions in it; None if there is nothing to vouch for; False if the
            same rows may give others when it is executed again.
    """

    name: str
    upstream: str
    function: Callable[[DataFrame], DataFrame]
    deterministic: bool | None
    policy: Policy

    @property
    def repeats(self) -> bool:
        """Whether executing it again gives the same; else it is eager, so that nothing of it is seen before it is durable."""
        return self.deterministic is not False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Keyed state over an append-only stream; its output is one change per change of the input."""

    name: str
    upstream: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    policy: Policy


@dataclass(frozen=True, slots=True)
class Union:
    """Gives the rows of several streams.

    Attributes:
        others: Whose rows it gives besides those of `upstream`.
        as_they_come: Whether each message is a time of its own, whatever came first; else a time is that of all, and complete with the
            last of them.
    """

    name: str
    upstream: str
    others: tuple[str, ...]
    as_they_come: bool
    policy: Policy


@dataclass(frozen=True, slots=True)
class Table:
    """What a lookup keeps of another stream: for each key the row that holds now.

    Attributes:
        name: The lookup's own name for it; its columns begin with that.
        upstream: Whose rows: an aggregate's, or a recomputation's.
        keys: The columns by which its rows are found.
    """

    name: str
    upstream: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Gives each row of a stream the newest rows of tables, as they are when it comes: all inputs are taken as they come."""

    name: str
    upstream: str
    tables: tuple[Table, ...]
    policy: Policy


@dataclass(frozen=True, slots=True)
class Recomputation:
    """Computes a table anew every now and then: a batch. Or gathers rows.

    Attributes:
        function: Takes the rows, gives the table; any DataFrame operation. None: it gives the rows of its epoch on as they are, and they
            take the place of none.
        everything: Whether it is given all rows since the beginning; else those of its own epoch.
    """

    name: str
    upstream: str
    function: Callable[[DataFrame], DataFrame] | None
    everything: bool
    policy: Batch


@dataclass(frozen=True, slots=True)
class SinkProcessor:
    """Hands results to the outside, which is the only one to know what it holds."""

    name: str
    upstream: str
    sink: Sink

    @property
    def policy(self) -> Policy:
        """A sink keeps nothing: what it holds is outside."""
        return Ephemeral()


Processor = SourceProcessor | Transform | Aggregate | Union | Lookup | Recomputation | SinkProcessor


def upstreams_of(processor: Processor) -> tuple[str, ...]:
    """Names the processors at the other ends of the input edges, that of the rows first; none for a source."""
    match processor:
        case SourceProcessor():
            return ()
        case Union(upstream=upstream, others=others):
            return (upstream, *others)
        case Lookup(upstream=upstream, tables=tables):
            return (upstream, *(table.upstream for table in tables))
        case _:
            return (processor.upstream,)


def describe_policy(policy: Policy) -> str:
    """Writes a policy as a user does: its first option, and those that are not left as they are."""
    given = [
        f"{field.name}={getattr(policy, field.name)!r}"
        for at, field in enumerate(fields(policy))
        if at == 0 or getattr(policy, field.name) != field.default
    ]
    return f"{type(policy).__name__}({', '.join(given)})"
