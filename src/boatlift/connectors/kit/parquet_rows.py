"""The rows of a sink's Parquet files, on disk or in a bucket, read in tasks: each task takes some of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from boatlift.connectors.kit.object_place import InputFile, arrow_source
from boatlift.connectors.kit.tasks import guarded_rows
from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.errors import DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TASKS_A_SLOT = 4


def rows_of_files(
    spark: SparkSession, place: str, files: Sequence[InputFile], schema: pa.Schema, key: Sequence[str] | None = None
) -> DataFrame:
    """Return the rows of files and their weights, lazily; a column that a file lacks is NULL.

    Args:
        key: The current row of each key alone: that of the last file. None: all rows.
        place: The sink's place, for errors.
        files: At least one.
        schema: The columns to read. A file's column of the same name has the same type.

    Raises:
        InvalidError: From the tasks: `[SINK_NOT_READABLE]` a file is gone or damaged.
        UnavailableError: From the tasks: `[SINK_FAILED]` the place does not answer.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    nullable, file = pa.schema([field.with_nullable(True) for field in schema]), unused_name(schema.names)
    read = _FilesToRows(place, tuple(files), nullable.append(pa.field(file, pa.int64())))
    columns = from_arrow_schema(read.schema, prefer_timestamp_ntz=True)
    tasks = min(len(files), _TASKS_A_SLOT * spark.sparkContext.defaultParallelism)
    rows = spark.range(0, len(files), 1, tasks).mapInArrow(read, columns)
    return weighted((rows if key is None else newest_rows(rows, key, F.col(file))).drop(file))


def newest_rows(rows: DataFrame, key: Sequence[str], file: Column) -> DataFrame:
    """Return the current row of each key: that of the newest file, in which a step's deletes come first."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    order = Window.partitionBy(*map(quoted, key)).orderBy(file.desc(), F.col(WEIGHT).desc())
    place = unused_name(rows.columns)
    return rows.withColumn(place, F.row_number().over(order)).where(f"{place} = 1 AND {WEIGHT} > 0").drop(place)


def unused_name(names: Sequence[str]) -> str:
    """Return a name that no column has, in whatever case."""
    taken = {name.lower() for name in names}
    return next(name for number in count() if (name := f"_place{number}") not in taken)


def weighted(rows: DataFrame) -> DataFrame:
    """Return rows with their weight, which is 1 where there is none."""
    from pyspark.sql import functions as F

    return rows if WEIGHT in rows.columns else rows.withColumn(WEIGHT, F.lit(1).cast("long"))


@dataclass(frozen=True, slots=True)
class _FilesToRows:
    """Reads files by their numbers.

    Attributes:
        schema: The columns to read, then that of the file's number.
    """

    place: str
    files: tuple[InputFile, ...]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from guarded_rows(f"the sink of {self.place}", self._rows(number))

    def _rows(self, number: int) -> Iterator[pa.RecordBatch]:
        file = self.files[number]
        try:
            # Other writers of Delta tables write timestamps that the unit of their type does not hold as nanoseconds.
            with pq.ParquetFile(arrow_source(file), coerce_int96_timestamp_unit="us") as opened:
                for batch in opened.iter_batches():
                    there = dict(zip(batch.schema.names, batch.columns, strict=True))
                    there[self.schema.names[-1]] = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
                    columns = [
                        there[field.name].cast(field.type)
                        if field.name in there
                        else pa.nulls(batch.num_rows, field.type)
                        for field in self.schema
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
        except UnavailableError as error:
            raise UnavailableError("SINK_FAILED", error.message) from error
        except (OSError, pa.ArrowException, DataError) as error:
            raise InvalidError(
                "SINK_NOT_READABLE",
                f"{file} cannot be read, and with it rows of this sink ({error}): restore it from a copy, or choose "
                "--change SINK=now",
            ) from error
