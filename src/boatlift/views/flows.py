"""Flows: where the rows of a query come from (a stream, a linear node over changes, the result of a stage)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node

SchemaOf = Callable[[Sequence[Expression]], pa.Schema]
"""Makes the tasks' schema of columns, named by position."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The change of a stream."""

    read: str | None
    """The stream; None for a static table."""
    node: Node
    """The leaf in the plan: its attributes, or the static table itself."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A node that is applied to changes: `Project`, `Filter`, `Generate`, `Expand`, `Union`."""

    node: Node
    inputs: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class StageResult:
    """The change of a stage's result."""

    number: int


Flow = Leaf | Linear | StageResult


def named_schema(columns: Sequence[Expression], schema_of: SchemaOf) -> pa.Schema:
    """Return the schema of columns under their names in the query."""
    fields = zip(schema_of(columns), columns, strict=True)
    return pa.schema([field.with_name(CatalystPlan.name_of(column)) for field, column in fields])


class Form(Enum):
    """How a stage is computed: by a kernel, or by Spark from the rows of the affected keys."""

    JOIN = "inner join"
    OUTER = "outer join"
    SEMI = "semi, anti or existence join"
    NOT_IN = "null-aware anti join"
    DISTINCT = "distinct"
    AGGREGATE = "linear aggregate"
    FIRST = "first rows of a key"
    LOOP = "loop"
    GENERAL = "general form"
