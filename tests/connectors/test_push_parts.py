"""Parts of pushing that need no Spark: what rows are taken, who is answered when, what HTTP says."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import boatlift as bl
from boatlift.connectors.pushes.rows import PushedRows
from boatlift.connectors.pushes.server import LARGEST_BODY, MOST_OBJECTS
from boatlift.connectors.pushes.source import KEY_LENGTH, PushSource
from boatlift.dataflow import Receipt
from boatlift.storage.input_log import InputLog
from boatlift.storage.local import LocalStore
from support.logs import Meanwhile

SCHEMA = T.StructType([T.StructField("id", T.LongType(), nullable=False), T.StructField("item", T.StringType())])

EVERYTHING = T.StructType(
    [
        T.StructField("a name", T.ByteType()),
        T.StructField("small", T.ShortType()),
        T.StructField("number", T.IntegerType()),
        T.StructField("ratio", T.DoubleType()),
        T.StructField("price", T.DecimalType(5, 2)),
        T.StructField("open", T.BooleanType()),
        T.StructField("blob", T.BinaryType()),
        T.StructField("day", T.DateType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("local", T.TimestampNTZType()),
        T.StructField("tags", T.ArrayType(T.StringType())),
        T.StructField("map", T.MapType(T.StringType(), T.LongType())),
        T.StructField("inner", T.StructType([T.StructField("x", T.LongType(), nullable=False)])),
    ]
)


# --- rows ----------------------------------------------------------------------------------------------------------------


def test_json_of_every_type_becomes_rows() -> None:
    given = {
        "a name": -128, "small": 3, "number": 2**31 - 1, "ratio": 1, "price": "12.50", "open": True,
        "blob": base64.b64encode(b"\x00\xff").decode(), "day": "2026-11-22", "at": "2026-11-22T10:00:00.000001+02:00",
        "local": "2026-11-22T10:00:00", "tags": ["a", None], "map": {"k": 1}, "inner": {"x": 4},
    }  # fmt: skip
    expected = {
        **given, "ratio": 1.0, "price": decimal.Decimal("12.50"), "blob": b"\x00\xff", "day": dt.date(2026, 11, 22),
        "at": dt.datetime(2026, 11, 22, 8, 0, 0, 1, tzinfo=dt.UTC), "local": dt.datetime.fromisoformat("2026-11-22T10:00:00"),
        "map": [("k", 1)],
    }  # fmt: skip
    rows = PushedRows(EVERYTHING)
    line = json.dumps(given).encode()
    nothing = dict.fromkeys(given)
    assert rows.of_json(line).to_pylist() == [expected]
    assert rows.of_json(b"[" + line + b", {}]").to_pylist() == [expected, nothing]
    assert rows.of_json(line + b"\n{}\n").to_pylist() == [expected, nothing]
    assert rows.of_python(rows.of_json(line)).to_pylist() == [expected]
    assert rows.of_python([{**given, "at": expected["at"], "price": expected["price"]}]).to_pylist() == [expected]
    (stream,) = pa.ipc.open_stream(rows.stream([rows.of_json(line), rows.of_json(b"{}")]))
    assert stream.to_pylist() == [expected, nothing]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'[{"id": 1}, {"id": "2"}]', "row 2: Expected `int`, got `str` - at `$[1].id`"),
        (b'{"id": 1}\n{"item": "x"}', "row 2: Object missing required field `id`"),
        (b'{"id": 1, "other": 2}', "unknown field `other`"),
        (b'{"id": 1.5}', "got `float`"),
        (b'{"id": null}', "got `null`"),
        (b'{"id": 9223372036854775808}', "<= 9223372036854775807"),
        (b'{"id": 1, "item": 5}', "got `int`"),
        (b'{"id": 1', "truncated"),
        (b"id=1", "malformed"),
        (b'"text"', "Expected `object`"),
        (b'{"id": 1, "item": "\xff"}', "utf-8"),
    ],
)
def test_json_that_does_not_fit_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(bl.DataError) as caught:
        PushedRows(SCHEMA).of_json(body)
    assert caught.value.condition == "BAD_ROW"
    assert told in caught.value.message
    assert "nothing of this push was recorded" in caught.value.message


@pytest.mark.parametrize(
    "given",
    [
        [{"id": "1"}], [{"id": None}], [{}], [1], 7, "text", [{"id": 1, "x": 1}],
        pa.table({"id": ["one"]}), pa.table({"id": [None]}), pa.table({"id": [1], "other": [1]}),
        pa.table({"id": [1.5]}), pa.table({"item": ["a"]}), pa.table([[1], [2]], names=["id", "id"]),
    ],
)  # fmt: skip
def test_rows_of_python_that_do_not_fit_are_refused(given: object) -> None:
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        PushedRows(SCHEMA).of_python(given)


@pytest.mark.parametrize("number", ['"1e-99999999"', "1e-99999999", "1E+77", '"NaN"', '"Infinity"', "1" * 101, "1.234"])
def test_decimals_that_no_column_holds_are_refused(number: str) -> None:
    """Arrow dies of some of them, and the process with it."""
    inner = T.StructType([T.StructField("d", T.DecimalType(38, 2))])
    rows = PushedRows(T.StructType([T.StructField("of", T.ArrayType(inner))]))
    assert rows.of_json(b'{"of": [{"d": 12.25}]}').to_pylist() == [{"of": [{"d": decimal.Decimal("12.25")}]}]
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        rows.of_json(f'{{"of": [{{"d": {number}}}]}}'.encode())


def test_what_python_has_and_no_column_is_refused() -> None:
    schema = T.StructType([T.StructField("s", T.StructType([T.StructField("x", T.LongType(), nullable=False)]))])
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        PushedRows(SCHEMA).of_python([{"id": 1, "item": "\ud800"}])
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        PushedRows(schema).of_python(pa.table({"s": [{"y": "text"}]}))
    (row,) = PushedRows(schema).of_json(b"{}").to_pylist()
    assert row == {"s": None}
    assert PushedRows(schema).schema.field("s").type.field("x").nullable, (
        "who reads a NULL of the whole finds one inside"
    )


def test_tables_are_taken_as_they_are() -> None:
    rows = PushedRows(SCHEMA)
    table = pa.table({"item": pa.chunked_array([["a"], [None]]), "id": pa.array([1, 2], pa.int32())})
    for given in (table, table.to_pandas(), table.to_batches()[0], {"id": 1, "item": "a"}):
        assert rows.of_python(given).to_pylist()[0] == {"id": 1, "item": "a"}
    assert rows.of_python(table.slice(0, 0)).num_rows == 0
    assert rows.of_python([]).num_rows == rows.of_json(b"").num_rows == rows.of_json(b"[]").num_rows == 0


def test_the_same_rows_have_the_same_digest() -> None:
    rows = PushedRows(SCHEMA)
    one = rows.of_json(b'[{"id": 1, "item": "a"}, {"id": 2}]')
    assert rows.digest(one) == rows.digest(rows.of_python([{"item": "a", "id": 1}, {"id": 2, "item": None}]))
    assert rows.digest(one) != rows.digest(rows.of_json(b'[{"id": 1, "item": "b"}, {"id": 2}]'))
    hidden = pa.array(["a", "hidden"]).filter(pa.array([True, True]))
    masked = pa.StringArray.from_buffers(2, *hidden.buffers()[1:], pa.array([True, None]).buffers()[0])
    assert rows.digest(rows.of_python(pa.table({"id": [1, 2], "item": masked}))) == rows.digest(one)


def test_types_that_cannot_be_pushed_are_refused() -> None:
    for kind in (T.MapType(T.LongType(), T.LongType()), T.DayTimeIntervalType(), T.ArrayType(T.VariantType())):
        with pytest.raises(bl.InvalidError, match="TYPE_REFUSED"):
            PushedRows(T.StructType([T.StructField("x", kind)]))


@pytest.mark.parametrize(
    "options",
    [
        {"listen": "nowhere"}, {"listen": ":80"}, {"listen": "host:port"}, {"listen": "h:70000"}, {"ack": "never"},
        {"remember_keys": timedelta(0)}, {"max_rows_per_step": 0}, {"max_waiting_bytes": 0.5}, {"schema": "id"},
        {"listen": 8080}, {"remember_keys": 5}, {"max_rows_per_step": "x"}, {"max_waiting_bytes": None},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        bl.push(**{"schema": "id LONG", **options})


# --- who is answered, and when -------------------------------------------------------------------------------------------


class Source(PushSource):
    """A source whose store, and whose clock, the test has."""

    def __init__(self, folder: Path, token: int = 1, store: Any = None, **options: Any) -> None:
        made = {
            "address": None,
            "until_stable": False,
            "remember": timedelta(days=1),
            "limit": 100,
            "most_waiting": 10**6,
        }
        super().__init__(SCHEMA, **{**made, **options}, clock=lambda: self.now)
        self.now = 0
        self.reserve("orders")
        self.attach(InputLog(store or LocalStore.open(folder, create=True), "0" * 32, "orders"))
        self.open(token, self.start(), self.start())

    def put(self, *ids: int, key: str | None = None) -> Receipt:
        return self.push([{"id": each} for each in ids], key, 0)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    made = Source(tmp_path)
    yield made
    made.close()


def test_a_key_that_was_pushed_is_not_taken_again(source: Source, tmp_path: Path) -> None:
    assert source.put(1, 2, key="a") == Receipt(2, repeated=False, stable=False)
    assert source.put(1, 2, key="a") == Receipt(2, repeated=True, stable=False) == source.pushed("a")
    assert source.put(1, 2) == source.put(1, 2) == Receipt(2, repeated=False, stable=False)
    with pytest.raises(bl.InvalidError, match=r"\[KEY_REUSED\]"):
        source.put(1, 3, key="a")
    position = source.next(source.start())
    assert position is not None
    assert position["rows"] == 6
    source.close()
    following = Source(tmp_path, 2)
    assert following.put(1, 2, key="a").repeated
    with pytest.raises(bl.InvalidError, match=r"\[KEY_REUSED\]"):
        following.put(1, 3, key="a")
    assert following.pushed("b") is None
    following.close()


def test_a_key_that_many_push_at_once_is_taken_once(source: Source) -> None:
    answers: list[Receipt] = []
    threads = [threading.Thread(target=lambda: answers.append(source.put(1, key="a"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.repeated for answer in answers) == [False] + 19 * [True]
    assert source.next(source.start())["rows"] == 1


def test_pushes_that_come_while_one_is_written_share_an_object(tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go.wait(30)

    store = LocalStore.open(tmp_path, create=True)
    source = Source(tmp_path, store=store)
    slow: Any = Meanwhile(store, "create", "input/", wait)
    source._log._store = slow
    answers: list[Future[Receipt]] = [source.put_json(b'{"id": 0}', None)]
    assert begun.wait(30)
    answers += [source.put_json(b'{"id": %d}' % number, f"{number % 40}") for number in range(40)]
    answers += [source.put_json(b'{"id": 1}', "1"), source.put_json(b'{"id": 2}', "1")]
    assert not any(answer.done() for answer in answers), "nobody hears of what is not durable"
    go.set()
    assert [answer.result(30).repeated for answer in answers[:-1]] == 41 * [False] + [True]
    with pytest.raises(bl.InvalidError, match=r"\[KEY_REUSED\]"):
        answers[-1].result(30)
    assert [part.rows for _, part in source._log.parts(0)] == [1, 40]
    source.close()


def until(holds: Any) -> Any:
    """Waits for what another thread does; gives it."""
    deadline = time.monotonic() + 30
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return found


def test_who_waits_for_stability_hears_once_rows_are_freed(tmp_path: Path) -> None:
    source = Source(tmp_path, until_stable=True)
    first = source.put_json(b'{"id": 1}', "a")
    one = until(lambda: source.next(source.start()))
    second = source.put_json(b'{"id": 2}', "b")
    two = until(lambda: source.next(source.advance(source.start(), one)))
    again = source.put_json(b'{"id": 1}', "a")
    assert source.awaits_stability
    assert not first.done()
    source.acknowledge(one)
    assert first.result(30) == Receipt(1, repeated=False, stable=True)
    assert again.result(30) == Receipt(1, repeated=True, stable=True)
    assert not second.done()
    source.acknowledge(two)
    assert second.result(30).stable
    third = source.put_json(b'{"id": 3}', None)
    source.close()
    assert third.result(30) == Receipt(1, repeated=False, stable=False), "it is recorded, and who waits hears that"
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\]"):
        source.put(4)


def test_who_pushes_while_it_ends_hears_of_it(source: Source) -> None:
    recorder = source._recorder
    source.close()
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\]"):
        recorder.put(source._rows.of_json(b'{"id": 1}'), None)


def test_a_source_runs_once(source: Source) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] orders runs already"):
        source.reserve("orders")


def test_more_than_may_wait_is_refused_until_some_is_freed(tmp_path: Path) -> None:
    source = Source(tmp_path, most_waiting=1)
    source.put(1, key="a")
    with pytest.raises(bl.UnavailableError, match=r"\[PUSH_FULL\]"):
        source.put(2)
    assert source.put(1, key="a").repeated, "who asks again what is there needs no room"
    assert source.awaits_stability
    source.acknowledge(source.next(source.start()))
    until(lambda: not source._log.waiting)
    source.put(2)
    assert not source.awaits_stability
    source.close()


def test_keys_are_forgotten_when_their_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.storage.input_log.MEMO_AFTER", 2)
    source = Source(tmp_path, remember=timedelta(milliseconds=100))
    for source.now in (0, 50, 100):
        source.put(1, key=f"at {source.now}")
    source.now = 120
    source.acknowledge(source.next(source.start()))
    source.close()
    following = Source(tmp_path, 2)
    assert [following.pushed(f"at {at}") is not None for at in (0, 50, 100)] == [False, True, True]
    assert following.pushed("at 50").stable is False, "the log does not tell what is free; the dataflow's does"
    following.close()


def test_an_owner_that_was_fenced_takes_nothing(source: Source, tmp_path: Path) -> None:
    source.put(1)
    newer = Source(tmp_path, 2)
    with pytest.raises(bl.FencedError):
        source.pushed("what the newer one may have")
    for _ in range(2):
        with pytest.raises(bl.FencedError, match=r"\[FENCED\]"):
            source.put(2)
    with pytest.raises(bl.FencedError):
        source.next(source.start())
    with pytest.raises(bl.FencedError):
        source.pushed("what the newer one may have")
    assert newer.next(newer.start())["rows"] == 1
    newer.close()


def test_a_store_that_fails_refuses_what_it_did_not_keep(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, create=True)
    source = Source(tmp_path, store=store)
    source.put(1, key="a")

    def fail() -> None:
        raise bl.UnavailableError("STORE_FAILED", "no space: free some")

    failing: Any = Meanwhile(store, "create", "input/", fail)
    source._log._store = failing
    for _ in range(2):
        with pytest.raises(bl.UnavailableError, match=r"\[STORE_FAILED\]"):
            source.put(2, key="b")
    with pytest.raises(bl.UnavailableError, match=r"\[STORE_FAILED\]"):
        source.next(source.start())
    source.close()
    following = Source(tmp_path, 2)
    assert following.put(1, key="a").repeated
    assert not following.put(2, key="b").repeated
    following.close()


@pytest.mark.parametrize("key", ["", "x" * (KEY_LENGTH + 1), "a\nb"])
def test_keys_that_are_none_are_refused(source: Source, key: str) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        source.put(1, key=key)


def test_a_step_ends_with_the_object_that_makes_it_full(source: Source) -> None:
    source._limit = 4
    for _ in range(3):
        source.put(1, 2, 3)
    cursor, taken = source.start(), []
    while (position := source.next(cursor)) is not None:
        taken.append((position["base"], position["rows"]))
        cursor = source.advance(cursor, position)
    assert taken == [(0, 6), (6, 3)]


def test_a_push_of_no_rows_is_none(source: Source) -> None:
    for key in (None, "nothing"):
        assert source.put(key=key) == Receipt(0, repeated=False, stable=True)
    assert source.pushed("nothing") is None
    assert source._log.last == 1, "something was recorded"
    source.put(1)
    assert source.next(source.start())["rows"] == 1


def test_more_rows_than_are_taken_at_once_are_refused(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.connectors.pushes.recorder.LARGEST_ROWS", 1000)
    with pytest.raises(bl.InvalidError, match=r"\[PUSH_TOO_LARGE\]"):
        source.put(*range(200))
    source.put(1)


def test_objects_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.connectors.pushes.recorder.OBJECT_BYTES", 1)
    begun, go = threading.Event(), threading.Event()
    store = LocalStore.open(tmp_path, create=True)
    source = Source(tmp_path, store=store)
    slow: Any = Meanwhile(store, "create", "input/", lambda: (begun.set(), go.wait(30)))
    source._log._store = slow
    answers = [source.put_json(b'{"id": 0}', None)]
    assert begun.wait(30)
    answers += [source.put_json(b'{"id": 1}', None) for _ in range(3)]
    go.set()
    for answer in answers:
        answer.result(30)
    assert [part.rows for _, part in source._log.parts(0)] == [1, 1, 1, 1]
    source.close()


# --- HTTP ----------------------------------------------------------------------------------------------------------------


def ask(url: str, body: bytes | None = None, key: str | None = None) -> tuple[int, dict[str, Any]]:
    headers: Any = {} if key is None else {"Idempotency-Key": key.encode()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        refused = error
    assert (refused.headers["retry-after"] is not None) == (refused.code == 503)
    return refused.code, json.load(refused)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Source, str]]:
    made = Source(tmp_path, address=("127.0.0.1", 0))
    assert made.listens_at is not None
    yield made, "http://{}:{}/orders".format(*made.listens_at)
    made.close()


def test_http_says_what_became_of_rows(served: tuple[Source, str], tmp_path: Path) -> None:
    source, url = served
    assert ask(url, b'[{"id": 1}, {"id": 2}]', "k/1 é") == (200, {"rows": 2, "repeated": False, "stable": False})
    assert ask(url, b'{"id": 1}\n{"id": 2}', "k/1 é") == (200, {"rows": 2, "repeated": True, "stable": False})
    assert ask(url, b'{"id": 3}') == (200, {"rows": 1, "repeated": False, "stable": False})
    assert ask(f"{url}/keys/k/1%20%C3%A9")[0] == 200
    assert ask(f"{url}/keys/other") == (404, {"recorded": False})
    for body, key, status, condition in (
        (b'{"id": "x"}', None, 400, "BAD_ROW"),
        (b'{"id": 9}', "k/1 é", 422, "KEY_REUSED"),
        (b'{"id": 9}', "k" * 201, 400, "BAD_OPTION"),
        (b" " * (LARGEST_BODY + 1), None, 413, "PUSH_TOO_LARGE"),
        (b"{}" * (MOST_OBJECTS + 1), None, 413, "PUSH_TOO_LARGE"),
    ):
        found, told = ask(url, body, key)
        assert (found, told["condition"]) == (status, condition)
        assert told["message"]
    assert source.next(source.start())["rows"] == 3
    newer = Source(tmp_path, 2)
    assert ask(url, b'{"id": 4}')[0] == 503
    assert newer.next(newer.start())["rows"] == 3
    newer.close()


def test_a_client_that_waits_for_stability_is_told_of_the_end(tmp_path: Path) -> None:
    source = Source(tmp_path, address=("127.0.0.1", 0), until_stable=True)
    url = "http://{}:{}/orders".format(*source.listens_at)
    told: list[tuple[int, dict[str, Any]]] = []
    client = threading.Thread(target=lambda: told.append(ask(url, b'{"id": 1}', "a")))
    client.start()
    until(lambda: source.next(source.start()))
    source.close()
    client.join(30)
    assert told == [(200, {"rows": 1, "repeated": False, "stable": False})]


def test_a_client_that_goes_in_the_middle_disturbs_nobody(served: tuple[Source, str]) -> None:
    source, url = served
    with socket.create_connection(source.listens_at) as gone:
        gone.sendall(b'POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"id":')
    assert ask(url, b'{"id": 1}')[0] == 200
    assert ask(url, b'{"id": 1, "item": "%s"}' % (b"x" * 100_000))[0] == 200, "a large one is parsed elsewhere"


def test_what_nobody_foresaw_is_told_as_json(
    served: tuple[Source, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source, url = served
    monkeypatch.setattr(source, "put_json", lambda *_: 1 / 0)
    status, told = ask(url, b'{"id": 1}')
    assert (status, told["condition"]) == (500, "INTERNAL")
    assert "ZeroDivisionError" in caplog.text


def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    told = r"\[LISTEN_FAILED\] orders cannot listen at 127.0.0.1:"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(bl.UnavailableError, match=told):
        Source(tmp_path, address=taken.getsockname()[:2])
    Source(tmp_path, 2).close()
