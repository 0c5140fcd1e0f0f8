"""Rows of texts: each text becomes its value, and a row of which one text is no value does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from boatlift.connectors.kit.text_forms import TextForm, TextForms
from boatlift.connectors.kit.text_values import value_of
from boatlift.dataflow.contracts import BAD_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["MALFORMED", "QUOTED_EMPTY", "Texts", "all_text"]

MALFORMED = "MALFORMED_RECORD"
"""The text of the error at a row that does not fit, if a caller has no better one."""
QUOTED_EMPTY = "\uffff\n\uffff"
"""A text that stands for a field of two quotes: the empty text in a column of strings, NULL in others."""
_ROW, _BROKEN, _ABOUT = "_boatlift_row", "_boatlift_broken", "_boatlift_about"
_MARKED, _TEXT, _VALUE = "_boatlift_marked", "_boatlift_text{}", "_boatlift_value{}"


def all_text(schema: StructType, json: TextForms | None = None) -> StructType:
    """Return a schema with text in the place of each value that is read of text; every column may be NULL.

    Args:
        schema: The columns.
        json: The forms of texts of JSON, which has booleans of its own: text is none, unless the form has texts of it.
    """
    from pyspark.sql.types import StructField, StructType

    def of(field: StructField) -> StructField:
        return StructField(field.name, _text_of(field.dataType, None if json is None else json.of(field.name)))

    return StructType([of(field) for field in schema.fields])


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of rows.

    Attributes:
        frame: The texts, and other columns.
        row: A struct like `all_text(schema)`; NULL if the row is broken.
        broken: Whether the row does not fit, whatever its texts are.
        schema: The declared columns; those that are NOT NULL have a value in each row that fits.
        forms: How text says values.
        mark: Of JSON, what stands before a number in rows that are marked, also within an object's text; else empty.
        marked: Of JSON, whether a row is marked. Text without the mark is no number there, unless its form says so.
        has_quoted_empty: Whether texts may be `QUOTED_EMPTY`.
    """

    frame: DataFrame
    row: Column
    broken: Column
    schema: StructType
    forms: TextForms
    mark: str = ""
    marked: Column | None = None
    has_quoted_empty: bool = False

    def rows(self, kept: Sequence[str], error: Column | None = None) -> DataFrame:
        """Return the rows; one that does not fit stops the job.

        A generator looks at each row, and no unused column and no filter behind it keeps it from that.

        Args:
            kept: Columns of the frame that the rows keep.
            error: The text of the error; `MALFORMED` if it is None.
        """
        from pyspark.sql import functions as F

        frame, values, flawed = self._judged(kept, error)
        stop = F.raise_error(F.lit(MALFORMED) if error is None else F.col(_ABOUT))
        row = F.struct(*values)
        return frame.select(F.inline(F.array(F.when(flawed, stop.cast(self._plain())).otherwise(row))), *kept)

    def sorted_out(self, kept: Sequence[str], bad_row: Column) -> DataFrame:
        """Return all rows, with one more column `_bad_row`: NULL in rows that fit, `bad_row` in others.

        A row that does not fit has in the other columns what could be read of it.
        """
        from pyspark.sql import functions as F

        frame, values, flawed = self._judged(kept, bad_row)
        flaw = F.when(flawed, F.col(_ABOUT)).alias(BAD_ROW)
        return frame.select(F.inline(F.array(F.struct(*values, flaw))), *kept)

    def _judged(self, kept: Sequence[str], about: Column | None) -> tuple[DataFrame, list[Column], Column]:
        """Return a frame of texts and values, each computed once, the values, and whether a row does not fit."""
        from pyspark.sql import Column
        from pyspark.sql import functions as F

        declared = enumerate(self.schema.fields)
        fields = [(field, F.col(_TEXT.format(n)), F.col(_VALUE.format(n))) for n, field in declared]
        told = F.lit(None) if about is None else about
        marked = (F.lit(False) if self.marked is None else self.marked).alias(_MARKED)
        frame = self.frame.select(self.row.alias(_ROW), self.broken.alias(_BROKEN), told.alias(_ABOUT), marked, *kept)
        texts = (
            self._meant(F.col(_ROW)[field.name], field.dataType, self.forms.of(field.name)) for field, _, _ in fields
        )
        named = (text.alias(_TEXT.format(n)) for n, text in enumerate(texts))
        frame = frame.select(*named, _BROKEN, _ABOUT, _MARKED, *kept)
        values = (self._value(text, field.dataType, self.forms.of(field.name)) for field, text, _ in fields)
        frame = frame.select("*", *(value.alias(_VALUE.format(n)) for n, value in enumerate(values)))
        flaws = [F.coalesce(F.col(_BROKEN), F.lit(True))]
        for field, text, value in fields:
            if (flaw := _flaw(text, value, field.dataType)) is not None:
                flaws.append(F.coalesce(flaw, F.lit(False)))
            if not field.nullable:
                flaws.append(value.isNull())
        return frame, [value.alias(field.name) for field, _, value in fields], reduce(Column.__or__, flaws)

    def _meant(self, text: Column, kind: DataType, form: TextForm) -> Column:
        """Return the text that was meant; a list, map or struct as it is."""
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        if self.has_quoted_empty:
            there = F.when(text != QUOTED_EMPTY, text)
            return F.when(text == QUOTED_EMPTY, "").otherwise(there) if isinstance(kind, T.StringType) else there
        if not self.mark or not isinstance(_text_of(kind, form), T.StringType):
            return text
        exact = F.regexp_replace(text, f'"{self.mark}([^"]*+)"|{self.mark}', "$1")
        meant = F.when(text.contains(self.mark), exact)
        is_number = isinstance(kind, T.IntegralType | T.FractionalType) and not isinstance(kind, T.DecimalType)
        if is_number and not form.says_numbers:  # a number in quotes, which shows them again
            in_quotes = F.concat(F.lit('"'), text, F.lit('"'))
            meant = meant.when(F.col(_MARKED) & text.rlike(r"\A[-+.]*[0-9]"), in_quotes)
        return meant.otherwise(text)

    def _value(self, text: Column, kind: DataType, form: TextForm) -> Column:
        """Return the value of a text, or of a list, map or struct of texts that have marks."""
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        def inner(text: Column, kind: DataType) -> Column:
            return self._value(self._meant(text, kind, form), kind, form)

        match kind:
            case T.StructType():
                fields = (inner(text[field.name], field.dataType).alias(field.name) for field in kind.fields)
                return F.when(text.isNotNull(), F.struct(*fields))
            case T.ArrayType():
                return F.transform(text, lambda each: inner(each, kind.elementType))
            case T.MapType():
                return F.transform_values(text, lambda _, each: inner(each, kind.valueType))
        return value_of(text, kind, form) if isinstance(_text_of(kind, self._json(form)), T.StringType) else text

    def _json(self, form: TextForm) -> TextForm | None:
        return form if self.mark else None

    def _plain(self) -> StructType:
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(field.name, field.dataType) for field in self.schema.fields])


def _text_of(kind: DataType, json: TextForm | None) -> DataType:
    from pyspark.sql import types as T

    match kind:
        case T.StructType():
            return T.StructType([T.StructField(each.name, _text_of(each.dataType, json)) for each in kind.fields])
        case T.ArrayType():
            return T.ArrayType(_text_of(kind.elementType, json))
        case T.MapType():
            return T.MapType(kind.keyType, _text_of(kind.valueType, json))
        case T.BinaryType():
            return kind
        case T.BooleanType() if json is not None and not json.says_booleans:
            return kind
    return T.StringType()


def _flaw(text: Column, value: Column, kind: DataType) -> Column | None:
    """Return whether a text has no value; None if texts of this type always have one."""
    from pyspark.sql import Column
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    match kind:
        case T.StringType() | T.BinaryType():
            return None
        case T.StructType():
            inner = (_flaw(text[each.name], value[each.name], each.dataType) for each in kind.fields)
            found = [F.coalesce(each, F.lit(False)) for each in inner if each is not None]
            return reduce(Column.__or__, found) if found else None
        case T.ArrayType():
            return _flaw_within(text, value, kind.elementType)
        case T.MapType():
            return _flaw_within(F.map_values(text), F.map_values(value), kind.valueType)
    return text.isNotNull() & value.isNull()


def _flaw_within(texts: Column, values: Column, kind: DataType) -> Column | None:
    from pyspark.sql import functions as F

    if _flaw(F.lit(None), F.lit(None), kind) is None:
        return None

    def flaw(text: Column, value: Column) -> Column:
        found = _flaw(text, value, kind)
        assert found is not None
        return F.coalesce(found, F.lit(False))

    return F.exists(F.zip_with(texts, values, flaw), lambda each: each)
