"""The contract of an operator on Spark: its part of a step's plan, and the work that a step of its unit is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow.columns import POSITION, WEIGHT
from boatlift.dataflow.identity import OwnState
from boatlift.dataflow.operator import Operator
from boatlift.errors import InvalidError
from boatlift.spark.plans.catalyst import empty_frame
from boatlift.spark.plans.fingerprint import pin_static_tables
from boatlift.storage.records.payloads import StepClock

if TYPE_CHECKING:
    from boatlift.spark.compile.unit import CompiledUnit
    from boatlift.spark.jobs.jobs import Jobs
    from boatlift.spark.jobs.steps import Steps

__all__ = [
    "OWN_POSITION",
    "Columns",
    "Compiled",
    "Kit",
    "OtherOperators",
    "SparkOperator",
    "no_watermark",
    "without_position",
]

O = TypeVar("O", bound=Operator)  # noqa: E741 - an operator

OWN_POSITION = {"boatlift": "position"}
"""The metadata of the column that a source adds; Spark gives no column of a user's this mark."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows that one operator hands to the next, as Spark sees them.

    Attributes:
        origin: The processor that gives the rows.
        schema: The columns, without `_weight` and `_position`.
        changes: True if the rows are changes and carry `_weight`.
        positioned: True if the rows carry `_position`.
        of_step: True if a value was taken from the clock or the chance of a step, within the same unit.
        keys: Sets of columns, none of which two rows that hold at one time have equal values in, as far as is known.
        has_watermark: True if messages carry bounds of event time.
        watermark_column: The column whose values those bounds are about; None if it is none of these.
    """

    origin: str
    schema: StructType
    changes: bool = False
    positioned: bool = False
    of_step: bool = False
    keys: tuple[frozenset[str], ...] = ()
    has_watermark: bool = False
    watermark_column: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns, without `_weight` and `_position`."""
        return list(self.schema.fieldNames())

    @property
    def weighted_schema(self) -> StructType:
        """The schema, with `_weight` if the rows are changes."""
        return StructType([*self.schema.fields, *([StructField(WEIGHT, LongType())] if self.changes else [])])


class Kit:
    """What compiling needs of a session.

    Args:
        spark: The session.

    Attributes:
        pinned: Static tables whose rows the session keeps for the dataflow.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.pinned: list[DataFrame] = []

    def empty(self, columns: Columns, *, weighted: bool = False) -> DataFrame:
        """Return a frame of no rows.

        Args:
            columns: The frame's columns; with `_position` if the rows carry it.
            weighted: Whether the frame has `_weight` if the rows are changes.
        """
        fields = list((columns.weighted_schema if weighted else columns.schema).fields)
        if columns.positioned:
            fields.append(StructField(POSITION, LongType(), metadata=OWN_POSITION))
        return empty_frame(self.spark, StructType(fields))

    def arrow(self, columns: Columns) -> pa.Schema:
        """Return the schema that Python tasks see: a timestamp carries the session's time zone; `_weight` is last."""
        schema = self.arrow_of(columns.schema)
        return schema.append(pa.field(WEIGHT, pa.int64(), nullable=False)) if columns.changes else schema

    def arrow_of(self, schema: StructType) -> pa.Schema:
        """Return the Arrow schema of a schema of Spark's.

        Raises:
            InvalidError: `[TYPE_REFUSED]` Arrow has no such type.
        """
        zone = self.spark.conf.get("spark.sql.session.timeZone")
        fields: list[pa.Field] = []
        for column in schema.fields:
            try:
                fields += to_arrow_schema(StructType([column]), timezone=zone)
            except PySparkException as error:
                raise InvalidError(
                    "TYPE_REFUSED",
                    f"column {column.name} is {column.dataType.simpleString()}, which steps cannot hand on: "
                    f"CAST({column.name} AS STRING), or drop it",
                ) from error
        return pa.schema(fields)

    def pin(self, frame: DataFrame) -> None:
        """Persist the static tables of a frame, so that all steps of this process see the same rows."""
        self.pinned += pin_static_tables(frame)


@dataclass(frozen=True, kw_only=True)
class Compiled(ABC):
    """An operator within a unit, ready to make its part of the plan of any step.

    Laws:
        * `frame` builds the same plan for the same inputs, clock and state, but where the operator is not
          deterministic.
        * A row-wise operator is handed rows without `_weight`: its frame is applied to the rows of each weight alone.
        * Every other operator is handed `_weight` if its input is changes, and `_position` only if it selects columns.

    Attributes:
        columns: The rows that the operator gives.
        fingerprint: A canonical hash of what is computed, equal in every process.
        calls_python: Whether a Python function of the user runs in the tasks.
        libraries: Installed packages that such functions reach, and their versions.
        row_wise: Whether each row of the result is made of one row of the input, by a function of the user.
        opaque: Whether Spark's plan is not looked through: the rows come out of a task, or of several inputs.
        selects: Whether its frame selects by name all columns that it takes.
        keys: Sets of columns, of which the key of a sink must have one: no two rows that hold have equal values in it.
            None if the operator's node says it (`Rows.unique`), or if rows are only ever added: of those a sink keeps
            the newest of each key, whatever its key is.
        in_words: Of a query the jobs of a step, for people; else ().
        compares: Whether rows may be compared, so that they can hold no maps.
        own_state: The state and the code of a processor of the user's; None of other operators.
    """

    row_wise: ClassVar[bool] = False
    opaque: ClassVar[bool] = False
    selects: ClassVar[bool] = False

    columns: Columns
    fingerprint: str = ""
    calls_python: bool = False
    libraries: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[frozenset[str], ...] | None = None
    in_words: tuple[str, ...] = ()
    compares: bool = True
    own_state: OwnState | None = None

    @abstractmethod
    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return the frame of the operator's rows at a step.

        Args:
            inputs: The rows of each of its reads; None where the step takes none. At least one is there.
            clock: The clock and the seed of the step.
            state: What the unit's `Steps` read out of the state for this step; None for an operator whose frame depends
                on no state, and while a program is compiled.

        Raises:
            UserCodeError: `[USER_CODE]`.
        """


class OtherOperators(Exception):  # noqa: N818 - no error
    """Raised by `SparkOperator.compile` for an operator in whose place others are to be compiled."""


class SparkOperator(ABC, Generic[O]):
    """One kind of operator on Spark.

    Laws:
        * `compile` runs no job, but to read static tables.
        * What is compiled depends on the operator and the columns of its inputs alone: not on how the dataflow is
          divided into units.
    """

    @abstractmethod
    def compile(self, operator: O, inputs: Sequence[Columns], kit: Kit) -> Compiled:
        """Compile an operator on empty frames.

        Args:
            operator: The operator.
            inputs: The columns of its reads.
            kit: Makes empty frames.

        Raises:
            InvalidError: the operator cannot be executed on such rows.
            UserCodeError: a function of the program raised.
            OtherOperators: other operators are to be compiled in its place.
        """

    @abstractmethod
    def steps(self, unit: CompiledUnit, jobs: Jobs) -> Steps:
        """Return what executes the steps of a unit whose `keeper` is such an operator."""


def no_watermark(name: str, wish: str, takes: Columns, column: str = "COLUMN") -> str:
    """Return the message of an error about a stream that does not say how late its rows can be.

    Args:
        name: The processor.
        wish: What the processor does by event time.
        takes: The stream.
        column: The column by which the processor goes.
    """
    instead = f"put .with_watermark('NAME', '{column}', '10 minutes') before it, behind a source or a transform"
    if takes.has_watermark:
        by = takes.watermark_column or "a column that it has not kept as it was"
        return f"{name} {wish}, and {takes.origin} says by {by} how late its rows can be: {instead}"
    return (
        f"{name} {wish}, and {takes.origin} does not say how late its rows can be: {instead}; it does not pass through "
        "unions, merges, lookups, batches and views of several streams"
    )


def without_position(columns: Columns) -> Columns:
    """Return the same columns without `_position`."""
    return replace(columns, positioned=False)
