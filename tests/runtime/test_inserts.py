"""How a command's rows come to the owner: once, whatever becomes of owners, and with errors that say what may be."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from boatlift.dataflow.contracts import Receipt
from boatlift.errors import DataError, UnavailableError, to_text
from boatlift.runtime.host import inserts
from boatlift.runtime.host.inserts import insert_rows
from boatlift.runtime.peers.certificate import OwnCertificate
from boatlift.runtime.peers.channel import Beat, RowsAnswered, RowsAsked
from boatlift.runtime.peers.owner import LOOPBACK, OwnerLink
from boatlift.storage.identities import secret_of
from boatlift.storage.records.records import Claim
from support.engine.hosts import open_store
from support.engine.memory_engine import PROGRAM
from support.worlds.logs import claimed

ASKED = RowsAsked("rows", "two words", b"d" * 16, b"rows")
NEVER = 1e6
Takes = Callable[[RowsAsked], RowsAnswered]


class Owners:
    """A store, and the processes that own it one after the other."""

    def __init__(self, folder: Path, open_links: ExitStack) -> None:
        self.store, self._links = open_store(folder), open_links

    def claim(self, takes: Takes, listen: str = LOOPBACK, certificate: OwnCertificate | None = None) -> None:
        """Let another process take the store over, which takes rows as a function says."""
        link = self._links.enter_context(closing(OwnerLink(lambda: None, listen)))
        link.take_rows = takes
        fingerprint = link.fingerprint if certificate is None else certificate.fingerprint
        claim = Claim(socket.gethostname(), os.getpid(), 1, PROGRAM, {}, address=link.address, fingerprint=fingerprint)
        log = claimed(self.store, claim)
        secret = secret_of(self.store, create=True)
        assert secret is not None
        link.begin(secret, log.store_id, "flow", lambda: Beat(1, 1))


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[Owners]:
    with ExitStack() as links:
        yield Owners(tmp_path, links)


def hanging(owners: Owners) -> tuple[threading.Event, threading.Event]:
    """Let an owner take the store that never answers, until it may; return when it was asked, and that it may."""
    asked, may = threading.Event(), threading.Event()

    def hangs(_asked: RowsAsked) -> RowsAnswered:
        asked.set()
        may.wait(60)
        return RowsAnswered(error=to_text(UnavailableError("NOT_RUNNING", "it has ended")))

    owners.claim(hangs)
    return asked, may


def test_an_owner_that_hangs_is_left_as_soon_as_another_one_owns_the_store(owners: Owners) -> None:
    asked, may = hanging(owners)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(insert_rows, owners.store, "flow", ASKED, NEVER)
        assert asked.wait(60)
        owners.claim(lambda _asked: RowsAnswered(3, True, False))
        assert answer.result(60) == Receipt(3, repeated=True, stable=False)
        may.set()


def test_an_error_after_an_attempt_without_an_answer_says_that_rows_may_be_recorded(owners: Owners) -> None:
    asked, may = hanging(owners)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(insert_rows, owners.store, "flow", ASKED, NEVER)
        assert asked.wait(60)
        owners.claim(lambda _asked: RowsAnswered(error=to_text(DataError("BAD_ROW", "v is text"))))
        error = answer.exception(60)
        may.set()
    assert isinstance(error, DataError)
    assert error.condition == "BAD_ROW"
    assert "an earlier attempt had no answer" in str(error)
    assert "(--key 'two words'): the rows may be recorded" in str(error)


@pytest.mark.parametrize("condition", ["PUSH_FULL", "KEYS_FULL"])
def test_an_owner_that_is_full_is_asked_once(owners: Owners, condition: str) -> None:
    calls: list[RowsAsked] = []

    def full(asked: RowsAsked) -> RowsAnswered:
        calls.append(asked)
        return RowsAnswered(error=to_text(UnavailableError(condition, "push again later")))

    owners.claim(full)
    with pytest.raises(UnavailableError, match=r"push again later$"):
        insert_rows(owners.store, "flow", ASKED, NEVER)
    assert calls == [ASKED]


def test_an_owner_that_begins_is_asked_until_it_takes_rows(owners: Owners) -> None:
    begins = iter([RowsAnswered(error=to_text(UnavailableError("NOT_RUNNING", "it begins"))), RowsAnswered(1)])
    owners.claim(lambda _asked: next(begins))
    assert insert_rows(owners.store, "flow", ASKED, NEVER).rows == 1


def test_an_owner_that_closes_the_connection_is_asked_for_half_a_minute(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of an earlier version does, which does not know the message."""
    monkeypatch.setattr(inserts, "OWNER_SECONDS", 2.0)

    def closes(_asked: RowsAsked) -> RowsAnswered:
        raise ConnectionResetError

    owners.claim(closes)
    with pytest.raises(UnavailableError, match=r"\[OWNER_UNREACHABLE\].*the rows may be recorded"):
        insert_rows(owners.store, "flow", ASKED, NEVER)


def test_without_an_owner_nothing_is_sent(owners: Owners) -> None:
    claimed(owners.store, Claim("host", 1, 1, PROGRAM, {}))
    with pytest.raises(UnavailableError, match=r"\[NOT_RUNNING\].*no row was recorded"):
        insert_rows(owners.store, "flow", ASKED, NEVER)


def test_an_owner_that_other_hosts_reach_gets_rows_over_tls(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another certificate than that of the claim nothing is sent."""
    owners.claim(lambda asked: RowsAnswered(len(asked.rows)), "0.0.0.0:0")
    assert insert_rows(owners.store, "flow", ASKED, NEVER).rows == len(ASKED.rows)
    taken: list[RowsAsked] = []
    monkeypatch.setattr(inserts, "OWNER_SECONDS", 1.0)

    def take(asked: RowsAsked) -> RowsAnswered:
        taken.append(asked)
        return RowsAnswered(1)

    owners.claim(take, "0.0.0.0:0", OwnCertificate())
    with pytest.raises(UnavailableError, match=r"\[OWNER_UNREACHABLE\].*no row was recorded"):
        insert_rows(owners.store, "flow", ASKED, NEVER)
    assert taken == []
