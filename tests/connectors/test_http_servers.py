"""Servers that fail, refuse and lie: what `bl.files` makes of their answers."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from copy import deepcopy
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.connectors.kit import http_client
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError
from boatlift.storage.local import LocalStore
from connectors.source_laws import drain
from support.http_resource import LINES, SCHEMA, Resource, names_in, sent, served, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    assert ("status 503" in str(caught.value)) == (fault == "503")
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
        assert other.requests
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
