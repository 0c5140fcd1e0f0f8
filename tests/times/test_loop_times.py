"""What is known of loops that have ended, and what is left of it when it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from boatlift.times import LAST, NO_ITERATION, Loop, LoopFrontier, LoopTimes, silence

iterations = st.integers(0, 3)


@st.composite
def ended(draw):
    """A loop within up to two others that ended after an iteration, and a time before its end."""
    depth = draw(st.integers(1, 3))
    level = draw(st.integers(1, depth))
    outer = tuple(draw(iterations) for _ in range(level))
    n = draw(st.integers(NO_ITERATION, 2))
    through = n + 1 + draw(iterations)
    inner = [draw(st.one_of(iterations, st.just(LAST))) for _ in range(depth - level)]
    at = next((at for at, number in enumerate(inner) if number == LAST), len(inner))
    inner[at:] = [LAST] * (len(inner) - at)
    return Loop(depth), (*outer, n), (*outer, through, *inner)


def before(domain, last):
    """The frontier that ends with an iteration, and all within."""
    *outer, n = last
    if n == NO_ITERATION:
        (below,) = domain.below((*outer, *(0 for _ in range(domain.depth + 1 - len(outer))))) or (None,)
        return LoopFrontier(domain, below)
    return LoopFrontier(domain, (*last, *(LAST for _ in range(domain.depth + 1 - len(last)))))


@given(ended())
def test_a_cut_leaves_that_there_was_nothing_up_to_it(case):
    domain, last, limit = case
    times = LoopTimes(domain.depth)
    times.end(last)
    times.cut(LoopFrontier(domain, limit))
    assert before(domain, last).extend(times) == LoopFrontier(domain, limit)


@given(ended())
def test_what_is_left_goes_no_further(case):
    _, last, limit = case
    ends, times = silence(last, limit)
    assert all(last < time <= limit for time in times)
    assert all(last < end < limit for end in ends)


def test_a_loop_that_nothing_entered():
    """The frontier is within its first iteration, because its input goes no further."""
    times = LoopTimes(1)
    times.end((5, NO_ITERATION))
    times.cut(LoopFrontier(Loop(), (5, 0)))
    assert list(times) == [(5, 0)]
    assert times.last_iteration((5,)) is None
