"""What a source does with pushes: recorded before anybody hears of them, once a key, as many as may wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

import boatlift as bl
from boatlift.connectors.push import recorder
from boatlift.connectors.push.source import KEY_LENGTH
from boatlift.dataflow import Receipt
from boatlift.http.connections import refusal_of
from boatlift.storage.local import LocalStore
from support.push.source import SCHEMA, Source
from support.waiting import until
from support.worlds.logs import Meanwhile


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


def test_what_a_key_stands_for_may_have_no_rows_when_it_is_repeated(source: Source) -> None:
    def put(*ids: int, digest: bytes) -> Receipt:
        return source.push([{"id": each} for each in ids], "a", 0, digest)

    assert put(digest=b"1" * 16) == Receipt(0, repeated=False, stable=True)
    assert put(1, 2, digest=b"1" * 16) == Receipt(2, repeated=False, stable=False)
    assert put(digest=b"1" * 16) == put(3, digest=b"1" * 16) == Receipt(2, repeated=True, stable=False)
    with pytest.raises(bl.InvalidError, match=r"\[KEY_REUSED\]"):
        put(digest=b"2" * 16)
    position = source.next(source.start())
    assert position is not None
    assert position["rows"] == 2


def test_input_is_announced_once_it_can_be_taken(source: Source) -> None:
    taken: list[int] = []

    def told() -> None:
        position = source.next(source.start())
        taken.append(0 if position is None else position["rows"])

    end = source.announce_input(told)
    source.put(1, 2)
    source.put(3)
    until(lambda: taken == [2, 3])
    end()
    source.put(4)
    assert taken == [2, 3]


def test_a_key_that_many_push_at_once_is_taken_once(source: Source) -> None:
    answers: list[Receipt] = []
    threads = [threading.Thread(target=lambda: answers.append(source.put(1, key="a"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.repeated for answer in answers) == [False] + 19 * [True]
    assert source.next(source.start())["rows"] == 1


def test_pushes_that_come_while_one_is_written_share_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go.wait(30)

    priced = T.StructType([*SCHEMA.fields, T.StructField("price", T.DecimalType(3, 1))])
    monkeypatch.setattr("support.push.source.SCHEMA", priced)
    store = LocalStore.open(tmp_path, create=True)
    source = Source(tmp_path, store=store)
    slow: Any = Meanwhile(store, "create", "input/", wait)
    source._log._store = slow
    answers: list[Future[Receipt]] = [source.put_json(b'{"id": 0}', None)]
    assert begun.wait(30)
    answers += [source.put_json(b'{"id": %d}' % number, f"{number % 40}") for number in range(40)]
    answers += [source.put_json(b'{"id": 1}', "1"), source.put_json(b'{"id": 2}', "1")]
    unfit = source.put_json(b'{"id": 1, "price": 12345.6}', "unfit")
    assert not any(answer.done() for answer in answers), "no client gets an answer before its rows are durable"
    go.set()
    assert [answer.result(30).repeated for answer in answers[:-1]] == 41 * [False] + [True]
    with pytest.raises(bl.InvalidError, match=r"\[KEY_REUSED\]"):
        answers[-1].result(30)
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]"):
        unfit.result(30)
    assert source.pushed("unfit") is None
    assert [part.rows for _, part in source._log.parts(0)] == [1, 40]
    source.close()


@pytest.mark.parametrize("fails", [False, True])
def test_requests_of_one_turn_that_were_answered_and_forgotten_are_not_recorded(tmp_path: Path, fails: bool) -> None:
    """Two of them have one key; if answers cannot be looked for, both are refused, and the next push is taken."""
    begun, go = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go.wait(30)

    def answered(keys: Sequence[str]) -> set[str]:
        if fails and "done" in keys:
            raise bl.UnavailableError("SINK_FAILED", "no answers now")
        return {"done"}.intersection(keys)

    store = LocalStore.open(tmp_path, create=True)
    source = Source(tmp_path, store=store)
    recording: Any = source._recorder
    recording._answered = answered
    slow: Any = Meanwhile(store, "create", "input/", wait)
    source._log._store = slow
    first = source.put_json(b'{"id": 0}', None)
    assert begun.wait(30)
    twice = [source.put_json(b'{"id": 1}', "done") for _ in range(2)]
    new = source.put_json(b'{"id": 2}', "new")
    assert twice[0].cancel() is False, "a client that goes cancels no push"
    go.set()
    assert first.result(30) == Receipt(1, repeated=False, stable=False)
    for each in twice:
        if fails:
            with pytest.raises(bl.UnavailableError, match=r"\[SINK_FAILED\]"):
                each.result(30)
        else:
            assert each.result(30).repeated
    if not fails:
        assert new.result(30) == Receipt(1, repeated=False, stable=False)
    assert source.put(3, key="next") == Receipt(1, repeated=False, stable=False)
    assert [part.rows for _, part in source._log.parts(0)] == ([1, 1] if fails else [1, 1, 1])
    source.close()


def test_a_client_that_waits_for_stability_is_answered_once_rows_are_freed(tmp_path: Path) -> None:
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
    assert third.result(30) == Receipt(1, repeated=False, stable=False), (
        "the rows are recorded, and the waiting client reads that"
    )
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\]"):
        source.put(4)


def test_rows_that_are_kept_nowhere_are_sent_once_stable(tmp_path: Path) -> None:
    source = Source(tmp_path, forgets=True)
    first, second = source.put_json(b'{"id": 1}', "a"), source.put_json(b'{"id": 2}', None)
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\]"):
        source.pushed("a")
    position = until(lambda: source.next(source.start()))
    cursor = source.advance(source.start(), position)
    third = until(lambda: source.put_json(b'{"id": 3}', "c"))
    following = until(lambda: source.next(cursor))
    assert source.next(source.start())["rows"] == 3, "what was given may be asked for again"
    assert source.pushed("a") is None, "it is not certain yet"
    assert [first.done(), second.done()] == [False, False]
    source.acknowledge(position)
    assert first.result(30) == second.result(30) == Receipt(1, repeated=False, stable=True)
    assert source.pushed("a") == Receipt(1, repeated=True, stable=True)
    assert not third.done()
    source.close()
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\] the run ended before it was certain"):
        third.result(30)
    again = Source(tmp_path, 2, forgets=True, cursor=cursor)
    answers = [again.put_json(b'{"id": 1}', "a"), again.put_json(b'{"id": 3}', "c")]
    assert until(lambda: again.next(cursor))["rows"] == 1 == following["rows"]
    assert answers[0].result(30) == Receipt(1, repeated=True, stable=True)
    assert not answers[1].done()
    again.close()


def test_what_is_acknowledged_of_an_earlier_owner_before_it_begins_changes_nothing(tmp_path: Path) -> None:
    cursor = {"last": 7, "digest": "0", "base": 9, "keys": 0}
    source = Source(tmp_path, forgets=True, cursor=cursor)
    answer = source.put_json(b'{"id": 1}', "a")
    source.acknowledge({"last": 6})
    until(lambda: source._recorder._changed._waiters)  # its thread has looked, and waits again
    position = until(lambda: source.next(cursor))
    assert (position["first"], position["last"], position["base"]) == (8, 8, 9)
    source.acknowledge({"last": 7})
    assert not answer.done()
    source.acknowledge(position)
    assert answer.result(30).stable
    source.close()


def test_a_push_before_a_run_that_never_began_gets_its_end(tmp_path: Path) -> None:
    source = Source(tmp_path, forgets=True)
    answer = source.put_json(b'{"id": 1}', "a")
    source.close()
    with pytest.raises(bl.UnavailableError, match=r"\[NOT_RUNNING\]"):
        answer.result(30)


def test_a_push_during_the_end_gets_it(source: Source) -> None:
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
    assert source.put(1, key="a").repeated, "a repeated push needs no room"
    assert source.awaits_stability
    source.acknowledge(source.next(source.start()))
    until(lambda: not source._log.waiting)
    source.put(2)
    assert not source.awaits_stability
    source.close()


def test_keys_are_forgotten_when_their_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.storage.input_log.KEY_CHECKPOINT_AFTER", 2)
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


@pytest.mark.parametrize("forgets", [False, True])
def test_keys_that_are_in_no_pack_make_room_once_they_are_old(tmp_path: Path, forgets: bool) -> None:
    source = Source(tmp_path, forgets=forgets, remember=timedelta(milliseconds=100), most_keys=3)
    cursor = source.start()
    for number in range(3):
        answer = source.put_json(b'{"id": 0}', f"k{number}")
        position = until(lambda: source.next(cursor))  # noqa: B023 - called at once
        cursor = source.advance(cursor, position)
        source.acknowledge(position)
        answer.result(30)
    source.now += 100
    assert refused(lambda: source.put_json(b'{"id": 0}', "k3"))
    assert until(lambda: source.pushed("k0"))
    source.now += 1
    until(lambda: not refused(lambda: source.put_json(b'{"id": 0}', "k3")))
    assert source.pushed("k0") is None
    source.close()


@pytest.mark.parametrize(("forgets", "packed"), [(False, 4), (True, 3)])
def test_keys_that_are_packed_are_known_and_no_further_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool, packed: int
) -> None:
    """A key whose rows may be lost is not packed."""
    monkeypatch.setattr("boatlift.storage.remembered_keys.PACK_AFTER", 4)
    options: Any = {"forgets": forgets, "remember": timedelta(milliseconds=100), "most_keys": 10}
    source = Source(tmp_path, **options)
    cursor = source.start()

    def put(number: int) -> Receipt:
        nonlocal cursor
        answer = source.put_json(b'{"id": %d}' % number, f"k{number}")
        position = until(lambda: answer.done() or source.next(cursor)) if forgets else True
        if position is not True:
            cursor = source.advance(cursor, position)
            source.acknowledge(position)
        return answer.result(30)

    for number in range(10):
        source.now = number
        assert not put(number).repeated
    until(lambda: sum(pack.keys for pack in source.log.keys.packed) == 10 // packed * packed)
    with pytest.raises(bl.UnavailableError, match=r"\[KEYS_FULL\]") as caught:
        source.put(10, key="k10")
    refusal = refusal_of(caught.value)
    assert (refusal.status, refusal.headers["retry-after"]) == (429, "60")
    assert source.put_json(b'{"id": 11}', None) is not None, "rows without a key need no memory"
    assert put(0).repeated
    with pytest.raises(bl.InvalidError, match=r"\[KEY_REUSED\]"):
        source.put(5, key="k0")
    assert source.pushed("k1").repeated
    source.close()
    source = Source(tmp_path, 2, cursor=cursor, **options)
    source.next(cursor)
    assert source.pushed("k1").repeated
    assert put(2).repeated
    source.now = packed - 1 + 100
    with pytest.raises(bl.UnavailableError, match=r"\[KEYS_FULL\]"):
        source.put(10, key="k10")
    source.now += 1
    until(lambda: not refused(lambda: put(10)))
    assert [source.pushed(f"k{number}") is not None for number in range(11)] == [
        number >= packed for number in range(11)
    ]
    source.close()


def refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except bl.UnavailableError as error:
        return error.condition == "KEYS_FULL"
    return False


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
    monkeypatch.setattr(recorder, "LARGEST_ROWS", 1000)
    with pytest.raises(bl.InvalidError, match=r"\[PUSH_TOO_LARGE\]"):
        source.put(*range(200))
    source.put(1)


def test_objects_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "OBJECT_BYTES", 1)
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
