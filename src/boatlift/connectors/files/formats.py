"""CSV and Parquet: how a file is compared with the schema, how Spark reads it, and why a read failed."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from boatlift.connectors.kit import Columns
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, Row, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["CsvFormat", "FileFormat", "ParquetFormat", "by_file", "columns_of_footer", "spark_path"]

_CSV_TYPES = (
    "string int bigint smallint tinyint float double boolean decimal date timestamp timestamp_ntz".split()  # noqa: SIM905
)
_GLOB_CHARACTERS = re.compile(r"[\\\[\]{}*?^,]")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._=/-]+")
_BAD_ROW = "_boatlift_bad_row"


class FileFormat(Protocol):
    """The differences between kinds of files."""

    @property
    def positioned(self) -> bool:
        """Return whether rows get a `_position`."""

    def check_columns(self, columns: Columns) -> None:
        """Raise if such files cannot hold a declared type.

        Raises:
            InvalidError: `[BAD_OPTION]`.
        """

    def check_file(self, path: Path, columns: Columns) -> None:
        """Compare a file's own columns with the declared ones.

        Raises:
            DataError: `[BAD_HEADER]`, naming file and difference.
        """

    def reader(self, spark: SparkSession, schema: StructType) -> DataFrameReader:
        """Return the reader of all steps: making one takes many calls into the JVM, using it one."""

    def guard(self, rows: DataFrame, files: Sequence[tuple[Path, int]]) -> DataFrame:
        """Add to the rows what depends on the format: checks, and positions.

        Args:
            rows: The rows of the files.
            files: The files, each with its place in the step that takes it.
        """

    def explain(self, spark: SparkSession, path: Path, columns: Columns, schema: StructType) -> DataError | None:
        """Return the reason why a file cannot be read; None if it can."""


@dataclass(frozen=True)
class CsvFormat:
    """Lines of text; every field of every row must fit the schema, also in unused columns."""

    header: bool
    null_value: str
    sep: str
    escape: str
    positioned = False  # Spark numbers no lines

    def check_columns(self, columns: Columns) -> None:
        """Raise if a field of text cannot hold a type."""
        for name, kind in columns:
            if kind.split("(")[0] not in _CSV_TYPES:
                raise InvalidError("BAD_OPTION", f"CSV cannot hold column {name} of type {kind}: declare it as string")

    def check_file(self, path: Path, columns: Columns) -> None:
        """Compare the header line, if there is one, with the schema: same names, same order."""
        if not self.header:
            return
        declared = [name for name, _ in columns]
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            found = next(self._split(line for line in file if line.strip()), None)
        if found is None:
            raise DataError("BAD_HEADER", f"{path} has no header line: the schema has {declared}; correct the file")
        if found != declared:
            raise DataError("BAD_HEADER", f"{path} {_difference(found, declared)}; correct the file or the schema")

    def reader(self, spark: SparkSession, schema: StructType) -> DataFrameReader:
        """Return a strict reader; the session pushes no filter into the parser."""
        return self._options(spark).schema(schema).option("mode", "FAILFAST")

    def guard(self, rows: DataFrame, files: Sequence[tuple[Path, int]]) -> DataFrame:  # noqa: ARG002
        """Make Spark parse every column of every row: by default it skips unused columns and does not count fields.

        The condition is true for every row, and no rule of Spark's optimizer can prove that.
        """
        return rows.where("hash(*) % 2 < 2")

    def explain(self, spark: SparkSession, path: Path, columns: Columns, schema: StructType) -> DataError | None:
        """Read the file again, leniently, for its first bad row; return that row's line and fault."""
        from pyspark.sql.types import StringType, StructField, StructType

        lenient = StructType([*schema.fields, StructField(_BAD_ROW, StringType())])
        reader = self._options(spark).schema(lenient)
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _BAD_ROW)
        bad = reader.load(spark_path(path)).where(f"{_BAD_ROW} is not null").limit(1).collect()
        if not bad:
            return None
        text = bad[0][_BAD_ROW]
        line = _line_of(path, text)
        return DataError(
            "BAD_ROW", f"{path} line {line}: {self._fault(text, bad[0], columns)}; corrected, the file needs a new name"
        )

    def _fault(self, text: str, row: Row, columns: Columns) -> str:
        fields = next(self._split([text]), [])
        if len(fields) != len(columns):
            return f"it has {len(fields)} fields, the schema {len(columns)}: {text[:200]!r}"
        for field, (name, kind) in zip(fields, columns, strict=True):
            if row[name] is None and field not in {"", self.null_value}:
                return f"column {name} is {field[:200]!r}, which is no {kind}"
        return f"it does not fit the schema: {text[:200]!r}"

    def _split(self, lines: Iterable[str]) -> Iterator[list[str]]:
        if self.escape == '"':
            return csv.reader(lines, delimiter=self.sep)
        return csv.reader(lines, delimiter=self.sep, doublequote=False, escapechar=self.escape)

    def _options(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.format("csv").options(
            header=self.header,
            nullValue=self.null_value,
            sep=self.sep,
            escape=self.escape,
            enforceSchema=False,
        )


@dataclass(frozen=True)
class ParquetFormat:
    """Columnar files; the footer's columns must be the declared ones, in any order."""

    positioned: bool

    def check_columns(self, columns: Columns) -> None:
        """Do nothing: Parquet holds every type that Spark can declare."""

    def check_file(self, path: Path, columns: Columns) -> None:
        """Compare the footer with the schema."""
        found = dict(columns_of_footer(path))
        declared = dict(columns)
        if found == declared:
            return
        if set(found) != set(declared):
            raise DataError(
                "BAD_HEADER", f"{path} {_difference(list(found), list(declared))}; correct the file or the schema"
            )
        name = next(name for name in declared if found[name] != declared[name])
        raise DataError(
            "BAD_HEADER", f"{path}: column {name} is {found[name]}, not {declared[name]}; correct file or schema"
        )

    def reader(self, spark: SparkSession, schema: StructType) -> DataFrameReader:
        """Return a reader with the declared schema, so that no job infers one."""
        return spark.read.format("parquet").schema(schema)

    def guard(self, rows: DataFrame, files: Sequence[tuple[Path, int]]) -> DataFrame:
        """Add `_position`: the file's place in the step, in the upper bits, and the row's index in the file."""
        if not self.positioned:
            return rows
        if not any(place for _, place in files):
            return rows.selectExpr("*", "_metadata.row_index AS _position")
        from pyspark.sql import functions as F

        place = by_file(rows.sparkSession, files)
        return rows.select("*", (place * (1 << 40) + F.col("_metadata.row_index")).alias("_position"))

    def explain(
        self,
        spark: SparkSession,  # noqa: ARG002
        path: Path,
        columns: Columns,  # noqa: ARG002
        schema: StructType,  # noqa: ARG002
    ) -> DataError | None:
        """Return an error if the file cannot be read whole."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            for _ in pq.ParquetFile(path).iter_batches():
                pass
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            return DataError("BAD_ROW", f"{path} cannot be read as Parquet ({reason}); put a whole file in its place")
        return None


def columns_of_footer(path: Path) -> Columns:
    """Return the columns of a Parquet file, as Spark would read them.

    Raises:
        DataError: `[BAD_HEADER]` the file is not Parquet, or has a type that Spark does not read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError("BAD_HEADER", f"{path} is not a whole Parquet file ({error}); correct the file") from error
    old_timestamps = {
        column.path for column in map(file.schema.column, range(len(file.schema))) if column.physical_type == "INT96"
    }
    unsigned = {pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)"}
    columns = []
    for field in file.schema_arrow:
        try:
            if field.name in old_timestamps:
                kind = "timestamp"
            elif field.type in unsigned:
                kind = unsigned[field.type]
            else:
                kind = from_arrow_type(field.type, prefer_timestamp_ntz=True).simpleString()
        except PySparkTypeError as error:
            raise DataError("BAD_HEADER", f"{path}: Spark cannot read column {field.name}, {field.type}") from error
        columns.append((field.name, kind))
    return tuple(columns)


def spark_path(path: Path) -> str:
    r"""Escape a path for Spark, which takes every path for a glob: `a[1]` as `a\[1\]`."""
    return _GLOB_CHARACTERS.sub(r"\\\g<0>", str(path))


def by_file(spark: SparkSession, values: Sequence[tuple[Path, int]]) -> Column:
    """Return a column that looks up a number for each row by the row's file.

    The numbers come as data, because a plan that differs from step to step would be compiled anew. Each path is given
    once.
    """
    from pyspark.sql import functions as F

    # A URI has no blank.
    paths = F.split(F.lit(" ".join(_as_in_uri(spark, path) for path, _ in values)), " ")
    numbers = F.split(F.lit(",".join(str(number) for _, number in values)), ",")
    path = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "/")
    return F.element_at(numbers, F.array_position(paths, path).cast("int")).cast("long")


def _as_in_uri(spark: SparkSession, path: Path) -> str:
    """Return a path as `_metadata` has it: escaped for a URI as Java does it."""
    if _PLAIN_PATH.fullmatch(str(path)):
        return str(path)
    jvm: Any = spark._jvm
    return str(jvm.org.apache.hadoop.fs.Path(str(path)).toUri().toString())


def _difference(found: Sequence[str], declared: Sequence[str]) -> str:
    missing = [name for name in declared if name not in found]
    more = [name for name in found if name not in declared]
    if missing or more:
        parts = [f"lacks {missing}" if missing else "", f"has {more}, which the schema has not" if more else ""]
        return " and ".join(part for part in parts if part)
    return f"has columns {list(found)}, the schema {list(declared)}"


def _line_of(path: Path, text: str) -> int | str:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.rstrip("\r\n") == text.rstrip("\r\n"):
                return number
    return "unknown"
