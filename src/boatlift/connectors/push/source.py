"""`bl.push`: rows that are handed over from Python or over HTTP, recorded before whoever hands them over hears of it.

`steps` says what a position is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from boatlift.connectors.kit import columns_of, struct_of
from boatlift.connectors.push.push_token import PushToken, token_of
from boatlift.connectors.push.steps import PushedSteps
from boatlift.dataflow.contracts import Json, Receipt, SourceCapabilities
from boatlift.errors import InvalidError, UnavailableError
from boatlift.storage.unlogged_input import UnloggedInput

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from boatlift.connectors.push.recorder import Recorder
    from boatlift.connectors.push.rows import PushedRows
    from boatlift.connectors.push.server import Server

__all__ = ["PushSource", "push"]

LARGEST_STEP = 1_000_000
MOST_WAITING = 1 << 30
KEY_LENGTH = 200


def push(
    schema: str | StructType,
    *,
    listen: str | None = None,
    token: str | None = None,
    ack: Literal["recorded", "stable"] = "recorded",
    remember_keys: timedelta = timedelta(days=1),
    max_rows_per_step: int = LARGEST_STEP,
    max_waiting_bytes: int = MOST_WAITING,
) -> PushSource:
    """Makes a source of rows that are pushed: by `flow.push(…)` in the process that runs the dataflow, or over HTTP.

    Args:
        schema: The columns; those that are not `NOT NULL` may be left out of a row.
        listen: `host:port` to take `POST /SOURCE` at, and `GET /SOURCE/keys/KEY`; None: nowhere.
        token: What each request over HTTP must have, as `Authorization: Bearer …`; if not given, what `BOATLIFT_PUSH_TOKEN` has in the
            environment; if that is not set, a push needs none. It is kept in no store and shown nowhere.
        ack: When whoever pushes is answered: once the rows are `recorded`, or once what came of them is `stable`, so that no failure can make
            anyone read them again. Then rows are not recorded, only their keys, and results leave with the checkpoints of whoever reads them; who was not
            answered pushes again. They are recorded where they have to be read again (`History`), or would have to wait for others: for a batch, a union with another
            source, a sink with several writers. It cannot be changed for a store.
            Whenever nothing else moves, checkpoints are made for those who wait.
        remember_keys: How long, at least, the keys of pushes are known again: the newest half a million of them.
        max_rows_per_step: A step ends with the object of the input log that brings it to so many.
        max_waiting_bytes: Pushes are refused while more than this waits until it is stable.

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
    address = secret = None
    if listen is not None:
        from boatlift.connectors.push.address import address_of

        address, secret = address_of(listen), token_of(token)
    elif token is not None:
        raise InvalidError("BAD_OPTION", "a token is for requests over HTTP: give listen, too, or no token")
    return PushSource(
        schema, address, ack == "stable", remember_keys, max_rows_per_step, max_waiting_bytes, bearer=secret
    )


class PushSource(PushedSteps):
    """Records what is pushed, and gives it as steps.

    Args:
        schema, remember, limit, most_waiting: As `push` takes them, checked.
        address: Where to listen, if anywhere.
        bearer: The token that requests over HTTP must have, if anything.
        until_stable: Whether answers wait until what came of the rows is stable.
        clock: Milliseconds since 1970; by it keys are forgotten.

    Attributes:
        listens_at: Where it listens while it is open: with port 0 in its options, the port that was free.
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
        bearer: PushToken | None = None,
    ) -> None:
        super().__init__(schema, limit)
        self._address, self._bearer, self._until_stable = address, bearer, until_stable
        self._remember, self._most, self._clock = remember, most_waiting, clock
        self._recorder: Recorder | None = None
        self._server: Server | None = None
        self._rows: PushedRows | None = None
        self._open = threading.Event()
        self._reserved = False
        self.listens_at: tuple[str, int] | None = None

    @property
    def capabilities(self) -> SourceCapabilities:
        """Rows are pushed, and in the store; all are read again as those of files are."""
        return SourceCapabilities(
            reads_many_steps=self,
            coalesces_backlog=self,
            rescannable=self,
            parameterized_read=self,
            names_input=self,
            store_backed=self,
            pushable=self,
        )

    @property
    def answers_when_stable(self) -> bool:
        """Whether answers wait for acknowledgements."""
        return self._until_stable

    @property
    def url(self) -> str | None:
        """The URL that rows are taken on now, if any."""
        return self._server.url if self._server is not None and self._open.is_set() else None

    @property
    def awaits_stability(self) -> bool:
        """Whether an answer waits for one now, or a refused push."""
        recorder = self._recorder
        return recorder is not None and recorder.awaited

    def reserve(self, name: str) -> None:
        """Listens, if it is to; nothing is answered yet."""
        if self._reserved:
            raise InvalidError(
                "BAD_OPTION", f"{name} runs already, in this process: make another Dataflow for another run"
            )
        if self._address is not None:
            from boatlift.connectors.push.server import Server

            self._server = Server(name, self._address, self, self._bearer)
            self.listens_at = self._server.address
        self._reserved = True

    def open(self, token: int, stable: Json, newest: Json) -> None:
        """Takes the input log over, and what is pushed."""
        from boatlift.connectors.push.recorder import Recorder
        from boatlift.connectors.push.rows import PushedRows

        log = self._attached
        self._rows = PushedRows(struct_of(self._declared))
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

    def acknowledge(self, position: Json) -> None:
        """Frees the objects of a position."""
        if self._recorder is not None:
            self._recorder.free(position["last"])

    # -- its parts ----------------------------------------------------------------------------------------------------

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
        recorder, rows = self._recorder, self._rows
        if recorder is None or rows is None:
            raise UnavailableError(
                "NOT_RUNNING", "rows are pushed while the dataflow runs in this process: begin with bl.start(flow, …)"
            )
        return recorder, rows


def _checked(key: str | None) -> str | None:
    if key is not None and not (0 < len(key) <= KEY_LENGTH and key.isprintable()):
        raise InvalidError("BAD_OPTION", f"key {key[:50]!r}: give 1 to {KEY_LENGTH} printable characters")
    return key
