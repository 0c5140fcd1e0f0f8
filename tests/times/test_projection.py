"""The laws of projections, for every one that is built in; and the checker, which must find each fault."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import InvalidError
from boatlift.times import (
    EPOCH,
    IDENTITY,
    LAST,
    ArrivalOrder,
    Coarse,
    Enter,
    EpochBoundaries,
    Feedback,
    Fine,
    FromSequence,
    Frontier,
    Leave,
    Loop,
    LoopFrontier,
    Sequence,
    Then,
    ToSequence,
    all_times,
    check_projection,
    last_of,
)

EDGES = Sequence(("a", "b"))
ITERATIONS = list(itertools.product(range(3), range(3)))
NESTED = list(itertools.product(range(2), range(2), range(2)))
cuts = st.lists(st.integers(0, 12), unique=True, max_size=5).map(sorted).map(EpochBoundaries)


def up_to(n):
    return Frontier.up_to(n)


@pytest.mark.parametrize(
    ("projection", "domain", "times"),
    [
        (IDENTITY, EPOCH, range(6)),
        (IDENTITY, EDGES, list(itertools.product("ab", range(3)))),
        (Enter(Loop(1)), EPOCH, range(6)),
        (Enter(Loop(2)), Loop(1), ITERATIONS),
        (Feedback(Loop(1)), Loop(1), ITERATIONS),
        (Feedback(Loop(2)), Loop(2), NESTED),
        (Leave(Loop(1)), Loop(1), ITERATIONS),
        (Leave(Loop(2)), Loop(2), NESTED),
        (Then(Enter(Loop(1)), Feedback(Loop(1))), EPOCH, range(5)),
        (ToSequence(EDGES, "a"), EPOCH, range(6)),
    ],
    ids=str,
)
def test_built_in_projections_keep_the_laws(projection, domain, times):
    check_projection(projection, domain, times)


@given(cuts)
def test_coarse_and_fine_keep_the_laws_wherever_epochs_are_cut(made):
    check_projection(Coarse(made), EPOCH, range(14))
    # The epochs beyond the last cut are open: nothing is known of their ends.
    check_projection(Fine(made), EPOCH, range(len(made)))


@given(cuts, st.integers(0, 6))
def test_coarse_and_fine_keep_the_laws_when_the_beginning_is_forgotten(made, count):
    made.forget(count)
    assert made.start == min(count, len(made)), "no more than that is held"
    check_projection(Coarse(made), EPOCH, range(14))
    check_projection(Fine(made), EPOCH, range(len(made)))


@given(cuts, st.integers(0, 6), st.integers(0, 6), st.integers(13, 20))
def test_what_is_forgotten_changes_nothing_after_it(whole, count, length, more):
    less, begun = EpochBoundaries(whole.ends), EpochBoundaries()
    less.forget(count)
    start = less.start
    if start:
        begun.begin_after(start - 1, whole.end(start - 1))
    for number in range(start, len(whole)):
        begun.add(whole.end(number))
    for made in (whole, less, begun):
        made.cut(max(length, start))
        assert made.add(more) == len(made) - 1
    for made in (less, begun):
        for last in [*range(whole.end(start - 1), 22), LAST]:
            assert Coarse(made)(up_to(last)) == Coarse(whole)(up_to(last))
            assert Coarse(made).sent(up_to(last)) == Coarse(whole).sent(up_to(last))
            assert Fine(made).within(up_to(last)) == Fine(whole).within(up_to(last))
        for last in [*range(start - 1, len(whole) + 1), LAST]:
            assert Fine(made)(up_to(last)) == Fine(whole)(up_to(last))
            assert Fine(made).sent(up_to(last)) == Fine(whole).sent(up_to(last))
            assert Coarse(made).within(up_to(last)) == Coarse(whole).within(up_to(last))
            assert Fine(made).arrives(last) == Fine(whole).arrives(last)


@given(cuts, st.integers(1, 6))
def test_of_what_is_forgotten_everything_counts_as_the_last_of_it(made, count):
    made.forget(count)
    for time in range(made.begin + 1):
        assert Coarse(made).arrives(time) == made.start - 1
        assert last_of(Coarse(made)(up_to(time))) == (made.start - 1 if time == made.begin else -1)
    for number in range(made.start):
        assert Fine(made).arrives(number) == made.begin
        assert last_of(Fine(made)(up_to(number))) == (made.begin if number == made.start - 1 else -1)


@given(st.lists(st.sampled_from("ab"), max_size=6))
def test_a_sequence_keeps_the_laws_whatever_the_order_taken(taken):
    order = ArrivalOrder(EDGES, taken)
    times = [order.at(event) for event in range(len(taken))]
    check_projection(FromSequence(order), EDGES, times)
    check_projection(Then(FromSequence(order), ToSequence(EDGES, "b")), EDGES, times)


@given(cuts, st.integers(-1, 13), st.integers(0, 12))
def test_answers_of_coarse_stay_true_when_more_is_cut(made, last, more):
    before = Coarse(made)(up_to(last))
    if more > made.end(len(made) - 1):
        made.add(more)
    assert before <= Coarse(made)(up_to(last))


def test_where_coarse_epochs_end():
    made = EpochBoundaries([2, 5])
    assert [last_of(Coarse(made)(up_to(t))) for t in range(-1, 8)] == [-1, -1, -1, 0, 0, 0, 1, 1, 1]
    assert [Coarse(made).arrives(t) for t in range(8)] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert [last_of(Fine(made)(up_to(k))) for k in range(-1, 3)] == [-1, 2, 5, 5]
    assert [Fine(made).arrives(k) for k in range(3)] == [2, 5, None]
    assert made.add(6) == 2
    with pytest.raises(ValueError, match="coarse epoch 3 cannot end at 6"):
        made.add(6)
    made.cut(1)
    assert made.ends == [2]


def test_figure_2c_a_message_enters_a_loop_with_all_its_rounds_fixed():
    loop = Loop(1)
    assert Enter(loop)(up_to(3)) == LoopFrontier(loop, (3, LAST))
    assert Leave(loop)(LoopFrontier(loop, (3, 7))) == up_to(2)
    assert Leave(loop)(LoopFrontier(loop, (3, LAST))) == up_to(3)
    assert Feedback(loop)(LoopFrontier(loop)) == LoopFrontier(loop, (0, 0))
    assert Feedback(loop)(LoopFrontier(loop, (3, 7))) == LoopFrontier(loop, (3, 8))
    assert Feedback(loop)(LoopFrontier(loop, (3, LAST))) == LoopFrontier(loop, (4, 0))


def test_figure_2a_a_sequence_is_fixed_as_far_as_it_was_sent():
    f = ToSequence(EDGES, "a")(up_to(2))
    assert f.contains(("a", 2))
    assert not f.contains(("a", 3))
    assert f.contains(("b", 99)), "nothing of another edge is ever sent on this one"
    assert all_times(EDGES) == ToSequence(EDGES, "a")(Frontier.everything())


class Shifted:
    """Messages have the time of their event plus one; each fault is one way to get that wrong."""

    def __init__(self, fault):
        self.fault = fault

    def __call__(self, f):
        if self.fault == "everything" and f == Frontier.everything():
            return up_to(3)
        if f == Frontier.everything():
            return f
        if self.fault == "monotone" and last_of(f) == 2:
            return up_to(0)
        return up_to(last_of(f) + (2 if self.fault == "promise" else 1))

    def arrives(self, t):
        return t + 1

    def sent(self, f):
        if f == Frontier.everything() or not f:
            return f
        return up_to(last_of(f) + (0 if self.fault == "sent" else 1))

    def within(self, h):
        if h == Frontier.everything():
            return h
        return up_to(max(-1, last_of(h) - (2 if self.fault == "within" else 1)))

    def __repr__(self):
        return "Shifted"


def test_a_projection_of_ones_own_that_keeps_the_laws_passes():
    check_projection(Shifted(""), EPOCH, range(8))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("monotone", r"is not monotone: 0…0 is within 0…2, but φ of it is 0…1, not within 0…0"),
        ("promise", r"promises φ\(∅\) = 0…1, but the event at 0, outside, sends 1, within"),
        ("sent", r"sends 1 at 0, which sent\(0…0\) = 0…0 does not contain"),
        ("within", r"and within\(0…1\) = ∅"),
        ("everything", r"but φ of everything, 0…3, lacks it"),
    ],
)
def test_the_checker_finds_each_broken_law(fault, said):
    with pytest.raises(InvalidError, match=r"\[BAD_PROJECTION\] Shifted .*" + said):
        check_projection(Shifted(fault), EPOCH, range(8))
