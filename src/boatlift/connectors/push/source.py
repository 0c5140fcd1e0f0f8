"""`bl.push`: rows that clients push from Python or over HTTP, recorded before the client gets an answer.

Read `steps` first (positions and cursors), then `recorder`, `rows`, `compacted` and `reading`; for HTTP `server`.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal

from boatlift.connectors.kit import checked_options, columns_of, struct_of
from boatlift.connectors.push.answers import PushAnswers
from boatlift.connectors.push.recorded import RecordedPushes
from boatlift.connectors.push.steps import PushedSteps, upserts_of
from boatlift.dataflow.contracts import Json, Receipt, SourceCapabilities, Upserts
from boatlift.dataflow.contracts.durations import Durations
from boatlift.errors import InvalidError, UnavailableError
from boatlift.http.admission import BearerToken, address_of, advertised, token_of, url_of
from boatlift.storage.input_log import InputLog
from boatlift.storage.unlogged_input import UnloggedInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from boatlift.connectors.push.recorder import Recorder
    from boatlift.connectors.push.rows import PushedRows
    from boatlift.connectors.push.server import Server

LARGEST_STEP = 1_000_000
MOST_WAITING = 1 << 30
MOST_KEYS = 100_000_000
KEY_LENGTH = 200
ROWS_TOGETHER = 1 << 16
"""JSON up to so many bytes is converted together with that of other pushes."""

ANSWER_TIMEOUT = timedelta(seconds=30)
TOKEN_VARIABLE = "BOATLIFT_PUSH_TOKEN"  # noqa: S105 - its name, not a token

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - hosts of a server that listens at every address


@checked_options("bl.push")
def push(
    schema: str | StructType,
    *,
    listen: str | None = None,
    advertise: str | None = None,
    token: str | None = None,
    ack: Literal["recorded", "stable", "answer"] = "recorded",
    key: str | None = None,
    answer_timeout: timedelta = ANSWER_TIMEOUT,
    remember_keys: timedelta = timedelta(days=1),
    max_rows_per_step: int = LARGEST_STEP,
    max_waiting_bytes: int = MOST_WAITING,
    max_remembered_keys: int = MOST_KEYS,
    upsert: Sequence[str] | None = None,
    retain: bool = False,
) -> PushSource:
    """Return a source of pushed rows: by `flow.push(…)` in the process that runs the dataflow, or over HTTP.

    Args:
        schema: The columns. A row may leave out those that are not `NOT NULL`.
        listen: `host:port` for `POST /SOURCE` and `GET /SOURCE/keys/KEY`; None: no HTTP.
        advertise: The URL at which clients of other hosts reach this process, without the source: a standby on another
            host sends them there (307). If not given: `http://` and the address of `listen`, with this host's name if
            that is every address. In a program that several hosts run it has to name each host, as in
            `f"http://{socket.getfqdn()}:8080"`.
        token: The token of each HTTP request, as `Authorization: Bearer …`: 16 characters or more. None: that of the
            environment, `BOATLIFT_PUSH_TOKEN`; if that is not set either, a push needs no token. No store keeps the
            token, and no command shows it.
        ack: When a client gets its answer: once its rows are `recorded`, or once their results are `stable`, so that no
            failure can make a processor read the rows again. With `stable` only keys are recorded, results leave with
            the checkpoints of the processors that read the rows, and a client without an answer pushes again. Rows are
            recorded all the same if a processor has to read them again (`History`), or if they would wait for other
            input: for a batch, a union with another source, a sink with several writers. While no new input comes,
            checkpoints are made for the clients that wait. A store keeps its choice. With `answer` a client over HTTP
            gets the row that a `bl.reply` sink has for its key. Each push then has a key of its own
            (`Idempotency-Key`); a client that asks again with it gets the same answer.
        key: With `ack="answer"`: the STRING column that gets the key of a row's push.
        answer_timeout: With `ack="answer"`: how long a request waits. Then its client gets status 202, and reads
            `GET /SOURCE/keys/KEY/answer` later.
        remember_keys: How long, at least, the keys of pushes are remembered.
        max_rows_per_step: A step ends with the object of the input log that brings it to so many.
        max_waiting_bytes: Pushes are refused while more than this waits until it is stable.
        max_remembered_keys: While so many keys are remembered, pushes with other keys are refused (`[KEYS_FULL]`). Most
            keys take some 80 bytes of the store, and 4 of memory.
        upsert: The columns of a key, none of which may be NULL: a row replaces the one of its key that was pushed
            before, and a row with `_deleted` true, which needs the key alone, deletes it. The stream of the source is
            then changes: of the rows that hold.
        retain: Keep all rows in the store, so that a changed program computes from them, and a way back takes them
            again. Of upserts the rows that hold are kept, and those since the last compaction. Give it from the first
            run on: rows that were deleted do not come back. Not with `ack="stable"`.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`; of `upsert` also `[TYPE_REFUSED]`, `[RESERVED_NAME]`.

    Examples:
        >>> visits = flow.source("visits", bl.push("user STRING, page STRING"))
    """
    columns_of(schema)  # raises if it is none
    upserts = upserts_of(schema, upsert)
    if ack not in ("recorded", "stable", "answer"):
        raise InvalidError("BAD_OPTION", f"ack is {ack!r}: choose 'recorded', 'stable' or 'answer'")
    if retain and ack == "stable":
        raise InvalidError("BAD_OPTION", "retain keeps rows, and ack='stable' records none: choose ack='recorded'")
    limits: dict[str, object] = {"max_rows_per_step": max_rows_per_step, "max_waiting_bytes": max_waiting_bytes}
    limits["max_remembered_keys"] = max_remembered_keys
    for name, value in limits.items():
        if not isinstance(value, int) or value < 1:
            raise InvalidError("BAD_OPTION", f"{name} is {value!r}: give a whole number from 1")
    remembered: object = remember_keys
    if not isinstance(remembered, timedelta) or remembered <= timedelta(0):
        raise InvalidError("BAD_OPTION", f"remember_keys is {remember_keys!r}: give a timedelta above 0")
    answers = _answers_of(schema, ack, key, answer_timeout)
    address = secret = None
    if listen is not None:
        address, secret = address_of(listen), token_of(token, TOKEN_VARIABLE)
    elif token is not None:
        raise InvalidError("BAD_OPTION", "a token is for requests over HTTP: give listen, too, or no token")
    elif advertise is not None:
        raise InvalidError("BAD_OPTION", "advertise is for requests over HTTP: give listen, too, or no advertise")
    return PushSource(
        schema, address, ack == "stable", remember_keys, max_rows_per_step, max_waiting_bytes, bearer=secret,
        upserts=upserts, most_keys=max_remembered_keys, retains=retain, advertise=advertised(advertise),
        answers=answers,
    )  # fmt: skip


def _answers_of(schema: str | StructType, ack: str, key: object, timeout: object) -> PushAnswers | None:
    if (ack == "answer") is (key is None):
        raise InvalidError("BAD_OPTION", 'key is for ack="answer", and names the column that gets the key of a push')
    if key is None:
        if timeout != ANSWER_TIMEOUT:
            raise InvalidError("BAD_OPTION", 'answer_timeout is for ack="answer"')
        return None
    if dict(columns_of(schema)).get(str(key)) != "string":
        raise InvalidError("BAD_OPTION", f"key is {key!r}: name a STRING column of the schema")
    if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
        raise InvalidError("BAD_OPTION", f"answer_timeout is {timeout!r}: give a timedelta above 0")
    return PushAnswers(str(key), timeout.total_seconds())


class PushSource(PushedSteps):
    """Records pushes, and makes steps of them.

    Args:
        address: Where to listen; None: no HTTP.
        until_stable: Whether answers wait until the rows' results are stable.
        advertise: The URL at which clients of other hosts reach the server; empty for that of the address.

    Attributes:
        listens_at: The address while the source is open; for port 0 in the options, with the port that was free.
    """

    def __init__(
        self,
        schema: str | StructType,
        address: tuple[str, int] | None,
        until_stable: bool,
        remember: timedelta,
        limit: int,
        most_waiting: int,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        *,
        bearer: BearerToken | None = None,
        upserts: Upserts | None = None,
        most_keys: int = MOST_KEYS,
        retains: bool = False,
        answers: PushAnswers | None = None,
        advertise: str = "",
    ) -> None:
        super().__init__(schema, limit, upserts)
        self.retains, self.answers = retains, answers
        self._address, self._bearer, self.answers_when_stable = address, bearer, until_stable
        self._remember, self._most, self._clock = remember, most_waiting, clock
        self._most_keys, self._advertise = most_keys, advertise
        self._recorder: Recorder | None = None
        self._server: Server | None = None
        self._rows: PushedRows | None = None
        self._open = threading.Event()
        self._reserved = False
        self.listens_at: tuple[str, int] | None = None

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(
            announces_input=self,
            reads_many_steps=self,
            coalesces_backlog=self,
            rescannable=self,
            parameterized_read=self,
            names_input=self,
            ordered_within="push",
            store_backed=self,
            pushable=self,
            upserts=self.upserts,
            answered=self.answered,
            gone=self.gone if self.retains else _gone,
            contains=self.contains,
            bytes_up_to=self.bytes_up_to if self.retains else None,
            divided_anew=self.divided_anew if self.retains and self.upserts is None else None,
            bounded=RecordedPushes(self._declared, self._not_from_files()),
        )

    def answered(self) -> dict[str, Durations]:
        return {} if (server := self._server) is None else dict(server.pushes)

    def _not_from_files(self) -> str:
        if self.upserts is not None:
            return "takes rows that replace one another, and files have none: test the dataflow behind it"
        if self.answers is not None:
            return "answers its pushes, and files get no answer: test the dataflow behind it"
        return ""

    @property
    def url(self) -> str | None:
        """The URL that takes rows now, if any."""
        return self._server.url if self._server is not None and self._open.is_set() else None

    @property
    def awaits_stability(self) -> bool:
        """Whether an answer, or a refused push, waits for stability now."""
        return self._recorder is not None and self._recorder.awaited

    @property
    def advertised(self) -> str:
        host, port = self.listens_at or self._address or ("", 0)
        if not port or self._advertise:
            return self._advertise
        return url_of((socket.gethostname() if host in _EVERYWHERE else host, port))

    def redirect(self, name: str, owner: str | None) -> None:
        if self._reserved or self._address is None or not self._address[1]:
            return
        if owner is None or owner == self.advertised:
            self._close_server()
        elif self._server is not None:
            self._server.owner = owner
        elif owner:
            try:
                self._server = self._server_of(name, self._address)
                self._server.owner = owner
                self._server.begin()
            except UnavailableError:  # another process has the port
                self._close_server()

    def reserve(self, name: str) -> None:
        if self.answers is not None and not self.answers.has_sink:
            raise InvalidError("BAD_OPTION", f"no bl.reply answers the pushes of {name}: add one, or leave out ack")
        if self._reserved:
            advice = "make another Dataflow for another run"
            raise InvalidError("BAD_OPTION", f"{name} runs already, in this process: {advice}")
        if self._address is not None:
            self._server = self._server or self._server_of(name, self._address)
            self._server.owner = ""
            self.listens_at = self._server.address
        self._reserved = True

    def _server_of(self, name: str, address: tuple[str, int]) -> Server:
        from boatlift.connectors.push.server import Server

        # `Dataflow.source` names the source so, and its stream as clients know it.
        shown = name if self.upserts is None else name.removesuffix("_source")
        return Server(shown, address, self, self._bearer, answers=self.answers)

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None

    def open(self, token: int, stable: Json, newest: Json) -> None:
        from boatlift.connectors.push.compacted import CompactedSegments
        from boatlift.connectors.push.recorder import Recorder
        from boatlift.connectors.push.rows import PushedRows

        log = self._attached
        key = () if self.upserts is None else self.upserts.key
        self._rows = PushedRows(struct_of(self._declared), key)
        if isinstance(log, UnloggedInput):
            log.claim(token, stable, newest)
        else:
            log.claim(token, stable["last"], newest["last"])
        self._recorder = Recorder(
            log.source,
            log,
            self._rows,
            clock=self._clock,
            remember=self._remember // timedelta(milliseconds=1),
            most_keys=self._most_keys,
            most_waiting=self._most,
            until_stable=self.answers_when_stable,
            compacted=partial(CompactedSegments, log, token, key) if key and isinstance(log, InputLog) else None,
            answered=None if self.answers is None else self.answers.look,
        )
        if self._server is not None:
            self._server.serve()
        self._open.set()

    def close(self) -> None:
        self._open.clear()
        if self._recorder is not None:
            self._recorder.close()
        self._close_server()
        self._recorder = self.listens_at = None
        self._reserved = False

    def push(self, rows: object, key: str | None, timeout: float, digest: bytes = b"") -> Receipt:
        self._open.wait(timeout)
        if self.answers is not None:
            self.answers.is_open.wait(timeout)
        recorder, reader = self._running
        return recorder.put(self._with_key(reader.of_python(rows), key), _checked(key), digest).result()

    def put_json(self, body: bytes, key: str | None) -> Future[Receipt]:
        """Take rows as JSON; the answer comes once they are recorded."""
        recorder, reader = self._running
        if len(body) <= ROWS_TOGETHER:
            parsed = reader.parsed(body)
            if self.answers is not None:
                self.answers.give_key(parsed.rows, key)
            return recorder.put_parsed(parsed, _checked(key))
        return recorder.put(self._with_key(reader.of_json(body), key), _checked(key))

    def _with_key(self, rows: pa.RecordBatch, key: str | None) -> pa.RecordBatch:
        """Return rows with the key of their push, if they answer by it."""
        if self.answers is None:
            return rows
        place, column = rows.schema.get_field_index(self.answers.column), self.answers.column
        keyed = [{column: given} for given in rows.column(place).to_pylist()]
        self.answers.give_key(keyed, key)
        return rows.set_column(place, rows.schema.field(place), [each[column] for each in keyed])

    def pushed(self, key: str) -> Receipt | None:
        return self._running[0].found(key)

    def acknowledge(self, position: Json) -> None:
        if self._recorder is not None:
            self._recorder.free(position["last"])

    def announce_input(self, told: Callable[[], None]) -> Callable[[], None]:
        recorder, _ = self._running
        recorder.announce = told

        def stop() -> None:
            recorder.announce = lambda: None

        return stop

    def _go_on_from(self, cursor: Json) -> None:
        if self._recorder is not None:
            self._recorder.go_on_from(cursor)

    def _look(self) -> None:
        if self._recorder is None:
            super()._look()
        elif self._recorder.failure is not None:
            raise self._recorder.failure
        elif self._server is not None:
            self._server.check()

    @property
    def _running(self) -> tuple[Recorder, PushedRows]:
        if self._recorder is None or self._rows is None:
            advice = "begin with bl.start(flow, …)"
            raise UnavailableError("NOT_RUNNING", f"rows are pushed while the dataflow runs in this process: {advice}")
        return self._recorder, self._rows


def _checked(key: str | None) -> str | None:
    if key is not None and not (0 < len(key) <= KEY_LENGTH and key.isprintable()):
        raise InvalidError("BAD_OPTION", f"key {key[:50]!r}: give 1 to {KEY_LENGTH} printable characters")
    return key


def _gone(since: Json, upto: Json) -> str:
    return "" if since == upto else "pushed rows are gone once they are acknowledged"
