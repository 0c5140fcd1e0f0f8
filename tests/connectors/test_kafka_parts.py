"""The parts of the Kafka connectors that need no broker: offsets of a step, the ledger, the division of rows, JSON."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import boatlift as bl
from boatlift.connectors.kafka import ledger as ledger_module
from boatlift.connectors.kafka.access import Access
from boatlift.connectors.kafka.encoding import part_of
from boatlift.connectors.kafka.ledger import SLOTS, Claimed, Ledger, LedgerTopic, Written
from boatlift.connectors.kafka.offsets import Found, advanced, shares, taken_next, taken_up_to
from boatlift.connectors.kafka.writer import refuse_speculation
from boatlift.connectors.kit.arrow_text import json_objects

START = {"topics": {}, "began": False}


def found(*partitions: tuple[int, int], topic: str = "t") -> list[Found]:
    return [Found(topic, "id", number, low, high) for number, (low, high) in enumerate(partitions)]


def taken(cursor: Any, now: list[Found], limit: int = 10**6, *, fail: bool = True, **options: Any) -> Any:
    first, ends = options.get("first"), options.get("ends", {})
    return taken_next(cursor, now, first, ends, limit, fail_on_data_loss=fail)


def ranges(position: Any) -> list[tuple[int, int, int]]:
    return [(each["partition"], each["start"], each["end"]) for each in position["ranges"]]


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=12),
    st.integers(1, 60),
    st.one_of(st.none(), st.just("latest")),
)
def test_every_offset_from_where_it_began_is_taken_once_and_in_order(
    grows: list[list[int]], limit: int, begin: str | None
) -> None:
    """Whatever comes between two steps, and partitions that are added."""
    cursor: Any = START
    highs: list[int] = []
    seen: dict[int, list[int]] = {}
    begins: dict[int, int] = {}
    for growth in chain(grows, repeat([])):
        highs += [0] * (len(growth) - len(highs))
        highs = [high + more for high, more in zip(highs, [*growth, *[0] * len(highs)], strict=False)]
        now = found(*((0, high) for high in highs))
        first = None if begin is None or cursor["began"] else {("t", n): high for n, high in enumerate(highs)}
        if first is not None:
            begins = {n: high for (_, n), high in first.items()}
        position = taken(cursor, now, limit, first=first)
        if position is None:
            if growth:
                continue
            break
        cursor = advanced(json.loads(json.dumps(cursor)), json.loads(json.dumps(position)))
        for partition, start, end in ranges(position):
            seen.setdefault(partition, []).extend(range(start, end))
    for partition, high in enumerate(highs):
        assert seen.get(partition, []) == list(range(begins.get(partition, 0), high))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.integers(1, 3000))
def test_a_limit_is_shared_and_leaves_no_source_out(there: list[int], limit: int) -> None:
    given_out = shares(there, limit)
    some = sum(1 for part in there if part)
    assert all(0 <= share <= part for share, part in zip(given_out, there, strict=True))
    assert all(share for share, part in zip(given_out, there, strict=True) if part)
    assert sum(given_out) <= max(limit, some)


def test_what_is_gone_before_it_was_taken_is_reported_or_counted() -> None:
    cursor = advanced(START, taken(START, found((0, 100))))
    with pytest.raises(bl.DataError, match=r"\[INPUT_MISSING\] offsets 100 to 149 "):
        taken(cursor, found((150, 200)))
    assert taken(cursor, found((150, 200)), fail=False)["ranges"][0]["skipped"] == 50
    with pytest.raises(bl.DataError, match=r"\[INPUT_MISSING\] .*ends with offset 89, but offsets up to 99 were taken"):
        taken(cursor, found((0, 90)))
    assert taken(cursor, found((150, 200)), ends={("t", 0): 100}) is None, "what is gone was not wanted"


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=8),
    st.lists(st.integers(0, 30), min_size=4, max_size=4),
    st.sampled_from([None, "latest"]),
    st.integers(1, 30),
)
def test_a_cursor_names_all_offsets_that_were_taken(
    grows: list[list[int]], lows: list[int], begin: str | None, limit: int
) -> None:
    cursor: Any = START
    highs: list[int] = []
    seen: dict[int, list[int]] = {}
    for growth in grows:
        highs += lows[len(highs) : len(growth)]
        highs = [high + more for high, more in zip(highs, [*growth, *[0] * len(highs)], strict=False)]
        first = None if begin is None or cursor["began"] else {("t", n): high for n, high in enumerate(highs)}
        position = taken(cursor, found(*zip(lows, highs, strict=False)), limit, first=first)
        if position is not None:
            cursor = advanced(json.loads(json.dumps(cursor)), position)
            for partition, start, end in ranges(position):
                seen.setdefault(partition, []).extend(range(start, end))
    again = {each.partition: [*range(each.start, each.end)] for each in taken_up_to(cursor)}
    assert again == {partition: offsets for partition, offsets in seen.items() if offsets}


def test_a_cursor_of_an_earlier_version_names_later_partitions_alone() -> None:
    old = {"topics": {"t": {"id": "id", "number": 0, "next": {"0": 7}}}, "began": True}
    cursor = advanced(old, taken(old, found((0, 9), (3, 5))))
    assert cursor["topics"]["t"] == {"id": "id", "number": 0, "first": {"1": 3}, "next": {"0": 9, "1": 5}}
    with pytest.raises(
        bl.DataError, match=r"\[HISTORY_GONE\] the first offset .* of topic t, partition 0, is not recor"
    ):
        taken_up_to(cursor)


def test_latest_counts_from_the_first_step_on_also_if_there_was_no_topic_yet() -> None:
    position = taken(START, [], first={})
    assert position == {"ranges": []}
    cursor = advanced(START, position)
    assert ranges(taken(cursor, found((0, 5)))) == [(0, 0, 5)]


def test_another_topic_of_the_same_name_is_refused() -> None:
    cursor = advanced(START, taken(START, found((0, 1))))
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\]"):
        taken(cursor, [Found("t", "another", 0, 0, 9)])
    for now in ([], [Found("t", "id", 1, 0, 9)]):
        with pytest.raises(bl.DataError, match=r"\[INPUT_MISSING\]"):
            taken(cursor, now)


class Clock:
    """A clock that moves only when somebody sleeps or waits for an answer."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def ledger_with_an_open_transaction(
    monkeypatch: pytest.MonkeyPatch, *, away: int, ends_after: float
) -> tuple[LedgerTopic, Clock]:
    """Return a ledger whose broker is away again and again while a transaction is open, and then ends it."""
    clock, left, back = Clock(), [29.0] * away, [0.0]
    monkeypatch.setattr(ledger_module, "time", clock)

    class Committed:
        def ends(self, here: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
            if left:
                clock.now += left.pop()
                back[0] = clock.now
            return dict.fromkeys(here, 7 if clock.now - back[0] >= ends_after else 5)

        def begins(self, here: Any) -> dict[tuple[str, int], int]:
            return dict.fromkeys(here, 7)

    made = LedgerTopic(Access("nowhere:1"), "ledger")
    for committed, written in ((made, made), (made._settling, made._settling)):
        names = ("_committed", "_written") if committed is made else ("committed", "written")
        monkeypatch.setattr(committed, names[0], Committed())
        monkeypatch.setattr(written, names[1], SimpleNamespace(ends=lambda here: dict.fromkeys(here, 7)))
    return made, clock


@pytest.mark.parametrize("away", [0, 5])
def test_a_transaction_may_end_late_and_the_time_in_which_its_broker_is_away_does_not_count(
    monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    # A coordinator's successor is found after 9 s, and repeats what it sent in vain after 30 s.
    made, _ = ledger_with_an_open_transaction(monkeypatch, away=away, ends_after=45.0)
    assert made.read(settled=True, writers=[0]).written == {}


def test_a_transaction_that_does_not_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    made, clock = ledger_with_an_open_transaction(monkeypatch, away=2, ends_after=10.0**9)
    with pytest.raises(bl.UnavailableError, match=r"\[SINK_FAILED\] ledger ledger has a transaction that does not end"):
        made.read(settled=True, writers=[0])
    assert clock.now > 2 * 29.0


def ledger_of(*records: Claimed | Written) -> Ledger:
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    return ledger


def written(writer: int, writers: int, step: int, token: int = 1) -> Written:
    return Written(writer, writers, step, 1, f"digest {step}", token)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_a_step_is_whole_when_every_writer_that_it_had_has_written_it(counts: list[int], data: st.DataObject) -> None:
    last = len(counts) - 1
    there = data.draw(st.sets(st.integers(0, counts[last] - 1)))
    before = [written(writer, count, step) for step, count in enumerate(counts[:-1]) for writer in range(count)]
    ledger = ledger_of(*before, *(written(writer, counts[last], last) for writer in there))
    assert ledger.whole() == (last if len(there) == counts[last] else last - 1)
    found = ledger.of_step(last)
    assert (None if found is None else found.writers) == (counts[last] if there else None)
    assert all(ledger.holds(record) for record in before)


def test_of_each_writer_so_many_steps_are_known() -> None:
    ledger = ledger_of(*(written(0, 1, step) for step in range(SLOTS + 5)))
    assert ledger.whole() == SLOTS + 4
    assert ledger.of_step(4) is None
    assert ledger.of_step(5) is not None


CLAIMED = b'{"format":1,"dataflow":"f","sink":"s","store":"0","token":1,"topic":["t","id"],"shape":%s}'
WRITTEN = b'{"writer":%s,"writers":1,"step":%s,"rows":1,"digest":"%s","token":1}'


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"claim", b"[" * 200_000),
        (b"claim", CLAIMED % (b'{"a":' * 200_000)),
        (b"claim", CLAIMED % (b'{"a":' * 500 + b"1" + b"}" * 500)),
        (b"claim", CLAIMED.replace(b'"f"', b'"\xff\xfe"') % b"{}"),
        (b"claim", CLAIMED),
        (b"1", WRITTEN % (b"0", b"1", b"\xff")),
        (b"1", WRITTEN % (b"-5", b"1", b"d")),
        (b"1", WRITTEN % (b"0", b"-1", b"d")),
        (b"1", b"null"),
    ],
)
def test_a_record_that_is_none_is_refused_however_it_is_made(key: bytes, value: bytes) -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match=r"\w"):
        ledger.take(key, value)
    ledger.take(b"claim", CLAIMED % b"{}")
    ledger.take(b"1", WRITTEN % (b"0", b"1", b"d"))
    assert ledger.whole() == 1


messages = st.lists(
    st.tuples(st.one_of(st.none(), st.binary(max_size=3)), st.one_of(st.none(), st.binary(max_size=3))), max_size=30
)


@given(messages, st.integers(1, 5), st.integers(0, 30))
def test_every_row_has_one_writer_and_a_key_too_whatever_pieces_they_come_in(
    rows: list[tuple[Any, Any]], writers: int, cut: int
) -> None:
    def pieces(*parts: list[tuple[Any, Any]]) -> list[pa.Table]:
        columns = [([key for key, _ in part], [value for _, value in part]) for part in parts]
        return [pa.table({"key": pa.array(k, pa.binary()), "value": pa.array(v, pa.binary())}) for k, v in columns]

    def of(writer: int, given_pieces: list[pa.Table]) -> list[tuple[Any, Any]]:
        parts = part_of(given_pieces, writer, writers, upserts=False)
        return [tuple(row.values()) for part in parts for row in part.to_pylist()]

    parts = [of(writer, pieces(rows[:cut], rows[cut:])) for writer in range(writers)]
    assert sorted(map(repr, [row for part in parts for row in part])) == sorted(map(repr, rows))
    keys = [{key for key, _ in part if key is not None} for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys))
    again = [of(writer, pieces(rows[cut:], rows[:cut])) for writer in range(writers)]
    assert [sorted(map(repr, part)) for part in again] == [sorted(map(repr, part)) for part in parts]


@given(st.dictionaries(st.binary(max_size=2), st.booleans(), max_size=20), st.integers(0, 20), st.integers(1, 3))
def test_of_upserts_a_key_gets_its_new_value_alone_whatever_pieces_its_old_row_is_in(
    keys: dict[bytes, bool], cut: int, writers: int
) -> None:
    gone = [(key, None) for key in keys]
    come = [(key, b"new") for key, stays in keys.items() if stays]
    rows = [*come[cut:], *gone, *come[:cut]]
    pieces = [
        pa.table(
            {"key": pa.array([k for k, _ in part], pa.binary()), "value": pa.array([v for _, v in part], pa.binary())}
        )
        for part in (rows[:cut], rows[cut:])
    ]
    written = [
        (row["key"], row["value"])
        for writer in range(writers)
        for part in part_of(pieces, writer, writers, upserts=True)
        for row in part.to_pylist()
    ]
    assert len(written) == len(keys)
    assert dict(written) == {key: b"new" if stays else None for key, stays in keys.items()}


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(), st.floats(), st.booleans())))
def test_json_reads_as_what_was_written(rows: list[tuple[int, str, float, bool]]) -> None:
    texts = [text for _, text, _, _ in rows]
    columns = [
        pa.array([number for number, _, _, _ in rows], pa.int64()),
        pa.array([text.encode("utf8", "replace").decode() for text in texts], pa.string()),
        pa.array([value for _, _, value, _ in rows], pa.float64()),
        pa.array([flag for _, _, _, flag in rows], pa.bool_()),
    ]
    for (number, text, value, flag), told in zip(rows, json_objects(list("abcd"), columns).to_pylist(), strict=True):
        read = json.loads(told)
        assert (read["a"], read["d"]) == (number, flag)
        assert read["b"] == text.encode("utf8", "replace").decode()
        if math.isfinite(value):
            assert float(read["c"]) == value
        else:
            assert str(float(read["c"].replace("Infinity", "inf"))) == str(value)


def test_json_has_times_as_iso_8601_inside_lists_structs_and_maps_too_whatever_the_year() -> None:
    far = [1_700_000_000_000_000_000, 0, None, -62_135_596_800_000_001]
    texts = ["+55840-11-08T22:13:20.000000Z", "1970-01-01T00:00:00.000000Z", None, "0000-12-31T23:59:59.999999Z"]
    times = pa.array(far, pa.timestamp("us", "Europe/Berlin"))
    days = pa.array([19_675_925, 0, None, -719_163], pa.date32())
    offsets = pa.array([0, 3, 3, 4], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, times, mask=pa.array([False, True, False]))
    columns = [
        pa.StructArray.from_arrays([times[:3], days[:3]], ["t", "d"]),
        pa.MapArray.from_arrays(offsets, pa.array(["a", "b", "c", "d"]), days),
        lists,
        times[1:],
    ]
    told = [json.loads(each) for each in json_objects(list("abcd"), columns).to_pylist()]
    written = ["+55840-11-08", "1970-01-01", None, "0000-12-31"]
    assert [row["a"] for row in told] == [{"t": t, "d": d} for t, d in zip(texts[:3], written[:3], strict=True)]
    assert [row["b"] for row in told] == [[["a", written[0]], ["b", written[1]], ["c", None]], [], [["d", written[3]]]]
    assert [row["c"] for row in told] == [texts[:3], None, texts[3:]]
    assert [row["d"] for row in told] == texts[1:]
    sliced = [json.loads(each) for each in json_objects(["c"], [lists[2:]]).to_pylist()]
    assert sliced == [{"c": texts[3:]}]


def test_a_decimal_is_a_number_at_every_place() -> None:
    kind = pa.decimal128(12, 2)
    price = [Decimal("12.50"), Decimal("0.00"), None, Decimal("-9999999999.99")]
    columns = [
        pa.array(price, kind),
        pa.array([{"d": each, "more": [{"d": each}]} for each in price]).cast(
            pa.struct([("d", kind), ("more", pa.list_(pa.struct([("d", kind)])))])
        ),
        pa.array([[each, each] for each in price], pa.list_(kind)),
    ]
    for each, told in zip(price, json_objects(["at_top", "s", "l"], columns).to_pylist(), strict=True):
        read = json.loads(told, parse_float=Decimal)
        assert read == {"at_top": each, "s": {"d": each, "more": [{"d": each}]}, "l": [each, each]}
        assert told.count("null" if each is None else str(each)) == 5


def test_speculation_is_refused_where_tasks_write() -> None:
    speculating: Any = SimpleNamespace(conf={"spark.speculation": "true"})
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] spark.speculation is true"):
        refuse_speculation(speculating)
    refuse_speculation(SimpleNamespace(conf={}))  # type: ignore[arg-type]
