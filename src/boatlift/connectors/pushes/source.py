"""`bl.push`: rows that are handed over from Python or over HTTP, recorded before whoever hands them over hears of it.

A position names objects of the source's input log, in the store (`storage/input_log.py`): `{"first": 4, "last": 6, "base": 310, "rows": 120,
"bytes": 4096, "digest": …}`, with the rows pushed before, and the sum of the objects' checksums. A cursor is `{"last": 6, "digest": …}`, with the sum of
all so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from boatlift.connectors.declared_columns import columns_of, struct_of
from boatlift.dataflow.contracts import Delivery, Json
from boatlift.dataflow.pushes import Receipt
from boatlift.errors import DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.pushes.recorder import Recorder
    from boatlift.connectors.pushes.rows import PushedRows
    from boatlift.connectors.pushes.server import Server
    from boatlift.storage.input_log import InputLog

__all__ = ["PushSource", "push"]

LARGEST_STEP = 1_000_000
MOST_WAITING = 1 << 30
KEY_LENGTH = 200


def push(
    schema: str | StructType,
    *,
    listen: str | None = None,
    ack: Literal["recorded", "stable"] = "recorded",
    remember_keys: timedelta = timedelta(days=1),
    max_rows_per_step: int = LARGEST_STEP,
    max_waiting_bytes: int = MOST_WAITING,
) -> PushSource:
    """Makes a source of rows that are pushed: by `flow.push(…)` in the process that runs the dataflow, or over HTTP.

    Args:
        schema: The columns; those that are not `NOT NULL` may be left out of a row.
        listen: `host:port` to take `POST /SOURCE` at, and `GET /SOURCE/keys/KEY`; None: nowhere.
        ack: When whoever pushes is answered: once the rows are `recorded`, or once what came of them is `stable`, so that no failure can make
            anyone read them again. Whenever nothing else moves, checkpoints are made for those who wait; if the dataflow stops before, the
            answer says that the rows are recorded and not stable.
        remember_keys: How long, at least, the keys of pushes are known again: the newest half a million of them.
        max_rows_per_step: A step ends with the object of the input log that brings it to so many.
        max_waiting_bytes: Pushes are refused while more than this waits until it is stable; what a batch over everything reads always is.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`.
    """
    columns_of(schema)  # or it is refused
    if ack not in ("recorded", "stable"):
        raise InvalidError("BAD_OPTION", f"ack is {ack!r}: choose 'recorded' or 'stable'")
    given: dict[str, object] = {"max_rows_per_step": max_rows_per_step, "max_waiting_bytes": max_waiting_bytes}
    for name, value in given.items():
        if not isinstance(value, int) or value < 1:
            raise InvalidError("BAD_OPTION", f"{name} is {value!r}: give a whole number from 1")
    remembered: object = remember_keys
    if not isinstance(remembered, timedelta) or remembered <= timedelta(0):
        raise InvalidError("BAD_OPTION", f"remember_keys is {remember_keys!r}: give a timedelta above 0")
    address = None
    if listen is not None:
        from boatlift.connectors.pushes.address import address_of

        address = address_of(listen)
    return PushSource(schema, address, ack == "stable", remember_keys, max_rows_per_step, max_waiting_bytes)


class PushSource:
    """Rows out of the input log.

    Args:
        schema, remember, limit, most_waiting: As `push` takes them, checked.
        address: Where to listen, if anywhere.
        until_stable: Whether answers wait until what came of the rows is stable.
        clock: Milliseconds since 1970; by it keys are forgotten.

    Attributes:
        listens_at: Where it listens while it is open: with port 0 in its options, the port that was free.
    """

    delivery = Delivery.EXACTLY_ONCE
    positioned = True

    def __init__(
        self,
        schema: str | StructType,
        address: tuple[str, int] | None,
        until_stable: bool,
        remember: timedelta,
        limit: int,
        most_waiting: int,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._declared, self._address, self._until_stable = schema, address, until_stable
        self._remember, self._limit, self._most, self._clock = remember, limit, most_waiting, clock
        self._log: InputLog | None = None
        self._recorder: Recorder | None = None
        self._server: Server | None = None
        self._rows: PushedRows | None = None
        self._open = threading.Event()
        self._reserved = False
        self.listens_at: tuple[str, int] | None = None

    # -- what it is ---------------------------------------------------------------------------------------------------

    def describe(self) -> Json:
        """Tells the columns; where it listens, and when it answers, may change."""
        return {"kind": "push", "schema": [list(column) for column in columns_of(self._declared)]}

    def schema(self, spark: SparkSession) -> StructType:  # noqa: ARG002
        """Gives the declared schema; all columns may be NULL for Spark, which does not check it."""
        from pyspark.sql.types import StructField, StructType

        from boatlift.connectors.pushes.rows import nullable_inside

        fields = nullable_inside(struct_of(self._declared)).fields
        return StructType([StructField(f.name, f.dataType) for f in fields])

    @property
    def answers_when_stable(self) -> bool:
        """Whether answers wait for acknowledgements."""
        return self._until_stable

    @property
    def awaits_stability(self) -> bool:
        """Whether an answer waits for one now, or a refused push."""
        recorder = self._recorder
        return recorder is not None and recorder.awaited

    # -- taking rows --------------------------------------------------------------------------------------------------

    def reserve(self, name: str) -> None:
        """Listens, if it is to; nothing is answered yet."""
        if self._reserved:
            raise InvalidError(
                "BAD_OPTION", f"{name} runs already, in this process: make another Dataflow for another run"
            )
        if self._address is not None:
            from boatlift.connectors.pushes.server import Server

            self._server = Server(name, self._address, self)
            self.listens_at = self._server.address
        self._reserved = True

    def attach(self, log: InputLog) -> None:
        """Learns where its rows are."""
        self._log = log

    def open(self, token: int, stable: Json, newest: Json) -> None:
        """Takes the input log over, and what is pushed."""
        from boatlift.connectors.pushes.recorder import Recorder
        from boatlift.connectors.pushes.rows import PushedRows

        log = self._attached
        self._rows = PushedRows(struct_of(self._declared))
        log.claim(token, stable["last"], newest["last"])
        self._recorder = Recorder(
            log.source,
            log,
            self._rows,
            clock=self._clock,
            remember=self._remember // timedelta(milliseconds=1),
            most_waiting=self._most,
            until_stable=self._until_stable,
        )
        if self._server is not None:
            self._server.serve()
        self._open.set()

    def close(self) -> None:
        """Answers who waits, and takes no more."""
        self._open.clear()
        if self._recorder is not None:
            self._recorder.close()
        if self._server is not None:
            self._server.close()
        self._server = self._recorder = self.listens_at = None
        self._reserved = False

    def push(self, rows: object, key: str | None, timeout: float) -> Receipt:
        """Takes rows from Python."""
        self._open.wait(timeout)
        recorder, reader = self._running
        return recorder.put(reader.of_python(rows), _checked(key)).result()

    def put_json(self, body: bytes, key: str | None) -> Future[Receipt]:
        """Takes rows as JSON; the answer comes once they are recorded.

        Raises:
            BoatliftError: as `push`.
        """
        recorder, reader = self._running
        return recorder.put(reader.of_json(body), _checked(key))

    def pushed(self, key: str) -> Receipt | None:
        """Tells what was recorded with a key."""
        return self._running[0].found(key)

    # -- giving steps -------------------------------------------------------------------------------------------------

    def start(self) -> Json:
        """Gives the cursor that has taken nothing."""
        return {"last": 0, "digest": _hex(0)}

    def next(self, cursor: Json) -> Json | None:
        """Takes the objects that were recorded since.

        Raises:
            BoatliftError: nothing can be recorded any more.
        """
        if self._recorder is None:
            self._attached.load()  # somebody else writes
        elif self._recorder.failure is not None:
            raise self._recorder.failure
        last, rows, size, base, digest = cursor["last"], 0, 0, 0, 0
        for number, part in self._attached.parts(cursor["last"]):
            base = base if rows else part.base
            last, rows, size = number, rows + part.rows, size + part.size
            digest += int.from_bytes(part.checksum)
            if rows >= self._limit:
                break
        if not rows:
            return None
        return {
            "first": cursor["last"] + 1,
            "last": last,
            "base": base,
            "rows": rows,
            "bytes": size,
            "digest": _hex(digest),
        }

    def is_full(self, position: Json) -> bool:
        """Tells whether a position reached the limit of a step."""
        return bool(position["rows"] >= self._limit)

    def advance(self, cursor: Json, position: Json) -> Json:
        """Gives the cursor after a position's last object."""
        digest = int(cursor["digest"], 16) + int(position["digest"], 16)
        return {"last": position["last"], "digest": _hex(digest)}

    def verify(self, position: Json) -> None:
        """Proves by their checksums that objects are what they were; that their content is what its checksum says is proved by who reads it."""
        self._verify(position["first"], position["last"], position["digest"])

    def weigh(self, position: Json) -> int:
        """Tells the bytes of the objects."""
        return int(position["bytes"])

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        """Reads the objects of a position."""
        return self._load(spark, [position], ordinals=False)

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        """Reads the objects of several positions."""
        return self._load(spark, positions, ordinals=True)

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        """Reads all objects up to a cursor: they are never freed then."""
        return self._load_objects(spark, [(number, None) for number in self._numbers(1, cursor["last"])])

    def verify_everything(self, cursor: Json) -> None:
        """Proves that all objects up to a cursor are what they were."""
        self._verify(1, cursor["last"], cursor["digest"])

    def explain_failure(self, position: Json, text: str) -> Exception | None:
        """Knows of none: what tasks raise are errors of ours."""

    def acknowledge(self, position: Json) -> None:
        """Frees the objects of a position."""
        if self._recorder is not None:
            self._recorder.free(position["last"])

    # -- reading ------------------------------------------------------------------------------------------------------

    def _verify(self, first: int, last: int, digest: str) -> None:
        found = sum(int.from_bytes(self._attached.checksum(number)) for number in self._numbers(first, last))
        if _hex(found) != digest:
            raise DataError(
                "INPUT_CHANGED",
                f"objects {first} to {last} of what was pushed to {self._attached.source} are not what a recorded step took: restore them",
            )

    def _load(self, spark: SparkSession, positions: Sequence[Json], *, ordinals: bool) -> DataFrame:
        objects = [
            (number, ordinal if ordinals else None)
            for ordinal, position in enumerate(positions)
            for number in self._numbers(position["first"], position["last"])
        ]
        return self._load_objects(spark, objects)

    def _load_objects(self, spark: SparkSession, objects: Sequence[tuple[int, int | None]]) -> DataFrame:
        from pyspark.sql.types import IntegerType, LongType, StructField, StructType

        from boatlift.connectors.pushes.reading import Piece, ReadPushes, divided
        from boatlift.dataflow.columns import ORDINAL

        pieces = [Piece(str(self._attached.path(number)), ordinal) for number, ordinal in objects]
        sizes = dict(self._attached.parts(0))
        size = sum(sizes[number].size for number, _ in objects)
        tasks = divided(pieces, size, spark.sparkContext.defaultParallelism)
        ordinals = objects[0][1] is not None
        added = [StructField("_position", LongType()), *([StructField(ORDINAL, IntegerType())] if ordinals else [])]
        schema = StructType([*self.schema(spark).fields, *added])
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        return numbers.mapInArrow(ReadPushes(self._attached.source, tasks), schema)

    def _numbers(self, first: int, last: int) -> list[int]:
        if self._recorder is None:
            self._attached.load()  # somebody else writes
        numbers = self._attached.numbers_within(first, last)
        if not numbers:
            raise DataError(
                "INPUT_MISSING",
                f"objects {first} to {last} of what was pushed to {self._attached.source} are gone: restore them",
            )
        return numbers

    # -- its parts ----------------------------------------------------------------------------------------------------

    @property
    def _attached(self) -> InputLog:
        if self._log is None:
            raise InvalidError("BAD_OPTION", "rows that were pushed are in the store: run the dataflow, or look at it")
        return self._log

    @property
    def _running(self) -> tuple[Recorder, PushedRows]:
        recorder, rows = self._recorder, self._rows
        if recorder is None or rows is None:
            raise UnavailableError(
                "NOT_RUNNING", "rows are pushed while the dataflow runs in this process: begin with bl.start(flow, …)"
            )
        return recorder, rows


def _hex(digest: int) -> str:
    return f"{digest % (1 << 128):032x}"


def _checked(key: str | None) -> str | None:
    if key is not None and not (0 < len(key) <= KEY_LENGTH and key.isprintable()):
        raise InvalidError("BAD_OPTION", f"key {key[:50]!r}: give 1 to {KEY_LENGTH} printable characters")
    return key
