"""Where the rows of a query come from: a stream, what a plan makes of a change, or the result of a stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node

SchemaOf = Callable[[Sequence[Expression]], pa.Schema]
"""Returns the schema of columns as tasks see them, named by their place."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The change of a stream.

    Attributes:
        read: The stream; of a static table None.
        node: The leaf in the plan: its attributes, or the static table itself.
    """

    read: str | None
    node: Node


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
    """Return the schema of columns under the names that the query has for them.

    Args:
        schema_of: Returns their schema, named by their place.
    """
    fields = zip(schema_of(columns), columns, strict=True)
    return pa.schema([field.with_name(CatalystPlan.name_of(column)) for field, column in fields])
