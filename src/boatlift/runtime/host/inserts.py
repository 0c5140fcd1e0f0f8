"""Rows that a command inserts: its owner takes them as a push, under a key, so that each attempt may be repeated."""

from __future__ import annotations

import os
import shlex
import socket
import time

import pyarrow as pa

from boatlift.dataflow import Plan
from boatlift.dataflow.contracts import Receipt
from boatlift.errors import (
    BoatliftError,
    FencedError,
    InternalError,
    InvalidError,
    UnavailableError,
    from_text,
    to_text,
)
from boatlift.runtime.peers.channel import (
    MOST_ROWS_BYTES,
    Hello,
    RowsAnswered,
    RowsAsked,
    StrangerError,
    connect,
)
from boatlift.storage.identities import secret_of
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.records import Claim
from boatlift.storage.store import Store

OWNER_SECONDS = 30.0
"""So long a command waits for an owner that answers: a standby takes over in less."""

PAUSE_SECONDS, LOOK_SECONDS = 0.1, 1.0

LEAST_RATE = 1 << 20
"""The bytes a second of the slowest connection that rows are sent over."""


class RowsOfCommands:
    """A run's sources take rows of commands; any thread may call `take`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def take(self, asked: RowsAsked) -> RowsAnswered:
        """Return once the rows are recorded, or refused."""
        try:
            unit = self._plan.sources.get(asked.source)
            pushable = None if unit is None else unit.source.capabilities.pushable
            if pushable is None:
                raise InvalidError("BAD_OPTION", f"{asked.source} takes no pushes: name a source of bl.push")
            with pa.ipc.open_stream(asked.rows) as stream:
                rows = stream.read_all()
            receipt = pushable.push(rows, asked.key, 0.0, asked.digest)
        except BoatliftError as error:
            return RowsAnswered(error=to_text(error))
        except Exception as error:  # noqa: BLE001 - the command gets it: a thread of the owner's link must not end by it
            said = f"rows for {asked.source} cannot be taken: {error!r}"
            return RowsAnswered(error=to_text(InternalError("INTERNAL", said)))
        return RowsAnswered(receipt.rows, receipt.repeated, receipt.stable)


def insert_rows(store: Store, dataflow: str, asked: RowsAsked, seconds: float) -> Receipt:
    """Let the owner of a store record rows; if it dies meanwhile, the next one.

    Laws:
        * The rows are recorded once, however often an owner dies, or the command is repeated with its key.
        * An error after which the rows may be recorded says so, with the key.

    Args:
        seconds: The longest wait for a receipt.

    Raises:
        BoatliftError: the owner refuses the rows.
        InvalidError: `[PUSH_TOO_LARGE]`.
        UnavailableError: `[NOT_RUNNING]` no run owns the store; `[OWNER_UNREACHABLE]`.
    """
    if len(asked.rows) > MOST_ROWS_BYTES:
        raise InvalidError(
            "PUSH_TOO_LARGE", f"{len(asked.rows):,} bytes are more than {MOST_ROWS_BYTES:,}: insert them in parts"
        )
    log = LogReader(store, dataflow)
    log.load()
    attempt = _Attempts(log, asked, time.monotonic() + seconds)
    secret = secret_of(store)
    while True:
        log.catch_up()
        owner = _owner_of(log)
        error: BoatliftError
        if owner is None or secret is None:
            error = _not_running(dataflow, attempt.again())
            if not attempt.may_be_recorded:
                raise error
        else:
            try:
                answer = attempt.of(owner, secret)
            except (OSError, StrangerError) as ended:
                error = attempt.unreachable(owner, ended)
            else:
                if not answer.error:
                    return Receipt(answer.rows, answer.repeated, answer.stable)
                error = from_text(answer.error)
                if not isinstance(error, FencedError) and error.condition != "NOT_RUNNING":
                    raise attempt.with_key(error)
        if (now := time.monotonic()) > attempt.until or now > attempt.heard + OWNER_SECONDS:
            raise error
        time.sleep(PAUSE_SECONDS)


def require_owner(store: Store, dataflow: str, key: str) -> None:
    """Raise unless a run owns a store, before rows are computed that it is to record under a key.

    Raises:
        UnavailableError: `[NOT_RUNNING]`.
    """
    log = LogReader(store, dataflow)
    log.load()
    if _owner_of(log) is None:
        raise _not_running(dataflow, _again(key, recorded=False))


def _owner_of(log: LogReader) -> Claim | None:
    claim = log.claim_of(log.owner)
    return None if claim is None or log.history.stopped or not claim.address else claim


def _not_running(dataflow: str, again: str) -> UnavailableError:
    return UnavailableError("NOT_RUNNING", f"no run owns {dataflow}: begin it with boatlift run, then {again}")


def _again(key: str, *, recorded: bool) -> str:
    said = "the rows may be recorded, and are taken once" if recorded else "no row was recorded"
    return f"repeat the statement with the key {key} (--key {shlex.quote(key)}): {said}"


class _Attempts:
    """The attempts to let an owner record rows.

    Attributes:
        may_be_recorded: Whether an attempt ended without an answer, after it was sent.
        heard: When a connection was alive last.
    """

    def __init__(self, log: LogReader, asked: RowsAsked, until: float) -> None:
        self._log, self._asked, self.until = log, asked, until
        self.heard, self.may_be_recorded = time.monotonic(), False

    def of(self, owner: Claim, secret: bytes) -> RowsAnswered:
        """Send the rows to an owner, and wait for its answer for as long as it owns the store.

        Raises:
            OSError: it does not answer, or another one owns the store.
            StrangerError: it is not the owner.
        """
        before, token = self.may_be_recorded, self._log.owner
        with connect(owner.address, secret, owner.fingerprint) as channel:
            channel.send(Hello("command", self._log.store_id, self._log.dataflow, socket.gethostname(), os.getpid()))
            channel.send(self._asked, OWNER_SECONDS + len(self._asked.rows) / LEAST_RATE)
            self.may_be_recorded, sent = True, time.monotonic()
            while (left := self.until - time.monotonic()) > 0:
                if isinstance(answer := channel.receive(min(left, LOOK_SECONDS)), RowsAnswered):
                    self.may_be_recorded = before
                    return answer
                if (now := time.monotonic()) >= sent + LOOK_SECONDS:  # else it may know no such message, and close
                    self.heard = now
                self._log.catch_up()
                if self._log.owner != token:
                    raise ConnectionResetError("another process has taken over")
        raise TimeoutError("no answer in time")

    def unreachable(self, owner: Claim, why: Exception) -> UnavailableError:
        said = f"process {owner.pid} on {owner.host} owns the store and does not answer"
        return UnavailableError(
            "OWNER_UNREACHABLE",
            f"{said} ({str(why) or type(why).__name__}): see boatlift status, then {self.again()}",
        )

    def with_key(self, error: BoatliftError) -> BoatliftError:
        """Return the owner's error, with what an earlier attempt may have done."""
        if not self.may_be_recorded:
            return error
        said = f"{error.message}; an earlier attempt had no answer: {self.again()}"
        return type(error)(error.condition, said, lasting=error.lasting)

    def again(self) -> str:
        return _again(self._asked.key, recorded=self.may_be_recorded)
