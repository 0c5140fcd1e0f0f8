"""Laws of transitions in the log: claims that come to nothing, what is forgotten and renamed, and manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.codec import Header, decode_group, encode_group
from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    GarbageCollection,
    LoggedInput,
    LoggedMessage,
    LoopEnd,
    StepDigest,
)
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import (
    Admitted,
    Claim,
    Cursor,
    Evolved,
    Override,
    Record,
    SinkCommit,
    SinkNumbers,
    Snapshot,
    Stopped,
)
from boatlift.storage.records.well_formed import fault_of
from support.worlds.facts import Unsynced, gave, made, payload_with, run_of, saved, sequences, stable
from support.worlds.logs import claimed, manifest_of

OLD, NEW = {"graph": "g"}, {"graph": "h"}
HEADER = Header("flow", 7, 7, 0, b"", 0)


def claim(environment: str = "old", *, evolves: str = "") -> Claim:
    return Claim("host", 1, 0, NEW if evolves else OLD, {"spark": environment}, evolves=evolves)


def change(**fields: Any) -> Evolved:
    empty: dict[str, Any] = {"id": "0123abcd", "program": NEW, "forgotten": (), "edges": (), "renamed": {}}
    empty |= {"facts": (), "cursors": {}, "committed": {}, "sinks": {}}
    return Evolved(**{**empty, **fields})


def difference(name: str) -> dict[str, Any]:
    return payload_with([run_of(name.encode(), f"runs/{name}")], rows=1, digest="0" * 16)


# --- a claim of a transition ---


ENDINGS: dict[str, list[Record]] = {
    "at work": [claim(), made(0)],
    "claimed only": [claim(), made(0), claim("new")],
    "stopped": [claim(), made(0), Stopped()],
    "handed over": [claim(), made(0), Stopped("life")],
    "resumed": [claim(), made(0), Stopped(), claim("new")],
    "resumed and perhaps at work": [claim(), made(0), Stopped(), claim()],
    "admitted": [claim(), made(0), Stopped(), claim("new"), Admitted()],
}


@pytest.mark.parametrize("before", ENDINGS.values(), ids=ENDINGS)
def test_a_claim_of_a_transition_leaves_the_log_as_it_was_until_the_next_record(before: list[Record]) -> None:
    history, claiming = LogHistory.of(before), LogHistory.of([*before, claim("newest", evolves="0123abcd")])
    assert claiming.program == OLD
    assert claiming.stopped == history.stopped
    assert claiming.environment == history.environment
    assert claiming.live_records == history.live_records
    claiming.apply(made(1))
    assert claiming.environment == {"spark": "newest"}


@pytest.mark.parametrize("before", ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("evolving", ["old", "new"])
@pytest.mark.parametrize("after", ["old", "new"])
def test_a_transition_that_came_to_nothing_leaves_no_trace(before: list[Record], evolving: str, after: str) -> None:
    """Its process has done no work: else an owner of another environment is let in, or refused, because of it."""
    abandoned = LogHistory.of([*before, claim(evolving, evolves="0123abcd"), claim(after)])
    assert abandoned == LogHistory.of([*before, claim(after)])


@given(sequences(), st.data())
def test_a_claim_of_a_transition_anywhere_adds_nothing_to_what_is_recorded(
    records: list[Record], data: st.DataObject
) -> None:
    at = data.draw(st.integers(1, len(records)))
    both = [LogHistory.of([*records[:at], *between, claim(), *records[at:]]) for between in ([], [claim(evolves="e")])]
    assert both[0].snapshot() == both[1].snapshot()


@pytest.mark.parametrize(
    ("before", "resumed"),
    [
        (ENDINGS["at work"], False),
        (ENDINGS["claimed only"], False),
        (ENDINGS["stopped"], True),
        (ENDINGS["resumed"], True),
        (ENDINGS["admitted"], False),
        (ENDINGS["resumed and perhaps at work"], False),
    ],
    ids=["at work", "claimed only", "stopped", "resumed", "admitted", "resumed and perhaps at work"],
)
def test_a_transition_counts_as_resumed_only_if_nothing_was_done_since_the_clean_stop(
    before: list[Record], resumed: bool
) -> None:
    history = LogHistory.of([*before, claim(evolves="0123abcd"), change()])
    assert (history.program, history.stopped, history.resumed) == (NEW, False, resumed)
    assert history.environment == LogHistory.of(before).environment
    history.apply(made(1))
    assert (history.stopped, history.resumed) == (False, False)


def test_an_heir_is_of_the_newest_record() -> None:
    """A dataflow that was handed over, and then changed, is no standby's any more."""
    assert LogHistory.of([*ENDINGS["handed over"], claim(evolves="0123abcd"), change()]).heir == ""


# --- what a transition forgets, renames and brings ---


def everything_of(name: str) -> list[Record]:
    """A fact of each kind of a processor, and what a source, a sink and a user's decision have besides."""
    return [
        *(Determinant(name, time, None, None) for time in range(3)),
        StepDigest(name, 2, "d"),
        Checkpoint(name, (2,), difference(name)),
        LoggedInput(name, 2, (1,), (("q->r", 2, None),), None),
        LoggedMessage(f"{name}->t", 2, difference(f"{name}-sent")),
        Cursor(name, 0, {"of": name}, (f"{name}-file",)),
        SinkCommit(name, 2),
        Override("skipped", name, 1, "so"),
        Override("accepted", name, 2, "so"),
        GarbageCollection({name: (0,)}, {name: (0,)}, {f"{name}->t": (0,)}),
    ]


def held_for(history: LogHistory, name: str) -> dict[str, Any]:
    """All that a log has for a name, without the name."""
    live = history.live_records
    parts = (live.determinants, live.ended, live.results, live.states, live.taken)
    facts = [msgspec.structs.replace(f, processor="") for part in parts for f in part.get(name, {}).values()]
    edges = [edge for edge in {**live.sent, **live.collected.messages} if edge.startswith(f"{name}->")]
    found: dict[str, Any] = {
        "facts": sorted(facts, key=repr),
        "collected": [part[name] for part in (live.collected.states, live.collected.choices) if name in part],
        "edges": edges,
        "cursor": history.cursors.get(name),
        "names": history.names[name].record() if name in history.names else None,
        "committed": history.committed.get(name),
        "numbers": history.numbers.get(name),
        "decided": sorted((what, time) for what, who, time in history.decisions if who == name),
    }
    return {key: value for key, value in found.items() if value not in (None, [])}


def both_of(*between: Record) -> LogHistory:
    first = change(sinks={"a": SinkNumbers(1, None, 0), "b": SinkNumbers(2, None, 0)})
    return LogHistory.of([claim(), first, *everything_of("a"), *everything_of("b"), *between])


def test_all_of_a_name_that_is_forgotten_goes_and_all_else_stays() -> None:
    before, after = both_of(), both_of(change(forgotten=("a",), edges=("a->t",)))
    kinds = {"facts", "collected", "edges", "cursor", "names", "committed", "numbers", "decided"}
    assert held_for(before, "a").keys() == kinds
    assert held_for(after, "a") == {}
    assert held_for(after, "b") == held_for(before, "b")
    assert after.live_runs() == {"runs/b", "runs/b-sent"}


def test_an_edge_is_forgotten_without_its_sender() -> None:
    before, after = both_of(), both_of(change(edges=("a->t",)))
    rest = {key: value for key, value in held_for(before, "a").items() if key != "edges"}
    assert held_for(after, "a") == rest


def test_all_of_a_source_but_its_edges_goes_on_under_another_name() -> None:
    before, after = both_of(), both_of(change(renamed={"a": "c"}))
    old, new = held_for(before, "a"), held_for(after, "c")
    assert after.last_closed("c") == before.last_closed("a") == 2
    assert after.last_executed("c") == before.last_executed("a")
    for what in ("facts", "collected", "cursor", "names", "decided"):
        assert new[what] == old[what]
    assert not held_for(after, "a").keys() & {"facts", "collected", "cursor", "names", "decided"}
    assert held_for(after, "b") == held_for(before, "b")


def test_what_is_known_of_a_loop_is_forgotten_and_renamed_too() -> None:
    ends = [LoopEnd(name, (1, 2)) for name in ("a", "b")]
    history = LogHistory.of([claim(), *ends, change(forgotten=("a",), renamed={"b": "c"})])
    assert history.live_records.ended == {"c": {(1, 2): LoopEnd("c", (1, 2))}}


def test_a_later_collection_holds_under_the_new_name() -> None:
    after = both_of(change(renamed={"a": "c"}), GarbageCollection({"c": (2,)}, {"c": (2,)}, {}))
    assert list(after.live_records.determinants["c"]) == [2]
    assert "c" not in after.live_records.results


def test_what_a_transition_brings_counts_after_what_it_forgets() -> None:
    brought = change(
        forgotten=("a",),
        edges=("a->t",),
        facts=(Checkpoint("a", (7,), difference("new")), LoggedMessage("a->t", 7, difference("sent"))),
        cursors={"a": (7, {"n": 1})},
        committed={"a": 7},
        sinks={"a": SinkNumbers(5, difference("rows"), 7)},
    )
    history = both_of(brought)
    assert list(history.live_records.states["a"]) == [(7,)]
    assert list(history.live_records.sent["a->t"]) == [7]
    assert history.last_closed("a") == 7
    assert (history.committed["a"], history.own_number("a")) == (7, 2)
    assert history.live_runs() == {"runs/new", "runs/sent", "runs/rows", "runs/b", "runs/b-sent"}


@pytest.mark.parametrize("time", range(3, 7))
def test_a_difference_is_done_with_once_its_sink_holds_its_step_or_a_later_one(time: int) -> None:
    history = both_of(change(sinks={"a": SinkNumbers(3, difference("rows"), 5)}), SinkCommit("a", time))
    assert (list(history.differences()) == []) is (time >= 5)
    assert ("runs/rows" in history.live_runs()) is (time < 5)
    assert history.own_number("a") == time - 3


def test_a_difference_is_of_its_own_sink() -> None:
    sinks = {"a": SinkNumbers(3, difference("a-rows"), 5), "b": SinkNumbers(3, difference("b-rows"), 5)}
    assert list(both_of(change(sinks=sinks), SinkCommit("a", 5)).differences()) == [difference("b-rows")]


# --- the fold ---


names = st.sampled_from(["a", "b"])
numbers = st.builds(SinkNumbers, st.integers(-3, 9), st.none() | names.map(difference), st.integers(-1, 9))
transitions = st.builds(
    change,
    forgotten=st.lists(names, unique=True).map(tuple),
    renamed=st.sampled_from([{}, {"a": "c"}, {"b": "c"}]),
    facts=st.lists(
        st.one_of(
            st.builds(saved, st.integers(0, 9), st.just(run_of(b"x", "runs/x")), processor=names),
            st.builds(gave, st.integers(0, 9), names),
            st.dictionaries(names, st.integers(0, 9)).map(stable),
        ),
        max_size=3,
    ).map(tuple),
    cursors=st.dictionaries(names, st.tuples(st.integers(-1, 9), st.just({"taken": []}))),
    committed=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(-1, 9)),
    sinks=st.dictionaries(st.sampled_from(["a", "b", "c"]), numbers),
)


def evolving(data: st.DataObject, records: list[Record]) -> list[Record]:
    """The records, with transitions at some places."""
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(1, len(records)))
        records = [*records[:at], claim(evolves="0123abcd"), data.draw(transitions), *records[at:]]
    return records


def meaning(records: list[Record]) -> Snapshot:
    return LogHistory.of(records, "flow").snapshot()


@given(sequences(), st.data())
def test_a_manifest_at_any_place_means_all_before_it(records: list[Record], data: st.DataObject) -> None:
    """How sinks count is part of it."""
    records = evolving(data, records)
    at = data.draw(st.integers(1, len(records)))
    before = meaning(records[:at])
    assert meaning([before]) == before
    whole = LogHistory.of([*records[:at], GarbageCollection({}, {}, {}), *records[at:]], "flow")
    cut = LogHistory.of([before, *records[at:]], "flow")
    assert LogHistory.of([cut.snapshot()], "flow") == LogHistory.of([whole.snapshot()], "flow")
    assert cut.numbers == whole.numbers
    assert list(cut.differences()) == list(whole.differences())


@given(sequences(), st.data())
def test_the_fold_changes_no_record(records: list[Record], data: st.DataObject) -> None:
    records = evolving(data, records)
    once, encoded = LogHistory.of(records, "flow"), msgspec.msgpack.encode(records)
    once.snapshot()
    assert msgspec.msgpack.encode(records) == encoded
    assert LogHistory.of(records, "flow") == once


@given(sequences(), st.data())
def test_a_transition_and_its_manifest_come_back_from_disk(records: list[Record], data: st.DataObject) -> None:
    records = evolving(data, records)
    for written in (records, [meaning(records)]):
        assert [fault_of(each) for each in written] == [None] * len(written)
        assert decode_group(encode_group(HEADER, written), "log/7") == (HEADER, tuple(written))


def test_objects_of_facts_follow_what_is_forgotten_and_renamed(tmp_path: Path) -> None:
    """Live facts stand in objects beside the manifest: a reader has to find those that a transition leaves."""
    store = LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())
    log: Log = claimed(store, facts_an_object=3)
    log.append([*(made(time, source) for time in range(7) for source in ("a", "b")), gave(6, "a"), gave(6, "b")])
    manifest_of(log)
    log.truncate()
    log.append([change(forgotten=("b",), renamed={"a": "c"}, facts=(made(0, "d"),))])
    for _ in range(2):
        read = Log.open(store, "flow").history
        assert read.live_records == log.history.live_records
        assert read.live_records.determinants.keys() == {"c", "d"}
        assert sorted(read.live_records.determinants["c"]) == list(range(7))
        manifest_of(log)
        log.truncate()


def test_renaming_reports_each_fact_to_its_watcher() -> None:
    live = both_of().live_records
    seen: list[tuple[str, str]] = []

    class Watch:
        def added(self, fact: Any) -> None:
            seen.append(("added", fact.processor))

        def removed(self, fact: Any) -> None:
            seen.append(("removed", fact.processor))

    live.watch = Watch()  # type: ignore[assignment]
    count = sum(
        len(part.get("a", {})) for part in (live.determinants, live.ended, live.results, live.states, live.taken)
    )
    live.rename("a", "c")
    assert count > 3
    assert sorted(seen) == sorted([("added", "c")] * count + [("removed", "a")] * count)


# --- records that Boatlift never writes ---


def hostile(**fields: Any) -> bytes:
    """A whole object with one transition in it, some fields of which are changed in its JSON."""
    record = msgspec.to_builtins(change(sinks={"a": SinkNumbers(1, None, 1)}))
    return encode_group(HEADER, [msgspec.Raw(msgspec.msgpack.encode({**record, **fields}))])  # type: ignore[list-item]


DEEP: Any = None
for _ in range(120):
    DEEP = [DEEP]

HOSTILE: dict[str, dict[str, Any]] = {
    "a program that is no JSON": {"program": {"x": b"bytes"}},
    "a program too deep": {"program": {"x": DEEP}},
    "units that are none": {"program": {"units": {"a": 1}}},
    "a forgotten name in markup": {"forgotten": ["[/bold]"]},
    "no edge": {"edges": [""]},
    "renamed from no name": {"renamed": {"": "c"}},
    "renamed to no name": {"renamed": {"a": "[/bold]"}},
    "a fact of no time": {"facts": [{"type": "chosen", "processor": "a", "time": -5, "taken": None, "outcome": None}]},
    "a fact of no kind": {"facts": [{"type": "stopped"}]},
    "a record within": {"facts": [{"type": "committed", "sink": "a", "time": 1}]},
    "a cursor before all": {"cursors": {"a": [-2, {}]}},
    "a cursor of no source": {"cursors": {"[x]": [1, {}]}},
    "a cursor that is no JSON": {"cursors": {"a": [1, {"x": b"bytes"}]}},
    "a cursor without a time": {"cursors": {"a": {}}},
    "a commit before all": {"committed": {"a": -2}},
    "a commit after all": {"committed": {"a": 2**63 - 1}},
    "a commit of no sink": {"committed": {"": 1}},
    "numbers of no sink": {"sinks": {"[x]": {"ahead": 1}}},
    "numbers that are none": {"sinks": {"a": {"ahead": "x"}}},
    "a difference before all": {"sinks": {"a": {"ahead": 1, "time": -2}}},
    "a difference of no runs": {"sinks": {"a": {"ahead": 1, "difference": {"runs": [{"name": "x"}]}, "time": 1}}},
    "a difference that is no JSON": {"sinks": {"a": {"ahead": 1, "difference": b"x", "time": 1}}},
    "an unknown field": {"more": 1},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE)
def test_a_transition_that_no_boatlift_writes_is_refused(fields: dict[str, Any]) -> None:
    assert decode_group(hostile(), "log/7")[1]
    with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
        decode_group(hostile(**fields), "log/7")


def test_numbers_in_a_manifest_are_checked_as_those_of_a_transition() -> None:
    snapshot = meaning([claim(), change(sinks={"a": SinkNumbers(1, difference("x"), 1)})])
    assert fault_of(snapshot) is None
    for numbers_now in ({"[x]": SinkNumbers(1)}, {"a": SinkNumbers(1, {"runs": [1]}, 1)}):
        assert fault_of(msgspec.structs.replace(snapshot, numbers=numbers_now)) is not None


def test_a_claim_that_evolves_nothing_is_written_as_before() -> None:
    """A store without transitions is read by older versions."""
    content = encode_group(HEADER, [claim()])
    assert b"evolves" not in content
    assert b"numbers" not in encode_group(HEADER, [meaning([claim()])])
