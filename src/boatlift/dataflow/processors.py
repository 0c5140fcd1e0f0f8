"""Processors: the vertices of a dataflow, the units of policy and rollback.

An edge is a processor's `upstream`, by name. Functions, columns and connectors are opaque here: what they mean is the
engine's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.contracts import Sink, Source
from boatlift.dataflow.policies import Ephemeral, Policy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Aggregate", "Processor", "SinkProcessor", "SourceProcessor", "Transform"]


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
    """A row-wise, deterministic function `DataFrame -> DataFrame`.

    Attributes:
        deterministic: True if the user vouches for the Python functions in it; None if there is nothing to vouch for.
    """

    name: str
    upstream: str
    function: Callable[[DataFrame], DataFrame]
    deterministic: bool | None
    policy: Policy


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Keyed state over an append-only stream; its output is one change per change of the input."""

    name: str
    upstream: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    policy: Policy


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


Processor = SourceProcessor | Transform | Aggregate | SinkProcessor


def upstream_of(processor: Processor) -> str | None:
    """Names the processor at the other end of the input edge; None for a source."""
    return None if isinstance(processor, SourceProcessor) else processor.upstream


def describe_policy(policy: Policy) -> str:
    """Writes a policy as a user does."""
    options: dict[str, Any] = {name: getattr(policy, name) for name in policy.__slots__}
    return f"{type(policy).__name__}({', '.join(f'{key}={value}' for key, value in options.items())})"
