"""Written times and frontiers: a reader without the program finds the same domain, the same times, the same order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.times import (
    EPOCH,
    LAST,
    ArrivalOrder,
    Frontier,
    Loop,
    Sequence,
    contains_event,
    domain_of,
    frontier_of,
    is_end,
    last_epoch,
    last_number,
    maximal_of,
    read_frontier,
)

EDGES = ("x>p", "y>p")
numbers = st.integers(0, 5)
times = {
    "epochs": (EPOCH, numbers),
    "sequence": (Sequence(EDGES), st.tuples(st.sampled_from(EDGES), numbers)),
    "loop": (Loop(1), st.tuples(numbers, st.sampled_from([0, 1, 2, LAST]))),
    "nested": (Loop(2), st.tuples(numbers, numbers, st.sampled_from([0, 1, LAST]))),
}


@given(st.sampled_from(sorted(times)), st.data())
def test_what_is_written_of_a_frontier_contains_what_it_contains(kind, data):
    domain, each = times[kind]
    frontier = frontier_of(domain, data.draw(st.lists(each, max_size=3)))
    time = data.draw(each)
    read = read_frontier(maximal_of(frontier))
    assert read.contains(time) == contains_event(read, time) == frontier.contains(time)
    assert maximal_of(read) == maximal_of(frontier)
    assert frontier_of(domain, maximal_of(frontier)) == frontier


@given(st.sampled_from(sorted(times)), st.data())
def test_written_frontiers_are_within_each_other_as_they_were(kind, data):
    domain, each = times[kind]
    one, other = (frontier_of(domain, data.draw(st.lists(each, max_size=3))) for _ in range(2))
    read_one, read_other = read_frontier(maximal_of(one)), read_frontier(maximal_of(other))
    assert (read_one <= read_other) == (one <= other)
    assert (read_one <= other) == (one <= other)
    assert (one <= read_other) == (one <= other)


@given(st.lists(st.sampled_from(EDGES), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_an_event_is_within_a_prefix_that_is_longer(taken, length, event):
    order = ArrivalOrder(Sequence(EDGES), taken)
    length = min(length, len(order))
    written = maximal_of(order.prefix(length))
    assert contains_event(read_frontier(written), event) == (event < length)
    assert last_number(written) == length - 1


@pytest.mark.parametrize("kind", sorted(times))
def test_the_empty_frontier_is_within_all_and_contains_nothing(kind):
    domain, _ = times[kind]
    empty = read_frontier(())
    assert not empty
    assert empty <= frontier_of(domain)
    assert frontier_of(domain) <= empty
    assert not frontier_of(domain, domain.greatest()) <= empty
    assert not any(empty.contains(time) for time in domain.greatest())


def test_a_time_shows_its_domain():
    assert domain_of(0) == domain_of(LAST) == EPOCH
    assert domain_of(("x>p", 0)) == domain_of(("y>p", 5))
    assert isinstance(domain_of(("x>p", 0)), Sequence)
    assert domain_of((0, -1)) == Loop(1)
    assert domain_of((0, 1, LAST)) == Loop(2)
    for strange in (-1, LAST + 1, (), (1,), ("x",), ("x", -1), ("x", 1, 2), (0, -2), (0, "x")):
        assert domain_of(strange) is None, strange


@pytest.mark.parametrize("times", [(-1,), (0, ("x", 1)), (("x", 1), (0, 1)), ((0, 1), (0, 1, 2))])
def test_times_of_no_domain_or_of_several_are_no_frontier(times):
    with pytest.raises(ValueError, match="is no frontier"):
        read_frontier(times)


def test_an_end_covers_all_epochs_or_all_deliveries_of_an_edge():
    assert is_end(LAST)
    assert is_end(("x", LAST))
    assert not is_end(LAST - 1)
    assert not is_end((0, LAST)), "the end of the iterations of one epoch is a time like others"


def test_the_number_of_the_last_step():
    assert last_number(()) == last_epoch(()) == last_epoch([(0, 1)]) == -1
    assert last_number((7,)) == last_epoch([3, 7, 5]) == 7
    assert last_number((("x>p", 1), ("y>p", 0))) == 2
    assert last_number(((4, 0),)) == -1, "iterations have no number"
    assert Frontier.up_to(4) == read_frontier((4,))
