r"""The one strict reader of values: a text is exactly a value of a type, or no value.

Every source of text (CSV and JSON in files, JSON in Kafka) uses it. Spark's own parsers accept more: `12,50` as
1250.00, `7E991122` as Infinity, `12:30` as today. `docs/values.md` has the table of accepted forms.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from boatlift.connectors.kit.text_forms import TextForm
from boatlift.dataflow.columns import literal

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_WHOLE = r"[0-9]+"
_EXPONENT = r"[eE][-+]?[0-9]+"
_NAMED = r"(?i:NaN|[-+]?Inf(?:inity)?)"
_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_HOURS = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6}0*)?)?"
_ZONE = r"Z| ?UTC|[-+][0-9]{2}(?::?[0-9]{2})?"
_SURE_DIGITS = 38
"""Numbers with at most this many digits and no exponent are in the range of FLOAT."""


def value_of(text: str, kind: DataType, form: TextForm) -> str:
    """Return the SQL of a text's value; NULL if the text is not exactly a value of the type.

    A number of FLOAT or DOUBLE is the nearest one. A timestamp without a zone is in the session's zone.

    Args:
        text: The SQL of a text, or of NULL.
        kind: A type other than lists, maps and structs.
        form: The form of values in text.
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
