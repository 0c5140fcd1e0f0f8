"""A time set behaves as the set of its times."""

from hypothesis import given
from hypothesis import strategies as st

from boatlift.times import TimeSet

times = st.integers(0, 15)
sets = st.sets(times)


@given(st.lists(times))
def test_it_holds_what_was_added(added):
    assert list(TimeSet(added)) == sorted(set(added))
    assert all((t in TimeSet(added)) == (t in added) for t in range(-1, 17))
    assert bool(TimeSet(added)) == bool(added)
    assert TimeSet(added).last == max(added, default=-1)


@given(sets, sets)
def test_equality_union_and_intersection_are_those_of_sets(a, b):
    assert TimeSet(a) | TimeSet(b) == TimeSet(a | b)
    assert TimeSet(a) & TimeSet(b) == TimeSet(a & b)
    assert (TimeSet(a) == TimeSet(b)) == (a == b)
    assert TimeSet(a) != a


@given(sets, times, times)
def test_keep_drops_what_is_outside(a, first, last):
    kept = TimeSet(a)
    kept.keep(first, last)
    assert set(kept) == {t for t in a if first <= t <= last}
    kept.add(first)
    assert set(kept) == {t for t in a if first <= t <= last} | {first}


@given(sets, st.integers(-1, 16))
def test_reach_and_start_go_to_the_ends_of_a_stretch(a, time):
    reach = time - 1
    while reach + 1 in a:
        reach += 1
    start = time + 1
    while start - 1 in a:
        start -= 1
    assert (TimeSet(a).reach(time), TimeSet(a).start(time)) == (reach, start)


def test_a_copy_is_a_copy():
    original = TimeSet({1, 2})
    (original | ()).add(3)
    assert original == TimeSet({1, 2})


def test_it_is_reported_in_stretches():
    assert repr(TimeSet({1, 2, 3, 7})) == "{1…3, 7}"
