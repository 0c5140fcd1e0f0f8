"""Column names that Boatlift itself gives; a user's column may not have one of them."""

from __future__ import annotations

import re

__all__ = ["ARGUMENT", "HASH", "MARK", "ORDINAL", "POSITION", "ROW_HASH", "WEIGHT", "is_reserved", "literal", "quoted"]

WEIGHT = "_weight"
"""In changes: +1 for a row that holds from now on, −1 for one that held until now."""

POSITION = "_position"
"""Where a source's row stands in its input."""

HASH = "_hash"
"""What keyed state is sorted by: int64, its bits are (key group, 52 bits of the key's hash)."""

ROW_HASH = "_row_hash"
"""Spark's hash of a whole row, from which a stateless step's digest is made."""

ORDINAL = "_ordinal"
"""Where a job runs several steps, which of them a row belongs to: 0 for the first."""

ARGUMENT = "_argument"
"""How the columns with the arguments of aggregates begin; a number follows."""

LEAVES = "_leaves"
"""When a row leaves that is held until a time, in milliseconds since 1970."""

MARK = "_step_mark"
"""In a job that lives for many steps: the step of a row, below 0; above 0, the step of which a row marks the end."""

_RESERVED = re.compile(rf"{WEIGHT}|{POSITION}|{HASH}|{ROW_HASH}|{ORDINAL}|{ARGUMENT}\d+|{LEAVES}|{MARK}", re.IGNORECASE)


def is_reserved(name: str) -> bool:
    """Return whether Boatlift itself gives a column this name; Spark does not tell capitals apart."""
    return _RESERVED.fullmatch(name) is not None


def quoted(name: str) -> str:
    """Return a column's name in backticks: Spark takes it as it is, dots included."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as SQL, whatever `spark.sql.parser.escapedStringLiterals` says of backslashes."""
    plain = "'" not in text and "\\" not in text
    return f"'{text}'" if plain else f"CAST(X'{text.encode().hex()}' AS STRING)"
