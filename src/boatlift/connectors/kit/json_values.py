"""JSON text in a column `value` as rows, and whether all of the text is in them.

`from_json` passes over all that follows the first value of a text. Therefore the text is put into an object, and a key
behind it proves that the text ends there. Text could close what it is put into and open another value: so it is put
into an array once, and into an object once. No text closes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from boatlift.connectors.kit.date_patterns import DatePatterns
from boatlift.dataflow.contracts import BAD_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

__all__ = ["MALFORMED", "JsonValues"]

_ROWS, _END, _BAD = "_boatlift_rows", "_boatlift_end", "_boatlift_bad"
MALFORMED = "MALFORMED_RECORD"
"""The text of the error at a text that does not fit, if a caller has no better one."""
_FIRST, _SECOND = "first", "second"


@dataclass(frozen=True, slots=True)
class JsonValues:
    """How texts are read.

    The texts are the column `value`, of text or of bytes. Columns that a schema has as NOT NULL are never NULL in a
    text that fits; in the schema of the rows every column may be NULL.

    Attributes:
        arrays: Whether a text is one array of objects, or one object; else it is one object.
        patterns: How text says dates and times.
        blanks: Whether a text may be blank, and has no rows then.
    """

    arrays: bool
    patterns: DatePatterns
    blanks: bool = True

    def rows(self, schema: StructType, error: Column | None = None) -> Column:
        """Return a generator of the rows of each text; it raises an error at a text that does not fit.

        A generator parses each text once, and no unused column and no filter behind it keeps it from that.

        Args:
            schema: The columns of rows.
            error: The text of the error; `MALFORMED` if it is None.
        """
        from pyspark.sql import functions as F

        stop = F.raise_error(F.lit(MALFORMED) if error is None else error).cast(_array_of(schema))

        def checked(parsed: Column) -> Column:
            return F.when(self._is_flawed(parsed, schema), stop).otherwise(parsed[_FIRST][_ROWS])

        return F.inline(F.element_at(F.transform(F.array(self._parsed(schema)), checked), 1))

    def sorted_out(self, schema: StructType, bad_row: Column) -> Column:
        """Return a generator of the rows of each text, and of one row for each text that does not fit.

        Rows have one more column, `_bad_row`: NULL in rows that fit. A row that does not fit has in the other columns
        what could be read of it.

        Args:
            schema: The columns of rows.
            bad_row: The value of `_bad_row` for a text that does not fit.
        """
        from pyspark.sql import functions as F

        names = schema.fieldNames()
        none = F.when(F.lit(False), bad_row)

        def row_of(row: Column, flaw: Column) -> Column:
            return F.struct(*(row[name].alias(name) for name in names), flaw.alias(BAD_ROW))

        def judged(parsed: Column) -> Column:
            rows = parsed[_FIRST][_ROWS]
            bad = F.array(row_of(F.get(rows, F.lit(0)), bad_row))
            return F.when(self._is_flawed(parsed, schema), bad).otherwise(
                F.transform(rows, lambda row: row_of(row, none))
            )

        return F.inline(F.element_at(F.transform(F.array(self._parsed(schema)), judged), 1))

    def flawed(self, schema: StructType) -> Column:
        """Return whether a text does not fit: it is no value, or several, or one with other types."""
        from pyspark.sql import functions as F

        return F.element_at(
            F.transform(F.array(self._parsed(schema)), lambda parsed: self._is_flawed(parsed, schema)), 1
        )

    def _parsed(self, schema: StructType) -> Column:
        """Return rows, whether the text ends behind them in both contexts, and what of these cannot be read."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import BooleanType, StringType, StructField, StructType

        text = self._text()
        before, after = [F.when(self._is_array(), "").otherwise(each) for each in "[]"]
        in_array, in_object = F.concat(F.lit("["), text, F.lit("]")), text
        whole = self._ended(F.concat(F.lit(f'"{_ROWS}":'), before, text, after))
        # Bytes that are not UTF-8 would become other characters.
        whole = F.when(F.is_valid_utf8(F.col("value").cast("string")), whole).otherwise("")
        other = F.when(self._is_array(), in_array).otherwise(in_object)
        again = F.when(F.trim(text) == "", self._ended(F.lit('"_":0'))).otherwise(
            self._ended(F.concat(F.lit('"_":'), other))
        )
        proof = [StructField(_END, BooleanType()), StructField(_BAD, StringType())]
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD, **self.patterns.options()}
        return F.struct(
            F.from_json(whole, StructType([StructField(_ROWS, _array_of(schema)), *proof]), options).alias(_FIRST),
            F.from_json(again, StructType(proof), options).alias(_SECOND),
        )

    @staticmethod
    def _ended(fields: Column) -> Column:
        """Return the text of an object whose last key says that all before it was read."""
        from pyspark.sql import functions as F

        return F.concat(F.lit("{"), fields, F.lit(f',"{_END}":true}}'))

    def _is_flawed(self, parsed: Column, schema: StructType) -> Column:
        from pyspark.sql import Column
        from pyspark.sql import functions as F

        rows = parsed[_FIRST][_ROWS]
        both = [parsed[_FIRST], parsed[_SECOND]]
        ended = rows.isNotNull()
        for each in both:
            ended &= each[_BAD].isNull() & F.coalesce(each[_END], F.lit(False))
        one = F.size(rows) == 1
        number = self._is_array() | one if self.arrays else (F.size(rows) <= 1 if self.blanks else one)
        required = [field.name for field in schema.fields if not field.nullable]

        def is_whole(row: Column) -> Column:
            return reduce(Column.__and__, (row[name].isNotNull() for name in required), row.isNotNull())

        return ~F.coalesce(ended & number & F.forall(rows, is_whole), F.lit(False))

    def _is_array(self) -> Column:
        from pyspark.sql import functions as F

        return self._text().startswith("[") if self.arrays else F.lit(False)

    def _text(self) -> Column:
        """Return the text; of a whole file, of which Spark cuts nothing, without what may stand before a value."""
        from pyspark.sql import functions as F

        text = F.col("value").cast("string")
        return F.regexp_replace(text, r"^\x{FEFF}?[ \t\r\n]*", "") if self.arrays else text


def _array_of(schema: StructType) -> DataType:
    from pyspark.sql.types import ArrayType, StructField, StructType

    return ArrayType(StructType([StructField(field.name, field.dataType) for field in schema.fields]))
