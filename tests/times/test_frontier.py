"""The laws of domains and frontiers, in the epoch domain and in one that is only partially ordered."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.times import EPOCH, EpochFrontier, Frontier, TimeSet, last_of


class Grid:
    """Pairs, ordered in both parts: a partial order, to see that nothing depends on times being in a row."""

    def leq(self, a, b):
        return a[0] <= b[0] and a[1] <= b[1]

    def meet(self, a, b):
        return (min(a[0], b[0]), min(a[1], b[1]))

    def below(self, time):
        x, y = time
        return tuple(t for t in ((x - 1, y), (x, y - 1)) if min(t) >= 0)


class Edges:
    """(edge, number), where times on two edges are not ordered: seed 002, section 3.1."""

    def leq(self, a, b):
        return a[0] == b[0] and a[1] <= b[1]

    def meet(self, a, b):
        return min(a, b) if a[0] == b[0] else None

    def below(self, time):
        return ((time[0], time[1] - 1),) if time[1] > 0 else ()


DOMAINS = {
    EPOCH: list(range(6)),
    Grid(): list(itertools.product(range(4), range(4))),
    Edges(): list(itertools.product("de", range(4))),
}
domains = st.sampled_from(list(DOMAINS))
epochs = st.integers(-1, 12).map(Frontier.up_to)


@st.composite
def frontiers(draw, number):
    domain = draw(domains)
    sets = [draw(st.sets(st.sampled_from(DOMAINS[domain]), max_size=5)) for _ in range(number)]
    return domain, *(Frontier(domain, s) for s in sets)


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
    assert (domain.leq(c, a) and c != a) == any(domain.leq(c, x) for x in domain.below(a))


@given(frontiers(1))
def test_a_frontier_is_downward_closed(drawn):
    domain, f = drawn
    assert all(b in members(f) for t in members(f) for b in domain.below(t))
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
    times = data.draw(st.sets(st.sampled_from(DOMAINS[domain])))
    grown = f.extend(times)
    assert f <= grown
    assert members(grown) <= members(f) | times
    for t in times - members(grown):
        assert any(b not in members(grown) for b in domain.below(t)), "one more could be taken"


@given(frontiers(1), st.data())
def test_without_is_the_smallest_frontier_of_the_rest(drawn, data):
    domain, f = drawn
    times = data.draw(st.sets(st.sampled_from(DOMAINS[domain])))
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


def test_how_frontiers_are_told():
    assert [repr(Frontier.up_to(n)) for n in (-1, 0, 7)] == ["∅", "0…0", "0…7"]
    assert repr(Frontier.everything()) == "⊤"
    assert repr(Frontier(Edges(), [("d", 1), ("e", 2)])) == "↓{('d', 1), ('e', 2)}"


def test_no_epoch_is_before_0():
    with pytest.raises(ValueError, match="at least -1"):
        Frontier.up_to(-2)


def test_a_frontier_of_another_domain_has_no_last_epoch():
    with pytest.raises(TypeError):
        last_of(Frontier(Edges(), [("d", 1)]))
    assert isinstance(Frontier.up_to(3), EpochFrontier)
