"""Processors: sources, sinks and operators, the vertices of a dataflow. Each has a policy and is rolled back as one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from boatlift.dataflow.contracts import Sink, Source
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Ephemeral, History, Policy
from boatlift.dataflow.rows import Rows


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source, which reads an external system. Each of its times is a recorded position."""

    name: str
    source: Source
    retry_for: float = 60.0  # seconds for which the source may be unreachable before the run ends

    policy: ClassVar[Policy] = Ephemeral()
    reads: ClassVar[tuple[str, ...]] = ()

    @property
    def rows(self) -> Rows:
        return Rows(self.name, rereadable=True, ordered_within=self.source.capabilities.ordered_within)


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink, which commits the steps of one processor to an external system."""

    name: str
    upstream: str
    sink: Sink

    policy: ClassVar[Policy] = Ephemeral()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.upstream,)


Processor = SourceSpec | SinkSpec | Operator


def describe_policy(policy: Policy) -> str:
    """Return a policy as Python code: its first option, and the options that differ from their defaults.

    A function is its name.
    """
    if isinstance(policy, History):
        return f"History({'' if policy.batch is None else describe_policy(policy.batch)})"
    plain = type(policy)()
    options = {field.name: getattr(policy, field.name) for field in fields(policy)}
    given = [
        f"{name}={getattr(option, '__name__', repr(option))}"
        for at, (name, option) in enumerate(options.items())
        if at == 0 or option != getattr(plain, name)
    ]
    return f"{type(policy).__name__}({', '.join(given)})"
