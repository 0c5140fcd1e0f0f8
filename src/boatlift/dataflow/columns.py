"""Reserved column names, which no user's column may have; and the quoting of names and text in SQL."""

from __future__ import annotations

import re

WEIGHT = "_weight"  # in changes: +1 for an inserted row, −1 for a retracted one
POSITION = "_position"  # the place of a source's row in its input
HASH = "_hash"  # the sort key of keyed state: int64, with the bits (key group, 52 bits of the key's hash)
ROW_HASH = "_row_hash"  # Spark's hash of a whole row, for the digest of a stateless step
ORDINAL = "_ordinal"  # the step of a row in a job of several steps: 0 for the first
ARGUMENT = "_argument"  # the prefix of columns with arguments of aggregates; a number follows
LEAVES = "_leaves"  # the time until which a row is kept, in milliseconds since 1970
MARK = "_step_mark"  # in a long-running job: −n for a row of round n, n for the row that ends round n
BRANCH = "_step_branch"  # in a long-running job: the number of the way of a row through the plan; negative in a marker

_RESERVED = re.compile(
    rf"{WEIGHT}|{POSITION}|{HASH}|{ROW_HASH}|{ORDINAL}|{ARGUMENT}\d+|{LEAVES}|{MARK}|{BRANCH}", re.IGNORECASE
)


def is_reserved(name: str) -> bool:
    """Return whether a column name is reserved, whatever its case."""
    return _RESERVED.fullmatch(name) is not None


def quoted(name: str) -> str:
    """Return a column's name in backticks, in which Spark takes dots literally."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as an SQL literal, whatever `spark.sql.parser.escapedStringLiterals` is."""
    plain = "'" not in text and "\\" not in text
    return f"'{text}'" if plain else f"CAST(X'{text.encode().hex()}' AS STRING)"


OF = "_of"
"""The column of the combined rows of several streams that names a row's stream."""


def column_of(stream: str, column: str) -> str:
    """Return the name that a stream's column has among the columns of all streams."""
    return f"{stream}.{column}"
