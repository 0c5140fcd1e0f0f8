r"""JSON text in a column `value` as rows, with a proof that the rows have all of the text.

`from_json` ignores everything behind the first value of a text. Therefore the text is wrapped into an object, and a key
behind it proves that the text ends there. Text could close the wrapper and open another value: so the text is wrapped
into an array once, and into an object once, and no text closes both. The second time it is read as a VARIANT, which
refuses text that is no JSON by RFC 8259, and duplicate keys. `json_fault` says in words why a text is no row.

`from_json` reads only strings, and `Texts` makes values of them. It would return a number with a fraction or an
exponent as the nearest double, and would not distinguish a number in quotes. If a text has such a number, its numbers
are put into quotes before, behind a mark that is no character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from boatlift.connectors.kit.declared_columns import Columns, null_fault
from boatlift.connectors.kit.text_forms import TextForms
from boatlift.connectors.kit.text_rows import Texts, all_text
from boatlift.dataflow.columns import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_ROWS, _END, _BAD = "_boatlift_rows", "_boatlift_end", "_boatlift_bad"
_PARSED, _PROOF, _MATTERED = "_boatlift_parsed", "_boatlift_proof", "_boatlift_mattered"

_NOT_BLANK = r"[^ \t\r\n]"
_MARK = "\uffff"
_MATTERS = (
    r"[:\[,][ \t\r\n]*+(?:-?[0-9]++[.eE]|-0"
    r'|"[-+]?[.]?[0-9][.0-9]*+(?:[eE][-+]?[0-9]++)?")'
)
"""A number with a fraction or an exponent, -0, which is no integer, or a number in quotes."""
_NUMBER = (
    r'\G((?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+")*+)'
    r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?(?![-+.0-9A-Za-z]))"
)
"""A number, behind strings and punctuation; possessive, so that no stack grows."""
_ESCAPED = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""An escaped backslash, and both halves of a surrogate pair."""
_NO_CHARACTER = r"\\u(?:[dD][89a-fA-F]|[fF]{4})"

_SHOWN = 200

MOST = {"depth": 1_000, "digits": 1_000, "text": 20_000_000, "name": 50_000}
"""The bounds of Spark's JSON parser: levels, and characters of a number, a string and a name."""

_AROUND = 2
"""The levels of the wrapper around a text; see `json_values`."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"(\s*+:)?|[][{}]|-?\d[-+.\deE]*+', re.DOTALL)


def texts_of_json(texts: DataFrame, schema: StructType, forms: TextForms, *, blanks: bool) -> Texts:
    """Return the texts of values in texts of a column `value` (strings or bytes), each of which is one object.

    Args:
        blanks: Whether a text may be blank, and then has no row.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

    text = "CAST(value AS STRING)"
    if blanks:
        texts = texts.where(f"coalesce({text} RLIKE {literal(_NOT_BLANK)}, true)")
    # Bytes that are not UTF-8 would become other characters.
    whole = f"CASE WHEN is_valid_utf8({text}) AND NOT {_has_no_character(text)} THEN {text} ELSE '' END"
    matters = f"{text} RLIKE {literal(_MATTERS)}"
    numbers_marked = f"""regexp_replace({whole}, {literal(_NUMBER)}, '$1"{_MARK}$2"')"""
    marked = f"CASE WHEN {matters} THEN {numbers_marked} ELSE {whole} END"
    shape = StructType(
        [
            StructField(_ROWS, ArrayType(all_text(schema, forms))),
            StructField(_END, BooleanType()),
            StructField(_BAD, StringType()),
        ]
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    in_array = _ended(f"""'"{_ROWS}":['""", marked, "']'")
    in_object = _ended("""'"_":'""", whole)
    parsed = F.from_json(F.expr(in_array), shape, options).alias(_PARSED)
    frame = texts.select(
        "*", parsed, F.expr(f"try_parse_json({in_object}) AS {_PROOF}"), F.expr(f"{matters} AS {_MATTERED}")
    )
    rows = f"{_PARSED}.{_ROWS}"
    ended = f"{_PARSED}.{_BAD} IS NULL AND {_PARSED}.{_END} AND size({rows}) = 1"
    again = f"try_variant_get({_PROOF}, '$.{_END}', 'boolean')"
    row = f"get({rows}, 0)"
    broken = f"NOT coalesce({ended} AND {again} AND {row} IS NOT NULL, false)"
    return Texts(frame, row, broken, schema, forms, _MARK, _MATTERED)


def _ended(*parts: str) -> str:
    """Return the SQL of an object whose last key proves that everything before it was read."""
    return f"""concat('{{', {", ".join(parts)}, ',"{_END}":true}}')"""


def _has_no_character(text: str) -> str:
    """Return the SQL of whether a text has half a surrogate pair or U+FFFF, also escaped."""
    lone = f"regexp_replace({text}, {literal(_ESCAPED)}, ' ') RLIKE {literal(_NO_CHARACTER)}"
    backslash_u = literal(r"\u")
    return f"(contains({text}, '{_MARK}') OR CASE WHEN contains({text}, {backslash_u}) THEN {lone} ELSE false END)"


def json_fault(
    text: str | bytes, unread: Collection[str], columns: Columns, required: Collection[str], forms: TextForms
) -> str:
    """Return the fault of the text of one object.

    Args:
        text: The text; bytes may be no UTF-8.
        unread: The columns that could not be read, or are NULL.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            return f"it is not UTF-8 ({error})"
    if (beyond := beyond_bounds(text)) is not None:
        return f"{beyond}: {text[:_SHOWN]!r}"
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_WrittenNumber)
        is_text = "\uffff" not in text and _is_text(json.dumps(found, ensure_ascii=False))
    except json.JSONDecodeError as error:
        return f"it is no single JSON value ({error.msg} at column {error.colno}): {text[:_SHOWN]!r}"
    except _Flaw as flaw:
        return f"{flaw}: {text[:_SHOWN]!r}"
    except RecursionError:
        return f"it is nested too deeply: {text[:_SHOWN]!r}"
    if not is_text:
        return f"it has half of a surrogate pair, or U+FFFF, which is no character: {text[:_SHOWN]!r}"
    if not isinstance(found, dict):
        return f"it is no object: {text[:_SHOWN]!r}"
    for name, kind in columns:
        if name in unread and (value := found.get(name)) is not None:
            shown = value if isinstance(value, _WrittenNumber) else json.dumps(value, ensure_ascii=False)
            return f"column {name} is {shown[:_SHOWN]}, which is no {kind}{forms.of(name).of(kind)}"
    nulls = (null_fault(name) for name in required if name in unread)
    return next(nulls, f"it does not fit the schema: {text[:_SHOWN]!r}")


class _Flaw(ValueError):  # noqa: N818 - it is no error of this program
    """A fault that Python's JSON parser accepts."""


class _WrittenNumber(str):
    """The text of a number."""

    __slots__ = ()


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = set[str]()
    for name, _ in pairs:
        if name in names:
            raise _Flaw(f"the key {name!r} is given twice")
        names.add(name)
    return dict(pairs)


def _constant(name: str) -> object:
    raise _Flaw(f"{name} is no JSON: write it in quotes")


def _is_text(text: str) -> bool:
    return "\uffff" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def beyond_bounds(text: str) -> str | None:
    """Return, in words, the bound of Spark's parser that a text exceeds; None if none."""
    if len(text) < min(MOST.values()) - _AROUND:
        return None
    depth = 0
    for token in _TOKEN.finditer(text):
        match token[0][0]:
            case '"':
                kind = "name" if token[1] else "text"
                size = len(token[0]) if len(token[0]) <= MOST[kind] else _characters(token[0], token[1] or "")
                if size > MOST[kind]:
                    return f"it has a {kind} of {size:,} characters, and Spark reads {MOST[kind]:,}"
            case "[" | "{":
                depth += 1
                if depth + _AROUND > MOST["depth"]:
                    return "it is nested too deeply"
            case "]" | "}":
                depth -= 1
            case _ if len(token[0]) > MOST["digits"]:
                return "it has a number of too many digits"
    return None


def _characters(quoted: str, behind: str) -> int:
    quoted = quoted.removesuffix(behind)
    try:
        return len(json.loads(quoted))
    except ValueError:
        return len(quoted) - 2
