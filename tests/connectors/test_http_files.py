"""Files by HTTP: read from a server by ETag, or recorded in the store; servers that change, refuse, and lie."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.connectors.kit import http_client
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError
from boatlift.storage.local import LocalStore
from boatlift.storage.verify import verify
from connectors.source_laws import drain
from connectors.test_bucket_files import BAD, TEXTS, rows_of
from support.http_resource import Resource, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "a INT, b INT, c STRING"
LINES = b"a,b,c\n" + b"".join(b"%d,%d,text %d\n" % (number, -number, number) for number in range(300))


@pytest.fixture
def resource() -> Iterator[Resource]:
    with served() as resource:
        resource.body = LINES
        yield resource


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True)


def source_of(resource: Resource, store: LocalStore | None = None, **options: Any) -> Any:
    """Return a source, attached as by a run, in which each look finds the period over."""
    source = bl.files(resource.url, **{"schema": SCHEMA, **options})
    if store is not None:
        scratch = store.root.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        source.capabilities.records_input.attach(store, scratch, "rows")
        source._inputs._clock = iter(range(10**6, 10**9, 10**4)).__next__
    return source


def names_in(store: LocalStore) -> list[str]:
    return [name.rpartition("/")[2] for name in store.list("fetched/")]


def methods(resource: Resource) -> list[str]:
    return [method for method, _, _ in resource.requests]


# -- which way ---------------------------------------------------------------------------------------------------------


def test_a_resource_with_ranges_and_a_strong_etag_is_read_where_it_is(resource: Resource, store: LocalStore) -> None:
    source = source_of(resource, store)
    positions, cursor = drain(source, source.start())
    assert positions == [{"files": [{"path": "rows.csv", "size": len(LINES), "etag": resource.etag.strip('"')}]}]
    assert names_in(store) == []
    asked = len(resource.requests)
    assert source.next(cursor) is None
    assert len(resource.requests) == asked, "it was taken, so nothing is asked any more"


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


# -- servers that fail -------------------------------------------------------------------------------------------------


def sent(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> bool:
    """Send an answer, with the headers as given and no other."""
    request.send_response(status)
    for name, value in {
        "Content-Length": str(len(body)),
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body if request.command == "GET" else b"")
    return True


def cut(request: BaseHTTPRequestHandler) -> bool:
    """Announce more bytes than come."""
    request.close_connection = True
    return sent(request, 200, LINES[:100], Content_Length=str(len(LINES)))


def dropped(request: BaseHTTPRequestHandler) -> bool:
    request.close_connection = True
    return True


PASSING: dict[str, Callable[[BaseHTTPRequestHandler], bool]] = {
    "503": lambda request: sent(request, 503),
    "503 with a rest": lambda request: sent(request, 503, Retry_After="1"),
    "429": lambda request: sent(request, 429, b"slow down"),
    "no answer": dropped,
    "a body that is cut": cut,
}


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("ranges", [True, False], ids=["read there", "recorded"])
def test_a_request_that_fails_is_sent_again(resource: Resource, store: LocalStore, fault: str, ranges: bool) -> None:
    resource.ranges = ranges
    resource.next = [PASSING[fault], lambda _: False, PASSING[fault], lambda _: False, PASSING[fault]]
    source = source_of(resource, store)
    (position,), _ = drain(source, source.start())
    place = source._place_in(position["files"][0])
    with place.open() as file:
        assert file.read() == LINES


def test_the_rest_that_a_server_asks_for_is_kept(resource: Resource) -> None:
    resource.next = [PASSING["503 with a rest"]]
    began = time.monotonic()
    http_client.head(resource.url)
    assert time.monotonic() - began >= 1


def test_a_rest_of_an_hour_is_not_kept(resource: Resource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "RETRY_FOR", 0.3)
    monkeypatch.setattr(http_client, "_LONGEST_REST", 0.1)
    answered = []

    def busy(request: BaseHTTPRequestHandler) -> bool:
        answered.append(request)
        return sent(request, 503, Retry_After="3600")

    resource.next = [busy] * 50
    with pytest.raises(UnavailableError, match="status 503"):
        http_client.head(resource.url)
    assert len(answered) < 10


def test_a_redirect_to_another_host_keeps_range_and_state(resource: Resource) -> None:
    with served(host="127.0.0.2") as first:
        first.next = [lambda request: sent(request, 302, Location=resource.url)] * 99
        state = source_of(resource)._states.base.head().version
        place = source_of(first)._states.path_of("rows.csv", state)
        assert bytes(place.read(6, 10)) == LINES[6:16]
        assert resource.requests[-1][2] == 206


def test_a_state_that_another_owner_kept_from_being_recorded_comes_later(
    resource: Resource, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, create = source_of(resource, store, every="1 hour"), LocalStore.create

    def overtaken(self: LocalStore, name: str, content: bytes | Path) -> None:
        monkeypatch.setattr(LocalStore, "create", create)
        create(self, name, b"a,b,c\n0,0,of the paused owner\n")
        create(self, name, content)

    monkeypatch.setattr(LocalStore, "create", overtaken)
    first, cursor = drain(source, source.start())
    second, _ = drain(source, cursor)
    sizes = [file["size"] for position in [*first, *second] for file in position["files"]]
    assert sizes == [30, len(LINES)]


def test_a_rehearsal_asks_no_server(resource: Resource, store: LocalStore) -> None:
    source = source_of(resource, store, every="1 hour")
    _, cursor = drain(source, source.start())
    asked, copy = len(resource.requests), deepcopy(source)
    resource.body = LINES + b"1,2,later\n"
    assert drain(copy, cursor)[0] == []
    assert len(resource.requests) == asked


@pytest.mark.parametrize("fault", ["503", "no answer", "a body that is cut"])
def test_a_server_that_keeps_failing_is_named_with_its_last_answer(
    resource: Resource, store: LocalStore, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(http_client, "RETRY_FOR", 0.2)
    source = source_of(resource, store, every="1 hour")
    resource.next = [PASSING[fault]] * 100
    with pytest.raises(UnavailableError, match=r"\[INPUT_UNAVAILABLE\].*rows.csv failed \(.+\): run again") as caught:
        source.next(source.start())
    assert ("503" in str(caught.value)) == (fault == "503")
    assert names_in(store) == []
    resource.next = []
    assert source.next(source.start()) is not None


LIES: dict[str, tuple[Callable[[BaseHTTPRequestHandler], bool], str]] = {
    "another range": (
        lambda request: sent(request, 206, b"x" * 10, Content_Range="bytes 0-9/12", ETag="{etag}"),
        "Content-Range",
    ),
    "no range": (lambda request: sent(request, 206, b"x" * 10, ETag="{etag}"), "Content-Range"),
    "an encoding": (
        lambda request: sent(request, 200, gzip.compress(LINES), Content_Encoding="gzip", ETag="{etag}"),
        "gzip",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_contradicts_the_request_is_refused_in_words(resource: Resource, lie: str) -> None:
    source = source_of(resource)
    (position,), _ = drain(source, source.start())
    place = source._place_in(position["files"][0])
    answer, named = LIES[lie]
    send_header = BaseHTTPRequestHandler.send_header

    def with_etag(request: BaseHTTPRequestHandler, name: str, value: str) -> None:
        send_header(request, name, value.replace("{etag}", resource.etag))

    def lying(request: BaseHTTPRequestHandler) -> bool:
        request.send_header = with_etag.__get__(request)  # type: ignore[method-assign]
        return answer(request)

    resource.next = [lying]
    with pytest.raises(UnavailableError, match=rf"\[INPUT_UNAVAILABLE\].*{named}.*correct the server"):
        place.read(6, 10)
    assert bytes(place.read(6, 10)) == LINES[6:16]


def test_the_whole_in_place_of_a_range_is_taken_if_its_state_is_the_same(resource: Resource) -> None:
    source = source_of(resource)
    (position,), _ = drain(source, source.start())
    place = source._place_in(position["files"][0])
    resource.ranges = False
    assert bytes(place.read(1000, 50)) == LINES[1000:1050]
    resource.body = LINES[::-1]
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
        place.read(1000, 50)


@pytest.mark.parametrize(
    ("status", "condition"), [(404, "NO_INPUT"), (401, "NOT_ADMITTED"), (400, "INPUT_UNAVAILABLE")]
)
@pytest.mark.parametrize("ranges", [True, False], ids=["read there", "recorded"])
def test_a_refusal_is_told_at_once(
    resource: Resource, store: LocalStore, status: int, condition: str, ranges: bool
) -> None:
    resource.ranges = ranges
    source = source_of(resource, store)
    resource.next = [lambda request: sent(request, status)] * 2
    with pytest.raises(BoatliftError, match=rf"\[{condition}\].*{status}"):
        source.next(source.start())
    assert len(resource.next) == 1


def test_a_resource_that_is_not_there_yet_is_waited_for_with_a_period(resource: Resource, store: LocalStore) -> None:
    resource.body = None
    source = source_of(resource, store, every="1 hour")
    assert source.next(source.start()) is None
    resource.body = LINES
    assert source.next(source.start()) is not None


def test_an_empty_body_is_refused_and_not_recorded(resource: Resource, store: LocalStore) -> None:
    resource.body = b""
    source = source_of(resource, store, every="1 hour")
    with pytest.raises(DataError, match=r"\[INPUT_EMPTY\]"):
        source.next(source.start())
    assert names_in(store) == []


def test_headers_are_no_part_of_the_program_and_reach_no_other_host(store: LocalStore) -> None:
    with served() as resource, served(host="127.0.0.2") as other:
        resource.body, other.body = None, LINES
        secret = {"Authorization": "Bearer secret", "X-Key": "secret"}
        to_other = lambda request: sent(request, 302, Location=other.url)  # noqa: E731
        resource.next = [to_other] * 9
        source = source_of(resource, store, headers=secret)
        drain(source, source.start())
        assert "secret" not in str(source.describe())
        assert methods(other)
        assert not [headers for _, headers, _ in other.requests if headers.keys() & secret.keys()]


def test_the_query_of_a_url_is_shown_nowhere(resource: Resource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "RETRY_FOR", 0.1)
    resource.url += "?signature=secret"
    source = source_of(resource)
    (position,), _ = drain(source, source.start())
    assert "secret" not in str(source.describe()) + str(position) + source.capabilities.names_input.names(position)
    resource.next = [dropped] * 9
    with pytest.raises(UnavailableError) as caught:
        source.verify(position)
    assert "secret" not in str(caught.value)


@pytest.mark.spark
def test_the_query_of_a_url_is_shown_by_no_task(resource: Resource, spark: SparkSession) -> None:
    resource.url += "?signature=secret"
    source = source_of(resource)
    (position,), _ = drain(source, source.start())
    resource.body = None
    with pytest.raises(Exception, match=r"INPUT_MISSING.*rows\.csv is gone") as caught:
        source.load(spark, position).collect()
    assert "secret" not in str(caught.value)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a password": ("https://user:word@host/x.csv", {}, "password"),
    "no host": ("https:///x.csv", {}, "names no host"),
    "a tail": ("https://host/x.csv", {"tail": True}, "tail"),
    "a bucket's option": ("https://host/x.csv", {"poll": "1 hour"}, "poll is an option of files in a bucket"),
    "every of a folder": ("x.csv", {"every": "1 hour"}, "every is an option of files in HTTP"),
    "every of no length": ("https://host/x.csv", {"every": "soon"}, "every"),
    "a header": ("https://host/x.csv", {"headers": {"a b": "c"}}, "characters that HTTP does not carry"),
    "rows of several lines": ("https://host/x.csv", {"multi_line": True}, "folders alone"),
    "no format": ("https://host/rows", {}, "names no format"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_options_are_refused(kind: str) -> None:
    path, options, said = REFUSED[kind]
    with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\].*{said}") as caught:
        bl.files(path, schema=SCHEMA, **options)
    assert "word" not in str(caught.value) or kind != "a password" or "password" in str(caught.value)


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
