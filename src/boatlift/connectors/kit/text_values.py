r"""The one strict reader of values: text that is a value of a type exactly, or none.

Each way in that gives text (fields of CSV, values of JSON, in files and in Kafka) reads it so. Spark's own parsers take
more: `12,50` as 1250.00, `7E991122` as Infinity, `12:30` as today. `docs/values.md` has the table of accepted
forms.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING

from boatlift.connectors.kit.text_forms import TextForm

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

__all__ = ["value_of"]

_WHOLE = r"[0-9]+"
_EXPONENT = r"[eE][-+]?[0-9]+"
_NAMED = r"(?i:NaN|[-+]?Inf(?:inity)?)"
_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_HOURS = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6}0*)?)?"
_ZONE = r"Z| ?UTC|[-+][0-9]{2}(?::?[0-9]{2})?"
_SURE_DIGITS = 38
"""So many digits without an exponent are within the range of FLOAT."""


def value_of(text: Column, kind: DataType, form: TextForm) -> Column:
    """Return the value that text is; NULL if it is none of the type, or is not exactly one.

    A number of FLOAT or DOUBLE is the nearest one, as everywhere. Text of a moment without a zone is of the session's.

    Args:
        text: Text, or NULL.
        kind: A type whose values are no lists, maps or structs.
        form: How text says values.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    match kind:
        case T.StringType():
            return text
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return F.when(_is(text, f"[-+]?{_grouped(form)}"), _plain(text, form).try_cast(kind))
        case T.FloatType() | T.DoubleType():
            return _floating(text, kind, form)
        case T.DecimalType():
            return _decimal(text, kind, form)
        case T.BooleanType():
            true, false = [
                reduce(Column.__or__, (text == each for each in own), F.lower(text) == usual)
                for usual, own in (("true", form.true_values), ("false", form.false_values))
            ]
            return F.when(true, F.lit(True)).when(false, F.lit(False))
        case T.DateType():
            if form.date_format is not None:
                return F.try_to_timestamp(text, F.lit(form.date_format)).try_cast(kind)
            return F.when(_is(text, _DATE), text.try_cast(kind))
        case T.TimestampType():
            if form.timestamp_format is not None:
                return F.try_to_timestamp(text, F.lit(form.timestamp_format)).try_cast(kind)
            return F.when(_is(text, rf"{_DATE}(?:[T ]{_HOURS}(?:{_ZONE})?)?"), text.try_cast(kind))
        case T.TimestampNTZType():
            if form.timestamp_format is not None:  # a moment in the session's zone might not exist
                written = F.to_json(F.struct(text.alias("x")))
                return F.from_json(written, f"x {kind.simpleString()}", {"timestampNTZFormat": form.timestamp_format})[
                    "x"
                ]
            return F.when(_is(text, rf"{_DATE}(?:[T ]{_HOURS})?"), text.try_cast(kind))
    raise AssertionError(f"text is never read as {kind}")


def _is(text: Column, pattern: str) -> Column:
    return text.rlike(rf"\A(?:{pattern})\z")


def _grouped(form: TextForm) -> str:
    """Return the pattern of digits before a fraction."""
    if form.thousands is None:
        return _WHOLE
    return rf"(?:{_WHOLE}|[0-9]{{1,3}}(?:{re.escape(form.thousands)}[0-9]{{3}})+)"


def _plain(text: Column, form: TextForm) -> Column:
    """Return the text of a number, which has the form, as Spark casts it."""
    from pyspark.sql import functions as F

    if form.thousands is not None:
        text = F.replace(text, F.lit(form.thousands), F.lit(""))
    return text if form.decimal == "." else F.replace(text, F.lit(form.decimal), F.lit("."))


def _number(form: TextForm) -> str:
    mark = re.escape(form.decimal)
    return rf"[-+]?(?:{_grouped(form)}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:{_EXPONENT})?"


def _floating(text: Column, kind: DataType, form: TextForm) -> Column:
    from pyspark.sql import functions as F

    mark = re.escape(form.decimal)
    sure = rf"[-+]?[0-9]{{1,{_SURE_DIGITS}}}(?:{mark}[0-9]*)?"
    number = _plain(text, form).try_cast(kind)
    finite = F.when(F.abs(number) < F.lit(float("inf")), number)
    return (
        F.when(_is(text, sure), number)
        .when(_is(text, _number(form)), finite)
        .when(_is(text, _NAMED), text.try_cast(kind))
    )


def _decimal(text: Column, kind: DataType, form: TextForm) -> Column:
    """Return a decimal, if its scale holds every digit that is no zero at the end."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DecimalType

    assert isinstance(kind, DecimalType)
    mark = re.escape(form.decimal)
    short = f"[0-9]{{1,{kind.scale}}}0*" if kind.scale else "0+"
    exact = rf"[-+]?(?:{_grouped(form)}(?:{mark}(?:{short})?)?|{mark}{short})"
    plain = _plain(text, form)
    number = plain.try_cast(kind)
    # The digits behind the point, and the exponent, say where the last digit is that is no zero.
    before = F.regexp_extract(plain, r"\A[-+]?([0-9]*)", 1)
    after = F.regexp_extract(plain, r"\.([0-9]*)", 1)
    digits = F.regexp_replace(F.concat(before, after), r"0+\z", "")
    exponent = F.regexp_extract(plain, r"[eE]([-+]?[0-9]+)", 1).try_cast("int")
    fraction = F.length(digits) - F.length(before) - exponent
    holds = (digits == "") | (fraction <= kind.scale)
    short_exponent = rf"[-+]?(?:{_grouped(form)}(?:{mark}[0-9]*)?|{mark}[0-9]+)[eE][-+]?[0-9]{{1,3}}"
    return F.when(_is(text, exact), number).when(_is(text, short_exponent) & holds, number)
