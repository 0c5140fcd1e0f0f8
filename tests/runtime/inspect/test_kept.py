"""The things that a store keeps, and the processors that may ask for them."""

from __future__ import annotations

from pathlib import Path

from boatlift.runtime.inspect.contents import KeptReport, kept_in
from boatlift.storage.records.facts import LoggedMessage
from boatlift.storage.records.records import Claim
from boatlift.storage.store import Store
from support.engine.hosts import open_store
from support.engine.memory_engine import PROGRAM
from support.worlds.facts import made, payload_with, run_of, saved
from support.worlds.logs import claimed


def test_each_run_is_counted_once_and_each_kind_names_its_readers(tmp_path: Path) -> None:
    log, store = claimed(open_store(tmp_path), Claim("host", 1, 0, PROGRAM, {})), open_store(tmp_path)
    message = payload_with([run_of(b"message", "runs/3"), run_of(b"state", "runs/1")], rows=1)
    log.append([*(made(time, "rows") for time in range(7)), saved(3, run_of(b"state", "runs/1"))])
    log.append([LoggedMessage("clean->sums", 4, message)])
    store.create("runs/9", b"left")
    store.create("facts/000000000001-000000000000", b"facts")
    assert kept_in(store, log) == [
        KeptReport("positions", "rows", 7, 0, 0, "clean: to read the same again"),
        KeptReport("state", "sums", 1, 1, len(b"state"), "sums: to roll back to"),
        KeptReport("messages", "clean->sums", 1, 1, len(b"message"), "sums, if it rolls back, or totals after it"),
        KeptReport("log", "-", 0, 3, size_of(store, "log/"), "every start of the dataflow: to recover from"),
        KeptReport("facts", "-", 0, 1, len(b"facts"), "the log: live facts, written once"),
        KeptReport("nothing", "-", 0, 1, 4, "no processor: the next process that runs the dataflow deletes them"),
    ]


def test_a_store_that_no_process_claimed_keeps_nothing(tmp_path: Path) -> None:
    assert kept_in(open_store(tmp_path), claimed(open_store(tmp_path), Claim("host", 1, 0, {}, {}))) == [
        KeptReport(
            "log", "-", 0, 1, size_of(open_store(tmp_path), "log/"), "every start of the dataflow: to recover from"
        )
    ]


def size_of(store: Store, prefix: str) -> int:
    return sum(store.size(name) or 0 for name in store.list(prefix))
