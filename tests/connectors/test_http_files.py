"""Files by HTTP: read from a server by ETag, or recorded in the store; servers that change, refuse, and lie."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import DataError
from boatlift.storage.local import LocalStore
from boatlift.storage.verify import verify
from connectors.source_laws import drain
from connectors.test_bucket_files import BAD, TEXTS, rows_of
from support.http_resource import LINES, SCHEMA, Resource, names_in, sent, served, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# -- which way ---------------------------------------------------------------------------------------------------------


def test_a_resource_with_ranges_and_a_strong_etag_is_read_where_it_is(resource: Resource, store: LocalStore) -> None:
    source = source_of(resource, store)
    positions, cursor = drain(source, source.start())
    assert positions == [{"files": [{"path": "rows.csv", "size": len(LINES), "etag": resource.etag.strip('"')}]}]
    assert names_in(store) == []
    asked = len(resource.requests)
    assert source.next(cursor) is None
    assert len(resource.requests) == asked, "it was taken, so nothing is asked any more"


@pytest.mark.parametrize("ranges", [True, False], ids=["read there", "recorded"])
def test_a_resource_may_be_called_by_its_day(store: LocalStore, ranges: bool) -> None:
    """Its name begins as that of a recorded state does."""
    with served("20261130-rows.csv") as resource:
        resource.body, resource.ranges = LINES, ranges
        source = source_of(resource, store)
        (position,), _ = drain(source, source.start())
        with source._place_in(position["files"][0]).open() as file:
            assert file.read() == LINES
        source.verify(position)
        source.acknowledge(position)
        source.verify(position)


@pytest.mark.parametrize("lacks", ["ranges", "etags", "a strong etag", "HEAD", "open access", "a last state"])
def test_any_other_resource_is_recorded_before_a_step_takes_it(
    resource: Resource, store: LocalStore, lacks: str
) -> None:
    options: dict[str, Any] = {}
    match lacks:
        case "ranges":
            resource.ranges = False
        case "etags":
            resource.etags = False
        case "a strong etag":
            resource.weak = True
        case "HEAD":
            resource.next = [lambda request: request.command == "HEAD" and sent(request, 405)]
        case "open access":
            resource.headers = options["headers"] = {"Authorization": "Bearer of a secret"}
        case "a last state":
            options["every"] = "1 hour"
    source = source_of(resource, store, **options)
    positions, cursor = drain(source, source.start())
    (name,) = names_in(store)
    assert [file["path"] for position in positions for file in position["files"]] == [name]
    assert (store.root / "fetched" / "rows" / name).read_bytes() == LINES
    resource.body = b"a,b,c\n9,9,9\n"
    assert (source.next(cursor) is not None) == (lacks == "a last state")
    source.verify(positions[0])


@pytest.mark.spark
@pytest.mark.parametrize("ranges", [True, False], ids=["read there", "recorded"])
@pytest.mark.parametrize("kind", [kind for kind in TEXTS if kind != "forms"])
def test_text_has_the_rows_of_local_files(
    spark: SparkSession, tmp_path: Path, store: LocalStore, kind: str, ranges: bool
) -> None:
    name, content, options = TEXTS[kind]
    (tmp_path / name).write_bytes(content)
    with served(name) as resource:
        resource.body, resource.ranges = content, ranges
        found = rows_of(spark, source_of(resource, store, **options))
        assert bool(names_in(store)) is not ranges
    assert found == rows_of(spark, bl.files(tmp_path / name, **{"schema": SCHEMA, **options}))


@pytest.mark.spark
@pytest.mark.parametrize("ranges", [True, False], ids=["read there", "recorded"])
def test_bad_rows_are_sorted_out_with_the_place_of_the_line(
    spark: SparkSession, tmp_path: Path, store: LocalStore, ranges: bool
) -> None:
    name, content, options = BAD["a value"]
    with served(name) as resource:
        resource.body, resource.ranges = content, ranges
        source = source_of(resource, store, **options)
        (position,), _ = drain(source, source.start())
        sorting = source.capabilities.bad_rows.sorting_out()
        rows = sorting.load(spark, position)
        bad = sorting.dead_letters(rows.where("_bad_row IS NOT NULL")).collect()
        assert [place.rpartition(":")[2] for place in sorting.places(bad)] == ["3"]


# -- what changes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conditions", [True, False], ids=["conditions", "no conditions"])
def test_a_resource_that_changes_is_refused_by_reads_and_proofs(resource: Resource, conditions: bool) -> None:
    resource.conditions = conditions
    source = source_of(resource)
    (position,), cursor = drain(source, source.start())
    place = source._place_in(position["files"][0])
    assert bytes(place.read(6, 10)) == LINES[6:16]
    resource.body = LINES.replace(b"text", b"TEXT")
    for act in (lambda: place.read(6, 10), lambda: source.verify(position), lambda: source.verify_everything(cursor)):
        with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
            act()
    resource.body = None
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\]"):
        source.verify(position)
    resource.body = LINES
    source.verify(position)


def test_between_two_ranges_a_change_is_noticed(resource: Resource) -> None:
    source = source_of(resource, max_bytes_per_step=1000)
    first = source.next(source.start())
    resource.body = LINES + b"1,2,3\n"
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\].* bytes were taken: put the original back"):
        source.next(source.advance(source.start(), first))


def test_text_that_has_grown_is_taken_from_there_and_another_text_whole(resource: Resource, store: LocalStore) -> None:
    source = source_of(resource, store, every="1 hour")
    positions, cursor = drain(source, source.start())
    resource.body = LINES + b"1,2,grown\n"
    grown, cursor = drain(source, cursor)
    assert [(file["begin"], file["end"]) for file in grown[0]["files"]] == [(len(LINES), len(LINES) + 10)]
    same, cursor = drain(source, cursor)
    assert same == []
    resource.body = b"a,b,c\n1,2,another\n"
    another, cursor = drain(source, cursor)
    assert [file["size"] for file in another[0]["files"]] == [len(resource.body)]
    again, reached = drain(source_of(resource, store, every="1 hour"), source.start())
    assert (again, reached) == ([*positions, *grown, *another], cursor)


@pytest.mark.parametrize("before", [b"a,b,c\n1,2,x", b"a,b,c\n1,2,y\n"], ids=["no line end", "another line"])
def test_text_that_only_seems_to_have_grown_is_taken_whole(
    resource: Resource, store: LocalStore, before: bytes
) -> None:
    source = source_of(resource, store, every="1 hour")
    resource.body = before
    _, cursor = drain(source, source.start())
    resource.body = b"a,b,c\n1,2,xy\n3,4,z\n"
    (position,), _ = drain(source, cursor)
    assert "begin" not in position["files"][0]


def test_packed_text_is_taken_whole(store: LocalStore) -> None:
    with served("rows.csv.gz") as resource:
        resource.body = gzip.compress(LINES)
        source = source_of(resource, store, every="1 hour")
        _, cursor = drain(source, source.start())
        resource.body += gzip.compress(b"1,2,grown\n")
        (position,), _ = drain(source, cursor)
        assert position["files"][0]["size"] == len(resource.body)


def test_states_that_no_recovery_needs_are_deleted_but_for_the_newest(resource: Resource, store: LocalStore) -> None:
    source = source_of(resource, store, every="1 hour")
    cursor, taken = source.start(), []
    for number in range(3):
        resource.body = LINES + b"1,2,grown\n" * number
        positions, cursor = drain(source, cursor)
        taken += positions
    before = names_in(store)
    assert len(before) == 3
    source.acknowledge(taken[0])
    assert names_in(store) == before
    source.acknowledge(taken[1])
    assert names_in(store) == before[1:]
    assert "is gone" in source.capabilities.gone(source.start(), cursor)
    source.acknowledge(taken[2])
    assert names_in(store) == before[2:]
    assert drain(source_of(resource, store, every="1 hour"), cursor)[0] == []


def test_a_recorded_state_that_no_step_has_taken_is_the_next_input(resource: Resource, store: LocalStore) -> None:
    """The process dies after it has recorded, and before the position is in the log."""
    resource.ranges = False
    position = source_of(resource, store).next({"taken": bl_names(), "digest": ""})
    resource.body, resource.ranges = b"a,b,c\n9,9,9\n", True
    source = source_of(resource, store)
    assert drain(source, source.start())[0] == [position]
    assert len(names_in(store)) == 1


def test_two_owners_that_record_at_once_record_one_state(
    resource: Resource, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paused owner has looked, and creates its object after its successor has created one."""
    slow, quick = (source_of(resource, store, every="1 hour") for _ in range(2))
    create = LocalStore.create
    found = []

    def pausing(self: LocalStore, name: str, content: bytes | Path) -> None:
        monkeypatch.setattr(LocalStore, "create", create)
        resource.body = LINES + b"1,2,later\n"
        found.extend(drain(quick, quick.start())[0])
        create(self, name, content)

    monkeypatch.setattr(LocalStore, "create", pausing)
    slow.next(slow.start())
    assert names_in(store) == ["00000001-rows.csv"]
    assert drain(slow, slow.start())[0][0] == found[0]
    assert resource.body == (store.root / "fetched" / "rows" / "00000001-rows.csv").read_bytes()


def bl_names() -> Any:
    from boatlift.dataflow.contracts import Names

    return Names()


@pytest.mark.spark
def test_a_dataflow_follows_a_resource_over_runs(spark: SparkSession, tmp_path: Path, resource: Resource) -> None:
    def run() -> None:
        flow = bl.Dataflow("followed")
        rows = flow.source("rows", bl.files(resource.url, schema=SCHEMA, every="1 hour"))
        rows.sink("kept", bl.sqlite(tmp_path / "kept.db", table="kept", key=["a", "c"]))
        bl.run(flow, tmp_path / "store", spark=spark, available_now=True)

    def texts() -> list[str]:
        import sqlite3

        with sqlite3.connect(tmp_path / "kept.db") as db:
            return sorted(text for (text,) in db.execute("SELECT c FROM kept"))

    run()
    before = texts()
    assert len(before) == 300
    resource.body = LINES + b"7,7,grown\n"
    run()
    assert texts() == sorted([*before, "grown"])
    run()
    assert len(texts()) == 301
    assert not [finding for finding in verify(LocalStore.open(tmp_path / "store", create=False)) if finding.is_error]
    (newest,) = (tmp_path / "store" / "fetched" / "rows").glob("*2-rows.csv")
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes().replace(b"grown", b"GROWN"))
    faults = [each for each in verify(LocalStore.open(tmp_path / "store", create=False)) if each.is_error]
    assert [(each.name, each.condition) for each in faults] == [("fetched/rows/00000002-rows.csv", "CORRUPT")]
