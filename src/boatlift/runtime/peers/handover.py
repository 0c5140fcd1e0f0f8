"""The command's end of a handover: the owner of a store stops cleanly, and a standby takes the dataflow over."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

from boatlift.errors import InvalidError, UnavailableError
from boatlift.runtime.peers.channel import Answered, HandoverAsked, Hello, PeerConnection, StrangerError, connect
from boatlift.storage.identities import secret_of
from boatlift.storage.log_reader import LogReader
from boatlift.storage.opening import StorePlace, open_store
from boatlift.storage.records.records import Claim

ANSWER_SECONDS = 5.0
CLAIM_SECONDS = 30.0
"""After a clean stop of the owner a standby claims the dataflow within so many seconds."""


def hand_over(path: StorePlace, to: str = "") -> Iterator[str]:
    """Hand a dataflow over; yield in words what happens, as it does.

    Args:
        to: The standby, as `host:pid`; empty leaves the choice to the owner.

    Raises:
        InvalidError: `[NO_STANDBY]` there is no such standby, or it is not ready.
        UnavailableError: `[OWNER_UNREACHABLE]` no owner answers; `[STANDBY_SILENT]` the owner has stopped, and the
            standby has not claimed the dataflow.
    """
    store = open_store(path, create=False)
    log = LogReader(store, "")
    log.load()
    owner = log.claim_of(log.owner)
    secret = secret_of(store)
    if owner is None or log.history.stopped or not owner.address or secret is None:
        raise InvalidError("NO_STANDBY", f"no run owns {log.dataflow}: begin it with boatlift run")
    where = f"process {owner.pid} on {owner.host}, which listens at {owner.address},"
    try:
        with connect(owner.address, secret, owner.fingerprint) as channel:
            names = (log.store_id, log.dataflow, socket.gethostname(), os.getpid())
            channel.send(Hello("command", *names))
            channel.send(HandoverAsked(to))
            answer = _answer(channel)
            if not answer.to:
                named = f"a standby {to} that is ready" if to else "a standby that is ready"
                raise InvalidError(
                    "NO_STANDBY",
                    f"the owner has not got {named}: {answer.said}: start one with boatlift run --standby, or wait",
                )
            yield f"{log.dataflow}: process {owner.pid} on {owner.host} stops, for {answer.to} to go on"
            _wait_for_the_end(channel)
    except (OSError, StrangerError) as error:
        raise UnavailableError(
            "OWNER_UNREACHABLE", f"{where} does not answer ({error}): see boatlift status, then try again"
        ) from error
    claim = _next_claim(log, answer.to)
    yield f"{log.dataflow}: process {claim.pid} on {claim.host} goes on"


def _answer(channel: PeerConnection) -> Answered:
    until = time.monotonic() + ANSWER_SECONDS
    while (left := until - time.monotonic()) > 0:
        if isinstance(message := channel.receive(left), Answered):
            return message
    raise TimeoutError("no answer in time")


def _wait_for_the_end(channel: PeerConnection) -> None:
    """Wait until the owner has stopped: until then it beats."""
    with suppress(ConnectionError):
        while channel.receive(ANSWER_SECONDS) is not None:
            pass


def _next_claim(log: LogReader, to: str) -> Claim:
    before, until = log.owner, time.monotonic() + CLAIM_SECONDS
    while time.monotonic() < until:
        log.catch_up()
        claim = log.claim_of(log.owner)
        if log.owner != before and claim is not None:
            return claim
        time.sleep(0.05)
    raise UnavailableError(
        "STANDBY_SILENT",
        f"the owner has stopped, and {to} has not claimed {log.dataflow} since: begin it with boatlift run",
    )
