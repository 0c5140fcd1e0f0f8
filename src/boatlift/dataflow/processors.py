"""Processors: the vertices of a dataflow, the units of policy and rollback.

A processor is a source, a sink or an operator. Edges are the names that a processor reads.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from boatlift.dataflow.contracts import Sink, Source
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Ephemeral, History, Policy
from boatlift.dataflow.rows import Rows

__all__ = ["Processor", "SinkSpec", "SourceSpec", "describe_policy"]


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source: takes rows from outside; each of its times is a recorded position.

    Attributes:
        retry_for: The seconds for which it may be unreachable before the run ends.
    """

    name: str
    source: Source
    retry_for: float = 60.0

    @property
    def policy(self) -> Policy:
        """A source keeps nothing: its determinants are in the log."""
        return Ephemeral()

    @property
    def reads(self) -> tuple[str, ...]:
        """No processor."""
        return ()

    @property
    def rows(self) -> Rows:
        """New rows, which can be read again."""
        return Rows(self.name, rereadable=True, ordered_within=self.source.capabilities.ordered_within)


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink: hands results to the outside; the outside alone knows what it holds."""

    name: str
    upstream: str
    sink: Sink

    @property
    def policy(self) -> Policy:
        """A sink keeps nothing: what it holds is outside."""
        return Ephemeral()

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose steps it commits."""
        return (self.upstream,)


Processor = SourceSpec | SinkSpec | Operator


def describe_policy(policy: Policy) -> str:
    """Return a policy as a user writes it: its first option, and the options that differ from their defaults."""
    if isinstance(policy, History):
        return f"History({'' if policy.batch is None else describe_policy(policy.batch)})"
    given = [
        f"{field.name}={getattr(policy, field.name)!r}"
        for at, field in enumerate(fields(policy))
        if at == 0 or getattr(policy, field.name) != field.default
    ]
    return f"{type(policy).__name__}({', '.join(given)})"
