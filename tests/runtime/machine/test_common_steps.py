"""Sources that meet have common steps: a source that has nothing closes the steps of its partners with nothing."""

from __future__ import annotations

from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Graph, Lazy, plan
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.graph import program_of
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.runtime.machine.build import sources_that_meet
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.live import LiveRecords
from support.any_connector import ANY
from support.engine.machine_driver import Driver, up_to


def union_of(*sources: str) -> Program:
    """Sources that meet in `j`; each has a sink of its own beside."""
    vertices = [Vertex(name, Kind.SOURCE) for name in sources]
    vertices += [Vertex("j", Kind.STATEFUL), Vertex("out", Kind.SINK)]
    vertices += [Vertex(f"{name}-out", Kind.SINK) for name in sources]
    edges = [Edge(f"{name}>j", name, "j") for name in sources]
    edges += [Edge(f"{name}>{name}-out", name, f"{name}-out") for name in sources]
    return Program(RecoveryGraph(vertices, [*edges, Edge("j>out", "j", "out")]), {"j": Durability(Lazy(every=2))})


class Asked(Driver):
    """Polls wait until the test answers them."""

    def __init__(self, program: Program, *arguments: Any, **options: Any) -> None:
        self.polls: dict[str, instructions.PollSource] = {}
        super().__init__(program, *arguments, **options)

    def carry_out(self, order: Any) -> None:
        if isinstance(order, instructions.PollSource):
            assert order.source not in self.polls, "one poll at a time"
            self.polls[order.source] = order
        else:
            super().carry_out(order)

    def closes(self, source: str, end: int) -> None:
        order = self.polls.pop(source)
        self.hear(events.EpochClosed(source, order.incarnation, order.time, {"end": end}))
        self.go()

    def has_nothing(self, source: str, *, ended: bool = False) -> None:
        order = self.polls.pop(source)
        self.hear(events.SourceIdle(source, order.incarnation, order.time, ended))
        self.go()

    def wakes(self, source: str) -> None:
        self.hear(events.SourceWoken(source))
        self.go()

    def closed(self, source: str) -> list[Any]:
        """What the source closed, time by time: the end of its positions, or None."""
        facts = [fact for fact in self.facts(Determinant) if fact.processor == source]
        assert [fact.time for fact in facts] == list(range(len(facts)))
        return [None if fact.outcome is None else fact.outcome["end"] for fact in facts]

    def taken(self) -> list[tuple[int, list[str]]]:
        """The steps of `j`, each with the sources whose messages it took."""
        steps = [take for order in self.of(instructions.Execute) if order.processor == "j" for take in order.takes]
        return [(take.time, [message.edge[0] for message in take.inputs]) for take in steps]


def begun(program: Program, **options: Any) -> Asked:
    driver = Asked(program, **options)
    driver.go()
    return driver


def test_a_step_takes_what_each_source_has_also_nothing() -> None:
    driver = begun(union_of("x", "y"))
    driver.has_nothing("y")
    driver.closes("x", 5)
    assert driver.taken() == [(0, ["x"])]
    driver.wakes("y")
    driver.closes("y", 7)
    assert driver.taken() == [(0, ["x"])], "x is being asked, and has not rested"
    driver.closes("x", 6)
    assert driver.taken() == [(0, ["x"]), (1, ["x", "y"])]
    assert driver.closed("x") == [5, 6]
    assert driver.closed("y") == [None, 7]


def test_the_positions_of_a_step_become_durable_together() -> None:
    driver = begun(union_of("x", "y", "z"))
    driver.has_nothing("y")
    driver.has_nothing("z")
    driver.closes("x", 5)
    writes = [
        {fact.processor for fact in write.facts if isinstance(fact, Determinant)}
        for write in driver.of(instructions.AppendLog)
    ]
    assert {"x", "y", "z"} in writes


def test_a_source_that_rests_delays_no_other_while_it_is_asked_again() -> None:
    """Nor are rows lost that the answer brings: they are its next epoch."""
    driver = begun(union_of("x", "y"))
    driver.has_nothing("y")
    driver.wakes("y")
    driver.closes("x", 5)
    driver.closes("x", 6)
    assert driver.taken() == [(0, ["x"]), (1, ["x"])]
    driver.closes("y", 3)
    driver.closes("x", 8)
    assert driver.closed("y") == [None, None, 3]
    assert driver.taken()[2:] == [(2, ["x", "y"])]


def test_an_answer_that_comes_twice_counts_once() -> None:
    driver = begun(union_of("x", "y"))
    driver.has_nothing("y")
    driver.wakes("y")
    poll = driver.polls["y"]
    driver.closes("x", 5)
    driver.closes("y", 3)
    driver.hear(events.EpochClosed("y", poll.incarnation, poll.time, {"end": 3}))
    driver.go()
    assert driver.closed("y") == [None, 3]


def test_a_source_that_has_not_answered_yet_is_waited_for() -> None:
    driver = begun(union_of("x", "y"))
    driver.closes("x", 5)
    assert driver.taken() == []
    driver.closes("y", 1)
    assert driver.taken() == [(0, ["x", "y"])]


def test_steps_without_input_never_make_another_one() -> None:
    driver = begun(union_of("x", "y", "z"))
    for source in "xyz":
        driver.has_nothing(source)
    for source in "xyz":
        driver.wakes(source)
        driver.has_nothing(source)
    assert all(driver.closed(source) == [] for source in "xyz")
    driver.wakes("y")
    driver.closes("y", 4)
    driver.has_nothing("y")
    assert [driver.closed(source) for source in "xyz"] == [[None], [4], [None]]


def test_a_source_that_has_ended_stops_no_other_and_everything_is_taken() -> None:
    driver = begun(union_of("x", "y"))
    driver.closes("y", 1)
    driver.has_nothing("y", ended=True)
    for end in range(10):
        driver.closes("x", end)
    driver.has_nothing("x", ended=True)
    assert driver.machine.finished
    assert driver.closed("y") == [1, *[None] * 9]
    assert driver.machine.processors["out"].held == up_to(9)
    assert driver.machine.processors["y-out"].held == up_to(9), "also where nothing came"


def test_a_stop_takes_what_was_closed() -> None:
    driver = begun(union_of("x", "y"))
    driver.closes("x", 5)
    driver.hear(events.StopRequested(drain=True))
    driver.go()
    for source in "xy":
        driver.has_nothing(source)
    assert driver.machine.finished
    assert driver.taken() == [(0, ["x"])]


def test_a_stop_at_once_begins_no_step() -> None:
    driver = begun(union_of("x", "y"))
    driver.closes("x", 5)
    driver.hear(events.StopRequested(drain=False))
    driver.go()
    for source in "xy":
        driver.has_nothing(source)
    assert driver.machine.finished
    assert driver.taken() == []
    again = Asked(union_of("x", "y"), LiveRecords.of(driver.machine.durable.records.facts()))
    again.go()
    again.has_nothing("y")
    assert again.taken() == [(0, ["x"])], "it was recorded"


def test_a_crowded_source_goes_on_with_nothing_at_once() -> None:
    """What waits behind `y` is of other steps: an epoch without input fills no queue."""
    driver = begun(union_of("x", "y"), messages_ahead=2, slow={"j"})
    driver.closes("y", 1)
    driver.has_nothing("y")
    for end in range(2):
        driver.closes("x", end)
    assert driver.closed("y") == [1, None]


def test_a_recovery_repeats_the_steps_without_input() -> None:
    first = begun(union_of("x", "y"), slow={"j"})
    first.has_nothing("y")
    for end in (5, 6):
        first.closes("x", end)
    again = Asked(union_of("x", "y"), LiveRecords.of(first.machine.durable.records.facts()))
    again.go()
    assert again.taken() == [(0, ["x"]), (1, ["x"])]
    assert again.polls["y"].time == 2
    assert again.facts(Determinant) == []


def test_a_source_that_lags_after_a_crash_catches_up() -> None:
    """The log has step 1 of `x`, and none of `y`: `y` is asked, and has nothing."""
    first = begun(union_of("x", "y"))
    first.has_nothing("y")
    first.closes("x", 5)
    facts = first.machine.durable.records.facts()
    kept = [fact for fact in facts if not (isinstance(fact, Determinant) and fact.processor == "y")]
    again = Asked(union_of("x", "y"), LiveRecords.of(kept))
    again.go()
    assert again.taken() == []
    again.has_nothing("y")
    assert again.taken() == [(0, ["x"])]


def flow_of(*unions: tuple[str, ...]) -> Graph:
    """Sources a to e; each union is of some of them, or of unions before."""
    flow = bl.Dataflow("flow")
    streams = {name: flow.source(name, ANY) for name in "abcde"}
    for n, (first, *others) in enumerate(unions):
        streams[f"u{n}"] = streams[first].union(f"u{n}", *(streams[other] for other in others))
    for name, stream in streams.items():
        stream.sink(f"{name}-out", ANY)
    return flow


@pytest.mark.parametrize(
    ("unions", "groups"),
    [
        ((), []),
        ([("a", "b")], ["ab"]),
        ([("a", "b"), ("c", "d")], ["ab", "cd"]),
        ([("a", "b"), ("b", "c")], ["abc"]),
        ([("a", "b"), ("c", "d"), ("d", "a")], ["abcd"]),
        ([("a", "b"), ("u0", "c")], ["abc"]),
    ],
)
def test_sources_that_meet_share_a_group_and_so_do_those_of_a_partner(
    unions: list[tuple[str, ...]], groups: list[str]
) -> None:
    found = sources_that_meet(program_of(plan(flow_of(*unions))).graph)
    assert sorted("".join(sorted(group)) for group in found) == groups


def test_sources_do_not_meet_in_arrival_order() -> None:
    flow = bl.Dataflow("flow")
    a, b, c = (flow.source(name, ANY) for name in "abc")
    a.merge("both", b).sink("out", ANY)
    counts = b.group_by("k").agg("counts", ANY)
    c.lookup("asked", live=counts.by("k")).sink("answers", ANY)
    assert sources_that_meet(program_of(plan(flow)).graph) == []
