"""Bad rows that are set aside at the user's request: kept in the store, and left out of the input of steps.

Only a step that fails at a bad row pays: its bad rows are found and made durable, and it is executed again without
them. A replay repeats this with the same rows, because the input alone decides which rows are bad.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField

from boatlift.dataflow import BAD_ROW, Json, Plan, SortsOutBadRows, Source
from boatlift.dataflow.columns import quoted
from boatlift.errors import FLOW_AND_STORE, BoatliftError, DataError
from boatlift.storage.bad_rows import keep_bad_rows
from boatlift.storage.records.codec import BadRow
from boatlift.storage.store import Store

logger = logging.getLogger(__name__)

MOST = 100_000
"""A step with more bad rows fails: its input does not have the declared columns, and the driver holds all bad rows."""

_LETTER = "_boatlift_letter"


class SetAside:
    """The bad rows of a dataflow's sources.

    Law: each row of an executed step's input fits its schema, or is in a durable object of bad rows.
    """

    def __init__(self, spark: SparkSession, plan: Plan, store: Store) -> None:
        self._spark, self._plan, self._store = spark, plan, store
        self._decided: Mapping[str, AbstractSet[str] | None] = {}
        self._sorting: dict[str, tuple[Source, SortsOutBadRows]] = {}
        self._steps: set[tuple[str, int]] = set()  # those with durable bad rows

    def decide(self, rows: Mapping[str, AbstractSet[str] | None]) -> None:
        """Set the user's decisions: source to the places of bad rows, or to None for every bad row."""
        self._decided = rows

    def reader(self, source: str, steps: Iterable[int]) -> Source | None:
        """Return the source that finds bad rows, if one of its steps has some; else None."""
        return self._sorting[source][0] if any((source, step) in self._steps for step in steps) else None

    def resolve(self, taken: Iterable[tuple[str, int, Json]], error: DataError) -> bool:
        """Keep the bad rows of a step that failed at one, if the user decided so.

        Args:
            taken: Source, step and position of each message of the step's input.
            error: The failure. Its remedy names the first bad row that no decision covers.

        Returns:
            Whether the step can be executed again, without the rows that are in the store now.
        """
        resolved = False
        for source, step, position in taken:
            if (source, step) in self._steps:
                resolved = True  # another unit has kept them since this unit planned its step
                continue
            if self._plan.sources[source].source.capabilities.bad_rows is None:
                continue
            try:
                rows = self._bad_rows(source, position)
            except BoatliftError as other:  # such as a damaged file, whose rows cannot be told apart
                logger.debug("%s: %s", source, other)
                continue
            decided = self._decided.get(source, frozenset())
            stray = next((row for row in rows if decided is not None and row.place not in decided), None)
            if stray is not None:
                error.remedy = _advice(source, stray.place, error.remedy)
                return False
            if len(rows) > MOST:
                error.remedy = f"the step has more than {MOST:,} bad rows, so that none is set aside; {error.remedy}"
                return False
            if rows:
                if keep_bad_rows(self._store, source, step, rows):
                    told = "%s: bad rows of step %s are set aside: %s (boatlift bad-rows shows them)"
                    logger.warning(told, source, step, len(rows))
                self._steps.add((source, step))
                resolved = True
        return resolved

    def _bad_rows(self, source: str, position: Json) -> Sequence[BadRow]:
        if source not in self._sorting:
            sorts = self._plan.sources[source].source.capabilities.bad_rows
            assert sorts is not None
            sorting = sorts.sorting_out()
            assert sorting.capabilities.bad_rows is not None, "see SortsOutBadRows"
            self._sorting[source] = sorting, sorting.capabilities.bad_rows
        sorting, sorts = self._sorting[source]
        dead_letters = sorts.dead_letters(sorting.load(self._spark, position).where(F.col(BAD_ROW).isNotNull()))
        text = F.to_json(F.struct(*map(_readable, dead_letters.schema.fields)), {"ignoreNullFields": "false"})
        rows = dead_letters.withColumn(_LETTER, text).limit(MOST + 1).collect()
        return [BadRow(place, row[_LETTER]) for place, row in zip(sorts.places(rows), rows, strict=True)]


def fitting(rows: DataFrame) -> DataFrame:
    """Return the good rows of a source that finds bad rows."""
    return rows.where(F.col(BAD_ROW).isNull()).drop(BAD_ROW)


def _readable(field: StructField) -> Column:
    """Return a column of a dead letter: bytes as text if they are UTF-8, else in base64."""
    column = F.col(quoted(field.name))
    if isinstance(field.dataType, BinaryType):
        text = column.cast("string")
        column = F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("base64:"), F.base64(column)))
    return column.alias(field.name)


def _advice(source: str, place: str, remedy: str) -> str:
    row = shlex.quote(f"{source}:{place}")
    return (
        f"boatlift run {FLOW_AND_STORE} --set-aside {source} keeps this and every other bad row in the store and goes "
        f"on without them, --skip {row} this one alone" + (f"; {remedy}" if remedy else "")
    )
