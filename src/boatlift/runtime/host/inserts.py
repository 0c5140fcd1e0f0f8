"""Rows that a command inserts: its owner takes them as a push, under a key, so that each attempt may be repeated."""

from __future__ import annotations

import os
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
    PeerConnection,
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

PAUSE_SECONDS = 0.1


class RowsOfCommands:
    """Gives rows of commands to the sources of a run; any thread may call `take`."""

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
        * An error says whether the rows may be recorded.

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
    secret, until, heard, is_sent = secret_of(store), time.monotonic() + seconds, time.monotonic(), False
    while True:
        log.catch_up()
        owner = log.claim_of(log.owner)
        error: BoatliftError
        if owner is None or secret is None or log.history.stopped or not owner.address:
            said = f"no run owns {dataflow}: begin it with boatlift run"
            error = UnavailableError("NOT_RUNNING", f"{said}, then {_again(asked, is_sent=is_sent)}")
            if not is_sent:
                raise error
        else:
            try:
                with connect(owner.address, secret, owner.fingerprint) as channel:
                    is_sent = True
                    try:
                        channel.send(Hello("command", log.store_id, dataflow, socket.gethostname(), os.getpid()))
                        channel.send(asked)
                        answer = _answer(channel, until)
                    finally:
                        heard = time.monotonic()
                if not answer.error:
                    return Receipt(answer.rows, answer.repeated, answer.stable)
                error = from_text(answer.error)
                if not isinstance(error, UnavailableError | FencedError) or error.lasting:
                    raise error
            except (OSError, StrangerError) as ended:
                error = _unreachable(owner, asked, ended, is_sent=is_sent)
        if (now := time.monotonic()) > until or now > heard + OWNER_SECONDS:
            raise error
        time.sleep(PAUSE_SECONDS)


def _answer(channel: PeerConnection, until: float) -> RowsAnswered:
    while (left := until - time.monotonic()) > 0:
        if isinstance(answer := channel.receive(left), RowsAnswered):
            return answer
    raise TimeoutError("no answer in time")


def _unreachable(owner: Claim, asked: RowsAsked, why: Exception, *, is_sent: bool) -> UnavailableError:
    said = f"process {owner.pid} on {owner.host} owns the store and does not answer ({str(why) or type(why).__name__})"
    return UnavailableError("OWNER_UNREACHABLE", f"{said}: see boatlift status, then {_again(asked, is_sent=is_sent)}")


def _again(asked: RowsAsked, *, is_sent: bool) -> str:
    recorded = "the rows may be recorded, and are taken once" if is_sent else "no row was recorded"
    return f"repeat the statement with the key {asked.key} (--key {asked.key}): {recorded}"
