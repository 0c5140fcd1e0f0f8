"""Objects as inputs beyond the laws of every source: servers that fail, objects that change, and listings."""

from __future__ import annotations

import logging
import pickle
import random
import re
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest

import boatlift as bl
from boatlift.connectors.files.bucket.source import BucketFilesSource
from boatlift.connectors.files.lines import lines_in
from boatlift.connectors.kit import object_place as places
from boatlift.dataflow.contracts import Names
from boatlift.errors import DataError, InvalidError, UnavailableError
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from connectors.source_laws import drain
from support import signed
from support.buckets import bucket_of, make_versioned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAULTS = [each for each in ProxyFault if each is not ProxyFault.NONE]
SCHEMA = "id LONG, text STRING"


@pytest.fixture
def prefix() -> str:
    return f"in-{uuid.uuid4().hex}"


@pytest.fixture
def proxy(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setattr("boatlift.storage.bucket_client.TIMEOUTS", ("500ms", "500ms"))
    with FaultProxy(object_server.port) as proxy:
        yield proxy


def content_of(number: int, rows: int = 20) -> bytes:
    lines = (f"{number * 100 + row},text {row}\n" for row in range(rows))
    return ("id,text\n" + "".join(lines)).encode()


def put(prefix: str, *numbers: int, rows: int = 20) -> None:
    for number in numbers:
        obstore.put(bucket_of(prefix), f"{number:05d}.csv", content_of(number, rows))


def source_of(
    prefix: str, proxy: FaultProxy | None = None, /, path: str = "*.csv", **options: Any
) -> BucketFilesSource:
    endpoint = {} if proxy is None else {"endpoint": f"http://127.0.0.1:{proxy.port}"}
    source = bl.files(f"s3://boatlift/{prefix}/{path}", schema=SCHEMA, **{**endpoint, **options})
    assert isinstance(source, BucketFilesSource)
    return source


def names_of(source: BucketFilesSource, cursor: Any = None) -> tuple[list[str], Any]:
    """Return the names that are taken after a cursor, and the cursor then."""
    positions, cursor = drain(source, source.start() if cursor is None else cursor)
    return [file["path"] for position in positions for file in position["files"]], cursor


class Listings:
    """The listings that go through a proxy: their parameters."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.seen: list[dict[str, str]] = []
        proxy.fault = self._note

    def _note(self, _method: str, path: str) -> ProxyFault:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        if "list-type" in asked:
            self.seen.append(asked)
        return ProxyFault.NONE


@pytest.mark.parametrize("fault", FAULTS)
def test_a_source_takes_and_reads_the_same_through_faults(proxy: FaultProxy, prefix: str, fault: ProxyFault) -> None:
    """Every third request fails, of whatever kind."""
    put(prefix, *range(6))
    obstore.put(bucket_of(prefix), "00006.csv", content_of(6, 60_000))
    expected = drain(source_of(prefix), source_of(prefix).start())
    requests = count(1)
    proxy.fault = lambda _method, _path: fault if next(requests) % 3 == 0 else ProxyFault.NONE
    source = source_of(prefix, proxy, max_files_per_step=1)
    positions, cursor = drain(source, source.start())
    assert (positions, cursor) == expected
    for number, position in enumerate(positions):
        source.verify(position)
        place = source._place_in(position["files"][0])
        lines = [line for _, some in lines_in(place) for line in some]
        assert b"\n".join(lines) + b"\n" == content_of(number, 60_000 if number == 6 else 20)
    source.verify_everything(cursor)
    assert source.bytes_up_to(cursor) == sum(position["files"][0]["size"] for position in positions)
    assert next(requests) > 30


@pytest.mark.spark
@pytest.mark.parametrize("fault", [ProxyFault.REFUSED, ProxyFault.RESET_AFTER, ProxyFault.TORN])
def test_tasks_read_through_faults(
    objects_for_tasks: ObjectServer, proxy: FaultProxy, prefix: str, spark: SparkSession, fault: ProxyFault
) -> None:
    put(prefix, *range(4), rows=3000)
    requests = count(1)
    source = source_of(prefix, proxy, max_files_per_step=4)
    position = source.next(source.start())
    proxy.fault = lambda _method, _path: fault if next(requests) % 2 else ProxyFault.NONE
    assert position is not None
    rows = source.load(spark, position).collect()
    assert sorted(row["id"] for row in rows) == sorted(number * 100 + row for number in range(4) for row in range(3000))
    assert next(requests) > 4


def test_a_server_that_is_away_is_an_error_and_the_same_source_goes_on(
    proxy: FaultProxy, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boatlift.storage.bucket_client.RETRY_FOR", 0.5)
    put(prefix, 1)
    source = source_of(prefix, proxy)
    proxy.fault = lambda _method, _path: ProxyFault.REFUSED
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"\[INPUT_UNAVAILABLE\] listing .* failed: .*503.*: run again"):
            source.next(source.start())
    proxy.fault = lambda _method, _path: ProxyFault.NONE
    assert names_of(source)[0] == ["00001.csv"]


@pytest.mark.spark
def test_an_object_that_was_overwritten_is_reported_until_the_original_is_back(
    objects_for_tasks: ObjectServer, prefix: str, spark: SparkSession
) -> None:
    put(prefix, 1)
    source = source_of(prefix)
    position = source.next(source.start())
    assert position is not None
    obstore.put(bucket_of(prefix), "00001.csv", content_of(2))  # of the same size
    with pytest.raises(
        DataError, match=r"\[INPUT_CHANGED\] .*00001.csv was overwritten \(.*etag .*put the original back"
    ):
        source.verify(position)
    with pytest.raises(
        Exception, match=r"\[INPUT_CHANGED\] s3://boatlift/.*00001.csv was overwritten since it was taken"
    ):
        source.load(spark, position).collect()
    put(prefix, 1)
    source.verify(position)
    assert source.load(spark, position).count() == 20


@pytest.mark.spark
def test_an_object_that_is_gone_is_reported_by_tasks_too(
    objects_for_tasks: ObjectServer, prefix: str, spark: SparkSession
) -> None:
    put(prefix, 1, 2)
    source = source_of(prefix)
    position = source.next(source.start())
    assert position is not None
    end = source.advance(source.start(), position)
    obstore.delete(bucket_of(prefix), "00001.csv")
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\] .*00001.csv is gone"):
        source.verify(position)
    with pytest.raises(Exception, match=r"\[INPUT_MISSING\] s3://boatlift/.*00001.csv is gone, and a step needs it"):
        source.load(spark, position).collect()
    for act in (source.verify_everything, source.bytes_up_to, lambda cursor: source.load_everything(spark, cursor)):
        with pytest.raises(DataError, match=r"\[INPUT_MISSING\] .*00001.csv is gone"):
            act(end)
    assert source.gone(source.start(), end) == f"s3://boatlift/{prefix}/00001.csv is gone"
    put(prefix, 1)
    assert source.gone(source.start(), end) == ""
    source.verify_everything(end)


@pytest.mark.spark
def test_a_bucket_with_versions_still_has_what_was_overwritten_and_deleted(
    objects_for_tasks: ObjectServer, prefix: str, spark: SparkSession
) -> None:
    make_versioned(objects_for_tasks, prefix)
    bucket = bucket_of("", prefix)
    for name in ("a.csv", "b.csv", "c.csv"):
        obstore.put(bucket, name, content_of(1, 100))
    source = bl.files(f"s3://{prefix}/*.csv", schema=SCHEMA, max_bytes_per_step=1000)
    first = source.next(source.start())
    assert first is not None
    assert {*first["files"][0]} == {"path", "begin", "end", "of", "etag", "version"}
    obstore.put(bucket, "a.csv", content_of(2, 3))
    positions, cursor = drain(source, source.start())
    assert positions[0]["files"][0]["path"] == "a.csv"
    cursor = source.advance(source.start(), first)
    obstore.delete(bucket, "a.csv")
    more, end = drain(source, cursor)
    mine = [first, *(position for position in more if position["files"][0]["path"] == "a.csv")]
    rows = [row["id"] for position in mine for row in source.load(spark, position).collect()]
    assert rows == [100 + row for row in range(100)]
    for position in mine:
        source.verify(position)
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\]"):  # the past has names alone
        source.verify_everything(end)


def test_an_object_that_is_overwritten_between_its_ranges_is_reported(object_server: ObjectServer, prefix: str) -> None:
    put(prefix, 1)
    source = source_of(prefix, max_bytes_per_step=100)
    position = source.next(source.start())
    assert position is not None
    cursor = source.advance(source.start(), position)
    obstore.put(bucket_of(prefix), "00001.csv", content_of(2))
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\] .*, and its first \d+ bytes were taken: put the original"):
        source.next(cursor)
    obstore.delete(bucket_of(prefix), "00001.csv")
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\] .*, and its first \d+ bytes were taken: put the object"):
        source.next(cursor)
    put(prefix, 1)
    assert source.next(cursor) is not None


def test_a_thousand_names_are_one_request(proxy: FaultProxy, prefix: str) -> None:
    bucket = bucket_of(prefix)
    places.at_once(lambda number: obstore.put(bucket, f"{number:05d}.csv", content_of(number)), range(2500))
    listings = Listings(proxy)
    source = source_of(prefix, proxy, max_files_per_step=900)
    source._inputs._clock = lambda: 1000.0  # the listing rests
    names, cursor = names_of(source)
    assert names == [f"{number:05d}.csv" for number in range(2500)]
    assert len(listings.seen) == 3
    listings.seen.clear()
    source.verify_everything(cursor)
    assert len(listings.seen) == 3


def test_listings_rest(proxy: FaultProxy, prefix: str) -> None:
    """At least one second for each page, or as long as `poll` says."""
    listings, now = Listings(proxy), [1000.0]
    for options, rest in (({}, 1.0), ({"poll": "10 seconds"}, 10.0)):
        source = source_of(prefix, proxy, **options)
        source._inputs._clock = lambda: now[0]
        cursor = source.start()
        for waits, lists in ((0.0, 1), (rest - 0.1, 0), (0.2, 1), (0.0, 0), (rest, 1)):
            now[0] += waits
            listings.seen.clear()
            assert source.next(cursor) is None
            assert len(listings.seen) == lists


def test_an_earlier_cursor_is_not_kept_waiting(proxy: FaultProxy, prefix: str) -> None:
    put(prefix, 1, 2, 3)
    source = source_of(prefix)
    source._inputs._clock = lambda: 1000.0
    assert names_of(source)[0] == ["00001.csv", "00002.csv", "00003.csv"]
    assert names_of(source)[0] == ["00001.csv", "00002.csv", "00003.csv"]


def test_names_that_grow_are_listed_from_the_greatest(
    proxy: FaultProxy, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(prefix, 10, 20)
    listings, now = Listings(proxy), [1000.0]
    source = source_of(prefix, proxy, order="name", rescan="1 hour")
    source._inputs._clock = lambda: now[0]
    names, cursor = names_of(source)
    assert names == ["00010.csv", "00020.csv"]
    assert "start-after" not in listings.seen[0], "the first listing of a run is one of all"
    put(prefix, 15, 30)
    for seconds, new, asked in ((2.0, ["00030.csv"], "00020.csv"), (2.0, [], "00030.csv")):
        now[0] += seconds
        listings.seen.clear()
        names, cursor = names_of(source, cursor)
        assert names == new
        assert [each["start-after"].rpartition("/")[2] for each in listings.seen] == [asked]
    assert not caplog.records
    now[0] += 3600
    with caplog.at_level(logging.WARNING):
        names, cursor = names_of(source, cursor)
    assert names == ["00015.csv"]
    assert "1 names in s3://boatlift" in caplog.text
    assert "(00015.csv), in spite of order='name'" in caplog.text
    another = source_of(prefix, order="name")
    put(prefix, 5)
    assert names_of(another, cursor)[0] == ["00005.csv"], "a new run takes what came late"


def test_names_that_grow_and_ranges_go_together(proxy: FaultProxy, prefix: str) -> None:
    """What waits behind a range of an object, and behind the object, has a greater name than the object alone."""
    put(prefix, 10, rows=100)
    source = source_of(prefix, proxy, "*", order="name", max_bytes_per_step=500, format="csv")
    source._inputs._clock = count(1000.0, 10.0).__next__
    position = source.next(source.start())
    assert position is not None
    cursor = source.advance(source.start(), position)
    size = len(content_of(10, 100))
    waiting = source.waiting(cursor)
    assert (waiting.count, waiting.bytes) == (1, size - position["files"][0]["end"])
    names, cursor = names_of(source, cursor)
    assert {*names} == {"00010.csv"}
    assert source.waiting(cursor).count == 0
    obstore.put(bucket_of(prefix), "00010.csv.1", content_of(11))
    assert source.waiting(cursor).count == 1
    assert names_of(source, cursor)[0] == ["00010.csv.1"]


def test_a_glob_lists_its_folders_alone(proxy: FaultProxy, prefix: str) -> None:
    for name in ("2025/x/a.csv", "2026-11/x/b.csv", "2026-12/y/c.csv", "2026-12/_y/d.csv", "2027/x/e.csv", "f.csv"):
        obstore.put(bucket_of(f"{prefix}/days"), name, content_of(1))
    obstore.put(bucket_of(prefix), "days-of-others/2026/x/z.csv", b"")
    listings = Listings(proxy)
    assert names_of(source_of(prefix, proxy, "days/2026-*/?/*.csv"))[0] == ["2026-11/x/b.csv", "2026-12/y/c.csv"]
    assert {(each["prefix"], each["start-after"]) for each in listings.seen} == {
        (f"{prefix}/days/", f"{prefix}/days/2026")
    }
    assert names_of(source_of(prefix, proxy, "days/", format="csv"))[0] == ["f.csv"]
    assert names_of(source_of(prefix, proxy, "days", format="csv"))[0] == ["f.csv"]
    one = source_of(prefix, proxy, "days/2025/x/a.csv")
    names, cursor = names_of(one)
    assert names == ["a.csv"]
    one.verify_everything(cursor)
    assert one.names({"files": [{"path": "a.csv"}]}) == f"s3://boatlift/{prefix}/days/2025/x/a.csv"


def test_folders_are_no_inputs_and_empty_objects_are_refused(object_server: ObjectServer, prefix: str) -> None:
    for name in ("", "folder/", "full/"):
        signed.put("boatlift", f"{prefix}/{name}")
    signed.put("boatlift", f"{prefix}/full/a.csv", content_of(1))
    put(prefix, 1)
    for name in ("_hidden.csv", ".hidden.csv", "draft.csv.tmp"):
        obstore.put(bucket_of(prefix), name, b"x")
    assert names_of(source_of(prefix, path="", format="csv"))[0] == ["00001.csv"]
    obstore.put(bucket_of(prefix), "empty.csv", b"")
    with pytest.raises(DataError, match=r"\[INPUT_EMPTY\] .*empty.csv has no bytes"):
        names_of(source_of(prefix))


def test_a_server_without_strong_etags_has_digests(proxy: FaultProxy, prefix: str) -> None:
    def weak(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        changed = re.sub(rb"<ETag>.*?</ETag>", b"", body)
        length = f"content-length: {len(changed)}".encode()
        head = re.sub(rb"(?i)\netag: ", b"\nETag: W/", head)
        return (re.sub(rb"(?i)content-length: \d+", length, head) if changed != body else head), changed

    proxy.changed = weak
    put(prefix, 1, 2)
    for options in ({}, {"max_bytes_per_step": 100}):
        source = source_of(prefix, proxy, **options)
        positions, cursor = drain(source, source.start())
        assert all("etag" not in file and len(file["digest"]) == 32 for each in positions for file in each["files"])
        source.verify(positions[0])
        source.verify_everything(cursor)
        content = bytearray(content_of(1))
        content[-2] ^= 1
        content[20] ^= 1
        obstore.put(bucket_of(prefix), "00001.csv", bytes(content))
        with pytest.raises(DataError, match=r"\[INPUT_CHANGED\] .* \(238 bytes, digest .*\) since it was taken"):
            source.verify(positions[0])
        with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
            source.verify_everything(cursor)
        put(prefix, 1)
        source.verify_everything(cursor)


def test_a_name_that_is_no_path_is_refused(proxy: FaultProxy, prefix: str) -> None:
    proxy.changed = lambda head, body: (head, body.replace(b"/00001.csv</Key>", b"//0001.csv</Key>"))
    put(prefix, 1)
    with pytest.raises(InvalidError, match=r"\[BAD_NAME\] a name in s3://boatlift/.* cannot be that of an input"):
        source_of(prefix, proxy).next({"taken": Names(), "digest": ""})


def test_missing_credentials_are_reported_without_secrets(
    object_server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(prefix, 1)
    source, secret = source_of(prefix), object_server.environment["AWS_SECRET_ACCESS_KEY"]
    position = source.next(source.start())
    assert position is not None
    span = next(source._spans(position, 0))
    for kept in (source.describe(), position, span, pickle.dumps(span), source.parameters_for(position, "")):
        assert secret not in str(kept)
    elsewhere = bl.files("s3://no-such-bucket/x/*.csv", schema=SCHEMA)
    with pytest.raises(InvalidError, match=r"\[NO_INPUT\] there is no bucket no-such-bucket: make it, or give another"):
        elsewhere._preflight()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(InvalidError, match=r"\[NOT_ADMITTED\] .*rights to read and list below this URL") as caught:
        source._preflight()
    assert "another" not in str(caught.value)


def test_options_that_are_wrong() -> None:
    at = "s3://bucket/x/*.csv"
    for path, options, said in (
        (at, {"tail": True}, "tail=True is an option of files in a folder"),
        (at, {"multi_line": True}, "multi_line CSV is read from folders alone"),
        (at, {"order": "time"}, "order is 'time': give 'name'"),
        (at, {"poll": "soon"}, "poll"),
        (at, {"order": "name", "rescan": "never"}, "rescan"),
        ("x/*.csv", {"poll": "1 second"}, "poll is an option of files in a bucket"),
        ("x/*.csv", {"order": "name"}, "order is an option of files in a bucket"),
        ("x/*.csv", {"endpoint": "http://x"}, "endpoint is an option of files in a bucket"),
        ("s3://", {"format": "csv"}, "names no bucket"),
        ("s3://b*/x.csv", {}, "names no bucket"),
        ("s3://b/**/x.csv", {}, "use one \\* a folder"),
        ("s3://b/../x.csv", {}, "name the folders"),
        ("gs://b/x.csv", {}, "cannot be at gs://b/x.csv: .* or an s3:// or https:// URL"),
    ):
        with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*" + said):
            bl.files(path, schema=SCHEMA, **options)


def test_any_part_of_an_object_is_read_as_of_a_file(object_server: ObjectServer, prefix: str, tmp_path: Path) -> None:
    content = random.Random(7).randbytes(12_000_000)
    (tmp_path / "x").write_bytes(content)
    obstore.put(bucket_of(prefix), "x", content)
    place = places.ObjectPlace(f"s3://boatlift/{prefix}/x", source_of(prefix)._objects.path_of("x").version).head()
    drawn, held = random.Random(8), list[int]()
    for number in range(8):
        with place.open("rb", buffering=-(number % 2)) as found, (tmp_path / "x").open("rb") as expected:
            for _ in range(30):
                whence = drawn.randrange(3)
                offset = {0: drawn.randrange(12_100_000), 1: drawn.randrange(1000), 2: -drawn.randrange(1000)}[whence]
                length = drawn.randrange(1 << drawn.randrange(23))
                assert found.seek(offset, whence) == expected.seek(offset, whence)
                assert found.read(length) == expected.read(length)
                assert found.tell() == expected.tell()
                held.append(len(getattr(found, "raw", found)._held))
    assert max(held) <= 8 << 20
