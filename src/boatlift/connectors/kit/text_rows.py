"""Rows of texts: each text becomes its value, and a row with a text that is no value does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.connectors.kit.text_forms import TextForm, TextForms
from boatlift.connectors.kit.text_values import value_of
from boatlift.dataflow.columns import literal, quoted
from boatlift.dataflow.contracts import BAD_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

MALFORMED = "MALFORMED_RECORD"
"""The default text of the error at a row that does not fit."""
QUOTED_EMPTY = "\uffff\n\uffff"
"""The text of a field of two quotes: the empty string in a column of strings, NULL in others."""
_ROW, _BROKEN, _ABOUT = "_boatlift_row", "_boatlift_broken", "_boatlift_about"
_MARKED, _TEXT, _VALUE = "_boatlift_marked", "_boatlift_text{}", "_boatlift_value{}"


def all_text(schema: StructType, json: TextForms | None = None) -> StructType:
    """Return a schema of strings for the values that are read from text; every column may be NULL.

    Args:
        json: The forms in JSON, which has its own booleans: a string is a boolean only if the form has texts for it.
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
        row: The SQL of a struct like `all_text(schema)`; NULL if the row is broken.
        broken: The SQL of whether the row does not fit, whatever its texts are.
        schema: The declared columns; NOT NULL columns have a value in each row that fits.
        forms: The forms of values in text.
        mark: In JSON, the mark before a number in marked rows, also within the text of an object; otherwise empty.
        marked: In JSON, the SQL of whether a row is marked. Without the mark, text in such a row is a number only if
            the form allows it.
        has_quoted_empty: Whether texts may be `QUOTED_EMPTY`.
    """

    frame: DataFrame
    row: str
    broken: str
    schema: StructType
    forms: TextForms
    mark: str = ""
    marked: str = "false"
    has_quoted_empty: bool = False

    def rows(self, kept: Sequence[str], error: Column | None = None) -> DataFrame:
        """Return the rows; a row that does not fit stops the job, also if a query drops the row or a column.

        Args:
            kept: Columns of the frame to keep.
            error: The text of the error; None: `MALFORMED`.
        """
        from pyspark.sql import functions as F

        frame, values, flawed = self._judged(kept, error)
        stop = F.raise_error(F.lit(MALFORMED) if error is None else F.col(_ABOUT)).cast(self._plain())
        row = F.when(F.expr(flawed), stop).otherwise(F.expr(f"struct({values})"))
        return frame.select(F.inline(F.array(row)), *kept)

    def sorted_out(self, kept: Sequence[str], bad_row: Column) -> DataFrame:
        """Return all rows, with one more column `_bad_row`: NULL in rows that fit, `bad_row` in others.

        A row that does not fit has the values that could be read in the other columns.
        """
        from pyspark.sql import functions as F

        frame, values, flawed = self._judged(kept, bad_row)
        flaw = f"CASE WHEN {flawed} THEN {_ABOUT} END AS {BAD_ROW}"
        return frame.select(F.expr(f"inline(array(struct({values}, {flaw})))"), *kept)

    def _judged(self, kept: Sequence[str], about: Column | None) -> tuple[DataFrame, str, str]:
        """Return a frame of texts and values, and the SQL of the values and of whether a row does not fit."""
        from pyspark.sql import functions as F

        fields = [(each, _TEXT.format(n), _VALUE.format(n)) for n, each in enumerate(self.schema.fields)]
        reported = (F.expr("NULL") if about is None else about).alias(_ABOUT)
        named = (f"{self.row} AS {_ROW}", f"{self.broken} AS {_BROKEN}", f"{self.marked} AS {_MARKED}")
        frame = self.frame.select(*map(F.expr, named), reported, *kept)
        kept_names = [*map(quoted, kept), _BROKEN, _ABOUT, _MARKED]
        texts = (
            f"{self._meant(f'{_ROW}.{quoted(each.name)}', each.dataType, self.forms.of(each.name))} AS {text}"
            for each, text, _ in fields
        )
        frame = frame.selectExpr(*texts, *kept_names)
        values = (
            f"{self._value(text, each.dataType, self.forms.of(each.name))} AS {value}" for each, text, value in fields
        )
        frame = frame.selectExpr("*", *values)
        flaws = [f"coalesce({_BROKEN}, true)"]
        for each, text, value in fields:
            if (flaw := _flaw(text, value, each.dataType)) is not None:
                flaws.append(f"coalesce({flaw}, false)")
            if not each.nullable:
                flaws.append(f"{value} IS NULL")
        return frame, ", ".join(f"{value} AS {quoted(each.name)}" for each, _, value in fields), " OR ".join(flaws)

    def _meant(self, text: str, kind: DataType, form: TextForm) -> str:
        """Return the SQL of a text without marks and quotes; of a list, map or struct unchanged."""
        from pyspark.sql import types as T

        if self.has_quoted_empty:
            empty = "''" if isinstance(kind, T.StringType) else "NULL"
            return f"CASE WHEN {text} = {literal(QUOTED_EMPTY)} THEN {empty} ELSE {text} END"
        if not self.mark or not isinstance(_text_of(kind, form), T.StringType):
            return text
        marks = f'"{self.mark}([^"]*+)"|{self.mark}'
        exact = f"regexp_replace({text}, {literal(marks)}, '$1')"
        meant = f"CASE WHEN contains({text}, {literal(self.mark)}) THEN {exact}"
        is_number = isinstance(kind, T.IntegralType | T.FractionalType) and not isinstance(kind, T.DecimalType)
        if is_number and not form.says_numbers:  # a number in quotes: a fault shows the quotes
            begins = literal(r"\A[-+.]*[0-9]")
            meant += f""" WHEN {_MARKED} AND {text} RLIKE {begins} THEN concat('"', {text}, '"')"""
        return f"{meant} ELSE {text} END"

    def _value(self, text: str, kind: DataType, form: TextForm, depth: int = 0) -> str:
        """Return the SQL of the value of a text, or of a list, map or struct of texts with marks."""
        from pyspark.sql import types as T

        def inner(text: str, kind: DataType) -> str:
            return self._value(self._meant(text, kind, form), kind, form, depth + 1)

        match kind:
            case T.StructType():
                names = ((each, quoted(each.name)) for each in kind.fields)
                values = ", ".join(f"{inner(f'{text}.{name}', each.dataType)} AS {name}" for each, name in names)
                return f"CASE WHEN {text} IS NOT NULL THEN struct({values}) END"
            case T.ArrayType():
                return f"transform({text}, e{depth} -> {inner(f'e{depth}', kind.elementType)})"
            case T.MapType():
                return f"transform_values({text}, (k{depth}, e{depth}) -> {inner(f'e{depth}', kind.valueType)})"
        return (
            value_of(text, kind, form)
            if isinstance(_text_of(kind, form if self.mark else None), T.StringType)
            else text
        )

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


def _flaw(text: str, value: str, kind: DataType, depth: int = 0) -> str | None:
    """Return the SQL of whether a text has no value; None if texts of this type always have one."""
    from pyspark.sql import types as T

    match kind:
        case T.StringType() | T.BinaryType():
            return None
        case T.StructType():
            names = ((each, quoted(each.name)) for each in kind.fields)
            inner = (_flaw(f"{text}.{name}", f"{value}.{name}", each.dataType, depth) for each, name in names)
            found = [f"coalesce({each}, false)" for each in inner if each is not None]
            return f"({' OR '.join(found)})" if found else None
        case T.ArrayType():
            return _flaw_within(text, value, kind.elementType, depth)
        case T.MapType():
            return _flaw_within(f"map_values({text})", f"map_values({value})", kind.valueType, depth)
    return f"({text} IS NOT NULL AND {value} IS NULL)"


def _flaw_within(texts: str, values: str, kind: DataType, depth: int) -> str | None:
    flaw = _flaw(f"t{depth}", f"v{depth}", kind, depth + 1)
    if flaw is None:
        return None
    return f"exists(zip_with({texts}, {values}, (t{depth}, v{depth}) -> coalesce({flaw}, false)), flaw -> flaw)"
