"""Lines of CSV as rows, and those that are none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from boatlift.connectors.files.line_ends import lines_in
from boatlift.connectors.kit import Columns, null_fault, required_of
from boatlift.dataflow.columns import quoted
from boatlift.dataflow.contracts import BAD_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.csv_format import CsvFormat

__all__ = ["CsvLines"]

_TEXT = "_boatlift_text"
_MOST_FIELDS = 1 << 20
"""Of a line with more fields Spark's parser says nothing but that it fails. A task keeps 8 bytes for each."""


@dataclass(frozen=True, slots=True)
class CsvLines:
    """Lines that Spark's parser of CSV reads, as it reads them in a file.

    Attributes:
        csv: The format, of which each row is a line.
    """

    csv: CsvFormat
    divisible = True
    texts_in = staticmethod(lines_in)

    @property
    def header(self) -> bool:
        """Return whether the first line is no row."""
        return self.csv.header

    @property
    def encoding(self) -> str:
        """Return the encoding of files."""
        return self.csv.encoding

    @property
    def most(self) -> int:
        """Return how many bytes a line may have."""
        return self.csv.max_line_bytes

    def no_row(self, schema: StructType) -> str:
        """Return a line of more fields than there are columns."""
        return self.csv.separator.join("-" * (len(schema.fields) + 1))

    def sorted_out(self, schema: StructType, bad_row: Column) -> Column:
        """Return a generator of the row of each line; a blank line has none."""
        from pyspark.sql import Column
        from pyspark.sql import functions as F

        text = F.col("value").cast("string")
        declared = [f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields]
        options = {**self.csv.parser_options(), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _TEXT}
        options["maxColumns"] = str(_MOST_FIELDS)
        parsed = F.from_csv(text, ", ".join([*declared, f"{_TEXT} STRING"]), options)

        def judged(row: Column) -> Column:
            nulls = (row[name].isNull() for name in required_of(schema))
            flawed = reduce(Column.__or__, nulls, row[_TEXT].isNotNull())
            fields = [row[name].alias(name) for name in schema.fieldNames()]
            return F.array(F.struct(*fields, F.when(flawed, bad_row).alias(BAD_ROW)))

        # A generator parses each line, also where a filter drops the row, or no column of it is used.
        rows = F.element_at(F.transform(F.array(parsed), judged), 1)
        is_row = F.length(text) > 0 if self.csv.separator.isspace() else text.rlike(r"[^\x00-\x20]")
        return F.inline(F.when(is_row, rows))

    def fault(self, line: bytes, unread: Collection[str], columns: Columns, required: Collection[str]) -> str:
        """Return, in words, why a line is a bad row."""
        fault = self.csv.fault(line.decode(errors="replace"), unread, columns)
        if fault.startswith("it does not fit"):
            return next((null_fault(name) for name in required if name in unread), fault)
        return fault
