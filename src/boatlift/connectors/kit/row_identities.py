"""The identity of a row at the receiver of a delivery: the texts of its key columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import xxhash

from boatlift.connectors.kit.step_rows import user_columns
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST = 200
"""The most characters of an identity: it is a part of a header. A longer one is replaced by its hash."""


def checked_key(key: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns that identify a row at the receiver; none if a step's number identifies its rows.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if key is None:
        return ()
    named = not isinstance(key, str) and all(isinstance(name, str) for name in key)
    if not named or not key or len(set(key)) != len(key):
        raise InvalidError("BAD_OPTION", f"key is {key!r}: give a list of different column names")
    return tuple(key)


def refuse_unidentified(context: SinkContext, key: Sequence[str]) -> None:
    """Refuse rows that the columns of a key cannot identify.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` a column is missing; `[BAD_OPTION]` rows are changes.
    """
    user_columns(context, key)
    if key and context.changes:
        raise InvalidError(
            "BAD_OPTION",
            f"key names columns of {context.sink}, whose rows are changes: a row and its retraction have the same key, "
            "so leave key out, or deliver the rows before the aggregate",
        )


def row_identities(rows: pa.Table, key: Sequence[str], sink: str, step: int) -> list[str]:
    """Return the identity of each row: equal for equal key columns, and different for different ones.

    Raises:
        DataError: `[NULL_KEY]`.
        InvalidError: `[DUPLICATE_KEY]` two rows have one identity, and the receiver would ignore one of them. Equal
            rows have gone before (`without_equal_rows`).

    Examples:
        >>> import pyarrow as pa
        >>> row_identities(pa.table({"id": [7], "part": ["a/b"]}), ["id", "part"], "desk", 0)
        ['7/a%2Fb']
    """
    from boatlift.connectors.kit.arrow_text import json_objects

    for name in key:
        if rows.column(name).null_count:
            raise DataError(
                "NULL_KEY",
                f"key column {name} of {sink} holds a NULL at step {step}, and a row without a key has no identity at "
                f"the receiver: filter it, fill it by coalesce, or leave the step out with --skip {sink}:{step}",
            )
    texts = [
        text.as_py()
        for batch in rows.select(list(key)).to_batches()
        for text in json_objects(batch.schema.names, batch.columns)
    ]
    # A decimal has more digits than a float.
    found = ["/".join(map(_text, json.loads(text, parse_float=str).values())) for text in texts]
    identities = [each if len(each) <= LONGEST else xxhash.xxh3_128_hexdigest(each.encode()) for each in found]
    if len(set(identities)) < len(identities):
        raise InvalidError(
            "DUPLICATE_KEY",
            f"two rows of {sink} at step {step} have the same {', '.join(key)} and differ in other columns, and the "
            f"receiver would ignore one of them: leave the step out with --skip {sink}:{step}, then name further "
            "columns in key, or leave key out",
        )
    return identities


def _text(value: Any) -> str:
    return quote(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), safe="")
