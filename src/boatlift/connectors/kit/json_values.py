r"""JSON text in a column `value` as rows, and whether all of the text is in them.

`from_json` passes over all that follows the first value of a text. Therefore the text is put into an object, and a key
behind it proves that the text ends there. Text could close what it is put into and open another value: so it is put
into an array once, and into an object once. No text closes both. The second time it is read as a VARIANT, which refuses
what is no JSON by RFC 8259, and a key that an object has twice.

`from_json` reads texts alone, of which `Texts` makes values. It would give a number with a fraction or an exponent as
the nearest double, and a number in quotes as one without. Where a text has either, its numbers are put into quotes
before, behind a mark that is no character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.connectors.kit.text_forms import TextForms
from boatlift.connectors.kit.text_rows import Texts, all_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["JsonValues"]

_ROWS, _END, _BAD = "_boatlift_rows", "_boatlift_end", "_boatlift_bad"
_PARSED, _PROOF, _MATTERED = "_boatlift_parsed", "_boatlift_proof", "_boatlift_mattered"

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
"""A number, behind texts and what is no value; possessive, so that no stack grows."""
_ESCAPED = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""An escaped backslash, and both halves of a surrogate pair."""
_NO_CHARACTER = r"\\u(?:[dD][89a-fA-F]|[fF]{4})"


@dataclass(frozen=True, slots=True)
class JsonValues:
    """How texts are read, of which each is one object.

    The texts are the column `value`, of text or of bytes. Columns that a schema has as NOT NULL are never NULL in a
    text that fits; in the schema of the rows every column may be NULL.

    Attributes:
        forms: How text says values.
        blanks: Whether a text may be blank, and has no row then.
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
        """Return the texts of values, and whether a text is one object whose every part is read."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

        text = F.col("value").cast("string")
        if self.blanks:
            texts = texts.where(F.coalesce(text.rlike(r"[^ \t\r\n]"), F.lit(True)))
        # Bytes that are not UTF-8 would become other characters.
        whole = F.when(F.is_valid_utf8(text) & ~_has_no_character(text), text).otherwise("")
        matters = text.rlike(_MATTERS)
        marked = F.when(matters, F.regexp_replace(whole, _NUMBER, f'$1"{_MARK}$2"')).otherwise(whole)
        shape = StructType(
            [
                StructField(_ROWS, ArrayType(all_text(schema, self.forms))),
                StructField(_END, BooleanType()),
                StructField(_BAD, StringType()),
            ]
        )
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
        parsed = F.from_json(_ended(F.lit(f'"{_ROWS}":['), marked, F.lit("]")), shape, options)
        proof = F.try_parse_json(_ended(F.lit('"_":'), whole))
        frame = texts.select("*", parsed.alias(_PARSED), proof.alias(_PROOF), matters.alias(_MATTERED))
        rows, parsed = F.col(_PARSED)[_ROWS], F.col(_PARSED)
        ended = parsed[_BAD].isNull() & parsed[_END] & (F.size(rows) == 1)
        again = F.try_variant_get(F.col(_PROOF), f"$.{_END}", "boolean")
        row = F.get(rows, F.lit(0))
        fits = ended & again & row.isNotNull()
        return Texts(frame, row, ~F.coalesce(fits, F.lit(False)), schema, self.forms, _MARK, F.col(_MATTERED))


def _ended(*parts: Column) -> Column:
    """Return the text of an object whose last key says that all before it was read."""
    from pyspark.sql import functions as F

    return F.concat(F.lit("{"), *parts, F.lit(f',"{_END}":true}}'))


def _has_no_character(text: Column) -> Column:
    """Return whether a text has, also escaped, half of a surrogate pair or U+FFFF, which is no character."""
    from pyspark.sql import functions as F

    escaped = F.when(text.contains(r"\u"), F.regexp_replace(text, _ESCAPED, " ").rlike(_NO_CHARACTER))
    return text.contains(_MARK) | F.coalesce(escaped, F.lit(False))
