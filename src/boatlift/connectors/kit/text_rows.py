r"""Rows of texts: each text becomes its value, and a row with a text that is no value does not fit.

`value_of` is the one strict reader of values: a text is exactly a value of a type, or no value. Every source of text
(CSV and JSON in files, JSON in Kafka) uses it. Spark's own parsers accept more: `12,50` as 1250.00, `7E991122` as
Infinity, `12:30` as today. `docs/values.md` has the table of accepted forms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.connectors.kit.declared_columns import nullable
from boatlift.connectors.kit.text_forms import TextForm, TextForms
from boatlift.dataflow.columns import literal, quoted
from boatlift.dataflow.contracts import BAD_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_WHOLE = r"[0-9]+"
_EXPONENT = r"[eE][-+]?[0-9]+"
_NAMED = r"(?i:NaN|[-+]?Inf(?:inity)?)"
_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_HOURS = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6}0*)?)?"
_ZONE = r"Z| ?UTC|[-+][0-9]{2}(?::?[0-9]{2})?"
_SURE_DIGITS = 38
"""Numbers with at most this many digits and no exponent are in the range of FLOAT."""

MALFORMED = "MALFORMED_RECORD"
"""The default text of the error at a row that does not fit."""

QUOTED_EMPTY = "\uffff\n\uffff"
"""The text of a field of two quotes: the empty string in a column of strings, NULL in others."""

_ROW, _BROKEN, _ABOUT = "_boatlift_row", "_boatlift_broken", "_boatlift_about"

_MARKED, _TEXT, _VALUE = "_boatlift_marked", "_boatlift_text{}", "_boatlift_value{}"


def value_of(text: str, kind: DataType, form: TextForm) -> str:
    """Return the SQL of a text's value; NULL if the text is not exactly a value of the type.

    A number of FLOAT or DOUBLE is the nearest one. A timestamp without a zone is in the session's zone.
    """
    from pyspark.sql import types as T

    match kind:
        case T.StringType():
            return text
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return _if(_is(text, f"[-+]?{_grouped(form)}"), _cast(_plain(text, form), kind))
        case T.FloatType() | T.DoubleType():
            return _floating(text, kind, form)
        case T.DecimalType():
            return _decimal(text, kind, form)
        case T.BooleanType():
            true, false = [
                " OR ".join([*(f"{text} = {literal(each)}" for each in own), f"lower({text}) = '{usual}'"])
                for usual, own in (("true", form.true_values), ("false", form.false_values))
            ]
            return f"CASE WHEN {true} THEN true WHEN {false} THEN false END"
        case T.DateType():
            if form.date_format is not None:
                return _cast(f"try_to_timestamp({text}, {literal(form.date_format)})", kind)
            return _if(_is(text, _DATE), _cast(text, kind))
        case T.TimestampType():
            if form.timestamp_format is not None:
                return _cast(f"try_to_timestamp({text}, {literal(form.timestamp_format)})", kind)
            return _if(_is(text, rf"{_DATE}(?:[T ]{_HOURS}(?:{_ZONE})?)?"), _cast(text, kind))
        case T.TimestampNTZType():
            if form.timestamp_format is not None:  # a moment in the session's zone might not exist
                options = f"map('timestampNTZFormat', {literal(form.timestamp_format)})"
                return f"from_json(to_json(struct({text} AS x)), 'x {kind.simpleString()}', {options}).x"
            return _if(_is(text, rf"{_DATE}(?:[T ]{_HOURS})?"), _cast(text, kind))
    raise AssertionError(f"text is never read as {kind}")


def _if(condition: str, value: str) -> str:
    return f"CASE WHEN {condition} THEN {value} END"


def _is(text: str, pattern: str) -> str:
    whole = rf"\A(?:{pattern})\z"
    return f"{text} RLIKE {literal(whole)}"


def _cast(text: str, kind: DataType) -> str:
    return f"try_cast({text} AS {kind.simpleString()})"


def _grouped(form: TextForm) -> str:
    if form.thousands is None:
        return _WHOLE
    return rf"(?:{_WHOLE}|[0-9]{{1,3}}(?:{re.escape(form.thousands)}[0-9]{{3}})+)"


def _plain(text: str, form: TextForm) -> str:
    """Return the SQL of a number's text in Spark's own form."""
    if form.thousands is not None:
        text = f"replace({text}, {literal(form.thousands)}, '')"
    return text if form.decimal == "." else f"replace({text}, {literal(form.decimal)}, '.')"


def _number(form: TextForm) -> str:
    mark = re.escape(form.decimal)
    return rf"[-+]?(?:{_grouped(form)}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:{_EXPONENT})?"


def _floating(text: str, kind: DataType, form: TextForm) -> str:
    mark = re.escape(form.decimal)
    sure = rf"[-+]?[0-9]{{1,{_SURE_DIGITS}}}(?:{mark}[0-9]*)?"
    number = _cast(_plain(text, form), kind)
    finite = _if(f"abs({number}) < double('Infinity')", number)
    return (
        f"CASE WHEN {_is(text, sure)} THEN {number} WHEN {_is(text, _number(form))} THEN {finite} "
        f"WHEN {_is(text, _NAMED)} THEN {_cast(text, kind)} END"
    )


def _decimal(text: str, kind: DataType, form: TextForm) -> str:
    """Return the SQL of a decimal, if its scale holds every digit but zeros at the end."""
    from pyspark.sql.types import DecimalType

    assert isinstance(kind, DecimalType)
    mark = re.escape(form.decimal)
    short = f"[0-9]{{1,{kind.scale}}}0*" if kind.scale else "0+"
    exact = rf"[-+]?(?:{_grouped(form)}(?:{mark}(?:{short})?)?|{mark}{short})"
    plain = _plain(text, form)
    number = _cast(plain, kind)
    # The digits behind the point, and the exponent, give the place of the last digit that is no zero.
    before, after, exponent = (
        f"regexp_extract({plain}, {literal(pattern)}, 1)"
        for pattern in (r"\A[-+]?([0-9]*)", r"\.([0-9]*)", "[eE]([-+]?[0-9]+)")
    )
    digits = f"rtrim('0', concat({before}, {after}))"
    fraction = f"length({digits}) - length({before}) - try_cast({exponent} AS INT)"
    holds = f"({digits} = '' OR {fraction} <= {kind.scale})"
    short_exponent = rf"[-+]?(?:{_grouped(form)}(?:{mark}[0-9]*)?|{mark}[0-9]+)[eE][-+]?[0-9]{{1,3}}"
    return f"CASE WHEN {_is(text, exact)} THEN {number} WHEN {_is(text, short_exponent)} AND {holds} THEN {number} END"


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
        row: The SQL of a struct like `all_text(schema)`; NULL if the row is broken.
        broken: The SQL of whether the row does not fit, whatever its texts are.
        schema: The declared columns; NOT NULL columns have a value in each row that fits.
        mark: In JSON, the mark before a number in marked rows, also within the text of an object; otherwise empty.
        marked: In JSON, the SQL of whether a row is marked. Without the mark, text in such a row is a number only if
            the form allows it.
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
        """Return the rows; a row that does not fit stops the job, also if a query drops the row or a column."""
        from pyspark.sql import functions as F

        frame, values, flawed = self._judged(kept, error)
        stop = F.raise_error(F.lit(MALFORMED) if error is None else F.col(_ABOUT)).cast(nullable(self.schema))
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
        if is_number and form.decimal == "." and form.thousands is None:  # a number in quotes: a fault shows the quotes
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
        is_text = isinstance(_text_of(kind, form if self.mark else None), T.StringType)
        return value_of(text, kind, form) if is_text else text


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
        case T.BooleanType() if json is not None and not (json.true_values or json.false_values):
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
