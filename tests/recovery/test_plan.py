"""What a recovery plan says, to machines and to people."""

from boatlift.recovery import Edge, Kind, Monitor, RecoveryGraph, Vertex
from boatlift.times import Frontier, last_of

up_to = Frontier.up_to

GRAPH = RecoveryGraph(
    [
        Vertex("flights", Kind.SOURCE),
        Vertex("clean", Kind.STATELESS),
        Vertex("delays", Kind.STATEFUL),
        Vertex("answers", Kind.SINK),
        Vertex("history", Kind.SINK),
    ],
    [
        Edge("flights->clean", "flights", "clean"),
        Edge("clean->delays", "clean", "delays"),
        Edge("delays->answers", "delays", "answers"),
        Edge("delays->history", "delays", "history"),
    ],
)
ALL = GRAPH.vertices.keys()


def monitored():
    """Checkpoint at 100, positions up to 110, one sink at 107, one at 105."""
    monitor = Monitor(GRAPH)
    for time in range(111):
        monitor.durable_determinants("flights", time)
    monitor.durable_checkpoint("delays", up_to(100))
    monitor.committed("answers", up_to(107))
    monitor.committed("history", up_to(105))
    for name in ALL:
        monitor.completed(name, up_to(107))
    return monitor


def test_each_processor_goes_back_to_its_frontier_and_replays():
    plan = monitored().plan(ALL)
    assert {p: last_of(plan.frontier(p)) for p in ALL} == {
        "flights": 100,
        "clean": 100,
        "delays": 100,
        "answers": 107,
        "history": 105,
    }
    assert plan.processors["delays"].checkpoint == up_to(100)
    assert plan.processors["clean"].checkpoint is None
    assert {p: plan.processors[p].replay for p in ("flights", "clean", "delays")} == dict.fromkeys(
        ("flights", "clean", "delays"), range(101, 111)
    )
    assert plan.recorded
    assert {p: plan.fixed(p) for p in ALL} == dict.fromkeys(ALL, up_to(110))
    assert not any(plan.queues.values())
    assert not any(part.stays for part in plan.processors.values())


def test_it_is_reported_with_the_reasons():
    assert monitored().plan(ALL).describe().splitlines() == [
        (
            "flights reads step 101 next, 101…110 as recorded; it cannot begin later, because clean needs all rows "
            "after step 100 again, and flights stores no copy of them"
        ),
        (
            "clean executes step 101 next, replays 101…110; it cannot begin later, because delays needs all rows "
            "after step 100 again, and clean stores no copy of them"
        ),
        "delays restores its checkpoint of step 100, replays 101…110",
        "history holds steps 0…105; rows of these that come again are compared and dropped",
        "answers holds steps 0…107; rows of these that come again are compared and dropped",
    ]


def test_a_fresh_start_truncates_nothing():
    plan = Monitor(GRAPH).plan(ALL)
    assert not plan.recorded
    assert {p: (last_of(plan.frontier(p)), last_of(plan.fixed(p))) for p in ALL} == dict.fromkeys(ALL, (-1, -1))
    assert plan.describe().splitlines()[0] == "flights reads step 0 next"
    assert "delays starts with empty state" in plan.describe()
    assert "answers holds nothing" in plan.describe()


def test_the_sink_that_is_behind_gets_what_it_lacks():
    monitor = monitored()
    monitor.durable_checkpoint("delays", up_to(106))
    plan = monitor.plan(ALL)
    assert plan.processors["delays"].checkpoint == up_to(100)
    why = plan.processors["delays"].why
    assert why is not None
    assert (why.constraint, why.neighbour, str(why)) == (
        "discarded",
        "history",
        "history needs all rows after step 105 again, and delays stores no copy of them",
    )


def test_survivors_stay_and_put_back_what_they_hold():
    monitor = monitored()
    for time in range(95, 108):
        monitor.sent("clean->delays", time)
    plan = monitor.plan({"delays"})
    assert plan.processors["clean"].stays
    assert plan.processors["flights"].stays
    assert plan.queues["clean->delays"] == tuple(range(101, 108))
    assert "clean stays where it is, at steps 0…107" in plan.describe()
    assert "clean hands its kept rows of steps 101…107 to delays again" in plan.describe()
    assert plan.fixed("clean") == up_to(110)
    assert not plan.processors["answers"].stays, "it is asked what it holds, whoever failed"


def test_a_survivor_that_goes_back_sends_nothing_of_what_it_undoes():
    monitor = monitored()
    for time in (101, 102, 104, 105):
        monitor.sent("clean->delays", time)
        monitor.sent("flights->clean", time)
    plan = monitor.plan({"delays"})
    assert last_of(plan.frontier("clean")) == 102
    assert plan.queues["clean->delays"] == (101, 102)
    monitor.recovered(plan)
    assert list(monitor.knowledge()["clean"].in_flight["clean->delays"]) == [101, 102]
    monitor.recovered(monitor.plan({"clean"}))
    assert not monitor.knowledge()["clean"].in_flight


def test_a_survivor_is_where_it_has_come_to_since_the_last_plan():
    monitor = Monitor(GRAPH)
    monitor.sent("flights->clean", 0)
    assert last_of(monitor.plan(frozenset()).frontier("flights")) == -1
    monitor.completed("flights", up_to(0))
    assert last_of(monitor.plan(frozenset()).frontier("flights")) == 0


def test_survivors_stay_where_they_have_come_to():
    monitor = monitored()
    monitor.plan(frozenset())
    for name in ("flights", "clean", "delays"):
        monitor.completed(name, up_to(108))
    assert last_of(monitor.plan(frozenset()).frontier("clean")) == 100, "the sinks lack 108"
    monitor.sent("delays->answers", 108)
    for time in (106, 107, 108):
        monitor.sent("delays->history", time)
    plan = monitor.plan(frozenset())
    assert {p: last_of(plan.frontier(p)) for p in ("flights", "clean", "delays")} == dict.fromkeys(
        ("flights", "clean", "delays"), 108
    )


def test_planning_changes_nothing():
    monitor = monitored()
    before = monitor.plan(ALL)
    monitor.plan({"delays"})
    assert monitor.plan(ALL) == before
