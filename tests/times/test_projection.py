"""The laws of projections."""

from hypothesis import given
from hypothesis import strategies as st

from boatlift.times import IDENTITY, Frontier

epochs = st.integers(-1, 9).map(Frontier.up_to)


@given(epochs, epochs)
def test_the_identity_is_monotone(f, g):
    assert not f <= g or IDENTITY(f) <= IDENTITY(g)


@given(st.sets(st.integers(0, 9)), epochs)
def test_the_identity_keeps_its_promise_where_a_message_has_the_time_of_its_event(events, f):
    sent = {t for t in events if not f.contains(t)}
    assert not any(IDENTITY(f).contains(t) for t in sent)


def test_nothing_is_fixed_by_the_empty_frontier():
    assert IDENTITY(Frontier.up_to(-1)) == Frontier.up_to(-1)
