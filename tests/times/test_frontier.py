"""The laws of domains and frontiers, in the epoch domain and in one that is only partially ordered."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.times import (
    EPOCH,
    LAST,
    NO_ITERATION,
    EpochFrontier,
    Frontier,
    Loop,
    LoopFrontier,
    LoopTimes,
    Sequence,
    SequenceTimes,
    TimeSet,
    all_times,
    end_of,
    frontier_of,
    last_of,
)


class Grid:
    """Pairs, ordered in both parts: a partial order, to see that nothing depends on times being in a row."""

    def leq(self, a, b):
        return a[0] <= b[0] and a[1] <= b[1]

    def meet(self, a, b):
        return (min(a[0], b[0]), min(a[1], b[1]))

    def below(self, time):
        x, y = time
        return tuple(t for t in ((x - 1, y), (x, y - 1)) if min(t) >= 0)


EDGES = Sequence(("d", "e"))

DOMAINS = {
    EPOCH: list(range(6)),
    Grid(): list(itertools.product(range(4), range(4))),
    EDGES: list(itertools.product("de", range(4))),
    Loop(1): list(itertools.product(range(3), (0, 1, 2, LAST))),
    Loop(2): [
        *itertools.product(range(2), (0, 1), (0, 1, LAST)),
        *((epoch, LAST, LAST) for epoch in range(2)),
    ],
}
domains = st.sampled_from(list(DOMAINS))
epochs = st.integers(-1, 12).map(Frontier.up_to)


@st.composite
def frontiers(draw, number):
    domain = draw(domains)
    sets = [draw(st.sets(st.sampled_from(DOMAINS[domain]), max_size=5)) for _ in range(number)]
    return domain, *(frontier_of(domain, s) if draw(st.booleans()) else Frontier(domain, s) for s in sets)


def is_event(time):
    """Whether an event can have the time: the end of a loop's iterations is no event's time."""
    return not isinstance(time, tuple) or time[-1] != LAST


def members(frontier):
    return {t for t in DOMAINS[frontier.domain] if frontier.contains(t)}


@given(domains.flatmap(lambda d: st.tuples(st.just(d), *[st.sampled_from(DOMAINS[d])] * 3)))
def test_domains_keep_their_laws(drawn):
    domain, a, b, c = drawn
    assert domain.leq(a, a)
    assert not (domain.leq(a, b) and domain.leq(b, a)) or a == b
    assert not (domain.leq(a, b) and domain.leq(b, c)) or domain.leq(a, c)
    meet = domain.meet(a, b)
    assert (domain.leq(c, a) and domain.leq(c, b)) == (meet is not None and domain.leq(c, meet))
    if is_event(a):
        assert (domain.leq(c, a) and c != a) == any(domain.leq(c, x) for x in domain.below(a))
    assert any(domain.leq(a, g) for g in getattr(domain, "greatest", lambda: [a])())


@given(frontiers(1))
def test_a_frontier_is_downward_closed(drawn):
    domain, f = drawn
    assert all(b in members(f) for t in members(f) if is_event(t) for b in domain.below(t))
    assert f.maximal <= members(f)
    assert not any(domain.leq(a, b) for a, b in itertools.permutations(f.maximal, 2))
    assert bool(f) == bool(members(f))


@given(frontiers(2))
def test_subset_union_and_intersection_are_those_of_sets(drawn):
    _, f, g = drawn
    assert (f <= g) == (members(f) <= members(g))
    assert members(f | g) == members(f) | members(g)
    assert members(f & g) == members(f) & members(g)
    assert (f == g) == (members(f) == members(g))
    assert f != g or f.__hash__() == g.__hash__()


@given(frontiers(1), st.data())
def test_extend_goes_on_until_a_time_is_missing(drawn, data):
    domain, f = drawn
    times = data.draw(st.sets(st.sampled_from([t for t in DOMAINS[domain] if is_event(t)])))
    grown = f.extend(times)
    assert f <= grown
    assert members(grown) <= members(f) | times
    for t in times - members(grown):
        assert any(b not in members(grown) for b in domain.below(t)), "one more could be taken"


@given(frontiers(1), st.data())
def test_without_is_the_smallest_frontier_of_the_rest(drawn, data):
    domain, f = drawn
    times = data.draw(st.sets(st.sampled_from([t for t in DOMAINS[domain] if is_event(t)])))
    assert f.without(times) == Frontier(domain, members(f) - times)


@given(epochs, epochs, st.sets(st.integers(0, 12)))
def test_epoch_frontiers_are_the_general_ones(f, g, times):
    general_f, general_g = Frontier(EPOCH, f.maximal), Frontier(EPOCH, g.maximal)
    assert f == general_f
    assert general_f == f
    assert f.__hash__() == general_f.__hash__()
    assert (f <= g, f <= general_g) == (general_f <= general_g, general_f <= g)
    assert (f | g, f & g) == (general_f | general_g, general_f & general_g)
    assert f | general_g == general_f | g
    assert [f.contains(t) for t in range(14)] == [general_f.contains(t) for t in range(14)]
    assert f.extend(times) == f.extend(TimeSet(times)) == general_f.extend(times)
    assert f.without(times) == f.without(TimeSet(times)) == general_f.without(times)
    assert last_of(f) == last_of(general_f) == f.last
    assert bool(f) == bool(general_f) == (f.last >= 0)


@given(epochs)
def test_everything_is_the_intersection_of_no_frontiers(f):
    assert f <= Frontier.everything()
    assert f & Frontier.everything() == f
    assert f | Frontier.everything() == Frontier.everything()


def test_how_frontiers_are_shown():
    assert [repr(Frontier.up_to(n)) for n in (-1, 0, 7)] == ["∅", "0…0", "0…7"]
    assert repr(Frontier.everything()) == "⊤"
    assert repr(Frontier(EDGES, [("d", 1), ("e", 2)])) == "↓{('d', 1), ('e', 2)}"


def test_no_epoch_is_before_0():
    with pytest.raises(ValueError, match="at least -1"):
        Frontier.up_to(-2)


def test_a_frontier_of_another_domain_has_no_last_epoch():
    with pytest.raises(TypeError):
        last_of(Frontier(EDGES, [("d", 1)]))
    assert isinstance(Frontier.up_to(3), EpochFrontier)


# -- loops: what only `LoopTimes` knows -------------------------------------------------------------------------------

LOOP = Loop(1)
loop_frontiers = st.sampled_from([None, *DOMAINS[LOOP]]).map(lambda last: LoopFrontier(LOOP, last))


@st.composite
def loop_runs(draw):
    """Epochs with a number of iterations each; some of the times are recorded."""
    counts = draw(st.lists(st.integers(1, 3), max_size=3))
    ran = [(epoch, i) for epoch, count in enumerate(counts) for i in range(count)]
    kept = draw(st.sets(st.sampled_from(ran))) if ran else set()
    times = LoopTimes(1, kept)
    for epoch, count in enumerate(counts):
        if draw(st.booleans()):
            times.end((epoch, count - 1))
    return ran, kept, times


@given(loop_runs(), st.data())
def test_a_loop_goes_on_to_the_next_epoch_only_behind_a_last_round(made, data):
    ran, kept, times = made
    last = data.draw(st.sampled_from([None, *ran]))
    f = LoopFrontier(LOOP, last)
    grown = f.extend(times)
    assert f <= grown
    # One after the other, by the book.
    at = last
    for time in ran[0 if last is None else ran.index(last) + 1 :]:
        if at is not None and time[0] > at[0] and times.last_iteration((at[0],)) != at[1]:
            break
        if time not in kept:
            break
        at = time
    ends = at is not None and times.last_iteration((at[0],)) == at[1]
    assert grown.last == ((at[0], LAST) if ends else at)


@given(loop_runs(), loop_frontiers, loop_frontiers)
def test_what_a_loop_has_not_logged_is_within_exactly_when_it_is_within_what_extends(made, f, h):
    """sent(f without L) ⊆ h exactly when f ⊆ h extended by L: the closed form that the solver uses."""
    ran, _, times = made
    # Possible frontiers only: of iterations that ran, and of known ends.
    known_ends = [(epoch, LAST) for epoch in range(3) if times.last_iteration((epoch,)) is not None]
    if all(g.last in {None, *ran, *known_ends} for g in (f, h)):
        assert (f.without(times) <= h) == (f <= h.extend(times))


@given(loop_runs(), loop_frontiers, loop_frontiers)
def test_a_larger_frontier_of_a_loop_goes_on_at_least_as_far(made, f, g):
    _, _, times = made
    if f <= g:
        assert f.extend(times) <= g.extend(times)


def test_the_rounds_of_nested_loops_end_from_within():
    times = LoopTimes(2, [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)])
    empty = LoopFrontier(Loop(2))
    assert empty.extend(times).last == (0, 0, 1)
    times.end((0, 0, 1))
    assert empty.extend(times).last == (0, 1, 0)
    times.end((0, 1, 0))
    assert empty.extend(times).last == (0, 1, LAST)
    times.end((0, 1))
    assert empty.extend(times).last == (1, 0, 0)
    assert end_of((0,), 2) == (0, LAST, LAST)
    assert LoopFrontier(Loop(2), end_of((0,), 2)).without(times).last is None


def test_right_below_the_end_of_rounds_there_is_nothing():
    with pytest.raises(ValueError, match="no time comes right before"):
        LOOP.below((0, LAST))


@given(frontiers(1))
def test_all_times_are_those_of_every_frontier(drawn):
    domain, f = drawn
    if isinstance(domain, Grid):
        return
    everything = all_times(domain)
    assert f <= everything
    assert (f & everything, f | everything) == (f, everything)


def test_what_is_known_of_both_has_the_ends_known_of_both():
    """Of messages on two edges: an end that is logged on one of them is not logged on both."""
    one, two = LoopTimes(1, [(0, 0), (1, 0)]), LoopTimes(1, [(0, 0)])
    one.end((0, 0))
    both, either = one & two, one | two
    assert (list(both), both.last_iteration((0,))) == ([(0, 0)], None)
    assert (list(either), either.last_iteration((0,))) == ([(0, 0), (1, 0)], 0)
    two.end((0, 0))
    assert (one & two).last_iteration((0,)) == 0


def test_times_of_loops_are_dropped_by_frontiers_with_their_ends():
    loop = Loop(1)
    times = LoopTimes(1, [(0, 0), (0, 1), (1, 0)])
    times.end((0, 1))
    times.end((1, 0))
    times.cut(frontier_of(loop, [(1, 0)]))
    assert (list(times), times.last_iteration((0,)), times.last_iteration((1,))) == ([(0, 0), (0, 1), (1, 0)], 1, None)
    times.forget(frontier_of(loop, [(0, 0)]))
    assert (list(times), times.last_iteration((0,))) == ([(0, 1), (1, 0)], 1)
    times.forget(frontier_of(loop, [end_of((0,), 1)]))
    assert (list(times), times.last_iteration((0,))) == ([(1, 0)], None)


def test_times_of_sequences_are_a_set_that_frontiers_cut():
    domain = Sequence(("a", "b"))
    times = SequenceTimes([("a", 0), ("a", 1), ("b", 4)])
    assert ("a", 1) in times
    assert ("b", 0) not in times
    assert set(times | {("b", 5)}) == {("a", 0), ("a", 1), ("b", 4), ("b", 5)}
    assert times & SequenceTimes([("a", 1), ("b", 3)]) == SequenceTimes([("a", 1)])
    times.forget(frontier_of(domain, [("a", 0)]))
    assert list(times) == [("a", 1), ("b", 4)]
    times.cut(frontier_of(domain, [("a", 3)]))
    assert list(times) == [("a", 1)]
    times.cut(frontier_of(domain))
    assert not times


def test_an_epoch_that_nothing_entered_is_over():
    times = LoopTimes(1, [(1, 0)])
    empty = LoopFrontier(LOOP)
    assert empty.extend(times) == empty
    times.end((0, NO_ITERATION))
    assert empty.extend(times).last == (1, 0)
    times.end((1, 0))
    times.end((2, NO_ITERATION))
    assert empty.extend(times).last == (2, LAST)
    assert not LoopFrontier(LOOP, (2, LAST)).without(times), "nothing is left of what is all there"
    nested = LoopTimes(2, [(0, 1, 0)])
    nested.end((0, 0, NO_ITERATION))
    nested.end((0, 1, 0))
    nested.end((0, 1))
    nested.end((1, NO_ITERATION))
    assert LoopFrontier(Loop(2)).extend(nested).last == (1, LAST, LAST)
