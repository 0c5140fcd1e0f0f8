"""Lines of CSV as rows, and those that are none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.connectors.files.line_ends import lines_in
from boatlift.connectors.kit import Columns, null_fault
from boatlift.connectors.kit.text_rows import Texts
from boatlift.dataflow.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.csv_format import CsvFormat

_TEXT, _PARSED = "_boatlift_line", "_boatlift_fields"
_MOST_FIELDS = 1 << 20
"""Of a line with more fields Spark's parser says nothing but that it fails. A task keeps 8 bytes for each."""


@dataclass(frozen=True, slots=True)
class CsvLines:
    """Lines of which Spark's parser of CSV finds the fields, as it does in a file.

    Attributes:
        csv: The format, of which each row is a line.
    """

    csv: CsvFormat
    divisible = True
    texts_in = staticmethod(lines_in)

    @property
    def header(self) -> bool:
        return self.csv.header

    @property
    def encoding(self) -> str:
        return self.csv.encoding

    @property
    def most(self) -> int:
        return self.csv.max_line_bytes

    def no_row(self, schema: StructType) -> str:
        return self.csv.separator.join("-" * (len(schema.fields) + 1))

    def sorted_out(self, lines: DataFrame, schema: StructType, kept: Sequence[str], bad_row: Column) -> DataFrame:
        return self.texts_of(lines, schema).sorted_out(kept, bad_row)

    def texts_of(self, lines: DataFrame, schema: StructType) -> Texts:
        """Return the texts of the fields of lines."""
        from pyspark.sql import functions as F

        text = F.col("value").cast("string")
        names = [*(quoted(name) for name in schema.fieldNames()), _TEXT]
        options = {**self.csv.parser_options(), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _TEXT}
        options["maxColumns"] = str(_MOST_FIELDS)
        fields = F.from_csv(text, ", ".join(f"{name} STRING" for name in names), options)
        is_row = F.length(text) > 0 if self.csv.separator.isspace() else text.rlike(r"[^\x00-\x20]")
        frame = lines.where(is_row).select("*", fields.alias(_PARSED))
        broken = f"{_PARSED}.{_TEXT} IS NOT NULL"
        return Texts(frame, _PARSED, broken, schema, self.csv.forms, has_quoted_empty=True)

    def fault(self, line: bytes, unread: Collection[str], columns: Columns, required: Collection[str]) -> str:
        fault = self.csv.fault(line.decode(errors="replace"), unread, columns)
        if fault.startswith("it does not fit"):
            return next((null_fault(name) for name in required if name in unread), fault)
        return fault
