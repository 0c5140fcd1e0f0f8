"""`INSERT INTO`: rows of a query become a push to a source, which the owner of the store records."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds
import xxhash
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from boatlift.api.sql_text import NO_CODE, NO_CODE_OR_NAME
from boatlift.dataflow import Plan
from boatlift.dataflow.contracts import Receipt, Source
from boatlift.errors import DataError, InvalidError
from boatlift.runtime.host.inserts import insert_rows
from boatlift.runtime.peers.channel import RowsAsked
from boatlift.storage.store import Store

_NAME = r"(?:`[^`]+`|\w+)"
_INSERT = re.compile(
    rf"\s*insert\s+into\s+(?:table\s+)?({_NAME})(?!\s*\.|\w)\s*"
    rf"(?:(by\s+name\b)|\(\s*({_NAME}(?:\s*,\s*{_NAME})*)\s*\)(?=\s*[\w(]))?",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"\s*(\w+)")
_CHANGES = {
    "update": "a row with a key replaces the one before: bl.push(…, upsert=…)",
    "delete": "a row with _deleted deletes: bl.push(…, upsert=…)",
    "merge": "a row with a key replaces the one before: bl.push(…, upsert=…)",
    "insert": "rows are added to a source alone: INSERT INTO source VALUES … or SELECT …",
}


@dataclass(frozen=True, slots=True)
class Insertion:
    """A statement that inserts.

    Attributes:
        source: Its name, as written.
        columns: Those that are named; () for all of the source, in their order.
        by_name: Whether the columns of the query say where they belong.
        query: What gives the rows.
        text: The statement.
    """

    source: str
    columns: tuple[str, ...]
    by_name: bool
    query: str
    text: str


def insertion_of(statement: str) -> Insertion | None:
    """Return the parts of an `INSERT INTO`; None if a text is another statement."""
    blank = NO_CODE_OR_NAME.sub(
        lambda found: " " * len(found[0]) if found[0].startswith(("--", "/*")) else found[0], statement
    )
    code = blank.rstrip("; \t\r\n")
    found = _INSERT.match(code)
    if found is None or found.end() == len(code):
        return None
    named = tuple(each.strip().strip("`") for each in found[3].split(",")) if found[3] else ()
    query = statement[found.end() : len(code)].strip()
    return Insertion(found[1].strip("`"), named, found[2] is not None, query, statement.strip())


def new_key() -> str:
    """Return a key for a push that nothing else names."""
    return f"insert-{secrets.token_hex(8)}"


def refused(statement: str) -> InvalidError:
    """Return the error for a text that is neither a query nor an insertion."""
    found = _REFUSED.match(NO_CODE.sub(" ", statement))
    word = "" if found is None else found[1]
    advice = _CHANGES.get(word.lower(), "what a dataflow keeps is changed by its input alone")
    shown = f"{' '.join(statement.split())[:60]!r} is no query"
    return InvalidError(
        "BAD_OPTION", f"{shown}: begin with SELECT, WITH, FROM or INSERT INTO" + (f"; {advice}" if word else "")
    )


class Insertions:
    """Inserts into the sources of a dataflow that take pushes."""

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark, self._plan = spark, plan
        self._sources: dict[str, tuple[str, str]] = {}
        for name, spec in plan.sources.items():
            able = spec.source.capabilities
            if able.pushable is not None:  # `Dataflow.source` names a source of upserts so
                shown = name if able.upserts is None else name.removesuffix("_source")
                self._sources[shown.lower()] = shown, name

    def check(self, insertion: Insertion) -> None:
        """Raise if no rows fit.

        Raises:
            InvalidError: `[BAD_OPTION]` there is no such source, it takes no pushes, or it lacks a named column.
        """
        shown, source = self._found(insertion)
        columns = list(self._columns(source))
        others = [each for each in insertion.columns if each not in columns]
        if others or len(set(insertion.columns)) < len(insertion.columns):
            raise InvalidError(
                "BAD_OPTION",
                f"{shown} has the columns {', '.join(columns)}: name each of them once at most, and no other "
                f"({', '.join(others or insertion.columns)})",
            )

    def push(self, store: Store, insertion: Insertion, rows: pa.Table, key: str, seconds: float) -> tuple[str, Receipt]:
        """Let the owner record rows, and return the source's name with its receipt.

        The key stands for the statement: a query that is repeated may find other rows.

        Raises:
            InvalidError: `[BAD_OPTION]` another number of columns; `[KEY_REUSED]`, `[PUSH_TOO_LARGE]`.
            DataError: `[BAD_ROW]` a row does not fit the source.
            UnavailableError: `[NOT_RUNNING]`, `[OWNER_UNREACHABLE]`, `[PUSH_FULL]`, `[KEYS_FULL]`.
        """
        shown, source = self._found(insertion)
        table = self._fitted(insertion, shown, self._columns(source), rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        digest = xxhash.xxh3_128_digest(f"{source}\n{insertion.text}".encode())
        asked = RowsAsked(source, key, digest, sink.getvalue().to_pybytes())
        return shown, insert_rows(store, self._plan.dataflow, asked, seconds)

    def _found(self, insertion: Insertion) -> tuple[str, str]:
        found = self._sources.get(insertion.source.lower())
        if found is None:
            takes = ", ".join(sorted(shown for shown, _ in self._sources.values())) or "none"
            is_there = insertion.source.lower() in (name.lower() for name in self._plan.processors)
            what = "takes no rows" if is_there else f"is not in {self._plan.dataflow}"
            raise InvalidError(
                "BAD_OPTION", f"{insertion.source} {what}: insert into a source of bl.push (there are: {takes})"
            )
        return found

    def _columns(self, source: str) -> Mapping[str, pa.DataType]:
        """Return the columns that a push may have, with their types."""
        given: Source = self._plan.sources[source].source
        upserts = given.capabilities.upserts
        own = () if upserts is None else (upserts.order,)
        return {f.name: f.type for f in to_arrow_schema(given.schema(self._spark), timezone="UTC") if f.name not in own}

    def _fitted(self, insertion: Insertion, shown: str, columns: Mapping[str, pa.DataType], rows: pa.Table) -> pa.Table:
        upserts = self._plan.sources[self._found(insertion)[1]].source.capabilities.upserts
        whole = [each for each in columns if upserts is None or each != upserts.deletes]
        names = rows.column_names if insertion.by_name else list(insertion.columns) or whole
        if len(names) != rows.num_columns:
            raise InvalidError(
                "BAD_OPTION",
                f"the query gives {rows.num_columns} columns, where {shown} takes {len(names)} ({', '.join(names)}): "
                f"name those that it gives, as in INSERT INTO {shown} ({names[0]}) …",
            )
        for name, found in zip(names, rows.schema.types, strict=True):
            if name in columns and not _assignable(found, columns[name]):
                raise DataError(
                    "BAD_ROW",
                    f"column {name} of {shown} is {columns[name]}, and the query gives {found}: write CAST(… AS …) in "
                    "the query; nothing was recorded",
                )
        return rows.rename_columns(names)


def _assignable(found: Any, declared: Any) -> bool:
    """Return whether values of a type may stand in a column as they are; whether each fits, the owner checks."""
    if kinds.is_null(found) or found == declared:
        return True
    if kinds.is_struct(found) and kinds.is_struct(declared):
        own = {each.name: each.type for each in declared}
        return all(each.name in own and _assignable(each.type, own[each.name]) for each in found)
    if kinds.is_list(found) and kinds.is_list(declared):
        return _assignable(found.value_type, declared.value_type)
    if kinds.is_map(found) and kinds.is_map(declared):
        return _assignable(found.key_type, declared.key_type) and _assignable(found.item_type, declared.item_type)
    if kinds.is_timestamp(found) and kinds.is_timestamp(declared):
        return (found.tz is None) == (declared.tz is None)
    if kinds.is_floating(found):
        return bool(kinds.is_floating(declared) and found.bit_width <= declared.bit_width)
    numbers = (kinds.is_integer, kinds.is_decimal, kinds.is_floating)
    return all(any(each(kind) for each in numbers) for kind in (found, declared))
