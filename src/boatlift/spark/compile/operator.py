"""The contract of an operator on Spark: its part of a step's plan, and the form of its steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow.columns import POSITION, WEIGHT
from boatlift.dataflow.identity import OwnState
from boatlift.kernels.kernel import Kernel
from boatlift.spark.plans.catalyst import empty_frame
from boatlift.spark.plans.column_rules import in_sql, type_refused
from boatlift.spark.plans.fingerprint import pin_static_tables
from boatlift.storage.records.payloads import StepClock
from boatlift.storage.records.records import RunRef

OWN_POSITION = {"boatlift": "position"}
"""The metadata of the column that a source adds; no column of a user's has it."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows between two operators, as Spark sees them.

    Attributes:
        origin: The processor of the rows.
        schema: The columns, without `_weight` and `_position`.
        changes: True if the rows are changes and carry `_weight`.
        positioned: True if the rows carry `_position`.
        of_step: True if a value comes from the clock or the random numbers of a step of the same unit.
        keys: The known sets of columns in which no two rows that hold at one time are equal.
        has_watermark: True if messages carry a watermark.
        watermark_column: The column of the watermark's times; None if it is not among the columns.
        further_times: Columns of streams that have met, each with the times of the watermark of one of them.
        without_watermark: The streams for want of whose watermark these rows have none; empty if it has another cause.
        partials: The whole aggregates of which the rows are partial ones, each as one branch of a union has it.
    """

    origin: str
    schema: StructType
    changes: bool = False
    positioned: bool = False
    of_step: bool = False
    keys: tuple[frozenset[str], ...] = ()
    has_watermark: bool = False
    watermark_column: str | None = None
    further_times: tuple[str, ...] = ()
    without_watermark: tuple[str, ...] = ()
    partials: tuple[Compiled, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the columns, without `_weight` and `_position`."""
        return list(self.schema.fieldNames())

    @property
    def weighted_schema(self) -> StructType:
        """The schema, with `_weight` if the rows are changes."""
        return StructType([*self.schema.fields, *([StructField(WEIGHT, LongType())] if self.changes else [])])


class Kit:
    """The parts of a session that compiling needs.

    Args:
        spark: The session.

    Attributes:
        pinned: Static tables that the session keeps for the dataflow.
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
                fields += to_arrow_schema(
                    StructType([column]), error_on_duplicated_field_names_in_struct=True, timezone=zone
                )
            except (PySparkException, ValueError) as error:  # Arrow's own error is of values without a type
                raise type_refused(in_sql(column.name), column.dataType, "its rows") from error
        return pa.schema(fields)

    def pin(self, frame: DataFrame) -> None:
        """Persist the static tables of a frame, so that all steps of this process see the same rows."""
        self.pinned += pin_static_tables(frame)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows that an operator keeps in its state, as a query reads them.

    Attributes:
        kernel: Gives rows between two states.
        staged: The columns of these rows, with `_weight`.
        result: Makes the operator's rows of them, row by row, with `_weight`; None if they are these rows.
        key: Columns of `staged`, by whose values in this order all parts of the state are divided; empty: there are
            none.
        hashed_by_spark: Whether the state is sorted by `key_groups.key_hash` of the key; else by
            `arrangement.key_hashes`.
    """

    kernel: Kernel
    staged: StructType
    result: Callable[[DataFrame], DataFrame] | None = None
    key: tuple[str, ...] = ()
    hashed_by_spark: bool = True


class TableTask(Protocol):
    """A task that gives the rows of a table for each row of its input, of which there are `tasks`."""

    @property
    def tasks(self) -> int: ...

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class KeptTable:
    """The rows of another stream that an operator keeps in its state, as a query reads them.

    Attributes:
        columns: Their columns.
        task: Makes the task that reads them, of the state and a function that locates a run.
    """

    columns: StructType
    task: Callable[[Any, Callable[[RunRef], str]], TableTask]


@dataclass(frozen=True, kw_only=True)
class Compiled(ABC):
    """An operator within a unit, ready to make its part of the plan of any step.

    The steps of a unit follow from the operator that has its state or ends its job: `CompiledKeyed` runs a kernel over
    rows by key, `beside` a batch, `boatlift.spark.jobs.steps.HasSteps` steps of its own; others stage the rows.

    Laws:
        * `frame` builds the same plan for the same inputs, clock and state, but where the operator is not
          deterministic.
        * A row-wise operator is handed rows without `_weight`: its frame is applied to the rows of each weight alone.
        * Every other operator is handed `_weight` if its input is changes, and `_position` only if it selects columns.

    Attributes:
        columns: The rows that the operator gives.
        fingerprint: A canonical hash of the computation, equal in every process.
        results: The end of the fingerprint that says how rows follow from a state; empty if they do not.
        calls_python: Whether a Python function of the user runs in the tasks.
        libraries: Installed packages that such functions reach, and their versions.
        row_wise: Whether each row of the result is made of one row of the input, by a function of the user.
        opaque: Whether the rows come out of a task, or of several inputs, so that Spark's plan ends there.
        beside: Whether steps run in a session of their own, beside all other steps.
        selects: Whether its frame selects by name all columns that it takes.
        keys: Sets of columns in which no two rows that hold are equal; the key of a sink must contain one of them.
            None if `Rows.unique` names them, or if rows are only added: then a sink keeps the latest row of each key,
            whatever its key is.
        in_words: The jobs of a step of a query, for people.
        compares: Whether rows may be compared, so that they can hold no maps.
        own_state: The state and the code of a user's processor; None of other operators.
        by_place: Whether it computes with `_position`.
    """

    row_wise: ClassVar[bool] = False
    opaque: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    beside: ClassVar[bool] = False

    columns: Columns
    fingerprint: str = ""
    results: str = ""
    calls_python: bool = False
    libraries: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[frozenset[str], ...] | None = None
    in_words: tuple[str, ...] = ()
    compares: bool = True
    own_state: OwnState | None = None
    by_place: bool = False

    @property
    def layout(self) -> str:
        """A hash of the form in which its state is kept; empty if it keeps none by key."""
        return ""

    @property
    def goes_by_event_time(self) -> bool:
        """Whether its state has a watermark, which its messages carry."""
        return False

    @property
    def kept_rows(self) -> KeptRows | None:
        """What its state has of its rows, if it has all that hold; else None."""
        return None

    @property
    def kept_tables(self) -> Mapping[str, KeptTable]:
        """The tables of other streams that its state has, by the names under which a query reads them."""
        return {}

    @abstractmethod
    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return the frame of the operator's rows at a step.

        Args:
            inputs: The rows of each input, at least one; None of an input without a message at the step.
            clock: The clock and the seed of the step.
            state: The part of the state that the unit's `Steps` read for this step; None for an operator whose frame
                depends on no state, and while a program is compiled.

        Raises:
            UserCodeError: `[USER_CODE]`.
        """


Compiler = Callable[[Any, Sequence[Columns], Kit], Compiled]
"""Compiles an operator, with the columns of its inputs, on empty frames.

Laws:
    * It runs no job, except to read static tables.
    * The result depends on the operator and the columns of its inputs alone, not on the units of the dataflow.

Raises:
    InvalidError: the operator cannot be executed on such rows.
    UserCodeError: a function of the program raised.
    OtherOperators: other operators are to be compiled in its place.
"""


class OtherOperators(Exception):  # noqa: N818 - no error
    """Raised by a `Compiler` that needs other operators in the place of its own."""


def with_least_watermark(columns: Columns, inputs: Sequence[Columns]) -> Columns:
    """Return the columns of an operator of several inputs, with a watermark if each input has one."""
    without = {
        origin for each in inputs if not each.has_watermark for origin in each.without_watermark or (each.origin,)
    }
    if without:
        some = any(each.has_watermark or each.without_watermark for each in inputs)
        return replace(columns, without_watermark=tuple(sorted(without)) if some else ())
    named = {each.watermark_column for each in inputs}
    return replace(columns, has_watermark=True, watermark_column=named.pop() if len(named) == 1 else None)


def no_watermark(name: str, wish: str, takes: Columns, column: str = "COLUMN") -> str:
    """Return the message of an error about a stream without a watermark.

    Args:
        name: The processor.
        wish: The processor's use of event time, as a verb phrase.
        takes: The stream.
        column: The column with the times.
    """
    instead = f"put .with_watermark('NAME', '{column}', '10 minutes') before it, behind a source or a transform"
    if takes.has_watermark:
        by = takes.watermark_column or "a column that it has not kept as it was"
        return f"{name} {wish}, and {takes.origin} says by {by} how late its rows can be: {instead}"
    lacking = ", ".join(takes.without_watermark)
    if lacking:
        return (
            f"{name} {wish}, and of what comes together in {takes.origin}, {lacking} has no watermark: put "
            f".with_watermark('NAME', '{column}', '10 minutes') behind {lacking}; rows without a time of their own, as "
            "of customers, are for a lookup(…), which needs none"
        )
    return f"{name} {wish}, and {takes.origin} does not say how late its rows can be: {instead}"


def without_position(columns: Columns) -> Columns:
    """Return the same columns without `_position`."""
    return replace(columns, positioned=False)
