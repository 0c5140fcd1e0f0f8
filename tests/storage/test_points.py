"""Restore points in the log: what a way back makes the log mean, manifests with points, names, and bad rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.storage.bad_rows import drop_bad_rows, keep_bad_rows, kept_bad_rows
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.codec import BadRow, Header, decode_group, encode_group
from boatlift.storage.records.history import LogHistory, runs_of_point, steps_of_point
from boatlift.storage.records.manifest_objects import NamesObjectSize
from boatlift.storage.records.records import (
    Claim,
    Cursor,
    Evolved,
    Override,
    PointsDropped,
    Record,
    RestorePoint,
    SinkCommit,
    SinkNumbers,
    Stopped,
    TakenNames,
)
from support.worlds.facts import CLAIM, Unsynced, made, run_of, saved, sequences, stable
from support.worlds.logs import manifest_of


def back_to(point: str, names: dict[str, TakenNames] | None = None, **fields: Any) -> Evolved:
    empty: dict[str, Any] = {"id": "0123abcd", "program": dict(CLAIM.program), "forgotten": (), "edges": ()}
    empty |= {"renamed": {}, "facts": (), "cursors": {}, "committed": {}, "sinks": {}}
    return Evolved(**{**empty, "back": point, "names": names or {}, **fields})


def evolving() -> Claim:
    return Claim("host", 1, 0, dict(CLAIM.program), dict(CLAIM.environment), evolves="0123abcd")


def meaning(history: LogHistory) -> tuple[Any, ...]:
    return (
        history.live_records,
        history.cursors,
        history.names,
        history.committed,
        history.decisions,
        history.numbers,
        history.tainted,
    )


def names_at(records: list[Record]) -> dict[str, TakenNames]:
    return {source: names.record() for source, names in LogHistory.of(records).names.items()}


@given(sequences(), sequences(), st.data())
def test_a_way_back_makes_the_log_mean_what_it_meant(
    records: list[Record], later: list[Record], data: st.DataObject
) -> None:
    """Whatever the point was followed by; and the point itself stays."""
    at = data.draw(st.integers(1, len(records)))
    point = RestorePoint("p", 5)
    following = [*records[at:], *(each for each in later if not isinstance(each, Claim))]
    try:
        whole = LogHistory.of([*records[:at], point, *following, evolving()])
    except (AssertionError, TypeError, ValueError):
        return  # two lives that do not follow one another
    names = {source: TakenNames((), tuple(each.record().new)) for source, each in _names(records[:at]).items()}
    whole.apply(back_to("p", names))
    there = LogHistory.of(records[:at])
    assert meaning(whole) == meaning(there)
    assert whole.resumed
    assert whole.rewound
    assert list(whole.points) == ["p"]
    assert LogHistory.of([whole.snapshot()]).snapshot() == whole.snapshot()


def _names(records: list[Record]) -> Any:
    return LogHistory.of(records).names


@given(sequences(), st.data())
def test_a_manifest_keeps_points(records: list[Record], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(records)))
    history = LogHistory.of([*records[:at], RestorePoint("p", 5, 9), *records[at:]])
    again = LogHistory.of([history.snapshot()])
    assert again.points == history.points
    header = Header("flow", 7, 7, 0, b"", 7)
    _, (record,) = decode_group(encode_group(header, [history.snapshot()]), "log/7")
    assert record == history.snapshot()


@given(sequences(), st.data())
def test_a_point_changes_nothing_else(records: list[Record], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(records)))
    history = LogHistory.of([*records[:at], RestorePoint("p", 5), *records[at:], PointsDropped(("p",))])
    assert meaning(history) == meaning(LogHistory.of(records))
    assert history.points == {}


def test_points_after_the_one_gone_back_to_go_and_those_before_stay() -> None:
    records = [CLAIM, *(each for n in range(3) for each in (made(n), RestorePoint(f"p{n}", n)))]
    history = LogHistory.of([*records, evolving(), back_to("p1")])
    assert list(history.points) == ["p0", "p1"]
    assert steps_of_point(history.points["p1"]) == {}
    assert history.last_closed("numbers") == 1


def test_the_beginning_has_no_fact_and_no_point() -> None:
    history = LogHistory.of([CLAIM, made(0), saved(0), RestorePoint("p", 1), Stopped(), evolving(), back_to("")])
    assert meaning(history) == meaning(LogHistory())
    assert history.points == {}
    assert history.program == CLAIM.program


def test_a_way_back_counts_as_rewound_until_the_next_record() -> None:
    history = LogHistory.of([CLAIM, made(0), RestorePoint("p", 1), evolving(), back_to("p"), CLAIM])
    assert history.rewound
    history.apply(made(1))
    assert not history.rewound


def test_sinks_count_on_from_what_the_way_back_says() -> None:
    numbers = SinkNumbers(ahead=-3, difference=None, time=0, takes_back=1)
    history = LogHistory.of(
        [CLAIM, made(0), RestorePoint("p", 1), evolving(), back_to("p", sinks={"s": numbers}, committed={"s": 0})]
    )
    assert history.own_number("s") == 3


def test_the_largest_number_that_a_sink_had_outlives_every_transition() -> None:
    """Else a receiver that goes by numbers would drop what comes under one that it knows."""
    removed = back_to("p", forgotten=("s",), program={**CLAIM.program, "removed": {}})
    records = [CLAIM, made(0), SinkCommit("s", 0), RestorePoint("p", 1), made(1), SinkCommit("s", 20)]
    history = LogHistory.of([*records, evolving(), removed, evolving(), back_to("")])
    assert history.given == {"s": 20}
    assert LogHistory.of([history.snapshot()]).given == {"s": 20}


def test_tokens_of_sinks_stay_ahead_whatever_goes_back() -> None:
    records = [CLAIM, made(0), RestorePoint("p", 1), evolving(), back_to("p", ahead=40)]
    history = LogHistory.of(records)
    assert history.ahead == 40
    assert history.at("p", {}).ahead == LogHistory.of([history.snapshot()]).ahead == 40
    assert history.renamed({"others": "numbers"}).ahead == 40


@pytest.mark.parametrize(
    "change",
    [
        {"program": {**CLAIM.program, "source more": {}}},
        {"cursors": {"numbers": (1, {})}},
        {"renamed": {"numbers": "numbers_source"}},
    ],
)
def test_points_end_where_sources_change(change: dict[str, Any]) -> None:
    records = [CLAIM, made(0), RestorePoint("p", 1), made(1), evolving()]
    assert LogHistory.of([*records, back_to("p", **change)]).points == {}
    forward = back_to("p", **change)
    assert LogHistory.of([*records, msgspec.structs.replace(forward, back=None)]).points == {}


def test_a_point_with_a_sink_that_comes_back_ends_there() -> None:
    with_sink = {**CLAIM.program, "sink s": {}}
    first = Claim("host", 1, 0, with_sink, dict(CLAIM.environment))
    gone = msgspec.structs.replace(back_to("p"), back=None)
    history = LogHistory.of([first, made(0), RestorePoint("p", 1), evolving(), gone])
    assert list(history.points) == ["p"]
    again = msgspec.structs.replace(back_to("p", program=with_sink), back=None)
    for record in (evolving(), again):
        history.apply(record)
    assert history.points == {}


def test_decisions_after_the_point_go() -> None:
    skip = Override("skipped", "sums", 0, "told")
    later = Override("skipped", "sums", 1, "told")
    history = LogHistory.of([CLAIM, made(0), skip, RestorePoint("p", 1), made(1), later, evolving(), back_to("p")])
    assert history.decided("skipped") == {("sums", 0)}


def test_runs_of_a_point_are_live_until_it_is_dropped() -> None:
    records = [
        CLAIM, made(0), saved(0, run_of(b"0", "runs/first")), RestorePoint("p", 1),
        made(1), saved(1, run_of(b"1", "runs/second")), stable({"sums": 1}),
    ]  # fmt: skip
    history = LogHistory.of(records)
    assert history.live_runs() == {"runs/first", "runs/second"}
    assert runs_of_point(history.points["p"]) == {"runs/first"}
    history.apply(PointsDropped(("p",)))
    assert history.live_runs() == {"runs/second"}


@pytest.mark.parametrize("size", [NamesObjectSize(names=3, objects=2), NamesObjectSize(names=2, objects=3)])
def test_names_before_are_the_first_ones_and_the_log_goes_on_with_them(tmp_path: Path, size: NamesObjectSize) -> None:
    names = tuple(f"{number}.csv" for number in range(23))
    for count in range(len(names) + 1):
        store = LocalStore.open(tmp_path / f"store{count}", create=True, filesystem=Unsynced())
        log = Log.open(store, "flow", facts_an_object=3, names_an_object=size)
        log.claim(CLAIM)
        log.append([Cursor("numbers", 0, {}, names[:count])] if count else [])
        log.append([RestorePoint("p", 1), Cursor("numbers", 1, {}, names[count:])])
        manifest_of(log)
        log.truncate()
        again = Log.open(store, "flow", names_an_object=size)
        kept = again.names_before("numbers", again.history.points["p"].names.get("numbers", 0))
        again.claim(evolving())
        again.append([back_to("p", {"numbers": kept})])
        assert again.names_taken("numbers") == list(names[:count])
        again.append([Cursor("numbers", 1, {}, ("next.csv",))])
        manifest_of(again)
        again.truncate()
        assert Log.open(store, "flow").names_taken("numbers") == [*names[:count], "next.csv"]


def test_bad_rows_of_steps_that_are_undone_go(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())
    for source, step in (("a", 1), ("a", 2), ("b", 7)):
        keep_bad_rows(store, source, step, [BadRow(f"{source}:{step}", "{}")])
    drop_bad_rows(store, {"a": 1, "b": 9})
    assert [(bad.source, bad.step) for bad in kept_bad_rows(store)] == [("a", 1), ("b", 7)]


def test_a_point_with_a_fault_is_refused() -> None:
    history = LogHistory.of([CLAIM, made(0), RestorePoint("p", 1)])
    header = Header("flow", 7, 7, 0, b"", 0)
    with pytest.raises(DataError, match="CORRUPT"):
        decode_group(encode_group(header, [RestorePoint("no name!", 1)]), "log/7")
    assert history.points["p"].at == 1
