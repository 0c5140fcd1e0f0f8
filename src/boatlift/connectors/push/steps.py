"""Steps of pushed rows: positions and cursors, and how they are read.

A position names objects of the source's input log (`storage/input_log.py`): `{"first": 4, "last": 6, "base": 310,
"rows": 120, "bytes": 4096, "digest": …}`. `base` is the number of rows pushed before, and `digest` the sum of the
objects' checksums. A cursor is `{"last": 6, "digest": …}`, with the sum of all objects so far. The objects of an
unlogged input (`storage/unlogged_input.py`) are in scratch. Its positions and cursors also have `keys`, the number of
the newest object that records their keys; its cursors also have `base`.

Upserts have two more columns: `_deleted`, whether a row deletes the row of its key, and `_pushed`, the order of rows.
`load` returns rows as they were pushed. `load_everything` returns the current rows: it reads the compacted segments of
the input log in place of the rows that no recovery needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from boatlift.connectors.kit import SourceBase, columns_of, nullable, struct_of
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import FrameOfTask, Json, Upserts
from boatlift.errors import DataError, InvalidError
from boatlift.operators.view.operator import newest_rows
from boatlift.storage.input_log import InputLog
from boatlift.storage.records.payloads import INPUT_LOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.push.reading import Piece
    from boatlift.storage.input_objects import InputPart
    from boatlift.storage.unlogged_input import UnloggedInput

DELETED = "_deleted"
"""Whether a row deletes the row of its key; a client may leave it out."""

PUSHED = "_pushed"
"""The number of a row among all rows ever pushed: a later row replaces an earlier one."""

_EXACT = re.compile(r"tinyint|smallint|int|bigint|decimal\(.*\)|string|boolean|binary|date|timestamp|timestamp_ntz")
"""The types whose equal values have equal bits."""


def upserts_of(schema: str | StructType, key: object) -> Upserts | None:
    """Return how the rows of a declared schema replace one another; None without a key."""
    if key is None:
        return None
    fields = dict(columns_of(schema))
    names = tuple(key) if isinstance(key, list | tuple) else ()
    if not names or len(set(names)) < len(names) or not set(names) <= set(fields):
        raise InvalidError(
            "BAD_OPTION", f"upsert is {key!r}: give the columns of the key, as in ['id'], out of {', '.join(fields)}"
        )
    for name in names:
        if _EXACT.fullmatch(fields[name]) is None:
            raise InvalidError(
                "TYPE_REFUSED",
                f"column {name} of the key is {fields[name]}, whose equal values may have different "
                "bits: use whole numbers, decimals, texts, dates, timestamps, booleans or bytes",
            )
    for name in fields:
        if name.lower() in (DELETED, PUSHED):
            raise InvalidError("RESERVED_NAME", f"a column is named {name}, a name that Boatlift uses: rename it")
    return Upserts(names, order=PUSHED, deletes=DELETED)


def as_recorded(schema: StructType, key: Sequence[str]) -> StructType:
    """Return the schema in which rows are recorded: a row that deletes needs only the key and `_deleted`."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    fields = [StructField(field.name, field.dataType, field.name not in key) for field in schema.fields]
    return StructType([*fields, StructField(DELETED, BooleanType())])


class PushedSteps(SourceBase):
    """The rows of an input log as steps of a source.

    Args:
        limit: A step ends with the object that brings it to this number of rows.
    """

    positioned = True

    def __init__(self, schema: str | StructType, limit: int, upserts: Upserts | None = None) -> None:
        self._declared, self._limit, self.upserts = schema, limit, upserts
        self._log: InputLog | UnloggedInput | None = None

    def describe(self) -> Json:
        described = {"kind": "push", "schema": [list(column) for column in columns_of(self._declared)]}
        return described if self.upserts is None else {**described, "upsert": list(self.upserts.key)}

    def schema(self, spark: SparkSession) -> StructType:  # noqa: ARG002
        from boatlift.connectors.push.rows import nullable_inside

        rows = nullable(nullable_inside(struct_of(self._declared)))
        return rows if self.upserts is None else rows.add(DELETED, "boolean").add(PUSHED, "long")

    def attach(self, log: InputLog | UnloggedInput) -> None:
        self._log = log

    def start(self) -> Json:
        return {"last": 0, "digest": _hex(0)}

    def next(self, cursor: Json) -> Json | None:
        self._look()
        self._go_on_from(cursor)
        if isinstance(self._attached, InputLog) and cursor["last"] < self._attached.gone:
            raise DataError(
                "INPUT_MISSING",
                f"rows pushed to {self._attached.source} up to object {self._attached.gone} are gone, and those after "
                f"object {cursor['last']} are to be taken: restore them",
            )
        return self._next(cursor["last"], self._limit, self._attached.parts(cursor["last"]))

    def _next(self, last: int, limit: int, parts: Iterable[tuple[int, InputPart]]) -> Json | None:
        first, rows, size, base, digest = last + 1, 0, 0, 0, 0
        for number, part in parts:
            base = base if rows else part.base
            last, rows, size = number, rows + part.rows, size + part.size
            digest += int.from_bytes(part.checksum)
            if rows >= limit:
                break
        if not rows:
            return None
        position = {
            "first": first,
            "last": last,
            "base": base,
            "rows": rows,
            "bytes": size,
            "digest": _hex(digest),
        }
        log = self._attached
        if isinstance(log, InputLog):
            return {**position, INPUT_LOG: last}
        keys = log.keys_up_to(last)
        return {**position, "keys": keys, INPUT_LOG: keys}

    def is_full(self, position: Json) -> bool:
        return bool(position["rows"] >= self._limit)

    def advance(self, cursor: Json, position: Json) -> Json:
        digest = int(cursor["digest"], 16) + int(position["digest"], 16)
        following = {"last": position["last"], "digest": _hex(digest)}
        if "keys" not in position:
            return following
        return {**following, "base": position["base"] + position["rows"], "keys": position["keys"]}

    def verify(self, position: Json) -> None:
        first, last = position["first"], position["last"]
        found = sum(int.from_bytes(self._attached.checksum(number)) for number in self._numbers(first, last))
        if _hex(found) != position["digest"]:
            raise self._changed(first, last)

    def size_bytes(self, position: Json) -> int:
        return int(position["bytes"])

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        return self._load(spark, [position], ordinals=False)

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        return self._load(spark, positions, ordinals=True)

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        """Read all objects up to a cursor; they are never freed. Of upserts read the current rows."""
        from boatlift.connectors.push.reading import Piece, divided

        files = self._everything.files_up_to(cursor["last"])
        pieces, size = [Piece(str(path), None) for path, _ in files], sum(size for _, size in files)
        rows = self._read(spark, divided(pieces, size, spark.sparkContext.defaultParallelism), ordinals=False)
        if self.upserts is None:
            return rows
        return newest_rows(self.upserts.key, self.upserts.order, self.upserts.deletes)(rows)

    def verify_everything(self, cursor: Json) -> None:
        if _hex(self._everything.digest_up_to(cursor["last"])) != cursor["digest"]:
            raise self._changed(1, cursor["last"])

    def bytes_up_to(self, cursor: Json) -> int:
        log = self._everything
        try:
            self.verify_everything(cursor)
        except DataError as error:
            raise DataError(
                "HISTORY_GONE",
                f"not all rows that were ever pushed to {log.source} are there ({error.message}): retain=True keeps "
                "them from the first run on",
            ) from error
        return log.bytes_up_to(cursor["last"])

    def contains(self, taken: Json, item: str) -> bool:
        """Return whether a position, or a cursor, has the rows of the push with a key."""
        push = self._attached.find(item)
        if push is None or "keys" in taken:  # the rows of such a position are numbered by themselves
            return push is not None and "first" not in taken and push.number <= taken["keys"]
        return bool(taken.get("first", 0) <= push.number <= taken["last"])

    def gone(self, since: Json, upto: Json) -> str:
        """Return why rows after a cursor cannot be taken again; empty if they can."""
        gone = self._everything.gone
        if since == upto or since["last"] >= gone:
            return ""
        return f"rows pushed up to object {gone} are deleted, or only the newest of each key are kept"

    def divided_anew(self, cursor: Json, most: int) -> list[Json]:
        parts = [(number, part) for number, part in self._everything.parts(0) if number <= cursor["last"]]
        limit, steps = max(self._limit, -(-sum(part.rows for _, part in parts) // most)), list[Json]()
        left = iter(parts)
        while (position := self._next(steps[-1]["last"] if steps else 0, limit, left)) is not None:
            steps.append(position)
        return steps

    def names(self, position: Json) -> str:
        return f"objects {position['first']} to {position['last']} of the pushed rows"

    def _changed(self, first: int, last: int) -> DataError:
        return DataError(
            "INPUT_CHANGED",
            f"objects {first} to {last} of the rows pushed to {self._attached.source} are not those that a recorded "
            "step took: restore them",
        )

    def _load(self, spark: SparkSession, positions: Sequence[Json], *, ordinals: bool) -> DataFrame:
        from boatlift.connectors.push.reading import Piece, divided

        objects = [
            (number, ordinal if ordinals else None)
            for ordinal, position in enumerate(positions)
            for number in self._numbers(position["first"], position["last"])
        ]
        pieces = [Piece(str(self._attached.path(number)), ordinal) for number, ordinal in objects]
        sizes = dict(self._attached.parts(0))
        size = sum(sizes[number].size for number, _ in objects)
        return self._read(spark, divided(pieces, size, spark.sparkContext.defaultParallelism), ordinals=ordinals)

    def load_parameterized(self, spark: SparkSession, frame_of: FrameOfTask | None = None) -> DataFrame:
        return self._read(spark, None, ordinals=False, frame_of=frame_of)

    def parameters_for(self, position: Json, folder: str) -> bytes | None:  # noqa: ARG002
        from boatlift.connectors.push.reading import TASK_BYTES

        if position["bytes"] >= 2 * TASK_BYTES:
            return None
        numbers = self._numbers(position["first"], position["last"])
        return msgspec.msgpack.encode([str(self._attached.path(number)) for number in numbers])

    def _read(
        self,
        spark: SparkSession,
        tasks: tuple[tuple[Piece, ...], ...] | None,
        *,
        ordinals: bool,
        frame_of: FrameOfTask | None = None,
    ) -> DataFrame:
        from boatlift.connectors.push.reading import ReadPushes

        schema = self.schema(spark).add("_position", "long")
        if ordinals:
            schema = schema.add(ORDINAL, "integer")
        read = ReadPushes(self._attached.source, tasks, self.upserts is not None)
        if frame_of is not None:
            return frame_of(read, schema)
        count = 1 if tasks is None else len(tasks)
        return spark.range(0, count, 1, count).mapInArrow(read, schema)

    def _numbers(self, first: int, last: int) -> list[int]:
        self._look()
        numbers = self._attached.numbers_within(first, last)
        if not numbers:
            raise DataError(
                "INPUT_MISSING",
                f"objects {first} to {last} of the rows pushed to {self._attached.source} are gone: restore them",
            )
        return numbers

    def _look(self) -> None:
        """List the objects again: another process may write them."""
        self._attached.load()

    def _go_on_from(self, cursor: Json) -> None:
        """Note the cursor of the next step, before that step is chosen."""

    @property
    def _everything(self) -> InputLog:
        """The input log; a log without rows is never read as a whole (`Plan.keeps_no_rows`)."""
        self._look()
        log = self._attached
        assert isinstance(log, InputLog)
        return log

    @property
    def _attached(self) -> InputLog | UnloggedInput:
        if self._log is None:
            raise InvalidError("BAD_OPTION", "rows that were pushed are in the store: run the dataflow, or look at it")
        return self._log


def _hex(digest: int) -> str:
    return f"{digest % (1 << 128):032x}"
