"""What a log means: laws of the fold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boatlift.storage.history import History
from boatlift.storage.records import Checkpoint, Claim, Committed, Record, Stable, Stopped, Truncate
from support.facts import CLAIM, advance, gave, made, run_of, sequences


def meaning(records: list[Record]) -> History:
    """What records mean, without what their stable frontiers have made garbage."""
    history = History.of(records, "flow")
    snapshot = history.snapshot(advance)
    kept = History.of([snapshot], "flow")
    kept.stopped, kept.resumed = history.stopped, history.resumed
    return kept


@given(sequences(), st.data())
def test_a_snapshot_stands_for_all_before_it(records: list[Record], data: st.DataObject) -> None:
    """Whatever comes after, nothing that is kept tells the two apart.

    A manifest is an owner's record like any other: it makes the owner's environment the recorded one, as `Stable` does.
    """
    cut = data.draw(st.integers(1, len(records)))
    snapshot = History.of(records[:cut], "flow").snapshot(advance)
    assert meaning([snapshot, *records[cut:]]) == meaning([*records[:cut], Stable({}), *records[cut:]])


@given(sequences())
def test_a_snapshot_of_a_snapshot_is_the_same(records: list[Record]) -> None:
    once = History.of(records, "flow").snapshot(advance)
    assert History.of([once], "flow").snapshot(advance) == once


@given(sequences())
def test_every_position_is_taken_once_and_in_order(records: list[Record]) -> None:
    history = History.of([History.of(records, "flow").snapshot(advance)], "flow")
    for source in ("a", "b"):
        time, cursor = history.cursors.get(source, (-1, {"taken": []}))
        taken = cursor["taken"] + [made.position["start"] for _, made in sorted(history.inputs.get(source, {}).items())]
        assert taken == [t * 10 for t in range(history.last_input(source) + 1)]
        assert time == len(cursor["taken"]) - 1
        assert time <= max(history.stable.get(source, -1), -1)


@given(sequences())
def test_what_a_rollback_may_need_is_kept(records: list[Record]) -> None:
    whole = History.of(records, "flow")
    kept = History.of([whole.snapshot(advance)], "flow")
    for processor in ("a", "b"):
        stable = whole.stable.get(processor, -1)
        before, after = whole.checkpoints.get(processor, {}), kept.checkpoints.get(processor, {})
        assert {t for t in before if t > stable} <= set(after)
        if passed := [t for t in before if t <= stable]:
            assert [t for t in after if t <= stable] == [max(passed)], "the stable one and none below it"
        for part, kept_part in ((whole.inputs, kept.inputs), (whole.outputs, kept.outputs)):
            assert {t for t in part.get(processor, {}) if t > stable} == set(kept_part.get(processor, {}))


@given(sequences())
def test_live_runs_are_those_of_kept_checkpoints(records: list[Record]) -> None:
    history = History.of([History.of(records, "flow").snapshot(advance)], "flow")
    assert history.live_runs() == {f"runs/{p}{t}" for p, kept in history.checkpoints.items() for t in kept}


@given(sequences())
def test_the_fold_does_not_change_the_records_or_the_snapshot(records: list[Record]) -> None:
    history = History.of(records, "flow")
    snapshot = history.snapshot(advance)
    again = History.of([snapshot], "flow")
    again.apply(Truncate({"a": -1, "b": -1}))
    again.apply(Stable({"a": 1000}))
    assert History.of(records, "flow") == history
    assert history.snapshot(advance) == snapshot


def test_a_truncate_forgets_what_lies_beyond_it() -> None:
    checkpoints = [Checkpoint("sums", t, (run_of(b"", f"runs/{t}"),)) for t in range(4)]
    history = History.of([CLAIM, *(made(t) for t in range(4)), *(gave(t) for t in range(4)), *checkpoints])
    history.apply(Truncate({"numbers": 2, "sums": 1, "nobody": 0}))
    assert sorted(history.inputs["numbers"]) == [0, 1, 2]
    assert sorted(history.outputs["sums"]) == [0, 1]
    assert sorted(history.checkpoints["sums"]) == [0, 1]
    assert history.live_runs() == {"runs/0", "runs/1"}
    assert history.last_input("numbers") == 2
    assert history.last_input("nobody") == -1
    history.apply(made(3))
    assert history.last_input("numbers") == 3


def test_memos_never_go_back() -> None:
    history = History.of([Committed("table", 5), Committed("table", 3), Stable({"a": 4}), Stable({"a": 2, "b": 0})])
    assert history.committed == {"table": 5}
    assert history.stable == {"a": 4, "b": 0}


def claim(environment: str) -> Claim:
    return Claim("host", 1, 0, {"graph": "g"}, {"spark": environment})


def test_a_claim_alone_does_not_change_the_recorded_environment() -> None:
    """Or else a refused process would have to be started only twice to be let in."""
    history = History.of([claim("old"), made(0), claim("new"), claim("new")])
    assert history.environment == {"spark": "old"}
    history.apply(made(1))
    assert history.environment == {"spark": "new"}


def test_after_a_clean_stop_the_next_owner_brings_its_environment() -> None:
    stopped: list[Record] = [claim("old"), made(0), Stopped()]
    for records, is_stopped, is_resumed, environment in (
        (stopped, True, False, "old"),
        ([*stopped, claim("new")], False, True, "new"),  # at once, for it may have an effect before its next record
        ([*stopped, claim("new"), claim("newest")], False, False, "new"),
        ([*stopped, claim("new"), made(1)], False, False, "new"),
    ):
        history = History.of(records)
        assert (history.stopped, history.resumed) == (is_stopped, is_resumed)
        assert history.environment == {"spark": environment}
