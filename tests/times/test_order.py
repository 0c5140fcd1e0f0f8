"""The laws of orders: what was taken when, of several inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.times import ArrivalOrder, Frontier, Sequence

DOMAIN = Sequence(("a", "b", "c"))
orders = st.lists(st.sampled_from(DOMAIN.edges), max_size=12)
counts = st.fixed_dictionaries({edge: st.integers(-1, 6) for edge in DOMAIN.edges})


def frontier(numbers):
    return Frontier(DOMAIN, [(edge, n) for edge, n in numbers.items() if n >= 0])


@given(orders)
def test_an_event_takes_the_next_message_of_its_edge(taken):
    order = ArrivalOrder(DOMAIN)
    times = [order.take(edge) for edge in taken]
    assert times == [(edge, taken[:at].count(edge)) for at, edge in enumerate(taken)]
    assert [order.event(time) for time in times] == list(range(len(taken)))
    assert [order.at(event) for event in range(len(taken))] == times
    assert order.event(("a", taken.count("a"))) is None
    with pytest.raises(LookupError):
        order.at(len(taken))


@given(orders, counts)
def test_within_is_the_longest_prefix_in_a_frontier(taken, numbers):
    order, f = ArrivalOrder(DOMAIN, taken), frontier(numbers)
    lengths = [n for n in range(len(taken) + 1) if order.prefix(n) <= f]
    assert lengths == list(range(order.within(f) + 1))


@given(orders, st.integers(0, 12))
def test_a_prefix_holds_the_events_before_it_and_a_cut_forgets_the_others(taken, length):
    order = ArrivalOrder(DOMAIN, taken)
    prefix = order.prefix(length)
    for event in range(len(taken)):
        assert prefix.contains(order.at(event)) == (event < length)
    order.cut(length)
    assert len(order) == min(length, len(taken))
    assert order.prefix(99) == prefix


@given(orders, st.integers(0, 12), counts)
def test_an_order_whose_beginning_is_forgotten_says_the_same_of_the_rest(taken, length, numbers):
    whole, order, begun = ArrivalOrder(DOMAIN, taken), ArrivalOrder(DOMAIN, taken), ArrivalOrder(DOMAIN)
    order.forget(length)
    start = min(length, len(taken))
    begun.begin_after(whole.prefix(start))
    for edge in taken[start:]:
        begun.take(edge)
    for less in (order, begun):
        assert (less.start, len(less)) == (start, len(taken))
        assert [less.prefix(n) for n in range(start, len(taken) + 1)] == [
            whole.prefix(n) for n in range(start, len(taken) + 1)
        ]
        assert [less.at(n) for n in range(start, len(taken))] == [whole.at(n) for n in range(start, len(taken))]
        assert [less.event(whole.at(n)) for n in range(start, len(taken))] == list(range(start, len(taken)))
        assert all(less.event(whole.at(n)) == start - 1 for n in range(start))
        f = frontier(numbers) | whole.prefix(start)
        assert less.within(f) == whole.within(f)
        if start:
            assert less.within(frontier(dict.fromkeys(DOMAIN.edges, -1))) == 0
            assert not less.prefix(start - 1)
