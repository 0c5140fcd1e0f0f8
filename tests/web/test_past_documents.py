"""The documents of rows, charts and events: of the store alone, and beside the report of an owner."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.api.served import beside_run
from boatlift.dataflow.contracts import RowReader, ShownRows, SinkPlace
from boatlift.errors import UnavailableError
from boatlift.operators import operators_with_status
from boatlift.storage.journal import DAY, Journal
from boatlift.storage.records.journal import JournalEntry, RunEvent, RunSample
from boatlift.storage.records.records import Claim
from boatlift.web.documents import Documents
from support.console import consoling
from support.engine.hosts import PATIENCE, crashed, open_store, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.worlds.logs import claimed

NOW = 1_700_000_060_000
PLACES = {"all": {"kind": "known", "path": "/out"}, "totals": {"kind": "kafka"}}


def given(
    store: Path, name: str, readers: Mapping[str, RowReader] | None = None, now: int = NOW, **arguments: str
) -> Any:
    documents = Documents(str(store), operators_with_status(), lambda: now, readers=readers)
    return json.loads(documents.get(name, arguments).content)


def one_row(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    return ShownRows(4, f"of {of.sink} from {begin}, {limit}", ["k"], 0, [["1"]], begin, 1, more=False)


def away(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    raise UnavailableError("SINK_FAILED", "it is away")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    claimed(open_store(tmp_path), Claim("host", 1, NOW - 60_000, PROGRAM, {}, sinks=PLACES))
    return tmp_path


def test_rows_are_those_of_the_reader_of_the_kind(store: Path) -> None:
    found = given(store, "rows", {"known": one_row})
    assert (found["of"], found["rows"]["order"]) == ("all", "of all from 0, 200")
    assert found["sinks"] == [{"sink": name, **place} for name, place in PLACES.items()]
    assert given(store, "rows", {"known": one_row}, of="all", **{"from": "400"})["rows"]["begin"] == 400


def test_slow_rows_keep_no_other_document_waiting_nor_those_of_another_sink(store: Path) -> None:
    reads, go_on = threading.Event(), threading.Event()

    def slow(of: SinkPlace, begin: int, limit: int) -> ShownRows:
        reads.set()
        assert go_on.wait(PATIENCE)
        return one_row(of, begin, limit)

    with consoling(store, readers={"known": slow, "kafka": one_row}) as reader, ThreadPoolExecutor(1) as thread:
        shown = thread.submit(reader.document, "rows")
        try:
            assert reads.wait(PATIENCE)
            assert reader.document("status")["dataflow"] == "flow"
            assert reader.document("log")["records"]
            other = reader.document("rows?of=totals")
            assert (other["of"], other["rows"]["order"]) == ("totals", "of totals from 0, 200")
            assert not shown.done()
        finally:
            go_on.set()
        assert shown.result()["rows"]["order"] == "of all from 0, 200"


def test_sinks_beyond_the_bound_share_a_thread(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.web.server.MOST_ROWS_WORKERS", 1)
    with consoling(store, readers={"known": one_row, "kafka": one_row}) as reader:
        for n in range(20):
            assert reader.ask(f"/api/v1/rows?of=unknown{n}").status == 400
        for of in ("all", "totals", "all"):
            assert reader.document(f"rows?of={of}")["of"] == of
        assert reader.document("rows")["of"] == "all"
        assert "all" in reader.console._rows_workers, "names of no sink take no thread"
        assert len(reader.console._rows_workers) == 2
        assert set(reader.console._documents._showing) == {"all", "totals"}


@pytest.mark.parametrize(
    ("readers", "of", "why"),
    [
        (None, "all", "start boatlift console with --rows"),
        ({"known": one_row}, "totals", "reads no rows of a sink of the kind kafka, only of known"),
        ({"known": away}, "all", "[SINK_FAILED] it is away"),
    ],
)
def test_where_there_are_none_the_document_says_why(
    store: Path, readers: Mapping[str, RowReader] | None, of: str, why: str
) -> None:
    found = given(store, "rows", readers, of=of)
    assert found["rows"] is None
    assert why in found["why"]


def test_the_claim_of_a_command_hides_no_place(store: Path) -> None:
    log = claimed(open_store(store), Claim("host", 2, NOW, PROGRAM, {}))
    assert log.owner > 1
    assert given(store, "rows", {"known": one_row})["rows"]


def test_a_store_of_an_older_version_says_when_it_will_tell(tmp_path: Path) -> None:
    crashed(tmp_path)
    log_without = tmp_path / "older"
    claimed(open_store(log_without), Claim("host", 1, NOW, PROGRAM, {}))
    assert "the next start of the dataflow records it" in given(log_without, "rows", {"known": one_row})["why"]


@pytest.mark.parametrize("arguments", [{"of": "<b>"}, {"from": "-1"}, {"from": "1000001"}, {"from": "x"}])
def test_wrong_arguments_of_rows_are_refused(store: Path, arguments: dict[str, str]) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        given(store, "rows", {"known": one_row}, **arguments)


def test_a_stopped_run_has_its_last_minutes_and_its_claim_as_a_mark(tmp_path: Path) -> None:
    run(MemoryEngine(World()), open_store(tmp_path))
    now = time.time_ns() // 1_000_000
    Journal(open_store(tmp_path), 99).write(JournalEntry(RunSample(now + DAY // 2, now)))  # of a clock that was ahead
    found = given(tmp_path, "series", now=now)
    assert found["to"] == found["series"]["at"][-1]
    assert found["from"] == found["to"] - 300_000
    assert [mark["kind"] for mark in found["marks"]] == ["claim"]
    assert found["series"]["shown"][-1] > 0


@pytest.mark.parametrize("seconds", ["9", "86401", "x"])
def test_wrong_seconds_are_refused(tmp_path: Path, seconds: str) -> None:
    crashed(tmp_path)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        given(tmp_path, "series", seconds=seconds)


def test_events_are_in_the_history_and_failures_at_their_steps(store: Path) -> None:
    events = (
        RunEvent(NOW - 9_000, "failure", "sums", 7, "[STEP_FAILED] it failed"),
        RunEvent(NOW - 4_000, "replay", "sums", 6, "executed 2 steps again, up to step 6", 2, 3_000.0),
        RunEvent(NOW - 1_000, "failure", "flow", -1, "[STEP_FAILED] it failed for good"),
    )
    Journal(open_store(store), 1).write(JournalEntry(RunSample(NOW, NOW - 60_000), events))
    operations = given(store, "operations")["operations"]
    assert [(each["kind"], each["milliseconds"]) for each in operations[:3]] == [
        ("failure", 0.0),
        ("replay", 3_000.0),
        ("failure", 0.0),
    ]
    past = given(store, "steps")
    assert past["failures"] == [["sums", 7, NOW - 9_000, "[STEP_FAILED] it failed"]]
    assert "sums" in [each["who"] for each in given(store, "series")["marks"] if each["kind"] == "failure"]


@pytest.mark.parametrize(
    ("host", "rows", "shown"),
    [
        ("127.0.0.1", None, True),
        ("127.0.0.1", False, False),
        ("0.0.0.0", None, False),
        ("0.0.0.0", True, True),
    ],
)
def test_rows_are_shown_to_other_hosts_only_if_that_is_said(
    store: Path, monkeypatch: pytest.MonkeyPatch, host: str, rows: bool | None, shown: bool
) -> None:
    monkeypatch.setenv("BOATLIFT_CONSOLE_TOKEN", "a-token-for-this-test")
    urls: list[str] = []
    with beside_run(str(store), console=f"{host}:0", rows=rows, said=urls.append, noticed=print):
        asked = urllib.request.Request(
            f"{urls[0].replace('0.0.0.0', '127.0.0.1')}api/v1/rows",
            headers={"Authorization": "Bearer a-token-for-this-test"},
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            why = json.load(answer)["why"]
    assert ("start boatlift console with --rows all" not in why) == shown, why
