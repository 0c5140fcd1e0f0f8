"""The solver over sequences, loops and coarse epochs, against a checker that knows only sets of times."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.recovery import Kind, solve
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
    Leave,
    Loop,
    Sequence,
    ToSequence,
)
from support.worlds.set_worlds import Facts, SetWorld

EPOCHS = 4


def some(draw, times):
    return set(draw(st.lists(st.sampled_from(times), unique=True))) if times else set()


def source(draw, times=None):
    times = list(range(EPOCHS)) if times is None else times
    known = draw(st.integers(0, len(times)))
    return Facts(Kind.SOURCE, EPOCH, times, candidates=None, determinants=set(times[:known]))


def processor(draw, domain, times, outputs, kinds=(Kind.STATELESS, Kind.STATEFUL), order=None):
    facts = Facts(draw(st.sampled_from(kinds)), domain, times, draw(st.booleans()), order=order)
    facts.determinants = some(draw, times)
    if facts.kind is Kind.STATEFUL:
        facts.candidates = sorted({0, *draw(st.sets(st.integers(0, len(times)), max_size=3))})
    for edge in outputs:
        if draw(st.booleans()):
            facts.logged[edge] = some(draw, times)
    return facts


def sink(draw, times):
    return Facts(Kind.SINK, EPOCH, times, candidates=[draw(st.sampled_from([0, 0, 1, len(times)]))])


def check(world):
    """The solver finds the largest consistent rollback, or there is none."""
    # A source's F* goes no further than its positions are known.
    for facts in world.facts.values():
        if facts.kind is Kind.SOURCE:
            facts.candidates = list(range(len(facts.determinants) + 1))
    consistent = list(world.all_consistent())
    try:
        chosen = solve(world.graph(), world.knowledge(), world.facts.keys())
    except DataError:
        assert not consistent
        return
    found = {p: world.members(p, f) for p, f in chosen.frontier.items()}
    assert found in consistent, (found, consistent)
    for other in consistent:
        assert all(other[p] <= found[p] for p in found), (other, found)
    assert {p: set(world.members(p, f)) for p, f in chosen.fixed.items()} == world.widened(found)


@st.composite
def with_a_sequence(draw):
    """Two sources, taken as they come by one that keeps their order; what it gives goes on in epochs."""
    domain = Sequence(("a-m", "b-m"))
    taken = draw(
        st.lists(st.sampled_from(domain.edges), max_size=6).filter(lambda t: max(map(t.count, domain.edges)) <= 3)
    )
    order = ArrivalOrder(domain, taken)
    times = [order.at(event) for event in range(len(taken))]
    events = list(range(len(taken)))
    middle = processor(draw, domain, times, ["m-p"], (Kind.STATEFUL,), order)
    after = processor(draw, EPOCH, events, ["p-out"])
    return SetWorld(
        {
            "a": source(draw, list(range(taken.count("a-m")))),
            "b": source(draw, list(range(taken.count("b-m")))),
            "m": middle,
            "p": after,
            "out": sink(draw, events),
        },
        {
            "a-m": ("a", "m", ToSequence(domain, "a-m")),
            "b-m": ("b", "m", ToSequence(domain, "b-m")),
            "m-p": ("m", "p", FromSequence(order)),
            "p-out": ("p", "out", IDENTITY),
        },
    )


@st.composite
def with_a_loop(draw):
    """A source, a loop of one or two processors, and what leaves it."""
    loop = Loop(1)
    rounds = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    epochs = list(range(len(rounds)))
    times = [(epoch, i) for epoch, count in enumerate(rounds) for i in (*range(count), LAST)]
    facts = {"in": source(draw, epochs), "head": processor(draw, loop, times, ["again", "leave"])}
    edges = {"enter": ("in", "head", Enter(loop))}
    last = "head"
    if draw(st.booleans()):
        facts["tail"] = processor(draw, loop, times, ["again", "leave"])
        edges["head-tail"] = ("head", "tail", IDENTITY)
        last = "tail"
    facts["out"] = sink(draw, epochs) if draw(st.booleans()) else processor(draw, EPOCH, epochs, [])
    edges |= {"again": (last, "head", Feedback(loop)), "leave": (last, "out", Leave(loop))}
    for name, fact in facts.items():
        fact.logged = {e: t for e, t in fact.logged.items() if edges[e][0] == name}
    return SetWorld(facts, edges)


@st.composite
def with_coarse_epochs(draw):
    """A source read by a batch processor of coarse epochs and by a fast one; both meet again."""
    # An open epoch could end anywhere, and the checker knows only what is there.
    ends = sorted({EPOCHS - 1, *draw(st.sets(st.integers(0, EPOCHS - 1)))})
    cuts = EpochBoundaries(ends)
    batch = processor(draw, EPOCH, list(range(len(ends))), ["batch-join"])
    return SetWorld(
        {
            "in": source(draw),
            "batch": batch,
            "fast": processor(draw, EPOCH, list(range(EPOCHS)), ["fast-join"]),
            "join": processor(draw, EPOCH, list(range(EPOCHS)), []),
        },
        {
            "in-batch": ("in", "batch", Coarse(cuts)),
            "in-fast": ("in", "fast", IDENTITY),
            "batch-join": ("batch", "join", Fine(cuts)),
            "fast-join": ("fast", "join", IDENTITY),
        },
    )


@settings(max_examples=120)
@given(with_a_sequence())
def test_inputs_taken_as_they_come(world):
    check(world)


@settings(max_examples=120)
@given(with_a_loop())
def test_loops(world):
    check(world)


@settings(max_examples=60)
@given(with_coarse_epochs())
def test_coarse_epochs(world):
    check(world)


def test_the_worlds_are_not_all_alike():
    """A generator that never gives a rollback in the middle would prove nothing."""
    seen = set()

    @settings(max_examples=300, derandomize=True, database=None)
    @given(st.one_of(with_a_sequence(), with_a_loop(), with_coarse_epochs()))
    def look(world):
        try:
            chosen = solve(world.graph(), world.knowledge(), world.facts.keys())
        except DataError:
            seen.add("none")
            return
        for p, facts in world.facts.items():
            kept = len(world.members(p, chosen.frontier[p]))
            place = "all" if kept == len(facts.times) else "some" if kept else "nothing"
            seen.add((type(facts.domain).__name__, place))

    look()
    assert "none" in seen
    assert {
        (kind, place) for kind, place in itertools.product(("Sequence", "Loop", "Epoch"), ("some", "nothing"))
    } <= seen
