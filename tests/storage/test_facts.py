"""Facts: what a truncation leaves, what a fold over facts keeps, and that the log brings them back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.simulation.disk import Disk
from boatlift.storage.log import Log
from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    GarbageCollection,
    LoggedInput,
    LoggedMessage,
    LoopEnd,
    StepDigest,
    Truncation,
    left_of,
    survives,
)
from boatlift.storage.records.live import LiveRecords
from boatlift.times import LAST, Frontier, read_frontier
from support.worlds.logs import claimed

numbers = st.integers(0, 5)
cuts = st.builds(
    Truncation,
    st.dictionaries(st.sampled_from("pq"), st.one_of(st.just(()), st.tuples(numbers))),
    st.dictionaries(st.sampled_from(["p>q", "q>out"]), st.one_of(st.just(()), st.tuples(numbers))),
)
facts = st.one_of(
    st.builds(Determinant, st.sampled_from("pq"), numbers, st.none(), numbers),
    st.builds(StepDigest, st.sampled_from("pq"), numbers, st.just("digest")),
    st.builds(LoggedMessage, st.sampled_from(["p>q", "q>out"]), numbers, numbers),
    st.builds(Checkpoint, st.sampled_from("pq"), st.tuples(numbers), numbers),
    cuts,
    st.builds(
        GarbageCollection,
        *[st.dictionaries(st.sampled_from("pq"), st.tuples(numbers))] * 2,
        st.dictionaries(st.sampled_from(["p>q", "q>out"]), st.tuples(numbers)),
    ),
)


@given(st.lists(facts, max_size=30))
def test_facts_that_hold_can_be_written_in_place_of_all_before(said):
    standing = LiveRecords.of(said)
    again = LiveRecords.of(standing.facts())
    assert list(again.facts()) == list(standing.facts())


@given(st.lists(facts, max_size=20), cuts)
def test_a_cut_leaves_what_holds(said, cut):
    before = list(LiveRecords.of(said).facts())
    after = list(LiveRecords.of([*said, cut]).facts())
    assert after == [left for fact in before if (left := left_of(fact, cut)) is not None]


def test_a_loop_that_ended_within_a_frontier_stays():
    cut = Truncation({"p": ((1, LAST),)}, {})
    assert survives(LoopEnd("p", (1, 3)), cut)
    assert not survives(LoopEnd("p", (2, 0)), cut)
    assert survives(LoopEnd("q", (2, 0)), cut)
    assert not survives(LoopEnd("p", (1, 3)), Truncation({"p": ((1, 3),)}, {})), (
        "a last iteration says more than that the iteration was"
    )


def test_of_a_loop_that_ended_beyond_a_frontier_it_is_known_that_nothing_came_within():
    cut = Truncation({"p": ((5, 0),)}, {})
    assert left_of(LoopEnd("p", (5, -1)), cut) == LoopEnd("p", (5, -1), (5, 0))
    assert left_of(LoopEnd("p", (5, 0)), cut) is None
    standing = LiveRecords.of([LoopEnd("p", (5, -1)), cut])
    assert list(standing.facts()) == [LoopEnd("p", (5, -1), (5, 0))]
    standing.apply(GarbageCollection({}, {"p": ((5, 0),)}, {}))
    assert "p" not in standing.ended


def test_of_what_is_collected_the_last_choice_and_the_last_state_stay():
    said = [Determinant("in", t, None, {"end": t}) for t in range(5)]
    said += [Checkpoint("p", (t,), f"state {t}") for t in (1, 3)] + [LoggedMessage("p>out", t, "m") for t in range(5)]
    said += [
        LoggedInput("h", 0, (0,), (("in>h", 0, "m"),), None),
        GarbageCollection({"p": (3,), "h": (3,)}, {"in": (3,)}, {"p>out": (2,)}),
    ]
    standing = LiveRecords.of(said)
    assert list(standing.determinants["in"]) == [3, 4]
    assert list(standing.states["p"]) == [(3,)]
    assert list(standing.sent["p>out"]) == [3, 4]
    assert list(standing.taken["h"]) == [0], "inputs that replace a state are never collected"


def test_the_checkpoint_to_restore_is_the_largest_within_the_frontier():
    points = [(("x>p", 1),), (("x>p", 1), ("y>p", 2)), (("x>p", 4), ("y>p", 2))]
    live = LiveRecords.of([Checkpoint("p", point, f"after {point}") for point in [points[1], points[2], points[0]]])
    for at, point in enumerate(points):
        found = live.checkpoint_within("p", read_frontier(point))
        assert found is not None
        assert found.frontier == points[at]
    found = live.checkpoint_within("p", read_frontier((("x>p", 3), ("y>p", 7))))
    assert found is not None
    assert found.frontier == points[1], "the next one took a message of x>p that is beyond"
    assert live.checkpoint_within("p", read_frontier((("y>p", 7),))) is None
    assert live.checkpoint_within("q", Frontier.everything()) is None


def test_a_truncation_of_an_arrival_order_keeps_the_events_of_the_prefix():
    prefix = (("x>p", 1), ("y>p", 0))
    said = [Determinant("p", event, "x>p", None) for event in range(5)]
    said += [StepDigest("p", event, "digest") for event in range(5)]
    said += [LoggedMessage("p>out", time, "m") for time in [("x>p", 1), ("x>p", 2), ("y>p", 0), ("y>p", 1)]]
    live = LiveRecords.of([*said, Truncation({"p": prefix}, {"p>out": prefix})])
    assert list(live.determinants["p"]) == list(live.results["p"]) == [0, 1, 2]
    assert list(live.sent["p>out"]) == [("x>p", 1), ("y>p", 0)]


@settings(max_examples=20)
@given(st.lists(facts, min_size=1, max_size=10))
def test_the_log_brings_facts_back(said):
    store = Disk()
    log = claimed(store)
    for fact in said:
        log.append([fact])
    assert list(Log.open(store, "flow").history.live_records.facts()) == list(LiveRecords.of(said).facts())
    log.checkpoint()
    log.truncate()
    assert Log.open(store, "flow").history.live_records == LiveRecords.of(said)
