"""What a log means: laws of the fold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boatlift.storage.records.facts import GarbageCollection
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Admitted, Claim, Record, SinkCommit, Stopped, UnitWork
from support.worlds.facts import cut, made, sequences, stable


def meaning(records: list[Record]) -> LogHistory:
    """What records mean, as a snapshot says it."""
    history = LogHistory.of(records, "flow")
    kept = LogHistory.of([history.snapshot()], "flow")
    kept.stopped, kept.resumed = history.stopped, history.resumed
    return kept


@given(sequences(), st.data())
def test_a_snapshot_replaces_all_before_it(records: list[Record], data: st.DataObject) -> None:
    """Whatever comes after, nothing that is kept tells the two apart.

    A manifest is an owner's record like any other: it makes the owner's environment the recorded one.
    """
    at = data.draw(st.integers(1, len(records)))
    snapshot = LogHistory.of(records[:at], "flow").snapshot()
    assert meaning([snapshot, *records[at:]]) == meaning([*records[:at], GarbageCollection({}, {}, {}), *records[at:]])


@given(sequences())
def test_a_snapshot_of_a_snapshot_is_the_same(records: list[Record]) -> None:
    once = LogHistory.of(records, "flow").snapshot()
    assert LogHistory.of([once], "flow").snapshot() == once


@given(sequences())
def test_every_position_is_known_once_and_in_order(records: list[Record]) -> None:
    """Those before the cursor as part of it; the last of them may be there too."""
    history = LogHistory.of([LogHistory.of(records, "flow").snapshot()], "flow")
    for source in ("a", "b"):
        time, cursor = history.cursors.get(source, (-1, {"taken": []}))
        determinants = history.live_records.determinants.get(source, {})
        after = [determinants[t].outcome["position"]["start"] for t in sorted(determinants) if t > time]
        last = max(determinants, default=time)
        assert cursor["taken"] + after == [t * 10 for t in range(last + 1)]
        names = history.names[source].record().new if source in history.names else ()
        assert names == tuple(f"{number}" for number in range(time + 1))


@given(sequences())
def test_live_runs_are_those_of_kept_states(records: list[Record]) -> None:
    history = LogHistory.of([LogHistory.of(records, "flow").snapshot()], "flow")
    states = {(p, t) for p, kept in history.live_records.states.items() for (t,) in kept}
    assert history.live_runs() == {f"runs/{p}{t}" for p, t in states}


@given(sequences())
def test_the_fold_does_not_change_the_records_or_the_snapshot(records: list[Record]) -> None:
    history = LogHistory.of(records, "flow")
    snapshot = history.snapshot()
    again = LogHistory.of([snapshot], "flow")
    again.apply(cut({"a": -1, "b": -1}))
    again.apply(stable({"a": 1000}))
    assert LogHistory.of(records, "flow") == history
    assert history.snapshot() == snapshot


def test_the_newest_record_says_what_a_sink_holds() -> None:
    assert LogHistory.of([SinkCommit("table", 5), SinkCommit("table", 3)]).held("table") == 3, (
        "a user has taken it back"
    )
    assert LogHistory.of([]).held("table") == -1


def test_what_was_collected_rested_on_what_the_sink_held() -> None:
    assert LogHistory.of([SinkCommit("table", 3), stable({"table": 5})]).held("table") == 5
    assert LogHistory.of([stable({"table": 5})]).held("table") == 5


def claim(environment: str) -> Claim:
    return Claim("host", 1, 0, {"graph": "g"}, {"spark": environment})


def test_a_claim_alone_does_not_change_the_recorded_environment() -> None:
    """Or else a refused process would have to be started only twice to be let in."""
    history = LogHistory.of([claim("old"), made(0), claim("new"), claim("new")])
    assert history.environment == {"spark": "old"}
    history.apply(made(1))
    assert history.environment == {"spark": "new"}


def test_after_a_clean_stop_an_owner_of_another_environment_is_let_in_on_the_record() -> None:
    stopped: list[Record] = [claim("old"), made(0), Stopped()]
    for records, is_stopped, is_resumed, environment in (
        (stopped, True, False, "old"),
        ([*stopped, claim("new")], False, True, "old"),
        ([*stopped, claim("new"), claim("newest")], False, True, "old"),  # the new one was never let in: it did nothing
        ([*stopped, claim("old"), claim("new")], False, False, "old"),  # the old one may have had an effect
        ([*stopped, claim("new"), Admitted()], False, False, "new"),
        ([*stopped, claim("new"), Admitted(), claim("newest")], False, False, "new"),
        ([*stopped, claim("new"), claim("old"), claim("new")], False, False, "old"),
    ):
        history = LogHistory.of(records)
        assert (history.stopped, history.resumed) == (is_stopped, is_resumed)
        assert history.environment == {"spark": environment}


def test_work_is_what_the_newest_clean_shutdown_says() -> None:
    history = LogHistory.of([Stopped(work={"sums": UnitWork(7, 3)})])
    history.apply(Claim("host", 1, 0, {}, {}))
    history.apply(Stopped())
    assert history.work == {"sums": UnitWork(7, 3)}
    assert LogHistory.of([history.snapshot()]).work == history.work
    assert history.renamed({"totals": "sums"}).work == {"totals": UnitWork(7, 3)}
    history.apply(Stopped(work={"sums": UnitWork(9, 4)}))
    assert history.work == {"sums": UnitWork(9, 4)}
