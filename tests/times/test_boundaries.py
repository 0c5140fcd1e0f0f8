"""The ends of gathered epochs: of each edge a record of coarse epochs, which may take nothing from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.times import EPOCH, Coarse, Frontier, GatheredBoundaries, check_projection

growth = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)).filter(any), max_size=4)


def gathered(growths, begin=(-1, -1)):
    made = GatheredBoundaries(("b", "a"))
    last = begin
    for by in growths:
        last = (last[0] + by[0], last[1] + by[1])
        made.add((("a", last[0]), ("b", last[1])))
    return made


@given(growth)
def test_the_projection_of_each_edge_keeps_the_laws_also_where_an_epoch_takes_nothing_from_it(growths):
    made = gathered(growths)
    assert len(made) == len(growths)
    for edge in "ab":
        check_projection(Coarse(made.of[edge]), EPOCH, range(10))


@given(growth, st.integers(0, 7), st.integers(-1, 20))
def test_what_is_forgotten_changes_nothing_after_it(growths, count, last):
    made, whole = gathered(growths), gathered(growths)
    made.forget(count)
    for edge in "ab":
        check_projection(Coarse(made.of[edge]), EPOCH, range(10))
        if last > made.of[edge].begin:
            asked = Frontier.up_to(last)
            assert Coarse(made.of[edge])(asked) == Coarse(whole.of[edge])(asked)
            assert Coarse(made.of[edge]).arrives(last) == Coarse(whole.of[edge]).arrives(last)
    assert [made.end(n) for n in range(min(count, len(whole)), len(whole))] == [
        whole.end(n) for n in range(min(count, len(whole)), len(whole))
    ]


@given(growth, st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any), st.integers(-1, 20))
def test_answers_stay_true_when_an_epoch_is_added(growths, more, last):
    made = gathered(growths)
    before = {edge: Coarse(made.of[edge])(Frontier.up_to(last)) for edge in "ab"}
    ends = dict(made.end(len(made) - 1))
    made.add((("a", ends["a"] + more[0]), ("b", ends["b"] + more[1])))
    assert all(before[edge] <= Coarse(made.of[edge])(Frontier.up_to(last)) for edge in "ab")


def test_an_epoch_that_follows_the_last_one_known_is_added_after_it():
    made = GatheredBoundaries(("a", "b"))
    made.begin_after(6, (("a", 9), ("b", -1)))
    assert made.add((("a", 9), ("b", 0))) == 7
    assert made.end(6) == (("a", 9), ("b", -1))
    made.cut(7)
    assert len(made) == 7


@pytest.mark.parametrize(
    "ends",
    [
        (("a", 3), ("b", 1)),
        (("a", 2), ("b", 4)),
        (("a", 4),),
        (("a", 4), ("c", 4)),
        (("a", 4), ("b", "4")),
        7,
        None,
    ],
    ids=str,
)
def test_ends_that_no_execution_has_are_refused(ends):
    made = gathered([(4, 2)])
    with pytest.raises((ValueError, TypeError)):
        made.add(ends)
    assert made.end(0) == (("a", 3), ("b", 1))
    assert len(made) == 1
