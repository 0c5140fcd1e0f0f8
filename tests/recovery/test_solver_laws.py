"""The solver against brute force, on random small graphs: every constraint met, nothing larger possible."""

import copy

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.recovery import Kind, reproducible, solve, widen
from boatlift.recovery.constraints import first_broken
from boatlift.times import Frontier, last_of
from support.worlds.recovery_worlds import TIMES, worlds


def solved(world):
    """The solver's frontiers as ints, None if there are none."""
    try:
        chosen = solve(world.graph(), world.knowledge(), world.failed)
    except DataError as error:
        if error.condition != "NO_CONSISTENT_FRONTIER":
            raise
        return None
    return {p: last_of(f) for p, f in chosen.frontier.items()}


@settings(max_examples=200)
@given(worlds())
def test_it_is_consistent_and_nothing_larger_is(world):
    found = solved(world)
    if found is None:
        assert next(world.all_consistent(), None) is None
        return
    assert world.consistent(found)
    for other in world.all_consistent():
        assert all(other[p] <= found[p] for p in found), (other, found)


@settings(max_examples=120)
@given(worlds(most=5))
def test_the_fixed_frontiers_are_the_widened_ones(world):
    found = solved(world)
    assume(found is not None)
    chosen = solve(world.graph(), world.knowledge(), world.failed)
    assert {p: min(last_of(f), TIMES - 1) for p, f in chosen.fixed.items()} == world.widened(found)


@settings(max_examples=120)
@given(worlds(most=5), st.data())
def test_one_more_durable_thing_never_lowers_a_frontier(world, data):
    before = solved(world)
    assume(before is not None)
    richer = copy.deepcopy(world)
    p = data.draw(st.sampled_from(list(world.facts)))
    facts, time = richer.facts[p], data.draw(st.integers(0, TIMES - 1))
    if facts.kind is Kind.STATEFUL and data.draw(st.booleans()):
        # A survivor's ⊤ stays where it is: it saves what it has completed.
        time = time if p in world.failed else min(time, facts.completed)
        if time >= 0:
            facts.checkpoints.setdefault(time, richer._structured(p, time))
            facts.completed = max(facts.completed, time)
    elif facts.logged and data.draw(st.booleans()):
        next(iter(facts.logged.values())).add(time)
    else:
        facts.determinants.add(time)
    after = solved(richer)
    assert after is not None
    assert all(before[q] <= after[q] for q in before)


@settings(max_examples=120)
@given(worlds(most=5))
def test_why_names_what_really_forbids_the_next_larger_frontier(world):
    found = solved(world)
    assume(found is not None)
    knowledge, survivors = world.knowledge(), world.facts.keys() - world.failed
    chosen = solve(world.graph(), knowledge, world.failed)
    fixed_n = {p: Frontier.everything() for p in found}  # f_n only adds reasons
    for p, last in found.items():
        larger = [f for f in world.candidates(p) if f > last]
        why = chosen.why(p)
        if why is None:
            assert not larger
            continue
        assert why.processor == p
        assert world.edges[why.edge] in {(why.neighbour, p), (p, why.neighbour)}
        assert last_of(why.refused) == (min(larger) if larger else last + 1)
        if why.constraint in {"delivered", "discarded"}:
            known, everything = knowledge[p], Frontier.everything()
            xi = known.available(survivors).xi(why.refused) or known.xi(why.refused, survivors)
            broken = first_broken(xi, known, survivors, chosen.kept, chosen.fixed, everything, fixed_n)
            assert broken is not None


@given(worlds(most=3), st.integers(-1, TIMES - 1), st.data())
def test_widening_goes_through_what_is_reproducible_until_the_first_gap(world, inputs, data):
    known = world.knowledge()[data.draw(st.sampled_from(list(world.facts)))]
    f, fixed = Frontier.up_to(data.draw(st.integers(-1, TIMES - 1))), Frontier.up_to(inputs)
    reached = f.last
    while reproducible(reached + 1, known, fixed, set()):
        reached += 1
    assert widen(f, known, fixed, set()) == Frontier.up_to(reached)
