r"""JSON text in a column `value` as rows, with a proof that the rows have all of the text.

`from_json` ignores everything behind the first value of a text. Therefore the text is wrapped into an object, and a key
behind it proves that the text ends there. Text could close the wrapper and open another value: so the text is wrapped
into an array once, and into an object once, and no text closes both. The second time it is read as a VARIANT, which
refuses text that is no JSON by RFC 8259, and duplicate keys.

`from_json` reads only strings, and `Texts` makes values of them. It would return a number with a fraction or an
exponent as the nearest double, and would not distinguish a number in quotes. If a text has such a number, its numbers
are put into quotes before, behind a mark that is no character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.connectors.kit.text_forms import TextForms
from boatlift.connectors.kit.text_rows import Texts, all_text
from boatlift.dataflow.columns import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
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


@dataclass(frozen=True, slots=True)
class JsonValues:
    """Reads texts in the column `value` (strings or bytes), each of which is one object.

    A text that fits has no NULL in a NOT NULL column; in the schema of the rows every column may be NULL.

    Attributes:
        forms: The forms of values in text.
        blanks: Whether a text may be blank, and then has no row.
    """

    forms: TextForms
    blanks: bool = True

    def rows(
        self, texts: DataFrame, schema: StructType, kept: Sequence[str] = (), error: Column | None = None
    ) -> DataFrame:
        """Return the row of each text; a text that does not fit stops the job. See `Texts.rows`."""
        return self._texts(texts, schema).rows(kept, error)

    def sorted_out(self, texts: DataFrame, schema: StructType, kept: Sequence[str], bad_row: Column) -> DataFrame:
        """Return the row of each text, with one more column, `_bad_row`; see `Texts.sorted_out`."""
        return self._texts(texts, schema).sorted_out(kept, bad_row)

    def _texts(self, texts: DataFrame, schema: StructType) -> Texts:
        """Return the texts of values, and whether each text is one object that was read completely."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

        text = "CAST(value AS STRING)"
        if self.blanks:
            texts = texts.where(f"coalesce({text} RLIKE {literal(_NOT_BLANK)}, true)")
        # Bytes that are not UTF-8 would become other characters.
        whole = f"CASE WHEN is_valid_utf8({text}) AND NOT {_has_no_character(text)} THEN {text} ELSE '' END"
        matters = f"{text} RLIKE {literal(_MATTERS)}"
        numbers_marked = f"""regexp_replace({whole}, {literal(_NUMBER)}, '$1"{_MARK}$2"')"""
        marked = f"CASE WHEN {matters} THEN {numbers_marked} ELSE {whole} END"
        shape = StructType(
            [
                StructField(_ROWS, ArrayType(all_text(schema, self.forms))),
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
        return Texts(frame, row, broken, schema, self.forms, _MARK, _MATTERED)


def _ended(*parts: str) -> str:
    """Return the SQL of an object whose last key proves that everything before it was read."""
    return f"""concat('{{', {", ".join(parts)}, ',"{_END}":true}}')"""


def _has_no_character(text: str) -> str:
    """Return the SQL of whether a text has half a surrogate pair or U+FFFF, also escaped."""
    lone = f"regexp_replace({text}, {literal(_ESCAPED)}, ' ') RLIKE {literal(_NO_CHARACTER)}"
    backslash_u = literal(r"\u")
    return f"(contains({text}, '{_MARK}') OR CASE WHEN contains({text}, {backslash_u}) THEN {lone} ELSE false END)"
